//! Objects on servers. Prefetched spans are fetched by several requests at the same time, and wait
//! in memory.
//!
//! | file | contents |
//! |---|---|
//! | `claimed.rs` | how long spans are left to other processes |
//! | `object.rs` | an open object |
//! | `pace.rs` | how many parallel requests fill the link |
//! | `prefetch.rs` | spans that were requested: queued, being fetched, arrived |

mod claimed;
mod object;
mod pace;
mod prefetch;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hsipack_format::Result;

use super::buffer::ReadBuffer;
use super::store::{Store, Traffic};
use super::stored_file::{Near, StoredFile, check_room, checked, readable};
use crate::local_cache::{CachedDataset, CachedShard};
use crate::memory;
use crate::remote::{self, ShardTails, TAIL_BYTES};
use crate::throttle::{Link, Wire};
use object::OpenObject;
use prefetch::PrefetchQueue;

/// Default maximum number of bytes that wait in memory.
const BYTES: u64 = 512 << 20;
/// Each request costs a round trip, so a gap of up to 1 MiB between two wanted spans is fetched
/// too. Parallel requests share the link, so long requests would delay all of them.
const COALESCING: Near = Near { gap: 1 << 20, run: 4 << 20 };

/// A store that reads objects by their URLs. Its requests run on the network's threads, and end
/// when it is dropped.
#[derive(Debug)]
pub struct RemoteStore {
    prefetch: Arc<PrefetchQueue>,
    files: AtomicU64,
    wire: Arc<Wire>,
    /// The local caches of the datasets that have one.
    caches: Mutex<Vec<Arc<CachedDataset>>>,
    /// The ends of shards that were fetched before the shards are opened.
    tails: Mutex<ShardTails>,
}

impl RemoteStore {
    /// A store that keeps up to 512 MiB of prefetched data, or an eighth of the available memory if
    /// that is less.
    pub fn new() -> Self {
        let free = memory::available().map_or(u64::MAX, |available| available.bytes);
        Self::with_bytes(BYTES.min(free / 8))
    }

    /// A store that keeps up to `bytes` of prefetched data; with 0, nothing is prefetched.
    pub fn with_bytes(bytes: u64) -> Self {
        Self {
            prefetch: Arc::new(PrefetchQueue::new(bytes)),
            files: AtomicU64::new(0),
            wire: Arc::new(Wire::new(Link::default())),
            caches: Mutex::default(),
            tails: Mutex::default(),
        }
    }

    /// The same store, as if the link to the server were slower.
    ///
    /// # Panics
    /// If the link's rate is 0.
    pub fn behind(self, link: Link) -> Self {
        Self { wire: Arc::new(Wire::new(link)), ..self }
    }

    fn tails(&self) -> MutexGuard<'_, ShardTails> {
        self.tails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache_of(&self, path: &Path) -> Option<Arc<CachedDataset>> {
        let caches = self.caches.lock().unwrap_or_else(PoisonError::into_inner);
        caches.iter().find(|cache| path.starts_with(cache.root())).cloned()
    }
}

impl Default for RemoteStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for RemoteStore {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let cached = self.tails().0.remove(path);
        let (version, tail) = match cached {
            Some(cached) => cached,
            None => remote::tail(path, TAIL_BYTES, &self.wire)?,
        };
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(OpenObject {
            number,
            url: path.to_owned(),
            version,
            tail: Mutex::new(Some(tail)),
            wire: self.wire.clone(),
            kept: OnceLock::new(),
        });
        let (prefetch, cache) = (self.prefetch.clone(), self.cache_of(path));
        Ok(Arc::new(RemoteFile { file, prefetch, cache }))
    }

    fn keep_in(&self, cache: &Arc<CachedDataset>) {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner).push(cache.clone());
    }

    fn expect(&self, tails: ShardTails) {
        *self.tails() = tails;
    }

    fn batch_requested(&self) {
        self.prefetch.first_batch();
    }

    fn traffic(&self) -> Option<Traffic> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Some(Traffic { requests: count(&self.wire.requests), bytes: count(&self.wire.bytes) })
    }
}

#[derive(Debug)]
struct RemoteFile {
    file: Arc<OpenObject>,
    prefetch: Arc<PrefetchQueue>,
    cache: Option<Arc<CachedDataset>>,
}

impl RemoteFile {
    /// Calls `take` with the bytes of `span` from the local cache, if they are there. If not,
    /// requests their whole block, because only whole blocks can be cached.
    fn with_kept(
        &self,
        span: &Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<()>> {
        let kept = self.file.kept.get()?;
        if let Some(taken) = kept.with(span, take) {
            // It was requested before another process wrote it to the cache.
            self.prefetch.pass(&self.file, span);
            return Some(taken);
        }
        if let Some(block) = kept.block_of(span) {
            self.prefetch.ask_once(&self.file, block);
        }
        None
    }

    /// Calls `take` with the bytes of `span` if another process has written them into the local
    /// cache since they were requested.
    fn with_cached(
        &self,
        span: &Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<()>> {
        self.file.kept.get()?.with(span, take)
    }
}

impl StoredFile for RemoteFile {
    fn path(&self) -> &Path {
        &self.file.url
    }

    fn len(&self) -> u64 {
        self.file.version.len
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let len = checked(self.path(), &span, self.len())?.len();
        if len == 0 {
            return take(&[]);
        }
        if let Some((tail, range)) = self.file.take_tail(&span) {
            let room = &mut buffer.room(len)?[..len];
            room.copy_from_slice(&tail[range]);
            return take(room);
        }
        // Before the cache: what was fetched a moment ago was written to the cache, but is still in memory.
        if let Some(fetched) = self.prefetch.take_arrived(&self.file, &span) {
            return take(fetched.bytes());
        }
        if let Some(taken) = self.with_kept(&span, take) {
            return taken;
        }
        if let Some(fetched) = self.prefetch.take(&self.file, &span)? {
            return take(fetched.bytes());
        }
        if let Some(taken) = self.with_cached(&span, take) {
            return taken;
        }
        let room = &mut buffer.room(len)?[..len];
        self.file.read(span, room)?;
        take(room)
    }

    fn read_into(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        let len = checked(self.path(), &span, self.len())?.len();
        check_room(self.path(), len, out)?;
        if len == 0 {
            return Ok(());
        }
        if let Some((tail, range)) = self.file.take_tail(&span) {
            out.copy_from_slice(&tail[range]);
            return Ok(());
        }
        if let Some(fetched) = self.prefetch.take_arrived(&self.file, &span) {
            out.copy_from_slice(fetched.bytes());
            return Ok(());
        }
        let mut copy = |bytes: &[u8]| {
            out.copy_from_slice(bytes);
            Ok(())
        };
        if let Some(taken) = self.with_kept(&span, &mut copy) {
            return taken;
        }
        if let Some(fetched) = self.prefetch.take(&self.file, &span)? {
            out.copy_from_slice(fetched.bytes());
            return Ok(());
        }
        let mut copy = |bytes: &[u8]| {
            out.copy_from_slice(bytes);
            Ok(())
        };
        if let Some(taken) = self.with_cached(&span, &mut copy) {
            return taken;
        }
        self.file.read(span, out)
    }

    fn prefetch(&self, span: Range<u64>) {
        let Some(span) = readable(&span, self.len()) else { return };
        if self.file.has_tail(&span) {
            return;
        }
        if let Some(kept) = self.file.kept.get() {
            for block in kept.prefetch(&span) {
                let wanted = block.end.min(span.end) - block.start.max(span.start);
                self.prefetch.ask(&self.file, block, wanted);
            }
            return;
        }
        for start in span.clone().step_by(COALESCING.run as usize) {
            let end = span.end.min(start + COALESCING.run);
            self.prefetch.ask(&self.file, start..end, end - start);
        }
    }

    fn near(&self) -> Near {
        COALESCING
    }

    fn divide(&self, chunks: &[Option<Range<u64>>], per_sample: usize) {
        if let Some(cache) = &self.cache {
            self.file.kept.get_or_init(|| cache.shard(&self.file.url, chunks, per_sample));
        }
    }

    fn cached_as(&self) -> Option<u32> {
        self.file.kept.get().map(CachedShard::number)
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.prefetch.forget(self.file.number);
    }
}
