//! An open file of a store, and what the stores of local files have in common.

use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use hsipack_format::{Error, Opt, Result, remedy};

use super::buffer::ReadBuffer;
use crate::bounded_read;
use crate::mapping::Mapping;

/// An open file that several threads may read at the same time.
pub trait StoredFile: Debug + Send + Sync {
    /// The file's path.
    fn path(&self) -> &Path;

    /// The file's length in bytes when it was opened.
    fn len(&self) -> u64;

    /// Whether the file is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `take` with the bytes of `span`: a view of the file, or bytes that were read into
    /// `buffer`, which is working memory for reuse in the next call. `take` is called once. If a
    /// file of the local cache changed meanwhile, it is called again with the bytes fetched from
    /// the server.
    ///
    /// # Errors
    /// If the span lies outside the file, the file cannot be read or has become shorter, or `take`
    /// fails. After an error, discard any result of `take`.
    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;

    /// Reads `span` into `out` and fills it, without an intermediate copy if the store can.
    ///
    /// # Errors
    /// Those of [`with_bytes`](Self::with_bytes), and if `out` has another length.
    fn read_into(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        self.with_bytes(span, &mut ReadBuffer::new(), &mut |bytes| {
            check_room(self.path(), bytes.len(), out)?;
            out.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// A hint that `span` will be needed soon. Returns at once. A span outside the file is ignored.
    fn prefetch(&self, span: Range<u64>);

    /// Which spans to combine in one [`prefetch`](Self::prefetch).
    fn near(&self) -> Near {
        Near { gap: 64 << 10, run: 8 << 20 }
    }

    /// Sets the positions of the file's chunks, `per_sample` for each cube. Call it before any
    /// chunk is requested.
    fn divide(&self, chunks: &[Option<Range<u64>>], per_sample: usize) {
        let _ = (chunks, per_sample);
    }

    /// The file's number in the local cache, if it is cached
    /// ([`UsePlan`](crate::local_cache::UsePlan)).
    fn cached_as(&self) -> Option<u32> {
        None
    }

    /// Releases the file's pages in the system's cache, so that the system can drop them on
    /// request.
    fn release(&self) {}

    /// The map of the whole file, if its bytes are read from one. It keeps the bytes mapped even if
    /// the file is closed.
    fn mapping(&self) -> Option<&Arc<Mapping>> {
        None
    }
}

/// How close spans must be to be requested as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Maximum gap in bytes between two spans. The gap is read too.
    pub gap: u64,
    /// Maximum length in bytes from the start of the first span to the end of the last.
    pub run: u64,
}

/// The span as memory offsets, if it lies within a file of `len` bytes.
pub(super) fn checked(path: &Path, span: &Range<u64>, len: u64) -> Result<Range<usize>> {
    let ends = (usize::try_from(span.start), usize::try_from(span.end));
    match ends {
        (Ok(start), Ok(end)) if start <= end && span.end <= len => Ok(start..end),
        _ => Err(Error::damaged(format!(
            "bytes {} to {} were requested, but the file has {len} bytes",
            span.start, span.end
        ))
        .at(path)),
    }
}

/// Checks that `out` has room for exactly `len` bytes.
pub(super) fn check_room(path: &Path, len: usize, out: &[u8]) -> Result<()> {
    if out.len() == len {
        return Ok(());
    }
    Err(Error::conflict(format!("{len} bytes are to be read, but there is room for {}", out.len()))
        .at(path)
        .with_remedy("give room for the whole span"))
}

/// The part of the span that lies within a file of `len` bytes; `None` if there is nothing to read
/// ahead.
pub(super) fn readable(span: &Range<u64>, len: u64) -> Option<Range<u64>> {
    let end = span.end.min(len);
    (span.start < end).then_some(span.start..end)
}

/// The error of a read that failed.
pub(super) fn cannot_read(path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Error::io(path, "cannot read", io::Error::other("the file became shorter"))
            .with_remedy("restore the file from a copy; do not change files that are being read");
    }
    let failed = error.raw_os_error() == Some(libc::EIO);
    let error = Error::io(path, "cannot read", error);
    if failed {
        return error
            .with_remedy("check the system log and the disk, and restore the file from a copy");
    }
    error
}

/// Opens a regular file with additional system flags, for a store that keeps its descriptor. Also
/// returns its length.
pub(super) fn open_descriptor(path: &Path, flags: i32) -> Result<(File, u64)> {
    raise_descriptor_limit();
    bounded_read::open_with(path, OpenOptions::new().read(true), flags).map_err(explained)
}

/// Adds a remedy if there are too many open files: to choose another store.
fn explained(error: Error) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    let code = source.and_then(io::Error::raw_os_error);
    if matches!(code, Some(libc::EMFILE | libc::ENFILE)) {
        return error.with_remedy(remedy![
            "raise the limit of open files with `ulimit -n 65536`, or choose ",
            Opt::Store.to("mmap"),
            ", which keeps no files open"
        ]);
    }
    error
}

/// Raises this process's limit of open files as far as allowed, once, and returns the limit. A
/// dataset may have thousands of shards, and the usual limit of 1024 exists only for programs that
/// use `select`.
pub(crate) fn raise_descriptor_limit() -> u64 {
    static LIMIT: OnceLock<u64> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls only look at `limit`. If they fail, the limit stays as it is.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
                let before = limit.rlim_cur;
                limit.rlim_cur = limit.rlim_max;
                if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) != 0 {
                    limit.rlim_cur = before;
                }
            }
        }
        limit.rlim_cur
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_outside_the_file_are_refused_and_never_overflow() {
        #[allow(clippy::reversed_empty_ranges)]
        for span in [0..11, 11..11, 4..3, u64::MAX - 1..u64::MAX, 0..u64::MAX] {
            let error = checked(Path::new("a"), &span, 10).unwrap_err();
            assert_eq!(error.path(), Some(Path::new("a")), "{span:?}");
        }
        assert_eq!(checked(Path::new("a"), &(10..10), 10).unwrap(), 10..10);
    }

    #[test]
    fn too_many_open_files_are_explained() {
        let error = io::Error::from_raw_os_error(libc::EMFILE);
        let error = explained(Error::io("a", "cannot read", error));
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }

    #[test]
    fn a_failing_disk_is_told_from_a_file_cut_short() {
        let error = |error| cannot_read(Path::new("a"), error).to_string();
        assert!(error(io::ErrorKind::UnexpectedEof.into()).contains("shorter"));
        assert!(error(io::Error::from_raw_os_error(libc::EIO)).contains("and the disk"));
    }
}
