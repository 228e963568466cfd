//! From stored data to images and masks, and normalising, as tensor operations.

use hsipack_format::{Error, Result, SpectralNorm};

use super::engine::wide;
use super::{Binary, TensorEngine, Tensors, Unary};
use crate::array::ElementType;
use crate::engine::BatchArray;
use crate::prepare::{BandFigures, ImageConversion, LabelConversion, Normalized, Validity};

/// The axis of bands.
const BANDS: usize = 3;

impl<T: Tensors> TensorEngine<T> {
    /// Normalises spectra (samples, rows, columns, bands) by the rules of
    /// [`hsipack_format::spectrum`], with one exception: SNV gives NaN instead of 0 if the
    /// difference of two values exceeds the range of their type.
    pub(super) fn normalized(&self, values: &T::Tensor, norm: SpectralNorm) -> Result<T::Tensor> {
        let t = &self.0;
        // Infinite values become NaN as well: they are ignored, and they are NaN in the result.
        let finite = t.nan_to_num(values, f64::NAN, f64::NAN, f64::NAN)?;
        let sum = |parts: &T::Tensor| t.sum(&self.nan_as(parts, 0.0)?, BANDS);
        let (finite, divisor) = match norm {
            SpectralNorm::L1 => {
                let sum = sum(&t.unary(Unary::Abs, &finite)?)?;
                (finite, sum)
            }
            SpectralNorm::L2 => {
                let sum = sum(&t.unary(Unary::Square, &finite)?)?;
                (finite, t.unary(Unary::Sqrt, &sum)?)
            }
            SpectralNorm::Snv => {
                let present = t.unary(Unary::LogicalNot, &t.unary(Unary::Isnan, &finite)?)?;
                let count = t.sum(&present, BANDS)?;
                // Subtract one of the values first, so that a spectrum of equal values has no spread, however its sum
                // is rounded.
                let greatest = t.amax(&self.nan_as(&finite, f64::NEG_INFINITY)?, BANDS)?;
                let centred = t.binary(Binary::Sub, &finite, &greatest)?;
                let mean = t.binary(Binary::Div, &sum(&centred)?, &count)?;
                let centred = t.binary(Binary::Sub, &centred, &mean)?;
                let squares = sum(&t.unary(Unary::Square, &centred)?)?;
                let variance =
                    t.binary(Binary::Div, &squares, &t.with(Binary::Sub, &count, 1.0)?)?;
                (centred, t.unary(Unary::Sqrt, &variance)?)
            }
        };
        // If the divisor is not above 0, divide by infinity, so that the result is 0.
        let infinity = t.full(&[1], f64::INFINITY, ElementType::F32)?;
        let divisor = t.r#where(&t.with(Binary::Gt, &divisor, 0.0)?, &divisor, &infinity)?;
        t.binary(Binary::Div, &finite, &divisor)
    }

    fn nan_as(&self, values: &T::Tensor, number: f64) -> Result<T::Tensor> {
        self.0.nan_to_num(values, number, f64::INFINITY, f64::NEG_INFINITY)
    }

    pub(super) fn prepared(
        &self,
        stored: &T::Tensor,
        recipe: &ImageConversion,
    ) -> Result<T::Tensor> {
        let t = &self.0;
        let (element, shape) = (t.element(stored)?, t.shape(stored)?);
        let outer = |image: &T::Tensor| t.permute(image, &[0, 3, 1, 2]);
        let only_cast = ImageConversion { element, ..recipe.clone() }.is_nothing(element);
        if only_cast || shape.contains(&0) {
            return outer(&t.to(stored, recipe.element)?);
        }
        let shape: [usize; 4] = shape
            .try_into()
            .map_err(|shape| Error::bug(format!("what is stored, of shape {shape:?}")))?;
        let image = t.empty(&shape, recipe.element)?;
        let held = BatchArray { array: stored.clone(), shape, element, ours: false };
        let at_once = self.at_once(&held, shape[3]);
        for first in (0..shape[0]).step_by(at_once) {
            let samples: Vec<usize> = (first..shape[0].min(first + at_once)).collect();
            let values = t.to(&self.part(stored, &samples)?, wide(element))?;
            let mut values = self.computed(values, &samples, shape[3], recipe, wide(element))?;
            if recipe.stays_finite() {
                let finite = t.with(Binary::Ne, &t.unary(Unary::Abs, &values)?, f64::INFINITY)?;
                let bounded = self.clamped(&values, recipe.element)?;
                values = t.r#where(&finite, &bounded, &values)?;
            }
            t.copy_(&self.part(&image, &samples)?, &values)?;
        }
        outer(&image)
    }

    /// All steps for some samples before they are cast.
    fn computed(
        &self,
        mut values: T::Tensor,
        samples: &[usize],
        bands: usize,
        recipe: &ImageConversion,
        element: ElementType,
    ) -> Result<T::Tensor> {
        let t = &self.0;
        let with = |op, values: &T::Tensor, numbers: Vec<f64>| {
            let shape = [samples.len(), 1, 1, numbers.len() / samples.len()];
            t.binary(op, values, &self.numbers(&numbers, &shape, element)?)
        };
        let physical: Option<Vec<[f64; 2]>> =
            samples.iter().map(|sample| recipe.physical_of(*sample)).collect();
        if let Some(physical) = physical {
            values =
                with(Binary::Mul, &values, physical.iter().map(|[scale, _]| *scale).collect())?;
            let offsets: Vec<f64> = physical.iter().map(|[_, offset]| *offset).collect();
            if offsets.iter().any(|offset| *offset != 0.0) {
                values = with(Binary::Add, &values, offsets)?;
            }
        }
        match &recipe.normalized {
            Normalized::Not => {}
            Normalized::Bands(_) => {
                let figures = |of: &dyn Fn(&BandFigures) -> Vec<f64>| -> Vec<f64> {
                    let figures =
                        samples.iter().filter_map(|sample| recipe.normalized.figures_of(*sample));
                    figures.flat_map(of).collect()
                };
                let mean =
                    figures(&|figures| figures.mean.iter().copied().map(f64::from).collect());
                let divisor = |std: &f32| if *std == 0.0 { 1.0 } else { f64::from(*std) };
                let std = figures(&|figures| figures.std.iter().map(divisor).collect());
                debug_assert_eq!(mean.len(), samples.len() * bands);
                values = with(Binary::Sub, &values, mean)?;
                values = with(Binary::Div, &values, std)?;
            }
            Normalized::Spectra(norm) => values = self.normalized(&values, *norm)?,
        }
        // Last, so that the replacement for NaN is not part of any sum.
        match recipe.nan {
            Some(nan) => self.nan_as(&values, nan),
            None => Ok(values),
        }
    }

    /// Which pixels lie inside their cubes and have finite values in all bands that count.
    pub(super) fn finite(&self, stored: &T::Tensor, recipe: &Validity) -> Result<T::Tensor> {
        let t = &self.0;
        let (element, shape) = (t.element(stored)?, t.shape(stored)?);
        let shape: [usize; 4] = shape
            .try_into()
            .map_err(|shape| Error::bug(format!("a stored image, of shape {shape:?}")))?;
        let valid = t.empty(&shape[..3], ElementType::Bool)?;
        let held = BatchArray { array: stored.clone(), shape, element, ours: false };
        // Which bands count may differ between samples.
        let at_once = if recipe.bands.len() > 1 { 1 } else { self.at_once(&held, shape[3]) };
        for first in (0..shape[0]).step_by(at_once) {
            let samples: Vec<usize> = (first..shape[0].min(first + at_once)).collect();
            let values = self.part(stored, &samples)?;
            // Infinite values become NaN as well.
            let finite = t.nan_to_num(&values, f64::NAN, f64::NAN, f64::NAN)?;
            let mut missing = t.unary(Unary::Isnan, &finite)?;
            if let Some(counted) = recipe.bands_of(first) {
                let counted: Vec<i64> = counted.iter().map(|counts| i64::from(*counts)).collect();
                let counted = self.integers(&counted, &[counted.len()], ElementType::Bool)?;
                missing = t.binary(Binary::LogicalAnd, &missing, &counted)?;
            }
            let missing = t.any(&missing, BANDS)?;
            let missing = t.reshape(&missing, &[samples.len(), shape[1], shape[2]])?;
            let mut finite = t.unary(Unary::LogicalNot, &missing)?;
            if !recipe.inside.is_empty() {
                let [_, rows, columns, _] = shape;
                let pixels = samples.iter().flat_map(|sample| {
                    let of_row = move |row| (0..columns).map(move |column| [row, column]);
                    (0..rows).flat_map(of_row).map(move |pixel| (*sample, pixel))
                });
                let inside: Vec<i64> = pixels
                    .map(|(sample, pixel)| i64::from(recipe.is_inside(sample, pixel)))
                    .collect();
                let inside =
                    self.integers(&inside, &[samples.len(), rows, columns], ElementType::Bool)?;
                finite = t.binary(Binary::LogicalAnd, &finite, &inside)?;
            }
            t.copy_(&self.part(&valid, &samples)?, &finite)?;
        }
        Ok(valid)
    }

    pub(super) fn unpacked(
        &self,
        stored: &T::Tensor,
        recipe: &LabelConversion,
    ) -> Result<T::Tensor> {
        let t = &self.0;
        if recipe.layers > 0 {
            // The highest bit is the sign in libraries without unsigned types.
            let bits: Vec<i64> =
                (0..recipe.layers).map(|bit| 1i64.checked_shl(bit as u32).unwrap_or(0)).collect();
            let bits = self.integers(&bits, &[bits.len()], recipe.stored.signed())?;
            let layers = t.with(Binary::Ne, &t.binary(Binary::BitwiseAnd, stored, &bits)?, 0.0)?;
            return t.permute(&layers, &[0, 3, 1, 2]);
        }
        let shape = t.shape(stored)?;
        let ids = t.reshape(stored, &shape[..3])?;
        let unsigned =
            |wider: ElementType, bits: f64| t.with(Binary::BitwiseAnd, &t.to(&ids, wider)?, bits);
        let ids = match recipe.stored {
            ElementType::U16 => unsigned(ElementType::I32, f64::from(u16::MAX))?,
            ElementType::U32 => unsigned(ElementType::I64, f64::from(u32::MAX))?,
            _ => ids,
        };
        t.to(&ids, recipe.element)
    }
}
