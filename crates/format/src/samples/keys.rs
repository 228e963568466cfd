//! Keys of samples: splits, groups, labels.

use std::sync::Arc;

use super::index::Column;

/// A key of each sample, where it has one: the different keys, numbered as they come, and the numbers. Cloning it is
/// cheap.
#[derive(Clone, Debug)]
pub struct Keys<K> {
    different: Arc<[K]>,
    /// How many of these the samples have.
    seen: usize,
    numbers: Column,
    len: usize,
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self { different: Arc::new([]), seen: 0, numbers: Column::default(), len: 0 }
    }
}

impl<K> Keys<K> {
    /// Those of the first `len` of `all` samples.
    pub(super) fn new(different: Vec<K>, numbers: Column, len: usize, all: usize) -> Self {
        let seen = if len == all {
            different.len()
        } else {
            // They are numbered as they come.
            let greatest = (0..len).filter_map(|id| numbers.get(id)).max();
            greatest.map_or(0, |greatest| greatest as usize + 1)
        };
        Self { different: different.into(), seen, numbers, len }
    }

    /// The different keys that samples have, in the order in which they first come.
    pub fn different(&self) -> &[K] {
        &self.different[..self.seen]
    }

    /// The place of a sample's key among the [`different`](Self::different) ones.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn number(&self, sample: usize) -> Option<u32> {
        assert!(sample < self.len, "there is no sample {sample}");
        self.numbers.get(sample)
    }

    /// The [`number`](Self::number)s of all samples in order.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = Option<u32>> + '_ {
        (0..self.len).map(|sample| self.numbers.get(sample))
    }

    /// The key of a sample.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn get(&self, sample: usize) -> Option<&K> {
        self.number(sample).map(|number| &self.different[number as usize])
    }
}
