//! Decides which chunks are decoded with which batch and buffer, and which are dropped, if windows
//! come block by block.
//!
//! While the batches of a group of blocks are filled, the chunks of the next group are decoded,
//! some with each batch. The chunks that are still missing are decoded with the first batch of the
//! group; at the start of training, these are all chunks. Chunks are dropped once the batches of
//! their group are filled. If groups have fewer batches than the ring has slots, chunks of more
//! than two groups are buffer.

use std::collections::{HashSet, VecDeque};

use crate::Result;
use crate::decode::Decoder;
use crate::plan::{Block, Crop, EpochPlan};
use crate::shuffle_buffer::{ChunkRef, ShuffleBuffer};

use super::arrays::place;
use super::reader::Reader;

/// The feeder's knowledge of the groups.
#[derive(Debug, Default)]
pub(super) struct ShuffleSchedule {
    /// Number of batches planned so far.
    turns: usize,
    /// Epoch and number of the group whose batches are being planned.
    now: Option<(u64, usize)>,
    /// The batches of the group: the first, and the end.
    batches: (usize, usize),
    /// The chunks of the group.
    wanted: HashSet<ChunkRef>,
    /// The chunks of the next group that are not in this group.
    next: Vec<ChunkRef>,
    /// How many of those were handed out.
    handed_out: usize,
    /// The next epoch, drawn to know what it begins with.
    next_epoch: Option<EpochPlan>,
    /// Chunks of the earlier groups, each with the turn after the last batch of the group.
    before: VecDeque<(usize, HashSet<ChunkRef>)>,
}

impl ShuffleSchedule {
    /// Puts the chunks that are to be decoded with batch `n` into `ahead`, and drops chunks that
    /// are no longer needed. Of the batches before, up to `unfinished` are not filled yet.
    pub(super) fn turn(
        &mut self,
        reader: &Reader,
        buffer: &ShuffleBuffer,
        epoch: &EpochPlan,
        n: usize,
        unfinished: usize,
        ahead: &mut Vec<ChunkRef>,
    ) -> Result<()> {
        ahead.clear();
        let Some(group) = epoch.group(n) else { return Ok(()) };
        if self.now != Some((epoch.epoch(), group)) {
            self.begin(reader, buffer, epoch, (group, n), ahead)?;
        }
        self.drop_unwanted(reader, buffer, unfinished);
        // Evenly over the group's batches, except the first ones, until the memory of the group before is free.
        let (first, end) = self.batches;
        let first = first + reader.options.slots.min((end - first) / 2);
        let (step, steps) = ((n + 1).saturating_sub(first), end - first);
        let due = (self.next.len() * step / steps.max(1)).max(self.handed_out);
        ahead.extend_from_slice(&self.next[self.handed_out..due]);
        self.handed_out = due;
        self.turns += 1;
        Ok(())
    }

    /// Begins the group of batch `n`.
    fn begin(
        &mut self,
        reader: &Reader,
        buffer: &ShuffleBuffer,
        epoch: &EpochPlan,
        (group, n): (usize, usize),
        ahead: &mut Vec<ChunkRef>,
    ) -> Result<()> {
        let now = chunks_of(reader, epoch.blocks(group))?;
        // Chunks that were handed out with earlier batches are held by now, or soon will be.
        let mut requested = std::mem::take(&mut self.wanted);
        requested.extend(&self.next[..self.handed_out]);
        let is_missing =
            |chunk: &ChunkRef| !requested.contains(chunk) && !is_held(reader, buffer, *chunk);
        ahead.extend(now.iter().copied().filter(is_missing));
        let next = match group + 1 < epoch.groups() {
            true => chunks_of(reader, epoch.blocks(group + 1))?,
            false => self.first_chunks(reader, epoch.epoch() + 1)?,
        };
        self.wanted = now.into_iter().collect();
        self.next = next.into_iter().filter(|chunk| !self.wanted.contains(chunk)).collect();
        self.handed_out = 0;
        self.now = Some((epoch.epoch(), group));
        self.batches = (n, end_of(epoch, group, n));
        self.before.push_back((self.turns, requested));
        Ok(())
    }

    /// The epoch of this number, if it was drawn already.
    pub(super) fn take_epoch(&mut self, epoch: u64) -> Option<EpochPlan> {
        self.next_epoch.take().filter(|drawn| drawn.epoch() == epoch)
    }

    /// The chunks that an epoch begins with, if there is one.
    fn first_chunks(&mut self, reader: &Reader, epoch: u64) -> Result<Vec<ChunkRef>> {
        if reader.options.end_epoch.is_some_and(|end| epoch >= end) {
            return Ok(Vec::new());
        }
        let drawn = reader.plan.epoch(epoch, &[], reader.options.share)?;
        let group = if drawn.batches() > 0 { drawn.group(0) } else { None };
        let chunks = group.map_or(Ok(Vec::new()), |group| chunks_of(reader, drawn.blocks(group)));
        self.next_epoch = Some(drawn);
        chunks
    }

    fn drop_unwanted(&mut self, reader: &Reader, buffer: &ShuffleBuffer, unfinished: usize) {
        // Batches before this one are filled.
        let filled = self.turns.saturating_sub(unfinished);
        let over = self.before.iter().take_while(|(turn, _)| *turn <= filled).count();
        if over == 0 {
            return;
        }
        self.before.drain(..over);
        let before = self.before.iter().flat_map(|(_, chunks)| chunks);
        let wanted = before.chain(&self.wanted).chain(&self.next).copied().collect();
        buffer.keep_only(&reader.dataset, &wanted);
    }
}

/// The batch after the last one of the group that batch `n` belongs to.
fn end_of(epoch: &EpochPlan, group: usize, n: usize) -> usize {
    let (mut low, mut high) = (n + 1, epoch.batches());
    while low < high {
        let middle = low.midpoint(high);
        match epoch.group(middle) {
            Some(other) if other <= group => low = middle + 1,
            _ => high = middle,
        }
    }
    low
}

fn is_held(reader: &Reader, buffer: &ShuffleBuffer, chunk: ChunkRef) -> bool {
    let array = chunk.array(&reader.dataset);
    buffer.holds(array, array.number(chunk.index as usize, chunk.chunk as usize))
}

/// The chunks that the windows of some blocks lie in, each once.
fn chunks_of<'a>(
    reader: &Reader,
    blocks: impl Iterator<Item = &'a Block>,
) -> Result<Vec<ChunkRef>> {
    let Reader { dataset, plan, beside, .. } = reader;
    let reach = match &plan.options().crop {
        Crop::Windows(windows) => windows.size(),
        // Blocks are whole cubes.
        _ => (1, 1),
    };
    let (mut chunks, mut unique) = (Vec::new(), HashSet::new());
    for block in blocks {
        let stack = dataset.stack_of(block.sample)?;
        push_chunks(&reader.decoder(), beside, stack, block, reach, &mut |chunk| {
            if unique.insert(chunk) {
                chunks.push(chunk);
            }
        })?;
    }
    Ok(chunks)
}

fn push_chunks(
    decoder: &Decoder<'_>,
    beside: &[String],
    stack: usize,
    block: &Block,
    (rows, columns): (u32, u32),
    push: &mut impl FnMut(ChunkRef),
) -> Result<()> {
    let dataset = decoder.dataset;
    let index = dataset.samples().index(block.sample);
    let arrays = beside.iter().map(|name| place(dataset, stack, name));
    for number in std::iter::once(Ok(0)).chain(arrays) {
        let array = dataset.array(stack, number?);
        let reach = |range: &std::ops::Range<u32>, size: u32, length: usize| {
            let ground = range.start as usize..(range.end + size - 1) as usize;
            array.chunks.ratio().cover(ground, length)
        };
        let shape = array.shape();
        let rows = reach(&block.rows, rows, shape.rows);
        let columns = reach(&block.columns, columns, shape.columns);
        let (grid, bands) = (array.grid(), decoder.bands_of(array));
        for chunk in grid.chunk_rows(&rows).flat_map(|down| grid.chunks_in(down, &columns, bands)) {
            push(ChunkRef::new(array, index, chunk));
        }
    }
    Ok(())
}
