//! From errors to messages and exit codes.

use std::process::ExitCode;

use hsipack_format::{Error, ErrorKind};

/// Exit code of a command that the user stopped.
const STOPPED: u8 = 130;

/// Prints an error and gives the exit code for it.
pub fn report(error: Error) -> ExitCode {
    eprintln!("hsipack: {error}");
    ExitCode::from(if error.kind() == ErrorKind::Interrupted { STOPPED } else { 1 })
}
