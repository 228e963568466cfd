//! `hsipack layouts`.

use std::process::ExitCode;

use hsipack_format::Result;

use super::convert::layout::{self, Layout, SHIPPED};
use crate::output;

/// List the layouts of public datasets for convert, or print one.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Print the file of this layout, to use it or to change a copy of it
    name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  hsipack layouts
  hsipack layouts cave
  hsipack layouts cave > mine.toml && hsipack convert mine/ -o mine.hsipack --layout mine.toml";

/// Runs the command.
///
/// # Errors
/// If no layout has the name.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.name {
        Some(name) => output::write(layout::shipped(name)?.as_bytes()),
        None => list()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> Result<()> {
    for (name, _) in SHIPPED {
        let layout = Layout::open(name)?;
        say!("{name}: {}", layout.title);
        for path in &layout.expects {
            say!("    {path}");
        }
        if !layout.note.is_empty() {
            say!("  {}", layout.note);
        }
    }
    say!(
        "hsipack convert FOLDER -o OUT --layout NAME packs one; `hsipack layouts NAME` prints its options"
    );
    Ok(())
}
