//! Integers that are packed as they are: checks that the numbers of all inputs fit one type, scale,
//! offset and fill value, and chooses the type (`--dtype auto`). Cubes are read only if what their
//! files say does not suffice.

use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::{DType, Error, ErrorKind, Opt, Result, metadata, remedy};
use hsipack_source::{CubeInfo, Scaling};
use hsipack_store::{Dataset, Stack, threads};

use super::pieces::{Piece, Room};
use super::scale::cut;
use super::{Plan, PlannedSample};
use crate::convert::integers;
use crate::convert::options::{PackedType, Resources, ValueOptions};

/// Integers of 8 or 16 bits that all inputs can be packed as, bit for bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExactIntegers {
    /// The narrowest type that holds them.
    pub dtype: PackedType,
    /// Their scale factor, offset, and the number that stands for missing values.
    pub scaling: metadata::Scaling,
}

/// The integers that `--dtype auto` would choose for the inputs of a plan. `None` if these are not
/// integers of 8 or 16 bits, so that all of them would have to be read, or if they cannot be kept.
///
/// # Errors
/// If an input cannot be read, or `stop` was set.
pub fn exact_integers(
    plan: &Plan,
    values: &ValueOptions,
    resources: Resources,
    stop: &AtomicBool,
) -> Result<Option<ExactIntegers>> {
    let is_short = |sample: &PlannedSample| {
        let dtype = sample.description.shared().dtype;
        matches!(dtype, DType::Bool | DType::U8 | DType::I8 | DType::U16 | DType::I16)
    };
    if !plan.samples.iter().all(is_short) {
        return Ok(None);
    }
    let (dtype, _) = choose(plan, values, resources, None, stop)?;
    if dtype.dtype().is_float() {
        return Ok(None);
    }
    let values = ValueOptions { dtype, ..values.clone() };
    let (meaning, missing) = agreed(&all(plan), &values, resources, None, stop)?;
    let Meaning { factor, offset, .. } = meaning;
    let scaling =
        metadata::Scaling { factor, offset, missing: missing.map(|missing| missing as f64) };
    Ok(Some(ExactIntegers { dtype, scaling }))
}

/// The meaning of the numbers of cubes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Meaning {
    factor: f64,
    offset: f64,
    /// The integer that marks missing values, if it is one of the source's type.
    nodata: Option<i64>,
}

/// Numbers that were found in cubes.
#[derive(Debug)]
struct Found {
    least: f32,
    greatest: f32,
    has_missing: bool,
    /// A bit for each 16-bit pattern: whether a number of the type has it.
    used: Vec<u64>,
}

impl Found {
    fn nothing() -> Self {
        let (least, greatest) = (f32::INFINITY, f32::NEG_INFINITY);
        Self { least, greatest, has_missing: false, used: vec![0; (1 << 16) / 64] }
    }

    fn add(&mut self, number: f32) {
        self.least = self.least.min(number);
        self.greatest = self.greatest.max(number);
        self.has_missing |= number.is_nan();
        if !number.is_nan() {
            let pattern = pattern(number as i64);
            self.used[pattern / 64] |= 1 << (pattern % 64);
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        self.has_missing |= other.has_missing;
        self.used.iter_mut().zip(other.used).for_each(|(word, other)| *word |= other);
        self
    }
}

fn pattern(number: i64) -> usize {
    usize::from(number as u16)
}

/// Gives the new stacks of the plan the scale, offset and fill value of their integers. Stacks that
/// are continued keep theirs.
///
/// # Errors
/// If the numbers of an input do not fit the type, or mean something else than those of other
/// inputs or of the stack that it continues, or no integer is free to stand for missing values.
pub(super) fn settle(
    plan: &mut Plan,
    values: &ValueOptions,
    resources: Resources,
    base: Option<&Dataset>,
    stop: &AtomicBool,
) -> Result<()> {
    let (mut new, mut all_new) = (Vec::new(), Vec::new());
    for (number, stack) in plan.stacks.iter().enumerate() {
        let samples = stack.samples.iter().map(|sample| &plan.samples[*sample]);
        match base.and_then(|base| base.stack(&stack.name)) {
            Some(packed) => {
                agreed(&samples.collect::<Vec<_>>(), values, resources, Some(packed), stop)?;
            }
            None => {
                new.push(number);
                all_new.extend(samples);
            }
        }
    }
    if all_new.is_empty() {
        return Ok(());
    }
    let (meaning, missing) = agreed(&all_new, values, resources, None, stop)?;
    for number in new {
        let stack = &mut plan.stacks[number];
        (stack.scale, stack.offset, stack.missing) = (meaning.factor, meaning.offset, missing);
    }
    Ok(())
}

/// All samples of a plan.
fn all(plan: &Plan) -> Vec<&PlannedSample> {
    plan.samples.iter().collect()
}

/// The common meaning of the numbers of some samples, and the integer that stands for missing
/// values: those of `packed`, if the samples continue this stack.
fn agreed(
    samples: &[&PlannedSample],
    values: &ValueOptions,
    resources: Resources,
    packed: Option<&Stack>,
    stop: &AtomicBool,
) -> Result<(Meaning, Option<i64>)> {
    let dtype = values.dtype();
    let range = dtype.integers().unwrap_or_default();
    let meaning = common(samples, values)?;
    let fixed = packed.map(|stack| stack.image.meta().missing());
    if let Some(stack) = packed {
        let scaling = stack.image.scaling();
        if (scaling.factor, scaling.offset) != (meaning.factor, meaning.offset) {
            return Err(Error::conflict(format!(
                "the dataset's cubes of {} have {}, but the new ones have {}",
                stack.image.shape(),
                words(scaling.factor, scaling.offset),
                words(meaning.factor, meaning.offset)
            ))
            .at(stack.image.folder())
            .with_remedy("pack the new cubes as a separate dataset"));
        }
    }
    let marked = meaning.nodata.filter(|nodata| is_in(*nodata, range));
    let missing = fixed.unwrap_or(marked);
    let is_open = fixed.is_none() && missing.is_none();
    let may_lack = |sample: &PlannedSample| {
        meaning.nodata != missing || !sample.description.shared().empty_bands.is_empty()
    };
    let needs_fill = is_open && samples.iter().any(|sample| may_lack(sample));
    let is_doubtful = |sample: &&&PlannedSample| {
        let (least, greatest) = sample.description.shared().dtype.integers().unwrap_or_default();
        let is_wider = least < range.0 || greatest > range.1;
        needs_fill || is_wider || missing != meaning.nodata
    };
    let doubtful = samples.iter().filter(is_doubtful).copied();
    let missing_in_scan = Some(missing).filter(|_| !needs_fill);
    let Some(found) = scan(doubtful, values, resources, missing_in_scan, stop)? else {
        return Ok((meaning, missing));
    };
    if !needs_fill {
        return Ok((meaning, missing));
    }
    if found.least < range.0 as f32 || found.greatest > range.1 as f32 {
        let Found { least, greatest, .. } = found;
        let what =
            format!("the values reach from {least} to {greatest}, which does not fit {dtype}");
        return Err(Error::new(ErrorKind::Overflow, what).with_remedy(remedy![
            "pass ",
            Opt::Dtype.to("float16"),
            ", or another type"
        ]));
    }
    let missing = match found.has_missing {
        true => Some(free(dtype, &found)?),
        false => None,
    };
    Ok((meaning, missing))
}

/// An integer that none of the numbers is: the one at an end of the type, if possible.
fn free(dtype: DType, found: &Found) -> Result<i64> {
    let (least, greatest) = dtype.integers().unwrap_or_default();
    let is_free = |number: &i64| {
        let pattern = pattern(*number);
        found.used[pattern / 64] >> (pattern % 64) & 1 == 0
    };
    let free = match least < 0 {
        true => (least..=greatest).find(is_free),
        false => (least..=greatest).rev().find(is_free),
    };
    free.ok_or_else(|| {
        Error::conflict(format!(
            "values are missing, and no integer of {dtype} is free to stand for them"
        ))
        .with_remedy(remedy!["pass ", Opt::Dtype.to("float16"), ", or a wider type"])
    })
}

/// The narrowest type that holds the integers of all inputs, with a note; float16 and the reason if
/// there is none. Appended cubes get the type of the stacks that they continue, or else the one
/// type of the dataset.
///
/// # Errors
/// If an input cannot be read, the stacks that are continued have several types, or `stop` was set.
pub(super) fn choose(
    plan: &Plan,
    values: &ValueOptions,
    resources: Resources,
    base: Option<&Dataset>,
    stop: &AtomicBool,
) -> Result<(PackedType, String)> {
    let auto = Opt::Dtype.to("auto");
    if let Some(base) = base {
        let continued = plan.stacks.iter().filter_map(|stack| base.stack(&stack.name));
        let continued = types_of(continued);
        let all = types_of(base.stacks());
        match (&continued[..], &all[..]) {
            ([(dtype, _)], _) | ([], [(dtype, _)]) => {
                let dtype = PackedType::of(*dtype).unwrap_or_default();
                return Ok((dtype, format!("{auto}: {dtype}, as in the dataset")));
            }
            ([(dtype, stack), (other, other_stack), ..], _) => {
                return Err(Error::conflict(format!(
                    "the dataset's cubes of {} are {dtype}, those of {} are {other}",
                    stack.image.shape(),
                    other_stack.image.shape()
                ))
                .at(base.path())
                .with_remedy("append the cubes of each type in turn"));
            }
            _ => {}
        }
    }
    match narrowest(plan, values, resources, stop) {
        Ok(dtype) => {
            let note =
                format!("{auto}: {dtype}, which keeps the numbers of the inputs bit for bit");
            Ok((dtype, note))
        }
        Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Overflow) => {
            let file = error.path().map(|path| format!("{}: ", path.display()));
            let why = format!("{}{}", file.unwrap_or_default(), error.what());
            Ok((
                PackedType::F16,
                format!("{auto}: float16, because integers cannot be kept ({why})"),
            ))
        }
        Err(error) => Err(error),
    }
}

/// The types of some stacks, with the first stack of each.
pub(super) fn types_of<'a>(stacks: impl IntoIterator<Item = &'a Stack>) -> Vec<(DType, &'a Stack)> {
    let mut types: Vec<(DType, &Stack)> = Vec::new();
    for stack in stacks {
        let dtype = stack.image.meta().dtype;
        if types.iter().all(|(other, _)| *other != dtype) {
            types.push((dtype, stack));
        }
    }
    types
}

fn narrowest(
    plan: &Plan,
    values: &ValueOptions,
    resources: Resources,
    stop: &AtomicBool,
) -> Result<PackedType> {
    values.check_unchanged()?;
    common(&all(plan), values)?;
    let mut types = plan.samples.iter().map(|sample| sample.description.shared().dtype);
    let first = types.next().unwrap_or(DType::F16);
    if let Some(other) = types.find(|other| *other != first) {
        return Err(Error::conflict(format!("the inputs are of {first} and of {other}")));
    }
    let mut values = values.clone();
    values.dtype = match first {
        DType::Bool | DType::U8 => PackedType::U8,
        DType::I8 | DType::I16 => PackedType::I16,
        DType::U16 => PackedType::U16,
        _ => {
            // Any type of integers makes the numbers come as they are.
            values.dtype = PackedType::I16;
            let found = scan(plan.samples.iter(), &values, resources, None, stop)?;
            let range = found.filter(|found| found.least <= found.greatest);
            let (least, greatest) = range
                .map_or((0, 0), |found| (found.least.floor() as i64, found.greatest.ceil() as i64));
            let holds = |packed: &PackedType| {
                let range = packed.dtype().integers();
                range.is_some_and(|range| is_in(least, range) && is_in(greatest, range))
            };
            let types = [PackedType::U8, PackedType::I16, PackedType::U16];
            types.into_iter().find(holds).ok_or_else(|| {
                Error::conflict(format!("the values reach from {least} to {greatest}"))
            })?
        }
    };
    agreed(&all(plan), &values, resources, None, stop)?;
    Ok(values.dtype)
}

/// The common meaning of the numbers of samples.
fn common(samples: &[&PlannedSample], values: &ValueOptions) -> Result<Meaning> {
    let Some((first, others)) = samples.split_first() else {
        return Err(Error::bug("a plan without samples"));
    };
    let common = meaning(first, values)?;
    for sample in others {
        let theirs = meaning(sample, values)?;
        let differ = |what: &str, theirs: String, ours: String| {
            Err(Error::conflict(format!(
                "{what} {theirs}, but {ours} in {}; integers of all cubes need the same",
                first.input.text()
            ))
            .at(&sample.input.file)
            .with_remedy(remedy![
                "pass ",
                Opt::Dtype.to("float16"),
                ", or pack them separately"
            ]))
        };
        if (theirs.factor, theirs.offset) != (common.factor, common.offset) {
            let of = |meaning: Meaning| words(meaning.factor, meaning.offset);
            return differ("the values have", of(theirs), of(common));
        }
        if theirs.nodata != common.nodata {
            let text =
                |nodata: Option<i64>| nodata.map_or("none".to_owned(), |nodata| nodata.to_string());
            return differ(
                "the number that marks missing values is",
                text(theirs.nodata),
                text(common.nodata),
            );
        }
    }
    Ok(common)
}

/// A scale factor and an offset, in a message.
pub(crate) fn words(factor: f64, offset: f64) -> String {
    format!("scale factor {factor} and offset {offset}")
}

fn meaning(sample: &PlannedSample, values: &ValueOptions) -> Result<Meaning> {
    let info = sample.description.shared();
    let has_radiometry = sample.facts.radiometry.is_some();
    meaning_of(info, has_radiometry, values).map_err(|error| error.at(&sample.input.file))
}

/// The scale factor and offset of the integers of a cube.
///
/// # Errors
/// If it has no such integers.
pub(crate) fn scaling_of(info: &CubeInfo, values: &ValueOptions) -> Result<metadata::Scaling> {
    let Meaning { factor, offset, .. } = meaning_of(info, info.radiometry.is_some(), values)?;
    Ok(metadata::Scaling { factor, offset, missing: None })
}

fn meaning_of(info: &CubeInfo, has_radiometry: bool, values: &ValueOptions) -> Result<Meaning> {
    let refuse = |what: String| {
        Err(Error::conflict(what).with_remedy(remedy!["pass ", Opt::Dtype.to("float16")]))
    };
    let Some(range) = info.dtype.integers() else {
        return refuse(format!("its values are {}, not integers", info.dtype));
    };
    let is_raw = values.raw_values;
    if info.band_scaling.is_some() && !is_raw {
        return refuse("its bands have different scale factors or offsets".to_owned());
    }
    if has_radiometry {
        return refuse("its file calibrates every pixel, which changes values".to_owned());
    }
    let Scaling { multiply, divide, add } = if is_raw { Scaling::NONE } else { info.scaling };
    let (factor, offset) = (multiply / divide, add);
    if !factor.is_normal() || !offset.is_finite() {
        return refuse(format!("its values have {}", words(factor, offset)));
    }
    let nodata = values.nodata.or(info.ignore_value).filter(|nodata| nodata.fract() == 0.0);
    let nodata = nodata.map(|nodata| nodata as i64).filter(|nodata| is_in(*nodata, range));
    Ok(Meaning { factor, offset, nodata })
}

fn is_in(number: i64, (least, greatest): (i64, i64)) -> bool {
    (least..=greatest).contains(&number)
}

/// Reads the numbers of some samples; `None` if there are no samples. If `missing` says what stands
/// for missing values, all numbers must fit the type in the options.
///
/// # Errors
/// If a cube cannot be read, a number does not fit, or `stop` was set.
fn scan<'a>(
    samples: impl Iterator<Item = &'a PlannedSample> + Send,
    values: &ValueOptions,
    resources: Resources,
    missing: Option<Option<i64>>,
    stop: &AtomicBool,
) -> Result<Option<Found>> {
    let dtype = values.dtype();
    let (least, greatest) = dtype.integers().unwrap_or_default();
    let pieces = samples.flat_map(|sample| match cut(sample, values, resources) {
        Ok(pieces) => pieces.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    });
    let pool = threads::pool(resources.threads, "integers")?;
    let found = pool.in_turn(pieces, Room::default, |room, piece| {
        let Piece { cube, reads } = piece?;
        let mut found = Found::nothing();
        for rows in reads {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped")
                    .with_remedy("nothing was written yet"));
            }
            cube.read_tiles(rows, room, &mut |tile, numbers| {
                numbers.iter().for_each(|number| found.add(*number));
                let Some(missing) = missing else { return Ok(()) };
                let fits = |number: f32| match number.is_nan() {
                    true => missing.is_some(),
                    false => {
                        (least as f32..=greatest as f32).contains(&number)
                            && missing != Some(number as i64)
                    }
                };
                match numbers.iter().position(|number| !fits(*number)) {
                    None => Ok(()),
                    Some(at) => {
                        let pixel = cube.locate(tile, at);
                        Err(integers::refuse(dtype, missing, pixel, numbers[at]))
                    }
                }
            })?;
        }
        Ok(found)
    })?;
    Ok(found.into_iter().reduce(Found::merge))
}
