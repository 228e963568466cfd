//! Batches as tensors on a device, copied there ahead of their use; see `docs/transfer.md`.
//!
//! | file | part |
//! |---|---|
//! | `loader.rs` | the loader as its user sees it: epochs, state, a report of how it works |
//! | `prepared.rs` | a loader that has neither device, memory nor threads yet |
//! | `monitor.rs` | statistics and report of a loader at work |
//! | `options.rs` | the options |
//! | `replay.rs` | the items of a loader's batches, read without a loader |
//! | `batch.rs` | a batch of tensors, and how arrays lie over a slot |
//! | `conversion.rs` | from stored values to the tensors asked for: types, layers, physical values, normalising |
//! | `tensors.rs` | makes a batch's tensors: that conversion, then augmentations |
//! | `host.rs` | the CPU: arrays over the ring itself |
//! | `prefetch.rs` | the CPU: the thread that prepares batches ahead, if there is something to compute |
//! | `source.rs` | a device: the source of host batches |
//! | `slots.rs` | device slots, their states and reuse |
//! | `transfer.rs` | the consumer's side |
//! | `worker/` | the thread that copies ahead, and queues the work of batches that the device decodes |
//! | `exchange.rs` | what that thread and the consumer give each other |
//! | `backend.rs` | what a device has to provide for that |
//! | `cuda.rs` | CUDA, using only the driver |
//! | `driver.rs` | the driver: devices, contexts, errors |
//! | `cuda_kernel.rs` | the kernels, loaded by that driver |
//! | `emulated.rs` | a device emulated in host memory, with copies as slow as over a bus |
//! | [`decode`] | the kernels that decode chunks and gather windows on a GPU, and their arguments |
//! | `page_cache/` | stored chunks that a GPU reads straight from the system's page cache |
//! | `resident/` | cubes that stay in the memory of a GPU |
//! | `decode_trial.rs` | frames decoded again and again: the speed of decoding alone |
//! | `repeat.rs` | one batch again and again: the speed of copying alone |
//! | `fake.rs` | the device of the tests: it completes copies late, out of order, or with an error |

mod backend;
mod batch;
mod batch_info;
mod conversion;
mod cuda;
mod cuda_kernel;
pub mod decode;
mod decode_trial;
mod driver;
mod emulated;
mod exchange;
#[cfg(test)]
mod fake;
mod host;
mod loader;
mod monitor;
mod options;
pub(crate) mod page_cache;
mod prefetch;
mod prepared;
mod repeat;
mod replay;
pub(crate) mod resident;
mod slots;
mod source;
mod tensors;
#[cfg(test)]
mod tests;
mod transfer;
mod worker;

pub use batch::DeviceBatch;
pub use conversion::VALID;
pub use decode_trial::DecodeTrial;
pub use driver::{cuda_is_available, pci_bus_id};
pub use loader::{DeviceEpoch, DeviceLoader};
pub use monitor::{DeviceReport, Monitor};
pub use options::{DeviceCache, DeviceOptions, Normalization};
pub use page_cache::PageCacheBounds;
pub use prepared::PreparedDeviceLoader;
pub use replay::Replay;
pub use resident::ResidentReport;
