//! Background and gain of every column and band, which some files hold beside their cube.

use std::path::PathBuf;

use hsipack_format::Result;
use serde::{Deserialize, Serialize};

use super::products::hyspex;

/// Where a file says how the numbers of each column and band become physical values. This takes some megabytes, so it is
/// read only when it is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Radiometry {
    /// The file.
    pub file: PathBuf,
    /// Columns of its cube.
    pub columns: usize,
    /// Bands of its cube.
    pub bands: usize,
}

/// What [`Radiometry::read`] returns. Every list has one value per (column, band), the band fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceScaling {
    /// Subtracted from stored numbers.
    pub background: Vec<f64>,
    /// The background after the last row, if it was measured again there. In between, the background changes evenly from
    /// row to row.
    pub last_background: Option<Vec<f64>>,
    /// Numbers are divided by this afterwards; 0 where nothing is known.
    pub divisor: Vec<f64>,
}

impl Radiometry {
    /// Reads background and gain.
    ///
    /// # Errors
    /// If the file cannot be read, or changed since it was opened.
    pub fn read(&self) -> Result<PlaceScaling> {
        hyspex::read(self)
    }
}
