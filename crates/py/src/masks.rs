//! Changes a packed dataset: splits of samples and of labelled pixels, masks from a user's
//! function, targets and further images, columns.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use hsipack_pack::add_companions::{self, AddOptions};
use hsipack_pack::add_mask::{Adding, NewMask, Replace};
use hsipack_pack::columns::{self, ColumnsOptions};
use hsipack_pack::merge::{self as merging, MergeOptions};
use hsipack_pack::progress::Progress;
use hsipack_pack::split::{self as splitting, SplitOptions};
use hsipack_store::Stack;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde_json::json;

use crate::errors::OrRaise;
use crate::exit::{calling, detached};
use crate::options;
use crate::pack::{json, supervised};
use crate::task::patiently;

/// Divides labelled pixels among splits; returns the report as JSON.
#[pyfunction]
pub fn split(
    py: Python<'_>,
    settings: &Bound<'_, PyDict>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options: SplitOptions = options::read(settings)?;
    let work = move |progress: &Progress| {
        if options.by.is_of_samples() {
            return splitting::split_samples(&options, progress).map(|report| json(&report));
        }
        splitting::split(&options, progress).map(|report| json(&report))
    };
    // If it is stopped, staged files are removed first.
    supervised(py, work, &AtomicU64::new(0), progress, true)
}

/// Merges datasets; returns the report as JSON.
#[pyfunction]
pub fn merge(
    py: Python<'_>,
    settings: &Bound<'_, PyDict>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options: MergeOptions = options::read(settings)?;
    let work = move |progress: &Progress| merging::merge(&options, progress);
    supervised(py, work, &AtomicU64::new(0), progress, true).map(|report| json(&report))
}

/// Changes columns of samples; returns the report as JSON. `table` is a table of the program, as
/// JSON.
#[pyfunction]
pub fn set_columns(
    py: Python<'_>,
    settings: &Bound<'_, PyDict>,
    table: Option<String>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options: ColumnsOptions = options::read(settings)?;
    let work = move |progress: &Progress| {
        columns::set_columns(&options, table.as_deref().map(str::as_bytes), progress)
    };
    supervised(py, work, &AtomicU64::new(0), progress, true).map(|report| json(&report))
}

/// Adds targets and further images; returns the report as JSON.
#[pyfunction]
pub fn add_arrays(
    py: Python<'_>,
    settings: &Bound<'_, PyDict>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options: AddOptions = options::read(settings)?;
    let work = move |progress: &Progress| add_companions::add(&options, progress);
    supervised(py, work, &AtomicU64::new(0), progress, true).map(|report| json(&report))
}

/// Adds a mask; returns the report as JSON. `ids_of` takes the number of a sample and returns its
/// ids as bytes of uint16 in this machine's byte order. `about` contains the name of the mask, the
/// names of its classes, and its origin.
#[pyfunction]
pub fn add_mask(
    py: Python<'_>,
    path: PathBuf,
    about: (String, Option<Vec<String>>, String),
    ids_of: &Bound<'_, PyAny>,
    force: bool,
    command: String,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let (name, classes, made_by) = about;
    let names = vec![name.clone()];
    let replace = if force { Replace::Any } else { Replace::Never };
    let adding = patiently(py, move || Adding::begin(&path, names, replace))?.or_raise(py)?;
    let mut spool = adding.spool().or_raise(py)?;
    let mut ids = Vec::new();
    for sample in 0..adding.dataset().samples().len() {
        let bytes = calling(py, || ids_of.call1((sample,)))?;
        let (pairs, _) = bytes.cast::<PyBytes>()?.as_bytes().as_chunks::<2>();
        ids.clear();
        ids.extend(pairs.iter().map(|pair| u16::from_ne_bytes(*pair)));
        detached(py, || spool.put(sample, &ids)).or_raise(py)?;
    }
    // A corrected mask keeps the names and colours of its classes, unless its classes get other names.
    let meaning = |stack: &Stack| stack.mask(&name).map(|mask| mask.meta().mask_meaning());
    let names_of = |stack: &Stack| classes.clone().or_else(|| meaning(stack)?.class_names);
    let colors_of = |stack: &Stack| match (&classes, meaning(stack)) {
        (None, Some(meaning)) => meaning.class_colors,
        _ => Vec::new(),
    };
    let class_names = adding.dataset().stacks().iter().map(names_of).collect();
    let class_colors = adding.dataset().stacks().iter().map(colors_of).collect();
    let mask = NewMask { name, class_names, class_colors, recipe: json!({ "add_mask": made_by }) };
    let work = move |progress: &Progress| adding.finish(&mask, &command, &mut spool, progress);
    supervised(py, work, &AtomicU64::new(0), progress, true).map(|report| json(&report))
}
