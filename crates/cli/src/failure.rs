//! From errors to messages and exit codes.

use std::process::ExitCode;

use hsipack_format::{Error, ErrorKind};

/// Exit code of a command that the user stopped.
const STOPPED: u8 = 130;

/// Prints an error and gives the exit code for it.
pub fn report(error: Error) -> ExitCode {
    note!("hsipack: {error}");
    ExitCode::from(if error.kind() == ErrorKind::Interrupted { STOPPED } else { 1 })
}

/// The error of a command that needs libtorch, in a build without it; `what` the command does with it.
#[cfg(not(feature = "torch"))]
pub fn without_torch(what: &str) -> Error {
    Error::unsupported(format!("this hsipack was built without libtorch, which {what}")).with_remedy(
        "use the command of the Python package (`pip install .`), or build it with `cargo install --path crates/cli \
         --features torch`, beside `pip install torch==2.11.0`",
    )
}
