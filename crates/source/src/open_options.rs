//! Options of opening a file.

use std::path::PathBuf;

use crate::axes::Axes;

/// How to open a file: what the user gives besides its path.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The variable inside a container (`file::variable`).
    pub variable: Option<String>,
    /// The axes of an array as the user names them (`axes`), in the index order that the format's
    /// own tools show (NumPy's, MATLAB's, h5py's).
    pub axes: Option<Axes>,
    /// Which sample of an array of samples is the cube, or the mask: its index along the axis of
    /// samples, which `axes` names. For a mask it is the axis that the image does not have.
    pub sample: Option<usize>,
    /// For a mask of a sample: the number of samples in the array of the cube. An array of masks
    /// has one for each of them; an axis of another length holds layers.
    pub samples: Option<usize>,
    /// The number that marks missing values, as the user gives it. It stands for all numbers that
    /// mark them in the file, if it is one of them.
    pub nodata: Option<f64>,
    /// The ENVI header of raw data that have no header beside them.
    pub header: Option<PathBuf>,
    /// Whether the file is a mask: images, and 2-D arrays as a single band, are accepted.
    pub mask: bool,
    /// Whether a mask has a colour for each class, so that pictures keep their colours.
    pub colors: bool,
    /// Rows and columns of the image to which a mask belongs. In a MATLAB file, a column or row
    /// with as many values is folded to this shape, as `reshape` does.
    pub image: Option<[usize; 2]>,
}
