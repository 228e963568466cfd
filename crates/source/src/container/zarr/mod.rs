//! Zarr v2 and v3 arrays in folders, sharded or not.
//!
//! A dataset is a folder: an array, or a group with arrays in it, of which one is the cube. Names
//! of axes are `dimension_names`, xarray's `_ARRAY_DIMENSIONS`, or the axes of OME-Zarr. The rules
//! of all containers (`meaning/`) decide what the array means.
//!
//! The crate `zarrs` decodes chunks, one at a time. A chunk (in a sharded array: an inner chunk) is
//! decoded as a whole, so at least this much memory is needed. Chunks beyond 2 GiB are refused.
//! `zarrs` does not verify `crc32c` if a read needs only part of a chunk or shard: damage that
//! still decodes shows only in reads of whole chunks.

mod choose;
mod chunks;
mod decoded;
mod inflate;
pub mod metadata;
mod tree;

use std::ops::Range;
use std::path::Path;

use hsipack_format::{CubeShape, Error, Result};
use zarrs::array::{Array, ArrayShardedExt, ArraySubset};

use self::choose::{Found, choose, refuse_packed, whole, whole_path};
use self::chunks::{ChunkFiles, open_zarrs, retrieve};
use self::metadata::{METADATA_FILES, Node};
use crate::container::Visitor;
use crate::cube_size::check_size;
use crate::flat::permute;
use crate::meaning::{Known, Placed, Subject};
use crate::{Access, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Source, whole_runs};

/// Reads below this size take longer to find chunks than to decode them.
const MIN_READ_BYTES: usize = 1 << 20;

/// Whether `path` is a folder or a file of a Zarr dataset.
pub(crate) fn recognises(path: &Path, head: &[u8]) -> bool {
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
    open_array(&found, options).map_err(|error| error.at(&found.folder))
}

/// Shows the dataset at `path` as a container.
///
/// # Errors
/// If the metadata cannot be read or are malformed.
pub(crate) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<()> {
    if path.is_dir() { visitor(&whole(path)?) } else { Err(not_a_folder(path)) }
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

/// A cube in a Zarr array.
struct ZarrSource {
    info: CubeInfo,
    array: Array<ChunkFiles>,
    placed: Placed,
    /// Rows that lie in the same chunks.
    chunk_rows: usize,
}

fn open_array(found: &Found, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let (Some(metadata), Some(entry)) = (found.array(), found.entry()) else {
        return Err(Error::malformed("not an array"));
    };
    let subject = Subject { container: &found.tree, entry: &entry, layout: None, options };
    let dtype = metadata.dtype.ok_or_else(|| {
        Error::unsupported(format!("values of type '{}'", metadata.type_name))
            .with_remedy("give an array of integers or floats")
    })?;
    refuse_unwritten(found, options)?;
    let array = open_zarrs(&found.folder, &metadata.stored)?;
    if array.shape().iter().map(|length| *length as usize).ne(metadata.shape.iter().copied()) {
        return Err(Error::malformed("the metadata changed while they were being read"));
    }
    let mut notes = Vec::new();
    let placed = subject.place(&mut notes)?;
    let shape = placed.shape();
    check_size(shape, dtype)?;
    let mut info =
        CubeInfo::new(format!("Zarr v{}", found.node.version), shape, dtype, &found.folder);
    info.notes = notes;
    let reading = subject.describe(&placed, Known::default(), &mut info)?;
    info.geo = subject.geo(&placed, &mut info.notes);
    let chunk = match metadata.stored.shards.is_some() {
        true => array.effective_subchunk_shape(),
        false => array.chunk_shape(&vec![0; metadata.shape.len()]).ok(),
    };
    let chunk_rows = chunk
        .and_then(|chunk| chunk.get(placed.row_axis()).map(|rows| rows.get()))
        .map_or(1, |rows| usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, shape.rows));
    Ok(reading.apply(Box::new(ZarrSource { info, array, placed, chunk_rows })))
}

/// Refuses an array to which nothing was written: it would read as zeros. Most likely the dataset
/// was not copied completely.
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

impl Source for ZarrSource {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    /// Whole chunks: enough for an efficient read, as far as the budget allows.
    fn preferred_rows(&self, budget: usize) -> usize {
        let row = self.info.row_bytes().max(1);
        // The rows are held as decoded, in scratch and in the output.
        let affordable = (budget / 3 / row).max(1);
        whole_runs(MIN_READ_BYTES.div_ceil(row), self.chunk_rows, affordable)
            .min(self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let block = CubeShape { rows: rows.len(), ..self.info.shape };
        let dtype = self.info.dtype;
        // Axes that are neither the cube's nor that of samples have length 1.
        let range = |axis: usize| {
            let range = self.placed.range(axis, &rows);
            range.start as u64..range.end as u64
        };
        let ranges: Vec<Range<u64>> = (0..self.placed.lengths.len()).map(range).collect();
        let name = |error: Error| error.at(&self.info.files[0]);
        let bytes = retrieve(&self.array, &ArraySubset::new_with_ranges(&ranges)).map_err(name)?;
        let len = block.values() * dtype.size();
        if bytes.len() != len {
            return Err(name(Error::malformed(format!("{} bytes instead of {len}", bytes.len()))));
        }
        if self.placed.order == AxisOrder::BIP {
            out.reset(dtype, block.values()).copy_from_slice(&bytes);
            return Ok(());
        }
        let (to, scratch) = out.reset_with_scratch(dtype, block.values(), len);
        scratch.copy_from_slice(&bytes);
        permute(self.placed.order, block, false, dtype.size(), scratch, to);
        Ok(())
    }
}
