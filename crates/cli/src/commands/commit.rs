//! `hsipack commit`.

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::convert::parts;

use super::convert;
use crate::output;

/// Turn the shards that workers wrote into a dataset.
///
/// It is the last step of a conversion in parts. Every planned shard must have its receipt. If
/// receipts are missing, they are listed and nothing changes. The dataset appears as a whole.
/// Running the command again does nothing.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file that `hsipack convert --plan` wrote, or its URL
    plan: PathBuf,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack commit plan.json
  sbatch --dependency=afterok:$ARRAY_JOB --wrap 'hsipack commit plan.json'";

/// Runs the command.
///
/// # Errors
/// If a receipt is missing, damaged or of another plan, or the dataset cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    let report = parts::commit(&args.plan, true)?;
    output::report(&report, args.json, convert::print);
    Ok(ExitCode::SUCCESS)
}
