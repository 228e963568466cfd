//! This process's knowledge of a dataset's blocks: which exist and are open, when each is needed,
//! and which to drop.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::block::OpenBlock;
use super::folder::BlockName;
use super::uses::{Expected, Latest, UNUSED};

#[derive(Debug, Default)]
pub(super) struct BlockTable {
    shards: Vec<Arc<ShardBlocks>>,
    numbers: HashMap<BlockName, u32>,
    /// The name of every block, by its number.
    pub(super) names: Vec<BlockName>,
    /// Whether each block exists, as far as this process knows.
    pub(super) present: Vec<bool>,
    count: usize,
    /// Blocks in the folder that belong to no shard that is open.
    others: HashSet<BlockName>,
    latest: Latest,
    expected: Vec<(u64, Expected)>,
    plans: u64,
    /// Number of steps of all loaders together.
    steps: u64,
    /// The open blocks, by number.
    pub(super) open: Vec<Option<Arc<OpenBlock>>>,
    /// Numbers of the opened blocks, in the order of opening. Some may be closed by now.
    opened: VecDeque<u32>,
    /// Maximum number of open blocks.
    may_be_open: usize,
    /// After a disk error, nothing is written until this time.
    pub(super) rest_until: Option<Instant>,
    /// When the folder was looked through for changes by others.
    pub(super) looked: Option<Instant>,
    /// When blocks of datasets that no process reads were last looked for.
    pub(super) swept: Option<Instant>,
    pub(super) problem: Option<String>,
}

/// The blocks of a shard.
#[derive(Debug)]
pub(super) struct ShardBlocks {
    /// Number of the first block.
    pub(super) first: u32,
    pub(super) spans: Vec<Range<u64>>,
}

impl BlockTable {
    /// A table without open shards. The blocks `present` are in the folder.
    pub(super) fn new(present: HashSet<BlockName>, may_be_open: usize) -> Self {
        Self { others: present, may_be_open, ..Self::default() }
    }

    /// Adds a shard; returns its number and blocks.
    pub(super) fn add_shard(
        &mut self,
        shard: u64,
        spans: Vec<Range<u64>>,
    ) -> (u32, Arc<ShardBlocks>) {
        let number = self.shards.len() as u32;
        let blocks = Arc::new(ShardBlocks { first: self.names.len() as u32, spans });
        for span in &blocks.spans {
            let name = BlockName { shard, offset: span.start, len: span.end - span.start };
            let block = self.names.len() as u32;
            self.names.push(name);
            self.present.push(false);
            self.open.push(None);
            self.numbers.insert(name, block);
            if self.others.remove(&name) {
                self.is_there(block);
            }
        }
        self.shards.push(blocks.clone());
        (number, blocks)
    }

    /// The blocks of all shards, and the number of blocks.
    pub(super) fn shards(&self) -> (Vec<Arc<ShardBlocks>>, usize) {
        (self.shards.clone(), self.names.len())
    }

    /// Adds a loader with an empty plan; returns its number.
    pub(super) fn add_plan(&mut self) -> u64 {
        self.plans += 1;
        self.expected.push((self.plans, Expected::default()));
        self.plans
    }

    pub(super) fn forget_plan(&mut self, plan: u64) {
        self.expected.retain(|(number, _)| *number != plan);
    }

    /// Call this when a loader requests the data of a step of an epoch. The data of the `unread`
    /// steps before it may not be read yet.
    pub(super) fn go_on(&mut self, plan: u64, epoch: u64, step: u32, unread: u64) {
        let (steps, over) = self.expected_of(plan).go_on(epoch, step, unread);
        self.steps += steps;
        for block in over {
            self.note(block);
        }
        if self.latest.is_long(self.count) {
            self.note_all();
        }
    }

    /// Records that a block was opened. This may close the block that was opened first.
    pub(super) fn is_open(&mut self, block: u32, open: &Arc<OpenBlock>) {
        self.is_there(block);
        if self.opened.len() >= self.may_be_open
            && let Some(first) = self.opened.pop_front()
        {
            self.open[first as usize] = None;
        }
        self.opened.push_back(block);
        self.open[block as usize] = Some(open.clone());
    }

    /// Records the blocks that were found in the folder.
    pub(super) fn are_there(&mut self, names: HashSet<BlockName>) {
        self.others.clear();
        for name in names {
            match self.numbers.get(&name).copied() {
                Some(block) => self.is_there(block),
                None => drop(self.others.insert(name)),
            }
        }
    }

    pub(super) fn expected_of(&mut self, plan: u64) -> &mut Expected {
        let found = self.expected.iter_mut().find(|(number, _)| *number == plan);
        &mut found.expect("a plan is forgotten when it is dropped").1
    }

    /// Number of steps until any loader needs a block.
    fn until(&self, block: u32) -> u64 {
        self.expected.iter().map(|(_, expected)| expected.until(block)).min().unwrap_or(UNUSED)
    }

    fn note(&mut self, block: u32) {
        if self.present[block as usize] {
            let when = self.steps.saturating_add(self.until(block));
            self.latest.note(block, when);
        }
    }

    fn note_all(&mut self) {
        self.latest.clear();
        for block in 0..self.names.len() as u32 {
            self.note(block);
        }
    }

    pub(super) fn is_there(&mut self, block: u32) {
        if !std::mem::replace(&mut self.present[block as usize], true) {
            self.count += 1;
            self.note(block);
        }
    }

    pub(super) fn is_gone(&mut self, block: u32) {
        if std::mem::replace(&mut self.present[block as usize], false) {
            self.count -= 1;
        }
        self.open[block as usize] = None;
    }

    pub(super) fn all_gone(&mut self) {
        self.present.fill(false);
        self.count = 0;
        self.open.fill(None);
        self.opened.clear();
        self.latest.clear();
        self.others.clear();
    }

    /// The block that is needed last, if it is needed later than block `new`. It stays recorded as
    /// existing.
    pub(super) fn victim(&mut self, new: u32) -> Option<(u32, BlockName)> {
        let again = self.expected.iter().map(|(_, expected)| expected.until_again(new));
        let wanted = again.min().unwrap_or(UNUSED);
        if wanted == UNUSED {
            return None;
        }
        let mut latest = std::mem::take(&mut self.latest);
        let now = self.steps;
        let when = |block: u32| {
            self.present[block as usize].then(|| now.saturating_add(self.until(block)))
        };
        let found = latest.take(when);
        self.latest = latest;
        match found {
            Some((block, when)) if when > now.saturating_add(wanted) => {
                Some((block, self.names[block as usize]))
            }
            Some((block, when)) => {
                self.latest.note(block, when);
                None
            }
            None => None,
        }
    }
}
