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
//! How many stretches there are depends on the position of the row axis in the file. If it is first (BIL, BIP),
//! there is one. If it is second (BSQ), there is one per band. If it is last (column-major MATLAB and Fortran
//! arrays), there is one per column and band, so
//! [`FlatSource::preferred_rows`](crate::Source::preferred_rows) asks for as many rows at once as the budget
//! allows.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytemuck::Pod;
use hsipack_format::{CubeShape, DType, Error, Result};
use hsipack_store::bounded_read;
use hsipack_store::window::Window;

use super::{Access, Axis, AxisOrder, CubeInfo, RowBuffer, Source, read_band_of_rows};
use crate::listing::Identity;
use crate::parked_streams::{self, Stream};
use crate::sample_copy::{Interleaved, SampleCopy};

/// Where the bytes of an array come from. Offsets count from the first byte of the source.
pub trait ByteSource: Send + Sync {
    /// Fills `out` with the bytes at `offset`.
    ///
    /// # Errors
    /// If they cannot be read, or the source ends too early.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Whether all offsets are equally cheap to read, or only those after the last one read.
    fn access(&self) -> Access;

    /// Where the source starts in its file, which tells the streams of a file apart.
    fn start(&self) -> u64 {
        0
    }

    /// Says that further sources will read the same bytes: other samples of an array.
    fn share(&mut self) {}
}

/// A plain file, or an uncompressed member of an archive.
#[derive(Debug)]
pub struct FileBytes {
    file: Window,
    path: PathBuf,
}

impl FileBytes {
    /// Opens `path`.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { file: bounded_read::window(path)?, path: path.to_owned() })
    }

    /// The size of the file in bytes.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }
}

impl ByteSource for FileBytes {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Error::malformed(format!(
                "the file ends before byte {}; it has {} bytes",
                offset + out.len() as u64,
                self.len()
            ))
            .at(&self.path)
            .with_remedy("copy the file again; it is cut short"),
            _ => Error::io(&self.path, "cannot read", error),
        })
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

/// Bytes in memory.
pub struct MemoryBytes(pub Vec<u8>);

impl ByteSource for MemoryBytes {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(out.len())?))
            .ok_or_else(|| Error::malformed("the array ends before its last value"))?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

type OpenStream = dyn Fn() -> Result<Box<dyn Read + Send>> + Send + Sync;

/// A stream that can only be read from its start, such as gzip. To go back, it is opened again.
pub struct StreamBytes {
    path: PathBuf,
    start: u64,
    open: Box<OpenStream>,
    state: Mutex<Option<Stream>>,
    /// Whose stream it is, if other sources continue to read it.
    shared: Option<Identity>,
}

impl StreamBytes {
    /// A stream that `open` starts, and that begins `start` bytes after the start of the file `path`. Errors name this
    /// file.
    pub fn new(
        path: impl Into<PathBuf>,
        start: u64,
        open: impl Fn() -> Result<Box<dyn Read + Send>> + Send + Sync + 'static,
    ) -> Self {
        let (path, open, state) = (path.into(), Box::new(open), Mutex::new(None));
        Self { path, start, open, state, shared: None }
    }

    /// A stream that has read at most `offset` bytes: the farthest that another source left, or a new one.
    fn stream_before(&self, offset: u64) -> Result<Stream> {
        let parked = || parked_streams::take(self.shared.as_ref()?, self.start, offset);
        match parked() {
            Some(stream) => Ok(stream),
            None => Ok((0, (self.open)()?)),
        }
    }

    fn fail(&self, error: std::io::Error, end: u64) -> Error {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                Error::malformed(format!("the compressed data end before byte {end}"))
            }
            _ => Error::malformed(format!("cannot decompress: {error}")),
        }
        .at(&self.path)
        .with_remedy("copy the file again; it is cut short or damaged")
    }
}

impl ByteSource for StreamBytes {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        // A poisoned lock only means that another reader panicked. The stream is then opened again.
        let mut state = self.state.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            *state = None;
            state
        });
        let end = offset + out.len() as u64;
        let (mut position, mut stream) = match state.take() {
            Some((position, stream)) if position <= offset => (position, stream),
            _ => self.stream_before(offset)?,
        };
        let skip = offset - position;
        position += std::io::copy(&mut (&mut stream).take(skip), &mut std::io::sink())
            .map_err(|error| self.fail(error, end))?;
        if position < offset {
            return Err(self.fail(std::io::ErrorKind::UnexpectedEof.into(), end));
        }
        stream.read_exact(out).map_err(|error| self.fail(error, end))?;
        *state = Some((end, stream));
        Ok(())
    }

    fn access(&self) -> Access {
        Access::Sequential
    }

    fn start(&self) -> u64 {
        self.start
    }

    fn share(&mut self) {
        self.shared = Identity::of(&self.path);
    }
}

impl Drop for StreamBytes {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(file), Some(stream)) = (self.shared.take(), state) {
            parked_streams::park(file, self.start, stream);
        }
    }
}

/// How a cube is laid out in its bytes.
#[derive(Clone, Copy, Debug)]
pub struct FlatLayout {
    /// Bytes before the first value.
    pub offset: u64,
    /// The axes from slowest to fastest.
    pub order: AxisOrder,
    /// Whether values are big-endian.
    pub big_endian: bool,
    /// Whether the last row of the image comes first (Tivita).
    pub rows_reversed: bool,
}

/// The axis of samples in an array that holds several cubes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleAxis {
    /// How many of the cube's axes are slower, 0 to 3.
    pub before: usize,
    /// Number of samples.
    pub count: usize,
    /// The sample that is the cube.
    pub index: usize,
}

impl SampleAxis {
    /// The same axis if the first index of the array is the fastest.
    pub fn reversed(self) -> Self {
        Self { before: 3 - self.before, ..self }
    }
}

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
    /// A source of the cube that `info` describes, stored in `bytes` with this `layout`. The caller has checked that
    /// there are enough bytes, as far as that can be known.
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

    /// Reads file rows `rows` into `scratch`, in file order, with only these rows along the row axis.
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

    /// A copy in which each sample is in one piece, if reading one of them would mean reading the others, too.
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
    /// [`gather`](Self::gather) if values of other samples are between those of the cube: a box of an array with four
    /// axes. Runs of values that are close together are read as one span.
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

/// Reorders values of `size` bytes from `order` to (row, column, band). `shape` is the shape of these values, not of
/// the whole cube.
pub(crate) fn permute(
    order: AxisOrder,
    shape: CubeShape,
    rows_reversed: bool,
    size: usize,
    from: &[u8],
    to: &mut [u8],
) {
    match size {
        1 => permute_values::<u8>(order, shape, rows_reversed, from, to),
        2 => permute_values::<u16>(order, shape, rows_reversed, from, to),
        4 => permute_values::<u32>(order, shape, rows_reversed, from, to),
        _ => permute_values::<u64>(order, shape, rows_reversed, from, to),
    }
}

fn permute_values<T: Pod>(
    order: AxisOrder,
    shape: CubeShape,
    rows_reversed: bool,
    from: &[u8],
    to: &mut [u8],
) {
    let from: &[T] = bytemuck::cast_slice(from);
    let to: &mut [T] = bytemuck::cast_slice_mut(to);
    let rows = shape.rows;
    let lengths = order.lengths(shape);
    let strides = [lengths[1] * lengths[2], lengths[2], 1];
    let stride = |axis| strides[order.position(axis)];
    let (row, column, band) = (stride(Axis::Row), stride(Axis::Column), stride(Axis::Band));
    let row_values = shape.row_values();
    let out_row = |y: usize| if rows_reversed { rows - 1 - y } else { y };
    if band == 1 {
        for y in 0..rows {
            for x in 0..shape.columns {
                let pixel = &from[y * row + x * column..][..shape.bands];
                to[out_row(y) * row_values + x * shape.bands..][..shape.bands]
                    .copy_from_slice(pixel);
            }
        }
    } else if column == 1 {
        for y in 0..rows {
            let to = &mut to[out_row(y) * row_values..][..row_values];
            transpose(&from[y * row..], band, shape.bands, shape.columns, to, shape.bands);
        }
    } else {
        // Rows are fastest in the file: there is one (band, row) plane per column.
        for x in 0..shape.columns {
            let plane = &from[x * column..];
            for y in 0..rows {
                let to = &mut to[out_row(y) * row_values + x * shape.bands..][..shape.bands];
                for (b, value) in to.iter_mut().enumerate() {
                    *value = plane[b * band + y];
                }
            }
        }
    }
}

/// `to[f * to_stride + s] = from[s * from_stride + f]` for `slow` × `fast` values, in tiles, so that both sides stay
/// in the first-level cache.
fn transpose<T: Copy>(
    from: &[T],
    from_stride: usize,
    slow: usize,
    fast: usize,
    to: &mut [T],
    to_stride: usize,
) {
    const TILE: usize = 16;
    for f0 in (0..fast).step_by(TILE) {
        let fast_tile = TILE.min(fast - f0);
        for s0 in (0..slow).step_by(TILE) {
            let slow_tile = TILE.min(slow - s0);
            for f in f0..f0 + fast_tile {
                let to = &mut to[f * to_stride + s0..][..slow_tile];
                for (s, value) in to.iter_mut().enumerate() {
                    *value = from[(s0 + s) * from_stride + f];
                }
            }
        }
    }
}

/// Reverses the bytes of every element of `size` bytes.
pub(crate) fn swap_bytes(bytes: &mut [u8], size: usize) {
    match size {
        2 => swap_each::<u16>(bytes, u16::swap_bytes),
        4 => swap_each::<u32>(bytes, u32::swap_bytes),
        8 => swap_each::<u64>(bytes, u64::swap_bytes),
        _ => {}
    }
}

fn swap_each<T: Pod>(bytes: &mut [u8], swap: impl Fn(T) -> T) {
    for value in bytemuck::cast_slice_mut::<u8, T>(bytes) {
        *value = swap(*value);
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
