//! How similar the spectra of all pixels are to one spectrum: the angle between them, which does
//! not depend on brightness.

use hsipack_pack::preview::Sampling;

use super::cache::CachedCube;

/// Angles in radians between `reference` and the spectra of the pixels of `shown`. Only bands count
/// in which `usable` is set and the reference is finite. The angle is NaN if a spectrum has a NaN
/// in these bands, or only zeros.
pub fn to(held: &CachedCube, shown: &Sampling, reference: &[f64], usable: &[bool]) -> Vec<f32> {
    let bands: Vec<usize> =
        (0..reference.len()).filter(|band| usable[*band] && reference[*band].is_finite()).collect();
    let norm = bands.iter().map(|band| reference[*band].powi(2)).sum::<f64>();
    let angle = |pixel: usize| {
        let spectrum = held.spectrum(pixel);
        let (mut product, mut square) = (0.0, 0.0);
        for band in &bands {
            let value = f64::from(spectrum[*band]);
            product += value * reference[*band];
            square += value * value;
        }
        let cosine = product / (square * norm).sqrt();
        // Rounding can push the cosine slightly beyond 1. NaN stays NaN.
        cosine.clamp(-1.0, 1.0).acos() as f32
    };
    if !held.is_whole {
        return (0..held.pixels()).map(angle).collect();
    }
    let places =
        shown.rows.iter().flat_map(|row| shown.columns.iter().map(|c| held.place(*row, *c)));
    places.map(angle).collect()
}
