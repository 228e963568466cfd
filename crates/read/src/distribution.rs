//! The distribution of times, or of any other numbers.

use serde::{Deserialize, Serialize};

/// A distribution of numbers, by its percentiles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// How many numbers there are.
    pub count: u64,
    /// Their mean; 0 if there are none.
    pub mean: f64,
    /// Their standard deviation; 0 if there are fewer than two.
    pub sd: f64,
    /// The 0th, 1st, … 100th percentile; empty if there are none.
    pub percentiles: Vec<f64>,
}

impl Distribution {
    /// The distribution of some numbers. Numbers that are not finite are skipped.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        if values.is_empty() {
            return Self::default();
        }
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let sd = if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() };
        let percentile = |percent: u32| at(&values, f64::from(percent) / 100.0);
        Self {
            count: values.len() as u64,
            mean,
            sd,
            percentiles: (0..=100).map(percentile).collect(),
        }
    }

    /// The quantile at a share of 0 to 1, interpolated; 0 if there are no numbers.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        at(&self.percentiles, share)
    }

    /// Whether there are no numbers.
    pub fn is_empty(&self) -> bool {
        self.percentiles.is_empty()
    }
}

/// The quantile of sorted numbers at this share, interpolated between two of them if needed.
fn at(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = share.clamp(0.0, 1.0) * last as f64;
    let (low, high) = (position.floor() as usize, position.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (position - position.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_numpys() {
        let distribution = Distribution::of([4.0, 1.0, f64::NAN, 3.0, 2.0]);
        assert_eq!((distribution.count, distribution.mean), (4, 2.5));
        assert!((distribution.sd - (5.0f64 / 3.0).sqrt()).abs() < 1e-12);
        // numpy.percentile([1, 2, 3, 4], [0, 10, 50, 99, 100])
        let shown = [0, 10, 50, 99, 100].map(|percent| distribution.percentiles[percent]);
        for (shown, numpy) in shown.into_iter().zip([1.0, 1.3, 2.5, 3.97, 4.0]) {
            assert!((shown - numpy).abs() < 1e-12, "{shown} {numpy}");
        }
        assert!((distribution.quantile(0.105) - 1.315).abs() < 1e-12);
    }

    #[test]
    fn none_and_one() {
        assert!(Distribution::of([]).is_empty());
        assert_eq!(Distribution::default().quantile(0.5), 0.0);
        let distribution = Distribution::of([2.0]);
        assert_eq!(
            (distribution.mean, distribution.sd, distribution.quantile(0.3)),
            (2.0, 0.0, 2.0)
        );
    }
}
