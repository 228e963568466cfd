//! The metadata files of a dataset, in a local folder or on a server.

use std::fs;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};

use crate::bounded_read;
use crate::remote::{self, Fetched, ShardTails, Version};

/// The metadata files of one dataset.
#[derive(Debug)]
pub(crate) enum MetadataFiles {
    /// A folder; each file is read when it is needed.
    Folder,
    /// A server; the files were fetched together.
    Server(Box<Fetched>),
}

impl MetadataFiles {
    /// The metadata files of the dataset at `path`. If it is a URL, `with_tails` says whether the
    /// ends of the shards are fetched, too.
    ///
    /// # Errors
    /// If `path` is a URL and they cannot be fetched.
    pub(crate) fn of(path: &Path, with_tails: bool) -> Result<Self> {
        match remote::is_url(path) {
            true => Fetched::new(path, with_tails).map(|fetched| Self::Server(Box::new(fetched))),
            false => Ok(Self::Folder),
        }
    }

    /// The bytes of `file`, which may have at most `most`.
    ///
    /// # Errors
    /// If it cannot be read, or is larger.
    pub(crate) fn read(&self, file: &Path, most: u64) -> Result<Vec<u8>> {
        match self {
            Self::Folder => bounded_read::read(file, most),
            Self::Server(fetched) => {
                let content = fetched.get(file, most)?;
                content.ok_or_else(|| remote::missing(file))
            }
        }
    }

    /// The ends of shards that were fetched. They are given only once.
    pub(crate) fn take_tails(&self) -> ShardTails {
        match self {
            Self::Folder => ShardTails::default(),
            Self::Server(fetched) => fetched.take_tails(),
        }
    }

    /// The version of `SHA256SUMS` on a server, if it exists.
    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Self::Folder => None,
            Self::Server(fetched) => fetched.version(),
        }
    }

    /// The places where `file` may be now or later.
    pub(crate) fn places(&self, file: &Path) -> Vec<PathBuf> {
        match self {
            Self::Folder => vec![file.to_owned()],
            Self::Server(fetched) => fetched.places(file),
        }
    }

    /// Whether the file exists.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(crate) fn has(&self, file: &Path) -> Result<bool> {
        match self {
            Self::Folder => Ok(file.is_file()),
            Self::Server(fetched) => Ok(fetched.get(file, bounded_read::METADATA)?.is_some()),
        }
    }

    /// Sorted names of the folders directly below `folder` that contain the file `inside`.
    ///
    /// # Errors
    /// If the folder cannot be listed.
    pub(crate) fn folders(&self, folder: &Path, inside: &Path) -> Result<Vec<String>> {
        let all = match self {
            Self::Folder => {
                let fail = |error| Error::io(folder, "cannot list", error);
                let names = fs::read_dir(folder).map_err(fail)?.map(|entry| {
                    entry.map(|entry| entry.file_name().to_string_lossy().into_owned())
                });
                names.collect::<Result<Vec<_>, _>>().map_err(fail)?
            }
            Self::Server(fetched) => fetched.folders(folder)?,
        };
        let mut names = Vec::new();
        for name in all {
            if self.has(&folder.join(&name).join(inside))? {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}
