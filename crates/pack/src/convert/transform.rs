//! Computes the values that are packed, before the cast, from stored numbers.
//!
//! ```text
//! select bands → missing values become NaN → scale as the source asks → calibrate column by column
//!     → normalise each spectrum → missing values become what --fill says → divide by --scale
//! ```
//!
//! If single precision holds the numbers exactly, and they are only masked or divided by a power of
//! two, they stay in single precision. Otherwise, values are computed in double precision, and
//! narrowed so that the cast to fp16 rounds only once ([`cast::narrow`]).

use std::ops::Range;
use std::sync::Arc;

use half::f16;
use hsipack_format::{CubeShape, DType, Error, ErrorKind, Opt, Result, remedy, spectrum};
use hsipack_source::{CubeInfo, RowBuffer, Scaling, marked};

use super::calibration::Calibration;
use super::cast;
use super::options::{Fill, Normalize};
use super::pixel_position::PixelPosition;

/// Computation of packed values from the numbers of one cube.
#[derive(Clone, Debug)]
pub struct Transform {
    /// Shape of the source cube.
    pub source: CubeShape,
    /// The type to which the values are cast afterwards: float16 or float32, or that of the
    /// integers that are kept.
    pub dtype: DType,
    /// Bands of the source to keep, in this order; `None` keeps all.
    pub bands: Option<Vec<usize>>,
    /// The stored number that marks missing values.
    pub nodata: Option<f64>,
    /// From stored numbers to physical values.
    pub scaling: Scaling,
    /// The scaling of each kept band, if bands differ. It is used instead of `scaling`.
    pub band_scaling: Option<Vec<Scaling>>,
    /// Kept bands without data: all their values are missing.
    pub empty_bands: Vec<usize>,
    /// White and dark references.
    pub calibration: Option<Arc<Calibration>>,
    /// Normalisation of spectra.
    pub normalize: Normalize,
    /// How missing values are packed.
    pub fill: Fill,
    /// Factor between packed and physical values.
    pub scale: f64,
    /// Mantissa bits that the cast keeps; `None` keeps all.
    pub keep_bits: Option<u8>,
}

/// Values per pass, in whole pixels: few enough for the first-level cache.
const TILE: usize = 4096;

/// Working memory of [`Transform::apply`].
#[derive(Debug, Default)]
pub struct Scratch {
    single: Vec<f32>,
    double: Vec<f64>,
}

impl Transform {
    /// A transform that keeps every number of a cube unchanged.
    pub fn identity(info: &CubeInfo) -> Self {
        Self {
            source: info.shape,
            dtype: DType::F16,
            bands: None,
            nodata: None,
            scaling: Scaling::NONE,
            band_scaling: None,
            empty_bands: Vec::new(),
            calibration: None,
            normalize: Normalize::None,
            fill: Fill::Nan,
            scale: 1.0,
            keep_bits: None,
        }
    }

    /// A transform from stored numbers to the physical values that the source defines, for `bands`.
    pub fn physical(info: &CubeInfo, bands: Option<Vec<usize>>) -> Self {
        let kept = |band: &usize| info.empty_bands.contains(band);
        let all = || 0..info.shape.bands;
        let empty_bands = match &bands {
            Some(bands) => (0..bands.len()).filter(|index| kept(&bands[*index])).collect(),
            None => all().filter(kept).collect(),
        };
        let band_scaling = info.band_scaling.as_ref().map(|scaling| match &bands {
            Some(bands) => bands.iter().map(|band| scaling[*band]).collect(),
            None => scaling.clone(),
        });
        Self {
            bands,
            nodata: info.ignore_value,
            scaling: info.scaling,
            band_scaling,
            empty_bands,
            ..Self::identity(info)
        }
    }

    /// The number of kept bands.
    pub fn out_bands(&self) -> usize {
        self.bands.as_ref().map_or(self.source.bands, Vec::len)
    }

    /// Whether single precision is exact for the whole transform.
    fn is_exact_in_f32(&self, dtype: DType) -> bool {
        let fits = matches!(
            dtype,
            DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16 | DType::F16 | DType::F32
        );
        // A fill value that single precision cannot hold exactly would be rounded twice.
        let fill = !matches!(self.fill, Fill::Value(value) if f64::from(value as f32) != value);
        let power_of_two =
            self.scale.to_bits() & ((1 << 52) - 1) == 0 && (1e-30..1e30).contains(&self.scale);
        fits && fill
            && power_of_two
            && self.scaling.is_none()
            && self.band_scaling.is_none()
            && self.calibration.is_none()
            && self.normalize == Normalize::None
    }

    /// Passes the values of rows `take` of the buffer `rows` to `each`, some pixels at a time:
    /// their place, and their values with the band fastest, ready for the cast. The buffer starts
    /// with row `first_row` of the cube.
    ///
    /// # Errors
    /// If a value is missing and `--fill error` was given, or `each` fails.
    pub fn apply(
        &self,
        rows: &RowBuffer,
        first_row: usize,
        take: Range<usize>,
        scratch: &mut Scratch,
        each: &mut dyn FnMut(PixelPosition, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let exact = self.is_exact_in_f32(rows.dtype());
        for (position, values) in self.tiles(first_row, take) {
            if exact {
                self.tile_single(rows, values, position, scratch, each)?;
            } else {
                self.tile_double(rows, values, position, scratch)?;
                scratch.single.resize(scratch.double.len(), 0.0);
                let is_half = self.dtype == DType::F16;
                if !is_half {
                    // Single precision holds all integers that are packed, and others do not become one of them.
                    self.nearest(&scratch.double, &mut scratch.single, position)?;
                }
                // Float32 values that keep all bits are not rounded again.
                if is_half || self.keep_bits.is_some_and(|bits| bits < 23) {
                    cast::narrow(&scratch.double, &mut scratch.single);
                }
                each(position, &scratch.single)?;
            }
        }
        Ok(())
    }

    /// The tiles of rows `take` of a buffer that starts with row `first_row`: their places and
    /// values.
    fn tiles(
        &self,
        first_row: usize,
        take: Range<usize>,
    ) -> impl Iterator<Item = (PixelPosition, Range<usize>)> + use<> {
        let CubeShape { columns, bands, .. } = self.source;
        let pixels = (TILE / bands).max(1);
        let end = take.end * columns;
        (take.start * columns..end).step_by(pixels).map(move |start| {
            let position =
                PixelPosition { row: first_row + start / columns, column: start % columns };
            (position, start * bands..end.min(start + pixels) * bands)
        })
    }

    fn tile_single(
        &self,
        rows: &RowBuffer,
        values: Range<usize>,
        position: PixelPosition,
        scratch: &mut Scratch,
        each: &mut dyn FnMut(PixelPosition, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let untouched = self.bands.is_none()
            && self.empty_bands.is_empty()
            && self.nodata.is_none()
            && self.scale == 1.0
            && self.fill == Fill::Nan;
        if rows.dtype() == DType::F32 && untouched {
            return each(position, &rows.as_slice::<f32>()[values]);
        }
        let out = &mut scratch.single;
        match rows.dtype() {
            DType::Bool | DType::U8 => {
                self.gather(&rows.as_slice::<u8>()[values], |v| f32::from(*v), out)
            }
            DType::I8 => self.gather(&rows.as_slice::<i8>()[values], |v| f32::from(*v), out),
            DType::U16 => self.gather(&rows.as_slice::<u16>()[values], |v| f32::from(*v), out),
            DType::I16 => self.gather(&rows.as_slice::<i16>()[values], |v| f32::from(*v), out),
            DType::F16 => self.gather(&rows.as_slice::<f16>()[values], |v| v.to_f32(), out),
            _ => self.gather(&rows.as_slice::<f32>()[values], |v| *v, out),
        }
        if let Some(nodata) = self.nodata {
            let (low, high) = marked(nodata, rows.dtype()).into_inner();
            let (low, high) = (low as f32, high as f32);
            let is_missing = |value: f32| value >= low && value <= high;
            out.iter_mut()
                .for_each(|value| *value = if is_missing(*value) { f32::NAN } else { *value });
        }
        self.forget_empty(out, f32::NAN);
        match self.fill {
            Fill::Nan => {}
            Fill::Value(fill) => {
                out.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = fill as f32)
            }
            Fill::Error => {
                self.refuse_missing(out.iter().position(|value| value.is_nan()), position)?
            }
        }
        if self.scale != 1.0 {
            let inverse = (1.0 / self.scale) as f32;
            out.iter_mut().for_each(|value| *value *= inverse);
        }
        each(position, out)
    }

    fn tile_double(
        &self,
        rows: &RowBuffer,
        values: Range<usize>,
        position: PixelPosition,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let out = &mut scratch.double;
        gather_f64(self, rows, values, out);
        if let Some(nodata) = self.nodata {
            let missing = marked(nodata, rows.dtype());
            let missing = out.iter_mut().filter(|value| missing.contains(value));
            missing.for_each(|value| *value = f64::NAN);
        }
        self.forget_empty(out, f64::NAN);
        let bands = self.out_bands();
        if let Some(scaling) = &self.band_scaling {
            for spectrum in out.chunks_exact_mut(bands) {
                for (value, scaling) in spectrum.iter_mut().zip(scaling) {
                    *value = scaling.physical(*value);
                }
            }
        } else if !self.scaling.is_none() {
            out.iter_mut().for_each(|value| *value = self.scaling.physical(*value));
        }
        if let Some(calibration) = &self.calibration {
            calibration.apply(out, bands, position, [self.source.rows, self.source.columns]);
        }
        if let Some(norm) = self.normalize.norm() {
            out.chunks_exact_mut(bands).for_each(|spectrum| spectrum::normalize(spectrum, norm));
        }
        match self.fill {
            Fill::Nan => {}
            Fill::Value(fill) => {
                out.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = fill)
            }
            Fill::Error => {
                self.refuse_missing(out.iter().position(|value| value.is_nan()), position)?
            }
        }
        if self.scale != 1.0 {
            out.iter_mut().for_each(|value| *value /= self.scale);
        }
        Ok(())
    }

    /// Passes the values to `each` as [`apply`](Self::apply) does, but in double precision and not
    /// narrowed. Packed values are compared with them.
    ///
    /// # Errors
    /// The same as those of [`apply`](Self::apply).
    pub fn apply_f64(
        &self,
        rows: &RowBuffer,
        first_row: usize,
        scratch: &mut Scratch,
        each: &mut dyn FnMut(PixelPosition, &[f64]) -> Result<()>,
    ) -> Result<()> {
        let all = 0..rows.len() / self.source.row_values();
        for (position, values) in self.tiles(first_row, all) {
            self.tile_double(rows, values, position, scratch)?;
            each(position, &scratch.double)?;
        }
        Ok(())
    }

    /// Marks the values of bands without data as missing. `values` are whole pixels.
    fn forget_empty<T: Copy>(&self, values: &mut [T], missing: T) {
        if self.empty_bands.is_empty() {
            return;
        }
        for spectrum in values.chunks_exact_mut(self.out_bands()) {
            self.empty_bands.iter().for_each(|band| spectrum[*band] = missing);
        }
    }

    /// Converts whole pixels, and keeps the selected bands.
    fn gather<T, U>(&self, from: &[T], convert: impl Fn(&T) -> U, to: &mut Vec<U>) {
        to.clear();
        match &self.bands {
            None => to.extend(from.iter().map(convert)),
            Some(bands) => {
                for pixel in from.chunks_exact(self.source.bands) {
                    to.extend(bands.iter().map(|band| convert(&pixel[*band])));
                }
            }
        }
    }

    /// Rounds values to single precision, for storing them.
    fn nearest(&self, values: &[f64], out: &mut [f32], position: PixelPosition) -> Result<()> {
        for (at, (value, out)) in values.iter().zip(out).enumerate() {
            *out = *value as f32;
            if out.is_infinite() && value.is_finite() {
                let (position, band) = self.locate(position, at);
                return Err(Error::new(
                    ErrorKind::Overflow,
                    format!(
                        "band {band}, row {}, column {}: the value {} does not fit float32",
                        position.row,
                        position.column,
                        value * self.scale
                    ),
                )
                .with_remedy(remedy![
                    "pass ",
                    Opt::Scale.to("auto"),
                    " or a larger ",
                    Opt::Scale
                ]));
            }
        }
        Ok(())
    }

    fn refuse_missing(&self, at: Option<usize>, position: PixelPosition) -> Result<()> {
        let Some(at) = at else { return Ok(()) };
        let (position, band) = self.locate(position, at);
        Err(Error::new(
            ErrorKind::Overflow,
            format!("band {band}, row {}, column {} has no value", position.row, position.column),
        )
        .with_remedy(remedy![
            "pass ",
            Opt::Fill.to("nan"),
            ", or a number for ",
            Opt::Fill
        ]))
    }

    /// The position and the source band of value `at` in a tile that starts at `start`.
    pub fn locate(&self, start: PixelPosition, at: usize) -> (PixelPosition, usize) {
        let bands = self.out_bands();
        let pixel = start.row * self.source.columns + start.column + at / bands;
        let band = self.bands.as_ref().map_or(at % bands, |selected| selected[at % bands]);
        (
            PixelPosition { row: pixel / self.source.columns, column: pixel % self.source.columns },
            band,
        )
    }
}

fn gather_f64(transform: &Transform, rows: &RowBuffer, values: Range<usize>, out: &mut Vec<f64>) {
    match rows.dtype() {
        DType::Bool | DType::U8 => {
            transform.gather(&rows.as_slice::<u8>()[values], |v| f64::from(*v), out)
        }
        DType::I8 => transform.gather(&rows.as_slice::<i8>()[values], |v| f64::from(*v), out),
        DType::U16 => transform.gather(&rows.as_slice::<u16>()[values], |v| f64::from(*v), out),
        DType::I16 => transform.gather(&rows.as_slice::<i16>()[values], |v| f64::from(*v), out),
        DType::U32 => transform.gather(&rows.as_slice::<u32>()[values], |v| f64::from(*v), out),
        DType::I32 => transform.gather(&rows.as_slice::<i32>()[values], |v| f64::from(*v), out),
        // Above 2^53, double precision is 2^42 times finer than fp16, so rounding to the nearest double makes no
        // difference.
        DType::U64 => transform.gather(&rows.as_slice::<u64>()[values], |v| *v as f64, out),
        DType::I64 => transform.gather(&rows.as_slice::<i64>()[values], |v| *v as f64, out),
        DType::F16 => transform.gather(&rows.as_slice::<f16>()[values], |v| v.to_f64(), out),
        DType::F32 => transform.gather(&rows.as_slice::<f32>()[values], |v| f64::from(*v), out),
        DType::F64 => transform.gather(&rows.as_slice::<f64>()[values], |v| *v, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(values: &[f32]) -> RowBuffer {
        let mut rows = RowBuffer::new();
        rows.reset(DType::F32, values.len()).copy_from_slice(bytemuck::cast_slice(values));
        rows
    }

    fn apply(transform: &Transform, rows: &RowBuffer) -> Result<Vec<f32>> {
        let mut all = Vec::new();
        transform.apply(
            rows,
            0,
            0..transform.source.rows,
            &mut Scratch::default(),
            &mut |_, values| {
                all.extend_from_slice(values);
                Ok(())
            },
        )?;
        Ok(all)
    }

    fn identity(shape: CubeShape) -> Transform {
        Transform::identity(&CubeInfo::new("test", shape, DType::F32, "test"))
    }

    #[test]
    fn bands_are_picked_before_missing_values_are_masked() {
        let mut transform = identity(CubeShape::new(1, 2, 3));
        transform.bands = Some(vec![2, 0]);
        transform.nodata = Some(-9999.0);
        let got = apply(&transform, &rows(&[1.0, 2.0, -9999.0, 4.0, -9999.0, 6.0])).unwrap();
        assert!(got[0].is_nan());
        assert_eq!(got[1..], [1.0, 6.0, 4.0]);
    }

    #[test]
    fn bands_have_scales_of_their_own_and_some_no_data() {
        let mut info = CubeInfo::new("test", CubeShape::new(1, 2, 3), DType::F32, "test");
        let scale = |multiply, add| Scaling { multiply, divide: 1.0, add };
        info.scale_bands(vec![scale(2.0, 1.0), Scaling::NONE, scale(0.5, -1.0)]);
        info.empty_bands = vec![1];
        let values = rows(&[1.0, 2.0, 4.0, 5.0, 6.0, 8.0]);
        let got = apply(&Transform::physical(&info, None), &values).unwrap();
        assert_eq!((got[0], got[2], got[3], got[5]), (3.0, 1.0, 11.0, 3.0));
        assert!(got[1].is_nan() && got[4].is_nan());
        let got = apply(&Transform::physical(&info, Some(vec![2, 1, 0])), &values).unwrap();
        assert_eq!((got[0], got[2], got[3], got[5]), (1.0, 3.0, 3.0, 11.0));
        assert!(got[1].is_nan() && got[4].is_nan());
        // If all bands have the same scaling, there is only one scale, and single precision may suffice.
        info.scale_bands(vec![Scaling::NONE; 3]);
        assert!(!info.is_scaled());
        let got = apply(&Transform::physical(&info, None), &values).unwrap();
        assert_eq!((got[0], got[5]), (1.0, 8.0));
        assert!(got[1].is_nan() && got[4].is_nan());
    }

    #[test]
    fn a_header_s_decimal_matches_a_single_precision_value() {
        let mut transform = identity(CubeShape::new(1, 1, 1));
        transform.nodata = Some(-3.4028234663852886e38);
        transform.normalize = Normalize::L2;
        assert!(apply(&transform, &rows(&[f32::MIN])).unwrap()[0].is_nan());
        transform.nodata = Some(-3.4e38);
        assert!(!apply(&transform, &rows(&[f32::MIN])).unwrap()[0].is_nan());
        // Programs give large markers with few digits.
        for normalize in [Normalize::L2, Normalize::None] {
            transform.nodata = Some(-3.40282e38);
            transform.normalize = normalize;
            assert!(apply(&transform, &rows(&[f32::MIN])).unwrap()[0].is_nan());
        }
    }

    #[test]
    fn missing_values_are_filled_after_spectra_are_normalised() {
        let mut transform = identity(CubeShape::new(1, 2, 4));
        transform.normalize = Normalize::L1;
        transform.fill = Fill::Value(5.0);
        let got = apply(
            &transform,
            &rows(&[1.0, -2.0, 5.0, f32::NAN, f32::INFINITY, 0.0, f32::NEG_INFINITY, 0.0]),
        );
        assert_eq!(got.unwrap(), [0.125, -0.25, 0.625, 5.0, 5.0, 0.0, 5.0, 0.0]);
        transform.fill = Fill::Error;
        let error = apply(&transform, &rows(&[1.0, f32::INFINITY, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]));
        assert!(error.unwrap_err().what().contains("band 1, row 0, column 0 has no value"));
    }

    #[test]
    fn scaling_and_division_are_done_once_in_double_precision() {
        let mut transform = identity(CubeShape::new(1, 1, 2));
        transform.scaling = Scaling { multiply: 1.0, divide: 10_000.0, add: 0.0 };
        transform.scale = 3.0;
        let got = apply(&transform, &rows(&[4065.0, 1.0])).unwrap();
        assert_eq!(f16::from_f32(got[0]), f16::from_f64(4065.0 / 10_000.0 / 3.0));
    }

    #[test]
    fn negative_zero_keeps_its_sign_through_scaling() {
        let mut transform = identity(CubeShape::new(1, 1, 1));
        transform.scaling = Scaling { multiply: 1.0, divide: 10_000.0, add: 0.0 };
        assert!(apply(&transform, &rows(&[-0.0])).unwrap()[0].is_sign_negative());
    }

    #[test]
    fn missing_values_can_be_replaced_or_refused() {
        let mut transform = identity(CubeShape::new(2, 1, 2));
        transform.fill = Fill::Value(8.0);
        transform.scale = 2.0;
        assert_eq!(
            apply(&transform, &rows(&[1.0, 2.0, 3.0, f32::NAN])).unwrap(),
            [0.5, 1.0, 1.5, 4.0]
        );
        transform.fill = Fill::Error;
        let error = apply(&transform, &rows(&[1.0, 2.0, 3.0, f32::NAN])).unwrap_err();
        assert!(error.what().contains("band 1, row 1, column 0"), "{error}");
    }
}
