//! Feature `clap`: options as they are typed on a command line, where the types of fields do not
//! say it.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};
use hsipack_format::arguments::{duration, rate};
use hsipack_read::augment::Pipeline;

use super::augment::Augment;
use crate::arguments::pipeline;

/// [`Augment`] as two options.
#[derive(clap::Args)]
struct AugmentArguments {
    /// Augmentations in a JSON file, as for `preview --augment`
    /// [default: the published augmentations, an affine map and flips]
    #[arg(long, value_name = "FILE", value_parser = pipeline, conflicts_with = "no_augment", help_heading = "Training")]
    augment: Option<Pipeline>,
    /// Do not augment
    #[arg(long, help_heading = "Training")]
    no_augment: bool,
}

impl FromArgMatches for Augment {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let arguments = AugmentArguments::from_arg_matches(matches)?;
        Ok(match arguments.augment {
            Some(pipeline) => Self::Pipeline(pipeline),
            None if arguments.no_augment => Self::None,
            None => Self::Published,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Augment {
    fn augment_args(command: Command) -> Command {
        AugmentArguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        AugmentArguments::augment_args_for_update(command)
    }
}

/// A rate, or `unlimited`.
pub(super) fn rate_limit(text: &str) -> Result<Option<u64>, String> {
    if text == "unlimited" {
        return Ok(None);
    }
    rate(text).map(Some).map_err(|error| format!("{error}, or unlimited"))
}

/// A time in seconds, with a unit.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    duration(text).map(|time| time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::super::options::{BenchOptions, CubeSize, Strategy};
    use super::*;
    use crate::step::StepKind;

    fn parsed(words: &[&str]) -> Result<BenchOptions, Error> {
        let command = BenchOptions::augment_args(Command::new("bench").no_binary_name(true));
        BenchOptions::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn without_flags_all_options_have_their_defaults() {
        assert_eq!(parsed(&[]).unwrap(), BenchOptions::default());
    }

    #[test]
    fn flags_set_the_options_of_their_names() {
        let words = "c --cubes 3 --strategies 1,+fp16 --rate-limit unlimited --rate-limit 1MB/s --latency 2ms --network small";
        let options = parsed(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!((options.path.as_deref(), options.cubes), (Some("c"), Some(3)));
        assert_eq!(options.strategies, [Strategy::Blosc, Strategy::Half]);
        assert_eq!(options.rate_limits, [None, Some(1_000_000)]);
        assert_eq!((options.settings.latency_s, options.settings.step), (0.002, StepKind::Network));
        let options = parsed(&["--shape", "48x64x10", "--step-time", "2s"]).unwrap();
        assert_eq!(options.shape, CubeSize { rows: 48, columns: 64, bands: 10 });
        assert_eq!(options.settings.step, StepKind::Time(2.0));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pipeline.json");
        std::fs::write(&file, r#"[{"op": "hflip"}]"#).unwrap();
        let augment = |words: &[&str]| parsed(words).unwrap().settings.augment;
        let Augment::Pipeline(pipeline) = augment(&["--augment", file.to_str().unwrap()]) else {
            panic!("no pipeline")
        };
        assert_eq!(pipeline.ops.len(), 1);
        assert_eq!(augment(&["--no-augment"]), Augment::None);
    }

    #[test]
    fn contradicting_and_malformed_values_are_refused() {
        for words in [
            ["--shape", "4x4"].as_slice(),
            &["--shape", "4x4x0"],
            &["--shape", "4x4xa"],
            &["--strategies", "6"],
            &["--rate-limit", "5"],
            &["c", "--shape", "4x4x4"],
            &["--network", "small", "--step-time", "1s"],
            &["--augment", "missing.json"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
