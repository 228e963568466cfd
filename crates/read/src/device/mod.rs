//! Batches as tensors on a device, copied there ahead of their use; see `docs/transfer.md`.
//!
//! | file | part |
//! |---|---|
//! | `loader.rs` | the loader as its user sees it: epochs, state, what it does and why it does no better |
//! | `options.rs` | what is asked for |
//! | `batch.rs` | a batch of tensors, and how tensors lie over a slot |
//! | `recipe.rs` | from what is stored to the tensors asked for: types, layers, physical values, normalising |
//! | `prepare.rs` | standardising and filling bands, as pure functions of tensors |
//! | `spectra.rs` | normalising spectra, in the host's memory and elsewhere |
//! | `host.rs` | the CPU: tensors over the ring itself |
//! | `transfer.rs` | a device: the thread that copies ahead, device slots, their reuse |
//! | `handover.rs` | what passes between that thread and the consumer |
//! | `backend.rs` | what a device has to do for that |
//! | `cuda.rs` | CUDA does it |
//! | `emulated.rs` | so does other memory of the host, as slowly as a bus would |
//! | `repeat.rs` | one batch again and again: what copying alone allows |
//! | `fake.rs` | so does a device of the tests, late and in any order, or it fails |
//! | `model.rs` | the hand-over in every interleaving |

#[cfg(feature = "torch")]
mod backend;
#[cfg(feature = "torch")]
mod batch;
#[cfg(feature = "torch")]
mod cuda;
#[cfg(feature = "torch")]
mod emulated;
#[cfg(all(test, feature = "torch", not(feature = "loom")))]
mod fake;
mod handover;
#[cfg(feature = "torch")]
mod host;
#[cfg(feature = "torch")]
mod loader;
#[cfg(all(test, feature = "loom"))]
mod model;
#[cfg(feature = "torch")]
mod options;
#[cfg(feature = "torch")]
mod prepare;
#[cfg(feature = "torch")]
mod recipe;
#[cfg(feature = "torch")]
mod repeat;
#[cfg(feature = "torch")]
pub(crate) mod spectra;
#[cfg(all(test, feature = "torch", not(feature = "loom")))]
mod tests;
#[cfg(feature = "torch")]
mod transfer;

#[cfg(feature = "torch")]
pub use batch::DeviceBatch;
#[cfg(feature = "torch")]
pub(crate) use batch::stored_kind;
#[cfg(feature = "torch")]
pub use cuda::pci_bus_id;
#[cfg(feature = "torch")]
pub use loader::{DeviceEpoch, DeviceLoader, DeviceReport};
#[cfg(feature = "torch")]
pub use options::{DeviceOptions, Normalization};
