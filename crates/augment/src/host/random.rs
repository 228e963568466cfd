//! Random numbers for every value of an image: fast, and the same on every processor.
//!
//! The numbers come from SplitMix64's stream for a seed: uniform ones from its upper bits, normal
//! ones in pairs by the formula of Box and Muller. Logarithm, sine and cosine are polynomials (as
//! in Cephes, accurate to 1e-7), computed for several pairs at once.

use hsipack_format::random::{Random, fold};

/// Number of values from one stream. Longer runs are cut into pieces with their own seeds, so that
/// threads can share them.
pub(super) const PIECE: usize = 1 << 16;
/// Number of pairs computed at once.
const BLOCK: usize = 64;

/// Standard normal numbers for piece `number` of the noise with this `seed`.
pub(super) fn normal(seed: u64, number: usize, out: &mut [f32]) {
    let mut random = Random::from_key(fold([seed, number as u64]));
    for block in out.chunks_mut(2 * BLOCK) {
        let (mut radius, mut turn) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        for (radius, turn) in radius.iter_mut().zip(&mut turn) {
            let bits = random.bits();
            // (0, 1] and [0, 1].
            *radius = ((bits >> 32) as f32 + 1.0) * (1.0 / 4_294_967_296.0);
            *turn = (bits as u32) as f32 * (1.0 / 4_294_967_296.0);
        }
        let (mut cosines, mut sines) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        for index in 0..BLOCK {
            let length = (-2.0 * ln(radius[index])).max(0.0).sqrt();
            let (sine, cosine) = sine_and_cosine(turn[index]);
            (cosines[index], sines[index]) = (length * cosine, length * sine);
        }
        let (first, second) = block.split_at_mut(block.len().min(BLOCK));
        first.copy_from_slice(&cosines[..first.len()]);
        second.copy_from_slice(&sines[..second.len()]);
    }
}

/// Numbers in [-1, 1).
pub(super) fn uniform(seed: u64, out: &mut [f32]) {
    let mut random = Random::from_key(seed);
    for value in out {
        *value = (random.bits() >> 40) as f32 * (1.0 / 8_388_608.0) - 1.0;
    }
}

/// The natural logarithm of a normal (not subnormal) number above 0.
fn ln(x: f32) -> f32 {
    // x = m·2^e with m from √½ to √2.
    let bits = x.to_bits();
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let exponent = (shifted as i32) >> 23;
    let m = f32::from_bits(bits.wrapping_sub((exponent as u32) << 23)) - 1.0;
    let z = m * m;
    const TERMS: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_7e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ];
    let mut series = TERMS[0];
    for term in &TERMS[1..] {
        series = series.mul_add(m, *term);
    }
    let e = exponent as f32;
    let y = (series * m).mul_add(z, -2.121_944_4e-4 * e) - 0.5 * z;
    0.693_359_4f32.mul_add(e, m + y)
}

/// Sine and cosine of an angle in turns, from 0 to 1.
fn sine_and_cosine(turns: f32) -> (f32, f32) {
    let quarters = turns * 4.0;
    let whole = quarters.round_ties_even();
    let x = (quarters - whole) * std::f32::consts::FRAC_PI_2;
    let z = x * x;
    let sine = ((-1.951_529_6e-4f32).mul_add(z, 8.332_161e-3).mul_add(z, -1.666_665_5e-1) * z)
        .mul_add(x, x);
    let cosine = (2.443_315_7e-5f32.mul_add(z, -1.388_731_6e-3).mul_add(z, 4.166_664_6e-2) * z)
        .mul_add(z, 1.0 - 0.5 * z);
    let quarter = whole as i32 & 3;
    let (a, b) = if quarter & 1 == 0 { (sine, cosine) } else { (cosine, sine) };
    (if quarter & 2 == 0 { a } else { -a }, if (quarter + 1) & 2 == 0 { b } else { -b })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomials_are_the_functions() {
        for step in 1..=20_000u32 {
            let x = step as f32 / 20_000.0;
            assert!((ln(x) - x.ln()).abs() <= 3e-7 * (1.0 + x.ln().abs()), "{x}");
            let (sine, cosine) = sine_and_cosine(x);
            let angle = f64::from(x) * std::f64::consts::TAU;
            let far = |value: f32, want: f64| (f64::from(value) - want).abs();
            assert!(far(sine, angle.sin()) < 4e-7 && far(cosine, angle.cos()) < 4e-7, "{x}");
        }
        assert!((ln(1.0 / 4_294_967_296.0) + 22.180_71).abs() < 1e-4);
    }

    #[test]
    fn normal_numbers_are_normal() {
        let mut values = vec![0.0f32; 400_001];
        for (number, piece) in values.chunks_mut(PIECE).enumerate() {
            normal(7, number, piece);
        }
        let moment = |power: i32| {
            values.iter().map(|value| f64::from(*value).powi(power)).sum::<f64>() / 400_001.0
        };
        assert!(
            moment(1).abs() < 0.008 && (moment(2) - 1.0).abs() < 0.012,
            "{} {}",
            moment(1),
            moment(2)
        );
        assert!(
            moment(3).abs() < 0.03 && (moment(4) - 3.0).abs() < 0.08,
            "{} {}",
            moment(3),
            moment(4)
        );
        // The Kolmogorov-Smirnov distance from the distribution, at some points.
        for (bound, share) in [(-2.0, 0.022_750), (-1.0, 0.158_655), (0.0, 0.5), (1.5, 0.933_193)] {
            let below = values.iter().filter(|value| **value < bound).count() as f64 / 400_001.0;
            assert!((below - share).abs() < 0.003, "{below} below {bound}");
        }
        // Neighbouring numbers, and the two numbers of a pair, are uncorrelated.
        for apart in [1, BLOCK, 2 * BLOCK] {
            let pairs = values.iter().zip(&values[apart..]);
            let product: f64 = pairs.map(|(a, b)| f64::from(a * b)).sum();
            assert!((product / 400_001.0).abs() < 0.008, "{apart}: {product}");
        }
    }

    #[test]
    fn numbers_depend_on_the_seed_alone() {
        let numbers = |seed| {
            let mut values = [0.0; 100];
            normal(seed, 0, &mut values);
            values
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
        let mut values = [0.0; 1000];
        uniform(3, &mut values);
        assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
        assert!(
            values.iter().any(|value| *value < -0.9) && values.iter().any(|value| *value > 0.9)
        );
    }
}
