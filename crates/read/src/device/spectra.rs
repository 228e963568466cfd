//! Normalising the spectra of images, by the rule of [`hsipack_format::spectrum`]: loops over the host's memory, tensor
//! operations on other devices.
//!
//! Results keep shape, order in memory and element type. Everything is computed in float32 (float64 for float64),
//! whatever the image's type. Nothing waits for a device. Tensor operations differ from the rule in one place: SNV of
//! values that lie further apart than float32 reaches gives NaN instead of 0.

use half::slice::HalfFloatSliceExt;
use hsipack_format::SpectralNorm;
use hsipack_format::spectrum::normalize;
use tch::{Device, Kind, TchError, Tensor};

use crate::torch::{bytes_of, bytes_of_mut, each_piece, empty};

/// The bands' axis.
const BANDS: [i64; 1] = [1];

/// Pixels that a thread takes at once.
const PIXELS: usize = 256;

/// An image (B, C, H, W), normalised.
pub(crate) fn normalized(image: &Tensor, norm: SpectralNorm) -> Result<Tensor, TchError> {
    let inner = image.f_permute([0, 2, 3, 1])?;
    let loops = image.device() == Device::Cpu
        && matches!(image.kind(), Kind::Half | Kind::Float)
        && inner.is_contiguous();
    if !loops {
        return normalized_by_tensor_operations(image, norm);
    }
    let mut result = empty(&inner.size(), inner.kind(), Device::Cpu)?;
    let bands = inner.size().last().map_or(1, |bands| *bands as usize);
    // SAFETY: the memory is new, or of a pool that gives it out when nobody looks at it any more.
    let into = unsafe { bytes_of_mut(&mut result) };
    normalize_in_memory(into, Some(bytes_of(&inner)), inner.kind(), bands, norm);
    result.f_permute([0, 3, 1, 2])
}

/// Spectra of so many bands, one after the other, as float16 (`kind` Half) or float32 in the host's memory, normalised
/// there; from `before`, which is as long, if that is given.
pub(crate) fn normalize_in_memory(
    into: &mut [u8],
    before: Option<&[u8]>,
    kind: Kind,
    bands: usize,
    norm: SpectralNorm,
) {
    let bands = bands.max(1);
    if kind == Kind::Half {
        let before = before.map(bytemuck::cast_slice);
        each_spectra::<half::f16>(bytemuck::cast_slice_mut(into), before, bands, |spectra| {
            let mut wide = vec![0.0; spectra.len()];
            spectra.convert_to_f32_slice(&mut wide);
            wide.chunks_exact_mut(bands).for_each(|spectrum| normalize(spectrum, norm));
            spectra.convert_from_f32_slice(&wide);
        });
    } else {
        let before = before.map(bytemuck::cast_slice);
        each_spectra::<f32>(bytemuck::cast_slice_mut(into), before, bands, |spectra| {
            spectra.chunks_exact_mut(bands).for_each(|spectrum| normalize(spectrum, norm));
        });
    }
}

fn each_spectra<T: Copy + Send + Sync>(
    into: &mut [T],
    before: Option<&[T]>,
    bands: usize,
    work: impl Fn(&mut [T]) + Sync,
) {
    let len = PIXELS * bands;
    each_piece(into, len, |number, piece| {
        // Copied first, it is still in the cache when it is normalised.
        if let Some(before) = before {
            piece.copy_from_slice(&before[number * len..][..piece.len()]);
        }
        work(piece);
    });
}

/// As [`normalized`], with operations that every device has.
pub(crate) fn normalized_by_tensor_operations(
    image: &Tensor,
    norm: SpectralNorm,
) -> Result<Tensor, TchError> {
    let wide =
        image.f_to_kind(if image.kind() == Kind::Double { Kind::Double } else { Kind::Float })?;
    // NaN also where a value is infinite: they take no part, and are NaN at the end.
    let mut known = wide.f_nan_to_num(f64::NAN, f64::NAN, f64::NAN)?;
    let divisor = match norm {
        SpectralNorm::L1 => norm_of(&known, 1)?,
        SpectralNorm::L2 => norm_of(&known, 2)?,
        SpectralNorm::Snv => centre(&mut known)?,
    };
    // What has nothing to divide by becomes 0, divided by infinity.
    let nothing = divisor.f_gt(0)?.f_logical_not()?;
    known.f_div_(&divisor.f_masked_fill(&nothing, f64::INFINITY)?)?.f_to_kind(image.kind())
}

fn norm_of(known: &Tensor, order: i64) -> Result<Tensor, TchError> {
    known.f_nan_to_num(0.0, None, None)?.f_norm_scalaropt_dim(order, BANDS.as_slice(), true)
}

/// Subtracts the means of spectra, and gives their standard deviations.
fn centre(known: &mut Tensor) -> Result<Tensor, TchError> {
    let kind = known.kind();
    let count =
        known.f_isnan()?.f_logical_not()?.f_sum_dim_intlist(BANDS.as_slice(), true, kind)?;
    // One of its values first: a spectrum of equal values then has no spread, however its sum is rounded.
    let greatest =
        known.f_nan_to_num(f64::NEG_INFINITY, None, None)?.f_amax(BANDS.as_slice(), true)?;
    let mut centred = known.f_sub_(&greatest)?;
    let mean = centred.f_nansum(BANDS.as_slice(), true, kind)?.f_div(&count)?;
    let centred = centred.f_sub_(&mean)?;
    let squares = centred.f_square()?.f_nansum(BANDS.as_slice(), true, kind)?;
    squares.f_div(&count.f_sub_scalar(1)?)?.f_sqrt()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const NORMS: [SpectralNorm; 3] = [SpectralNorm::L1, SpectralNorm::L2, SpectralNorm::Snv];

    /// (2, 5, 3, 4), channels_last, with a spectrum of zeros, a constant one, and ones with gaps.
    fn image(kind: Kind, gaps: bool) -> Tensor {
        let mut values: Vec<f32> =
            (0..120).map(|number| ((number * 37) % 101) as f32 - 30.0).collect();
        values[..5].fill(0.0);
        values[5..10].fill(-0.3);
        if gaps {
            let (nan, inf) = (f32::NAN, f32::INFINITY);
            for (place, value) in [(2, nan), (6, nan), (13, nan), (15, inf), (22, -inf), (26, nan)]
            {
                values[place] = value;
            }
            values[30..35].fill(nan);
            values[35..39].fill(nan);
            values[41] = inf;
            values[42] = -inf;
        }
        Tensor::from_slice(&values).view([2, 3, 4, 5]).to_kind(kind).permute([0, 3, 1, 2])
    }

    pub(crate) fn spectra(image: &Tensor) -> Vec<Vec<f64>> {
        let flat = image.to_kind(Kind::Double).permute([0, 2, 3, 1]).contiguous().view([-1]);
        Vec::<f64>::try_from(flat)
            .unwrap()
            .chunks(image.size()[1] as usize)
            .map(<[f64]>::to_vec)
            .collect()
    }

    /// Compares with a function of one spectrum, on an image with or without gaps.
    pub(crate) fn check(
        gaps: bool,
        work: impl Fn(&Tensor) -> Result<Tensor, TchError>,
        want: impl Fn(&[f64]) -> Vec<f64>,
    ) {
        for (kind, tolerance) in [(Kind::Half, 1e-3), (Kind::Float, 1e-6), (Kind::Double, 1e-12)] {
            let image = image(kind, gaps);
            let result = work(&image).unwrap();
            assert_eq!(
                (result.size(), result.stride(), result.kind()),
                (image.size(), image.stride(), kind)
            );
            for (have, spectrum) in spectra(&result).iter().zip(spectra(&image)) {
                for (have, want) in have.iter().zip(want(&spectrum)) {
                    let near = (have - want).abs() <= tolerance * want.abs().max(1.0);
                    assert!(
                        near || have.is_nan() && want.is_nan(),
                        "{have} {want} of {spectrum:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn loops_and_tensor_operations_follow_the_rule() {
        for (norm, gaps) in NORMS.into_iter().flat_map(|norm| [(norm, false), (norm, true)]) {
            let want = |spectrum: &[f64]| {
                let mut spectrum = spectrum.to_vec();
                normalize(&mut spectrum, norm);
                spectrum
            };
            check(gaps, |image| normalized(image, norm), want);
            check(gaps, |image| normalized_by_tensor_operations(image, norm), want);
        }
    }

    #[test]
    fn images_in_another_order_in_memory_are_normalised_too() {
        let image = image(Kind::Float, true);
        let planes = image.contiguous();
        for norm in NORMS {
            let (one, other) =
                (normalized(&image, norm).unwrap(), normalized(&planes, norm).unwrap());
            assert!(one.allclose(&other, 1e-6, 1e-6, true), "{norm:?}");
        }
    }

    #[test]
    fn norms_beyond_the_range_of_float16_do_not_overflow() {
        let image = Tensor::full([1, 200, 1, 1], 60000.0, (Kind::Half, Device::Cpu));
        for work in [normalized, normalized_by_tensor_operations] {
            for (norm, want) in
                [(SpectralNorm::L1, 1.0 / 200.0), (SpectralNorm::L2, 200f64.sqrt().recip())]
            {
                let result = work(&image, norm).unwrap();
                assert!(spectra(&result)[0].iter().all(|value| (value - want).abs() < 1e-4));
            }
        }
    }

    #[test]
    fn constant_spectra_have_no_spread_however_their_sum_is_rounded() {
        for (bands, value) in [(100, 0.1), (224, 1.0 / 3.0), (7, 1234.567), (1, 5.0)] {
            for kind in [Kind::Half, Kind::Float, Kind::Double] {
                let image = Tensor::full([2, 3, 4, bands], value, (kind, Device::Cpu));
                let image = image.permute([0, 3, 1, 2]);
                for work in [normalized, normalized_by_tensor_operations] {
                    let result = work(&image, SpectralNorm::Snv).unwrap();
                    assert!(spectra(&result).iter().flatten().all(|value| *value == 0.0));
                }
            }
        }
    }
}
