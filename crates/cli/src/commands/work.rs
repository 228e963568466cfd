//! `hsipack work`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_pack::convert::parts::{self, State, WorkOptions, WorkReport};

use crate::output;
use crate::task::Task;

/// Pack a part of the cubes that `hsipack convert --plan` planned.
///
/// Any number of workers can run at once, on any machines that can access the plan, the cubes and the output. Each worker
/// writes whole shards, with a receipt for each. Shards with a receipt are skipped, so running the command again continues
/// where it stopped. Without --part it packs all remaining shards, such as those of workers that died.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file that `hsipack convert --plan` wrote, or its URL
    plan: PathBuf,

    #[command(flatten)]
    options: WorkOptions,

    /// Pack nothing; show the progress of all workers until every shard has its receipt
    // In the help, it comes after --part, whose order is 0.
    #[arg(long, conflicts_with_all = ["part", "jobs", "memory"], display_order = 0)]
    watch: bool,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack work plan.json --part 3/16
  hsipack work plan.json --part $SLURM_ARRAY_TASK_ID/16             (sbatch --array=1-16)
  hsipack work plan.json --part $((JOB_COMPLETION_INDEX + 1))/16    (Kubernetes)
  hsipack work plan.json --watch

Keys of --json: output part shards written left bytes seconds already_complete; with --watch: shards done committed";

/// Runs the command.
///
/// # Errors
/// If the plan is damaged, its conversion was not begun, or a shard cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.watch {
        return watch(&args.plan, args.json);
    }
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

/// How often to check the progress of workers.
const LOOK: Duration = Duration::from_secs(1);

fn watch(plan: &Path, json: bool) -> Result<ExitCode> {
    let look = parts::state(plan, true)?;
    let task = Task::start("");
    let mut shown = None;
    let state = loop {
        let state = look()?;
        if shown.is_none() {
            task.count_shards(state.shards as u64);
        }
        task.progress.bytes_in.store(state.done as u64, Ordering::Relaxed);
        if state.done == state.shards {
            break state;
        }
        if task.bar.is_hidden() && shown != Some(state) {
            note!("{} of {}", state.done, output::count(state.shards, "shard"));
        }
        shown = Some(state);
        std::thread::sleep(LOOK);
        if task.progress.stop.load(Ordering::Relaxed) {
            task.finish();
            return Err(Error::new(ErrorKind::Interrupted, "stopped watching"));
        }
    };
    task.finish();
    output::report(&state, json, print_state);
    Ok(ExitCode::SUCCESS)
}

fn print_state(state: &State) {
    match state.committed {
        true => {
            say!("all {} written, and the dataset is there", output::count(state.shards, "shard"))
        }
        false => say!("all {} written; next: hsipack commit", output::count(state.shards, "shard")),
    }
}
