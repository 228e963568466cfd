//! Arithmetic on runs of values: float32 and float16, the latter computed in float32 and rounded once.

use half::f16;

/// A type of values.
pub(super) trait Element: bytemuck::Pod + Send + Sync {
    /// out = base + Σ weight·row.
    fn blend(out: &mut [Self], rows: [&[Self]; 4], weights: [f32; 4], base: f32);
    /// sum += weight·row.
    fn add(sum: &mut [f32], row: &[Self], weight: f32);
    /// values = (values - shift)·factor + summand, but for factors of 0 the summand alone, whatever the value.
    fn affine(values: &mut [Self], shift: &[f32], factor: &[f32], summand: &[f32]);
    /// The number that is stored.
    fn store(value: f32) -> Self;
    /// The number stored.
    fn load(self) -> f32;
    /// Stores a run of numbers.
    fn store_all(out: &mut [Self], values: &[f32]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = Self::store(*value);
        }
    }
}

fn affine(value: f32, shift: f32, factor: f32, summand: f32) -> f32 {
    if factor == 0.0 { summand } else { (value - shift).mul_add(factor, summand) }
}

impl Element for f32 {
    fn blend(out: &mut [Self], rows: [&[Self]; 4], weights: [f32; 4], base: f32) {
        let len = out.len();
        let [a, b, c, d] = rows.map(|row| &row[..len]);
        for (place, out) in out.iter_mut().enumerate() {
            let top = weights[1].mul_add(b[place], weights[0].mul_add(a[place], base));
            *out = weights[3].mul_add(d[place], weights[2].mul_add(c[place], top));
        }
    }

    fn add(sum: &mut [f32], row: &[Self], weight: f32) {
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum = weight.mul_add(*value, *sum);
        }
    }

    fn affine(values: &mut [Self], shift: &[f32], factor: &[f32], summand: &[f32]) {
        for (((value, shift), factor), summand) in
            values.iter_mut().zip(shift).zip(factor).zip(summand)
        {
            *value = affine(*value, *shift, *factor, *summand);
        }
    }

    fn store(value: f32) -> Self {
        value
    }

    fn load(self) -> f32 {
        self
    }
}

impl Element for f16 {
    fn blend(out: &mut [Self], rows: [&[Self]; 4], weights: [f32; 4], base: f32) {
        let done = wide::blend(out, rows, weights, base);
        for place in done..out.len() {
            let parts = rows.iter().zip(weights);
            let sum =
                parts.fold(base, |sum, (row, weight)| weight.mul_add(row[place].to_f32(), sum));
            out[place] = f16::from_f32(sum);
        }
    }

    fn add(sum: &mut [f32], row: &[Self], weight: f32) {
        let done = wide::add(sum, row, weight);
        for (sum, value) in sum.iter_mut().zip(row).skip(done) {
            *sum = weight.mul_add(value.to_f32(), *sum);
        }
    }

    fn affine(values: &mut [Self], shift: &[f32], factor: &[f32], summand: &[f32]) {
        let done = wide::affine(values, shift, factor, summand);
        for place in done..values.len() {
            let value = affine(values[place].to_f32(), shift[place], factor[place], summand[place]);
            values[place] = f16::from_f32(value);
        }
    }

    fn store(value: f32) -> Self {
        f16::from_f32(value)
    }

    fn load(self) -> f32 {
        self.to_f32()
    }

    fn store_all(out: &mut [Self], values: &[f32]) {
        let done = wide::store(out, values);
        for (out, value) in out.iter_mut().zip(values).skip(done) {
            *out = f16::from_f32(*value);
        }
    }
}

/// Eight float16 values at a time; each function gives how many it has done.
#[cfg(all(
    target_arch = "x86_64",
    target_feature = "f16c",
    target_feature = "fma",
    target_feature = "avx"
))]
mod wide {
    use std::arch::x86_64::{
        __m256, _CMP_EQ_OQ, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128,
        _mm256_blendv_ps, _mm256_cmp_ps, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_fmadd_ps,
        _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps, _mm256_sub_ps,
    };

    use half::f16;

    const LANES: usize = 8;

    /// Eight values from `place` on.
    fn load(row: &[f16], place: usize) -> __m256 {
        let lanes = &row[place..place + LANES];
        // SAFETY: the slice holds the 16 bytes; the processor has F16C, which this module is compiled for.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(lanes.as_ptr().cast())) }
    }

    fn put(row: &mut [f16], place: usize, values: __m256) {
        let lanes = &mut row[place..place + LANES];
        // SAFETY: as above, and the slice is ours to write to.
        unsafe {
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
            _mm_storeu_si128(lanes.as_mut_ptr().cast(), rounded);
        }
    }

    fn load_f32(row: &[f32], place: usize) -> __m256 {
        let lanes = &row[place..place + LANES];
        // SAFETY: the slice holds the 32 bytes.
        unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
    }

    fn put_f32(row: &mut [f32], place: usize, values: __m256) {
        let lanes = &mut row[place..place + LANES];
        // SAFETY: the slice holds the 32 bytes and is ours to write to.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), values) }
    }

    fn all(value: f32) -> __m256 {
        // SAFETY: compiled for a processor with AVX.
        unsafe { _mm256_set1_ps(value) }
    }

    fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: compiled for a processor with FMA.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    pub(super) fn blend(out: &mut [f16], rows: [&[f16]; 4], weights: [f32; 4], base: f32) -> usize {
        let len = out.len();
        let rows = rows.map(|row| &row[..len]);
        let (weights, base) = (weights.map(all), all(base));
        let done = len / LANES * LANES;
        for place in (0..done).step_by(LANES) {
            let mut sum = base;
            for (row, weight) in rows.iter().zip(weights) {
                sum = fma(weight, load(row, place), sum);
            }
            put(out, place, sum);
        }
        done
    }

    pub(super) fn add(sum: &mut [f32], row: &[f16], weight: f32) -> usize {
        let len = sum.len().min(row.len());
        let weight = all(weight);
        let done = len / LANES * LANES;
        for place in (0..done).step_by(LANES) {
            let total = fma(weight, load(row, place), load_f32(sum, place));
            put_f32(sum, place, total);
        }
        done
    }

    pub(super) fn affine(
        values: &mut [f16],
        shift: &[f32],
        factor: &[f32],
        summand: &[f32],
    ) -> usize {
        let done = values.len() / LANES * LANES;
        for place in (0..done).step_by(LANES) {
            let (shift, factor) = (load_f32(shift, place), load_f32(factor, place));
            let summand = load_f32(summand, place);
            let value = load(values, place);
            // SAFETY: compiled for a processor with AVX.
            let (moved, none) = unsafe {
                let zero = _mm256_setzero_ps();
                (_mm256_sub_ps(value, shift), _mm256_cmp_ps::<_CMP_EQ_OQ>(factor, zero))
            };
            let result = fma(moved, factor, summand);
            // SAFETY: compiled for a processor with AVX.
            let result = unsafe { _mm256_blendv_ps(result, summand, none) };
            put(values, place, result);
        }
        done
    }

    pub(super) fn store(out: &mut [f16], values: &[f32]) -> usize {
        let done = out.len().min(values.len()) / LANES * LANES;
        for place in (0..done).step_by(LANES) {
            put(out, place, load_f32(values, place));
        }
        done
    }
}

/// Other processors: one value at a time.
#[cfg(not(all(
    target_arch = "x86_64",
    target_feature = "f16c",
    target_feature = "fma",
    target_feature = "avx"
)))]
mod wide {
    use half::f16;

    pub(super) fn blend(_: &mut [f16], _: [&[f16]; 4], _: [f32; 4], _: f32) -> usize {
        0
    }

    pub(super) fn add(_: &mut [f32], _: &[f16], _: f32) -> usize {
        0
    }

    pub(super) fn affine(_: &mut [f16], _: &[f32], _: &[f32], _: &[f32]) -> usize {
        0
    }

    pub(super) fn store(_: &mut [f16], _: &[f32]) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(seed: usize, len: usize) -> Vec<f32> {
        (0..len).map(|place| ((place * 37 + seed * 101) % 97) as f32 / 16.0 - 3.0).collect()
    }

    #[test]
    fn float16_is_rounded_once_whatever_the_length() {
        for len in [1, 7, 8, 9, 100, 103] {
            let rows: Vec<Vec<f16>> = (0..4)
                .map(|seed| numbers(seed, len).into_iter().map(f16::from_f32).collect())
                .collect();
            let weights = [0.1, 0.2, 0.3, 0.4];
            let mut out = vec![f16::ZERO; len];
            f16::blend(&mut out, [&rows[0], &rows[1], &rows[2], &rows[3]], weights, 0.5);
            let mut sums = vec![0.25; len];
            f16::add(&mut sums, &rows[1], 2.0);
            let (shift, mut factor, summand) = (numbers(5, len), numbers(6, len), numbers(7, len));
            factor[0] = 0.0;
            let mut values = rows[2].clone();
            values[0] = f16::NAN;
            f16::affine(&mut values, &shift, &factor, &summand);
            let mut stored = vec![f16::ZERO; len];
            f16::store_all(&mut stored, &shift);
            for place in 0..len {
                let blended = (0..4).fold(0.5f64, |sum, row| {
                    sum + f64::from(weights[row]) * f64::from(rows[row][place])
                });
                assert!((f64::from(out[place]) - blended).abs() <= 2e-3, "{place} of {len}");
                assert_eq!(sums[place], 2.0f32.mul_add(rows[1][place].to_f32(), 0.25));
                let value = rows[2][place].to_f32();
                let wanted = if place == 0 {
                    summand[0]
                } else {
                    (value - shift[place]).mul_add(factor[place], summand[place])
                };
                assert_eq!(values[place], f16::from_f32(wanted));
                assert_eq!(stored[place], f16::from_f32(shift[place]));
            }
        }
    }
}
