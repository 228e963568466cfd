//! Adds masks to a packed dataset: splits of labelled pixels, and masks from a user's function.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use hsipack_format::{Error, Result};
use hsipack_pack::add_mask::{Adding, NewMask};
use hsipack_pack::progress::Progress;
use hsipack_pack::split::{self as splitting, By, Share, Shares, SplitOptions};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;

use crate::errors::OrRaise;
use crate::exit::{calling, detached};
use crate::pack::{json, supervised};
use crate::settings::read;
use crate::task::patiently;

/// A dictionary with the settings of a split; `hsipack.split` makes it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    dataset: PathBuf,
    mask: String,
    by: String,
    shares: SharesGiven,
    per_class: Option<u64>,
    block: usize,
    ignore: Vec<u16>,
    buffer: String,
    patch: [u32; 2],
    seed: u64,
    name: Option<String>,
    force: bool,
    dry_run: bool,
    command: String,
}

/// Shares as text, or by the names of the splits; `None` stands for the rest.
#[derive(FromPyObject)]
enum SharesGiven {
    Text(String),
    Named(Vec<(String, Option<f64>)>),
}

impl Settings {
    fn options(self) -> Result<SplitOptions> {
        let shares = match self.shares {
            SharesGiven::Text(text) => text.parse()?,
            SharesGiven::Named(shares) => {
                let share = |(name, part): (String, Option<f64>)| {
                    (name, part.map_or(Share::Rest, Share::Part))
                };
                Shares::new(shares.into_iter().map(share).collect())?
            }
        };
        let by = match self.by.as_str() {
            "pixels" => By::Pixels,
            "blocks" => By::Blocks(self.block),
            "regions" => By::Regions,
            other => {
                return Err(Error::conflict(format!("by cannot be {other:?}"))
                    .with_remedy("give one of pixels, blocks, regions"));
            }
        };
        Ok(SplitOptions {
            dataset: self.dataset,
            mask: self.mask,
            by,
            shares,
            per_class: self.per_class,
            ignore: self.ignore,
            buffer: self.buffer.parse()?,
            patch: self.patch,
            seed: self.seed,
            name: self.name,
            force: self.force,
            dry_run: self.dry_run,
            command: self.command,
        })
    }
}

/// Divides labelled pixels among splits; returns the report as JSON.
#[pyfunction]
pub fn split(
    py: Python<'_>,
    settings: &Bound<'_, PyAny>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let options = read::<Settings>(settings)?.options().or_raise(py)?;
    let work = move |progress: &Progress| splitting::split(&options, progress);
    // If it is stopped, staged files are removed first.
    supervised(py, work, &AtomicU64::new(0), progress, true).map(|report| json(&report))
}

/// Adds a mask; returns the report as JSON. `ids_of` takes the number of a sample and returns its ids as bytes of
/// uint16 in this machine's byte order. `about` contains the name of the mask, the names of its classes, and its
/// origin.
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
    let adding = patiently(py, move || Adding::begin(&path, names, force))?.or_raise(py)?;
    let mut spool = adding.spool().or_raise(py)?;
    let mut ids = Vec::new();
    for sample in 0..adding.dataset().samples().len() {
        let bytes = calling(py, || ids_of.call1((sample,)))?;
        let (pairs, _) = bytes.cast::<PyBytes>()?.as_bytes().as_chunks::<2>();
        ids.clear();
        ids.extend(pairs.iter().map(|pair| u16::from_ne_bytes(*pair)));
        detached(py, || spool.put(sample, &ids)).or_raise(py)?;
    }
    let class_names = vec![classes; adding.dataset().stacks().len()];
    let mask = NewMask { name, class_names, recipe: json!({ "add_mask": made_by }) };
    let work = move |progress: &Progress| adding.finish(&mask, &command, &mut spool, progress);
    supervised(py, work, &AtomicU64::new(0), progress, true).map(|report| json(&report))
}
