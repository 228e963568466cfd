//! Reading, counted and at a limited rate.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hsipack_read::store::{Limited, ReadBuffer, Store, StoreKind, StoredFile};

use crate::Result;

/// The store of a case: of this kind, at this rate, counted.
pub fn store(kind: StoreKind, rate: Option<u64>) -> Counted {
    let mut store = kind.store();
    if let Some(rate) = rate {
        store = Arc::new(Limited::disk(store, rate));
    }
    Counted { store, counts: Arc::default() }
}

/// A store that counts what is read from it.
#[derive(Clone, Debug)]
pub struct Counted {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
}

/// What was read so far.
#[derive(Debug, Default)]
pub struct Counts {
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Counts {
    /// Bytes read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Seconds that all threads together were in reads.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9
    }

    fn add(&self, bytes: u64, since: Instant) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanoseconds.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Counted {
    /// What was read so far.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }
}

impl Store for Counted {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let file = self.store.open(path)?;
        Ok(Arc::new(CountedFile { file, counts: self.counts.clone() }))
    }
}

#[derive(Debug)]
struct CountedFile {
    file: Arc<dyn StoredFile>,
    counts: Arc<Counts>,
}

impl StoredFile for CountedFile {
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
        let start = Instant::now();
        self.file.with_bytes(span, buffer, &mut |bytes| {
            // What is done with the bytes is no reading.
            self.counts.add(bytes.len() as u64, start);
            take(bytes)
        })
    }

    fn read_into(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        let start = Instant::now();
        self.file.read_into(span, out)?;
        self.counts.add(out.len() as u64, start);
        Ok(())
    }

    fn prefetch(&self, span: Range<u64>) {
        self.file.prefetch(span);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_counted_however_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 100]).unwrap();
        for kind in StoreKind::ALL {
            let store = store(kind, Some(1 << 30));
            let file = store.open(&path).unwrap();
            file.read_into(10..40, &mut [0; 30]).unwrap();
            file.with_bytes(0..50, &mut ReadBuffer::new(), &mut |_| Ok(())).unwrap();
            assert_eq!(store.counts().bytes(), 80);
            assert!(store.counts().seconds() > 0.0);
        }
    }
}
