//! Draws single pixels of a class at random, in one pass.

use hsipack_format::random::{Random, Stream};

/// Distributes the pixels of one class among splits, one after the other. Each split gets a fixed
/// number of pixels, and every choice is equally likely (selection sampling, Knuth 3.4.2 S). It
/// stores only a few numbers, however many pixels there are.
#[derive(Debug)]
pub struct Drawer {
    random: Random,
    /// Number of pixels that each split still gets.
    wanted: Vec<u64>,
}

impl Drawer {
    /// For a class of which each split gets the number of pixels in `wanted`.
    pub fn new(seed: u64, class: u16, wanted: Vec<u64>) -> Self {
        let random = Random::keyed(Stream::SplitPixels, [seed, u64::from(class)]);
        Self { random, wanted }
    }

    /// The split of the next pixel.
    pub fn next(&mut self) -> u8 {
        let remaining: u64 = self.wanted.iter().sum();
        debug_assert!(remaining > 0, "more pixels than were counted");
        let mut drawn = self.random.below(remaining.max(1));
        for (split, wanted) in self.wanted.iter_mut().enumerate() {
            if drawn < *wanted {
                *wanted -= 1;
                return split as u8;
            }
            drawn -= *wanted;
        }
        super::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pixel_is_equally_likely_in_every_split() {
        let mut counts = [[0u32; 3]; 10];
        for seed in 0..6000 {
            let mut drawer = Drawer::new(seed, 3, vec![2, 3, 5]);
            for counts in &mut counts {
                counts[usize::from(drawer.next())] += 1;
            }
            assert_eq!(drawer.wanted, [0, 0, 0]);
        }
        for counts in counts {
            for (got, want) in counts.into_iter().zip([1200, 1800, 3000]) {
                assert!(got.abs_diff(want) < 170, "{counts:?}");
            }
        }
    }
}
