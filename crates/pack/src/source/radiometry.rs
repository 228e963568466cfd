//! Background and gain of every place of a line, which some files hold beside their cube.

use std::path::PathBuf;

use hsipack_format::Result;
use serde::{Deserialize, Serialize};

use super::products::hyspex;

/// Where a file says how the numbers of each column and band become physical. It is some megabytes, so it is read when it
/// is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Radiometry {
    /// The file.
    pub file: PathBuf,
    /// Columns of its cube.
    pub columns: usize,
    /// Bands of its cube.
    pub bands: usize,
}

/// What [`Radiometry::read`] gives; every list has one value a (column, band), the band fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceScaling {
    /// Subtracted from stored numbers.
    pub background: Vec<f64>,
    /// The same behind the last row, where it was measured there again; it changes evenly from row to row.
    pub last_background: Option<Vec<f64>>,
    /// Divided by then; 0 where nothing is known.
    pub divisor: Vec<f64>,
}

impl Radiometry {
    /// Reads it.
    ///
    /// # Errors
    /// If the file cannot be read, or says something else than when it was opened.
    pub fn read(&self) -> Result<PlaceScaling> {
        hyspex::read(self)
    }
}
