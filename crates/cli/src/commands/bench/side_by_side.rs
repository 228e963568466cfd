//! From arguments to options, and running the benchmark.

use std::io::{Write, stdin, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use hsipack_format::{Error, Result};
use hsipack_measure::bench::{
    self, Augment, BenchOptions, CubeSize, Cubes, Processes, Settings, Strategy,
};
use hsipack_measure::remote::{self, Channel};
use hsipack_pack::progress::Progress;
use hsipack_read::augment::{Host, Pipeline};

use super::{Args, Limit, table};
use crate::measurer::Program;
use crate::{files, output, task, training};

/// The default step time.
const STEP: Duration = Duration::from_millis(50);
/// The default number of generated cubes.
const CUBES: usize = 12;

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.measure {
        return measure();
    }
    let options = options(args)?;
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    let program = Program::of(&args.device, args.in_python)?;
    let tell = |what: &str| note!("{what}");
    let listening = bench::Progress { stop: &progress, tell: &tell };
    let processes = Processes { command: &program.command()?, stop: &progress.stop };
    let report = bench::run(&options, &processes, &listening);
    let report = report.map_err(|error| program.explained(error))?;
    if let Some(file) = &args.html {
        files::replace(file, &report.page())?;
    }
    output::report(&report, args.json, table::print);
    Ok(ExitCode::SUCCESS)
}

/// Measures what stdin asks for.
fn measure() -> Result<ExitCode> {
    let mut lines = stdin().lines();
    let mut receive = || {
        let line = lines.next().transpose();
        line.map_err(|error| Error::io("stdin", "cannot read", error))
    };
    let mut send = |line: &str| {
        let mut out = stdout().lock();
        let written = writeln!(out, "{line}").and_then(|()| out.flush());
        written.map_err(|error| Error::io("stdout", "cannot write", error))
    };
    let channel = &mut Channel { receive: &mut receive, send: &mut send };
    remote::serve(&Host::default(), channel)
        .map_err(|error| error.or_remedy("run `hsipack bench` without --measure"))?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &Args) -> Result<BenchOptions> {
    let count = args.cubes.map(|count| count as usize);
    let [rows, columns, bands] = args.shape.map(|size| size as usize);
    let shape = CubeSize { rows, columns, bands };
    let cubes = match &args.path {
        Some(path) => Cubes::Path { path: path.clone(), count },
        None => Cubes::Generated { count: count.unwrap_or(CUBES), shape },
    };
    let mut strategies =
        args.strategies.iter().map(|name| name.parse()).collect::<Result<Vec<Strategy>>>()?;
    strategies.sort_unstable();
    strategies.dedup();
    if strategies.is_empty() {
        strategies = Strategy::all_on(&args.device);
    }
    let mut rate_limits: Vec<Option<u64>> = Vec::new();
    for Limit(rate) in &args.rate_limit {
        if !rate_limits.contains(rate) {
            rate_limits.push(*rate);
        }
    }
    if rate_limits.is_empty() {
        rate_limits.push(None);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(BenchOptions {
        cubes,
        strategies,
        rate_limits,
        repeats: args.repeats as usize,
        work_dir: args.work_dir.clone(),
        keep: args.keep,
        settings: Settings {
            batch_size: args.batch_size as usize,
            workers: args.workers.map_or(cores, usize::from),
            epochs: args.epochs as usize,
            warmup_epochs: args.warmup_epochs as usize,
            step: training::step(args.network, args.step_time.unwrap_or(STEP)),
            device: args.device.clone(),
            augment: augment(args)?,
            seed: args.seed,
            drop_cache: args.drop_cache,
            latency_s: args.latency.unwrap_or_default().as_secs_f64(),
        },
    })
}

fn augment(args: &Args) -> Result<Augment> {
    let Some(file) = &args.augment else {
        return Ok(if args.no_augment { Augment::None } else { Augment::Published });
    };
    let json = std::fs::read_to_string(file)
        .map_err(|error| Error::io(file, "cannot read the augmentations", error))?;
    Pipeline::from_json(&json).map(Augment::Pipeline).map_err(|error| error.at(file))
}
