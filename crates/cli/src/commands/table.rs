//! `hsipack table`.

use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::columns::{self, ColumnsOptions, Report};

use crate::task::Task;
use crate::{output, typed};

/// Change columns of packed samples: split, label, group, any others.
///
/// Only the list of samples and the statistics of changed splits are written again. The dataset
/// changes in one step and gets another fingerprint; programs that have it open keep the columns
/// that they read.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: ColumnsOptions,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack table fruit.hsipack corrected.csv
  hsipack table fruit.hsipack labels.json::records --table-key file={stem}.hdr --label-column ripeness
  hsipack table fruit.hsipack --split train=train.txt --split val=val.txt";

/// Runs the command.
///
/// # Errors
/// The errors of [`columns::set_columns`].
pub fn run(args: Args) -> Result<ExitCode> {
    let command = typed::command_line(&["--json"], &["--threads", "--jobs", "-j"]);
    let options = ColumnsOptions { command, ..args.options };
    let task = Task::start("read");
    let result = columns::set_columns(&options, None, &task.progress);
    task.finish();
    output::report(&result?, args.json, print);
    Ok(ExitCode::SUCCESS)
}

/// Prints the report of a change of columns.
pub fn print(report: &Report) {
    let path = report.dataset.display();
    if report.samples == 0 {
        say!("{path}: nothing changed");
    } else {
        let samples = output::count(report.samples, "sample");
        say!("{path}: {} of {samples} changed", report.columns.join(", "));
    }
    if !report.splits.is_empty() {
        let splits = report.splits.iter().map(|(split, count)| format!("{split} {count}"));
        say!("  splits: {}", splits.collect::<Vec<_>>().join(", "));
    }
    report.notes.iter().for_each(|note| say!("  note: {note}"));
}
