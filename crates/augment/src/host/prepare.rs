//! From stored data to images and masks.

use hsipack_format::Result;
use hsipack_format::spectrum::{self, Real};

use super::element::{Element, Wide, cast};
use super::rectangles::labels;
use super::spectra::PIXELS;
use super::workers::Workers;
use crate::array::ElementType;
use crate::prepare::{ImageConversion, LabelConversion, Normalized, Validity};

/// Fills an image (samples, rows, columns, bands), with `pixels` pixels per sample, from stored
/// data of the same layout.
pub(super) fn image<T: Element, U: Element>(
    workers: &Workers,
    from: &[T],
    into: &mut [U],
    [pixels, bands]: [usize; 2],
    recipe: &ImageConversion,
) {
    let (sample_len, piece_len) = (pixels * bands, PIXELS * bands);
    workers.each_of(into, sample_len, piece_len, |sample, number, out| {
        let from = &from[sample * sample_len + number * piece_len..][..out.len()];
        let mut values = vec![T::Wide::ZERO; from.len()];
        T::load_all(from, &mut values);
        prepared(&mut values, sample, bands, recipe);
        if recipe.stays_finite() {
            let most = T::Wide::of(U::LARGEST.to_f64());
            values.iter_mut().for_each(|value| *value = value.bounded(most));
        }
        cast(out, &values);
    });
}

/// All steps for some spectra of one sample before they are cast.
fn prepared<W: Wide>(values: &mut [W], sample: usize, bands: usize, recipe: &ImageConversion) {
    if let Some([scale, offset]) = recipe.physical_of(sample) {
        let (scale, offset) = (W::of(scale), W::of(offset));
        values.iter_mut().for_each(|value| *value = *value * scale);
        if offset != W::ZERO {
            values.iter_mut().for_each(|value| *value += offset);
        }
    }
    if let Some(figures) = recipe.normalized.figures_of(sample) {
        for spectrum in values.chunks_exact_mut(bands) {
            for ((value, mean), std) in spectrum.iter_mut().zip(&figures.mean).zip(&figures.std) {
                let std = if *std == 0.0 { 1.0 } else { *std };
                *value = (*value - W::of(f64::from(*mean))) / W::of(f64::from(std));
            }
        }
    }
    if let Normalized::Spectra(norm) = recipe.normalized {
        values.chunks_exact_mut(bands).for_each(|spectrum| spectrum::normalize(spectrum, norm));
    }
    if let Some(nan) = recipe.nan {
        let nan = W::of(nan);
        values
            .iter_mut()
            .for_each(|value| *value = if value.to_f64().is_nan() { nan } else { *value });
    }
}

/// Fills the mask `into` (samples, rows, columns): 1 if a pixel lies inside its cube and its values
/// are finite in all bands that count, otherwise 0.
pub(super) fn valid<T: Element>(
    workers: &Workers,
    from: &[T],
    into: &mut [u8],
    [rows, columns, bands]: [usize; 3],
    recipe: &Validity,
) {
    let pixels = rows * columns;
    workers.each_of(into, pixels, PIXELS, |sample, number, out| {
        let first = sample * pixels + number * PIXELS;
        let counted = recipe.bands_of(sample);
        for (pixel, out) in out.iter_mut().enumerate() {
            let values = &from[(first + pixel) * bands..][..bands];
            let is_finite = |value: &T| value.load().to_f64().is_finite();
            let is_valid = match counted {
                None => values.iter().all(is_finite),
                Some(counted) => {
                    values.iter().zip(counted).all(|(value, counts)| !counts || is_finite(value))
                }
            };
            let pixel = number * PIXELS + pixel;
            let is_inside = recipe.inside.is_empty()
                || recipe.is_inside(sample, [pixel / columns, pixel % columns]);
            *out = u8::from(is_valid && is_inside);
        }
    });
}

/// Number of pixels whose labels a thread processes at a time.
const LABELS: usize = 1 << 12;

/// Fills the mask `into` from stored data with one element per pixel; the recipe says which
/// elements each pixel gets.
pub(super) fn mask(
    workers: &Workers,
    from: &[u8],
    into: &mut [u8],
    recipe: &LabelConversion,
) -> Result<()> {
    let (from_size, layers) = (recipe.stored.size(), recipe.layers);
    let to = if layers > 0 { ElementType::Bool } else { recipe.element };
    let to_size = to.size() * layers.max(1);
    // Check this once in advance: an unsupported type is found before threads start.
    labels(&[], recipe.stored, &mut Vec::new())?;
    workers.each(into, LABELS * to_size, |number, out| {
        let pixels = out.len() / to_size;
        let from = &from[number * LABELS * from_size..][..pixels * from_size];
        let mut numbers = Vec::with_capacity(pixels);
        if labels(from, recipe.stored, &mut numbers).is_err() {
            return;
        }
        if layers > 0 {
            for (number, out) in numbers.iter().zip(out.chunks_exact_mut(layers)) {
                for (bit, out) in out.iter_mut().enumerate() {
                    *out = (number >> bit.min(63) & 1) as u8;
                }
            }
            return;
        }
        store(&numbers, to, out);
    });
    Ok(())
}

/// Stores whole numbers as another type.
fn store(numbers: &[i64], to: ElementType, out: &mut [u8]) {
    macro_rules! of {
        ($type:ty, $make:expr) => {
            for (number, out) in numbers.iter().zip(out.chunks_exact_mut(size_of::<$type>())) {
                let make: fn(i64) -> $type = $make;
                out.copy_from_slice(&make(*number).to_le_bytes());
            }
        };
    }
    match to {
        ElementType::Bool => of!(u8, |number| u8::from(number != 0)),
        ElementType::U8 | ElementType::I8 => of!(u8, |number| number as u8),
        ElementType::U16 | ElementType::I16 => of!(u16, |number| number as u16),
        ElementType::U32 | ElementType::I32 => of!(u32, |number| number as u32),
        ElementType::U64 | ElementType::I64 => of!(i64, |number| number),
        ElementType::F16 => of!(half::f16, |number| half::f16::from_f64(number as f64)),
        ElementType::BF16 => of!(half::bf16, |number| half::bf16::from_f64(number as f64)),
        ElementType::F32 => of!(f32, |number| number as f32),
        ElementType::F64 => of!(f64, |number| number as f64),
    }
}
