//! Hands out jobs one at a time, in the order of their chunks in the shards.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use hsipack_format::{Error, Result};
use hsipack_source::CubeInfo;

use super::Engine;
use crate::convert::calibration::Calibration;
use crate::convert::encode::OpenCube;
use crate::convert::options::{ConvertOptions, Reference};
use crate::convert::plan::{self, PlannedSample, PlannedStack};
use crate::convert::references;
use crate::fingerprint::fingerprint;

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
    Rows { sample: usize, cube: Arc<OpenCube>, rows: Range<usize> },
    Mask { sample: usize, mask: usize },
}

pub(super) struct Ticket {
    pub number: u64,
    pub task: usize,
    pub last: bool,
    pub job: Job,
}

/// Hands out jobs in order, one at a time.
pub(super) struct Queue<'a> {
    engine: &'a Engine<'a>,
    tasks: Vec<ShardTask>,
    task: usize,
    /// Sample within the task.
    sample: usize,
    /// The sample's cube and the next row to hand out; `None` until the cube is opened.
    cube: Option<(Arc<OpenCube>, usize)>,
    mask: usize,
    /// Number of the next job.
    pub next: u64,
    reference: Option<KnownReference>,
}

/// The references that were read last, and the calibration that they gave.
struct KnownReference {
    /// The description of the cube that they were read for.
    of: CubeInfo,
    bands: Option<Vec<usize>>,
    calibration: Option<Arc<Calibration>>,
}

impl KnownReference {
    /// Whether they can be used for another cube: one with the same shape, wavelengths, integration time and bands.
    fn serves(&self, sample: &PlannedSample) -> bool {
        let (ours, theirs) = (&self.of, &sample.info);
        ours.shape == theirs.shape
            && ours.wavelength == theirs.wavelength
            && ours.exposure == theirs.exposure
            && self.bands == sample.bands
    }
}

impl<'a> Queue<'a> {
    /// The jobs of `tasks`.
    pub fn new(engine: &'a Engine<'a>, tasks: Vec<ShardTask>) -> Self {
        Self { engine, tasks, task: 0, sample: 0, cube: None, mask: 0, next: 0, reference: None }
    }

    /// Takes the next job, in order.
    pub fn take(&mut self) -> Result<Option<Ticket>> {
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
        if self.engine.planned_before && fingerprint(&source.info().files)?.1 != sample.fingerprint
        {
            return Err(super::changed_since(&sample.input.file));
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

    /// The references of a cube. If all cubes have the same reference files, these are read once.
    fn calibration(&mut self, sample: &PlannedSample) -> Result<Option<Arc<Calibration>>> {
        let values = &self.engine.options.values;
        let own =
            [&values.white, &values.dark].into_iter().flatten().any(Reference::is_of_each_cube)
                || sample.info.radiometry.is_some();
        if let Some(known) = self.reference.as_ref().filter(|known| !own && known.serves(sample)) {
            return Ok(known.calibration.clone());
        }
        let bands = sample.bands.clone();
        let calibration =
            references::load(values, &sample.input, &sample.info, bands.as_deref())?.map(Arc::new);
        let of = sample.info.clone();
        self.reference = Some(KnownReference { of, bands, calibration: calibration.clone() });
        Ok(calibration)
    }
}

/// Number of rows in a job: whole slabs of chunks, as many as the source prefers to read within the memory limit.
fn block_rows(options: &ConvertOptions, cube: &OpenCube) -> usize {
    let slab = cube.grid.tile().rows;
    let budget = options.memory / options.jobs.max(1);
    let wanted = cube.source.preferred_rows(budget);
    wanted.div_ceil(slab).max(1) * slab
}
