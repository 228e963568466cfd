//! Where stored bytes come from.
//!
//! A [`Store`] opens files; a [`StoredFile`] gives spans of their bytes, as a view where it can and in the
//! caller's buffer where it must, and takes advice on what will be wanted soon. Reading allocates nothing
//! once buffers have grown to the size of the spans.
//!
//! | store | file | good for |
//! |---|---|---|
//! | [`MappedStore`] | `mapped.rs` | local disks (the default): no copy, no descriptors |
//! | [`PreadStore`] | `pread.rs` | network disks: few, large requests |
//! | [`DirectStore`] | `direct.rs` | data far beyond RAM: leaves the page cache alone, reads ahead itself |
//! | [`RemoteStore`] | `remote/` | URLs: what is asked for ahead is fetched by several requests at a time |
//! | [`Limited`] | `limited.rs` | any of them, as if the disk were slower |
//!
//! `warm.rs` reads ahead into the page cache for the first two. `coalesce.rs` plans which spans are asked for
//! together. `contract.rs` tests what every store promises.
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
pub(crate) use remote::Wire;

use crate::local_cache::CachedDataset;
use crate::remote::is_url;
use crate::small;
use hsipack_format::{Opt, remedy};

use hsipack_format::{Error, Result};

/// Opens the files of a dataset.
pub trait Store: Debug + Send + Sync {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// If it cannot be opened; the file is named.
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>>;

    /// Keeps what is fetched of a dataset, in files opened from now on, in a cache on the local disk. A store of files of this
    /// machine keeps nothing.
    fn keep_in(&self, cache: &Arc<CachedDataset>) {
        let _ = cache;
    }

    /// What was asked of a server so far; `None` if there is none.
    fn traffic(&self) -> Option<Traffic> {
        None
    }
}

/// What was asked of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests for parts of shards.
    pub requests: u64,
    /// Bytes that came.
    pub bytes: u64,
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

    /// Calls `take` with the bytes of `span`: a view of the file, or what was read into `buffer`,
    /// which is working memory to be used again for the next call. Once; but where a file of the local cache changed
    /// meanwhile, once more with the bytes that are fetched instead.
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

    /// Reads `span` into `out`, which it fills; without a copy between where the store can.
    ///
    /// # Errors
    /// As [`with_bytes`](Self::with_bytes), and if `out` has another length.
    fn read_into(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        self.with_bytes(span, &mut ReadBuffer::new(), &mut |bytes| {
            check_room(self.path(), bytes.len(), out)?;
            out.copy_from_slice(bytes);
            Ok(())
        })
    }

    /// Says that `span` will be wanted soon; returns at once. A span that is no part of the file is
    /// ignored.
    fn prefetch(&self, span: Range<u64>);

    /// Which spans are asked for together with [`prefetch`](Self::prefetch).
    fn near(&self) -> Near {
        Near { gap: 64 << 10, run: 8 << 20 }
    }

    /// Says where the file's chunks lie, `per_sample` for each cube, before any of them is asked for.
    fn divide(&self, chunks: &[Option<Range<u64>>], per_sample: usize) {
        let _ = (chunks, per_sample);
    }

    /// Its number in the local cache, if that keeps it ([`Plan`](crate::local_cache::Plan)).
    fn cached_as(&self) -> Option<u32> {
        None
    }

    /// Lets go of what it keeps of the file in the system's cache, so that the system can drop that when it is asked to.
    fn release(&self) {}
}

/// How near spans are asked for as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Most bytes between two of them, which are read along.
    pub gap: u64,
    /// Most bytes from the first to the last one.
    pub run: u64,
}

/// The stores that a user may choose from.
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
    /// All of them.
    pub const ALL: [StoreKind; 3] = [StoreKind::Mapped, StoreKind::Pread, StoreKind::Direct];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            StoreKind::Mapped => "mmap",
            StoreKind::Pread => "pread",
            StoreKind::Direct => "direct",
        }
    }

    /// A store for files or objects at `path`: of this kind, with its default options, or a [`RemoteStore`] for a URL.
    ///
    /// # Errors
    /// As [`behind`](Self::behind).
    pub fn store_for(self, path: &Path) -> Result<Arc<dyn Store>> {
        self.behind(path, Link::default())
    }

    /// As [`store_for`](Self::store_for), as if the disk or the server were as slow as `link`.
    ///
    /// # Errors
    /// If a kind that reads files of this machine only was chosen for a URL.
    ///
    /// # Panics
    /// If the link's rate is 0.
    pub fn behind(self, path: &Path, link: Link) -> Result<Arc<dyn Store>> {
        match self {
            _ if !is_url(path) && link.is_free() => Ok(self.store()),
            _ if !is_url(path) => Ok(Arc::new(Limited::disk(self.store(), link))),
            StoreKind::Mapped => Ok(Arc::new(RemoteStore::new().behind(link))),
            _ => Err(Error::unsupported(format!("objects on a server cannot be read by {self}"))
                .at(path)
                .with_remedy(remedy!["leave ", Opt::Store, " out"])),
        }
    }

    /// A store of this kind, with its default options, for files of this machine.
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
            "bytes {} to {} were wanted of a file of {len}",
            span.start, span.end
        ))
        .at(path)),
    }
}

/// Refuses to read so many bytes into room for another number.
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
        return error.with_remedy(
            "look into the system's log, check the disk, restore the file from a copy",
        );
    }
    error
}

/// Opens a regular file, with further flags for the system, for a store that keeps its descriptor. Gives its length,
/// too.
fn open_descriptor(path: &Path, flags: i32) -> Result<(File, u64)> {
    raise_descriptor_limit();
    small::open_with(path, OpenOptions::new().read(true), flags).map_err(explained)
}

/// Too many open files: here, there is another store to choose.
fn explained(error: Error) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    let code = source.and_then(io::Error::raw_os_error);
    if matches!(code, Some(libc::EMFILE | libc::ENFILE)) {
        return error.with_remedy(remedy![
            "raise the limit of open files with `ulimit -n 65536`, or choose ",
            Opt::Store.to("mmap"),
            ", which holds none"
        ]);
    }
    error
}

/// Raises this process's limit of open files as far as it may, once: a dataset may have thousands of
/// shards, and the usual limit of 1024 is there for programs that use `select`. Gives the limit.
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
        assert!(error(io::Error::from_raw_os_error(libc::EIO)).contains("check the disk"));
    }
}
