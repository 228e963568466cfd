//! Where the time of a training input pipeline goes, and what would change it.
//!
//! | module | what it knows |
//! |---|---|
//! | [`mod@bench`] | the five published strategies side by side |
//! | [`diagnose`] | which part training waits for, found by caching |
//! | [`simulate`] | loaders, queue and model over time |
//! | [`tune`] | which codec, chunk size and number of mantissa bits suit some cubes |
//! | [`page`] | pages that show a run, and charts in them |
//! | `random` | the generator of cubes and of load times |
//! | [`machine`] | what the system says of memory, processor time and disks |
//! | [`remote`] | measuring in another process, whose library has other devices |
//! | [`device`] | what is asked of a library of tensors: devices, copies to them, waiting for them |
//! | [`step`] | what stands for training: a wait, or a network |
//! | `network` | a small network on the CPU |
#![deny(missing_docs)]

pub mod bench;
pub mod device;
pub mod diagnose;
pub mod machine;
mod network;
pub mod page;
mod random;
pub mod remote;
pub mod simulate;
pub mod step;
pub mod tune;

pub use hsipack_format::{Error, ErrorKind, Result};
