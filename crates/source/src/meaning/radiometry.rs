//! Background and gain of every column and band, which some files hold beside their cube.

use hsipack_format::Result;

use crate::cube_info::{PlaceScaling, Radiometry};
use crate::products::hyspex;

impl Radiometry {
    /// Reads background and gain.
    ///
    /// # Errors
    /// If the file cannot be read, or changed since it was opened.
    pub fn read(&self) -> Result<PlaceScaling> {
        hyspex::read(self)
    }
}
