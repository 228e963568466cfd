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
