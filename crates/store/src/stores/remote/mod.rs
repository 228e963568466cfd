//! Objects on servers. Prefetched spans are fetched by several requests at the same time, and wait in memory.
//!
//! | file | contents |
//! |---|---|
//! | `ahead.rs` | spans that were requested: queued, being fetched, arrived |
//! | `claimed.rs` | how long spans are left to other processes |
//! | `pace.rs` | how many parallel requests fill the link |
//! | `pool.rs` | memory of spans, which is used again |

mod ahead;
mod claimed;
mod pace;
mod pool;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hsipack_format::Result;

use super::limited::{Limit, Link};
use super::{Near, ReadBuffer, Store, StoredFile, Traffic, check_room, checked, readable};
use crate::local_cache::{CachedDataset, CachedShard, Claim};
use crate::memory;
use crate::remote::{self, Object, ShardTails, TAIL_BYTES, Version};
use ahead::Ahead;
pub(crate) use pool::SpanBytes;

/// Default maximum number of bytes that wait in memory.
const BYTES: u64 = 512 << 20;
/// Each request costs a round trip, so a gap of up to 1 MiB between two wanted spans is fetched too. Parallel requests
/// share the link, so long requests would delay all of them.
const NEAR: Near = Near { gap: 1 << 20, run: 4 << 20 };

/// A store that reads objects by their URLs. Its requests run on the network's threads, and end when it is dropped.
#[derive(Debug)]
pub struct RemoteStore {
    ahead: Arc<Ahead>,
    files: AtomicU64,
    wire: Arc<Wire>,
    /// The local caches of the datasets that have one.
    caches: Mutex<Vec<Arc<CachedDataset>>>,
    /// The ends of shards that were fetched before the shards are opened.
    tails: Mutex<ShardTails>,
}

/// The traffic between the server and the store.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// Simulates a slower link.
    limit: Option<Limit>,
}

impl Wire {
    fn new(link: Link) -> Self {
        // No burst: a server does not read ahead.
        let limit = (!link.is_free()).then(|| Limit::new(link, 0));
        Self { requests: AtomicU64::new(0), bytes: AtomicU64::new(0), limit }
    }

    /// Call this before a request for bytes.
    pub(crate) async fn ask(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.come_late().await;
    }

    /// Waits for the latency of an answer.
    pub(crate) async fn come_late(&self) {
        if let Some(limit) = &self.limit {
            tokio::time::sleep(limit.latency()).await;
        }
    }

    /// Call this when bytes of an answer have arrived.
    pub(crate) async fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(limit) = &self.limit {
            tokio::time::sleep(limit.book(bytes as u64)).await;
        }
    }
}

impl RemoteStore {
    /// A store that keeps up to 512 MiB of prefetched data, or an eighth of the available memory if that is less.
    pub fn new() -> Self {
        let free = memory::available().map_or(u64::MAX, |available| available.bytes);
        Self::with_bytes(BYTES.min(free / 8))
    }

    /// A store that keeps up to `bytes` of prefetched data; with 0, nothing is prefetched.
    pub fn with_bytes(bytes: u64) -> Self {
        Self {
            ahead: Arc::new(Ahead::new(bytes)),
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
        let known = self.tails().0.remove(path);
        let (version, tail) = match known {
            Some(known) => known,
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
        let (ahead, cache) = (self.ahead.clone(), self.cache_of(path));
        Ok(Arc::new(RemoteFile { file, ahead, cache }))
    }

    fn keep_in(&self, cache: &Arc<CachedDataset>) {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner).push(cache.clone());
    }

    fn expect(&self, tails: ShardTails) {
        *self.tails() = tails;
    }

    fn batch_requested(&self) {
        self.ahead.first_batch();
    }

    fn traffic(&self) -> Option<Traffic> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Some(Traffic { requests: count(&self.wire.requests), bytes: count(&self.wire.bytes) })
    }
}

/// An object as it was when it was opened.
#[derive(Debug)]
struct OpenObject {
    /// Its number in the store.
    number: u64,
    url: PathBuf,
    version: Version,
    /// Its last bytes, until they are read. An index is read only once.
    tail: Mutex<Option<Vec<u8>>>,
    wire: Arc<Wire>,
    /// Its blocks in the local cache, if there is one.
    kept: OnceLock<CachedShard>,
}

impl OpenObject {
    /// The last bytes and the position of `span` in them, if it is there. They can be taken only once.
    fn take_tail(&self, span: &Range<u64>) -> Option<(Vec<u8>, Range<usize>)> {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.in_tail(tail.as_deref()?, span)?;
        Some((tail.take()?, place))
    }

    /// Whether `take_tail` would return a span.
    fn has_tail(&self, span: &Range<u64>) -> bool {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.as_deref().is_some_and(|tail| self.in_tail(tail, span).is_some())
    }

    fn in_tail(&self, tail: &[u8], span: &Range<u64>) -> Option<Range<usize>> {
        let first = self.version.len - tail.len() as u64;
        let start = span.start.checked_sub(first)? as usize;
        Some(start..start + (span.end - span.start) as usize)
    }

    /// Fetches a span into `out` and fills it.
    async fn fetch(&self, span: Range<u64>, out: &mut [u8]) -> Result<(), remote::Failure> {
        let object = Object::at(&self.url)
            .map_err(|error| remote::Failure::Other(error.what().to_owned()))?;
        object.span(span, &self.version, out, &self.wire).await
    }

    /// Number of bytes that its store has received so far, of any object.
    fn received(&self) -> u64 {
        self.wire.bytes.load(Ordering::Relaxed)
    }

    /// Call this when a prefetched span has arrived.
    fn has_come(&self, span: &Range<u64>, bytes: &Arc<SpanBytes>) {
        if let Some(kept) = self.kept.get() {
            kept.keep(span, bytes);
        }
    }

    /// Claims a span that is about to be fetched, so that other processes with the same local cache leave it to this one.
    fn claim(&self, span: &Range<u64>) -> Claim {
        self.kept.get().map_or(Claim::Free, |kept| kept.claim(span))
    }

    /// Ends the claim on a span that did not arrive.
    fn release(&self, span: &Range<u64>) {
        if let Some(kept) = self.kept.get() {
            kept.release(span);
        }
    }

    /// The bytes of a span that arrived earlier and still waits to be written into the local cache.
    fn waiting(&self, span: &Range<u64>) -> Option<Arc<SpanBytes>> {
        self.kept.get()?.waiting(span)
    }

    /// Fetches a span and waits for it.
    fn read(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        let fetched =
            async { self.fetch(span, out).await.map_err(|failure| failure.of(&self.url)) };
        remote::wait(fetched).map_err(|error| error.at(&self.url))
    }
}

#[derive(Debug)]
struct RemoteFile {
    file: Arc<OpenObject>,
    ahead: Arc<Ahead>,
    cache: Option<Arc<CachedDataset>>,
}

impl RemoteFile {
    /// Calls `take` with the bytes of `span` from the local cache, if they are there. If not, requests their whole block,
    /// because only whole blocks can be cached.
    fn with_kept(
        &self,
        span: &Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<()>> {
        let kept = self.file.kept.get()?;
        if let Some(taken) = kept.with(span, take) {
            // It was requested before another process wrote it to the cache.
            self.ahead.pass(&self.file, span);
            return Some(taken);
        }
        if let Some(block) = kept.block_of(span) {
            self.ahead.ask_once(&self.file, block);
        }
        None
    }

    /// Calls `take` with the bytes of `span` if another process has written them into the local cache since they were
    /// requested.
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
        if let Some((tail, place)) = self.file.take_tail(&span) {
            let room = &mut buffer.room(len)?[..len];
            room.copy_from_slice(&tail[place]);
            return take(room);
        }
        // Before the cache: what was fetched a moment ago was written to the cache, but is still in memory.
        if let Some(there) = self.ahead.take_arrived(&self.file, &span) {
            return take(there.bytes());
        }
        if let Some(taken) = self.with_kept(&span, take) {
            return taken;
        }
        if let Some(there) = self.ahead.take(&self.file, &span)? {
            return take(there.bytes());
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
        if let Some((tail, place)) = self.file.take_tail(&span) {
            out.copy_from_slice(&tail[place]);
            return Ok(());
        }
        if let Some(there) = self.ahead.take_arrived(&self.file, &span) {
            out.copy_from_slice(there.bytes());
            return Ok(());
        }
        let mut copy = |bytes: &[u8]| {
            out.copy_from_slice(bytes);
            Ok(())
        };
        if let Some(taken) = self.with_kept(&span, &mut copy) {
            return taken;
        }
        if let Some(there) = self.ahead.take(&self.file, &span)? {
            out.copy_from_slice(there.bytes());
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
                self.ahead.ask(&self.file, block, wanted);
            }
            return;
        }
        for start in span.clone().step_by(NEAR.run as usize) {
            let end = span.end.min(start + NEAR.run);
            self.ahead.ask(&self.file, start..end, end - start);
        }
    }

    fn near(&self) -> Near {
        NEAR
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
        self.ahead.forget(self.file.number);
    }
}
