//! What loaders tell the cache: what they will want, and how far they are.

use std::ops::Range;
use std::sync::Arc;

use super::blocks;
use super::dataset::Shared;
use super::table::ShardBlocks;
use super::uses::Gathering;

/// What one loader will want; forgotten when it is dropped.
#[derive(Debug)]
pub struct Plan {
    shared: Arc<Shared>,
    number: u64,
}

/// Gathers what an epoch will want, for [`Plan::add`].
#[derive(Debug)]
pub struct EpochUses {
    shards: Vec<Arc<ShardBlocks>>,
    gathering: Gathering,
}

impl EpochUses {
    /// Bytes `span` of shard `shard` ([`cached_as`](crate::stores::StoredFile::cached_as)) are wanted in step `step`. For each
    /// shard, steps ascend.
    pub fn want(&mut self, shard: u32, span: &Range<u64>, step: u32) {
        let Some(blocks) = self.shards.get(shard as usize) else { return };
        if let Some(block) = blocks::holding(&blocks.spans, span) {
            self.gathering.want(blocks.first + block as u32, step);
        }
    }
}

impl Plan {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let number = shared.lock().add_plan();
        Self { shared, number }
    }

    /// Whether an epoch is known.
    pub fn knows(&self, epoch: u64) -> bool {
        self.shared.lock().expected_of(self.number).knows(epoch)
    }

    /// For what an epoch of so many steps will want.
    pub fn epoch(&self, steps: usize) -> EpochUses {
        let (shards, blocks) = self.shared.lock().shards();
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        EpochUses { shards, gathering: Gathering::new(steps, blocks) }
    }

    /// Says what the epoch after all that are known will want.
    pub fn add(&self, epoch: u64, uses: EpochUses) {
        if let Some(uses) = uses.gathering.done() {
            self.shared.lock().expected_of(self.number).add(epoch, uses);
        }
    }

    /// The loader asks for what a step of an epoch wants; what the `unread` steps before it want may not be read yet.
    pub fn go_on(&self, epoch: u64, step: usize, unread: usize) {
        self.shared.lock().go_on(self.number, epoch, step as u32, unread as u64);
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        self.shared.lock().forget_plan(self.number);
    }
}
