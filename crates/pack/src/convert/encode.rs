//! Processes one block of rows: read → transform → cast → cut into chunks → compress.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::{Codec, DType, Error, ErrorKind, Grid, MaskValue, Opt, Result, mask, remedy};
use hsipack_source::{RowBuffer, Source};
use hsipack_store::{codec, memory};

use super::cast;
use super::integers;
use super::masks::MaskReader;
use super::pixel_position::PixelPosition;
use super::stats::{self, BandStats, Gatherer};
use super::transform::{Scratch, Transform};
use crate::precision;

/// A cube that is being converted. The threads that work on it share it.
pub struct OpenCube {
    /// The cube.
    pub source: Box<dyn Source>,
    /// The transform of its values.
    pub transform: Transform,
    /// The chunks of the stack.
    pub grid: Grid,
    /// How to compress them.
    pub codec: Codec,
    /// float16 or float32, or that of the integers that are kept.
    pub dtype: DType,
    /// The integer that stands for missing values, if integers are kept.
    pub missing: Option<i64>,
    /// Locked while rows are read from a source that must be read in order.
    pub turn: Mutex<()>,
}

/// Compressed chunks of one array, in order.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Stored chunks one after the other.
    pub data: Vec<u8>,
    /// Length of each chunk.
    pub lens: Vec<usize>,
    /// Statistics of each slab, a row of chunks.
    pub slabs: Vec<BandStats>,
}

impl Encoded {
    /// Empties it, but keeps its memory: pages that are already mapped cost half as much as new
    /// ones.
    pub fn recycle(mut self) -> Self {
        self.data.clear();
        self.lens.clear();
        self.slabs.clear();
        self
    }

    /// The stored chunks, one after the other.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut remaining = self.data.as_slice();
        self.lens.iter().map(move |len| {
            let (chunk, tail) = remaining.split_at(*len);
            remaining = tail;
            chunk
        })
    }
}

/// Buffers that a thread reuses for all blocks.
pub struct Encoder {
    rows: RowBuffer,
    scratch: Scratch,
    slab: Slab,
    wide: Vec<f32>,
    tile: Vec<u8>,
    gatherer: Option<(usize, Gatherer)>,
    ids: Vec<MaskValue>,
}

/// One slab of packed values: the rows of one row of chunks, over the full width.
enum Slab {
    Half(Vec<f16>),
    Single(Vec<f32>),
    /// Integers, with the four bytes that fill pixels beyond the image.
    Integers(Vec<u8>, [u8; 4]),
}

impl Slab {
    /// Resizes the slab to `values` packed values. Old values may remain in it.
    ///
    /// # Errors
    /// If the memory cannot be allocated.
    fn reset(&mut self, dtype: DType, missing: Option<i64>, values: usize) -> Result<()> {
        let fill = integers::fill(dtype, missing.unwrap_or(0));
        match (&mut *self, dtype) {
            (Slab::Half(_), DType::F16) | (Slab::Single(_), DType::F32) => {}
            (_, DType::F16) => *self = Slab::Half(Vec::new()),
            (_, DType::F32) => *self = Slab::Single(Vec::new()),
            (Slab::Integers(_, old), _) => *old = fill,
            _ => *self = Slab::Integers(Vec::new(), fill),
        }
        let what = "a row of chunks";
        match self {
            Slab::Half(slab) => {
                memory::room(slab, values, what)?;
                slab.resize(values, f16::NAN);
            }
            Slab::Single(slab) => {
                memory::room(slab, values, what)?;
                slab.resize(values, f32::NAN);
            }
            Slab::Integers(slab, _) => {
                let bytes = values * dtype.size();
                memory::room(slab, bytes, what)?;
                slab.resize(bytes, 0);
            }
        }
        Ok(())
    }

    /// Fills the slab from value `start` on with what stands for missing values: in the last slab,
    /// these rows are beyond the image.
    fn fill_from(&mut self, start: usize, dtype: DType) {
        match self {
            Slab::Half(slab) => slab[start..].fill(f16::NAN),
            Slab::Single(slab) => slab[start..].fill(f32::NAN),
            Slab::Integers(slab, fill) => {
                let beyond = &mut slab[start * dtype.size()..];
                beyond.iter_mut().zip(fill.iter().cycle()).for_each(|(byte, fill)| *byte = *fill);
            }
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Slab::Half(slab) => bytemuck::cast_slice(slab),
            Slab::Single(slab) => bytemuck::cast_slice(slab),
            Slab::Integers(slab, _) => slab,
        }
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            rows: RowBuffer::new(),
            scratch: Scratch::default(),
            slab: Slab::Half(Vec::new()),
            wide: Vec::new(),
            tile: Vec::new(),
            gatherer: None,
            ids: Vec::new(),
        }
    }
}

impl Encoder {
    /// Reads rows `rows` of a cube, which must start at a row of chunks. Then releases `turn`.
    ///
    /// # Errors
    /// If the source cannot be read.
    pub fn read(
        &mut self,
        cube: &OpenCube,
        rows: Range<usize>,
        turn: Option<MutexGuard<'_, ()>>,
    ) -> Result<()> {
        self.rows.reserve(rows.len() * cube.source.info().row_bytes())?;
        cube.source.read_rows(rows, &mut self.rows)?;
        drop(turn);
        Ok(())
    }

    /// Packs the rows that were read last, and adds their chunks to `encoded`.
    ///
    /// # Errors
    /// If a value does not fit, or is missing although missing values are an error.
    pub fn encode(
        &mut self,
        cube: &OpenCube,
        rows: Range<usize>,
        mut encoded: Encoded,
    ) -> Result<Encoded> {
        let step = cube.grid.tile().rows;
        for start in rows.clone().step_by(step) {
            let slab = start..rows.end.min(start + step);
            let take = slab.start - rows.start..slab.end - rows.start;
            let stats = self
                .pack_slab(cube, rows.start, take)
                .map_err(|error| error.at(&cube.source.info().files[0]))?;
            encoded.slabs.push(stats);
            self.compress_slab(cube, &mut encoded)?;
        }
        Ok(encoded)
    }

    /// Reads and packs all values of a companion, a block of at most `budget` bytes at a time,
    /// without their statistics.
    ///
    /// # Errors
    /// The same as those of [`read`](Self::read) and [`encode`](Self::encode).
    pub fn encode_companion(&mut self, cube: &OpenCube, budget: usize) -> Result<Encoded> {
        let (height, slab) = (cube.grid.shape().rows, cube.grid.tile().rows);
        let block = cube.source.preferred_rows(budget).div_ceil(slab).max(1) * slab;
        let mut encoded = Encoded::default();
        for first in (0..height).step_by(block) {
            let rows = first..height.min(first + block);
            self.read(cube, rows.clone(), None)?;
            encoded = self.encode(cube, rows, encoded).map_err(companion_overflow)?;
        }
        encoded.slabs.clear();
        Ok(encoded)
    }

    /// Transforms and casts rows `take` of the rows that were read. They start at row `first` of
    /// the cube.
    fn pack_slab(
        &mut self,
        cube: &OpenCube,
        first: usize,
        take: Range<usize>,
    ) -> Result<BandStats> {
        let shape = cube.grid.shape();
        let bands = shape.bands;
        self.slab.reset(cube.dtype, cube.missing, cube.grid.tile().rows * shape.row_values())?;
        if self.gatherer.as_ref().is_none_or(|(count, _)| *count != bands) {
            self.gatherer = Some((bands, Gatherer::new(bands)));
        }
        let Self { rows, scratch, slab, wide, gatherer, .. } = self;
        let (_, gatherer) = gatherer.as_mut().expect("made above");
        let mut done = 0;
        cube.transform.apply(rows, first, take, scratch, &mut |position, values| {
            match slab {
                Slab::Half(slab) => {
                    let packed = &mut slab[done..done + values.len()];
                    wide.resize(values.len(), 0.0);
                    match cube.transform.keep_bits {
                        None => cast::from_f32(values, packed),
                        Some(bits) => {
                            precision::round_f16(values, bits, wide);
                            cast::from_f32(wide, packed);
                            precision::clear_f16(packed, bits);
                        }
                    }
                    packed.convert_to_f32_slice(wide);
                    let finite = stats::all_finite(packed);
                    if !finite {
                        refuse_overflow(cube, position, values, wide)?;
                    }
                    gatherer.add(values, wide, finite);
                }
                Slab::Single(slab) => {
                    let packed = &mut slab[done..done + values.len()];
                    match cube.transform.keep_bits {
                        None => packed.copy_from_slice(values),
                        Some(bits) => precision::round_f32(values, bits, packed),
                    }
                    // Sums of float32 values need the slower path, which uses double precision.
                    gatherer.add(values, packed, false);
                }
                Slab::Integers(slab, _) => {
                    let size = cube.dtype.size();
                    let packed = &mut slab[done * size..(done + values.len()) * size];
                    integers::write(values, cube.dtype, cube.missing, packed)
                        .map_err(|at| cube.refuse_integer(position, at, values[at]))?;
                    gatherer.add(values, values, values.iter().all(|value| value.is_finite()));
                }
            }
            done += values.len();
            Ok(())
        })?;
        slab.fill_from(done, cube.dtype);
        Ok(gatherer.take())
    }

    /// Cuts the slab into chunks and compresses them.
    fn compress_slab(&mut self, cube: &OpenCube, encoded: &mut Encoded) -> Result<()> {
        let (grid, shape) = (&cube.grid, cube.grid.shape());
        let slab = self.slab.bytes();
        if grid.tile().columns == shape.columns && grid.band_groups() == 1 {
            encoded.lens.push(codec::encode(&cube.codec, slab, &mut encoded.data)?);
            return Ok(());
        }
        let strip = Strip {
            bytes: slab,
            columns: shape.columns,
            bands: shape.bands,
            element: cube.dtype.size(),
            fill: match cube.dtype {
                DType::F16 => NAN_PIXEL[0],
                DType::F32 => NAN_PIXEL[1],
                integers => integers::fill(integers, cube.missing.unwrap_or(0)),
            },
        };
        for chunk in 0..grid.chunks_per_row() {
            strip.cut(grid, chunk, &mut self.tile);
            encoded.lens.push(codec::encode(&cube.codec, &self.tile, &mut encoded.data)?);
        }
        Ok(())
    }

    /// Chunks of NaN for a whole cube of a floating-point type.
    ///
    /// # Errors
    /// If memory cannot be allocated.
    pub fn encode_nan(&mut self, grid: &Grid, codec: &Codec, dtype: DType) -> Result<Encoded> {
        self.slab.reset(dtype, None, grid.chunk_values())?;
        self.slab.fill_from(0, dtype);
        let mut encoded = Encoded::default();
        for _ in 0..grid.chunks_per_sample() {
            encoded.lens.push(codec::encode(codec, self.slab.bytes(), &mut encoded.data)?);
        }
        Ok(encoded)
    }

    /// Reads and packs one mask of a cube of `rows` × `columns` pixels; `None` fills it with
    /// `fill`.
    ///
    /// # Errors
    /// If it cannot be read, or contains a value that is not a class id.
    pub fn encode_mask(
        &mut self,
        reader: Option<&MaskReader>,
        fill: MaskValue,
        dtype: DType,
        grid: &Grid,
        codec: &Codec,
    ) -> Result<Encoded> {
        let columns = grid.shape().columns;
        let mut buffer = std::mem::take(&mut self.rows);
        let encoded = self.encode_ids(dtype, grid, codec, &mut |rows, ids| match reader {
            Some(reader) => reader.read_rows(rows, &mut buffer, ids),
            None => {
                ids.clear();
                ids.resize(rows.len() * columns, fill);
                Ok(())
            }
        });
        self.rows = buffer;
        encoded
    }

    /// Packs the mask of a cube. `read` gives the values of some rows at a time, from the first to
    /// the last.
    ///
    /// # Errors
    /// The errors of `read`, and if memory cannot be allocated.
    pub fn encode_ids(
        &mut self,
        dtype: DType,
        grid: &Grid,
        codec: &Codec,
        read: &mut ReadIds,
    ) -> Result<Encoded> {
        let shape = grid.shape();
        let tile = grid.tile();
        let mut encoded = Encoded::default();
        let mut slab = Vec::new();
        for down in 0..grid.down() {
            let rows = grid.region(down * grid.chunks_per_row()).rows;
            read(rows, &mut self.ids)?;
            slab.clear();
            mask::write(dtype, &self.ids, &mut slab);
            slab.resize(tile.rows * shape.columns * dtype.size(), 0);
            let (columns, element) = (shape.columns, dtype.size());
            let strip = Strip { bytes: &slab, columns, bands: 1, element, fill: [0; 4] };
            for chunk in 0..grid.chunks_per_row() {
                strip.cut(grid, chunk, &mut self.tile);
                encoded.lens.push(codec::encode(codec, &self.tile, &mut encoded.data)?);
            }
        }
        Ok(encoded)
    }
}

/// Writes the values of a mask in some rows of a cube to a buffer, replacing its content.
pub type ReadIds<'r> = dyn FnMut(Range<usize>, &mut Vec<MaskValue>) -> Result<()> + 'r;

/// The bytes of NaN as float16 (twice) and as float32. They fill pixels and bands beyond the image.
const NAN_PIXEL: [[u8; 4]; 2] = [[0x00, 0x7E, 0x00, 0x7E], [0x00, 0x00, 0xC0, 0x7F]];

/// Rows of pixels, as wide as the image, that are cut into chunks.
struct Strip<'a> {
    /// The rows, one after the other.
    bytes: &'a [u8],
    /// Number of pixels in a row.
    columns: usize,
    /// Bands of a pixel.
    bands: usize,
    /// Size of a value in bytes.
    element: usize,
    /// The bytes that fill what is beyond the image, repeated.
    fill: [u8; 4],
}

impl Strip<'_> {
    /// Copies the columns and bands of chunk `chunk` of every row into `out`, and fills what is
    /// beyond the image.
    fn cut(&self, grid: &Grid, chunk: usize, out: &mut Vec<u8>) {
        out.clear();
        let (region, pixel) = (grid.region(chunk), self.bands * self.element);
        let own_pixel = grid.band_group() * self.element;
        let beyond = (grid.tile().columns - region.columns.len()) * own_pixel;
        let bands = region.bands.start * self.element..region.bands.end * self.element;
        for row in self.bytes.chunks_exact(self.columns * pixel) {
            let row = &row[region.columns.start * pixel..region.columns.end * pixel];
            if own_pixel == pixel {
                out.extend_from_slice(row);
            } else {
                for values in row.chunks_exact(pixel) {
                    out.extend_from_slice(&values[bands.clone()]);
                    out.extend(self.fill.iter().cycle().take(own_pixel - bands.len()));
                }
            }
            out.extend(self.fill.iter().cycle().take(beyond));
        }
    }
}

impl OpenCube {
    /// The error for a value that cannot be kept as an integer.
    fn refuse_integer(&self, tile: PixelPosition, at: usize, value: f32) -> Error {
        let (PixelPosition { row, column }, band) = self.transform.locate(tile, at);
        integers::refuse(self.dtype, self.missing, (row, column, band), value)
    }
}

/// Returns an error if a finite value became infinite.
fn refuse_overflow(
    cube: &OpenCube,
    position: PixelPosition,
    values: &[f32],
    packed: &[f32],
) -> Result<()> {
    let overflow = |(x, y): (&f32, &f32)| x.is_finite() && y.is_infinite();
    let Some(at) = values.iter().zip(packed).position(overflow) else { return Ok(()) };
    let (position, band) = cube.transform.locate(position, at);
    let info = cube.source.info();
    let wavelength =
        info.wavelength.as_ref().map(|nm| format!(" ({} nm)", nm[band])).unwrap_or_default();
    let value = f64::from(values[at]) * cube.transform.scale;
    let scale = remedy![
        "pass ",
        Opt::Scale.to("auto"),
        ", a larger ",
        Opt::Scale,
        ", or ",
        Opt::Dtype.to("float32")
    ];
    if let Some(stored) = likely_missing(cube, position, band) {
        return Err(Error::new(
            ErrorKind::Overflow,
            format!(
                "band {band}{wavelength}, row {}, column {}: the value {value:e} does not fit fp16, and most likely marks a missing pixel",
                position.row, position.column
            ),
        )
        .with_remedy(
            remedy!["pass ", Opt::Nodata.to(format!("{stored:e}"))].joined("; if it is a value, ", scale),
        ));
    }
    Err(Error::new(
        ErrorKind::Overflow,
        format!(
            "band {band}{wavelength}, row {}, column {}: the value {value} does not fit fp16, whose largest value is 65504{}",
            position.row,
            position.column,
            if cube.transform.scale == 1.0 { String::new() } else { format!(" (× scale {})", cube.transform.scale) }
        ),
    )
    .with_remedy(scale))
}

/// The least magnitude of the numbers with which programs mark missing pixels in float files, such
/// as 1e20, -1.23e34, 9.96921e36 and -3.4028235e38. No sensor measures them.
pub(super) const LIKELY_MISSING: f64 = 1e20;

/// The stored number of a value, if it is so large that it most likely marks a missing pixel.
fn likely_missing(cube: &OpenCube, position: PixelPosition, band: usize) -> Option<f64> {
    let mut buffer = RowBuffer::new();
    cube.source.read_rows(position.row..position.row + 1, &mut buffer).ok()?;
    let stored = buffer.number(position.column * cube.source.info().shape.bands + band);
    (stored.is_finite() && stored.abs() >= LIKELY_MISSING).then_some(stored)
}

/// The error of a companion, to whose values neither a scale nor a missing number applies.
fn companion_overflow(error: Error) -> Error {
    if error.kind() != ErrorKind::Overflow {
        return error;
    }
    error.with_remedy("mark missing pixels in the file, or give it smaller values")
}
