//! `hsipack bench`.
//!
//! | file | part |
//! |---|---|
//! | `bench.rs` | arguments |
//! | `side_by_side.rs` | how they become options, and running the benchmark |
//! | `table.rs` | the report for people |

mod side_by_side;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hsipack_format::Result;

use crate::parse;
use crate::training::NetworkArg;

/// Measure what each strategy against a starving accelerator gains.
///
/// original: float32 files, read and augmented by CPU workers. +blosc: compressed. +fp16: half the bytes.
/// +gpu-aug: augmented on the device. +ring-buffer: hsipack's loader.
/// +device-decode: the same, with chunks decoded on a GPU. Each strategy includes those before it. Every
/// case runs in a process of its own, and the cases take turns. The device is the CPU, or a GPU with the Python
/// package and torch (--device cuda).
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A packed dataset, or cubes as `hsipack convert` takes them [default: generated cubes]
    path: Option<String>,

    /// Number of cubes to generate (12 by default), or maximum number of cubes to take from PATH [default: all of PATH]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Cubes")]
    cubes: Option<u32>,

    /// Size of the generated cubes
    #[arg(long, value_name = "ROWSxCOLUMNSxBANDS", value_parser = parse::cube, default_value = "480x640x100", conflicts_with = "path", help_heading = "Cubes")]
    shape: [u32; 3],

    /// Folder below which to make the files of all strategies [default: the working directory]
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".",
        hide_default_value = true,
        help_heading = "Cubes"
    )]
    work_dir: PathBuf,

    /// Keep the files; the same command uses the files of generated cubes again
    #[arg(long, help_heading = "Cubes")]
    keep: bool,

    /// Strategies, by name or number from 0, separated by commas [default: all that the device can run]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Cases")]
    strategies: Vec<String>,

    /// Read at most this many bytes per second, for all workers together, such as 1000MB/s, or unlimited (repeatable)
    /// [default: unlimited]
    #[arg(long, value_name = "BYTES/s", value_parser = limit, help_heading = "Cases")]
    rate_limit: Vec<Limit>,

    /// Wait this long before every read of a file, such as 2ms, as on a network disk [default: no wait]
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Cases")]
    latency: Option<Duration>,

    /// How often to measure every case
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Cases")]
    repeats: u32,

    /// Number of epochs to measure each time
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Cases")]
    epochs: u32,

    /// Number of epochs to run before the measured ones, each time
    ///
    /// If the device augments or trains a network, more epochs are run, until there were three times as many batches as
    /// there is room for.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Cases")]
    warmup_epochs: u32,

    /// Drop the files from the system's file cache after every epoch, to measure reading from the disk
    #[arg(long, help_heading = "Cases")]
    drop_cache: bool,

    /// Number of cubes in a batch
    #[arg(short, long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Training")]
    batch_size: u32,

    /// Number of workers in strategies 0 to 3, and of decoding threads in the others [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Training")]
    workers: Option<u16>,

    /// Time that the device trains on each batch: a wait that uses no processor [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = parse::duration, conflicts_with = "network", help_heading = "Training")]
    step_time: Option<Duration>,

    /// Train a network on each batch instead; small has a convolution over the spectra and a linear layer
    #[arg(long, value_enum, help_heading = "Training")]
    network: Option<NetworkArg>,

    /// Device to train on: cpu (auto is the same), or cuda or cuda:1, which need the Python package with torch
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "Training")]
    device: String,

    /// Augment as FILE says: a JSON list, as for `preview --augment` [default: the published augmentations, an
    /// affine map and flips]
    #[arg(long, value_name = "FILE", conflicts_with = "no_augment", help_heading = "Training")]
    augment: Option<PathBuf>,

    /// Do not augment
    #[arg(long, help_heading = "Training")]
    no_augment: bool,

    /// Seed of the order and of augmentations
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Training")]
    seed: u64,

    /// Print the report as one JSON object on stdout; `hsipack simulate --from` reads it
    #[arg(long)]
    json: bool,

    /// Write the report as an HTML page with charts; an earlier page of that name is replaced
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Measure what stdin asks for; this command runs itself with this option for each case
    #[arg(long, hide = true)]
    measure: bool,

    /// Measure in Python on any device, for tests
    #[arg(long, hide = true)]
    in_python: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack bench
  hsipack bench scans.hsipack --rate-limit unlimited --rate-limit 1000MB/s --html bench.html
  hsipack bench scans/ --cubes 24 --augment pipeline.json --network small
  hsipack bench --strategies original,+ring-buffer --step-time 1ms --json | jq '.strategies[].speedup.mean'

Keys of --json (times in seconds, sizes in bytes, shares from 0 to 1; page Benching of the documentation):
  schema machine device gpu data settings repeats notes
  strategies[]: name rate_limit epoch_s cubes_per_s speedup cpu_s peak_bytes bytes_read disk_bytes
           utilisation (each {mean sd n values}) timeline{window_s source busy} statistics";

/// A limit of reading, or none.
#[derive(Clone, Copy)]
struct Limit(Option<u64>);

fn limit(text: &str) -> std::result::Result<Limit, String> {
    if text == "unlimited" {
        return Ok(Limit(None));
    }
    parse::rate(text)
        .map(|rate| Limit(Some(rate)))
        .map_err(|error| format!("{error}, or unlimited"))
}

/// Runs the command.
///
/// # Errors
/// If the cubes or the augmentations cannot be read, there is not enough space on the disk or in memory, a case fails,
/// or the command was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    side_by_side::run(&args)
}
