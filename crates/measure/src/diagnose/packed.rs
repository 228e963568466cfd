//! The levels of a packed dataset: hsipack's loader, with parts of its work kept ready.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hsipack_format::{CubeShape, Opt};
use hsipack_read::augment::{Device, Frame, Images, Library, Mask, Pipeline, SampleKey};
use hsipack_read::plan::{Crop, LastBatch};
use hsipack_read::store::Store;
use hsipack_read::{
    CacheKind, Dataset, DecodePlace, DeviceBatch, DeviceCache, DeviceLoader, DeviceOptions,
    LoaderOptions, OpenOptions, PreparedDeviceLoader, ShuffleWindow, Workload,
};
use hsipack_store::remote::is_url;

use super::action::Action;
use super::driver::{Lap, Levels, Timer, Variant, diagnose};
use super::effort::Effort;
use super::facts::Facts;
use super::level::Level;
use super::prediction::Basis;
use super::report::Diagnosis;
use super::subset::subset;
use crate::device::TrainingLibrary;
use crate::{Error, Result, machine};

/// A cache counts as full after this many batches that add nothing to it, not counting the batches
/// that were already waiting.
const FULL: usize = 12;

/// The subject of a diagnosis, and its settings.
#[derive(Clone, Debug)]
pub struct PackedOptions {
    /// The dataset.
    pub path: PathBuf,
    /// Where its bytes come from; the default store if `None`.
    pub store: Option<Arc<dyn Store>>,
    /// Options of the loader as training uses it: batch size, crops, threads, slots.
    pub loader: LoaderOptions,
    /// Where batches are delivered.
    pub device: DeviceOptions,
    /// Augmentations on the device.
    pub pipeline: Option<Pipeline>,
    /// Whether to drop the files from the system's cache, to measure the cost of the disk.
    pub cold: bool,
}

/// The training step: images (B, C, H, W) and named masks.
pub type Step<'a, T> = dyn FnMut(&T, &[(String, T)]) -> Result<()> + 'a;

/// Diagnoses a packed dataset. `stop` ends it early; `tell` receives progress messages.
///
/// # Errors
/// If the dataset or the device cannot be used, a step fails, or the diagnosis was stopped.
pub fn run<L: TrainingLibrary>(
    options: &PackedOptions,
    effort: Effort,
    library: &L,
    step: &mut Step<'_, L::Tensor>,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(&str),
) -> Result<Diagnosis> {
    diagnose(&mut Packed::new(options, library, step)?, effort, stop, tell)
}

/// A packed dataset, its loader and a training step.
pub(super) struct Packed<'a, L: TrainingLibrary> {
    options: &'a PackedOptions,
    library: &'a L,
    step: &'a mut Step<'a, L::Tensor>,
    dataset: Dataset,
    /// The workload of a loader with these options, and its default cache.
    workload: Workload,
    /// Samples that all levels read: few enough to keep in memory.
    samples: Samples,
    levels: Vec<Level>,
    notes: Vec<String>,
    kept: Kept<L>,
}

/// A change to the options.
#[derive(Clone, Debug, Default, PartialEq)]
struct Change {
    cache: Option<CacheKind>,
    threads: Option<usize>,
    /// Index of an augmentation to leave out.
    without: Option<usize>,
    crop: Option<[u32; 2]>,
    repeat: bool,
    cold: bool,
}

impl Change {
    /// The change for a level whose batches come from a loader.
    fn of_level(level: Level) -> Self {
        let change = Self::default();
        match level {
            Level::Prepare | Level::Copy => Self { repeat: true, ..change },
            Level::Collate => Self { cache: Some(CacheKind::Decoded), ..change },
            Level::Decode => Self { cache: Some(CacheKind::Compressed), ..change },
            Level::Cold => Self { cold: true, ..change },
            Level::Step | Level::Augment | Level::Read | Level::Load => change,
        }
    }

    /// The change for a remedy; `None` if it cannot be tried.
    fn of_action(action: &Action) -> Option<Self> {
        let change = Self::default();
        Some(match action {
            Action::Cache { cache, .. } => Self { cache: Some(*cache), ..change },
            Action::Threads { threads } => Self { threads: Some(*threads), ..change },
            Action::Without { index, .. } => Self { without: Some(*index), ..change },
            Action::Crop { pixels } => Self { crop: Some(*pixels), ..change },
            Action::ShuffleWindow { .. } | Action::Pin | Action::Other => return None,
        })
    }
}

impl<L: TrainingLibrary> Levels for Packed<'_, L> {
    fn subject(&self) -> String {
        let DeviceOptions { device, emulated_bus, .. } = self.options.device;
        let device = match (device, emulated_bus) {
            (Device::Cuda(number), _) => format!("cuda:{number}"),
            (_, Some(rate)) => format!("the CPU, over an emulated bus of {:.1} GB/s", rate * 1e-9),
            _ => "the CPU".to_owned(),
        };
        let LoaderOptions { plan, threads, .. } = &self.options.loader;
        let path = self.options.path.display();
        format!("{path}: batches of {} on {device}, {threads} decoding threads", plan.batch_size)
    }

    fn batch_size(&self) -> Option<usize> {
        Some(self.options.loader.plan.batch_size)
    }

    fn levels(&self) -> Vec<Level> {
        self.levels.clone()
    }

    fn more_threads(&self) -> Option<(Level, usize)> {
        let cores = hsipack_store::threads::cores();
        (self.options.loader.threads < cores).then_some((Level::Decode, cores))
    }

    fn augmentations(&self) -> Vec<String> {
        let ops = self.options.pipeline.iter().flat_map(|pipeline| &pipeline.ops);
        ops.map(|op| op.name().to_owned()).collect()
    }

    fn can_try(&self, action: &Action) -> bool {
        can_try(action)
    }

    fn time(&mut self, variant: Variant<'_>, timer: &Timer<'_>) -> Result<Lap> {
        let change = match variant {
            Variant::Basis(Basis::Level { level: Level::Step }) => {
                return self.keep_stepping(None, timer);
            }
            Variant::Basis(Basis::Level { level: Level::Augment }) => {
                return self.keep_stepping(self.options.pipeline.clone(), timer);
            }
            Variant::Basis(Basis::Without { index }) => {
                let change = Change { without: Some(index), ..Change::default() };
                return self.keep_stepping(self.pipeline(&change), timer);
            }
            Variant::Basis(Basis::Level { level }) => Change::of_level(level),
            Variant::Basis(Basis::MoreThreads) => {
                let threads = Some(hsipack_store::threads::cores());
                Change { threads, ..Change::of_level(Level::Decode) }
            }
            Variant::Remedied(action) => Change::of_action(action).unwrap_or_default(),
        };
        self.stream(&change, timer)
    }

    fn facts(&mut self) -> Result<Facts> {
        let (stored, decoded) = sizes(&self.dataset, &self.workload.samples);
        let shape = self.dataset.stacks().first().map(|stack| stack.image.shape());
        let facts = Facts::of(&self.dataset, &self.options.loader, &self.workload);
        let whole = facts.window.is_none();
        Ok(Facts {
            stored_bytes: Some(stored),
            decoded_bytes: Some(decoded),
            copies: self.kept.copies.to_owned(),
            pixels: shape.filter(|_| whole).map(|shape| [shape.rows as u32, shape.columns as u32]),
            gpu: self.options.device.device != Device::Cpu,
            auto: Some(self.workload.cache.clone()),
            ..facts
        })
    }

    fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}

impl<'a, L: TrainingLibrary> Packed<'a, L> {
    /// Opens the dataset, and loads the batch to keep on the device.
    pub(super) fn new<'s: 'a>(
        options: &'a PackedOptions,
        library: &'a L,
        step: &'a mut Step<'s, L::Tensor>,
    ) -> Result<Self> {
        let dataset = open(options)?;
        let workload = Workload::of(&dataset, &options.loader.by_itself())?;
        let samples = Samples::of(&dataset, &workload, options)?;
        let (levels, notes) = levels(options);
        let loader = kept_options(options, &samples);
        let kept = Kept::new(options, loader, library)?;
        Ok(Self { options, library, step, dataset, workload, samples, levels, notes, kept })
    }

    /// Trains on the kept batch, and augments it again for each step if there is a pipeline.
    fn keep_stepping(&mut self, pipeline: Option<Pipeline>, timer: &Timer<'_>) -> Result<Lap> {
        let Self { library, step, kept, options, .. } = self;
        let mut epoch = 0;
        let once = || {
            epoch += 1;
            if let Some(pipeline) = &pipeline {
                kept.augment(pipeline, epoch, *library)?;
            }
            step(&kept.now.image, &kept.now.masks)
        };
        let wait = || library.wait(options.device.device);
        Ok(Lap { batch_s: timer.batches(usize::MAX, wait, once)?, statistics: None })
    }

    /// Trains on the batches of a loader.
    fn stream(&mut self, change: &Change, timer: &Timer<'_>) -> Result<Lap> {
        if change.cold {
            machine::drop_file_cache(&self.options.path)?;
        }
        // Open it again: mapped pages would stay in the system's cache, whatever the advice.
        let dataset = open(self.options)?;
        // Otherwise few samples would stay there, and nothing else be measured.
        let device_cache = DeviceCache::None;
        let device =
            DeviceOptions { repeat: change.repeat, device_cache, ..self.options.device.clone() };
        let device = DeviceOptions { device_cache_bytes: 0, ..device };
        let loader = self.loader_options(change);
        let device = device.widened(&dataset, loader.integers);
        let mut prepared = PreparedDeviceLoader::new(&dataset, loader, device)?;
        if let Some(pipeline) = self.pipeline(change) {
            prepared = prepared.augmented(pipeline)?;
        }
        let mut loader = prepared.start(self.library.clone())?;
        self.warm_up(&mut loader, change, timer)?;
        // Files that were read from the disk once come from memory the next time.
        let most =
            if change.cold { self.batches(change).saturating_sub(2).max(1) } else { usize::MAX };
        let Self { library, step, options, .. } = self;
        let once = || {
            let batch = next(&mut loader)?;
            step(&batch.image, &batch.masks)
        };
        let wait = || library.wait(options.device.device);
        let batch_s = timer.batches(most, wait, once)?;
        Ok(Lap { batch_s, statistics: Some(loader.statistics()) })
    }

    /// Takes batches as fast as they come until the state is steady: caches are full, memory was
    /// touched, and no batches are waiting that were loaded before the measurement.
    fn warm_up(
        &self,
        loader: &mut DeviceLoader<L>,
        change: &Change,
        timer: &Timer<'_>,
    ) -> Result<()> {
        let slots = self.options.loader.slots + 1;
        let batches = match loader.options().cache {
            // Files are read from the disk only once.
            _ if change.cold => 1,
            CacheKind::None => slots,
            _ => loader.batches_per_epoch()?.max(slots),
        };
        // Few of an epoch's windows may together touch all chunks.
        let (mut kept, mut since) = (0, 0);
        for _ in 0..batches {
            next(loader)?;
            timer.check()?;
            let now = loader.cached_bytes();
            since = if now > kept { 0 } else { since + 1 };
            kept = now;
            if since >= slots + FULL {
                break;
            }
        }
        loader.forget_times();
        Ok(())
    }

    fn loader_options(&self, change: &Change) -> LoaderOptions {
        let mut options = of_samples(self.options, &self.samples);
        // Trace only the run with everything real.
        if *change != Change::default() {
            options.trace = None;
        }
        if let Some(cache) = change.cache {
            (options.cache, options.cache_bytes) = (cache, u64::MAX);
            options.shuffle_window = ShuffleWindow::All;
            // A device has no use for decoded chunks.
            if cache == CacheKind::Decoded {
                options.decode = DecodePlace::Host;
            }
        }
        options.threads = change.threads.unwrap_or(options.threads);
        if let Some([rows, columns]) = change.crop {
            options.plan.crop = Crop::Random { rows, columns, per_sample: 1, min_labelled: 0.0 };
        }
        options
    }

    fn pipeline(&self, change: &Change) -> Option<Pipeline> {
        let mut pipeline = self.options.pipeline.clone()?;
        if let Some(index) = change.without {
            pipeline.ops.remove(index);
        }
        Some(pipeline).filter(|pipeline| !pipeline.ops.is_empty())
    }

    /// Batches per epoch over the samples that all levels read.
    fn batches(&self, change: &Change) -> usize {
        let batch_size = self.loader_options(change).plan.batch_size.max(1);
        self.samples.items.iter().map(|items| items / batch_size).sum()
    }
}

/// Whether a remedy is an option of a packed dataset.
pub(super) fn can_try(action: &Action) -> bool {
    Change::of_action(action).is_some()
}

/// The levels that apply, and notes on why others do not.
fn levels(options: &PackedOptions) -> (Vec<Level>, Vec<String>) {
    let mut levels = vec![Level::Step];
    if options.pipeline.is_some() {
        levels.push(Level::Augment);
    }
    let copies = options.device.device != Device::Cpu || options.device.emulated_bus.is_some();
    levels.push(if copies { Level::Copy } else { Level::Prepare });
    let mut notes = Vec::new();
    let device_decodes = options.loader.decode == DecodePlace::Device;
    if device_decodes {
        notes.push(
            "the device decodes, so nothing is collated on the host; samples that stay in its memory (device_cache) are not part of the diagnosis"
                .to_owned(),
        );
    } else {
        levels.push(Level::Collate);
    }
    levels.extend([Level::Decode, Level::Read]);
    // The memory of a server cannot be dropped from here.
    if options.cold && !is_url(&options.path) {
        match machine::drop_file_cache(&options.path) {
            Ok(()) => levels.push(Level::Cold),
            Err(error) => notes.push(format!("reading from the disk was not measured: {error}")),
        }
    }
    (levels, notes)
}

fn open(options: &PackedOptions) -> Result<Dataset> {
    let store = options.store.clone();
    Dataset::open_with(&options.path, OpenOptions { store, ..OpenOptions::default() })
}

/// Bytes of the chunks of some samples, stored and decoded.
fn sizes(dataset: &Dataset, samples: &[usize]) -> (u64, u64) {
    let all = dataset.len().max(1) as f64;
    let share = samples.len() as f64 / all;
    let stored = machine::dataset_bytes(dataset) as f64 * share;
    (stored.ceil() as u64, (dataset.decoded_bytes() as f64 * share).ceil() as u64)
}

/// Samples that all levels read.
struct Samples {
    /// Their ids.
    ids: Vec<usize>,
    /// Cubes, or windows in them, per epoch, for each shape of items. A batch has one shape.
    items: Vec<usize>,
}

impl Samples {
    /// Chooses some of the samples that are read. With windows, only samples that have windows are
    /// chosen.
    fn of(dataset: &Dataset, workload: &Workload, options: &PackedOptions) -> Result<Self> {
        let Workload { samples, counts, .. } = workload;
        let (_, decoded_bytes) = sizes(dataset, samples);
        let per_sample = workload.windows() as usize / samples.len().max(1);
        let ids = subset(samples, decoded_bytes, options.loader.plan.batch_size, per_sample);
        if ids.is_empty() {
            let error = Error::conflict("there are no samples to read").at(dataset.path());
            return Err(error.with_remedy(format!("choose another {}", Opt::Split)));
        }
        let all: HashMap<usize, u32> =
            samples.iter().copied().zip(counts.iter().copied()).collect();
        let mut items: HashMap<CubeShape, usize> = HashMap::new();
        for id in &ids {
            let stack = &dataset.stacks()[dataset.samples().stack(*id)];
            let shape = stack.image.grid().shape();
            // Windows have the same size in all cubes.
            let shape = match options.loader.plan.crop {
                Crop::Whole => shape,
                _ => CubeShape::new(0, 0, shape.bands),
            };
            *items.entry(shape).or_default() += all.get(id).map_or(0, |count| *count as usize);
        }
        Ok(Self { ids, items: items.into_values().collect() })
    }
}

/// Loader options for these samples. If there is at least one whole batch, only whole batches are
/// read.
fn of_samples(options: &PackedOptions, samples: &Samples) -> LoaderOptions {
    let mut options = options.loader.clone();
    options.samples = Some(samples.ids.clone());
    if let Crop::Windows(windows) = &options.plan.crop
        && let Some(some) = windows.of_samples(&samples.ids)
    {
        options.plan.crop = Crop::Windows(some.into());
    }
    options.splits = Vec::new();
    options.end_epoch = None;
    if samples.items.iter().any(|items| *items >= options.plan.batch_size) {
        options.plan.last = LastBatch::Drop;
    }
    options
}

/// Loader options for the batch to keep.
fn kept_options(options: &PackedOptions, samples: &Samples) -> LoaderOptions {
    LoaderOptions { slots: 2, trace: None, ..of_samples(options, samples) }
}

/// The next batch, of any epoch.
fn next<L: Library + 'static>(loader: &mut DeviceLoader<L>) -> Result<DeviceBatch<L>> {
    // After the end of an epoch comes a batch, because the dataset has samples. Two ends in a row mean that there are
    // no batches.
    for _ in 0..3 {
        if let Some(batch) = loader.next_batch() {
            return batch;
        }
    }
    Err(Error::conflict("this dataset gives no batches")
        .at(loader.dataset().path())
        .with_remedy("choose smaller batches, or other crops"))
}

/// A batch that is kept on the device.
struct Kept<L: Library> {
    /// The batch as decoded.
    batch: DeviceBatch<L>,
    /// The batch as the step receives it.
    now: Now<L>,
    /// How batches are copied to the device.
    copies: &'static str,
}

struct Now<L: Library> {
    image: L::Tensor,
    masks: Vec<(String, L::Tensor)>,
}

impl<L: TrainingLibrary> Kept<L> {
    fn new(options: &PackedOptions, loader: LoaderOptions, library: &L) -> Result<Self> {
        let dataset = open(options)?;
        let device = options.device.clone().widened(&dataset, loader.integers);
        let mut loader = DeviceLoader::new(&dataset, loader, device, library.clone())?;
        let batch = next(&mut loader)?;
        let now = Now { image: batch.image.clone(), masks: batch.masks.clone() };
        let mut kept = Self { batch, now, copies: loader.report().copies };
        if let Some(pipeline) = &options.pipeline {
            kept.augment(pipeline, 0, library)?;
        }
        Ok(kept)
    }

    fn augment(&mut self, pipeline: &Pipeline, epoch: u64, library: &L) -> Result<()> {
        let DeviceBatch { image, masks, .. } = &self.batch;
        let (shape, _) = library.look_at(image)?;
        let [_, bands, rows, columns] = shape[..] else {
            return Err(Error::bug(format!("images of shape {shape:?}")));
        };
        let keys: Vec<SampleKey> = self.batch.items().iter().map(SampleKey::from).collect();
        let drawn = pipeline.draw(Frame { rows, columns, bands }, epoch, &keys)?;
        let named = |(name, labels): &(String, L::Tensor)| Mask {
            name: name.clone(),
            labels: labels.clone(),
        };
        // The kept images and masks stay unchanged.
        let further = self.batch.further_images().to_vec();
        let images = Images::new(image.clone(), masks.iter().map(named).collect());
        let images = images.with_further(further);
        let augmented = library.apply(pipeline, images, &drawn)?;
        let masks = augmented.masks.into_iter().map(|mask| (mask.name, mask.labels)).collect();
        self.now = Now { image: augmented.image, masks };
        Ok(())
    }
}
