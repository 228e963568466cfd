//! How load and step times are drawn.

use hsipack_read::Distribution;
use serde::Serialize;

use super::random::{Use, normal, pair};
use crate::{Error, Result};

/// How long something takes, each time anew.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "distribution", rename_all = "kebab-case")]
pub enum Times {
    /// The log-normal distribution: never negative, and with a longer tail of slow batches than of fast ones, as
    /// reading and decoding have. A standard deviation of 0 makes all times equal.
    LogNormal {
        /// Mean in seconds.
        mean_s: f64,
        /// Standard deviation in seconds.
        sd_s: f64,
    },
    /// Measured times, by percentiles between which times are interpolated.
    Measured {
        /// Mean in seconds of what is drawn.
        mean_s: f64,
        /// Standard deviation in seconds of what is drawn.
        sd_s: f64,
        /// Percentiles in seconds, ascending, at equal steps from the least to the largest.
        percentiles_s: Vec<f64>,
    },
}

/// The longest time that can be drawn or simulated: ten years in seconds.
pub(super) const LONGEST_S: f64 = 10.0 * 365.0 * 86400.0;

impl Times {
    /// Times of a mean and a standard deviation in seconds.
    pub fn new(mean_s: f64, sd_s: f64) -> Self {
        Self::LogNormal { mean_s, sd_s }
    }

    /// Measured times. A distribution without percentiles is taken by its mean and standard deviation.
    ///
    /// # Errors
    /// If there are no times in it, or they are no times: negative, not finite, not in order, or all 0.
    pub fn measured(distribution: &Distribution) -> Result<Self> {
        let Distribution { mean, sd, percentiles, .. } = distribution;
        if percentiles.is_empty() && *mean == 0.0 {
            return Err(Error::malformed("has no times"));
        }
        let times = match percentiles.as_slice() {
            [] => Self::new(*mean, *sd),
            [only] => Self::new(*only, 0.0),
            all => Self::of_percentiles(all.to_vec()),
        };
        times.check()?;
        Ok(times)
    }

    fn of_percentiles(percentiles_s: Vec<f64>) -> Self {
        // Between two percentiles all times are equally likely.
        let parts = (percentiles_s.len() - 1) as f64;
        let sum = |of: fn(f64, f64) -> f64| -> f64 {
            percentiles_s.windows(2).map(|pair| of(pair[0], pair[1])).sum::<f64>() / parts
        };
        let mean_s = sum(|a, b| (a + b) / 2.0);
        let square = sum(|a, b| (a * a + a * b + b * b) / 3.0);
        let sd_s = (square - mean_s * mean_s).max(0.0).sqrt();
        Self::Measured { mean_s, sd_s, percentiles_s }
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

    /// The same times, so many times as long.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        match self {
            Self::LogNormal { mean_s, sd_s } => Self::new(mean_s * factor, sd_s * factor),
            Self::Measured { percentiles_s, .. } => {
                Self::of_percentiles(percentiles_s.iter().map(|time| time * factor).collect())
            }
        }
    }

    /// # Errors
    /// What is wrong with them, as a clause.
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

    /// A function that draws the `number`-th time, in nanoseconds and at least one, so that time goes on.
    pub(super) fn drawer(&self, seed: u64, what: Use) -> impl Fn(u64) -> u64 + '_ {
        // For a mean m and a standard deviation s, the logarithm has the variance ln(1 + (s/m)²).
        let (mean, sd) = (self.mean_s(), self.sd_s());
        let variance = (sd / mean).powi(2).ln_1p();
        let (centre, width) = (mean.ln() - variance / 2.0, variance.sqrt());
        move |number| {
            let seconds = match self {
                Self::LogNormal { .. } if width == 0.0 => mean,
                Self::LogNormal { .. } => (centre + width * normal(pair(seed, what, number))).exp(),
                Self::Measured { percentiles_s, .. } => {
                    let [share, _] = pair(seed, what, number);
                    let place = share * (percentiles_s.len() - 1) as f64;
                    let low = percentiles_s[place as usize];
                    low + (percentiles_s[place as usize + 1] - low) * place.fract()
                }
            };
            nanoseconds(seconds.min(LONGEST_S)).max(1)
        }
    }
}

/// Seconds in whole nanoseconds; ten years have 59 bits.
pub(super) fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// Nanoseconds in seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation of what is drawn.
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
    fn what_is_no_time_is_refused() {
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
