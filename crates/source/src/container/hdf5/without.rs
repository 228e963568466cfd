//! Stand-in for HDF5 in a build without libhdf5: files are refused, and there is no [`Tree`].

use std::convert::Infallible;
use std::ops::Deref;
use std::path::Path;

use hsipack_format::{Error, Result};

use super::entry::{Content, Entry};
use crate::container::{self, ArrayEntry, Container, Value, Visitor};
use crate::{OpenOptions, Source, products};

fn refused(path: &Path) -> Error {
    Error::unsupported("this build of hsipack reads no HDF5, NetCDF-4 or MATLAB v7.3 files")
        .at(path)
        .with_remedy("build it with the feature 'hdf5', a default one, which needs CMake")
}

/// Opens no cube.
///
/// # Errors
/// Always.
pub(crate) fn open(path: &Path, _options: &OpenOptions) -> Result<Box<dyn Source>> {
    Err(refused(path))
}

/// Shows nothing.
///
/// # Errors
/// Always.
pub(crate) fn visit(path: &Path, _visitor: Visitor<'_>) -> Result<()> {
    Err(refused(path))
}

/// Finds no quality layers.
///
/// # Errors
/// Always.
pub(crate) fn quality_layers(path: &Path, _variable: Option<&str>) -> Result<Vec<products::Layer>> {
    Err(refused(path))
}

/// A file that is open. There is none.
pub(crate) struct Tree(Infallible);

impl Deref for Tree {
    type Target = Content;

    fn deref(&self) -> &Content {
        match self.0 {}
    }
}

impl Tree {
    /// The dataset at the full path `path`.
    pub fn entry(&self, _path: &str) -> Option<&Entry> {
        match self.0 {}
    }

    /// The list in the dataset at `path`.
    pub fn list(&self, _path: &str) -> Option<Vec<f64>> {
        match self.0 {}
    }

    /// The text in the dataset at `path`.
    pub fn text(&self, _path: &str) -> Option<String> {
        match self.0 {}
    }

    /// The attributes of the group or dataset at `path`.
    pub fn attributes(&self, _path: &str) -> Attributes {
        match self.0 {}
    }
}

impl Container for Tree {
    fn arrays_in(&self, _group: &str, _wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        match self.0 {}
    }

    fn arrays_anywhere(&self, _wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        match self.0 {}
    }

    fn array(&self, _path: &str) -> Option<ArrayEntry> {
        match self.0 {}
    }

    fn attributes(&self, _path: &str) -> Box<dyn container::Attributes + '_> {
        match self.0 {}
    }

    fn axis_names(&self, _path: &str) -> Vec<Option<String>> {
        match self.0 {}
    }

    fn values(&self, _path: &str) -> Result<Option<Value>> {
        match self.0 {}
    }
}

/// The attributes of an object. There are none.
pub(crate) struct Attributes(Infallible);

impl Attributes {
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
