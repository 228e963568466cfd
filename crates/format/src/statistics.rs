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
