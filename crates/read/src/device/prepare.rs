//! Preparing spectra, as pure functions of tensors.
//!
//! Images are (B, C, H, W), `channels_last` in memory, so that a pixel's spectrum lies together; results keep
//! shape, order in memory and element type. Sums over a spectrum are taken in float32 (float64 for float64)
//! whatever the image's type. NaN stays NaN, and spoils its whole spectrum: replace it before.

use tch::{Kind, TchError, Tensor};

/// The bands' axis.
const BANDS: [i64; 1] = [1];

/// Every spectrum divided by the sum of its absolute values; one of zeros stays.
pub(crate) fn l1_normalize(image: &Tensor) -> Result<Tensor, TchError> {
    divided_by_norm(image, 1)
}

/// Every spectrum divided by the root of the sum of its squares; one of zeros stays.
pub(crate) fn l2_normalize(image: &Tensor) -> Result<Tensor, TchError> {
    divided_by_norm(image, 2)
}

fn divided_by_norm(image: &Tensor, order: i64) -> Result<Tensor, TchError> {
    let norm =
        image.f_norm_scalaropt_dim_dtype(order, BANDS.as_slice(), true, accumulator(image))?;
    image.f_div(&or_one(&norm)?)?.f_to_kind(image.kind())
}

/// Standard normal variate: every spectrum less its mean, divided by its standard deviation (unbiased, over
/// C − 1). Constant spectra, and those of one band, become zeros.
pub(crate) fn snv(image: &Tensor) -> Result<Tensor, TchError> {
    if image.size()[1] < 2 {
        // Less its mean, which keeps NaN.
        return image.f_sub(image);
    }
    let wide = image.f_to_kind(accumulator(image))?;
    let (variance, mean) = wide.f_var_mean_dim(BANDS.as_slice(), true, true)?;
    wide.f_sub(&mean)?.f_div_(&or_one(&variance.f_sqrt()?)?)?.f_to_kind(image.kind())
}

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

fn accumulator(image: &Tensor) -> Kind {
    if image.kind() == Kind::Double { Kind::Double } else { Kind::Float }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    /// (2, 5, 3, 4), channels_last, with a spectrum of zeros and a constant one.
    fn image(kind: Kind) -> Tensor {
        let mut values: Vec<f32> =
            (0..120).map(|number| ((number * 37) % 101) as f32 - 30.0).collect();
        values[..5].fill(0.0);
        values[5..10].fill(-0.3);
        Tensor::from_slice(&values).view([2, 3, 4, 5]).to_kind(kind).permute([0, 3, 1, 2])
    }

    fn spectra(image: &Tensor) -> Vec<Vec<f64>> {
        let flat = image.to_kind(Kind::Double).permute([0, 2, 3, 1]).contiguous().view([-1]);
        Vec::<f64>::try_from(flat)
            .unwrap()
            .chunks(image.size()[1] as usize)
            .map(<[f64]>::to_vec)
            .collect()
    }

    /// Compares with a plain loop over spectra.
    fn check(
        work: impl Fn(&Tensor) -> Result<Tensor, TchError>,
        want: impl Fn(&[f64]) -> Vec<f64>,
    ) {
        for (kind, tolerance) in [(Kind::Half, 1e-3), (Kind::Float, 1e-6), (Kind::Double, 1e-12)] {
            let image = image(kind);
            let result = work(&image).unwrap();
            assert_eq!(
                (result.size(), result.stride(), result.kind()),
                (image.size(), image.stride(), kind)
            );
            for (have, spectrum) in spectra(&result).iter().zip(spectra(&image)) {
                for (have, want) in have.iter().zip(want(&spectrum)) {
                    assert!(
                        (have - want).abs() <= tolerance * want.abs().max(1.0),
                        "{have} {want}"
                    );
                }
            }
        }
    }

    fn ratio(value: f64, by: f64) -> f64 {
        if by == 0.0 { 0.0 } else { value / by }
    }

    #[test]
    fn norms_are_one_and_zeros_stay() {
        check(l1_normalize, |spectrum| {
            let norm: f64 = spectrum.iter().map(|value| value.abs()).sum();
            spectrum.iter().map(|value| ratio(*value, norm)).collect()
        });
        check(l2_normalize, |spectrum| {
            let norm = spectrum.iter().map(|value| value * value).sum::<f64>().sqrt();
            spectrum.iter().map(|value| ratio(*value, norm)).collect()
        });
    }

    #[test]
    fn norms_beyond_the_range_of_float16_do_not_overflow() {
        let image = Tensor::full([1, 200, 1, 1], 60000.0, (Kind::Half, Device::Cpu));
        for (result, want) in [
            (l1_normalize(&image).unwrap(), 1.0 / 200.0),
            (l2_normalize(&image).unwrap(), 200f64.sqrt().recip()),
        ] {
            assert!(spectra(&result)[0].iter().all(|value| (value - want).abs() < 1e-4));
        }
    }

    #[test]
    fn snv_is_unbiased_and_constant_spectra_become_zeros() {
        check(snv, |spectrum| {
            let count = spectrum.len() as f64;
            let mean = spectrum.iter().sum::<f64>() / count;
            let squares: f64 = spectrum.iter().map(|value| (value - mean).powi(2)).sum();
            let constant = spectrum.iter().all(|value| *value == spectrum[0]);
            let std = if constant { 0.0 } else { (squares / (count - 1.0)).sqrt() };
            spectrum.iter().map(|value| if constant { 0.0 } else { (value - mean) / std }).collect()
        });
        // Sums of constants are not exact; the differences from their mean must be nevertheless.
        for (bands, value) in [(100, 0.1), (224, 1.0 / 3.0), (7, 1234.567), (1, 5.0)] {
            for kind in [Kind::Half, Kind::Float, Kind::Double] {
                let image = Tensor::full([2, 3, 4, bands], value, (kind, Device::Cpu));
                let result = snv(&image.permute([0, 3, 1, 2])).unwrap();
                assert!(spectra(&result).iter().flatten().all(|value| *value == 0.0));
            }
        }
    }

    #[test]
    fn standardizing_leaves_bands_without_spread_undivided() {
        let mean = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0, 5.0]).view([1, 5, 1, 1]);
        let std = Tensor::from_slice(&[2f32, 0.0, 1.0, 0.5, 10.0]).view([1, 5, 1, 1]);
        check(
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
