//! When each block is needed.

use std::collections::{BinaryHeap, VecDeque};

/// Maximum number of uses in an epoch. If there are more, the epoch is not recorded.
const MAX_USES: usize = 2 << 20;
/// Uses of a block within 1/256 of an epoch count as one use.
const PARTS: u32 = 256;

/// Which blocks a loader needs in one epoch, and in which steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses {
    /// (step, block), sorted by step.
    by_step: Vec<(u32, u32)>,
    /// (block, step), sorted.
    by_block: Vec<(u32, u32)>,
    steps: u32,
}

/// Collects [`Uses`].
#[derive(Debug)]
pub(super) struct Gathering {
    uses: Uses,
    /// For each block, the step (counted from 1) of its last recorded use.
    noted: Vec<u32>,
    full: bool,
}

impl Gathering {
    pub(super) fn new(steps: u32, blocks: usize) -> Self {
        let uses = Uses { steps, ..Uses::default() };
        Self { uses, noted: vec![0; blocks], full: false }
    }

    /// Records that block `block` is needed in step `step`. For each block, steps must be in
    /// ascending order.
    pub(super) fn want(&mut self, block: u32, step: u32) {
        let Some(noted) = self.noted.get_mut(block as usize) else { return };
        let near = self.uses.steps / PARTS;
        if self.full || (*noted > 0 && step + 1 - *noted <= near) || *noted == step + 1 {
            return;
        }
        *noted = step + 1;
        self.full = self.uses.by_step.len() == MAX_USES;
        self.uses.by_step.push((step, block));
    }

    /// All uses; `None` if there were too many.
    pub(super) fn done(self) -> Option<Uses> {
        let mut uses = self.uses;
        uses.by_step.sort_unstable();
        uses.by_block = uses.by_step.iter().map(|(step, block)| (*block, *step)).collect();
        uses.by_block.sort_unstable();
        (!self.full).then_some(uses)
    }
}

impl Uses {
    /// The first step from `from` on that needs the block.
    fn next(&self, block: u32, from: u32) -> Option<u32> {
        let index = self.by_block.partition_point(|entry| *entry < (block, from));
        let (found, step) = self.by_block.get(index)?;
        (*found == block).then_some(*step)
    }
}

/// Blocks that one loader will need in the rest of its epoch and in later epochs. Steps are
/// numbered consecutively over all epochs.
#[derive(Debug, Default)]
pub(super) struct Expected {
    epochs: VecDeque<Epoch>,
    /// The step whose blocks are being requested.
    current: u64,
    /// The first step whose blocks may not be read yet.
    unread: u64,
    /// In the first epoch, the first use that is not over.
    cursor: usize,
}

#[derive(Debug)]
struct Epoch {
    number: u64,
    /// The number of its first step.
    start: u64,
    uses: Uses,
}

impl Epoch {
    fn end(&self) -> u64 {
        self.start + u64::from(self.uses.steps)
    }

    /// The first step from `from` on that needs the block.
    fn next(&self, block: u32, from: u64) -> Option<u64> {
        let from = u32::try_from(from.saturating_sub(self.start)).ok()?;
        self.uses.next(block, from).map(|step| self.start + u64::from(step))
    }
}

impl Expected {
    pub(super) fn knows(&self, number: u64) -> bool {
        self.epochs.iter().any(|epoch| epoch.number == number)
    }

    /// Adds an epoch after the others.
    pub(super) fn add(&mut self, number: u64, uses: Uses) {
        let start = self.epochs.back().map_or(self.current, Epoch::end);
        self.epochs.push_back(Epoch { number, start, uses });
    }

    /// Call this when the blocks of a step are requested. The blocks of the `unread` steps before
    /// it may not be read yet. Returns how many steps are now over, and the blocks that they used.
    pub(super) fn go_on(&mut self, number: u64, step: u32, unread: u64) -> (u64, Vec<u32>) {
        let mut over = Vec::new();
        let Some(epoch) = self.epochs.iter().find(|epoch| epoch.number == number) else {
            return (0, over);
        };
        self.current = epoch.start + u64::from(step);
        let before = self.unread;
        self.unread = before.max(self.current.saturating_sub(unread));
        while let Some(first) = self.epochs.front() {
            let until = u32::try_from(self.unread.saturating_sub(first.start)).unwrap_or(u32::MAX);
            let remaining = &first.uses.by_step[self.cursor..];
            let passed = remaining.partition_point(|(step, _)| *step < until);
            over.extend(remaining[..passed].iter().map(|(_, block)| *block));
            self.cursor += passed;
            if first.end() > self.unread {
                break;
            }
            self.cursor = 0;
            self.epochs.pop_front();
        }
        (self.unread - before, over)
    }

    /// Number of steps until an existing block is needed, counted from the first step that may not
    /// have read its blocks. [`UNUSED`] if no use is known.
    pub(super) fn until(&self, block: u32) -> u64 {
        self.next(block, self.unread)
    }

    /// The same for a block that was just fetched for the current step: the number of steps until
    /// it is needed again.
    pub(super) fn until_again(&self, block: u32) -> u64 {
        self.next(block, self.current + 1)
    }

    fn next(&self, block: u32, from: u64) -> u64 {
        let next = self.epochs.iter().find_map(|epoch| epoch.next(block, from));
        next.map_or(UNUSED, |step| step - self.unread)
    }
}

/// No use is known.
pub(super) const UNUSED: u64 = u64::MAX;

/// Existing blocks, ordered by when they are needed. Entries may be out of date, so the time is
/// checked again before a block is dropped.
#[derive(Debug, Default)]
pub(super) struct Latest {
    heap: BinaryHeap<(u64, u32)>,
}

impl Latest {
    /// Records that a block is needed at a time.
    pub(super) fn note(&mut self, block: u32, when: u64) {
        self.heap.push((when, block));
    }

    /// Removes and returns the block that is needed last. `when` returns the current time at which
    /// a block is needed, or `None` if the block does not exist.
    pub(super) fn take(&mut self, when: impl Fn(u32) -> Option<u64>) -> Option<(u32, u64)> {
        while let Some((noted, block)) = self.heap.pop() {
            match when(block) {
                None => {}
                // It is needed sooner than recorded, so others may be needed later.
                Some(now) if now < noted => self.heap.push((now, block)),
                Some(now) => return Some((block, now)),
            }
        }
        None
    }

    /// Whether there are so many entries that most are out of date.
    pub(super) fn is_long(&self, present: usize) -> bool {
        self.heap.len() > 4 * present + 1024
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uses(steps: u32, wants: &[(u32, u32)]) -> Uses {
        let mut gathering = Gathering::new(steps, 100);
        for (step, block) in wants {
            gathering.want(*block, *step);
        }
        gathering.done().unwrap()
    }

    #[test]
    fn the_next_use_is_looked_for_in_this_epoch_and_the_next() {
        let mut expected = Expected::default();
        expected.add(7, uses(10, &[(0, 1), (3, 2), (5, 1)]));
        expected.add(8, uses(10, &[(2, 2), (9, 3)]));
        assert_eq!((expected.until(1), expected.until(2), expected.until(3)), (0, 3, 19));
        assert_eq!(expected.until_again(1), 5);
        assert_eq!(expected.until(4), UNUSED);
        assert_eq!(expected.go_on(7, 1, 0), (1, vec![1]));
        assert_eq!((expected.until(1), expected.until(2)), (4, 2));
        assert_eq!(expected.go_on(7, 6, 0), (5, vec![2, 1]));
        assert_eq!((expected.until(1), expected.until(2)), (UNUSED, 6));
        assert_eq!(expected.go_on(8, 0, 0), (4, vec![]));
        assert!(!expected.knows(7) && expected.knows(8));
        assert_eq!((expected.until(2), expected.until(3)), (2, 9));
        expected.add(9, uses(4, &[(1, 2)]));
        assert_eq!(expected.go_on(8, 9, 0), (9, vec![2]));
        assert_eq!(expected.until(2), 2);
    }

    #[test]
    fn requested_blocks_are_wanted_until_read() {
        let mut expected = Expected::default();
        expected.add(0, uses(4, &[(0, 1), (2, 2)]));
        expected.add(1, uses(4, &[(0, 2), (1, 1)]));
        assert_eq!(expected.go_on(0, 3, 3), (0, vec![]));
        assert_eq!((expected.until(1), expected.until_again(1)), (0, 5));
        assert_eq!(expected.go_on(1, 0, 3), (1, vec![1]));
        assert_eq!((expected.until(1), expected.until(2), expected.until_again(2)), (4, 1, UNUSED));
        assert_eq!(expected.go_on(1, 3, 3), (3, vec![2]));
        assert!(!expected.knows(0));
    }

    #[test]
    fn uses_near_each_other_count_as_one_and_too_many_as_none() {
        let mut gathering = Gathering::new(2560, 1);
        (0..2560).for_each(|step| gathering.want(0, step));
        assert_eq!(gathering.done().unwrap().by_step.len(), 233);
    }

    proptest! {
        #[test]
        fn the_one_taken_is_wanted_last(times in prop::collection::vec((0u64..50, 0u64..50, any::<bool>()), 1..40)) {
            let mut latest = Latest::default();
            for (block, (noted, now, _)) in times.iter().enumerate() {
                // A recorded time is never too early: if a block is needed later than recorded, it is recorded again.
                latest.note(block as u32, *noted);
                latest.note(block as u32, *now);
            }
            let when = |block: u32| {
                let (_, now, is_present) = times[block as usize];
                is_present.then_some(now)
            };
            let last = times.iter().filter(|(_, _, is_present)| *is_present).map(|(_, now, _)| *now).max();
            prop_assert_eq!(latest.take(when).map(|(_, now)| now), last);
        }
    }
}
