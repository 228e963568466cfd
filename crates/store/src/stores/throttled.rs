//! Makes any store behave as if its disk or server were slower: one rate for all files and threads
//! together, and a delay before every read.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::buffer::ReadBuffer;
use super::store::{Store, Traffic};
use super::stored_file::{Near, StoredFile, checked};
use crate::local_cache::CachedDataset;
use crate::remote::ShardTails;
use crate::throttle::{Limit, Link};
use hsipack_format::Result;

/// A store with a limited rate and added latency.
#[derive(Debug)]
pub struct Limited {
    store: Arc<dyn Store>,
    limit: Arc<Limit>,
}

impl Limited {
    /// `store` behind a link, with a read-ahead of up to `burst` bytes.
    ///
    /// # Panics
    /// If its rate is 0.
    pub fn new(store: Arc<dyn Store>, link: Link, burst: u64) -> Self {
        Self { store, limit: Arc::new(Limit::new(link, burst)) }
    }

    /// `store` behind a link with the read-ahead of a disk: 50 ms of reading, at most 64 MiB. This
    /// is too little to influence a measurement.
    ///
    /// # Panics
    /// If its rate is 0.
    pub fn disk(store: Arc<dyn Store>, link: Link) -> Self {
        Self::new(store, link, link.rate.map_or(0, |rate| (rate / 20).min(64 << 20)))
    }
}

impl Store for Limited {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let file = self.store.open(path)?;
        Ok(Arc::new(LimitedFile { file, limit: self.limit.clone() }))
    }

    fn keep_in(&self, cache: &Arc<CachedDataset>) {
        self.store.keep_in(cache);
    }

    fn expect(&self, tails: ShardTails) {
        self.store.expect(tails);
    }

    fn batch_requested(&self) {
        self.store.batch_requested();
    }

    fn traffic(&self) -> Option<Traffic> {
        self.store.traffic()
    }
}

#[derive(Debug)]
struct LimitedFile {
    file: Arc<dyn StoredFile>,
    limit: Arc<Limit>,
}

impl StoredFile for LimitedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        // Invalid spans cost no time.
        checked(self.path(), &span, self.len())?;
        self.limit.wait(span.end - span.start);
        self.file.with_bytes(span, buffer, take)
    }

    fn read_into(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        checked(self.path(), &span, self.len())?;
        self.limit.wait(span.end - span.start);
        self.file.read_into(span, out)
    }

    fn prefetch(&self, span: Range<u64>) {
        self.file.prefetch(span);
    }

    fn near(&self) -> Near {
        self.file.near()
    }

    fn divide(&self, chunks: &[Option<Range<u64>>], per_sample: usize) {
        self.file.divide(chunks, per_sample);
    }

    fn cached_as(&self) -> Option<u32> {
        self.file.cached_as()
    }

    fn release(&self) {
        self.file.release();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_read_waits_for_the_latency() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; 100]).unwrap();
        let link = Link { latency: Duration::from_millis(20), ..Link::default() };
        let file = Limited::disk(super::super::StoreKind::Pread.store(), link).open(&path).unwrap();
        let start = Instant::now();
        file.with_bytes(0..50, &mut ReadBuffer::new(), &mut |_| Ok(())).unwrap();
        file.read_into(50..60, &mut [0; 10]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
    }

    #[test]
    fn threads_and_files_share_the_rate() {
        let folder = tempfile::tempdir().unwrap();
        let pread = super::super::StoreKind::Pread.store();
        let store = Limited::new(pread, Link::of_rate(1 << 20), 0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = folder.path().join(thread.to_string());
                std::fs::write(&path, vec![1; 1 << 16]).unwrap();
                let file = store.open(&path).unwrap();
                scope.spawn(move || {
                    file.with_bytes(0..1 << 16, &mut ReadBuffer::new(), &mut |_| Ok(())).unwrap();
                });
            }
        });
        // 4 × 64 KiB at 1 MiB/s.
        assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    }
}
