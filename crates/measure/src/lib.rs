//! Where the time of a training input pipeline goes, and what would change it.
//!
//! | module | what it knows |
//! |---|---|
//! | [`machine`] | what the system says of memory, processor time and disks |
//! | [`page`] | pages that show a run, and charts in them |
//! | [`tune`] | which codec, chunk size and number of mantissa bits suit some cubes |
#![deny(missing_docs)]

pub mod machine;
pub mod page;
pub mod tune;

pub use hsipack_format::{Error, ErrorKind, Result};
