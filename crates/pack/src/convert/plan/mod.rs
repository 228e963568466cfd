//! What a conversion will do: every input opened once, checked, and given its place in a stack.
//!
//! Nothing is written while planning, so that whatever can be found wrong is found before anything is
//! touched: unreadable and cut-short files, repeated names, masks of another shape, wavelengths that
//! disagree.

mod append;
mod bits;
mod cube;
pub(crate) mod pieces;
mod planner;
mod scale;

use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::metadata::Made;
use hsipack_format::{Codec, DType, Error, ErrorKind, Grid, Result};
use hsipack_store::Dataset;
use serde::Serialize;
use serde_json::{Map, Value};

pub use self::append::check_append;
pub(crate) use self::cube::pick;
pub use self::cube::{open_source, select_bands};
pub(crate) use self::cube::{transform, with_calibration};
use self::planner::Planner;
use super::masks::{self, MaskGroup};
use super::options::{ConvertOptions, KeepBits};
use crate::input::{self, Input};
use crate::precision::Information;
use crate::source::CubeInfo;

/// A conversion, planned.
#[derive(Debug)]
pub struct Plan {
    /// Samples in the order of samples.jsonl.
    pub samples: Vec<PlannedSample>,
    /// Stacks in order of their names.
    pub stacks: Vec<PlannedStack>,
    /// Masks, in order of their names.
    pub masks: Vec<MaskGroup>,
    /// Whether statistics are recorded of each split.
    pub split_stats: bool,
    /// Mantissa bits that are kept: the options', or what `auto` comes to.
    pub keep_bits: KeepBits,
    /// The information in the bits of the values, where it was measured (`--keep-bits auto`).
    pub information: Option<Information>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// White and dark references of each cube that has some.
    pub references: Vec<Pair>,
    /// Inputs that were left out, with the reason (`--skip-errors`).
    pub skipped: Vec<String>,
}

impl Plan {
    /// The options with everything chosen that they leave to the plan.
    pub fn settle(&self, options: &ConvertOptions) -> ConvertOptions {
        let mut settled = options.clone();
        settled.values.keep_bits = self.keep_bits;
        settled
    }
}

/// A cube and its references.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// The cube.
    pub cube: String,
    /// The file of its white reference.
    pub white: Option<String>,
    /// The file of its dark reference.
    pub dark: Option<String>,
}

/// One cube's place.
#[derive(Debug)]
pub struct PlannedSample {
    /// Where it comes from.
    pub input: Input,
    /// Its name.
    pub name: String,
    /// Stack, as an index into [`Plan::stacks`].
    pub stack: usize,
    /// Its place in the stack's arrays, those already there included.
    pub index: usize,
    /// What its file says.
    pub info: CubeInfo,
    /// Bands kept; `None` is all.
    pub bands: Option<Vec<usize>>,
    /// Columns of the user's tables.
    pub columns: Map<String, Value>,
    /// Which masks it has; those it lacks are filled.
    pub has_mask: Vec<bool>,
    /// Bytes of its files.
    pub source_bytes: u64,
    /// Fingerprint of its files.
    pub fingerprint: String,
}

impl PlannedSample {
    /// Bytes of its values, as its file has them.
    pub fn value_bytes(&self) -> u64 {
        (self.info.shape.values() * self.info.dtype.size()) as u64
    }

    /// Its split, if the user's tables give it one.
    pub fn split(&self) -> Option<String> {
        self.text("split")
    }

    /// Its group, likewise.
    pub fn group(&self) -> Option<String> {
        self.text("group")
    }

    fn text(&self, column: &str) -> Option<String> {
        let value = self.columns.get(column)?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

/// The cubes of one shape.
#[derive(Debug)]
pub struct PlannedStack {
    /// `ROWSxCOLUMNSxBANDS`.
    pub name: String,
    /// Chunks and shards of the image.
    pub grid: Grid,
    /// How its chunks are compressed.
    pub codec: Codec,
    /// Samples that are to be added, as indices into [`Plan::samples`].
    pub samples: Vec<usize>,
    /// Samples that are there already (`--append`).
    pub existing: usize,
    /// Factor between packed and physical values.
    pub scale: f64,
    /// Band centres in nm.
    pub wavelength: Option<Vec<f64>>,
    /// Full widths at half maximum in nm.
    pub fwhm: Option<Vec<f64>>,
    /// The bad-band list.
    pub good_bands: Option<Vec<bool>>,
    /// Names of the bands.
    pub band_names: Option<Vec<String>>,
    /// Masks, in the order of [`Plan::masks`].
    pub masks: Vec<PlannedMask>,
}

/// One mask array of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedMask {
    /// Name of the array.
    pub name: String,
    /// uint8 or uint16.
    pub dtype: DType,
    /// Its chunks and shards.
    pub grid: Grid,
    /// How its chunks are compressed.
    pub codec: Codec,
    /// Names of boolean layers; empty for class ids.
    pub layers: Vec<String>,
    /// Names of classes.
    pub class_names: Option<Vec<String>>,
    /// How it was made, if it was added to the packed dataset: then new cubes have no file of it.
    pub made: Option<Made>,
}

/// Plans a conversion; `base` is the dataset to append to, `stop` the user's wish to stop.
///
/// # Errors
/// Whatever is wrong with an input or the options, as far as it can be seen without reading every value.
pub fn plan(options: &ConvertOptions, base: Option<&Dataset>, stop: &AtomicBool) -> Result<Plan> {
    options.check()?;
    let groups = masks::groups(&options.masks)?;
    let mut inputs = input::expand(&options.inputs, &options.exclude)?;
    inputs.extend_from_slice(&options.arrays);
    let mut planner = Planner::new(options, base, groups)?;
    for input in inputs {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Interrupted, "stopped")
                .with_remedy("nothing was written yet"));
        }
        let text = input.text();
        if let Err(error) = planner.add(input) {
            if !options.skip_errors {
                return Err(error);
            }
            let named = error.path().is_some();
            planner.plan.skipped.push(if named {
                error.to_string()
            } else {
                format!("{text}: {error}")
            });
        }
    }
    planner.finish(stop)
}
