//! SplitMix64 (Steele, Lea & Flood 2014): states that are [`GAMMA`] apart are mixed into random
//! numbers.

/// Step from one state to the next.
pub(crate) const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The random number of a state.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_generator() {
        // The first numbers of java.util.SplittableRandom's mixing for seed 0, as printed by its authors' C version.
        let numbers = [1, 2, 3].map(|index: u64| mix(GAMMA.wrapping_mul(index)));
        assert_eq!(numbers, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }
}
