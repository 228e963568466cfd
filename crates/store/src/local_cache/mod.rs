//! A cache on the local disk for datasets on servers.
//!
//! ```text
//! FOLDER/CACHEDIR.TAG                      says that all of this may be deleted at any time
//!        total                             bytes of all blocks; a process locks it to change it
//!        datasets/FINGERPRINT/in-use       its lock is held, shared, by every process that reads the dataset
//!                             about.json   where the dataset was read from
//!                             claims       empty; a process locks one byte of it for each block that it fetches
//!                             SHARD-OFFSET-LENGTH        one block
//!                             SHARD-OFFSET-LENGTH.part   one that is being written; its lock is held
//! ```
//!
//! A **block** is a run of whole stored chunks of one shard, up to 4 MiB, with their CRC-32C. The
//! shard's index alone determines where its blocks begin and end, so all processes use the same
//! blocks.
//!
//! - **Nothing needs repair.** A block gets its name only when it is complete. Locks are advisory
//!   locks of the system, which end with their process. If a killed process left anything (a
//!   `.part` file, a total that is too high), the next process that opens the cache corrects it. A
//!   block is compared with its checksum when a process first reads it, and again if the file was
//!   changed since. A damaged block is dropped and fetched again.
//! - **Nobody waits for ever for a stopped process.** It keeps its locks, so waiting for the lock
//!   of `total` ends with an error.
//! - **The block that is needed last is dropped.** A loader tells the cache what its epoch and the
//!   next ones will need ([`UsePlan`]). When there is no room, blocks of datasets that no process
//!   reads are dropped first. Then, the block of the dataset that is needed last is dropped, unless
//!   the new block is needed even later; in that case the new block is not kept. Blocks of datasets
//!   that other processes read are left alone. Without a plan (random access), the existing blocks
//!   of the dataset stay: if the order is not known, no choice is better.
//! - **Processes do not fetch the same block at the same time.** A process claims a block when its
//!   request starts, and releases it when the block is written, or is not kept. Other processes
//!   fetch other blocks first, and read this one from the cache. If it does not appear soon, they
//!   fetch it themselves (`stores/remote/claimed.rs`).
//! - **The limit is never exceeded.** Room for a block is reserved, under the lock, before it is
//!   written. A cache that is opened with a smaller limit shrinks at once, except for blocks of
//!   datasets that other processes read.
//!
//! | file | contents |
//! |---|---|
//! | `folder.rs` | the names in the folder, its lock and total; listing, checking and clearing |
//! | `block.rs` | one open block; whether it is intact |
//! | `blocks.rs` | dividing a shard into blocks |
//! | `uses.rs` | when each block is needed |
//! | `use_plan.rs` | what loaders tell the cache |
//! | `table.rs` | which blocks of a dataset exist and are open, and which to drop |
//! | `claims.rs` | which process is fetching a block |
//! | `dataset.rs` | a dataset and its shards in the cache, for readers |
//! | `state.rs` | the blocks of a dataset on the disk: opening, keeping, making room |
//! | `writer.rs` | the thread that writes blocks |

mod block;
mod blocks;
mod claims;
mod dataset;
mod folder;
mod state;
mod table;
mod use_plan;
mod uses;
mod writer;

use std::path::PathBuf;

pub use dataset::{CachedDataset, LocalCacheUse};
pub use folder::{CacheFolder, CachedInfo, Checked};
pub use use_plan::{EpochUses, UsePlan};

pub(crate) use claims::Claim;
pub(crate) use dataset::CachedShard;

/// A cache on the local disk for data from servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalCache {
    /// Its folder, which must contain nothing else. It is created if it is missing.
    pub folder: PathBuf,
    /// Its maximum size in bytes, for all datasets; if `None`, half of the free space on its disk.
    pub bytes: Option<u64>,
}
