//! Where the time of a training input pipeline goes, and what would change it.
//!
//! | module | what it knows |
//! |---|---|
//! | `bench` | feature `torch`: the five published strategies side by side |
//! | [`diagnose`] | which part training waits for, found by caching |
//! | [`simulate`] | loaders, queue and model over time |
//! | [`tune`] | which codec, chunk size and number of mantissa bits suit some cubes |
//! | [`page`] | pages that show a run, and charts in them |
//! | `random` | the generator of cubes and of load times |
//! | [`machine`] | what the system says of memory, processor time and disks |
//! | `device` | feature `torch`: which device, and waiting for it |
//! | `step` | feature `torch`: what stands for training: a wait, or a small network |
#![deny(missing_docs)]

#[cfg(feature = "torch")]
pub mod bench;
#[cfg(feature = "torch")]
pub mod device;
pub mod diagnose;
pub mod machine;
pub mod page;
mod random;
pub mod simulate;
#[cfg(feature = "torch")]
pub mod step;
pub mod tune;

pub use hsipack_format::{Error, ErrorKind, Result};
