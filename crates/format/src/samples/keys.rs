//! Keys of samples: splits, groups, labels.

use std::sync::Arc;

use super::index::Column;

/// A key for each sample that has one. Holds the different keys, numbered in the order in which
/// they first occur, and each sample's number. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Keys<K> {
    different: Arc<[K]>,
    /// How many of the different keys the samples use.
    used: usize,
    numbers: Column,
    len: usize,
}

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self { different: Arc::new([]), used: 0, numbers: Column::default(), len: 0 }
    }
}

impl<K> Keys<K> {
    /// The keys of the first `len` of `all` samples.
    pub(super) fn new(different: Vec<K>, numbers: Column, len: usize, all: usize) -> Self {
        let used = if len == all {
            different.len()
        } else {
            // Keys are numbered in the order in which they first occur.
            let greatest = (0..len).filter_map(|id| numbers.get(id)).max();
            greatest.map_or(0, |greatest| greatest as usize + 1)
        };
        Self { different: different.into(), used, numbers, len }
    }

    /// The different keys of the samples, in the order in which they first occur.
    pub fn different(&self) -> &[K] {
        &self.different[..self.used]
    }

    /// The position of a sample's key in [`different`](Self::different).
    ///
    /// # Panics
    /// If the sample does not exist.
    pub fn number(&self, sample: usize) -> Option<u32> {
        assert!(sample < self.len, "there is no sample {sample}");
        self.numbers.get(sample)
    }

    /// The [`number`](Self::number) of every sample, in order.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = Option<u32>> + '_ {
        (0..self.len).map(|sample| self.numbers.get(sample))
    }

    /// The key of a sample.
    ///
    /// # Panics
    /// If the sample does not exist.
    pub fn get(&self, sample: usize) -> Option<&K> {
        self.number(sample).map(|number| &self.different[number as usize])
    }
}
