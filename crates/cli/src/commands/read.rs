//! `hsipack read`: streams a dataset as a training run would.
//!
//! | file | part |
//! |---|---|
//! | `read.rs` | arguments, and how they become options of the loader |
//! | `stream.rs` | the consumer: takes batches, epoch after epoch, until it should stop |
//! | `figures.rs` | rates and shares between two looks at the loader |
//! | `report.rs` | the closing report |
//! | `source.rs` | where batches come from: a loader on the CPU, or one that copies them to a GPU |
//! | `advice.rs` | options that could make reading faster |
//! | `view.rs` | the live view |

mod advice;
mod figures;
mod report;
mod source;
mod stream;
mod view;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsipack_format::samples::Condition;
use hsipack_format::{Error, ErrorKind, Result};
use hsipack_measure::machine::{self, Usage};
use hsipack_pack::progress::Progress;
use hsipack_read::plan::{Crop, CropKind, State, WindowOption};
use hsipack_read::store::{Link, StoreKind};
use hsipack_read::{CacheKind, Dataset, DeviceOptions, LoaderOptions, OpenOptions, Verify};
use hsipack_store::local_cache::LocalCache;

use crate::patches::PatchArgs;
use crate::{files, output, parse, task};
use figures::Look;
use report::Report;
use source::Source;
use stream::{End, Stream};

/// Measure the loader: stream a dataset as a training run would.
///
/// The report has the speed, and what limits it. Decoding threads fill a ring of batches. The
/// command takes the batches one by one and discards each at once, or after --step-time, as if it
/// trained. In a terminal, a live view shows the rates, how full the ring is, and what the threads
/// do.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("padded").args(["patch", "windows"]))]
pub struct Args {
    /// The dataset: a folder, or its URL
    dataset: PathBuf,

    #[command(flatten)]
    loader: LoaderOptions,

    #[command(flatten)]
    device: DeviceOptions,

    /// Number of epochs; with --state, epochs of earlier runs count, too
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,

    /// Stop after N batches [default: at the end of the last epoch]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_batches: Option<u64>,

    /// Time of the training step for a batch, such as 50ms; the step is a wait that uses no
    /// processor [default: take the next batch at once]
    #[arg(long, value_name = "TIME", value_parser = parse::duration)]
    step_time: Option<Duration>,

    /// Continue from the state in FILE, if it exists, and save the state there at the end, on
    /// Ctrl-C and on errors. The state is the same on every rank
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Write a trace of all threads to FILE, for https://ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the report as one JSON object on stdout; its keys are listed by --help
    #[arg(long)]
    json: bool,

    /// Add the items of every epoch to the report, in order, with CRC-32 checksums of their
    /// delivered bytes. This takes time: do not measure with it
    #[arg(long, requires = "json", conflicts_with = "device")]
    checksum: bool,

    /// Read only cubes that meet a condition on the columns of samples.jsonl, such as "label ==
    /// 'urban' and cloud < 10" [default: all cubes]
    ///
    /// A condition may have ==, !=, <, <=, >, >=, in ('a', 'b'), and, or, not, and brackets.
    #[arg(long = "where", value_name = "CONDITION", value_parser = parse::condition, help_heading = "Samples")]
    condition: Option<Condition>,

    /// Read the dataset as it was when its fingerprint was this one, without cubes and masks that
    /// were added since. `hsipack info` shows the fingerprints that it had
    #[arg(long, value_name = "FINGERPRINT", help_heading = "Samples")]
    as_of: Option<String>,

    #[command(flatten, next_help_heading = "Contents")]
    windows: WindowOption,

    /// Number of random windows from each cube in an epoch [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "windows", help_heading = "Contents")]
    crops_per_cube: Option<u32>,

    /// Share of labelled pixels that random windows should have, 0 to 1 [default: 0]
    ///
    /// A pixel is labelled if any of the masks that are read is not zero there. Up to 32 windows
    /// are tried.
    #[arg(
        long,
        value_name = "SHARE",
        requires = "windows",
        conflicts_with = "no_masks",
        help_heading = "Contents"
    )]
    min_labelled: Option<f64>,

    /// Distance in pixels from one window of the grid to the next; if it is less than the size,
    /// windows overlap [default: the size]
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = parse::pixels, requires = "windows", help_heading = "Contents")]
    grid_step: Option<[u32; 2]>,

    #[command(flatten, next_help_heading = "Contents")]
    patches: PatchArgs,

    /// Read this mask (repeatable) [default: all masks that every cube has]
    ///
    /// With --patch: the mask with the labels, which is not delivered.
    #[arg(long, value_name = "NAME", conflicts_with = "no_masks", help_heading = "Contents")]
    mask: Vec<String>,

    /// Read no masks
    #[arg(long, conflicts_with = "patch", help_heading = "Contents")]
    no_masks: bool,

    /// Read no further images. Those with larger pixels than the cube do not fit patches
    #[arg(long, help_heading = "Contents")]
    no_images: bool,

    /// How to read files: mmap for local disks, pread for network disks, direct (bypasses the
    /// system's file cache) for data much larger than memory
    #[arg(long, value_name = "HOW", value_parser = parse::one_of(&StoreKind::ALL), default_value_t = StoreKind::Mapped, help_heading = "Reading")]
    store: StoreKind,

    #[command(flatten)]
    link: Link,

    /// Keep data fetched from a server in this folder on the local disk, for the next epochs, other
    /// processes and later runs. `hsipack local-cache DIR` shows what it holds
    #[arg(long, value_name = "DIR", help_heading = "Reading")]
    local_cache: Option<PathBuf>,

    /// Maximum size of that folder, for all datasets together. If not all data fits, the data
    /// needed next stays [default: half of the free space on its disk]
    #[arg(long, value_name = "BYTES", value_parser = parse::bytes, requires = "local_cache", help_heading = "Reading")]
    local_cache_size: Option<usize>,

    /// Drop the files from the system's file cache first, to measure reading from the disk
    #[arg(long, help_heading = "Reading")]
    drop_cache: bool,

    /// When to compare checksums: always when a chunk is decoded, once (the first time), or never
    ///
    /// With `once`, changes on the disk after the first check (a failing disk, a file overwritten
    /// in place) are not noticed, and the changed data is delivered. `always` finds them in every
    /// epoch, except in chunks that are kept in memory (--cache). Data from a server is checked in
    /// every epoch in both cases. With `never`, damaged data may be delivered.
    #[arg(long, value_name = "WHEN", value_parser = parse::one_of(&Verify::ALL), default_value_t = Verify::Once, help_heading = "Reading")]
    verify: Verify,
}

const EXAMPLES: &str = "\
Examples:
  hsipack read tissue.hsipack --epochs 3
  hsipack read tissue.hsipack --rate-limit 1000MB/s --step-time 40ms
  hsipack read flight.hsipack --windows random 64x64 --crops-per-cube 16 --batch-size 64 --min-labelled 0.5
  hsipack read scenes.hsipack --patch 9x9 --mask classes --batch-size 512 --epochs 3
  hsipack read tissue.hsipack --epochs 5 --cache decoded --cache-size 16GB
  hsipack read s3://bucket/tissue.hsipack --epochs 3 --local-cache /scratch/hsipack --local-cache-size 500GB
  hsipack read tissue.hsipack --step-time 40ms --trace trace.json
  hsipack read tissue.hsipack --epochs 3 --device cuda --decode device --device-cache auto
  hsipack read tissue.hsipack --drop-cache --json | jq '.gb_per_s, .limit'

Keys of --json (times in seconds, sizes in bytes, GB are 10^9 bytes, shares from 0 to 1):
  run:     dataset fingerprint ended resumed{epoch,batches} state epochs setup_s batch_size
           batches_per_epoch rank world_size order seed store verify rate_limit latency_s masks threads slots
           memory{bytes,kind,huge_page_bytes,notes}
           cache{kind,chosen,limit_bytes,needed_bytes,shared,why,bytes,keeping_s,saved_s,
                 shuffle_window{bytes,blocks,of_blocks,decoded}} advice
           first_epoch{figures} later_epochs{figures} per_epoch[]{epoch,complete,items,figures}
           local_cache{folder,limit_bytes,total_bytes,read_bytes,kept_bytes,passed_bytes,dropped_bytes,
                       damaged,problem} (null without one)
           transfer{device,copies,slot_bytes,device_slots,decode,notes,
                    device_cache{kind,bytes,samples,of_samples,loaded,why}} (null without --device)
           statistics (page Statistics of the documentation; `hsipack simulate --from` reads it)
  figures: batches samples padding skipped seconds bytes stored_bytes disk_bytes chunks
           cached_chunks cubes_per_s gb_per_s stored_gb_per_s ratio decode_busy read idle plan_busy
           consumer_waiting consumer_waiting_s mean_ready limit
           requests fetched_bytes (from a server, for chunks; null for files)
           (those of all epochs together are at the top level)
  items[] (--checksum): sample repeat padding row column rows columns label image masks{NAME}";

impl Args {
    fn open(&self) -> Result<Dataset> {
        let store = self.store.behind(&self.dataset, self.link)?;
        let local_cache = self.local_cache.as_ref().map(|folder| LocalCache {
            folder: folder.clone(),
            bytes: self.local_cache_size.map(|bytes| bytes as u64),
        });
        let (store, verify) = (Some(store), self.verify);
        let as_of = self.as_of.clone();
        let options = OpenOptions { store, verify, as_of, local_cache };
        Dataset::open_with(&self.dataset, options)
    }

    fn options(&self, dataset: &Dataset) -> Result<LoaderOptions> {
        let mut options = self.loader.clone();
        if let Some(condition) = &self.condition {
            let chosen = dataset.samples().matching((0..dataset.len()).collect(), condition);
            options.samples = Some(chosen.map_err(|error| error.at(dataset.path()))?);
        }
        options.plan.crop = self.crop()?;
        options.patches = self.patches.patches(&self.mask)?;
        options.masks = match (self.no_masks, self.mask.as_slice()) {
            _ if options.patches.is_some() => None,
            (true, _) => Some(Vec::new()),
            (false, []) => None,
            (false, names) => Some(names.to_vec()),
        };
        options.images = self.no_images.then(Vec::new);
        options.end_epoch = Some(self.epochs);
        options.trace = self.trace.is_some().then(Arc::default);
        Ok(options)
    }

    fn crop(&self) -> Result<Crop> {
        let kind = |option: &str, of: CropKind| match self.windows.is(of) {
            true => Ok(()),
            false => Err(Error::conflict(format!("{option} is for windows of the kind {of}"))
                .with_remedy(format!("leave it out, or pass --windows {of} SIZE"))),
        };
        let mut crop = self.windows.crop();
        if let Some(count) = self.crops_per_cube {
            kind("--crops-per-cube", CropKind::Random)?;
            if let Crop::Random { per_sample, .. } = &mut crop {
                *per_sample = count;
            }
        }
        if let Some(share) = self.min_labelled {
            kind("--min-labelled", CropKind::Random)?;
            if let Crop::Random { min_labelled, .. } = &mut crop {
                *min_labelled = share;
            }
        }
        if let Some([rows, columns]) = self.grid_step {
            kind("--grid-step", CropKind::Grid)?;
            if let Crop::Grid { row_step, column_step, .. } = &mut crop {
                (*row_step, *column_step) = (rows, columns);
            }
        }
        if let (Some(fill), None) = (&self.patches.pad, self.patches.patch) {
            kind("--pad", CropKind::Grid)?;
            if let Crop::Grid { pad, .. } = &mut crop {
                *pad = Some(*fill);
            }
        }
        Ok(crop)
    }

    /// The state to continue from, if there is one.
    fn saved_state(&self) -> Result<Option<State>> {
        let Some(path) = self.state.as_ref().filter(|path| path.exists()) else { return Ok(None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::io(path, "cannot read the state", error))?;
        State::from_json(&text).map(Some).map_err(|error| about_state(error, path))
    }

    /// Checks that a compressed or decoded cache has a size.
    fn check_cache(&self, dataset: &Dataset) -> Result<()> {
        let kind = self.loader.cache;
        if matches!(kind, CacheKind::None | CacheKind::Auto) || self.loader.cache_bytes > 0 {
            return Ok(());
        }
        let all = match kind {
            CacheKind::Decoded => dataset.decoded_bytes(),
            _ => machine::dataset_bytes(dataset),
        };
        Err(Error::conflict(format!("--cache {kind} needs a size")).with_remedy(format!(
            "pass --cache-size; all of {} takes {}",
            dataset.path().display(),
            output::bytes(all)
        )))
    }

    /// Writes the trace, if one was recorded.
    fn write_trace(&self, loader: &Source) -> Result<()> {
        let (Some(path), Some(trace)) = (&self.trace, &loader.options().trace) else {
            return Ok(());
        };
        files::replace_with(path, |file| trace.write(file))
    }

    fn loader(&self, dataset: &Dataset, saved: Option<&State>) -> Result<Source> {
        let loader = Source::new(dataset, self.options(dataset)?, self.device.clone(), saved);
        match (loader, &self.state) {
            (Err(error), Some(path)) if error.kind() == ErrorKind::State => {
                Err(about_state(error, path))
            }
            (loader, _) => loader,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// If the options contradict each other or the dataset, the dataset is damaged, or the command was
/// stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    let begin = Instant::now();
    let dataset = args.open()?;
    args.check_cache(&dataset)?;
    if args.drop_cache {
        machine::drop_file_cache(dataset.path())?;
    }
    let saved = args.saved_state()?;
    let usage = Usage::now();
    let mut loader = args.loader(&dataset, saved.as_ref())?;
    let setup = begin.elapsed();
    let start = Look::start(&loader, usage);
    let mut stream = Stream::new(&loader, start, &args, &progress.stop);
    let end = stream.run(&mut loader);
    let epochs = stream.finish(&loader);
    if let (End::Complete | End::Enough, Some(cache)) = (&end, loader.dataset().local_cache()) {
        cache.flush();
    }
    let reached = match &end {
        End::Failed(_, before) => (**before).clone(),
        _ => loader.state(),
    };
    let written =
        args.state.as_ref().map_or(Ok(()), |path| files::replace(path, &reached.to_json()));
    let report = Report::new(&args, &loader, saved.as_ref(), &end, setup, epochs);
    let traced = args.write_trace(&loader);
    match loader {
        // The process ends. Do not wait for threads that sleep to keep to a slow rate.
        Source::Host(loader) => std::mem::forget(loader),
        // Work of a device must be done before the process ends.
        device => drop(device),
    }
    if let End::Failed(error, _) = end {
        return Err(error);
    }
    written?;
    traced?;
    output::report(&report, args.json, Report::print);
    match end {
        End::Stopped => Err(stopped(&args)),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Adds to an error about a state file that training starts anew without the file.
fn about_state(error: Error, path: &Path) -> Error {
    error.at(path).or_remedy(format!("delete {} to start again", path.display()))
}

fn stopped(args: &Args) -> Error {
    let error = Error::new(ErrorKind::Interrupted, "stopped");
    match &args.state {
        Some(path) => {
            error.with_remedy(format!("the same command goes on from {}", path.display()))
        }
        None => error,
    }
}
