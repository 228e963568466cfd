//! Normalising the spectrum of a pixel: the one rule that `convert`, loaders and augmentations
//! follow.
//!
//! | | every known value is divided by | after |
//! |---|---|---|
//! | [`SpectralNorm::L1`] | the sum of absolute values | |
//! | [`SpectralNorm::L2`] | the root of the sum of squares | |
//! | [`SpectralNorm::Snv`] | the standard deviation over n − 1 | subtracting the mean |
//!
//! - A value is *known* if it is finite. NaN and infinities are not counted in sums, means or n,
//!   and become NaN.
//! - If there is nothing to divide by, known values become 0. For L1 and L2 this happens if all
//!   known values are zero; for SNV, if all known values are equal or there is only one; for all
//!   three, if a sum exceeds the range of the type.

use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// How a spectrum is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectralNorm {
    /// Absolute values add up to 1.
    L1,
    /// Squares add up to 1.
    L2,
    /// Standard normal variate: mean 0, standard deviation (n − 1) 1.
    Snv,
}

/// The type that spectra are computed in: `f32` or `f64`.
pub trait Real:
    Copy
    + PartialOrd
    + AddAssign
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// Zero.
    const ZERO: Self;
    /// Not a number.
    const NAN: Self;
    /// The nearest number.
    fn from_f64(value: f64) -> Self;
    /// Converts a count of values.
    fn of_count(count: usize) -> Self;
    /// Whether the value is neither NaN nor infinite.
    fn is_finite(self) -> bool;
    /// The absolute value.
    fn abs(self) -> Self;
    /// The square root.
    fn sqrt(self) -> Self;
}

macro_rules! real {
    ($type:ty) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const NAN: Self = <$type>::NAN;
            #[inline]
            fn from_f64(value: f64) -> Self {
                value as Self
            }
            #[inline]
            fn of_count(count: usize) -> Self {
                count as Self
            }
            #[inline]
            fn is_finite(self) -> bool {
                self.is_finite()
            }
            #[inline]
            fn abs(self) -> Self {
                self.abs()
            }
            #[inline]
            fn sqrt(self) -> Self {
                self.sqrt()
            }
        }
    };
}

real!(f32);
real!(f64);

/// Normalises one spectrum in place, by the rule above.
///
/// ```
/// use hsipack_format::spectrum::{SpectralNorm, normalize};
///
/// let mut spectrum = [1.0f32, f32::NAN, -3.0];
/// normalize(&mut spectrum, SpectralNorm::L1);
/// assert_eq!((spectrum[0], spectrum[2]), (0.25, -0.75));
/// assert!(spectrum[1].is_nan());
/// ```
pub fn normalize<T: Real>(values: &mut [T], norm: SpectralNorm) {
    // If the sums are finite, all values are finite. So spectra without missing values need no check of each value.
    if let Some(scale) = Scale::of(values, norm, |_| true) {
        values.iter_mut().for_each(|value| *value = scale.apply(*value));
        return;
    }
    let scale = Scale::of(values, norm, T::is_finite);
    for value in values {
        *value = match &scale {
            _ if !value.is_finite() => T::NAN,
            Some(scale) => scale.apply(*value),
            None => T::ZERO,
        };
    }
}

/// The shift and the divisor of a spectrum.
struct Scale<T> {
    /// Subtracted first. It is a value of the spectrum, so that a spectrum of equal values has a
    /// spread of exactly 0, however its sum is rounded.
    pivot: T,
    shift: T,
    divisor: T,
}

impl<T: Real> Scale<T> {
    /// Computes the scale from the values for which `is_valid` is true. `None` if there is nothing
    /// to divide by, or if a sum is not finite.
    fn of(values: &[T], norm: SpectralNorm, is_valid: impl Fn(T) -> bool + Copy) -> Option<Self> {
        let part = |value: T, part: T| if is_valid(value) { part } else { T::ZERO };
        let (pivot, shift, divisor) = match norm {
            SpectralNorm::L1 => (T::ZERO, T::ZERO, sum(values, |value| part(value, value.abs()))),
            SpectralNorm::L2 => {
                (T::ZERO, T::ZERO, sum(values, |value| part(value, value * value)).sqrt())
            }
            SpectralNorm::Snv => {
                let pivot = values.iter().copied().find(|value| is_valid(*value))?;
                let count = values.iter().filter(|value| is_valid(**value)).count();
                let shift = sum(values, |value| part(value, value - pivot)) / T::of_count(count);
                let square = |value: T| {
                    let difference = value - pivot - shift;
                    part(value, difference * difference)
                };
                (pivot, shift, (sum(values, square) / T::of_count(count - 1)).sqrt())
            }
        };
        let usable = divisor.is_finite() && divisor > T::ZERO;
        usable.then_some(Self { pivot, shift, divisor })
    }

    fn apply(&self, value: T) -> T {
        (value - self.pivot - self.shift) / self.divisor
    }
}

/// Keeps eight sums in parallel, so that the compiler can add eight values at a time.
fn sum<T: Real>(values: &[T], part: impl Fn(T) -> T) -> T {
    let mut sums = [T::ZERO; 8];
    let (whole, tail) = values.as_chunks::<8>();
    for values in whole {
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += part(*value);
        }
    }
    let mut total = T::ZERO;
    sums.into_iter().for_each(|sum| total += sum);
    tail.iter().for_each(|value| total += part(*value));
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NORMS: [SpectralNorm; 3] = [SpectralNorm::L1, SpectralNorm::L2, SpectralNorm::Snv];

    /// The definition, value by value.
    fn oracle(values: &[f64], norm: SpectralNorm) -> Vec<f64> {
        let valid: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let count = valid.len() as f64;
        let mean = valid.iter().sum::<f64>() / count;
        let (shift, divisor) = match norm {
            SpectralNorm::L1 => (0.0, valid.iter().map(|value| value.abs()).sum::<f64>()),
            SpectralNorm::L2 => (0.0, valid.iter().map(|value| value * value).sum::<f64>().sqrt()),
            SpectralNorm::Snv if valid.iter().all(|value| *value == valid[0]) => (mean, 0.0),
            SpectralNorm::Snv => {
                let squares: f64 = valid.iter().map(|value| (value - mean).powi(2)).sum();
                (mean, (squares / (count - 1.0)).sqrt())
            }
        };
        let normalized = |value: &f64| match () {
            () if !value.is_finite() => f64::NAN,
            () if divisor == 0.0 => 0.0,
            () => (value - shift) / divisor,
        };
        values.iter().map(normalized).collect()
    }

    fn check(values: &[f64]) {
        let same = |have: f64, want: f64, within: f64| {
            have.is_nan() && want.is_nan() || (have - want).abs() <= within * want.abs().max(1.0)
        };
        for norm in NORMS {
            let mut double = values.to_vec();
            normalize(&mut double, norm);
            let want = oracle(values, norm);
            for (have, want) in double.iter().zip(&want) {
                assert!(same(*have, *want, 1e-9), "{norm:?} of {values:?}: {have} {want}");
            }
            let single: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            let exact: Vec<f64> = single.iter().map(|value| f64::from(*value)).collect();
            let (mut got, want) = (single.clone(), oracle(&exact, norm));
            normalize(&mut got, norm);
            for (have, want) in got.iter().zip(&want) {
                assert!(same((*have).into(), *want, 2e-3), "{norm:?} of {single:?}: {have} {want}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_spectrum_follows_the_definition(
            numbers in prop::collection::vec(-1000i32..1000, 0..40),
            gaps in prop::collection::vec(0usize..12, 0..40),
        ) {
            let mut values: Vec<f64> = numbers.iter().map(|number| f64::from(*number) / 8.0).collect();
            for (value, gap) in values.iter_mut().zip(gaps) {
                *value = match gap {
                    0 => f64::NAN,
                    1 => f64::INFINITY,
                    2 => f64::NEG_INFINITY,
                    _ => *value,
                };
            }
            check(&values);
        }
    }

    #[test]
    fn constant_spectra_become_zero() {
        for values in [vec![0.0; 9], vec![0.0, f64::NAN, 0.0], vec![f64::NAN; 3], vec![], vec![0.0]]
        {
            check(&values);
        }
        for value in [0.1, 1.0 / 3.0, -1234.567, 1e-7] {
            for bands in [1, 2, 7, 100, 224] {
                let mut gap = vec![value; bands];
                gap.push(f64::NAN);
                check(&vec![value; bands]);
                check(&gap);
                let mut single = vec![value as f32; bands];
                normalize(&mut single, SpectralNorm::Snv);
                assert!(single.iter().all(|value| *value == 0.0), "{bands} times {value}");
            }
        }
    }

    #[test]
    fn sums_beyond_the_range_of_the_type_give_zeros() {
        for norm in NORMS {
            let mut values = [f32::MAX, -f32::MAX, f32::MAX, f32::NAN];
            normalize(&mut values, norm);
            assert_eq!(values[..3], [0.0; 3], "{norm:?}");
            assert!(values[3].is_nan());
        }
    }
}
