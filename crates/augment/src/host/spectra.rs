//! Loops over the spectra of pixels. Each processes a piece of one sample, made of whole pixels, in place.

use hsipack_format::SpectralNorm;
use hsipack_format::spectrum::{self, Real};

use super::element::{Element, NOTHING, Wide};
use crate::pass::{ByBand, Linear};

/// Number of pixels that a thread processes at a time.
pub(super) const PIXELS: usize = 256;

/// Numbers in the type used for computing.
pub(super) fn wide<W: Wide>(numbers: &[f64]) -> Vec<W> {
    numbers.iter().map(|number| W::of(*number)).collect()
}

/// Factors and summands of the bands, in the type used for computing.
pub(super) struct Bands<W> {
    shift: Vec<W>,
    factor: Vec<W>,
    summand: Vec<W>,
}

impl<W: Wide> Bands<W> {
    pub(super) fn new(by: &ByBand) -> Self {
        Self { shift: wide(&by.shift), factor: wide(&by.factor), summand: wide(&by.summand) }
    }

    pub(super) fn apply<T: Element<Wide = W>>(&self, piece: &mut [T]) {
        for spectrum in piece.chunks_exact_mut(self.shift.len()) {
            T::affine(spectrum, &self.shift, &self.factor, &self.summand);
        }
    }
}

/// Normalises every spectrum.
pub(super) fn normalize<T: Element>(piece: &mut [T], bands: usize, norm: SpectralNorm) {
    let mut values = vec![T::Wide::ZERO; piece.len()];
    T::load_all(piece, &mut values);
    values.chunks_exact_mut(bands).for_each(|spectrum| spectrum::normalize(spectrum, norm));
    T::store_all(piece, &values);
}

/// A linear map of spectra, in the type used for computing.
pub(super) struct Map<W> {
    bands: usize,
    numbers: Vec<W>,
    /// What every input band contributes to.
    reach: Vec<Reach>,
    /// Added after the map; one number per band.
    offset: Vec<W>,
}

/// The output bands to which an input band contributes.
#[derive(Clone, Copy)]
struct Reach {
    first: usize,
    /// After the last.
    end: usize,
    /// Whether it contributes to none between them.
    gaps: bool,
}

impl<W: Wide> Map<W> {
    pub(super) fn new(linear: &Linear, bands: usize) -> Self {
        let numbers: Vec<W> = wide(&linear.map);
        let reach = numbers.chunks_exact(bands).map(|row| {
            let first = row.iter().position(|number| *number != W::ZERO).unwrap_or(0);
            let last = row.iter().rposition(|number| *number != W::ZERO);
            let end = last.map_or(0, |last| last + 1);
            Reach { first, end, gaps: row[first..end.max(first)].contains(&W::ZERO) }
        });
        let reach = reach.collect();
        let mut offset = wide(&linear.offset);
        offset.resize(bands, W::of(NOTHING));
        Self { bands, numbers, reach, offset }
    }

    /// Maps the pixels of a piece for which `takes` is true.
    pub(super) fn apply<T: Element<Wide = W>>(
        &self,
        piece: &mut [T],
        takes: impl Fn(usize) -> bool,
    ) {
        let bands = self.bands;
        let mut values = vec![W::ZERO; piece.len()];
        T::load_all(piece, &mut values);
        // Several pixels at a time, so that each row of the map is read once for all of them.
        const TOGETHER: usize = 16;
        let mut sums = vec![W::ZERO; TOGETHER * bands];
        for (number, group) in values.chunks(TOGETHER * bands).enumerate() {
            for sum in sums.chunks_exact_mut(bands) {
                sum.copy_from_slice(&self.offset);
            }
            for (band, Reach { first, end, gaps }) in self.reach.iter().copied().enumerate() {
                let row = &self.numbers[band * bands..][first..end];
                let pixels = group.chunks_exact(bands).zip(sums.chunks_exact_mut(bands));
                for (spectrum, sum) in pixels {
                    let value = spectrum[band];
                    let taps = sum[first..end].iter_mut().zip(row);
                    if gaps && !value.is_finite() {
                        // 0·NaN is NaN.
                        for (sum, number) in taps.filter(|(_, number)| **number != W::ZERO) {
                            *sum = value.mul_add(*number, *sum);
                        }
                        continue;
                    }
                    for (sum, number) in taps {
                        *sum = value.mul_add(*number, *sum);
                    }
                }
            }
            let pixels = sums.chunks_exact(bands).take(group.len() / bands);
            for (place, sum) in pixels.enumerate() {
                let pixel = number * TOGETHER + place;
                if takes(pixel) {
                    T::store_all(&mut piece[pixel * bands..][..bands], sum);
                }
            }
        }
    }
}
