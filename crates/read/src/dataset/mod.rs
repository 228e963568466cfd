//! A packed dataset, opened for reading by many threads.
//!
//! | file | part |
//! |---|---|
//! | `open.rs` | opening, samples, stacks and their properties |
//! | `labels.rs` | splits, groups, classes and their counts |
//! | `boxes.rs` | boxes around objects |
//! | `files.rs` | the open files of one array, and which chunks were verified |
//! | `array.rs` | the stored chunks of one array: shards, indexes, decoding |
//! | `integers.rs` | images that are stored as integers: their form in batches, and the loop that converts them |
//! | `access.rs` | random access to cubes, crops and masks |
//! | `load.rs` | the same, into new arrays |
//! | `patches.rs` | windows around labelled pixels |
//! | `regions.rs` | windows that show regions of masks |
//! | `pixels.rs` | how many pixels each class of a mask has |
//! | `shards.rs` | opening many shards on a server at the same time |
//! | `new_ids.rs` | new class ids for masks |

mod access;
pub(crate) mod array;
mod boxes;
pub(crate) mod files;
pub(crate) mod integers;
mod labels;
mod load;
mod new_ids;
mod open;
mod patches;
mod pixels;
mod regions;
mod shards;

pub use access::Cube;
pub use boxes::Boxes;
pub use hsipack_format::statistics::BandStatistics;
pub use integers::{Conversion, FloatType, Integers};
pub use labels::{ClassCount, Labels};
pub use load::read_array;
pub(crate) use new_ids::IdTable;
pub use new_ids::{Class, NewIds};
pub(crate) use open::is_in_float16;
pub use open::{Dataset, OpenOptions, Verify};
pub use pixels::ClassPixels;
