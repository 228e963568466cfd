//! Resampling of spectra from the bands of one sensor to other bands: the one rule that `convert`,
//! loaders and augmentations follow.
//!
//! A target band is a weighted mean of source bands. The weights add up to 1, so a constant
//! spectrum stays the same.
//!
//! - Every source band stands for a *cell* of the spectrum: half the distance to each neighbour,
//!   but at most its FWHM; if that is unknown, at most the typical distance of the bands around it.
//!   So there are no cells in wide gaps. Bands that are not valid have no cell, and take no part.
//! - The weight of source band i for target band j is exp(-4 ln 2 ((λᵢ - λⱼ)/W)²) times the width
//!   of cell i. W is the FWHM of the target. If the FWHM of source band i is known, W is √(FWHMⱼ² -
//!   FWHMᵢ²), because the source has already smoothed the spectrum with its own Gaussian. A source
//!   band that is not narrower than the target has no weight.
//! - If W is smaller than the cell of the source band nearest to λⱼ, the source cannot resolve the
//!   response. If the FWHM of the target is unknown, there is none. In both cases, the band is
//!   interpolated linearly between its two neighbours. So resampling to the bands of the source
//!   changes nothing, if their FWHM is known.
//! - Weights below 1e-6 of the largest weight of a band are dropped.
//! - *Coverage* is the fraction of a target's response (a Gaussian of its FWHM, or its centre) that
//!   is inside cells. A target band with a smaller coverage than [`MIN_COVERAGE`] is not valid: its
//!   values are NaN.
//! - A value is missing (NaN) if a source value with a weight is not finite.

use std::f64::consts::LN_2;

use crate::spectrum::Real;
use crate::{Error, Result};

/// Coverage from which a band is valid, unless another one is chosen.
pub const MIN_COVERAGE: f64 = 0.5;

/// Weights below this fraction of the largest one are dropped.
const MIN_WEIGHT: f64 = 1e-6;

/// Bands of a sensor, in any order.
#[derive(Clone, Copy, Debug)]
pub struct SensorBands<'a> {
    /// Centres in nm.
    pub wavelengths: &'a [f64],
    /// Full widths at half maximum in nm. A width that is not above 0 is unknown.
    pub fwhm: Option<&'a [f64]>,
    /// Which bands are valid; all if `None`.
    pub valid: Option<&'a [bool]>,
}

impl SensorBands<'_> {
    fn width(&self, band: usize) -> Option<f64> {
        self.fwhm.map(|fwhm| fwhm[band]).filter(|width| *width > 0.0 && width.is_finite())
    }

    /// Checks that there are bands, and that they can exist.
    ///
    /// # Errors
    /// If there are none, a wavelength is not above 0, or lists have different lengths; `which`
    /// names the bands.
    pub fn check(&self, which: &str) -> Result<()> {
        let bands = self.wavelengths.len();
        let lengths = [self.fwhm.map(<[f64]>::len), self.valid.map(<[bool]>::len)];
        if let Some(other) = lengths.into_iter().flatten().find(|length| *length != bands) {
            return Err(Error::conflict(format!(
                "the {which} bands have {bands} wavelengths, but {other} widths or marks"
            ))
            .with_remedy("give lists of the same length"));
        }
        let strange = |nm: &&f64| !(**nm > 0.0 && nm.is_finite());
        match self.wavelengths.iter().find(strange) {
            Some(nm) => Err(Error::conflict(format!("a {which} band has the wavelength {nm}"))
                .with_remedy("give wavelengths above 0 in nm")),
            None if bands == 0 => Err(Error::conflict(format!("there are no {which} bands"))
                .with_remedy("give at least one wavelength")),
            None => Ok(()),
        }
    }
}

/// A sparse matrix that resamples spectra, by the rules of this module.
///
/// ```
/// use hsipack_format::spectral_response::{MIN_COVERAGE, SensorBands, SpectralResponse};
///
/// let nm: Vec<f64> = (0..61).map(|band| 400.0 + 10.0 * f64::from(band)).collect();
/// let source = SensorBands { wavelengths: &nm, fwhm: None, valid: None };
/// let target = SensorBands { wavelengths: &[490.0, 665.0, 2190.0], fwhm: Some(&[65.0, 30.0, 180.0]), valid: None };
/// let response = SpectralResponse::new(source, target, MIN_COVERAGE)?;
/// assert_eq!(response.valid(), [true, true, false]);
///
/// let mut resampled = [0.0f32; 3];
/// response.apply(&[0.25f32; 61], &mut resampled);
/// assert!((resampled[0] - 0.25).abs() < 1e-6 && resampled[2].is_nan());
/// # Ok::<(), hsipack_format::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SpectralResponse {
    source_bands: usize,
    /// Where the weights of each target band begin, and their number at the end.
    starts: Vec<usize>,
    /// Source band and weight, in the order of source bands.
    weights: Vec<(usize, f64)>,
    coverage: Vec<f64>,
    valid: Vec<bool>,
}

impl SpectralResponse {
    /// The matrix from the bands `source` to the bands `target`. Target bands that are marked as
    /// not valid, or with a coverage below `min_coverage`, are not valid.
    ///
    /// # Errors
    /// If a wavelength is not above 0, or lists have different lengths.
    pub fn new(
        source: SensorBands<'_>,
        target: SensorBands<'_>,
        min_coverage: f64,
    ) -> Result<Self> {
        source.check("source")?;
        target.check("target")?;
        let cells = cells(&source);
        let bands = target.wavelengths.len();
        let mut response = Self {
            source_bands: source.wavelengths.len(),
            starts: vec![0],
            weights: Vec::new(),
            coverage: Vec::with_capacity(bands),
            valid: Vec::with_capacity(bands),
        };
        for band in 0..bands {
            let (nm, fwhm) = (target.wavelengths[band], target.width(band));
            let cells = around(&cells, nm, fwhm);
            let coverage = coverage(cells, nm, fwhm);
            let valid = coverage > 0.0
                && coverage >= min_coverage
                && target.valid.is_none_or(|valid| valid[band]);
            if valid {
                response.weights.extend(weights(cells, nm, fwhm));
            }
            response.starts.push(response.weights.len());
            response.coverage.push(coverage);
            response.valid.push(valid);
        }
        Ok(response)
    }

    /// Number of source bands.
    pub fn source_bands(&self) -> usize {
        self.source_bands
    }

    /// Number of target bands.
    pub fn bands(&self) -> usize {
        self.valid.len()
    }

    /// The source bands that a target band is made of, with their weights; none if it is not valid.
    pub fn weights(&self, band: usize) -> &[(usize, f64)] {
        &self.weights[self.starts[band]..self.starts[band + 1]]
    }

    /// The fraction of the response of every target band that is inside cells of source bands.
    pub fn coverage(&self) -> &[f64] {
        &self.coverage
    }

    /// Which target bands are valid. The values of the others are NaN.
    pub fn valid(&self) -> &[bool] {
        &self.valid
    }

    /// The source bands that have a weight in any target band.
    pub fn used_bands(&self) -> Vec<usize> {
        let mut is_used = vec![false; self.source_bands];
        self.weights.iter().for_each(|(source, _)| is_used[*source] = true);
        (0..self.source_bands).filter(|band| is_used[*band]).collect()
    }

    /// Resamples a spectrum of [`source_bands`](Self::source_bands) values to one of
    /// [`bands`](Self::bands) values.
    ///
    /// # Panics
    /// If one has another length.
    pub fn apply<T: Copy + Into<f64>, U: Real>(&self, spectrum: &[T], resampled: &mut [U]) {
        assert!(spectrum.len() == self.source_bands && resampled.len() == self.bands());
        for (band, value) in resampled.iter_mut().enumerate() {
            let weights = self.weights(band);
            let sum: f64 =
                weights.iter().map(|(source, weight)| spectrum[*source].into() * weight).sum();
            let is_known = self.valid[band] && sum.is_finite();
            *value = if is_known { U::from_f64(sum) } else { U::NAN };
        }
    }
}

/// The part of the spectrum that a source band stands for.
struct Cell {
    band: usize,
    nm: f64,
    fwhm: Option<f64>,
    /// How far it reaches below and above the centre.
    reach: [f64; 2],
}

impl Cell {
    fn width(&self) -> f64 {
        self.reach[0] + self.reach[1]
    }
}

/// The cells of the valid bands, in the order of wavelengths.
fn cells(source: &SensorBands<'_>) -> Vec<Cell> {
    let is_valid = |band: &usize| source.valid.is_none_or(|valid| valid[*band]);
    let mut bands: Vec<usize> = (0..source.wavelengths.len()).filter(is_valid).collect();
    bands.sort_by(|a, b| source.wavelengths[*a].total_cmp(&source.wavelengths[*b]));
    let nm: Vec<f64> = bands.iter().map(|band| source.wavelengths[*band]).collect();
    let distances: Vec<f64> = nm.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let cell = |(rank, band): (usize, usize)| {
        let fwhm = source.width(band);
        let below = rank.checked_sub(1).map(|below| distances[below]);
        let above = distances.get(rank).copied();
        // The outermost bands reach as far on both sides; a band alone, as far as its FWHM.
        let alone = fwhm.unwrap_or(0.0);
        let (below, above) = (below.or(above).unwrap_or(alone), above.or(below).unwrap_or(alone));
        let limit = fwhm.unwrap_or_else(|| typical_distance(&distances, rank));
        let reach = [below, above].map(|distance| (distance / 2.0).min(limit));
        Cell { band, nm: nm[rank], fwhm, reach }
    };
    bands.into_iter().enumerate().map(cell).collect()
}

/// The (lower) median of the distances between the bands around a band, two on each side. The bands
/// of two detectors may overlap, and gaps may be on both sides, so the distance to the nearest band
/// is no measure.
fn typical_distance(distances: &[f64], rank: usize) -> f64 {
    let around = rank.saturating_sub(2)..(rank + 2).min(distances.len());
    let mut around = distances[around].to_vec();
    around.retain(|distance| *distance > 0.0);
    around.sort_by(f64::total_cmp);
    around.get(around.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// The cells that a response reaches, and one more on each side.
fn around(cells: &[Cell], nm: f64, fwhm: Option<f64>) -> &[Cell] {
    // Where a Gaussian is below 1e-16 of its maximum.
    let reach = 4.0 * fwhm.unwrap_or(0.0);
    let first = cells.partition_point(|cell| cell.nm < nm - reach);
    let end = cells.partition_point(|cell| cell.nm <= nm + reach);
    &cells[first.saturating_sub(1)..(end + 1).min(cells.len())]
}

/// The fraction of a response that is inside cells.
fn coverage(cells: &[Cell], nm: f64, fwhm: Option<f64>) -> f64 {
    let edges = |cell: &Cell| [cell.nm - cell.reach[0] - nm, cell.nm + cell.reach[1] - nm];
    match fwhm {
        None => {
            let inside = |cell: &Cell| {
                let [low, high] = edges(cell);
                low <= 0.0 && 0.0 <= high
            };
            f64::from(u8::from(cells.iter().any(inside)))
        }
        Some(fwhm) => {
            let scale = 2.0 * LN_2.sqrt() / fwhm;
            let part = |cell: &Cell| {
                let [low, high] = edges(cell).map(|edge| erf(edge * scale));
                (high - low) / 2.0
            };
            cells.iter().map(part).sum::<f64>().clamp(0.0, 1.0)
        }
    }
}

/// The weights of a target band, in the order of source bands.
fn weights(cells: &[Cell], nm: f64, fwhm: Option<f64>) -> Vec<(usize, f64)> {
    let resolved = fwhm.filter(|fwhm| is_resolved(cells, nm, *fwhm));
    let weights = resolved.map(|fwhm| gaussian(cells, nm, fwhm));
    let weights = weights.filter(|weights| !weights.is_empty());
    let mut weights = weights.unwrap_or_else(|| interpolated(cells, nm));
    let largest = weights.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
    weights.retain(|(_, weight)| *weight > 0.0 && *weight >= MIN_WEIGHT * largest);
    let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
    weights.iter_mut().for_each(|(_, weight)| *weight /= sum);
    weights.sort_unstable_by_key(|(band, _)| *band);
    weights
}

/// Whether the source bands around `nm` resolve a response.
fn is_resolved(cells: &[Cell], nm: f64, fwhm: f64) -> bool {
    let distance = |cell: &&Cell| (cell.nm - nm).abs();
    let nearest = cells.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    nearest.is_some_and(|cell| narrowed(fwhm, cell.fwhm) >= cell.width())
}

/// The FWHM of the response that makes a band of `fwhm` out of bands of `source`.
fn narrowed(fwhm: f64, source: Option<f64>) -> f64 {
    let source = source.unwrap_or(0.0);
    (fwhm * fwhm - source * source).max(0.0).sqrt()
}

fn gaussian(cells: &[Cell], nm: f64, fwhm: f64) -> Vec<(usize, f64)> {
    let narrower = cells
        .iter()
        .map(|cell| (cell, narrowed(fwhm, cell.fwhm)))
        .filter(|(cell, width)| cell.width() > 0.0 && *width > 0.0);
    let exponents = narrower
        .map(|(cell, width)| (cell, 4.0 * LN_2 * ((cell.nm - nm) / width).powi(2)))
        .collect::<Vec<_>>();
    // Only ratios of weights matter. So the largest weight cannot become 0, however far the nearest cell is.
    let least = exponents.iter().map(|(_, exponent)| *exponent).fold(f64::INFINITY, f64::min);
    let weight =
        |(cell, exponent): (&Cell, f64)| (cell.band, (least - exponent).exp() * cell.width());
    exponents.into_iter().map(weight).collect()
}

fn interpolated(cells: &[Cell], nm: f64) -> Vec<(usize, f64)> {
    let after = cells.partition_point(|cell| cell.nm < nm);
    match (after.checked_sub(1).map(|below| &cells[below]), cells.get(after)) {
        (Some(below), Some(above)) => {
            let part = (nm - below.nm) / (above.nm - below.nm);
            vec![(below.band, 1.0 - part), (above.band, part)]
        }
        (Some(only), None) | (None, Some(only)) => vec![(only.band, 1.0)],
        (None, None) => Vec::new(),
    }
}

/// The error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26).
fn erf(x: f64) -> f64 {
    const TERMS: [f64; 5] = [1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592];
    let t = 1.0 / (1.0 + 0.3275911 * x.abs());
    let sum = TERMS.iter().fold(0.0, |sum, term| (sum + term) * t);
    (1.0 - sum * (-x * x).exp()).copysign(x)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bands<'a>(wavelengths: &'a [f64], fwhm: Option<&'a [f64]>) -> SensorBands<'a> {
        SensorBands { wavelengths, fwhm, valid: None }
    }

    fn every(first: f64, step: f64, count: usize) -> Vec<f64> {
        (0..count).map(|band| first + step * band as f64).collect()
    }

    fn new(source: SensorBands<'_>, target: SensorBands<'_>) -> SpectralResponse {
        SpectralResponse::new(source, target, MIN_COVERAGE).unwrap()
    }

    proptest! {
        #[test]
        fn constants_stay_whatever_the_bands(
            source in prop::collection::vec(350.0..2500.0f64, 1..40),
            good in prop::collection::vec(any::<bool>(), 40),
            target in prop::collection::vec(350.0..2500.0f64, 1..20),
            widths in prop::collection::vec(0.0..100.0f64, 60),
            has_fwhm in any::<[bool; 2]>(),
        ) {
            let fwhm = |has: bool, from: usize, count: usize| has.then_some(&widths[from..from + count]);
            let valid = Some(&good[..source.len()]);
            let from = SensorBands { valid, ..bands(&source, fwhm(has_fwhm[0], 0, source.len())) };
            let response = new(from, bands(&target, fwhm(has_fwhm[1], 40, target.len())));
            for band in 0..target.len() {
                let weights = response.weights(band);
                prop_assert_eq!(!weights.is_empty(), response.valid()[band]);
                prop_assert!((0.0..=1.0).contains(&response.coverage()[band]));
                prop_assert!(weights.iter().all(|(band, weight)| good[*band] && *weight > 0.0));
                prop_assert!(weights.is_sorted_by_key(|(band, _)| *band));
                let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
                prop_assert!(weights.is_empty() || (sum - 1.0).abs() < 1e-12, "{}", sum);
            }
        }
    }

    #[test]
    fn broad_bands_have_gaussian_weights() {
        let (nm, fwhm) = (every(400.0, 5.0, 101), vec![6.0; 101]);
        for source in [None, Some(&fwhm[..])] {
            let response = new(bands(&nm, source), bands(&[601.0], Some(&[40.0])));
            let width = source.map_or(40.0, |_| (1600.0f64 - 36.0).sqrt());
            let at = |nm: f64| (-4.0 * LN_2 * ((nm - 601.0) / width).powi(2)).exp();
            let sum: f64 = nm.iter().map(|nm| at(*nm)).sum();
            for (band, weight) in response.weights(0) {
                assert!((weight - at(nm[*band]) / sum).abs() < 1e-6, "band {band}: {weight}");
            }
            assert!(response.weights(0).len() > 20 && response.coverage()[0] > 0.999);
        }
    }

    #[test]
    fn bands_count_by_the_part_of_the_spectrum_they_stand_for() {
        let nm = [400.0, 410.0, 420.0, 430.0, 435.0, 440.0, 445.0, 450.0];
        let response = new(bands(&nm, None), bands(&[425.0], Some(&[1000.0])));
        assert!(!response.valid()[0], "{:?}", response.coverage());
        let response =
            SpectralResponse::new(bands(&nm, None), bands(&[425.0], Some(&[1e5])), 0.0).unwrap();
        let of = |band: usize| response.weights(0)[band].1;
        assert!((of(1) / of(5) - 2.0).abs() < 1e-3 && (of(3) / of(5) - 1.5).abs() < 1e-3);
    }

    #[test]
    fn unresolved_bands_are_interpolated() {
        let (nm, fwhm) = (every(1000.0, -10.0, 50), vec![11.0; 50]);
        let source = bands(&nm, Some(&fwhm));
        let same = new(source, source);
        assert!((0..50).all(|band| same.weights(band) == [(band, 1.0)]));
        for width in [None, Some(&[11.0][..])] {
            let between = new(source, bands(&[987.5], width));
            assert_eq!(between.weights(0), [(1, 0.75), (2, 0.25)]);
        }
    }

    #[test]
    fn gaps_and_ends_are_not_covered() {
        let nm = [400.0, 410.0, 420.0, 430.0, 600.0, 610.0, 620.0];
        let target = [395.0, 394.0, 425.0, 440.0, 441.0, 500.0, 595.0, 625.0];
        let valid = [true, false, true, true, false, false, true, true];
        assert_eq!(new(bands(&nm, None), bands(&target, None)).valid(), valid);
        // A narrow source reaches as far as its FWHM.
        let narrow = new(bands(&nm, Some(&[2.0; 7])), bands(&[412.0, 412.5], None));
        assert_eq!(narrow.valid(), [true, false]);
        // A response over a bad band, and one over several.
        let nm = every(400.0, 10.0, 20);
        let mut good = [true; 20];
        good[5] = false;
        good[10..15].fill(false);
        let source = SensorBands { valid: Some(&good), ..bands(&nm, None) };
        let response = new(source, bands(&[450.0, 520.0], Some(&[20.0, 20.0])));
        assert_eq!(response.valid(), [true, false]);
        assert!(response.weights(0).iter().all(|(band, _)| *band != 5));
    }

    #[test]
    fn missing_values_stay_with_the_bands_that_need_them() {
        let nm = every(400.0, 10.0, 30);
        let response = new(bands(&nm, None), bands(&[430.0, 640.0, 900.0], None));
        let mut spectrum = vec![0.5f32; 30];
        (spectrum[3], spectrum[10]) = (f32::INFINITY, f32::NAN);
        let mut resampled = [0.0f32; 3];
        response.apply(&spectrum, &mut resampled);
        assert!(resampled[0].is_nan() && resampled[1] == 0.5 && resampled[2].is_nan());
    }

    #[test]
    fn impossible_bands_are_refused() {
        let good = bands(&[500.0], None);
        for (source, target, what) in [
            (bands(&[], None), good, "no source bands"),
            (good, bands(&[f64::NAN], None), "wavelength NaN"),
            (bands(&[-1.0], None), good, "wavelength -1"),
            (good, bands(&[500.0], Some(&[1.0, 2.0])), "but 2 widths"),
        ] {
            let error = SpectralResponse::new(source, target, MIN_COVERAGE).unwrap_err();
            assert!(error.what().contains(what), "{error}");
        }
    }

    #[test]
    fn error_function_is_accurate() {
        for (x, want) in
            [(0.0, 0.0), (0.5, 0.5204998778), (-1.0, -0.8427007929), (3.0, 0.9999779095)]
        {
            assert!((erf(x) - want).abs() < 2e-7, "{x}");
        }
    }
}
