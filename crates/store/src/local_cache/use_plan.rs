//! Reports of loaders to the cache: blocks that they will need, and their progress.

use std::ops::Range;
use std::sync::Arc;

use super::blocks;
use super::state::CacheState;
use super::table::ShardBlocks;
use super::uses::Gathering;

/// Blocks that one loader will need. Forgotten when the plan is dropped.
#[derive(Debug)]
pub struct UsePlan {
    shared: Arc<CacheState>,
    number: u64,
}

/// Collects what an epoch will need, for [`UsePlan::add`].
#[derive(Debug)]
pub struct EpochUses {
    shards: Vec<Arc<ShardBlocks>>,
    gathering: Gathering,
}

impl EpochUses {
    /// Bytes `span` of shard `shard` ([`cached_as`](crate::stores::StoredFile::cached_as)) are
    /// needed in step `step`. For each shard, steps must be in ascending order.
    pub fn want(&mut self, shard: u32, span: &Range<u64>, step: u32) {
        let Some(blocks) = self.shards.get(shard as usize) else { return };
        if let Some(block) = blocks::holding(&blocks.spans, span) {
            self.gathering.want(blocks.first + block as u32, step);
        }
    }
}

impl UsePlan {
    pub(super) fn new(shared: Arc<CacheState>) -> Self {
        let number = shared.lock().add_plan();
        Self { shared, number }
    }

    /// Whether an epoch is known.
    pub fn knows(&self, epoch: u64) -> bool {
        self.shared.lock().expected_of(self.number).knows(epoch)
    }

    /// An empty collection for an epoch of `steps` steps.
    pub fn epoch(&self, steps: usize) -> EpochUses {
        let (shards, blocks) = self.shared.lock().shards();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        EpochUses { shards, gathering: Gathering::new(steps, blocks) }
    }

    /// Adds what the next epoch, after all known ones, will need.
    pub fn add(&self, epoch: u64, uses: EpochUses) {
        if let Some(uses) = uses.gathering.done() {
            self.shared.lock().expected_of(self.number).add(epoch, uses);
        }
    }

    /// Call this when the loader requests the data of a step of an epoch. The data of the `unread`
    /// steps before it may not be read yet.
    pub fn go_on(&self, epoch: u64, step: usize, unread: usize) {
        self.shared.lock().go_on(self.number, epoch, step as u32, unread as u64);
    }
}

impl Drop for UsePlan {
    fn drop(&mut self) {
        self.shared.lock().forget_plan(self.number);
    }
}
