//! Loops over the spectra of pixels.

use hsipack_format::SpectralNorm;
use tch::{Kind, Tensor};

use super::element::Element;
use super::{Place, each_piece};
use crate::device::spectra::normalize_in_memory;
use crate::torch::bytes_of;

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
pub(in super::super) fn bands(mut into: Place<'_>, from: Option<&Tensor>, by: Bands<'_>) {
    let kind = into.kind();
    let (into, from) = (into.bytes(), from.map(bytes_of));
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

/// Normalises every spectrum in place.
pub(in super::super) fn normalize(mut place: Place<'_>, norm: SpectralNorm) {
    let (kind, bands) = (place.kind(), place.size().last().map_or(1, |bands| *bands as usize));
    normalize_in_memory(place.bytes(), None, kind, bands, norm);
}
