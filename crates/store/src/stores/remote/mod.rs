//! Objects on servers: what is asked for ahead is fetched by several requests at the same time, and waits in memory.
//!
//! | file | what it knows |
//! |---|---|
//! | `ahead.rs` | spans that were asked for: queued, being fetched, there |
//! | `pace.rs` | how many requests at the same time fill the link |

mod ahead;
mod pace;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hsipack_format::Result;

use super::limited::{Limit, Link};
use super::{Near, ReadBuffer, Store, StoredFile, Traffic, check_room, checked, readable};
use crate::local_cache::{CachedDataset, CachedShard};
use crate::memory;
use crate::remote::{self, Object, Version};
use ahead::Ahead;

/// Most bytes that wait in memory, unless a store is made with other options.
const BYTES: u64 = 512 << 20;
/// A request costs its way there and back: bytes between two wanted spans are fetched along up to a mebibyte. Several
/// requests at a time share the link, so long ones make all of them late.
const NEAR: Near = Near { gap: 1 << 20, run: 4 << 20 };
/// Bytes at the end of an object that come with opening it: a shard's index, which is wanted first, has 16 for each chunk.
const TAIL: u64 = 32 << 10;

/// Reads objects by their URLs. Its requests run on the network's threads, and end with it.
#[derive(Debug)]
pub struct RemoteStore {
    ahead: Arc<Ahead>,
    files: AtomicU64,
    wire: Arc<Wire>,
    /// Caches on the local disk, of the datasets that have one.
    caches: Mutex<Vec<Arc<CachedDataset>>>,
}

/// What passes between the server and the store.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    requests: AtomicU64,
    bytes: AtomicU64,
    /// As if it were slower.
    limit: Option<Limit>,
}

impl Wire {
    fn new(link: Link) -> Self {
        // Nothing is read ahead of what is asked for.
        let limit = (!link.is_free()).then(|| Limit::new(link, 0));
        Self { requests: AtomicU64::new(0), bytes: AtomicU64::new(0), limit }
    }

    /// A request for bytes is about to be made.
    pub(crate) async fn ask(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.come_late().await;
    }

    /// Waits as long as an answer takes to come.
    pub(crate) async fn come_late(&self) {
        if let Some(limit) = &self.limit {
            tokio::time::sleep(limit.latency()).await;
        }
    }

    /// Bytes of an answer have come.
    pub(crate) async fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(limit) = &self.limit {
            tokio::time::sleep(limit.book(bytes as u64)).await;
        }
    }
}

impl RemoteStore {
    /// A store that keeps up to 512 MiB of what was asked for ahead, or an eighth of the memory that is free if that is
    /// less.
    pub fn new() -> Self {
        let free = memory::available().map_or(u64::MAX, |available| available.bytes);
        Self::with_bytes(BYTES.min(free / 8))
    }

    /// A store that keeps up to `bytes` of what was asked for ahead; 0 fetches nothing ahead.
    pub fn with_bytes(bytes: u64) -> Self {
        Self {
            ahead: Arc::new(Ahead::new(bytes)),
            files: AtomicU64::new(0),
            wire: Arc::new(Wire::new(Link::default())),
            caches: Mutex::default(),
        }
    }

    /// The same as if the way to the server were slower.
    ///
    /// # Panics
    /// If the link's rate is 0.
    pub fn behind(self, link: Link) -> Self {
        Self { wire: Arc::new(Wire::new(link)), ..self }
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
        let (version, tail) = remote::tail(path, TAIL, &self.wire)?;
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

    fn traffic(&self) -> Option<Traffic> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Some(Traffic { requests: count(&self.wire.requests), bytes: count(&self.wire.bytes) })
    }
}

/// An object as it was when it was opened.
#[derive(Debug)]
struct OpenObject {
    /// Which one it is of its store's.
    number: u64,
    url: PathBuf,
    version: Version,
    /// Its last bytes, until they are read: an index is read once.
    tail: Mutex<Option<Vec<u8>>>,
    wire: Arc<Wire>,
    /// Its blocks in the local cache, if there is one.
    kept: OnceLock<CachedShard>,
}

impl OpenObject {
    /// The last bytes and where `span` lies in them, if it does; once.
    fn take_tail(&self, span: &Range<u64>) -> Option<(Vec<u8>, Range<usize>)> {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.in_tail(tail.as_deref()?, span)?;
        Some((tail.take()?, place))
    }

    /// Whether `take_tail` would have a span.
    fn has_tail(&self, span: &Range<u64>) -> bool {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.as_deref().is_some_and(|tail| self.in_tail(tail, span).is_some())
    }

    fn in_tail(&self, tail: &[u8], span: &Range<u64>) -> Option<Range<usize>> {
        let first = self.version.len - tail.len() as u64;
        let start = span.start.checked_sub(first)? as usize;
        Some(start..start + (span.end - span.start) as usize)
    }

    /// Fetches a span into `out`, which it fills.
    async fn fetch(&self, span: Range<u64>, out: &mut [u8]) -> Result<(), remote::Failure> {
        let object = Object::at(&self.url)
            .map_err(|error| remote::Failure::Other(error.what().to_owned()))?;
        object.span(span, &self.version, out, &self.wire).await
    }

    /// A span that was asked for ahead has come.
    fn has_come(&self, span: &Range<u64>, bytes: &Arc<Vec<u8>>) {
        if let Some(kept) = self.kept.get() {
            kept.keep(span, bytes);
        }
    }

    /// The bytes of a span that came a while ago, and waits to be written into the local cache.
    fn waiting(&self, span: &Range<u64>) -> Option<Arc<Vec<u8>>> {
        self.kept.get()?.waiting(span)
    }

    /// Waits for a span.
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
    /// Gives `take` the bytes of `span` from the local cache, if they are there. If not, their block is asked for, since
    /// that is what can be kept.
    fn with_kept(
        &self,
        span: &Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<()>> {
        let kept = self.file.kept.get()?;
        if let Some(taken) = kept.with(span, take) {
            // It may have come, too, just before it was written.
            self.ahead.pass(&self.file, span);
            return Some(taken);
        }
        if let Some(block) = kept.block_of(span) {
            self.ahead.ask_once(&self.file, block);
        }
        None
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
        if let Some(taken) = self.with_kept(&span, take) {
            return taken;
        }
        if let Some(there) = self.ahead.take(&self.file, &span)? {
            return take(there.bytes());
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
        let mut copy = |bytes: &[u8]| {
            out.copy_from_slice(bytes);
            Ok(())
        };
        if let Some(taken) = self.with_kept(&span, &mut copy) {
            return taken;
        }
        match self.ahead.take(&self.file, &span)? {
            Some(there) => out.copy_from_slice(there.bytes()),
            None => self.file.read(span, out)?,
        }
        Ok(())
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
