//! Where the time of a training input pipeline goes, and what would change it.
//!
//! | module | what it knows |
//! |---|---|
//! | [`device`] | feature `torch`: which device, and waiting for it |
//! | [`diagnose`] | which part training waits for, found by caching |
//! | [`machine`] | what the system says of memory, processor time and disks |
//! | [`step`] | feature `torch`: what stands for training: a wait, or a small network |
//! | [`page`] | pages that show a run, and charts in them |
//! | [`simulate`] | loaders, queue and model over time |
#![deny(missing_docs)]

#[cfg(feature = "torch")]
pub mod device;
pub mod diagnose;
pub mod machine;
pub mod page;
pub mod simulate;
#[cfg(feature = "torch")]
pub mod step;

pub use hsipack_format::{Error, ErrorKind, Result};
