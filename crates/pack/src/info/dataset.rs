//! Describes a packed dataset.

use std::collections::BTreeMap;

use hsipack_format::geo::Unit;
use hsipack_format::metadata::{MaskMeaning, Role};
use hsipack_format::samples::Keys;
use hsipack_format::samples::boxes::{self, BOX_LABELS, BOXES, label_text};
use hsipack_format::{Command, Error, Result, Samples, colors, remedy};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::remote::is_url;
use hsipack_store::{Dataset, Stack};
use serde::Serialize;
use serde_json::Value;

use super::values::{Shape, Values, Wavelengths, bad_bands};
use crate::convert::stats::BandStats;

/// A packed dataset.
#[derive(Clone, Debug, Serialize)]
pub struct DatasetReport {
    /// Always `dataset`.
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
    /// Bytes of all uncompressed values.
    pub uncompressed_bytes: u64,
    /// uncompressed_bytes / stored_bytes.
    pub ratio: f64,
    /// Number of samples in each split; the key is empty for samples without a split.
    pub splits: BTreeMap<String, usize>,
    /// Number of samples in each group; the key is empty for samples without a group.
    pub groups: BTreeMap<String, usize>,
    /// Number of samples with each label; the key is empty for samples without a label.
    pub labels: BTreeMap<String, usize>,
    /// Reference systems and pixel sizes of the georeferenced samples.
    pub geo: Vec<Georeferenced>,
    /// Bounding boxes of the samples, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boxes: Option<BoxesReport>,
    /// Names of further columns in samples.jsonl.
    pub columns: Vec<String>,
    /// Version of hsipack that wrote it.
    pub created_by: Option<String>,
    /// When it was written, UTC.
    pub created: Option<String>,
    /// The command that wrote it.
    pub command: Option<String>,
    /// How often cubes were appended.
    pub appends: usize,
    /// Earlier states of the dataset, before cubes or masks were added, oldest first. It can be
    /// opened in each.
    pub earlier: Vec<Earlier>,
    /// Hash of SHA256SUMS.
    pub fingerprint: String,
}

/// Bounding boxes of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BoxesReport {
    /// Number of boxes.
    pub boxes: usize,
    /// Number of samples with at least one box.
    pub samples: usize,
    /// Number of boxes of each class, by its name or id.
    pub labels: BTreeMap<String, usize>,
}

impl BoxesReport {
    /// Counts the boxes of the samples; `None` if no sample has any.
    fn of(samples: &Samples) -> Result<Option<Self>> {
        // Most datasets have no boxes, and may have a million lines.
        if !samples.columns().iter().any(|column| column == BOXES) {
            return Ok(None);
        }
        let mut all: Option<Self> = None;
        for sample in samples.iter() {
            let columns = sample?.columns;
            let Some(boxes) = columns.get(BOXES).and_then(boxes::edges) else { continue };
            let all = all.get_or_insert_default();
            all.boxes += boxes.len();
            all.samples += usize::from(!boxes.is_empty());
            let labels = columns.get(BOX_LABELS).and_then(Value::as_array);
            for label in labels.into_iter().flatten() {
                *all.labels.entry(label_text(label)).or_default() += 1;
            }
        }
        Ok(all)
    }
}

/// An earlier state of a dataset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Earlier {
    /// Number of samples that it had.
    pub samples: u64,
    /// The fingerprint that it had.
    pub fingerprint: String,
}

impl From<(&str, u64)> for Earlier {
    fn from((fingerprint, samples): (&str, u64)) -> Self {
        Self { samples, fingerprint: fingerprint.to_owned() }
    }
}

/// Samples that share the pixel size and the reference system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Georeferenced {
    /// `EPSG:` and a code, or WKT, if known.
    pub crs: Option<String>,
    /// Width and height of a pixel, in units of the reference system.
    pub pixel_size: [f64; 2],
    /// The unit, if known.
    pub unit: Option<Unit>,
    /// Number of samples.
    pub samples: usize,
}

/// Cubes that have the same shape.
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
    /// Offset that is added to stored values × `scale_factor`.
    pub add_offset: f64,
    /// The stored integer that marks missing values; `null` for floats, and if no value is missing.
    pub fill_value: Option<i64>,
    /// Mantissa bits that values were rounded to; `null` if all are in use.
    pub keep_bits: Option<u8>,
    /// Rows and columns of a chunk.
    pub chunk: [usize; 2],
    /// Bands of a chunk; `null` if chunks hold all bands.
    pub band_group: Option<usize>,
    /// Bytes of an uncompressed chunk.
    pub chunk_bytes: u64,
    /// Number of shard files.
    pub shards: usize,
    /// Cubes in a full shard.
    pub samples_per_shard: usize,
    /// Compressor; `null` if there is none.
    pub codec: Option<CodecReport>,
    /// Bytes of the image's shards.
    pub stored_bytes: u64,
    /// Bytes of the uncompressed image.
    pub uncompressed_bytes: u64,
    /// Wavelengths, if known.
    pub wavelengths: Option<Wavelengths>,
    /// Numbers of bad bands, counted from 0, if there is a bad-band list.
    pub bad_bands: Option<Vec<usize>>,
    /// Physical values; `null` if the statistics are not stored.
    pub values: Option<Values>,
    /// Errors that packing caused; `null` if they are not stored.
    pub quantisation: Option<Quantisation>,
    /// Its masks.
    pub masks: Vec<MaskReport>,
    /// Its targets.
    pub targets: Vec<TargetReport>,
    /// Its further images.
    pub images: Vec<ImageReport>,
}

/// How chunks are compressed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CodecReport {
    /// Compressor inside Blosc.
    pub name: &'static str,
    /// Its level.
    pub level: u8,
    /// Filter before compression: noshuffle, shuffle or bitshuffle.
    pub shuffle: &'static str,
    /// Whether every chunk has a CRC-32C.
    pub checksum: bool,
}

/// The greatest errors that packing caused, each with its band.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantisation {
    /// The band with the greatest relative error, counted from 0.
    pub band: usize,
    /// Its wavelength in nm.
    pub wavelength_nm: Option<f64>,
    /// Greatest relative error.
    pub max_rel: f64,
    /// Mean relative error of that band.
    pub mean_rel: f64,
    /// Greatest absolute error, in physical units.
    pub max_abs: f64,
    /// The band with the greatest absolute error.
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
    /// Names of classes 0, 1, …, if known.
    pub class_names: Option<Vec<String>>,
    /// Colours of classes as `#rrggbb`; empty if none is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_colors: Vec<Option<String>>,
    /// The command that made it; `null` if it was packed with the cubes.
    pub made_by: Option<String>,
    /// Bytes of its shards.
    pub stored_bytes: u64,
}

/// One further image.
#[derive(Clone, Debug, Serialize)]
pub struct ImageReport {
    /// Its name.
    pub name: String,
    /// Type of the values.
    pub dtype: &'static str,
    /// Rows, columns and bands.
    pub shape: [usize; 3],
    /// Its pixels for pixels of the cubes, along each axis: `[2, 1]` if it has twice as many rows
    /// and columns.
    pub ratio: [u32; 2],
    /// Names of the bands, if they are known.
    pub band_names: Option<Vec<String>>,
    /// Range of its wavelengths, if they are known.
    pub wavelengths: Option<Wavelengths>,
    /// Unit of the values, if it is known.
    pub unit: Option<String>,
    /// Bytes of its shards.
    pub stored_bytes: u64,
}

/// One target.
#[derive(Clone, Debug, Serialize)]
pub struct TargetReport {
    /// Its name.
    pub name: String,
    /// Type of the values.
    pub dtype: &'static str,
    /// Number of channels.
    pub channels: usize,
    /// Names of the channels, if they are known.
    pub channel_names: Option<Vec<String>>,
    /// Unit of the values, if it is known.
    pub unit: Option<String>,
    /// Bytes of its shards.
    pub stored_bytes: u64,
}

impl DatasetReport {
    /// Describes a dataset. Uses only its metadata and the sizes of its files.
    ///
    /// # Errors
    /// If a shard file cannot be found, or the lines of georeferenced samples cannot be read.
    pub fn new(dataset: &Dataset) -> Result<Self> {
        let stacks = dataset.stacks().iter().map(StackReport::new).collect::<Result<Vec<_>>>()?;
        let beside = || dataset.stacks().iter().flat_map(|stack| stack.arrays().skip(1));
        let beside_bytes: u64 =
            beside().map(|array| (array.sample_bytes() * array.len()) as u64).sum();
        let stored = |stack: &StackReport| {
            let masks = stack.masks.iter().map(|mask| mask.stored_bytes);
            let targets = stack.targets.iter().map(|target| target.stored_bytes);
            let images = stack.images.iter().map(|image| image.stored_bytes);
            stack.stored_bytes + masks.chain(targets).chain(images).sum::<u64>()
        };
        let stored_bytes = stacks.iter().map(stored).sum();
        let images: u64 = stacks.iter().map(|stack| stack.uncompressed_bytes).sum();
        let uncompressed_bytes = images + beside_bytes;
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
            boxes: BoxesReport::of(samples)?,
            columns: samples.columns().to_vec(),
            created_by: root.created_by().map(str::to_owned),
            created: root.created().map(str::to_owned),
            command: root.command().filter(|command| !command.is_empty()).map(str::to_owned),
            appends: root.appends(),
            earlier: root.earlier().into_iter().map(Earlier::from).collect(),
            fingerprint: dataset.fingerprint().to_owned(),
        })
    }
}

impl Georeferenced {
    /// The groups, in the order in which they first occur.
    fn of(samples: &Samples) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        // Most datasets have no georeferencing, and may have a million lines.
        let lines = if samples.have_geo() { samples.len() } else { 0 };
        for id in 0..lines {
            let Some(geo) = samples.get(id)?.geo else { continue };
            let pixel_size = geo.pixel_size();
            let alike = |group: &&mut Self| {
                group.crs == geo.crs && group.pixel_size == pixel_size && group.unit == geo.unit
            };
            match all.iter_mut().find(alike) {
                Some(group) => group.samples += 1,
                None => all.push(Self { crs: geo.crs, pixel_size, unit: geo.unit, samples: 1 }),
            }
        }
        Ok(all)
    }
}

/// How many samples have each value; empty if no sample has a value.
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

/// Bytes of an array's shard files.
fn stored_bytes(array: &ChunkArray) -> Result<u64> {
    if array.meta().chunk_shape.is_none() {
        // An array that another library wrote has one file for each chunk, so the existing files are counted.
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
            let MaskMeaning { layers, class_names, class_colors, origin } =
                mask.meta().mask_meaning();
            Ok(MaskReport {
                name: mask.name().to_owned(),
                dtype: mask.meta().dtype.name(),
                layers,
                class_names,
                class_colors: class_colors.iter().map(|color| color.map(colors::hex)).collect(),
                made_by: origin.map(|origin| origin.command),
                stored_bytes: stored_bytes(mask)?,
            })
        };
        let target = |target: &ChunkArray| {
            let meaning = target.meta().companion_meaning();
            let (channel_names, unit) =
                meaning.map(|meaning| (meaning.band_names, meaning.unit)).unwrap_or_default();
            Ok(TargetReport {
                name: target.name().to_owned(),
                dtype: target.meta().dtype.name(),
                channels: target.shape().bands,
                channel_names,
                unit,
                stored_bytes: stored_bytes(target)?,
            })
        };
        let further = |image: &ChunkArray| {
            let (shape, ratio) = (image.shape(), image.ratio());
            let meaning = image.meta().companion_meaning();
            let meaning = meaning.ok_or_else(|| Error::bug("a further image without a meaning"))?;
            Ok(ImageReport {
                name: image.name().to_owned(),
                dtype: image.meta().dtype.name(),
                shape: [shape.rows, shape.columns, shape.bands],
                ratio: [ratio.finer(), ratio.coarser()],
                band_names: meaning.band_names,
                wavelengths: Wavelengths::of(
                    meaning.wavelength.as_deref(),
                    meaning.fwhm.as_deref(),
                ),
                unit: meaning.unit,
                stored_bytes: stored_bytes(image)?,
            })
        };
        Ok(Self {
            name: stack.name.clone(),
            samples: image.len(),
            shape: [shape.rows, shape.columns, shape.bands],
            dtype: meta.dtype.name(),
            scale_factor: image.scale_factor(),
            add_offset: image.add_offset(),
            fill_value: meta.missing(),
            keep_bits: meta.band_notes().keep_bits,
            chunk: [grid.tile().rows, grid.tile().columns],
            band_group: (grid.band_groups() > 1).then(|| grid.band_group()),
            chunk_bytes: image.chunk_bytes() as u64,
            shards: image.shards(),
            samples_per_shard: grid.samples_per_shard(),
            codec: meta.codecs.compression.map(|codec| CodecReport {
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
            targets: stack.companions_of(Role::Target).map(target).collect::<Result<_>>()?,
            images: stack.companions_of(Role::Image).map(further).collect::<Result<_>>()?,
        })
    }
}

fn quantisation(stats: &BandStats, stack: &Stack) -> Option<Quantisation> {
    if !stack.image.meta().dtype.is_float() {
        return None;
    }
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
