//! From arguments to a diagnosis.

use std::process::ExitCode;
use std::sync::Arc;

use hsipack_format::text::printable;
use hsipack_format::{Error, Result};
use hsipack_measure::device::TrainingLibrary;
use hsipack_measure::diagnose::{self, Effort, Limits, PackedOptions, Rounds};
use hsipack_pack::progress::Progress;
use hsipack_read::augment::{Host, Pipeline};
use hsipack_read::plan::{Crop, Order};
use hsipack_read::{Dataset, DeviceOptions, LoaderOptions};
use indicatif::{ProgressBar, ProgressDrawTarget};

use super::Args;
use crate::{files, output, reading, task, training};

/// Diagnoses, and prints.
pub fn run(args: Args) -> Result<ExitCode> {
    let progress = Arc::new(Progress::default());
    task::stop_on_ctrl_c(&progress);
    let host = Host::default();
    let (options, effort) = (args.options(&host)?, args.effort());
    let bands = bands(&options)?;
    let kind = training::step(args.network, args.step_time.unwrap_or_default());
    let mut step = host.step(kind, bands, options.device.device)?;
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let mut tell = |what: &str| {
        spinner.set_message(printable(what).into_owned());
        spinner.tick();
    };
    let mut train = |image: &_, _: &[_]| step.train(image);
    let stop = &progress.stop;
    let diagnosis = diagnose::run(&options, effort, &host, &mut train, stop, &mut tell);
    spinner.finish_and_clear();
    let diagnosis = diagnosis?;
    if let (Some(path), Some(trace)) = (&args.trace, &options.loader.trace) {
        files::replace_with(path, |file| trace.write(file))?;
    }
    output::report(&diagnosis, args.json, |diagnosis| output::show(&diagnosis.text()));
    Ok(ExitCode::SUCCESS)
}

/// Bands of the images.
fn bands(options: &PackedOptions) -> Result<usize> {
    let dataset = Dataset::open(&options.path)?;
    let stack = dataset.stacks().first();
    let stack =
        stack.ok_or_else(|| Error::conflict("there are no samples to read").at(&options.path))?;
    Ok(stack.image.shape().bands)
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

    fn options(&self, host: &Host) -> Result<PackedOptions> {
        let store = reading::store(self.store, self.rate_limit);
        let mut loader = LoaderOptions::new(self.batch_size as usize);
        loader.plan.order = Order::Shuffled;
        if let Some([rows, columns]) = self.crop {
            let per_sample = self.crops_per_cube.unwrap_or(1);
            loader.plan.crop = Crop::Random { rows, columns, per_sample, min_labelled: 0.0 };
        }
        loader.splits = self.split.clone();
        loader.threads = self.threads.map_or(loader.threads, usize::from);
        loader.slots = usize::from(self.slots);
        loader.trace = self.trace.is_some().then(Arc::default);
        let mut device = DeviceOptions::new(host.named(&self.device)?);
        device.emulated_bus = self.emulate_bus.map(|rate| rate as f64);
        Ok(PackedOptions {
            path: self.dataset.clone(),
            store: Some(store),
            loader,
            device,
            pipeline: self.pipeline()?,
            cold: self.cold,
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
