//! Cubes that are stored as one flat array: ENVI, NumPy, MATLAB v5, Tivita, HTC.
//!
//! A format's reader parses its header into a [`FlatLayout`], picks where the bytes come from
//! ([`ByteSource`]) and leaves the rest to [`FlatSource`]:
//!
//! ```text
//! read_rows(rows):
//!     gather  the stretches of the file that hold these rows, in file order   → scratch
//!     permute from the file's axis order to (row, column, band)               → out
//!     swap    bytes if the file has the other byte order
//! ```
//!
//! How many stretches there are depends on the position of the row axis in the file. If it is first
//! (BIL, BIP), there is one. If it is second (BSQ), there is one per band. If it is last
//! (column-major MATLAB and Fortran arrays), there is one per column and band, so
//! [`FlatSource::preferred_rows`](crate::Source::preferred_rows) asks for as many rows at once as
//! the budget allows.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | [`FlatSource`] |
//! | `envi/` | ENVI header + data (bsq, bil, bip; gzip): `search`, `header`, `fields`, `bands`, `map_info`, `esri`, `tiff` |
//! | `numpy/` | `.npy`, `.npz`: `header`, `npz` |
//! | `htc/` | HTC `.blosc`: `pickle`, `blosc_frame` |
//! | `tivita.rs` | Tivita `*_SpecCube.dat` |
//! | `hsd.rs` | HSD (`.hsd`) of Hyperspectral City |
//! | `bytes.rs` | where the bytes come from: a file, memory, a stream |
//! | `layout.rs` | where the values of a cube are in these bytes |
//! | `permute.rs` | reorders axes, swaps bytes |
//! | `sample_copy.rs`, `parked_streams.rs` | arrays of samples that are interleaved, or compressed |

mod bytes;
pub mod envi;
pub mod hsd;
pub mod htc;
mod layout;
pub mod numpy;
pub(crate) mod parked_streams;
mod permute;
pub(crate) mod sample_copy;
pub mod tivita;

use std::ops::Range;
use std::sync::Arc;

use hsipack_format::{CubeShape, DType, Error, Result};

pub use self::bytes::{ByteSource, FileBytes, MemoryBytes, StreamBytes};
pub use self::layout::{FlatLayout, SampleAxis};
pub(crate) use self::permute::{permute, swap_bytes};
use self::sample_copy::{Interleaved, SampleCopy};
use crate::file_format::{FileFormat, Kind};
use crate::{Access, Axis, AxisOrder, CubeInfo, RowBuffer, Source, read_band_of_rows};

/// The formats in this folder, the most reliable signatures first. The data files of ENVI have
/// none: the header beside them says what they are.
pub(crate) const FORMATS: &[FileFormat] = &[
    FileFormat::new(Kind::Cubes, ".npy, .npz", numpy::recognises, numpy::open)
        .with_endings(&["npy", "npz"])
        .visited(numpy::visit),
    FileFormat::new(Kind::Cubes, "HTC .blosc", htc::recognises, htc::open).visited(htc::visit),
    FileFormat::new(Kind::Cubes, "Tivita SpecCube.dat", tivita::recognises, tivita::open),
    FileFormat::new(Kind::Cubes, "HSD", hsd::recognises, hsd::open),
    FileFormat::new(Kind::Headers, "an ENVI header or data file", envi::recognises, envi::open),
];

/// A cube that is one flat array of bytes.
pub struct FlatSource {
    info: CubeInfo,
    layout: FlatLayout,
    /// The axis of samples, if values of other samples are between those of the cube.
    samples: Option<SampleAxis>,
    bytes: Box<dyn ByteSource>,
}

/// Stretches closer together than this are read as one, and the gap is thrown away.
const MAX_GAP_BYTES: usize = 4096;
/// A read of at least this many bytes costs little more than copying it.
const CHEAP_READ: usize = 64 << 10;

impl FlatSource {
    /// A source of the cube that `info` describes, stored in `bytes` with this `layout`. The caller
    /// has checked that there are enough bytes, as far as that can be known.
    pub fn new(info: CubeInfo, layout: FlatLayout, bytes: impl ByteSource + 'static) -> Self {
        Self { info, layout, samples: None, bytes: Box::new(bytes) }
    }

    /// The same source of one sample of an array that holds several.
    pub fn of_sample(mut self, samples: Option<SampleAxis>) -> Self {
        let cube = self.info.shape.values() * self.info.dtype.size();
        if samples.is_some() {
            self.bytes.share();
        }
        match samples {
            None => {}
            Some(samples) if samples.before == 0 => {
                self.layout.offset += (samples.index * cube) as u64;
            }
            Some(samples) => self.samples = Some(samples),
        }
        self
    }

    /// Bytes that a cube of `shape` and `dtype` takes, or `None` if that overflows.
    pub fn data_len(shape: CubeShape, dtype: DType) -> Option<u64> {
        let values = shape.checked_values()?;
        u64::try_from(values.checked_mul(dtype.size())?).ok()
    }

    /// The rows of the file that hold image rows `rows`.
    fn file_rows(&self, rows: Range<usize>) -> Range<usize> {
        if self.layout.rows_reversed {
            let height = self.info.shape.rows;
            height - rows.end..height - rows.start
        } else {
            rows
        }
    }

    /// Reads file rows `rows` into `scratch`, in file order, with only these rows along the row
    /// axis.
    fn gather(&self, rows: Range<usize>, scratch: &mut [u8]) -> Result<()> {
        let Some(samples) = self.samples else {
            return self.gather_cube(&*self.bytes, self.layout.offset, rows, scratch);
        };
        match self.copy_of_samples(samples)? {
            Some(copy) => {
                let cube = self.info.shape.values() * self.info.dtype.size();
                self.gather_cube(&*copy, (samples.index * cube) as u64, rows, scratch)
            }
            None => self.gather_sample(samples, rows, scratch),
        }
    }

    /// A copy in which each sample is in one piece, if reading one of them would mean reading the
    /// others, too.
    fn copy_of_samples(&self, samples: SampleAxis) -> Result<Option<Arc<SampleCopy>>> {
        let lengths = self.layout.order.lengths(self.info.shape);
        let inner = lengths[samples.before..].iter().product::<usize>() * self.info.dtype.size();
        if self.bytes.access() == Access::Random && inner > MAX_GAP_BYTES {
            return Ok(None);
        }
        let array = Interleaved {
            offset: self.layout.offset,
            outer: lengths[..samples.before].iter().product(),
            samples: samples.count,
            inner,
        };
        let (path, name) =
            (&self.info.files[0], format!("{}+{}", self.bytes.start(), array.offset));
        SampleCopy::of(path, &name, array, |file| array.write(&*self.bytes, file))
    }

    /// Reads file rows `rows` of a cube that starts `offset` bytes after the start of `bytes`.
    fn gather_cube(
        &self,
        bytes: &dyn ByteSource,
        offset: u64,
        rows: Range<usize>,
        scratch: &mut [u8],
    ) -> Result<()> {
        let size = self.info.dtype.size();
        let lengths = self.layout.order.lengths(self.info.shape);
        let row_axis = self.layout.order.position(Axis::Row);
        let outer: usize = lengths[..row_axis].iter().product();
        let inner: usize = lengths[row_axis + 1..].iter().product::<usize>() * size;
        let run = rows.len() * inner;
        let stride = lengths[row_axis] * inner;
        let first = offset + (rows.start * inner) as u64;
        if run == stride || outer == 1 {
            return bytes.read_at(first, &mut scratch[..run * outer]);
        }
        if stride - run > MAX_GAP_BYTES {
            for (index, out) in scratch.chunks_exact_mut(run).enumerate() {
                bytes.read_at(first + (index * stride) as u64, out)?;
            }
            return Ok(());
        }
        let together = (CHEAP_READ / stride).max(1);
        let mut span = vec![0u8; together * stride];
        for (group, outs) in scratch.chunks_mut(run * together).enumerate() {
            let runs = outs.len() / run;
            let span = &mut span[..(runs - 1) * stride + run];
            bytes.read_at(first + (group * together * stride) as u64, span)?;
            for (index, out) in outs.chunks_exact_mut(run).enumerate() {
                out.copy_from_slice(&span[index * stride..][..run]);
            }
        }
        Ok(())
    }
}

impl FlatSource {
    /// [`gather`](Self::gather) if values of other samples are between those of the cube: a box of
    /// an array with four axes. Runs of values that are close together are read as one span.
    fn gather_sample(
        &self,
        samples: SampleAxis,
        rows: Range<usize>,
        scratch: &mut [u8],
    ) -> Result<()> {
        let cube = self.layout.order.lengths(self.info.shape);
        let row_axis = self.layout.order.position(Axis::Row);
        let mut lengths = cube.to_vec();
        let mut ranges: Vec<Range<usize>> = cube.iter().map(|length| 0..*length).collect();
        ranges[row_axis] = rows;
        lengths.insert(samples.before, samples.count);
        ranges.insert(samples.before, samples.index..samples.index + 1);
        let size = self.info.dtype.size();
        let mut strides = [size; 4];
        for axis in (0..3).rev() {
            strides[axis] = strides[axis + 1] * lengths[axis + 1];
        }
        // After this axis, whole axes are read.
        let last = (0..4).rev().find(|axis| ranges[*axis].len() < lengths[*axis]).unwrap_or(0);
        let run = ranges[last].len() * strides[last];
        let first = |axes: Range<usize>| -> usize {
            axes.map(|axis| ranges[axis].start * strides[axis]).sum()
        };
        let Some(along) = last.checked_sub(1) else {
            return self.bytes.read_at(self.layout.offset + first(0..1) as u64, scratch);
        };
        let (count, stride) = (ranges[along].len(), strides[along]);
        let together = match stride - run {
            gap if gap > MAX_GAP_BYTES => 1,
            _ => (CHEAP_READ / stride).clamp(1, count),
        };
        let mut span = vec![0u8; (together - 1) * stride + run];
        let outer: Vec<&Range<usize>> = ranges[..along].iter().collect();
        let outer_count: usize = outer.iter().map(|range| range.len()).product();
        for (number, lines) in scratch.chunks_exact_mut(count * run).take(outer_count).enumerate() {
            let (mut number, mut start) = (number, first(along..4));
            for (axis, range) in outer.iter().enumerate().rev() {
                start += (range.start + number % range.len()) * strides[axis];
                number /= range.len();
            }
            for (group, outs) in lines.chunks_mut(together * run).enumerate() {
                let runs = outs.len() / run;
                let span = &mut span[..(runs - 1) * stride + run];
                let at = self.layout.offset + (start + group * together * stride) as u64;
                self.bytes.read_at(at, span)?;
                for (index, out) in outs.chunks_exact_mut(run).enumerate() {
                    out.copy_from_slice(&span[index * stride..][..run]);
                }
            }
        }
        Ok(())
    }
}

impl Source for FlatSource {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.bytes.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        let shape = self.info.shape;
        let size = self.info.dtype.size();
        // Output and scratch both hold the rows.
        let affordable = (budget / 2 / self.info.row_bytes().max(1)).clamp(1, shape.rows);
        let row_axis = self.layout.order.position(Axis::Row);
        match (row_axis, self.access()) {
            (0, _) => 1,
            // Every read passes over the whole stream, or over the whole file in tiny stretches.
            (_, Access::Sequential) | (2, _) => affordable,
            (_, Access::Random) => {
                let run = self.layout.order.lengths(shape)[2] * size;
                CHEAP_READ.div_ceil(run.max(1)).min(affordable)
            }
        }
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let dtype = self.info.dtype;
        let count = rows.len();
        let values = count * self.info.shape.row_values();
        let file_rows = self.file_rows(rows);
        let name = |error: Error| error.at(&self.info.files[0]);
        let native = self.layout.big_endian == cfg!(target_endian = "big");
        if self.layout.order == AxisOrder::BIP && !self.layout.rows_reversed {
            let bytes = out.reset(dtype, values);
            self.gather(file_rows, bytes).map_err(name)?;
            if !native {
                swap_bytes(bytes, dtype.size());
            }
            return Ok(());
        }
        let (bytes, scratch) = out.reset_with_scratch(dtype, values, values * dtype.size());
        self.gather(file_rows, scratch).map_err(name)?;
        let shape = CubeShape { rows: count, ..self.info.shape };
        let FlatLayout { order, rows_reversed, .. } = self.layout;
        permute(order, shape, rows_reversed, dtype.size(), scratch, bytes);
        if !native {
            swap_bytes(bytes, dtype.size());
        }
        Ok(())
    }

    fn has_cheap_bands(&self) -> bool {
        let is_in_lines = self.layout.order.position(Axis::Column) == 2;
        is_in_lines && self.access() == Access::Random && self.samples.is_none()
    }

    fn read_band(&self, band: usize, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let FlatLayout { offset, order, big_endian, rows_reversed } = self.layout;
        let (shape, dtype) = (self.info.shape, self.info.dtype);
        // How many lines of the file lie between rows of the same band, and between bands of the same row.
        let (next_row, next_band) = match order {
            AxisOrder::BSQ => (1, shape.rows),
            AxisOrder::BIL => (shape.bands, 1),
            _ => return read_band_of_rows(self, band, rows, out),
        };
        if self.samples.is_some() {
            return read_band_of_rows(self, band, rows, out);
        }
        let line = shape.columns * dtype.size();
        let file_rows = self.file_rows(rows.clone());
        let at = |row: usize| offset + ((row * next_row + band * next_band) * line) as u64;
        let bytes = out.reset(dtype, rows.len() * shape.columns);
        let name = |error: Error| error.at(&self.info.files[0]);
        if next_row == 1 && !rows_reversed {
            self.bytes.read_at(at(file_rows.start), bytes).map_err(name)?;
        } else {
            for (index, out) in bytes.chunks_exact_mut(line).enumerate() {
                let row =
                    if rows_reversed { file_rows.end - 1 - index } else { file_rows.start + index };
                self.bytes.read_at(at(row), out).map_err(name)?;
            }
        }
        if big_endian != cfg!(target_endian = "big") {
            swap_bytes(bytes, dtype.size());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const ORDERS: [&str; 6] = ["yxb", "ybx", "byx", "bxy", "xyb", "xby"];

    /// Value of (row, column, band) in the test cubes.
    fn value(y: usize, x: usize, b: usize) -> u32 {
        (y * 10_000 + x * 100 + b) as u32
    }

    fn encode(shape: CubeShape, layout: &FlatLayout) -> Vec<u8> {
        let lengths = layout.order.lengths(shape);
        let mut bytes = vec![0xAA; layout.offset as usize];
        for i in 0..lengths[0] {
            for j in 0..lengths[1] {
                for k in 0..lengths[2] {
                    let at = [i, j, k];
                    let index = |axis| at[layout.order.position(axis)];
                    let y = index(Axis::Row);
                    let y = if layout.rows_reversed { shape.rows - 1 - y } else { y };
                    let value = value(y, index(Axis::Column), index(Axis::Band));
                    bytes.extend(if layout.big_endian {
                        value.to_be_bytes()
                    } else {
                        value.to_le_bytes()
                    });
                }
            }
        }
        bytes
    }

    fn check(shape: CubeShape, layout: FlatLayout, stream: bool) {
        let bytes = encode(shape, &layout);
        let info = CubeInfo::new("test", shape, DType::U32, "test.raw");
        let source = if stream {
            let open =
                move || Ok(Box::new(std::io::Cursor::new(bytes.clone())) as Box<dyn Read + Send>);
            FlatSource::new(info, layout, StreamBytes::new("test.raw", 0, open))
        } else {
            FlatSource::new(info, layout, MemoryBytes(bytes))
        };
        let mut out = RowBuffer::new();
        for start in 0..shape.rows {
            for end in start + 1..=shape.rows {
                source.read_rows(start..end, &mut out).unwrap();
                let want: Vec<u32> = (start..end)
                    .flat_map(|y| {
                        (0..shape.columns)
                            .flat_map(move |x| (0..shape.bands).map(move |b| value(y, x, b)))
                    })
                    .collect();
                assert_eq!(out.as_slice::<u32>(), want, "{} rows {start}..{end}", layout.order);
                for band in [0, shape.bands / 2, shape.bands - 1] {
                    source.read_band(band, start..end, &mut out).unwrap();
                    let want: Vec<u32> = (start..end)
                        .flat_map(|y| (0..shape.columns).map(move |x| value(y, x, band)))
                        .collect();
                    assert_eq!(out.as_slice::<u32>(), want, "{} band {band}", layout.order);
                }
            }
        }
    }

    #[test]
    fn any_rows_come_in_row_column_band_order_from_every_layout() {
        for order in ORDERS {
            for (big_endian, rows_reversed, stream) in [
                (false, false, false),
                (true, false, true),
                (false, true, true),
                (true, true, false),
            ] {
                let order = AxisOrder::parse(order).unwrap();
                let layout = FlatLayout { offset: 8, order, big_endian, rows_reversed };
                check(CubeShape::new(5, 3, 4), layout, stream);
                check(CubeShape::new(1, 1, 1), layout, stream);
                check(CubeShape::new(3, 40, 33), layout, stream);
            }
        }
    }

    #[test]
    fn a_sample_is_read_from_any_axis_of_samples() {
        let shape = CubeShape::new(4, 3, 5);
        for order in ORDERS {
            for before in 0..=3 {
                let order = AxisOrder::parse(order).unwrap();
                let cube = order.lengths(shape);
                let (count, index) = (3, 1);
                let mut lengths = cube.to_vec();
                lengths.insert(before, count);
                let mut bytes = vec![0xAA; 8];
                for at in 0..lengths.iter().product() {
                    let mut index = [0; 4];
                    let mut remaining: usize = at;
                    for axis in (0..4).rev() {
                        (index[axis], remaining) =
                            (remaining % lengths[axis], remaining / lengths[axis]);
                    }
                    let sample = index[before];
                    let of_cube: Vec<usize> =
                        (0..4).filter(|axis| *axis != before).map(|axis| index[axis]).collect();
                    let index = |axis| of_cube[order.position(axis)];
                    let value = value(index(Axis::Row), index(Axis::Column), index(Axis::Band));
                    bytes.extend((value + 1_000_000 * sample as u32).to_le_bytes());
                }
                let info = CubeInfo::new("test", shape, DType::U32, "test.raw");
                let layout =
                    FlatLayout { offset: 8, order, big_endian: false, rows_reversed: false };
                let samples = SampleAxis { before, count, index };
                let source =
                    FlatSource::new(info, layout, MemoryBytes(bytes)).of_sample(Some(samples));
                let mut out = RowBuffer::new();
                for (start, end) in [(0, 4), (1, 2), (2, 4)] {
                    source.read_rows(start..end, &mut out).unwrap();
                    let want: Vec<u32> = (start..end)
                        .flat_map(|y| (0..3).flat_map(move |x| (0..5).map(move |b| value(y, x, b))))
                        .map(|value| value + 1_000_000)
                        .collect();
                    assert_eq!(out.as_slice::<u32>(), want, "{order} {before} {start}..{end}");
                    source.read_band(2, start..end, &mut out).unwrap();
                    let want: Vec<u32> = (start..end)
                        .flat_map(|y| (0..3).map(move |x| value(y, x, 2) + 1_000_000))
                        .collect();
                    assert_eq!(out.as_slice::<u32>(), want, "{order} {before} band");
                }
            }
        }
    }

    #[test]
    fn wide_gaps_are_skipped_not_read() {
        // Rows of 4 kB and more in band-sequential order: every band is a read of its own.
        let layout = FlatLayout {
            offset: 0,
            order: AxisOrder::BSQ,
            big_endian: false,
            rows_reversed: false,
        };
        check(CubeShape::new(4, 1200, 3), layout, false);
    }

    #[test]
    fn a_short_file_is_an_error_that_names_it() {
        let shape = CubeShape::new(4, 3, 2);
        let layout = FlatLayout {
            offset: 0,
            order: AxisOrder::BIP,
            big_endian: false,
            rows_reversed: false,
        };
        let info = CubeInfo::new("test", shape, DType::U32, "short.raw");
        let source = FlatSource::new(info, layout, MemoryBytes(vec![0; 90]));
        let error = source.read_rows(3..4, &mut RowBuffer::new()).unwrap_err();
        assert!(error.to_string().starts_with("short.raw: "), "{error}");
    }
}
