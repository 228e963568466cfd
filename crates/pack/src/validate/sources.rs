//! Compares every value of every cube with its source, after the recorded scaling.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use half::f16;
use hsipack_format::{DType, Error, Result, Sample, mask};
use hsipack_source::{CubeInfo, RowBuffer};
use hsipack_store::dataset::RowScratch;
use hsipack_store::{Dataset, Stack, mirror, threads};

use serde::{Deserialize, Serialize};

use super::recipe::{self, Recipe};
use super::reproduction::{Memory, Reproduction};
use super::share::Share;
use super::{Problem, ProblemKind, ValidateOptions, stopped};
use crate::convert::CompanionReader;
use crate::convert::integers;
use crate::convert::masks::{self, CubeOfMask, MaskReader};
use crate::convert::options::ValueOptions;
use crate::convert::plan;
use crate::fingerprint::fingerprint;
use crate::input::Input;
use crate::precision;
use crate::progress::Progress;

/// The result of comparing with sources.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Found {
    /// Values that differ, with the ids of their samples.
    pub problems: Vec<(usize, Problem)>,
    /// Ids of samples whose source could not be compared, and why.
    pub unchecked: Vec<(usize, String)>,
    /// Number of samples that were compared.
    pub samples: usize,
}

impl Found {
    /// Adds what was found in other samples.
    pub fn merge(&mut self, other: Self) {
        self.problems.extend(other.problems);
        self.unchecked.extend(other.unchecked);
        self.samples += other.samples;
    }

    /// Sorts the result in the order of the samples.
    pub fn sorted(mut self) -> Self {
        self.problems.sort_by_key(|(id, _)| *id);
        self.unchecked.sort_by_key(|(id, _)| *id);
        self
    }
}

/// Compares every sample of a share with its source, except the samples whose names are in
/// `damaged`.
///
/// # Errors
/// If the dataset does not record how it was made, a thread cannot be started, or `progress.stop`
/// was set.
pub fn check(
    dataset: &Dataset,
    share: &Share,
    damaged: &HashSet<String>,
    options: &ValidateOptions,
    progress: &Progress,
) -> Result<Found> {
    let recipes = recipe::read(dataset)?;
    let samples = dataset.samples();
    let ids = (0..samples.len()).filter(|id| share.has(samples.stack(*id), samples.index(*id)));
    let ids: Vec<usize> = ids.filter(|id| !damaged.contains(samples.name(*id))).collect();
    let comparer = || Comparer {
        dataset,
        options,
        recipes: &recipes,
        memory: Memory::default(),
        rows: RowBuffer::new(),
    };
    let results = threads::pool(options.threads, "compare")?.in_turn(
        ids.into_iter(),
        comparer,
        |comparer, id| {
            if progress.stop.load(Ordering::Relaxed) {
                return Err(stopped());
            }
            let result = samples.get(id).and_then(|sample| comparer.compare(&sample));
            progress.cubes.fetch_add(1, Ordering::Relaxed);
            // If a source cannot be compared, the comparison continues with the others.
            Ok((id, result))
        },
    )?;
    if progress.stop.load(Ordering::Relaxed) {
        return Err(stopped());
    }
    let mut found = Found::default();
    for (id, result) in results {
        match result {
            Ok(None) => found.samples += 1,
            Ok(Some(problem)) => {
                found.samples += 1;
                found.problems.push((id, problem));
            }
            Err(error) => {
                let error = mirror::error_with_urls(error);
                found.unchecked.push((id, format!("{}: {error}", samples.name(id))));
            }
        }
    }
    Ok(found)
}

/// The state of one thread.
struct Comparer<'a> {
    dataset: &'a Dataset,
    options: &'a ValidateOptions,
    recipes: &'a [Recipe],
    memory: Memory,
    rows: RowBuffer,
}

impl Comparer<'_> {
    /// The first difference between a sample and its source, if there is one.
    fn compare(&mut self, sample: &Sample) -> Result<Option<Problem>> {
        let recipe = recipe::of(self.recipes, sample.id).ok_or_else(|| {
            Error::damaged("the dataset does not record how this sample was made")
        })?;
        let stack = self
            .dataset
            .stack(&sample.stack)
            .ok_or_else(|| Error::damaged("its stack does not exist"))?;
        let root = self.options.source_root.as_deref();
        let input = recipe::locate(sample, self.dataset.path(), root)?;
        let difference = match self.compare_image(sample, stack, recipe, &input)? {
            None => self.compare_masks(sample, stack, recipe, &input)?,
            some => some,
        };
        let difference = match difference {
            None => self.compare_companions(sample, stack, recipe, &input)?,
            some => some,
        };
        let source = plan::open_source(&input, &recipe.values)?;
        let changed = fingerprint(&source.info().files)?.1 != sample.source.fingerprint;
        let what = match (difference, changed) {
            (None, false) => return Ok(None),
            (None, true) => {
                "the source file changed since the conversion, but its values did not".to_owned()
            }
            (Some(what), false) => what,
            (Some(what), true) => format!("{what}; the source file changed since the conversion"),
        };
        let file = mirror::url_of(&input.file).unwrap_or(input.file);
        Ok(Some(Problem {
            stack: Some(sample.stack.clone()),
            index: Some(sample.index),
            sample: Some(sample.name.clone()),
            ..Problem::new(ProblemKind::Source, &file, mirror::with_urls(&what))
        }))
    }

    fn compare_image(
        &mut self,
        sample: &Sample,
        stack: &Stack,
        recipe: &Recipe,
        input: &Input,
    ) -> Result<Option<String>> {
        let both = Reproduction::open(sample, stack, recipe, input)?;
        match scaling_difference(stack, both.source.info(), &recipe.values) {
            None => self.compare_values(&both, "band"),
            some => Ok(some),
        }
    }

    fn compare_companions(
        &mut self,
        sample: &Sample,
        stack: &Stack,
        recipe: &Recipe,
        input: &Input,
    ) -> Result<Option<String>> {
        for companion in &recipe.companions {
            let Some(array) = stack.companion(&companion.name) else { continue };
            let shape = stack.image.shape();
            let (rows, columns) = (shape.rows, shape.columns);
            let cube = CubeOfMask { input, rows, columns, geo: sample.geo.as_ref() };
            let reader = CompanionReader::open(companion, cube)?;
            let both = Reproduction::of_companion(sample, array, reader);
            if let Some(difference) = self.compare_values(&both, companion.role.bands())? {
                let (role, name) = (companion.role.words(), &companion.name);
                return Ok(Some(format!("{role} {name}: {difference}")));
            }
        }
        Ok(None)
    }

    /// The first difference between packed values and those of their source. `bands` says what its
    /// bands are called.
    fn compare_values(&mut self, both: &Reproduction<'_>, bands: &str) -> Result<Option<String>> {
        if !both.has_the_shape() {
            return Ok(Some(format!("the source has the shape {}", both.source.info().shape)));
        }
        let transform = &both.transform;
        let mut difference = None;
        both.each_block(&mut self.memory, &mut |block, scratch| {
            let mut done = 0;
            transform.apply_f64(block.rows, block.start, scratch, &mut |start, values| {
                if difference.is_none()
                    && let Some((at, stored)) = first_difference(both, block.packed, done, values)
                {
                    let (pixel, band) = transform.locate(start, at);
                    difference = Some(format!(
                        "row {}, column {}, {bands} {band}: {} is stored, but the source has {}",
                        pixel.row, pixel.column, stored, values[at]
                    ));
                }
                done += values.len();
                Ok(())
            })?;
            Ok(difference.is_none())
        })?;
        Ok(difference)
    }

    fn compare_masks(
        &mut self,
        sample: &Sample,
        stack: &Stack,
        recipe: &Recipe,
        input: &Input,
    ) -> Result<Option<String>> {
        for group in masks::groups(&recipe.masks)? {
            let Some(array) = stack.mask(&group.name) else { continue };
            if array.meta().mask_meaning().origin.is_some() {
                continue;
            }
            let shape = array.shape();
            let optional = recipe.mask_fill.is_some();
            let (rows, columns) = (shape.rows, shape.columns);
            let cube = CubeOfMask { input, rows, columns, geo: sample.geo.as_ref() };
            let meaning = array.meta().mask_meaning();
            let reader = MaskReader::open(&group, cube, optional)?.map(|reader| {
                let names = meaning.class_names.as_deref();
                reader.filling(recipe.mask_fill).among(&meaning.layers, names)
            });
            let fill = recipe.mask_fill.filter(|_| !group.is_by_class()).unwrap_or(0).into();
            let slab = array.grid().tile().rows;
            let (mut packed, mut stored, mut ids) = (Vec::new(), Vec::new(), Vec::new());
            let mut scratch = RowScratch::default();
            for start in (0..shape.rows).step_by(slab) {
                let rows = start..shape.rows.min(start + slab);
                match &reader {
                    Some(reader) => reader.read_rows(rows.clone(), &mut self.rows, &mut ids)?,
                    None => {
                        ids.clear();
                        ids.resize(rows.len() * shape.columns, fill);
                    }
                }
                packed.resize(ids.len() * array.meta().dtype.size(), 0);
                array.read_rows(sample.index, rows.clone(), &mut scratch, &mut packed)?;
                stored.clear();
                mask::read(array.meta().dtype, &packed, &mut stored);
                if let Some(at) = (0..ids.len()).find(|at| stored[*at] != ids[*at]) {
                    let (row, column) = (rows.start + at / shape.columns, at % shape.columns);
                    return Ok(Some(format!(
                        "mask {}, row {row}, column {column}: {} is stored, but the source has {}",
                        group.name, stored[at], ids[at]
                    )));
                }
            }
        }
        Ok(None)
    }
}

/// How the scale factor and offset of a stack differ from those of a source. Comparing values
/// cannot find that for integers, which are packed as they are.
fn scaling_difference(stack: &Stack, info: &CubeInfo, values: &ValueOptions) -> Option<String> {
    let packed = stack.image.scaling();
    let (factor, offset) = match stack.image.meta().dtype.is_float() {
        true => (packed.factor, 0.0),
        false => match plan::scaling_of(info, values) {
            Ok(source) => (source.factor, source.offset),
            Err(error) => return Some(error.what().to_owned()),
        },
    };
    ((packed.factor, packed.offset) != (factor, offset)).then(|| {
        format!(
            "{} is stored, but the source has {}",
            plan::scaling_words(packed.factor, packed.offset),
            plan::scaling_words(factor, offset)
        )
    })
}

/// The first of `values` that differs from the values that are stored from value `start` on, and
/// the stored value. Integers, and values of which bits were dropped, must be the same bit for bit.
fn first_difference(
    both: &Reproduction<'_>,
    packed: &[u8],
    start: usize,
    values: &[f64],
) -> Option<(usize, f64)> {
    let (dtype, keep_bits) = (both.dtype(), both.transform.keep_bits);
    if !dtype.is_float() {
        let size = dtype.size();
        let mut stored = Vec::new();
        integers::read(&packed[start * size..(start + values.len()) * size], dtype, &mut stored);
        let marked = |number: f64| if both.missing() == Some(number) { f64::NAN } else { number };
        let mut pairs = stored.into_iter().map(marked).zip(values).enumerate();
        return pairs
            .find(|(_, (stored, value))| !same(*stored, **value))
            .map(|(at, (stored, _))| (at, stored));
    }
    values.iter().enumerate().find_map(|(at, value)| {
        let (stored, step) = match dtype {
            DType::F16 => {
                let offset = (start + at) * 2;
                (
                    f16::from_le_bytes([packed[offset], packed[offset + 1]]).to_f64(),
                    half_step(*value, 10, -14),
                )
            }
            _ => {
                let offset = (start + at) * 4;
                let bytes = packed[offset..offset + 4].try_into().expect("four bytes");
                (f32::from_le_bytes(bytes).into(), half_step(*value, 23, -126))
            }
        };
        let agree = match keep_bits {
            None => agrees(stored, *value, step),
            Some(bits) => same(stored, precision::nearest(*value, bits, dtype)),
        };
        (!agree).then_some((at, stored))
    })
}

/// Whether two values have the same bits, or are both NaN.
fn same(stored: f64, want: f64) -> bool {
    stored.to_bits() == want.to_bits() || stored.is_nan() && want.is_nan()
}

/// Whether a stored value is within half a step of the source's.
fn agrees(stored: f64, value: f64, half_step: f64) -> bool {
    if value.is_nan() || value.is_infinite() {
        stored.is_nan() == value.is_nan() && (value.is_nan() || stored == value)
    } else {
        (stored - value).abs() <= half_step
    }
}

/// Half the distance between neighbouring floating-point numbers around `value`. The numbers have
/// `digits` fraction bits and the lowest normal exponent `least`.
fn half_step(value: f64, digits: i32, least: i32) -> f64 {
    let exponent = ((value.to_bits() >> 52) & 0x7FF) as i32 - 1023;
    2f64.powi(exponent.max(least) - digits - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_step_is_the_distance_of_neighbours() {
        for (value, step) in [
            (1.0, 2f64.powi(-11)),
            (2047.9, 0.5),
            (2048.0, 1.0),
            (1e-6, 2f64.powi(-25)),
            (0.0, 2f64.powi(-25)),
        ] {
            assert_eq!(half_step(value, 10, -14), step, "{value}");
        }
    }

    proptest! {
        #[test]
        fn rounding_agrees_and_the_neighbour_but_one_does_not(value in -65000f64..65000.0, exponent in -24i32..0) {
            let value = value * 2f64.powi(exponent);
            let stored = crate::convert::cast::once(value);
            let step = half_step(value, 10, -14);
            prop_assert!(agrees(stored.to_f64(), value, step));
            let beyond = f16::from_bits(stored.to_bits() + 2);
            prop_assert!(!agrees(beyond.to_f64(), value, step));
        }
    }
}
