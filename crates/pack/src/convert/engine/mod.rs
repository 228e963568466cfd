//! Runs the threads of a conversion, keeps results in order, and applies back-pressure.
//!
//! Jobs (a block of rows of one cube, or one mask or companion of one cube) are numbered in the
//! order of their chunks in the shards. Worker threads take the next job, then read, pack and
//! compress it. One writer thread writes the results to the shard files in the order of their
//! numbers, whatever order they arrive in. Another thread waits until finished shards are on the
//! disk, so that neither workers nor the writer wait for it. A worker may not run further ahead of
//! the writer than [`WINDOW`], which limits memory.
//!
//! `queue.rs` hands out the jobs, `shard.rs` receives their results, and `records.rs` holds what a
//! resumed conversion needs to know of finished shards.

mod queue;
mod records;
mod shard;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_source::Access;
use hsipack_store::output::Written;
use hsipack_store::{Dataset, stopping, threads};
use serde_json::Value;

use self::queue::{Job, Opening, Queue, References, ShardTask, Step, shard_tasks};
pub use self::records::SampleRecord;
use self::shard::{FinishedShard, OpenShard};
use super::companions::CompanionReader;
use super::encode::{Encoded, Encoder};
use super::masks::{CubeOfMask, MaskReader};
use super::metadata::mask_codec;
use super::options::Resources;
use super::parts::Part;
use super::plan::{Plan, PlannedSample, PlannedStack};
use super::staging::{Shards, Staging};
use super::stats::StackStats;
use crate::progress::Progress;

/// Facts about all packed samples.
pub struct Outcome {
    /// One record for each sample, in the order of [`Plan::samples`].
    pub samples: Vec<SampleRecord>,
    /// Statistics of each stack, over the new samples only.
    pub stacks: Vec<StackStats>,
    /// Bytes of all shards, whether they were written now or before.
    pub bytes: u64,
}

/// The result of a job.
struct Done {
    task: usize,
    sample: usize,
    /// 0 is the image; then the masks and the companions follow.
    array: usize,
    /// The chunk within the sample at which the block starts.
    first_chunk: usize,
    encoded: Encoded,
    last: bool,
}

/// Results that wait for the writer.
struct Delivered {
    next: u64,
    waiting: BTreeMap<u64, Done>,
    /// The total number of jobs, when it is known.
    total: Option<u64>,
}

/// The shards that a conversion of `plan` writes.
pub fn shards(plan: &Plan) -> Shards {
    let mut shards = Shards::default();
    for (number, stack) in plan.stacks.iter().enumerate() {
        let is_new = stack.existing == 0;
        if is_new {
            shards.new_stacks.push(stack.name.clone());
        }
        for task in shard_tasks(number, stack) {
            let paths = shard::paths(stack, task.shard).map(|(path, ..)| path);
            let first = shards.all.len();
            shards.all.extend(paths);
            if !is_new && task.carried == 0 {
                shards.added.extend_from_slice(&shards.all[first..]);
            }
        }
    }
    shards
}

struct Engine<'a> {
    plan: &'a Plan,
    resources: Resources,
    staging: &'a Staging,
    base: Option<&'a Dataset>,
    progress: &'a Progress,
    delivered: Mutex<Delivered>,
    changed: Condvar,
    failure: Mutex<Option<Error>>,
    /// Whether a thread has failed. Threads that wait for a server check this.
    failed: Arc<AtomicBool>,
    /// Results that have been written. Their memory is reused.
    spent: Mutex<Vec<Encoded>>,
    references: References,
    /// A cube was opened.
    opened: Condvar,
}

/// For each thread, the number of jobs that may be in progress or waiting for the writer.
const WINDOW: u64 = 4;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packs every sample of `plan` that is not finished yet, into shards in the staging folder. Checks
/// that their cubes are the same as when they were planned.
///
/// # Errors
/// The first error of any thread; [`ErrorKind::Interrupted`] if `progress.stop` was set.
pub fn run(
    plan: &Plan,
    resources: Resources,
    staging: &Staging,
    base: Option<&Dataset>,
    progress: &Progress,
) -> Result<Outcome> {
    let engine = Engine::new(plan, resources, staging, base, progress);
    let tasks = engine.unfinished(tasks(plan))?;
    engine.pack(tasks)?;
    outcome(plan, staging)
}

/// Packs one part of a conversion that was planned earlier, in the same way. Returns the number of
/// shards that it wrote.
///
/// # Errors
/// The same as those of [`run`].
pub fn run_part(
    plan: &Plan,
    resources: Resources,
    staging: &Staging,
    base: Option<&Dataset>,
    progress: &Progress,
    part: Part,
) -> Result<usize> {
    let engine = Engine::new(plan, resources, staging, base, progress);
    let tasks = engine.unfinished(part.of(tasks(plan)))?;
    let written = tasks.len();
    engine.pack(tasks)?;
    Ok(written)
}

/// All shards of a plan, by stack and number, in order.
pub fn shards_of(plan: &Plan) -> impl Iterator<Item = (&str, usize)> {
    tasks(plan).map(|task| (plan.stacks[task.stack].name.as_str(), task.shard))
}

/// The samples in the shards of a part, as indices into [`Plan::samples`].
pub fn samples_of(plan: &Plan, part: Part) -> Vec<usize> {
    let samples = |task: ShardTask| plan.stacks[task.stack].samples[task.samples].to_vec();
    part.of(tasks(plan)).flat_map(samples).collect()
}

fn tasks(plan: &Plan) -> impl Iterator<Item = ShardTask> {
    plan.stacks.iter().enumerate().flat_map(|(number, stack)| shard_tasks(number, stack))
}

/// Combines the receipts of all shards. Statistics are merged in the order of the shards, so that
/// rounding does not depend on which process wrote them, or when.
///
/// # Errors
/// If a receipt is missing or cannot be read.
pub fn outcome(plan: &Plan, staging: &Staging) -> Result<Outcome> {
    let none = (0, 0.0);
    let (relative, absolute) = (none, none);
    let empty = SampleRecord { nan: 0, inf: 0, range: None, relative, absolute, vanished: None };
    let stats = plan.stacks.iter().map(|stack| StackStats::new(stack.grid.shape().bands));
    let mut outcome =
        Outcome { samples: vec![empty; plan.samples.len()], stacks: stats.collect(), bytes: 0 };
    for task in tasks(plan) {
        let stack = &plan.stacks[task.stack].name;
        let record = staging.finished(stack, task.shard)?;
        record.and_then(|record| outcome.add(task.stack, &record)).ok_or_else(|| {
            Error::damaged(format!("the record of shard {} of {stack} cannot be read", task.shard))
                .at(staging.folder())
                .with_remedy("delete the folder and convert again")
        })?;
    }
    Ok(outcome)
}

impl Outcome {
    /// Adds the receipt of a shard; `None` if its content is not valid.
    fn add(&mut self, stack: usize, record: &Value) -> Option<()> {
        for sample in record["samples"].as_array()? {
            let (index, record) = SampleRecord::from_json(sample)?;
            *self.samples.get_mut(index)? = record;
        }
        self.bytes += record["bytes"].as_u64()?;
        self.stacks[stack].merge(&StackStats::from_state(&record["stats"])?);
        Some(())
    }
}

impl<'a> Engine<'a> {
    fn new(
        plan: &'a Plan,
        resources: Resources,
        staging: &'a Staging,
        base: Option<&'a Dataset>,
        progress: &'a Progress,
    ) -> Self {
        Self {
            plan,
            resources,
            staging,
            base,
            progress,
            delivered: Mutex::new(Delivered { next: 0, waiting: BTreeMap::new(), total: None }),
            changed: Condvar::new(),
            failure: Mutex::new(None),
            failed: Arc::default(),
            spent: Mutex::default(),
            references: References::default(),
            opened: Condvar::new(),
        }
    }

    fn pack(&self, tasks: Vec<ShardTask>) -> Result<()> {
        self.work(tasks);
        locked(&self.failure).take().map_or(Ok(()), Err)
    }

    /// Those of the shards that are not finished yet.
    fn unfinished(&self, tasks: impl Iterator<Item = ShardTask>) -> Result<Vec<ShardTask>> {
        let mut remaining = Vec::new();
        for task in tasks {
            let stack = &self.plan.stacks[task.stack];
            if self.staging.finished(&stack.name, task.shard)?.is_none() {
                remaining.push(task);
                continue;
            }
            let samples = &stack.samples[task.samples.clone()];
            self.progress.cubes.fetch_add(samples.len() as u64, Ordering::Relaxed);
            let bytes = samples.iter().map(|sample| self.plan.samples[*sample].value_bytes()).sum();
            self.progress.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(remaining)
    }

    /// Runs all threads until they end.
    fn work(&self, tasks: Vec<ShardTask>) {
        let shards: Vec<ShardTask> =
            tasks.iter().map(|task| ShardTask { samples: task.samples.clone(), ..*task }).collect();
        let queue = Mutex::new(Queue::new(self, tasks));
        let (sender, receiver) = sync_channel(1);
        std::thread::scope(|scope| {
            // If a thread cannot be started, the others must end too, because threads wait for one another.
            self.guard(|| {
                // No thread gets work before all have started. If memory is short, running threads could otherwise take
                // the memory that a thread needs to start, and the system would end the process.
                let _starting = locked(&queue);
                for _ in 0..self.resources.threads.max(1) {
                    let work = || self.guard(|| self.worker(&queue));
                    threads::start_scoped(scope, "pack", work)?;
                }
                threads::start_scoped(scope, "sync", || self.guard(|| self.finisher(receiver)))?;
                let write = || self.guard(|| self.writer(&shards, sender));
                threads::start_scoped(scope, "write", write).map(drop)
            });
        });
    }

    /// Runs one thread's work. An error or a panic stops all threads.
    fn guard(&self, work: impl FnOnce() -> Result<()>) {
        let (failed, stop) = (self.failed.clone(), self.progress.stop.clone());
        let ends = move || failed.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
        let work = || stopping::until(Arc::new(ends), work);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => Error::panicked(&*panic),
        };
        locked(&self.failure).get_or_insert(error);
        self.failed.store(true, Ordering::Relaxed);
        // Waiting threads check for a failure while they hold this lock.
        drop(locked(&self.delivered));
        self.changed.notify_all();
        self.opened.notify_all();
    }

    fn stopped(&self) -> bool {
        if self.progress.stop.load(Ordering::Relaxed) {
            locked(&self.failure)
                .get_or_insert_with(|| Error::new(ErrorKind::Interrupted, "stopped"));
        }
        locked(&self.failure).is_some()
    }

    fn worker<'q>(&'q self, queue: &Mutex<Queue<'q>>) -> Result<()> {
        let mut encoder = Encoder::default();
        while !self.stopped() {
            let mut waiting = locked(queue);
            if !self.wait_for_window(waiting.next) {
                return Ok(());
            }
            if let Some(opening) = waiting.open_ahead() {
                self.open(queue, waiting, &opening)?;
                continue;
            }
            let ticket = match waiting.take() {
                Step::Job(ticket) => ticket,
                Step::Open(opening) => {
                    self.open(queue, waiting, &opening)?;
                    continue;
                }
                Step::Wait => {
                    let waited = self.opened.wait_timeout(waiting, POLL);
                    drop(waited.unwrap_or_else(PoisonError::into_inner));
                    continue;
                }
                Step::End => {
                    let mut delivered = locked(&self.delivered);
                    delivered.total = Some(waiting.next);
                    self.changed.notify_all();
                    return Ok(());
                }
            };
            let done = match &ticket.job {
                Job::Rows { sample, cube, rows } => {
                    // Locked before another thread can take the next job, so that rows of a stream are read in order.
                    let turn =
                        (cube.source.access() == Access::Sequential).then(|| locked(&cube.turn));
                    drop(waiting);
                    let is_end = rows.end == cube.grid.shape().rows;
                    encoder.read(cube, rows.clone(), turn)?;
                    if is_end {
                        queue::check_unchanged(&*cube.source, &self.plan.samples[*sample])?;
                    }
                    let first_chunk =
                        rows.start / cube.grid.tile().rows * cube.grid.chunks_per_row();
                    let encoded = encoder.encode(cube, rows.clone(), self.recycled())?;
                    let bytes = rows.len() * cube.source.info().row_bytes();
                    self.progress.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
                    Done {
                        task: ticket.task,
                        sample: *sample,
                        array: 0,
                        first_chunk,
                        encoded,
                        last: ticket.last,
                    }
                }
                Job::Beside { sample, array } => {
                    drop(waiting);
                    let budget = self.resources.buffer_per_thread();
                    let encoded = encode_beside(&mut encoder, self.plan, *sample, *array, budget)?;
                    Done {
                        task: ticket.task,
                        sample: *sample,
                        array: array + 1,
                        first_chunk: 0,
                        encoded,
                        last: ticket.last,
                    }
                }
            };
            locked(&self.delivered).waiting.insert(ticket.number, done);
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Opens a cube while other threads take jobs.
    fn open<'q>(
        &'q self,
        queue: &Mutex<Queue<'q>>,
        waiting: MutexGuard<'_, Queue<'q>>,
        opening: &Opening,
    ) -> Result<()> {
        let (sample, stack) = waiting.planned(opening);
        drop(waiting);
        let cube = queue::open(self, sample, stack)?;
        locked(queue).opened(opening, cube);
        self.opened.notify_all();
        Ok(())
    }

    fn recycled(&self) -> Encoded {
        locked(&self.spent).pop().unwrap_or_default()
    }

    /// Waits until job `number` may begin. Returns `false` if all threads must stop.
    fn wait_for_window(&self, number: u64) -> bool {
        let window = WINDOW * self.resources.threads.max(1) as u64;
        let mut delivered = locked(&self.delivered);
        while number >= delivered.next + window {
            if self.stopped() {
                return false;
            }
            delivered = self
                .changed
                .wait_timeout(delivered, POLL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        !self.stopped()
    }

    /// Takes results in order and writes them to their shards.
    fn writer(&self, tasks: &[ShardTask], finished: SyncSender<FinishedShard>) -> Result<()> {
        let mut open: Option<OpenShard> = None;
        while let Some(done) = self.next_delivered() {
            if open.as_ref().is_none_or(|shard| shard.task != done.task) {
                open = Some(OpenShard::create(self, done.task, &tasks[done.task])?);
            }
            let shard = open.as_mut().expect("made above");
            shard.write(self, &done)?;
            let last = done.last;
            locked(&self.spent).push(done.encoded.recycle());
            if last {
                let shard = open.take().expect("made above");
                // The finisher ends early only after a failure, which also ends this loop.
                let _ = finished.send(shard.finish(self, &tasks[done.task])?);
            }
        }
        Ok(())
    }

    fn next_delivered(&self) -> Option<Done> {
        let mut delivered = locked(&self.delivered);
        loop {
            if self.stopped() || delivered.total == Some(delivered.next) {
                return None;
            }
            let next = delivered.next;
            if let Some(done) = delivered.waiting.remove(&next) {
                delivered.next += 1;
                self.changed.notify_all();
                return Some(done);
            }
            delivered = self
                .changed
                .wait_timeout(delivered, POLL)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until shards are on the disk, and records them as finished.
    fn finisher(&self, shards: Receiver<FinishedShard>) -> Result<()> {
        for shard in shards {
            shard.files.into_iter().try_for_each(Written::commit)?;
            self.staging.record(&self.plan.stacks[shard.stack].name, shard.shard, &shard.record)?;
        }
        Ok(())
    }
}

/// Encodes an array of a sample beside its cube: the masks come first, then the companions.
///
/// # Errors
/// If its file cannot be read, or changed after planning.
pub(in crate::convert) fn encode_beside(
    encoder: &mut Encoder,
    plan: &Plan,
    sample: usize,
    array: usize,
    budget: usize,
) -> Result<Encoded> {
    let sample = &plan.samples[sample];
    match array.checked_sub(plan.stacks[sample.stack].masks.len()) {
        None => encode_mask(encoder, plan, sample, array),
        Some(companion) => encode_companion(encoder, plan, sample, companion, budget),
    }
}

fn encode_mask(
    encoder: &mut Encoder,
    plan: &Plan,
    sample: &PlannedSample,
    mask: usize,
) -> Result<Encoded> {
    let stack = &plan.stacks[sample.stack];
    let array = &stack.masks[mask];
    let group = &plan.masks[mask];
    let reader = match &sample.masks[mask] {
        None => None,
        Some(fingerprint) => {
            let names = array.class_names.as_deref();
            let reader = MaskReader::open(group, cube_of(sample, stack), false)?
                .map(|reader| reader.filling(plan.mask_fill).among(&array.layers, names));
            if let Some(reader) = &reader
                && !reader.is_as_planned(fingerprint)?
            {
                return Err(changed_since(reader.file()));
            }
            reader
        }
    };
    let has_fill = array.origin.is_none() && !group.is_by_class();
    let fill = plan.mask_fill.filter(|_| has_fill).unwrap_or(0).into();
    encoder.encode_mask(reader.as_ref(), fill, array.dtype, &array.grid, &mask_codec(array))
}

fn encode_companion(
    encoder: &mut Encoder,
    plan: &Plan,
    sample: &PlannedSample,
    number: usize,
    budget: usize,
) -> Result<Encoded> {
    let stack = &plan.stacks[sample.stack];
    let array = &stack.companions[number];
    let reader = CompanionReader::open(&plan.companions[number], cube_of(sample, stack))?;
    if !reader.is_as_planned(&sample.companions[number])? {
        return Err(changed_since(reader.file()));
    }
    encoder.encode_companion(&reader.into_cube(array.grid, array.codec, array.dtype)?, budget)
}

fn cube_of<'a>(sample: &'a PlannedSample, stack: &PlannedStack) -> CubeOfMask<'a> {
    let shape = stack.grid.shape();
    CubeOfMask {
        input: &sample.input,
        rows: shape.rows,
        columns: shape.columns,
        geo: sample.facts.geo.as_ref(),
    }
}

/// How often waiting threads check whether the user wants to stop.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);

/// The error that a file is no longer the one that was planned.
fn changed_since(file: &Path) -> Error {
    Error::conflict("the file changed since the conversion was planned").at(file).with_remedy(
        "restore the file that was planned, or delete the .partial folder and convert again",
    )
}
