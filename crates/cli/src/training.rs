//! The training step that the command line asks for.

use std::time::Duration;

use clap::ValueEnum;
use hsipack_measure::step::StepKind;

/// The available networks.
#[derive(Clone, Copy, ValueEnum)]
pub enum NetworkArg {
    Small,
}

/// The network if the user asked for one, otherwise a wait.
pub fn step(network: Option<NetworkArg>, time: Duration) -> StepKind {
    match network {
        Some(NetworkArg::Small) => StepKind::Network,
        None => StepKind::Time(time.as_secs_f64()),
    }
}
