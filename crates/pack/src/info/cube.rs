//! What is known about a cube in a file.

use hsipack_format::{Geo, Result};
use hsipack_store::mirror;
use serde::Serialize;

use super::values::{Shape, Values, Wavelengths, bad_bands};
use crate::input::Input;
use crate::source::{Scaling, Source, products};

/// A cube in a file.
#[derive(Clone, Debug, Serialize)]
pub struct CubeReport {
    /// `cube`.
    pub kind: &'static str,
    /// As the user would type it.
    pub path: String,
    /// Format.
    pub format: String,
    /// Rows, columns, bands.
    pub shape: Shape,
    /// Type of the stored numbers.
    pub dtype: &'static str,
    /// Bytes of the values uncompressed.
    pub bytes: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Every file that holds part of it.
    pub files: Vec<String>,
    /// Wavelengths, if known.
    pub wavelengths: Option<Wavelengths>,
    /// Numbers of bad bands from 0, where the file has a bad-band list.
    pub bad_bands: Option<Vec<usize>>,
    /// Whether the bands have names.
    pub band_names: Option<Vec<String>>,
    /// The stored number that marks missing values.
    pub ignore_value: Option<f64>,
    /// From stored numbers to physical values: value * multiply / divide + add; `null` if none.
    pub scaling: Option<ScalingReport>,
    /// The same for each band, where bands differ; `null` where they do not.
    pub band_scaling: Option<Vec<ScalingReport>>,
    /// Numbers of bands from 0 that the product says have no data.
    pub empty_bands: Vec<usize>,
    /// The unit of physical values, where the product defines it.
    pub unit: Option<String>,
    /// Names of classes, for classification maps.
    pub class_names: Option<Vec<String>>,
    /// Where the pixels lie on Earth: reference system, transform in GDAL's order, unit.
    pub geo: Option<Geo>,
    /// Quality layers that the product has beside the cube, of which `--mask NAME=product` makes a mask.
    pub quality_layers: Vec<String>,
    /// What reading every value found; `null` with `--quick`.
    pub values: Option<Values>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// From stored numbers to physical values.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScalingReport {
    /// Multiplied with the stored number.
    pub multiply: f64,
    /// Divides it.
    pub divide: f64,
    /// Added last.
    pub add: f64,
}

impl CubeReport {
    /// Reports on a cube; reads every value unless `quick`.
    ///
    /// # Errors
    /// If a value cannot be read.
    pub fn new(input: &Input, source: &dyn Source, quick: bool) -> Result<Self> {
        let info = source.info();
        let shape = info.shape;
        let told = |text: &str| mirror::with_urls(text);
        let size = |file: &std::path::PathBuf| file.metadata().map_or(0, |meta| meta.len());
        Ok(Self {
            kind: "cube",
            path: input.text(),
            format: info.format.clone(),
            shape: [shape.rows, shape.columns, shape.bands],
            dtype: info.dtype.name(),
            bytes: (shape.values() * info.dtype.size()) as u64,
            file_bytes: info.files.iter().map(size).sum(),
            files: info.files.iter().map(|file| told(&file.display().to_string())).collect(),
            wavelengths: Wavelengths::of(info.wavelength.as_deref(), info.fwhm.as_deref()),
            bad_bands: info.good_bands.as_deref().map(bad_bands),
            band_names: info.band_names.clone(),
            ignore_value: info.ignore_value,
            scaling: (!info.scaling.is_none()).then(|| ScalingReport::of(&info.scaling)),
            band_scaling: info
                .band_scaling
                .as_ref()
                .map(|bands| bands.iter().map(ScalingReport::of).collect()),
            empty_bands: info.empty_bands.clone(),
            unit: info.unit.clone(),
            class_names: info.class_names.clone(),
            geo: info.geo.clone(),
            quality_layers: products::quality_names(&input.file, input.variable.as_deref()),
            values: if quick { None } else { Some(Values::read(source)?) },
            notes: info.notes.iter().map(|note| told(note)).collect(),
        })
    }
}

impl ScalingReport {
    fn of(scaling: &Scaling) -> Self {
        let Scaling { multiply, divide, add } = *scaling;
        Self { multiply, divide, add }
    }
}
