//! Batches as tensors on a device, copied there ahead of their use; see `docs/transfer.md`.
//!
//! | file | part |
//! |---|---|
//! | `loader.rs` | the loader as its user sees it: epochs, state, what it does and why it does no better |
//! | `options.rs` | what is asked for |
//! | `replay.rs` | what a loader gives, item by item, without one |
//! | `batch.rs` | a batch of tensors, and how arrays lie over a slot |
//! | `recipe.rs` | from what is stored to the tensors asked for: types, layers, physical values, normalising |
//! | `host.rs` | the CPU: arrays over the ring itself |
//! | `transfer.rs` | a device: the thread that copies ahead, device slots, their reuse |
//! | `handover.rs` | what passes between that thread and the consumer |
//! | `backend.rs` | what a device has to do for that |
//! | `cuda.rs` | CUDA does it, by the driver alone |
//! | `emulated.rs` | other memory of the host, copied to as slowly as over a bus |
//! | `repeat.rs` | one batch again and again: what copying alone allows |
//! | `fake.rs` | the device of the tests: it completes copies late, out of order, or with an error |

mod backend;
mod batch;
mod cuda;
mod emulated;
#[cfg(test)]
mod fake;
mod handover;
mod host;
mod loader;
mod options;
mod recipe;
mod repeat;
mod replay;
#[cfg(test)]
mod tests;
mod transfer;

pub use batch::DeviceBatch;
pub use cuda::{cuda_is_available, pci_bus_id};
pub use loader::{DeviceEpoch, DeviceLoader, DeviceReport};
pub use options::{DeviceOptions, Normalization};
pub use replay::Replay;
