//! Where stored bytes come from.
//!
//! A [`Store`] opens files; a [`StoredFile`] gives spans of their bytes, as a view where it can and in the
//! caller's buffer where it must, and takes advice on what will be wanted soon.

use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::Result;

/// Opens the files of a dataset.
pub trait Store: Debug + Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it cannot be opened; the file is named.
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>>;
}

/// A file open for reading, by several threads at once.
pub trait StoredFile: Debug + Send + Sync {
    /// The file's path.
    fn path(&self) -> &Path;

    /// Its length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with the bytes of `span`: a view of the file, or what was read into `buffer`, which is
    /// working memory to be used again for the next call.
    ///
    /// # Errors
    /// If the span lies outside the file, the file cannot be read or has become shorter, or `take` fails.
    /// What `take` made of the bytes is worth nothing then.
    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;

    /// Says that `span` will be wanted soon; returns at once.
    fn prefetch(&self, span: Range<u64>);
}

/// Working memory for reads, aligned to pages, kept from one read to the next.
#[derive(Debug, Default)]
pub struct ReadBuffer {}
