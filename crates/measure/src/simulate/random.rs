//! Independent random numbers for each purpose.
//!
//! The load time of a batch depends only on the seed and the batch, not on earlier draws. So runs
//! that are compared have the same slow batches, and they differ only because of the change. The
//! mixing is that of SplitMix64 (Steele, Lea & Flood 2014).

use crate::random::{GAMMA, mix};

/// The purpose of a random number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    Load = 1,
    Step = 2,
    Copy = 3,
    Decode = 4,
}

/// Two independent numbers between 0 and 1, both excluded.
pub(super) fn pair(seed: u64, what: Use, number: u64) -> [f64; 2] {
    let key = mix(mix(seed.wrapping_add(GAMMA)) ^ (what as u64).wrapping_mul(GAMMA));
    let first = key.wrapping_add(number.wrapping_mul(2).wrapping_mul(GAMMA));
    [first, first.wrapping_add(GAMMA)]
        .map(|state| ((mix(state) >> 12) as f64 + 0.5) / (1u64 << 52) as f64)
}

/// A number from the standard normal distribution (Box and Muller).
pub(super) fn normal([first, second]: [f64; 2]) -> f64 {
    (-2.0 * first.ln()).sqrt() * (std::f64::consts::TAU * second).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_even_and_normal() {
        let pairs: Vec<_> = (0..100_000).map(|number| pair(7, Use::Load, number)).collect();
        let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / 100_000.0;
        assert!((mean(&mut pairs.iter().map(|[a, _]| *a)) - 0.5).abs() < 0.005);
        assert!((mean(&mut pairs.iter().map(|[a, b]| a * b)) - 0.25).abs() < 0.005, "independent");
        assert!(mean(&mut pairs.iter().map(|pair| normal(*pair))).abs() < 0.015);
        assert!((mean(&mut pairs.iter().map(|pair| normal(*pair).powi(2))) - 1.0).abs() < 0.02);
        assert_ne!(pair(7, Use::Load, 0), pair(7, Use::Step, 0));
        assert_ne!(pair(7, Use::Load, 0), pair(8, Use::Load, 0));
    }
}
