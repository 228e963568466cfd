//! Shows what a conversion would pack, and estimates the size of the result.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use hsipack_format::Result;
use hsipack_format::metadata::Role;
use hsipack_store::{Dataset, mirror, threads};
use serde::Serialize;

use super::bad_bands;
use super::conflicts::output_exists;
use super::encode::{Encoded, Encoder, OpenCube};
use super::engine::encode_beside;
use super::options::{ConvertOptions, Mode, Resources, ValueOptions};
use super::plan::{self, Pair, Plan, PlannedSample, PlannedStack};
use super::staging;
use crate::precision::Information;
use crate::session::Session;

/// The estimated result of a conversion.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// The dataset.
    pub output: String,
    /// Number of cubes.
    pub cubes: usize,
    /// Stacks.
    pub stacks: Vec<StackEstimate>,
    /// Bytes of the source files.
    pub source_bytes: u64,
    /// Bytes of the packed values before compression.
    pub packed_bytes: u64,
    /// Estimated bytes of the shards.
    pub stored_bytes: u64,
    /// Compression ratio of the chunks that were packed for the estimate.
    pub ratio: f64,
    /// Bytes that were compressed to estimate the ratio.
    pub sampled_bytes: u64,
    /// Mantissa bits that would be kept; `null` if all are kept.
    pub keep_bits: Option<u8>,
    /// The information in the bits of the values, if it was measured (`--keep-bits auto`).
    pub information: Option<Information>,
    /// White and dark references of each cube that has any.
    pub references: Vec<Pair>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Inputs that would be skipped.
    pub skipped: Vec<String>,
}

/// One stack of an [`Estimate`].
#[derive(Clone, Debug, Serialize)]
pub struct StackEstimate {
    /// `ROWSxCOLUMNSxBANDS`.
    pub name: String,
    /// Number of cubes.
    pub cubes: usize,
    /// Whether the wavelengths are known.
    pub wavelengths: bool,
    /// Rows and columns of a chunk.
    pub chunk: [usize; 2],
    /// Bands of a chunk; `null` if chunks hold all bands.
    pub band_group: Option<usize>,
    /// Number of shard files, including existing ones.
    pub shards: usize,
    /// Factor between packed and physical values.
    pub scale: f64,
    /// Names of masks.
    pub masks: Vec<String>,
    /// Names of targets.
    pub targets: Vec<String>,
    /// Further images with their types and bands.
    pub images: Vec<String>,
}

/// Number of cubes of each stack of which one slab is packed to estimate the ratio.
const TRIED: usize = 4;

/// Plans a conversion and packs a few chunks in memory.
///
/// # Errors
/// The same as those of [`convert`](super::convert), except errors of writing.
pub fn dry_run(options: &ConvertOptions) -> Result<Estimate> {
    let _inputs = Session::begin();
    dry_run_here(options).map_err(mirror::error_with_urls)
}

fn dry_run_here(options: &ConvertOptions) -> Result<Estimate> {
    let options = &options.with_classes()?;
    let base =
        if options.mode == Mode::APPEND { Some(Dataset::open(&options.output)?) } else { None };
    if options.mode == Mode::CREATE && staging::is_there(&options.output)? {
        return Err(output_exists(&options.output));
    }
    if let Some(base) = &base {
        plan::check_append(&options.values, base)?;
    }
    let plan = plan::plan(options, base.as_ref(), &AtomicBool::new(false))?;
    let slabs = try_slabs(&plan, options.resources())?;
    let (mut packed, mut stored, mut tried, mut compressed) = (0u64, 0.0, 0u64, 0u64);
    for (number, stack) in plan.stacks.iter().enumerate() {
        let stack_slabs = || slabs.iter().filter(|slab| slab.stack == number);
        let (from, to): (u64, u64) =
            (stack_slabs().map(|slab| slab.raw).sum(), stack_slabs().map(|slab| slab.small).sum());
        let bytes =
            (stack.grid.shape().values() * plan.values.dtype().size() * stack.samples.len()) as u64;
        let masks = stack.masks.iter().map(|mask| (mask.grid, mask.dtype));
        let companions = stack.companions.iter().map(|array| (array.grid, array.dtype));
        let sizes =
            masks.chain(companions).map(|(grid, dtype)| grid.shape().values() * dtype.size());
        packed += bytes + (sizes.sum::<usize>() * stack.samples.len()) as u64;
        let beside: u64 = stack_slabs().map(|slab| slab.beside).sum();
        stored += bytes as f64 * to as f64 / from.max(1) as f64
            + beside as f64 * stack.samples.len() as f64 / stack_slabs().count().max(1) as f64;
        tried += from;
        compressed += to;
    }
    // Bands without values are found only if all values are read, so they are not known here.
    let bad_bands = bad_bands::find(&plan, None);
    Ok(Estimate {
        output: options.output.display().to_string(),
        cubes: plan.samples.len(),
        stacks: plan.stacks.iter().map(stack_estimate).collect(),
        source_bytes: plan.source_bytes(),
        packed_bytes: packed,
        stored_bytes: stored as u64,
        ratio: tried as f64 / compressed.max(1) as f64,
        sampled_bytes: tried,
        keep_bits: plan.values.keep_bits.bits(),
        information: plan.information,
        notes: plan
            .notes
            .iter()
            .map(|note| mirror::with_urls(note))
            .chain(bad_bands::notes(&bad_bands))
            .collect(),
        references: plan.references,
        skipped: plan.skipped.iter().map(|skipped| mirror::with_urls(skipped)).collect(),
    })
}

fn stack_estimate(stack: &PlannedStack) -> StackEstimate {
    StackEstimate {
        name: stack.name.clone(),
        cubes: stack.samples.len(),
        wavelengths: stack.wavelength.is_some(),
        chunk: [stack.grid.tile().rows, stack.grid.tile().columns],
        band_group: (stack.grid.band_groups() > 1).then(|| stack.grid.band_group()),
        shards: (stack.existing + stack.samples.len()).div_ceil(stack.grid.samples_per_shard()),
        scale: stack.scale,
        masks: stack.masks.iter().map(|mask| format!("{} ({})", mask.name, mask.dtype)).collect(),
        targets: stack.texts_of(Role::Target),
        images: stack.texts_of(Role::Image),
    }
}

/// The result of packing a slab.
struct Slab {
    stack: usize,
    /// Bytes before compression.
    raw: u64,
    /// Bytes after compression.
    small: u64,
    /// Bytes of the masks and companions of the cube after compression.
    beside: u64,
}

/// Packs a slab of some cubes of every stack.
fn try_slabs(plan: &Plan, resources: Resources) -> Result<Vec<Slab>> {
    let tried = plan.stacks.iter().enumerate().flat_map(|(number, stack)| {
        let step = stack.samples.len().div_ceil(TRIED).max(1);
        stack.samples.iter().step_by(step).map(move |sample| (number, *sample))
    });
    let pool = threads::pool(resources.threads, "estimate")?;
    pool.in_turn(tried, Encoder::default, |encoder, (number, sample)| {
        let stack = &plan.stacks[number];
        let (raw, small) = try_slab(encoder, &plan.values, &plan.samples[sample], stack)?;
        let arrays = 0..stack.masks.len() + stack.companions.len();
        let beside = arrays.map(|array| {
            let budget = resources.buffer_per_thread();
            Ok(encode_beside(encoder, plan, sample, array, budget)?.data.len() as u64)
        });
        let beside = beside.sum::<Result<u64>>()?;
        Ok(Slab { stack: number, raw, small, beside })
    })
}

/// Packs the middle slab of a cube. Returns its bytes before and after compression.
fn try_slab(
    encoder: &mut Encoder,
    values: &ValueOptions,
    sample: &PlannedSample,
    stack: &PlannedStack,
) -> Result<(u64, u64)> {
    let cube = OpenCube {
        source: plan::open_source(&sample.input, values)?,
        transform: sample.transform(values, stack.scale)?,
        grid: stack.grid,
        codec: stack.codec,
        dtype: values.dtype(),
        missing: stack.missing,
        turn: Mutex::new(()),
    };
    let tile = stack.grid.tile().rows;
    let start = stack.grid.down() / 2 * tile;
    let rows = start..stack.grid.shape().rows.min(start + tile);
    encoder.read(&cube, rows.clone(), None)?;
    let bytes = rows.len() * stack.grid.shape().row_values() * values.dtype().size();
    let encoded = encoder.encode(&cube, rows, Encoded::default())?;
    Ok((bytes as u64, encoded.data.len() as u64))
}
