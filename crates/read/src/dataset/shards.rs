//! Opens the shards of a dataset on a server, many at the same time: one by one, each would cost a
//! round trip.

use std::sync::OnceLock;

use hsipack_store::threads;

use super::Dataset;
use super::array::ArrayRef;
use super::files::{ShardHandle, is_sharded};
use crate::Result;

/// How many shards are opened at the same time.
const OPENING_THREADS: usize = 32;
/// If there are more shards than this, each is opened when it is needed, because the indices take
/// time and memory, too.
const MAX_EAGER_SHARDS: usize = 2048;

impl Dataset {
    /// Opens all shards, if there are not too many, and begins to check that all were read from the
    /// same dataset.
    pub(super) fn open_shards(&self) -> Result<()> {
        let shards: Vec<(ArrayRef<'_>, usize)> = self
            .all_arrays()
            .filter(|array| is_sharded(array.chunks))
            .flat_map(|array| (0..array.chunks.shards()).map(move |shard| (array, shard)))
            .collect();
        if shards.len() > MAX_EAGER_SHARDS {
            return self.folder().check();
        }
        let pool = threads::pool(shards.len().min(OPENING_THREADS), "open")?;
        let open = |(): &mut (), (array, shard): &(ArrayRef<'_>, usize)| array.open_shard(*shard);
        self.folder().read_unsettled(|| pool.in_turn(shards.iter(), || (), open)).map(drop)
    }

    /// Bytes of all open shards. For a dataset on a server these are all shards, if there are not
    /// too many.
    pub fn open_bytes(&self) -> u64 {
        self.all_arrays()
            .flat_map(|array| array.files.open.iter())
            .filter_map(OnceLock::get)
            .map(ShardHandle::len)
            .sum()
    }

    fn all_arrays(&self) -> impl Iterator<Item = ArrayRef<'_>> {
        (0..self.stacks().len()).flat_map(|stack| self.arrays(stack))
    }
}
