//! Where the time of a training input pipeline goes, and what would change it.
//!
//! | module | what it knows |
//! |---|---|
//! | [`diagnose`] | which part training waits for, found by caching |
//! | [`machine`] | what the system says of memory, processor time and disks |
#![deny(missing_docs)]

pub mod diagnose;
pub mod machine;

pub use hsipack_format::{Error, ErrorKind, Result};
