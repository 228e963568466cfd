//! The arrays in a container, by the names that users write after `::`.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::{DType, Result};

use crate::axes::Axes;
use crate::container::ArrayEntry;
use crate::detect;
use crate::variables::Role;

/// An array in a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// Its path inside the container, without a slash at the start; empty for the only array of an `.npy` file.
    pub name: String,
    /// Lengths in index order.
    pub lengths: Vec<usize>,
    /// Type of its numbers; `None` if it holds something else.
    pub dtype: Option<DType>,
}

/// The arrays in the container at `path`, in the order in which the file lists them. Empty if it is not a container.
///
/// # Errors
/// If the container cannot be read.
pub fn arrays(path: &Path) -> Result<Vec<Listed>> {
    let mut all = Vec::new();
    detect::visit(path, &mut |container| {
        all.extend(container.arrays_anywhere(&|_| true).into_iter().map(Listed::from));
        Ok(())
    })?;
    Ok(all)
}

/// The number of samples in an array of the container at `path`: the length of its axis `n` in `axes`. `name` may be only
/// the last part of the array's path, and is `None` for the only array with as many axes. `None` if there is no such array.
///
/// # Errors
/// If the container cannot be read.
pub fn number_of_samples(path: &Path, name: Option<&str>, axes: &Axes) -> Result<Option<usize>> {
    /// Each of thousands of samples asks.
    static RECENT: Recent<Vec<Listed>> = Recent::new();
    let Some(axis) = axes.sample_axis() else { return Ok(None) };
    let all = RECENT.get(path, |_| true, || arrays(path))?;
    let fits = |array: &&Listed| array.lengths.len() == axes.count();
    let named = |array: &&Listed| match name.map(|name| name.trim_matches('/')) {
        None => true,
        Some(name) => array.name == name || array.name.rsplit('/').next() == Some(name),
    };
    let is_exact = |array: &&&Listed| Some(&*array.name) == name.map(|name| name.trim_matches('/'));
    let found: Vec<&Listed> = all.iter().filter(fits).filter(named).collect();
    let exact = found.iter().find(is_exact).copied();
    let only = found.first().copied().filter(|_| found.len() == 1);
    Ok(exact.or(only).map(|array| array.lengths[axis]))
}

impl From<ArrayEntry> for Listed {
    fn from(ArrayEntry { path, lengths, dtype }: ArrayEntry) -> Self {
        Self { name: path.strip_prefix('/').unwrap_or(&path).to_owned(), lengths, dtype }
    }
}

impl Listed {
    /// Whether it can be a cube: it has three axes, of which at least two are longer than 1.
    pub fn may_be_cube(&self) -> bool {
        let role = self.dtype.map(|dtype| Role::of(&self.lengths, dtype));
        matches!(role, Some(Role::Cube(2..) | Role::Picture))
    }
}

/// Listings of the last few files with very many arrays. Each of thousands of cubes in one file is opened by itself,
/// and needs the list of all arrays.
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

    /// The result of `read` for the file at `path`, which is remembered if `is_long` says so, until the file changes.
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
