//! PRISMA L1 to L2D, of ASI.
//!
//! | dataset | cube | axes |
//! |---|---|---|
//! | `HDFEOS/SWATHS/PRS_L1_HCO/Data Fields/{VNIR,SWIR}_Cube` | DN / `ScaleFactor` − `Offset` | (row, band, column) |
//! | `HDFEOS/SWATHS/PRS_L2*_HCO/Data Fields/{VNIR,SWIR}_Cube` | Min + DN·(Max − Min)/65535 | (row, band, column) |
//!
//! The file's attributes give band centres, the longest first, and their widths. A centre of 0
//! means that nothing was measured, and the values of such bands are missing. L2D is in a map's
//! grid, whose corners are given as the centres of pixels. Its padding, and pixels whose correction
//! failed, are 0. L1 also holds the same cubes as `HRC`, before VNIR and SWIR are co-registered.

use std::path::Path;

use hsipack_format::Geo;
use hsipack_format::geo::{Unit, Utm};

use super::layers::Test;
use super::layout::{Facts, ProductCube, is_cube};
use super::{Layer, Product};
use crate::container::hdf5::{Attributes, Tree};
use crate::meaning::spectrum::BandList;
use crate::{AxisOrder, Scaling};

/// See the [module](self).
pub(super) struct Prisma;

impl Product for Prisma {
    fn sensor(&self) -> &'static str {
        "PRISMA"
    }

    fn cubes(&'static self, tree: &Tree) -> Vec<ProductCube> {
        let mut cubes = Vec::new();
        for group in &tree.groups {
            // /HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields
            let Some(swath) = group.strip_prefix("/HDFEOS/SWATHS/PRS_") else { continue };
            let Some(swath) = swath.strip_suffix("/Data Fields") else { continue };
            let (level, kind) = swath.split_once('_').unwrap_or((swath, ""));
            for name in ["VNIR_Cube", "SWIR_Cube"] {
                let path = format!("{group}/{name}");
                if is_cube(tree, &path) {
                    // HCO is co-registered; L1 files hold the same cubes before that as HRC.
                    let main = kind == "HCO";
                    let cube =
                        ProductCube::new(self, format!("PRISMA {level}"), path, AxisOrder::BIL);
                    cubes.push(ProductCube { main, ..cube });
                }
            }
        }
        if !cubes.iter().any(|cube| cube.main) {
            cubes.iter_mut().for_each(|cube| cube.main = true);
        }
        cubes
    }

    /// HRC cubes are not co-registered yet.
    fn is_joinable(&self, cube: &ProductCube) -> bool {
        cube.path.contains("_HCO/")
    }

    fn facts(&self, cube: &ProductCube, tree: &Tree, bands: usize) -> Facts {
        let root = tree.attributes("");
        let sensor = if cube.path.ends_with("VNIR_Cube") { "Vnir" } else { "Swir" };
        let level = cube.name.trim_start_matches("PRISMA ");
        let mut facts = Facts {
            fwhm: root.numbers(&format!("List_Fwhm_{sensor}")),
            scaling: scaling(&root, sensor),
            unit: Some(match level {
                "L2C" | "L2D" => "1 (surface reflectance)",
                _ => "W/(m2 sr um)",
            }),
            ..Facts::default()
        };
        describe_bands(&root, sensor, bands, &mut facts);
        if facts.scaling.is_none() {
            facts
                .notes
                .push("the file lacks PRISMA's scale attributes: numbers are not scaled".into());
        }
        if level == "L2D" {
            facts.geo = geo(&root, cube, tree);
            // Only cubes in a map's grid are padded.
            facts.ignore_value = facts.geo.is_some().then_some(0.0);
        }
        facts
    }

    fn quality_datasets(&self, cube: &ProductCube, tree: &Tree, path: &Path) -> Vec<Layer> {
        let (group, name) = cube.path.rsplit_once('/').unwrap_or_default();
        let detector = name.trim_end_matches("_Cube");
        let in_dataset = |line: &(&str, Codes)| {
            let dataset = format!("{group}/{}", line.0.replace("{detector}", detector));
            // Makers and readers differ in upper and lower case.
            let entry =
                tree.datasets.iter().find(|entry| entry.path.eq_ignore_ascii_case(&dataset))?;
            let order = (entry.shape.len() == 3).then_some(AxisOrder::BIL);
            let layer = |(name, codes): &(&str, &'static [f64])| {
                let test = Test::AnyOf(codes);
                Layer { order, ..Layer::in_dataset(name, path, entry.path.clone(), test) }
            };
            Some(line.1.iter().map(layer).collect::<Vec<_>>())
        };
        QUALITY.iter().filter_map(in_dataset).flatten().collect()
    }
}

/// Layers, and the codes that each stands for.
type Codes = &'static [(&'static str, &'static [f64])];

/// Datasets beside a cube. If a dataset has a value for each band, a code in any of them counts. In
/// L1, the last three are missing if the bands they are derived from were not recorded; in them, 10
/// means no class, and 255 an error.
const QUALITY: [(&str, Codes); 5] = [
    (
        "{detector}_PIXEL_L2_ERR_MATRIX",
        &[("invalid", &[1.0]), ("negative", &[2.0]), ("saturated", &[3.0])],
    ),
    // 4 means a value that is not finite.
    (
        "{detector}_PIXEL_SAT_ERR_MATRIX",
        &[("defective", &[1.0, 4.0]), ("saturated", &[2.0]), ("low_accuracy", &[3.0])],
    ),
    ("Cloud_Mask", &[("cloud", &[1.0])]),
    ("SunGlint_Mask", &[("sun_glint", &[1.0])]),
    (
        "LandCover_Mask",
        &[
            ("water", &[0.0]),
            ("snow", &[1.0]),
            ("bare_soil", &[2.0]),
            ("crop", &[3.0]),
            ("forest", &[4.0]),
            ("wetland", &[5.0]),
            ("urban", &[6.0]),
        ],
    ),
];

/// Fills in the band centres, and which bands have none.
fn describe_bands(root: &Attributes, sensor: &str, bands: usize, facts: &mut Facts) {
    let flags = root.numbers(&format!("List_Cw_{sensor}_Flags"));
    facts.good_bands = flags.map(super::layout::flags);
    let name = format!("List_Cw_{sensor}");
    let Some(values) = root.numbers(&name) else { return };
    let unused: Vec<usize> = (0..values.len()).filter(|band| values[*band] == 0.0).collect();
    if !unused.is_empty() && values.len() == bands {
        facts.notes.push(format!(
            "{} bands have no wavelength: the sensor does not use them, and their values are missing",
            unused.len()
        ));
        let flagged = facts.good_bands.take();
        let good =
            |band: &usize| flagged.as_ref().is_none_or(|good| good.get(*band) != Some(&false));
        facts.good_bands =
            Some((0..bands).map(|band| values[band] != 0.0 && good(&band)).collect());
        facts.empty_bands = unused;
    }
    let unit = Some("nm".to_owned());
    facts.wavelengths = Some(BandList { values, unit, found: format!("attribute '{name}'") });
}

fn scaling(root: &Attributes, sensor: &str) -> Option<Scaling> {
    let number = |before: &str, after: &str| root.number(&format!("{before}{sensor}{after}"));
    let is_finite = |value: &f64| value.is_finite();
    let range = [number("L2Scale", "Min"), number("L2Scale", "Max")].map(|n| n.filter(is_finite));
    if let [Some(min), Some(max)] = range {
        return Some(Scaling { multiply: max - min, divide: 65535.0, add: min });
    }
    let scale = root.number(&format!("ScaleFactor_{sensor}")).filter(|scale| *scale != 0.0)?;
    // Subtracted, as in prismaread; all products seen so far have 0 here.
    let offset = root.number(&format!("Offset_{sensor}")).unwrap_or(0.0);
    Some(Scaling { multiply: 1.0, divide: scale, add: 0.0 - offset })
}

/// The grid between the centres of its corner pixels.
fn geo(root: &Attributes, cube: &ProductCube, tree: &Tree) -> Option<Geo> {
    let corner = |which: &str, axis: &str| root.number(&format!("Product_{which}corner_{axis}"));
    let (left, top) = (corner("UL", "easting")?, corner("UL", "northing")?);
    let (right, bottom) = (corner("LR", "easting")?, corner("LR", "northing")?);
    let [rows, _, columns] = tree.entry(&cube.path)?.shape[..] else { return None };
    // Corners are in single precision, which is exact to half a metre; pixels measure 30 m.
    let step = |from: f64, to: f64, count: usize, usual: f64| match count {
        0 | 1 => usual,
        _ => Some((to - from) / (count - 1) as f64)
            .filter(|step| (step / usual - 1.0).abs() > 1e-2)
            .unwrap_or(usual),
    };
    let (width, height) = (step(left, right, columns, 30.0), step(top, bottom, rows, -30.0));
    let code = root.number("Epsg_Code").filter(|code| (1.0..65536.0).contains(code));
    let code = code.map(|code| code as u16);
    let unit = code.and_then(Utm::of_epsg).map(|_| Unit::Metre);
    let crs = code.map(|code| format!("EPSG:{code}"));
    let transform = [left - width / 2.0, width, 0.0, top - height / 2.0, 0.0, height];
    Some(Geo::new(crs, transform)?.in_unit(unit))
}
