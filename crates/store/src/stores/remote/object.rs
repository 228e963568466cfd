//! An object as it was when it was opened, with its blocks in the local cache.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hsipack_format::Result;

use crate::local_cache::{CachedShard, Claim};
use crate::remote::{self, Object, Version};
use crate::span_pool::SpanBytes;
use crate::throttle::Wire;

/// An object as it was when it was opened.
#[derive(Debug)]
pub(super) struct OpenObject {
    /// Its number in the store.
    pub number: u64,
    pub url: PathBuf,
    pub version: Version,
    /// Its last bytes, until they are read. An index is read only once.
    pub tail: Mutex<Option<Vec<u8>>>,
    pub wire: Arc<Wire>,
    /// Its blocks in the local cache, if there is one.
    pub kept: OnceLock<CachedShard>,
}

impl OpenObject {
    /// The last bytes and the position of `span` in them, if it is there. They can be taken only
    /// once.
    pub(super) fn take_tail(&self, span: &Range<u64>) -> Option<(Vec<u8>, Range<usize>)> {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let range = self.in_tail(tail.as_deref()?, span)?;
        Some((tail.take()?, range))
    }

    /// Whether `take_tail` would return a span.
    pub(super) fn has_tail(&self, span: &Range<u64>) -> bool {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.as_deref().is_some_and(|tail| self.in_tail(tail, span).is_some())
    }

    pub(super) fn in_tail(&self, tail: &[u8], span: &Range<u64>) -> Option<Range<usize>> {
        let first = self.version.len - tail.len() as u64;
        let start = span.start.checked_sub(first)? as usize;
        Some(start..start + (span.end - span.start) as usize)
    }

    /// Fetches a span into `out` and fills it.
    pub(super) async fn fetch(
        &self,
        span: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), remote::Failure> {
        let object = Object::at(&self.url)
            .map_err(|error| remote::Failure::Other(error.what().to_owned()))?;
        object.span(span, &self.version, out, &self.wire).await
    }

    /// Number of bytes that its store has received so far, of any object.
    pub(super) fn received(&self) -> u64 {
        self.wire.bytes.load(Ordering::Relaxed)
    }

    /// Call this when a prefetched span has arrived.
    pub(super) fn has_come(&self, span: &Range<u64>, bytes: &Arc<SpanBytes>) {
        if let Some(kept) = self.kept.get() {
            kept.keep(span, bytes);
        }
    }

    /// Claims a span that is about to be fetched, so that other processes with the same local cache
    /// leave it to this one.
    pub(super) fn claim(&self, span: &Range<u64>) -> Claim {
        self.kept.get().map_or(Claim::Free, |kept| kept.claim(span))
    }

    /// Ends the claim on a span that did not arrive.
    pub(super) fn release(&self, span: &Range<u64>) {
        if let Some(kept) = self.kept.get() {
            kept.release(span);
        }
    }

    /// The bytes of a span that arrived earlier and still waits to be written into the local cache.
    pub(super) fn waiting(&self, span: &Range<u64>) -> Option<Arc<SpanBytes>> {
        self.kept.get()?.waiting(span)
    }

    /// Fetches a span and waits for it.
    pub(super) fn read(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        let fetched =
            async { self.fetch(span, out).await.map_err(|failure| failure.of(&self.url)) };
        remote::wait(fetched).map_err(|error| error.at(&self.url))
    }
}
