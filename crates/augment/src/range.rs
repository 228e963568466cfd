//! Ranges from which numbers are drawn.

use serde::{Deserialize, Serialize};

use hsipack_format::random::Random;
use hsipack_format::{Error, Result};

/// Numbers from `low` to `high`, uniformly distributed. In JSON `[low, high]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct Range {
    /// Lower end, included.
    pub low: f64,
    /// Upper end, excluded.
    pub high: f64,
}

impl Range {
    /// From `low` to `high`.
    pub const fn new(low: f64, high: f64) -> Self {
        Self { low, high }
    }

    /// From -`most` to `most`.
    pub const fn around_zero(most: f64) -> Self {
        Self::new(-most, most)
    }

    /// A range with a single number.
    pub const fn only(value: f64) -> Self {
        Self::new(value, value)
    }

    pub(crate) fn draw(self, random: &mut Random) -> f64 {
        self.low + random.unit() * (self.high - self.low)
    }

    pub(crate) fn check(self, what: &str, least: f64, most: f64) -> Result<()> {
        let sound = self.low <= self.high && self.low >= least && self.high <= most;
        if sound && self.low.is_finite() && self.high.is_finite() {
            return Ok(());
        }
        let bounds = match (least.is_finite(), most.is_finite()) {
            // The smallest number above 0 has 309 digits.
            (true, false) if least == f64::MIN_POSITIVE => ", both above 0".to_owned(),
            (true, true) => format!(", both from {least} to {most}"),
            (true, false) => format!(", both {least} or more"),
            (false, true) => format!(", both {most} or less"),
            (false, false) => String::new(),
        };
        Err(Error::conflict(format!("{what} cannot be [{}, {}]", self.low, self.high))
            .with_remedy(format!("give [low, high] with low <= high{bounds}")))
    }
}

impl From<[f64; 2]> for Range {
    fn from([low, high]: [f64; 2]) -> Self {
        Self { low, high }
    }
}

impl From<Range> for [f64; 2] {
    fn from(range: Range) -> Self {
        [range.low, range.high]
    }
}

/// A standard normal number (Box and Muller 1958).
pub(crate) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// A number with the distribution Beta(`shape`, `shape`) (Jöhnk 1964; for large shapes Cheng's
/// ratio of gammas).
pub(crate) fn beta(shape: f64, random: &mut Random) -> f64 {
    let (a, b) = (gamma(shape, random), gamma(shape, random));
    if a + b > 0.0 { a / (a + b) } else { f64::from(u8::from(random.unit() < 0.5)) }
}

/// A number with the distribution Gamma(`shape`, 1) (Marsaglia and Tsang 2000).
fn gamma(shape: f64, random: &mut Random) -> f64 {
    if shape < 1.0 {
        let power = (1.0 - random.unit()).powf(1.0 / shape);
        return gamma(shape + 1.0, random) * power;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - random.unit()).ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::random::Stream;

    fn moments(mut draw: impl FnMut(&mut Random) -> f64) -> (f64, f64) {
        let mut random = Random::keyed(Stream::Augment, [1]);
        let values: Vec<f64> = (0..40_000).map(|_| draw(&mut random)).collect();
        let mean = values.iter().sum::<f64>() / 40_000.0;
        (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 40_000.0)
    }

    #[test]
    fn numbers_have_the_moments_of_their_distributions() {
        let near = |(mean, variance): (f64, f64), wanted: (f64, f64)| {
            assert!((mean - wanted.0).abs() < 0.02, "{mean} for {wanted:?}");
            assert!((variance - wanted.1).abs() < 0.03, "{variance} for {wanted:?}");
        };
        near(moments(normal), (0.0, 1.0));
        near(moments(|random| Range::new(2.0, 5.0).draw(random)), (3.5, 0.75));
        for shape in [0.3, 1.0, 4.0] {
            near(moments(|random| beta(shape, random)), (0.5, 0.25 / (2.0 * shape + 1.0)));
        }
    }

    #[test]
    fn ranges_are_checked() {
        assert!(Range::new(0.9, 1.1).check("a scale", 0.0, f64::INFINITY).is_ok());
        for (low, high) in [(2.0, 1.0), (-1.0, 1.0), (0.0, f64::INFINITY), (f64::NAN, 1.0)] {
            let error = Range::new(low, high).check("a scale", 0.0, f64::INFINITY).unwrap_err();
            assert!(error.to_string().contains("both 0 or more"), "{error}");
        }
        let error =
            Range::only(0.0).check("a scale", f64::MIN_POSITIVE, f64::INFINITY).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a scale cannot be [0, 0] (give [low, high] with low <= high, both above 0)"
        );
        assert_eq!(serde_json::to_string(&Range::around_zero(2.0)).unwrap(), "[-2.0,2.0]");
    }
}
