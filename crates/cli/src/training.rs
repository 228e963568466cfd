//! The training step, as it is asked for on the command line.

use std::time::Duration;

use clap::ValueEnum;
use hsipack_measure::step::StepKind;

/// The networks that there are.
#[derive(Clone, Copy, ValueEnum)]
pub enum NetworkArg {
    Small,
}

/// A network, if one was asked for; else a wait.
pub fn step(network: Option<NetworkArg>, time: Duration) -> StepKind {
    match network {
        Some(NetworkArg::Small) => StepKind::Network,
        None => StepKind::Time(time.as_secs_f64()),
    }
}
