//! `hsipack bench`.
//!
//! | file | part |
//! |---|---|
//! | `bench.rs` | arguments, and running the benchmark |
//! | `table.rs` | the report for people |

mod table;

use std::io::{Write, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use hsipack_format::{Error, Result};
use hsipack_measure::bench::{self, BenchOptions, Processes};
use hsipack_measure::remote::{self, Channel};
use hsipack_pack::progress::Progress;
use hsipack_read::augment::Host;

use crate::measurer::Program;
use crate::{files, output, task};

/// Measure what each strategy against a starving accelerator gains.
///
/// original: float32 files, read and augmented by CPU workers. +blosc: compressed. +fp16: half the
/// bytes. +gpu-aug: augmented on the device. +ring-buffer: hsipack's loader. +device-decode: the
/// same, with chunks decoded on a GPU. Each strategy includes those before it. Every case runs in a
/// process of its own, and the cases take turns. The device is the CPU, or a GPU with the Python
/// package and torch (--device cuda).
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: BenchOptions,

    /// Print the report as one JSON object on stdout; `hsipack simulate --from` reads it
    #[arg(long)]
    json: bool,

    /// Write an HTML page with charts; an earlier page of that name is replaced
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

/// Runs the command.
///
/// # Errors
/// If the cubes cannot be read, there is not enough space on the disk or in memory, a case fails,
/// or the command was stopped.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.measure {
        return measure();
    }
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    let program = Program::of(&args.options.settings.device, args.in_python)?;
    let tell = |what: &str| note!("{what}");
    let listening = bench::Progress { stop: &progress, tell: &tell };
    let processes = Processes { command: &program.command()?, stop: &progress.stop };
    let report = bench::run(&args.options, &processes, &listening);
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
