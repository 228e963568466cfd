//! `hsipack simulate`: loaders, queue, device and model over time.
//!
//! | file | part |
//! |---|---|
//! | `simulate.rs` | arguments, and running the simulation |
//! | `print.rs` | the report for people |

mod print;

use std::path::PathBuf;
use std::process::ExitCode;

use hsipack_format::Result;
use hsipack_measure::page::svg::SvgTarget;
use hsipack_measure::simulate::{Report, SimulateOptions, page, timeline};

use crate::{files, output};

/// Simulate loaders, a queue and a model over time.
///
/// Each loader loads one batch at a time and puts it into a queue. While the queue is full, the
/// loader holds its batch and waits. The model takes a batch, is busy for a step, and takes the
/// next batch. On a GPU, batches are copied and may be decoded there before that, one at a time.
/// Give the times, or a file of measured statistics (--from).
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: SimulateOptions,

    /// Print the report as one JSON object on stdout; its keys are listed by --help
    #[arg(long)]
    json: bool,

    /// Write an HTML page that plays the run, with timelines and all figures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the timeline of the run, without changes, as an SVG picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  hsipack simulate --loaders 7 --load-time 2s --step-time 100ms --duration 30s
  hsipack simulate --loaders 7 --load-time 700ms --load-spread 30% --step-time 100ms --queue 7 --in-order
  hsipack simulate --loaders 1 --load-time 30ms --copy-time 40ms --decode-time 15ms --step-time 20ms \
      --what-if copy=0.5x --what-if device-slots=2
  hsipack read tissue.hsipack --step-time 40ms --json > run.json
  hsipack simulate --from run.json --what-if workers=8 --what-if load=0.5x,queue=4 --html run.html

Keys of --what-if, joined by commas:
  workers=N    N loaders, each with as many places in the queue as before. Statistics of hsipack's
               own loader have one loader, whose threads share each batch: then load times change by
               threads/N instead, as if all of the time were decoding. `loaders` means the same
  load=0.5x    half the load time; load=300ms sets the mean, and the spread changes in proportion
  copy=… decode=… step=…
               the same for these times; a time adds a copy or decoding that there was not
  device-slots=N
               batches that can be on the device
  queue=N      places in the queue
  order=WORD   first-come or in-order

With --from, `loaders` batches are loaded at a time. Times are drawn from the percentiles of `load_s`,
`copy_s`, `decode_s` and `step_s`. Of S `slots` one is in use, or two if a GPU decodes, so the queue has
S - 1 - loaders places, or one less. See the page Simulating of the documentation.

Keys of --json (times in seconds, rates in batches/s, shares from 0 to 1):
  batches duration_s batches_per_s loaded stepping queued held consumer_idle queue_mean queue_min
  queue_max loaders_busy loaders_blocked per_loader[]{busy,blocked,batches}
  device{copying,decoding,waiting,batches} (waiting: for a free slot; only with a device)
  bounds{loading,copy,decode,device_slots,step}
  limit (loading, copy, decode, device-slots, step, or balanced: bounds within 10 % of each other)
  options{loaders,threads,load{…},copy{…},decode{…},device_slots,step{…},queue,order,seed,duration_s,
  batches} series{span_s,queue[],loading[],holding[],copy[],decode[],model[]} (means of up to 512 spans)
  what_if[]{name,speedup, and all of the above}";

/// Runs the command.
///
/// # Errors
/// If the options make no valid model, the statistics cannot be read, or a file cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    let scenarios = args.options.scenarios()?;
    if let Some(path) = &args.html {
        files::replace(path, &page(&scenarios))?;
    }
    if let (Some(path), Some(base)) = (&args.svg, scenarios.first()) {
        files::replace(path, &timeline(base, SvgTarget::File))?;
    }
    if let Some(report) = Report::new(&scenarios) {
        output::report(&report, args.json, print::print);
    }
    Ok(ExitCode::SUCCESS)
}
