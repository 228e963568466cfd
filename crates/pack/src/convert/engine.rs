//! Threads, order and back-pressure.
//!
//! Jobs (a block of rows of one cube, or one mask of one cube) are numbered in the order in which
//! their chunks stand in the shards. Worker threads take the next job, read, pack and compress it; one
//! writer thread puts results into the shard files by number, whatever order they come in; another
//! waits for finished shards to reach the disk, so that neither workers nor the writer wait for it.
//! A worker may not run further ahead of the writer than [`Window`]; that bounds memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hsipack_format::{CubeShape, Dataset, Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::calibration::Calibration;
use super::encode::{Encoded, Encoder, OpenCube};
use super::masks::MaskReader;
use super::metadata::mask_codec;
use super::options::{ConvertOptions, Reference};
use super::plan::{self, Plan, PlannedSample, PlannedStack};
use super::shards::{ShardWriter, WrittenShard};
use super::staging::Staging;
use super::stats::BandStats;
use crate::progress::Progress;
use crate::source::Access;

/// What is known of a packed sample.
#[derive(Clone, Debug)]
pub struct SampleRecord {
    /// NaN values.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Least and greatest finite value.
    pub range: Option<[f64; 2]>,
    /// The band with the greatest relative quantisation error, and its greatest relative and absolute error.
    pub worst: (usize, f64, f64),
}

/// What is known of all packed samples.
pub struct Outcome {
    /// One a sample, as in [`Plan::samples`].
    pub samples: Vec<SampleRecord>,
    /// One a stack, of the new samples only.
    pub stacks: Vec<BandStats>,
    /// Bytes of all shards written or found finished.
    pub bytes: u64,
}

/// A shard to be made.
struct ShardTask {
    stack: usize,
    shard: usize,
    /// Samples as indices into the plan.
    samples: Range<usize>,
    /// Existing samples at its start, to be carried over.
    carried: usize,
}

/// One piece of work.
enum Job {
    Rows { sample: usize, cube: Arc<OpenCube>, rows: Range<usize> },
    Mask { sample: usize, mask: usize },
}

/// A piece of work, done.
struct Done {
    task: usize,
    sample: usize,
    /// 0 is the image, 1.. the masks.
    array: usize,
    /// Chunk within the sample at which the block starts.
    first_chunk: usize,
    encoded: Encoded,
    last: bool,
}

struct Ticket {
    number: u64,
    task: usize,
    last: bool,
    job: Job,
}

/// Jobs in order, handed out one at a time.
struct Queue<'a> {
    engine: &'a Engine<'a>,
    tasks: Vec<ShardTask>,
    task: usize,
    /// Sample within the task.
    sample: usize,
    /// The sample's cube and the next row to hand out; `None` before it is opened.
    cube: Option<(Arc<OpenCube>, usize)>,
    mask: usize,
    next: u64,
    reference: Option<KnownReference>,
}

/// Shape and bands of the cube that references were last read for, and the references.
type KnownReference = (CubeShape, Option<Vec<usize>>, Option<Arc<Calibration>>);

/// Results on their way to the writer.
struct Delivered {
    next: u64,
    waiting: BTreeMap<u64, Done>,
    /// Number of tickets that there will be, once known.
    total: Option<u64>,
}

struct Engine<'a> {
    plan: &'a Plan,
    options: &'a ConvertOptions,
    staging: &'a Staging,
    base: Option<&'a Dataset>,
    progress: &'a Progress,
    delivered: Mutex<Delivered>,
    changed: Condvar,
    failure: Mutex<Option<Error>>,
    /// Written results, for their memory.
    spent: Mutex<Vec<Encoded>>,
}

/// Jobs that may be under way or waiting to be written, a thread.
const WINDOW: u64 = 4;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Packs every sample of `plan` that is not finished yet into shards in the staging folder.
///
/// # Errors
/// The first error of any thread; [`ErrorKind::Interrupted`] if `progress.stop` was set.
pub fn run(
    plan: &Plan,
    options: &ConvertOptions,
    staging: &Staging,
    base: Option<&Dataset>,
    progress: &Progress,
) -> Result<Outcome> {
    let engine = Engine {
        plan,
        options,
        staging,
        base,
        progress,
        delivered: Mutex::new(Delivered { next: 0, waiting: BTreeMap::new(), total: None }),
        changed: Condvar::new(),
        failure: Mutex::new(None),
        spent: Mutex::default(),
    };
    let (tasks, mut outcome) = engine.tasks()?;
    let shards: Vec<(usize, usize)> = tasks.iter().map(|task| (task.stack, task.shard)).collect();
    engine.work(tasks);
    if let Some(error) = locked(&engine.failure).take() {
        return Err(error);
    }
    for (stack, shard) in shards {
        let record = staging.finished(&plan.stacks[stack].name, shard)?;
        engine.add_record(&mut outcome, stack, shard, record.as_ref())?;
    }
    engine.outcome_in_order(outcome)
}

impl Engine<'_> {
    /// Shards still to be made; finished ones are already in the outcome.
    fn tasks(&self) -> Result<(Vec<ShardTask>, Outcome)> {
        let empty = SampleRecord { nan: 0, inf: 0, range: None, worst: (0, 0.0, 0.0) };
        let mut outcome = Outcome {
            samples: vec![empty; self.plan.samples.len()],
            stacks: self
                .plan
                .stacks
                .iter()
                .map(|stack| BandStats::new(stack.grid.shape().bands))
                .collect(),
            bytes: 0,
        };
        let mut tasks = Vec::new();
        for (number, stack) in self.plan.stacks.iter().enumerate() {
            for task in shard_tasks(number, stack) {
                match self.staging.finished(&stack.name, task.shard)? {
                    Some(record) => {
                        let samples = &stack.samples[task.samples.clone()];
                        self.progress.cubes.fetch_add(samples.len() as u64, Ordering::Relaxed);
                        let bytes: usize =
                            samples.iter().map(|sample| self.source_bytes(*sample)).sum();
                        self.progress.bytes_in.fetch_add(bytes as u64, Ordering::Relaxed);
                        self.add_record(&mut outcome, number, task.shard, Some(&record))?;
                    }
                    None => tasks.push(task),
                }
            }
        }
        Ok((tasks, outcome))
    }

    fn source_bytes(&self, sample: usize) -> usize {
        let info = &self.plan.samples[sample].info;
        info.shape.values() * info.dtype.size()
    }

    fn add_record(
        &self,
        outcome: &mut Outcome,
        stack: usize,
        shard: usize,
        record: Option<&Value>,
    ) -> Result<()> {
        let planned = &self.plan.stacks[stack];
        let broken = || {
            Error::damaged(format!(
                "the record of shard {shard} of {} cannot be read",
                planned.name
            ))
            .at(self.staging.folder())
            .with_remedy("delete the folder and convert again")
        };
        let record = record.ok_or_else(broken)?;
        let samples = record["samples"].as_array().ok_or_else(broken)?;
        for sample in samples {
            let place = sample["sample"].as_u64().map(|place| place as usize).ok_or_else(broken)?;
            let slot = outcome.samples.get_mut(place).ok_or_else(broken)?;
            let real = |value: &Value| value.as_u64().map(f64::from_bits);
            let range = sample["range"].as_array();
            let range = range.and_then(|range| Some([real(range.first()?)?, real(range.get(1)?)?]));
            let worst = &sample["worst"];
            let worst = (worst[0].as_u64().unwrap_or(0) as usize, real(&worst[1]), real(&worst[2]));
            *slot = SampleRecord {
                nan: sample["nan"].as_u64().ok_or_else(broken)?,
                inf: sample["inf"].as_u64().ok_or_else(broken)?,
                range,
                worst: (worst.0, worst.1.ok_or_else(broken)?, worst.2.ok_or_else(broken)?),
            };
        }
        outcome.bytes += record["bytes"].as_u64().ok_or_else(broken)?;
        Ok(())
    }

    /// Merges the shards' statistics in shard order, so that rounding is the same however the
    /// conversion was interrupted.
    fn outcome_in_order(&self, mut outcome: Outcome) -> Result<Outcome> {
        for (number, stack) in self.plan.stacks.iter().enumerate() {
            for task in shard_tasks(number, stack) {
                let record = self.staging.finished(&stack.name, task.shard)?.unwrap_or_default();
                let stats = BandStats::from_state(&record["stats"]).ok_or_else(|| {
                    Error::damaged("the record of a shard cannot be read").at(self.staging.folder())
                })?;
                outcome.stacks[number].merge(&stats);
            }
        }
        Ok(outcome)
    }

    /// Runs all threads to their end.
    fn work(&self, tasks: Vec<ShardTask>) {
        let shards: Vec<ShardTask> =
            tasks.iter().map(|task| ShardTask { samples: task.samples.clone(), ..*task }).collect();
        let queue = Mutex::new(Queue {
            engine: self,
            tasks,
            task: 0,
            sample: 0,
            cube: None,
            mask: 0,
            next: 0,
            reference: None,
        });
        let (sender, receiver) = sync_channel(1);
        std::thread::scope(|scope| {
            for _ in 0..self.options.jobs.max(1) {
                scope.spawn(|| self.guard(|| self.worker(&queue)));
            }
            scope.spawn(|| self.guard(|| self.finisher(receiver)));
            scope.spawn(|| self.guard(|| self.writer(&shards, sender)));
        });
    }

    /// Runs one thread's work; an error, or a panic, stops all of them.
    fn guard(&self, work: impl FnOnce() -> Result<()>) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let error = match result {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => {
                let what = panic.downcast_ref::<String>().cloned();
                let what =
                    what.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                Error::malformed(format!("hsipack has a fault: {}", what.unwrap_or_default()))
                    .with_remedy("please report it with the file")
            }
        };
        locked(&self.failure).get_or_insert(error);
        // Waiters look at the failure while they hold this lock.
        drop(locked(&self.delivered));
        self.changed.notify_all();
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
            let mut queue = locked(queue);
            if !self.wait_for_window(queue.next) {
                return Ok(());
            }
            let Some(ticket) = queue.take()? else {
                let mut delivered = locked(&self.delivered);
                delivered.total = Some(queue.next);
                self.changed.notify_all();
                return Ok(());
            };
            let done = match &ticket.job {
                Job::Rows { sample, cube, rows } => {
                    // Taken before the next job can be: rows of a stream are read in order.
                    let turn =
                        (cube.source.access() == Access::Sequential).then(|| locked(&cube.turn));
                    drop(queue);
                    encoder.read(cube, rows.clone(), turn)?;
                    let first_chunk = rows.start / cube.grid.tile().rows * cube.grid.across();
                    let encoded = encoder.encode(cube, rows.clone(), self.recycled())?;
                    let info = cube.source.info();
                    let bytes = rows.len() * info.shape.row_values() * info.dtype.size();
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
                Job::Mask { sample, mask } => {
                    drop(queue);
                    let encoded = self.encode_mask(&mut encoder, *sample, *mask)?;
                    Done {
                        task: ticket.task,
                        sample: *sample,
                        array: mask + 1,
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

    fn recycled(&self) -> Encoded {
        locked(&self.spent).pop().unwrap_or_default()
    }

    /// Waits until job `number` may be begun; `false` if everything is to stop.
    fn wait_for_window(&self, number: u64) -> bool {
        let window = WINDOW * self.options.jobs.max(1) as u64;
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

    fn encode_mask(&self, encoder: &mut Encoder, sample: usize, mask: usize) -> Result<Encoded> {
        let planned = &self.plan.samples[sample];
        let stack = &self.plan.stacks[planned.stack];
        let array = &stack.masks[mask];
        let shape = stack.grid.shape();
        let group = &self.plan.masks[mask];
        let reader = if planned.has_mask[mask] {
            MaskReader::open(
                group,
                &planned.input,
                &planned.name,
                shape.rows,
                shape.columns,
                false,
            )?
        } else {
            None
        };
        let fill = self.options.mask_fill.unwrap_or(0);
        encoder.encode_mask(reader.as_ref(), fill, array.dtype, &array.grid, &mask_codec(array))
    }

    /// Takes results in order and writes them into their shards.
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
                // The finisher only goes away after a failure, which ends this loop too.
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

    /// Waits for shards to reach the disk and records them as finished.
    fn finisher(&self, shards: Receiver<FinishedShard>) -> Result<()> {
        for shard in shards {
            shard.files.into_iter().try_for_each(WrittenShard::commit)?;
            self.staging.record(&self.plan.stacks[shard.stack].name, shard.shard, &shard.record)?;
        }
        Ok(())
    }
}

/// How often waiting threads look whether the user wants to stop.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);

/// The shards that the new samples of a stack go to.
fn shard_tasks(number: usize, stack: &PlannedStack) -> Vec<ShardTask> {
    let per_shard = stack.grid.samples_per_shard();
    let end = stack.existing + stack.samples.len();
    let first = stack.existing / per_shard;
    (first..end.div_ceil(per_shard))
        .map(|shard| {
            let range = shard * per_shard..end.min((shard + 1) * per_shard);
            let start = range.start.max(stack.existing);
            ShardTask {
                stack: number,
                shard,
                samples: start - stack.existing..range.end - stack.existing,
                carried: start - range.start,
            }
        })
        .collect()
}

impl Queue<'_> {
    /// The next job, in order.
    fn take(&mut self) -> Result<Option<Ticket>> {
        let plan = self.engine.plan;
        let Some(task) = self.tasks.get(self.task) else { return Ok(None) };
        let stack = &plan.stacks[task.stack];
        let number_of = |place: usize| stack.samples[task.samples.start + place];
        let sample = number_of(self.sample);
        let task_number = self.task;
        let last_sample = self.sample + 1 == task.samples.len();
        if self.cube.is_none() {
            let planned = &plan.samples[sample];
            self.cube = Some((Arc::new(self.open(planned, stack)?), 0));
        }
        let (cube, row) = self.cube.as_mut().expect("opened above");
        let rows = cube.grid.shape().rows;
        let job = if *row < rows {
            let block = block_rows(self.engine.options, cube);
            let take = *row..rows.min(*row + block);
            *row = take.end;
            Job::Rows { sample, cube: cube.clone(), rows: take }
        } else {
            self.mask += 1;
            Job::Mask { sample, mask: self.mask - 1 }
        };
        let sample_done = *row == rows && self.mask == stack.masks.len();
        if sample_done {
            self.cube = None;
            self.mask = 0;
            self.sample += 1;
            if last_sample {
                self.sample = 0;
                self.task += 1;
            }
        }
        self.next += 1;
        Ok(Some(Ticket {
            number: self.next - 1,
            task: task_number,
            last: sample_done && last_sample,
            job,
        }))
    }

    fn open(&mut self, sample: &PlannedSample, stack: &PlannedStack) -> Result<OpenCube> {
        let values = &self.engine.options.values;
        let source = plan::open_source(&sample.input, values)?;
        if source.info().shape != sample.info.shape || source.info().dtype != sample.info.dtype {
            return Err(Error::conflict("the file changed while it was being converted")
                .at(&sample.input.file));
        }
        let calibration = self.calibration(sample)?;
        Ok(OpenCube {
            transform: plan::with_calibration(
                &sample.info,
                sample.bands.clone(),
                values,
                stack.scale,
                calibration,
            ),
            source,
            grid: stack.grid,
            codec: stack.codec,
            dtype: values.dtype,
            turn: Mutex::new(()),
        })
    }

    /// The references of a cube; those that are the same file for all cubes are read once.
    fn calibration(&mut self, sample: &PlannedSample) -> Result<Option<Arc<Calibration>>> {
        let values = &self.engine.options.values;
        let own = [&values.white, &values.dark]
            .into_iter()
            .any(|reference| *reference == Some(Reference::Auto));
        if let Some((shape, bands, known)) = &self.reference
            && !own
            && *shape == sample.info.shape
            && *bands == sample.bands
        {
            return Ok(known.clone());
        }
        let loaded =
            Calibration::load(values, &sample.input, sample.info.shape, sample.bands.as_deref())?
                .map(Arc::new);
        self.reference = Some((sample.info.shape, sample.bands.clone(), loaded.clone()));
        Ok(loaded)
    }
}

/// Rows a job: whole slabs of chunks, as many as the source likes to read and the memory allows.
fn block_rows(options: &ConvertOptions, cube: &OpenCube) -> usize {
    let slab = cube.grid.tile().rows;
    let budget = options.memory / options.jobs.max(1);
    let wanted = cube.source.preferred_rows(budget);
    wanted.div_ceil(slab).max(1) * slab
}

/// A shard and its masks being written.
struct OpenShard {
    task: usize,
    arrays: Vec<ShardWriter>,
    stats: BandStats,
    /// Statistics of the sample that is being written.
    sample: Option<(usize, BandStats)>,
    records: Vec<Value>,
}

/// A shard whose files only have to reach the disk.
struct FinishedShard {
    stack: usize,
    shard: usize,
    files: Vec<WrittenShard>,
    record: Value,
}

impl OpenShard {
    fn create(engine: &Engine, number: usize, task: &ShardTask) -> Result<Self> {
        let stack = &engine.plan.stacks[task.stack];
        let folder = engine.staging.dataset().join(&stack.name);
        let mut arrays = Vec::new();
        let image = (hsipack_format::dataset::IMAGE, &stack.grid, 4);
        let masks = stack.masks.iter().map(|mask| (mask.name.as_str(), &mask.grid, 3));
        for (name, grid, axes) in std::iter::once(image).chain(masks) {
            let mut position = vec![0; axes];
            position[0] = task.shard as u64;
            let path = folder.join(name).join(hsipack_format::zarr::ArrayMeta::file_key(&position));
            let mut writer = ShardWriter::create(path, grid.chunks_per_shard())?;
            if task.carried > 0 {
                let stack = engine
                    .base
                    .and_then(|base| base.stack(&stack.name))
                    .expect("only appends carry");
                let array = if name == hsipack_format::dataset::IMAGE {
                    Some(&stack.image)
                } else {
                    stack.mask(name)
                };
                let array = array.expect("planned from the dataset's arrays");
                writer
                    .carry(&*array.shard(task.shard)?, task.carried * grid.chunks_per_sample())?;
            }
            arrays.push(writer);
        }
        let stats = BandStats::new(stack.grid.shape().bands);
        Ok(Self { task: number, arrays, stats, sample: None, records: Vec::new() })
    }

    fn write(&mut self, engine: &Engine, done: &Done) -> Result<()> {
        let sample = &engine.plan.samples[done.sample];
        let stack = &engine.plan.stacks[sample.stack];
        let grid = if done.array == 0 { &stack.grid } else { &stack.masks[done.array - 1].grid };
        let (_, first) = grid.locate(sample.index);
        for (chunk, stored) in done.encoded.chunks().enumerate() {
            self.arrays[done.array].write(first + done.first_chunk + chunk, stored)?;
        }
        engine.progress.bytes_out.fetch_add(done.encoded.data.len() as u64, Ordering::Relaxed);
        if self.sample.as_ref().is_none_or(|(current, _)| *current != done.sample) {
            self.close_sample(engine);
            self.sample = Some((done.sample, BandStats::new(stack.grid.shape().bands)));
        }
        let (_, stats) = self.sample.as_mut().expect("made above");
        done.encoded.slabs.iter().for_each(|slab| stats.merge(slab));
        Ok(())
    }

    fn close_sample(&mut self, engine: &Engine) {
        let Some((sample, stats)) = self.sample.take() else { return };
        let summary = stats.summary();
        let range = summary.range.map(|range| range.map(f64::to_bits));
        let worst = stats.worst_band().map_or((0, 0, 0), |(band, errors)| {
            (band, errors.max_rel_error.to_bits(), errors.max_abs_error.to_bits())
        });
        self.records.push(json!({
            "sample": sample, "nan": summary.nan, "inf": summary.inf, "range": range, "worst": worst,
        }));
        self.stats.merge(&stats);
        engine.progress.cubes.fetch_add(1, Ordering::Relaxed);
    }

    fn finish(mut self, engine: &Engine, task: &ShardTask) -> Result<FinishedShard> {
        self.close_sample(engine);
        let mut bytes = 0;
        let mut files = Vec::new();
        for array in self.arrays {
            let (file, len) = array.finish()?;
            bytes += len;
            files.push(file);
        }
        let record =
            json!({ "samples": self.records, "stats": self.stats.to_state(), "bytes": bytes });
        Ok(FinishedShard { stack: task.stack, shard: task.shard, files, record })
    }
}
