//! Batches of any strategy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hsipack_read::augment::{Device, Library, Pipeline, SampleKey};
use hsipack_read::store::{Link, StoreKind};
use hsipack_read::{
    BatchTimes, CacheKind, Dataset, DecodePlace, DeviceBatch, DeviceCache, DeviceLoader,
    DeviceOptions, Distribution, LoaderOptions, LoaderStats, OpenOptions, Statistics,
};

use super::chain;
use super::data::Data;
use super::options::{Settings, Strategy};
use super::store::{Counted, store};
use super::workers::{Files, Loaded, Work, Workers, plan};
use crate::Result;
use crate::device::TrainingLibrary;

/// Batches of one strategy, epoch after epoch without end.
pub struct Feed<L: TrainingLibrary> {
    library: L,
    device: Device,
    source: Source<L>,
    /// Augmentations that run on the device.
    pipeline: Option<Pipeline>,
    store: Counted,
    workers: usize,
    batches_per_epoch: usize,
    /// Seconds that loading each batch took.
    load_s: Vec<f64>,
    since: LoaderStats,
    read_since_s: f64,
}

enum Source<L: Library> {
    Workers(Workers),
    Ring(Box<DeviceLoader<L>>),
}

/// A batch as its strategy delivers it.
pub struct Delivered<L: Library>(Batch<L, Loaded>);

/// A batch on the device.
pub struct Arrived<L: Library>(Batch<L, Copied<L>>);

enum Batch<L: Library, W> {
    Workers(W),
    Ring(DeviceBatch<L>),
}

/// A batch that workers loaded, on the device.
struct Copied<L: Library> {
    image: L::Tensor,
    keys: Vec<SampleKey>,
    epoch: u64,
}

impl<L: TrainingLibrary> Feed<L> {
    /// Starts loading.
    ///
    /// # Errors
    /// If files cannot be opened, options contradict each other, or there is no memory.
    pub fn start(
        strategy: Strategy,
        rate_limit: Option<u64>,
        settings: &Settings,
        data: &Data,
        library: &L,
        device: Device,
    ) -> Result<Self> {
        let ring = strategy >= Strategy::Ring;
        let kind = match strategy {
            Strategy::Original => StoreKind::Pread,
            _ => StoreKind::Mapped,
        };
        let latency = Duration::from_secs_f64(settings.latency_s);
        let store = store(kind, Link { rate: rate_limit, latency });
        let kept = store.clone();
        let plan = plan(data.cubes, data.shape, settings.batch_size, settings.seed)?;
        let batches_per_epoch = plan.epoch(0, &[], hsipack_read::plan::Share::ALL)?.batches();
        let on_device = strategy >= Strategy::DeviceAugment;
        let source = if ring {
            let dataset = open(&data.half, store)?;
            let mut options = LoaderOptions::new(settings.batch_size);
            options.plan.seed = settings.seed;
            options.threads = settings.workers;
            options.masks = Some(Vec::new());
            // No strategy caches: all read from the disk, or from the system's cache.
            options.cache = CacheKind::None;
            if strategy == Strategy::DeviceDecode {
                options.decode = DecodePlace::Device;
            }
            let device =
                DeviceOptions { device_cache: DeviceCache::None, ..DeviceOptions::new(device) };
            let loader = DeviceLoader::new(&dataset, options, device, library.clone())?;
            Source::Ring(Box::new(loader))
        } else {
            let files = match strategy {
                Strategy::Original => Files::Npy(data.original.clone(), store),
                Strategy::Blosc => Files::Packed(open(&data.blosc, store)?),
                _ => Files::Packed(open(&data.half, store)?),
            };
            let pipeline =
                if on_device { None } else { chain::of_workers(&settings.augment, settings.seed) };
            let work = Work { files, shape: data.shape, pipeline, plan };
            Source::Workers(Workers::start(work, settings.workers)?)
        };
        let pipeline = if on_device { settings.augment.pipeline(settings.seed) } else { None };
        Ok(Self {
            library: library.clone(),
            device,
            source,
            pipeline,
            store: kept,
            workers: settings.workers,
            batches_per_epoch,
            load_s: Vec::new(),
            since: LoaderStats::default(),
            read_since_s: 0.0,
        })
    }

    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> usize {
        self.batches_per_epoch
    }

    /// Number of batches that there is room for: in use, ready and being loaded.
    pub fn slots(&self) -> usize {
        match &self.source {
            // Each worker may be two ahead of the consumer; one more is in use.
            Source::Workers(_) => 2 * self.workers + 1,
            Source::Ring(loader) => loader.statistics().slots,
        }
    }

    /// Whether batches are augmented on the device.
    pub fn augments(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.store.counts().bytes()
    }

    /// Releases what it keeps of its files in the system's cache, so that the cache can be dropped.
    pub fn release(&self) {
        self.store.release();
    }

    /// The next batch, of any epoch.
    ///
    /// # Errors
    /// If the batch cannot be read, is damaged, or there is no memory.
    #[allow(clippy::should_implement_trait)] // it has no end
    pub fn next(&mut self) -> Result<Delivered<L>> {
        match &mut self.source {
            Source::Workers(workers) => {
                let loaded = workers.next()?;
                self.load_s.push(loaded.load_s);
                Ok(Delivered(Batch::Workers(loaded)))
            }
            Source::Ring(loader) => loop {
                // `None` is the end of an epoch; the next call gives the next one.
                if let Some(batch) = loader.next_batch() {
                    return Ok(Delivered(Batch::Ring(batch?)));
                }
            },
        }
    }

    /// Copies a batch to the device. A batch of the ring is already there.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn arrive(&self, batch: Delivered<L>) -> Result<Arrived<L>> {
        Ok(Arrived(match batch.0 {
            Batch::Workers(Loaded { image, keys, epoch, .. }) => {
                let image = self.library.copied(image, self.device)?;
                Batch::Workers(Copied { image, keys, epoch })
            }
            Batch::Ring(batch) => Batch::Ring(batch),
        }))
    }

    /// Applies the augmentations that the strategy runs on the device; images (B, C, H, W).
    ///
    /// # Errors
    /// If the augmentations do not fit, or the device has not enough memory.
    pub fn augment(&self, batch: Arrived<L>) -> Result<L::Tensor> {
        match (batch.0, &self.pipeline) {
            (Batch::Workers(Copied { image, keys, epoch }), Some(pipeline)) => {
                chain::batch(&self.library, pipeline, image, epoch, &keys)
            }
            (Batch::Workers(copied), None) => Ok(copied.image),
            (Batch::Ring(mut batch), Some(pipeline)) => {
                batch.augment(pipeline)?;
                Ok(batch.image.clone())
            }
            (Batch::Ring(batch), None) => Ok(batch.image.clone()),
        }
    }

    /// Resets all counters. The measurement begins here.
    pub fn begin(&mut self) {
        self.load_s.clear();
        self.read_since_s = self.store.counts().seconds();
        if let Source::Ring(loader) = &self.source {
            loader.forget_times();
            self.since = loader.statistics().loader;
        }
    }

    /// Statistics since [`begin`](Self::begin), combined with the consumer's times: how long it
    /// waited for each batch, and how long it used it.
    pub fn statistics(&self, consumer: ConsumerStats<'_>) -> Statistics {
        let times = BatchTimes {
            load_s: Distribution::of(self.load_s.iter().copied()),
            copy_s: Distribution::default(),
            decode_s: Distribution::default(),
            wait_s: Distribution::of(consumer.wait_s.iter().copied()),
            step_s: Distribution::of(consumer.step_s.iter().copied()),
        };
        let waiting_s = consumer.wait_s.iter().sum();
        match &self.source {
            Source::Ring(loader) => {
                let now = loader.statistics();
                Statistics {
                    batches: consumer.wait_s.len() as u64,
                    waiting_s,
                    times: BatchTimes {
                        wait_s: times.wait_s,
                        step_s: times.step_s,
                        ..now.times.clone()
                    },
                    loader: now.loader.since(&self.since),
                    ..now
                }
            }
            Source::Workers(_) => {
                let slots = self.slots();
                let loader = LoaderStats {
                    elapsed_s: consumer.seconds,
                    batches: consumer.wait_s.len() as u64,
                    samples: consumer.cubes,
                    bytes: consumer.bytes,
                    stored_bytes: consumer.bytes_read,
                    threads: self.workers,
                    decode_busy_s: self.load_s.iter().sum(),
                    read_s: self.store.counts().seconds() - self.read_since_s,
                    consumer_waiting_s: waiting_s,
                    slots,
                    ..LoaderStats::default()
                };
                Statistics {
                    schema: 1,
                    batches: consumer.wait_s.len() as u64,
                    waiting_s,
                    loaders: self.workers,
                    slots,
                    times,
                    loader,
                    ..Statistics::default()
                }
            }
        }
    }
}

/// Times and counts that the consumer measured.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerStats<'a> {
    /// Elapsed time.
    pub seconds: f64,
    /// Time waiting for each batch, in seconds.
    pub wait_s: &'a [f64],
    /// Time using each batch, in seconds.
    pub step_s: &'a [f64],
    /// Cubes received.
    pub cubes: u64,
    /// Their bytes, uncompressed.
    pub bytes: u64,
    /// Bytes read in this time.
    pub bytes_read: u64,
}

impl<L: Library> Delivered<L> {
    /// Ids of the cubes in the batch.
    pub fn ids(&self) -> Vec<usize> {
        match &self.0 {
            Batch::Workers(loaded) => loaded.keys.iter().map(|key| key.sample).collect(),
            Batch::Ring(batch) => {
                batch.items().iter().map(|item| SampleKey::from(item).sample).collect()
            }
        }
    }
}

fn open(path: &Path, store: Counted) -> Result<Dataset> {
    Dataset::open_with(path, OpenOptions { store: Some(Arc::new(store)), ..OpenOptions::default() })
}
