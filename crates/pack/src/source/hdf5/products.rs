//! HDF5 products known by their layout: PRISMA, EMIT, AVIRIS-3/5, NEON and Delmic.
//!
//! | product | cubes | axes | scaling |
//! |---|---|---|---|
//! | PRISMA L1 | `HDFEOS/SWATHS/PRS_L1_*/Data Fields/{VNIR,SWIR}_Cube` | (row, band, column) | DN / ScaleFactor − Offset |
//! | PRISMA L2 | `HDFEOS/SWATHS/PRS_L2*_HCO/Data Fields/{VNIR,SWIR}_Cube` | (row, band, column) | Min + DN·(Max − Min)/65535 |
//! | EMIT | `reflectance`, `radiance` | (row, column, band) | none |
//! | AVIRIS-3/5 | `reflectance/reflectance`, `radiance/radiance` | (band, row, column) | none |
//! | NEON | `SITE/Reflectance/Reflectance_Data` | (row, column, band) | value / Scale_Factor |
//! | Delmic | `AcquisitionN/ImageData/Image` | (band, 1, 1, row, column) | none |
//!
//! NEON radiance is split over two datasets (whole and decimal part) and is refused.

use super::spectral::{Wavelengths, beside, from_dataset};
use super::tree::{Tree, parent};
use crate::source::{AxisOrder, Scaling};

/// Which layout a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Prisma,
    Emit,
    Aviris,
    Neon,
    NeonRadiance,
    Delmic,
}

/// A cube whose place in the layout gives its meaning.
#[derive(Clone, Debug)]
pub(super) struct ProductCube {
    layout: Layout,
    /// The product's name, e.g. `PRISMA L2D`.
    pub name: String,
    /// Full path of the dataset.
    pub path: String,
    /// Which of the dataset's axes are the cube's three, in index order.
    pub axes: [usize; 3],
    /// What these three axes are.
    pub order: AxisOrder,
    /// Whether the cube is one to take, or to offer, if the user names none.
    pub main: bool,
}

/// What a layout says about a cube's numbers and bands.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub wavelengths: Option<Wavelengths>,
    pub fwhm: Option<Vec<f64>>,
    pub good_bands: Option<Vec<bool>>,
    pub scaling: Option<Scaling>,
    pub notes: Vec<String>,
}

/// The cubes of the product whose layout the file has; empty if it has none of these layouts.
pub(super) fn cubes(tree: &Tree) -> Vec<ProductCube> {
    [prisma, emit, aviris, neon, delmic]
        .into_iter()
        .map(|recognise| recognise(tree))
        .find(|cubes| !cubes.is_empty())
        .unwrap_or_default()
}

fn cube(layout: Layout, name: impl Into<String>, path: &str, order: AxisOrder) -> ProductCube {
    let (name, path) = (name.into(), path.to_owned());
    ProductCube { layout, name, path, axes: [0, 1, 2], order, main: true }
}

fn is_cube(tree: &Tree, path: &str) -> bool {
    tree.entry(path).is_some_and(|entry| entry.dtype().is_some() && entry.shape.len() == 3)
}

fn prisma(tree: &Tree) -> Vec<ProductCube> {
    let mut cubes = Vec::new();
    for group in &tree.groups {
        // /HDFEOS/SWATHS/PRS_L2D_HCO/Data Fields
        let Some(swath) = group.strip_prefix("/HDFEOS/SWATHS/PRS_") else { continue };
        let Some(swath) = swath.strip_suffix("/Data Fields") else { continue };
        let (level, kind) = swath.split_once('_').unwrap_or((swath, ""));
        for name in ["VNIR_Cube", "SWIR_Cube"] {
            let path = format!("{group}/{name}");
            if is_cube(tree, &path) {
                let name = format!("PRISMA {level}");
                // HCO is co-registered; L1 files hold the same cubes before that as HRC.
                let main = kind == "HCO";
                cubes.push(ProductCube {
                    main,
                    ..cube(Layout::Prisma, name, &path, AxisOrder::BIL)
                });
            }
        }
    }
    if !cubes.iter().any(|cube| cube.main) {
        cubes.iter_mut().for_each(|cube| cube.main = true);
    }
    cubes
}

fn emit(tree: &Tree) -> Vec<ProductCube> {
    if tree.entry("/sensor_band_parameters/wavelengths").is_none() {
        return Vec::new();
    }
    let names = [
        ("/reflectance", "EMIT L2A", true),
        ("/radiance", "EMIT L1B", true),
        ("/reflectance_uncertainty", "EMIT L2A uncertainty", false),
    ];
    let mut cubes: Vec<_> = names
        .into_iter()
        .filter(|(path, _, _)| is_cube(tree, path))
        .map(|(path, name, main)| ProductCube {
            main,
            ..cube(Layout::Emit, name, path, AxisOrder::BIP)
        })
        .collect();
    if let [only] = &mut cubes[..] {
        only.main = true;
    }
    cubes
}

fn aviris(tree: &Tree) -> Vec<ProductCube> {
    let names = [("/reflectance", "AVIRIS reflectance"), ("/radiance", "AVIRIS radiance")];
    names
        .into_iter()
        .filter_map(|(group, name)| {
            let path = format!("{group}{group}");
            let bands = tree.list(&format!("{group}/wavelength"))?.len();
            let fits = is_cube(tree, &path) && tree.entry(&path)?.shape[0] == bands;
            fits.then(|| cube(Layout::Aviris, name, &path, AxisOrder::BSQ))
        })
        .collect()
}

fn neon(tree: &Tree) -> Vec<ProductCube> {
    let mut cubes = Vec::new();
    for entry in &tree.datasets {
        let parts: Vec<&str> = entry.path.split('/').collect();
        let layout = match parts[..] {
            ["", _, "Reflectance", "Reflectance_Data"] => Layout::Neon,
            ["", _, "Radiance", "RadianceIntegerPart" | "RadianceDecimalPart"] => {
                Layout::NeonRadiance
            }
            _ => continue,
        };
        let spectral = format!("{}/Metadata/Spectral_Data/Wavelength", entry.group());
        if !is_cube(tree, &entry.path) || tree.entry(&spectral).is_none() {
            continue;
        }
        let name = match layout {
            Layout::Neon => "NEON reflectance",
            _ => "NEON radiance",
        };
        cubes.push(cube(layout, name, &entry.path, AxisOrder::BIP));
    }
    cubes
}

fn delmic(tree: &Tree) -> Vec<ProductCube> {
    let mut cubes = Vec::new();
    for entry in &tree.datasets {
        let [bands, time, depth, _, _] = entry.shape[..] else { continue };
        let scale = format!("{}/DimensionScaleC", entry.group());
        let spectral = tree.list(&scale).is_some_and(|scale| scale.len() == bands);
        if entry.dtype().is_some() && bands > 1 && time == 1 && depth == 1 && spectral {
            let cube = cube(Layout::Delmic, "Delmic", &entry.path, AxisOrder::BSQ);
            cubes.push(ProductCube { axes: [0, 3, 4], ..cube });
        }
    }
    cubes
}

impl ProductCube {
    /// Why the cube cannot be used, and what to do instead.
    pub fn refusal(&self) -> Option<(&'static str, &'static str)> {
        (self.layout == Layout::NeonRadiance).then_some((
            "NEON radiance is split over two datasets, RadianceIntegerPart + RadianceDecimalPart / \
             Scale_Factor, neither of which is the cube",
            "join them first: write their float32 sum to one dataset or .npy file",
        ))
    }

    /// What the layout says about a cube of `bands` bands.
    pub fn facts(&self, tree: &Tree, bands: usize) -> Facts {
        match self.layout {
            Layout::Prisma => self.prisma_facts(tree),
            Layout::Emit => Facts {
                wavelengths: from_dataset(tree, "/sensor_band_parameters/wavelengths"),
                fwhm: tree.list("/sensor_band_parameters/fwhm"),
                good_bands: tree
                    .list("/sensor_band_parameters/good_wavelengths")
                    .map(|good| good.iter().map(|flag| *flag != 0.0).collect()),
                ..Facts::default()
            },
            Layout::Aviris => Facts {
                wavelengths: from_dataset(tree, &format!("{}/wavelength", parent(&self.path))),
                fwhm: tree.list(&format!("{}/fwhm", parent(&self.path))),
                good_bands: beside(tree, &self.path, &GOOD_BANDS, bands)
                    .map(|good| good.iter().map(|flag| *flag != 0.0).collect()),
                ..Facts::default()
            },
            Layout::Neon | Layout::NeonRadiance => self.neon_facts(tree),
            Layout::Delmic => self.delmic_facts(tree),
        }
    }

    fn prisma_facts(&self, tree: &Tree) -> Facts {
        let root = tree.attributes("");
        let sensor = if self.path.ends_with("VNIR_Cube") { "Vnir" } else { "Swir" };
        let number = |before: &str, after: &str| root.number(&format!("{before}{sensor}{after}"));
        let mut facts = Facts {
            fwhm: root.numbers(&format!("List_Fwhm_{sensor}")),
            good_bands: root
                .numbers(&format!("List_Cw_{sensor}_Flags"))
                .map(|flags| flags.iter().map(|flag| *flag != 0.0).collect()),
            ..Facts::default()
        };
        if let Some(values) = root.numbers(&format!("List_Cw_{sensor}")) {
            let unused = values.iter().filter(|value| **value == 0.0).count();
            if unused > 0 {
                facts.notes.push(format!(
                    "{unused} bands have no wavelength: the sensor does not use them"
                ));
                let flagged = facts.good_bands.take();
                let good =
                    |band: usize| flagged.as_ref().is_none_or(|g| g.get(band) != Some(&false));
                let good = values.iter().enumerate().map(|(band, nm)| *nm != 0.0 && good(band));
                facts.good_bands = Some(good.collect());
            }
            let unit = Some("nm".to_owned());
            let found = format!("attribute 'List_Cw_{sensor}'");
            facts.wavelengths = Some(Wavelengths { values, unit, found });
        }
        if let (Some(min), Some(max)) = (number("L2Scale", "Min"), number("L2Scale", "Max")) {
            facts.scaling = Some(Scaling { multiply: max - min, divide: 65535.0, add: min });
        } else if let Some(scale) = number("ScaleFactor_", "").filter(|scale| *scale != 0.0) {
            // Subtracted, as prismaread does; all products seen have 0 here.
            let offset = number("Offset_", "").unwrap_or(0.0);
            facts.scaling = Some(Scaling { multiply: 1.0, divide: scale, add: 0.0 - offset });
        } else {
            facts.notes.push(
                "the file lacks PRISMA's scale attributes: numbers are left as they are".into(),
            );
        }
        facts
    }

    fn neon_facts(&self, tree: &Tree) -> Facts {
        let group = parent(&self.path);
        let wavelengths = from_dataset(tree, &format!("{group}/Metadata/Spectral_Data/Wavelength"));
        let attributes = tree.attributes(group);
        let windows: Vec<Vec<f64>> = ["Band_Window_1_Nanometers", "Band_Window_2_Nanometers"]
            .into_iter()
            .filter_map(|name| attributes.numbers(name).filter(|window| window.len() == 2))
            .collect();
        let good = |list: &Wavelengths| {
            let inside = |nm: f64| windows.iter().any(|w| w[0] <= nm && nm <= w[1]);
            list.values.iter().map(|nm| !inside(*nm)).collect()
        };
        let own = tree.attributes(&self.path);
        let scale = own.number("Scale_Factor").filter(|scale| *scale != 0.0 && scale.is_finite());
        Facts {
            good_bands: wavelengths.as_ref().filter(|_| !windows.is_empty()).map(good),
            wavelengths,
            fwhm: tree.list(&format!("{group}/Metadata/Spectral_Data/FWHM")),
            scaling: scale.map(|divide| Scaling { divide, ..Scaling::NONE }),
            ..Facts::default()
        }
    }

    fn delmic_facts(&self, tree: &Tree) -> Facts {
        let list = from_dataset(tree, &format!("{}/DimensionScaleC", parent(&self.path)));
        let metres = |list: Wavelengths| Wavelengths {
            unit: list.unit.or_else(|| Some("m".into())),
            ..list
        };
        Facts { wavelengths: list.map(metres), ..Facts::default() }
    }
}

/// Names, in plain spelling, of lists that are 1 for good bands and 0 for bad ones.
pub(super) const GOOD_BANDS: [&str; 5] =
    ["goodwavelengths", "goodbands", "goodwavelength", "bbl", "goodbandslist"];
