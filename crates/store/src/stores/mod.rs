//! How stored bytes are read.
//!
//! A [`Store`] opens files. A [`StoredFile`] gives spans of their bytes, as a view if possible, otherwise in the caller's
//! buffer. It also accepts hints about spans that will be needed soon. Reading allocates nothing once buffers have grown to
//! the size of the spans.
//!
//! | store | file | good for |
//! |---|---|---|
//! | [`MappedStore`] | `mapped.rs` | local disks (the default): no copy, no descriptors |
//! | [`PreadStore`] | `pread.rs` | network disks: few, large requests |
//! | [`DirectStore`] | `direct.rs` | data much larger than RAM: does not use the page cache, reads ahead itself |
//! | [`RemoteStore`] | `remote/` | URLs: fetches prefetched spans with several requests at a time |
//! | [`Limited`] | `limited.rs` | any store, slowed down to the speed of another disk or server |
//!
//! `warm.rs` reads ahead into the page cache for the first two. `coalesce.rs` plans which spans are requested together.
//! `contract.rs` tests the guarantees of all stores.
//!
//! ```
//! use hsipack_store::stores::{ReadBuffer, StoreKind};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("shard");
//! std::fs::write(&path, b"stored bytes").unwrap();
//! let store = "mmap".parse::<StoreKind>()?.store();
//! let file = store.open(&path)?;
//! file.prefetch(7..12);
//! let mut buffer = ReadBuffer::new();
//! file.with_bytes(7..12, &mut buffer, &mut |bytes| {
//!     assert_eq!(bytes, b"bytes");
//!     Ok(())
//! })?;
//! # Ok::<(), hsipack_format::Error>(())
//! ```

mod buffer;
mod coalesce;
#[cfg(test)]
mod contract;
mod direct;
mod limited;
mod mapped;
mod pread;
mod remote;
mod warm;

use std::fmt::{self, Debug};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

pub use buffer::{PAGE, ReadBuffer};
pub use coalesce::{Run, coalesce};
pub use direct::{DirectOptions, DirectStore};
pub use limited::{Limited, Link};
pub use mapped::MappedStore;
pub use pread::PreadStore;
pub use remote::RemoteStore;
pub(crate) use remote::{SpanBytes, Wire};

use crate::local_cache::CachedDataset;
use crate::remote::{ShardTails, is_url};
use crate::small;
use hsipack_format::{Opt, remedy};

use hsipack_format::{Error, Result};

/// Opens the files of a dataset.
pub trait Store: Debug + Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it cannot be opened; the error names the file.
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>>;

    /// Keeps fetched data of a dataset in a local cache, for files opened from now on. A store of local files keeps nothing.
    fn keep_in(&self, cache: &Arc<CachedDataset>) {
        let _ = cache;
    }

    /// Passes the ends of shards that are about to be opened, so that opening them needs no request. They replace earlier ones.
    /// A store of local files ignores them.
    fn expect(&self, tails: ShardTails) {
        let _ = tails;
    }

    /// Call this when all spans that a batch needs were requested with [`StoredFile::prefetch`]. A store of local files ignores
    /// it.
    fn batch_requested(&self) {}

    /// Requests and bytes so far; `None` if the store does not use a server.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

/// The traffic with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of requests for parts of shards.
    pub requests: u64,
    /// Number of bytes received.
    pub bytes: u64,
}

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

    /// Calls `take` with the bytes of `span`: a view of the file, or bytes that were read into `buffer`, which is working
    /// memory for reuse in the next call. `take` is called once. If a file of the local cache changed meanwhile, it is
    /// called again with the bytes fetched from the server.
    ///
    /// # Errors
    /// If the span lies outside the file, the file cannot be read or has become shorter, or `take` fails.
    /// After an error, discard any result of `take`.
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

    /// Sets the positions of the file's chunks, `per_sample` for each cube. Call it before any chunk is requested.
    fn divide(&self, chunks: &[Option<Range<u64>>], per_sample: usize) {
        let _ = (chunks, per_sample);
    }

    /// The file's number in the local cache, if it is cached ([`Plan`](crate::local_cache::Plan)).
    fn cached_as(&self) -> Option<u32> {
        None
    }

    /// Releases the file's pages in the system's cache, so that the system can drop them on request.
    fn release(&self) {}
}

/// How close spans must be to be requested as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Maximum gap in bytes between two spans. The gap is read too.
    pub gap: u64,
    /// Maximum length in bytes from the start of the first span to the end of the last.
    pub run: u64,
}

/// The stores that a user can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// [`MappedStore`].
    #[default]
    Mapped,
    /// [`PreadStore`].
    Pread,
    /// [`DirectStore`].
    Direct,
}

impl StoreKind {
    /// All kinds.
    pub const ALL: [StoreKind; 3] = [StoreKind::Mapped, StoreKind::Pread, StoreKind::Direct];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            StoreKind::Mapped => "mmap",
            StoreKind::Pread => "pread",
            StoreKind::Direct => "direct",
        }
    }

    /// A store for files or objects at `path`: a store of this kind with its default options, or a [`RemoteStore`] if `path`
    /// is a URL.
    ///
    /// # Errors
    /// Those of [`behind`](Self::behind).
    pub fn store_for(self, path: &Path) -> Result<Arc<dyn Store>> {
        self.behind(path, Link::default())
    }

    /// Like [`store_for`](Self::store_for), but as slow as `link`.
    ///
    /// # Errors
    /// If `path` is a URL and this kind reads only local files.
    ///
    /// # Panics
    /// If the link's rate is 0.
    pub fn behind(self, path: &Path, link: Link) -> Result<Arc<dyn Store>> {
        match self {
            _ if !is_url(path) && link.is_free() => Ok(self.store()),
            _ if !is_url(path) => Ok(Arc::new(Limited::disk(self.store(), link))),
            StoreKind::Mapped => Ok(Arc::new(RemoteStore::new().behind(link))),
            _ => Err(Error::unsupported(format!("files on a server cannot be read with {self}"))
                .at(path)
                .with_remedy(remedy!["leave ", Opt::Store, " out"])),
        }
    }

    /// A store of this kind for local files, with its default options.
    pub fn store(self) -> Arc<dyn Store> {
        match self {
            StoreKind::Mapped => Arc::new(MappedStore::new()),
            StoreKind::Pread => Arc::new(PreadStore::new()),
            StoreKind::Direct => Arc::new(DirectStore::new(DirectOptions::default())),
        }
    }
}

impl fmt::Display for StoreKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for StoreKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(|| {
            Error::unsupported(format!("no store is named {name}"))
                .with_remedy("use mmap, pread or direct")
        })
    }
}

/// The span as memory offsets, if it lies within a file of `len` bytes.
fn checked(path: &Path, span: &Range<u64>, len: u64) -> Result<Range<usize>> {
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
fn check_room(path: &Path, len: usize, out: &[u8]) -> Result<()> {
    if out.len() == len {
        return Ok(());
    }
    Err(Error::conflict(format!("{len} bytes are to be read, but there is room for {}", out.len()))
        .at(path)
        .with_remedy("give room for the whole span"))
}

/// The part of the span that lies within a file of `len` bytes; `None` if there is nothing to read ahead.
fn readable(span: &Range<u64>, len: u64) -> Option<Range<u64>> {
    let end = span.end.min(len);
    (span.start < end).then_some(span.start..end)
}

/// The error of a read that failed.
fn cannot_read(path: &Path, error: io::Error) -> Error {
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

/// Opens a regular file with additional system flags, for a store that keeps its descriptor. Also returns its length.
fn open_descriptor(path: &Path, flags: i32) -> Result<(File, u64)> {
    raise_descriptor_limit();
    small::open_with(path, OpenOptions::new().read(true), flags).map_err(explained)
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

/// Raises this process's limit of open files as far as allowed, once, and returns the limit. A dataset may have thousands of
/// shards, and the usual limit of 1024 exists only for programs that use `select`.
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
    fn every_kind_is_found_by_its_name() {
        for kind in StoreKind::ALL {
            assert_eq!(kind.name().parse::<StoreKind>().unwrap(), kind);
        }
        assert!("Mmap".parse::<StoreKind>().unwrap_err().to_string().contains("pread"));
    }

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
