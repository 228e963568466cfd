//! `hsipack add`.

use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::add_companions::{self, AddOptions, Report};

use crate::task::Task;
use crate::{output, typed};

/// Add targets and further images to a packed dataset.
///
/// The arrays are as if they had been packed with the cubes: validate --source, repair and appends
/// read their files again. All files are checked before anything is written, and all arrays appear
/// at once. The other files of the dataset do not change.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: AddOptions,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack add flight.hsipack --target 'mag1c={dir}/{stem}_mag1c.tif'
  hsipack add flight.hsipack --image 'rgb={dir}/{stem}.jpg' --image 'before={dir}/{stem}_t0.hdr' --fit mean";

/// Runs the command.
///
/// # Errors
/// The errors of [`add_companions::add`].
pub fn run(args: Args) -> Result<ExitCode> {
    let command = typed::command_line(&["--json"], &[]);
    let options = AddOptions { command, ..args.options };
    let task = Task::start("added");
    let result = add_companions::add(&options, &task.progress);
    task.finish();
    output::report(&result?, args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) {
    let names = [report.targets.as_slice(), &report.images].concat().join(", ");
    say!(
        "{}: added {names} to {} ({})",
        report.dataset.display(),
        output::count(report.samples, "sample"),
        output::bytes(report.stored_bytes)
    );
}
