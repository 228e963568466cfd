//! `hsipack diagnose`: which part of the pipeline training waits for.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use hsipack_format::Result;
use hsipack_format::text::printable;
use hsipack_measure::diagnose::{self, DiagnoseOptions, Diagnosis};
use hsipack_pack::progress::Progress;
use hsipack_read::augment::Host;
use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::measurer::Program;
use crate::patches::PatchArgs;
use crate::{files, output, task};

/// Find out what training waits for, and what would help.
///
/// Runs training steps at several levels. Each level replaces less of the pipeline by something
/// kept ready: one batch on the device, one batch on the host, decoded samples, stored samples,
/// nothing. If a level is slower than the one before by more than 5 % and by more than twice the
/// spread between rounds, the part that it adds is to blame. The report says what to do, the
/// predicted gain and, with --verify, the measured gain.
///
/// The step is emulated (--step-time) or a small network (--network). It runs on the CPU, or on a
/// GPU with the Python package and torch (--device cuda). To diagnose your own model and loader,
/// use hsipack.diagnose in Python.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("padded").args(["patch"]))]
pub struct Args {
    #[command(flatten)]
    options: DiagnoseOptions,

    /// Print the report as one JSON object on stdout; its keys are listed by --help
    #[arg(long)]
    json: bool,

    /// Measure in Python on any device, for tests
    #[arg(long, hide = true)]
    in_python: bool,

    #[command(flatten, next_help_heading = "Samples")]
    patches: PatchArgs,

    /// With --patch: the mask with the labels
    #[arg(long, value_name = "NAME", requires = "patch", help_heading = "Samples")]
    mask: Vec<String>,
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
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    let program = Program::of(&args.options.device, args.in_python)?;
    let patches = args.patches.patches(&args.mask)?;
    let options = DiagnoseOptions { patches, ..args.options };
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let mut tell = |what: &str| {
        spinner.set_message(printable(what).into_owned());
        spinner.tick();
    };
    let diagnosed = match &program {
        Program::This => here(&options, &progress, &mut tell),
        Program::Python(_) => {
            let stop = &progress.stop;
            let process = program.start(&options.device, stop);
            process.and_then(|process| diagnose::run_remotely(&options, process, stop, &mut tell))
        }
    };
    spinner.finish_and_clear();
    let (diagnosis, trace) = diagnosed?;
    if let (Some(path), Some(trace)) = (&options.trace, trace) {
        files::replace_with(path, |file| file.write_all(trace.as_bytes()))?;
    }
    output::report(&diagnosis, args.json, |diagnosis| output::show(&diagnosis.text()));
    Ok(ExitCode::SUCCESS)
}

/// Diagnoses in this process. Also gives the trace, if one was requested.
fn here(
    options: &DiagnoseOptions,
    progress: &Progress,
    tell: &mut dyn FnMut(&str),
) -> Result<(Diagnosis, Option<String>)> {
    let host = Host::default();
    let packed = options.options(&host)?;
    let mut step = options.step(&host, &packed)?;
    let mut train = |image: &_, _: &[_]| step.train(image);
    let diagnosis =
        diagnose::run(&packed, options.effort, &host, &mut train, &progress.stop, tell)?;
    let trace = options.trace.as_ref().map(|_| diagnose::recorded(&packed)).transpose()?;
    Ok((diagnosis, trace))
}
