//! Feature `clap`: options of several measurements as they are typed on a command line.

use std::time::Duration;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, ValueEnum};
use hsipack_format::arguments::duration;
use hsipack_read::augment::Pipeline;

use crate::step::StepKind;

/// [`StepKind`] as two options. A command that has them says what happens without either.
#[derive(clap::Args)]
struct StepArguments {
    /// Time of the training step for a batch, without augmentations: a wait that uses no processor,
    /// such as 50ms
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "network", help_heading = "Training")]
    step_time: Option<Duration>,
    /// Train a network on each batch instead; small has a convolution over the spectra and a linear
    /// layer
    #[arg(long, value_enum, help_heading = "Training")]
    network: Option<Network>,
}

/// The available networks.
#[derive(Clone, Copy, ValueEnum)]
enum Network {
    Small,
}

impl FromArgMatches for StepKind {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let arguments = StepArguments::from_arg_matches(matches)?;
        Ok(match arguments.network {
            Some(Network::Small) => Self::Network,
            None => Self::Time(arguments.step_time.unwrap_or_default().as_secs_f64()),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for StepKind {
    fn augment_args(command: Command) -> Command {
        StepArguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        StepArguments::augment_args_for_update(command)
    }
}

/// The augmentations in a JSON file.
pub(crate) fn pipeline(file: &str) -> Result<Pipeline, String> {
    let json = std::fs::read_to_string(file).map_err(|error| format!("cannot read it: {error}"))?;
    Pipeline::from_json(&json).map_err(|error| error.to_string())
}
