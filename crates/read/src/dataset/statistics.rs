//! Per-band statistics that were computed while packing.

use hsipack_store::dataset::{ChunkArray, SPLIT_STATS};
use serde_json::Value;

/// Per-band statistics of the stored values of a stack, or of one split of it; one value a band each.
#[derive(Clone, Debug, PartialEq)]
pub struct BandStatistics {
    /// Finite values.
    pub count: Vec<u64>,
    /// Least finite value.
    pub min: Vec<f64>,
    /// Greatest finite value.
    pub max: Vec<f64>,
    /// Mean of the finite values.
    pub mean: Vec<f64>,
    /// Standard deviation of the finite values, dividing by their number.
    pub std: Vec<f64>,
    /// NaN values.
    pub nan: Vec<u64>,
}

impl BandStatistics {
    /// What the array's attributes record, if they do.
    pub(super) fn of(image: &ChunkArray) -> Option<Self> {
        Self::read(image.meta().attributes.get("hsipack")?.get("stats")?, image.shape().bands)
    }

    /// What the array's attributes record of each split, in the order of their names.
    pub(super) fn of_splits(image: &ChunkArray) -> Vec<(String, Self)> {
        let recorded = image.meta().attributes.get("hsipack").and_then(|own| own.get(SPLIT_STATS));
        let splits = recorded.and_then(Value::as_object).into_iter().flatten();
        let bands = image.shape().bands;
        splits
            .filter_map(|(split, stats)| Some((split.clone(), Self::read(stats, bands)?)))
            .collect()
    }

    fn read(stats: &Value, bands: usize) -> Option<Self> {
        let list = |key: &str| {
            let list = stats.get(key)?.as_array()?;
            (list.len() == bands).then_some(list)
        };
        // A band without finite values has null.
        let real = |key: &str| {
            Some(list(key)?.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect())
        };
        let whole =
            |key: &str| Some(list(key)?.iter().map(|value| value.as_u64().unwrap_or(0)).collect());
        Some(Self {
            count: whole("count")?,
            min: real("min")?,
            max: real("max")?,
            mean: real("mean")?,
            std: real("std")?,
            nan: whole("nan")?,
        })
    }
}
