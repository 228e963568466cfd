//! Which samples a process checks: all, or those of some image shards if several processes share
//! the work.

use std::ops::Range;

use hsipack_format::Grid;
use hsipack_store::Dataset;

use crate::convert::parts::Part;

/// Places of samples in each stack.
#[derive(Clone, Debug)]
pub struct Share(Vec<Vec<Range<usize>>>);

/// The samples of every shard of an image: the stack and the places in it.
fn shards(dataset: &Dataset) -> impl Iterator<Item = (usize, Range<usize>)> {
    dataset.stacks().iter().enumerate().flat_map(|(stack, of)| {
        let (all, each) = (of.image.len(), of.image.grid().samples_per_shard());
        (0..all).step_by(each).map(move |first| (stack, first..all.min(first + each)))
    })
}

impl Share {
    /// All samples.
    pub fn whole(dataset: &Dataset) -> Self {
        Self::of(dataset, Part::WHOLE)
    }

    /// The samples of a part of the shards.
    pub fn of(dataset: &Dataset, part: Part) -> Self {
        let mut ranges = vec![Vec::new(); dataset.stacks().len()];
        part.of(shards(dataset)).for_each(|(stack, places)| ranges[stack].push(places));
        Self(ranges)
    }

    /// The most parts into which the work can be divided.
    pub fn most_parts(dataset: &Dataset) -> usize {
        shards(dataset).count()
    }

    /// Places of the samples in a stack, in order.
    pub fn places(&self, stack: usize) -> impl Iterator<Item = usize> + Send + '_ {
        self.0[stack].iter().cloned().flatten()
    }

    /// Whether the share contains a sample.
    pub fn has(&self, stack: usize, index: usize) -> bool {
        let after = self.0[stack].partition_point(|range| range.end <= index);
        self.0[stack].get(after).is_some_and(|range| range.contains(&index))
    }

    /// Whether a sample of the share has chunks in a shard of an array with this grid.
    pub fn touches(&self, stack: usize, grid: &Grid, shard: usize) -> bool {
        let (first, each) = (shard * grid.samples_per_shard(), grid.samples_per_shard());
        let after = self.0[stack].partition_point(|range| range.end <= first);
        self.0[stack].get(after).is_some_and(|range| range.start < first + each)
    }
}
