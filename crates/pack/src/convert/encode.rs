//! One block of rows on its way: read → transform → cast → chunks → compressed.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::{Codec, DType, Error, ErrorKind, Grid, Opt, Result, remedy};
use hsipack_store::{codec, memory};

use super::cast;
use super::masks::MaskReader;
use super::stats::{self, BandStats, Gatherer};
use super::transform::{Place, Scratch, Transform};
use crate::precision;
use crate::source::{RowBuffer, Source};

/// A cube being converted, shared by the threads that work on it.
pub struct OpenCube {
    /// The cube.
    pub source: Box<dyn Source>,
    /// What to do with its values.
    pub transform: Transform,
    /// Chunks of the stack.
    pub grid: Grid,
    /// How to compress them.
    pub codec: Codec,
    /// float16 or float32.
    pub dtype: DType,
    /// Held while reading from a source that wants its rows in order.
    pub turn: Mutex<()>,
}

/// Chunks of one array, compressed, in order.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Stored chunks one after the other.
    pub data: Vec<u8>,
    /// Length of each.
    pub lens: Vec<usize>,
    /// Statistics of each slab of chunks.
    pub slabs: Vec<BandStats>,
}

impl Encoded {
    /// Empties it and keeps its memory: pages that are mapped already are half the cost of new ones.
    pub fn recycle(mut self) -> Self {
        self.data.clear();
        self.lens.clear();
        self.slabs.clear();
        self
    }

    /// The stored chunks, one after the other.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.data.as_slice();
        self.lens.iter().map(move |len| {
            let (chunk, behind) = rest.split_at(*len);
            rest = behind;
            chunk
        })
    }
}

/// What one thread keeps from block to block.
pub struct Encoder {
    rows: RowBuffer,
    scratch: Scratch,
    slab: Slab,
    wide: Vec<f32>,
    tile: Vec<u8>,
    gatherer: Option<(usize, Gatherer)>,
    ids: Vec<u16>,
}

/// One slab of packed values: rows of a row of chunks, full width.
enum Slab {
    Half(Vec<f16>),
    Single(Vec<f32>),
}

impl Slab {
    /// Makes room for `values` packed values. What was there before may still be there.
    ///
    /// # Errors
    /// If the system refuses the memory.
    fn reset(&mut self, dtype: DType, values: usize) -> Result<()> {
        match (&*self, dtype) {
            (Slab::Half(_), DType::F16) | (Slab::Single(_), DType::F32) => {}
            (_, DType::F16) => *self = Slab::Half(Vec::new()),
            _ => *self = Slab::Single(Vec::new()),
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
        }
        Ok(())
    }

    /// Makes everything from value `start` on NaN: the rows of the last slab that overhang.
    fn fill_from(&mut self, start: usize) {
        match self {
            Slab::Half(slab) => slab[start..].fill(f16::NAN),
            Slab::Single(slab) => slab[start..].fill(f32::NAN),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Slab::Half(slab) => bytemuck::cast_slice(slab),
            Slab::Single(slab) => bytemuck::cast_slice(slab),
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
    /// Reads rows `rows` of a cube, which start on a row of chunks. `turn` is given up once they are read.
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

    /// Packs the rows read last into `encoded`, which is empty but may bring memory with it.
    ///
    /// # Errors
    /// If a value does not fit, or is missing and must not be.
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

    /// Transforms and casts rows `take` of the rows read, which start with row `first` of the cube.
    fn pack_slab(
        &mut self,
        cube: &OpenCube,
        first: usize,
        take: Range<usize>,
    ) -> Result<BandStats> {
        let shape = cube.grid.shape();
        let bands = shape.bands;
        self.slab.reset(cube.dtype, cube.grid.tile().rows * shape.row_values())?;
        if self.gatherer.as_ref().is_none_or(|(count, _)| *count != bands) {
            self.gatherer = Some((bands, Gatherer::new(bands)));
        }
        let Self { rows, scratch, slab, wide, gatherer, .. } = self;
        let (_, gatherer) = gatherer.as_mut().expect("made above");
        let mut done = 0;
        cube.transform.apply(rows, first, take, scratch, &mut |place, values| {
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
                        refuse_overflow(cube, place, values, wide)?;
                    }
                    gatherer.add(values, wide, finite);
                }
                Slab::Single(slab) => {
                    let packed = &mut slab[done..done + values.len()];
                    match cube.transform.keep_bits {
                        None => packed.copy_from_slice(values),
                        Some(bits) => precision::round_f32(values, bits, packed),
                    }
                    // Sums of float32 values need the double precision of the careful path.
                    gatherer.add(values, packed, false);
                }
            }
            done += values.len();
            Ok(())
        })?;
        slab.fill_from(done);
        Ok(gatherer.take())
    }

    /// Cuts the slab into chunks and compresses them.
    fn compress_slab(&mut self, cube: &OpenCube, encoded: &mut Encoded) -> Result<()> {
        let (shape, tile) = (cube.grid.shape(), cube.grid.tile());
        let slab = self.slab.bytes();
        if tile.columns == shape.columns {
            encoded.lens.push(codec::encode(&cube.codec, slab, &mut encoded.data)?);
            return Ok(());
        }
        let strip = Strip {
            bytes: slab,
            columns: shape.columns,
            pixel: shape.bands * cube.dtype.size(),
            fill: NAN_PIXEL[cube.dtype.size() / 4],
        };
        for across in 0..cube.grid.across() {
            strip.cut(cube.grid.region(across).columns, tile.columns, &mut self.tile);
            encoded.lens.push(codec::encode(&cube.codec, &self.tile, &mut encoded.data)?);
        }
        Ok(())
    }

    /// Reads and packs one mask of a cube of `rows` × `columns` pixels; `None` fills it with `fill`.
    ///
    /// # Errors
    /// If it cannot be read or holds what is no class id.
    pub fn encode_mask(
        &mut self,
        reader: Option<&MaskReader>,
        fill: u16,
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

    /// Packs the class ids of a cube, which `read` gives: those of some rows, from the first to the last.
    ///
    /// # Errors
    /// Those of `read`, and if memory is refused.
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
            let rows = grid.region(down * grid.across()).rows;
            read(rows, &mut self.ids)?;
            slab.clear();
            match dtype {
                DType::U8 => slab.extend(self.ids.iter().map(|id| *id as u8)),
                _ => slab.extend_from_slice(bytemuck::cast_slice(&self.ids)),
            }
            slab.resize(tile.rows * shape.columns * dtype.size(), 0);
            let strip =
                Strip { bytes: &slab, columns: shape.columns, pixel: dtype.size(), fill: [0; 4] };
            for across in 0..grid.across() {
                strip.cut(grid.region(across).columns, tile.columns, &mut self.tile);
                encoded.lens.push(codec::encode(codec, &self.tile, &mut encoded.data)?);
            }
        }
        Ok(encoded)
    }
}

/// Puts the class ids of some rows of a cube into a buffer, in place of what is in it.
pub type ReadIds<'r> = dyn FnMut(Range<usize>, &mut Vec<u16>) -> Result<()> + 'r;

/// NaN as the bytes of a float16 (twice) and of a float32: the fill of overhanging pixels.
const NAN_PIXEL: [[u8; 4]; 2] = [[0x00, 0x7E, 0x00, 0x7E], [0x00, 0x00, 0xC0, 0x7F]];

/// Rows of pixels, as wide as the image, to be cut into tiles.
struct Strip<'a> {
    /// The rows, one after the other.
    bytes: &'a [u8],
    /// Pixels a row.
    columns: usize,
    /// Bytes a pixel.
    pixel: usize,
    /// What pixels beyond the image hold, over and over.
    fill: [u8; 4],
}

impl Strip<'_> {
    /// Copies `columns` of every row into `tile`, each filled up to `width` pixels.
    fn cut(&self, columns: Range<usize>, width: usize, tile: &mut Vec<u8>) {
        tile.clear();
        let beyond = (width - columns.len()) * self.pixel;
        for row in self.bytes.chunks_exact(self.columns * self.pixel) {
            tile.extend_from_slice(&row[columns.start * self.pixel..columns.end * self.pixel]);
            tile.extend(self.fill.iter().cycle().take(beyond));
        }
    }
}

/// An error if a finite value became infinite.
fn refuse_overflow(cube: &OpenCube, place: Place, values: &[f32], packed: &[f32]) -> Result<()> {
    let overflow = |(x, y): (&f32, &f32)| x.is_finite() && y.is_infinite();
    let Some(at) = values.iter().zip(packed).position(overflow) else { return Ok(()) };
    let (place, band) = cube.transform.locate(place, at);
    let info = cube.source.info();
    let wavelength =
        info.wavelength.as_ref().map(|nm| format!(" ({} nm)", nm[band])).unwrap_or_default();
    let value = f64::from(values[at]) * cube.transform.scale;
    Err(Error::new(
        ErrorKind::Overflow,
        format!(
            "band {band}{wavelength}, row {}, column {}: the value {value} does not fit fp16, which ends at 65504{}",
            place.row,
            place.column,
            if cube.transform.scale == 1.0 { String::new() } else { format!(" (× scale {})", cube.transform.scale) }
        ),
    )
    .with_remedy(remedy![
        "pass ",
        Opt::Scale.to("auto"),
        ", a larger ",
        Opt::Scale,
        ", or ",
        Opt::Dtype.to("float32")
    ]))
}
