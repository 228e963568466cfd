//! `hsipack status`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_pack::convert::parts::{self, State};

use crate::output;
use crate::task::Task;

/// Show how far the workers of a plan are.
///
/// It counts the shards that have their receipt, whichever worker wrote them, and changes nothing.
/// In a terminal, it goes on until they are done.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file that `hsipack convert --plan` wrote, or its URL
    plan: PathBuf,

    /// Wait until the workers are done, also if the output is no terminal
    #[arg(long)]
    watch: bool,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack status plan.json

Keys of --json: shards done committed";

/// How often to look for new receipts.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs the command.
///
/// # Errors
/// If the plan is damaged or its conversion was not begun, or the command was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    let waits = args.watch || !args.json && std::io::stdout().is_terminal();
    let look = parts::state(&args.plan, true)?;
    let task = Task::start("");
    let mut shown = None;
    let state = loop {
        let state = look()?;
        if shown.is_none() {
            task.count_shards(state.shards as u64);
        }
        task.progress.bytes_in.store(state.done as u64, Ordering::Relaxed);
        if state.done == state.shards || !waits {
            break state;
        }
        if task.bar.is_hidden() && shown != Some(state) {
            note!("{} of {}", state.done, output::count(state.shards, "shard"));
        }
        shown = Some(state);
        std::thread::sleep(INTERVAL);
        if task.progress.stop.load(Ordering::Relaxed) {
            task.finish();
            return Err(Error::new(ErrorKind::Interrupted, "stopped watching"));
        }
    };
    task.finish();
    output::report(&state, args.json, print);
    Ok(ExitCode::SUCCESS)
}

fn print(state: &State) {
    match state.committed {
        false if state.done < state.shards => {
            say!("{} of {} written", state.done, output::count(state.shards, "shard"))
        }
        true => {
            say!("all {} written, and the dataset is there", output::count(state.shards, "shard"))
        }
        false => say!("all {} written; next: hsipack commit", output::count(state.shards, "shard")),
    }
}
