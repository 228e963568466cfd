//! The size of the samples of a batch.

use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;

/// Rows, columns and bands of the samples of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Bands.
    pub bands: usize,
}

impl std::fmt::Display for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {} x {} (rows, columns, bands)", self.rows, self.columns, self.bands)
    }
}

impl Frame {
    /// (x, y) of the centre.
    pub(crate) fn centre(self) -> [f64; 2] {
        [(self.columns as f64 - 1.0) / 2.0, (self.rows as f64 - 1.0) / 2.0]
    }

    pub(crate) fn resized(self, [rows, columns]: [usize; 2]) -> Self {
        Self { rows, columns, ..self }
    }

    /// The map of pixels to -1 … 1: these are the centres of the outermost pixels with
    /// `align_corners`, otherwise their edges.
    pub(crate) fn normalised(self, align_corners: bool) -> Matrix {
        let axis = |size: usize| {
            let size = size as f64;
            if align_corners { (2.0 / (size - 1.0), -1.0) } else { (2.0 / size, 1.0 / size - 1.0) }
        };
        let ((a, b), (c, d)) = (axis(self.columns), axis(self.rows));
        Matrix::axes(a, b, c, d)
    }
}
