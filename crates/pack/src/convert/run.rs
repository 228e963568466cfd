//! A whole conversion: plan, pack, commit, report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Instant;

use hsipack_format::checksums::Hasher;
use hsipack_format::metadata::{Role, Root};
use hsipack_format::remedy::current;
use hsipack_format::samples::{Sample, Samples, SourceRecord};
use hsipack_format::{DType, Error, ErrorKind, Opt, Result, remedy};
use hsipack_store::folder::check_outside;
use hsipack_store::remote::{self, is_url};
use hsipack_store::{Dataset, Stack, mirror, output};
use serde::Serialize;
use serde_json::{Value, json};

use super::bad_bands::{self, BadBands};
use super::companions::PlannedCompanion;
use super::conflicts::{nothing_to_append_to, output_exists};
use super::engine::{self, Outcome, SampleRecord};
use super::metadata::{self, Metadata};
use super::options::{ConvertOptions, Mode, Scale};
use super::plan::{self, Plan, PlannedSample, PlannedStack};
use super::request::{self, CommandRecord};
use super::shared_geo;
use super::staging::{self, About, Begun, Claim, Staging};
use super::stats::{StackStats, Vanished};
use crate::input::ARRAY;
use crate::precision::Information;
use crate::progress::Progress;
use crate::session::Session;

/// The result of a conversion.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub output: String,
    /// Number of cubes that were packed, by this run and the interrupted runs before it.
    pub cubes: usize,
    /// The stacks to which cubes were added.
    pub stacks: Vec<PackedStack>,
    /// Labels and splits of the packed cubes.
    #[serde(flatten)]
    pub columns: PackedColumns,
    /// Bytes of the source files.
    pub source_bytes: u64,
    /// Bytes of the packed values before compression.
    pub packed_bytes: u64,
    /// Bytes of the shards. If cubes were appended, by how much the shards grew.
    pub stored_bytes: u64,
    /// packed_bytes / stored_bytes.
    pub ratio: f64,
    /// Seconds, including planning.
    pub seconds: f64,
    /// NaN values in the packed cubes.
    pub nan: u64,
    /// Infinite values in the packed cubes.
    pub inf: u64,
    /// The greatest errors that the cast to fp16 and dropped bits caused, and where; `None` for
    /// float32 with all its bits.
    pub worst: Option<WorstError>,
    /// Type of the packed values; empty if there was nothing to do.
    pub dtype: &'static str,
    /// Mantissa bits that were kept; `null` if all were kept.
    pub keep_bits: Option<u8>,
    /// The information in the bits of the values, if it was measured (`--keep-bits auto`).
    pub information: Option<Information>,
    /// Bands that are marked bad or have no values, for stacks that have any.
    pub bad_bands: Vec<BadBands>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// The note that most values of a cube became 0, which only packing shows. `notes` has it,
    /// too.
    #[serde(skip)]
    pub vanished: Option<String>,
    /// Inputs that were skipped.
    pub skipped: Vec<String>,
    /// Whether everything had already been done.
    pub already_complete: bool,
}

/// The cubes of one shape that were packed, so that a user sees what was read.
#[derive(Clone, Debug, Serialize)]
pub struct PackedStack {
    /// `ROWSxCOLUMNSxBANDS`.
    pub name: String,
    /// Number of cubes that were packed.
    pub cubes: usize,
    /// The shortest and the longest wavelength in nm, if they are known.
    pub wavelengths: Option<[f64; 2]>,
    /// Masks with their types, such as `organs (uint8)`.
    pub masks: Vec<String>,
    /// Names of the targets.
    pub targets: Vec<String>,
    /// Further images with their types and bands, such as `rgb (float16, 3 bands)`.
    pub images: Vec<String>,
}

/// How many packed cubes have a label or a split, and their boxes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PackedColumns {
    /// Number of cubes with each label.
    pub labels: BTreeMap<String, usize>,
    /// Number of cubes in each split.
    pub splits: BTreeMap<String, usize>,
    /// Number of boxes of each class.
    pub boxes: BTreeMap<String, usize>,
}

impl PackedColumns {
    fn of(plan: &Plan) -> Self {
        let mut all = Self::default();
        for sample in &plan.samples {
            for (counts, value) in
                [(&mut all.labels, sample.label()), (&mut all.splits, sample.split())]
            {
                if let Some(value) = value {
                    *counts.entry(value).or_default() += 1;
                }
            }
            for class in sample.box_labels() {
                *all.boxes.entry(class).or_default() += 1;
            }
        }
        all
    }
}

fn packed_stack(stack: &PlannedStack) -> PackedStack {
    let range = |nm: &Vec<f64>| {
        let least = nm.iter().copied().fold(f64::INFINITY, f64::min);
        [least, nm.iter().copied().fold(0.0, f64::max)]
    };
    PackedStack {
        name: stack.name.clone(),
        cubes: stack.samples.len(),
        wavelengths: stack.wavelength.as_ref().map(range),
        masks: stack.masks.iter().map(|mask| format!("{} ({})", mask.name, mask.dtype)).collect(),
        targets: stack.texts_of(Role::Target),
        images: stack.texts_of(Role::Image),
    }
}

/// The greatest relative and the greatest absolute quantisation error, which may be in different
/// bands.
#[derive(Clone, Debug, Serialize)]
pub struct WorstError {
    /// The input with the greatest relative error.
    pub file: String,
    /// The band in that file.
    pub band: usize,
    /// Its wavelength in nm, if known.
    pub wavelength: Option<f64>,
    /// Greatest |packed − value| / |value|.
    pub relative: f64,
    /// Greatest |packed − value| of physical values.
    pub absolute: f64,
    /// The input with the greatest absolute error.
    pub absolute_file: String,
    /// The band in that file.
    pub absolute_band: usize,
    /// Its wavelength in nm, if known.
    pub absolute_wavelength: Option<f64>,
}

/// Plans and runs a conversion.
///
/// # Errors
/// If anything is wrong with inputs, options or the output. The output is then unchanged. After an
/// interruption or a disk error, finished shards are kept for `--resume`; after other errors,
/// nothing is kept.
pub fn convert(
    options: &ConvertOptions,
    progress: &Progress,
    planned: &dyn Fn(&Plan),
) -> Result<Report> {
    let _inputs = Session::begin();
    convert_here(options, progress, planned).map_err(mirror::error_with_urls)
}

fn convert_here(
    options: &ConvertOptions,
    progress: &Progress,
    planned: &dyn Fn(&Plan),
) -> Result<Report> {
    let start = Instant::now();
    let (output, resources) = (&options.output, options.resources());
    let Some(begun) = begin(options, progress, planned)? else {
        return Ok(complete(output, start));
    };
    let Work { plan, base, record, requested, identity, append, claim, .. } = begun;
    let base = base.as_ref();
    let fingerprint = base.as_ref().map(|base| base.fingerprint());
    let about = About { plan: &identity, append, requested: &requested, base: fingerprint };
    let staging = Staging::open(claim, about, engine::shards(&plan))?;
    let result = engine::run(&plan, resources, &staging, base, progress).and_then(|outcome| {
        write_metadata(&plan, &staging, base, &record, &outcome).map(|()| outcome)
    });
    match result {
        Ok(outcome) => {
            let report = report(output, &plan, base, &outcome, start);
            staging.commit()?;
            Ok(report)
        }
        Err(error) => Err(leave(staging, error)),
    }
}

/// A conversion that is ready to start: everything that must be known before the first byte is
/// written.
pub(super) struct Work {
    pub plan: Plan,
    /// The options, with what they say about masks in the masks.
    pub options: ConvertOptions,
    /// The dataset to which cubes are appended.
    pub base: Option<Dataset>,
    pub record: CommandRecord,
    /// The request of the command.
    pub requested: Value,
    /// Identifies the work.
    pub identity: String,
    pub append: bool,
    pub claim: Claim,
}

/// Claims the output and plans; `None` if everything has already been done.
///
/// # Errors
/// The same as those of [`convert`].
pub(super) fn begin(
    options: &ConvertOptions,
    progress: &Progress,
    planned: &dyn Fn(&Plan),
) -> Result<Option<Work>> {
    options.check()?;
    let options = options.with_classes()?;
    let (request, requested) = (request::identity(&options), request::requested(&options));
    check_output(&options.output, options.mode)?;
    // From here on, no other process changes the existing dataset.
    let claim = Claim::of(&options.output)?;
    let Some(append) = prepare(&options.output, options.mode, &request, &claim)? else {
        claim.discard()?;
        return Ok(None);
    };
    let base = if append { Some(Dataset::open(&options.output)?) } else { None };
    if let Some(base) = &base {
        plan::check_append(&options.values, base)?;
    }
    let plan = plan::plan(&options, base.as_ref(), &progress.stop)?;
    planned(&plan);
    let identity = identity(&request, &plan, base.as_ref());
    let record = CommandRecord::new(request, &options, &plan.values);
    Ok(Some(Work { plan, options, base, record, requested, identity, append, claim }))
}

/// Whether the command that `request` identifies made the dataset at `output`.
pub(super) fn is_done(output: &Path, request: &str) -> bool {
    staging::existing(output).as_ref().and_then(last_request).as_deref() == Some(request)
}

/// Checks what can be checked before anything is written.
fn check_output(output: &Path, mode: Mode) -> Result<()> {
    if is_url(output) {
        remote::check_folder(output)?;
    }
    if mode != Mode::CREATE {
        return Ok(());
    }
    if staging::is_there(output)? {
        return Err(output_exists(output));
    }
    if is_url(output) {
        return Ok(());
    }
    check_outside(output)?;
    let folder = staging::parent(output);
    if !folder.is_dir() {
        return Err(Error::conflict("the folder for the output does not exist")
            .at(folder)
            .with_remedy("create it first"));
    }
    Ok(())
}

/// Whether to append (`Some(true)`) or to create (`Some(false)`); `None` if nothing is left to do.
fn prepare(output: &Path, mode: Mode, request: &str, claim: &Claim) -> Result<Option<bool>> {
    claim.recover()?;
    let exists = staging::is_there(output)?;
    let begun = claim.begun()?;
    if is_url(output) && !exists && begun == Begun::No && !output::is_empty(output)? {
        return Err(Error::conflict("there are objects that do not belong to a dataset")
            .at(output)
            .with_remedy(remedy!["choose another ", Opt::Output, ", or delete them"]));
    }
    match (mode, begun) {
        (Mode::CREATE, _) if exists => Err(output_exists(output)),
        (Mode::APPEND, _) if !exists => Err(nothing_to_append_to(output)),
        (Mode::CREATE | Mode::APPEND, Begun::Create | Begun::Append) => Err(claim.unfinished()),
        (Mode::CREATE, Begun::No) => Ok(Some(false)),
        (Mode::APPEND, Begun::No) => Ok(Some(true)),
        (Mode { resume: true, append }, begun) => {
            if is_done(output, request) {
                return Ok(None);
            }
            match begun {
                Begun::Create => Ok(Some(false)),
                Begun::Append => Ok(Some(true)),
                Begun::No if exists && append => Ok(Some(true)),
                Begun::No if !exists && !append => Ok(Some(false)),
                Begun::No if append => Err(nothing_to_append_to(output)),
                Begun::No => Err(Error::conflict("there is no unfinished conversion to resume, and the dataset there was written by another command")
                    .at(output)
                    .with_remedy(remedy!["pass ", Opt::Append, " to add cubes, or choose another ", Opt::Output])),
            }
        }
    }
}

fn last_request(dataset: &Dataset) -> Option<String> {
    dataset.root().last_request().map(str::to_owned)
}

/// Identifies the work to be resumed: the command, the present state of the inputs, and the dataset
/// to which cubes are appended.
pub(super) fn identity(request: &str, plan: &Plan, base: Option<&Dataset>) -> String {
    let stacks: Vec<Value> = plan
        .stacks
        .iter()
        .map(|stack| json!([stack.name, stack.scale, stack.offset, stack.missing, stack.existing]))
        .collect();
    let base = base.map(Dataset::fingerprint);
    let (dtype, keep_bits) = (plan.values.dtype, plan.values.keep_bits);
    let (samples, version) = (Identified(&plan.samples), env!("CARGO_PKG_VERSION"));
    let mut hasher = Hasher::default();
    serde_json::to_writer(
        &mut hasher,
        &(request, samples, stacks, dtype.name(), keep_bits, base, version),
    )
    .expect("texts and numbers are JSON");
    hasher.finish()
}

/// Writes what identifies each sample of a plan. There may be millions of samples.
struct Identified<'a>(&'a [PlannedSample]);

impl Serialize for Identified<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|sample| {
            let PlannedSample { name, input, stack, index, fingerprint, columns, .. } = sample;
            let masks = sample.masks.iter().map(Option::as_deref);
            let companions = sample.companions.iter().map(|found| Some(found.as_str()));
            let references = sample.references.iter().map(|found| Some(&**found));
            let arrays: Vec<_> = masks.chain(companions).chain(references).collect();
            (name, input.text(), stack, index, fingerprint, columns, arrays)
        }))
    }
}

/// Writes all files of the dataset except the shards.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write_metadata(
    plan: &Plan,
    staging: &Staging,
    base: Option<&Dataset>,
    record: &CommandRecord,
    outcome: &Outcome,
) -> Result<()> {
    let mut files = Metadata::new();
    // Arrays of the base that the new dataset does not have.
    let mut dropped = Vec::new();
    for (stack, stats) in plan.stacks.iter().zip(&outcome.stacks) {
        let geo = shared_geo::of_planned(plan, stack, base)?;
        let all = match base.and_then(|base| Some((base, base.stack(&stack.name)?))) {
            Some((base, old)) => {
                let unused = old.geo_arrays.iter().filter(|_| geo.is_none());
                dropped.extend(unused.map(|array| PathBuf::from(&stack.name).join(array)));
                appended_stats(plan, base, old, stats)?
            }
            None => stats.clone(),
        };
        let len = stack.existing + stack.samples.len();
        files.add_stack(stack, &plan.values, len, &all, geo.as_ref());
    }
    let old = base.map(Dataset::samples);
    let existing = old.map_or(0, Samples::len);
    let new = new_samples(plan, outcome, existing);
    files.add_samples(old, new)?;
    let count = existing + plan.samples.len();
    let CommandRecord { request, command, recipe } = record;
    let (now, recipe) = (metadata::now(), recipe.clone());
    let root = match base {
        None => Root::new(metadata::CREATED_BY, &now, command, recipe, request, count),
        Some(base) => {
            let root = base.root().clone();
            root.appended(base.fingerprint(), &now, command, recipe, request, count)
        }
    };
    files.add_root(match staging.write_id() {
        Some(id) => root.written_by(id),
        None => root,
    });
    if let Some(base) = base {
        staging.link_unchanged(base.path(), &dropped)?;
        files.keep_stacks(base, plan)?;
    }
    let stacks: Vec<_> = plan.stacks.iter().collect();
    staging.write_metadata(files.into_files(&stacks), &dropped)
}

/// Statistics of the samples of `old`, a stack of `base`, together with those appended to it. In
/// datasets of older versions, a split may have samples in the stack but no recorded statistics. It
/// then gets none, because they would cover only the new samples.
fn appended_stats(
    plan: &Plan,
    base: &Dataset,
    old: &Stack,
    new: &StackStats,
) -> Result<StackStats> {
    let mut all = StackStats::of(old.image.meta()).map_err(|error| error.at(old.image.folder()))?;
    let number = base.stacks().iter().position(|stack| stack.name == old.name);
    let ids = number.into_iter().flat_map(|stack| base.samples().ids_in(stack));
    let splits = ids.filter_map(|id| base.samples().splits().get(id));
    let mut unknown: BTreeSet<&str> = splits.map(String::as_str).collect();
    unknown.retain(|split| !all.splits.contains_key(*split));
    all.merge(new);
    all.splits.retain(|split, _| plan.split_stats && !unknown.contains(split.as_str()));
    Ok(all)
}

fn new_samples<'a>(
    plan: &'a Plan,
    outcome: &'a Outcome,
    first: usize,
) -> impl Iterator<Item = Sample> + 'a {
    plan.samples.iter().zip(&outcome.samples).enumerate().map(move |(number, (sample, record))| {
        let mut columns = sample.columns.clone();
        let (split, group) = (sample.split(), sample.group());
        for field in ["name", "split", "group"] {
            columns.shift_remove(field);
        }
        let label = columns.shift_remove("label");
        let info = sample.description.shared();
        let scaling = info.scaling;
        let values = &plan.values;
        let applied = !scaling.is_none() && !values.raw_values;
        Sample {
            id: first + number,
            name: sample.name.clone(),
            stack: plan.stacks[sample.stack].name.clone(),
            index: sample.index,
            split,
            group,
            label,
            nan: record.nan,
            inf: record.inf,
            range: record.range,
            geo: sample.facts.geo.clone(),
            source: SourceRecord {
                path: sample.input.text(),
                bytes: sample.source_bytes,
                fingerprint: sample.fingerprint.clone(),
                format: match sample.input.stands_for {
                    Some(_) => ARRAY.to_owned(),
                    None => info.format.clone(),
                },
                scaling: applied.then_some([scaling.multiply, scaling.divide, scaling.add]),
                ignore_value: values.nodata.or(info.ignore_value),
                unit: info.unit.clone().filter(|_| values.are_physical()),
                axes: sample.input.axes.clone(),
                // The name is that of the sample.
                fields: (sample.input.fields.iter())
                    .filter(|(field, _)| *field != "name")
                    .map(|(field, value)| (field.clone(), value.clone()))
                    .collect(),
            },
            columns,
        }
    })
}

/// Decides what to keep after an error: finished shards after an interruption or a disk error,
/// otherwise nothing.
fn leave(staging: Staging, error: Error) -> Error {
    let kept = remedy![
        format!("finished shards are kept in {}; go on with ", staging.folder().display()),
        Opt::Resume
    ];
    let ours = error.path().is_some_and(|path| {
        path.starts_with(staging.folder()) || path.starts_with(staging.dataset())
    });
    match error.kind() {
        ErrorKind::Interrupted => error.with_remedy(kept),
        ErrorKind::Io | ErrorKind::Memory if ours => {
            let both = match error.remedy() {
                Some(advice) => advice.clone().joined("; ", kept),
                None => kept,
            };
            error.with_remedy(both)
        }
        _ => {
            // Report the error that ended the conversion, not one of the clean-up.
            let _ = staging.discard();
            error
        }
    }
}

pub(super) fn report(
    output: &Path,
    plan: &Plan,
    base: Option<&Dataset>,
    outcome: &Outcome,
    start: Instant,
) -> Report {
    let vanished = vanished(plan, outcome);
    let size = plan.values.dtype().size();
    let masks = |stack: &plan::PlannedStack| -> usize {
        stack.masks.iter().map(|mask| mask.dtype.size()).sum()
    };
    let packed: usize = plan
        .stacks
        .iter()
        .map(|stack| {
            let shape = stack.grid.shape();
            let companions = stack.companions.iter().map(PlannedCompanion::sample_bytes);
            let beside = shape.pixels() * masks(stack) + companions.sum::<usize>();
            stack.samples.len() * (shape.values() * size + beside)
        })
        .sum();
    let bad_bands = bad_bands::find(plan, Some(&outcome.stacks));
    let bytes = outcome.bytes.saturating_sub(base.map_or(0, |base| rewritten(plan, base)));
    Report {
        output: output.display().to_string(),
        cubes: plan.samples.len(),
        stacks: plan.stacks.iter().map(packed_stack).collect(),
        columns: PackedColumns::of(plan),
        source_bytes: plan.source_bytes(),
        packed_bytes: packed as u64,
        stored_bytes: bytes,
        ratio: packed as f64 / bytes.max(1) as f64,
        seconds: start.elapsed().as_secs_f64(),
        nan: outcome.samples.iter().map(|sample| sample.nan).sum(),
        inf: outcome.samples.iter().map(|sample| sample.inf).sum(),
        worst: worst(plan, outcome).filter(|_| {
            plan.values.dtype() == DType::F16 || plan.values.keep_bits.bits().is_some()
        }),
        dtype: plan.values.dtype().name(),
        keep_bits: plan.values.keep_bits.bits(),
        information: plan.information.clone(),
        notes: plan
            .notes
            .iter()
            .map(|note| mirror::with_urls(note))
            .chain(bad_bands::notes(&bad_bands))
            .chain(vanished.clone())
            .collect(),
        vanished,
        bad_bands,
        skipped: plan.skipped.iter().map(|skipped| mirror::with_urls(skipped)).collect(),
        already_complete: false,
    }
    .appended_to(base)
}

/// The size of the shards of `base` that an append wrote again with more cubes, in bytes.
fn rewritten(plan: &Plan, base: &Dataset) -> u64 {
    let continued = plan.stacks.iter().filter(|stack| !stack.samples.is_empty());
    let arrays = continued.filter_map(|planned| {
        let stack = base.stack(&planned.name)?;
        Some(stack.arrays())
    });
    let part_full = arrays.flatten().filter_map(|array| {
        let per_shard = array.grid().samples_per_shard();
        let (full, remainder) = (array.len() / per_shard, array.len() % per_shard);
        (remainder > 0).then(|| array.shard(full).map_or(0, |shard| shard.len()))
    });
    part_full.sum()
}

/// The greatest errors of all samples.
fn worst(plan: &Plan, outcome: &Outcome) -> Option<WorstError> {
    // Physical values are stored ones times the scale factor.
    let physical = |sample: &PlannedSample, record: &SampleRecord| {
        let (band, error) = record.absolute;
        (band, error * plan.stacks[sample.stack].scale.abs())
    };
    let greatest = |error: &dyn Fn(&PlannedSample, &SampleRecord) -> (usize, f64)| {
        let all = plan.samples.iter().zip(&outcome.samples);
        let all = all.map(|(sample, record)| (sample, error(sample, record)));
        all.reduce(|worst, next| if next.1.1 > worst.1.1 { next } else { worst })
    };
    let location = |(sample, (band, _)): (&PlannedSample, (usize, f64))| {
        let wavelength = plan.stacks[sample.stack].wavelength.as_ref().map(|nm| nm[band]);
        let band = sample.description.bands.as_ref().map_or(band, |bands| bands[band]);
        (sample.input.text(), band, wavelength)
    };
    let relative = greatest(&|_, record| record.relative)?;
    let absolute = greatest(&physical)?;
    let (file, band, wavelength) = location(relative);
    let (absolute_file, absolute_band, absolute_wavelength) = location(absolute);
    Some(WorstError {
        file,
        band,
        wavelength,
        relative: relative.1.1,
        absolute: absolute.1.1,
        absolute_file,
        absolute_band,
        absolute_wavelength,
    })
}

/// A note that most values of a cube, or of a band, were too small for their type.
fn vanished(plan: &Plan, outcome: &Outcome) -> Option<String> {
    let cubes = plan.samples.iter().zip(&outcome.samples);
    let mut cubes = cubes.filter_map(|(sample, record)| Some((sample, record.vanished?)));
    let (sample, Vanished { band, part }) = cubes.next()?;
    let band = band.map(|band| sample.description.bands.as_ref().map_or(band, |all| all[band]));
    let in_band = band.map_or_else(String::new, |band| format!(" in band {band}"));
    let others = match cubes.count() {
        0 => String::new(),
        1 => "; so it is in 1 other cube".to_owned(),
        others => format!("; so it is in {others} other cubes"),
    };
    let float32 = Opt::Dtype.to(DType::F32.to_string());
    let remedy = match plan.values.scale {
        Scale::Auto => remedy!["pass ", float32],
        _ => remedy!["pass ", Opt::Scale.to("auto"), " or ", float32],
    };
    Some(format!(
        "{}: its values are too small for {}: {} % of those that are not 0 became 0{in_band}{others}; {}",
        sample.input.text(),
        plan.values.dtype(),
        (100.0 * part).floor(),
        remedy.render(current())
    ))
}

impl Report {
    fn appended_to(mut self, base: Option<&Dataset>) -> Self {
        if let Some(base) = base {
            self.notes.push(format!("appended to {} samples", base.samples().len()));
        }
        self
    }
}

/// The report if nothing was left to do.
pub(super) fn complete(output: &Path, start: Instant) -> Report {
    Report {
        output: output.display().to_string(),
        cubes: 0,
        stacks: Vec::new(),
        columns: PackedColumns::default(),
        source_bytes: 0,
        packed_bytes: 0,
        stored_bytes: 0,
        ratio: 1.0,
        seconds: start.elapsed().as_secs_f64(),
        nan: 0,
        inf: 0,
        worst: None,
        dtype: "",
        keep_bits: None,
        information: None,
        vanished: None,
        bad_bands: Vec::new(),
        notes: vec![format!("{} is complete; there was nothing left to do", output.display())],
        skipped: Vec::new(),
        already_complete: true,
    }
}
