//! Writes the files that turn shards into a dataset: `zarr.json` everywhere, `samples.jsonl` and
//! its index, `SHA256SUMS`.

use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::geo::cf;
use hsipack_format::metadata::{
    BandNotes, FILL_VALUE, FWHM, IMAGE, MaskMeaning, Role, Root, SAMPLES, SPLIT_STATS, UNITS,
    WAVELENGTH,
};
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_format::samples::{Sample, Samples, Written};
use hsipack_format::zarr::{self, ArrayMeta, ChunkCodecs, OWN};
use hsipack_format::{DType, Geo, Grid, MaskValue, Result};
use hsipack_store::{Dataset, Stack, bounded_read};
use serde_json::{Map, Value, json};

use super::companions::PlannedCompanion;
use super::options::ValueOptions;
use super::plan::{Plan, PlannedMask, PlannedStack};
use super::stats::StackStats;
use crate::utc;

/// Makes the new content of a metadata file, from its name below the stack and its content.
type ChangeFile<'a> = dyn Fn(&str, Vec<u8>) -> Result<Vec<u8>> + 'a;

/// All files of a dataset except the shards.
pub struct Metadata {
    files: Vec<(String, Vec<u8>)>,
    /// Chunks of coordinate arrays other than those of the bands.
    chunks: Vec<(String, Vec<u8>)>,
    /// Paths and checksums for `SHA256SUMS`.
    sums: Vec<(String, String)>,
    /// The index of the samples. `SHA256SUMS` does not list it, because it can be recreated at any
    /// time.
    index: Option<Vec<u8>>,
}

impl Metadata {
    /// No files yet.
    pub fn new() -> Self {
        Self { files: Vec::new(), chunks: Vec::new(), sums: Vec::new(), index: None }
    }

    fn add(&mut self, path: String, content: Vec<u8>) {
        self.sums.push((path.clone(), checksums::sha256(&content)));
        self.files.push((path, content));
    }

    /// Adds the group and arrays of a stack of `len` cubes. `geo` is their common georeferencing,
    /// if they have one.
    pub fn add_stack(
        &mut self,
        stack: &PlannedStack,
        values: &ValueOptions,
        len: usize,
        stats: &StackStats,
        geo: Option<&Geo>,
    ) {
        let name = &stack.name;
        self.add(format!("{name}/zarr.json"), zarr::to_text(&zarr::group(Map::new())));
        let mut image = image_meta(stack, values, len, stats);
        if let Some(geo) = geo {
            cf::refer(&mut image.attributes, geo);
        }
        self.add_array(name, IMAGE, &image);
        stack.masks.iter().for_each(|mask| self.add_mask(name, mask, len, geo));
        stack.companions.iter().for_each(|array| self.add_companion(name, array, len, geo));
        for (array, values, long_name) in [
            (WAVELENGTH, &stack.wavelength, "band centre"),
            (FWHM, &stack.fwhm, "full width at half maximum"),
        ] {
            if let Some(values) = values {
                self.add_array(name, array, &coordinate_meta(values.len(), long_name));
            }
        }
        let shape = stack.grid.shape();
        for array in geo.into_iter().flat_map(|geo| cf::arrays(geo, shape.rows, shape.columns)) {
            self.add_array(name, array.name, &array.meta);
            let file = format!("{name}/{}/{}", array.name, array.chunk_file());
            self.chunks.push((file, array.chunk));
        }
    }

    fn add_array(&mut self, stack: &str, array: &str, meta: &ArrayMeta) {
        self.add(format!("{stack}/{array}/zarr.json"), zarr::to_text(&meta.to_json()));
    }

    /// Adds, unchanged, the metadata of those stacks of `base` to which nothing is added.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn keep_stacks(&mut self, base: &Dataset, plan: &Plan) -> Result<()> {
        let touched = |stack: &&Stack| plan.stacks.iter().any(|planned| planned.name == stack.name);
        base.stacks()
            .iter()
            .filter(|stack| !touched(stack))
            .try_for_each(|stack| self.keep_stack(base, stack, &[]))
    }

    /// Adds, unchanged, the metadata of a stack of `base`, except for the masks `replaced`.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn keep_stack(&mut self, base: &Dataset, stack: &Stack, replaced: &[&str]) -> Result<()> {
        self.keep_files(base, stack, replaced, &|_, content| Ok(content))
    }

    /// Adds the metadata of a stack of `base`, with other statistics of splits.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn keep_stack_with(
        &mut self,
        base: &Dataset,
        stack: &Stack,
        stats: &StackStats,
    ) -> Result<()> {
        let image = format!("{IMAGE}/zarr.json");
        self.keep_files(base, stack, &[], &|file, content| {
            if file != image || StackStats::of(stack.image.meta()).is_ok_and(|old| old == *stats) {
                return Ok(content);
            }
            let mut meta = stack.image.meta().clone();
            let ours = meta.attributes.entry(OWN).or_insert_with(|| json!({}));
            if let Some(ours) = ours.as_object_mut() {
                ours.shift_remove(SPLIT_STATS);
                ours.extend(stats.split_attributes());
            }
            Ok(zarr::to_text(&meta.to_json()))
        })
    }

    fn keep_files(
        &mut self,
        base: &Dataset,
        stack: &Stack,
        replaced: &[&str],
        changed: &ChangeFile<'_>,
    ) -> Result<()> {
        let folder = base.path().join(&stack.name);
        let masks = stack.masks.iter().map(|mask| mask.name());
        let masks = masks.filter(|mask| !replaced.contains(mask));
        let companions = stack.companions.iter().map(|companion| companion.name());
        let geo = stack.geo_arrays.iter().copied();
        let arrays =
            [IMAGE, WAVELENGTH, FWHM].into_iter().chain(geo).chain(masks).chain(companions);
        let files =
            arrays.map(|array| format!("{array}/zarr.json")).chain(["zarr.json".to_owned()]);
        for file in files {
            // Not every stack has wavelengths.
            let content = bounded_read::read_if_there(&folder.join(&file), bounded_read::METADATA)?;
            if let Some(content) = content {
                self.add(format!("{}/{file}", stack.name), changed(&file, content)?);
            }
        }
        Ok(())
    }

    /// Adds a mask of a stack of `len` cubes. `geo` is their common georeferencing, if they have
    /// one.
    pub fn add_mask(&mut self, stack: &str, mask: &PlannedMask, len: usize, geo: Option<&Geo>) {
        let mut meta = mask_meta(mask, len);
        if let Some(geo) = geo {
            cf::refer(&mut meta.attributes, geo);
        }
        self.add_array(stack, &mask.name, &meta);
    }

    /// Adds a companion of a stack of `len` cubes. `geo` is their common georeferencing, if they
    /// have one.
    pub fn add_companion(
        &mut self,
        stack: &str,
        companion: &PlannedCompanion,
        len: usize,
        geo: Option<&Geo>,
    ) {
        let mut meta = companion_meta(companion, len);
        // The coordinates are those of the pixels of the image.
        if let Some(geo) = geo.filter(|_| companion.meaning.ratio.is_same()) {
            cf::refer(&mut meta.attributes, geo);
        }
        self.add_array(stack, &companion.name, &meta);
    }

    /// Adds `samples.jsonl` and its index. The lines of existing samples are kept unchanged, and
    /// those of new samples follow.
    ///
    /// # Errors
    /// If a line cannot be read, or a sample cannot follow the one before it.
    pub fn add_samples(
        &mut self,
        existing: Option<&Samples>,
        new: impl IntoIterator<Item = Sample>,
    ) -> Result<()> {
        let mut written = Written::after(existing)?;
        new.into_iter().try_for_each(|sample| written.add(&sample))?;
        let sum = checksums::digest(written.text());
        let (text, index) = written.finish(sum);
        self.sums.push((SAMPLES.to_owned(), checksums::hex(&sum)));
        self.files.push((SAMPLES.to_owned(), text));
        self.index = Some(index);
        Ok(())
    }

    /// Adds the root group.
    pub fn add_root(&mut self, root: Root) {
        let attributes = Map::from_iter([(OWN.to_owned(), Value::Object(root.0))]);
        self.add("zarr.json".to_owned(), zarr::to_text(&zarr::group(attributes)));
    }

    /// All files with their paths below the dataset, in the order in which they must be written.
    /// The root group is last, because it makes the files a dataset. `coordinates` are the stacks
    /// whose wavelengths are written.
    pub fn into_files(mut self, coordinates: &[&PlannedStack]) -> Vec<(String, Vec<u8>)> {
        let sums = self.sums.iter().map(|(path, sum)| (path.as_str(), sum.clone()));
        let sums = checksums::encode_sums(sums);
        let mut files = self.chunks;
        for stack in coordinates {
            for (array, values) in [(WAVELENGTH, &stack.wavelength), (FWHM, &stack.fwhm)] {
                let chunk = values.as_deref().map(coordinate_chunk);
                files.extend(chunk.map(|chunk| (format!("{}/{array}/c/0", stack.name), chunk)));
            }
        }
        // The index is written after the samples, because an index that is older than they are is not trusted.
        self.files.extend(self.index.map(|index| (SAMPLES_INDEX.to_owned(), index)));
        self.files.push((SHA256SUMS.to_owned(), sums.into_bytes()));
        self.files.sort_by_key(|(path, _)| path == "zarr.json");
        files.extend(self.files);
        files
    }
}

fn image_meta(
    stack: &PlannedStack,
    values: &ValueOptions,
    len: usize,
    stats: &StackStats,
) -> ArrayMeta {
    let mut ours = stats.to_attributes();
    let notes = BandNotes {
        keep_bits: values.keep_bits.bits(),
        good_bands: stack.good_bands.clone(),
        band_names: stack.band_names.clone(),
    };
    notes.write(&mut ours);
    let mut attributes = Map::new();
    let coordinates: Vec<&str> = [(WAVELENGTH, &stack.wavelength), (FWHM, &stack.fwhm)]
        .into_iter()
        .filter_map(|(name, values)| values.is_some().then_some(name))
        .collect();
    if !coordinates.is_empty() {
        attributes.insert("coordinates".into(), json!(coordinates.join(" ")));
    }
    if stack.scale != 1.0 {
        attributes.insert("scale_factor".into(), json!(stack.scale));
    }
    if stack.offset != 0.0 {
        attributes.insert("add_offset".into(), json!(stack.offset));
    }
    if let Some(missing) = stack.missing {
        attributes.insert(FILL_VALUE.into(), json!(missing));
    }
    if let Some(unit) = &stack.unit {
        attributes.insert(UNITS.into(), json!(unit));
    }
    attributes.insert(OWN.into(), Value::Object(ours));
    ArrayMeta {
        shape: array_shape(&stack.grid, len).to_vec(),
        dtype: values.dtype(),
        file_shape: file_shape(&stack.grid).to_vec(),
        chunk_shape: Some(chunk_shape(&stack.grid).to_vec()),
        codecs: ChunkCodecs { compression: Some(stack.codec), checksum: true },
        fill_value: match values.dtype().is_float() {
            true => json!("NaN"),
            false => json!(stack.missing.unwrap_or(0)),
        },
        dimension_names: names(&["sample", "y", "x", "band"]),
        attributes,
    }
}

fn mask_meta(mask: &PlannedMask, len: usize) -> ArrayMeta {
    let mut attributes = Map::new();
    let mut ours = Map::new();
    // Describes boolean layers and classes with CF attributes.
    if !mask.layers.is_empty() {
        let bits: Vec<MaskValue> = (0..mask.layers.len()).map(|bit| 1 << bit).collect();
        attributes.insert("flag_masks".into(), json!(bits));
        attributes.insert("flag_meanings".into(), json!(flag_meanings(&mask.layers)));
    } else if let Some(classes) = &mask.class_names {
        // Classes without a name are not listed as flags.
        let named = || (0..).zip(classes).filter(|(_, name)| !name.trim().is_empty());
        let names: Vec<String> = named().map(|(_, name)| name.clone()).collect();
        let values: Vec<usize> = named().map(|(id, _)| id).collect();
        attributes.insert("flag_values".into(), json!(values));
        attributes.insert("flag_meanings".into(), json!(flag_meanings(&names)));
    }
    let meaning = MaskMeaning {
        layers: mask.layers.clone(),
        class_names: mask.class_names.clone(),
        class_colors: mask.class_colors.clone(),
        origin: mask.origin.clone(),
    };
    meaning.write(&mut ours);
    attributes.insert(OWN.into(), Value::Object(ours));
    let flat = |lengths: [u64; 4]| lengths[..3].to_vec();
    ArrayMeta {
        shape: flat(array_shape(&mask.grid, len)),
        dtype: mask.dtype,
        file_shape: flat(file_shape(&mask.grid)),
        chunk_shape: Some(flat(chunk_shape(&mask.grid))),
        codecs: ChunkCodecs { compression: Some(mask_codec(mask)), checksum: true },
        fill_value: json!(0),
        dimension_names: names(&["sample", "y", "x"]),
        attributes,
    }
}

fn companion_meta(companion: &PlannedCompanion, len: usize) -> ArrayMeta {
    let PlannedCompanion { name, grid, meaning, .. } = companion;
    let axes = companion.axes();
    // Companions of one stack may differ in their bands and resolutions, so each has dimensions of its own for these.
    let named = |dimension: &str| format!("{name}_{dimension}");
    let pixels = match meaning.ratio.is_same() {
        true => ["y", "x"].map(str::to_owned),
        false => ["y", "x"].map(named),
    };
    let bands = named(match meaning.role {
        Role::Target => "k",
        Role::Image => "band",
    });
    let dimensions = ["sample", pixels[0].as_str(), pixels[1].as_str(), bands.as_str()];
    let lengths = |lengths: [u64; 4]| lengths[..axes].to_vec();
    let mut attributes = Map::new();
    meaning.write(&mut attributes);
    ArrayMeta {
        shape: lengths(array_shape(grid, len)),
        dtype: companion.dtype,
        file_shape: lengths(file_shape(grid)),
        chunk_shape: Some(lengths(chunk_shape(grid))),
        codecs: ChunkCodecs { compression: Some(companion.codec), checksum: true },
        fill_value: json!("NaN"),
        dimension_names: names(&dimensions[..axes]),
        attributes,
    }
}

/// The codec of a mask's chunks, with its element size.
pub fn mask_codec(mask: &PlannedMask) -> hsipack_format::Codec {
    mask.codec.of_dtype(mask.dtype)
}

/// CF separates meanings by spaces, so spaces in a name become underscores.
fn flag_meanings(names: &[String]) -> String {
    names
        .iter()
        .map(|name| name.split_whitespace().collect::<Vec<_>>().join("_"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn coordinate_meta(len: usize, long_name: &str) -> ArrayMeta {
    let attributes = Map::from_iter([
        (UNITS.to_owned(), json!("nm")),
        ("long_name".to_owned(), json!(long_name)),
    ]);
    ArrayMeta {
        shape: vec![len as u64],
        dtype: DType::F64,
        file_shape: vec![len as u64],
        chunk_shape: None,
        codecs: ChunkCodecs { compression: None, checksum: true },
        fill_value: json!("NaN"),
        dimension_names: names(&["band"]),
        attributes,
    }
}

/// The stored bytes of a coordinate array's only chunk.
pub fn coordinate_chunk(values: &[f64]) -> Vec<u8> {
    let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    hsipack_format::codec::append_checksum(&mut bytes);
    bytes
}

fn array_shape(grid: &Grid, len: usize) -> [u64; 4] {
    let shape = grid.shape();
    [len, shape.rows, shape.columns, shape.bands].map(|length| length as u64)
}

fn chunk_shape(grid: &Grid) -> [u64; 4] {
    [1, grid.tile().rows, grid.tile().columns, grid.band_group()].map(|length| length as u64)
}

fn file_shape(grid: &Grid) -> [u64; 4] {
    let chunks = [grid.samples_per_shard(), grid.down(), grid.across(), grid.band_groups()];
    let chunk = chunk_shape(grid);
    std::array::from_fn(|axis| chunks[axis] as u64 * chunk[axis])
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The program that writes the dataset, and its version.
pub const CREATED_BY: &str = concat!("hsipack ", env!("CARGO_PKG_VERSION"));

/// The current time in UTC, as `2026-11-21T13:45:00Z`.
pub fn now() -> String {
    let seconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    utc::time(seconds as i64, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_have_no_blanks() {
        assert_eq!(flag_meanings(&["soft tissue".into(), "bone".into()]), "soft_tissue bone");
    }
}
