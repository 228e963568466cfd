//! The items of several plans in one order, in which any run of items has every plan in proportion.
//!
//! An epoch lasts from time 0 to 1. The item with number `j` among the `n` items of a plan is at
//! the time `(j + phase) / n`, and items come in the order of their times. The phase, from 0 to 1,
//! is drawn for each plan and epoch. So how many items of each plan come before a position is
//! computed, and nothing is listed.

use std::cmp::Ordering;

/// Numbers of items of several plans, and the order in which they come.
#[derive(Clone, Debug)]
pub(super) struct Interleaved {
    plans: Vec<Timing>,
    items: usize,
}

/// The times of a plan's items.
#[derive(Clone, Copy, Debug)]
struct Timing {
    items: usize,
    phase: f64,
}

impl Timing {
    fn time(self, item: usize) -> f64 {
        (item as f64 + self.phase) / self.items as f64
    }

    /// Number of items before a time.
    fn before(self, time: f64) -> usize {
        let guess = (time * self.items as f64 - self.phase).ceil().max(0.0) as usize;
        let mut count = guess.min(self.items);
        // The guess may be rounded the other way than the times.
        while count > 0 && self.time(count - 1) >= time {
            count -= 1;
        }
        while count < self.items && self.time(count) < time {
            count += 1;
        }
        count
    }
}

impl Interleaved {
    /// The order for plans with these numbers of items and phases.
    pub(super) fn new(plans: impl Iterator<Item = (usize, f64)>) -> Self {
        let plans: Vec<Timing> = plans.map(|(items, phase)| Timing { items, phase }).collect();
        let items = plans.iter().map(|plan| plan.items).sum();
        Self { plans, items }
    }

    /// Number of items of all plans.
    pub(super) fn items(&self) -> usize {
        self.items
    }

    /// Number of items of each plan among the first `position` items.
    pub(super) fn counts(&self, position: usize) -> Vec<usize> {
        let position = position.min(self.items);
        // A plan has less than one item more before a time than its fraction of the epoch. One is for rounding.
        let surely_before = position.saturating_sub(self.plans.len() + 1);
        let time = surely_before as f64 / self.items.max(1) as f64;
        let mut counts: Vec<usize> = self.plans.iter().map(|plan| plan.before(time)).collect();
        let found: usize = counts.iter().sum();
        for _ in found..position {
            if let Some(next) = self.next(&counts) {
                counts[next] += 1;
            }
        }
        counts
    }

    /// The plan of the next item after these.
    fn next(&self, counts: &[usize]) -> Option<usize> {
        let times = self.plans.iter().zip(counts).enumerate();
        let unfinished = times.filter(|(_, (plan, count))| **count < plan.items);
        let times = unfinished.map(|(number, (plan, count))| (plan.time(*count), number));
        let order = |a: &(f64, usize), b: &(f64, usize)| -> Ordering {
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        };
        times.min_by(order).map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The counts are those of the sorted list of all times, and every run has every plan in
        /// proportion.
        #[test]
        fn counts_are_those_of_the_sorted_times(
            plans in prop::collection::vec((1usize..60, 0.0..1.0f64), 1..5),
            ends in any::<[prop::sample::Index; 2]>(),
        ) {
            let order = Interleaved::new(plans.iter().copied());
            let mut listed = Vec::new();
            for (number, (items, phase)) in plans.iter().enumerate() {
                let time = |item| (item as f64 + phase) / *items as f64;
                listed.extend((0..*items).map(|item| (time(item), number)));
            }
            listed.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            prop_assert_eq!(order.items(), listed.len());
            let mut counts = vec![0; plans.len()];
            for (position, (_, plan)) in listed.iter().enumerate() {
                prop_assert_eq!(&order.counts(position), &counts);
                counts[*plan] += 1;
            }
            prop_assert_eq!(&order.counts(listed.len() + 7), &counts);

            let mut ends = ends.map(|end| end.index(listed.len() + 1));
            ends.sort_unstable();
            let [before, after] = ends.map(|end| order.counts(end));
            for (plan, (items, _)) in plans.iter().enumerate() {
                let exact = (ends[1] - ends[0]) as f64 * *items as f64 / listed.len() as f64;
                let drawn = (after[plan] - before[plan]) as f64;
                // Of two plans, a run has the next whole number of items below or above.
                let bound = (plans.len() as f64 - 1.0).max(1.0);
                prop_assert!((drawn - exact).abs() < bound + 1e-9, "{} of {}", drawn, exact);
            }
        }
    }

    #[test]
    fn hundred_million_items_are_not_listed() {
        let order = Interleaved::new([(70_000_000, 0.3), (30_000_000, 0.9)].into_iter());
        for position in [0, 1, 99, 54_321_987, 99_999_999, 100_000_000] {
            let counts = order.counts(position);
            assert_eq!(counts.iter().sum::<usize>(), position);
            assert!((counts[0] as f64 - 0.7 * position as f64).abs() < 1.0, "{counts:?}");
        }
    }
}
