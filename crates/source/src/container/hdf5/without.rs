//! Stand-in for libhdf5 in a build without it: no file can be opened, so only [`Tree::open`] is
//! ever called.

use std::convert::Infallible;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};

use super::entry::{Content, Entry};
use crate::container::{self, ArrayEntry, Container, Value};
use crate::meaning::Placed;
use crate::{CubeInfo, Source};

/// A dataset that can be read.
pub(crate) struct Dataset(Infallible);

/// The lengths of a dataset in index order.
pub(super) fn shape(dataset: &Dataset) -> Result<Vec<usize>> {
    match dataset.0 {}
}

/// The source of a cube.
pub(super) fn source(
    _path: &Path,
    dataset: Dataset,
    _cube: Placed,
    _info: CubeInfo,
) -> Result<Box<dyn Source>> {
    match dataset.0 {}
}

/// An HDF5 file and its datasets.
pub(crate) struct Tree {
    never: Infallible,
    /// Whether the file is MATLAB's.
    pub is_matlab: bool,
}

impl Deref for Tree {
    type Target = Content;

    fn deref(&self) -> &Content {
        match self.never {}
    }
}

impl Tree {
    /// Refuses the file at `path`.
    ///
    /// # Errors
    /// Always.
    pub fn open(path: &Path) -> Result<Self> {
        Err(Error::unsupported(
            "this build of hsipack reads no HDF5, NetCDF-4 or MATLAB v7.3 files",
        )
        .at(path)
        .with_remedy("build it with the feature 'hdf5', a default one, which needs CMake"))
    }

    /// A dataset that the walk did not list.
    pub fn linked(&self, _path: &str) -> Result<Option<Entry>> {
        match self.never {}
    }

    /// The dataset at `path`, and the other files that hold its numbers.
    pub fn dataset(&self, _path: &str) -> Result<(Dataset, Vec<PathBuf>)> {
        match self.never {}
    }

    /// Bytes of the file.
    pub fn file_size(&self) -> u64 {
        match self.never {}
    }

    /// The folder of the file.
    pub fn folder(&self) -> &Path {
        match self.never {}
    }

    /// The dataset as its users see it.
    pub fn shown(&self, _entry: &Entry) -> ArrayEntry {
        match self.never {}
    }

    /// The dataset at the full path `path`.
    pub fn entry(&self, _path: &str) -> Option<&Entry> {
        match self.never {}
    }

    /// The list in the dataset at `path`.
    pub fn list(&self, _path: &str) -> Option<Vec<f64>> {
        match self.never {}
    }

    /// The text in the dataset at `path`.
    pub fn text(&self, _path: &str) -> Option<String> {
        match self.never {}
    }

    /// The attributes of the group or dataset at `path`.
    pub fn attributes(&self, _path: &str) -> Attributes {
        match self.never {}
    }
}

impl Container for Tree {
    fn arrays_in(&self, _group: &str, _wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        match self.never {}
    }

    fn arrays_anywhere(&self, _wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        match self.never {}
    }

    fn array(&self, _path: &str) -> Option<ArrayEntry> {
        match self.never {}
    }

    fn attributes(&self, _path: &str) -> Box<dyn container::Attributes + '_> {
        match self.never {}
    }

    fn axis_names(&self, _path: &str) -> Vec<Option<String>> {
        match self.never {}
    }

    fn values(&self, _path: &str) -> Result<Option<Value>> {
        match self.never {}
    }
}

/// The attributes of an object. There are none.
pub(crate) struct Attributes(Infallible);

impl Attributes {
    /// The stored name of the first of `names` that exists.
    pub fn find(&self, _names: &[&str]) -> Option<&str> {
        match self.0 {}
    }

    /// The numbers in the attribute of exactly this name.
    pub fn numbers(&self, _name: &str) -> Option<Vec<f64>> {
        match self.0 {}
    }

    /// The first number of the attribute of exactly this name.
    pub fn number(&self, _name: &str) -> Option<f64> {
        match self.0 {}
    }

    /// The text of the attribute of exactly this name.
    pub fn text(&self, _name: &str) -> Option<String> {
        match self.0 {}
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn hdf5_files_are_refused_with_the_feature_that_reads_them() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hdf5/whole.h5");
        let error = crate::open(file.as_ref(), &crate::OpenOptions::default()).err().unwrap();
        let text = error.to_string();
        assert!(text.contains("whole.h5") && text.contains("the feature 'hdf5'"), "{text}");
    }
}
