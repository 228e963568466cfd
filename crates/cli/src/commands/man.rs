//! `hsipack man`.

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::{Error, Result};

/// Write man pages into a folder: hsipack.1, and one per command.
///
/// To read one without installing: hsipack man /tmp && man /tmp/hsipack-convert.1
#[derive(clap::Args)]
pub struct Args {
    /// An existing folder
    folder: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If a page cannot be written.
pub fn run(args: Args, command: clap::Command) -> Result<ExitCode> {
    clap_mangen::generate_to(command, &args.folder)
        .map_err(|error| Error::io(&args.folder, "cannot write", error))?;
    Ok(ExitCode::SUCCESS)
}
