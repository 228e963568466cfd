//! Shards that are being written: the files of the image, the masks and the companions for one
//! range of samples.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hsipack_format::metadata::IMAGE;
use hsipack_format::zarr::ArrayMeta;
use hsipack_format::{Grid, Result};
use hsipack_store::output::Written;
use serde_json::{Value, json};

use super::queue::ShardTask;
use super::records::SampleRecord;
use super::{Done, Engine};
use crate::convert::plan::PlannedStack;
use crate::convert::shards::{FinishedFile, ShardWriter};
use crate::convert::stats::{BandStats, StackStats};

/// The shards of an image and of the arrays beside it, being written.
pub(super) struct OpenShard {
    pub task: usize,
    /// The writers, with their paths below the dataset.
    arrays: Vec<(PathBuf, ShardWriter)>,
    stats: StackStats,
    /// Statistics of the sample that is currently written.
    sample: Option<(usize, BandStats)>,
    records: Vec<Value>,
}

/// A shard whose files have been written, but may not be on the disk yet.
pub(super) struct FinishedShard {
    pub stack: usize,
    pub shard: usize,
    pub files: Vec<Written>,
    pub record: Value,
}

/// The paths below the dataset of shard `shard` of a stack's image, masks and companions, in this
/// order, with their grids.
pub(super) fn paths(stack: &PlannedStack, shard: usize) -> impl Iterator<Item = (PathBuf, &Grid)> {
    let image = (IMAGE, &stack.grid, 4);
    let masks = stack.masks.iter().map(|mask| (mask.name.as_str(), &mask.grid, 3));
    let companions =
        stack.companions.iter().map(|array| (array.name.as_str(), &array.grid, array.axes()));
    std::iter::once(image).chain(masks).chain(companions).map(move |(name, grid, axes)| {
        let mut position = vec![0; axes];
        position[0] = shard as u64;
        (Path::new(&stack.name).join(name).join(ArrayMeta::file_key(&position)), grid)
    })
}

impl OpenShard {
    pub fn create(engine: &Engine, number: usize, task: &ShardTask) -> Result<Self> {
        let stack = &engine.plan.stacks[task.stack];
        let folder = engine.staging.dataset();
        let mut arrays = Vec::new();
        let image = (engine.plan.values.dtype(), IMAGE);
        let masks = stack.masks.iter().map(|mask| (mask.dtype, mask.name.as_str()));
        let companions = stack.companions.iter().map(|array| (array.dtype, array.name.as_str()));
        let types = std::iter::once(image).chain(masks).chain(companions);
        for ((path, grid), (dtype, name)) in paths(stack, task.shard).zip(types) {
            let chunk_bytes = grid.chunk_values() * dtype.size();
            let mut writer =
                ShardWriter::create(folder.join(&path), grid.chunks_per_shard(), chunk_bytes)?;
            if task.carried > 0 {
                let stack = engine
                    .base
                    .and_then(|base| base.stack(&stack.name))
                    .expect("only appends carry");
                let array = stack.arrays().find(|array| array.name() == name);
                let array = array.expect("planned from the dataset's arrays");
                writer
                    .carry(&*array.shard(task.shard)?, task.carried * grid.chunks_per_sample())?;
            }
            arrays.push((path, writer));
        }
        let stats = StackStats::new(stack.grid.shape().bands);
        Ok(Self { task: number, arrays, stats, sample: None, records: Vec::new() })
    }

    pub fn write(&mut self, engine: &Engine, done: &Done) -> Result<()> {
        let sample = &engine.plan.samples[done.sample];
        let stack = &engine.plan.stacks[sample.stack];
        let masks = stack.masks.iter().map(|mask| &mask.grid);
        let mut grids = std::iter::once(&stack.grid)
            .chain(masks)
            .chain(stack.companions.iter().map(|companion| &companion.grid));
        let grid = grids.nth(done.array).expect("planned from the arrays of the stack");
        let (_, first) = grid.locate(sample.index);
        for (chunk, stored) in done.encoded.chunks().enumerate() {
            self.arrays[done.array].1.write(first + done.first_chunk + chunk, stored)?;
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
        self.records.push(SampleRecord::of(&stats).to_json(sample));
        let split = engine.plan.samples[sample].split().filter(|_| engine.plan.split_stats);
        self.stats.add_sample(&stats, split.as_deref());
        engine.progress.cubes.fetch_add(1, Ordering::Relaxed);
    }

    pub fn finish(mut self, engine: &Engine, task: &ShardTask) -> Result<FinishedShard> {
        self.close_sample(engine);
        let mut all = 0;
        let (mut files, mut receipts) = (Vec::new(), Vec::new());
        for (path, array) in self.arrays {
            let FinishedFile { file, bytes, sha256 } = array.finish()?;
            all += bytes;
            files.push(file);
            receipts.push(json!({ "path": path, "bytes": bytes, "sha256": sha256 }));
        }
        let record = json!({
            "files": receipts, "samples": self.records, "stats": self.stats.to_state(), "bytes": all,
        });
        Ok(FinishedShard { stack: task.stack, shard: task.shard, files, record })
    }
}
