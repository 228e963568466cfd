//! The order in which an epoch's items come.

use hsipack_format::random::{Random, Stream};

/// How the items of an epoch are ordered; an item is a window of a sample.
// The numbers are part of a plan's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the order in which the samples were given, with a sample's windows one after another.
    Sequential = 0,
    /// All items shuffled together.
    Shuffled = 1,
    /// Samples drawn with replacement, each as often as its weight says. With a grid, any window of
    /// the sample may be drawn.
    Weighted = 2,
    /// Every class equally likely. The items of a class are not repeated until all of them have
    /// come.
    ClassBalanced = 3,
    /// The items of one group as far apart as possible, otherwise shuffled.
    GroupsSpread = 4,
    /// The groups shuffled; the items of a group come together, shuffled.
    GroupsTogether = 5,
}

hsipack_format::option_names!(Order, "order", {
    Sequential => "sequential",
    Shuffled => "shuffled",
    Weighted => "weighted",
    ClassBalanced => "class_balanced",
    GroupsSpread => "groups_spread",
    GroupsTogether => "groups_together",
});

impl Order {
    /// Whether samples are drawn with replacement.
    pub(super) fn has_replacement(self) -> bool {
        self == Self::Weighted
    }

    /// Whether the order of items does not matter, so that batches may be shuffled as well.
    pub(super) fn is_shuffled(self) -> bool {
        matches!(self, Self::Shuffled | Self::Weighted | Self::ClassBalanced)
    }
}

/// A compact item: 8 bytes, because an epoch may have millions. There may be even more windows: see
/// [`super::sequence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    /// The sample's place in the plan's list.
    pub sample: u32,
    /// Which item of the sample it is in this epoch.
    pub repeat: u32,
}

/// Inputs from which an order is drawn.
#[derive(Debug)]
pub(super) struct Pool {
    /// Number of items of every sample in a round.
    pub counts: Vec<u32>,
    /// Number of every sample's class or group, whichever the order uses; otherwise empty.
    pub strata: Vec<u32>,
    /// Number of classes or groups.
    pub strata_count: usize,
    /// Running sums of the weights; empty unless the order uses them.
    pub weights: Vec<f64>,
    /// Number of items in a round.
    pub items: usize,
}

impl Pool {
    /// Draws the `length` items of an epoch.
    pub(super) fn draw(&self, order: Order, seed: u64, epoch: u64, length: usize) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(length);
        match order {
            Order::Weighted => self.draw_weighted(seed, epoch, length, &mut entries),
            Order::ClassBalanced => self.draw_balanced(seed, epoch, length, &mut entries),
            _ => {
                for round in 0..length.div_ceil(self.items) {
                    let random = Random::keyed(Stream::Order, [seed, epoch, round as u64]);
                    entries.extend(self.round(order, round as u32, random));
                }
            }
        }
        entries.truncate(length);
        entries
    }

    /// One round: every item once.
    fn round(&self, order: Order, round: u32, mut random: Random) -> Vec<Entry> {
        let mut entries = self.entries(round);
        if order != Order::Sequential {
            random.shuffle(&mut entries);
        }
        match order {
            Order::GroupsTogether => {
                let mut ranks: Vec<u32> = (0..self.strata_count as u32).collect();
                random.shuffle(&mut ranks);
                entries.sort_by_key(|entry| ranks[self.stratum(entry)]);
                entries
            }
            Order::GroupsSpread => {
                entries.sort_by_key(|entry| self.stratum(entry));
                self.spread(&entries, &mut random)
            }
            _ => entries,
        }
    }

    fn entries(&self, round: u32) -> Vec<Entry> {
        let mut entries = Vec::with_capacity(self.items);
        for (sample, count) in self.counts.iter().enumerate() {
            let repeats = round * count..round * count + count;
            entries.extend(repeats.map(|repeat| Entry { sample: sample as u32, repeat }));
        }
        entries
    }

    fn stratum(&self, entry: &Entry) -> usize {
        self.strata[entry.sample as usize] as usize
    }

    /// Where the entries of every class or group start if sorted by it, and the end.
    fn strata_starts(&self) -> Vec<usize> {
        let mut starts = vec![0; self.strata_count + 1];
        for (stratum, count) in self.strata.iter().zip(&self.counts) {
            starts[*stratum as usize + 1] += *count as usize;
        }
        for stratum in 0..self.strata_count {
            starts[stratum + 1] += starts[stratum];
        }
        starts
    }

    fn draw_weighted(&self, seed: u64, epoch: u64, length: usize, entries: &mut Vec<Entry>) {
        let mut random = Random::keyed(Stream::Order, [seed, epoch, 0]);
        let total = self.weights.last().copied().unwrap_or_default();
        // If rounding made the number as large as the total, the last sample that has a weight is drawn.
        let last = self.weights.partition_point(|sum| *sum < total);
        let mut drawn = vec![0u32; self.weights.len()];
        for _ in 0..length {
            let number = random.unit() * total;
            let sample = self.weights.partition_point(|sum| *sum <= number).min(last);
            entries.push(Entry { sample: sample as u32, repeat: drawn[sample] });
            drawn[sample] += 1;
        }
    }

    fn draw_balanced(&self, seed: u64, epoch: u64, length: usize, entries: &mut Vec<Entry>) {
        let mut random = Random::keyed(Stream::Order, [seed, epoch, 0]);
        let mut pool = self.entries(0);
        pool.sort_by_key(|entry| self.stratum(entry));
        let starts = self.strata_starts();
        let mut drawn = vec![0usize; self.strata_count];
        for _ in 0..length {
            let class = random.below(self.strata_count as u64) as usize;
            let members = &mut pool[starts[class]..starts[class + 1]];
            let (round, position) = (drawn[class] / members.len(), drawn[class] % members.len());
            if position == 0 {
                let parts = [seed, epoch, class as u64, round as u64];
                Random::keyed(Stream::Class, parts).shuffle(members);
            }
            let Entry { sample, repeat } = members[position];
            let repeat = round as u32 * self.counts[sample as usize] + repeat;
            entries.push(Entry { sample, repeat });
            drawn[class] += 1;
        }
    }

    /// Spreads entries sorted by group.
    fn spread(&self, entries: &[Entry], random: &mut Random) -> Vec<Entry> {
        let starts = self.strata_starts();
        let sizes: Vec<usize> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut next = starts;
        let take = |group: u32| {
            let position = &mut next[group as usize];
            *position += 1;
            entries[*position - 1]
        };
        spread_groups(&sizes, random).into_iter().map(take).collect()
    }
}

/// A sequence in which group g comes `sizes[g]` times, at places that are far apart.
///
/// ```text
/// for every size, from the smallest: the groups of that size take turns, in a shuffled order,
///     and the sequence so far is laid evenly into the gaps between their turns
/// ```
/// The largest group is laid last and so gets the best possible distance. If all groups of up to m
/// items have n items together, two items of a group of m are at least n / m apart. Groups that are
/// laid later only add to this distance.
fn spread_groups(sizes: &[usize], random: &mut Random) -> Vec<u32> {
    let mut groups: Vec<u32> = (0..sizes.len() as u32).collect();
    random.shuffle(&mut groups);
    groups.sort_by_key(|group| sizes[*group as usize]);
    let mut sequence = Vec::new();
    for turn in groups.chunk_by(|a, b| sizes[*a as usize] == sizes[*b as usize]) {
        sequence = lay_between(&sequence, turn, sizes[turn[0] as usize], random);
    }
    sequence
}

/// `turn` repeated `times`, with `others` laid evenly between.
fn lay_between(others: &[u32], turn: &[u32], times: usize, random: &mut Random) -> Vec<u32> {
    let placed = turn.len() * times;
    let gaps = placed - 1;
    // The two ends together take at most the share of one gap, and nothing that would make the smallest gap smaller.
    let outside = match others.len().checked_rem(gaps) {
        Some(spare) => spare.min(others.len() / placed),
        None => others.len(),
    };
    let inside = (others.len() - outside) as u64;
    let head = random.below(outside as u64 + 1) as usize;
    let phase = random.below(gaps.max(1) as u64);
    // Number of others before the turn's item `n`: head, then `inside` divided over `gaps` in whole steps.
    let before = |n: usize| head + ((n as u64 * inside + phase) / gaps.max(1) as u64) as usize;
    let mut sequence = Vec::with_capacity(others.len() + placed);
    let mut laid = 0;
    for (n, group) in turn.iter().cycle().take(placed).enumerate() {
        sequence.extend(&others[laid..before(n)]);
        laid = before(n);
        sequence.push(*group);
    }
    sequence.extend(&others[laid..]);
    sequence
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    /// A pool of samples with these numbers of items and strata.
    fn pool(counts: &[u32], strata: &[u32]) -> Pool {
        Pool {
            counts: counts.to_vec(),
            strata: strata.to_vec(),
            strata_count: strata.iter().max().map_or(0, |last| *last as usize + 1),
            weights: Vec::new(),
            items: counts.iter().sum::<u32>() as usize,
        }
    }

    fn samples(entries: &[Entry]) -> Vec<u32> {
        entries.iter().map(|entry| entry.sample).collect()
    }

    fn all_distinct(entries: &[Entry]) -> bool {
        entries.iter().collect::<HashSet<_>>().len() == entries.len()
    }

    #[test]
    fn sequential_keeps_the_order() {
        let entries = pool(&[1, 2], &[]).draw(Order::Sequential, 0, 0, 5);
        let pairs: Vec<(u32, u32)> = entries.iter().map(|e| (e.sample, e.repeat)).collect();
        assert_eq!(pairs, [(0, 0), (1, 0), (1, 1), (0, 1), (1, 2)]);
    }

    #[test]
    fn shuffles_are_pinned() {
        let pool = pool(&[1; 10], &[]);
        assert_eq!(samples(&pool.draw(Order::Shuffled, 0, 0, 10)), PINNED_SHUFFLES[0]);
        assert_eq!(samples(&pool.draw(Order::Shuffled, 0, 1, 10)), PINNED_SHUFFLES[1]);
        assert_eq!(samples(&pool.draw(Order::Shuffled, 1, 0, 10)), PINNED_SHUFFLES[2]);
    }

    // Computed by an independent implementation in Python; never to be changed.
    const PINNED_SHUFFLES: [[u32; 10]; 3] = [
        [5, 0, 9, 4, 6, 1, 7, 8, 3, 2],
        [8, 6, 1, 2, 0, 9, 3, 7, 5, 4],
        [5, 9, 3, 2, 1, 0, 7, 6, 4, 8],
    ];

    #[test]
    fn other_orders_are_pinned() {
        let mut pool = pool(&[1; 8], &[0, 0, 0, 0, 1, 1, 2, 2]);
        pool.weights = vec![1.0, 1.0, 1.5, 2.0, 2.0, 5.0, 5.25, 9.0];
        let orders =
            [Order::Weighted, Order::ClassBalanced, Order::GroupsSpread, Order::GroupsTogether];
        for (order, pinned) in orders.into_iter().zip(PINNED_ORDERS) {
            assert_eq!(samples(&pool.draw(order, 5, 3, 8)), pinned, "{order:?}");
        }
    }

    const PINNED_ORDERS: [[u32; 8]; 4] = [
        [7, 5, 5, 7, 5, 0, 7, 7],
        [6, 0, 2, 7, 4, 1, 5, 7],
        [2, 4, 3, 7, 0, 5, 1, 6],
        [2, 3, 0, 1, 4, 5, 7, 6],
    ];

    #[test]
    fn every_place_is_equally_likely_for_every_item() {
        let (n, epochs) = (10usize, 5000);
        let pool = pool(&[1; 10], &[]);
        let mut counts = vec![0u32; n * n];
        for epoch in 0..epochs {
            for (position, sample) in
                samples(&pool.draw(Order::Shuffled, 3, epoch, n)).into_iter().enumerate()
            {
                counts[position * n + sample as usize] += 1;
            }
        }
        let expected = epochs as f64 / n as f64;
        let chi_square: f64 =
            counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert!(chi_square < 126.1, "{chi_square}"); // p = 0.001 at 81 = 9 x 9 degrees of freedom
    }

    #[test]
    fn neighbours_are_independent() {
        let n = 6;
        let pool = pool(&[1; 6], &[]);
        let mut counts = HashMap::new();
        for epoch in 0..6000 {
            let order = samples(&pool.draw(Order::Shuffled, 4, epoch, n));
            *counts.entry((order[2], order[3])).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 30);
        let chi_square: f64 =
            counts.values().map(|count| (f64::from(*count) - 200.0).powi(2) / 200.0).sum();
        assert!(chi_square < 58.3, "{chi_square}"); // p = 0.001 at 29 degrees of freedom
    }

    #[test]
    fn longer_epochs_are_rounds_newly_shuffled() {
        let entries = pool(&[1; 50], &[]).draw(Order::Shuffled, 0, 0, 120);
        let (first, remaining) = entries.split_at(50);
        let (second, third) = remaining.split_at(50);
        assert!([first, second, third].into_iter().all(all_distinct));
        assert_ne!(samples(first), samples(second));
        assert!(all_distinct(&entries));
        assert!(third.iter().all(|entry| entry.repeat == 2));
    }

    #[test]
    fn weights_say_how_often_samples_come() {
        let mut pool = pool(&[1; 5], &[]);
        pool.weights = vec![1.0, 1.0, 3.0, 3.0, 7.0]; // weights 1 0 2 0 4
        let length = 70_000;
        let entries = pool.draw(Order::Weighted, 9, 0, length);
        let mut counts = [0u32; 5];
        samples(&entries).into_iter().for_each(|sample| counts[sample as usize] += 1);
        assert!(counts[0].abs_diff(10_000) < 350, "{counts:?}");
        assert!(counts[2].abs_diff(20_000) < 450, "{counts:?}");
        assert_eq!((counts[1], counts[3]), (0, 0));
        assert!(all_distinct(&entries), "repeats tell items of a sample apart");
    }

    #[test]
    fn the_least_weights_draw_no_weightless_sample() {
        let mut pool = pool(&[1; 3], &[]);
        let least = f64::from_bits(1); // half of it and more is rounded up to it
        pool.weights = vec![0.0, least, least];
        assert!(samples(&pool.draw(Order::Weighted, 0, 0, 20)).iter().all(|sample| *sample == 1));
    }

    #[test]
    fn classes_come_equally_often_and_their_items_in_turn() {
        let strata = [0, 0, 0, 0, 0, 0, 0, 1, 2, 2];
        let entries =
            pool(&[2, 1, 1, 1, 1, 1, 1, 3, 1, 1], &strata).draw(Order::ClassBalanced, 1, 0, 30_000);
        let mut by_class = vec![Vec::new(); 3];
        for entry in &entries {
            by_class[strata[entry.sample as usize] as usize].push(*entry);
        }
        assert!(by_class.iter().all(|items| items.len().abs_diff(10_000) < 350));
        assert!(all_distinct(&entries));
        for (items, members) in by_class.iter().zip([8, 3, 2]) {
            for (round, turn) in items.chunks_exact(members).enumerate() {
                assert!(all_distinct(turn));
                let first_repeats = turn.iter().filter(|entry| entry.sample == 0).count();
                assert!(first_repeats == 0 || first_repeats == 2, "round {round}: {turn:?}");
            }
        }
    }

    #[test]
    fn groups_of_one_size_take_turns() {
        let strata: Vec<u32> = (0..40).map(|sample| sample % 8).collect();
        let order = samples(&pool(&[1; 40], &strata).draw(Order::GroupsSpread, 0, 0, 40));
        for turn in order.chunks(8) {
            let groups: HashSet<u32> = turn.iter().map(|sample| sample % 8).collect();
            assert_eq!(groups.len(), 8);
        }
        assert_ne!(order, samples(&pool(&[1; 40], &strata).draw(Order::GroupsSpread, 0, 1, 40)));
    }

    /// The least distance between two items of each group.
    fn distances(sequence: &[u32], groups: usize) -> Vec<usize> {
        let mut last = vec![None; groups];
        let mut least = vec![usize::MAX; groups];
        for (position, group) in sequence.iter().map(|group| *group as usize).enumerate() {
            if let Some(before) = last[group].replace(position) {
                least[group] = least[group].min(position - before);
            }
        }
        least
    }

    proptest! {
        #[test]
        fn groups_are_spread(sizes in prop::collection::vec(1usize..30, 1..12), seed: u64) {
            let mut random = Random::keyed(Stream::Order, [seed]);
            let sequence = spread_groups(&sizes, &mut random);
            for (group, size) in sizes.iter().enumerate() {
                let times = sequence.iter().filter(|g| **g as usize == group).count();
                prop_assert_eq!(times, *size);
            }
            let distances = distances(&sequence, sizes.len());
            for (group, size) in sizes.iter().enumerate() {
                let laid: usize = sizes.iter().filter(|other| *other <= size).sum();
                prop_assert!(distances[group] >= laid / size, "{:?} {:?}", sizes, sequence);
            }
            let largest = *sizes.iter().max().unwrap();
            let shared = sizes.iter().filter(|size| **size == largest).count();
            if shared == 1 && largest > 1 {
                let group = sizes.iter().position(|size| *size == largest).unwrap();
                let best = (sequence.len() - 1) / (largest - 1);
                prop_assert_eq!(distances[group], best);
            }
        }

        #[test]
        fn groups_stay_together(
            strata in prop::collection::vec(0u32..6, 1..60), seed: u64, epoch: u64
        ) {
            let mut distinct: Vec<u32> = strata.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let strata: Vec<u32> =
                strata.iter().map(|s| distinct.binary_search(s).unwrap() as u32).collect();
            let counts: Vec<u32> = (0..strata.len() as u32).map(|n| n % 3 + 1).collect();
            let pool = pool(&counts, &strata);
            let entries = pool.draw(Order::GroupsTogether, seed, epoch, pool.items);
            prop_assert!(all_distinct(&entries));
            let groups: Vec<usize> = entries.iter().map(|entry| pool.stratum(entry)).collect();
            let runs = groups.chunk_by(|a, b| a == b).count();
            prop_assert_eq!(runs, distinct.len());
        }
    }
}
