//! Plans a conversion: opens and checks every input once, and gives it a place in a stack.
//!
//! Planning writes nothing, so every problem that can be detected is found before any file is
//! changed: unreadable and truncated files, repeated names, masks of another shape, wavelengths
//! that disagree.

mod append;
mod bits;
mod class_names;
mod columns;
mod cube;
mod cube_notes;
mod description;
mod differences;
mod evidence;
mod examine;
mod integers;
mod lists;
mod pictures;
pub(crate) mod pieces;
mod planner;
mod scale;
mod select;

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::metadata::{MaskOrigin, Role};
use hsipack_format::samples::boxes::{BOX_LABELS, label_text};
use hsipack_format::{Codec, Color, CubeShape, DType, Error, ErrorKind, Grid, Result};
use hsipack_source::CubeInfo;
use hsipack_store::{Dataset, threads};
use serde::Serialize;
use serde_json::{Map, Value};

pub use self::append::check_append;
use self::columns::Columns;
pub(crate) use self::cube::pick;
pub use self::cube::{open_source, select_bands};
pub(crate) use self::cube::{transform, with_calibration};
pub use self::description::{Description, OwnInfo};
pub(crate) use self::differences::{notes as difference_notes, recipe_of};
use self::evidence::{Answer, Evidence, Found};
use self::examine::{Examined, Examiner};
pub use self::integers::{ExactIntegers, exact_integers};
pub(crate) use self::integers::{scaling_of, words as scaling_words};
pub(crate) use self::lists::assign as assign_lists;
pub(crate) use self::planner::MAX_SPLITS;
use self::planner::Planner;
use self::select::OtherFiles;
use super::companions::PlannedCompanion;
use super::masks::{self, MaskGroup};
use super::options::{CompanionOption, ConvertOptions, PackedType, ValueOptions};
use crate::input::Input;
use crate::precision::Information;
use crate::repeats::without_repeats;
use crate::search;

/// A planned conversion.
#[derive(Debug)]
pub struct Plan {
    /// Samples in the order of samples.jsonl.
    pub samples: Vec<PlannedSample>,
    /// Stacks in order of their names.
    pub stacks: Vec<PlannedStack>,
    /// Masks, in order of their names.
    pub masks: Vec<MaskGroup>,
    /// Companions: the targets, then the further images, each in the order of their names.
    pub companions: Vec<CompanionOption>,
    /// Whether statistics are recorded for each split.
    pub split_stats: bool,
    /// Class id of masks that cubes lack, and of pixels without a class.
    pub mask_fill: Option<u16>,
    /// The options of the values, completed with the choices that they leave to the plan.
    pub values: ValueOptions,
    /// The information in the bits of the values, if it was measured (`--keep-bits auto`).
    pub information: Option<Information>,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// White and dark references of each cube that has any.
    pub references: Vec<Pair>,
    /// Inputs that were skipped, with the reason (`--skip-errors`).
    pub skipped: Vec<String>,
}

impl Plan {
    /// Bytes of the files of all cubes. A file with several cubes counts once.
    pub fn source_bytes(&self) -> u64 {
        let mut counted: HashSet<(&Path, &str)> = HashSet::new();
        let mut bytes = 0;
        for sample in &self.samples {
            if counted.insert((&sample.input.file, &sample.fingerprint)) {
                bytes += sample.source_bytes;
            }
        }
        bytes
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

/// One cube and its place.
#[derive(Debug)]
pub struct PlannedSample {
    /// Where it is read from.
    pub input: Input,
    /// Its name.
    pub name: String,
    /// Its stack, as an index into [`Plan::stacks`].
    pub stack: usize,
    /// Its place in the stack's arrays, counted with the existing samples.
    pub index: usize,
    /// Bands and values as its file describes them, and the bands that are kept.
    pub description: Arc<Description>,
    /// Facts in its file that hold for it alone.
    pub facts: Box<OwnInfo>,
    /// Columns of the user's tables.
    pub columns: Map<String, Value>,
    /// Fingerprints of the files of its masks. Masks that it lacks (`None`) are filled.
    pub masks: Vec<Option<String>>,
    /// Fingerprints of the files of its companions.
    pub companions: Vec<String>,
    /// Fingerprint of the files of its white and dark references.
    pub references: Option<Arc<str>>,
    /// Bytes of its files.
    pub source_bytes: u64,
    /// Fingerprint of its files.
    pub fingerprint: String,
}

impl PlannedSample {
    /// The description in its file.
    pub fn info(&self) -> CubeInfo {
        self.description.of(&self.input.file, &self.facts)
    }

    /// Rows, columns and bands in its file.
    pub fn shape(&self) -> CubeShape {
        self.description.shared().shape
    }

    /// Bytes of its values, as stored in its file.
    pub fn value_bytes(&self) -> u64 {
        (self.shape().values() * self.description.shared().dtype.size()) as u64
    }

    /// Its split, if the user's tables give one.
    pub fn split(&self) -> Option<String> {
        self.text("split")
    }

    /// Its group, if the user's tables give one.
    pub fn group(&self) -> Option<String> {
        self.text("group")
    }

    /// Its label, if the user's tables give one.
    pub fn label(&self) -> Option<String> {
        self.text("label")
    }

    /// The classes of its boxes.
    pub fn box_labels(&self) -> impl Iterator<Item = String> + '_ {
        let labels = self.columns.get(BOX_LABELS).and_then(Value::as_array);
        labels.into_iter().flatten().map(label_text)
    }

    fn text(&self, column: &str) -> Option<String> {
        // Programs that give columns write null for no value.
        let value = self.columns.get(column).filter(|value| !value.is_null())?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

/// Cubes that have the same shape.
#[derive(Debug)]
pub struct PlannedStack {
    /// `ROWSxCOLUMNSxBANDS`.
    pub name: String,
    /// Chunks and shards of the image.
    pub grid: Grid,
    /// How the image's chunks are compressed.
    pub codec: Codec,
    /// Samples that are added, as indices into [`Plan::samples`].
    pub samples: Vec<usize>,
    /// Number of existing samples (`--append`).
    pub existing: usize,
    /// Factor between packed and physical values.
    pub scale: f64,
    /// Added to packed values times the factor. Floats have none.
    pub offset: f64,
    /// The integer that stands for missing values; `None` for floats, and if no value is missing.
    pub missing: Option<i64>,
    /// The unit of physical values, if all cubes state it.
    pub unit: Option<String>,
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
    /// Companions, in the order of [`Plan::companions`].
    pub companions: Vec<PlannedCompanion>,
}

impl PlannedStack {
    /// The companions of a role, with their types and bands.
    pub fn texts_of(&self, role: Role) -> Vec<String> {
        let of_role = self.companions.iter().filter(|companion| companion.meaning.role == role);
        of_role.map(PlannedCompanion::text).collect()
    }
}

/// One mask array of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedMask {
    /// Name of the array.
    pub name: String,
    /// uint8 or uint16; for boolean layers also uint32 or uint64.
    pub dtype: DType,
    /// Its chunks and shards.
    pub grid: Grid,
    /// How the mask's chunks are compressed.
    pub codec: Codec,
    /// Names of boolean layers; empty for class ids.
    pub layers: Vec<String>,
    /// Names of classes.
    pub class_names: Option<Vec<String>>,
    /// Colours of classes, as far as they are known.
    pub class_colors: Vec<Option<Color>>,
    /// How it was made, if it was added after packing. New cubes then have no file for it.
    pub origin: Option<MaskOrigin>,
}

/// Number of inputs that are examined before the first of them is added to the plan. If one cannot
/// be packed, at most so many others were examined in vain.
const EXAMINED_TOGETHER: usize = 128;

/// Plans a conversion. `base` is the dataset to append to; `stop` is set when the user wants to
/// stop.
///
/// # Errors
/// If anything is wrong with an input or the options, as far as this can be detected without
/// reading every value.
pub fn plan(options: &ConvertOptions, base: Option<&Dataset>, stop: &AtomicBool) -> Result<Plan> {
    options.check()?;
    let mut options = options.with_bands_exclude();
    if options.values.dtype != PackedType::Auto {
        return plan_as(&options, base, stop);
    }
    // Planned as float16 first, because the type follows from the inputs.
    let mut plan = plan_as(&options, base, stop)?;
    let (dtype, note) = integers::choose(&plan, &options.values, options.resources(), base, stop)?;
    options.values.dtype = dtype;
    if dtype.dtype().size() != DType::F16.size() {
        plan = plan_as(&options, base, stop)?;
    } else if !dtype.dtype().is_float() {
        integers::settle(&mut plan, &options.values, options.resources(), base, stop)?;
    }
    plan.values.dtype = dtype;
    plan.notes.push(note);
    Ok(plan)
}

/// Plans a conversion to the type in the options.
fn plan_as(options: &ConvertOptions, base: Option<&Dataset>, stop: &AtomicBool) -> Result<Plan> {
    let groups = masks::groups(&options.mask)?;
    let not_searched = RefCell::new(Vec::new());
    let skip = |path: String, error: Error| match options.skip_errors {
        true => {
            not_searched.borrow_mut().push((path, error));
            Ok(())
        }
        false => Err(error),
    };
    let (found, passed_over) =
        search::expand_skipping(&options.inputs, &options.exclude, &options.values, &skip)?;
    let mut inputs = without_repeats(found);
    inputs.extend_from_slice(&options.arrays);
    let mut planner = Planner::new(options, base, groups.clone())?;
    for (path, error) in not_searched.into_inner() {
        planner.skip(&path, error)?;
    }
    let mut columns = Columns::new(options, &inputs)?;
    let mut other_files = OtherFiles::default();
    // Files that turn out to be masks of cubes need neither a row of the table nor a path that matches.
    let mut used_notes = Vec::new();
    let companions = options.companions();
    let mut without_used = |inputs| {
        let (values, notes) = (&options.values, &mut used_notes);
        select::without_used_files(inputs, values, &companions, &groups, notes)
    };
    let (complete, notes) =
        columns.complete(inputs, &mut without_used, &mut |input, error| match other_files
            .add(input, &options.values)
        {
            true => Ok(()),
            false => planner.skip(&input.text(), error),
        })?;
    planner.plan.notes.extend(notes);
    planner.plan.notes.extend(used_notes);
    planner.plan.notes.extend(passed_over);
    drop(columns);
    let inputs = select::without_second_forms(complete, &options.values, &mut planner.plan.notes);
    planner.plan.notes.extend(pictures::check(options.label_patterns(), &inputs, base.is_some())?);
    let examiner = planner.examiner();
    let mut evidence = Evidence::new(&groups, &options.values);
    let mut refused = None;
    // Inputs stay in their order, so those after an input that waits for evidence wait, too.
    let mut waiting: VecDeque<Candidate> = VecDeque::new();
    let mut add = |candidate: Candidate| {
        let Candidate { input, examined, .. } = candidate;
        let text = input.text();
        let added = match examined {
            Err(error) if other_files.add(&input, &options.values) => {
                refused.get_or_insert(error);
                return Ok(());
            }
            Err(error) => Err(error),
            Ok(examined) => planner.add(input, examined),
        };
        added.or_else(|error| planner.skip(&text, error))
    };
    for together in inputs.chunks(EXAMINED_TOGETHER) {
        // Opening files takes longest, above all on servers.
        let examined = threads::in_turn(
            options.threads.max(1),
            "plan",
            together.iter(),
            || (),
            |(), input| {
                if stop.load(Ordering::Relaxed) {
                    return Err(Error::new(ErrorKind::Interrupted, "stopped")
                        .with_remedy("nothing was written yet"));
                }
                Ok(examiner.examine(input))
            },
        )?;
        for (input, examined) in together.iter().zip(examined) {
            let candidate = Candidate::new(input, examined, &mut evidence, &examiner);
            if let Ok(examined) = &candidate.examined {
                evidence.learn(&candidate.input, &examined.info)?;
            }
            waiting.push_back(candidate);
            while let Some(mut first) = waiting.pop_front() {
                if !first.settle(&mut evidence, &examiner) {
                    waiting.push_front(first);
                    break;
                }
                add(first)?;
            }
        }
    }
    for mut candidate in waiting {
        candidate.settle(&mut evidence, &examiner);
        add(candidate)?;
    }
    match refused {
        // There is nothing but such files.
        Some(error) if planner.plan.samples.is_empty() => Err(error),
        _ => {
            let cubes = planner.plan.samples.iter().map(|sample| &sample.input);
            planner.plan.notes.extend(other_files.notes(cubes));
            planner.finish(stop)
        }
    }
}

/// An input that was examined.
struct Candidate {
    input: Input,
    examined: Result<Examined>,
    /// The lengths of the axes of its array, if another cube may say their order.
    waits_for: Option<[usize; 3]>,
}

impl Candidate {
    /// An input with the order of its axes, if its own file does not say it and others do.
    fn new(
        input: &Input,
        examined: Result<Examined>,
        evidence: &mut Evidence<'_>,
        examiner: &Examiner<'_>,
    ) -> Self {
        let values = &examiner.options.values;
        let answer = match &examined {
            Err(error) if select::is_question(error, input, values) => evidence.of_question(input),
            Err(error) if error.kind() == ErrorKind::Conflict => {
                evidence.of_guess(input).map_or(Answer::Never, Answer::Found)
            }
            _ => Answer::Never,
        };
        let mut candidate = Self { input: input.clone(), examined, waits_for: None };
        match answer {
            Answer::Found(found) => candidate.examine_again(found, examiner),
            Answer::Later(lengths) => candidate.waits_for = Some(lengths),
            Answer::Never => {}
        }
        candidate
    }

    /// Whether the input does not wait for other cubes, or no longer.
    fn settle(&mut self, evidence: &mut Evidence<'_>, examiner: &Examiner<'_>) -> bool {
        let Some(lengths) = self.waits_for else { return true };
        let Some(found) = evidence.of_lengths(lengths) else { return false };
        self.waits_for = None;
        self.examine_again(found, examiner);
        true
    }

    fn examine_again(&mut self, Found { axes, why }: Found, examiner: &Examiner<'_>) {
        let note = format!("its axes are {axes}, according to {why}");
        self.input.axes = Some(axes);
        self.examined = examiner.examine(&self.input);
        if let Ok(examined) = &mut self.examined {
            examined.info.notes.push(note);
        }
    }
}
