//! `hsipack local-cache`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use hsipack_format::Result;
use hsipack_store::local_cache::{CacheFolder, CachedInfo};
use serde::Serialize;

use crate::output;

/// Show, check or clear a local cache.
///
/// It is the folder in which --local-cache keeps data fetched from servers.
/// Everything in it can be deleted: data that is needed is fetched again.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder that was given as --local-cache
    folder: PathBuf,

    /// Compare every block with its checksum. If blocks are damaged, delete them and exit with
    /// status 1
    #[arg(long)]
    check: bool,

    /// Delete the data of datasets that no process is reading
    #[arg(long)]
    clear: bool,

    /// Delete everything. Processes that are reading a dataset fetch its data again
    #[arg(long, conflicts_with = "clear")]
    clear_all: bool,

    /// Print the report as one JSON object on stdout; its keys are listed by --help
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack local-cache /scratch/hsipack
  hsipack local-cache /scratch/hsipack --check
  hsipack local-cache /scratch/hsipack --clear

Keys of --json (sizes in bytes, times in seconds since 1970):
  folder bytes deleted_bytes checked{good,damaged[]} (null without --check)
  datasets[]: fingerprint url blocks bytes used_s in_use";

#[derive(Serialize)]
struct Report {
    folder: PathBuf,
    bytes: u64,
    deleted_bytes: u64,
    checked: Option<Checked>,
    datasets: Vec<Dataset>,
}

#[derive(Serialize)]
struct Checked {
    good: u64,
    damaged: Vec<PathBuf>,
}

#[derive(Serialize)]
struct Dataset {
    fingerprint: String,
    url: Option<String>,
    blocks: u64,
    bytes: u64,
    used_s: Option<u64>,
    in_use: bool,
}

/// Runs the command.
///
/// # Errors
/// If the folder is not a cache, or cannot be read or changed.
pub fn run(args: Args) -> Result<ExitCode> {
    let cache = CacheFolder::open(&args.folder)?;
    let checked = args.check.then(|| cache.check()).transpose()?;
    let checked = checked.map(|found| Checked { good: found.good, damaged: found.damaged });
    let deleted_bytes =
        if args.clear || args.clear_all { cache.clear(args.clear_all)? } else { 0 };
    let datasets: Vec<Dataset> = cache.list()?.into_iter().map(Dataset::of).collect();
    let report = Report {
        folder: cache.path().to_owned(),
        bytes: datasets.iter().map(|dataset| dataset.bytes).sum(),
        deleted_bytes,
        checked,
        datasets,
    };
    output::report(&report, args.json, |report| report.print(&args));
    let is_damaged = report.checked.is_some_and(|checked| !checked.damaged.is_empty());
    Ok(if is_damaged { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Dataset {
    fn of(info: CachedInfo) -> Self {
        let CachedInfo { fingerprint, url, blocks, bytes, used, in_use } = info;
        let used = used.and_then(|used| used.duration_since(SystemTime::UNIX_EPOCH).ok());
        Self { fingerprint, url, blocks, bytes, used_s: used.map(|used| used.as_secs()), in_use }
    }

    /// When it was last opened: `2 h ago`.
    fn used(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (Some(used), Ok(now)) = (self.used_s, now) else {
            return "at an unknown time".to_owned();
        };
        match now.as_secs().saturating_sub(used) {
            seconds @ ..120 => format!("{seconds} s ago"),
            seconds @ ..7200 => format!("{} min ago", seconds / 60),
            seconds @ ..172_800 => format!("{} h ago", seconds / 3600),
            seconds => format!("{} days ago", seconds / 86_400),
        }
    }
}

impl Report {
    fn print(&self, args: &Args) {
        if let Some(checked) = &self.checked {
            say!(
                "{} checked, {} damaged{}",
                output::count(checked.good as usize + checked.damaged.len(), "block"),
                checked.damaged.len(),
                if checked.damaged.is_empty() { "" } else { " and deleted:" }
            );
            checked.damaged.iter().for_each(|path| say!("  {}", path.display()));
        }
        if args.clear || args.clear_all {
            say!("{} deleted", output::bytes(self.deleted_bytes));
        }
        say!(
            "{}: {} of {}",
            self.folder.display(),
            output::bytes(self.bytes),
            output::count(self.datasets.len(), "dataset")
        );
        for dataset in &self.datasets {
            say!(
                "  {}  {} in {}, {}",
                dataset.url.as_deref().unwrap_or("(unknown address)"),
                output::bytes(dataset.bytes),
                output::count(dataset.blocks as usize, "block"),
                match dataset.in_use {
                    true => "being read now".to_owned(),
                    false => format!("opened {}", dataset.used()),
                }
            );
            say!("    fingerprint {}", dataset.fingerprint);
        }
    }
}
