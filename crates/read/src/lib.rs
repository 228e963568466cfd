//! Streams a packed dataset into training, as fast as it decompresses.
//!
//! ```text
//! index → plan (shuffle, rank) → fetch → decode into a ring slot → batch
//! ```
//!
//! A [`Dataset`] gives samples and crops by number. A [`Loader`] gives batches: a planning thread decides which
//! windows of which samples come next and where in the ring they go, decoding threads decompress chunks
//! straight into their places, and the consumer borrows whole batches. Nothing is copied between
//! decompression and the batch, and nothing is allocated per batch.
//!
//! | module | what it knows |
//! |---|---|
//! | `dataset` | an open dataset: samples, labels, statistics, random access |
//! | [`plan`] | which sample or crop comes when, on which rank; what to resume with |
//! | [`store`] | where stored bytes come from: memory map, pread, O_DIRECT, at a limited rate |
//! | `cache` | chunks kept in memory |
//! | `decode` | from stored chunks to rows of a batch |
//! | `ring` | slots of one allocation, and who may touch which when |
//! | `loader` | the threads around the ring, batches, state, statistics |
//! | `values` | values as arrays of `ndarray` |
//! | `distribution` | how times are distributed |
//! | [`trace`] | what every thread did when, as a file that browsers show |
//! | `device` | batches as tensors of a library, on the CPU or copied ahead to a GPU |
//! | [`augment`] | augmentations of them: the crate `hsipack-augment` |
//! | `torch` | feature `torch`: the library of `tch`, for batches as its tensors: the crate `hsipack-torch` |
#![deny(missing_docs)]

mod cache;
mod dataset;
mod decode;
mod device;
mod distribution;
mod held;
mod loader;
pub mod plan;
mod ring;
mod sync;
pub mod trace;
mod values;

pub use cache::CacheKind;
pub use dataset::{
    BandStatistics, Class, ClassCount, ClassPixels, Cube, Dataset, Labels, NewIds, OpenOptions,
    Verify, read_array,
};
pub use device::{
    DeviceBatch, DeviceEpoch, DeviceLoader, DeviceOptions, DeviceReport, Normalization, Replay,
    cuda_is_available, pci_bus_id,
};
pub use distribution::Distribution;
#[doc(inline)]
pub use hsipack_augment as augment;
pub use hsipack_augment::{Array, Device, ElementType, Host, Library};
pub use hsipack_format::{DType, Error, ErrorKind, Result, Sample};
pub use hsipack_store::process::OfProcess;
#[doc(no_inline)]
pub use hsipack_store::stores as store;
#[cfg(feature = "torch")]
pub use hsipack_torch as torch;
pub use loader::{
    ArrayView, Batch, BatchTimes, CacheChoice, Epoch, Loader, LoaderOptions, LoaderStats, OnDamage,
    Outlook, ShuffleWindow, Shuffled, Statistics, shuffle_window_bytes,
};
#[doc(no_inline)]
pub use ndarray;
pub use ring::memory::{MemoryOptions, MemoryReport, PageLocker};
pub use values::{Value, Values};
