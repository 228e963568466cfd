//! EMIT L1B and L2A, of NASA's LP DAAC.
//!
//! | dataset | cube | axes |
//! |---|---|---|
//! | `reflectance` | EMIT L2A | (row, column, band) |
//! | `radiance` | EMIT L1B | (row, column, band) |
//! | `reflectance_uncertainty` | EMIT L2A | (row, column, band) |
//!
//! The file also holds `sensor_band_parameters` (in L2A with `good_wavelengths`, whose bad bands
//! hold −0.01) and `location`, whose `glt_x` and `glt_y` bring pixels to a map. The cube itself is
//! in the sensor's grid.

use std::path::Path;

use super::delivery::{FileName, Part, is_there};
use super::layers::Test;
use super::layout::{Facts, Layout, ProductCube, flags, of_table};
use super::{Layer, Product};
use crate::AxisOrder;
use crate::container::hdf5::Tree;
use crate::meaning::spectrum::from_array;

static LAYOUTS: [Layout; 3] = [
    Layout { path: "/reflectance", name: "EMIT L2A", order: AxisOrder::BIP, main: true },
    Layout { path: "/radiance", name: "EMIT L1B", order: AxisOrder::BIP, main: true },
    Layout {
        path: "/reflectance_uncertainty",
        name: "EMIT L2A uncertainty",
        order: AxisOrder::BIP,
        main: false,
    },
];

/// Files of a granule that are not the cube. In folders they are left out; named, they are read as
/// they are.
static FILES: [FileName; 3] =
    [beside("EMIT_L2A_RFLUNCERT_"), beside("EMIT_L2A_MASK_"), beside("EMIT_L1B_OBS_")];

const fn beside(start: &'static str) -> FileName {
    FileName { start, end: "", endings: &[".nc"], part: Part::Layer }
}

const WAVELENGTHS: &str = "/sensor_band_parameters/wavelengths";
const GOOD: &str = "/sensor_band_parameters/good_wavelengths";

/// See the [module](self).
pub(super) struct Emit;

impl Product for Emit {
    fn sensor(&self) -> &'static str {
        "EMIT"
    }

    fn files(&self) -> &'static [FileName] {
        &FILES
    }

    fn cubes(&'static self, tree: &Tree) -> Vec<ProductCube> {
        if tree.entry(WAVELENGTHS).is_none() && tree.entry(GOOD).is_none() {
            return Vec::new();
        }
        of_table(self, &LAYOUTS, tree)
    }

    fn facts(&self, cube: &ProductCube, tree: &Tree, _bands: usize) -> Facts {
        Facts {
            wavelengths: from_array(tree, WAVELENGTHS),
            fwhm: tree.list("/sensor_band_parameters/fwhm"),
            good_bands: tree.list(GOOD).map(flags),
            unit: Some(match cube.dataset() {
                "radiance" => "uW/(cm2 sr nm)",
                _ => "1 (surface reflectance)",
            }),
            ..Facts::default()
        }
    }

    fn quality_datasets(&self, _cube: &ProductCube, _tree: &Tree, path: &Path) -> Vec<Layer> {
        // EMIT_L2A_RFL_001_….nc comes with EMIT_L2A_MASK_001_….nc.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mask = path.with_file_name(name.replace("_RFL_", "_MASK_"));
        if !name.contains("_RFL_") || !is_there(&mask) {
            return Vec::new();
        }
        let layer = |(name, band): &(&str, usize)| Layer {
            order: Some(AxisOrder::BIP),
            ..Layer::in_dataset(name, &mask, "/mask".to_owned(), Test::Is(*band, 1.0))
        };
        MASK.iter().map(layer).collect()
    }
}

/// Bands of `mask`. The bands between them are aerosol and water vapour.
const MASK: [(&str, usize); 6] = [
    ("cloud", 0),
    ("cirrus", 1),
    ("water", 2),
    ("spacecraft", 3),
    ("dilated_cloud", 4),
    ("aggregate", 7),
];
