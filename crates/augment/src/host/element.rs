//! Arithmetic on runs of values. float16 and bfloat16 are computed in float32, float64 in float64;
//! each result is rounded once.
//!
//! Finite values stay finite: results that are too large for their type become its largest finite
//! value. Infinite results stay only if they are computed from infinite values ([`Wide::settled`],
//! [`settle`]).

use bytemuck::Pod;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use hsipack_format::spectrum::Real;

/// Start of sums: added to -0, it leaves -0, as 0 would not.
pub(super) const NEGATIVE_ZERO: f64 = -0.0;

/// A type in which values are computed.
pub(super) trait Wide: Pod + Send + Sync + Real {
    /// The largest finite value.
    const GREATEST: Self;
    /// Infinity.
    const INFINITY: Self;

    /// The nearest number; finite numbers stay finite.
    fn of(value: f64) -> Self;
    /// The nearest number, which is infinite if the number is too large.
    fn nearest(value: f64) -> Self;
    fn to_f64(self) -> f64;
    fn mul_add(self, factor: Self, summand: Self) -> Self;
    /// The number, if it is from -`most` to `most` or NaN; otherwise the nearest of these.
    fn clamped(self, most: Self) -> Self;
    /// The largest absolute value of a run of numbers; NaN if there is one.
    fn magnitude(row: &[Self]) -> Self;
    /// The sum of products, without overflow on the way.
    fn sum(products: impl Iterator<Item = (Self, Self)>) -> Self;

    /// Finite numbers clamped to -`most` … `most`.
    fn bounded(self, most: Self) -> Self {
        if self.abs() == Self::INFINITY { self } else { self.clamped(most) }
    }

    /// Clamps a result to -`most` … `most` if the value `from` that it was computed from is finite.
    fn settled(self, from: Self, most: Self) -> Self {
        if from.abs() <= Self::GREATEST { self.clamped(most) } else { self }
    }
}

/// Whether any of these numbers is infinite.
pub(super) fn any_infinite<W: Wide>(numbers: &[W]) -> bool {
    !W::magnitude(numbers).is_finite() && numbers.iter().any(|number| number.abs() == W::INFINITY)
}

/// Replaces infinite sums by the largest finite value where all values that they are made of are
/// finite. This is rare.
pub(super) fn settle<W: Wide>(sums: &mut [W], finite: impl Fn(usize) -> bool) {
    if any_infinite(sums) {
        for (index, sum) in sums.iter_mut().enumerate() {
            if sum.abs() == W::INFINITY && finite(index) {
                *sum = sum.clamped(W::GREATEST);
            }
        }
    }
}

/// A type in which values are stored.
pub(super) trait Element: Pod + Send + Sync {
    /// The type in which it is computed.
    type Wide: Wide;

    /// The largest finite value.
    const LARGEST: Self::Wide;
    /// Whether it is stored in another type than it is computed in. Then weighted means of finite
    /// values cannot overflow: they exceed the largest of them by less than what is rounded away.
    const NARROWER: bool;

    /// Converts a stored value to a number.
    fn load(self) -> Self::Wide;

    /// Converts a number to the nearest stored value, which is infinite if the number is too large.
    fn rounded(value: Self::Wide) -> Self;

    /// Converts a number to a stored value. Finite numbers stay finite.
    fn store(value: Self::Wide) -> Self {
        Self::rounded(value.bounded(Self::LARGEST))
    }

    /// Loads a run of numbers.
    fn load_all(row: &[Self], out: &mut [Self::Wide]) {
        for (out, value) in out.iter_mut().zip(row) {
            *out = value.load();
        }
    }

    /// Rounds a run of numbers, which become infinite if they are too large.
    fn round_all(out: &mut [Self], values: &[Self::Wide]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = Self::rounded(*value);
        }
    }

    /// Stores a run of numbers. Finite numbers stay finite.
    fn store_all(out: &mut [Self], values: &[Self::Wide]) {
        for (out, value) in out.iter_mut().zip(values) {
            *out = Self::store(*value);
        }
    }

    /// The largest absolute value of a run of values; NaN if there is one.
    fn magnitude(row: &[Self]) -> Self::Wide;

    /// out = base + Σ weight·row, for weights that add up to 1 with that of the base.
    fn blend<const N: usize>(out: &mut [Self], rows: [&[Self]; N], weights: [f64; N], base: f64) {
        let rows = rows.map(|row| &row[..out.len()]);
        let (weights, base) = (weights.map(Self::Wide::of), Self::Wide::of(base));
        for (index, out) in out.iter_mut().enumerate() {
            let mut sum = base;
            for (row, weight) in rows.iter().zip(weights) {
                sum = weight.mul_add(row[index].load(), sum);
            }
            *out = Self::rounded(sum);
        }
    }

    /// sum += weight·row.
    fn add(sum: &mut [Self::Wide], row: &[Self], weight: Self::Wide) {
        for (sum, value) in sum.iter_mut().zip(row) {
            *sum = weight.mul_add(value.load(), *sum);
        }
    }

    /// values = (values - shift)·factor + summand. If a factor is 0, the result is the summand,
    /// whatever the value. No result is too large.
    fn affine(
        values: &mut [Self],
        shift: &[Self::Wide],
        factor: &[Self::Wide],
        summand: &[Self::Wide],
    ) {
        let by = shift.iter().zip(factor).zip(summand);
        for (value, ((shift, factor), summand)) in values.iter_mut().zip(by) {
            *value = Self::rounded(affine(value.load(), *shift, *factor, *summand));
        }
    }

    /// The same, where results may be too large.
    fn affine_settled(
        values: &mut [Self],
        shift: &[Self::Wide],
        factor: &[Self::Wide],
        summand: &[Self::Wide],
    ) {
        let by = shift.iter().zip(factor).zip(summand);
        for (value, ((shift, factor), summand)) in values.iter_mut().zip(by) {
            let from = value.load();
            let result = affine(from, *shift, *factor, *summand);
            *value = Self::rounded(result.settled(from, Self::LARGEST));
        }
    }
}

fn affine<W: Wide>(value: W, shift: W, factor: W, summand: W) -> W {
    if factor == W::ZERO { summand } else { (value - shift).mul_add(factor, summand) }
}

/// Converts numbers to another type, with a single rounding if the widths allow it. Numbers that
/// are too large become infinite: they were not computed, but stored.
pub(super) fn cast<W: Wide, T: Element>(out: &mut [T], values: &[W]) {
    if let Ok(values) = bytemuck::try_cast_slice::<W, T::Wide>(values)
        && size_of::<W>() == size_of::<T::Wide>()
    {
        return T::round_all(out, values);
    }
    for (out, value) in out.iter_mut().zip(values) {
        *out = T::rounded(T::Wide::nearest(value.to_f64()));
    }
}

macro_rules! plain {
    ($type:ty, $scale:expr) => {
        impl Wide for $type {
            const GREATEST: Self = <$type>::MAX;
            const INFINITY: Self = <$type>::INFINITY;

            #[inline]
            fn of(value: f64) -> Self {
                let number = value as Self;
                if value.is_finite() { number.clamped(Self::GREATEST) } else { number }
            }
            #[inline]
            fn nearest(value: f64) -> Self {
                value as Self
            }
            #[inline]
            fn clamped(self, most: Self) -> Self {
                // Comparisons in this order leave NaN as it is.
                let value = if self > most { most } else { self };
                if value < -most { -most } else { value }
            }
            #[inline]
            fn magnitude(row: &[Self]) -> Self {
                // As bits, absolute values have the order of numbers, and NaN is the largest.
                let sign = (-0.0 as Self).to_bits();
                Self::from_bits(row.iter().fold(0, |most, value| most.max(value.to_bits() & !sign)))
            }
            fn sum(products: impl Iterator<Item = (Self, Self)>) -> Self {
                // Products of scaled numbers stay far below the largest float64.
                const SCALE: f64 = $scale;
                let scaled = |(a, b)| f64::from(a) * SCALE * (f64::from(b) * SCALE);
                let sum: f64 = products.map(scaled).sum();
                Self::of((sum / SCALE).clamp(-f64::MAX, f64::MAX) / SCALE).clamped(Self::GREATEST)
            }
            #[inline]
            fn to_f64(self) -> f64 {
                self.into()
            }
            #[inline]
            fn mul_add(self, factor: Self, summand: Self) -> Self {
                <$type>::mul_add(self, factor, summand)
            }
        }

        impl Element for $type {
            type Wide = $type;
            const LARGEST: Self = <$type>::MAX;
            const NARROWER: bool = false;
            #[inline]
            fn load(self) -> Self {
                self
            }
            #[inline]
            fn magnitude(row: &[Self]) -> Self {
                Wide::magnitude(row)
            }
            fn blend<const N: usize>(
                out: &mut [Self],
                rows: [&[Self]; N],
                weights: [f64; N],
                base: f64,
            ) {
                let rows = rows.map(|row| &row[..out.len()]);
                let (weights, base) = (weights.map(Self::of), Self::of(base));
                // As in `magnitude`, in the same loop.
                let (sign, mut most) = ((-0.0 as Self).to_bits(), 0);
                for (index, out) in out.iter_mut().enumerate() {
                    let mut sum = base;
                    for (row, weight) in rows.iter().zip(weights) {
                        sum = weight.mul_add(row[index], sum);
                    }
                    *out = sum;
                    most = most.max(sum.to_bits() & !sign);
                }
                if !Self::from_bits(most).is_finite() && base.abs() <= Self::MAX {
                    settle(out, |index| rows.iter().all(|row| row[index].is_finite()));
                }
            }
            #[inline]
            fn rounded(value: Self) -> Self {
                value
            }
            #[inline]
            fn store(value: Self) -> Self {
                value
            }
        }
    };
}

plain!(f32, 1.0);
plain!(f64, f64::from_bits((1023 - 540) << 52)); // 2^-540

impl Element for bf16 {
    type Wide = f32;
    const LARGEST: f32 = f32::from_bits(0x7f7f_0000);
    const NARROWER: bool = true;

    #[inline]
    fn magnitude(row: &[Self]) -> f32 {
        // As bits, absolute values have the order of numbers, and NaN is the largest.
        let most = row.iter().fold(0, |most: u16, value| most.max(value.to_bits() & 0x7fff));
        Self::from_bits(most).to_f32()
    }

    #[inline]
    fn load(self) -> f32 {
        self.to_f32()
    }

    #[inline]
    fn rounded(value: f32) -> Self {
        bf16::from_f32(value)
    }
}

impl Element for f16 {
    type Wide = f32;
    const LARGEST: f32 = 65504.0;
    const NARROWER: bool = true;

    #[inline]
    fn magnitude(row: &[Self]) -> f32 {
        // As bits, absolute values have the order of numbers, and NaN is the largest.
        let most = row.iter().fold(0, |most: u16, value| most.max(value.to_bits() & 0x7fff));
        Self::from_bits(most).to_f32()
    }

    #[inline]
    fn load(self) -> f32 {
        self.to_f32()
    }

    #[inline]
    fn rounded(value: f32) -> Self {
        f16::from_f32(value)
    }

    fn load_all(row: &[Self], out: &mut [f32]) {
        let len = row.len().min(out.len());
        row[..len].convert_to_f32_slice(&mut out[..len]);
    }

    fn round_all(out: &mut [Self], values: &[f32]) {
        let done = wide::round(out, values);
        for (out, value) in out.iter_mut().zip(values).skip(done) {
            *out = f16::from_f32(*value);
        }
    }

    fn store_all(out: &mut [Self], values: &[f32]) {
        let done = wide::store(out, values);
        for (out, value) in out.iter_mut().zip(values).skip(done) {
            *out = Self::store(*value);
        }
    }

    fn blend<const N: usize>(out: &mut [Self], rows: [&[Self]; N], weights: [f64; N], base: f64) {
        let (weights, base) = (weights.map(|weight| weight as f32), base as f32);
        let done = wide::blend(out, rows, weights, base);
        for index in done..out.len() {
            let parts = rows.iter().zip(weights);
            let sum =
                parts.fold(base, |sum, (row, weight)| weight.mul_add(row[index].to_f32(), sum));
            out[index] = f16::from_f32(sum);
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
        for index in done..values.len() {
            let value = affine(values[index].to_f32(), shift[index], factor[index], summand[index]);
            values[index] = f16::from_f32(value);
        }
    }
}

/// Eight float16 values at a time; each function returns the number of values it processed.
#[cfg(all(
    target_arch = "x86_64",
    target_feature = "f16c",
    target_feature = "fma",
    target_feature = "avx"
))]
mod wide {
    use std::arch::x86_64::{
        __m256, _CMP_EQ_OQ, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128,
        _mm_storeu_si128, _mm256_blendv_ps, _mm256_cmp_ps, _mm256_cvtph_ps, _mm256_cvtps_ph,
        _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_max_ps, _mm256_min_ps, _mm256_set1_ps,
        _mm256_setzero_ps, _mm256_storeu_ps, _mm256_sub_ps,
    };

    use half::f16;

    const LANES: usize = 8;
    /// The largest finite float16.
    const LARGEST: f32 = 65504.0;

    /// Finite values clamped to the range of float16.
    fn bounded(values: __m256) -> __m256 {
        // SAFETY: compiled for a processor with AVX.
        unsafe {
            // If the last operand is NaN, so is the result. Infinity minus infinity is NaN.
            let clamped = _mm256_max_ps(all(-LARGEST), _mm256_min_ps(all(LARGEST), values));
            let apart = _mm256_cmp_ps::<_CMP_UNORD_Q>(_mm256_sub_ps(values, values), values);
            _mm256_blendv_ps(clamped, values, apart)
        }
    }

    /// Eight values from `start` on.
    fn load(row: &[f16], start: usize) -> __m256 {
        let lanes = &row[start..start + LANES];
        // SAFETY: the slice holds the 16 bytes; the processor has F16C, because this module is compiled only with it.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(lanes.as_ptr().cast())) }
    }

    fn put(row: &mut [f16], start: usize, values: __m256) {
        let lanes = &mut row[start..start + LANES];
        // SAFETY: as above, and we may write to the slice.
        unsafe {
            let rounded = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
            _mm_storeu_si128(lanes.as_mut_ptr().cast(), rounded);
        }
    }

    fn load_f32(row: &[f32], start: usize) -> __m256 {
        let lanes = &row[start..start + LANES];
        // SAFETY: the slice holds the 32 bytes.
        unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
    }

    fn put_f32(row: &mut [f32], start: usize, values: __m256) {
        let lanes = &mut row[start..start + LANES];
        // SAFETY: the slice holds the 32 bytes, and we may write to it.
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

    pub(super) fn blend<const N: usize>(
        out: &mut [f16],
        rows: [&[f16]; N],
        weights: [f32; N],
        base: f32,
    ) -> usize {
        let len = out.len();
        let rows = rows.map(|row| &row[..len]);
        let (weights, base) = (weights.map(all), all(base));
        let done = len / LANES * LANES;
        for start in (0..done).step_by(LANES) {
            let mut sum = base;
            for (row, weight) in rows.iter().zip(weights) {
                sum = fma(weight, load(row, start), sum);
            }
            put(out, start, sum);
        }
        done
    }

    pub(super) fn add(sum: &mut [f32], row: &[f16], weight: f32) -> usize {
        let len = sum.len().min(row.len());
        let weight = all(weight);
        let done = len / LANES * LANES;
        for start in (0..done).step_by(LANES) {
            let total = fma(weight, load(row, start), load_f32(sum, start));
            put_f32(sum, start, total);
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
        for start in (0..done).step_by(LANES) {
            let (shift, factor) = (load_f32(shift, start), load_f32(factor, start));
            let summand = load_f32(summand, start);
            let value = load(values, start);
            // SAFETY: compiled for a processor with AVX.
            let (moved, none) = unsafe {
                let zero = _mm256_setzero_ps();
                (_mm256_sub_ps(value, shift), _mm256_cmp_ps::<_CMP_EQ_OQ>(factor, zero))
            };
            let result = fma(moved, factor, summand);
            // SAFETY: compiled for a processor with AVX.
            let result = unsafe { _mm256_blendv_ps(result, summand, none) };
            put(values, start, result);
        }
        done
    }

    pub(super) fn round(out: &mut [f16], values: &[f32]) -> usize {
        let done = out.len().min(values.len()) / LANES * LANES;
        for start in (0..done).step_by(LANES) {
            put(out, start, load_f32(values, start));
        }
        done
    }

    /// As [`round`], but finite values stay finite.
    pub(super) fn store(out: &mut [f16], values: &[f32]) -> usize {
        let done = out.len().min(values.len()) / LANES * LANES;
        for start in (0..done).step_by(LANES) {
            let values = load_f32(values, start);
            put(out, start, bounded(values));
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

    pub(super) fn blend<const N: usize>(
        _: &mut [f16],
        _: [&[f16]; N],
        _: [f32; N],
        _: f32,
    ) -> usize {
        0
    }

    pub(super) fn add(_: &mut [f32], _: &[f16], _: f32) -> usize {
        0
    }

    pub(super) fn affine(_: &mut [f16], _: &[f32], _: &[f32], _: &[f32]) -> usize {
        0
    }

    pub(super) fn round(_: &mut [f16], _: &[f32]) -> usize {
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
        (0..len).map(|index| ((index * 37 + seed * 101) % 97) as f32 / 16.0 - 3.0).collect()
    }

    #[test]
    fn float16_is_rounded_once_whatever_the_length() {
        for len in [1, 7, 8, 9, 100, 103] {
            let rows: Vec<Vec<f16>> = (0..4)
                .map(|seed| numbers(seed, len).into_iter().map(f16::from_f32).collect())
                .collect();
            let weights = [0.1f64, 0.2, 0.3, 0.4];
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
            for index in 0..len {
                let blended = (0..4)
                    .fold(0.5f64, |sum, row| sum + weights[row] * f64::from(rows[row][index]));
                assert!((f64::from(out[index]) - blended).abs() <= 2e-3, "{index} of {len}");
                assert_eq!(sums[index], 2.0f32.mul_add(rows[1][index].to_f32(), 0.25));
                let value = rows[2][index].to_f32();
                let wanted = if index == 0 {
                    summand[0]
                } else {
                    (value - shift[index]).mul_add(factor[index], summand[index])
                };
                assert_eq!(values[index], f16::from_f32(wanted));
                assert_eq!(stored[index], f16::from_f32(shift[index]));
            }
        }
    }

    #[test]
    fn values_are_cast_between_all_types() {
        let values = [0.1f64, -2.5, f64::INFINITY, 1e300];
        let mut single = [0f32; 4];
        cast(&mut single, &values);
        assert_eq!(single, [0.1, -2.5, f32::INFINITY, f32::INFINITY]);
        let mut brain = [bf16::ZERO; 4];
        cast(&mut brain, &single);
        assert_eq!(brain[1], bf16::from_f32(-2.5));
        let mut double = [0f64; 4];
        cast(&mut double, &single);
        assert_eq!(double[0], f64::from(0.1f32));
    }
}
