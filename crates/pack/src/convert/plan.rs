//! What a conversion will do: every input opened once, checked, and given its place in a stack.
//!
//! Nothing is written while planning, so that whatever can be found wrong is found before anything is
//! touched: unreadable and cut-short files, repeated names, masks of another shape, wavelengths that
//! disagree.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::dataset::ChunkArray;
use hsipack_format::{Codec, CubeShape, DType, Dataset, Error, ErrorKind, Grid, Result, Stack};
use regex::Regex;
use serde_json::{Map, Value};

use super::calibration::{self, Calibration};
use super::masks::{self, MaskGroup, MaskReader};
use super::options::{BandSelection, ConvertOptions, Mode, Scale, ValueOptions};
use super::transform::{Scratch, Transform};
use crate::fingerprint::fingerprint;
use crate::input::{self, Input};
use crate::source::{self, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Scaling, Source};
use crate::table::Table;

/// A conversion, planned.
#[derive(Debug)]
pub struct Plan {
    /// Samples in the order of samples.jsonl.
    pub samples: Vec<PlannedSample>,
    /// Stacks in order of their names.
    pub stacks: Vec<PlannedStack>,
    /// Masks, in order of their names.
    pub masks: Vec<MaskGroup>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// Inputs that were left out, with the reason (`--skip-errors`).
    pub skipped: Vec<String>,
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
}

/// Opens the source of an input, as the options ask.
///
/// # Errors
/// If it cannot be opened.
pub fn open_source(input: &Input, values: &ValueOptions) -> Result<Box<dyn Source>> {
    let axes = match &values.axes {
        None => None,
        Some(text) => Some(AxisOrder::parse(text).ok_or_else(|| {
            Error::conflict(format!("--axes {text} is not an order of axes"))
                .with_remedy("spell it with y, x and b, each once, such as byx")
        })?),
    };
    let options = OpenOptions { variable: input.variable.clone(), axes, mask: false };
    let source = source::open(&input.file, &options)?;
    let shape = source.info().shape;
    if shape.is_empty() || shape.checked_values().is_none() {
        return Err(Error::malformed(format!("the cube has the shape {shape}")).at(&input.file));
    }
    Ok(source)
}

impl PlannedSample {
    /// The transform of this sample's values.
    ///
    /// # Errors
    /// If a reference cube cannot be read or does not fit.
    pub fn transform(&self, values: &ValueOptions, scale: f64) -> Result<Transform> {
        transform(&self.input, &self.info, self.bands.clone(), values, scale)
    }
}

/// The transform of the cube in `input`.
///
/// # Errors
/// If a reference cube cannot be read or does not fit.
pub fn transform(
    input: &Input,
    info: &CubeInfo,
    bands: Option<Vec<usize>>,
    values: &ValueOptions,
    scale: f64,
) -> Result<Transform> {
    let calibration = Calibration::load(values, input, info.shape, bands.as_deref())?.map(Arc::new);
    Ok(with_calibration(info, bands, values, scale, calibration))
}

/// The transform of a cube whose references are known already.
pub fn with_calibration(
    info: &CubeInfo,
    bands: Option<Vec<usize>>,
    values: &ValueOptions,
    scale: f64,
    calibration: Option<Arc<Calibration>>,
) -> Transform {
    Transform {
        source: info.shape,
        dtype: values.dtype,
        bands,
        ignore_value: values.ignore_value.or(info.ignore_value),
        scaling: if values.raw_values { Scaling::NONE } else { info.scaling },
        calibration,
        normalize: values.normalize,
        nodata: values.nodata,
        scale,
    }
}

/// Which bands of a cube to keep; `None` is all of them.
///
/// # Errors
/// If the selection asks for what the cube does not have, or keeps nothing.
pub fn select_bands(info: &CubeInfo, values: &ValueOptions) -> Result<Option<Vec<usize>>> {
    let all = info.shape.bands;
    let mut bands: Vec<usize> = match &values.bands {
        BandSelection::All => (0..all).collect(),
        BandSelection::Numbers(numbers) => match numbers.iter().find(|band| **band >= all) {
            Some(band) => {
                return Err(Error::conflict(format!(
                    "there is no band {band}; the cube has bands 0 to {}",
                    all - 1
                ))
                .at(&info.files[0])
                .with_remedy("change --bands"));
            }
            None => numbers.clone(),
        },
        BandSelection::Wavelengths(ranges) => {
            let wavelength = info.wavelength.as_ref().ok_or_else(|| {
                Error::conflict("the wavelengths of the bands are not known")
                    .at(&info.files[0])
                    .with_remedy("select bands by number with --bands")
            })?;
            let inside = |nm: f64| ranges.iter().any(|(low, high)| (*low..=*high).contains(&nm));
            (0..all).filter(|band| inside(wavelength[*band])).collect()
        }
    };
    if values.drop_bad_bands {
        let good = info.good_bands.as_ref().ok_or_else(|| {
            Error::conflict("the file has no bad-band list")
                .at(&info.files[0])
                .with_remedy("leave --drop-bad-bands away, or select with --bands")
        })?;
        bands.retain(|band| good[*band]);
    }
    if bands.is_empty() {
        return Err(Error::conflict("no band is left after the selection").at(&info.files[0]));
    }
    Ok((bands != (0..all).collect::<Vec<_>>()).then_some(bands))
}

/// The entries of a per-band list that are kept.
pub(crate) fn pick<T: Clone>(list: &Option<Vec<T>>, bands: &Option<Vec<usize>>) -> Option<Vec<T>> {
    match bands {
        None => list.clone(),
        Some(bands) => {
            list.as_ref().map(|list| bands.iter().map(|band| list[*band].clone()).collect())
        }
    }
}

/// Plans a conversion; `base` is the dataset to append to, `stop` the user's wish to stop.
///
/// # Errors
/// Whatever is wrong with an input or the options, as far as it can be seen without reading every value.
pub fn plan(options: &ConvertOptions, base: Option<&Dataset>, stop: &AtomicBool) -> Result<Plan> {
    options.check()?;
    let groups = masks::groups(&options.masks)?;
    let inputs = input::expand(&options.inputs, &options.exclude)?;
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
    planner.finish()
}

struct Planner<'a> {
    options: &'a ConvertOptions,
    base: Option<&'a Dataset>,
    plan: Plan,
    names: HashSet<String>,
    by_shape: HashMap<CubeShape, usize>,
    table: Option<Table>,
    path_columns: Option<Regex>,
}

impl<'a> Planner<'a> {
    fn new(
        options: &'a ConvertOptions,
        base: Option<&'a Dataset>,
        masks: Vec<MaskGroup>,
    ) -> Result<Self> {
        let path_columns = options.path_columns.as_deref().map(|pattern| {
            Regex::new(pattern).map_err(|error| {
                Error::conflict(format!("--path-columns is not a regular expression: {error}"))
                    .with_remedy("for example (?P<group>P\\d+)/(?P<day>\\d+)_")
            })
        });
        let taken =
            base.iter().flat_map(|base| base.samples()).map(|sample| sample.name.clone()).collect();
        Ok(Self {
            options,
            base,
            plan: Plan {
                samples: Vec::new(),
                stacks: Vec::new(),
                masks,
                notes: Vec::new(),
                skipped: Vec::new(),
            },
            names: taken,
            by_shape: HashMap::new(),
            table: options.table.as_deref().map(Table::read).transpose()?,
            path_columns: path_columns.transpose()?,
        })
    }

    fn add(&mut self, input: Input) -> Result<()> {
        let source = open_source(&input, &self.options.values)?;
        let info = source.info().clone();
        drop(source);
        let columns = self.columns(&input)?;
        let name = match columns.get("name") {
            Some(Value::String(name)) => name.clone(),
            _ => input.default_name(),
        };
        if self.names.contains(&name) {
            return Err(Error::conflict(format!("a second cube is named {name}"))
                .at(&input.file)
                .with_remedy("give a common parent folder, so that names keep the path, or names in a CSV list"));
        }
        let bands = select_bands(&info, &self.options.values)?;
        let kept = bands.as_ref().map_or(info.shape.bands, Vec::len);
        let shape = CubeShape { bands: kept, ..info.shape };
        let (has_mask, masks) = self.open_masks(&input, &name, shape)?;
        let (source_bytes, fingerprint) = fingerprint(&info.files)?;
        let stack = self.stack(shape, &info, &bands)?;
        if let Err(error) = self.merge_masks(stack, masks) {
            self.forget_if_empty(shape, stack);
            return Err(error.at(&input.file));
        }
        // Nothing can go wrong any more: the cube gets its place.
        self.plan.notes.extend(info.notes.iter().map(|note| format!("{}: {note}", input.text())));
        self.note_references(&input);
        self.names.insert(name.clone());
        let place = self.plan.samples.len();
        let index = self.plan.stacks[stack].existing + self.plan.stacks[stack].samples.len();
        self.plan.stacks[stack].samples.push(place);
        self.plan.samples.push(PlannedSample {
            input,
            name,
            stack,
            index,
            info,
            bands,
            columns,
            has_mask,
            source_bytes,
            fingerprint,
        });
        Ok(())
    }

    /// The columns of the CSV list, the table and the path, for one input.
    fn columns(&mut self, input: &Input) -> Result<Map<String, Value>> {
        let mut columns = input.columns.clone();
        if let Some(pattern) = &self.path_columns {
            let path = input.file.to_string_lossy();
            let found = pattern.captures(&path).ok_or_else(|| {
                Error::conflict("the path does not match --path-columns").at(&input.file)
            })?;
            for group in pattern.capture_names().flatten() {
                if let Some(part) = found.name(group) {
                    columns.insert(group.to_owned(), Value::from(part.as_str()));
                }
            }
        }
        let name = columns
            .get("name")
            .and_then(Value::as_str)
            .map_or_else(|| input.default_name(), str::to_owned);
        if let Some(table) = &mut self.table {
            let row = table.take(&name).ok_or_else(|| {
                Error::conflict(format!("the table has no row named {name}"))
                    .at(&input.file)
                    .with_remedy("add the row, or correct its name")
            })?;
            columns.extend(row);
        }
        let mut own = columns.clone();
        own.remove("name");
        crate::table::check_columns(&own)?;
        Ok(columns)
    }

    /// Forgets a stack that was made for a cube which turned out not to fit.
    fn forget_if_empty(&mut self, shape: CubeShape, stack: usize) {
        if self.plan.stacks[stack].samples.is_empty() {
            self.plan.stacks.remove(stack);
            self.by_shape.remove(&shape);
            self.by_shape
                .values_mut()
                .filter(|place| **place > stack)
                .for_each(|place| *place -= 1);
        }
    }

    fn note_references(&mut self, input: &Input) {
        let values = &self.options.values;
        if values.white.is_none() && calibration::beside(&input.file, "WHITEREF").is_some() {
            self.plan.notes.push(format!(
                "{}: a white reference is beside it and not used; pass --white auto --dark auto to calibrate",
                input.text()
            ));
        }
    }

    /// The stack for a cube of `shape`, made if it is the first of its shape, and checked against what
    /// the cube says of its bands.
    fn stack(
        &mut self,
        shape: CubeShape,
        info: &CubeInfo,
        bands: &Option<Vec<usize>>,
    ) -> Result<usize> {
        let wavelength = pick(&info.wavelength, bands);
        let place = match self.by_shape.get(&shape) {
            Some(place) => *place,
            None => {
                let stack = self.new_stack(shape, info, bands)?;
                self.plan.stacks.push(stack);
                self.by_shape.insert(shape, self.plan.stacks.len() - 1);
                self.plan.stacks.len() - 1
            }
        };
        let stack = &mut self.plan.stacks[place];
        let file = &info.files[0];
        match (&stack.wavelength, &wavelength) {
            (Some(ours), Some(theirs)) => {
                let far = |(a, b): (&f64, &f64)| (a - b).abs() > self.options.wavelength_tolerance;
                if let Some(band) = ours.iter().zip(theirs).position(far) {
                    return Err(Error::conflict(format!(
                        "band {band} is at {} nm, but at {} nm in other cubes of {shape}",
                        theirs[band], ours[band]
                    ))
                    .at(file)
                    .with_remedy(
                        "pack it into another dataset, or pass --wavelength-tolerance NM",
                    ));
                }
            }
            (None, Some(_)) if stack.samples.is_empty() && stack.existing == 0 => {}
            (None, Some(theirs)) => {
                if stack.existing > 0 {
                    self.plan.notes.push(format!(
                        "{}: its wavelengths are dropped; the dataset has none for {shape}",
                        file.display()
                    ));
                } else {
                    self.plan.notes.push(format!(
                        "{}: its wavelengths are taken for all cubes of {shape}",
                        file.display()
                    ));
                    stack.wavelength = Some(theirs.clone());
                    stack.fwhm = pick(&info.fwhm, bands);
                }
            }
            (Some(_), None) => {
                self.plan.notes.push(format!(
                    "{}: it gives no wavelengths; those of other cubes of {shape} are taken",
                    file.display()
                ));
            }
            (None, None) => {}
        }
        let good = pick(&info.good_bands, bands);
        if good.is_some() && stack.good_bands.is_some() && good != stack.good_bands {
            self.plan.notes.push(format!("{}: its bad-band list differs from that of other cubes of {shape}; the first one is kept", file.display()));
        }
        Ok(place)
    }

    fn new_stack(
        &self,
        shape: CubeShape,
        info: &CubeInfo,
        bands: &Option<Vec<usize>>,
    ) -> Result<PlannedStack> {
        let size = self.options.values.dtype.size();
        let tile = self.options.layout.tile(shape, size);
        let per_shard = Grid::samples_for(shape, size, self.options.layout.shard_bytes);
        let grid = Grid::new(shape, tile, per_shard)?;
        if grid.chunk_values() * size > hsipack_format::codec::MAX_CHUNK {
            return Err(Error::conflict(format!(
                "a chunk of {}x{} pixels and {} bands is above 2 GiB",
                tile.rows, tile.columns, shape.bands
            ))
            .with_remedy("choose a smaller --chunk ROWSxCOLUMNS"));
        }
        let fresh = PlannedStack {
            name: shape.to_string(),
            grid,
            codec: self.options.layout.codec(self.options.values.dtype),
            samples: Vec::new(),
            existing: 0,
            scale: match self.options.values.scale {
                Scale::Factor(factor) => factor,
                Scale::None | Scale::Auto => 1.0,
            },
            wavelength: pick(&info.wavelength, bands),
            fwhm: pick(&info.fwhm, bands),
            good_bands: pick(&info.good_bands, bands),
            band_names: pick(&info.band_names, bands),
            masks: Vec::new(),
        };
        match self.base.and_then(|base| base.stack(&fresh.name)) {
            Some(stack) => continued(fresh, stack).map_err(|error| error.at(stack.image.folder())),
            None => Ok(fresh),
        }
    }

    /// Opens the masks of a cube: which of them it has, and what each asks of its array.
    fn open_masks(
        &self,
        input: &Input,
        name: &str,
        shape: CubeShape,
    ) -> Result<(Vec<bool>, Vec<PlannedMask>)> {
        let mut has = Vec::new();
        let mut arrays = Vec::new();
        for group in &self.plan.masks {
            let optional = self.options.mask_fill.is_some();
            let reader = MaskReader::open(group, input, name, shape.rows, shape.columns, optional)?;
            has.push(reader.is_some());
            let (greatest, layers, class_names) = match &reader {
                Some(reader) => {
                    (reader.scan()?, reader.layer_names.clone(), reader.class_names.clone())
                }
                None => (self.options.mask_fill.unwrap_or(0), Vec::new(), None),
            };
            let wide = greatest > 255 || layers.len() > 8;
            let dtype = if wide { DType::U16 } else { DType::U8 };
            let size = self.options.values.dtype.size();
            let flat = CubeShape { bands: 1, ..shape };
            let tile = match self.options.layout.chunk {
                Some(_) => self.options.layout.tile(shape, size),
                // The size of uint16 whatever the type: the grid must not depend on the values.
                None => hsipack_format::Tile::slab(flat, 2, hsipack_format::grid::TARGET_CHUNK),
            };
            let per_shard = Grid::samples_for(shape, size, self.options.layout.shard_bytes);
            let grid = Grid::new(flat, tile, per_shard)?;
            let codec = self.options.layout.codec(DType::U16);
            arrays.push(PlannedMask {
                name: group.name.clone(),
                dtype,
                grid,
                codec,
                layers,
                class_names,
            });
        }
        Ok((has, arrays))
    }

    fn merge_masks(&mut self, stack: usize, masks: Vec<PlannedMask>) -> Result<()> {
        let stack = &mut self.plan.stacks[stack];
        if stack.masks.is_empty() {
            if stack.existing > 0 && !masks.is_empty() {
                return Err(Error::conflict("the dataset has no masks for cubes of this shape")
                    .with_remedy("append without --mask, or pack a new dataset"));
            }
            stack.masks = masks;
            return Ok(());
        }
        let names =
            |masks: &[PlannedMask]| masks.iter().map(|mask| mask.name.clone()).collect::<Vec<_>>();
        if names(&stack.masks) != names(&masks) {
            return Err(Error::conflict(format!(
                "the dataset has the masks {:?} for cubes of this shape, this command gives {:?}",
                names(&stack.masks),
                names(&masks)
            ))
            .with_remedy("give the same --mask options, in the same order"));
        }
        // On a copy: a mask that does not fit must leave no trace.
        let mut merged = stack.masks.clone();
        for (ours, theirs) in merged.iter_mut().zip(masks) {
            if !ours.layers.is_empty() && !theirs.layers.is_empty() && ours.layers != theirs.layers
            {
                return Err(Error::conflict(format!(
                    "mask {} has other layers than in other cubes",
                    ours.name
                ))
                .with_remedy("give every cube the same layers in the same order"));
            }
            if theirs.dtype == DType::U16 && ours.dtype == DType::U8 {
                if stack.existing > 0 {
                    return Err(Error::conflict(format!(
                        "mask {} has ids above 255, but is uint8 in the dataset",
                        ours.name
                    ))
                    .with_remedy("pack a new dataset"));
                }
                ours.dtype = DType::U16;
            }
            if ours.layers.is_empty() {
                ours.layers = theirs.layers;
            }
            ours.class_names = ours.class_names.take().or(theirs.class_names);
        }
        stack.masks = merged;
        Ok(())
    }

    fn finish(mut self) -> Result<Plan> {
        if self.plan.samples.is_empty() {
            let first = self.plan.skipped.first().cloned().unwrap_or_default();
            return Err(Error::conflict(format!("no input could be opened; the first: {first}")));
        }
        if let Some(table) = &self.table {
            let unused = table.remaining();
            if !unused.is_empty() {
                let shown = unused[..unused.len().min(3)].join(", ");
                self.plan
                    .notes
                    .push(format!("{} rows of the table name no input: {shown}, …", unused.len()));
            }
        }
        self.plan.stacks.iter_mut().for_each(size_shards);
        if self.options.values.scale == Scale::Auto {
            self.choose_scales()?;
        }
        sort_stacks(&mut self.plan);
        Ok(self.plan)
    }

    /// `--scale auto`: reads every cube of each new stack once to learn its greatest magnitude.
    fn choose_scales(&mut self) -> Result<()> {
        for stack in self.plan.stacks.iter_mut().filter(|stack| stack.existing == 0) {
            let mut greatest = 0.0f64;
            for sample in &stack.samples {
                let sample = &self.plan.samples[*sample];
                greatest = greatest.max(greatest_magnitude(sample, self.options)?);
            }
            stack.scale = power_of_two_for(greatest);
        }
        Ok(())
    }
}

/// Fewest cubes a shard has room for, unless they are large: a dataset that is appended to cube by cube
/// shall not become a file a cube.
const ROOM: usize = 64;

/// Keeps a shard from having room for many more cubes than there are: an index has an entry for each.
fn size_shards(stack: &mut PlannedStack) {
    if stack.existing == 0 {
        let room = stack.samples.len().max(ROOM);
        stack.grid = stack.grid.at_most_per_shard(room);
        for mask in &mut stack.masks {
            mask.grid = mask.grid.at_most_per_shard(room);
        }
    }
}

/// Stacks are written in the order of their names, whatever the order of the inputs.
fn sort_stacks(plan: &mut Plan) {
    let mut order: Vec<usize> = (0..plan.stacks.len()).collect();
    order.sort_by(|a, b| plan.stacks[*a].name.cmp(&plan.stacks[*b].name));
    let mut place = vec![0; order.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new;
    }
    plan.stacks.sort_by(|a, b| a.name.cmp(&b.name));
    for sample in &mut plan.samples {
        sample.stack = place[sample.stack];
    }
}

/// A planned stack that goes on where `stack` of the dataset ends: its grid, scale and bands stay.
fn continued(fresh: PlannedStack, stack: &Stack) -> Result<PlannedStack> {
    let attributes = &stack.image.meta().attributes;
    let hsipack = attributes.get("hsipack");
    let list = |key: &str| hsipack.and_then(|own| own.get(key)).and_then(Value::as_array).cloned();
    let codec = |array: &ChunkArray| {
        let codecs = array.meta().codecs;
        codecs.blosc.filter(|_| codecs.checksum && array.meta().chunk_shape.is_some()).ok_or_else(
            || {
                Error::unsupported(
                    "chunks are not sharded, compressed with blosc and checked with crc32c",
                )
                .with_remedy("pack a new dataset; only hsipack's own layout can be appended to")
            },
        )
    };
    let masks = stack.masks.iter().map(|mask| {
        let words = |key: &str| {
            let own = mask.meta().attributes.get("hsipack").and_then(|own| own.get(key))?;
            own.as_array()?
                .iter()
                .map(|word| word.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        };
        Ok(PlannedMask {
            name: mask.name().to_owned(),
            dtype: mask.meta().dtype,
            grid: *mask.grid(),
            codec: codec(mask)?,
            layers: words("layers").unwrap_or_default(),
            class_names: words("class_names"),
        })
    });
    Ok(PlannedStack {
        grid: *stack.image.grid(),
        codec: codec(&stack.image)?,
        existing: stack.image.len(),
        scale: stack.image.scale_factor(),
        wavelength: stack.wavelength.clone(),
        fwhm: stack.fwhm.clone(),
        good_bands: list("good_bands").map(|list| list.iter().map(|good| good == true).collect()),
        band_names: list("band_names").map(|list| {
            list.iter().map(|name| name.as_str().unwrap_or_default().to_owned()).collect()
        }),
        masks: masks.collect::<Result<_>>()?,
        ..fresh
    })
}

fn greatest_magnitude(sample: &PlannedSample, options: &ConvertOptions) -> Result<f64> {
    let source = open_source(&sample.input, &options.values)?;
    let transform = sample.transform(&options.values, 1.0)?;
    let rows = sample.info.shape.rows;
    let (mut buffer, mut scratch, mut greatest) = (RowBuffer::new(), Scratch::default(), 0f64);
    let step = source.preferred_rows(options.memory / options.jobs.max(1)).max(16).min(rows);
    for start in (0..rows).step_by(step) {
        source.read_rows(start..rows.min(start + step), &mut buffer)?;
        let fold = |_, values: &[f64]| {
            let finite = values.iter().filter(|value| value.is_finite());
            greatest = finite.fold(greatest, |greatest, value| greatest.max(value.abs()));
            Ok(())
        };
        let mut fold = fold;
        transform
            .apply_f64(&buffer, start, &mut scratch, &mut fold)
            .map_err(|error| error.at(&sample.input.file))?;
    }
    Ok(greatest)
}

/// The power of two to divide values by, the greatest being `greatest`: 1 if fp16 holds them well.
fn power_of_two_for(greatest: f64) -> f64 {
    const MAX: f64 = 65504.0;
    if greatest > MAX {
        let mut scale = 1.0;
        while greatest / scale > MAX {
            scale *= 2.0;
        }
        scale
    } else if greatest > 0.0 && greatest < 1.0 / 16.0 {
        let mut scale = 1.0;
        while greatest / scale < 0.5 && scale > 1e-30 {
            scale /= 2.0;
        }
        scale
    } else {
        1.0
    }
}

/// Refuses to append where options that decide the layout of what exists differ.
///
/// # Errors
/// If the dataset was packed with another dtype.
pub fn check_append(options: &ConvertOptions, base: &Dataset) -> Result<()> {
    debug_assert!(options.mode != Mode::Create);
    match base.stacks().iter().find(|stack| stack.image.meta().dtype != options.values.dtype) {
        Some(stack) => Err(Error::conflict(format!(
            "the dataset holds {}, --dtype asks for {}",
            stack.image.meta().dtype,
            options.values.dtype
        ))
        .at(base.path())
        .with_remedy("append with the same --dtype")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn automatic_scales_are_powers_of_two_that_fit() {
        assert_eq!(power_of_two_for(0.4), 1.0);
        assert_eq!(power_of_two_for(65504.0), 1.0);
        assert_eq!(power_of_two_for(70000.0), 2.0);
        assert_eq!(power_of_two_for(1e6), 16.0);
        assert_eq!(power_of_two_for(0.01), 1.0 / 64.0);
        assert_eq!(power_of_two_for(0.0), 1.0);
    }

    #[test]
    fn bands_are_selected_by_number_wavelength_and_quality() {
        let mut info = CubeInfo::new("test", CubeShape::new(1, 1, 4), DType::U8, "t");
        info.wavelength = Some(vec![400.0, 500.0, 600.0, 700.0]);
        info.good_bands = Some(vec![true, true, false, true]);
        let select = |bands, drop_bad_bands| {
            select_bands(&info, &ValueOptions { bands, drop_bad_bands, ..Default::default() })
        };
        assert_eq!(select(BandSelection::All, false).unwrap(), None);
        assert_eq!(select(BandSelection::All, true).unwrap(), Some(vec![0, 1, 3]));
        assert_eq!(select(BandSelection::Numbers(vec![3, 0]), false).unwrap(), Some(vec![3, 0]));
        let ranges = BandSelection::Wavelengths(vec![(450.0, 600.0), (700.0, 700.0)]);
        assert_eq!(select(ranges, true).unwrap(), Some(vec![1, 3]));
        assert!(
            select(BandSelection::Numbers(vec![4]), false)
                .unwrap_err()
                .what()
                .contains("no band 4")
        );
        assert!(select(BandSelection::Wavelengths(vec![(1.0, 2.0)]), false).is_err());
    }
}
