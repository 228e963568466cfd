//! `hsipack work`.

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::convert::parts::{self, WorkOptions, WorkReport};

use crate::output;
use crate::task::Task;

/// Pack a part of the cubes of a plan (`hsipack convert --plan`).
///
/// Any number of workers can run at once, on any machines that can access the plan, the cubes and
/// the output. Each worker writes whole shards, with a receipt for each. Shards with a receipt are
/// skipped, so running the command again continues where it stopped. Without --part it packs all
/// remaining shards, such as those of workers that died.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file that `hsipack convert --plan` wrote, or its URL
    plan: PathBuf,

    #[command(flatten)]
    options: WorkOptions,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack work plan.json --part 3/16
  hsipack work plan.json --part $SLURM_ARRAY_TASK_ID/16             (sbatch --array=1-16)
  hsipack work plan.json --part $((JOB_COMPLETION_INDEX + 1))/16    (Kubernetes)

Keys of --json: output part shards written left bytes seconds already_complete";

/// Runs the command.
///
/// # Errors
/// If the plan is damaged, its conversion was not begun, or a shard cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    let options = WorkOptions { change_folder: true, ..args.options };
    let task = Task::start("packed");
    let report = parts::work(&args.plan, &options, &task.progress, &|bytes| task.set_total(bytes));
    task.finish();
    output::report(&report?, args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn print(report: &WorkReport) {
    if report.already_complete {
        say!("{} is complete; there was nothing left to do", report.output);
        return;
    }
    let earlier = match report.shards - report.written {
        0 => String::new(),
        earlier => format!(", {earlier} were there"),
    };
    say!(
        "{}: part {}, {} written in {:.1} s{earlier}",
        report.output,
        report.part,
        output::count(report.written, "shard"),
        report.seconds
    );
    match report.left {
        0 => say!("  every shard has its receipt; next: hsipack commit"),
        remaining => say!("  {} of other parts left", output::count(remaining, "shard")),
    }
}
