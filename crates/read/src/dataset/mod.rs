//! A packed dataset, opened for reading by many threads.
//!
//! | file | part |
//! |---|---|
//! | `open.rs` | opening, samples, stacks, what is known of them |
//! | `labels.rs` | splits, groups, classes and their counts |
//! | `files.rs` | the open files of one array, checksums seen |
//! | `array.rs` | the stored chunks of one array: shards, indexes, decoding |
//! | `access.rs` | random access to cubes, crops and masks |
//! | `load.rs` | the same into arrays of their own |
//! | `patches.rs` | windows around labelled pixels |
//! | `regions.rs` | windows that show regions of masks |
//! | `pixels.rs` | how many pixels of masks are of which class |
//! | `shards.rs` | opening the shards of a server, many at the same time |
//! | `new_ids.rs` | class ids of masks, given other numbers |

mod access;
pub(crate) mod array;
pub(crate) mod files;
mod labels;
mod load;
mod new_ids;
mod open;
mod patches;
mod pixels;
mod regions;
mod shards;

pub use access::Cube;
pub use hsipack_format::statistics::BandStatistics;
pub use labels::{ClassCount, Labels};
pub use load::read_array;
pub(crate) use new_ids::IdTable;
pub use new_ids::{Class, NewIds};
pub use open::{Dataset, OpenOptions, Verify};
pub use pixels::ClassPixels;
