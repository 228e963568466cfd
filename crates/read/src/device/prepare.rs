//! Preparing bands, as pure functions of tensors; `spectra.rs` normalises spectra.
//!
//! Images are (B, C, H, W), `channels_last` in memory, so that a pixel's spectrum lies together; results keep
//! shape, order in memory and element type. NaN stays NaN.

use tch::{TchError, Tensor};

/// Every band less its mean, divided by its standard deviation; both are float32 and broadcast against the image,
/// e.g. (1, C, 1, 1). Bands of standard deviation 0 are not divided.
pub(crate) fn standardize(image: &Tensor, mean: &Tensor, std: &Tensor) -> Result<Tensor, TchError> {
    image.f_sub(mean)?.f_div_(&or_one(std)?)?.f_to_kind(image.kind())
}

/// NaN replaced by `value`; infinities stay.
pub(crate) fn replace_nan(image: &Tensor, value: f64) -> Result<Tensor, TchError> {
    image.f_nan_to_num(value, f64::INFINITY, f64::NEG_INFINITY)
}

/// Ones instead of zeros.
fn or_one(divisor: &Tensor) -> Result<Tensor, TchError> {
    divisor.f_masked_fill(&divisor.f_eq(0)?, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    use super::super::spectra::tests::{check, spectra};

    #[test]
    fn standardizing_leaves_bands_without_spread_undivided() {
        let mean = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0]).view([1, 5, 1, 1]);
        let std = Tensor::from_slice(&[2f32, 0.0, 1.0, 0.5, 10.0]).view([1, 5, 1, 1]);
        check(
            false,
            |image| standardize(image, &mean, &std),
            |spectrum| {
                let std = [2.0, 1.0, 1.0, 0.5, 10.0];
                (0..5).map(|band| (spectrum[band] - (band + 1) as f64) / std[band]).collect()
            },
        );
    }

    #[test]
    fn nan_is_replaced_and_infinity_is_not() {
        let image = Tensor::from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0]);
        for kind in [Kind::Half, Kind::Float] {
            let result = replace_nan(&image.to_kind(kind).view([1, 4, 1, 1]), -1.0).unwrap();
            assert_eq!(spectra(&result)[0], [-1.0, f64::INFINITY, f64::NEG_INFINITY, 2.0]);
        }
    }
}
