//! Sets of pixels that can return their k-th member.

/// Numbers in ascending order: as a list, or as bits if those take less memory.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum IndexSet {
    Listed(Vec<u32>),
    Bits {
        words: Vec<u64>,
        /// Number of members before every [`STRIDE`]-th word.
        before: Vec<u32>,
        len: usize,
    },
}

const STRIDE: usize = 8;

impl IndexSet {
    /// Turns a list into bits if those take less memory. All members are below `end`. Finding
    /// members is slower in bits.
    pub(super) fn shrink(&mut self, end: usize) {
        let Self::Listed(numbers) = self else { return };
        if numbers.len() * 4 > end / 8 {
            *self = Self::bits(numbers, end);
        }
    }

    fn bits(numbers: &[u32], end: usize) -> Self {
        let mut words = vec![0u64; end.div_ceil(64)];
        for number in numbers {
            words[*number as usize / 64] |= 1 << (number % 64);
        }
        let mut before = Vec::with_capacity(words.len().div_ceil(STRIDE));
        let mut members = 0;
        for block in words.chunks(STRIDE) {
            before.push(members);
            members += block.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        Self::Bits { words, before, len: numbers.len() }
    }

    /// Number of members.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Listed(numbers) => numbers.len(),
            Self::Bits { len, .. } => *len,
        }
    }

    /// The member that has `k` smaller members.
    ///
    /// # Panics
    /// If there are no more than `k` members.
    #[inline]
    pub(super) fn get(&self, k: usize) -> u32 {
        let (words, before) = match self {
            Self::Listed(numbers) => return numbers[k],
            Self::Bits { words, before, .. } => (words, before),
        };
        let block = before.partition_point(|members| *members as usize <= k) - 1;
        let mut remaining = k as u32 - before[block];
        let mut index = block * STRIDE;
        loop {
            let here = words[index].count_ones();
            if remaining < here {
                break;
            }
            remaining -= here;
            index += 1;
        }
        let mut word = words[index];
        for _ in 0..remaining {
            word &= word - 1;
        }
        index as u32 * 64 + word.trailing_zeros()
    }

    /// How many members are smaller than `number`.
    pub(super) fn rank(&self, number: u32) -> usize {
        let (words, before, len) = match self {
            Self::Listed(numbers) => return numbers.partition_point(|member| *member < number),
            Self::Bits { words, before, len } => (words, before, *len),
        };
        let (index, bit) = (number as usize / 64, number % 64);
        if index >= words.len() {
            return len;
        }
        let block = index / STRIDE;
        let whole = &words[block * STRIDE..index];
        let members = whole.iter().map(|word| word.count_ones()).sum::<u32>();
        let below = (words[index] & ((1 << bit) - 1)).count_ones();
        (before[block] + members + below) as usize
    }

    /// Bytes of memory that the set takes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Listed(numbers) => size_of_val(&numbers[..]),
            Self::Bits { words, before, .. } => size_of_val(&words[..]) + size_of_val(&before[..]),
        }
    }

    /// All members.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).map(|k| self.get(k))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_hold_what_lists_hold(numbers in prop::collection::btree_set(0u32..3000, 0..600)) {
            let numbers: Vec<u32> = numbers.into_iter().collect();
            let mut shrunk = IndexSet::Listed(numbers.clone());
            shrunk.shrink(3000);
            for set in [IndexSet::Listed(numbers.clone()), IndexSet::bits(&numbers, 3000), shrunk] {
                prop_assert_eq!(set.len(), numbers.len());
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), numbers.clone());
                for number in (0..3200).step_by(7) {
                    let smaller = numbers.iter().filter(|member| **member < number).count();
                    prop_assert_eq!(set.rank(number), smaller);
                }
            }
        }
    }
}
