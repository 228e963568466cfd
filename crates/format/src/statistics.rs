//! Per-band statistics that were computed while packing.

use serde_json::Value;

use crate::{Error, Result};

/// Per-band statistics of the stored values of a stack, or of one split of it. Each list has one
/// value per band.
#[derive(Clone, Debug, PartialEq)]
pub struct BandStatistics {
    /// Number of finite values.
    pub count: Vec<u64>,
    /// Smallest finite value. If there is none, this, `max`, `mean` and `std` are NaN.
    pub min: Vec<f64>,
    /// Largest finite value.
    pub max: Vec<f64>,
    /// Mean of the finite values.
    pub mean: Vec<f64>,
    /// Standard deviation of the finite values (divided by n, not n − 1).
    pub std: Vec<f64>,
    /// Number of NaN values.
    pub nan: Vec<u64>,
    /// Number of infinite values; 0 if they were not counted.
    pub inf: Vec<u64>,
}

impl BandStatistics {
    /// Reads the statistics of `bands` bands from attributes.
    ///
    /// # Errors
    /// If a list has another length, or is missing. Only the list of infinite values may be
    /// missing.
    pub fn parse(stats: Option<&Value>, bands: usize) -> Result<Self> {
        let real = |key: &str| -> Result<Vec<f64>> {
            // A band without finite values has null here.
            let values = list(stats, key, bands)?.iter();
            Ok(values.map(|value| value.as_f64().unwrap_or(f64::NAN)).collect())
        };
        let whole = |key: &str| -> Result<Vec<u64>> {
            Ok(list(stats, key, bands)?.iter().map(|value| value.as_u64().unwrap_or(0)).collect())
        };
        Ok(Self {
            count: whole("count")?,
            min: real("min")?,
            max: real("max")?,
            mean: real("mean")?,
            std: real("std")?,
            nan: whole("nan")?,
            // Normalising needs only the other statistics.
            inf: match stats.and_then(|stats| stats.get("inf")) {
                Some(_) => whole("inf")?,
                None => vec![0; bands],
            },
        })
    }
}

impl BandStatistics {
    /// The statistics of all values together. There is at least one part, and all have as many
    /// bands.
    #[must_use]
    pub fn together(parts: &[Self]) -> Self {
        if let [part] = parts {
            return part.clone();
        }
        let bands = 0..parts[0].count.len();
        let sums = |of: fn(&Self) -> &Vec<u64>| -> Vec<u64> {
            bands.clone().map(|band| parts.iter().map(|part| of(part)[band]).sum()).collect()
        };
        // Parts without finite values have NaN here.
        let ends = |of: fn(&Self) -> &Vec<f64>, end: fn(f64, f64) -> f64| -> Vec<f64> {
            let of_band = |band: usize| parts.iter().map(|part| of(part)[band]).fold(f64::NAN, end);
            bands.clone().map(of_band).collect()
        };
        let moments = bands.clone().map(|band| {
            let filled = parts.iter().filter(|part| part.count[band] > 0);
            let filled =
                filled.map(|part| (part.count[band] as f64, part.mean[band], part.std[band]));
            let count: f64 = filled.clone().map(|(count, ..)| count).sum();
            let mean = filled.clone().map(|(count, mean, _)| count * mean).sum::<f64>() / count;
            let squares =
                filled.map(|(count, of_part, std)| count * (std * std + (of_part - mean).powi(2)));
            (mean, (squares.sum::<f64>() / count).sqrt())
        });
        let (mean, std) = moments.unzip();
        Self {
            count: sums(|part| &part.count),
            min: ends(|part| &part.min, f64::min),
            max: ends(|part| &part.max, f64::max),
            mean,
            std,
            nan: sums(|part| &part.nan),
            inf: sums(|part| &part.inf),
        }
    }

    /// The statistics of the values × `factor` + `offset`.
    #[must_use]
    pub fn scaled(mut self, factor: f64, offset: f64) -> Self {
        let all = [&mut self.min, &mut self.max, &mut self.mean];
        all.into_iter().flatten().for_each(|value| *value = *value * factor + offset);
        self.std.iter_mut().for_each(|std| *std *= factor.abs());
        if factor < 0.0 {
            std::mem::swap(&mut self.min, &mut self.max);
        }
        self
    }
}

/// The list `key` in a group of statistics, with one value for each of `bands` bands.
///
/// # Errors
/// If it is missing or has another length.
pub fn list<'a>(group: Option<&'a Value>, key: &str, bands: usize) -> Result<&'a [Value]> {
    let list = group.and_then(|group| group.get(key)).and_then(Value::as_array);
    let list = list.filter(|list| list.len() == bands);
    list.map(Vec::as_slice)
        .ok_or_else(|| Error::damaged(format!("the statistics' {key} does not list {bands} bands")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64]) -> BandStatistics {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let end = |end: fn(f64, f64) -> f64| vec![values.iter().copied().fold(f64::NAN, end)];
        BandStatistics {
            count: vec![values.len() as u64],
            min: end(f64::min),
            max: end(f64::max),
            mean: vec![mean],
            std: vec![variance.sqrt()],
            nan: vec![1],
            inf: vec![0],
        }
    }

    #[test]
    fn parts_together_are_all_their_values() {
        let values = [3.0, -1.0, 4.5, 9.0, 2.0, 2.0];
        let parts = [of(&values[..1]), of(&[]), of(&values[1..4]), of(&values[4..])];
        let (together, want) = (BandStatistics::together(&parts), of(&values));
        assert_eq!((&together.count, &together.nan), (&vec![6], &vec![4]));
        assert_eq!((&together.min, &together.max), (&want.min, &want.max));
        assert!((together.mean[0] - want.mean[0]).abs() < 1e-12);
        assert!((together.std[0] - want.std[0]).abs() < 1e-12);
        assert_eq!(BandStatistics::together(std::slice::from_ref(&want)), want);
        assert!(BandStatistics::together(&[of(&[]), of(&[])]).mean[0].is_nan());
    }
}
