//! Pixels of a sample, and their classes, in little memory.

use super::index_set::IndexSet;

/// The pixels of one sample that have a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pixels {
    /// Number of columns of the cube.
    pub columns: u32,
    /// Number of pixels of the cube.
    pub end: u32,
    /// The pixels, numbered row by row.
    pub set: IndexSet,
    /// The class of each pixel, as a number among all classes.
    pub class: Numbers,
}

/// Up to this many pixels, of all samples together, are held in lists (16 MB), which are faster.
pub(super) const MAX_LISTED_PIXELS: usize = 1 << 22;

/// Small numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Numbers {
    Narrow(Vec<u8>),
    Wide(Vec<u32>),
}

impl Numbers {
    pub(super) fn new(numbers: Vec<u32>) -> Self {
        let narrow: Option<Vec<u8>> =
            numbers.iter().map(|number| u8::try_from(*number).ok()).collect();
        narrow.map_or(Self::Wide(numbers), Self::Narrow)
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> u32 {
        match self {
            Self::Narrow(numbers) => u32::from(numbers[index]),
            Self::Wide(numbers) => numbers[index],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Narrow(numbers) => size_of_val(&numbers[..]),
            Self::Wide(numbers) => size_of_val(&numbers[..]),
        }
    }
}
