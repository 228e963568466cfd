//! A rectangle of pixels.

use std::ops::Range;

use hsipack_format::Ratio;

/// A rectangle of pixels of a cube, which may reach beyond its edge (see [`Pad`](super::Pad)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// First row; negative if it lies before the cube.
    pub row: i32,
    /// First column; negative if it lies before the cube.
    pub column: i32,
    /// Number of rows.
    pub rows: u32,
    /// Number of columns.
    pub columns: u32,
}

impl Window {
    /// A window that begins at this row and column.
    pub(crate) fn at(row: u32, column: u32, rows: u32, columns: u32) -> Self {
        // Axes of cubes have less than 2^31 pixels (see `Crop::size`).
        Self { row: row as i32, column: column as i32, rows, columns }
    }

    /// The window of an array of another resolution that covers the same ground. A window of a
    /// coarser array should begin and end with its pixels.
    pub fn scaled(self, ratio: Ratio) -> Self {
        if ratio.is_same() {
            return self;
        }
        let size = |size: u32| size.saturating_mul(ratio.finer()) / ratio.coarser();
        Self {
            row: ratio.start(self.row),
            column: ratio.start(self.column),
            rows: size(self.rows),
            columns: size(self.columns),
        }
    }

    /// The rows of the cube that the window covers, if it lies inside.
    pub fn row_range(self) -> Range<usize> {
        self.row as usize..self.row as usize + self.rows as usize
    }

    /// The columns of the cube that the window covers, if it lies inside.
    pub fn column_range(self) -> Range<usize> {
        self.column as usize..self.column as usize + self.columns as usize
    }

    /// Whether the window lies inside a cube of this many rows and columns.
    pub fn is_inside(self, rows: usize, columns: usize) -> bool {
        let fits = |start: i32, size: u32, length: usize| {
            start >= 0 && start as usize + size as usize <= length
        };
        fits(self.row, self.rows, rows) && fits(self.column, self.columns, columns)
    }
}
