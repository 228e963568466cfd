//! The trait that every store implements.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use hsipack_format::Result;

use super::stored_file::StoredFile;
use crate::local_cache::CachedDataset;
use crate::remote::ShardTails;

/// Opens the files of a dataset.
pub trait Store: Debug + Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it cannot be opened; the error names the file.
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>>;

    /// Keeps fetched data of a dataset in a local cache, for files opened from now on. A store of
    /// local files keeps nothing.
    fn keep_in(&self, cache: &Arc<CachedDataset>) {
        let _ = cache;
    }

    /// Passes the ends of shards that are about to be opened, so that opening them needs no
    /// request. They replace earlier ones. A store of local files ignores them.
    fn expect(&self, tails: ShardTails) {
        let _ = tails;
    }

    /// Call this when all spans that a batch needs were requested with [`StoredFile::prefetch`]. A
    /// store of local files ignores it.
    fn batch_requested(&self) {}

    /// Requests and bytes so far; `None` if the store does not use a server.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

/// The traffic with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of requests for parts of shards.
    pub requests: u64,
    /// Number of bytes received.
    pub bytes: u64,
}
