//! One cube of a plan: its source, the bands that are kept, and the transform of its values.

use std::sync::Arc;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::{CubeInfo, Scaling, Source, described, resampled};

use super::PlannedSample;
use crate::convert::calibration::Calibration;
use crate::convert::cube_file::open_file;
use crate::convert::options::{BandSelection, ValueOptions};
use crate::convert::transform::Transform;
use crate::convert::{band_centers, references};
use crate::input::Input;

/// Opens the source of an input, with the given options.
///
/// # Errors
/// If it cannot be opened.
pub fn open_source(input: &Input, values: &ValueOptions) -> Result<Box<dyn Source>> {
    let source = open_file(input, values)?;
    let shape = source.info().shape;
    if shape.is_empty() || shape.checked_values().is_none() {
        return Err(Error::malformed(format!("the cube has the shape {shape}")).at(&input.file));
    }
    let source = match &values.band_centers {
        None => source,
        Some(centers) => {
            let mut info = source.info().clone();
            band_centers::apply(centers, input, &mut info)?;
            described(source, info)
        }
    };
    match &values.resample {
        None => Ok(source),
        Some(grid) => resampled(source, grid, values.nodata),
    }
}

impl PlannedSample {
    /// The transform of this sample's values.
    ///
    /// # Errors
    /// If a reference cube cannot be read or does not fit.
    pub(crate) fn transform(&self, values: &ValueOptions, scale: f64) -> Result<Transform> {
        transform(&self.input, &self.info(), self.description.bands.clone(), values, scale)
    }
}

/// The transform of the cube in `input`.
///
/// # Errors
/// If a reference cube cannot be read or does not fit.
pub(crate) fn transform(
    input: &Input,
    info: &CubeInfo,
    bands: Option<Vec<usize>>,
    values: &ValueOptions,
    scale: f64,
) -> Result<Transform> {
    let calibration = references::load(values, input, info, bands.as_deref())?.map(Arc::new);
    Ok(with_calibration(info, bands, values, scale, calibration))
}

/// The transform of a cube whose references are already known.
pub(crate) fn with_calibration(
    info: &CubeInfo,
    bands: Option<Vec<usize>>,
    values: &ValueOptions,
    scale: f64,
    calibration: Option<Arc<Calibration>>,
) -> Transform {
    let stored = |bands| Transform { bands, ..Transform::identity(info) };
    let dtype = values.dtype();
    let read = if values.raw_values { stored(bands) } else { Transform::physical(info, bands) };
    if !dtype.is_float() {
        // The scale and offset are recorded instead.
        let as_stored = Transform { scaling: Scaling::NONE, band_scaling: None, ..read };
        let nodata = values.nodata.or(info.ignore_value);
        return Transform { dtype, nodata, fill: values.fill, ..as_stored };
    }
    Transform {
        dtype,
        // Missing values of resampled cubes are NaN already.
        nodata: values.nodata.filter(|_| values.resample.is_none()).or(info.ignore_value),
        calibration,
        normalize: values.normalize,
        fill: values.fill,
        scale,
        keep_bits: values.keep_bits.bits(),
        ..read
    }
}

/// Which bands of a cube to keep; `None` keeps all.
///
/// # Errors
/// If the cube does not have what the selection needs, or no band is left.
pub fn select_bands(info: &CubeInfo, values: &ValueOptions) -> Result<Option<Vec<usize>>> {
    let all = info.shape.bands;
    let mut bands: Vec<usize> = match &values.bands {
        BandSelection::All => (0..all).collect(),
        BandSelection::Numbers(numbers) => match numbers.iter().find(|band| **band >= all) {
            Some(band) => {
                return Err(Error::conflict(format!(
                    "there is no band {band}; the cube has bands 0 to {}",
                    all - 1
                ))
                .at(&info.files[0])
                .with_remedy(remedy!["change ", Opt::Bands]));
            }
            None => numbers.clone(),
        },
        BandSelection::Wavelengths(ranges) => {
            let wavelength = info.wavelength.as_ref().ok_or_else(|| {
                Error::conflict("the wavelengths of the bands are not known")
                    .at(&info.files[0])
                    .with_remedy(remedy!["select bands by number with ", Opt::Bands])
            })?;
            let inside = |nm: f64| ranges.iter().any(|(low, high)| (*low..=*high).contains(&nm));
            (0..all).filter(|band| inside(wavelength[*band])).collect()
        }
    };
    if let Some(good) = info.good_bands.as_ref().filter(|_| values.drop_bad_bands) {
        bands.retain(|band| good[*band]);
    }
    if bands.is_empty() {
        let wavelengths = info.wavelength.iter().flatten().copied();
        let (low, high) = wavelengths
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), nm| {
                (low.min(nm), high.max(nm))
            });
        let has = match low <= high {
            true => format!("{all} bands from {low} to {high} nm"),
            false => format!("{all} bands"),
        };
        return Err(Error::conflict(format!(
            "no band is left after the selection; the cube has {has}"
        ))
        .at(&info.files[0])
        .with_remedy(remedy!["select others with ", Opt::Bands, " or ", Opt::Wavelengths]));
    }
    Ok((bands != (0..all).collect::<Vec<_>>()).then_some(bands))
}

/// The entries of a per-band list for the kept bands.
pub(crate) fn pick<T: Clone>(list: &Option<Vec<T>>, bands: &Option<Vec<usize>>) -> Option<Vec<T>> {
    match bands {
        None => list.clone(),
        Some(bands) => {
            list.as_ref().map(|list| bands.iter().map(|band| list[*band].clone()).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, DType};

    use super::*;

    #[test]
    fn bands_are_selected_by_number_wavelength_and_quality() {
        let mut info = CubeInfo::new("test", CubeShape::new(1, 1, 4), DType::U8, "t");
        info.wavelength = Some(vec![400.0, 500.0, 600.0, 700.0]);
        info.good_bands = Some(vec![true, true, false, true]);
        let select = |bands, drop_bad_bands| {
            select_bands(&info, &ValueOptions { bands, drop_bad_bands, ..Default::default() })
        };
        assert_eq!(select(BandSelection::All, false).unwrap(), None);
        assert_eq!(select(BandSelection::All, true).unwrap(), Some(vec![0, 1, 3]));
        assert_eq!(select(BandSelection::Numbers(vec![3, 0]), false).unwrap(), Some(vec![3, 0]));
        let ranges = BandSelection::Wavelengths(vec![(450.0, 600.0), (700.0, 700.0)]);
        assert_eq!(select(ranges, true).unwrap(), Some(vec![1, 3]));
        assert!(
            select(BandSelection::Numbers(vec![4]), false)
                .unwrap_err()
                .what()
                .contains("no band 4")
        );
        assert!(select(BandSelection::Wavelengths(vec![(1.0, 2.0)]), false).is_err());
    }
}
