//! Which pixels are shown of a window.

use hsipack_format::{CubeShape, Result};
use hsipack_pack::physical::Cube;
use hsipack_pack::preview::Sampling;

use crate::query::{Query, Window};

/// Most rows and columns of an answer.
pub const MOST: usize = 2048;
/// Rows and columns where nobody says how many.
pub const USUAL: usize = 1024;
/// Bytes of values that are held of a cube: a cube of 480 × 640 × 100 fits.
const HELD: usize = 128 << 20;

/// The rows and columns that are asked for.
///
/// # Errors
/// If they are no number.
pub fn side(query: &Query) -> Result<usize> {
    Ok(query.number("side", USUAL, MOST)?.max(1))
}

/// Rows and columns of the cube that are held in memory when it is looked at: all of them where they fit.
pub fn held(shape: CubeShape) -> Sampling {
    let fit = (HELD / (4 * shape.bands.max(1))).max(1);
    if shape.rows.saturating_mul(shape.columns) <= fit {
        return Sampling::new(shape.rows, shape.columns, usize::MAX);
    }
    let (short, long) = (shape.rows.min(shape.columns), shape.rows.max(shape.columns));
    // side × (side × short / long) pixels fit.
    let side = (fit as f64 * long as f64 / short as f64).sqrt() as usize;
    Sampling::new(shape.rows, shape.columns, side.clamp(1, USUAL))
}

/// Whether all of the cube is held.
pub fn is_whole(shape: CubeShape, held: &Sampling) -> bool {
    held.rows.len() == shape.rows && held.columns.len() == shape.columns
}

/// Where the pixels of an answer are: at most `side` rows and columns of `window`, evenly spread. All of a cube that is too
/// large to be held, and whose bands are not cheap to read, is seen at the pixels that are.
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(bytes <= HELD && !held.rows.is_empty() && !held.columns.is_empty(), "{shape}");
        }
    }
}
