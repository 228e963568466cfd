//! `hsipack repair`.

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_pack::repair::{self, Report};
use hsipack_pack::validate::ValidateOptions;

use super::validate::print_problems;
use crate::output;
use crate::task::Task;

/// Rebuild damaged chunks of a dataset from their sources.
///
/// Only cubes with a damaged chunk are read again. Their sources must be the files of the
/// conversion, unchanged. Exit status: 0 if nothing is damaged (any more), 1 if something still is.
#[derive(clap::Args)]
pub struct Args {
    /// The dataset: a folder, or its URL
    dataset: PathBuf,

    /// Also look for sources in this folder if their path is relative. The working directory is
    /// searched before it, and the folder that contains the dataset after it
    #[arg(long, value_name = "DIR")]
    source_root: Option<PathBuf>,

    /// Number of threads for the validation before and after the repair [default: one per core]
    #[arg(short = 'j', long, alias = "jobs", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If the dataset cannot be checked, or its metadata are damaged.
pub fn run(args: Args) -> Result<ExitCode> {
    let defaults = ValidateOptions::default();
    let options = ValidateOptions {
        source_root: args.source_root,
        threads: args.threads.map_or(defaults.threads, usize::from),
        ..ValidateOptions::default()
    };
    let task = Task::start("checked");
    let result = repair::repair(&args.dataset, &options, &task.progress);
    task.finish();
    let report = result?;
    output::report(&report, args.json, print);
    Ok(ExitCode::from(u8::from(!report.remaining.is_empty())))
}

fn print(report: &Report) {
    let path = report.dataset.display();
    if report.found == 0 {
        say!("{path}: intact; nothing to repair");
        return;
    }
    say!(
        "{path}: {} of {}{} made again{}",
        output::count(report.repaired_chunks, "chunk"),
        output::count(report.repaired_samples.len(), "sample"),
        if report.repaired_index { " and samples.index" } else { "" },
        if report.remaining.is_empty() { ", intact now" } else { "" }
    );
    for failed in &report.failed {
        say!("  not repaired: {failed}");
    }
    if !report.remaining.is_empty() {
        say!("  still damaged:");
        print_problems(&report.remaining);
    }
}
