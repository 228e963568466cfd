//! Where a training input pipeline spends its time, and what would change that.
//!
//! | module | contents |
//! |---|---|
//! | [`mod@bench`] | compares the five published strategies |
//! | [`diagnose`] | finds the part that training waits for, by caching |
//! | [`simulate`] | simulates loaders, queue and model over time |
//! | [`tune`] | finds codec, chunk size and number of mantissa bits for some cubes |
//! | [`page`] | pages that show a run, with charts |
//! | `random` | the random generator for cubes and load times |
//! | [`machine`] | what the system reports about memory, processor time and disks |
//! | [`remote`] | measuring in another process, whose library has other devices |
//! | [`device`] | what measuring needs from a library of tensors: devices, copies to them, waiting for them |
//! | [`step`] | the training step: a wait, or a network |
//! | `arguments` | feature `clap`: options as they are typed on a command line |
//! | `network` | a small network on the CPU |
#![deny(missing_docs)]

#[cfg(feature = "clap")]
mod arguments;
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
