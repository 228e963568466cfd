//! One view of every container: a tree of named, typed arrays with attributes.
//!
//! HDF5 (with NetCDF-4 and MATLAB v7.3), Zarr v2 and v3, MATLAB v5 and `.npz` implement
//! [`Container`]. What the arrays mean is decided once for all of them, in
//! [`meaning`](crate::meaning).
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | [`Container`] |
//! | `hdf5/` | HDF5, NetCDF-4, HDF-EOS, MATLAB v7.3: `open`, `file`, `entry`, `tree`, `heaps`, `storage`, `inflate`, `choose`, `meaning`, `read` |
//! | `zarr/` | Zarr v2, v3: `metadata`, `choose`, `tree`, `chunks`, `inflate`, `decoded` |
//! | `matlab/` | MATLAB v5 `.mat`: `v5` |
//! | `variables.rs` | picks the cube among the arrays |
//! | `listing.rs` | lists the arrays |
//! | `small_array.rs` | small arrays beside cubes |
//! | `release.rs` | releases what is kept for further samples of the same arrays |
//!
//! Paths begin with a slash and have slashes between names: `/scan/cube`. The root group is the
//! empty path. Lengths and names of axes are in the index order that the format's own tools show:
//! NumPy's, h5py's, MATLAB's.

mod attributes;
pub mod hdf5;
#[cfg(test)]
mod in_memory;
pub(crate) mod listing;
pub mod matlab;
mod recoded;
pub(crate) mod release;
pub(crate) mod small_array;
pub(crate) mod variables;
pub mod zarr;

use hsipack_format::{DType, Result};

pub(crate) use self::attributes::{Attributes, JsonAttributes, NoAttributes, Value, plain};
#[cfg(test)]
pub(crate) use self::in_memory::InMemory;
pub(crate) use self::recoded::recoded;
use crate::file_format::{FileFormat, Kind};

/// The formats in this folder, the most reliable signatures first.
pub(crate) const FORMATS: &[FileFormat] = &[
    FileFormat::new(Kind::Cubes, "HDF5, NetCDF-4", hdf5::recognises, hdf5::open)
        .with_endings(&["h5", "hdf5", "he5", "hdf", "nc", "nc4"])
        .visited(hdf5::visit),
    FileFormat::new(Kind::Cubes, "Zarr", zarr::recognises, zarr::open).visited(zarr::visit),
    FileFormat::new(Kind::Cubes, ".mat", matlab::recognises, matlab::open)
        .with_endings(&["mat"])
        .visited(matlab::visit),
];

/// An array in a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ArrayEntry {
    /// Full path.
    pub path: String,
    /// Lengths in index order.
    pub lengths: Vec<usize>,
    /// Type of its numbers; `None` if it holds something else.
    pub dtype: Option<DType>,
}

impl ArrayEntry {
    /// The last component of the path.
    pub fn name(&self) -> &str {
        name_of(&self.path)
    }

    /// The number of values, if at most one axis is longer than 1.
    pub fn list_len(&self) -> Option<usize> {
        let long = self.lengths.iter().filter(|length| **length != 1).count();
        (!self.lengths.is_empty() && long <= 1).then(|| self.lengths.iter().product())
    }
}

/// The last component of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The path without its last component; the root is empty.
pub(crate) fn parent(path: &str) -> &str {
    path.rfind('/').map_or("", |slash| &path[..slash])
}

/// Work with the container in a file.
pub(crate) type Visitor<'a> = &'a mut dyn FnMut(&dyn Container) -> Result<()>;

/// A tree of named, typed arrays with attributes.
pub(crate) trait Container {
    /// The arrays directly in the group at `group` whose names are `wanted`.
    fn arrays_in(&self, group: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry>;

    /// The arrays anywhere whose names are `wanted`.
    fn arrays_anywhere(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry>;

    /// The array at `path`.
    fn array(&self, path: &str) -> Option<ArrayEntry> {
        self.arrays_in(parent(path), &|name| name == name_of(path)).into_iter().next()
    }

    /// The attributes of the group or array at `path`.
    fn attributes(&self, path: &str) -> Box<dyn Attributes + '_>;

    /// The names of the axes of the array at `path`; empty, or one per axis.
    fn axis_names(&self, path: &str) -> Vec<Option<String>>;

    /// The values of a small array: numbers or texts. `None` if it is large or holds something
    /// else.
    ///
    /// # Errors
    /// If the format must not be used when a list in it is damaged.
    fn values(&self, path: &str) -> Result<Option<Value>>;

    /// The number that marks missing values of the array at `path` outside of its attributes.
    fn fill_value(&self, path: &str) -> Option<f64> {
        let _ = path;
        None
    }
}

/// Arrays of which nothing but names, lengths and types are known.
pub(crate) struct Entries(pub Vec<ArrayEntry>);

impl Container for Entries {
    fn arrays_in(&self, group: &str, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        let mut found = self.arrays_anywhere(wanted);
        found.retain(|entry| parent(&entry.path) == group);
        found
    }

    fn arrays_anywhere(&self, wanted: &dyn Fn(&str) -> bool) -> Vec<ArrayEntry> {
        self.0.iter().filter(|entry| wanted(entry.name())).cloned().collect()
    }

    fn attributes(&self, _path: &str) -> Box<dyn Attributes + '_> {
        Box::new(NoAttributes)
    }

    fn axis_names(&self, _path: &str) -> Vec<Option<String>> {
        Vec::new()
    }

    fn values(&self, _path: &str) -> Result<Option<Value>> {
        Ok(None)
    }
}

/// The array called `name` nearest to the array at `path`: in its group, or in a group around it.
pub(crate) fn nearest(container: &dyn Container, path: &str, name: &str) -> Option<ArrayEntry> {
    if name.starts_with('/') {
        return container.array(name);
    }
    let mut group = path;
    while !group.is_empty() {
        group = parent(group);
        if let Some(found) = container.array(&format!("{group}/{name}")) {
            return Some(found);
        }
    }
    None
}
