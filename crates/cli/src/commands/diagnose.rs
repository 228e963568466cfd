//! `hsipack diagnose`: which part of the pipeline training waits for.

mod measured;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hsipack_format::Result;
use hsipack_read::store::StoreKind;

use crate::parse;
use crate::patches::PatchArgs;
use crate::reading::LinkArgs;
use crate::training::NetworkArg;

/// Find out what training waits for: the disk, decoding, the copy, augmentation, or the step itself.
///
/// Runs training steps with ever less of the pipeline replaced by something kept ready: one batch on the
/// device, one batch on the host, decoded samples, stored samples, nothing. What a level adds is to blame for
/// the drop from the one before, if the drop is larger than 5 % and than twice the spread from round to round.
/// Says what to do about it, what that is predicted to bring and, with --verify, what it brought.
///
/// The step is emulated (--step-time) or a small network. It runs on the CPU, or on a GPU through the torch of the
/// Python package (--device cuda). For your own model and your present loader see hsipack.diagnose in Python.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("windows").args(["patch"]))]
pub struct Args {
    /// The dataset: a folder, or its URL
    dataset: PathBuf,

    /// How long the training step takes for a batch, without its augmentations, such as 50ms: the device is
    /// emulated by waiting
    #[arg(long, value_name = "TIME", value_parser = parse::duration, required_unless_present = "network", conflicts_with = "network")]
    step_time: Option<Duration>,

    /// Train this network instead: a small one, a convolution over the spectra and a linear layer
    #[arg(long, value_enum)]
    network: Option<NetworkArg>,

    /// Cubes, crops or patches in a batch
    #[arg(short, long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,

    /// Augmentations of every batch: a JSON file, see docs/augmentations.md
    #[arg(long, value_name = "FILE")]
    augment: Option<PathBuf>,

    /// Random crops of so many pixels [default: whole cubes]
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = parse::pixels, conflicts_with = "patch")]
    crop: Option<[u32; 2]>,

    /// Random crops of each cube in an epoch [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "crop")]
    crops_per_cube: Option<u32>,

    #[command(flatten)]
    patches: PatchArgs,

    /// With --patch: the mask that has the labels
    #[arg(long, value_name = "NAME", requires = "patch")]
    mask: Vec<String>,

    /// Only cubes of these splits: train or train,val (repeatable) [default: all cubes]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    split: Vec<String>,

    /// Where batches go: cpu (auto is the same), or cuda or cuda:1, which needs the Python package with torch
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,

    /// Pretend that the CPU is a device over a bus of this rate, such as 12GB/s
    #[arg(long, value_name = "BYTES/s", value_parser = parse::rate)]
    emulate_bus: Option<u64>,

    /// Decoding threads [default: one a core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Batches that the ring has room for
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..))]
    slots: u16,

    /// How files are read: mmap for local disks, pread for network disks, direct (past the system's cache)
    #[arg(long, value_name = "HOW", value_parser = parse::one_of(&StoreKind::ALL), default_value_t = StoreKind::Mapped)]
    store: StoreKind,

    #[command(flatten)]
    link: LinkArgs,

    /// Drop the dataset from the system's file cache in every round, too, to see what the disk costs
    #[arg(long)]
    cold: bool,

    /// Try what is recommended, and compare with what was predicted; all again, up to three times in all, if the machine
    /// changed its speed in between
    #[arg(long)]
    verify: bool,

    /// How often every level is run; up to three times as often while more could change the verdict
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long every time, at least
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::duration)]
    time: Duration,

    /// Write what every thread did when with everything real to FILE, for https://ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the diagnosis as one JSON object on stdout; its keys are listed by --help
    #[arg(long)]
    json: bool,

    /// Measure in Python whatever the device, for tests
    #[arg(long, hide = true)]
    in_python: bool,
}

const EXAMPLES: &str = "\
Examples:
  hsipack diagnose tissue.hsipack --step-time 80ms
  hsipack diagnose tissue.hsipack --step-time 80ms --augment pipeline.json --cold --verify
  hsipack diagnose tissue.hsipack --step-time 20ms --rate-limit 500MB/s --emulate-bus 12GB/s
  hsipack diagnose scenes.hsipack --step-time 5ms --patch 9x9 --mask classes --batch-size 512

Keys of --json (times in seconds, shares from 0 to 1):
  subject batch_size culprit (null: nobody) settled limits{share,spreads} attempts notes facts{...}
  rows[]:     level kept adds batch_s spread_s rounds bound_s cost_s share needed_s counts
              (levels: step augment copy collate decode read cold)
  remedy:     action ... advice[] predicted_s predicted_gain basis (what was measured for that)
  verified:   before_s after_s gain error basis_s[2] (then, and beside the remedy) steady
  statistics: of everything real, see docs/statistics.md";

/// Runs the command.
///
/// # Errors
/// If the options do not fit the dataset, the device cannot be used, or the command was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    measured::run(args)
}
