//! Runs the levels of a packed dataset.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsipack_read::augment::{Images, Mask, Pipeline, SampleKey};
use hsipack_read::plan::{Crop, LastBatch};
use hsipack_read::store::Store;
use hsipack_read::{
    CacheKind, Dataset, DeviceBatch, DeviceLoader, DeviceOptions, LoaderOptions, OpenOptions,
    Statistics,
};
use tch::{Device, Tensor};

use super::facts::{AugmentationCost, Facts};
use super::level::Level;
use super::prediction::Basis;
use super::remedy::{Action, Remedy, remedy};
use super::report::{Diagnosis, Trial, Verified};
use super::rounds::Rounds;
use super::subset::subset;
use super::verdict::{Limits, Measured, Verdict, median, verdict};
use crate::machine;
use crate::{Error, ErrorKind, Result};

/// What is diagnosed, and how long.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The dataset.
    pub path: PathBuf,
    /// Where its bytes come from; the default if `None`.
    pub store: Option<Arc<dyn Store>>,
    /// As it is used: batch size, crops, threads, slots.
    pub loader: LoaderOptions,
    /// Where batches go.
    pub device: DeviceOptions,
    /// What augments them there.
    pub pipeline: Option<Pipeline>,
    /// How often every level is run; the levels of a round follow each other. The remedy likewise.
    pub rounds: Rounds,
    /// How long each time, at least; and at least three batches.
    pub time: Duration,
    /// Whether the system is to forget the files, to see what the disk costs.
    pub cold: bool,
    /// Whether the remedy is tried.
    pub verify: bool,
    /// When a drop counts.
    pub limits: Limits,
}

/// The training step: images (B, C, H, W) and named masks.
pub type Step<'a> = dyn FnMut(&Tensor, &[(String, Tensor)]) -> Result<()> + 'a;

/// A diagnosis on its way.
pub struct Run<'a> {
    options: &'a RunOptions,
    step: &'a mut Step<'a>,
    /// Ends it early.
    stop: &'a AtomicBool,
    /// Is told what goes on.
    tell: &'a mut dyn FnMut(&str),
    /// Samples that all levels read: few enough to be kept in memory.
    samples: Vec<usize>,
}

/// What differs from the options.
#[derive(Clone, Debug, Default, PartialEq)]
struct Change {
    cache: CacheKind,
    threads: Option<usize>,
    /// Place of an augmentation to leave out.
    without: Option<usize>,
    crop: Option<[u32; 2]>,
    repeat: bool,
    cold: bool,
}

/// What a level took.
struct Lap {
    batch_s: f64,
    statistics: Option<Statistics>,
}

/// What came of all levels.
struct Levels {
    verdict: Verdict,
    /// Seconds that loading a batch takes with everything real: as the verdict's times the median of the rounds' means.
    load_s: Option<f64>,
    /// Seconds that a batch takes at the level `decode` with threads for all cores, if there are more than threads.
    more_threads_s: Option<f64>,
    /// Of the last round with everything real.
    statistics: Option<Statistics>,
}

/// Batches that are measured at least.
const BATCHES: usize = 3;

/// Diagnoses a dataset.
///
/// # Errors
/// If the dataset or the device cannot be used, a step fails, or it was stopped.
pub fn run<'a>(
    options: &'a RunOptions,
    step: &'a mut Step<'a>,
    stop: &'a AtomicBool,
    tell: &'a mut dyn FnMut(&str),
) -> Result<Diagnosis> {
    let dataset = open(options)?;
    let samples = samples(&dataset, options)?;
    Run { options, step, stop, tell, samples }.diagnose(&dataset)
}

fn open(options: &RunOptions) -> Result<Dataset> {
    let store = options.store.clone();
    Dataset::open_with(&options.path, OpenOptions { store, ..OpenOptions::default() })
}

/// Bytes of the chunks of some samples, stored and decoded.
fn sizes(dataset: &Dataset, samples: &[usize]) -> (u64, u64) {
    let all = dataset.len().max(1) as f64;
    let share = samples.len() as f64 / all;
    let stored = machine::stored_bytes(dataset.path()) as f64 * share;
    (stored.ceil() as u64, (dataset.decoded_bytes() as f64 * share).ceil() as u64)
}

fn chosen(dataset: &Dataset, options: &LoaderOptions) -> Result<Vec<usize>> {
    let all = options.samples.clone().unwrap_or_else(|| (0..dataset.len()).collect());
    let there = all.into_iter().filter(|id| *id < dataset.len()).collect();
    if options.splits.is_empty() { Ok(there) } else { dataset.in_splits(there, &options.splits) }
}

/// Samples that all levels read.
fn samples(dataset: &Dataset, options: &RunOptions) -> Result<Vec<usize>> {
    let chosen = chosen(dataset, &options.loader)?;
    let (_, decoded_bytes) = sizes(dataset, &chosen);
    let per_sample = match options.loader.plan.crop {
        Crop::Random { per_sample, .. } => per_sample as usize,
        _ => 1,
    };
    let samples = subset(&chosen, decoded_bytes, options.loader.plan.batch_size, per_sample);
    if samples.is_empty() {
        let error = Error::conflict("there are no samples to read").at(dataset.path());
        return Err(error.with_remedy("choose another split"));
    }
    Ok(samples)
}

impl Run<'_> {
    /// Diagnoses, and does so again if the machine changed its speed before the remedy was tried.
    fn diagnose(mut self, dataset: &Dataset) -> Result<Diagnosis> {
        let mut attempt = 1;
        loop {
            let mut diagnosis = self.attempt(dataset)?;
            diagnosis.attempts = attempt;
            let steady = diagnosis.verified.as_ref().is_none_or(|verified| verified.steady);
            if steady || attempt == Rounds::ATTEMPTS {
                return Ok(diagnosis);
            }
            attempt += 1;
            (self.tell)("the machine changed its speed: all of it again");
        }
    }

    fn attempt(&mut self, dataset: &Dataset) -> Result<Diagnosis> {
        let options = self.options;
        let mut notes = Vec::new();
        let mut levels = vec![Level::Step];
        if options.pipeline.is_some() {
            levels.push(Level::Augment);
        }
        if self.copies() {
            levels.push(Level::Copy);
        }
        levels.extend([Level::Collate, Level::Decode, Level::Read]);
        if options.cold {
            match machine::drop_file_cache(&options.path) {
                Ok(()) => levels.push(Level::Cold),
                Err(error) => {
                    notes.push(format!("reading from the disk was not measured: {error}"))
                }
            }
        }
        let mut kept = self.keep()?;
        let measured = self.levels(&levels, &mut kept)?;
        let mut facts = self.facts(dataset, &measured, kept.copies)?;
        let Levels { verdict, statistics, .. } = measured;
        if verdict.culprit == Some(Level::Augment) {
            facts.augmentations = self.augmentations(&mut kept)?;
        }
        let remedy = remedy(&verdict, &facts);
        let verified = match &remedy {
            Some(remedy) if options.verify => match self.verify(remedy, &mut kept)? {
                Some(trial) => Some(Verified::new(trial, remedy, &verdict, &facts, options.limits)),
                None => {
                    notes.push("there is no option to try, so nothing was verified".to_owned());
                    None
                }
            },
            _ => None,
        };
        let subject = format!(
            "{}: batches of {} on {}, {} decoding threads",
            options.path.display(),
            options.loader.plan.batch_size,
            self.device_name(),
            options.loader.threads,
        );
        let batch_size = Some(options.loader.plan.batch_size);
        let limits = options.limits;
        Ok(Diagnosis {
            subject,
            batch_size,
            verdict,
            limits,
            facts,
            remedy,
            verified,
            statistics,
            attempts: 1,
            notes,
        })
    }

    /// Runs the levels, round after round, until the verdict settles.
    fn levels(&mut self, levels: &[Level], kept: &mut Kept) -> Result<Levels> {
        let mut measured: Vec<Measured> =
            levels.iter().map(|level| Measured { level: *level, batch_s: Vec::new() }).collect();
        let (mut loads, mut more_threads, mut statistics) = (Vec::new(), Vec::new(), None);
        let RunOptions { rounds, limits, .. } = *self.options;
        while !rounds.suffice(&measured, limits) {
            for Measured { level, batch_s } in &mut measured {
                (self.tell)(&rounds.name(batch_s.len() + 1, level.adds()));
                let lap = self.lap(*level, kept)?;
                batch_s.push(lap.batch_s);
                // In the same round: both see the same machine.
                if *level == Level::Decode && self.options.loader.threads < machine::cores() {
                    more_threads.push(self.basis(Basis::MoreThreads, kept)?);
                }
                if *level == Level::Read {
                    loads.extend(lap.statistics.as_ref().map(|one| one.times.load_s.mean));
                    statistics = lap.statistics;
                }
            }
        }
        let middle = |times: &[f64]| (!times.is_empty()).then(|| median(times));
        let (load_s, more_threads_s) = (middle(&loads), middle(&more_threads));
        Ok(Levels { verdict: verdict(&measured, limits), load_s, more_threads_s, statistics })
    }

    /// Whether batches are copied to the device.
    fn copies(&self) -> bool {
        self.options.device.device != Device::Cpu || self.options.device.emulated_bus.is_some()
    }

    fn device_name(&self) -> String {
        match (self.options.device.device, self.options.device.emulated_bus) {
            (Device::Cuda(number), _) => format!("cuda:{number}"),
            (_, Some(rate)) => format!("the CPU, over an emulated bus of {:.1} GB/s", rate * 1e-9),
            _ => "the CPU".to_owned(),
        }
    }

    fn facts(&self, dataset: &Dataset, measured: &Levels, copies: &'static str) -> Result<Facts> {
        let (stored, decoded) = sizes(dataset, &chosen(dataset, &self.options.loader)?);
        let shape = dataset.stacks().first().map(|stack| stack.image.shape());
        let whole = matches!(self.options.loader.plan.crop, Crop::Whole);
        Ok(Facts {
            stored_bytes: Some(stored),
            decoded_bytes: Some(decoded),
            load_s: measured.load_s,
            more_threads_s: measured.more_threads_s,
            more_threads: if measured.more_threads_s.is_some() { machine::cores() } else { 0 },
            copies: copies.to_owned(),
            pixels: shape.filter(|_| whole).map(|shape| [shape.rows as u32, shape.columns as u32]),
            gpu: self.options.device.device != Device::Cpu,
            ..Facts::of(dataset, &self.options.loader)
        })
    }

    fn lap(&mut self, level: Level, kept: &mut Kept) -> Result<Lap> {
        let change = match level {
            Level::Step => return self.keep_stepping(kept, None),
            Level::Augment => {
                let pipeline = self.options.pipeline.clone();
                return self.keep_stepping(kept, pipeline.as_ref());
            }
            Level::Copy => Change { repeat: true, ..Change::default() },
            Level::Collate => Change { cache: CacheKind::Decoded, ..Change::default() },
            Level::Decode => Change { cache: CacheKind::Compressed, ..Change::default() },
            Level::Read | Level::Load => Change::default(),
            Level::Cold => Change { cold: true, ..Change::default() },
        };
        self.stream(&change)
    }

    /// A batch to be kept on the device.
    fn keep(&self) -> Result<Kept> {
        let options =
            LoaderOptions { slots: 2, trace: None, ..self.loader_options(&Change::default()) };
        let mut loader =
            DeviceLoader::new(&open(self.options)?, options, self.options.device.clone())?;
        let batch = next(&mut loader)?;
        let (image, masks) = (batch.image.shallow_clone(), clone_of(&batch.masks));
        let (now_image, now_masks) = (image.shallow_clone(), clone_of(&masks));
        let report = loader.report();
        let mut kept = Kept { image, masks, now_image, now_masks, batch, copies: report.copies };
        if let Some(pipeline) = &self.options.pipeline {
            kept.augment(pipeline, 0)?;
        }
        Ok(kept)
    }

    /// Steps on the kept batch, augmented anew if there is a pipeline.
    fn keep_stepping(&mut self, kept: &mut Kept, pipeline: Option<&Pipeline>) -> Result<Lap> {
        let mut epoch = 0;
        let mut once = |run: &mut Self| {
            epoch += 1;
            if let Some(pipeline) = pipeline {
                kept.augment(pipeline, epoch)?;
            }
            (run.step)(&kept.now_image, &kept.now_masks)
        };
        once(self)?;
        let batch_s = self.timed(usize::MAX, once)?;
        Ok(Lap { batch_s, statistics: None })
    }

    /// Steps on what a loader gives.
    fn stream(&mut self, change: &Change) -> Result<Lap> {
        if change.cold {
            machine::drop_file_cache(&self.options.path)?;
        }
        // Opened anew: pages that are mapped stay in the system's cache whatever it is told.
        let dataset = open(self.options)?;
        let device = DeviceOptions { repeat: change.repeat, ..self.options.device.clone() };
        let mut loader = DeviceLoader::new(&dataset, self.loader_options(change), device)?;
        let pipeline = self.pipeline(change);
        self.warm_up(&mut loader, change)?;
        let mut once = |run: &mut Self| {
            let mut batch = next(&mut loader)?;
            if let Some(pipeline) = &pipeline {
                pipeline.augment_batch(&mut batch)?;
            }
            (run.step)(&batch.image, &batch.masks)
        };
        once(self)?;
        // What was read from the disk once comes from memory the next time.
        let most =
            if change.cold { self.batches(change).saturating_sub(2).max(1) } else { usize::MAX };
        let batch_s = self.timed(most, &mut once)?;
        Ok(Lap { batch_s, statistics: Some(loader.statistics()) })
    }

    /// Takes batches, as fast as they come, until all is as it stays: caches are filled, memory was touched, and no
    /// batches lie ready that were made while nobody measured.
    fn warm_up(&self, loader: &mut DeviceLoader, change: &Change) -> Result<()> {
        let slots = self.options.loader.slots + 1;
        let batches = match change.cache {
            // What is on the disk is read once.
            _ if change.cold => 1,
            CacheKind::None => slots,
            _ => loader.batches_per_epoch()?.max(slots),
        };
        for _ in 0..batches {
            next(loader)?;
            self.check()?;
        }
        loader.forget_times();
        Ok(())
    }

    /// Seconds that `once` takes, on average of at most so many times.
    fn timed(&mut self, most: usize, mut once: impl FnMut(&mut Self) -> Result<()>) -> Result<f64> {
        self.synchronise();
        let start = Instant::now();
        let mut batches = 0;
        while batches < most && (batches < BATCHES || start.elapsed() < self.options.time) {
            self.check()?;
            once(self)?;
            batches += 1;
        }
        self.synchronise();
        Ok(start.elapsed().as_secs_f64() / batches as f64)
    }

    /// Waits for what is queued on a GPU.
    fn synchronise(&self) {
        if let Device::Cuda(number) = self.options.device.device {
            tch::Cuda::synchronize(number as i64);
        }
    }

    fn check(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Interrupted, "stopped"));
        }
        Ok(())
    }

    fn loader_options(&self, change: &Change) -> LoaderOptions {
        let mut options = self.options.loader.clone();
        options.samples = Some(self.samples.clone());
        options.splits = Vec::new();
        options.end_epoch = None;
        // Of everything real only.
        if *change != Change::default() {
            options.trace = None;
        }
        if self.samples.len() >= options.plan.batch_size {
            options.plan.last = LastBatch::Drop;
        }
        if change.cache != CacheKind::None {
            (options.cache, options.cache_bytes) = (change.cache, u64::MAX);
        }
        options.threads = change.threads.unwrap_or(options.threads);
        if let Some([rows, columns]) = change.crop {
            options.plan.crop = Crop::Random { rows, columns, per_sample: 1, min_labelled: 0.0 };
        }
        options
    }

    fn pipeline(&self, change: &Change) -> Option<Pipeline> {
        let mut pipeline = self.options.pipeline.clone()?;
        if let Some(place) = change.without {
            pipeline.ops.remove(place);
        }
        Some(pipeline).filter(|pipeline| !pipeline.ops.is_empty())
    }

    /// Batches of an epoch of the samples that all levels read.
    fn batches(&self, change: &Change) -> usize {
        self.samples.len() / self.loader_options(change).plan.batch_size.max(1)
    }

    /// What every augmentation costs.
    fn augmentations(&mut self, kept: &mut Kept) -> Result<Vec<AugmentationCost>> {
        let Some(pipeline) = &self.options.pipeline else { return Ok(Vec::new()) };
        let mut costs = Vec::new();
        for (place, op) in pipeline.ops.iter().enumerate() {
            (self.tell)(&format!("without {}", op.name()));
            let laps = (0..self.options.rounds.asked())
                .map(|_| self.basis(Basis::Without { place }, kept))
                .collect::<Result<Vec<f64>>>()?;
            costs.push(AugmentationCost { name: op.name().to_owned(), without_s: median(&laps) });
        }
        Ok(costs)
    }

    /// What an action changes, if it is something that can be tried.
    fn change(&self, action: &Action) -> Option<Change> {
        let change = Change::default();
        Some(match action {
            Action::Cache { cache, .. } => Change { cache: *cache, ..change },
            Action::Threads { threads } => Change { threads: Some(*threads), ..change },
            Action::Without { place, .. } => Change { without: Some(*place), ..change },
            Action::Crop { pixels } => Change { crop: Some(*pixels), ..change },
            Action::Pin | Action::Other => return None,
        })
    }

    /// Seconds of a batch of what a prediction may rest on.
    fn basis(&mut self, basis: Basis, kept: &mut Kept) -> Result<f64> {
        let lap = match basis {
            Basis::Level { level } => self.lap(level, kept),
            Basis::MoreThreads => self.stream(&Change {
                cache: CacheKind::Compressed,
                threads: Some(machine::cores()),
                ..Change::default()
            }),
            Basis::Without { place } => {
                let without = self.pipeline(&Change { without: Some(place), ..Change::default() });
                self.keep_stepping(kept, without.as_ref())
            }
        };
        Ok(lap?.batch_s)
    }

    /// Runs everything real, without and with a remedy, and what the prediction rests on, in turns. `None` if there is no
    /// option to try.
    fn verify(&mut self, remedy: &Remedy, kept: &mut Kept) -> Result<Option<Trial>> {
        let Some(change) = self.change(&remedy.action) else { return Ok(None) };
        let (mut before, mut after, mut basis) = (Vec::new(), Vec::new(), Vec::new());
        let RunOptions { rounds, limits, .. } = *self.options;
        loop {
            (self.tell)(&rounds.name(before.len() + 1, "the remedy"));
            before.push(self.stream(&Change::default())?.batch_s);
            after.push(self.stream(&change)?.batch_s);
            if let Some(of) = remedy.basis {
                basis.push(self.basis(of, kept)?);
            }
            let times = [&before[..], &after, &basis];
            // The last is empty if there is nothing to measure.
            let measured = if basis.is_empty() { &times[..2] } else { &times };
            if rounds.suffice_to_compare(measured, limits) {
                break;
            }
        }
        let basis_s = (!basis.is_empty()).then(|| median(&basis));
        Ok(Some(Trial { before_s: median(&before), after_s: median(&after), basis_s }))
    }
}

/// The next batch, of whatever epoch.
fn next(loader: &mut DeviceLoader) -> Result<DeviceBatch> {
    // An end of an epoch is followed by a batch, since the dataset has samples; two ends by nothing.
    for _ in 0..3 {
        if let Some(batch) = loader.next_batch() {
            return batch;
        }
    }
    Err(Error::conflict("no batch comes of this dataset")
        .at(loader.dataset().path())
        .with_remedy("choose smaller batches, or other crops"))
}

/// A batch that is kept on the device.
struct Kept {
    /// As it was decoded.
    image: Tensor,
    masks: Vec<(String, Tensor)>,
    /// As the step gets it.
    now_image: Tensor,
    now_masks: Vec<(String, Tensor)>,
    batch: DeviceBatch,
    /// How batches come to the device.
    copies: &'static str,
}

fn clone_of(masks: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
    masks.iter().map(|(name, mask)| (name.clone(), mask.shallow_clone())).collect()
}

impl Kept {
    fn augment(&mut self, pipeline: &Pipeline, epoch: u64) -> Result<()> {
        let masks = clone_of(&self.masks);
        let masks = masks.into_iter().map(|(name, labels)| Mask { name, labels }).collect();
        let images = Images { image: self.image.shallow_clone(), masks, overwrite: false };
        let keys: Vec<SampleKey> = self.batch.items().iter().map(SampleKey::from).collect();
        // In the loader's memory, as batches that come are.
        let (augmented, _) = self.batch.with_results(|| pipeline.augment(images, epoch, &keys))?;
        self.now_image = augmented.image;
        self.now_masks = augmented.masks.into_iter().map(|mask| (mask.name, mask.labels)).collect();
        Ok(())
    }
}
