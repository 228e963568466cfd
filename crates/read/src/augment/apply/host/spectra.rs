//! Loops over the spectra of pixels.

use tch::{Kind, Tensor};

use super::element::Element;
use super::{each_piece, takes_image};
use crate::torch::{bytes_of, bytes_of_mut};

/// How a spectrum is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Normal {
    /// Absolute values add up to 1.
    L1,
    /// Squares add up to 1.
    L2,
    /// Mean 0, standard deviation 1.
    Snv,
}

/// Pixels that a thread takes at once.
const PIXELS: usize = 256;

/// Factors and summands by band.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Bands<'a> {
    pub shift: &'a [f32],
    pub factor: &'a [f32],
    pub summand: &'a [f32],
}

/// values = (values - shift)·factor + summand, by band, of one sample; from another tensor, or in place.
pub(in super::super) fn bands(into: &mut Tensor, from: Option<&Tensor>, by: Bands<'_>) {
    debug_assert!(takes_image(into));
    let kind = into.kind();
    let (into, from) = (bytes_of_mut(into), from.map(bytes_of));
    if kind == Kind::Half {
        scaled::<half::f16>(bytemuck::cast_slice_mut(into), from.map(bytemuck::cast_slice), by);
    } else {
        scaled::<f32>(bytemuck::cast_slice_mut(into), from.map(bytemuck::cast_slice), by);
    }
}

fn scaled<T: Element>(into: &mut [T], from: Option<&[T]>, by: Bands<'_>) {
    let Bands { shift, factor, summand } = by;
    let piece_len = PIXELS * shift.len();
    each_piece(into, piece_len, |number, piece| {
        // Copied first, it is still in the cache when it is multiplied.
        if let Some(from) = from {
            piece.copy_from_slice(&from[number * piece_len..][..piece.len()]);
        }
        for spectrum in piece.chunks_exact_mut(shift.len()) {
            T::affine(spectrum, shift, factor, summand);
        }
    });
}

/// Normalises every spectrum in place; one that cannot be (all zeros, constant) becomes 0, and so do values that
/// are not finite afterwards.
pub(in super::super) fn normalize(image: &mut Tensor, normal: Normal) {
    each_spectrum(image, |spectrum| spectrum.normalize(normal));
}

/// A pixel's values.
enum Spectrum<'a> {
    Half(&'a mut [half::f16], &'a mut Vec<f32>),
    Float(&'a mut [f32]),
}

impl Spectrum<'_> {
    fn normalize(self, normal: Normal) {
        match self {
            Self::Float(values) => normalized(values, normal),
            Self::Half(values, room) => {
                room.clear();
                room.resize(values.len(), 0.0);
                half::f16::add(room, values, 1.0);
                normalized(room, normal);
                half::f16::store_all(values, room);
            }
        }
    }
}

/// Eight sums side by side, so that the compiler may add eight values at a time.
fn sum(values: &[f32], part: impl Fn(f32) -> f32) -> f32 {
    let mut sums = [0.0f32; 8];
    let whole = values.chunks_exact(8);
    let rest: f32 = whole.remainder().iter().map(|value| part(*value)).sum();
    for values in whole {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += part(*value);
        }
    }
    sums.iter().sum::<f32>() + rest
}

fn normalized(values: &mut [f32], normal: Normal) {
    let count = values.len() as f32;
    let (shift, length) = match normal {
        Normal::L1 => (0.0, sum(values, f32::abs)),
        Normal::L2 => (0.0, sum(values, |value| value * value).sqrt()),
        Normal::Snv => {
            let mean = sum(values, |value| value) / count;
            let squares = sum(values, |value| (value - mean) * (value - mean));
            // Unbiased, as torch's.
            (mean, (squares / (count - 1.0)).sqrt())
        }
    };
    for value in values.iter_mut() {
        let scaled = (*value - shift) / length;
        *value = if scaled.is_finite() { scaled } else { 0.0 };
    }
}

fn each_spectrum(image: &mut Tensor, work: impl Fn(Spectrum<'_>) + Sync) {
    debug_assert!(takes_image(image));
    let values = image.size().last().map_or(1, |values| *values as usize).max(1);
    let kind = image.kind();
    let bytes = bytes_of_mut(image);
    if kind == Kind::Half {
        each_piece(bytemuck::cast_slice_mut(bytes), PIXELS * values, |_, piece| {
            let mut room = Vec::new();
            piece
                .chunks_exact_mut(values)
                .for_each(|spectrum| work(Spectrum::Half(spectrum, &mut room)));
        });
    } else {
        each_piece(bytemuck::cast_slice_mut(bytes), PIXELS * values, |_, piece| {
            piece.chunks_exact_mut(values).for_each(|spectrum| work(Spectrum::Float(spectrum)));
        });
    }
}
