//! Writes small datasets of every layout that the reader must support, without the packing crate.

// Tests and benches each use only a part of this.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use half::f16;
use hsipack_format::codec::append_checksum;
use hsipack_format::metadata::{IMAGE, SAMPLES};
use hsipack_format::shard::{ChunkSpan, ShardIndex};
use hsipack_format::zarr::{self, ArrayMeta, ChunkCodecs};
use hsipack_format::{Codec, Compressor, CubeShape, DType, Grid, Ratio, Shuffle, Tile, checksums};
use serde_json::{Map, Value, json};

/// How to write a stack.
#[derive(Clone)]
pub struct StackSpec {
    pub shape: CubeShape,
    pub samples: usize,
    pub tile: Tile,
    /// Bands of a chunk of the image; `None` if it has all.
    pub band_group: Option<usize>,
    pub per_shard: usize,
    pub sharded: bool,
    pub codec: Option<Codec>,
    pub checksum: bool,
    /// Names of masks of class ids (uint8).
    pub masks: Vec<String>,
    /// Names of masks of class ids beyond 255 (uint16).
    pub wide_masks: Vec<String>,
    /// Names of targets, with their numbers of channels; `None` for targets without an axis of
    /// channels.
    pub targets: Vec<(String, Option<usize>)>,
    /// Names of further images, with their numbers of bands and resolutions.
    pub further: Vec<(String, usize, Ratio)>,
    /// Whether chunks of zeros are left out, as Zarr allows; then the fill value is 0.
    pub omit_zeros: bool,
}

pub const LZ4: Codec = Codec::new(Compressor::Lz4, 5, Shuffle::Byte, DType::F16);

impl StackSpec {
    pub fn new(rows: usize, columns: usize, bands: usize, samples: usize) -> Self {
        let shape = CubeShape::new(rows, columns, bands);
        Self {
            shape,
            samples,
            tile: Tile { rows: rows.div_ceil(3), columns },
            band_group: None,
            per_shard: 4,
            sharded: true,
            codec: Some(LZ4),
            checksum: true,
            masks: Vec::new(),
            wide_masks: Vec::new(),
            targets: Vec::new(),
            further: Vec::new(),
            omit_zeros: false,
        }
    }

    pub fn tile(mut self, rows: usize, columns: usize) -> Self {
        self.tile = Tile { rows, columns };
        self
    }

    pub fn band_group(mut self, bands: usize) -> Self {
        self.band_group = Some(bands);
        self
    }

    pub fn target(mut self, name: &str, channels: Option<usize>) -> Self {
        self.targets.push((name.to_owned(), channels));
        self
    }

    pub fn further(mut self, name: &str, bands: usize, [finer, coarser]: [u32; 2]) -> Self {
        self.further.push((name.to_owned(), bands, Ratio::new(finer, coarser).unwrap()));
        self
    }

    pub fn masks(mut self, names: &[&str]) -> Self {
        self.masks = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }
}

/// The value of an image at (sample, row, column, band). It only repeats after many places.
pub fn image_value(sample: usize, row: usize, column: usize, band: usize) -> f16 {
    let number = ((sample * 31 + row) * 37 + column) * 41 + band;
    f16::from_f32((number % 2039) as f32 * 0.25)
}

/// The value of a mask, with few labelled pixels in the lower right.
pub fn mask_value(sample: usize, row: usize, column: usize) -> u8 {
    if row + column > 20 { (1 + (sample + row / 4 + column / 4) % 5) as u8 } else { 0 }
}

/// The value of a wide mask, which uses all bits.
pub fn wide_value(sample: usize, row: usize, column: usize) -> u16 {
    (((sample * 31 + row) * 37 + column) * 7919 % 65536) as u16
}

/// The value of a target, which is missing at some pixels.
pub fn target_value(sample: usize, row: usize, column: usize, channel: usize) -> f32 {
    let number = ((sample * 31 + row) * 37 + column) * 5 + channel;
    if number.is_multiple_of(7) { f32::NAN } else { number as f32 * 0.37 - 1e4 }
}

/// The content of a dataset, sample by sample.
pub struct Written {
    pub path: PathBuf,
    /// Stack and index of every sample.
    pub places: Vec<(usize, usize)>,
    pub stacks: Vec<StackSpec>,
}

impl Written {
    pub fn shape(&self, sample: usize) -> CubeShape {
        self.stacks[self.places[sample].0].shape
    }

    /// Values of a window of a sample, some bands.
    pub fn image(
        &self,
        sample: usize,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
        bands: Option<&[usize]>,
    ) -> Vec<u8> {
        let all: Vec<usize> = (0..self.shape(sample).bands).collect();
        let bands = bands.unwrap_or(&all);
        let zeros = self.stacks[self.places[sample].0].omit_zeros;
        let mut bytes = Vec::new();
        for row in rows {
            for column in columns.clone() {
                for band in bands {
                    bytes.extend(value(zeros, sample, row, column, *band).to_le_bytes());
                }
            }
        }
        bytes
    }

    pub fn mask(
        &self,
        sample: usize,
        rows: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
    ) -> Vec<u8> {
        rows.flat_map(|row| columns.clone().map(move |column| mask_value(sample, row, column)))
            .collect()
    }
}

/// In stacks with omitted chunks, the first half of the rows are zero.
fn value(zeros: bool, sample: usize, row: usize, column: usize, band: usize) -> f16 {
    if zeros && row < 8 { f16::ZERO } else { image_value(sample, row, column, band) }
}

/// Writes a dataset: `extra(sample)` gives split, group, label and columns. Samples of the stacks
/// take turns.
pub fn write_dataset(path: &Path, stacks: &[StackSpec], extra: impl Fn(usize) -> Value) -> Written {
    write_dataset_of(path, stacks, extra, &|spec, sample, row, column, out| {
        for band in 0..spec.shape.bands {
            out.extend(value(spec.omit_zeros, sample, row, column, band).to_le_bytes());
        }
    })
}

/// Appends the bands of the pixel at (sample, row, column).
pub type ImagePixel<'a> = &'a (dyn Fn(&StackSpec, usize, usize, usize, &mut Vec<u8>) + Sync);

/// Like [`write_dataset`], with other pixels.
pub fn write_dataset_of(
    path: &Path,
    stacks: &[StackSpec],
    extra: impl Fn(usize) -> Value,
    image: ImagePixel<'_>,
) -> Written {
    let mut written =
        Written { path: path.to_owned(), places: Vec::new(), stacks: stacks.to_vec() };
    let mut lines = String::new();
    let mut next = vec![0; stacks.len()];
    while let Some(stack) = (0..stacks.len())
        .filter(|stack| next[*stack] < stacks[*stack].samples)
        .min_by_key(|stack| next[*stack])
    {
        let id = written.places.len();
        let mut line = json!({
            "id": id, "name": format!("cube {id}"), "stack": stacks[stack].shape.to_string(), "index": next[stack],
            "nan": 0, "inf": 0, "range": null,
            "source": { "path": "made", "bytes": 0, "fingerprint": "", "format": "none" },
        });
        let object = line.as_object_mut().unwrap();
        object.extend(extra(id).as_object().cloned().unwrap_or_default());
        lines += &format!("{line}\n");
        written.places.push((stack, next[stack]));
        next[stack] += 1;
    }
    // Datasets that hsipack writes are complete, so a missing file is damage.
    let omits = stacks.iter().any(|stack| stack.omit_zeros);
    let by = if omits { "another library" } else { "hsipack test" };
    let hsipack = json!({ "layout": 1, "created_by": by });
    write(
        path,
        "zarr.json",
        &zarr::to_text(&zarr::group(Map::from_iter([("hsipack".into(), hsipack)]))),
    );
    write(path, SAMPLES, lines.as_bytes());
    for (number, stack) in stacks.iter().enumerate() {
        let samples: Vec<usize> =
            (0..written.places.len()).filter(|id| written.places[*id].0 == number).collect();
        write_stack(path, stack, &samples, image);
    }
    if !omits {
        write_sums(path);
    }
    written
}

/// Writes `SHA256SUMS`.
pub fn write_sums(path: &Path) {
    let mut files = Vec::new();
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            if file.is_dir() && name != "c" {
                folders.push(file);
            } else if name == "zarr.json" || name == SAMPLES {
                let key = file.strip_prefix(path).unwrap().to_str().unwrap().to_owned();
                files.push((key, fs::read(&file).unwrap()));
            }
        }
    }
    let sums = checksums::encode(files.iter().map(|(key, text)| (key.as_str(), text.as_slice())));
    write(path, checksums::SHA256SUMS, sums.as_bytes());
}

fn write(root: &Path, key: &str, bytes: &[u8]) {
    let file = root.join(key);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, bytes).unwrap();
}

fn write_stack(root: &Path, spec: &StackSpec, samples: &[usize], image: ImagePixel<'_>) {
    let folder = root.join(spec.shape.to_string());
    write(&folder, "zarr.json", &zarr::to_text(&zarr::group(Map::new())));
    let bands = Some(spec.shape.bands);
    write_array(&folder, spec, (IMAGE, bands), DType::F16, samples, &|sample, row, column, out| {
        image(spec, sample, row, column, out);
    });
    for (target, channels) in &spec.targets {
        let array = (target.as_str(), *channels);
        write_array(&folder, spec, array, DType::F32, samples, &|sample, row, column, out| {
            for channel in 0..channels.unwrap_or(1) {
                out.extend(target_value(sample, row, column, channel).to_le_bytes());
            }
        });
    }
    for (name, bands, ratio) in &spec.further {
        let [rows, columns] =
            [spec.shape.rows, spec.shape.columns].map(|length| ratio.length(length));
        let shape = CubeShape::new(rows.unwrap(), columns.unwrap(), *bands);
        let Tile { rows, columns } = spec.tile;
        let tile = Tile { rows: rows.min(shape.rows), columns: columns.min(shape.columns) };
        let further = StackSpec { shape, tile, ..spec.clone() };
        let array = (name.as_str(), Some(*bands));
        write_array(&folder, &further, array, DType::F32, samples, &|sample, row, column, out| {
            for band in 0..*bands {
                out.extend(target_value(sample, row, column, band).to_le_bytes());
            }
        });
    }
    for mask in &spec.masks {
        write_array(
            &folder,
            spec,
            (mask, None),
            DType::U8,
            samples,
            &|sample, row, column, out| {
                out.push(mask_value(sample, row, column));
            },
        );
    }
    for mask in &spec.wide_masks {
        write_array(
            &folder,
            spec,
            (mask, None),
            DType::U16,
            samples,
            &|sample, row, column, out| {
                out.extend(wide_value(sample, row, column).to_le_bytes());
            },
        );
    }
}

type Pixel<'a> = &'a (dyn Fn(usize, usize, usize, &mut Vec<u8>) + Sync);

fn write_array(
    stack: &Path,
    spec: &StackSpec,
    (name, bands): (&str, Option<usize>),
    dtype: DType,
    samples: &[usize],
    pixel: Pixel<'_>,
) {
    let folder = stack.join(name);
    let shape = CubeShape { bands: bands.unwrap_or(1), ..spec.shape };
    let group = spec.band_group.filter(|_| name == IMAGE).unwrap_or(shape.bands);
    let grid = Grid::new(shape, spec.tile, spec.per_shard).unwrap().in_band_groups(group).unwrap();
    let axes = |sample: usize, rows: usize, columns: usize, group: usize| {
        let mut axes = vec![sample as u64, rows as u64, columns as u64];
        axes.extend(bands.map(|_| group as u64));
        axes
    };
    let (tile, group) = (spec.tile, grid.band_group());
    let chunk_shape = axes(1, tile.rows, tile.columns, group);
    let (rows, columns) = (grid.down() * tile.rows, grid.across() * tile.columns);
    let whole = axes(spec.per_shard, rows, columns, grid.band_groups() * group);
    let meta = ArrayMeta {
        shape: axes(samples.len(), shape.rows, shape.columns, shape.bands),
        dtype,
        file_shape: if spec.sharded { whole } else { chunk_shape.clone() },
        chunk_shape: spec.sharded.then_some(chunk_shape),
        codecs: ChunkCodecs {
            compression: spec.codec.map(|codec| codec.of_dtype(dtype)),
            checksum: spec.checksum,
        },
        fill_value: json!(0),
        dimension_names: Vec::new(),
        attributes: match (dtype, spec.further.iter().find(|(further, ..)| further == name)) {
            (_, Some((_, _, ratio))) => {
                let ours = json!({ "role": "image", "ratio": ratio });
                Map::from_iter([("hsipack".to_owned(), ours)])
            }
            (DType::F32, None) => {
                Map::from_iter([("hsipack".to_owned(), json!({ "role": "target" }))])
            }
            _ => Map::new(),
        },
    };
    write(&folder, "zarr.json", &zarr::to_text(&meta.to_json()));
    let chunk = |sample: usize, chunk: usize| encode_chunk(spec, &grid, sample, chunk, pixel);
    if spec.sharded {
        write_shards(&folder, &grid, samples, &meta, &chunk);
        return;
    }
    for (index, sample) in samples.iter().enumerate() {
        for number in 0..grid.chunks_per_sample() {
            let (pixels, group) = (number / grid.band_groups(), number % grid.band_groups());
            let (down, across) = ((pixels / grid.across()) as u64, (pixels % grid.across()) as u64);
            let mut position = vec![index as u64, down, across];
            position.extend(bands.map(|_| group as u64));
            if let Some(stored) = chunk(*sample, number) {
                write(&folder, &ArrayMeta::file_key(&position), &stored);
            }
        }
    }
}

fn write_shards(
    folder: &Path,
    grid: &Grid,
    samples: &[usize],
    meta: &ArrayMeta,
    chunk: &(dyn Fn(usize, usize) -> Option<Vec<u8>> + Sync),
) {
    for (shard, samples) in samples.chunks(grid.samples_per_shard()).enumerate() {
        let mut index = ShardIndex::empty(grid.chunks_per_shard());
        let mut bytes = Vec::new();
        for (position, sample) in samples.iter().enumerate() {
            for (number, stored) in all_chunks(grid, *sample, chunk).into_iter().enumerate() {
                if let Some(stored) = stored {
                    let span = ChunkSpan { offset: bytes.len() as u64, len: stored.len() as u64 };
                    index.0[position * grid.chunks_per_sample() + number] = Some(span);
                    bytes.extend(stored);
                }
            }
        }
        bytes.extend(index.encode());
        let mut position = vec![0; meta.shape.len()];
        position[0] = shard as u64;
        write(folder, &ArrayMeta::file_key(&position), &bytes);
    }
}

/// The stored chunks of a cube, encoded by two threads.
fn all_chunks(
    grid: &Grid,
    sample: usize,
    chunk: &(dyn Fn(usize, usize) -> Option<Vec<u8>> + Sync),
) -> Vec<Option<Vec<u8>>> {
    let (half, end) = (grid.chunks_per_sample() / 2, grid.chunks_per_sample());
    let encode = |numbers: std::ops::Range<usize>| -> Vec<_> {
        numbers.map(|number| chunk(sample, number)).collect()
    };
    std::thread::scope(|scope| {
        let second_half = scope.spawn(|| encode(half..end));
        let mut chunks = encode(0..half);
        chunks.extend(second_half.join().unwrap());
        chunks
    })
}

fn encode_chunk(
    spec: &StackSpec,
    grid: &Grid,
    sample: usize,
    number: usize,
    pixel: Pixel<'_>,
) -> Option<Vec<u8>> {
    let region = grid.region(number);
    let mut pixels = Vec::new();
    pixel(sample, 0, 0, &mut pixels);
    let element = pixels.len() / grid.shape().bands;
    let width = grid.band_group() * element;
    let bands = region.bands.start * element..region.bands.end * element;
    let mut bytes = vec![0; grid.chunk_values() * element];
    for (y, row) in region.rows.clone().enumerate() {
        for (x, column) in region.columns.clone().enumerate() {
            pixels.clear();
            pixel(sample, row, column, &mut pixels);
            let to = (y * grid.tile().columns + x) * width;
            bytes[to..to + bands.len()].copy_from_slice(&pixels[bands.clone()]);
        }
    }
    if spec.omit_zeros && bytes.iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut stored = Vec::new();
    match &spec.codec {
        Some(codec) => {
            hsipack_store::codec::encode(codec, &bytes, &mut stored).unwrap();
            if !spec.checksum {
                stored.truncate(stored.len() - hsipack_format::codec::CHECKSUM_LEN);
            }
        }
        None => {
            stored = bytes;
            if spec.checksum {
                append_checksum(&mut stored);
            }
        }
    }
    Some(stored)
}

/// Reflectances: four materials with smooth spectra in soft-edged fields, illumination, 1 % noise.
pub fn reflectance(spec: &StackSpec, sample: usize, row: usize, column: usize, out: &mut Vec<u8>) {
    let (x, y) = (column as f32, row as f32);
    let field = (((x * 0.011 + sample as f32).sin() + (y * 0.017).cos() + 2.0) * 0.99) as usize;
    let (centre, width) = (0.2 + 0.2 * field.min(3) as f32, 0.1 + 0.05 * field.min(3) as f32);
    let light = 0.7 + 0.3 * x / spec.shape.columns as f32;
    let mut state = ((sample * 7919 + row) * 104_729 + column) as u32 | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32
    };
    uniform();
    for band in 0..spec.shape.bands {
        let z = (band as f32 / spec.shape.bands as f32 - centre) / width;
        let value =
            (0.15 + 0.5 * (-z * z).exp()) * light * (1.0 + 0.02 * (uniform() + uniform() - 1.0));
        out.extend(f16::from_f32(value).to_le_bytes());
    }
}

/// The seconds that `work` takes.
pub fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// The median.
pub fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
