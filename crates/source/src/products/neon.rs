//! NEON's Airborne Observation Platform.
//!
//! | dataset | cube | axes |
//! |---|---|---|
//! | `SITE/Reflectance/Reflectance_Data` | reflectance / `Scale_Factor` | (row, column, band) |
//! | `SITE/Radiance/RadianceIntegerPart`, `…DecimalPart` | refused: neither is the cube | |

use super::Product;
use super::layout::{Facts, ProductCube, is_cube};
use crate::container::hdf5::Tree;
use crate::container::parent;
use crate::meaning::spectrum::{BandList, from_array};
use crate::{AxisOrder, Scaling};

const RADIANCE: &str = "NEON radiance";

/// See the [module](self).
pub(super) struct Neon;

impl Product for Neon {
    fn sensor(&self) -> &'static str {
        "NEON AOP"
    }

    fn cubes(&'static self, tree: &Tree) -> Vec<ProductCube> {
        let mut cubes = Vec::new();
        for entry in &tree.datasets {
            let parts: Vec<&str> = entry.path.split('/').collect();
            let name = match parts[..] {
                ["", _, "Reflectance", "Reflectance_Data"] => "NEON reflectance",
                ["", _, "Radiance", "RadianceIntegerPart" | "RadianceDecimalPart"] => RADIANCE,
                _ => continue,
            };
            let spectral = format!("{}/Metadata/Spectral_Data/Wavelength", entry.group());
            if is_cube(tree, &entry.path) && tree.entry(&spectral).is_some() {
                cubes.push(ProductCube::new(self, name, &entry.path, AxisOrder::BIP));
            }
        }
        cubes
    }

    fn facts(&self, cube: &ProductCube, tree: &Tree, _bands: usize) -> Facts {
        let group = parent(&cube.path);
        let wavelengths = from_array(tree, &format!("{group}/Metadata/Spectral_Data/Wavelength"));
        let attributes = tree.attributes(group);
        let windows: Vec<Vec<f64>> = ["Band_Window_1_Nanometers", "Band_Window_2_Nanometers"]
            .into_iter()
            .filter_map(|name| attributes.numbers(name).filter(|window| window.len() == 2))
            .collect();
        let good = |list: &BandList| {
            let inside = |nm: f64| windows.iter().any(|w| w[0] <= nm && nm <= w[1]);
            list.values.iter().map(|nm| !inside(*nm)).collect()
        };
        let attributes = tree.attributes(&cube.path);
        let scale =
            attributes.number("Scale_Factor").filter(|scale| *scale != 0.0 && scale.is_finite());
        Facts {
            good_bands: wavelengths.as_ref().filter(|_| !windows.is_empty()).map(good),
            wavelengths,
            fwhm: tree.list(&format!("{group}/Metadata/Spectral_Data/FWHM")),
            scaling: scale.map(|divide| Scaling { divide, ..Scaling::NONE }),
            ..Facts::default()
        }
    }

    fn refusal(&self, cube: &ProductCube) -> Option<(&'static str, &'static str)> {
        (cube.name == RADIANCE).then_some((
            "NEON radiance is split over two datasets, RadianceIntegerPart + RadianceDecimalPart / \
             Scale_Factor, neither of which is the cube",
            "join them first: write their float32 sum to one dataset or .npy file",
        ))
    }
}
