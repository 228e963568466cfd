//! Values and spectra, as tensor operations. Parts are (samples, rows, columns, bands), and are
//! changed in place.

use std::collections::BTreeSet;

use hsipack_format::Result;
use hsipack_format::spectral_response::SpectralResponse;

use super::engine::wide;
use super::{Binary, TensorEngine, Tensors};
use crate::array::ElementType;
use crate::engine::BatchArray;
use crate::operation::{Linear, is_nothing};
use crate::ops::mirrored;

impl<T: Tensors> TensorEngine<T> {
    /// Keeps bands of each sample.
    pub(super) fn selected(
        &self,
        held: &mut BatchArray<T::Tensor>,
        bands: &[Vec<usize>],
    ) -> Result<()> {
        let (t, [samples, rows, columns, _]) = (&self.0, held.shape);
        let Some(first) = bands.first() else { return Ok(()) };
        let shape = [samples, rows, columns, first.len()];
        let chosen_bands = t.empty(&shape, held.element)?;
        let copy = |from: &T::Tensor, to: &T::Tensor, bands: &[usize]| {
            let by_band = t.permute(from, &[3, 0, 1, 2])?;
            let chosen = t.index_select(&by_band, &self.indices(bands.iter().copied())?)?;
            t.copy_(to, &t.permute(&chosen, &[1, 2, 3, 0])?)
        };
        if bands.iter().all(|other| other == first) {
            copy(&held.array, &chosen_bands, first)?;
        } else {
            for (sample, bands) in bands.iter().enumerate() {
                let to = self.sample(&chosen_bands, sample)?;
                copy(&self.sample(&held.array, sample)?, &to, bands)?;
            }
        }
        (held.array, held.shape, held.ours) = (chosen_bands, shape, true);
        Ok(())
    }

    /// Resamples spectra to other bands: one sparse product for all pixels that are computed at
    /// once.
    pub(super) fn resampled(
        &self,
        held: &mut BatchArray<T::Tensor>,
        response: &SpectralResponse,
    ) -> Result<()> {
        let t = &self.0;
        let ([samples, rows, columns, all], element) = (held.shape, held.element);
        let count = response.bands();
        let most = (0..count).map(|band| response.weights(band).len()).max().unwrap_or(0).max(1);
        // Every band gets the same number of weights. Further ones are 0, for a source band that it needs anyway: 0·NaN is
        // NaN. All weights of a band that is not valid are NaN.
        let (mut sources, mut weights) = (Vec::new(), Vec::new());
        for band in 0..count {
            let used = response.weights(band);
            let (first, filler) = used.first().map_or((0, f64::NAN), |(source, _)| (*source, 0.0));
            let further = std::iter::repeat_n((first, filler), most - used.len());
            for (source, weight) in used.iter().copied().chain(further) {
                sources.push(source as i64);
                weights.push(weight);
            }
        }
        let sources = self.integers(&sources, &[count, most], ElementType::I64)?;
        let weights = self.numbers(&weights, &[count, most], wide(element))?;
        let out = t.empty(&[samples, rows, columns, count], element)?;
        let at_once = self.at_once(held, all + count);
        for first in (0..samples).step_by(at_once) {
            let some = at_once.min(samples - first);
            let part = t.to(&t.narrow(&held.array, 0, first, some)?, wide(element))?;
            let by_band = t.contiguous(&t.permute(&part, &[3, 0, 1, 2])?)?;
            let by_band = t.reshape(&by_band, &[all, some * rows * columns])?;
            let resampled = t.embedding_bag(&by_band, &sources, &weights)?;
            // Infinite sums become NaN.
            let zero = t.binary(Binary::Sub, &resampled, &resampled)?;
            let resampled = t.binary(Binary::Add, &resampled, &zero)?;
            let resampled = t.reshape(&resampled, &[count, some, rows, columns])?;
            let into = t.narrow(&out, 0, first, some)?;
            t.copy_(&into, &t.permute(&resampled, &[1, 2, 3, 0])?)?;
        }
        (held.array, held.shape, held.ours) = (out, [samples, rows, columns, count], true);
        Ok(())
    }

    /// Applies a factor and a summand to each band.
    pub(super) fn scaled(
        &self,
        part: &T::Tensor,
        by: &[&[&[f64]; 3]],
        bands: usize,
        element: ElementType,
    ) -> Result<()> {
        let t = &self.0;
        let shape = [by.len(), 1, 1, bands];
        let [shift, factor, summand] =
            [0, 1, 2].map(|of| by.iter().flat_map(|by| by[of]).copied().collect::<Vec<f64>>());
        // Skip steps that change nothing.
        let steps =
            [(Binary::Sub, &shift, 0.0), (Binary::Mul, &factor, 1.0), (Binary::Add, &summand, 0.0)];
        let steps: Vec<_> = steps
            .into_iter()
            .filter(|(_, numbers, nothing)| numbers.iter().any(|number| number != nothing))
            .collect();
        let mut values = part.clone();
        for (op, numbers, _) in &steps {
            values = t.binary(*op, &values, &self.numbers(numbers, &shape, wide(element))?)?;
        }
        if !steps.is_empty() {
            self.settle(part, &values, element)?;
        }
        // Replaced bands get their new value, even where NaN · 0 would be NaN.
        let none = |factor: &f64| is_nothing(*factor, element);
        if factor.iter().any(none) {
            let replaced: Vec<i64> = factor.iter().map(|factor| i64::from(none(factor))).collect();
            let replaced = self.integers(&replaced, &shape, ElementType::Bool)?;
            let summand = self.numbers(&summand, &shape, element)?;
            t.copy_(part, &t.r#where(&replaced, &summand, part)?)?;
        }
        Ok(())
    }

    /// Applies linear maps to spectra. A value that is not finite changes only those bands to which
    /// it contributes.
    pub(super) fn mapped(
        &self,
        held: &mut BatchArray<T::Tensor>,
        maps: &[Option<Linear>],
        labels: Option<(&BatchArray<T::Tensor>, &[i64])>,
    ) -> Result<()> {
        let t = &self.0;
        let ([_, rows, columns, bands], element) = (held.shape, held.element);
        let with_samples: Vec<Option<(usize, &Linear)>> =
            maps.iter().enumerate().map(|(sample, map)| Some((sample, map.as_ref()?))).collect();
        self.each_part(held, &with_samples, 2 * bands, |part, maps| {
            let count = maps.len();
            let numbers = |of: &dyn Fn(&Linear) -> Vec<f64>, shape: &[usize]| {
                let numbers: Vec<f64> = maps.iter().flat_map(|(_, map)| of(map)).collect();
                self.numbers(&numbers, shape, wide(element))
            };
            let values = t.reshape(&t.to(part, wide(element))?, &[count, rows * columns, bands])?;
            let finite = t.nan_to_num(&values, 0.0, 0.0, 0.0)?;
            let not_finite = t.to(&t.binary(Binary::Ne, &values, &finite)?, wide(element))?;
            // 1 for infinity, -1 for negative infinity, otherwise 0.
            let infinite = {
                let sign = |sign: f64| {
                    t.to(&t.with(Binary::Eq, &values, sign * f64::INFINITY)?, wide(element))
                };
                t.binary(Binary::Sub, &sign(1.0)?, &sign(-1.0)?)?
            };
            let map = numbers(&|map| map.map.clone(), &[count, bands, bands])?;
            let derived = |of: fn(f64) -> f64| {
                let of =
                    |number: &f64| if is_nothing(*number, element) { 0.0 } else { of(*number) };
                numbers(&|map| map.map.iter().map(of).collect(), &[count, bands, bands])
            };
            let (reach, signs) = (derived(|_| 1.0)?, derived(f64::signum)?);
            let mut mapped = t.matmul(&finite, &map)?;
            if maps.iter().any(|(_, map)| !map.offset.is_empty()) {
                let offset = |map: &Linear| {
                    let mut offset = map.offset.clone();
                    offset.resize(bands, 0.0);
                    offset
                };
                let offset = numbers(&offset, &[count, 1, bands])?;
                mapped = t.binary(Binary::Add, &mapped, &offset)?;
            }
            // Sums of finite values are finite.
            let most = wide(element).greatest();
            mapped = self.clamped(&t.nan_to_num(&mapped, 0.0, most, -most)?, element)?;
            // Of how many values that are not finite each sum consists, and for how many more infinity is added than
            // subtracted. NaN counts as both.
            let all = t.matmul(&not_finite, &reach)?;
            let more = t.matmul(&infinite, &signs)?;
            for (op, infinity) in [(Binary::Add, f64::INFINITY), (Binary::Sub, f64::NEG_INFINITY)] {
                let reached = t.with(Binary::Gt, &t.binary(op, &all, &more)?, 0.0)?;
                let infinity = t.full(&[1], infinity, wide(element))?;
                let nothing = t.full(&[1], 0.0, wide(element))?;
                let added = t.r#where(&reached, &infinity, &nothing)?;
                mapped = t.binary(Binary::Add, &mapped, &added)?;
            }
            let mapped = t.to(&t.reshape(&mapped, &[count, rows, columns, bands])?, element)?;
            let Some((mask, labels)) = labels else { return t.copy_(part, &mapped) };
            let samples: Vec<usize> = maps.iter().map(|(sample, _)| *sample).collect();
            let pixel_labels =
                t.to(&self.part(&self.first_layer(mask)?, &samples)?, ElementType::I64)?;
            let mut wanted = t.full(&[1], 0.0, ElementType::Bool)?;
            for label in labels {
                let label = self.integers(&[*label], &[1], ElementType::I64)?;
                let same = t.binary(Binary::Eq, &pixel_labels, &label)?;
                wanted = t.binary(Binary::LogicalOr, &wanted, &same)?;
            }
            t.copy_(part, &t.r#where(&wanted, &mapped, part)?)
        })
    }

    pub(super) fn noisy(
        &self,
        held: &mut BatchArray<T::Tensor>,
        seeds: &[Option<u64>],
        mean: f64,
        std: f64,
    ) -> Result<()> {
        let t = &self.0;
        let ([_, rows, columns, bands], element) = (held.shape, held.element);
        let computed = wide(element);
        let [mean, std] = [mean, std].map(|number| computed.bounded(number));
        self.each_part(held, seeds, bands, |part, seeds| {
            for (sample, seed) in seeds.iter().enumerate() {
                let noise = t.normal(&[1, rows, columns, bands], **seed)?;
                let noise = t.with(Binary::Mul, &t.to(&noise, computed)?, std)?;
                let noise = t.with(Binary::Add, &self.clamped(&noise, computed)?, mean)?;
                let target = self.sample(part, sample)?;
                self.settle(&target, &t.binary(Binary::Add, &target, &noise)?, element)?;
            }
            Ok(())
        })
    }

    /// Multiplies by 1 + x·across + y·down.
    pub(super) fn lit(
        &self,
        held: &mut BatchArray<T::Tensor>,
        ramps: &[Option<[f64; 2]>],
    ) -> Result<()> {
        let t = &self.0;
        let ([_, rows, columns, bands], element) = (held.shape, held.element);
        // The centres of the outermost pixels are at -1 and 1; a single pixel is at 0.
        let along = |size: usize| -> Vec<f64> {
            let span = (size as f64 - 1.0).max(1.0);
            let at = |index: usize| (2.0 * index as f64 - (size as f64 - 1.0)) / span;
            (0..size).map(at).collect()
        };
        let x = self.numbers(&along(columns), &[1, 1, columns, 1], wide(element))?;
        let y = self.numbers(&along(rows), &[1, rows, 1, 1], wide(element))?;
        self.each_part(held, ramps, bands, |part, ramps| {
            let strength = |axis: usize| {
                let strengths: Vec<f64> = ramps.iter().map(|ramp| ramp[axis]).collect();
                self.numbers(&strengths, &[ramps.len(), 1, 1, 1], wide(element))
            };
            let across = t.binary(Binary::Mul, &x, &strength(0)?)?;
            let down = t.binary(Binary::Mul, &y, &strength(1)?)?;
            let factor = t.with(Binary::Add, &t.binary(Binary::Add, &across, &down)?, 1.0)?;
            let factor = self.clamped(&factor, wide(element))?;
            self.settle(part, &t.binary(Binary::Mul, part, &factor)?, element)
        })
    }

    pub(super) fn blurred(
        &self,
        held: &mut BatchArray<T::Tensor>,
        weights: &[Option<[Vec<f64>; 2]>],
    ) -> Result<()> {
        let t = &self.0;
        let ([_, rows, columns, bands], element) = (held.shape, held.element);
        // All weights of one pass are equally many.
        let counts = |weights: &[Vec<f64>; 2]| [weights[0].len(), weights[1].len()];
        let several: BTreeSet<[usize; 2]> = weights.iter().flatten().map(counts).collect();
        if several.len() > 1 {
            for some in several {
                let of = |weights: &[Vec<f64>; 2]| counts(weights) == some;
                let some: Vec<_> =
                    weights.iter().map(|taps| taps.clone().filter(|taps| of(taps))).collect();
                self.blurred(held, &some)?;
            }
            return Ok(());
        }
        let taps = weights.iter().flatten().flatten().map(Vec::len).max().unwrap_or(1);
        // In addition to spectra, 64-bit indices and weights need memory.
        self.each_part(held, weights, bands.max(3 * taps), |part, weights| {
            let count = weights.len();
            let mut values =
                t.reshape(&t.to(part, wide(element))?, &[count * rows * columns, bands])?;
            for axis in [0, 1] {
                let taps = weights[0][axis].len();
                let (size, step) = if axis == 0 { (rows, columns) } else { (columns, 1) };
                // The pixels that contribute to each pixel, with their weights: (samples, rows, columns, taps).
                let along: Vec<i64> = (0..size)
                    .flat_map(|index| {
                        (0..taps).map(move |tap| mirrored(index + tap, taps / 2, size))
                    })
                    .map(|index| (index * step) as i64)
                    .collect();
                let (along_shape, other, other_shape) = if axis == 0 {
                    ([1, rows, 1, taps], (0..columns).collect::<Vec<_>>(), [1, 1, columns, 1])
                } else {
                    let lines = (0..rows).map(|row| row * columns).collect();
                    ([1, 1, columns, taps], lines, [1, rows, 1, 1])
                };
                let along = self.integers(&along, &along_shape, ElementType::I64)?;
                let other = t.reshape(&self.indices(other)?, &other_shape)?;
                let first = self.indices((0..count).map(|sample| sample * rows * columns))?;
                let first = t.reshape(&first, &[count, 1, 1, 1])?;
                let frame = t.binary(Binary::Add, &along, &other)?;
                let index = t.binary(Binary::Add, &frame, &first)?;
                let numbers: Vec<f64> =
                    weights.iter().flat_map(|weights| &weights[axis]).copied().collect();
                let numbers = self.numbers(&numbers, &[count, 1, 1, taps], wide(element))?;
                let everywhere = t.full(&[1, rows, columns, 1], 0.0, wide(element))?;
                let numbers = t.binary(Binary::Add, &numbers, &everywhere)?;
                let bags = [count * rows * columns, taps];
                let (index, numbers) = (t.reshape(&index, &bags)?, t.reshape(&numbers, &bags)?);
                values = if element == wide(element) {
                    self.means(&values, &index, &numbers, element)?
                } else {
                    // Means of float16 and bfloat16 do not overflow in float32.
                    t.embedding_bag(&values, &index, &numbers)?
                };
            }
            t.copy_(part, &t.reshape(&values, &[count, rows, columns, bands])?)
        })
    }
}
