//! Strategies 0 to 3: each worker loads whole batches, as the workers of a DataLoader do.
//!
//! Worker w loads batches w, w + n, w + 2n, … of an endless stream of epochs, and may be two
//! batches ahead of the consumer. For each cube it allocates memory, reads or decompresses the cube
//! into it, and augments it (except in strategy 3). Then it collates the cubes into a new batch. A
//! worker has one thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use hsipack_format::{Opt, remedy};
use hsipack_read::augment::array::Buffer;
use hsipack_read::augment::{Array, ElementType, Host, Pipeline, SampleKey};
use hsipack_read::plan::{Item, Plan, PlanOptions, PlanSample, Share};
use hsipack_read::store::Store;
use hsipack_read::{Dataset, read_array};

use super::options::CubeSize;
use super::store::Counted;
use super::{chain, npy};
use crate::{Error, ErrorKind, Result};

/// The task of the workers.
#[derive(Debug)]
pub struct Work {
    /// Where the cubes are stored.
    pub files: Files,
    /// Shape of the cubes.
    pub shape: CubeSize,
    /// The augmentations of each cube, if any.
    pub pipeline: Option<Pipeline>,
    /// The order of the cubes.
    pub plan: Plan,
}

/// Cubes in one of two storage formats.
#[derive(Debug)]
pub enum Files {
    /// A folder of .npy files.
    Npy(PathBuf, Counted),
    /// A packed dataset.
    Packed(Dataset),
}

/// A batch as a worker delivers it.
#[derive(Debug)]
pub struct Loaded {
    /// (B, C, H, W), a view of memory in the order (sample, row, column, band).
    pub image: Array,
    /// The cubes in the batch.
    pub keys: Vec<SampleKey>,
    /// The epoch it belongs to.
    pub epoch: u64,
    /// Seconds that loading it took.
    pub load_s: f64,
}

/// The workers and the batches that they deliver.
#[derive(Debug)]
pub struct Workers {
    /// One per worker; empty once the workers are to stop.
    receivers: Vec<Receiver<Result<Loaded>>>,
    next: usize,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The plan of cubes 0, 1, …: the plan of a loader over a whole dataset.
///
/// # Errors
/// As [`Plan::new`].
pub fn plan(cubes: usize, shape: CubeSize, batch_size: usize, seed: u64) -> Result<Plan> {
    let [rows, columns, bands] = [shape.rows, shape.columns, shape.bands].map(|size| size as u32);
    let samples = (0..cubes).map(|sample| PlanSample::new(sample, rows, columns, bands)).collect();
    Plan::new(samples, PlanOptions { seed, ..PlanOptions::new(batch_size) })
}

impl Workers {
    /// Starts `count` workers.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(work: Work, count: usize) -> Result<Self> {
        let (work, stop) = (Arc::new(work), Arc::new(AtomicBool::new(false)));
        let mut workers =
            Self { receivers: Vec::new(), next: 0, stop: stop.clone(), threads: Vec::new() };
        for number in 0..count {
            // One batch waits here, and the worker holds another: two ahead.
            let (sender, receiver) = sync_channel(1);
            let (work, stop) = (work.clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("worker {number}"));
            let thread = thread.spawn(move || work.run(number, count, &stop, &sender));
            workers.threads.push(thread.map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot start a thread: {error}"))
                    .with_remedy(remedy!["use fewer ", Opt::Workers])
            })?);
            workers.receivers.push(receiver);
        }
        Ok(workers)
    }

    /// The next batch, in order.
    ///
    /// # Errors
    /// If the batch could not be loaded.
    pub fn next(&mut self) -> Result<Loaded> {
        let worker = self.next % self.receivers.len();
        self.next += 1;
        self.receivers[worker].recv().unwrap_or_else(|_| Err(Error::bug("a worker ended early")))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.receivers.clear();
        for thread in self.threads.drain(..) {
            // A thread that panicked has already printed why.
            let _ = thread.join();
        }
    }
}

impl Work {
    fn run(
        &self,
        first: usize,
        step: usize,
        stop: &AtomicBool,
        sender: &SyncSender<Result<Loaded>>,
    ) {
        let host = Host::new(1);
        for number in (first..).step_by(step) {
            let Some(loaded) = self.load(&host, number, stop).transpose() else { return };
            let failed = loaded.is_err();
            if sender.send(loaded).is_err() || failed {
                return;
            }
        }
    }

    /// Loads batch `number` of the stream of epochs; `None` if the workers are to stop.
    fn load(&self, host: &Host, number: usize, stop: &AtomicBool) -> Result<Option<Loaded>> {
        let start = Instant::now();
        let per_epoch = self.plan.epoch(0, &[], Share::ALL)?.batches();
        let epoch = (number / per_epoch) as u64;
        let mut items = Vec::new();
        self.plan.epoch(epoch, &[], Share::ALL)?.batch(number % per_epoch, None, &mut items)?;
        let mut cubes = Vec::with_capacity(items.len());
        for item in &items {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            cubes.push(self.cube(host, item, epoch)?);
        }
        let image = collated(&cubes)?.permuted(&[0, 3, 1, 2]);
        drop(cubes);
        let keys = items.iter().map(SampleKey::from).collect();
        Ok(Some(Loaded { image, keys, epoch, load_s: start.elapsed().as_secs_f64() }))
    }

    /// Loads a cube into new memory and augments it.
    fn cube(&self, host: &Host, item: &Item, epoch: u64) -> Result<Array> {
        let CubeSize { rows, columns, bands } = self.shape;
        let sample = item.sample;
        let cube = match &self.files {
            Files::Npy(folder, store) => {
                let file = store.open(&npy::path(folder, sample))?;
                let span = npy::HEADER..file.len();
                read_array(&*file, span, &[rows, columns, bands], ElementType::F32)?
            }
            Files::Packed(dataset) => dataset.load_image(sample, 0..rows, 0..columns, None)?,
        };
        match &self.pipeline {
            Some(pipeline) => chain::cube(host, pipeline, &cube, epoch, SampleKey::from(item)),
            None => Ok(cube),
        }
    }
}

/// Copies cubes of one size into a batch in new memory.
fn collated(cubes: &[Array]) -> Result<Array> {
    let [first, ..] = cubes else { return Err(Error::bug("a batch without cubes")) };
    let bytes = first.len() * first.element().size();
    let mut batch = Buffer::zeroed(cubes.len() * bytes)?;
    for (cube, slot) in cubes.iter().zip(batch.bytes_mut().chunks_exact_mut(bytes.max(1))) {
        let bytes = cube.bytes().filter(|cube| cube.len() == slot.len());
        slot.copy_from_slice(bytes.ok_or_else(|| Error::bug(format!("{cube:?} in a batch")))?);
    }
    batch.array(&[&[cubes.len()], first.shape()].concat(), first.element())
}
