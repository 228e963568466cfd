//! Random numbers that never change between versions.
//!
//! A saved training state stores only the seed of an order, and a later version may resume from it.
//! So no number here may change, and no library is used that might change its random streams. The
//! generator is SplitMix64 (Steele, Lea & Flood 2014; public test vectors below). It starts from a
//! key that is computed from the purpose of the numbers. Bounded numbers use Lemire's method,
//! without bias.

/// SplitMix64's increment: the 64-bit fraction of the golden ratio, made odd.
const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The purpose of a stream of numbers. Streams with the same seed but different purposes are
/// independent.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Stream {
    /// The order of an epoch's items.
    Order = 1,
    /// The order of one class's items.
    Class = 2,
    /// The order of an epoch's batches.
    Batches = 3,
    /// The position of a random crop.
    Window = 4,
    /// Which window of a grid is taken.
    GridWindow = 5,
    /// Whether a sample is augmented, and how.
    Augment = 6,
    /// Which samples of a batch are mixed with each other.
    Mix = 7,
    /// The order of an epoch's listed windows.
    Windows = 8,
    /// Which class comes next, for windows around labelled pixels.
    Turns = 9,
    /// Which labelled pixels of a class are taken.
    PerClass = 10,
    /// The order of an epoch's blocks.
    Blocks = 13,
    /// The order of the windows of some blocks.
    InBlocks = 14,
    /// Which labelled pixels of a class belong to which split.
    SplitPixels = 11,
    /// The order in which blocks and regions are assigned to splits.
    SplitUnits = 12,
    /// The order in which the datasets of a loader give batches.
    PlanTurns = 15,
}

/// SplitMix64's finaliser: a bijection in which every bit of the input affects every bit of the
/// output.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Folds numbers into one number. The order matters.
pub fn fold(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, |key, part| mix(key.wrapping_add(GAMMA) ^ part))
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The random numbers for the purpose `stream` and the numbers it depends on, e.g. seed and
    /// epoch.
    pub fn keyed<const N: usize>(stream: Stream, parts: [u64; N]) -> Self {
        Self(fold(std::iter::once(stream as u64).chain(parts)))
    }

    /// The random numbers for a key that was already folded.
    pub fn from_key(key: u64) -> Self {
        Self(key)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// A number from 0 to `bound` - 1, all equally likely; `bound` is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0);
        let unfair = bound.wrapping_neg() % bound; // the lowest (2^64 mod bound) products would occur once too often
        loop {
            let product = u128::from(self.bits()) * u128::from(bound);
            if product as u64 >= unfair {
                return (product >> 64) as u64;
            }
        }
    }

    /// A number in [0, 1), a multiple of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// The Fisher–Yates shuffle: every order is equally likely.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        let mut random = Random(1_234_567);
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(published, std::array::from_fn(|_| random.bits()));
    }

    #[test]
    fn bounded_numbers_are_even_and_bounded() {
        let mut random = Random::keyed(Stream::Order, [1]);
        let mut counts = [0u32; 7];
        for _ in 0..70_000 {
            counts[random.below(7) as usize] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 400), "{counts:?}");
        assert_eq!(random.below(1), 0);
        assert!(random.below(u64::MAX) < u64::MAX);
    }

    #[test]
    fn large_bounds_are_even_too() {
        // Three quarters of 2^64: without the rejection, every third number would occur twice as often.
        let mut random = Random::keyed(Stream::Order, [3]);
        let thirds = (0..9000).filter(|_| random.below(3 << 62).is_multiple_of(3)).count();
        assert!(thirds.abs_diff(3000) < 150, "{thirds}");
    }

    #[test]
    fn unit_numbers_fill_the_unit_interval() {
        let mut random = Random::keyed(Stream::Order, [2]);
        let numbers: Vec<f64> = (0..10_000).map(|_| random.unit()).collect();
        assert!(numbers.iter().all(|number| (0.0..1.0).contains(number)));
        assert!((numbers.iter().sum::<f64>() / 10_000.0 - 0.5).abs() < 0.01);
    }

    #[test]
    fn streams_and_keys_differ() {
        let first = |mut random: Random| random.bits();
        let numbers = [
            first(Random::keyed(Stream::Order, [1, 2])),
            first(Random::keyed(Stream::Order, [2, 1])),
            first(Random::keyed(Stream::Class, [1, 2])),
            first(Random::keyed(Stream::Order, [1, 2, 0])),
        ];
        let distinct: std::collections::HashSet<_> = numbers.into_iter().collect();
        assert_eq!(distinct.len(), numbers.len());
    }
}
