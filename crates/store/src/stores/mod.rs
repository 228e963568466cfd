//! How stored bytes are read.
//!
//! A [`Store`] opens files. A [`StoredFile`] gives spans of their bytes, as a view if possible,
//! otherwise in the caller's buffer. It also accepts hints about spans that will be needed soon.
//! Reading allocates nothing once buffers have grown to the size of the spans.
//!
//! | store | file | good for |
//! |---|---|---|
//! | [`MappedStore`] | `mapped.rs` | local disks (the default): no copy, no descriptors |
//! | [`PreadStore`] | `pread.rs` | network disks: few, large requests |
//! | [`DirectStore`] | `direct.rs` | data much larger than RAM: does not use the page cache, reads ahead itself |
//! | [`RemoteStore`] | `remote/` | URLs: fetches prefetched spans with several requests at a time |
//! | [`Limited`] | `throttled.rs` | any store, slowed down to the speed of another disk or server |
//!
//! `page_prefetch.rs` reads ahead into the page cache for the first two. `coalesce.rs` plans which
//! spans are requested together. `contract.rs` tests the guarantees of all stores.
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
mod mapped;
mod mapped_file;
mod page_prefetch;
mod pread;
mod remote;
mod store;
mod stored_file;
mod throttled;

use std::path::Path;
use std::sync::Arc;

pub use buffer::{PAGE, ReadBuffer};
pub use coalesce::{Run, coalesce};
pub use direct::{DirectOptions, DirectStore};
pub use mapped::MappedStore;
pub(crate) use mapped_file::FileMapper;
pub use pread::PreadStore;
pub use remote::RemoteStore;
pub use store::{Store, Traffic};
pub(crate) use stored_file::raise_descriptor_limit;
pub use stored_file::{Near, StoredFile};
pub use throttled::Limited;

pub use crate::throttle::Link;

use crate::remote::is_url;
use hsipack_format::{Error, Opt, Result, remedy};

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

hsipack_format::option_names!(StoreKind, "store", {
    Mapped => "mmap",
    Pread => "pread",
    Direct => "direct",
});

impl StoreKind {
    /// A store for files or objects at `path`: a store of this kind with its default options, or a
    /// [`RemoteStore`] if `path` is a URL.
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
}
