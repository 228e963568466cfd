//! `hsipack merge`.

use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::merge::{self, MergeOptions, Report};

use crate::task::Task;
use crate::{output, typed};

/// Merge packed datasets into a new one.
///
/// No cube is decoded: stored chunks are copied, or linked where whole shards fit. The samples of
/// each dataset follow those of the one before it. Cubes of one shape must have the same type,
/// chunks, compression and wavelengths. A mask that a dataset lacks has the id --mask-fill in its
/// samples.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: MergeOptions,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack merge 2025.hsipack 2026.hsipack -o both.hsipack
  hsipack merge lab_a.hsipack lab_b.hsipack -o labs.hsipack --column lab --prefix";

/// Runs the command.
///
/// # Errors
/// The errors of [`merge::merge`].
pub fn run(args: Args) -> Result<ExitCode> {
    let command = typed::command_line(&["--json"], &[]);
    let options = MergeOptions { command, ..args.options };
    let task = Task::start("copied");
    let result = merge::merge(&options, &task.progress);
    task.finish();
    output::report(&result?, args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) {
    let path = report.output.display();
    let parts: Vec<String> = report.parts.iter().map(ToString::to_string).collect();
    let samples = output::count(report.samples, "sample");
    say!("{path}: {samples} ({}) in {:.1} s", parts.join(" + "), report.seconds);
    say!("  {}", report.stacks.join(", "));
    if !report.masks.is_empty() {
        say!("  masks: {}", report.masks.join(", "));
    }
    let written = output::count(report.written_shards, "shard");
    say!("  {written} written, {} linked", report.linked_shards);
    report.notes.iter().for_each(|note| say!("  note: {note}"));
}
