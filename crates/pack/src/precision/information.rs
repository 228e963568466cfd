//! The real information in each bit of packed values (Klöwer et al. 2021).
//!
//! A bit holds information about the scene if its value tells something about the same bit of the
//! neighbouring value. This is the mutual information of the two, in bits,
//!
//! ```text
//! I = Σ p(r,s) log2( p(r,s) / (p(r) p(s)) )      r, s ∈ {0, 1}
//! ```
//!
//! over all pairs of neighbours. Noise agrees with its neighbour only by chance, so I is near 0.
//! But chance alone gives a little information: if I is not above what two random bits in the same
//! number of pairs stay below with 99 % confidence, it counts as 0 (the paper's significance
//! filter, `set_zero_insignificant` of the authors' BitInformation.jl).
//!
//! Neighbours are values of the same band in adjacent columns. Neighbouring pixels see nearly the
//! same surface through other detector elements, so their noise is independent. Neighbouring bands
//! of one pixel share noise (illumination, resampling), which would look like information. In cubes
//! with one column, neighbours are adjacent rows.

use std::ops::{BitAnd, Shr};

use serde::{Deserialize, Serialize};

/// Share of the real information that the bits to keep must hold.
pub const SHARE: f64 = 0.99;
/// Confidence of the significance filter.
pub const CONFIDENCE: f64 = 0.99;
/// The 1 − (1 − [`CONFIDENCE`]) / 2 quantile of the standard normal distribution.
const QUANTILE: f64 = 2.575_829_303_548_900_4;

/// The bit pattern of a float.
trait Pattern: Copy + BitAnd<Output = Self> + Shr<u32, Output = Self> + PartialEq {
    const WIDTH: usize;
    const ZERO: Self;
    /// The exponent of NaN and infinity.
    const EXPONENT: Self;
    fn last_bit(self) -> u32;
}

impl Pattern for u16 {
    const WIDTH: usize = 16;
    const ZERO: Self = 0;
    const EXPONENT: Self = 0x7C00;
    fn last_bit(self) -> u32 {
        u32::from(self & 1)
    }
}

impl Pattern for u32 {
    const WIDTH: usize = 32;
    const ZERO: Self = 0;
    const EXPONENT: Self = 0x7F80_0000;
    fn last_bit(self) -> u32 {
        self & 1
    }
}

/// How often the bits of neighbours were set, for every bit. The most significant bit comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    pairs: u64,
    /// Number of pairs in which the bit is set in the first value, in the second, and in both.
    set: Vec<[u64; 3]>,
}

impl Counts {
    /// No pairs yet. `width` is the number of bits of a value: 16 for float16, 32 for float32.
    pub fn new(width: usize) -> Self {
        Self { pairs: 0, set: vec![[0; 3]; width] }
    }

    /// Adds whole rows of float16 bit patterns, in (row, column, band) order.
    pub fn add_f16(&mut self, rows: &[u16], columns: usize, bands: usize) {
        self.add_rows(rows, columns, bands);
    }

    /// Adds whole rows of float32 bit patterns, in (row, column, band) order.
    pub fn add_f32(&mut self, rows: &[u32], columns: usize, bands: usize) {
        self.add_rows(rows, columns, bands);
    }

    fn add_rows<T: Pattern>(&mut self, rows: &[T], columns: usize, bands: usize) {
        if bands == 0 || columns == 0 {
            return;
        }
        let row = if columns == 1 { rows.len().max(1) } else { columns * bands };
        for row in rows.chunks_exact(row) {
            let pairs = row.len() - bands.min(row.len());
            self.add(&row[..pairs], &row[row.len() - pairs..]);
        }
    }

    /// Adds pairs, but skips those with a value that is not finite.
    fn add<T: Pattern>(&mut self, first: &[T], second: &[T]) {
        // Small enough for the first-level cache, since the pass over each bit reads the block again.
        const BLOCK: usize = 2048;
        debug_assert_eq!(self.set.len(), T::WIDTH);
        let finite = |value: T| value & T::EXPONENT != T::EXPONENT;
        let (mut first_block, mut second_block) = ([T::ZERO; BLOCK], [T::ZERO; BLOCK]);
        for (first, second) in first.chunks(BLOCK).zip(second.chunks(BLOCK)) {
            let mut pairs = 0u32;
            for (at, (a, b)) in first.iter().zip(second).enumerate() {
                let are_finite = finite(*a) && finite(*b);
                pairs += u32::from(are_finite);
                // Zeros do not change the counts of set bits.
                first_block[at] = if are_finite { *a } else { T::ZERO };
                second_block[at] = if are_finite { *b } else { T::ZERO };
            }
            self.pairs += u64::from(pairs);
            let (first_block, second_block) =
                (&first_block[..first.len()], &second_block[..first.len()]);
            for (at, set) in self.set.iter_mut().enumerate() {
                let shift = (T::WIDTH - 1 - at) as u32;
                let mut counts = [0u32; 3];
                for (a, b) in first_block.iter().zip(second_block) {
                    counts[0] += (*a >> shift).last_bit();
                    counts[1] += (*b >> shift).last_bit();
                    counts[2] += ((*a & *b) >> shift).last_bit();
                }
                for (total, count) in set.iter_mut().zip(counts) {
                    *total += u64::from(count);
                }
            }
        }
    }

    /// Adds the counts of other pairs, whose values have the same width.
    pub fn merge(&mut self, other: &Counts) {
        self.pairs += other.pairs;
        for (all, part) in self.set.iter_mut().zip(&other.set) {
            all.iter_mut().zip(part).for_each(|(all, part)| *all += part);
        }
    }

    /// The information of each bit.
    pub fn information(&self) -> Information {
        let chance = chance(self.pairs);
        let bits = self.set.iter().map(|set| {
            let information = mutual_information(self.pairs, *set);
            if information <= chance { 0.0 } else { information }
        });
        Information { pairs: self.pairs, chance, bits: bits.collect() }
    }
}

/// Mutual information, in bits, of two bits. The counts say how often they were set in `pairs`
/// pairs.
fn mutual_information(pairs: u64, [first, second, both]: [u64; 3]) -> f64 {
    let n = pairs as f64;
    let term = |joint: u64, a: u64, b: u64| {
        if joint == 0 {
            0.0
        } else {
            joint as f64 / n * (joint as f64 * n / (a as f64 * b as f64)).log2()
        }
    };
    let neither = pairs + both - first - second;
    let sum = term(both, first, second)
        + term(first - both, first, pairs - second)
        + term(second - both, pairs - first, second)
        + term(neither, pairs - first, pairs - second);
    sum.max(0.0)
}

/// The limit that the information of random bits stays below with 99 % confidence: 1 minus the
/// entropy of a biased coin. Its bias is the largest that a fair coin shows with this confidence in
/// `pairs` throws.
fn chance(pairs: u64) -> f64 {
    if pairs == 0 {
        return 1.0;
    }
    let p = (0.5 + QUANTILE / (2.0 * (pairs as f64).sqrt())).min(1.0);
    let part = |p: f64| if p > 0.0 { -p * p.log2() } else { 0.0 };
    1.0 - part(p) - part(1.0 - p)
}

/// The real information in every bit of a type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Information {
    /// Pairs of neighbours that were compared.
    pub pairs: u64,
    /// Information that chance alone gives with 99 % confidence, in bits. Bits that are not above
    /// it count as 0.
    pub chance: f64,
    /// Information of each bit in bits, 0 to 1: sign, exponent, mantissa, the most significant
    /// first.
    pub bits: Vec<f64>,
}

impl Information {
    /// Information of all bits together, in bits per value.
    pub fn total(&self) -> f64 {
        self.bits.iter().sum()
    }

    /// Number of sign and exponent bits.
    pub fn leading(&self) -> usize {
        if self.bits.len() == 32 { 9 } else { 6 }
    }

    /// Information of the mantissa bits.
    pub fn mantissa(&self) -> &[f64] {
        &self.bits[self.leading()..]
    }

    /// Share of the information that remains if `kept` mantissa bits are kept, 0 to 1; 1 if there
    /// is no information at all.
    pub fn share(&self, kept: u8) -> f64 {
        let total = self.total();
        let end = self.bits.len().min(self.leading() + usize::from(kept));
        if total > 0.0 { self.bits[..end].iter().sum::<f64>() / total } else { 1.0 }
    }

    /// The smallest number of mantissa bits, at least 1, that keeps `share` of the information. If
    /// no bit has information, all bits are kept: there is no reason to drop any.
    pub fn bits_for(&self, share: f64) -> u8 {
        let all = self.mantissa().len() as u8;
        if self.total() == 0.0 {
            return all;
        }
        // Because of rounding, the sum of all bits may be less than the total.
        (1..all).find(|kept| self.share(*kept) >= share.min(1.0 - 1e-12)).unwrap_or(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use proptest::prelude::*;

    /// Computes the definition, pair by pair and bit by bit.
    fn oracle(pairs: &[(u16, u16)]) -> Vec<f64> {
        (0..16)
            .map(|bit| {
                let mut counts = [[0.0f64; 2]; 2];
                for (a, b) in pairs {
                    counts[usize::from(a >> (15 - bit) & 1)][usize::from(b >> (15 - bit) & 1)] +=
                        1.0;
                }
                let n = pairs.len() as f64;
                let mut sum = 0.0;
                for r in 0..2 {
                    for s in 0..2 {
                        let p = counts[r][s] / n;
                        let first = (counts[r][0] + counts[r][1]) / n;
                        let second = (counts[0][s] + counts[1][s]) / n;
                        if p > 0.0 {
                            sum += p * (p / (first * second)).log2();
                        }
                    }
                }
                sum
            })
            .collect()
    }

    fn finite(value: u16) -> bool {
        value & 0x7C00 != 0x7C00
    }

    proptest! {
        #[test]
        fn information_equals_its_definition(
            columns in 1usize..9, bands in 1usize..5, rows in 1usize..40, seed in any::<u64>(), mask in any::<u16>()
        ) {
            let mut state = seed | 1;
            let values: Vec<u16> = (0..rows * columns * bands)
                .map(|at| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    ((state >> 48) as u16 & mask) | (at as u16 & 0x3C0)
                })
                .collect();
            let mut counts = Counts::new(16);
            counts.add_f16(&values, columns, bands);
            let value = |y: usize, x: usize, b: usize| values[(y * columns + x) * bands + b];
            let mut pairs = Vec::new();
            for b in 0..bands {
                for y in 0..rows {
                    for x in 0..columns {
                        let next = if columns > 1 { (y, x + 1) } else { (y + 1, x) };
                        if next.0 < rows && next.1 < columns {
                            pairs.push((value(y, x, b), value(next.0, next.1, b)));
                        }
                    }
                }
            }
            pairs.retain(|(a, b)| finite(*a) && finite(*b));
            let information = counts.information();
            prop_assert_eq!(information.pairs, pairs.len() as u64);
            if !pairs.is_empty() {
                for (got, want) in information.bits.iter().zip(oracle(&pairs)) {
                    let want = if want <= information.chance { 0.0 } else { want };
                    prop_assert!((got - want).abs() < 1e-9, "{} {}", got, want);
                }
            }
        }

        #[test]
        fn more_bits_keep_more(bits in prop::collection::vec(0.0f64..1.0, 16), share in 0.01f64..1.0) {
            let information = Information { pairs: 1, chance: 0.0, bits };
            let kept = information.bits_for(share);
            prop_assert!((1..=10).contains(&kept));
            prop_assert!(kept == 10 || information.share(kept) >= share - 1e-9);
            prop_assert!(kept == 1 || information.share(kept - 1) < share);
        }
    }

    /// A ramp over columns whose mantissa bits below `clean` are random.
    fn noisy(clean: u32) -> Vec<u16> {
        let mut state = 1u64;
        (0..400 * 256)
            .map(|at| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let smooth = f16::from_f32(1.0 + (at % 256) as f32 / 256.0).to_bits();
                let noise = (1u16 << (10 - clean)) - 1;
                (smooth & !noise) | ((state >> 40) as u16 & noise)
            })
            .collect()
    }

    #[test]
    fn bits_of_noise_hold_nothing() {
        for clean in [3, 5, 8] {
            let mut counts = Counts::new(16);
            counts.add_f16(&noisy(clean), 256, 1);
            let information = counts.information();
            assert!(information.mantissa()[clean as usize..].iter().all(|bit| *bit == 0.0));
            assert!(information.mantissa()[clean as usize - 1] > 0.0);
            assert!(information.bits_for(SHARE) <= clean as u8);
        }
    }

    #[test]
    fn nothing_known_drops_nothing() {
        let mut counts = Counts::new(16);
        assert_eq!(counts.information().bits_for(SHARE), 10);
        counts.add_f16(&[0x3C00; 64], 8, 1);
        assert_eq!(counts.information().bits_for(SHARE), 10);
        counts.add_f16(&[0x7E00; 64], 8, 1);
        assert_eq!(counts.information().pairs, 56);
        counts.add_f16(&[], 8, 0);
        let mut wide = Counts::new(32);
        wide.add_f32(&[1.0f32.to_bits(); 64], 8, 1);
        assert_eq!(wide.information().bits_for(SHARE), 23);
    }

    #[test]
    fn chance_shrinks_with_the_number_of_pairs() {
        assert!((chance(100) - 0.048_404_48).abs() < 1e-8, "{}", chance(100));
        assert!(chance(1) == 1.0 && chance(1_000_000) < 5e-6);
    }
}
