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

/// Measure what each strategy against a starving accelerator brings, side by side on your cubes.
///
/// original: float32 files, read and augmented by CPU workers. +blosc: compressed. +fp16: half the bytes.
/// +gpu-aug: augmented on the device. +ring-buffer: hsipack's loader. Each keeps what the ones before it
/// brought. Every case runs in a process of its own, and they take turns. The device is the CPU, or a GPU through
/// the torch of the Python package (--device cuda).
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// A packed dataset, or cubes as `hsipack convert` takes them [default: cubes are drawn]
    path: Option<String>,

    /// Cubes: how many are drawn (12 if not said), or the most that are taken of PATH [default: all of PATH]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Cubes")]
    cubes: Option<u32>,

    /// Size of the cubes that are drawn
    #[arg(long, value_name = "ROWSxCOLUMNSxBANDS", value_parser = parse::cube, default_value = "480x640x100", conflicts_with = "path", help_heading = "Cubes")]
    shape: [u32; 3],

    /// Make the files of all strategies below this folder [default: here]
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".",
        hide_default_value = true,
        help_heading = "Cubes"
    )]
    work_dir: PathBuf,

    /// Leave the files there; the same command uses those of drawn cubes again
    #[arg(long, help_heading = "Cubes")]
    keep: bool,

    /// Strategies, by name or number from 0, separated by commas [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Cases")]
    strategies: Vec<String>,

    /// Read at most so many bytes a second, all workers together, such as 1000MB/s; or unlimited. Repeatable
    /// [default: unlimited]
    #[arg(long, value_name = "BYTES/s", value_parser = limit, help_heading = "Cases")]
    rate_limit: Vec<Limit>,

    /// Wait so long before every read of a file, such as 2ms, as from a network disk [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = parse::duration, help_heading = "Cases")]
    latency: Option<Duration>,

    /// How often every case is measured
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Cases")]
    repeats: u32,

    /// Epochs that are measured each time
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Cases")]
    epochs: u32,

    /// Epochs before them, each time; more where the device augments or trains a network, until three times as many
    /// batches came as there is room for
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Cases")]
    warmup_epochs: u32,

    /// Have the system forget the files after every epoch, to measure reading from the disk
    #[arg(long, help_heading = "Cases")]
    drop_cache: bool,

    /// Cubes in a batch
    #[arg(short, long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Training")]
    batch_size: u32,

    /// Workers of strategies 0 to 3, decoding threads of the last [default: one a core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Training")]
    workers: Option<u16>,

    /// The device trains this long on each batch: a wait that takes no processor [default: 50ms]
    #[arg(long, value_name = "TIME", value_parser = parse::duration, conflicts_with = "network", help_heading = "Training")]
    step_time: Option<Duration>,

    /// Train a network on each batch instead: a small one, a convolution over the spectra and a linear layer
    #[arg(long, value_enum, help_heading = "Training")]
    network: Option<NetworkArg>,

    /// The device: cpu (auto is the same), or cuda or cuda:1, which needs the Python package with torch
    #[arg(long, value_name = "NAME", default_value = "auto", help_heading = "Training")]
    device: String,

    /// Augment as FILE says: a list as for `preview --augment` [default: the published chain, an affine map
    /// and flips]
    #[arg(long, value_name = "FILE", conflicts_with = "no_augment", help_heading = "Training")]
    augment: Option<PathBuf>,

    /// Do not augment
    #[arg(long, help_heading = "Training")]
    no_augment: bool,

    /// Seed of order and augmentations
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Training")]
    seed: u64,

    /// Print the report as one JSON object on stdout; `hsipack simulate --from` reads it
    #[arg(long)]
    json: bool,

    /// Write the report as a page with charts; an earlier one of that name is replaced
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Measure what is asked for on stdin: what this command runs for each case
    #[arg(long, hide = true)]
    measure: bool,

    /// Measure in Python whatever the device, for tests
    #[arg(long, hide = true)]
    in_python: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack bench
  hsipack bench scans.hsipack --rate-limit unlimited --rate-limit 1000MB/s --html bench.html
  hsipack bench scans/ --cubes 24 --augment pipeline.json --network small
  hsipack bench --strategies original,+ring-buffer --step-time 1ms --json | jq '.strategies[].speedup.mean'

Keys of --json (times in seconds, sizes in bytes, shares from 0 to 1; docs/benching.md):
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
/// If the cubes or the augmentations cannot be read, there is not enough room on the disk or memory, a case fails,
/// or it was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    side_by_side::run(&args)
}
