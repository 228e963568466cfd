//! Files read with `pread` into the caller's buffer: one request a span, as large as the span, which is
//! what network disks like.

use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ReadBuffer, Store, StoredFile, cannot_read, checked, open_descriptor, readable};
use crate::Result;

/// Reads with `pread`. Holds a descriptor for each open file.
#[derive(Clone, Copy, Debug, Default)]
pub struct PreadStore;

impl PreadStore {
    /// The store.
    pub fn new() -> Self {
        Self
    }
}

impl Store for PreadStore {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let (file, len) = open_descriptor(path, OpenOptions::new().read(true))?;
        Ok(Arc::new(PreadFile { file, path: path.to_owned(), len }))
    }
}

#[derive(Debug)]
struct PreadFile {
    file: File,
    path: PathBuf,
    len: u64,
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
        let bytes = buffer.room(len);
        self.file
            .read_exact_at(bytes, span.start)
            .map_err(|error| cannot_read(&self.path, error))?;
        take(bytes)
    }

    fn prefetch(&self, span: Range<u64>) {
        let Some(span) = readable(&span, self.len) else { return };
        // Lengths of files fit in the system's signed offsets.
        let (start, len) = (span.start as libc::off_t, (span.end - span.start) as libc::off_t);
        // SAFETY: advice on an open descriptor. If it is not taken, the bytes come when they are read.
        unsafe {
            libc::posix_fadvise(self.file.as_raw_fd(), start, len, libc::POSIX_FADV_WILLNEED)
        };
    }
}
