//! Delmic's microscopes.
//!
//! | dataset | cube | axes |
//! |---|---|---|
//! | `AcquisitionN/ImageData/Image` | counts | (band, 1, 1, row, column) |
//!
//! Band centres lie in `DimensionScaleC` beside it, in metres.

use super::Product;
use super::layout::{Facts, ProductCube};
use crate::AxisOrder;
use crate::container::hdf5::Tree;
use crate::container::parent;
use crate::meaning::spectrum::{BandList, from_array};

/// See the [module](self).
pub(super) struct Delmic;

impl Product for Delmic {
    fn sensor(&self) -> &'static str {
        "Delmic"
    }

    fn cubes(&'static self, tree: &Tree) -> Vec<ProductCube> {
        let mut cubes = Vec::new();
        for entry in &tree.datasets {
            let [bands, time, depth, _, _] = entry.shape[..] else { continue };
            let scale = format!("{}/DimensionScaleC", entry.group());
            let spectral = tree.list(&scale).is_some_and(|scale| scale.len() == bands);
            if entry.dtype().is_some() && bands > 1 && time == 1 && depth == 1 && spectral {
                let cube = ProductCube::new(self, "Delmic", &entry.path, AxisOrder::BSQ);
                cubes.push(ProductCube { axes: [0, 3, 4], ..cube });
            }
        }
        cubes
    }

    fn facts(&self, cube: &ProductCube, tree: &Tree, _bands: usize) -> Facts {
        let list = from_array(tree, &format!("{}/DimensionScaleC", parent(&cube.path)));
        let metres =
            |list: BandList| BandList { unit: list.unit.or_else(|| Some("m".into())), ..list };
        Facts { wavelengths: list.map(metres), ..Facts::default() }
    }
}
