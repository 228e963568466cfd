//! The datasets of an HDF5 file.

use hsipack_format::DType;

use crate::container::parent;

/// Contents of a dataset.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(
    not(feature = "hdf5"),
    allow(dead_code, reason = "only files that were opened have datasets")
)]
pub(crate) enum Values {
    /// Numbers of a type that cubes may have.
    Numbers(DType),
    /// Something else, described in words.
    Other(String),
}

/// A dataset of the file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Full path, from `/`.
    pub path: String,
    /// Lengths in index order.
    pub shape: Vec<usize>,
    /// Element type.
    pub values: Values,
}

impl Entry {
    /// The element type if it is one that cubes may have.
    pub fn dtype(&self) -> Option<DType> {
        match self.values {
            Values::Numbers(dtype) => Some(dtype),
            Values::Other(_) => None,
        }
    }

    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// The group the dataset is in, without a final slash: empty for the root.
    pub fn group(&self) -> &str {
        parent(&self.path)
    }

    /// The shape as text, such as `50x50x83`.
    pub fn shape_text(&self) -> String {
        self.shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
    }
}

/// The datasets and groups of a file.
pub(crate) struct Content {
    /// Every dataset found, in the order of the walk.
    pub datasets: Vec<Entry>,
    /// The paths of every group found, without a final slash; the root is empty.
    pub groups: Vec<String>,
    /// Whether the walk went through the whole file.
    pub complete: bool,
}
