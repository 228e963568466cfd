//! The cast to fp16. It rounds only once, to nearest even, whatever the type of the value.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// Casts single-precision values, eight at a time if the processor supports it.
pub fn from_f32(values: &[f32], out: &mut [f16]) {
    out.convert_from_f32_slice(values);
}

/// Narrows double-precision values so that the following cast to fp16 rounds as if it were the only
/// one.
///
/// A plain cast to f32 may give a value exactly halfway between two fp16 values, and the next cast
/// would then round it as a tie, although the original value was not a tie. Rounding to odd records
/// in the last bit that something was cut off.
pub fn narrow(values: &[f64], out: &mut [f32]) {
    for (value, out) in values.iter().zip(out) {
        *out = narrow_one(*value);
    }
}

fn narrow_one(value: f64) -> f32 {
    let nearest = value as f32;
    let bits = nearest.to_bits();
    let back = f64::from(nearest);
    // Truncate towards zero, then set the last bit if anything was cut off.
    let away = back.abs() > value.abs();
    let truncated = bits - u32::from(away && nearest != 0.0);
    let inexact = back != value && value.is_finite();
    f32::from_bits(truncated | u32::from(inexact))
}

/// Casts one value, rounding once; for tests.
#[cfg(test)]
pub(crate) fn once(value: f64) -> f16 {
    f16::from_f32(narrow_one(value))
}

#[cfg(test)]
mod tests {
    use super::once as cast;
    use super::*;
    use proptest::prelude::*;

    /// The nearest fp16 value, found by comparing with both neighbours in double precision.
    fn nearest(value: f64) -> f16 {
        let start = f16::from_f32(value as f32);
        if !value.is_finite() {
            return start;
        }
        let candidates = [start.to_bits().wrapping_sub(1), start.to_bits(), start.to_bits() + 1]
            .map(f16::from_bits);
        let distance = |candidate: f16| {
            // For rounding, infinity counts as 65536.
            let y =
                if candidate.is_infinite() { 65536f64.copysign(value) } else { candidate.to_f64() };
            if y.is_nan() || y.signum() != value.signum() && y != 0.0 {
                f64::INFINITY
            } else {
                (y - value).abs()
            }
        };
        let best = candidates.map(distance).into_iter().fold(f64::INFINITY, f64::min);
        let ties: Vec<f16> =
            candidates.into_iter().filter(|candidate| distance(*candidate) == best).collect();
        *ties.iter().find(|tie| tie.to_bits() % 2 == 0).unwrap_or(&ties[0])
    }

    #[test]
    fn every_tie_and_its_neighbours_round_once() {
        for bits in 0..0x7C00u16 {
            let low = f16::from_bits(bits).to_f64();
            let high = if bits == 0x7BFF { 65536.0 } else { f16::from_bits(bits + 1).to_f64() };
            let tie = (low + high) / 2.0;
            for value in [tie, tie.next_down(), tie.next_up(), low, low.next_up()] {
                for value in [value, -value] {
                    assert_eq!(
                        cast(value).to_bits() & 0x7FFF,
                        nearest(value.abs()).to_bits(),
                        "{value:e}"
                    );
                    assert_eq!(cast(value).is_sign_negative(), value.is_sign_negative());
                }
            }
        }
    }

    #[test]
    fn special_values_stay_special() {
        assert!(cast(f64::NAN).is_nan());
        assert_eq!(cast(f64::INFINITY), f16::INFINITY);
        assert_eq!(cast(1e300), f16::INFINITY);
        assert_eq!(cast(-1e-300), f16::NEG_ZERO);
    }

    proptest! {
        #[test]
        fn any_value_rounds_as_one_cast(value in prop::num::f64::NORMAL | prop::num::f64::ZERO, exponent in -30i32..20) {
            let scaled = value % 2.0 * 2f64.powi(exponent);
            // `f16::from_f64` is not used here: it rounds twice if the processor has F16C.
            prop_assert_eq!(cast(scaled).to_bits() & 0x7FFF, nearest(scaled.abs()).to_bits());
        }
    }
}
