//! `hsipack completions`.

use std::process::ExitCode;

use clap_complete::Shell;
use hsipack_format::Result;

use crate::output;

/// Print a shell's completion script.
///
/// For bash: hsipack completions bash > ~/.local/share/bash-completion/completions/hsipack
#[derive(clap::Args)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// Never.
pub fn run(args: Args, command: &mut clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "hsipack", &mut script);
    output::write(&script);
    Ok(ExitCode::SUCCESS)
}
