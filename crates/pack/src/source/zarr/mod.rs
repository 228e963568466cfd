//! Zarr v2 and v3 arrays in folders, sharded or not.
//!
//! A dataset is a folder: an array, or a group with arrays in it, of which one is the cube. Which
//! axis is which follows from the axes' names (`dimension_names`, xarray's `_ARRAY_DIMENSIONS`), from
//! the length of the wavelengths beside the cube, or else is taken as (row, column, band).
//!
//! Chunks are decoded by the crate `zarrs`, one at a time. A chunk (of a sharded array: an inner
//! chunk) is decoded as a whole, so it bounds memory from below; chunks beyond 2 GiB are refused.
//! `zarrs` does not verify `crc32c` where a read needs only part of a chunk or shard: damage that
//! still decodes shows only in reads of whole chunks.

pub mod metadata;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{CubeShape, DType, Error, Result};
use serde_json::{Map, Value};
use zarrs::array::{Array, ArrayBytes, ArrayShardedExt, ArraySubset, CodecOptions};
use zarrs::storage::byte_range::{ByteRange, ByteRangeIterator};
use zarrs::storage::{Bytes, MaybeBytesIterator, ReadableStorageTraits, StorageError, StoreKey};

use self::metadata::{ArrayMetadata, METADATA_FILES, Node};
use crate::source::flat::permute;
use crate::source::wavelengths::{fwhm_to_nm, to_nm};
use crate::source::{Access, Axis, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Scaling, Source};

/// A row of the cube may take this many bytes; only damaged or crafted metadata declare more.
const MAX_ROW: u64 = 2 << 30;
/// Reads below this size spend more on finding chunks than on decoding them.
const WORTHWHILE: usize = 1 << 20;
/// No list of wavelengths is longer.
const MAX_BANDS: usize = 1 << 20;
/// How deep groups may be nested, and how many nodes are looked at, in the search for cubes.
const MAX_DEPTH: usize = 16;
const MAX_NODES: usize = 10_000;

/// Whether `path` is a folder or a file of a Zarr dataset.
pub(super) fn recognises(path: &Path, head: &[u8]) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if path.is_dir() {
        return name.ends_with(".zarr")
            || METADATA_FILES.iter().any(|file| path.join(file).is_file());
    }
    is_metadata(&name) || name.contains(".zarr") && head.starts_with(b"PK\x03\x04")
}

fn is_metadata(name: &str) -> bool {
    METADATA_FILES.contains(&name) || name == ".zattrs" || name == ".zmetadata"
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the metadata cannot be read or are malformed, or the dataset holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if !path.is_dir() {
        return Err(not_a_folder(path));
    }
    let root = Node::read(path)?.ok_or_else(|| {
        Error::malformed("the folder has neither zarr.json nor .zarray nor .zgroup")
            .at(path)
            .with_remedy("copy the dataset again; its metadata are missing")
    })?;
    refuse_packed(path, &root)?;
    let found = match &root.array {
        Some(_) => whole_path(path, root, options)?,
        None => choose(path, options)?,
    };
    ZarrSource::open(found, options).map(|source| Box::new(source) as Box<dyn Source>)
}

fn not_a_folder(path: &Path) -> Error {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_metadata(&name) {
        let folder = path.parent().unwrap_or(Path::new(".")).display().to_string();
        return Error::unsupported("this is only the metadata of a Zarr dataset")
            .at(path)
            .with_remedy(format!(
                "give its folder, {}",
                if folder.is_empty() { "." } else { &folder }
            ));
    }
    Error::unsupported("a Zarr dataset in a zip file")
        .at(path)
        .with_remedy("unpack it and give the folder")
}

/// What hsipack wrote is no input.
fn refuse_packed(path: &Path, node: &Node) -> Result<()> {
    match node.attributes.contains_key("hsipack") {
        true => Err(Error::unsupported("an hsipack dataset, packed already")
            .at(path)
            .with_remedy("take cubes out with `hsipack export`, or add to it with --append")),
        false => Ok(()),
    }
}

/// An array in a dataset.
#[derive(Debug)]
struct Found {
    folder: PathBuf,
    /// Path within the dataset, for messages and `file::name`.
    name: String,
    node: Node,
}

impl Found {
    fn array(&self) -> Option<&ArrayMetadata> {
        self.node.array.as_ref()
    }

    fn describe(&self, root: &Path) -> String {
        let Some(array) = self.array() else { return self.name.clone() };
        format!("{}::{} {:?} {}", root.display(), self.name, array.shape, array.type_name)
    }
}

/// The dataset is a single array: a variable can only name itself.
fn whole_path(path: &Path, root: Node, options: &OpenOptions) -> Result<Found> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(variable) = &options.variable
        && variable.trim_matches('/') != name
        && !variable.trim_matches('/').is_empty()
    {
        return Err(Error::unsupported(format!("a single array, without '{variable}' in it"))
            .at(path)
            .with_remedy("give the path without '::'"));
    }
    Ok(Found { folder: path.to_owned(), name, node: root })
}

/// The array that the user named, or the only one that can be a cube.
fn choose(path: &Path, options: &OpenOptions) -> Result<Found> {
    let mut arrays = Vec::new();
    let (folder, wanted) = match &options.variable {
        Some(variable) => {
            let inside = path.join(variable.trim_matches('/'));
            match Node::read(&inside)? {
                // A group inside the dataset: the cube is looked for there.
                Some(node) if node.array.is_none() => {
                    refuse_packed(&inside, &node)?;
                    (inside, None)
                }
                _ => (path.to_owned(), Some(variable.trim_matches('/'))),
            }
        }
        None => (path.to_owned(), None),
    };
    let prefix = folder.strip_prefix(path).unwrap_or(Path::new(""));
    collect(&folder, &prefix.to_string_lossy(), 0, &mut 0, &mut arrays)?;
    let there = list(path, &arrays);
    let matching: Vec<Found> = match wanted {
        Some(wanted) => named(arrays, wanted),
        None => arrays.into_iter().filter(|found| may_be_cube(found, options)).collect(),
    };
    match matching.len() {
        1 => Ok(matching.into_iter().next().expect("there is one")),
        0 => Err(Error::malformed(match wanted {
            Some(wanted) => format!("no array '{wanted}'; there are {there}"),
            None => format!("no 3-D array of numbers; there are {there}"),
        })
        .at(path)
        .with_remedy("name an array as FOLDER::NAME")),
        _ => Err(Error::ambiguous(format!("several arrays: {}", list(path, &matching)))
            .at(path)
            .with_remedy("name one as FOLDER::NAME")),
    }
}

/// All arrays below the group in `folder`.
fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    looked_at: &mut usize,
    into: &mut Vec<Found>,
) -> Result<()> {
    let fail = |error| Error::io(folder, "cannot read", error);
    let mut children: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(fail)?;
    children.sort();
    for child in children.into_iter().filter(|child| child.is_dir()) {
        let Some(node) = Node::read(&child)? else { continue };
        let own = child.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = if prefix.is_empty() { own } else { format!("{prefix}/{own}") };
        if node.array.is_some() {
            into.push(Found { folder: child, name, node });
        } else if depth < MAX_DEPTH {
            collect(&child, &name, depth + 1, looked_at, into)?;
        }
        // Groups count as well: links may lead round in circles.
        *looked_at += 1;
        if *looked_at > MAX_NODES {
            return Err(Error::unsupported(format!("more than {MAX_NODES} arrays and groups"))
                .at(folder)
                .with_remedy("name one as FOLDER::NAME, or give its folder"));
        }
    }
    Ok(())
}

/// The arrays called `wanted`: by their whole path, else by its end, else whatever the case.
fn named(arrays: Vec<Found>, wanted: &str) -> Vec<Found> {
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let is: [&dyn Fn(&str) -> bool; 4] = [
        &|name| name == wanted,
        &|name| last(name) == wanted,
        &|name| name.eq_ignore_ascii_case(wanted),
        &|name| last(name).eq_ignore_ascii_case(wanted),
    ];
    let best = is.iter().find(|is| arrays.iter().any(|found| is(&found.name)));
    let Some(is) = best else { return Vec::new() };
    arrays.into_iter().filter(|found| is(&found.name)).collect()
}

fn may_be_cube(found: &Found, options: &OpenOptions) -> bool {
    found.array().is_some_and(|array| {
        let axes = array.shape.len();
        array.dtype.is_some() && (axes == 3 || axes == 2 && options.mask)
    })
}

fn list(root: &Path, arrays: &[Found]) -> String {
    if arrays.is_empty() {
        return "no arrays".to_owned();
    }
    let more = if arrays.len() > 12 { ", …" } else { "" };
    let named: Vec<_> = arrays.iter().take(12).map(|found| found.describe(root)).collect();
    named.join(", ") + more
}

/// The array's axes as a cube's: three lengths, the last one 1 for 2-D masks.
fn cube_lengths(found: &Found, options: &OpenOptions) -> Result<[usize; 3]> {
    let shape = found.array().map_or(&[][..], |array| &array.shape);
    match (shape, options.mask) {
        ([a, b, c], _) => Ok([*a, *b, *c]),
        ([a, b], true) => Ok([*a, *b, 1]),
        ([_, _], false) => Err(Error::unsupported(format!("a 2-D array of {shape:?}, not a cube"))
            .with_remedy("give a 3-D array; a mask goes to --mask")),
        _ => Err(Error::unsupported(format!("an array of {} axes, {shape:?}", shape.len()))
            .with_remedy("write one 3-D array (row, column, band) for each cube")),
    }
}

/// What a name says about an axis.
fn axis_named(name: &str) -> Option<Axis> {
    Some(match name.to_lowercase().as_str() {
        "y" | "row" | "rows" | "lat" | "latitude" | "line" | "lines" | "northing" | "downtrack"
        | "height" => Axis::Row,
        "x" | "col" | "cols" | "column" | "columns" | "lon" | "longitude" | "sample"
        | "samples" | "easting" | "crosstrack" | "width" => Axis::Column,
        "b" | "band" | "bands" | "wavelength" | "wavelengths" | "wl" | "channel" | "channels"
        | "c" | "lambda" | "spectral" => Axis::Band,
        _ => return None,
    })
}

/// The order that the names of three axes mean, if they leave no doubt.
fn order_by_names(names: &[Option<String>]) -> Option<AxisOrder> {
    let mut axes: Vec<_> = names.iter().map(|name| axis_named(name.as_deref()?)).collect();
    if axes.len() == 2 {
        axes.push(Some(Axis::Band));
    }
    let mut missing: Vec<_> = [Axis::Row, Axis::Column, Axis::Band]
        .into_iter()
        .filter(|axis| !axes.contains(&Some(*axis)))
        .collect();
    // With the band axis known, rows come before columns as everywhere.
    if axes.len() != 3 || missing.len() > 2 || missing.len() == 2 && missing.contains(&Axis::Band) {
        return None;
    }
    let order: Vec<Axis> = axes
        .into_iter()
        .map(|axis| {
            axis.unwrap_or_else(|| if missing.is_empty() { Axis::Row } else { missing.remove(0) })
        })
        .collect();
    let text: String = AxisOrder(order.try_into().ok()?).to_string();
    AxisOrder::parse(&text)
}

/// A cube in a Zarr array.
struct ZarrSource {
    info: CubeInfo,
    array: Array<ChunkFiles>,
    order: AxisOrder,
    /// 2 for masks without a band axis.
    axes: usize,
    /// Rows that lie in the same chunks.
    chunk_rows: usize,
}

impl ZarrSource {
    fn open(found: Found, options: &OpenOptions) -> Result<Self> {
        Self::open_array(&found, options).map_err(|error| error.at(&found.folder))
    }

    fn open_array(found: &Found, options: &OpenOptions) -> Result<Self> {
        let Some(metadata) = found.array() else { return Err(Error::malformed("not an array")) };
        let lengths = cube_lengths(found, options)?;
        let dtype = metadata.dtype.ok_or_else(|| {
            Error::unsupported(format!("values of type '{}'", metadata.type_name))
                .with_remedy("only integers and floats make a cube")
        })?;
        refuse_unwritten(found, options)?;
        let array = open_zarrs(&found.folder)?;
        if array.shape().iter().map(|length| *length as usize).ne(metadata.shape.iter().copied()) {
            return Err(Error::malformed("the metadata changed while they were read"));
        }
        let mut notes = Vec::new();
        let spectrum = Spectrum::find(found, &lengths, &mut notes);
        let order = axis_order(metadata, &lengths, spectrum.as_ref(), options, &mut notes);
        let shape = order.shape(lengths);
        check_size(shape, dtype)?;
        let mut info =
            CubeInfo::new(format!("Zarr v{}", found.node.version), shape, dtype, &found.folder);
        info.notes = notes;
        if let Some(spectrum) = spectrum {
            spectrum.describe(&mut info);
        }
        describe_values(&found.node.attributes, &mut info);
        let axes = metadata.shape.len();
        let chunk = match metadata.sharded {
            true => array.effective_subchunk_shape(),
            false => array.chunk_shape(&vec![0; axes]).ok(),
        };
        let chunk_rows = chunk
            .and_then(|chunk| chunk.get(order.position(Axis::Row)).map(|rows| rows.get()))
            .map_or(1, |rows| usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, shape.rows));
        Ok(Self { info, array, order, axes, chunk_rows })
    }
}

/// An array of which nothing was ever written reads as zeros: a dataset not copied completely.
fn refuse_unwritten(found: &Found, options: &OpenOptions) -> Result<()> {
    let fail = |error| Error::io(&found.folder, "cannot read", error);
    for entry in std::fs::read_dir(&found.folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let name = name.to_string_lossy();
        if !is_metadata(&name) && !name.starts_with("._") && name != ".DS_Store" {
            return Ok(());
        }
    }
    match options.mask {
        true => Ok(()),
        false => Err(Error::malformed("the array has no chunks, only metadata")
            .with_remedy("copy the dataset again; its values are missing")),
    }
}

fn open_zarrs(folder: &Path) -> Result<Array<ChunkFiles>> {
    let store = ChunkFiles { folder: folder.to_owned() };
    guarded(|| Array::open(Arc::new(store), "/"))?.map_err(|error| {
        Error::unsupported(format!("cannot decode this array: {error}"))
            .with_remedy(
                "rewrite it with the codecs bytes, blosc, zstd, gzip, zlib, transpose or sharding",
            )
            .caused_by(error)
    })
}

/// The files of one array, for `zarrs` to read.
///
/// Its own file store takes memory for whatever length a shard's index names, and takes files that
/// may not be read for chunks that were never written, which read as the fill value.
struct ChunkFiles {
    folder: PathBuf,
}

impl ChunkFiles {
    fn open(&self, key: &StoreKey) -> std::io::Result<Option<(File, u64)>> {
        match File::open(self.folder.join(key.as_str())) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(file) => {
                let len = file.metadata()?.len();
                Ok(Some((file, len)))
            }
        }
    }
}

/// Reads the bytes of `range` from a file of `len` bytes.
fn read_range(file: &File, len: u64, range: ByteRange) -> Result<Bytes, StorageError> {
    let (start, count) = match range {
        ByteRange::FromStart(start, Some(count)) => (Some(start), count),
        ByteRange::FromStart(start, None) => (Some(start), len.saturating_sub(start)),
        ByteRange::Suffix(count) => (len.checked_sub(count), count),
    };
    let start =
        start.filter(|start| start.checked_add(count).is_some_and(|end| end <= len)).ok_or_else(
            || StorageError::Other(format!("a chunk of {len} bytes is cut short or damaged")),
        )?;
    let mut bytes = vec![0; count as usize];
    file.read_exact_at(&mut bytes, start)?;
    Ok(bytes.into())
}

impl ReadableStorageTraits for ChunkFiles {
    fn get_partial_many<'a>(
        &'a self,
        key: &StoreKey,
        ranges: ByteRangeIterator<'a>,
    ) -> Result<MaybeBytesIterator<'a>, StorageError> {
        let Some((file, len)) = self.open(key)? else { return Ok(None) };
        Ok(Some(Box::new(ranges.map(move |range| read_range(&file, len, range)))))
    }

    fn size_key(&self, key: &StoreKey) -> Result<Option<u64>, StorageError> {
        Ok(self.open(key)?.map(|(_, len)| len))
    }

    fn supports_get_partial(&self) -> bool {
        true
    }
}

/// Runs `zarrs`, which trusts offsets in shard indexes and adds them unchecked: a damaged file may
/// make it panic, which is an error of the file and not of the program.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        Error::malformed("the array is damaged").with_remedy("copy it again, or write it anew")
    })
}

fn axis_order(
    metadata: &ArrayMetadata,
    lengths: &[usize; 3],
    spectrum: Option<&Spectrum>,
    options: &OpenOptions,
    notes: &mut Vec<String>,
) -> AxisOrder {
    if let Some(axes) = options.axes {
        return match metadata.shape.len() {
            2 => without_bands(axes),
            _ => axes,
        };
    }
    if let Some(order) = order_by_names(&metadata.dimensions) {
        return order;
    }
    if metadata.shape.len() == 2 {
        return AxisOrder::BIP;
    }
    if let Some(spectrum) = spectrum {
        let fits = |axis: usize| lengths[axis] == spectrum.wavelength.len();
        match [fits(0), fits(1), fits(2)] {
            [true, false, false] => return AxisOrder::BSQ,
            [false, true, false] => return AxisOrder::BIL,
            [false, false, true] => return AxisOrder::BIP,
            _ => {}
        }
    }
    notes.push("the axes have no names; taken as (row, column, band)".to_owned());
    AxisOrder::BIP
}

/// The user's order for an array that has no band axis.
fn without_bands(axes: AxisOrder) -> AxisOrder {
    match axes.position(Axis::Row) < axes.position(Axis::Column) {
        true => AxisOrder::BIP,
        false => AxisOrder([Axis::Column, Axis::Row, Axis::Band]),
    }
}

fn check_size(shape: CubeShape, dtype: DType) -> Result<()> {
    let row = (shape.columns as u64)
        .checked_mul(shape.bands as u64)
        .and_then(|values| values.checked_mul(dtype.size() as u64));
    if shape.is_empty() {
        return Err(Error::malformed(format!("the cube is empty: {shape}")));
    }
    match shape.checked_values().is_some() && row.is_some_and(|row| row <= MAX_ROW) {
        true => Ok(()),
        false => Err(Error::unsupported(format!("a cube of {shape} {dtype} values is too large"))),
    }
}

/// The wavelengths that belong to an array, as stored, and what else is known of its bands.
struct Spectrum {
    wavelength: Vec<f64>,
    nm: Vec<f64>,
    fwhm: Option<Result<Vec<f64>, String>>,
    good: Option<Vec<f64>>,
}

impl Spectrum {
    /// Looks beside the array and in its and its group's attributes for wavelengths.
    fn find(found: &Found, lengths: &[usize; 3], notes: &mut Vec<String>) -> Option<Self> {
        let lists = Lists::of(found);
        let band_dimension = found
            .array()?
            .dimensions
            .iter()
            .flatten()
            .find(|name| axis_named(name) == Some(Axis::Band));
        let names = ["wavelength", "wavelengths", "wl", "lambda"].into_iter().map(str::to_owned);
        let mut refused = Vec::new();
        for name in names.chain(band_dimension.cloned()) {
            let Some((wavelength, unit)) = lists.numbers(&name) else { continue };
            // Bands counted from 0 or 1 are no wavelengths.
            let counted = wavelength.windows(2).all(|pair| pair[1] - pair[0] == 1.0);
            if unit.is_none() && counted && wavelength.first().is_none_or(|first| *first < 2.0) {
                continue;
            }
            if !lengths.contains(&wavelength.len()) {
                refused.push(format!(
                    "the {name} list has {} entries for an array of {lengths:?}; left out",
                    wavelength.len()
                ));
                continue;
            }
            match to_nm(&wavelength, unit.as_deref()) {
                Ok(nm) => {
                    let fwhm = lists.numbers("fwhm").map(|(fwhm, fwhm_unit)| {
                        let unit = fwhm_unit.or_else(|| unit.clone());
                        fwhm_to_nm(&fwhm, unit.as_deref(), Some((&wavelength, &nm)))
                    });
                    let good =
                        ["bbl", "good_wavelengths"].iter().find_map(|name| lists.numbers(name));
                    return Some(Self { wavelength, nm, fwhm, good: good.map(|(good, _)| good) });
                }
                Err(why) => refused.push(why),
            }
        }
        notes.append(&mut refused);
        None
    }

    fn describe(self, info: &mut CubeInfo) {
        let bands = info.shape.bands;
        let disagrees = |what: &str, length: usize| {
            format!("the {what} list has {length} entries for {bands} bands; left out")
        };
        if self.nm.len() != bands {
            info.notes.push(disagrees("wavelength", self.nm.len()));
            return;
        }
        info.wavelength = Some(self.nm);
        match self.fwhm {
            Some(Ok(fwhm)) if fwhm.len() == bands => info.fwhm = Some(fwhm),
            Some(Ok(fwhm)) => info.notes.push(disagrees("fwhm", fwhm.len())),
            Some(Err(why)) => info.notes.push(why),
            None => {}
        }
        match self.good {
            Some(good) if good.len() == bands => {
                info.good_bands = Some(good.iter().map(|flag| *flag != 0.0).collect());
            }
            Some(good) => info.notes.push(disagrees("bad-band", good.len())),
            None => {}
        }
    }
}

/// Lists of numbers that belong to an array: 1-D arrays beside it, attributes of it and its group.
struct Lists<'a> {
    folder: Option<&'a Path>,
    attributes: [&'a Map<String, Value>; 2],
    group: Map<String, Value>,
}

impl<'a> Lists<'a> {
    fn of(found: &'a Found) -> Self {
        let folder = found.folder.parent();
        let group = folder.and_then(|folder| Node::read(folder).ok()?);
        let group = group.map(|node| node.attributes).unwrap_or_default();
        Self { folder, attributes: [&found.node.attributes; 2], group }
    }

    /// The numbers called `name` and their unit, if it is given.
    fn numbers(&self, name: &str) -> Option<(Vec<f64>, Option<String>)> {
        let attributes = [self.attributes[0], &self.group];
        let unit = || {
            let keys = [
                format!("{name}_units"),
                format!("{name}_unit"),
                "wavelength_units".to_owned(),
                "wavelength_unit".to_owned(),
            ];
            keys.iter()
                .find_map(|key| attributes.iter().find_map(|map| map.get(key)?.as_str()))
                .map(str::to_owned)
        };
        for map in attributes {
            let list = map.get(name).and_then(Value::as_array);
            if let Some(list) = list.and_then(|list| list.iter().map(Value::as_f64).collect()) {
                return Some((list, unit()));
            }
        }
        let (numbers, own_unit) = beside(&self.folder?.join(name))?;
        Some((numbers, own_unit.or_else(unit)))
    }
}

/// The values and the unit of a 1-D array of numbers.
fn beside(folder: &Path) -> Option<(Vec<f64>, Option<String>)> {
    let node = Node::read(folder).ok()??;
    let metadata = node.array?;
    let dtype = metadata.dtype?;
    if metadata.shape.len() != 1 || metadata.shape[0] > MAX_BANDS {
        return None;
    }
    let array = open_zarrs(folder).ok()?;
    let all = ArraySubset::new_with_shape(vec![metadata.shape[0] as u64]);
    let bytes = retrieve(&array, &all).ok()?;
    let unit = node.attributes.get("units").and_then(Value::as_str).map(str::to_owned);
    Some((as_f64(&bytes, dtype), unit))
}

/// Numbers of type `dtype`, native byte order, as f64.
fn as_f64(bytes: &[u8], dtype: DType) -> Vec<f64> {
    macro_rules! numbers {
        ($type:ty) => {
            bytes
                .chunks_exact(size_of::<$type>())
                .map(|raw| bytemuck::pod_read_unaligned::<$type>(raw) as f64)
                .collect()
        };
    }
    match dtype {
        DType::Bool | DType::U8 => numbers!(u8),
        DType::I8 => numbers!(i8),
        DType::U16 => numbers!(u16),
        DType::I16 => numbers!(i16),
        DType::U32 => numbers!(u32),
        DType::I32 => numbers!(i32),
        DType::U64 => numbers!(u64),
        DType::I64 => numbers!(i64),
        DType::F16 => bytes
            .chunks_exact(2)
            .map(|raw| bytemuck::pod_read_unaligned::<half::f16>(raw).to_f64())
            .collect(),
        DType::F32 => numbers!(f32),
        DType::F64 => numbers!(f64),
    }
}

/// CF attributes: `_FillValue`, `scale_factor`, `add_offset`.
fn describe_values(attributes: &Map<String, Value>, info: &mut CubeInfo) {
    let number = |key: &str| attributes.get(key).and_then(Value::as_f64);
    info.ignore_value = ["_FillValue", "missing_value"]
        .iter()
        .find_map(|key| attributes.get(*key))
        .and_then(fill_value)
        .filter(|value| !value.is_nan());
    let multiply = number("scale_factor").unwrap_or(1.0);
    let add = number("add_offset").unwrap_or(0.0);
    if multiply.is_finite() && multiply != 0.0 && add.is_finite() {
        info.scaling = Scaling { multiply, divide: 1.0, add };
    } else {
        info.notes.push(format!("scale_factor is {multiply}; the stored numbers are kept"));
    }
}

/// A fill value attribute: a number, or xarray's base64 of a little-endian double.
fn fill_value(json: &Value) -> Option<f64> {
    match json {
        Value::Array(list) => fill_value(list.first()?),
        Value::String(text) => text.parse().ok().or_else(|| {
            let bytes: [u8; 8] = base64(text)?.try_into().ok()?;
            Some(f64::from_le_bytes(bytes))
        }),
        other => other.as_f64(),
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|known| *known == letter)?;
        bits = (bits << 6 | value as u32) & 0xFF_FFFF;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

/// The values of `subset`, native byte order.
fn retrieve(array: &Array<ChunkFiles>, subset: &ArraySubset) -> Result<Vec<u8>> {
    // The caller reads from as many threads as it sees fit.
    let options =
        CodecOptions::default().with_concurrent_target(1).with_chunk_concurrent_minimum(1);
    let damaged = |error: &dyn std::fmt::Display| {
        Error::malformed(format!("cannot be decoded: {error}"))
            .with_remedy("copy it again; chunks are cut short or damaged")
    };
    let bytes = guarded(|| array.retrieve_array_subset_opt::<ArrayBytes>(subset, &options))?
        .map_err(|error| damaged(&error).caused_by(error))?;
    let bytes = bytes.into_fixed().map_err(|error| damaged(&error).caused_by(error))?;
    Ok(bytes.into_owned())
}

impl Source for ZarrSource {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    /// Whole chunks, as many as make a read worth its while, as far as the budget goes.
    fn preferred_rows(&self, budget: usize) -> usize {
        let shape = self.info.shape;
        let row = (shape.row_values() * self.info.dtype.size()).max(1);
        // The rows as decoded, in scratch and in the output.
        let affordable = (budget / 3 / row).max(1);
        let wanted = WORTHWHILE.div_ceil(row).max(self.chunk_rows);
        let rows = wanted.next_multiple_of(self.chunk_rows).min(affordable);
        let rows = if rows > self.chunk_rows { rows - rows % self.chunk_rows } else { rows };
        rows.clamp(1, shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let block = CubeShape { rows: rows.len(), ..self.info.shape };
        let dtype = self.info.dtype;
        let ranges: Vec<Range<u64>> = self
            .order
            .0
            .iter()
            .zip(self.order.lengths(self.info.shape))
            .take(self.axes)
            .map(|(axis, length)| match axis {
                Axis::Row => rows.start as u64..rows.end as u64,
                _ => 0..length as u64,
            })
            .collect();
        let name = |error: Error| error.at(&self.info.files[0]);
        let bytes = retrieve(&self.array, &ArraySubset::new_with_ranges(&ranges)).map_err(name)?;
        let len = block.values() * dtype.size();
        if bytes.len() != len {
            return Err(name(Error::malformed(format!("{} bytes instead of {len}", bytes.len()))));
        }
        if self.order == AxisOrder::BIP {
            out.reset(dtype, block.values()).copy_from_slice(&bytes);
            return Ok(());
        }
        let (to, scratch) = out.reset_with_scratch(dtype, block.values(), len);
        scratch.copy_from_slice(&bytes);
        permute(self.order, block, false, dtype.size(), scratch, to);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(names: &[&str]) -> Option<String> {
        let names: Vec<_> =
            names.iter().map(|name| (!name.is_empty()).then(|| (*name).to_owned())).collect();
        order_by_names(&names).map(|order| order.to_string())
    }

    #[test]
    fn links_that_go_round_in_circles_end() {
        let folder = tempfile::tempdir().unwrap();
        let group = r#"{"zarr_format": 3, "node_type": "group"}"#;
        std::fs::write(folder.path().join("zarr.json"), group).unwrap();
        for name in ["a", "b", "c"] {
            std::os::unix::fs::symlink(folder.path(), folder.path().join(name)).unwrap();
        }
        let error = collect(folder.path(), "", 0, &mut 0, &mut Vec::new()).unwrap_err();
        assert!(error.what().contains("more than"), "{error}");
    }

    #[test]
    fn names_of_axes_give_their_order() {
        assert_eq!(order(&["y", "x", "band"]).as_deref(), Some("yxb"));
        assert_eq!(order(&["wavelength", "lat", "lon"]).as_deref(), Some("byx"));
        assert_eq!(order(&["Line", "Bands", "Sample"]).as_deref(), Some("ybx"));
        assert_eq!(order(&["x", "y", "c"]).as_deref(), Some("xyb"));
        assert_eq!(order(&["channel", "dim_1", "dim_2"]).as_deref(), Some("byx"));
        assert_eq!(order(&["dim_0", "x", "c"]).as_deref(), Some("yxb"));
        assert_eq!(order(&["y", "x"]).as_deref(), Some("yxb"));
        assert_eq!(order(&["x", "y"]).as_deref(), Some("xyb"));
        assert_eq!(order(&["", "", ""]), None);
        assert_eq!(order(&["y", "", ""]), None);
        assert_eq!(order(&["y", "y", "band"]), None);
        assert_eq!(order(&["band", "band", "x"]), None);
        assert_eq!(order(&[]), None);
    }

    #[test]
    fn fill_values_are_numbers_or_base64_of_a_double() {
        assert_eq!(fill_value(&serde_json::json!(-9999)), Some(-9999.0));
        assert_eq!(fill_value(&serde_json::json!([-1.5])), Some(-1.5));
        // base64.standard_b64encode(struct.pack("<d", -9999.0))
        assert_eq!(fill_value(&serde_json::json!("AAAAAICHw8A=")), Some(-9999.0));
        assert!(fill_value(&serde_json::json!("AAAAAAAA+H8=")).unwrap().is_nan());
        assert!(fill_value(&serde_json::json!("NaN")).unwrap().is_nan());
        assert_eq!(fill_value(&serde_json::json!("?")), None);
    }
}
