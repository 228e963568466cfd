//! Reads files with `pread` into the caller's buffer: one request per span, as large as the span.
//! This suits network disks.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use super::buffer::ReadBuffer;
use super::page_prefetch::PagePrefetcher;
use super::store::Store;
use super::stored_file::{StoredFile, cannot_read, check_room, checked, open_descriptor, readable};
use hsipack_format::Result;

/// A store that reads with `pread`. It holds a descriptor for each open file.
#[derive(Clone, Debug, Default)]
pub struct PreadStore(Arc<PagePrefetcher>);

impl PreadStore {
    /// Creates the store.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Store for PreadStore {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let (file, len) = open_descriptor(path, 0)?;
        Ok(Arc::new(PreadFile { file, path: path.into(), len, prefetcher: self.0.clone() }))
    }
}

#[derive(Debug)]
struct PreadFile {
    file: File,
    path: Arc<Path>,
    len: u64,
    prefetcher: Arc<PagePrefetcher>,
}

impl StoredFile for PreadFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let len = checked(&self.path, &span, self.len)?.len();
        self.prefetcher.wait_for(&self.path, &span);
        let bytes = buffer.room(len)?;
        self.file
            .read_exact_at(bytes, span.start)
            .map_err(|error| cannot_read(&self.path, error))?;
        take(bytes)
    }

    fn read_into(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        let len = checked(&self.path, &span, self.len)?.len();
        check_room(&self.path, len, out)?;
        self.prefetcher.wait_for(&self.path, &span);
        self.file.read_exact_at(out, span.start).map_err(|error| cannot_read(&self.path, error))
    }

    fn prefetch(&self, span: Range<u64>) {
        if let Some(span) = readable(&span, self.len) {
            self.prefetcher.ask(&self.path, span);
        }
    }
}
