//! From arguments to a diagnosis.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use hsipack_format::text::printable;
use hsipack_format::{Error, Result};
use hsipack_measure::diagnose::{self, Diagnosis, Effort, Limits, PackedRequest, Rounds};
use hsipack_pack::progress::Progress;
use hsipack_read::augment::{Host, Pipeline};
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::Args;
use crate::measurer::Program;
use crate::{files, output, task, training};

/// Diagnoses, and prints.
pub fn run(args: Args) -> Result<ExitCode> {
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    let program = Program::of(&args.device, args.in_python)?;
    let request = args.request()?;
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let mut tell = |what: &str| {
        spinner.set_message(printable(what).into_owned());
        spinner.tick();
    };
    let diagnosed = match &program {
        Program::This => here(&request, args.effort(), &progress, &mut tell),
        Program::Python(_) => {
            let stop = &progress.stop;
            let process = program.start(&request.device, stop);
            process.and_then(|process| {
                diagnose::run_remotely(&request, args.effort(), process, stop, &mut tell)
            })
        }
    };
    spinner.finish_and_clear();
    let (diagnosis, trace) = diagnosed?;
    if let (Some(path), Some(trace)) = (&args.trace, trace) {
        files::replace_with(path, |file| file.write_all(trace.as_bytes()))?;
    }
    output::report(&diagnosis, args.json, |diagnosis| output::show(&diagnosis.text()));
    Ok(ExitCode::SUCCESS)
}

/// Diagnoses in this process. Also gives the trace, if one was requested.
fn here(
    request: &PackedRequest,
    effort: Effort,
    progress: &Progress,
    tell: &mut dyn FnMut(&str),
) -> Result<(Diagnosis, Option<String>)> {
    let host = Host::default();
    let options = request.options(&host)?;
    let mut step = request.step(&host, &options)?;
    let mut train = |image: &_, _: &[_]| step.train(image);
    let diagnosis = diagnose::run(&options, effort, &host, &mut train, &progress.stop, tell)?;
    let trace = request.trace.then(|| diagnose::recorded(&options)).transpose()?;
    Ok((diagnosis, trace))
}

impl Args {
    fn effort(&self) -> Effort {
        Effort {
            rounds: Rounds::new(usize::from(self.rounds)),
            time: self.time,
            verify: self.verify,
            limits: Limits::default(),
        }
    }

    fn request(&self) -> Result<PackedRequest> {
        Ok(PackedRequest {
            path: self.dataset.clone(),
            store: self.store,
            link: self.link.link(),
            batch_size: self.batch_size as usize,
            crop: self.crop,
            crops_per_cube: self.crops_per_cube.unwrap_or(1),
            patches: self.patches.patches(&self.mask)?,
            splits: self.split.clone(),
            threads: self.threads.map(usize::from),
            slots: usize::from(self.slots),
            device: self.device.clone(),
            emulated_bus: self.emulate_bus.map(|rate| rate as f64),
            pipeline: self.pipeline()?,
            cold: self.cold,
            trace: self.trace.is_some(),
            step: training::step(self.network, self.step_time.unwrap_or_default()),
            time: self.time,
        })
    }

    fn pipeline(&self) -> Result<Option<Pipeline>> {
        let Some(path) = &self.augment else { return Ok(None) };
        let json = std::fs::read_to_string(path)
            .map_err(|error| Error::io(path, "cannot read the augmentations", error))?;
        let pipeline = Pipeline::from_json(&json).map_err(|error| error.at(path))?;
        Ok(Some(pipeline).filter(|pipeline| !pipeline.ops.is_empty()))
    }
}
