//! Finds out which pixels are labelled, for crops that should have a share of them.

use std::collections::VecDeque;
use std::ops::Range;

use super::options::OnDamage;
use super::reader::Reader;
use crate::decode::is_damage;
use crate::plan::{Item, Labelled, Window};
use crate::ring::slots::Failure;
use crate::{Error, Result};
use hsipack_format::{Command, Opt, remedy};

/// Reads masks when they are needed, and keeps the latest as one bit per pixel.
#[derive(Debug)]
pub(super) struct LabelledMasks<'a> {
    reader: &'a Reader,
    latest: VecDeque<Bits>,
    bytes: usize,
    /// Whether samples whose masks are damaged get any window, and are reported to be skipped.
    skips: bool,
    /// The samples of the batch being planned whose masks are damaged.
    damaged: VecDeque<(usize, Error)>,
}

/// The most bytes of bitmaps to keep.
const KEPT_BYTES: usize = 16 << 20;

/// One sample's labelled pixels, row by row, each row in whole words.
#[derive(Debug)]
struct Bits {
    sample: usize,
    words_a_row: usize,
    words: Vec<u64>,
}

impl<'a> LabelledMasks<'a> {
    pub(super) fn new(reader: &'a Reader) -> Self {
        let (latest, damaged) = (VecDeque::new(), VecDeque::new());
        Self { reader, latest, bytes: 0, skips: false, damaged }
    }

    /// For the batches that are delivered. If damaged samples are skipped, so are samples whose
    /// masks are damaged.
    pub(super) fn for_training(reader: &'a Reader) -> Self {
        let skips = reader.options.on_damage == OnDamage::Skip;
        Self { skips, ..Self::new(reader) }
    }

    /// Moves the damage of masks that was found while these items were planned into `failures`.
    pub(super) fn move_damage(&mut self, items: &[Item], failures: &mut Vec<Failure>) {
        for (position, item) in items.iter().enumerate() {
            // Each item asked once, in order.
            if self.damaged.front().is_some_and(|(sample, _)| *sample == item.sample) {
                let (_, error) = self.damaged.pop_front().expect("there is a first one");
                failures.push(Failure { position, error });
            }
        }
        self.damaged.clear();
    }

    /// The bitmap of a sample. It is the first in the list afterwards.
    fn bits(&mut self, sample: usize) -> Result<&Bits> {
        let index = self.latest.iter().position(|bits| bits.sample == sample);
        let bits = match index.and_then(|index| self.latest.remove(index)) {
            Some(bits) => bits,
            None => {
                let bits = self.read(sample)?;
                self.bytes += bits.words.len() * 8;
                bits
            }
        };
        self.latest.push_front(bits);
        while self.bytes > KEPT_BYTES && self.latest.len() > 1 {
            let oldest = self.latest.pop_back().expect("there are two");
            self.bytes -= oldest.words.len() * 8;
        }
        Ok(&self.latest[0])
    }

    /// A pixel is labelled if any of the loader's masks is not 0 there.
    fn read(&self, sample: usize) -> Result<Bits> {
        let Reader { dataset, masks, .. } = self.reader;
        if masks.is_empty() {
            return Err(Error::conflict(
                "crops with labelled pixels are requested, but there is no mask",
            )
            .at(dataset.path())
            .with_remedy(remedy![
                "pack masks with ",
                Command::Convert.with(Opt::Mask),
                ", or leave out ",
                Opt::MinLabelled
            ]));
        }
        let shape = dataset.image(dataset.stack_of(sample)?).shape();
        let words_a_row = shape.columns.div_ceil(64);
        let mut words = vec![0u64; words_a_row * shape.rows];
        for name in masks {
            let mask = dataset.mask(sample, name)?;
            let size = mask.dtype.size();
            for (row, words) in mask
                .bytes()
                .chunks_exact(shape.columns * size)
                .zip(words.chunks_exact_mut(words_a_row))
            {
                for (column, _) in row
                    .chunks_exact(size)
                    .enumerate()
                    .filter(|(_, value)| value.iter().any(|byte| *byte != 0))
                {
                    words[column / 64] |= 1 << (column % 64);
                }
            }
        }
        Ok(Bits { sample, words_a_row, words })
    }
}

impl Labelled for LabelledMasks<'_> {
    fn share(&mut self, sample: usize, window: Window) -> Result<f64> {
        let labelled = match self.bits(sample).map(|bits| bits.count(window)) {
            Ok(labelled) => labelled,
            Err(error) if self.skips && is_damage(&error) => {
                self.damaged.push_back((sample, error));
                return Ok(1.0);
            }
            Err(error) => return Err(error),
        };
        Ok(labelled as f64 / (f64::from(window.rows) * f64::from(window.columns)))
    }
}

impl Bits {
    /// Number of labelled pixels in a window.
    fn count(&self, window: Window) -> u64 {
        let (rows, Range { start: first, end }) = (window.row_range(), window.column_range());
        let in_row = |row: usize| -> u64 {
            let words = &self.words[row * self.words_a_row..][..self.words_a_row];
            let word = |index: usize| {
                let (low, high) =
                    (first.max(index * 64) % 64, end.min(index * 64 + 64) - index * 64);
                // Bits below `high`, from `low` on.
                (words[index] >> low << low << (64 - high)).count_ones()
            };
            (first / 64..end.div_ceil(64)).map(|index| u64::from(word(index))).sum()
        };
        rows.map(in_row).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn windows_count_as_pixel_by_pixel(
            rows in 1usize..6, columns in 1usize..200, seed: u64, at in any::<[prop::sample::Index; 4]>()
        ) {
            let words_a_row = columns.div_ceil(64);
            let mut state = seed;
            let mut words: Vec<u64> = (0..rows * words_a_row)
                .map(|_| { state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); state ^ (state >> 29) })
                .collect();
            // No pixels beyond the row's end.
            for row in words.chunks_exact_mut(words_a_row) {
                if columns % 64 != 0 { row[words_a_row - 1] &= (1 << (columns % 64)) - 1; }
            }
            let bits = Bits { sample: 0, words_a_row, words };
            let (row, column) = (at[0].index(rows), at[1].index(columns));
            let window = Window {
                row: row as i32,
                column: column as i32,
                rows: at[2].index(rows - row) as u32 + 1,
                columns: at[3].index(columns - column) as u32 + 1,
            };
            let is_set = |y: usize, x: usize| bits.words[y * words_a_row + x / 64] >> (x % 64) & 1;
            let want: u64 = (row..row + window.rows as usize)
                .flat_map(|y| (column..column + window.columns as usize).map(move |x| (y, x)))
                .map(|(y, x)| is_set(y, x))
                .sum();
            prop_assert_eq!(bits.count(window), want);
        }
    }
}
