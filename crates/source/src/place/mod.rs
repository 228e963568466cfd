//! The place of pixels on Earth, in any format.
//!
//! | file | part |
//! |---|---|
//! | `georeference.rs` | datums, and texts of coordinate reference systems |
//! | `cf.rs` | the grids of NetCDF and Zarr |
//! | `world_file.rs` | world files of rasters |
//! | `array_geo.rs` | the georeferencing of an array that a program gives |

pub mod array_geo;
pub(crate) mod cf;
pub(crate) mod georeference;
pub(crate) mod world_file;
