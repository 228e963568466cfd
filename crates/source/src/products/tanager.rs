//! Planet's Tanager, basic and ortho, radiance and surface reflectance.
//!
//! | dataset | cube | axes |
//! |---|---|---|
//! | `HDFEOS/GRIDS/HYP/Data Fields/surface_reflectance` | ortho | (band, row, column) |
//! | `HDFEOS/GRIDS/HYP/Data Fields/toa_radiance` | ortho | (band, row, column) |
//! | `HDFEOS/SWATHS/HYP/Data Fields/surface_reflectance` | basic | (band, row, column) |
//! | `HDFEOS/SWATHS/HYP/Data Fields/toa_radiance` | basic | (band, row, column) |
//! | `…/surface_reflectance_uncertainty` | | (band, row, column) |
//!
//! The dataset's attributes hold `wavelengths`, `fwhm` and, for reflectance, `good_wavelengths`;
//! bad bands hold −0.01 or numbers without meaning. In an ortho product, StructMetadata.0 says
//! where the grid lies, and `epsg_code` names its reference system.

use std::path::Path;

use hsipack_format::Geo;
use hsipack_format::geo::{Unit, Utm};

use super::eos::Grid;
use super::layers::Test;
use super::layout::{Facts, Layout, ProductCube, flags, of_table};
use super::{Layer, Product};
use crate::AxisOrder;
use crate::container::hdf5::Tree;
use crate::container::parent;
use crate::meaning::spectrum::BandList;

static LAYOUTS: [Layout; 6] = [
    cube("/HDFEOS/GRIDS/HYP/Data Fields/surface_reflectance", true),
    cube("/HDFEOS/GRIDS/HYP/Data Fields/toa_radiance", true),
    cube("/HDFEOS/GRIDS/HYP/Data Fields/surface_reflectance_uncertainty", false),
    cube("/HDFEOS/SWATHS/HYP/Data Fields/surface_reflectance", true),
    cube("/HDFEOS/SWATHS/HYP/Data Fields/toa_radiance", true),
    cube("/HDFEOS/SWATHS/HYP/Data Fields/surface_reflectance_uncertainty", false),
];

const fn cube(path: &'static str, main: bool) -> Layout {
    Layout { path, name: "Tanager", order: AxisOrder::BSQ, main }
}

/// See the [module](self).
pub(super) struct Tanager;

impl Product for Tanager {
    fn sensor(&self) -> &'static str {
        "Tanager"
    }

    fn cubes(&'static self, tree: &Tree) -> Vec<ProductCube> {
        let mut cubes = of_table(self, &LAYOUTS, tree);
        for cube in &mut cubes {
            let form = if cube.path.starts_with("/HDFEOS/GRIDS") { "ortho" } else { "basic" };
            cube.name = format!("Tanager {form}");
        }
        cubes
    }

    fn facts(&self, cube: &ProductCube, tree: &Tree, _bands: usize) -> Facts {
        let attributes = tree.attributes(&cube.path);
        let unit = |name: &str| attributes.text(name).or_else(|| Some("nm".to_owned()));
        let wavelengths = attributes.numbers("wavelengths").map(|values| BandList {
            values,
            unit: unit("wavelengths_units"),
            found: "attribute 'wavelengths'".to_owned(),
        });
        let mut facts = Facts {
            wavelengths,
            fwhm: attributes.numbers("fwhm"),
            fwhm_unit: unit("fwhm_units"),
            good_bands: attributes.numbers("good_wavelengths").map(flags),
            unit: Some(match cube.dataset() {
                "toa_radiance" => "W/(m2 sr um)",
                _ => "1 (surface reflectance)",
            }),
            ..Facts::default()
        };
        if cube.path.starts_with("/HDFEOS/GRIDS") {
            facts.geo = geo(cube, tree, &mut facts.notes);
        }
        facts
    }

    fn quality_datasets(&self, cube: &ProductCube, tree: &Tree, path: &Path) -> Vec<Layer> {
        let layer = |(name, dataset): &(&str, &str)| {
            let dataset = format!("{}/{dataset}", parent(&cube.path));
            tree.entry(&dataset)?;
            Some(Layer::in_dataset(name, path, dataset, Test::IsSet(0)))
        };
        QUALITY.iter().filter_map(layer).collect()
    }
}

/// Names of layers and of datasets beside the cube.
const QUALITY: [(&str, &str); 3] =
    [("nodata", "nodata_pixels"), ("cloud", "beta_cloud_mask"), ("cirrus", "beta_cirrus_mask")];

fn geo(cube: &ProductCube, tree: &Tree, notes: &mut Vec<String>) -> Option<Geo> {
    // /HDFEOS/GRIDS/HYP/Data Fields/…
    let group = parent(parent(&cube.path));
    let name = group.rsplit('/').next()?;
    let text = tree.text("/HDFEOS INFORMATION/StructMetadata.0").unwrap_or_default();
    let Some(grid) = Grid::parse(&text, name) else {
        notes.push(
            "StructMetadata.0 does not give the position of the grid; the cube is not georeferenced".to_owned(),
        );
        return None;
    };
    let code = tree.attributes(group).number("epsg_code");
    let code = code.filter(|code| (1.0..65536.0).contains(code)).map(|code| code as u16);
    let unit = code.and_then(Utm::of_epsg).map(|_| Unit::Metre);
    let crs = code.map(|code| format!("EPSG:{code}"));
    Some(Geo::new(crs, grid.transform())?.in_unit(unit))
}
