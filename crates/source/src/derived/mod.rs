//! Cubes that are made of other cubes, or of pictures.
//!
//! | file | part |
//! |---|---|
//! | `band_files.rs` | a cube of a file for each band |
//! | `joined.rs` | a cube of several with the same grid |
//! | `mosaic.rs` | a cube of the frame of a snapshot camera |
//! | `resampled.rs` | a cube with other bands |

pub(crate) mod band_files;
pub(crate) mod joined;
pub(crate) mod mosaic;
pub(crate) mod resampled;
