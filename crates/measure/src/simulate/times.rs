//! How load and step times are drawn.

use hsipack_read::Distribution;
use serde::{Deserialize, Serialize};

use super::random::{Use, normal, pair};
use crate::{Error, Result};

/// A distribution of times: each batch draws its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "distribution", rename_all = "kebab-case")]
pub enum Times {
    /// The log-normal distribution: times are never negative, and slow batches have a longer tail
    /// than fast ones, as in reading and decoding. With a standard deviation of 0, all times are
    /// equal.
    LogNormal {
        /// Mean in seconds.
        mean_s: f64,
        /// Standard deviation in seconds.
        sd_s: f64,
    },
    /// Measured times, given by percentiles. Between percentiles, times are interpolated evenly.
    /// Only between the last two they are interpolated so that the mean is the measured one:
    /// otherwise a few slow batches would count as a whole percent.
    Measured {
        /// Mean of the drawn times in seconds.
        mean_s: f64,
        /// Standard deviation of the drawn times in seconds.
        sd_s: f64,
        /// Percentiles in seconds, ascending, at equal steps from the minimum to the maximum.
        percentiles_s: Vec<f64>,
        /// Exponent for times between the last two percentiles: a uniform number from 0 to 1,
        /// raised to this power, is the relative position of the time between them.
        tail_power: f64,
    },
}

/// A standard deviation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// As a fraction of the mean.
    Share(f64),
    /// In seconds.
    Seconds(f64),
}

impl Spread {
    /// In seconds, for times of this mean.
    pub fn of(self, mean: f64) -> f64 {
        match self {
            Self::Share(share) => share * mean,
            Self::Seconds(seconds) => seconds,
        }
    }
}

/// The longest time that can be drawn or simulated: ten years in seconds.
pub(super) const LONGEST_S: f64 = 10.0 * 365.0 * 86400.0;

/// The largest `tail_power`. It keeps the exponent finite if the mean is hardly above the lower of
/// the last two percentiles.
const MAX_TAIL_POWER: f64 = 1e6;

impl Times {
    /// Times with this mean and standard deviation in seconds.
    pub fn new(mean_s: f64, sd_s: f64) -> Self {
        Self::LogNormal { mean_s, sd_s }
    }

    /// Measured times. If a distribution has no percentiles, its mean and standard deviation are
    /// used.
    ///
    /// # Errors
    /// If the distribution contains no times, or times that are negative, not finite, not in order,
    /// or all 0.
    pub fn measured(distribution: &Distribution) -> Result<Self> {
        let Distribution { mean, sd, percentiles, .. } = distribution;
        if percentiles.is_empty() && *mean == 0.0 {
            return Err(Error::malformed("has no times"));
        }
        let times = match percentiles.as_slice() {
            [] => Self::new(*mean, *sd),
            [only] => Self::new(*only, 0.0),
            all => Self::of_percentiles(all.to_vec(), *mean),
        };
        times.check()?;
        Ok(times)
    }

    /// Times from at least two percentiles, with this mean if times between the percentiles can
    /// have it.
    fn of_percentiles(percentiles_s: Vec<f64>, mean: f64) -> Self {
        let parts = (percentiles_s.len() - 1) as f64;
        let (body, tail) = percentiles_s.split_at(percentiles_s.len() - 2);
        let (low, above) = (tail[0], tail[1] - tail[0]);
        let body = || body.iter().zip(&percentiles_s[1..]);
        // Below the tail, all times between two percentiles are equally likely.
        let body_sum: f64 = body().map(|(a, b)| (a + b) / 2.0).sum();
        let body_squares: f64 = body().map(|(a, b)| (a * a + a * b + b * b) / 3.0).sum();
        // A uniform number from 0 to 1, raised to the power p, has the mean 1 / (p + 1).
        let wanted = (parts * mean - body_sum - low) / above;
        let tail_power =
            if above > 0.0 { 1.0 / wanted.clamp(1.0 / MAX_TAIL_POWER, 1.0) - 1.0 } else { 1.0 };
        let of_tail = |power: f64| 1.0 / (power * tail_power + 1.0);
        let mean_s = (body_sum + low + above * of_tail(1.0)) / parts;
        let tail_square =
            low * low + 2.0 * low * above * of_tail(1.0) + above * above * of_tail(2.0);
        let square = (body_squares + tail_square) / parts;
        let sd_s = (square - mean_s * mean_s).max(0.0).sqrt();
        Self::Measured { mean_s, sd_s, percentiles_s, tail_power }
    }

    /// Mean in seconds.
    pub fn mean_s(&self) -> f64 {
        match self {
            Self::LogNormal { mean_s, .. } | Self::Measured { mean_s, .. } => *mean_s,
        }
    }

    /// Standard deviation in seconds.
    pub fn sd_s(&self) -> f64 {
        match self {
            Self::LogNormal { sd_s, .. } | Self::Measured { sd_s, .. } => *sd_s,
        }
    }

    /// The same times, multiplied by a factor.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        match self {
            Self::LogNormal { mean_s, sd_s } => Self::new(mean_s * factor, sd_s * factor),
            Self::Measured { mean_s, percentiles_s, .. } => {
                let percentiles_s = percentiles_s.iter().map(|time| time * factor).collect();
                Self::of_percentiles(percentiles_s, mean_s * factor)
            }
        }
    }

    /// # Errors
    /// If the times are not valid; the message is a clause.
    pub(super) fn check(&self) -> Result<()> {
        let (mean, sd) = (self.mean_s(), self.sd_s());
        let good = |time: f64| time.is_finite() && (0.0..=LONGEST_S).contains(&time);
        let ordered = match self {
            Self::LogNormal { .. } => true,
            Self::Measured { percentiles_s: all, .. } => {
                all.iter().all(|time| good(*time)) && all.windows(2).all(|pair| pair[0] <= pair[1])
            }
        };
        if !good(mean) || !good(sd) || !ordered {
            Err(Error::malformed(
                "has times that are negative, not finite, not in order, or longer than ten years",
            ))
        } else if nanoseconds(mean) == 0 {
            Err(Error::malformed("has times of 0"))
        } else {
            Ok(())
        }
    }

    /// Returns a function that draws the time with a given number, in nanoseconds. Times are at
    /// least 1 ns, so that time advances.
    pub(super) fn drawer(&self, seed: u64, what: Use) -> impl Fn(u64) -> u64 + '_ {
        // For a mean m and a standard deviation s, the logarithm has the variance ln(1 + (s/m)²).
        let (mean, sd) = (self.mean_s(), self.sd_s());
        let variance = (sd / mean).powi(2).ln_1p();
        let (centre, width) = (mean.ln() - variance / 2.0, variance.sqrt());
        move |number| {
            let seconds = match self {
                Self::LogNormal { .. } if width == 0.0 => mean,
                Self::LogNormal { .. } => (centre + width * normal(pair(seed, what, number))).exp(),
                Self::Measured { percentiles_s, tail_power, .. } => {
                    let [share, _] = pair(seed, what, number);
                    let position = share * (percentiles_s.len() - 1) as f64;
                    let (part, within) = (position as usize, position.fract());
                    let (low, high) = (percentiles_s[part], percentiles_s[part + 1]);
                    let in_tail = part + 2 == percentiles_s.len();
                    low + (high - low) * if in_tail { within.powf(*tail_power) } else { within }
                }
            };
            nanoseconds(seconds.min(LONGEST_S)).max(1)
        }
    }
}

/// Seconds as whole nanoseconds; ten years need 59 bits.
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Nanoseconds as seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation of the drawn times.
    fn drawn(times: &Times) -> (f64, f64) {
        let draw = times.drawer(3, Use::Load);
        let distribution = Distribution::of((0..200_000).map(|number| seconds(draw(number))));
        (distribution.mean, distribution.sd)
    }

    #[test]
    fn times_have_the_mean_and_spread_asked_for() {
        for times in [
            Times::new(0.7, 0.0),
            Times::new(0.7, 0.035),
            Times::new(0.7, 0.7),
            Times::measured(&Distribution::of([1.0, 2.0, 2.5, 9.0])).unwrap(),
        ] {
            let (mean, sd) = drawn(&times);
            assert!((mean / times.mean_s() - 1.0).abs() < 0.01, "{times:?} {mean}");
            assert!((sd - times.sd_s()).abs() < 0.02 * times.sd_s().max(1e-9), "{times:?} {sd}");
        }
    }

    #[test]
    fn one_slow_batch_is_not_taken_for_a_whole_percent() {
        // One of 10 000 batches took a second instead of 1 ms: the mean is 1.1 ms.
        let measured = Distribution::of((0..10_000).map(|n| if n == 0 { 1.0 } else { 1e-3 }));
        let times = Times::measured(&measured).unwrap();
        let near = |a: f64, b: f64, within: f64| assert!((a / b - 1.0).abs() < within, "{a} {b}");
        near(times.mean_s(), measured.mean, 1e-9);
        near(drawn(&times).0, measured.mean, 0.05);
        near(times.times(0.5).mean_s(), measured.mean / 2.0, 1e-9);
        // No times between these percentiles can have this mean.
        for (mean, drawn) in [(0.0, 1.0), (5.0, 2.0)] {
            let (count, sd, percentiles) = (9, 0.0, vec![1.0, 2.0]);
            let times = Times::measured(&Distribution { count, mean, sd, percentiles }).unwrap();
            near(times.mean_s(), drawn, 1e-5);
        }
    }

    #[test]
    fn measured_times_stay_within_what_was_measured() {
        let times = Times::measured(&Distribution::of((0..50).map(|n| 0.1 + f64::from(n) / 100.0)))
            .unwrap();
        let draw = times.drawer(0, Use::Step);
        assert!(
            (0..10_000)
                .map(|number| seconds(draw(number)))
                .all(|time| (0.1..=0.59).contains(&time))
        );
        assert!((times.times(2.0).mean_s() - 2.0 * times.mean_s()).abs() < 1e-12);
    }

    #[test]
    fn invalid_times_are_refused() {
        let of = |mean, percentiles: &[f64]| {
            Times::measured(&Distribution {
                count: 1,
                mean,
                sd: 0.0,
                percentiles: percentiles.to_vec(),
            })
        };
        assert!(of(1.0, &[]).is_ok() && of(1.0, &[1.0]).is_ok() && of(1.0, &[0.0, 1.0]).is_ok());
        for bad in [
            of(0.0, &[]),
            of(-1.0, &[]),
            of(f64::NAN, &[]),
            of(1.0, &[2.0, 1.0]),
            of(1.0, &[0.0, 0.0]),
            of(1.0, &[-1.0, 2.0]),
        ] {
            assert!(bad.is_err());
        }
    }
}
