//! Description of a cube: shape, type, bands, the meaning of its numbers, its place on Earth.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use hsipack_format::{Color, CubeShape, DType, Geo};
use serde::{Deserialize, Serialize};

use crate::AxisOrder;

/// How the numbers in a file become physical values: `value * multiply / divide + add`.
///
/// Multiplier and divisor are separate because headers give either, and 1/10000 is not exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scaling {
    /// Multiplied with the stored number (GDAL SCALE, CF scale_factor).
    pub multiply: f64,
    /// Divides the stored number (ENVI `reflectance scale factor`, NEON `Scale_Factor`).
    pub divide: f64,
    /// Added last (GDAL OFFSET, CF add_offset).
    pub add: f64,
}

impl Scaling {
    /// Leaves numbers as they are.
    pub const NONE: Scaling = Scaling { multiply: 1.0, divide: 1.0, add: 0.0 };

    /// Whether numbers stay as they are.
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The physical value of a stored number.
    pub fn physical(&self, value: f64) -> f64 {
        let scaled = value * self.multiply / self.divide;
        // Adding 0 would turn -0.0 into 0.0.
        if self.add == 0.0 { scaled } else { scaled + self.add }
    }
}

/// How long the sensor gathered light, as a file states it.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposure {
    /// The field that states it, such as `tint`.
    pub field: String,
    /// The number in this field.
    pub time: f64,
    /// The unit after the number; empty if there is none.
    pub unit: String,
}

impl Exposure {
    /// This time as a multiple of `other`; `None` if the two differ in field or unit.
    pub fn ratio_to(&self, other: &Self) -> Option<f64> {
        let alike = self.field == other.field && self.unit == other.unit;
        alike.then_some(self.time / other.time)
    }
}

impl std::fmt::Display for Exposure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {}", self.field, self.time)?;
        if self.unit.is_empty() { Ok(()) } else { write!(f, " {}", self.unit) }
    }
}

/// Where a file says how the numbers of each column and band become physical values. This takes
/// some megabytes, so it is read only when it is needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Radiometry {
    /// The file.
    pub file: PathBuf,
    /// Columns of its cube.
    pub columns: usize,
    /// Bands of its cube.
    pub bands: usize,
}

/// Result of [`Radiometry::read`]. Every list has one value per (column, band), the band fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct PlaceScaling {
    /// Subtracted from stored numbers.
    pub background: Vec<f64>,
    /// The background after the last row, if it was measured again there. In between, the
    /// background changes evenly from row to row.
    pub last_background: Option<Vec<f64>>,
    /// Numbers are divided by this afterwards; 0 where nothing is known.
    pub divisor: Vec<f64>,
}

/// With what and when a cube was measured, as a product of a sensor says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acquisition {
    /// The sensor, such as `EnMAP`.
    pub sensor: &'static str,
    /// When the scene begins, in UTC, such as `2023-06-12T10:20:20Z`.
    pub time: Option<String>,
}

/// Description of a cube in its file.
#[derive(Clone, Debug)]
pub struct CubeInfo {
    /// The format's name as users know it, e.g. `ENVI BIL`, `MATLAB v5`, `GeoTIFF`.
    pub format: String,
    /// Rows × columns × bands.
    pub shape: CubeShape,
    /// Type of the stored numbers, which is also the type
    /// [`Source::read_rows`](crate::Source::read_rows) yields.
    pub dtype: DType,
    /// Band centres in nm, one per band.
    pub wavelength: Option<Vec<f64>>,
    /// Full width at half maximum in nm, one per band.
    pub fwhm: Option<Vec<f64>>,
    /// The file's own bad-band list, one entry per band: `true` is a good band.
    pub good_bands: Option<Vec<bool>>,
    /// Names of the bands, one per band.
    pub band_names: Option<Vec<String>>,
    /// The number that marks missing data, in stored units.
    pub ignore_value: Option<f64>,
    /// The scaling from stored numbers to physical values, if it is the same for all bands;
    /// otherwise [`Scaling::NONE`].
    pub scaling: Scaling,
    /// The scaling of each band, if bands differ. It replaces `scaling`.
    pub band_scaling: Option<Vec<Scaling>>,
    /// Background and gain of each column and band, if the file holds them. They are applied after
    /// the scaling.
    pub radiometry: Option<Radiometry>,
    /// Bands, counted from 0, that have no data according to the product. The numbers stored for
    /// them mean nothing.
    pub empty_bands: Vec<usize>,
    /// The unit of physical values as the file or the product's maker states it, such as
    /// `W/(m2 sr nm)`.
    pub unit: Option<String>,
    /// With what and when it was measured, if it is a product of a sensor.
    pub acquisition: Option<Acquisition>,
    /// The integration time.
    pub exposure: Option<Exposure>,
    /// Names of classes 0, 1, …, for classification maps.
    pub class_names: Option<Vec<String>>,
    /// Colours of classes 0, 1, …, for classification maps, as far as the file gives them.
    pub class_colors: Vec<Option<Color>>,
    /// Whether the file knows its classes only by name, so that ids are merely places in
    /// `class_names`. Class 0 is what no label covers.
    pub has_named_classes: bool,
    /// Whether it is a mask of features on a map, or on a grid of its own, that does not touch the
    /// cube.
    pub misses_cube: bool,
    /// How many annotations of a mask are only boxes, which are not drawn.
    pub undrawn_boxes: usize,
    /// The order of the axes of its array, if it is an array of which a file says the order.
    pub axes: Option<AxisOrder>,
    /// Where the pixels lie on Earth.
    pub geo: Option<Geo>,
    /// Notes for the user: header keys that were dropped because they contradict each other, and
    /// guesses.
    pub notes: Vec<String>,
    /// Every file that holds part of the cube; the first is the one to name in messages.
    pub files: Vec<PathBuf>,
}

/// Markers of missing values beyond this are written with fewer digits than they have, such as
/// -3.40282e+38, and no sensor measures values near them.
const LARGE_MARKER: f64 = 1e30;
/// Part of a large marker by which the digits that are given may be off.
const MARKER_TOLERANCE: f64 = 1e-5;

/// The stored numbers of a type for which the marker `nodata` of missing values stands, from and
/// to: a single one, or those that are equal within the digits of a large marker.
pub fn marked(nodata: f64, dtype: DType) -> RangeInclusive<f64> {
    // A header gives single-precision values in decimal, so they are compared in single precision.
    let (nearest, greatest) = match dtype {
        DType::F32 => (f64::from(nodata as f32), f64::from(f32::MAX)),
        _ => (nodata, f64::MAX),
    };
    if !dtype.is_float() || nodata.is_nan() || nodata.abs() < LARGE_MARKER {
        return nearest..=nearest;
    }
    // A marker that the type cannot hold stands for its last number, as in GDAL.
    let marker = nodata.clamp(-greatest, greatest);
    let [near, far] = [1.0 - MARKER_TOLERANCE, 1.0 + MARKER_TOLERANCE]
        .map(|factor| (marker * factor).clamp(-greatest, greatest));
    near.min(far).min(nearest)..=near.max(far).max(nearest)
}

impl CubeInfo {
    /// A cube of which only shape and type are known.
    pub fn new(
        format: impl Into<String>,
        shape: CubeShape,
        dtype: DType,
        file: impl Into<PathBuf>,
    ) -> Self {
        Self {
            format: format.into(),
            shape,
            dtype,
            wavelength: None,
            fwhm: None,
            good_bands: None,
            band_names: None,
            ignore_value: None,
            scaling: Scaling::NONE,
            band_scaling: None,
            radiometry: None,
            empty_bands: Vec::new(),
            unit: None,
            acquisition: None,
            exposure: None,
            class_names: None,
            class_colors: Vec::new(),
            has_named_classes: false,
            misses_cube: false,
            undrawn_boxes: 0,
            axes: None,
            geo: None,
            notes: Vec::new(),
            files: vec![file.into()],
        }
    }

    /// Sets the scaling of every band. If all are the same, they become one scaling for all bands.
    pub fn scale_bands(&mut self, scaling: Vec<Scaling>) {
        let alike = scaling.windows(2).all(|pair| pair[0] == pair[1]);
        (self.scaling, self.band_scaling) = match scaling.first() {
            Some(_) if !alike => (Scaling::NONE, Some(scaling)),
            first => (first.copied().unwrap_or(Scaling::NONE), None),
        };
    }

    /// Fills in what `other`, another description of the same cube, says about bands, values and
    /// place, and this one does not. Returns the names of the properties that were filled in.
    pub(crate) fn complete(&mut self, other: CubeInfo) -> Vec<&'static str> {
        fn fill<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
            let is_filled = slot.is_none() && value.is_some();
            if is_filled {
                *slot = value;
            }
            is_filled
        }
        let is_scaled = !self.is_scaled() && other.is_scaled();
        if is_scaled {
            (self.scaling, self.band_scaling) = (other.scaling, other.band_scaling);
        }
        let filled = [
            (fill(&mut self.wavelength, other.wavelength), "wavelengths"),
            (fill(&mut self.fwhm, other.fwhm), "fwhm"),
            (fill(&mut self.good_bands, other.good_bands), "bad bands"),
            (fill(&mut self.band_names, other.band_names), "band names"),
            (fill(&mut self.class_names, other.class_names), "class names"),
            (fill(&mut self.ignore_value, other.ignore_value), "ignore value"),
            (is_scaled, "scaling"),
            (fill(&mut self.unit, other.unit), "unit"),
            (fill(&mut self.exposure, other.exposure), "integration time"),
            (fill(&mut self.geo, other.geo), "georeferencing"),
        ];
        filled.into_iter().filter_map(|(is_filled, what)| is_filled.then_some(what)).collect()
    }

    /// Whether this description says something else about bands, values or place than `other`.
    pub(crate) fn differs_from(&self, other: &CubeInfo) -> bool {
        self.wavelength != other.wavelength
            || self.fwhm != other.fwhm
            || self.good_bands != other.good_bands
            || self.band_names != other.band_names
            || self.ignore_value != other.ignore_value
            || self.scaling != other.scaling
            || self.band_scaling != other.band_scaling
            || self.unit != other.unit
            || self.geo != other.geo
    }

    /// Whether stored numbers are not physical values yet.
    pub fn is_scaled(&self) -> bool {
        self.band_scaling.is_some() || self.radiometry.is_some() || !self.scaling.is_none()
    }

    /// The scaling of `band`.
    pub fn scaling_of(&self, band: usize) -> Scaling {
        self.band_scaling.as_ref().map_or(self.scaling, |bands| bands[band])
    }

    /// Bytes of an image row as [`Source::read_rows`](crate::Source::read_rows) returns it.
    pub fn row_bytes(&self) -> usize {
        self.shape.row_values() * self.dtype.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_markers_match_within_their_digits() {
        let matches = |nodata: f64, value: f32| marked(nodata, DType::F32).contains(&value.into());
        for nodata in [-3.40282e38, -3.4028e38, -3.402823466e38, -1e300] {
            assert!(matches(nodata, f32::MIN), "{nodata}");
            assert!(!matches(nodata, f32::MAX) && !matches(nodata, -3.3e38), "{nodata}");
        }
        assert!(!matches(f64::MIN, 0.0) && !matches(-3.40282e38, f32::NEG_INFINITY));
        assert!(matches(9.96921e36, 9.969_21e36) && matches(1e30, 1e30));
        // Ordinary markers match only themselves.
        for nodata in [-9999.0, 0.0, -1.0, 1e20] {
            let value = nodata as f32;
            assert!(matches(nodata, value) && !matches(nodata, value.next_up()), "{nodata}");
        }
        assert!(marked(-1.797_69e308, DType::F64).contains(&f64::MIN));
        assert_eq!(marked(1e30, DType::U64), 1e30..=1e30);
        assert!(marked(f64::NAN, DType::F32).is_empty());
    }
}
