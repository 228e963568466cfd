//! Files in their present state, and what is remembered of the last few of them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::Result;

/// Listings of the last few files with very many arrays. Each of thousands of cubes in one file is
/// opened by itself, and needs the list of all arrays.
pub struct Recent<T>(Mutex<Vec<(Identity, Arc<T>)>>);

/// The number of files that are remembered.
const MAX_FILES: usize = 4;
/// The list of arrays is remembered if it is at least this long.
pub(crate) const MANY_ARRAYS: usize = 16;

/// A file in its present state.
#[derive(Clone, PartialEq)]
pub(crate) struct Identity {
    path: PathBuf,
    file: [u64; 3],
    changed: [i64; 4],
}

impl Identity {
    /// `None` for empty files: they may represent objects on a server.
    pub fn of(path: &Path) -> Option<Self> {
        let metadata: Metadata = path.metadata().ok().filter(|metadata| metadata.len() > 0)?;
        Some(Self {
            path: path.to_owned(),
            file: [metadata.dev(), metadata.ino(), metadata.len()],
            changed: [
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            ],
        })
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Recent<T> {
    /// Nothing is remembered yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The result of `read` for the file at `path`, which is remembered if `is_long` says so, until
    /// the file changes.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn get(
        &self,
        path: &Path,
        is_long: impl FnOnce(&T) -> bool,
        read: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let identity = Identity::of(path);
        let files = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cached = files().iter().find(|(file, _)| Some(file) == identity.as_ref()).cloned();
        if let Some((_, found)) = cached {
            return Ok(found);
        }
        let found = Arc::new(read()?);
        if let Some(identity) = identity.filter(|_| is_long(&found)) {
            let mut files = files();
            files.retain(|(file, _)| file.path != identity.path);
            files.truncate(MAX_FILES - 1);
            files.insert(0, (identity, Arc::clone(&found)));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_remembered_until_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let recent = Recent::new();
        let read = |is_long: bool| {
            let text = || Ok(std::fs::read_to_string(&path).unwrap());
            recent.get(&path, |_| is_long, text).unwrap()
        };
        std::fs::write(&path, "one").unwrap();
        assert!(!Arc::ptr_eq(&read(false), &read(true)));
        assert!(Arc::ptr_eq(&read(true), &read(false)));
        std::fs::write(&path, "three").unwrap();
        assert_eq!(*read(true), "three");
    }
}
