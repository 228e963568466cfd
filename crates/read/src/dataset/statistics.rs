//! Per-band statistics that were computed while packing.

use hsipack_format::dataset::ChunkArray;
use serde_json::Value;

/// Per-band statistics of the stored values of a stack; one value a band each.
#[derive(Clone, Debug, PartialEq)]
pub struct BandStatistics {
    /// Least finite value.
    pub min: Vec<f64>,
    /// Greatest finite value.
    pub max: Vec<f64>,
    /// Mean of the finite values.
    pub mean: Vec<f64>,
    /// Standard deviation of the finite values.
    pub std: Vec<f64>,
    /// NaN values.
    pub nan: Vec<u64>,
}

impl BandStatistics {
    /// What the array's attributes record, if they do.
    pub(super) fn of(image: &ChunkArray) -> Option<Self> {
        let stats = image.meta().attributes.get("hsipack")?.get("stats")?;
        let list = |key: &str| {
            let list = stats.get(key)?.as_array()?;
            (list.len() == image.shape().bands).then_some(list)
        };
        // A band without finite values has null.
        let real = |key: &str| {
            Some(list(key)?.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect())
        };
        let whole = |value: &Value| value.as_u64().unwrap_or(0);
        Some(Self {
            min: real("min")?,
            max: real("max")?,
            mean: real("mean")?,
            std: real("std")?,
            nan: list("nan")?.iter().map(whole).collect(),
        })
    }
}
