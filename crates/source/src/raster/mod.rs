//! Rasters: images with a header that says how their pixels are stored.
//!
//! | format | in |
//! |---|---|
//! | TIFF, GeoTIFF, BigTIFF | `tiff/` |
//! | PNG, for masks and pictures | `png.rs` |
//! | JPEG, for pictures | `jpeg.rs` |
//! | JPEG 2000, refused by name | `jpeg2000.rs` |

pub(crate) mod jpeg;
pub(crate) mod jpeg2000;
pub mod png;
pub mod tiff;

use crate::file_format::{FileFormat, Kind};

/// The formats in this folder.
pub(crate) const FORMATS: &[FileFormat] = &[
    FileFormat::new(Kind::Images, "TIFF", tiff::recognises, tiff::open)
        .with_endings(&["tif", "tiff"]),
    FileFormat::new(Kind::Pictures, "", png::recognises, png::open),
    FileFormat::new(Kind::Pictures, "", jpeg::recognises, jpeg::open),
    FileFormat::new(Kind::Refused, "", jpeg2000::recognises, jpeg2000::open),
];
