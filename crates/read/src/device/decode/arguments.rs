//! Arguments of the kernel, with the memory layout of `decode.cu`.

use std::ops::Range;

use hsipack_format::metadata::Scaling;
use hsipack_format::{Codec, Compressor, DType, Error, Grid, Result};

use crate::dataset::FloatType;
#[cfg(test)]
use crate::dataset::integers::Conversion;
use crate::plan::Window;

/// Threads per block.
pub const THREADS: u32 = 64;
/// Bytes of a frame's header.
pub const FRAME_HEADER: usize = 16;
/// Bytes of a [`Chunk`] in memory.
pub const CHUNK_BYTES: usize = size_of::<Chunk>();
/// Bytes of a [`Status`] in memory.
pub const STATUS_BYTES: usize = size_of::<u32>();
/// The most blocks of threads for each chunk.
const MAX_SLOTS: u64 = 64;
/// Blocks of frames that hold values as they are: as many blocks of threads can copy them.
const COPIED_BLOCK: usize = 128_000;
/// Alignment of the scratch memory of a block of threads, in bytes.
const ALIGNMENT: u64 = 16;

/// The blocks of threads for a chunk of so many bytes, whose frame has blocks of `block` bytes: see
/// [`Decode::new`].
pub(crate) fn slots_of(bytes: u64, block: u64) -> u64 {
    bytes.div_ceil(block.max(1)).clamp(1, MAX_SLOTS)
}

/// Whether frames of this codec can be decoded on a device.
pub fn supports(codec: &Codec) -> bool {
    matches!(codec.compressor, Compressor::Lz4 | Compressor::Lz4Hc)
        && matches!(codec.typesize, 1 | 2 | 4)
}

/// A chunk: where its frame is, and where the wanted part of it belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Chunk {
    frame: u64,
    into: u64,
    pitch: u64,
    frame_bytes: u32,
    bytes: u32,
    row_bytes: u32,
    first_row: u32,
    rows: u32,
    left: u32,
    width: u32,
    pixel: u32,
    kept: u32,
    pixel_pitch: u32,
}

/// How the integers of chunks become floats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct Floats {
    factor: f64,
    offset: f64,
    missing: f64,
    number: u32,
    bytes: u32,
}

/// The work of the kernel. Its other arguments are addresses: the chunks, the compressed bytes, the
/// batch, scratch memory of [`scratch_bytes`](Self::scratch_bytes), and one [`Status`] for each
/// chunk, which must be 0 before.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Decode {
    chunks: u32,
    slots: u32,
    scratch: u64,
    floats: Floats,
}

/// The state of a chunk after decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It was decoded.
    Sound,
    /// Its frame is damaged, or holds another number of bytes.
    Damaged,
    /// Its frame has another compressor, other elements, or larger blocks than the kernel was
    /// prepared for.
    Unsupported,
}

impl Floats {
    /// Integers of type `from`, of which these are the scale factor, the offset, and the number
    /// that marks missing values. `None` if the kernel does not convert them.
    pub fn new(from: DType, into: FloatType, scaling: Scaling) -> Option<Self> {
        let number = match from {
            DType::U8 => 1,
            DType::I8 => 2,
            DType::U16 => 3,
            DType::I16 => 4,
            _ => return None,
        };
        let Scaling { factor, offset, missing } = scaling;
        // Adding -0 changes nothing, as 0 would change -0.
        let offset = if offset == 0.0 { -0.0 } else { offset };
        let missing = missing.unwrap_or(f64::NAN);
        Some(Self { factor, offset, missing, number, bytes: into.dtype().size() as u32 })
    }
}

impl Chunk {
    /// The part of a chunk that a window needs. `element` is the size of a value in bytes; the
    /// window must be inside the cube, and has all bands. `frame` is the place of the frame among
    /// the compressed bytes, and `into` that of the window's first byte in the batch, where its
    /// rows follow one another. `None` if the chunk has nothing of the window.
    pub fn new(
        grid: &Grid,
        element: usize,
        chunk: usize,
        window: Window,
        frame: Range<u64>,
        into: u64,
    ) -> Option<Self> {
        let region = grid.region(chunk);
        let rows = common(&region.rows, &window.row_range())?;
        let columns = common(&region.columns, &window.column_range())?;
        let [pixel, kept, pixel_pitch] =
            [grid.band_group(), region.bands.len(), grid.shape().bands]
                .map(|bands| (bands * element) as u64);
        let pitch = u64::from(window.columns) * pixel_pitch;
        let from = [rows.start - window.row as usize, columns.start - window.column as usize];
        let from = from[0] as u64 * pitch + from[1] as u64 * pixel_pitch;
        // A chunk has less than 2 GiB (`MAX_CHUNK`).
        let bytes = |pixels: usize| (pixels as u64 * pixel) as u32;
        Some(Self {
            frame: frame.start,
            into: into + from + (region.bands.start * element) as u64,
            pitch,
            // A frame cannot be as long; the kernel reports it as damaged.
            frame_bytes: u32::try_from(frame.end.saturating_sub(frame.start)).unwrap_or(u32::MAX),
            bytes: bytes(grid.tile().rows * grid.tile().columns),
            row_bytes: bytes(grid.tile().columns),
            first_row: (rows.start - region.rows.start) as u32,
            rows: rows.len() as u32,
            left: bytes(columns.start - region.columns.start),
            width: bytes(columns.len()),
            pixel: pixel as u32,
            kept: kept as u32,
            pixel_pitch: u32::try_from(pixel_pitch).ok()?,
        })
    }

    /// The same chunk, whose frame has integers of so many bytes, which become floats of `element`
    /// bytes.
    pub fn of_integers(self, bytes: usize, element: usize) -> Self {
        // A delivered chunk has less than 2 GiB, too.
        Self { bytes: (self.bytes as usize / element * bytes) as u32, ..self }
    }

    /// Values that are not compressed, in a frame with the header [`copied_frame`]. `into` is their
    /// place in the batch.
    pub fn of_values(bytes: u32, frame: Range<u64>, into: u64) -> Self {
        Self {
            frame: frame.start,
            into,
            pitch: bytes.into(),
            frame_bytes: u32::try_from(frame.end.saturating_sub(frame.start)).unwrap_or(u32::MAX),
            bytes,
            row_bytes: bytes,
            first_row: 0,
            rows: 1,
            left: 0,
            width: bytes,
            pixel: bytes,
            kept: bytes,
            pixel_pitch: bytes,
        }
    }

    /// Bytes of the decoded chunk, before integers become floats.
    pub fn decoded_bytes(&self) -> u32 {
        self.bytes
    }

    /// Its frame: first byte, and length.
    #[cfg(test)]
    pub(super) fn frame(&self) -> (u64, u32) {
        (self.frame, self.frame_bytes)
    }

    /// The kept part of each pixel of the decoded chunk, and where in the batch it belongs.
    #[cfg(test)]
    pub(super) fn kept(&self) -> impl Iterator<Item = (Range<usize>, u64)> {
        let first = self.first_row as usize * self.row_bytes as usize + self.left as usize;
        let Self { row_bytes, width, into, pitch, pixel, kept, pixel_pitch, .. } = *self;
        let pixels = (0..self.rows as usize)
            .flat_map(move |row| (0..(width / pixel) as usize).map(move |column| (row, column)));
        pixels.map(move |(row, column)| {
            let start = first + row * row_bytes as usize + column * pixel as usize;
            let into = into + row as u64 * pitch + column as u64 * u64::from(pixel_pitch);
            (start..start + kept as usize, into)
        })
    }

    /// The chunk as the kernel reads it.
    pub fn to_bytes(&self) -> [u8; CHUNK_BYTES] {
        let mut bytes = [0; CHUNK_BYTES];
        let (long, short) = bytes.split_at_mut(3 * size_of::<u64>());
        let numbers = [self.frame, self.into, self.pitch];
        long.as_chunks_mut()
            .0
            .iter_mut()
            .zip(numbers)
            .for_each(|(to, number)| *to = number.to_le_bytes());
        let numbers = [
            self.frame_bytes,
            self.bytes,
            self.row_bytes,
            self.first_row,
            self.rows,
            self.left,
            self.width,
            self.pixel,
            self.kept,
            self.pixel_pitch,
        ];
        short
            .as_chunks_mut()
            .0
            .iter_mut()
            .zip(numbers)
            .for_each(|(to, number)| *to = number.to_le_bytes());
        bytes
    }

    /// The bytes of the batch between the first and the last one that is written.
    pub fn written(&self) -> Range<u64> {
        let last_row = u64::from(self.rows).saturating_sub(1) * self.pitch;
        let pixels = u64::from(self.width / self.pixel.max(1));
        let last_pixel = pixels.saturating_sub(1) * u64::from(self.pixel_pitch);
        self.into..self.into + last_row + last_pixel + u64::from(self.kept)
    }
}

/// The header of a frame that holds so many bytes of values as they are.
pub fn copied_frame(bytes: u32) -> [u8; FRAME_HEADER] {
    let mut header = [0; FRAME_HEADER];
    // The versions of Blosc's format, the flag for stored values, the size of an element.
    header[..4].copy_from_slice(&[2, 1, 0x02, 1]);
    let numbers = [bytes, bytes.min(COPIED_BLOCK as u32), bytes + FRAME_HEADER as u32];
    let numbers = numbers.into_iter().flat_map(u32::to_le_bytes);
    header[4..].iter_mut().zip(numbers).for_each(|(to, from)| *to = from);
    header
}

/// The size of the blocks of a frame, in bytes, as its header says. It may say anything.
pub fn block_bytes(frame: &[u8]) -> u32 {
    frame.get(8..12).map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

fn common(a: &Range<usize>, b: &Range<usize>) -> Option<Range<usize>> {
    let common = a.start.max(b.start)..a.end.min(b.end);
    (!common.is_empty()).then_some(common)
}

impl Decode {
    /// Decodes chunks of this many `compressed` bytes into a batch of `batch` bytes, with `slots`
    /// blocks of threads for each chunk, which can decode blocks of at most `block` bytes. As many
    /// slots as a chunk has blocks are best.
    ///
    /// # Errors
    /// If a chunk's frame or place is not in that memory, or the number of blocks of threads is 0
    /// or above 2^31.
    pub fn new(
        chunks: &[Chunk],
        compressed: u64,
        batch: u64,
        slots: u32,
        block: u64,
    ) -> Result<Self> {
        for (number, chunk) in chunks.iter().enumerate() {
            let frame = chunk.frame.checked_add(u64::from(chunk.frame_bytes));
            if frame.is_none_or(|end| end > compressed) || chunk.written().end > batch {
                return Err(Error::bug(format!(
                    "chunk {number}, {chunk:?}, is not within {compressed} compressed and {batch} decoded bytes"
                )));
            }
        }
        let count = u32::try_from(chunks.len()).ok();
        match count
            .and_then(|count| count.checked_mul(slots))
            .filter(|all| (1..1 << 31).contains(all))
        {
            Some(all) => {
                let scratch = block.next_multiple_of(ALIGNMENT);
                Ok(Self { chunks: all / slots, slots, scratch, floats: Floats::default() })
            }
            None => Err(Error::bug(format!("{} chunks with {slots} slots each", chunks.len()))),
        }
    }

    /// The same work on chunks of integers, which become floats.
    pub fn converting(self, floats: Floats) -> Self {
        Self { floats, ..self }
    }

    /// How integers become floats; `None` if values stay as they are.
    #[cfg(test)]
    pub(super) fn floats(&self) -> Option<Conversion> {
        let Floats { factor, offset, missing, number, bytes } = self.floats;
        let from = [DType::U8, DType::I8, DType::U16, DType::I16];
        let from = *from.get((number as usize).checked_sub(1)?)?;
        let into = if bytes == 2 { FloatType::F16 } else { FloatType::F32 };
        let missing = Some(missing).filter(|missing| !missing.is_nan());
        Some(Conversion::new(from, into, Scaling { factor, offset, missing }))
    }

    /// Blocks of threads for each chunk.
    #[cfg(test)]
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Blocks of threads: the length of the grid, which has one axis.
    pub fn blocks(&self) -> u32 {
        self.chunks * self.slots
    }

    /// Bytes of scratch memory, whose address must be a multiple of 16.
    pub fn scratch_bytes(&self) -> u64 {
        u64::from(self.blocks()) * self.scratch
    }
}

impl Status {
    /// The status that the kernel wrote.
    pub fn of(number: u32) -> Self {
        match number {
            0 => Self::Sound,
            2 => Self::Unsupported,
            _ => Self::Damaged,
        }
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::{CubeShape, Tile};

    use super::*;

    /// The PTX that the driver would get.
    const PTX: &str = include_str!("decode.ptx");

    #[test]
    fn the_ptx_is_that_of_the_source() {
        let source = include_str!("decode.cu");
        let source = source.replace("#include \"threads.h\"\n", include_str!("threads.h"));
        let source = hsipack_format::checksums::sha256(source.as_bytes());
        let line = format!("// decode.cu: {source}");
        assert_eq!(PTX.lines().next(), Some(&*line), "run scripts/dev/make_kernels.py");
        assert!(PTX.contains(".entry decode_frames("));
    }

    #[test]
    fn decoded_words_stay_in_registers() {
        // Arrays that are indexed by data would lie in local memory, which is as slow as the batch's.
        assert!(!PTX.contains("ld.local") && !PTX.contains("st.local"));
    }

    #[test]
    fn chunks_keep_what_a_window_needs() {
        let shape = CubeShape { rows: 10, columns: 7, bands: 3 };
        let grid = Grid::new(shape, Tile { rows: 4, columns: 5 }, 1).unwrap();
        let window = Window { row: 3, column: 4, rows: 5, columns: 3 };
        let chunk = |number| Chunk::new(&grid, 2, number, window, 100..150, 1000);
        // The first chunk: its last row, its last column.
        let first = chunk(0).unwrap();
        assert_eq!((first.first_row, first.rows, first.left, first.width), (3, 1, 24, 6));
        assert_eq!((first.bytes, first.row_bytes, first.pitch, first.into), (120, 30, 18, 1000));
        // Right of it, the two columns that the cube has.
        let right = chunk(1).unwrap();
        assert_eq!((right.first_row, right.left, right.width, right.into), (3, 0, 12, 1006));
        let below = chunk(3).unwrap();
        assert_eq!((below.first_row, below.rows, below.written()), (0, 4, 1024..1090));
        assert_eq!(chunk(4), None);
        // Chunks of two bands: the second band group has one band, and one that is not kept.
        let grid = grid.in_band_groups(2).unwrap();
        let chunk = |number| Chunk::new(&grid, 2, number, window, 100..150, 1000).unwrap();
        let places = |chunk: Chunk| (chunk.pixel, chunk.kept, chunk.pixel_pitch, chunk.into);
        assert_eq!([chunk(2), chunk(3)].map(places), [(4, 4, 6, 1006), (4, 2, 6, 1010)]);
        assert_eq!((chunk(3).left, chunk(3).width, chunk(3).written()), (0, 8, 1010..1018));
        assert!(Decode::new(&[first, right, below], 150, 1090, 2, 64).is_ok());
        assert!(Decode::new(&[first, right, below], 150, 1089, 2, 64).is_err());
        assert!(Decode::new(&[first], 149, 1090, 2, 64).is_err());
        assert!(Decode::new(&[first], 150, 1090, 0, 64).is_err());
    }
}
