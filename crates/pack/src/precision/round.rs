//! Rounds values to the nearest float with fewer mantissa bits.
//!
//! A value with N mantissa bits is a float16 (or float32) value whose other mantissa bits are zero,
//! subnormal numbers included. Values are rounded as in IEEE 754, to nearest with ties to even,
//! before any cast. NaN, infinities and the sign of zero stay.
//!
//! Finite values stay finite: if the full type can hold a value, but it would round up beyond the
//! greatest value with N bits, it becomes that greatest value. Its relative error is below
//! 2^-(N+1), as for all other values.

use half::f16;
use hsipack_format::DType;

/// Number of mantissa bits of a packed type, without the implicit leading bit.
pub const fn mantissa_bits(dtype: DType) -> u8 {
    match dtype {
        DType::F32 => 23,
        _ => 10,
    }
}

/// The lowest exponent of normal numbers and the highest exponent of a type.
const fn exponents(dtype: DType) -> (i32, i32) {
    match dtype {
        DType::F32 => (-126, 127),
        _ => (-14, 15),
    }
}

/// 2 to the power of `exponent`, which double precision must be able to hold.
fn power(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The greatest value of `dtype` with `bits` mantissa bits.
pub fn greatest(bits: u8, dtype: DType) -> f64 {
    let (_, most) = exponents(dtype);
    (2.0 - power(-i32::from(bits))) * power(most)
}

/// The value of `dtype` with `bits` mantissa bits nearest to `value`, rounded once. It is infinite
/// if `value` is too large for `dtype` with all its bits.
pub fn nearest(value: f64, bits: u8, dtype: DType) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let (least, most) = exponents(dtype);
    let exponent = ((value.to_bits() >> 52) & 0x7FF) as i32 - 1023;
    // If this is added to a smaller value, the last bit of the sum is the last bit to keep, so the processor rounds
    // there.
    let pivot = power(exponent.clamp(least, most + 1) + 52 - i32::from(bits));
    let rounded = (value.abs() + pivot) - pivot;
    let overflow = (2.0 - power(-i32::from(mantissa_bits(dtype)) - 1)) * power(most);
    let rounded =
        if value.abs() >= overflow { f64::INFINITY } else { rounded.min(greatest(bits, dtype)) };
    rounded.copysign(value)
}

/// Rounds values to the nearest float16 value with `bits` mantissa bits (1 to 10). The results are
/// single precision, and a cast to float16 does not change them. A value that float16 cannot hold
/// stays too large for it, as in a plain cast.
///
/// Values that were narrowed to single precision by rounding to odd give the same result as if they
/// were rounded directly: single precision has the two extra bits that this needs.
pub fn round_f16(values: &[f32], bits: u8, out: &mut [f32]) {
    let shift = (23 - u32::from(bits.min(10))) << 23;
    let greatest = greatest(bits.min(10), DType::F16) as f32;
    for (value, out) in values.iter().zip(out) {
        *out = round_one(*value, shift, greatest);
    }
}

/// Rounds values to the nearest float32 value with `bits` mantissa bits. The dropped bits of NaN
/// are also cleared.
pub fn round_f32(values: &[f32], bits: u8, out: &mut [f32]) {
    let keep = !((1u32 << (23 - u32::from(bits.min(23)))) - 1);
    for (value, out) in values.iter().zip(out) {
        let rounded = nearest(f64::from(*value), bits, DType::F32) as f32;
        // A NaN whose mantissa bits are all cleared would become an infinity.
        let quiet =
            if value.is_nan() { rounded.to_bits() | 0x0040_0000 } else { rounded.to_bits() };
        *out = f32::from_bits(quiet & keep);
    }
}

/// The same as [`nearest`], but in single precision and without branches, so that the compiler can
/// vectorise it.
fn round_one(value: f32, shift: u32, greatest: f32) -> f32 {
    const MIN_EXPONENT: u32 = (127 - 14) << 23;
    const MAX_EXPONENT: u32 = (127 + 16) << 23;
    /// Halfway between the greatest float16 value and the one that would follow.
    const OVERFLOW: f32 = 65520.0;
    let magnitude = value.abs();
    let exponent = (magnitude.to_bits() & 0x7F80_0000).clamp(MIN_EXPONENT, MAX_EXPONENT);
    let pivot = f32::from_bits(exponent + shift);
    let rounded = (magnitude + pivot) - pivot;
    let saturated = if rounded > greatest && magnitude < OVERFLOW { greatest } else { rounded };
    saturated.copysign(value)
}

/// Clears the mantissa bits that are not kept. In rounded finite values they are zero already, but
/// not in NaN.
pub(crate) fn clear_f16(values: &mut [f16], bits: u8) {
    let keep = !((1u16 << (10 - bits.min(10))) - 1);
    bytemuck::cast_slice_mut::<f16, u16>(values).iter_mut().for_each(|value| *value &= keep);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All non-negative finite values with `bits` mantissa bits, by their bit patterns.
    fn grid(bits: u8) -> Vec<f64> {
        let step = 1usize << (10 - bits);
        (0..0x7C00u16).step_by(step).map(|pattern| f16::from_bits(pattern).to_f64()).collect()
    }

    /// The nearest value of the grid, found by searching. Ties go to the pattern whose last kept
    /// bit is zero.
    fn oracle(value: f64, grid: &[f64]) -> f64 {
        if !value.is_finite() {
            return value;
        }
        let magnitude = value.abs();
        if magnitude >= 65520.0 {
            return f64::INFINITY.copysign(value);
        }
        let above = grid.partition_point(|point| *point < magnitude);
        let (low, high) = (above.saturating_sub(1), above.min(grid.len() - 1));
        let (down, up) = (magnitude - grid[low], grid[high] - magnitude);
        let index = match down.total_cmp(&up) {
            _ if above == grid.len() => grid.len() - 1,
            std::cmp::Ordering::Less => low,
            std::cmp::Ordering::Greater => high,
            std::cmp::Ordering::Equal => [low, high].into_iter().find(|at| at % 2 == 0).unwrap(),
        };
        grid[index].copysign(value)
    }

    /// The steps of a conversion: narrowed to single precision, rounded, cast.
    fn packed(value: f64, bits: u8) -> f16 {
        let mut single = [0.0];
        crate::convert::cast::narrow(&[value], &mut single);
        let mut rounded = [0.0];
        round_f16(&single, bits, &mut rounded);
        let mut out = [f16::ZERO];
        crate::convert::cast::from_f32(&rounded, &mut out);
        assert!(out[0].is_nan() || f32::from(out[0]) == rounded[0] || out[0].is_infinite());
        clear_f16(&mut out, bits);
        out[0]
    }

    fn same(a: f64, b: f64) -> bool {
        a.is_nan() && b.is_nan() || a.to_bits() == b.to_bits()
    }

    #[test]
    fn every_tie_and_its_neighbours_round_once() {
        for bits in 1..=10 {
            let grid = grid(bits);
            for (index, low) in grid.iter().enumerate() {
                let high = grid.get(index + 1).copied().unwrap_or(65520.0);
                let tie = (low + high) / 2.0;
                // Rounding twice goes wrong within half a float16 step of the tie.
                let near = tie.max(1e-9) * 2f64.powi(-12);
                for value in
                    [*low, tie, tie.next_up(), tie.next_down(), tie + near, tie - near, high]
                {
                    for value in [value, -value] {
                        let want = oracle(value, &grid);
                        assert!(same(nearest(value, bits, DType::F16), want), "{bits} {value:e}");
                        assert!(same(packed(value, bits).to_f64(), want), "{bits} {value:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn ten_bits_are_a_plain_cast() {
        for pattern in 0..=u16::MAX {
            let value = f16::from_bits(pattern);
            assert!(same(packed(value.to_f64(), 10).to_f64(), value.to_f64()));
        }
        assert_eq!(greatest(10, DType::F16), 65504.0);
        assert_eq!(greatest(23, DType::F32), f64::from(f32::MAX));
    }

    #[test]
    fn special_values_stay_special_and_finite_ones_finite() {
        for bits in 1..=10 {
            for value in [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                assert!(same(packed(value, bits).to_f64(), value));
                assert!(same(nearest(value, bits, DType::F16), value));
            }
            // A value that becomes zero keeps its sign.
            assert_eq!(packed(-1e-12, bits).to_bits(), 0x8000);
            let most = greatest(bits, DType::F16);
            assert_eq!(packed(65519.9, bits).to_f64(), most);
            assert_eq!(packed(-65504.0, bits).to_f64(), -most);
            assert!((65504.0 - most) / 65504.0 < 2f64.powi(-i32::from(bits) - 1));
            assert!(packed(65520.0, bits).is_infinite());
            assert!(packed(1e300, bits).is_infinite());
            let nan = f16::from_bits(0x7E01);
            let mut cleared = [nan];
            clear_f16(&mut cleared, bits);
            assert!(cleared[0].is_nan());
        }
    }

    #[test]
    fn two_roundings_would_differ() {
        // Just above the tie of 7 bits: the cast to float16 rounds down to the tie, and the tie goes to even.
        let value = 1.0 + 2f64.powi(-8) + 2f64.powi(-12);
        let twice = nearest(f16::from_f64(value).to_f64(), 7, DType::F16);
        assert_eq!(twice, 1.0);
        assert_eq!(nearest(value, 7, DType::F16), 1.0 + 2f64.powi(-7));
        assert_eq!(packed(value, 7).to_f64(), 1.0 + 2f64.powi(-7));
    }

    proptest! {
        #[test]
        fn any_value_rounds_to_the_nearest(
            value in prop::num::f64::NORMAL | prop::num::f64::ZERO, exponent in -30i32..20, bits in 1u8..=10
        ) {
            let value = value % 2.0 * 2f64.powi(exponent);
            let want = oracle(value, &grid(bits));
            prop_assert!(same(nearest(value, bits, DType::F16), want));
            prop_assert!(same(packed(value, bits).to_f64(), want));
        }

        #[test]
        fn float32_loses_its_last_bits(pattern in any::<u32>(), bits in 1u8..=21) {
            let value = f32::from_bits(pattern);
            let rounded = nearest(value.into(), bits, DType::F32);
            prop_assume!(value.is_finite());
            prop_assert_eq!(f64::from(rounded as f32), rounded);
            prop_assert_eq!((rounded as f32).to_bits() & ((1 << (23 - bits)) - 1), 0);
            // The same with integers, if it cannot overflow.
            let drop = 23 - u32::from(bits);
            let even = pattern >> drop & 1;
            let simple = f32::from_bits(pattern.wrapping_add((1 << (drop - 1)) - 1 + even) & !((1 << drop) - 1));
            if simple.is_finite() {
                prop_assert_eq!(simple.to_bits(), (rounded as f32).to_bits());
            } else {
                prop_assert_eq!(rounded.abs(), greatest(bits, DType::F32));
            }
        }
    }
}
