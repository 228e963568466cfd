//! Writes the card of a dataset.

use std::sync::atomic::AtomicU64;

use hsipack_publish::CardOptions;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::options;
use crate::pack::{json, supervised};

/// Writes a card; returns the report as JSON.
#[pyfunction]
pub fn card(py: Python<'_>, settings: &Bound<'_, PyDict>) -> PyResult<String> {
    let options: CardOptions = options::read(settings)?;
    supervised(py, move |_| hsipack_publish::card(&options), &AtomicU64::new(0), None, false)
        .map(|report| json(&report))
}
