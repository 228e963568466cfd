//! The resolution of an array beside the image of a cube.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Pixels of an array for pixels of the image, along each axis. One of both numbers is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ratio {
    finer: u32,
    coarser: u32,
}

impl Ratio {
    /// The array has the pixels of the image.
    pub const EQUAL: Self = Self { finer: 1, coarser: 1 };

    /// A ratio of `finer` pixels of the array to `coarser` pixels of the image; `None` unless both
    /// are above 0 and one of them is 1.
    pub fn new(finer: u32, coarser: u32) -> Option<Self> {
        let is_whole = finer.min(coarser) == 1;
        is_whole.then_some(Self { finer, coarser })
    }

    /// The ratio of an array of `size` rows and columns to an image of `image` rows and columns;
    /// `None` if it is not whole, or differs between rows and columns.
    pub fn of(size: [usize; 2], image: [usize; 2]) -> Option<Self> {
        if size.contains(&0) || image.contains(&0) {
            return None;
        }
        let [finer, coarser] = match size[0] >= image[0] {
            true => [size[0] / image[0], 1],
            false => [1, image[0] / size[0]],
        };
        let fits =
            (0..2).all(|axis| image[axis].checked_mul(finer) == size[axis].checked_mul(coarser));
        let [finer, coarser] = [finer, coarser].map(|number| u32::try_from(number).ok());
        Self::new(finer?, coarser?).filter(|_| fits)
    }

    /// Whether the array has the pixels of the image.
    pub fn is_same(self) -> bool {
        self == Self::EQUAL
    }

    /// Pixels of the array in each pixel of the image, along each axis; 1 if the array is coarser.
    pub fn finer(self) -> u32 {
        self.finer
    }

    /// Pixels of the image in each pixel of the array, along each axis; 1 if the array is finer.
    pub fn coarser(self) -> u32 {
        self.coarser
    }

    /// The ratio as a number: 2 if the array has twice as many rows and columns.
    pub fn factor(self) -> f64 {
        f64::from(self.finer) / f64::from(self.coarser)
    }

    /// The pixels of the array along an axis of `length` pixels of the image; `None` if they are
    /// not whole.
    pub fn length(self, length: usize) -> Option<usize> {
        let fine = length.checked_mul(self.finer as usize)?;
        fine.is_multiple_of(self.coarser as usize).then(|| fine / self.coarser as usize)
    }

    /// The first pixel of the array for a pixel of the image. The pixel of the image should begin
    /// with one of the array.
    pub fn start(self, start: i32) -> i32 {
        start.saturating_mul(self.finer as i32).div_euclid(self.coarser as i32)
    }

    /// The pixels of the array that pixels of the image lie in, along an axis on which the array
    /// has `length` pixels.
    pub fn cover(self, pixels: Range<usize>, length: usize) -> Range<usize> {
        let (finer, coarser) = (self.finer as usize, self.coarser as usize);
        let end = (pixels.end * finer).div_ceil(coarser).min(length);
        (pixels.start * finer / coarser).min(end)..end
    }
}

impl fmt::Display for Ratio {
    /// As `2` or `1/3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.coarser {
            1 => write!(f, "{}", self.finer),
            coarser => write!(f, "{}/{coarser}", self.finer),
        }
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.finer, self.coarser].serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let [finer, coarser] = <[u32; 2]>::deserialize(from)?;
        let error = || serde::de::Error::custom("a ratio has two whole numbers, one of them 1");
        Self::new(finer, coarser).ok_or_else(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_whole_and_alike_for_rows_and_columns() {
        let of = |size, image| Ratio::of(size, image).map(|ratio| ratio.to_string());
        for (size, image, ratio) in [
            ([6, 8], [6, 8], Some("1")),
            ([12, 16], [6, 8], Some("2")),
            ([2, 4], [6, 12], Some("1/3")),
            ([12, 8], [6, 8], None),
            ([9, 12], [6, 8], None),
            ([2, 3], [6, 8], None),
            ([0, 8], [6, 8], None),
            ([8, 6], [6, 8], None),
        ] {
            assert_eq!(of(size, image).as_deref(), ratio, "{size:?} {image:?}");
        }
    }

    #[test]
    fn pixels_are_those_of_the_same_ground() {
        let (fine, coarse) = (Ratio::new(2, 1).unwrap(), Ratio::new(1, 3).unwrap());
        assert_eq!((fine.start(-3), coarse.start(-3), coarse.start(6)), (-6, -1, 2));
        assert_eq!((fine.length(5), coarse.length(6), coarse.length(5)), (Some(10), Some(2), None));
        assert_eq!((fine.cover(1..3, 10), coarse.cover(2..4, 2)), (2..6, 0..2));
        assert_eq!(fine.cover(4..9, 10), 8..10);
        assert_eq!((Ratio::new(0, 1), Ratio::new(2, 3)), (None, None));
    }

    #[test]
    fn ratios_are_written_as_two_numbers() {
        let ratio: Ratio = serde_json::from_str("[1,3]").unwrap();
        assert_eq!(serde_json::to_string(&ratio).unwrap(), "[1,3]");
        assert!(serde_json::from_str::<Ratio>("[2,3]").is_err());
    }
}
