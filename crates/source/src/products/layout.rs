//! Products that are HDF5 files: cubes whose path in the file says what they are.

use hsipack_format::Geo;

use super::Product;
use crate::container::hdf5::Tree;
use crate::meaning::spectrum::BandList;
use crate::{AxisOrder, Scaling};

/// A line of a product's table: where a cube lies, and what it is.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Full path of the dataset.
    pub path: &'static str,
    /// Its name in messages, such as `EMIT L2A`.
    pub name: &'static str,
    /// Its axes in index order.
    pub order: AxisOrder,
    /// Whether it is used, or offered as a choice, if the user names none.
    pub main: bool,
}

/// A cube whose path in the file says what it is.
#[derive(Clone)]
pub(crate) struct ProductCube {
    /// The product.
    pub product: &'static dyn Product,
    /// The product's name, e.g. `PRISMA L2D`.
    pub name: String,
    /// Full path of the dataset.
    pub path: String,
    /// Which of the dataset's axes are the cube's three, in index order.
    pub axes: [usize; 3],
    /// Meaning of these three axes.
    pub order: AxisOrder,
    /// Whether the cube is used, or offered as a choice, if the user names none.
    pub main: bool,
}

/// Numbers and bands of a cube as its product describes them.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Band centres.
    pub wavelengths: Option<BandList>,
    /// Widths.
    pub fwhm: Option<Vec<f64>>,
    /// Their unit, if it differs from that of the band centres.
    pub fwhm_unit: Option<String>,
    /// `true` is good.
    pub good_bands: Option<Vec<bool>>,
    /// Bands without data, from 0.
    pub empty_bands: Vec<usize>,
    /// The scaling; `None` if the dataset's attributes state it.
    pub scaling: Option<Scaling>,
    /// The ignore value, if the dataset's attributes state none.
    pub ignore_value: Option<f64>,
    /// The unit of physical values.
    pub unit: Option<&'static str>,
    /// Where the pixels lie.
    pub geo: Option<Geo>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl ProductCube {
    /// A cube of three axes.
    pub fn new(
        product: &'static dyn Product,
        name: impl Into<String>,
        path: impl Into<String>,
        order: AxisOrder,
    ) -> Self {
        let (name, path) = (name.into(), path.into());
        Self { product, name, path, axes: [0, 1, 2], order, main: true }
    }

    /// The last component of the path.
    pub fn dataset(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// The cubes of `table` that are in the file. If there is only one, it is the one to use.
pub(super) fn of_table(
    product: &'static dyn Product,
    table: &[Layout],
    tree: &Tree,
) -> Vec<ProductCube> {
    let present = table.iter().filter(|line| is_cube(tree, line.path));
    let cube = |line: &Layout| ProductCube {
        main: line.main,
        ..ProductCube::new(product, line.name, line.path, line.order)
    };
    let mut cubes: Vec<ProductCube> = present.map(cube).collect();
    if let [only] = &mut cubes[..] {
        only.main = true;
    }
    cubes
}

/// Whether the dataset at `path` holds numbers along three axes.
pub(super) fn is_cube(tree: &Tree, path: &str) -> bool {
    tree.entry(path).is_some_and(|entry| entry.dtype().is_some() && entry.shape.len() == 3)
}

/// Turns a list of 1 for good bands and 0 for bad ones into flags.
pub(super) fn flags(values: Vec<f64>) -> Vec<bool> {
    values.into_iter().map(|flag| flag != 0.0).collect()
}
