//! Per-band statistics of chosen samples.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hsipack_pack::progress::Progress;
use hsipack_pack::statistics::{StatisticsOptions, statistics};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::pack::supervised;
use crate::settings::read;

/// The settings of `Dataset.compute_stats`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Settings {
    dataset: PathBuf,
    as_of: Option<String>,
    samples: Option<Vec<usize>>,
    threads: Option<usize>,
}

/// Statistics of the stored values of chosen samples as JSON: for every stack with such samples,
/// its number and the statistics, as an image array records them.
#[pyfunction]
pub fn sample_statistics(
    py: Python<'_>,
    settings: &Bound<'_, PyAny>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let settings: Settings = read(settings)?;
    let defaults = StatisticsOptions::new(settings.dataset);
    let options = StatisticsOptions {
        as_of: settings.as_of,
        samples: settings.samples,
        threads: settings.threads.unwrap_or(defaults.threads),
        ..defaults
    };
    let total = Arc::new(AtomicU64::new(0));
    let shared = total.clone();
    let work = move |progress: &Progress| statistics(&options, progress, &shared);
    let all = supervised(py, work, &total, progress, false)?;
    let all = all.iter().map(|(stack, stats)| json!([stack, stats.to_stats()]));
    Ok(Value::from_iter(all).to_string())
}
