//! The values of a TIFF file as one flat array, decoded from strips and tiles when they are read.
//!
//! To [`FlatSource`](crate::flat::FlatSource), [`Planes`] looks like bytes that hold all planes one
//! after the other, each as rows of pixels, in native byte order. A *plane* is a page, or one
//! sample of a planar image, or the whole image if samples lie side by side (contiguous).
//!
//! The crate `tiff` decodes strips and tiles one at a time, each wrapped in a small TIFF file of
//! its own. So it never sees the page's directory. With the directory, it would drop extra samples
//! of images that call themselves RGB, invert images whose zero is white, refuse palettes, read
//! only the first plane of planar images, and read sparse tiles from byte 0.

use std::cell::Cell;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use hsipack_format::{DType, Error, Result};
use tiff::decoder::{Decoder, Limits};

use crate::Access;
use crate::flat::{ByteSource, swap_bytes};

/// The largest strip or tile that is accepted, decoded.
const MAX_CHUNK: u64 = 2 << 30;
/// Size of the directory that a chunk is wrapped in, header included.
const WRAPPER: usize = 8 + 2 + 11 * 12 + 4;

/// Compression schemes that can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Lzw,
    Deflate,
    PackBits,
    Zstd,
}

impl Compression {
    /// The scheme with this TIFF number.
    pub(super) fn from_tag(number: u64) -> Result<Self> {
        let name = match number {
            1 => return Ok(Self::None),
            5 => return Ok(Self::Lzw),
            8 | 32946 => return Ok(Self::Deflate),
            32773 => return Ok(Self::PackBits),
            50000 => return Ok(Self::Zstd),
            2..=4 => "CCITT fax",
            6 | 7 => "JPEG",
            33003 | 33005 | 34712 => "JPEG 2000",
            34887 => "LERC",
            34925 => "LZMA",
            50001 => "WebP",
            50002 | 52546 => "JPEG XL",
            _ => "an unknown scheme",
        };
        Err(Error::unsupported(format!("compressed by {name} (TIFF compression {number})"))
            .with_remedy("rewrite it, e.g. gdal_translate -co COMPRESS=DEFLATE IN OUT"))
    }

    fn tag(self) -> u16 {
        match self {
            Self::None => 1,
            Self::Lzw => 5,
            Self::Deflate => 8,
            Self::PackBits => 32773,
            Self::Zstd => 50000,
        }
    }

    /// The most bytes that one compressed byte can stand for. A file that declares more is wrong,
    /// and is refused before memory is allocated for it.
    fn most_per_byte(self) -> u64 {
        match self {
            Self::None => 1,
            Self::PackBits => 128,
            Self::Deflate => 1040,
            // Codes have at least 9 bits and stand for at most 4096 bytes.
            Self::Lzw => 4096,
            // A block of four bytes repeats one byte up to 128 KiB.
            Self::Zstd => 1 << 16,
        }
    }
}

/// How all planes are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct PixelLayout {
    /// Columns of a plane.
    pub(super) width: usize,
    /// Rows of a plane.
    pub(super) height: usize,
    /// Samples side by side in a plane.
    pub(super) samples: usize,
    /// Bits per sample in the file; fewer than 8 only with one sample.
    pub(super) bits: usize,
    /// Type of the samples once decoded.
    pub(super) dtype: DType,
    /// Whether the file's numbers are big-endian.
    pub(super) big_endian: bool,
}

impl PixelLayout {
    /// Bytes of a decoded row.
    pub(super) fn row_bytes(&self) -> usize {
        self.width * self.pixel_bytes()
    }

    fn pixel_bytes(&self) -> usize {
        self.samples * self.dtype.size()
    }

    /// Bytes that a row of `columns` takes in the file, before compression; `None` on overflow.
    fn stored_row(&self, columns: u64) -> Option<u64> {
        let bits = columns.checked_mul(self.samples as u64)?.checked_mul(self.bits as u64)?;
        Some(bits.div_ceil(8))
    }
}

/// Where a strip or tile lies. Sparse files omit empty chunks: their offset and length are 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Chunk {
    fn is_sparse(self) -> bool {
        self.offset == 0 && self.length == 0
    }
}

/// One plane's strips or tiles, in reading order.
#[derive(Debug)]
pub(super) struct Plane {
    pub(super) chunks: Vec<Chunk>,
    /// Columns and rows of a chunk.
    pub(super) chunk: (usize, usize),
    /// Whether chunks are tiles, which are stored whole even if they reach beyond the image.
    pub(super) tiled: bool,
    pub(super) compression: Compression,
    pub(super) predictor: u16,
    /// Name of the plane in messages.
    pub(super) name: String,
}

impl Plane {
    /// Whether the samples lie in the file as they are.
    fn is_raw(&self) -> bool {
        self.compression == Compression::None
    }

    /// Rows stored in chunk row `index`.
    fn stored_rows(&self, index: usize, layout: &PixelLayout) -> usize {
        match self.tiled {
            true => self.chunk.1,
            false => self.chunk.1.min(layout.height - index * self.chunk.1),
        }
    }

    /// Checks every chunk against the size of the file, and against the size to which it should
    /// decode.
    ///
    /// # Errors
    /// If a chunk cannot be what the file says.
    pub(super) fn check(&self, layout: &PixelLayout, file_len: u64) -> Result<()> {
        let across = layout.width.div_ceil(self.chunk.0);
        for (index, chunk) in self.chunks.iter().enumerate() {
            let name = || format!("{}, {}", self.name, self.chunk_name(index));
            let rows = self.stored_rows(index / across, layout) as u64;
            let unpacking = if layout.bits < 8 { 8 } else { 1 };
            let stored = layout
                .stored_row(self.chunk.0 as u64)
                .and_then(|row| row.checked_mul(rows))
                // Plain strips are never in memory as a whole.
                .filter(|bytes| self.is_raw() && !self.tiled || *bytes <= MAX_CHUNK / unpacking)
                .ok_or_else(|| {
                    Error::unsupported(format!("{} is larger than 2 GiB decoded", name()))
                        .with_remedy("rewrite the file with smaller strips or tiles")
                })?;
            if chunk.is_sparse() {
                continue;
            }
            if chunk.offset.checked_add(chunk.length).is_none_or(|end| end > file_len) {
                return Err(Error::malformed(format!(
                    "{} should end at byte {}, but the file has only {file_len}",
                    name(),
                    chunk.offset.saturating_add(chunk.length)
                ))
                .with_remedy("copy the file again; it is cut short or damaged"));
            }
            if chunk.length.saturating_mul(self.compression.most_per_byte()) < stored {
                return Err(Error::malformed(format!(
                    "{} has {} bytes, which cannot hold its {stored} bytes of pixels",
                    name(),
                    chunk.length
                )));
            }
        }
        Ok(())
    }

    fn chunk_name(&self, index: usize) -> String {
        format!("{} {}", if self.tiled { "tile" } else { "strip" }, index + 1)
    }
}

/// Bytes that a valid chunk may leave unread: a checksum, an end mark, padding.
const UNREAD: usize = 1024;

/// Returns bytes in small pieces, to see how far a decoder reads.
struct Watched {
    bytes: Cursor<Vec<u8>>,
    /// Bytes in a piece. Decompressors are slow with small pieces of large chunks.
    piece: usize,
    furthest: Rc<Cell<usize>>,
}

impl Read for Watched {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let most = out.len().min(self.piece);
        let count = self.bytes.read(&mut out[..most])?;
        self.furthest.set(self.furthest.get().max(self.bytes.position() as usize));
        Ok(count)
    }
}

impl Seek for Watched {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.bytes.seek(to)
    }
}

/// The number of the last decoded chunk, and its bytes.
type Last = Option<(usize, Arc<Vec<u8>>)>;

/// All planes as one flat array.
pub(super) struct Planes {
    bytes: Arc<dyn ByteSource>,
    layout: PixelLayout,
    planes: Vec<Plane>,
    /// One sample of the value in sparse chunks.
    fill: Vec<u8>,
    /// The last decoded chunk of a file with one plane of large strips. Otherwise it would be
    /// decoded again for every few rows.
    last: Mutex<Last>,
}

impl Planes {
    /// The planes of an image in `bytes`, which have passed [`Plane::check`].
    pub(super) fn new(
        bytes: Arc<dyn ByteSource>,
        layout: PixelLayout,
        planes: Vec<Plane>,
        fill: Vec<u8>,
    ) -> Self {
        Self { bytes, layout, planes, fill, last: Mutex::new(None) }
    }

    /// How many rows are best read together because they lie in the same chunks; 1 if it does not
    /// matter.
    pub(super) fn rows_together(&self) -> usize {
        self.planes
            .iter()
            .filter(|plane| plane.tiled || !plane.is_raw())
            .map(|plane| plane.chunk.1.min(self.layout.height))
            .max()
            .unwrap_or(1)
    }

    /// Reads rows `rows` of plane `index`.
    fn read_rows(&self, index: usize, rows: Range<usize>, out: &mut [u8]) -> Result<()> {
        let plane = &self.planes[index];
        let layout = &self.layout;
        let (row_bytes, pixel) = (layout.row_bytes(), layout.pixel_bytes());
        let across = layout.width.div_ceil(plane.chunk.0);
        for down in rows.start / plane.chunk.1..rows.end.div_ceil(plane.chunk.1) {
            let top = down * plane.chunk.1;
            let local = rows.start.max(top) - top..rows.end.min(top + plane.chunk.1) - top;
            let out =
                &mut out[(top + local.start - rows.start) * row_bytes..][..local.len() * row_bytes];
            if plane.chunk.0 == layout.width && plane.is_raw() && layout.bits >= 8 {
                self.read_raw(plane, down, local, out)?;
                continue;
            }
            for tile in 0..across {
                let first_column = tile * plane.chunk.0;
                let columns = plane.chunk.0.min(layout.width - first_column);
                let (first, values) = self.decoded(index, down * across + tile, local.clone())?;
                let stride = plane.chunk.0 * pixel;
                for (y, row) in out.chunks_exact_mut(row_bytes).enumerate() {
                    row[first_column * pixel..][..columns * pixel].copy_from_slice(
                        &values[(local.start - first + y) * stride..][..columns * pixel],
                    );
                }
            }
        }
        Ok(())
    }

    /// Reads rows `rows` of an uncompressed chunk, which is as wide as the image, straight into
    /// `out`.
    fn read_raw(
        &self,
        plane: &Plane,
        index: usize,
        rows: Range<usize>,
        out: &mut [u8],
    ) -> Result<()> {
        let chunk = plane.chunks[index];
        if chunk.is_sparse() {
            self.fill(out);
            return Ok(());
        }
        let offset = chunk.offset + (rows.start * self.layout.row_bytes()) as u64;
        self.bytes.read_at(offset, out)?;
        self.to_native(out);
        Ok(())
    }

    fn to_native(&self, values: &mut [u8]) {
        if self.layout.big_endian != cfg!(target_endian = "big") {
            swap_bytes_anywhere(values, self.layout.dtype.size());
        }
    }

    fn fill(&self, out: &mut [u8]) {
        for sample in out.chunks_exact_mut(self.fill.len()) {
            sample.copy_from_slice(&self.fill);
        }
    }

    /// At least the rows `rows` of a chunk, decoded, and the number of the first row that is
    /// included.
    fn decoded(
        &self,
        plane: usize,
        index: usize,
        rows: Range<usize>,
    ) -> Result<(usize, Arc<Vec<u8>>)> {
        let (number, plane) = (index, &self.planes[plane]);
        let chunk = plane.chunks[number];
        let across = self.layout.width.div_ceil(plane.chunk.0);
        let stored = plane.stored_rows(number / across, &self.layout);
        if chunk.is_sparse() {
            let mut values = vec![0; rows.len() * plane.chunk.0 * self.layout.pixel_bytes()];
            self.fill(&mut values);
            return Ok((rows.start, Arc::new(values)));
        }
        if plane.is_raw() {
            return Ok((rows.start, Arc::new(self.raw_rows(plane, chunk, rows)?)));
        }
        let whole = rows.len() == stored;
        if whole || across > 1 || self.planes.len() > 1 {
            // Rows come one after the other, so nothing beyond the last one needs decoding.
            return Ok((0, Arc::new(self.decode(plane, number, rows.end)?)));
        }
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((last_number, values)) = &*last
            && *last_number == number
        {
            return Ok((0, Arc::clone(values)));
        }
        *last = None;
        let values = Arc::new(self.decode(plane, number, stored)?);
        *last = Some((number, Arc::clone(&values)));
        Ok((0, values))
    }

    /// Rows `rows` of an uncompressed chunk.
    fn raw_rows(&self, plane: &Plane, chunk: Chunk, rows: Range<usize>) -> Result<Vec<u8>> {
        let stored_row = self.stored_row(plane);
        let mut values = vec![0; rows.len() * stored_row];
        self.bytes.read_at(chunk.offset + (rows.start * stored_row) as u64, &mut values)?;
        if self.layout.bits < 8 {
            return Ok(unpack(&values, stored_row, plane.chunk.0, self.layout.bits));
        }
        self.to_native(&mut values);
        Ok(values)
    }

    fn stored_row(&self, plane: &Plane) -> usize {
        // Checked when the file was opened.
        self.layout.stored_row(plane.chunk.0 as u64).unwrap_or(0) as usize
    }

    /// The first `rows` rows of a compressed chunk.
    fn decode(&self, plane: &Plane, number: usize, rows: usize) -> Result<Vec<u8>> {
        let chunk = plane.chunks[number];
        let stored_row = self.stored_row(plane);
        let mut wrapped = vec![0; WRAPPER + chunk.length as usize];
        let (wrapper, data) = wrapped.split_at_mut(WRAPPER);
        self.wrap(plane, chunk, rows, wrapper)?;
        self.bytes.read_at(chunk.offset, data)?;
        let mut values = vec![0; stored_row * rows];
        let mut limits = Limits::default();
        limits.intermediate_buffer_size = wrapped.len();
        let furthest = Rc::new(Cell::new(0));
        let len = wrapped.len();
        let piece = (len / 16).clamp(UNREAD, 16 * UNREAD);
        let bytes = Cursor::new(wrapped);
        Decoder::new(Watched { bytes, piece, furthest: Rc::clone(&furthest) })
            .map(|decoder| decoder.with_limits(limits))
            .and_then(|mut decoder| decoder.read_chunk_bytes(0, &mut values))
            .map_err(|error| {
                let name = plane.chunk_name(number);
                Error::malformed(format!("{}, {name} cannot be decoded: {error}", plane.name))
                    .with_remedy("copy the file again; it is damaged")
                    .caused_by(error)
            })?;
        let across = self.layout.width.div_ceil(plane.chunk.0);
        let stored = plane.stored_rows(number / across, &self.layout);
        // Writers may fill the last strip up to the height of the others.
        let whole = rows == stored && (plane.tiled || stored == plane.chunk.1);
        if whole && len - furthest.get() > UNREAD {
            let name = plane.chunk_name(number);
            return Err(Error::malformed(format!(
                "{}, {name} decodes to more than its {} bytes of pixels",
                plane.name,
                values.len()
            ))
            .with_remedy("copy the file again; it is damaged"));
        }
        if self.layout.bits < 8 {
            return Ok(unpack(&values, stored_row, plane.chunk.0, self.layout.bits));
        }
        Ok(values)
    }

    /// Writes a TIFF header and directory for a chunk of `rows` rows, whose bytes follow it.
    fn wrap(&self, plane: &Plane, chunk: Chunk, rows: usize, out: &mut [u8]) -> Result<()> {
        let layout = &self.layout;
        let too_large = || Error::unsupported(format!("{} has a chunk of 4 GiB", plane.name));
        let u32_of = |value: usize| u32::try_from(value).map_err(|_| too_large());
        let length = u32::try_from(chunk.length).map_err(|_| too_large())?;
        let sample_format = match layout.dtype {
            DType::F16 | DType::F32 | DType::F64 => 3,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => 2,
            _ => 1,
        };
        let entries: [(u16, u32); 11] = [
            (256, u32_of(plane.chunk.0)?),
            (257, u32_of(rows)?),
            (258, layout.bits as u32),
            (259, u32::from(plane.compression.tag())),
            (262, 1),
            (273, WRAPPER as u32),
            (277, layout.samples as u32),
            (278, u32_of(rows)?),
            (279, length),
            (317, u32::from(plane.predictor)),
            (339, sample_format),
        ];
        let mut writer = Writer { out, at: 0, big_endian: layout.big_endian };
        writer.put(if layout.big_endian { *b"MM" } else { *b"II" });
        writer.u16(42);
        writer.u32(8);
        writer.u16(entries.len() as u16);
        for (tag, value) in entries {
            writer.u16(tag);
            writer.u16(4);
            writer.u32(1);
            writer.u32(value);
        }
        writer.u32(0);
        Ok(())
    }
}

/// Writes numbers into a slice.
struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    big_endian: bool,
}

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.out[self.at..][..N].copy_from_slice(&bytes);
        self.at += N;
    }

    fn u16(&mut self, value: u16) {
        self.put(if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }

    fn u32(&mut self, value: u32) {
        self.put(if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() });
    }
}

/// Unpacks samples of less than 8 bits into a byte each. The first sample is in the highest bits,
/// and rows start on a byte.
fn unpack(packed: &[u8], packed_row: usize, width: usize, bits: usize) -> Vec<u8> {
    let mask = (1u8 << bits) - 1;
    let per_byte = 8 / bits;
    packed
        .chunks_exact(packed_row)
        .flat_map(|row| {
            (0..width).map(move |x| row[x / per_byte] >> (8 - bits * (x % per_byte + 1)) & mask)
        })
        .collect()
}

/// [`swap_bytes`] for bytes that may not be aligned.
fn swap_bytes_anywhere(bytes: &mut [u8], size: usize) {
    if (bytes.as_ptr() as usize).is_multiple_of(size) {
        swap_bytes(bytes, size);
    } else {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

impl ByteSource for Planes {
    /// Always decodes whole rows, even for a part of a row.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let row_bytes = self.layout.row_bytes();
        let height = self.layout.height;
        let start = usize::try_from(offset).map_err(|_| Error::malformed("beyond the image"))?;
        let mut at = start;
        let mut out = out;
        while !out.is_empty() {
            let (row, within) = (at / row_bytes, at % row_bytes);
            let (plane, y) = (row / height, row % height);
            let whole = (out.len() / row_bytes).min(height - y);
            let take = if within == 0 && whole > 0 {
                let take = whole * row_bytes;
                self.read_rows(plane, y..y + whole, &mut out[..take])?;
                take
            } else {
                let take = (row_bytes - within).min(out.len());
                let mut whole_row = vec![0; row_bytes];
                self.read_rows(plane, y..y + 1, &mut whole_row)?;
                out[..take].copy_from_slice(&whole_row[within..][..take]);
                take
            };
            at += take;
            out = &mut out[take..];
        }
        Ok(())
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_few_bits_are_unpacked_from_the_highest_bit() {
        assert_eq!(unpack(&[0b1010_0000, 0b0110_0000], 1, 3, 1), [1, 0, 1, 0, 1, 1]);
        assert_eq!(unpack(&[0b1101_0010], 1, 4, 2), [3, 1, 0, 2]);
        assert_eq!(unpack(&[0xA5, 0xF0], 2, 3, 4), [10, 5, 15]);
    }

    #[test]
    fn a_chunk_cannot_claim_more_than_its_bytes_can_hold() {
        let layout = PixelLayout {
            width: 1000,
            height: 1000,
            samples: 100,
            bits: 32,
            dtype: DType::F32,
            big_endian: false,
        };
        let plane = |compression, length| Plane {
            chunks: vec![Chunk { offset: 8, length }],
            chunk: (1000, 1000),
            tiled: false,
            compression,
            predictor: 1,
            name: "page 1".to_owned(),
        };
        let check = |compression, length| plane(compression, length).check(&layout, 1 << 40);
        assert!(check(Compression::None, 400_000_000).is_ok());
        assert!(check(Compression::None, 399_999_999).is_err());
        assert!(check(Compression::Deflate, 400_000).is_ok());
        assert!(check(Compression::Deflate, 300_000).is_err());
        assert!(plane(Compression::None, 400_000_000).check(&layout, 400_000_007).is_err());
        assert!(check(Compression::Deflate, u64::MAX).is_err());
    }
}
