//! `hsipack completions`.

use std::process::ExitCode;

use clap_complete::Shell;
use hsipack_format::Result;

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
    clap_complete::generate(args.shell, command, "hsipack", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
