//! Units that must not be divided when a mask is split: blocks of pixels, or regions of a class.

use std::fmt;
use std::str::FromStr;

use hsipack_format::names::{self, by_name};
use hsipack_format::{Error, Result};
use serde::{Deserialize, Deserializer};

use super::Map;
use crate::split::BLOCK;

/// Units that must not be divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Nothing: each pixel is drawn by itself.
    Pixels,
    /// Squares of this many rows and columns, counted from the first row and column of a sample.
    Blocks(usize),
    /// Pixels of one class that touch each other, also at corners.
    Regions,
    /// Whole samples.
    Samples,
    /// All samples of a group, such as a patient.
    Groups,
}

impl By {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pixels => "pixels",
            Self::Blocks(_) => "blocks",
            Self::Regions => "regions",
            Self::Samples => "samples",
            Self::Groups => "groups",
        }
    }

    /// Whether whole samples are divided, not the pixels of a mask.
    pub fn is_of_samples(self) -> bool {
        matches!(self, Self::Samples | Self::Groups)
    }

    /// The units of a sample; `None` if divided by pixels or whole samples.
    pub(super) fn units(self, map: Map<'_>) -> Option<UnitMap> {
        match self {
            Self::Pixels | Self::Samples | Self::Groups => None,
            Self::Blocks(side) => Some(blocks(map, side)),
            Self::Regions => Some(regions(map)),
        }
    }
}

impl FromStr for By {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let all = [Self::Pixels, Self::Blocks(BLOCK), Self::Regions, Self::Samples, Self::Groups];
        names::value("by", name, &all, Self::name)
    }
}

impl<'de> Deserialize<'de> for By {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        by_name::deserialize(from)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(side) => write!(f, "blocks of {side}x{side}"),
            by => f.write_str(by.name()),
        }
    }
}

/// The units of one sample.
#[derive(Debug, Default)]
pub struct UnitMap {
    /// The unit of every pixel; any number for unlabelled pixels.
    pub of_pixel: Vec<u32>,
    /// Number of units.
    pub count: usize,
}

fn blocks(map: Map<'_>, side: usize) -> UnitMap {
    let across = map.columns.div_ceil(side);
    let mut of_pixel = Vec::with_capacity(map.ids.len());
    for row in 0..map.rows() {
        let first = row / side * across;
        of_pixel.extend((0..map.columns).map(|column| (first + column / side) as u32));
    }
    UnitMap { of_pixel, count: map.rows().div_ceil(side) * across }
}

/// Finds regions and numbers them in the order of their first pixels. The first pass gives pixels
/// numbers and records which numbers of neighbours above and to the left belong to the same region.
/// The second pass gives each pixel the number of its region.
fn regions(map: Map<'_>) -> UnitMap {
    let columns = map.columns;
    let mut same = Same::default();
    let mut of_pixel = vec![u32::MAX; map.ids.len()];
    for (pixel, id) in map.ids.iter().enumerate().filter(|(_, id)| **id != 0) {
        let (row, column) = (pixel / columns, pixel % columns);
        let above = pixel.wrapping_sub(columns);
        let neighbours = [
            (column > 0, pixel.wrapping_sub(1)),
            (row > 0 && column > 0, above.wrapping_sub(1)),
            (row > 0, above),
            (row > 0 && column + 1 < columns, above.wrapping_add(1)),
        ];
        let mut label = None;
        for (_, other) in neighbours.into_iter().filter(|(is_there, _)| *is_there) {
            if map.ids[other] == *id {
                label =
                    Some(label.map_or(of_pixel[other], |label| same.join(label, of_pixel[other])));
            }
        }
        of_pixel[pixel] = label.unwrap_or_else(|| same.another());
    }
    let (numbers, count) = same.numbers();
    let labelled = of_pixel.iter_mut().filter(|number| **number != u32::MAX);
    labelled.for_each(|number| *number = numbers[*number as usize]);
    UnitMap { of_pixel, count }
}

/// Numbers, several of which may belong to the same region.
#[derive(Default)]
struct Same {
    /// A lower number of the same region, or the number itself.
    lesser: Vec<u32>,
}

impl Same {
    fn another(&mut self) -> u32 {
        self.lesser.push(self.lesser.len() as u32);
        self.lesser.len() as u32 - 1
    }

    /// The lowest known number of the region.
    fn least(&mut self, mut number: u32) -> u32 {
        while self.lesser[number as usize] != number {
            let lesser = self.lesser[number as usize];
            // Shortens the path for later calls.
            self.lesser[number as usize] = self.lesser[lesser as usize];
            number = lesser;
        }
        number
    }

    /// Records that two numbers belong to the same region, and returns the lower one.
    fn join(&mut self, a: u32, b: u32) -> u32 {
        let (a, b) = (self.least(a), self.least(b));
        let (least, more) = (a.min(b), a.max(b));
        self.lesser[more as usize] = least;
        least
    }

    /// The region of each number, counted from 0 without gaps, and the number of regions.
    fn numbers(mut self) -> (Vec<u32>, usize) {
        let mut regions = vec![0; self.lesser.len()];
        let mut count = 0;
        for number in 0..self.lesser.len() as u32 {
            let least = self.least(number);
            // Lower numbers already have their region.
            regions[number as usize] = if least == number {
                count += 1;
                count - 1
            } else {
                regions[least as usize]
            };
        }
        (regions, count as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Finds regions by flood filling, one after the other.
    fn filled(map: Map<'_>) -> (Vec<Option<u32>>, usize) {
        let (rows, columns) = (map.rows() as i64, map.columns as i64);
        let mut of_pixel = vec![None; map.ids.len()];
        let mut count = 0;
        for start in 0..map.ids.len() {
            if map.ids[start] == 0 || of_pixel[start].is_some() {
                continue;
            }
            let mut todo = vec![start];
            while let Some(pixel) = todo.pop() {
                if of_pixel[pixel].replace(count).is_some() {
                    continue;
                }
                let (row, column) = (pixel as i64 / columns, pixel as i64 % columns);
                for (down, right) in
                    (-1..2).flat_map(|down| (-1..2).map(move |right| (down, right)))
                {
                    let (row, column) = (row + down, column + right);
                    if (0..rows).contains(&row) && (0..columns).contains(&column) {
                        let next = (row * columns + column) as usize;
                        if map.ids[next] == map.ids[pixel] && of_pixel[next].is_none() {
                            todo.push(next);
                        }
                    }
                }
            }
            count += 1;
        }
        (of_pixel, count as usize)
    }

    proptest! {
        #[test]
        fn regions_are_those_that_filling_finds(columns in 1usize..12, ids in prop::collection::vec(0u16..3, 0..140)) {
            let ids = &ids[..ids.len() / columns * columns];
            let map = Map { columns, ids };
            let (want, count) = filled(map);
            let got = regions(map);
            prop_assert_eq!(got.count, count);
            for (pixel, want) in want.iter().enumerate() {
                if let Some(want) = want {
                    prop_assert_eq!(got.of_pixel[pixel], *want);
                }
            }
        }
    }

    #[test]
    fn blocks_are_cut_at_the_edges() {
        let map = Map { columns: 5, ids: &[1; 15] };
        let units = blocks(map, 2);
        assert_eq!(units.of_pixel, [0, 0, 1, 1, 2, 0, 0, 1, 1, 2, 3, 3, 4, 4, 5]);
        assert_eq!(units.count, 6);
    }
}
