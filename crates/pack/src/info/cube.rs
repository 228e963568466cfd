//! Describes a cube in a file.

use hsipack_format::{Geo, Result};
use hsipack_source::{Scaling, Source};
use hsipack_store::mirror;
use serde::Serialize;

use super::values::{Shape, Values, Wavelengths, bad_bands};
use crate::input::Input;

/// A cube in a file.
#[derive(Clone, Debug, Serialize)]
pub struct CubeReport {
    /// Always `cube`.
    pub kind: &'static str,
    /// The path as the user would type it.
    pub path: String,
    /// Format.
    pub format: String,
    /// Rows, columns, bands.
    pub shape: Shape,
    /// Type of the stored numbers.
    pub dtype: &'static str,
    /// Bytes of the uncompressed values.
    pub bytes: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// All files of the cube.
    pub files: Vec<String>,
    /// Wavelengths, if known.
    pub wavelengths: Option<Wavelengths>,
    /// Numbers of bad bands, counted from 0, if the file has a bad-band list.
    pub bad_bands: Option<Vec<usize>>,
    /// Names of the bands, if the file has them.
    pub band_names: Option<Vec<String>>,
    /// The stored number that marks missing values.
    pub ignore_value: Option<f64>,
    /// From stored numbers to physical values: value * multiply / divide + add; `null` if there is
    /// no scaling.
    pub scaling: Option<ScalingReport>,
    /// The scaling of each band, if bands differ; otherwise `null`.
    pub band_scaling: Option<Vec<ScalingReport>>,
    /// Numbers, counted from 0, of bands that have no data according to the product.
    pub empty_bands: Vec<usize>,
    /// The unit of physical values, if the file or its product states it.
    pub unit: Option<String>,
    /// Names of classes, for classification maps.
    pub class_names: Option<Vec<String>>,
    /// The georeferencing: reference system, transform in GDAL's order, unit.
    pub geo: Option<Geo>,
    /// Quality layers in the product of this cube. `--mask NAME=product` makes a mask of them.
    pub quality_layers: Vec<String>,
    /// Statistics of all values; `null` with `--quick`.
    pub values: Option<Values>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// From stored numbers to physical values.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScalingReport {
    /// The stored number is multiplied by this.
    pub multiply: f64,
    /// The product is divided by this.
    pub divide: f64,
    /// This is added last.
    pub add: f64,
}

impl CubeReport {
    /// Describes a cube. Reads every value unless `quick` is set.
    ///
    /// # Errors
    /// If a value cannot be read.
    pub fn new(input: &Input, source: &dyn Source, quick: bool) -> Result<Self> {
        let info = source.info();
        let shape = info.shape;
        let with_urls = |text: &str| mirror::with_urls(text);
        let size = |file: &std::path::PathBuf| file.metadata().map_or(0, |meta| meta.len());
        Ok(Self {
            kind: "cube",
            path: input.text(),
            format: info.format.clone(),
            shape: [shape.rows, shape.columns, shape.bands],
            dtype: info.dtype.name(),
            bytes: (shape.values() * info.dtype.size()) as u64,
            file_bytes: info.files.iter().map(size).sum(),
            files: info.files.iter().map(|file| with_urls(&file.display().to_string())).collect(),
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
            quality_layers: hsipack_source::quality_names(&input.file, input.variable.as_deref()),
            values: if quick { None } else { Some(Values::read(source)?) },
            notes: info.notes.iter().map(|note| with_urls(note)).collect(),
        })
    }
}

impl ScalingReport {
    fn of(scaling: &Scaling) -> Self {
        let Scaling { multiply, divide, add } = *scaling;
        Self { multiply, divide, add }
    }
}
