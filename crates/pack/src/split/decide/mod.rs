//! Decides which labelled pixel belongs to which split. It uses no files and no threads. The same
//! masks, options and seed always give the same result.
//!
//! Masks are read twice, sample by sample and in the same order: first to count pixels
//! ([`Census`]), then to get the split of every pixel ([`Decision`]). Only one sample's mask has to
//! be in memory.
//!
//! | file | part |
//! |---|---|
//! | `shares.rs` | the shares that the user chose, and how many pixels of a class each split gets |
//! | `pixels.rs` | draws single pixels at random |
//! | `units.rs` | blocks and regions, which must not be divided |
//! | `balance.rs` | distributes units among splits so that the shares of all classes are met |
//! | `leak.rs` | pixels of other splits in patches around training pixels; the buffer |

mod balance;
mod leak;
mod pixels;
mod shares;
mod units;

use std::collections::BTreeMap;

use self::balance::Units;
pub use self::leak::{Seen, buffer, seen};
use self::pixels::Drawer;
pub use self::shares::{Share, Shares};
pub use self::units::By;
use self::units::UnitMap;

/// The split number of pixels that belong to no split.
pub const NONE: u8 = u8::MAX;

/// The class ids of one sample in (row, column) order; 0 is unlabelled.
#[derive(Clone, Copy, Debug)]
pub struct Map<'a> {
    /// Number of columns. The number of rows follows from the number of ids.
    pub columns: usize,
    /// The ids.
    pub ids: &'a [u16],
}

impl Map<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.ids.len().checked_div(self.columns).unwrap_or(0)
    }
}

/// Counts over the masks of all samples.
#[derive(Debug)]
pub struct Census {
    by: By,
    /// Number of pixels of each class.
    counts: BTreeMap<u16, u64>,
    /// Blocks or regions of all samples, one after the other.
    units: Units,
}

impl Census {
    /// A census of no samples yet.
    pub fn new(by: By) -> Self {
        Self { by, counts: BTreeMap::new(), units: Units::default() }
    }

    /// Counts the next sample.
    pub fn add(&mut self, map: Map<'_>) {
        for id in map.ids.iter().filter(|id| **id != 0) {
            *self.counts.entry(*id).or_default() += 1;
        }
        if let Some(units) = self.by.units(map) {
            self.units.add(map, &units);
        }
    }

    /// Number of labelled pixels of each class.
    pub fn counts(&self) -> &BTreeMap<u16, u64> {
        &self.counts
    }

    /// Number of blocks or regions that have labelled pixels; 0 if divided by pixels.
    pub fn units(&self) -> usize {
        self.units.labelled()
    }

    /// Decides which split each pixel or unit belongs to. `per_class` is the number of pixels of
    /// each class that the first split gets, instead of its share.
    pub fn decide(self, shares: &Shares, per_class: Option<u64>, seed: u64) -> Decision {
        let bins = |count| shares.of_class(count, per_class);
        let how = match self.by {
            By::Pixels => {
                let drawers = self.counts.iter();
                let drawers =
                    drawers.map(|(id, count)| (*id, Drawer::new(seed, *id, bins(*count))));
                How::Pixels(drawers.collect())
            }
            by => {
                let wanted = self.counts.iter().map(|(id, count)| (*id, bins(*count))).collect();
                let split_of = self.units.balance(&wanted, shares.splits(), seed);
                How::Units { by, split_of, next: 0 }
            }
        };
        Decision { how, splits: shares.splits() as u8 }
    }
}

/// The split of each sample; [`NONE`] for samples in no split. Samples of one unit stay together,
/// and the shares of all labels are met as closely as whole units allow.
pub fn split_of_samples(
    labels: &[u16],
    unit_of: &[u32],
    count: usize,
    shares: &Shares,
    seed: u64,
) -> Vec<u8> {
    // As if samples were the pixels of one mask: 0 is an unlabelled pixel.
    let ids: Vec<u16> = labels.iter().map(|label| label.saturating_add(1)).collect();
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    ids.iter().for_each(|id| *counts.entry(*id).or_default() += 1);
    let of_labels = shares.of_classes(counts.values().copied());
    let wanted = counts.keys().copied().zip(of_labels).collect();
    let map = Map { columns: ids.len().max(1), ids: &ids };
    let mut units = Units::default();
    units.add(map, &UnitMap { of_pixel: unit_of.to_vec(), count });
    let split_of = units.balance(&wanted, shares.splits(), seed);
    let split = |unit: &u32| split_of[*unit as usize];
    let in_a_split = |split: u8| if usize::from(split) < shares.splits() { split } else { NONE };
    unit_of.iter().map(split).map(in_a_split).collect()
}

/// Which split the pixels of each sample belong to.
#[derive(Debug)]
pub struct Decision {
    how: How,
    splits: u8,
}

#[derive(Debug)]
enum How {
    Pixels(BTreeMap<u16, Drawer>),
    Units {
        by: By,
        /// The split of each unit of all samples.
        split_of: Vec<u8>,
        /// Number of units in the samples before the next one.
        next: usize,
    },
}

impl Decision {
    /// The split of every pixel of the next sample; [`NONE`] for pixels that belong to no split.
    pub fn next(&mut self, map: Map<'_>) -> Vec<u8> {
        let none_from = self.splits;
        // Pixels that belong to no split have the number after the last split.
        let split = |bin: u8| if bin < none_from { bin } else { NONE };
        match &mut self.how {
            How::Pixels(drawers) => {
                let draw =
                    |id: &u16| drawers.get_mut(id).map_or(NONE, |drawer| split(drawer.next()));
                map.ids.iter().map(draw).collect()
            }
            How::Units { by, split_of, next } => {
                let units = by.units(map).unwrap_or_default();
                let unit_splits = &split_of[*next..*next + units.count];
                *next += units.count;
                let of = |(id, unit): (&u16, &u32)| match id {
                    0 => NONE,
                    _ => split(unit_splits[*unit as usize]),
                };
                map.ids.iter().zip(&units.of_pixel).map(of).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests;
