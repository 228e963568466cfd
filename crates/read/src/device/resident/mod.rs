//! Cubes that stay in the memory of a device, so that batches are gathered there and nothing
//! crosses the bus.
//!
//! | file | part |
//! |---|---|
//! | `choice.rs` | decides what stays: all samples decoded, all compressed, or a fixed part of them |
//! | `cubes.rs` | which cubes a region has, and where |
//! | `region.rs` | memory that cubes are kept in, and the state of each of their chunks |
//! | `registry.rs` | the regions of this process, which its loaders use together |
//! | `residents.rs` | the cubes of one loader: where each of them is |
//!
//! The planning thread says which chunks a batch has to bring (`loader/compressed.rs`), and the
//! transfer thread decodes them into their region before it gathers the batch
//! (`device/worker/decode.rs`). A chunk has these states:
//!
//! ```text
//!            planned for a batch               seen decoded by the transfer thread
//!   absent ─────────────────────▶ scheduled ──────────────────────────────────────▶ resident
//!      ▲                              │
//!      └──────────────────────────────┘ the batch was dropped, or its chunk is damaged
//! ```
//!
//! The following always holds:
//!
//! 1. Only the loader that made a region writes to it, on one stream. Loaders that begin when it is
//!    complete, which the host has seen, read it, too. So nobody reads what is being written.
//! 2. A batch reads a scheduled chunk only if an earlier batch of the same loader, or the batch
//!    itself, brings it. The transfer thread compares that when the batch's turn comes; if the
//!    chunk is missing, the batch is decoded on the CPU.
//! 3. Memory of a region is freed only when no queued work uses it: the transfer thread holds it
//!    until it has seen its work done.

mod choice;
mod cubes;
mod region;
mod registry;
mod residents;

pub(crate) use choice::Kept;
pub(crate) use cubes::Cube;
pub(crate) use region::Region;
pub use residents::ResidentReport;
pub(crate) use residents::{Request, Residents, frame, key};
