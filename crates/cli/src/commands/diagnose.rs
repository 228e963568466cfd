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

/// Find out what training waits for, and what would help.
///
/// Runs training steps at several levels. Each level replaces less of the pipeline by something kept ready: one
/// batch on the device, one batch on the host, decoded samples, stored samples, nothing. If a level is slower than
/// the one before by more than 5 % and by more than twice the spread between rounds, the part that it adds is to
/// blame. The report says what to do, the predicted gain and, with --verify, the measured gain.
///
/// The step is emulated (--step-time) or a small network (--network). It runs on the CPU, or on a GPU with the Python
/// package and torch (--device cuda). To diagnose your own model and loader, use hsipack.diagnose in Python.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("windows").args(["patch"]))]
pub struct Args {
    /// The dataset: a folder, or its URL
    dataset: PathBuf,

    /// Time of the training step for a batch, without augmentations, such as 50ms; the step is emulated by waiting
    #[arg(long, value_name = "TIME", value_parser = parse::duration, required_unless_present = "network", conflicts_with = "network")]
    step_time: Option<Duration>,

    /// Train a network instead; small has a convolution over the spectra and a linear layer
    #[arg(long, value_enum)]
    network: Option<NetworkArg>,

    /// Cubes, crops or patches in a batch
    #[arg(short, long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..))]
    batch_size: u32,

    /// Augment every batch with the augmentations in this JSON file; the page Augmentations of the documentation describes it
    #[arg(long, value_name = "FILE")]
    augment: Option<PathBuf>,

    /// Read random crops of this size in pixels [default: whole cubes]
    #[arg(long, value_name = "ROWSxCOLUMNS", value_parser = parse::pixels, conflicts_with = "patch")]
    crop: Option<[u32; 2]>,

    /// Number of random crops from each cube in an epoch [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "crop")]
    crops_per_cube: Option<u32>,

    #[command(flatten)]
    patches: PatchArgs,

    /// With --patch: the mask with the labels
    #[arg(long, value_name = "NAME", requires = "patch")]
    mask: Vec<String>,

    /// Read only cubes of these splits, such as train or train,val (repeatable) [default: all cubes]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    split: Vec<String>,

    /// Device that batches go to: cpu (auto is the same), or cuda or cuda:1, which need the Python package with torch
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: String,

    /// Emulate, on the CPU, a device behind a bus of this rate, such as 12GB/s
    #[arg(long, value_name = "BYTES/s", value_parser = parse::rate)]
    emulate_bus: Option<u64>,

    /// Number of decoding threads [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,

    /// Number of batches that the ring has room for
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..))]
    slots: u16,

    /// How to read files: mmap for local disks, pread for network disks, direct to bypass the system's file cache
    #[arg(long, value_name = "HOW", value_parser = parse::one_of(&StoreKind::ALL), default_value_t = StoreKind::Mapped)]
    store: StoreKind,

    #[command(flatten)]
    link: LinkArgs,

    /// Also measure with the dataset dropped from the system's file cache, in every round, to see what the disk costs
    #[arg(long)]
    cold: bool,

    /// Apply the recommendation, and compare the measured gain with the predicted one. If the speed of the machine changed
    /// in between, everything is repeated, up to three times in total
    #[arg(long)]
    verify: bool,

    /// How often to run every level; up to three times as often while more rounds could change the verdict
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Minimum time to run a level in a round
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse::duration)]
    time: Duration,

    /// Write a trace of all threads, with the complete pipeline, to FILE, for https://ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Print the diagnosis as one JSON object on stdout; its keys are listed by --help
    #[arg(long)]
    json: bool,

    /// Measure in Python on any device, for tests
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
  subject batch_size culprit (null: none) settled limits{share,spreads} attempts notes facts{...}
  rows[]:     level kept adds batch_s spread_s rounds bound_s cost_s share needed_s counts
              (levels: step augment prepare copy collate decode read cold)
  remedy:     action ... advice[] predicted_s predicted_gain basis (measurements for that)
  verified:   before_s after_s gain error basis_s[2] (then, and beside the remedy) steady
  statistics: of the complete pipeline, see the page Statistics of the documentation";

/// Runs the command.
///
/// # Errors
/// If the options do not fit the dataset, the device cannot be used, or the command was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    measured::run(args)
}
