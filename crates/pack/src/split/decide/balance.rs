//! Distributes units (blocks or regions) among splits so that every split gets its share of every
//! class, as closely as whole units allow.
//!
//! 1. Units are shuffled. Class by class, beginning with the rarest, each unit goes to the split
//!    that lacks the most pixels of that class. If several lack the same number, it goes to the one
//!    that lacks the most pixels of all classes.
//! 2. Then single units are moved, repeatedly and in the same order, as long as a move lowers the
//!    error. The error is the sum over all classes and splits of the difference between the share
//!    that a split has and the share it should have. All classes have the same weight. The error
//!    grows by 1, as much as a whole class, for each split that should have pixels of a class and
//!    has none.
//!
//! The first step is iterative stratification (Sechidis, Tsoumakas & Vlahavas 2011) with pixels
//! instead of labels. Its result depends on which units happen to come last. The second step
//! corrects this, and makes sure that a class with few units reaches every split first.

use std::collections::BTreeMap;

use hsipack_format::random::{Random, Stream};

use super::units::UnitMap;
use super::{Map, NONE};

/// The pixels of each unit, by class.
#[derive(Debug, Default)]
pub struct Units {
    /// Where the entries of each unit end.
    ends: Vec<usize>,
    /// Class and number of pixels, unit by unit.
    entries: Vec<(u16, u32)>,
    labelled: usize,
}

impl Units {
    /// Adds the units of the next sample.
    pub fn add(&mut self, map: Map<'_>, units: &UnitMap) {
        let mut counts: BTreeMap<(u32, u16), u32> = BTreeMap::new();
        let mut run: Option<((u32, u16), u32)> = None;
        let mut note = |(key, pixels): ((u32, u16), u32)| *counts.entry(key).or_default() += pixels;
        for (id, unit) in map.ids.iter().zip(&units.of_pixel).filter(|(id, _)| **id != 0) {
            // Pixels of one unit and class come in runs.
            match &mut run {
                Some((key, pixels)) if *key == (*unit, *id) => *pixels += 1,
                _ => {
                    if let Some(run) = run.replace(((*unit, *id), 1)) {
                        note(run);
                    }
                }
            }
        }
        if let Some(run) = run {
            note(run);
        }
        let mut counts = counts.into_iter().peekable();
        for unit in 0..units.count as u32 {
            let before = self.entries.len();
            while let Some(((_, class), pixels)) = counts.next_if(|((of, _), _)| *of == unit) {
                self.entries.push((class, pixels));
            }
            self.labelled += usize::from(self.entries.len() > before);
            self.ends.push(self.entries.len());
        }
    }

    /// Number of units that contain a labelled pixel.
    pub fn labelled(&self) -> usize {
        self.labelled
    }

    fn entries(&self, unit: usize) -> &[(u16, u32)] {
        let start = if unit == 0 { 0 } else { self.ends[unit - 1] };
        &self.entries[start..self.ends[unit]]
    }

    /// The split of every unit. `wanted` has, for each class, the number of pixels that each of the
    /// `splits` splits should get, followed by the number that should belong to no split.
    pub fn balance(&self, wanted: &BTreeMap<u16, Vec<u64>>, splits: usize, seed: u64) -> Vec<u8> {
        let mut order: Vec<usize> = (0..self.ends.len()).collect();
        Random::keyed(Stream::SplitUnits, [seed]).shuffle(&mut order);
        order.retain(|unit| !self.entries(*unit).is_empty());
        let mut balance = Balance::new(self, wanted, splits);
        balance.give(&order);
        balance.improve(&order);
        balance.split_of
    }
}

/// Units while they are distributed.
struct Balance<'a> {
    units: &'a Units,
    /// The index of each class.
    numbers: BTreeMap<u16, usize>,
    /// Number of pixels of each class.
    totals: Vec<f64>,
    /// For each class, the number of pixels that each split lacks; negative if it has too many.
    lacking: Vec<Vec<i64>>,
    wanted: Vec<Vec<u64>>,
    splits: usize,
    /// Splits that a unit may go to. "No split" is one of them only if some pixels should belong to
    /// none.
    open: Vec<usize>,
    split_of: Vec<u8>,
}

/// The most rounds in which all units are tried in other splits. A few rounds are usually enough.
const ROUNDS: usize = 50;
/// A move that gains less than this is a rounding error.
const GAIN: f64 = 1e-9;

impl<'a> Balance<'a> {
    fn new(units: &'a Units, wanted: &BTreeMap<u16, Vec<u64>>, splits: usize) -> Self {
        let numbers = wanted.keys().enumerate().map(|(number, class)| (*class, number)).collect();
        let wanted: Vec<Vec<u64>> = wanted.values().cloned().collect();
        let is_open = |split: &usize| wanted.iter().any(|class| class[*split] > 0);
        Self {
            units,
            numbers,
            totals: wanted.iter().map(|class| class.iter().sum::<u64>() as f64).collect(),
            lacking: wanted
                .iter()
                .map(|class| class.iter().map(|pixels| *pixels as i64).collect())
                .collect(),
            open: (0..=splits).filter(is_open).collect(),
            wanted,
            splits,
            split_of: vec![NONE; units.ends.len()],
        }
    }

    /// The first step.
    fn give(&mut self, order: &[usize]) {
        let mut classes: Vec<(u16, usize)> = self.numbers.iter().map(|(id, n)| (*id, *n)).collect();
        classes.sort_by(|a, b| self.totals[a.1].total_cmp(&self.totals[b.1]));
        let mut holders: Vec<Vec<usize>> = vec![Vec::new(); classes.len()];
        for unit in order {
            for (class, _) in self.units.entries(*unit) {
                holders[self.numbers[class]].push(*unit);
            }
        }
        let mut overall: Vec<i64> = (0..=self.splits)
            .map(|split| self.lacking.iter().map(|class| class[split]).sum())
            .collect();
        let mut visited = vec![false; self.split_of.len()];
        for (_, class) in classes {
            for unit in std::mem::take(&mut holders[class]) {
                if std::mem::replace(&mut visited[unit], true) {
                    continue;
                }
                let lacks = |split: &&usize| {
                    let first = std::cmp::Reverse(**split);
                    (self.lacking[class][**split], overall[**split], first)
                };
                let Some(split) = self.open.iter().max_by_key(lacks).copied() else { continue };
                self.split_of[unit] = split as u8;
                for (class, pixels) in self.units.entries(unit) {
                    self.lacking[self.numbers[class]][split] -= i64::from(*pixels);
                    overall[split] -= i64::from(*pixels);
                }
            }
        }
    }

    /// The second step.
    fn improve(&mut self, order: &[usize]) {
        for _ in 0..ROUNDS {
            let mut moved = false;
            for unit in order {
                let from = usize::from(self.split_of[*unit]);
                let mut best = (-GAIN, from);
                for to in self.open.iter().copied().filter(|to| *to != from) {
                    let change = self.change(*unit, from, to);
                    if change < best.0 {
                        best = (change, to);
                    }
                }
                let to = best.1;
                if to == from {
                    continue;
                }
                moved = true;
                self.split_of[*unit] = to as u8;
                for (class, pixels) in self.units.entries(*unit) {
                    let lacking = &mut self.lacking[self.numbers[class]];
                    lacking[from] += i64::from(*pixels);
                    lacking[to] -= i64::from(*pixels);
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// The change of the error if a unit is moved.
    fn change(&self, unit: usize, from: usize, to: usize) -> f64 {
        let of_class = |(class, pixels): &(u16, u32)| {
            let (class, pixels) = (self.numbers[class], i64::from(*pixels));
            let lacking = &self.lacking[class];
            self.error(class, from, lacking[from] + pixels) - self.error(class, from, lacking[from])
                + self.error(class, to, lacking[to] - pixels)
                - self.error(class, to, lacking[to])
        };
        self.units.entries(unit).iter().map(of_class).sum()
    }

    /// The error of a split in a class of which it lacks `lacking` pixels.
    fn error(&self, class: usize, split: usize, lacking: i64) -> f64 {
        let wanted = self.wanted[class][split] as i64;
        let has_none = split < self.splits && wanted > 0 && lacking == wanted;
        lacking.abs() as f64 / self.totals[class] + f64::from(u8::from(has_none))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Units that each come from a sample of their own, given as classes and numbers of pixels.
    fn units(all: &[Vec<(u16, u32)>]) -> Units {
        let mut units = Units::default();
        for unit in all {
            let ids: Vec<u16> =
                unit.iter().flat_map(|(class, pixels)| vec![*class; *pixels as usize]).collect();
            let of_pixel = vec![0; ids.len()];
            units
                .add(Map { columns: ids.len().max(1), ids: &ids }, &UnitMap { of_pixel, count: 1 });
        }
        units
    }

    fn has(all: &[Vec<(u16, u32)>], split_of: &[u8], class: u16, split: u8) -> u64 {
        let in_split = all.iter().zip(split_of).filter(|(_, of)| **of == split);
        in_split
            .flat_map(|(unit, _)| unit)
            .filter(|(id, _)| *id == class)
            .map(|(_, n)| u64::from(*n))
            .sum()
    }

    #[test]
    fn equal_units_meet_the_shares_exactly() {
        let all: Vec<Vec<(u16, u32)>> = (0..20).map(|unit| vec![(1 + unit / 10, 7)]).collect();
        let wanted = BTreeMap::from([(1, vec![7, 14, 49, 0]), (2, vec![7, 14, 49, 0])]);
        let split_of = units(&all).balance(&wanted, 3, 5);
        for (class, wanted) in &wanted {
            for (split, wanted) in wanted[..3].iter().enumerate() {
                assert_eq!(has(&all, &split_of, *class, split as u8), *wanted);
            }
        }
        assert_ne!(split_of, units(&all).balance(&wanted, 3, 6));
    }

    #[test]
    fn classes_of_few_units_come_into_every_split_first() {
        let all = vec![vec![(1, 100)], vec![(1, 100)], vec![(1, 100)], vec![]];
        let wanted = BTreeMap::from([(1, vec![30, 30, 240, 0])]);
        let split_of = units(&all).balance(&wanted, 3, 0);
        let mut sorted = split_of[..3].to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
        assert_eq!(split_of[3], NONE);
    }

    #[test]
    fn classes_without_a_share_stay_out() {
        let all: Vec<Vec<(u16, u32)>> = vec![vec![(1, 10)]; 10];
        let wanted = BTreeMap::from([(1, vec![20, 30, 50])]);
        let split_of = units(&all).balance(&wanted, 2, 0);
        assert_eq!(split_of.iter().filter(|split| **split == 2).count(), 5);
    }

    proptest! {
        /// Moving any single unit does not lower the error, which is computed from scratch here.
        #[test]
        fn no_move_of_one_unit_is_better(
            all in prop::collection::vec(prop::collection::btree_map(1u16..5, 1u32..40, 0..4), 1..25),
            seed in any::<u64>(),
        ) {
            let all: Vec<Vec<(u16, u32)>> = all.into_iter().map(|unit| unit.into_iter().collect()).collect();
            let mut totals: BTreeMap<u16, u64> = BTreeMap::new();
            for (class, pixels) in all.iter().flatten() {
                *totals.entry(*class).or_default() += u64::from(*pixels);
            }
            let shares: super::super::Shares = "a=0.2,b=0.3,c=rest".parse().unwrap();
            let wanted: BTreeMap<_, _> = totals.iter().map(|(id, n)| (*id, shares.of_class(*n, None))).collect();
            let split_of = units(&all).balance(&wanted, 3, seed);
            prop_assert_eq!(&split_of, &units(&all).balance(&wanted, 3, seed));
            let error = |split_of: &[u8]| {
                let of = |(class, wanted): (&u16, &Vec<u64>)| (0..3u8).map(|split| {
                    let (has, wanted) = (has(&all, split_of, *class, split), wanted[usize::from(split)]);
                    has.abs_diff(wanted) as f64 / totals[class] as f64 + f64::from(u8::from(wanted > 0 && has == 0))
                }).sum::<f64>();
                wanted.iter().map(of).sum::<f64>()
            };
            let least = error(&split_of);
            for unit in 0..all.len() {
                prop_assert_eq!(split_of[unit] == NONE, all[unit].is_empty());
                for split in 0..3 {
                    let mut other = split_of.clone();
                    if other[unit] != NONE {
                        other[unit] = split;
                    }
                    prop_assert!(error(&other) > least - 1e-6);
                }
            }
        }
    }
}
