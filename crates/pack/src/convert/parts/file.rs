//! The file of a plan. It contains everything that workers and the commit need to know, so that
//! they decide nothing.
//!
//! It is JSON with a hash of itself. What many cubes have in common (their wavelengths, their type)
//! is stored once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::metadata::{CompanionMeaning, MaskOrigin};
use hsipack_format::names::by_name;
use hsipack_format::{
    Codec, Color, Compressor, CubeShape, DType, Error, Geo, Grid, Opt, Result, Shuffle, Tile,
    remedy,
};
use hsipack_source::{CubeInfo, Exposure, Radiometry, Scaling};
use hsipack_store::remote::is_url;
use hsipack_store::{bounded_read, output};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::convert::assignment::Assignment;
use crate::convert::companions::PlannedCompanion;
use crate::convert::masks::MaskGroup;
use crate::convert::metadata::CREATED_BY;
use crate::convert::options::{
    BandGroup, ChunkShape, ConvertOptions, KeepBits, LayoutOptions, MaskOption, PackedType,
    ValueOptions,
};
use crate::convert::options::{CompanionOption, FitMethod};
use crate::convert::plan::{Description, OwnInfo, Plan, PlannedMask, PlannedSample, PlannedStack};
use crate::convert::request::CommandRecord;
use crate::convert::sealed;
use crate::input::Input;
use crate::pattern::Fields;
use crate::precision::Information;

/// A planned conversion.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PlanFile<'a> {
    /// The program and version that planned it. All later steps must use the same version.
    pub created_by: String,
    /// The dataset.
    pub output: PathBuf,
    /// The working directory, if a path is relative.
    pub folder: Option<PathBuf>,
    /// Whether cubes are appended.
    pub append: bool,
    /// Identifies the command.
    pub request: String,
    /// Identifies the work.
    pub identity: String,
    /// On a server, the id of the writer that holds the output.
    pub writer: Option<String>,
    options: OptionsRecord,
    masks: Vec<MaskGroup>,
    companions: Vec<CompanionOption>,
    split_stats: bool,
    #[serde(with = "by_name")]
    dtype: PackedType,
    keep_bits: KeepBits,
    information: Option<Information>,
    notes: Vec<String>,
    skipped: Vec<String>,
    stacks: Vec<StackRecord>,
    /// Properties that cubes have in common.
    kinds: Vec<KindRecord>,
    samples: Vec<SampleRecord<'a>>,
}

#[derive(Deserialize)]
struct Creator {
    created_by: String,
}

/// The purpose of the plan.
pub(super) struct Header<'a> {
    pub folder: Option<PathBuf>,
    pub append: bool,
    pub request: &'a str,
    pub identity: &'a str,
    pub writer: Option<&'a str>,
}

#[derive(Debug, Serialize, Deserialize)]
struct OptionsRecord {
    values: ValueOptions,
    masks: Vec<MaskOption>,
    targets: Vec<Assignment>,
    images: Vec<Assignment>,
    fit: Option<FitMethod>,
    mask_fill: Option<u16>,
    #[serde(with = "by_name")]
    compressor: Compressor,
    level: u8,
    #[serde(with = "by_name")]
    shuffle: Shuffle,
    chunk: Option<ChunkShape>,
    band_group: Option<BandGroup>,
    block_bytes: usize,
    shard_bytes: usize,
    command: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct GridRecord {
    shape: [usize; 3],
    chunk: [usize; 2],
    /// Bands of a chunk.
    band_group: usize,
    samples_per_shard: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct MaskRecord {
    name: String,
    dtype: String,
    grid: GridRecord,
    codec: Codec,
    layers: Vec<String>,
    class_names: Option<Vec<String>>,
    #[serde(default)]
    class_colors: Vec<Option<Color>>,
    #[serde(rename = "made")]
    origin: Option<(String, Value)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct CompanionRecord {
    name: String,
    dtype: String,
    grid: GridRecord,
    codec: Codec,
    meaning: CompanionMeaning,
}

#[derive(Debug, Serialize, Deserialize)]
struct StackRecord {
    name: String,
    grid: GridRecord,
    codec: Codec,
    samples: Vec<usize>,
    existing: usize,
    scale: f64,
    offset: f64,
    missing: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    wavelength: Option<Vec<Number>>,
    fwhm: Option<Vec<Number>>,
    good_bands: Option<Vec<bool>>,
    band_names: Option<Vec<String>>,
    masks: Vec<MaskRecord>,
    companions: Vec<CompanionRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KindRecord {
    format: String,
    shape: [usize; 3],
    dtype: String,
    wavelength: Option<Vec<Number>>,
    fwhm: Option<Vec<Number>>,
    good_bands: Option<Vec<bool>>,
    band_names: Option<Vec<String>>,
    ignore_value: Option<Number>,
    /// Multiply, divide, add.
    scaling: [Number; 3],
    /// The scaling of each band, if bands differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    band_scaling: Option<Vec<[Number; 3]>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    empty_bands: Vec<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    exposure: Option<(String, Number, String)>,
    class_names: Option<Vec<String>>,
    /// Bands that are kept.
    bands: Option<Vec<usize>>,
}

/// Strings and maps are borrowed from the plan when it is written, because there may be very many.
#[derive(Debug, Serialize, Deserialize)]
struct SampleRecord<'a> {
    path: PathBuf,
    variable: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    axes: Option<Cow<'a, str>>,
    name: Cow<'a, str>,
    stack: usize,
    index: usize,
    kind: usize,
    geo: Option<Cow<'a, Geo>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    radiometry: Option<Cow<'a, Radiometry>>,
    columns: Cow<'a, Map<String, Value>>,
    #[serde(default, skip_serializing_if = "has_no_fields")]
    fields: Cow<'a, Fields>,
    masks: Cow<'a, [Option<String>]>,
    companions: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    references: Option<Cow<'a, str>>,
    bytes: u64,
    fingerprint: Cow<'a, str>,
}

fn has_no_fields(fields: &Fields) -> bool {
    fields.is_empty()
}

/// A number that JSON may not be able to represent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    /// The bits of an infinity or NaN.
    Other {
        bits: u64,
    },
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        if number.is_finite() {
            Self::Finite(number)
        } else {
            Self::Other { bits: number.to_bits() }
        }
    }
}

impl From<Number> for f64 {
    fn from(number: Number) -> Self {
        match number {
            Number::Finite(number) => number,
            Number::Other { bits } => f64::from_bits(bits),
        }
    }
}

fn numbers(list: &Option<Vec<f64>>) -> Option<Vec<Number>> {
    list.as_ref().map(|list| list.iter().copied().map(Number::from).collect())
}

fn reals(list: Option<Vec<Number>>) -> Option<Vec<f64>> {
    list.map(|list| list.into_iter().map(f64::from).collect())
}

fn shape_of([rows, columns, bands]: [usize; 3]) -> CubeShape {
    CubeShape { rows, columns, bands }
}

fn axes(shape: CubeShape) -> [usize; 3] {
    [shape.rows, shape.columns, shape.bands]
}

fn dtype(name: &str) -> Result<DType> {
    DType::from_name(name).ok_or_else(|| Error::malformed(format!("there is no type {name}")))
}

impl From<&Grid> for GridRecord {
    fn from(grid: &Grid) -> Self {
        let Tile { rows, columns } = grid.tile();
        Self {
            shape: axes(grid.shape()),
            chunk: [rows, columns],
            band_group: grid.band_group(),
            samples_per_shard: grid.samples_per_shard(),
        }
    }
}

impl GridRecord {
    fn grid(&self) -> Result<Grid> {
        let [rows, columns] = self.chunk;
        let grid = Grid::new(shape_of(self.shape), Tile { rows, columns }, self.samples_per_shard)?;
        grid.in_band_groups(self.band_group)
    }
}

impl From<&PlannedMask> for MaskRecord {
    fn from(mask: &PlannedMask) -> Self {
        Self {
            name: mask.name.clone(),
            dtype: mask.dtype.name().to_owned(),
            grid: (&mask.grid).into(),
            codec: mask.codec,
            layers: mask.layers.clone(),
            class_names: mask.class_names.clone(),
            class_colors: mask.class_colors.clone(),
            origin: mask
                .origin
                .as_ref()
                .map(|origin| (origin.command.clone(), origin.recipe.clone())),
        }
    }
}

impl MaskRecord {
    fn mask(self) -> Result<PlannedMask> {
        Ok(PlannedMask {
            dtype: dtype(&self.dtype)?,
            grid: self.grid.grid()?,
            codec: self.codec,
            name: self.name,
            layers: self.layers,
            class_names: self.class_names,
            class_colors: self.class_colors,
            origin: self.origin.map(|(command, recipe)| MaskOrigin { command, recipe }),
        })
    }
}

impl From<&PlannedCompanion> for CompanionRecord {
    fn from(companion: &PlannedCompanion) -> Self {
        let PlannedCompanion { name, dtype, grid, codec, meaning } = companion;
        Self {
            name: name.clone(),
            dtype: dtype.name().to_owned(),
            grid: grid.into(),
            codec: *codec,
            meaning: meaning.clone(),
        }
    }
}

impl CompanionRecord {
    fn companion(self) -> Result<PlannedCompanion> {
        let Self { name, dtype: type_name, grid, codec, meaning } = self;
        Ok(PlannedCompanion { name, dtype: dtype(&type_name)?, grid: grid.grid()?, codec, meaning })
    }
}

impl From<&PlannedStack> for StackRecord {
    fn from(stack: &PlannedStack) -> Self {
        Self {
            name: stack.name.clone(),
            grid: (&stack.grid).into(),
            codec: stack.codec,
            samples: stack.samples.clone(),
            existing: stack.existing,
            scale: stack.scale,
            offset: stack.offset,
            missing: stack.missing,
            unit: stack.unit.clone(),
            wavelength: numbers(&stack.wavelength),
            fwhm: numbers(&stack.fwhm),
            good_bands: stack.good_bands.clone(),
            band_names: stack.band_names.clone(),
            masks: stack.masks.iter().map(MaskRecord::from).collect(),
            companions: stack.companions.iter().map(CompanionRecord::from).collect(),
        }
    }
}

impl StackRecord {
    fn stack(self) -> Result<PlannedStack> {
        Ok(PlannedStack {
            grid: self.grid.grid()?,
            codec: self.codec,
            name: self.name,
            samples: self.samples,
            existing: self.existing,
            scale: self.scale,
            offset: self.offset,
            missing: self.missing,
            unit: self.unit,
            wavelength: reals(self.wavelength),
            fwhm: reals(self.fwhm),
            good_bands: self.good_bands,
            band_names: self.band_names,
            masks: self.masks.into_iter().map(MaskRecord::mask).collect::<Result<_>>()?,
            companions: self
                .companions
                .into_iter()
                .map(CompanionRecord::companion)
                .collect::<Result<_>>()?,
        })
    }
}

impl From<&Description> for KindRecord {
    fn from(description: &Description) -> Self {
        let info = description.shared();
        let scaling =
            |scaling: &Scaling| [scaling.multiply, scaling.divide, scaling.add].map(Number::from);
        let exposure = |exposure: &Exposure| {
            (exposure.field.clone(), exposure.time.into(), exposure.unit.clone())
        };
        Self {
            format: info.format.clone(),
            shape: axes(info.shape),
            dtype: info.dtype.name().to_owned(),
            wavelength: numbers(&info.wavelength),
            fwhm: numbers(&info.fwhm),
            good_bands: info.good_bands.clone(),
            band_names: info.band_names.clone(),
            ignore_value: info.ignore_value.map(Number::from),
            scaling: scaling(&info.scaling),
            band_scaling: info.band_scaling.as_ref().map(|all| all.iter().map(scaling).collect()),
            empty_bands: info.empty_bands.clone(),
            unit: info.unit.clone(),
            exposure: info.exposure.as_ref().map(exposure),
            class_names: info.class_names.clone(),
            bands: description.bands.clone(),
        }
    }
}

impl KindRecord {
    fn description(&self) -> Result<Description> {
        let scaling = |numbers: &[Number; 3]| {
            let [multiply, divide, add] = numbers.map(f64::from);
            Scaling { multiply, divide, add }
        };
        let exposure = self.exposure.clone();
        let shape = shape_of(self.shape);
        let info = CubeInfo {
            wavelength: reals(self.wavelength.clone()),
            fwhm: reals(self.fwhm.clone()),
            good_bands: self.good_bands.clone(),
            band_names: self.band_names.clone(),
            ignore_value: self.ignore_value.map(f64::from),
            scaling: scaling(&self.scaling),
            band_scaling: self.band_scaling.as_ref().map(|all| all.iter().map(scaling).collect()),
            empty_bands: self.empty_bands.clone(),
            unit: self.unit.clone(),
            exposure: exposure.map(|(field, time, unit)| Exposure {
                field,
                time: time.into(),
                unit,
            }),
            class_names: self.class_names.clone(),
            ..CubeInfo::new(self.format.clone(), shape, dtype(&self.dtype)?, "")
        };
        Ok(Description::new(info, self.bands.clone()).0)
    }
}

impl OptionsRecord {
    fn of(options: &ConvertOptions, values: &ValueOptions) -> Self {
        let layout = &options.layout;
        Self {
            values: values.clone(),
            masks: options.mask.clone(),
            targets: options.target.clone(),
            images: options.image.clone(),
            fit: options.fit,
            mask_fill: options.mask_fill,
            compressor: layout.codec,
            level: layout.level,
            shuffle: layout.filter,
            chunk: layout.chunk,
            band_group: layout.band_group,
            block_bytes: layout.block_size,
            shard_bytes: layout.shard_size,
            command: options.command.clone(),
        }
    }

    fn options(self) -> ConvertOptions {
        ConvertOptions {
            values: self.values,
            mask: self.masks,
            target: self.targets,
            image: self.images,
            fit: self.fit,
            mask_fill: self.mask_fill,
            layout: LayoutOptions {
                codec: self.compressor,
                level: self.level,
                filter: self.shuffle,
                chunk: self.chunk,
                band_group: self.band_group,
                block_size: self.block_bytes,
                shard_size: self.shard_bytes,
            },
            command: self.command,
            ..ConvertOptions::default()
        }
    }
}

impl<'a> PlanFile<'a> {
    /// The file for a plan that was made for `options`.
    pub fn new(plan: &'a Plan, options: &ConvertOptions, header: Header) -> Self {
        let mut kinds = Vec::new();
        let mut numbers: HashMap<String, usize> = HashMap::new();
        let mut kind_of: HashMap<*const Description, usize> = HashMap::new();
        let mut number_of = |description: &Arc<Description>| {
            let kind = KindRecord::from(&**description);
            let text = serde_json::to_string(&kind).expect("plain values");
            *numbers.entry(text).or_insert_with(|| {
                kinds.push(kind);
                kinds.len() - 1
            })
        };
        let samples = plan.samples.iter().map(|sample| {
            let description = &sample.description;
            let kind =
                *kind_of.entry(Arc::as_ptr(description)).or_insert_with(|| number_of(description));
            // The path as the user would type it: local files that mirror objects exist only in this process.
            let input = Input { variable: None, ..sample.input.clone() };
            SampleRecord {
                path: PathBuf::from(input.text()),
                variable: sample.input.variable.as_deref().map(Cow::from),
                axes: sample.input.axes.as_deref().map(Cow::from),
                name: Cow::from(&sample.name),
                stack: sample.stack,
                index: sample.index,
                kind,
                geo: sample.facts.geo.as_ref().map(Cow::Borrowed),
                radiometry: sample.facts.radiometry.as_ref().map(Cow::Borrowed),
                columns: Cow::Borrowed(&sample.columns),
                fields: Cow::Borrowed(&sample.input.fields),
                masks: Cow::from(&sample.masks),
                companions: Cow::from(&sample.companions),
                bytes: sample.source_bytes,
                references: sample.references.as_deref().map(Cow::from),
                fingerprint: Cow::from(&sample.fingerprint),
            }
        });
        let samples = samples.collect();
        Self {
            created_by: CREATED_BY.to_owned(),
            output: options.output.clone(),
            folder: header.folder,
            append: header.append,
            request: header.request.to_owned(),
            identity: header.identity.to_owned(),
            writer: header.writer.map(str::to_owned),
            options: OptionsRecord::of(options, &plan.values),
            masks: plan.masks.clone(),
            companions: plan.companions.clone(),
            split_stats: plan.split_stats,
            dtype: plan.values.dtype,
            keep_bits: plan.values.keep_bits,
            information: plan.information.clone(),
            notes: plan.notes.clone(),
            skipped: plan.skipped.clone(),
            stacks: plan.stacks.iter().map(StackRecord::from).collect(),
            kinds,
            samples,
        }
    }

    /// Refuses a path of a file that is no plan. It may be an input whose name is taken for that of
    /// the plan.
    ///
    /// # Errors
    /// If there is anything else, or it cannot be read.
    pub fn check_place(path: &Path) -> Result<()> {
        if is_url(path) || !path.exists() {
            return Ok(());
        }
        let mut start = Vec::new();
        // A pipe would wait for a writer.
        if path.is_file() {
            let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut start));
            read.map_err(|error| Error::io(path, "cannot read", error))?;
            if start.is_empty() || sealed::is_start(&start) {
                return Ok(());
            }
        }
        Err(Error::conflict("the file exists and is not a plan").at(path).with_remedy(remedy![
            "give ",
            Opt::Plan,
            " the name of a new file"
        ]))
    }

    /// Writes the plan to `path`, a file or a URL, as a whole. It replaces an existing file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        output::write_whole(path, &sealed::seal(self))
    }

    /// Reads the plan at `path`, a file or a URL.
    ///
    /// # Errors
    /// If it does not exist, is damaged, or another version of hsipack wrote it.
    pub fn read(path: &Path) -> Result<Self> {
        let text = bounded_read::read(path, bounded_read::SAMPLES)?;
        let not_whole = || {
            Error::damaged("not a plan, or the plan was changed or cut short").at(path).with_remedy(
                remedy![
                    "give the file that was written with ",
                    Opt::Plan,
                    "; if it is damaged, plan again"
                ],
            )
        };
        let text = std::str::from_utf8(&text).map_err(|_| not_whole())?;
        let content = sealed::content(text).ok_or_else(not_whole)?;
        // The other fields may differ between versions.
        let Creator { created_by } = serde_json::from_str(content).map_err(|_| not_whole())?;
        if created_by != CREATED_BY {
            return Err(Error::conflict(format!(
                "{created_by} wrote this plan; this is {CREATED_BY}"
            ))
            .at(path)
            .with_remedy("use the same version for all steps"));
        }
        serde_json::from_str(content).map_err(|error| not_whole().caused_by(error))
    }

    /// The plan, and the command that it was made for.
    ///
    /// # Errors
    /// If it contradicts itself.
    pub fn into_plan(self) -> Result<(Plan, CommandRecord)> {
        let options = self.options.options();
        let kinds = self.kinds.iter().map(|kind| kind.description().map(Arc::new));
        let kinds = kinds.collect::<Result<Vec<_>>>()?;
        let broken = || Error::malformed("the plan contradicts itself");
        let count = self.stacks.len();
        let samples = self.samples.into_iter().map(|sample| {
            let kind =
                kinds.get(sample.kind).filter(|_| sample.stack < count).ok_or_else(broken)?;
            Ok(PlannedSample {
                description: kind.clone(),
                facts: Box::new(OwnInfo {
                    geo: sample.geo.map(Cow::into_owned),
                    radiometry: sample.radiometry.map(Cow::into_owned),
                }),
                input: Input {
                    variable: sample.variable.map(Cow::into_owned),
                    axes: sample.axes.map(Cow::into_owned),
                    fields: sample.fields.into_owned(),
                    ..Input::of(&sample.path)
                },
                name: sample.name.into_owned(),
                stack: sample.stack,
                index: sample.index,
                columns: sample.columns.into_owned(),
                masks: sample.masks.into_owned(),
                companions: sample.companions.into_owned(),
                source_bytes: sample.bytes,
                references: sample.references.map(|references| Arc::from(&*references)),
                fingerprint: sample.fingerprint.into_owned(),
            })
        });
        let samples: Vec<PlannedSample> = samples.collect::<Result<_>>()?;
        let stacks: Vec<PlannedStack> =
            self.stacks.into_iter().map(StackRecord::stack).collect::<Result<_>>()?;
        if stacks.iter().flat_map(|stack| &stack.samples).any(|sample| *sample >= samples.len()) {
            return Err(broken());
        }
        let plan = Plan {
            samples,
            stacks,
            masks: self.masks,
            companions: self.companions,
            split_stats: self.split_stats,
            mask_fill: options.mask_fill,
            values: ValueOptions {
                dtype: self.dtype,
                keep_bits: self.keep_bits,
                ..options.values.clone()
            },
            information: self.information,
            notes: self.notes,
            // They were reported when the conversion was planned.
            references: Vec::new(),
            skipped: self.skipped,
        };
        let record = CommandRecord::new(self.request, &options, &plan.values);
        Ok((plan, record))
    }
}
