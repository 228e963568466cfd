//! A store that counts reads, over a link of limited speed.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use hsipack_read::store::{Limited, Link, Near, ReadBuffer, Store, StoreKind, StoredFile};
use hsipack_store::mapping::Mapping;

use crate::Result;

/// The store of a case: of this kind, over this link, with counters.
pub fn store(kind: StoreKind, link: Link) -> Counted {
    let mut store = kind.store();
    if !link.is_free() {
        store = Arc::new(Limited::disk(store, link));
    }
    Counted { store, counts: Arc::default(), open: Arc::default() }
}

/// A store that counts what is read from it.
#[derive(Clone, Debug)]
pub struct Counted {
    store: Arc<dyn Store>,
    counts: Arc<Counts>,
    /// Open files.
    open: Arc<Mutex<Vec<Weak<dyn StoredFile>>>>,
}

/// Counters of all reads so far.
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

    /// Seconds that all threads together spent reading.
    pub fn seconds(&self) -> f64 {
        self.nanoseconds.load(Ordering::Relaxed) as f64 * 1e-9
    }

    fn add(&self, bytes: u64, since: Instant) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.nanoseconds.fetch_add(since.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Counted {
    /// The counters of all reads so far.
    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// Releases what open files keep in the system's cache, so that the cache can be dropped.
    pub fn release(&self) {
        self.opened().iter().filter_map(Weak::upgrade).for_each(|file| file.release());
    }

    fn opened(&self) -> MutexGuard<'_, Vec<Weak<dyn StoredFile>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Counted {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let file = self.store.open(path)?;
        let mut open = self.opened();
        open.retain(|file| file.strong_count() > 0);
        open.push(Arc::downgrade(&file));
        drop(open);
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
            // Using the bytes is not part of reading.
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

    fn near(&self) -> Near {
        self.file.near()
    }

    fn release(&self) {
        self.file.release();
    }

    fn mapping(&self) -> Option<&Arc<Mapping>> {
        self.file.mapping()
    }
}

#[cfg(test)]
mod tests {
    use hsipack_testing::skipped;

    use super::*;

    #[test]
    fn reads_are_counted_by_every_store() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 100]).unwrap();
        for kind in StoreKind::ALL {
            let store = store(kind, Link::of_rate(1 << 30));
            let file = store.open(&path).unwrap();
            file.read_into(10..40, &mut [0; 30]).unwrap();
            file.with_bytes(0..50, &mut ReadBuffer::new(), &mut |_| Ok(())).unwrap();
            assert_eq!(store.counts().bytes(), 80);
            assert!(store.counts().seconds() > 0.0);
        }
    }

    /// Whether a file's first page is in the system's cache; `None` if the system does not say.
    #[cfg(target_os = "linux")]
    fn is_cached(path: &Path) -> Option<bool> {
        let (mut page, file) = ([0; 4096], std::fs::File::open(path).unwrap());
        let pages = &mut [std::io::IoSliceMut::new(&mut page)];
        match rustix::io::preadv2(&file, pages, 0, rustix::io::ReadWriteFlags::NOWAIT) {
            Ok(_) => Some(true),
            Err(rustix::io::Errno::AGAIN) => Some(false),
            Err(_) => None,
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn released_mappings_can_be_dropped_from_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let (path, plain) = (folder.path().join("mapped"), folder.path().join("plain"));
        for path in [&path, &plain] {
            std::fs::write(path, vec![7; 1 << 20]).unwrap();
        }
        let store = store(StoreKind::Mapped, Link::default());
        let file = store.open(&path).unwrap();
        let read = |file: &dyn StoredFile| {
            let mut bytes = vec![0; 1 << 20];
            file.read_into(0..1 << 20, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7));
        };
        read(&*file);
        store.release();
        crate::machine::drop_file_cache(folder.path()).unwrap();
        if is_cached(&plain) == Some(false) {
            assert_eq!(is_cached(&path), Some(false));
        } else {
            skipped("this file system's cache cannot be dropped");
        }
        read(&*file);
        drop(file);
        store.release();
    }
}
