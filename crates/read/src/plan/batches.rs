//! Cuts an order into global batches, and each of these into the parts of the ranks.
//!
//! ```text
//! given segments: cut what is left with the segment's sizes, take its batches away
//! now:            cut what is left with the sizes of now
//! a cut:          split by shape, keep order → cut every shape's items → order the batches
//! ```
//! If what is left after some batches is cut again, this gives exactly the batches that would have
//! come next. So an epoch gives the same batches however often and wherever it is interrupted. The
//! reason is that a batch's place among the others depends only on its first item, and that the
//! places in an order are those of the whole epoch.

use std::ops::Range;

use super::plural;
use super::sequence::Sequence;
use super::state::Segment;
use crate::{Error, Result};
use hsipack_format::random::{Stream, fold};
use hsipack_format::{Opt, remedy};
use serde::{Deserialize, Serialize};

/// Treatment of the items of each shape that do not fill a last global batch.
///
/// In any case, all ranks get the same number of batches, and no batch is empty. Otherwise training
/// on several processes would hang.
///
/// | | items of the last batch | [`padding`](super::Item::padding) |
/// |---|---|---|
/// | `Pad` | batch size, on every rank | as many as are missing |
/// | `Drop` | there is none | none |
/// | `Short` | the items that are left, divided over the ranks so that their numbers differ by at most one | only if fewer items are left than there are ranks: one for each rank that would have none |
///
/// Padding repeats items from the epoch's start.
// The numbers are part of a plan's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastBatch {
    /// The batch is filled up with padding on every rank.
    Pad = 0,
    /// The items are skipped in this epoch.
    Drop = 1,
    /// The batch is shorter. It has padding only if there are fewer items than ranks.
    Short = 2,
}

hsipack_format::option_names!(LastBatch, "last batch", {
    Pad => "pad",
    Drop => "drop",
    Short => "short",
});

impl LastBatch {
    /// Number of items, with padding, of a global batch that has `items` items without it.
    pub(super) fn padded(self, items: usize, global: usize, world_size: usize) -> usize {
        match self {
            Self::Short => items.max(world_size),
            Self::Pad | Self::Drop => global,
        }
    }
}

/// The place of one process among those that train together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Share {
    /// Number of this process among the processes that train together, counted from 0
    #[cfg_attr(
        feature = "clap",
        arg(
            long,
            value_name = "N",
            default_value_t = 0,
            requires = "world_size",
            help_heading = "Samples"
        )
    )]
    pub rank: usize,
    /// Number of processes that train together; each reads its share
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = 1, help_heading = "Samples")
    )]
    pub world_size: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self::ALL
    }
}

impl Share {
    /// The share of a process that trains alone.
    pub const ALL: Self = Self { rank: 0, world_size: 1 };

    pub(super) fn check(self) -> Result<()> {
        if self.world_size == 0 {
            return Err(Error::conflict("the world size is 0").with_remedy(remedy![
                "give the number of processes that train together with ",
                Opt::WorldSize,
                ", from 1"
            ]));
        }
        if self.rank >= self.world_size {
            return Err(Error::conflict(format!(
                "there is no rank {} among {}",
                self.rank,
                plural(self.world_size, "process")
            ))
            .with_remedy(remedy![
                "give ",
                Opt::Rank,
                format!(" from 0 to {}", self.world_size - 1)
            ]));
        }
        Ok(())
    }

    /// This rank's part of `items` items. The parts of the ranks differ in length by at most one.
    pub(super) fn part(self, items: usize) -> Range<usize> {
        let (even, more) = (items / self.world_size, items % self.world_size);
        let start = self.rank * even + self.rank.min(more);
        start..start + even + usize::from(self.rank < more)
    }
}

/// Number of items in a global batch.
///
/// # Errors
/// If either is 0, or the product overflows.
pub(super) fn global_batch(batch_size: usize, world_size: usize) -> Result<usize> {
    match batch_size.checked_mul(world_size) {
        Some(0) => Err(Error::conflict(format!(
            "batches have {} on {}",
            plural(batch_size, "item"),
            plural(world_size, "process")
        ))
        .with_remedy(remedy![
            "give at least 1 as ",
            Opt::BatchSize,
            " and as ",
            Opt::WorldSize
        ])),
        Some(items) => Ok(items),
        None => Err(Error::conflict(format!(
            "batches of {batch_size} items on {world_size} processes are too large"
        ))
        .with_remedy(remedy!["choose a smaller ", Opt::BatchSize])),
    }
}

/// An epoch's items and their shapes, as needed for cutting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Epoch<'a> {
    /// The items, in order.
    pub order: &'a Sequence,
    /// Shape number of every sample.
    pub shapes: &'a [u32],
    /// Number of shapes.
    pub shape_count: usize,
    /// Key of the batches' order. Without a key, batches keep the order of their first items.
    pub shuffle: Option<[u64; 2]>,
    /// Treatment of the items that do not fill a last batch.
    pub last: LastBatch,
}

/// A global batch: places in [`Cut::places`].
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    items: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.items as usize
    }
}

/// Places in an order.
#[derive(Clone, Debug)]
enum Places {
    /// If all items have one shape: the places that are left, which are all from some place on.
    /// There may be 10^8.
    From(Range<u32>),
    Listed(Vec<u32>),
}

impl Places {
    fn len(&self) -> usize {
        match self {
            Self::From(range) => range.len(),
            Self::Listed(places) => places.len(),
        }
    }

    fn get(&self, number: usize) -> u32 {
        match self {
            Self::From(range) => range.start + number as u32,
            Self::Listed(places) => places[number],
        }
    }
}

/// The remainder of an epoch, cut into global batches.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// Places in the order, shape by shape.
    places: Places,
    /// The batches, in the order in which they come.
    spans: Vec<Span>,
    /// Number of items in a full batch.
    global: usize,
    /// For every shape, the places of the items that fill up its last batch. They are repeated as
    /// needed.
    padding: Vec<Vec<u32>>,
}

impl Epoch<'_> {
    /// Cuts what is left after the `delivered` segments into batches of `batch_size` items for each
    /// of `world_size` ranks.
    ///
    /// # Errors
    /// If a segment has more batches than its sizes allow, or if sizes are not valid.
    pub(super) fn resume(
        &self,
        delivered: &[Segment],
        batch_size: usize,
        world_size: usize,
    ) -> Result<Cut> {
        let global = global_batch(batch_size, world_size)?;
        let mut remaining = Places::From(0..self.order.len() as u32);
        for segment in delivered {
            let cut = self.cut(remaining, global_batch(segment.batch_size, segment.world_size)?);
            remaining = cut.without(segment)?;
        }
        let mut cut = self.cut(remaining, global);
        cut.padding = self.padding(&cut, world_size);
        Ok(cut)
    }

    fn shape(&self, position: u32) -> usize {
        if self.shape_count == 1 {
            return 0;
        }
        self.shapes[self.order.sample(position) as usize] as usize
    }

    /// Cuts the items at these places into batches, without padding. The places ascend within every
    /// shape.
    fn cut(&self, remaining: Places, global: usize) -> Cut {
        let (places, starts) = self.by_shape(remaining);
        let mut spans = Vec::new();
        for shape in starts.windows(2) {
            for start in (shape[0]..shape[1]).step_by(global) {
                let items = global.min(shape[1] - start);
                if items == global || self.last != LastBatch::Drop {
                    spans.push(Span { start: start as u32, items: items as u32 });
                }
            }
        }
        if self.shape_count > 1 {
            self.sort(&mut spans, &places);
        }
        Cut { places, spans, global, padding: Vec::new() }
    }

    /// Sorts the places by shape and otherwise keeps their order. Also returns where every shape
    /// starts, and the end.
    fn by_shape(&self, remaining: Places) -> (Places, Vec<usize>) {
        if self.shape_count == 1 {
            let end = remaining.len();
            return (remaining, vec![0, end]);
        }
        let each = || (0..remaining.len()).map(|number| remaining.get(number));
        let mut starts = vec![0; self.shape_count + 1];
        for position in each() {
            starts[self.shape(position) + 1] += 1;
        }
        for shape in 0..self.shape_count {
            starts[shape + 1] += starts[shape];
        }
        let mut next = starts.clone();
        let mut places = vec![0; starts[self.shape_count]];
        for position in each() {
            let slot = &mut next[self.shape(position)];
            places[*slot] = position;
            *slot += 1;
        }
        (Places::Listed(places), starts)
    }

    fn sort(&self, spans: &mut [Span], places: &Places) {
        let first = |span: &Span| places.get(span.start as usize);
        match self.shuffle {
            None => spans.sort_unstable_by_key(first),
            Some([seed, epoch]) => spans.sort_unstable_by_key(|span| {
                let first = first(span);
                (fold([Stream::Batches as u64, seed, epoch, u64::from(first)]), first)
            }),
        }
    }

    /// For every shape, the first items of the whole epoch, as many as its last batch lacks.
    fn padding(&self, cut: &Cut, world_size: usize) -> Vec<Vec<u32>> {
        let mut padding = vec![Vec::new(); self.shape_count];
        let mut missing = vec![0; self.shape_count];
        for span in &cut.spans {
            let items = span.items as usize;
            let shape = self.shape(cut.places.get(span.start as usize));
            missing[shape] += self.last.padded(items, cut.global, world_size) - items; // 0 if full
        }
        let mut unfilled = missing.iter().filter(|items| **items > 0).count();
        let mut places = 0..self.order.len() as u32;
        while let Some(position) = places.next().filter(|_| unfilled > 0) {
            let shape = self.shape(position);
            if padding[shape].len() < missing[shape] {
                padding[shape].push(position);
                unfilled -= usize::from(padding[shape].len() == missing[shape]);
            }
        }
        padding
    }
}

impl Cut {
    /// No batches: the items of the epoch come in batches of several plans.
    pub(super) fn none() -> Self {
        Self { places: Places::From(0..0), spans: Vec::new(), global: 0, padding: Vec::new() }
    }

    /// Number of batches.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Number of items in all batches, without padding.
    pub(super) fn items(&self) -> usize {
        self.spans.iter().map(|span| span.items as usize).sum()
    }

    /// Number of items that are in no batch.
    pub(super) fn dropped(&self) -> usize {
        self.places.len() - self.items()
    }

    /// The place of the first item of batch `n`.
    pub(super) fn first(&self, n: usize) -> u32 {
        self.places.get(self.spans[n].start as usize)
    }

    /// The places of a rank's items in batch `n`, and whether each is padding.
    pub(super) fn part(
        &self,
        n: usize,
        shape: usize,
        share: Share,
        last: LastBatch,
    ) -> impl ExactSizeIterator<Item = (u32, bool)> {
        let items = self.spans[n].range();
        let padded = last.padded(items.len(), self.global, share.world_size);
        let padding = &self.padding[shape];
        share.part(padded).map(move |item| match item < items.len() {
            true => (self.places.get(items.start + item), false),
            false => (padding[(item - items.len()) % padding.len()], true),
        })
    }

    /// The places that are left after the segment's batches, ascending within every shape.
    fn without(self, segment: &Segment) -> Result<Places> {
        if segment.batches > self.spans.len() {
            return Err(segment.is_too_long(self.spans.len()));
        }
        let mut delivered: Vec<Span> = self.spans[..segment.batches].to_vec();
        delivered.sort_unstable_by_key(|span| span.start);
        let mut places = match self.places {
            // Batches of one shape come in the order of their items.
            Places::From(range) => {
                let items: usize = delivered.iter().map(|span| span.items as usize).sum();
                return Ok(Places::From(range.start + items as u32..range.end));
            }
            Places::Listed(places) => places,
        };
        let mut delivered = delivered.into_iter().map(Span::range).peekable();
        let mut position = 0;
        places.retain(|_| {
            let keep = delivered.peek().is_none_or(|range| !range.contains(&position));
            position += 1;
            delivered.next_if(|range| range.end == position);
            keep
        });
        Ok(Places::Listed(places))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_cover_everything() {
        for (items, world_size) in [(0, 1), (7, 3), (2, 5), (16, 4)] {
            let parts: Vec<_> =
                (0..world_size).map(|rank| Share { rank, world_size }.part(items)).collect();
            let all: Vec<usize> = parts.iter().cloned().flatten().collect();
            assert_eq!(all, (0..items).collect::<Vec<_>>());
            let sizes = parts.iter().map(ExactSizeIterator::len);
            assert!(sizes.clone().max().unwrap() - sizes.min().unwrap() <= 1);
        }
    }

    #[test]
    fn sizes_that_mean_nothing_are_refused() {
        assert_eq!(global_batch(3, 4).unwrap(), 12);
        for (batch_size, world_size) in [(0, 1), (1, 0), (usize::MAX, 2)] {
            let error = global_batch(batch_size, world_size).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::Conflict);
            assert!(error.remedy().is_some());
        }
        assert!(Share { rank: 0, world_size: 0 }.check().is_err());
        let error = Share { rank: 2, world_size: 2 }.check().unwrap_err();
        assert!(error.to_string().starts_with("there is no rank 2 among 2 processes"), "{error}");
    }
}
