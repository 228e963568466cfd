//! `.zarr`: a Zarr v3 group that xarray can open. It contains the array and the coordinates of its
//! bands and pixels.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hsipack_format::geo::cf;
use hsipack_format::metadata::{FWHM, WAVELENGTH};
use hsipack_format::zarr::{ArrayMeta, ChunkCodecs, group, parse_group, to_text};
use hsipack_format::{Codec, Compressor, DType, Error, Opt, Result, Shuffle, remedy};
use hsipack_store::folder::link_target;
use hsipack_store::{codec, remote};
use serde_json::{Map, Value, json};

use super::Written;
use super::raster::Raster;

/// Writes the group.
pub(super) fn write(raster: &Raster<'_>, path: &Path) -> Result<Written> {
    let folder = StagedFolder::create(path)?;
    let mut names = vec!["y", "x"];
    let (rows, columns) = (raster.shape.rows as u64, raster.shape.columns as u64);
    let (mut shape, mut chunk) = (vec![rows, columns], vec![raster.slab as u64, columns]);
    if !raster.flat {
        names.push("band");
        shape.push(raster.shape.bands as u64);
        chunk.push(raster.shape.bands as u64);
    }
    let meta = ArrayMeta {
        shape,
        dtype: raster.dtype,
        file_shape: chunk,
        chunk_shape: None,
        codecs: ChunkCodecs { compression: Some(codec_of(raster.dtype)), checksum: true },
        fill_value: fill(raster),
        dimension_names: names.into_iter().map(str::to_owned).collect(),
        attributes: attributes(raster),
    };
    let mut number = 0;
    let whole = raster.slab * raster.shape.row_values() * raster.dtype.size();
    (raster.rows)(&mut |bytes| {
        // The last chunk must be as long as the others.
        let mut all = bytes.to_vec();
        all.resize(whole, 0);
        let mut stored = Vec::new();
        codec::encode(&codec_of(raster.dtype), &all, &mut stored)?;
        let mut position = vec![0; meta.shape.len()];
        position[0] = number;
        number += 1;
        folder.write(&format!("{}/{}", raster.name, ArrayMeta::file_key(&position)), &stored)
    })?;
    let array = |name: &str, meta: &ArrayMeta| {
        folder.write(&format!("{name}/zarr.json"), &to_text(&meta.to_json()))
    };
    array(raster.name, &meta)?;
    let mut lists = Vec::new();
    for (name, values, what) in [
        (WAVELENGTH, raster.wavelength, "band centre"),
        (FWHM, raster.fwhm, "full width at half maximum"),
    ] {
        if let Some(values) = values {
            let about = [("units", json!("nm")), ("long_name", json!(what))];
            let (values, attributes) = (values.to_vec(), map(about));
            lists.push(List { name, values, attributes });
        }
    }
    if let Some(geo) = &raster.geo {
        for geo_array in cf::arrays(geo, raster.shape.rows, raster.shape.columns) {
            array(geo_array.name, &geo_array.meta)?;
            folder.write(
                &format!("{}/{}", geo_array.name, geo_array.chunk_file()),
                &geo_array.chunk,
            )?;
        }
    }
    for List { name, values, attributes } in lists {
        let meta = ArrayMeta {
            shape: vec![values.len() as u64],
            dtype: DType::F64,
            file_shape: vec![values.len() as u64],
            chunk_shape: None,
            codecs: ChunkCodecs { compression: None, checksum: false },
            fill_value: json!("NaN"),
            dimension_names: vec!["band".to_owned()],
            attributes,
        };
        array(name, &meta)?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        folder.write(&format!("{name}/{}", ArrayMeta::file_key(&[0])), &bytes)?;
    }
    let about = [("Conventions", json!("CF-1.11")), ("title", json!(raster.title))];
    folder.write("zarr.json", &to_text(&group(map(about))))?;
    folder.commit()?;
    Ok((raster.dtype, raster.scaling, Vec::new()))
}

/// One number for each band.
struct List {
    name: &'static str,
    values: Vec<f64>,
    attributes: Map<String, Value>,
}

fn map<const N: usize>(attributes: [(&str, Value); N]) -> Map<String, Value> {
    attributes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// LZ4 after a byte shuffle: it is fast, and every Zarr reader supports it.
fn codec_of(dtype: DType) -> Codec {
    let shuffle = if dtype.size() > 1 { Shuffle::Byte } else { Shuffle::None };
    Codec::new(Compressor::Lz4, 5, shuffle, dtype)
}

fn fill(raster: &Raster<'_>) -> Value {
    match raster.nodata {
        Some(number) if number.is_nan() && raster.dtype.is_float() => json!("NaN"),
        Some(number) if number.is_finite() && raster.dtype.is_float() => json!(number),
        Some(number) if number.is_finite() => json!(number as i64),
        _ => json!(0),
    }
}

/// Attributes that describe the values by the CF conventions.
fn attributes(raster: &Raster<'_>) -> Map<String, Value> {
    let mut all = map([("long_name", json!(raster.title))]);
    let mut put = |key: &str, value: Value| all.insert(key.to_owned(), value);
    if let Some(unit) = &raster.unit {
        put("units", json!(unit));
    }
    if raster.scaling.factor != 1.0 || raster.scaling.offset != 0.0 {
        put("scale_factor", json!(raster.scaling.factor));
        put("add_offset", json!(raster.scaling.offset));
    }
    if let Some(nodata) = raster.nodata.filter(|nodata| nodata.is_finite()) {
        let nodata = if raster.dtype.is_float() { json!(nodata) } else { json!(nodata as i64) };
        put("_FillValue", nodata);
    }
    if let Some(names) = &raster.class_names {
        put("flag_values", json!((0..names.len()).collect::<Vec<_>>()));
        // All names are in one text, separated by spaces, so each name must be one word.
        let words: Vec<String> = names.iter().map(|name| word(name)).collect();
        put("flag_meanings", json!(words.join(" ")));
        put("class_names", json!(names));
    }
    if let Some(colours) = &raster.class_colours {
        let hex = |[r, g, b]: &[u8; 3]| format!("#{r:02x}{g:02x}{b:02x}");
        put("class_colors", json!(colours.iter().map(hex).collect::<Vec<_>>()));
    }
    if let Some(names) = &raster.band_names {
        put("band_names", json!(names));
    }
    if let Some(good) = &raster.good_bands {
        put("good_bands", json!(good));
    }
    if let Some(geo) = &raster.geo {
        cf::refer(&mut all, geo);
    }
    all
}

fn word(name: &str) -> String {
    let word: String =
        name.chars().map(|letter| if letter.is_whitespace() { '_' } else { letter }).collect();
    if word.is_empty() { "_".to_owned() } else { word }
}

/// A folder that is written under a temporary name beside its final one, and deleted unless it is
/// committed.
struct StagedFolder {
    temporary: PathBuf,
    path: PathBuf,
}

impl StagedFolder {
    fn create(path: &Path) -> Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if remote::is_url(path) {
            return Err(Error::unsupported("a Zarr group cannot be written to a URL")
                .at(path)
                .with_remedy(remedy![
                    "choose a folder on this machine as ",
                    Opt::Output,
                    ", or .tif"
                ]));
        }
        let path = &link_target(path);
        if path.exists() && !is_export(path) {
            return Err(Error::conflict("the path exists and is not an export of hsipack")
                .at(path)
                .with_remedy(remedy!["choose another ", Opt::Output]));
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.{count}.part", std::process::id()));
        fs::create_dir(&temporary).map_err(|error| Error::io(path, "cannot write", error))?;
        Ok(Self { temporary, path: path.to_owned() })
    }

    /// Writes a file in the folder.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let file = self.temporary.join(name);
        let write = || {
            fs::create_dir_all(file.parent().expect("below a folder"))?;
            let mut file = File::create(&file)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(|error| Error::io(&self.path, "cannot write", error))
    }

    /// Renames the folder to its final name. Replaces an existing group of that name.
    fn commit(self) -> Result<()> {
        let fail = |error| Error::io(&self.path, "cannot write", error);
        if !self.path.exists() {
            return fs::rename(&self.temporary, &self.path).map_err(fail);
        }
        let old = self.temporary.with_extension("old");
        fs::rename(&self.path, &old).map_err(fail)?;
        if let Err(error) = fs::rename(&self.temporary, &self.path) {
            // The existing group gets its name back.
            let _ = fs::rename(&old, &self.path);
            return Err(fail(error));
        }
        fs::remove_dir_all(&old).map_err(fail)
    }
}

/// Titles of exports and maps begin with these words.
const TITLES: [&str; 2] = ["hsipack export of sample ", "map of sample "];

/// Whether a folder is a group that was written here. Nothing else is replaced.
fn is_export(path: &Path) -> bool {
    let attributes = fs::read(path.join("zarr.json")).ok().and_then(|text| parse_group(&text).ok());
    let title = attributes.as_ref().and_then(|all| all.get("title")?.as_str());
    title.is_some_and(|title| TITLES.iter().any(|start| title.starts_with(start)))
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        // After a commit, no folder has this name any more.
        let _ = fs::remove_dir_all(&self.temporary);
    }
}
