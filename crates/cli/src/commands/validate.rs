//! `hsipack validate`.

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_pack::validate::{self, Problem, ProblemKind, Report, ValidateOptions};

use crate::task::Task;
use crate::{failure, output};

/// Check that a dataset is intact, and equal to its sources.
///
/// It checks structure, checksums, decoding and recorded counts, and with --source every value.
///
/// Exit status: 0 intact, 1 damaged, 2 could not be checked.
#[derive(clap::Args)]
#[command(
    after_help = "A full check decodes every chunk. --source reads every original file again and compares\nevery value, masks included."
)]
pub struct Args {
    /// The dataset
    dataset: PathBuf,

    #[command(flatten)]
    options: ValidateOptions,

    /// Print the report as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Exit code if the dataset, or a part of it, could not be checked.
const NOT_CHECKED: u8 = 2;

/// Runs the command.
///
/// # Errors
/// If it was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    let task = Task::start("checked");
    let result = validate::validate(&args.dataset, &args.options, &task.progress);
    task.finish();
    let report = match result {
        Ok(report) => report,
        Err(error) => return not_checked(error),
    };
    output::report(&report, args.json, print);
    Ok(ExitCode::from(match (report.ok, report.unchecked.is_empty()) {
        (false, _) => 1,
        (true, false) => NOT_CHECKED,
        (true, true) => 0,
    }))
}

fn not_checked(error: Error) -> Result<ExitCode> {
    if error.kind() == ErrorKind::Interrupted {
        return Err(error);
    }
    failure::report(error);
    Ok(ExitCode::from(NOT_CHECKED))
}

/// Problems to print; the rest is only counted.
const SHOWN: usize = 20;

fn print(report: &Report) {
    let what = match report.checked {
        "quick" => "metadata and shard indexes".to_owned(),
        _ => format!(
            "{}, {} uncompressed",
            output::count(report.chunks as usize, "chunk"),
            output::bytes(report.bytes)
        ),
    };
    let sources = if report.checked == "source" {
        format!(", {} compared", output::count(report.sources, "source"))
    } else {
        String::new()
    };
    let only_sources = report.problems.iter().all(|problem| problem.kind == ProblemKind::Source);
    let verdict = if !report.ok && only_sources {
        "DIFFERS FROM ITS SOURCES"
    } else if !report.ok {
        "DAMAGED"
    } else if report.unchecked.is_empty() {
        "intact"
    } else {
        "intact as far as it could be checked"
    };
    say!(
        "{}: {verdict} ({}, {what}{sources}, {:.1} s)",
        report.dataset.display(),
        output::count(report.samples, "sample"),
        report.seconds
    );
    print_problems(&report.problems);
    if !report.damaged_samples.is_empty() {
        say!("  damaged samples: {}", shorten(&report.damaged_samples));
        say!(
            "  `hsipack repair {}` makes their chunks again from the sources, as far as these have them",
            report.dataset.display()
        );
    }
    if !report.ok && only_sources {
        say!(
            "  the dataset itself is intact: all chunks have their checksums. So a source, its references or its mask changed since the conversion, \
             or is another file of that name"
        );
    }
    for unchecked in report.unchecked.iter().take(SHOWN) {
        say!("  not checked: {unchecked}");
    }
    if report.unchecked.len() > SHOWN {
        say!("  and {} more not checked", report.unchecked.len() - SHOWN);
    }
}

/// Prints problems, one per line: file, place, what is wrong.
pub fn print_problems(problems: &[Problem]) {
    for problem in problems.iter().take(SHOWN) {
        let sample =
            problem.sample.as_ref().map(|name| format!(" [sample {name}]")).unwrap_or_default();
        say!("  {}: {}{sample}", problem.path.display(), problem.what);
    }
    if problems.len() > SHOWN {
        say!("  and {} more problems (see --json)", problems.len() - SHOWN);
    }
}

fn shorten(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}
