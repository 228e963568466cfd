//! Which pixels of a window are shown.

use hsipack_format::{CubeShape, Ratio, Result};
use hsipack_pack::physical::Cube;
use hsipack_pack::preview::Sampling;

use crate::query::{Query, Window};

/// Maximum number of rows and of columns in an answer.
pub const MAX_SIDE: usize = 2048;
/// Default number of rows and of columns.
pub const USUAL: usize = 1024;
/// Maximum number of bytes of values to hold of all cubes. A cube of 480 × 640 × 100 fits.
pub const MAX_CACHED_BYTES: usize = 128 << 20;

/// The requested number of rows and columns.
///
/// # Errors
/// If it is not a number, or too large.
pub fn side(query: &Query) -> Result<usize> {
    Ok(query.number("side", USUAL, MAX_SIDE)?.max(1))
}

/// The rows and columns of a cube to hold in memory while it is shown: all of them if they fit.
pub fn held(shape: CubeShape) -> Sampling {
    let fit = (MAX_CACHED_BYTES / (4 * shape.bands.max(1))).max(1);
    if shape.rows.saturating_mul(shape.columns) <= fit {
        return Sampling::new(shape.rows, shape.columns, usize::MAX);
    }
    let (short, long) = (shape.rows.min(shape.columns), shape.rows.max(shape.columns));
    // side × (side × short / long) pixels fit.
    let side = (fit as f64 * long as f64 / short as f64).sqrt() as usize;
    Sampling::new(shape.rows, shape.columns, side.clamp(1, USUAL))
}

/// Whether the whole cube is held.
pub fn is_whole(shape: CubeShape, held: &Sampling) -> bool {
    held.rows.len() == shape.rows && held.columns.len() == shape.columns
}

/// The pixels of an answer: at most `side` rows and columns of `window`, evenly spread. If the
/// window is the whole cube, the cube is too large to be held as a whole, and its bands are not
/// cheap to read, these are the pixels that are held.
pub fn shown(cube: &Cube, window: &Window, side: usize) -> Sampling {
    let shape = cube.shape;
    if *window == Window::whole(shape) && !cube.has_cheap_bands() {
        let held = held(shape);
        if !is_whole(shape, &held) && held.rows.len().max(held.columns.len()) <= side {
            return held;
        }
    }
    let mut sampling = Sampling::new(window.rows.len(), window.columns.len(), side);
    sampling.rows.iter_mut().for_each(|row| *row += window.rows.start);
    sampling.columns.iter_mut().for_each(|column| *column += window.columns.start);
    sampling
}

/// For each row (or column) of an array of this ratio, the row of the image that has its centre.
/// The image has `length` rows.
pub fn of_image(ratio: Ratio, rows: &[usize], length: usize) -> Vec<usize> {
    let (finer, coarser) = (ratio.finer() as usize, ratio.coarser() as usize);
    let centre = |row: &usize| (row * coarser + coarser / 2) / finer;
    rows.iter().map(|row| centre(row).min(length - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_of_arrays_have_their_centre_in_one_of_the_image() {
        let rows = |finer, coarser, length| {
            of_image(Ratio::new(finer, coarser).unwrap(), &[0, 1, 2, 3], length)
        };
        assert_eq!(rows(1, 1, 4), [0, 1, 2, 3]);
        assert_eq!(rows(2, 1, 2), [0, 0, 1, 1]);
        assert_eq!(rows(1, 3, 12), [1, 4, 7, 10]);
    }

    #[test]
    fn cubes_are_held_whole_where_they_fit() {
        let usual = CubeShape::new(480, 640, 100);
        assert!(is_whole(usual, &held(usual)));
        for shape in [
            CubeShape::new(10_000, 10_000, 200),
            CubeShape::new(1, 100_000_000, 300),
            CubeShape::new(100_000, 7, 2000),
        ] {
            let held = held(shape);
            assert!(!is_whole(shape, &held));
            let bytes = held.pixels() * shape.bands * 4;
            assert!(
                bytes <= MAX_CACHED_BYTES && !held.rows.is_empty() && !held.columns.is_empty(),
                "{shape}"
            );
        }
    }
}
