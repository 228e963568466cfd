//! Loops over the spectra of pixels. Each processes a piece of one sample, made of whole pixels, in
//! place.

use hsipack_format::SpectralNorm;
use hsipack_format::spectral_response::SpectralResponse;
use hsipack_format::spectrum::{self, Real};

use super::element::{Element, NEGATIVE_ZERO, Wide};
use crate::operation::Linear;

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
    /// Values up to this one give results that are not too large.
    limit: W,
}

impl<W: Wide> Bands<W> {
    pub(super) fn new<T: Element<Wide = W>>(by: [&[f64]; 3]) -> Self {
        let [shift, factor, mut summand]: [Vec<W>; 3] = by.map(wide);
        let most = T::LARGEST.to_f64();
        let mut limit = most;
        for ((shift, factor), summand) in shift.iter().zip(&factor).zip(&mut summand) {
            if *factor == W::ZERO {
                *summand = summand.bounded(T::LARGEST);
            } else {
                let room = 0.999 * most - summand.to_f64().abs();
                limit = limit.min(room / factor.to_f64().abs() - shift.to_f64().abs());
            }
        }
        Self { shift, factor, summand, limit: W::of(limit) }
    }

    pub(super) fn apply<T: Element<Wide = W>>(&self, piece: &mut [T]) {
        for spectrum in piece.chunks_exact_mut(self.shift.len()) {
            if T::magnitude(spectrum) <= self.limit {
                T::affine(spectrum, &self.shift, &self.factor, &self.summand);
            } else {
                T::affine_settled(spectrum, &self.shift, &self.factor, &self.summand);
            }
        }
    }
}

/// Normalises every spectrum.
pub(super) fn normalize<T: Element>(piece: &mut [T], bands: usize, norm: SpectralNorm) {
    let mut values = vec![T::Wide::ZERO; piece.len()];
    T::load_all(piece, &mut values);
    values.chunks_exact_mut(bands).for_each(|spectrum| spectrum::normalize(spectrum, norm));
    T::round_all(piece, &values);
}

/// A linear map of spectra, in the type used for computing.
pub(super) struct Map<W> {
    bands: usize,
    numbers: Vec<W>,
    /// The output bands that every input band contributes to.
    reach: Vec<Reach>,
    /// Added after the map; one number per band.
    offset: Vec<W>,
    /// The sum of the absolute values of the numbers for each output band, of which this is the
    /// largest, and of offsets.
    most: [f64; 2],
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
        offset.resize(bands, W::of(NEGATIVE_ZERO));
        let mut columns = vec![0.0; bands];
        for row in linear.map.chunks_exact(bands) {
            columns.iter_mut().zip(row).for_each(|(sum, number)| *sum += number.abs());
        }
        let greatest = |numbers: &[f64]| numbers.iter().fold(0.0f64, |a, b| a.max(b.abs()));
        let most = [greatest(&columns), greatest(&linear.offset)];
        Self { bands, numbers, reach, offset, most }
    }

    /// Maps the pixels of a piece for which `takes` is true.
    pub(super) fn apply<T: Element<Wide = W>>(
        &self,
        piece: &mut [T],
        takes: impl Fn(usize) -> bool,
    ) {
        let [sum, offset] = self.most;
        let limit = W::of((0.99 * T::LARGEST.to_f64() - offset) / sum.max(1e-30));
        if T::magnitude(piece) <= limit {
            self.mapped::<T, false>(piece, takes);
        } else {
            self.mapped::<T, true>(piece, takes);
        }
    }

    /// Maps pixels, with `CARE` also if values are not finite, or sums are too large.
    fn mapped<T: Element<Wide = W>, const CARE: bool>(
        &self,
        piece: &mut [T],
        takes: impl Fn(usize) -> bool,
    ) {
        let bands = self.bands;
        let mut values = vec![W::ZERO; piece.len()];
        T::load_all(piece, &mut values);
        // Several pixels at a time, so that each row of the map is read once for all of them.
        const GROUP_PIXELS: usize = 16;
        let mut sums = vec![W::ZERO; GROUP_PIXELS * bands];
        for (number, group) in values.chunks(GROUP_PIXELS * bands).enumerate() {
            for sum in sums.chunks_exact_mut(bands) {
                sum.copy_from_slice(&self.offset);
            }
            for (band, reach) in self.reach.iter().enumerate() {
                let (first, end) = (reach.first, reach.end);
                let row = &self.numbers[band * bands..][first..end];
                let pixels = group.chunks_exact(bands).zip(sums.chunks_exact_mut(bands));
                for (spectrum, sum) in pixels {
                    let value = spectrum[band];
                    if CARE && reach.gaps && !value.is_finite() {
                        // 0·NaN is NaN.
                        let taps = sum[first..end].iter_mut().zip(row);
                        for (sum, number) in taps.filter(|(_, number)| **number != W::ZERO) {
                            *sum = value.mul_add(*number, *sum);
                        }
                        continue;
                    }
                    for (sum, number) in sum[first..end].iter_mut().zip(row) {
                        *sum = value.mul_add(*number, *sum);
                    }
                }
            }
            if CARE {
                let pixels = group.chunks_exact(bands).zip(sums.chunks_exact_mut(bands));
                pixels.for_each(|(spectrum, sum)| self.settle(spectrum, sum));
            }
            let pixels = sums.chunks_exact(bands).take(group.len() / bands);
            for (index, sum) in pixels.enumerate() {
                let pixel = number * GROUP_PIXELS + index;
                if takes(pixel) {
                    let into = &mut piece[pixel * bands..][..bands];
                    if CARE { T::store_all(into, sum) } else { T::round_all(into, sum) }
                }
            }
        }
    }

    /// Computes sums that overflowed again, without overflow on the way, if all values in them are
    /// finite.
    fn settle(&self, spectrum: &[W], sums: &mut [W]) {
        if W::magnitude(sums).is_finite() {
            return;
        }
        for (band, sum) in sums.iter_mut().enumerate().filter(|(_, sum)| !sum.is_finite()) {
            let numbers = self.numbers[band..].iter().step_by(self.bands).copied();
            let taps = spectrum.iter().copied().zip(numbers);
            let taps = taps.filter(|(_, number)| *number != W::ZERO);
            if taps.clone().all(|(value, _)| value.is_finite()) {
                let offset = std::iter::once((self.offset[band], W::of(1.0)));
                *sum = W::sum(taps.chain(offset));
            }
        }
    }
}

/// The weights of resampled bands, in the type used for computing.
pub(super) struct Weights<W> {
    source_bands: usize,
    /// For each new band, its source bands with their weights; none if it is not valid.
    bands: Vec<Vec<(usize, W)>>,
}

impl<W: Wide> Weights<W> {
    pub(super) fn new(response: &SpectralResponse) -> Self {
        let of_band = |band: usize| {
            let weights = response.weights(band).iter();
            weights.map(|(source, weight)| (*source, W::of(*weight))).collect()
        };
        let bands = (0..response.bands()).map(of_band).collect();
        Self { source_bands: response.source_bands(), bands }
    }

    /// Resamples the pixels that `from` begins with, as many as `out` has.
    pub(super) fn apply<T: Element<Wide = W>>(&self, from: &[T], out: &mut [T]) {
        // Pixels that are computed at once, each in a lane of its own.
        const LANES: usize = 16;
        let (all, count) = (self.source_bands, self.bands.len());
        let mut spectrum = vec![W::ZERO; all];
        let mut lanes = vec![[W::ZERO; LANES]; all];
        let mut resampled = vec![W::ZERO; LANES * count];
        for (out, from) in out.chunks_mut(LANES * count).zip(from.chunks(LANES * all)) {
            for (lane, pixel) in from.chunks_exact(all).enumerate() {
                T::load_all(pixel, &mut spectrum);
                lanes.iter_mut().zip(&spectrum).for_each(|(lanes, value)| lanes[lane] = *value);
            }
            for (band, weights) in self.bands.iter().enumerate() {
                let mut sums = [if weights.is_empty() { W::NAN } else { W::ZERO }; LANES];
                for (source, weight) in weights {
                    for (sum, value) in sums.iter_mut().zip(&lanes[*source]) {
                        *sum = value.mul_add(*weight, *sum);
                    }
                }
                for (pixel, sum) in resampled.chunks_exact_mut(count).zip(sums) {
                    pixel[band] = if sum.is_finite() { sum } else { W::NAN };
                }
            }
            T::round_all(out, &resampled[..out.len()]);
        }
    }
}
