//! Streams a packed dataset into training, as fast as it can be decompressed.
//!
//! ```text
//! index → plan (shuffle, rank) → fetch → decode into a ring slot → batch
//! ```
//!
//! A [`Dataset`] reads samples and crops by number. A [`Loader`] delivers batches: a planning
//! thread decides which windows of which samples come next and where they go in the ring, decoding
//! threads decompress chunks directly into those places, and the consumer borrows whole batches.
//! Nothing is copied between decompression and the batch, and no memory is allocated per batch.
//!
//! ```no_run
//! use hsipack_read::{Dataset, Loader, LoaderOptions};
//!
//! let dataset = Dataset::open("tissue.hsipack")?;
//! let mut loader = Loader::new(&dataset, LoaderOptions::new(6))?;
//! while let Some(batch) = loader.next_batch() {
//!     let batch = batch?;
//!     println!("samples {:?}", batch.items().iter().map(|item| item.sample).collect::<Vec<_>>());
//! }
//! # Ok::<(), hsipack_read::Error>(())
//! ```
//!
//! | module | what it contains |
//! |---|---|
//! | `dataset` | an open dataset: samples, labels, statistics, random access |
//! | [`plan`] | which sample or crop comes when, on which rank; the state to resume from |
//! | [`store`] | where stored bytes are read from: memory map, pread, O_DIRECT, at a limited rate |
//! | `cache` | chunks kept in memory |
//! | `decode` | decoding stored chunks into rows of a batch |
//! | `ring` | slots in one allocation, and which thread may use which slot when |
//! | `loader` | the threads around the ring, batches, state, statistics |
//! | `packed` | long lists of numbers in serialised options |
//! | `arguments` | feature `clap`: options as they are typed on a command line |
//! | `values` | values as `ndarray` arrays |
//! | `distribution` | the distribution of times |
//! | [`trace`] | what each thread did when, as a file to view in a browser |
//! | `device` | batches as tensors of a library, on the CPU or copied ahead to a GPU |
//! | [`device_decode`] | decoding chunks on a GPU |
//! | [`augment`] | augmentations of these tensors: the crate `hsipack-augment` |
//! | `torch` | feature `torch`: batches as tensors of the library `tch`: the crate `hsipack-torch` |
#![deny(missing_docs)]

#[cfg(feature = "clap")]
mod arguments;
mod cache;
mod dataset;
mod decode;
mod device;
mod distribution;
mod loader;
mod packed;
pub mod plan;
mod ring;
mod shuffle_buffer;
mod sync;
pub mod trace;
mod values;

pub use cache::{CacheKind, CacheTimes};
pub use dataset::{
    BandStatistics, Boxes, Class, ClassCount, ClassPixels, Conversion, Cube, Dataset, FloatType,
    Integers, Labels, NewIds, OpenOptions, Verify, read_array,
};
pub use device::decode as device_decode;
pub use device::{
    DecodeTrial, DeviceBatch, DeviceCache, DeviceEpoch, DeviceLoader, DeviceOptions, DeviceReport,
    Monitor, Normalization, PageCacheBounds, PreparedDeviceLoader, Replay, ResidentReport, VALID,
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
    ArrayView, Batch, BatchTimes, CacheChoice, CommonBands, DecodePlace, Epoch, KeptChunks, Loader,
    LoaderOptions, LoaderStats, Member, OnDamage, PreparedLoader, ShuffleWindow, Shuffled,
    Statistics, Workload, shuffle_window_bytes,
};
#[doc(no_inline)]
pub use ndarray;
pub use ring::memory::{MemoryOptions, MemoryReport, PageLocker};
pub use values::{Value, Values};
