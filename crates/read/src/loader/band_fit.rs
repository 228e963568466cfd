//! Brings images of several datasets to the same bands and the same type, for batches that have
//! images of all of them.

use std::collections::BTreeMap;

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::DType;
use hsipack_format::spectral_response::SpectralResponse;
use serde::{Deserialize, Serialize};

/// The bands of batches that have images of several datasets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommonBands {
    /// Centres in nm of the bands to which images are resampled ([`SpectralResponse`]). If `None`,
    /// images keep their bands, and missing bands follow them, up to the number of bands of the
    /// dataset that has most.
    pub wavelengths: Option<Vec<f64>>,
    /// Full widths at half maximum in nm of these bands.
    pub fwhm: Option<Vec<f64>>,
}

/// How images of a dataset get the bands and the type of the batches.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BandFit {
    /// Bands of the images in batches.
    pub bands: usize,
    /// Type of the images in batches.
    pub dtype: DType,
    /// Of each stack, if images are resampled. Otherwise missing bands follow those of the image.
    pub(super) responses: BTreeMap<usize, Response>,
}

/// A resampling of spectra that may have been scaled before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Response {
    /// Where the weights of each band begin, and their number at the end.
    starts: Vec<usize>,
    /// Source band and weight.
    weights: Vec<(u32, f32)>,
    /// Added to the values of each band.
    offsets: Vec<f32>,
    valid: Vec<bool>,
}

impl Response {
    pub(super) fn new(response: &SpectralResponse) -> Self {
        let (mut starts, mut weights) = (vec![0], Vec::new());
        for band in 0..response.bands() {
            let of_band = response.weights(band).iter();
            weights.extend(of_band.map(|(source, weight)| (*source as u32, *weight as f32)));
            starts.push(weights.len());
        }
        let offsets = vec![0.0; response.bands()];
        Self { starts, weights, offsets, valid: response.valid().to_vec() }
    }

    /// The same for spectra whose values are multiplied by a factor and added to an offset before,
    /// both for each band.
    fn after(&self, scaling: &[(f32, f32)]) -> Self {
        let mut scaled = self.clone();
        for (band, offset) in scaled.offsets.iter_mut().enumerate() {
            let weights = &mut scaled.weights[self.starts[band]..self.starts[band + 1]];
            for (source, weight) in weights {
                let (factor, add) = scaling[*source as usize];
                *offset += *weight * add;
                *weight *= factor;
            }
        }
        scaled
    }

    fn apply(&self, spectrum: &[f32], fitted: &mut [f32]) {
        for (band, value) in fitted.iter_mut().enumerate() {
            let weights = &self.weights[self.starts[band]..self.starts[band + 1]];
            let sum: f32 =
                weights.iter().map(|(source, weight)| spectrum[*source as usize] * weight).sum();
            let is_known = self.valid[band] && sum.is_finite();
            *value = if is_known { sum + self.offsets[band] } else { f32::NAN };
        }
    }
}

impl BandFit {
    /// Whether each band of the images of a stack is valid; `None` if images are not resampled.
    pub(crate) fn valid(&self, stack: usize) -> Option<&[bool]> {
        self.responses.get(&stack).map(|response| &*response.valid)
    }

    /// Whether images are resampled.
    pub(crate) fn resamples(&self) -> bool {
        !self.responses.is_empty()
    }

    /// The same for images of a stack whose values are multiplied and added to before, by two
    /// numbers for each band.
    pub(crate) fn scaled(&mut self, stack: usize, scaling: &[(f32, f32)]) {
        if let Some(response) = self.responses.get_mut(&stack) {
            *response = response.after(scaling);
        }
    }

    /// Writes the pixels of an image of a stack, whose values are `from`, as batches have them. The
    /// image has this type and number of bands. `spectra` is working memory.
    pub(crate) fn apply(
        &self,
        stack: usize,
        from: &[u8],
        (dtype, bands): (DType, usize),
        to: &mut [u8],
        [spectrum, fitted]: &mut [Vec<f32>; 2],
    ) {
        let to_pixels = to.chunks_exact_mut(self.bands * self.dtype.size());
        let pixels = from.chunks_exact(bands * dtype.size()).zip(to_pixels);
        let response = self.responses.get(&stack);
        if response.is_none() && dtype == self.dtype {
            let mut nan = [0; 8];
            let nan = &mut nan[..dtype.size()];
            narrow(&[f32::NAN], dtype, nan);
            for (from, to) in pixels {
                let (values, missing) = to.split_at_mut(from.len());
                values.copy_from_slice(from);
                missing.chunks_exact_mut(nan.len()).for_each(|value| value.copy_from_slice(nan));
            }
            return;
        }
        spectrum.resize(bands, 0.0);
        fitted.clear();
        fitted.resize(self.bands, f32::NAN);
        for (from, to) in pixels {
            widen(from, dtype, spectrum);
            match response {
                Some(response) => response.apply(spectrum, fitted),
                None => fitted[..bands].copy_from_slice(spectrum),
            }
            narrow(fitted, self.dtype, to);
        }
    }
}

/// Halves are converted in runs of this length, for which there are vector instructions.
const LANES: usize = 32;

/// Little-endian floats as single precision.
fn widen(bytes: &[u8], dtype: DType, values: &mut [f32]) {
    match dtype {
        DType::F16 => {
            for (values, bytes) in values.chunks_mut(LANES).zip(bytes.chunks(2 * LANES)) {
                let mut halves = [f16::ZERO; LANES];
                let (numbers, _) = bytes.as_chunks::<2>();
                for (half, bytes) in halves.iter_mut().zip(numbers) {
                    *half = f16::from_le_bytes(*bytes);
                }
                halves[..values.len()].convert_to_f32_slice(values);
            }
        }
        DType::F32 => {
            let (numbers, _) = bytes.as_chunks::<4>();
            for (value, bytes) in values.iter_mut().zip(numbers) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        _ => {
            debug_assert_eq!(dtype, DType::F64, "other types are refused");
            let (numbers, _) = bytes.as_chunks::<8>();
            for (value, bytes) in values.iter_mut().zip(numbers) {
                *value = f64::from_le_bytes(*bytes) as f32;
            }
        }
    }
}

/// Single precision as little-endian floats.
fn narrow(values: &[f32], dtype: DType, bytes: &mut [u8]) {
    match dtype {
        DType::F16 => {
            for (values, bytes) in values.chunks(LANES).zip(bytes.chunks_mut(2 * LANES)) {
                let mut halves = [f16::ZERO; LANES];
                halves[..values.len()].convert_from_f32_slice(values);
                let (numbers, _) = bytes.as_chunks_mut::<2>();
                for (bytes, half) in numbers.iter_mut().zip(halves) {
                    *bytes = half.to_le_bytes();
                }
            }
        }
        DType::F32 => {
            let (numbers, _) = bytes.as_chunks_mut::<4>();
            for (bytes, value) in numbers.iter_mut().zip(values) {
                *bytes = value.to_le_bytes();
            }
        }
        _ => {
            debug_assert_eq!(dtype, DType::F64, "other types are refused");
            let (numbers, _) = bytes.as_chunks_mut::<8>();
            for (bytes, value) in numbers.iter_mut().zip(values) {
                *bytes = f64::from(*value).to_le_bytes();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::spectral_response::{MIN_COVERAGE, SensorBands};

    use super::*;

    fn bytes(values: &[f32], dtype: DType) -> Vec<u8> {
        let mut bytes = vec![0; values.len() * dtype.size()];
        narrow(values, dtype, &mut bytes);
        bytes
    }

    fn apply(fit: &BandFit, from: &[f32], dtype: DType, bands: usize) -> Vec<f32> {
        let pixels = from.len() / bands;
        let mut fitted = vec![1; pixels * fit.bands * fit.dtype.size()];
        fit.apply(0, &bytes(from, dtype), (dtype, bands), &mut fitted, &mut Default::default());
        let mut values = vec![0.0; pixels * fit.bands];
        widen(&fitted, fit.dtype, &mut values);
        values
    }

    fn shown(values: &[f32]) -> Vec<Option<f32>> {
        values.iter().map(|value| (!value.is_nan()).then_some(*value)).collect()
    }

    #[test]
    fn missing_bands_follow_the_others_in_the_type_of_the_batch() {
        let floats = [DType::F16, DType::F32, DType::F64];
        for (from, dtype) in floats.into_iter().flat_map(|from| floats.map(|to| (from, to))) {
            let fit = BandFit { bands: 40, dtype, responses: BTreeMap::new() };
            let values: Vec<f32> = (0..70).map(|value| value as f32 / 4.0).collect();
            let fitted = apply(&fit, &values, from, 35);
            for (pixel, fitted) in fitted.chunks(40).enumerate() {
                assert_eq!(fitted[..35], values[35 * pixel..][..35]);
                assert!(fitted[35..].iter().all(|value| value.is_nan()), "{from} {dtype}");
            }
        }
    }

    #[test]
    fn spectra_are_scaled_before_they_are_resampled() {
        let nm = [500.0, 510.0, 520.0];
        let source = SensorBands { wavelengths: &nm, fwhm: None, valid: None };
        let target = SensorBands { wavelengths: &[505.0, 520.0, 900.0], fwhm: None, valid: None };
        let response = SpectralResponse::new(source, target, MIN_COVERAGE).unwrap();
        let responses = BTreeMap::from([(0, Response::new(&response))]);
        let mut fit = BandFit { bands: 3, dtype: DType::F32, responses };
        assert_eq!(fit.valid(0), Some(&[true, true, false][..]));
        let spectra = [2.0, 4.0, 8.0, f32::NAN, 1.0, 3.0];
        let fitted = apply(&fit, &spectra, DType::F16, 3);
        assert_eq!(shown(&fitted), [Some(3.0), Some(8.0), None, None, Some(3.0), None]);
        fit.scaled(0, &[(2.0, 1.0), (1.0, 0.0), (10.0, -5.0)]);
        let fitted = apply(&fit, &spectra, DType::F32, 3);
        assert_eq!(shown(&fitted), [Some(4.5), Some(75.0), None, None, Some(25.0), None]);
    }
}
