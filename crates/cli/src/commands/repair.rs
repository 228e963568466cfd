//! `hsipack repair`.

use std::process::ExitCode;

use hsipack_format::Result;

/// TODO
#[derive(clap::Args)]
pub struct Args {}

/// Runs the command.
pub fn run(_args: Args) -> Result<ExitCode> {
    Ok(ExitCode::from(2))
}
