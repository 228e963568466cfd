//! What is known about a cube in a file, or about a packed dataset.
//!
//! The field names of these types are the keys of `hsipack info --json`; they stay.

use std::collections::BTreeMap;
use std::ops::Range;

use hsipack_format::geo::Unit;
use hsipack_format::metadata::{MaskMeaning, Scaling as StoredScaling};
use hsipack_format::samples::Keys;
use hsipack_format::{Command, DType, Geo, Result, Samples, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::remote::is_url;
use hsipack_store::{Dataset, Stack, mirror, threads};
use serde::Serialize;
use serde_json::Value;

use crate::convert::stats::BandStats;
use crate::input::Input;
use crate::physical::{self, BUDGET, readers};
use crate::source::{Access, RowBuffer, Scaling, Source, products};

/// Shape as JSON gives it: rows, columns, bands.
type Shape = [usize; 3];

/// A cube in a file.
#[derive(Clone, Debug, Serialize)]
pub struct CubeReport {
    /// `cube`.
    pub kind: &'static str,
    /// As the user would type it.
    pub path: String,
    /// Format.
    pub format: String,
    /// Rows, columns, bands.
    pub shape: Shape,
    /// Type of the stored numbers.
    pub dtype: &'static str,
    /// Bytes of the values uncompressed.
    pub bytes: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// Every file that holds part of it.
    pub files: Vec<String>,
    /// Wavelengths, if known.
    pub wavelengths: Option<Wavelengths>,
    /// Numbers of bad bands from 0, where the file has a bad-band list.
    pub bad_bands: Option<Vec<usize>>,
    /// Whether the bands have names.
    pub band_names: Option<Vec<String>>,
    /// The stored number that marks missing values.
    pub ignore_value: Option<f64>,
    /// From stored numbers to physical values: value * multiply / divide + add; `null` if none.
    pub scaling: Option<ScalingReport>,
    /// The same for each band, where bands differ; `null` where they do not.
    pub band_scaling: Option<Vec<ScalingReport>>,
    /// Numbers of bands from 0 that the product says have no data.
    pub empty_bands: Vec<usize>,
    /// The unit of physical values, where the product defines it.
    pub unit: Option<String>,
    /// Names of classes, for classification maps.
    pub class_names: Option<Vec<String>>,
    /// Where the pixels lie on Earth: reference system, transform in GDAL's order, unit.
    pub geo: Option<Geo>,
    /// Quality layers that the product has beside the cube, of which `--mask NAME=product` makes a mask.
    pub quality_layers: Vec<String>,
    /// What reading every value found; `null` with `--quick`.
    pub values: Option<Values>,
    /// What the user should know.
    pub notes: Vec<String>,
}

/// Wavelengths of the bands; those at 0 nm, which a sensor does not use, only count.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Wavelengths {
    /// Number of bands.
    pub count: usize,
    /// Least, in nm.
    pub min_nm: f64,
    /// Greatest, in nm.
    pub max_nm: f64,
    /// `ascending`, `descending` or `unordered`.
    pub order: &'static str,
    /// Least and greatest full width at half maximum in nm.
    pub fwhm_nm: Option<[f64; 2]>,
}

/// From stored numbers to physical values.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ScalingReport {
    /// Multiplied with the stored number.
    pub multiply: f64,
    /// Divides it.
    pub divide: f64,
    /// Added last.
    pub add: f64,
}

/// What all values came to, physical (masked and scaled).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Values {
    /// Least finite value.
    pub min: Option<f64>,
    /// Greatest finite value.
    pub max: Option<f64>,
    /// NaN values in the file.
    pub nan: u64,
    /// Infinite values.
    pub inf: u64,
    /// Values equal to the ignore value, and those of bands without data.
    pub ignored: u64,
}

/// A packed dataset.
#[derive(Clone, Debug, Serialize)]
pub struct DatasetReport {
    /// `dataset`.
    pub kind: &'static str,
    /// The folder.
    pub path: String,
    /// Version of the layout.
    pub layout: Option<u64>,
    /// Number of samples.
    pub samples: usize,
    /// Its stacks.
    pub stacks: Vec<StackReport>,
    /// Bytes of all shard files.
    pub stored_bytes: u64,
    /// Bytes of all values uncompressed.
    pub uncompressed_bytes: u64,
    /// uncompressed_bytes / stored_bytes.
    pub ratio: f64,
    /// Samples a split; the key is empty for samples without one.
    pub splits: BTreeMap<String, usize>,
    /// Samples a group, likewise.
    pub groups: BTreeMap<String, usize>,
    /// Samples a label, likewise.
    pub labels: BTreeMap<String, usize>,
    /// Reference systems and pixel sizes of the samples that say where they lie.
    pub geo: Vec<Georeferenced>,
    /// Names of further columns in samples.jsonl.
    pub columns: Vec<String>,
    /// Version of hsipack that wrote it.
    pub created_by: Option<String>,
    /// When, UTC.
    pub created: Option<String>,
    /// By which command.
    pub command: Option<String>,
    /// How often cubes were appended.
    pub appends: usize,
    /// Hash of SHA256SUMS.
    pub fingerprint: String,
}

/// Samples whose pixels are of one size in one reference system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Georeferenced {
    /// `EPSG:` and a code, or WKT, where known.
    pub crs: Option<String>,
    /// Width and height of a pixel, in units of the reference system.
    pub pixel_size: [f64; 2],
    /// The unit, where known.
    pub unit: Option<Unit>,
    /// How many samples.
    pub samples: usize,
}

/// The cubes of one shape.
#[derive(Clone, Debug, Serialize)]
pub struct StackReport {
    /// `ROWSxCOLUMNSxBANDS`.
    pub name: String,
    /// Number of cubes.
    pub samples: usize,
    /// Rows, columns, bands of a cube.
    pub shape: Shape,
    /// Type of the stored values.
    pub dtype: &'static str,
    /// Factor from stored to physical values.
    pub scale_factor: f64,
    /// What is added to stored values × `scale_factor`.
    pub add_offset: f64,
    /// Mantissa bits that values were rounded to; `null` where all are in use.
    pub keep_bits: Option<u8>,
    /// Rows, columns of a chunk, which holds all bands.
    pub chunk: [usize; 2],
    /// Bytes of a chunk uncompressed.
    pub chunk_bytes: u64,
    /// Number of shard files.
    pub shards: usize,
    /// Cubes in a full shard.
    pub samples_per_shard: usize,
    /// Compressor; `null` if there is none.
    pub codec: Option<CodecReport>,
    /// Bytes of the image's shards.
    pub stored_bytes: u64,
    /// Bytes of the image uncompressed.
    pub uncompressed_bytes: u64,
    /// Wavelengths, if known.
    pub wavelengths: Option<Wavelengths>,
    /// Numbers of bad bands from 0, where there is a bad-band list.
    pub bad_bands: Option<Vec<usize>>,
    /// Physical values; `null` where the statistics are not stored.
    pub values: Option<Values>,
    /// Errors that packing made; `null` where not stored.
    pub quantisation: Option<Quantisation>,
    /// Its masks.
    pub masks: Vec<MaskReport>,
}

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CodecReport {
    /// Compressor inside Blosc.
    pub name: &'static str,
    /// Its level.
    pub level: u8,
    /// Filter before it: noshuffle, shuffle or bitshuffle.
    pub shuffle: &'static str,
    /// Whether every chunk has a CRC-32C.
    pub checksum: bool,
}

/// The greatest errors that packing made, each with its band.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantisation {
    /// The band with the greatest relative error, from 0.
    pub band: usize,
    /// Its wavelength in nm.
    pub wavelength_nm: Option<f64>,
    /// Greatest relative error.
    pub max_rel: f64,
    /// Mean relative error of that band.
    pub mean_rel: f64,
    /// Greatest absolute error, physical.
    pub max_abs: f64,
    /// The band that has it.
    pub max_abs_band: usize,
    /// Its wavelength in nm.
    pub max_abs_wavelength_nm: Option<f64>,
}

/// One mask.
#[derive(Clone, Debug, Serialize)]
pub struct MaskReport {
    /// Its name.
    pub name: String,
    /// Type of the ids.
    pub dtype: &'static str,
    /// Names of boolean layers, bit 0 first; empty for class ids.
    pub layers: Vec<String>,
    /// Names of classes 0, 1, …, where known.
    pub class_names: Option<Vec<String>>,
    /// The command that made it; `null` if it was packed with the cubes.
    pub made_by: Option<String>,
    /// Bytes of its shards.
    pub stored_bytes: u64,
}

impl CubeReport {
    /// Reports on a cube; reads every value unless `quick`.
    ///
    /// # Errors
    /// If a value cannot be read.
    pub fn new(input: &Input, source: &dyn Source, quick: bool) -> Result<Self> {
        let info = source.info();
        let shape = info.shape;
        let told = |text: &str| mirror::with_urls(text);
        let size = |file: &std::path::PathBuf| file.metadata().map_or(0, |meta| meta.len());
        Ok(Self {
            kind: "cube",
            path: input.text(),
            format: info.format.clone(),
            shape: [shape.rows, shape.columns, shape.bands],
            dtype: info.dtype.name(),
            bytes: (shape.values() * info.dtype.size()) as u64,
            file_bytes: info.files.iter().map(size).sum(),
            files: info.files.iter().map(|file| told(&file.display().to_string())).collect(),
            wavelengths: Wavelengths::of(info.wavelength.as_deref(), info.fwhm.as_deref()),
            bad_bands: info.good_bands.as_deref().map(bad_bands),
            band_names: info.band_names.clone(),
            ignore_value: info.ignore_value,
            scaling: (!info.scaling.is_none()).then(|| ScalingReport::of(&info.scaling)),
            band_scaling: info
                .band_scaling
                .as_ref()
                .map(|bands| bands.iter().map(ScalingReport::of).collect()),
            empty_bands: info.empty_bands.clone(),
            unit: info.unit.clone(),
            class_names: info.class_names.clone(),
            geo: info.geo.clone(),
            quality_layers: products::quality_names(&input.file, input.variable.as_deref()),
            values: if quick { None } else { Some(Values::read(source)?) },
            notes: info.notes.iter().map(|note| told(note)).collect(),
        })
    }
}

impl ScalingReport {
    fn of(scaling: &Scaling) -> Self {
        let Scaling { multiply, divide, add } = *scaling;
        Self { multiply, divide, add }
    }
}

fn bad_bands(good: &[bool]) -> Vec<usize> {
    (0..good.len()).filter(|band| !good[*band]).collect()
}

impl Wavelengths {
    /// Bands at 0 nm are none: so makers mark those that a sensor does not use.
    fn of(nm: Option<&[f64]>, fwhm: Option<&[f64]>) -> Option<Self> {
        let all = nm.filter(|nm| !nm.is_empty())?;
        let is_band = |band: &usize| all[*band] != 0.0 || all.iter().all(|nm| *nm == 0.0);
        let of_bands = |list: &[f64]| -> Vec<f64> {
            (0..all.len()).filter(is_band).filter_map(|band| list.get(band).copied()).collect()
        };
        let (nm, fwhm) = (of_bands(all), fwhm.map(of_bands));
        let [min_nm, max_nm] = extremes(&nm);
        Some(Self {
            count: all.len(),
            min_nm,
            max_nm,
            order: match () {
                () if nm.is_sorted() => "ascending",
                () if nm.is_sorted_by(|a, b| a >= b) => "descending",
                () => "unordered",
            },
            fwhm_nm: fwhm.filter(|fwhm| !fwhm.is_empty()).map(|fwhm| extremes(&fwhm)),
        })
    }
}

fn extremes(values: &[f64]) -> [f64; 2] {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    [least, values.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
}

impl Values {
    const NONE: Values = Values { min: None, max: None, nan: 0, inf: 0, ignored: 0 };

    /// Reads every value of a cube, some rows at a time.
    fn read(source: &dyn Source) -> Result<Self> {
        let rows = source.info().shape.rows;
        let row_bytes = source.info().row_bytes();
        // Tiny reads cost more than their bytes.
        let worthwhile = (1 << 20) / row_bytes.max(1);
        let step = source.preferred_rows(BUDGET).max(worthwhile).clamp(1, rows);
        let reads = (0..rows.div_ceil(step)).map(|read| read * step..rows.min((read + 1) * step));
        let threads = if source.access() == Access::Sequential { 1 } else { readers() };
        let read = |buffer: &mut RowBuffer, rows| Self::of_rows(source, rows, buffer);
        let parts = threads::in_turn(threads, "info", reads, RowBuffer::new, read)?;
        let mut values = Self::NONE;
        parts.iter().for_each(|part| values.merge(part));
        Ok(values)
    }

    fn of_rows(source: &dyn Source, rows: Range<usize>, buffer: &mut RowBuffer) -> Result<Self> {
        source.read_rows(rows.clone(), buffer)?;
        let mut values = Self::NONE;
        physical::physical(source, buffer, rows.start, &mut |_, _, pixels| {
            values.add(pixels);
            Ok(())
        })?;
        // What is missing after masking, and was not NaN before, was the ignore value.
        values.nan = count_nan(buffer);
        values.ignored = values.ignored.saturating_sub(values.nan);
        Ok(values)
    }

    fn merge(&mut self, other: &Values) {
        let both = |a: Option<f64>, b: Option<f64>, of: fn(f64, f64) -> f64| match (a, b) {
            (Some(a), Some(b)) => Some(of(a, b)),
            (a, b) => a.or(b),
        };
        self.min = both(self.min, other.min, f64::min);
        self.max = both(self.max, other.max, f64::max);
        self.nan += other.nan;
        self.inf += other.inf;
        self.ignored += other.ignored;
    }

    fn add(&mut self, values: &[f64]) {
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            if value.is_finite() {
                min = min.min(*value);
                max = max.max(*value);
            } else if value.is_nan() {
                self.ignored += 1;
            } else {
                self.inf += 1;
            }
        }
        if min <= max {
            self.min = Some(self.min.map_or(min, |least| least.min(min)));
            self.max = Some(self.max.map_or(max, |most| most.max(max)));
        }
    }

    fn of_stats(stats: &BandStats, scaling: StoredScaling) -> Self {
        let summary = stats.summary();
        let scaled =
            summary.range.map(|range| extremes(&range.map(|value| scaling.physical(value))));
        Self {
            min: scaled.map(|range| range[0]),
            max: scaled.map(|range| range[1]),
            nan: summary.nan,
            inf: summary.inf,
            ignored: 0,
        }
    }
}

fn count_nan(buffer: &RowBuffer) -> u64 {
    let count = match buffer.dtype() {
        DType::F16 => buffer.as_slice::<half::f16>().iter().filter(|value| value.is_nan()).count(),
        DType::F32 => buffer.as_slice::<f32>().iter().filter(|value| value.is_nan()).count(),
        DType::F64 => buffer.as_slice::<f64>().iter().filter(|value| value.is_nan()).count(),
        _ => 0,
    };
    count as u64
}

impl DatasetReport {
    /// Reports on a dataset, from its metadata and the sizes of its files alone.
    ///
    /// # Errors
    /// If a shard file cannot be found, or the samples that say where they lie cannot be read.
    pub fn new(dataset: &Dataset) -> Result<Self> {
        let stacks = dataset.stacks().iter().map(StackReport::new).collect::<Result<Vec<_>>>()?;
        let masks = || dataset.stacks().iter().flat_map(|stack| &stack.masks);
        let mask_bytes: u64 = masks().map(|mask| (mask.sample_bytes() * mask.len()) as u64).sum();
        let stored = |stack: &StackReport| {
            stack.stored_bytes + stack.masks.iter().map(|mask| mask.stored_bytes).sum::<u64>()
        };
        let stored_bytes = stacks.iter().map(stored).sum();
        let images: u64 = stacks.iter().map(|stack| stack.uncompressed_bytes).sum();
        let uncompressed_bytes = images + mask_bytes;
        let root = dataset.root();
        let samples = dataset.samples();
        Ok(Self {
            kind: "dataset",
            path: dataset.path().display().to_string(),
            layout: root.layout(),
            samples: samples.len(),
            stacks,
            stored_bytes,
            uncompressed_bytes,
            ratio: uncompressed_bytes as f64 / (stored_bytes.max(1)) as f64,
            splits: count(samples.splits(), String::clone),
            groups: count(samples.groups(), String::clone),
            labels: count(samples.labels(), label_text),
            geo: Georeferenced::of(samples)?,
            columns: samples.columns().to_vec(),
            created_by: root.created_by().map(str::to_owned),
            created: root.created().map(str::to_owned),
            command: root.command().filter(|command| !command.is_empty()).map(str::to_owned),
            appends: root.appends(),
            fingerprint: dataset.fingerprint().to_owned(),
        })
    }
}

impl Georeferenced {
    /// In the order in which they first come.
    fn of(samples: &Samples) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        // Most datasets have none, and may have a million lines.
        let lines = if samples.have_geo() { samples.len() } else { 0 };
        for id in 0..lines {
            let Some(geo) = samples.get(id)?.geo else { continue };
            let pixel_size = geo.pixel_size();
            let alike = |one: &&mut Self| {
                one.crs == geo.crs && one.pixel_size == pixel_size && one.unit == geo.unit
            };
            match all.iter_mut().find(alike) {
                Some(one) => one.samples += 1,
                None => all.push(Self { crs: geo.crs, pixel_size, unit: geo.unit, samples: 1 }),
            }
        }
        Ok(all)
    }
}

/// How many samples have each value; empty if none has any.
fn count<K>(keys: &Keys<K>, text: impl Fn(&K) -> String) -> BTreeMap<String, usize> {
    let mut counts = vec![0; keys.different().len()];
    let mut without = 0;
    for number in keys.numbers() {
        *number.map_or(&mut without, |number| &mut counts[number as usize]) += 1;
    }
    let mut all = BTreeMap::new();
    for (key, count) in keys
        .different()
        .iter()
        .map(text)
        .chain([String::new()])
        .zip(counts.into_iter().chain([without]))
    {
        *all.entry(key).or_insert(0) += count;
    }
    all.retain(|_, count| *count > 0);
    if all.len() == 1 && all.contains_key("") { BTreeMap::new() } else { all }
}

fn label_text(label: &Value) -> String {
    label.as_str().map_or_else(|| label.to_string(), str::to_owned)
}

/// Bytes of an array's shard files.
fn stored_bytes(array: &ChunkArray) -> Result<u64> {
    if array.meta().chunk_shape.is_none() {
        // Another library's, one file a chunk: what is there counts.
        let files = walkdir::WalkDir::new(array.folder().join("c")).into_iter().flatten();
        return Ok(files
            .filter_map(|file| file.metadata().ok())
            .filter(|m| m.is_file())
            .map(|m| m.len())
            .sum());
    }
    let size = |shard: usize| {
        let path = array.shard_path(shard);
        if is_url(&path) {
            return Ok(array.open_shard(shard)?.len());
        }
        let meta = path.metadata().map_err(|error| {
            hsipack_format::Error::io(&path, "cannot read", error).with_remedy(remedy![
                "a shard is missing; run ",
                Command::Validate,
                ", then ",
                Command::Repair
            ])
        });
        meta.map(|meta| meta.len())
    };
    (0..array.shards()).map(size).sum()
}

impl StackReport {
    fn new(stack: &Stack) -> Result<Self> {
        let image = &stack.image;
        let (shape, grid, meta) = (image.shape(), image.grid(), image.meta());
        let stats = BandStats::of(meta).ok();
        let checksum = meta.codecs.checksum;
        let mask = |mask: &ChunkArray| {
            let MaskMeaning { layers, class_names, made } = mask.meta().mask_meaning();
            Ok(MaskReport {
                name: mask.name().to_owned(),
                dtype: mask.meta().dtype.name(),
                layers,
                class_names,
                made_by: made.map(|made| made.command),
                stored_bytes: stored_bytes(mask)?,
            })
        };
        Ok(Self {
            name: stack.name.clone(),
            samples: image.len(),
            shape: [shape.rows, shape.columns, shape.bands],
            dtype: meta.dtype.name(),
            scale_factor: image.scale_factor(),
            add_offset: image.add_offset(),
            keep_bits: meta.band_notes().keep_bits,
            chunk: [grid.tile().rows, grid.tile().columns],
            chunk_bytes: image.chunk_bytes() as u64,
            shards: image.shards(),
            samples_per_shard: grid.samples_per_shard(),
            codec: meta.codecs.blosc.map(|codec| CodecReport {
                name: codec.compressor.name(),
                level: codec.level,
                shuffle: codec.shuffle.zarr_name(),
                checksum,
            }),
            stored_bytes: stored_bytes(image)?,
            uncompressed_bytes: (image.sample_bytes() * image.len()) as u64,
            wavelengths: Wavelengths::of(stack.wavelength.as_deref(), stack.fwhm.as_deref()),
            bad_bands: stack.image.meta().band_notes().good_bands.as_deref().map(bad_bands),
            values: stats.as_ref().map(|stats| Values::of_stats(stats, image.scaling())),
            quantisation: stats.and_then(|stats| quantisation(&stats, stack)),
            masks: stack.masks.iter().map(mask).collect::<Result<_>>()?,
        })
    }
}

fn quantisation(stats: &BandStats, stack: &Stack) -> Option<Quantisation> {
    let (band, max_rel) = stats.worst_relative()?;
    let (max_abs_band, max_abs) = stats.worst_absolute()?;
    let nm = |band: usize| stack.wavelength.as_ref().map(|nm| nm[band]);
    Some(Quantisation {
        band,
        wavelength_nm: nm(band),
        max_rel,
        mean_rel: stats.0[band].sum_rel_error / stats.0[band].count as f64,
        max_abs: max_abs * stack.image.scale_factor().abs(),
        max_abs_band,
        max_abs_wavelength_nm: nm(max_abs_band),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_wavelengths_is_told() {
        let order = |nm: &[f64]| Wavelengths::of(Some(nm), None).unwrap().order;
        assert_eq!(order(&[1.0, 2.0]), "ascending");
        assert_eq!(order(&[2.0, 1.0]), "descending");
        assert_eq!(order(&[2.0, 1.0, 3.0]), "unordered");
        assert_eq!(Wavelengths::of(Some(&[]), None), None);
    }

    #[test]
    fn ranges_leave_out_what_is_not_finite() {
        let mut values = Values::NONE;
        values.add(&[f64::NAN, f64::INFINITY]);
        assert_eq!((values.min, values.max, values.inf), (None, None, 1));
        values.add(&[-1.0, 2.0]);
        assert_eq!((values.min, values.max), (Some(-1.0), Some(2.0)));
    }

    #[test]
    fn values_of_parts_make_those_of_the_whole() {
        let mut values = Values::NONE;
        values.merge(&Values::NONE);
        assert_eq!((values.min, values.max), (None, None));
        let one = Values { min: Some(-1.0), max: Some(2.0), nan: 1, inf: 2, ignored: 3 };
        values.merge(&one);
        values.merge(&Values { min: Some(0.0), max: Some(5.0), ..one });
        values.merge(&Values::NONE);
        assert_eq!((values.min, values.max), (Some(-1.0), Some(5.0)));
        assert_eq!((values.nan, values.inf, values.ignored), (2, 4, 6));
    }
}
