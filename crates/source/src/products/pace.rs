//! PACE OCI L1B and L2, of NASA's OB.DAAC.
//!
//! | dataset | cube | axes |
//! |---|---|---|
//! | `observation_data/rhot_blue`, `rhot_red`, `rhot_SWIR` | L1B reflectance at the top of the atmosphere | (band, row, column) |
//! | `geophysical_data/Rrs` | L2 remote sensing reflectance | (row, column, band) |
//! | `geophysical_data/rhos` | L2 surface reflectance | (row, column, band) |
//!
//! The three detectors of L1B are separate cubes: blue and red overlap between 600 and 606 nm, and
//! the bands of SWIR are not in order. Names of dimensions differ between versions; paths do not.
//! In L2, `wavelength_3d` belongs to the cubes, and the longer `wavelength` to all bands of the
//! sensor. Pixels are in the sensor's grid.

use std::path::Path;

use super::layers::Test;
use super::layout::{Facts, Layout, ProductCube, of_table};
use super::{Layer, Product};
use crate::AxisOrder;
use crate::container::hdf5::Tree;
use crate::meaning::spectrum::from_array;

static LAYOUTS: [Layout; 5] = [
    l1b("/observation_data/rhot_blue"),
    l1b("/observation_data/rhot_red"),
    l1b("/observation_data/rhot_SWIR"),
    l2("/geophysical_data/Rrs"),
    l2("/geophysical_data/rhos"),
];

const fn l1b(path: &'static str) -> Layout {
    Layout { path, name: "PACE OCI L1B", order: AxisOrder::BSQ, main: true }
}

const fn l2(path: &'static str) -> Layout {
    Layout { path, name: "PACE OCI L2", order: AxisOrder::BIP, main: true }
}

const PARAMETERS: &str = "/sensor_band_parameters";

/// See the [module](self).
pub(super) struct Pace;

/// Where the band centres of a cube lie.
fn wavelengths(cube: &ProductCube) -> String {
    match cube.dataset().strip_prefix("rhot_") {
        Some(detector) => format!("{PARAMETERS}/{detector}_wavelength"),
        None => format!("{PARAMETERS}/wavelength_3d"),
    }
}

impl Product for Pace {
    fn sensor(&self) -> &'static str {
        "PACE OCI"
    }

    fn cubes(&'static self, tree: &Tree) -> Vec<ProductCube> {
        let mut cubes = of_table(self, &LAYOUTS, tree);
        cubes.retain(|cube| tree.entry(&wavelengths(cube)).is_some());
        cubes
    }

    fn is_joinable(&self, cube: &ProductCube) -> bool {
        cube.dataset().starts_with("rhot_")
    }

    fn facts(&self, cube: &ProductCube, tree: &Tree, _bands: usize) -> Facts {
        let detector = cube.dataset().strip_prefix("rhot_");
        let width = detector.map(|detector| format!("{PARAMETERS}/{detector}_bandpass"));
        Facts {
            wavelengths: from_array(tree, &wavelengths(cube)),
            fwhm: width.and_then(|path| tree.list(&path)),
            unit: Some(match cube.dataset() {
                "Rrs" => "sr^-1",
                "rhos" => "1 (surface reflectance)",
                _ => "1 (top-of-atmosphere reflectance)",
            }),
            ..Facts::default()
        }
    }

    fn quality_datasets(&self, cube: &ProductCube, tree: &Tree, path: &Path) -> Vec<Layer> {
        if let Some(detector) = cube.dataset().strip_prefix("rhot_") {
            let dataset = format!("/observation_data/qual_{detector}");
            let order =
                tree.entry(&dataset).map(|entry| (entry.shape.len() == 3).then_some(cube.order));
            let layer = |order| Layer {
                order,
                ..Layer::in_dataset("flagged", path, dataset.clone(), Test::Any)
            };
            return order.map(layer).into_iter().collect();
        }
        let flags = tree.attributes(FLAGS);
        let (Some(meanings), Some(masks)) =
            (flags.text("flag_meanings"), flags.numbers("flag_masks"))
        else {
            return Vec::new();
        };
        let bits: Vec<(&str, f64)> = meanings.split_whitespace().zip(masks).collect();
        let layer = |name: &&str| {
            let (_, bits) = bits.iter().find(|(meaning, _)| meaning == name)?;
            let test = Test::Bits(*bits as i64 as u32);
            Some(Layer::in_dataset(&name.to_lowercase(), path, FLAGS.to_owned(), test))
        };
        EXCLUDED_FLAGS.iter().filter_map(layer).collect()
    }
}

const FLAGS: &str = "/geophysical_data/l2_flags";
/// NASA's ocean colour maps (L3) skip pixels with these flags. The other 16 of the 32 flags are
/// left out.
const EXCLUDED_FLAGS: [&str; 16] = [
    "ATMFAIL",
    "LAND",
    "HIGLINT",
    "HILT",
    "HISATZEN",
    "STRAYLIGHT",
    "CLDICE",
    "COCCOLITH",
    "HISOLZEN",
    "LOWLW",
    "CHLFAIL",
    "NAVWARN",
    "MAXAERITER",
    "CHLWARN",
    "ATMWARN",
    "NAVFAIL",
];
