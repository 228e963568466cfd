//! `hsipack simulate`: loaders, queue and model over time.
//!
//! | file | part |
//! |---|---|
//! | `simulate.rs` | arguments, and how they become a model |
//! | `spelling.rs` | how spreads and changes are spelled |
//! | `print.rs` | the report for people |

mod print;
mod spelling;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use hsipack_format::{Error, Result};
use hsipack_measure::page::svg::SvgTarget;
use hsipack_measure::simulate::{
    DEFAULT_SPREAD, End, Measured, Model, Order, Report, Scenario, Times, WhatIf, page, simulate,
    timeline,
};

use crate::{files, output, parse};
use spelling::Spread;

/// Simulate loaders, a queue and a model over time.
///
/// Each loader loads one batch at a time and puts it into a queue. While the queue is full, the loader holds its batch and
/// waits. The model takes a batch, is busy for a step, and takes the next batch. Give the times, or a file of measured
/// statistics (--from).
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Number of loaders; each loads one batch at a time
    #[arg(short, long, value_name = "N", required_unless_present = "from")]
    loaders: Option<usize>,

    /// Mean time that a loader needs for a batch, such as 2s
    #[arg(long, value_name = "TIME", value_parser = parse::duration, required_unless_present = "from")]
    load_time: Option<Duration>,

    /// Standard deviation of load times: a share of their mean, such as 30%, or a time [default: 5%]
    ///
    /// Load times are log-normal: never negative, with a tail of slow batches.
    #[arg(long, value_name = "SPREAD", value_parser = spelling::spread)]
    load_spread: Option<Spread>,

    /// Mean time that the model needs for a batch, such as 100ms
    #[arg(long, value_name = "TIME", value_parser = parse::duration, required_unless_present = "from")]
    step_time: Option<Duration>,

    /// Standard deviation of step times, given like --load-spread [default: 0%]
    #[arg(long, value_name = "SPREAD", value_parser = spelling::spread)]
    step_spread: Option<Spread>,

    /// Number of finished batches that the queue has room for, besides the one that each loader holds
    /// [default: 0, a loader holds its batch until the model takes it]
    ///
    /// A DataLoader with prefetch_factor F has room for (F - 1) times its workers.
    #[arg(long, value_name = "N")]
    queue: Option<usize>,

    /// Deliver batches in order, as PyTorch's DataLoader does
    /// [default: first come, first served; with --from, in order]
    ///
    /// Of N loaders, loader i loads batches i, i + N, i + 2N and so on, and a slow batch delays the batches after it.
    #[arg(long)]
    in_order: bool,

    /// Take loaders, queue and times from the statistics in FILE, which `hsipack read --json`, `bench --json`,
    /// `diagnose --json` or Python's Loader.stats() wrote. Options on the command line override them
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,

    /// Strategy to take from FILE, if it is the report of a benchmark
    #[arg(long, value_name = "NAME", requires = "from")]
    strategy: Option<String>,

    /// Also simulate this change, and compare, such as workers=8,load=0.5x (repeatable). Keys are workers, load,
    /// step, queue and order; see --help
    #[arg(long, value_name = "CHANGES", value_parser = spelling::what_if)]
    what_if: Vec<WhatIf>,

    /// Time to simulate
    #[arg(long, value_name = "TIME", value_parser = parse::duration, default_value = "30s", conflicts_with = "batches")]
    duration: Duration,

    /// Simulate until the model has done N batches, instead of a time
    #[arg(long, value_name = "N")]
    batches: Option<u64>,

    /// Seed of the random times. Runs with the same seed have the same slow batches, also those of --what-if
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

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
  hsipack read tissue.hsipack --step-time 40ms --json > run.json
  hsipack simulate --from run.json --what-if workers=8 --what-if load=0.5x,queue=4 --html run.html

Keys of --what-if, joined by commas:
  workers=N    N loaders, each with as many places in the queue as before. Statistics of hsipack's
               own loader have one loader, whose threads share each batch: then load times change by
               threads/N instead, as if all of the time were decoding. `loaders` means the same
  load=0.5x    half the load time; load=300ms sets the mean, and the spread changes in proportion
  step=…       the same for the step time
  queue=N      places in the queue
  order=WORD   first-come or in-order

With --from, `loaders` batches are loaded at a time. Each load time is drawn from the percentiles of
`load_s`, each step time from those of `step_s`. Of S `slots` one is in use, so the queue has
S - 1 - loaders places. See the page Simulating of the documentation.

Keys of --json (times in seconds, rates in batches/s, shares from 0 to 1):
  batches duration_s batches_per_s loaded stepping queued held consumer_idle queue_mean queue_min
  queue_max loaders_busy loaders_blocked per_loader[]{busy,blocked,batches} bounds{loading,step}
  limit (loading, step, or balanced: bounds within 10 % of each other)
  options{loaders,threads,load{…},step{…},queue,order,seed,duration_s,batches}
  series{span_s,queue[],loading[],holding[],model[]} (means of up to 512 spans)
  what_if[]{name,speedup, and all of the above}";

impl Args {
    fn model(&self) -> Result<Model> {
        let measured = self.from.as_deref().map(|path| self.measured(path)).transpose()?;
        let measured = measured.as_ref();
        let load = self.times(
            (self.load_time, self.load_spread, DEFAULT_SPREAD),
            measured.map(|measured| &measured.load),
            "--load-time",
        )?;
        let step = self.times(
            (self.step_time, self.step_spread, 0.0),
            measured.and_then(|measured| measured.step.as_ref()),
            "--step-time",
        )?;
        let model = Model {
            loaders: self.loaders.or(measured.map(|measured| measured.loaders)).unwrap_or(1),
            load,
            step,
            queue: self.queue.or(measured.map(|measured| measured.queue)).unwrap_or(0),
            // All loaders that have statistics deliver batches in order.
            order: if self.in_order || measured.is_some() {
                Order::InOrder
            } else {
                Order::FirstCome
            },
            seed: self.seed,
            end: match self.batches {
                Some(batches) => End::Batches(batches),
                None => End::Seconds(self.duration.as_secs_f64()),
            },
            // With several loaders, the measured threads no longer apply.
            threads: measured
                .and_then(|measured| measured.threads)
                .filter(|_| self.loaders.is_none_or(|loaders| loaders == 1)),
        };
        model.check()?;
        Ok(model)
    }

    fn measured(&self, path: &Path) -> Result<Measured> {
        let meta =
            std::fs::metadata(path).map_err(|error| Error::io(path, "cannot read", error))?;
        if !meta.is_file() || meta.len() > LARGEST_FILE {
            return Err(Error::conflict("not a statistics file: not a regular file, or too large")
                .at(path)
                .with_remedy("give a file that `hsipack read --json` wrote"));
        }
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, "cannot read", error))?;
        let text = String::from_utf8_lossy(&bytes);
        Measured::from_json(&text, self.strategy.as_deref()).map_err(|error| error.at(path))
    }

    /// Times as given, or as measured.
    fn times(
        &self,
        (mean, spread, default): (Option<Duration>, Option<Spread>, f64),
        measured: Option<&Times>,
        option: &str,
    ) -> Result<Times> {
        let spread_of = |mean: f64| spread.unwrap_or(Spread::Share(default)).of(mean);
        match (mean.map(|mean| mean.as_secs_f64()), measured) {
            (Some(mean), _) => Ok(Times::new(mean, spread_of(mean))),
            (None, Some(times)) if spread.is_some() => {
                Ok(Times::new(times.mean_s(), spread_of(times.mean_s())))
            }
            (None, Some(times)) => Ok(times.clone()),
            (None, None) => {
                let error = Error::conflict("the statistics have no step times")
                    .with_remedy(format!("give {option}"));
                Err(self.from.iter().fold(error, |error, path| error.at(path)))
            }
        }
    }

    /// The base run, and one run per change.
    fn scenarios(&self) -> Result<Vec<Scenario>> {
        let base = self.model()?;
        let mut scenarios = vec![Scenario { name: "base".to_owned(), run: simulate(&base)? }];
        for change in &self.what_if {
            let run = base
                .changed(change)
                .and_then(|model| simulate(&model))
                .map_err(|error| error.within(format_args!("--what-if {}", change.name)))?;
            scenarios.push(Scenario { name: change.name.clone(), run });
        }
        Ok(scenarios)
    }
}

/// Statistics have a few kilobytes, benchmarks of all strategies a few megabytes.
const LARGEST_FILE: u64 = 64 << 20;

/// Runs the command.
///
/// # Errors
/// If the options make no valid model, the statistics cannot be read, or a file cannot be written.
pub fn run(args: Args) -> Result<ExitCode> {
    let scenarios = args.scenarios()?;
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
