//! The shape of a cube.

use std::fmt;

/// The shape of one cube: (H, W, C) in array terms, lines × samples × bands in ENVI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CubeShape {
    /// Image rows (H, lines, y).
    pub rows: usize,
    /// Image columns (W, samples, x).
    pub columns: usize,
    /// Spectral bands (C, channels).
    pub bands: usize,
}

impl CubeShape {
    /// A shape of `rows` × `columns` × `bands`.
    pub const fn new(rows: usize, columns: usize, bands: usize) -> Self {
        Self { rows, columns, bands }
    }

    /// Values in one image row: columns × bands.
    pub const fn row_values(self) -> usize {
        self.columns * self.bands
    }

    /// Values in the cube.
    pub const fn values(self) -> usize {
        self.rows * self.columns * self.bands
    }

    /// Pixels in the cube: rows × columns.
    pub const fn pixels(self) -> usize {
        self.rows * self.columns
    }

    /// The number of values, or `None` if the number, or its size with 8-byte values, overflows.
    /// Sizes read from a file are checked here before anything is allocated.
    pub fn checked_values(self) -> Option<usize> {
        let values = self.rows.checked_mul(self.columns)?.checked_mul(self.bands)?;
        values.checked_mul(8).filter(|bytes| *bytes <= isize::MAX as usize).map(|_| values)
    }

    /// Whether any axis has length zero.
    pub const fn is_empty(self) -> bool {
        self.rows == 0 || self.columns == 0 || self.bands == 0
    }
}

impl fmt::Display for CubeShape {
    /// `480x640x100`, which is also the name of a stack.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.rows, self.columns, self.bands)
    }
}
