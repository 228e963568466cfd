//! Columns of the list of samples.

use std::collections::HashMap;

/// Texts, one after another in one allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    text: String,
    ends: Vec<u64>,
}

impl Names {
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len() as u64);
    }

    pub fn get(&self, place: usize) -> &str {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[place] as usize]
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.ends.len()).map(|place| self.get(place))
    }

    pub fn close(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

/// A key of each sample, where it has one: the different keys, numbered as they come, and the numbers.
#[derive(Clone, Debug)]
pub struct Keys<K> {
    different: Vec<K>,
    number_of: Vec<u32>,
    /// Numbers by the keys' texts, while samples are added.
    numbers: HashMap<Box<str>, u32>,
}

/// The number of a sample without a key.
const NONE: u32 = u32::MAX;

impl<K> Default for Keys<K> {
    fn default() -> Self {
        Self { different: Vec::new(), number_of: Vec::new(), numbers: HashMap::new() }
    }
}

impl<K> Keys<K> {
    /// Adds a sample, by the text of its key.
    pub(super) fn push(&mut self, text: Option<&str>, key: impl FnOnce(&str) -> K) {
        let number = text.map_or(NONE, |text| {
            self.numbers.get(text).copied().unwrap_or_else(|| {
                let next = self.different.len() as u32;
                self.numbers.insert(text.into(), next);
                self.different.push(key(text));
                next
            })
        });
        self.number_of.push(number);
    }

    pub(super) fn close(&mut self) {
        self.different.shrink_to_fit();
        self.number_of.shrink_to_fit();
        self.numbers = HashMap::new();
    }

    /// The different keys that samples have, in the order in which they first come.
    pub fn different(&self) -> &[K] {
        &self.different
    }

    /// The place of a sample's key among the [`different`](Self::different) ones.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn number(&self, sample: usize) -> Option<u32> {
        Some(self.number_of[sample]).filter(|number| *number != NONE)
    }

    /// The [`number`](Self::number)s of all samples in order.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = Option<u32>> + '_ {
        self.number_of.iter().map(|number| Some(*number).filter(|number| *number != NONE))
    }

    /// The key of a sample.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn get(&self, sample: usize) -> Option<&K> {
        self.number(sample).map(|number| &self.different[number as usize])
    }
}
