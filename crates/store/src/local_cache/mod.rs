//! A cache on the local disk for datasets on servers.
//!
//! ```text
//! FOLDER/CACHEDIR.TAG                      says that all of this may be deleted at any time
//!        total                             bytes of all blocks; whoever changes it holds its lock
//!        datasets/FINGERPRINT/in-use       its lock is held, shared, by every process that reads the dataset
//!                             about.json   where the dataset was read from
//!                             SHARD-OFFSET-LENGTH        one block
//!                             SHARD-OFFSET-LENGTH.part   one that is being written; its lock is held
//! ```
//!
//! A **block** is a run of whole stored chunks of one shard, up to 4 MiB, and the CRC-32C of them. Where the blocks of a
//! shard begin and end follows from the shard's index alone, so all processes cut alike.
//!
//! - **Nothing needs repair.** A block gets its name when it is whole. Locks are advisory ones of the system's, which end
//!   with their process. What a killed process left (a `.part`, a total that is too high) is found by the next one that
//!   opens the cache. A block is compared with its checksum when a process first reads it, and again if the file was
//!   changed since; one that is not what was written is dropped and fetched again.
//! - **What is dropped is what is needed last.** A loader says what its epoch and the next ones will want ([`Plan`]). When
//!   there is no room, the block that is wanted last gives way, or the new one is not kept if that is wanted later still.
//!   Blocks of datasets that nobody reads go first; those of datasets that others read are left alone. Without a plan
//!   (random access) what is there stays: of an order that nobody knows, no choice is better.
//! - **The limit holds.** Room is taken, under the lock, before a block is written.
//!
//! | file | what it knows |
//! |---|---|
//! | `folder.rs` | the names in the folder, the lock and the total; listing, checking and clearing |
//! | `block.rs` | one block, open; whether it is what was written |
//! | `blocks.rs` | where the blocks of a shard begin and end |
//! | `uses.rs` | when each block is wanted |
//! | `plan.rs` | what loaders tell |
//! | `table.rs` | which blocks of a dataset are there and open, and which gives way |
//! | `dataset.rs` | the blocks of a dataset on the disk: reading, keeping, making room |
//! | `writer.rs` | the thread that writes blocks |

mod block;
mod blocks;
mod dataset;
mod folder;
mod plan;
mod table;
mod uses;
mod writer;

use std::path::PathBuf;

pub use dataset::{CachedDataset, LocalCacheUse};
pub use folder::{CacheFolder, CachedInfo, Checked};
pub use plan::{EpochUses, Plan};

pub(crate) use dataset::CachedShard;

/// A cache on the local disk for what is read from servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalCache {
    /// Its folder, of its own; made where it is missing.
    pub folder: PathBuf,
    /// Most bytes in it, of all datasets; half of what is free on its disk where `None`.
    pub bytes: Option<u64>,
}
