//! Orders for data that do not fit into memory: the windows of some blocks come together, shuffled.
//!
//! ```text
//! blocks, shuffled    b4 b0 b7 │ b2 b6 b1 │ b5 b3 b8      groups of blocks, here of 3
//! windows             shuffled │ shuffled │ shuffled      among those of their group
//! ```
//! So a group's chunks are decoded once, and all its windows are cut out of them. As in a shuffle
//! of all windows, every window is equally likely to come at any place of the epoch. But the
//! windows that come near it are of the same group. With `n` groups of equal size, the next window
//! is of the same block `n` times as often as in a shuffle of all windows.

use std::ops::Range;
use std::sync::Arc;

use hsipack_format::random::{Random, Stream, fold};

use super::permutation::{LISTED, Network};
use super::windows::Windows;
use super::{PlanSample, plural};
use crate::{Error, Result};
use hsipack_format::{Opt, remedy};

/// A part of a cube whose windows come together: those whose first row and column lie in it.
/// Windows that begin before the cube belong to its first blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Id of the sample in the dataset.
    pub sample: usize,
    /// Rows of its cube.
    pub rows: Range<u32>,
    /// Columns of its cube.
    pub columns: Range<u32>,
}

/// The blocks of all samples. The windows of some blocks at a time are shuffled together. See
/// [`PlanOptions::blocks`](super::PlanOptions::blocks).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShuffleBlocks {
    /// The blocks of every sample, which leave no gaps and do not overlap. They are whole cubes,
    /// unless windows are numbered ([`Crop::Windows`](super::Crop::Windows)).
    pub blocks: Vec<Block>,
    /// Number of blocks in a group.
    pub together: usize,
}

impl ShuffleBlocks {
    /// Everything as numbers, for a plan's digest.
    pub(super) fn parts(&self) -> [u64; 2] {
        let numbers = |block: &Block| {
            let Block { sample, rows, columns } = block;
            let edges = [rows.start, rows.end, columns.start, columns.end].map(u64::from);
            std::iter::once(*sample as u64).chain(edges)
        };
        [self.together as u64, fold(self.blocks.iter().flat_map(numbers))]
    }
}

/// Blocks, and which items they have. Items are numbered sample by sample.
#[derive(Debug)]
pub(super) struct PlannedBlocks {
    blocks: Vec<Block>,
    /// Runs of item numbers, block by block.
    runs: Vec<Range<u32>>,
    /// For each run, the number of items in the earlier runs of its block.
    before: Vec<u32>,
    /// First run of every block, and the end.
    first_runs: Vec<u32>,
    /// Number of items in every block.
    items: Vec<u32>,
    /// Number of every sample's first item, and the end.
    starts: Vec<u32>,
    groups: usize,
}

impl PlannedBlocks {
    /// Plans blocks for the plan's `samples`, which have `counts` items each.
    ///
    /// # Errors
    /// If the blocks do not cover the samples, or are not valid.
    pub(super) fn new(
        ShuffleBlocks { blocks, together }: &ShuffleBlocks,
        samples: &[PlanSample],
        counts: &[u32],
        windows: Option<&Windows>,
    ) -> Result<Self> {
        let starts: Vec<u32> = std::iter::once(0)
            .chain(counts.iter().scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            }))
            .collect();
        let mut places: Vec<(usize, usize)> =
            samples.iter().enumerate().map(|(index, sample)| (sample.sample, index)).collect();
        places.sort_unstable();
        let mut planned = Self {
            blocks: Vec::new(),
            runs: Vec::new(),
            before: Vec::new(),
            first_runs: vec![0],
            items: Vec::new(),
            starts,
            groups: 0,
        };
        for block in blocks {
            // Samples without windows are not in the plan.
            let Ok(found) = places.binary_search_by_key(&block.sample, |(id, _)| *id) else {
                continue;
            };
            let index = places[found].1;
            match windows {
                Some(windows) => planned.push_windows(block, &samples[index], index, windows),
                None => planned.push_run(planned.starts[index]..planned.starts[index + 1]),
            }
            planned.end(block);
        }
        planned.check(*together)?;
        planned.groups = planned.blocks.len().div_ceil(*together);
        Ok(planned)
    }

    /// Adds the runs of a block's windows.
    fn push_windows(
        &mut self,
        block: &Block,
        sample: &PlanSample,
        index: usize,
        windows: &Windows,
    ) {
        let Block { rows, columns, .. } = block;
        // Windows that begin before the cube belong to its first blocks.
        let (height, width) = windows.size();
        let start = |range: &Range<u32>, size: u32| match range.start {
            0 => -i64::from(size),
            start => i64::from(start),
        };
        let (top, left) = (start(rows, height), start(columns, width));
        let (bottom, right) = (i64::from(rows.end), i64::from(columns.end));
        let first = windows.first(index);
        let at = |row, column| first + windows.before(index, row, column);
        if columns.start == 0 && columns.end >= sample.columns {
            self.push_run(at(top, left)..at(bottom, -i64::from(width)));
            return;
        }
        for row in top..bottom {
            self.push_run(at(row, left)..at(row, right));
        }
    }

    /// Adds a run to the current block.
    fn push_run(&mut self, run: Range<u32>) {
        if run.is_empty() {
            return;
        }
        let first = self.first_runs[self.first_runs.len() - 1] as usize;
        match self.runs[first..].last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            last => {
                let before =
                    last.map_or(0, |last| self.before[self.before.len() - 1] + last.len() as u32);
                self.before.push(before);
                self.runs.push(run);
            }
        }
    }

    /// Ends the current block. It is dropped if it has no items.
    fn end(&mut self, block: &Block) {
        let first = self.first_runs[self.first_runs.len() - 1] as usize;
        let items = self.runs[first..].iter().map(|run| run.len() as u32).sum();
        if items > 0 {
            self.blocks.push(block.clone());
            self.items.push(items);
            self.first_runs.push(self.runs.len() as u32);
        }
    }

    fn check(&self, together: usize) -> Result<()> {
        if together == 0 {
            return Err(Error::conflict("the shuffle window holds 0 blocks")
                .with_remedy(remedy!["give a larger ", Opt::ShuffleWindow]));
        }
        let all = self.starts[self.starts.len() - 1];
        let mut runs = self.runs.clone();
        runs.sort_unstable_by_key(|run| run.start);
        let gaps = std::iter::once(0)
            .chain(runs.iter().map(|run| run.end))
            .zip(runs.iter().map(|run| run.start).chain([all]))
            .filter(|(end, start)| end != start)
            .count();
        if gaps > 0 {
            return Err(Error::conflict(format!(
                "blocks overlap or leave gaps in {}",
                plural(gaps, "place")
            ))
            .with_remedy("give the blocks of every sample next to one another"));
        }
        Ok(())
    }

    /// Number of items in a round.
    pub(super) fn len(&self) -> usize {
        self.starts[self.starts.len() - 1] as usize
    }

    /// The sample of an item, as its place in the plan's list, and which of the sample's items it
    /// is.
    pub(super) fn item(&self, number: u32) -> (u32, u32) {
        let sample = self.starts.partition_point(|start| *start <= number) - 1;
        (sample as u32, number - self.starts[sample])
    }

    /// Number of items of a sample.
    pub(super) fn of_sample(&self, sample: u32) -> u32 {
        self.starts[sample as usize + 1] - self.starts[sample as usize]
    }

    /// The number of a block's item among all items.
    fn number(&self, block: usize, item: u32) -> u32 {
        let runs = self.first_runs[block] as usize..self.first_runs[block + 1] as usize;
        let before = &self.before[runs.clone()];
        let run = before.partition_point(|items| *items <= item) - 1;
        self.runs[runs.start + run].start + item - before[run]
    }
}

/// The order of an epoch's items.
#[derive(Clone, Debug)]
pub(super) struct BlockOrder {
    planned: Arc<PlannedBlocks>,
    rounds: Arc<[Round]>,
}

/// A round: every item once.
#[derive(Debug)]
struct Round {
    /// The blocks in order.
    blocks: Vec<u32>,
    /// Number of items before each of them, and of all.
    ends: Vec<u32>,
    /// First block of every group, and the end.
    groups: Vec<u32>,
    items: InGroups,
}

/// The order of the items within groups.
#[derive(Debug)]
enum InGroups {
    /// Numbers of all items in order.
    Listed(Vec<u32>),
    /// The order of the items of every group.
    Computed(Vec<Network>),
}

impl BlockOrder {
    /// Draws the order of an epoch of `length` items.
    pub(super) fn draw(planned: &Arc<PlannedBlocks>, keys: [u64; 2], length: usize) -> Self {
        let rounds = 0..length.div_ceil(planned.len());
        let listed = length.max(planned.len()) <= LISTED;
        let rounds = rounds.map(|round| Round::draw(planned, keys, round as u64, listed)).collect();
        Self { planned: planned.clone(), rounds }
    }

    /// Round and number of the item at a position.
    pub(super) fn at(&self, position: usize) -> (usize, u32) {
        let (round, offset) = (position / self.planned.len(), position % self.planned.len());
        (round, self.rounds[round].at(&self.planned, offset as u32))
    }

    /// The blocks that the items belong to.
    pub(super) fn planned(&self) -> &PlannedBlocks {
        &self.planned
    }

    /// Number of groups in the epoch. They are numbered in the order in which they come.
    pub(super) fn groups(&self) -> usize {
        self.rounds.len() * self.planned.groups
    }

    /// The group of the item at a position.
    pub(super) fn group(&self, position: usize) -> usize {
        let (round, offset) = (position / self.planned.len(), position % self.planned.len());
        round * self.planned.groups + self.rounds[round].group(offset as u32)
    }

    /// The blocks of a group.
    pub(super) fn blocks(&self, group: usize) -> impl Iterator<Item = &Block> {
        let (round, group) = (group / self.planned.groups, group % self.planned.groups);
        let Round { blocks, groups, .. } = &self.rounds[round];
        let blocks = &blocks[groups[group] as usize..groups[group + 1] as usize];
        blocks.iter().map(|block| &self.planned.blocks[*block as usize])
    }
}

impl Round {
    fn draw(planned: &PlannedBlocks, [seed, epoch]: [u64; 2], round: u64, listed: bool) -> Self {
        let count = planned.blocks.len();
        let mut blocks: Vec<u32> = (0..count as u32).collect();
        Random::keyed(Stream::Blocks, [seed, epoch, round]).shuffle(&mut blocks);
        let ends = std::iter::once(0).chain(blocks.iter().scan(0, |sum, block| {
            *sum += planned.items[*block as usize];
            Some(*sum)
        }));
        let ends = ends.collect();
        // Groups have nearly the same number of blocks.
        let groups = (0..=planned.groups).map(|group| (group * count / planned.groups) as u32);
        let groups = groups.collect();
        let mut drawn = Self { blocks, ends, groups, items: InGroups::Listed(Vec::new()) };
        let random =
            |group: usize| Random::keyed(Stream::InBlocks, [seed, epoch, round, group as u64]);
        drawn.items = if listed {
            let mut numbers: Vec<u32> =
                (0..planned.len() as u32).map(|item| drawn.number(planned, item)).collect();
            for group in 0..planned.groups {
                let items = drawn.items_of(group);
                random(group).shuffle(&mut numbers[items.start as usize..items.end as usize]);
            }
            InGroups::Listed(numbers)
        } else {
            let network =
                |group| Network::new(drawn.items_of(group).len() as u64, &mut random(group));
            InGroups::Computed((0..planned.groups).map(network).collect())
        };
        drawn
    }

    /// Where a group's items lie.
    fn items_of(&self, group: usize) -> Range<u32> {
        let end = |group: usize| self.ends[self.groups[group] as usize];
        end(group)..end(group + 1)
    }

    fn group(&self, position: u32) -> usize {
        self.groups.partition_point(|block| self.ends[*block as usize] <= position) - 1
    }

    /// The number of the item at a position, before the items are shuffled within groups.
    fn number(&self, planned: &PlannedBlocks, position: u32) -> u32 {
        let block = self.ends.partition_point(|end| *end <= position) - 1;
        planned.number(self.blocks[block] as usize, position - self.ends[block])
    }

    fn at(&self, planned: &PlannedBlocks, position: u32) -> u32 {
        match &self.items {
            InGroups::Listed(numbers) => numbers[position as usize],
            InGroups::Computed(networks) => {
                let group = self.group(position);
                let first = self.items_of(group).start;
                let moved = networks[group].at(u64::from(position - first)) as u32;
                self.number(planned, first + moved)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Blocks of whole samples with these numbers of items.
    fn planned(counts: &[u32], together: usize) -> PlannedBlocks {
        let samples: Vec<PlanSample> =
            (0..counts.len()).map(|sample| PlanSample::new(sample, 9, 9, 1)).collect();
        let block = |sample| Block { sample, rows: 0..9, columns: 0..9 };
        let blocks = (0..counts.len()).map(block).collect();
        PlannedBlocks::new(&ShuffleBlocks { blocks, together }, &samples, counts, None).unwrap()
    }

    proptest! {
        #[test]
        fn computed_and_listed_groups_have_the_same_items(
            counts in prop::collection::vec(1u32..40, 1..30), together in 1usize..12, seed: u64
        ) {
            let planned = planned(&counts, together);
            let draw = |listed| Round::draw(&planned, [seed, 5], 0, listed);
            let (listed, computed) = (draw(true), draw(false));
            let mut all = Vec::new();
            for group in 0..planned.groups {
                let items = |round: &Round| {
                    let mut items: Vec<u32> =
                        round.items_of(group).map(|item| round.at(&planned, item)).collect();
                    items.sort_unstable();
                    items
                };
                prop_assert_eq!(items(&computed), items(&listed));
                prop_assert!(listed.items_of(group).all(|item| computed.group(item) == group));
                all.extend(items(&listed));
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..counts.iter().sum()).collect::<Vec<u32>>());
        }
    }
}
