//! Hands out jobs one at a time, in the order of their chunks in the shards.
//!
//! How many jobs a cube has is known only when it is open, and opening a cube may take long: on a
//! server it means several requests. So opening a cube is work for a thread, too. Threads open the
//! cubes that come next, at most as many as there are threads, while others work on the cubes
//! before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::Result;
use hsipack_source::Source;

use super::Engine;
use crate::convert::calibration::Calibration;
use crate::convert::encode::OpenCube;
use crate::convert::options::{Reference, ValueOptions};
use crate::convert::plan::{self, Description, PlannedSample, PlannedStack};
use crate::convert::references;
use crate::fingerprint;

/// A shard that has to be written.
pub(super) struct ShardTask {
    pub stack: usize,
    pub shard: usize,
    /// Samples as indices into the plan.
    pub samples: Range<usize>,
    /// Number of existing samples at its start, which are copied.
    pub carried: usize,
}

/// The shards that contain the new samples of a stack.
pub(super) fn shard_tasks(number: usize, stack: &PlannedStack) -> Vec<ShardTask> {
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

/// A job for a worker thread.
pub(super) enum Job {
    Rows {
        sample: usize,
        cube: Arc<OpenCube>,
        rows: Range<usize>,
    },
    /// An array beside the image: a mask, or after the masks a companion.
    Beside {
        sample: usize,
        array: usize,
    },
}

pub(super) struct Ticket {
    pub number: u64,
    pub task: usize,
    pub last: bool,
    pub job: Job,
}

/// The next work of a thread.
pub(super) enum Step {
    /// This job.
    Job(Ticket),
    /// Open this cube ([`open`]), and pass it to [`Queue::opened`].
    Open(Opening),
    /// Wait until a cube is open.
    Wait,
    /// There are no more jobs.
    End,
}

/// A cube to open.
pub(super) struct Opening {
    /// Its number among all cubes of the queue.
    number: usize,
    task: usize,
    /// Sample within the task.
    sample: usize,
}

/// Hands out jobs in order, one at a time.
pub(super) struct Queue<'a> {
    engine: &'a Engine<'a>,
    tasks: Vec<ShardTask>,
    task: usize,
    /// Sample within the task.
    sample: usize,
    /// The sample's number among all samples of the tasks.
    number: usize,
    /// The first row of the next job.
    row: usize,
    /// The next array beside the image.
    array: usize,
    /// This sample's cube and those that come next, as far as threads were told to open them;
    /// `None` until they are open.
    cubes: VecDeque<Option<Arc<OpenCube>>>,
    /// The next cube to open.
    next_opening: Opening,
    /// Number of the next job.
    pub next: u64,
}

/// The references that cubes have in common.
#[derive(Default)]
pub(super) struct References(Mutex<Option<KnownReference>>);

/// The references that were read last, and the calibration that they gave.
struct KnownReference {
    /// The description of the cube that they were read for.
    of: Arc<Description>,
    /// Fingerprint of their files.
    fingerprint: Option<Arc<str>>,
    calibration: Option<Arc<Calibration>>,
}

impl KnownReference {
    /// Whether they can be used for another cube: one with the same shape, wavelengths, integration
    /// time and bands.
    fn serves(&self, sample: &PlannedSample) -> bool {
        if self.fingerprint != sample.references {
            return false;
        }
        if Arc::ptr_eq(&self.of, &sample.description) {
            return true;
        }
        let (ours, theirs) = (self.of.shared(), sample.description.shared());
        ours.shape == theirs.shape
            && ours.wavelength == theirs.wavelength
            && ours.exposure == theirs.exposure
            && self.of.bands == sample.description.bands
    }
}

impl<'a> Queue<'a> {
    /// The jobs of `tasks`.
    pub fn new(engine: &'a Engine<'a>, tasks: Vec<ShardTask>) -> Self {
        let next_opening = Opening { number: 0, task: 0, sample: 0 };
        let cubes = VecDeque::new();
        Self {
            engine,
            tasks,
            task: 0,
            sample: 0,
            number: 0,
            row: 0,
            array: 0,
            cubes,
            next_opening,
            next: 0,
        }
    }

    /// Takes the next job, in order.
    pub fn take(&mut self) -> Step {
        let plan = self.engine.plan;
        let Some(task) = self.tasks.get(self.task) else { return Step::End };
        let Some(Some(cube)) = self.cubes.front() else {
            return self.open_next().map_or(Step::Wait, Step::Open);
        };
        let stack = &plan.stacks[task.stack];
        let sample = stack.samples[task.samples.start + self.sample];
        let task_number = self.task;
        let last_sample = self.sample + 1 == task.samples.len();
        let rows = cube.grid.shape().rows;
        let job = if self.row < rows {
            let block = block_rows(self.engine.resources.buffer_per_thread(), cube);
            let take = self.row..rows.min(self.row + block);
            self.row = take.end;
            Job::Rows { sample, cube: cube.clone(), rows: take }
        } else {
            self.array += 1;
            Job::Beside { sample, array: self.array - 1 }
        };
        let sample_done =
            self.row == rows && self.array == stack.masks.len() + stack.companions.len();
        if sample_done {
            self.cubes.pop_front();
            (self.row, self.array) = (0, 0);
            self.number += 1;
            (self.task, self.sample) = self.after(self.task, self.sample);
        }
        self.next += 1;
        Step::Job(Ticket {
            number: self.next - 1,
            task: task_number,
            last: sample_done && last_sample,
            job,
        })
    }

    /// A cube that a thread should open although there are jobs: those of the cube before the last
    /// one that is open will soon be taken.
    pub fn open_ahead(&mut self) -> Option<Opening> {
        let is_last_open = self.cubes.iter().filter(|cube| cube.is_some()).count() <= 1;
        if is_last_open { self.open_next() } else { None }
    }

    /// The next cube to open, unless as many as there are threads are open or being opened.
    fn open_next(&mut self) -> Option<Opening> {
        if self.cubes.len() >= self.engine.resources.threads.max(1)
            || self.next_opening.task == self.tasks.len()
        {
            return None;
        }
        let Opening { number, task, sample } = self.next_opening;
        let (next_task, next_sample) = self.after(task, sample);
        self.next_opening = Opening { number: number + 1, task: next_task, sample: next_sample };
        self.cubes.push_back(None);
        Some(Opening { number, task, sample })
    }

    /// Task and sample that follow.
    fn after(&self, task: usize, sample: usize) -> (usize, usize) {
        match sample + 1 == self.tasks[task].samples.len() {
            true => (task + 1, 0),
            false => (task, sample + 1),
        }
    }

    /// The sample that is to be opened, and its stack.
    pub fn planned(&self, opening: &Opening) -> (&'a PlannedSample, &'a PlannedStack) {
        let (plan, task) = (self.engine.plan, &self.tasks[opening.task]);
        let stack = &plan.stacks[task.stack];
        (&plan.samples[stack.samples[task.samples.start + opening.sample]], stack)
    }

    /// Notes that a cube is open.
    pub fn opened(&mut self, opening: &Opening, cube: OpenCube) {
        // Jobs of this cube are taken only when it is open, so it is not over.
        self.cubes[opening.number - self.number] = Some(Arc::new(cube));
    }
}

/// Opens a sample's cube.
///
/// # Errors
/// If it cannot be read, or changed since it was planned.
pub(super) fn open(
    engine: &Engine<'_>,
    sample: &PlannedSample,
    stack: &PlannedStack,
) -> Result<OpenCube> {
    let values = &engine.plan.values;
    let source = plan::open_source(&sample.input, values)?;
    let planned = sample.description.shared();
    if source.info().shape != planned.shape || source.info().dtype != planned.dtype {
        return Err(super::changed_since(&sample.input.file));
    }
    check_unchanged(&*source, sample)?;
    let calibration = engine.references.calibration(values, sample)?;
    Ok(OpenCube {
        transform: plan::with_calibration(
            &sample.info(),
            sample.description.bands.clone(),
            values,
            stack.scale,
            calibration,
        ),
        source,
        grid: stack.grid,
        codec: stack.codec,
        dtype: values.dtype(),
        missing: stack.missing,
        turn: Mutex::new(()),
    })
}

/// Refuses a cube that is not the planned one any more.
///
/// # Errors
/// If it changed since it was planned, or cannot be read.
pub(super) fn check_unchanged(source: &dyn Source, sample: &PlannedSample) -> Result<()> {
    match fingerprint::is_still(&source.info().files, &sample.fingerprint)? {
        true => Ok(()),
        false => Err(super::changed_since(&sample.input.file)),
    }
}

impl References {
    /// The references of a cube. If all cubes have the same reference files, these are read once:
    /// threads that need them meanwhile wait.
    fn calibration(
        &self,
        values: &ValueOptions,
        sample: &PlannedSample,
    ) -> Result<Option<Arc<Calibration>>> {
        let load = || {
            let (input, info, planned) = (&sample.input, sample.info(), &sample.references);
            if let Some(file) = references::changed(values, input, &info, planned.as_deref())? {
                return Err(super::changed_since(&file));
            }
            let bands = sample.description.bands.as_deref();
            let calibration = references::load(values, input, &info, bands)?;
            Ok(calibration.map(Arc::new))
        };
        let is_per_cube =
            [&values.white, &values.dark].into_iter().flatten().any(Reference::is_of_each_cube)
                || sample.facts.radiometry.is_some();
        if is_per_cube {
            return load();
        }
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reference) = cached.as_ref().filter(|reference| reference.serves(sample)) {
            return Ok(reference.calibration.clone());
        }
        let calibration = load()?;
        let of = sample.description.clone();
        let fingerprint = sample.references.clone();
        *cached = Some(KnownReference { of, fingerprint, calibration: calibration.clone() });
        Ok(calibration)
    }
}

/// Number of rows in a job: whole slabs of chunks, as many as the source prefers to read within
/// `budget` bytes.
fn block_rows(budget: usize, cube: &OpenCube) -> usize {
    let slab = cube.grid.tile().rows;
    let wanted = cube.source.preferred_rows(budget);
    wanted.div_ceil(slab).max(1) * slab
}
