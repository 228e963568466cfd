//! Reads a cube's rows: straight from the file if they are stored there unchanged, otherwise with
//! libhdf5.

use std::fs::File;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use bytemuck::Pod;
use hdf5::dataset::Layout;
use hdf5::plist::DatasetCreate;
use hdf5::{Container, Dataset, H5Type, Hyperslab, SliceOrIndex};
use hsipack_format::{CubeShape, DType, Error, ErrorKind, Result};

use super::file::damaged;
use super::inflate::with_chunks_of;
use crate::flat::sample_copy::{BLOCK_BYTES, Failure, Interleaved, SampleCopy};
use crate::flat::{ByteSource, FileBytes, FlatLayout, FlatSource, SampleAxis, permute};
use crate::meaning::Placed;
use crate::{Access, CubeInfo, RowBuffer, Source};

/// The lengths of a dataset in index order.
pub(super) fn shape(dataset: &Dataset) -> Result<Vec<usize>> {
    dataset.get_shape().map_err(|error| damaged("cannot read the shape", &error))
}

/// The source of `cube`. An error if its dataset needs a filter that is missing, or the file is too
/// short.
pub(super) fn source(
    path: &Path,
    dataset: Dataset,
    cube: Placed,
    info: CubeInfo,
) -> Result<Box<dyn Source>> {
    let plist = dataset.dcpl().map_err(|error| damaged("cannot read the layout", &error))?;
    check_filters(&plist)?;
    if let Some(offset) = flat_offset(&dataset, &plist, info.dtype) {
        let bytes = FileBytes::open(path)?;
        let len = cube.array_len(info.dtype);
        let end = len.and_then(|len| len.checked_add(offset));
        if end.is_none_or(|end| end > bytes.len()) {
            return Err(Error::malformed("the file ends before the cube does")
                .with_remedy("copy the file again; it is cut short"));
        }
        let (order, big_endian) = (cube.order, cfg!(target_endian = "big"));
        let layout = FlatLayout { offset, order, big_endian, rows_reversed: false };
        return Ok(Box::new(FlatSource::new(info, layout, bytes).of_sample(cube.samples())));
    }
    let chunk = plist.get_chunk().ok().flatten().filter(|chunk| chunk.len() == cube.lengths.len());
    let source = Hdf5Source { info, dataset, cube, chunk };
    Ok(match source.shared_chunks() {
        Some(samples) => {
            let (info, order) = (source.info.clone(), source.cube.order);
            let cube = (info.shape.values() * info.dtype.size()) as u64;
            let offset = samples.index as u64 * cube;
            let big_endian = cfg!(target_endian = "big");
            let layout = FlatLayout { offset, order, big_endian, rows_reversed: false };
            Box::new(FlatSource::new(info, layout, ChunksOfSamples { source, samples }))
        }
        None => Box::new(source),
    })
}

/// Samples that share chunks. Reading one would decode the chunks of others, too, so all are copied
/// once.
struct ChunksOfSamples {
    source: Hdf5Source,
    samples: SampleAxis,
}

impl ByteSource for ChunksOfSamples {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let copy = self.source.copy_of_samples(self.samples)?;
        copy.read_at(offset, out)
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

/// Where the dataset lies in its file, if it lies there as one flat array of native numbers.
fn flat_offset(dataset: &Dataset, plist: &DatasetCreate, dtype: DType) -> Option<u64> {
    let flat = plist.layout() == Layout::Contiguous;
    let datatype = dataset.dtype().ok()?;
    let native = match dtype {
        DType::Bool => datatype.is::<bool>() || datatype.is::<u8>(),
        DType::U8 => datatype.is::<u8>(),
        DType::I8 => datatype.is::<i8>(),
        DType::U16 => datatype.is::<u16>(),
        DType::I16 => datatype.is::<i16>(),
        DType::U32 => datatype.is::<u32>(),
        DType::I32 => datatype.is::<i32>(),
        DType::U64 => datatype.is::<u64>(),
        DType::I64 => datatype.is::<i64>(),
        DType::F16 => datatype.is::<half::f16>(),
        DType::F32 => datatype.is::<f32>(),
        DType::F64 => datatype.is::<f64>(),
    };
    dataset.offset().filter(|_| flat && native)
}

/// Refuses datasets with a filter that this build of libhdf5 lacks.
fn check_filters(plist: &DatasetCreate) -> Result<()> {
    // The binding's buffer has a fixed size, so it panics on filters with more than 32 parameters.
    let filters = catch_unwind(AssertUnwindSafe(|| plist.get_filters()))
        .unwrap_or_else(|_| Err("a filter has too many parameters".into()));
    let filters = filters.map_err(|error| damaged("cannot read the filters", &error))?;
    let Some(missing) = filters.iter().find(|filter| !filter.decode_enabled()) else {
        return Ok(());
    };
    let name = match missing.id() {
        1 => "gzip",
        4 => "szip",
        307 => "bzip2",
        32001 => "Blosc",
        32004 => "LZ4",
        32008 => "Bitshuffle",
        32013 => "ZFP",
        32015 => "Zstandard",
        32017 | 32024 => "SZ",
        32019 => "JPEG",
        32026 => "Blosc2",
        _ => "an HDF5 plugin",
    };
    let id = missing.id();
    Err(Error::unsupported(format!(
        "the cube is compressed with {name} (HDF5 filter {id}), which hsipack does not have"
    ))
    .with_remedy(
        "rewrite it with h5repack -f GZIP=4 IN OUT on a machine that has the filter, or in Python \
         with hdf5plugin and h5py",
    ))
}

/// A cube that libhdf5 has to read.
struct Hdf5Source {
    info: CubeInfo,
    dataset: Dataset,
    cube: Placed,
    /// Lengths of a chunk along all axes, if there are chunks.
    chunk: Option<Vec<usize>>,
}

impl Hdf5Source {
    /// Bytes of a decoded chunk; 0 without chunks.
    fn chunk_bytes(&self) -> usize {
        let chunk = self.chunk.as_deref().unwrap_or(&[0]);
        chunk.iter().fold(self.info.dtype.size(), |n, length| n.saturating_mul(*length))
    }

    /// The values at these indices of each axis, in the order on disk.
    fn block<T: H5Type + Pod>(&self, ranges: &[Range<usize>]) -> ::hdf5::Result<Vec<u8>> {
        let slices: Vec<SliceOrIndex> = ranges.iter().map(|range| range.clone().into()).collect();
        let block = self.dataset.read_slice(Hyperslab::from(slices));
        let values = like(Container::read_dyn::<T>, block)?.into_raw_vec_and_offset().0;
        Ok(match bytemuck::try_cast_vec(values) {
            Ok(bytes) => bytes,
            Err((_, values)) => bytemuck::cast_slice(&values).to_vec(),
        })
    }

    fn bytes_of(&self, ranges: &[Range<usize>]) -> ::hdf5::Result<Vec<u8>> {
        with_chunks_of(self.chunk_bytes(), || match self.info.dtype {
            // Read as bytes, because values in a file may be other than 0 and 1, but a Rust `bool`
            // may not.
            DType::Bool | DType::U8 => self.block::<u8>(ranges),
            DType::I8 => self.block::<i8>(ranges),
            DType::U16 => self.block::<u16>(ranges),
            DType::I16 => self.block::<i16>(ranges),
            DType::U32 => self.block::<u32>(ranges),
            DType::I32 => self.block::<i32>(ranges),
            DType::U64 => self.block::<u64>(ranges),
            DType::I64 => self.block::<i64>(ranges),
            DType::F16 => self.block::<half::f16>(ranges),
            DType::F32 => self.block::<f32>(ranges),
            DType::F64 => self.block::<f64>(ranges),
        })
    }

    /// The axis of samples, if chunks hold values of several samples.
    fn shared_chunks(&self) -> Option<SampleAxis> {
        let (axis, _) = self.cube.sample?;
        let is_shared = self.chunk.as_ref()?.get(axis).is_some_and(|length| *length > 1);
        self.cube.samples().filter(|samples| is_shared && samples.count > 1)
    }

    fn copy_of_samples(&self, samples: SampleAxis) -> Result<Arc<SampleCopy>> {
        let lengths = self.cube.order.lengths(self.info.shape);
        let array = Interleaved {
            offset: 0,
            outer: lengths[..samples.before].iter().product(),
            samples: samples.count,
            inner: lengths[samples.before..].iter().product::<usize>() * self.info.dtype.size(),
        };
        let (path, name) = (&self.info.files[0], self.dataset.name());
        let copy = SampleCopy::of(path, &name, array, |file| self.write_samples(array, file))
            .map_err(|error| error.at(path))?;
        copy.ok_or_else(|| {
            Error::new(ErrorKind::Io, "the samples are compressed together, and there is no room for a temporary copy in which each is in one piece")
                .at(path)
                .with_remedy("set TMPDIR to a folder with more room, or write the array with chunks of one sample")
        })
    }

    /// Writes all samples, one after the other. Every chunk is decoded once, unless the chunks of a
    /// few rows exceed the memory for it.
    fn write_samples(&self, array: Interleaved, file: &File) -> Result<(), Failure> {
        let (Some(chunk), Some((axis, _))) = (&self.chunk, self.cube.sample) else { return Ok(()) };
        let lengths = &self.cube.lengths;
        let size = self.info.dtype.size();
        // The slowest axis of the cube is read in pieces, which are pieces of the samples, too.
        let Some(slow) = self.cube.axes.iter().copied().min() else { return Ok(()) };
        let others = array.outer * array.inner / lengths[slow];
        let together = chunk[axis].clamp(1, lengths[axis]);
        let affordable = (BLOCK_BYTES / (together * others).max(1)).max(1);
        let step = match affordable / chunk[slow].max(1) {
            0 => affordable,
            chunks => chunks * chunk[slow],
        };
        let mut ranges: Vec<Range<usize>> = lengths.iter().map(|length| 0..*length).collect();
        for first in (0..lengths[axis]).step_by(together) {
            ranges[axis] = first..(first + together).min(lengths[axis]);
            for start in (0..lengths[slow]).step_by(step) {
                ranges[slow] = start..(start + step).min(lengths[slow]);
                let block = self.bytes_of(&ranges).map_err(|error| {
                    Failure::Read(damaged(&format!("cannot read samples from {first} on"), &error))
                })?;
                let inner = ranges[axis + 1..].iter().map(Range::len).product::<usize>() * size;
                let turns = [first, ranges[axis].len(), inner];
                array.write_turns(&block, turns, start * others, file)?;
            }
        }
        Ok(())
    }

    fn read(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let shape = CubeShape { rows: rows.len(), ..self.info.shape };
        let doing = || format!("cannot read rows {} to {}", rows.start, rows.end - 1);
        let axes = 0..self.cube.lengths.len();
        let ranges: Vec<_> = axes.map(|axis| self.cube.range(axis, &rows)).collect();
        let block = self.bytes_of(&ranges).map_err(|error| damaged(&doing(), &error))?;
        let (from, to) = (&block[..], out.reset(self.info.dtype, shape.values()));
        if from.len() != to.len() {
            return Err(Error::malformed(format!(
                "{}: the file returned {} bytes",
                doing(),
                from.len()
            )));
        }
        permute(self.cube.order, shape, false, self.info.dtype.size(), from, to);
        Ok(())
    }
}

/// Gives `value` the type that `_of` returns. This type, an n-dimensional array of any rank,
/// belongs to a crate that this one does not name.
fn like<A, R>(_of: fn(&A) -> R, value: R) -> R {
    value
}

impl Source for Hdf5Source {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        Access::Random
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        let row_bytes = self.info.row_bytes().max(1);
        let chunk = self.chunk.as_ref().map(|chunk| Chunk {
            rows: chunk.get(self.cube.row_axis()).copied().unwrap_or(1),
            bytes: self.chunk_bytes(),
        });
        preferred_rows(self.info.shape.rows, row_bytes, chunk, budget)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.read(rows, out).map_err(|error| error.at(&self.info.files[0]))
    }
}

/// Properties of the shape of chunks that matter.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    rows: usize,
    bytes: usize,
}

/// How many rows to read at once. Every read decodes all chunks that hold its rows. Therefore it
/// takes whole chunks if the budget allows, and otherwise divides a chunk into as few pieces as
/// possible.
fn preferred_rows(rows: usize, row_bytes: usize, chunk: Option<Chunk>, budget: usize) -> usize {
    /// A read of this size is cheap enough.
    const CHEAP_READ_BYTES: usize = 1 << 20;
    let decoding = chunk.map_or(0, |chunk| chunk.bytes.min(budget / 2));
    // The rows are held twice: as they lie in the file, and permuted.
    let affordable = (budget.saturating_sub(decoding) / 2 / row_bytes).clamp(1, rows);
    let enough = CHEAP_READ_BYTES.div_ceil(row_bytes);
    let step = chunk.map_or(1, |chunk| chunk.rows.clamp(1, rows));
    if affordable >= step {
        let most = if affordable == rows { rows } else { affordable / step * step };
        return enough.div_ceil(step).saturating_mul(step).min(most).clamp(1, rows);
    }
    step.div_ceil(step.div_ceil(affordable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_follow_the_chunks() {
        let chunk = |rows| Some(Chunk { rows, bytes: 1000 });
        // Whole chunks, enough for an efficient read.
        assert_eq!(preferred_rows(1000, 1 << 16, chunk(25), 1 << 30), 25);
        assert_eq!(preferred_rows(1000, 1 << 10, chunk(100), 1 << 30), 1000);
        assert_eq!(preferred_rows(1000, 1 << 14, chunk(10), 1 << 30), 70);
        // A chunk that is too large for the budget is read in equal pieces.
        assert_eq!(preferred_rows(1000, 1 << 20, chunk(100), 101 << 20), 50);
        // At least a row, at most all rows.
        assert_eq!(preferred_rows(1000, 1 << 20, chunk(100), 0), 1);
        assert_eq!(preferred_rows(7, 10, None, 1 << 30), 7);
        assert_eq!(preferred_rows(7, 10, chunk(9), 1 << 30), 7);
    }
}
