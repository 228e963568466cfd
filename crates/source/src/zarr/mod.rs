//! Zarr v2 and v3 arrays in folders, sharded or not.
//!
//! A dataset is a folder: an array, or a group with arrays in it, of which one is the cube. The axes
//! follow from their names (`dimension_names`, xarray's `_ARRAY_DIMENSIONS`), or else from the number
//! of wavelengths beside the cube. Otherwise they are taken as (row, column, band).
//!
//! The crate `zarrs` decodes chunks, one at a time. A chunk (in a sharded array: an inner chunk) is
//! decoded as a whole, so at least this much memory is needed. Chunks beyond 2 GiB are refused.
//! `zarrs` does not verify `crc32c` if a read needs only part of a chunk or shard: damage that still
//! decodes shows only in reads of whole chunks.

mod axes;
mod choose;
mod chunks;
mod decoded;
mod grid;
mod inflate;
pub mod metadata;
mod spectral;

use std::ops::Range;
use std::path::Path;

use hsipack_format::{CubeShape, Error, Result};
use zarrs::array::{Array, ArrayShardedExt, ArraySubset};

use self::axes::{Kept, axis_order};
use self::choose::{Found, choose, refuse_packed, whole_path};
use self::chunks::{ChunkFiles, open_zarrs, retrieve};
use self::metadata::{METADATA_FILES, Node};
use self::spectral::{Spectrum, describe_values};
use crate::detect::check_size;
use crate::flat::permute;
use crate::{Access, Axis, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Source, whole_runs};

/// Reads below this size take longer to find chunks than to decode them.
const WORTHWHILE: usize = 1 << 20;

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

/// A cube in a Zarr array.
struct ZarrSource {
    info: CubeInfo,
    array: Array<ChunkFiles>,
    order: AxisOrder,
    /// Which of the array's axes are the cube's, and how many it has.
    axes: Vec<usize>,
    rank: usize,
    /// Rows that lie in the same chunks.
    chunk_rows: usize,
}

impl ZarrSource {
    fn open(found: Found, options: &OpenOptions) -> Result<Self> {
        Self::open_array(&found, options).map_err(|error| error.at(&found.folder))
    }

    fn open_array(found: &Found, options: &OpenOptions) -> Result<Self> {
        let Some(metadata) = found.array() else { return Err(Error::malformed("not an array")) };
        let kept = Kept::of(found, options)?;
        let lengths = kept.lengths;
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
        let spectrum = Spectrum::find(found, &lengths, &mut notes);
        let order = axis_order(&kept, spectrum.as_ref(), options, &mut notes);
        let shape = order.shape(lengths);
        if shape.is_empty() {
            return Err(Error::malformed(format!("the cube is empty: {shape}")));
        }
        check_size(shape, dtype)?;
        let mut info =
            CubeInfo::new(format!("Zarr v{}", found.node.version), shape, dtype, &found.folder);
        info.notes = notes;
        if let Some(spectrum) = spectrum {
            spectrum.describe(&mut info);
        }
        describe_values(&found.node.attributes, &mut info);
        // If the user names the axes, the names in the file do not count.
        if options.axes.is_none() && !options.mask {
            info.geo = grid::geo(found, &kept, order, shape, &mut info.notes);
        }
        let rank = metadata.shape.len();
        let chunk = match metadata.stored.shards.is_some() {
            true => array.effective_subchunk_shape(),
            false => array.chunk_shape(&vec![0; rank]).ok(),
        };
        let chunk_rows = chunk
            .and_then(|chunk| {
                let row_axis = kept.axes.get(order.position(Axis::Row))?;
                chunk.get(*row_axis).map(|rows| rows.get())
            })
            .map_or(1, |rows| usize::try_from(rows).unwrap_or(usize::MAX).clamp(1, shape.rows));
        Ok(Self { info, array, order, axes: kept.axes, rank, chunk_rows })
    }
}

/// Refuses an array to which nothing was written: it would read as zeros. Most likely the dataset was
/// not copied completely.
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
        whole_runs(WORTHWHILE.div_ceil(row), self.chunk_rows, affordable).min(self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let block = CubeShape { rows: rows.len(), ..self.info.shape };
        let dtype = self.info.dtype;
        // Axes that are not the cube's have length 1.
        let mut ranges = vec![0..1u64; self.rank];
        let lengths = self.order.lengths(self.info.shape);
        for ((axis, place), length) in self.order.0.iter().zip(&self.axes).zip(lengths) {
            ranges[*place] = match axis {
                Axis::Row => rows.start as u64..rows.end as u64,
                _ => 0..length as u64,
            };
        }
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
