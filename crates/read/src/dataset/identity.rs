//! Noticing that a dataset was replaced while it was open.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hsipack_format::{Error, checksums};

use crate::Result;

/// What tells one dataset from another that lies at the same path later. Datasets are replaced by renaming,
/// so the folder and the file that stands for all metadata are other files then.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Identity {
    folder: (u64, u64),
    /// Device, inode, length and time of change (s, ns).
    metadata: (u64, u64, u64, i64, i64),
}

impl Identity {
    /// Of what lies at `path` now.
    pub(super) fn of(path: &Path) -> Result<Self> {
        Self::read(path).map_err(|error| Error::io(path, "cannot open", error))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let folder = fs::metadata(path)?;
        let file = fs::metadata(path.join(checksums::SHA256SUMS))
            .or_else(|_| fs::metadata(path.join("zarr.json")))
            // Not a dataset; opening it says so better.
            .unwrap_or_else(|_| folder.clone());
        Ok(Self {
            folder: (folder.dev(), folder.ino()),
            metadata: (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()),
        })
    }

    /// # Errors
    /// If something else lies at `path` now.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let what = match Self::read(path) {
            Ok(now) if now == *self => return Ok(()),
            Ok(_) => "the dataset was replaced while it was open",
            Err(_) => "the dataset was removed or renamed while it was open",
        };
        Err(Error::conflict(what).at(path).with_remedy("open it again"))
    }
}
