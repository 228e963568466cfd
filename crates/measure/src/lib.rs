//! Where the time of a training input pipeline goes, and what would change it.
//!
//! | module | what it knows |
//! |---|---|
//! | `bench` | feature `torch`: the five published strategies side by side |
//! | [`machine`] | what the system says of memory, processor time and disks |
#![deny(missing_docs)]

#[cfg(feature = "torch")]
pub mod bench;
pub mod machine;

pub use hsipack_format::{Error, ErrorKind, Result};
