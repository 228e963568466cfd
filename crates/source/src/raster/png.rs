//! PNG, for label masks: grayscale of any depth, or palette; and for pictures, whose colours are
//! the bands of a cube.
//!
//! Numbers are read as they are stored: class ids 0 to 3 of a 2-bit image stay 0 to 3, and the
//! pixels of a palette image are its indices, whatever colours the palette gives them. A 1-bit
//! grayscale image is boolean. As masks, colour images have no class ids and are refused. As cubes,
//! the pixels of a palette image have the colours of the palette.
//!
//! Rows are decoded when they are read. Only an interlaced image, whose first row is complete at
//! the very end, is decoded as a whole. It may take up to 1 GiB.

use std::io::{BufReader, Read};
use std::path::Path;

use hsipack_format::{Color, CubeShape, DType, Error, Opt, Result, remedy};
use hsipack_store::bounded_read;
use hsipack_store::window::Window;
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Reader, Transformations};

use crate::flat::{FlatLayout, FlatSource, StreamBytes};
use crate::{AxisOrder, CubeInfo, OpenOptions, Source};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
/// Deflate cannot compress better than this.
const BEST_DEFLATE_RATIO: u64 = 1032;
/// Bytes that the decoder may allocate for text, profiles and one row, in addition to the rows
/// counted below.
const DECODER_BYTES: usize = 16 << 20;
const LARGEST_INTERLACED: u64 = 1 << 30;
/// Pictures are cubes only if users name them.
pub(crate) const PICTURE_NOTE: &str = "a picture: its colours are the bands";

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(_path: &Path, head: &[u8]) -> bool {
    head.starts_with(SIGNATURE)
}

/// Opens the label mask, or the picture, in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or a mask holds colours.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    open_image(path, options).map_err(|error| error.at(path))
}

fn open_image(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if let Some(variable) = &options.variable {
        return Err(Error::unsupported(format!("a PNG image has no variable '{variable}' in it"))
            .with_remedy(format!("leave out ::{variable}")));
    }
    let is_mask = options.mask && !options.colors;
    let image = Image::measure(path, is_mask)?;
    let shape = CubeShape::new(image.height, image.width, image.bands());
    let mut info = CubeInfo::new(image.format(), shape, image.dtype(), path);
    match is_mask {
        true => {
            info.notes.extend(image.note());
            info.class_colors = image.class_colors(path);
        }
        false if image.bands() > 1 => info.notes.push(PICTURE_NOTE.to_owned()),
        false => {}
    }
    let layout =
        FlatLayout { offset: 0, order: AxisOrder::BIP, big_endian: true, rows_reversed: false };
    let path = path.to_owned();
    let bytes =
        StreamBytes::new(path.clone(), 0, move || Ok(Box::new(Pixels::open(&path, image)?)));
    Ok(Box::new(FlatSource::new(info, layout, bytes)))
}

/// The most rows or columns that the PNG specification allows. The decoder accepts more.
const LONGEST_SIDE: u32 = (1 << 31) - 1;

/// Entries of the header of a PNG file.
#[derive(Clone, Copy, PartialEq)]
struct Image {
    width: usize,
    height: usize,
    bits: usize,
    /// Numbers of a pixel in the file.
    channels: usize,
    palette: bool,
    interlaced: bool,
    /// Whether pixels of a palette are colours, not indices.
    colours: bool,
}

impl Image {
    /// Reads the header and checks that the file can hold the image that it describes.
    fn measure(path: &Path, mask: bool) -> Result<Image> {
        let file = bounded_read::window(path)?;
        let len = file.len();
        let mut decoder = Decoder::new(BufReader::new(file));
        let image = Image::of(decoder.read_header_info().map_err(malformed)?, mask)?;
        if image.packed_len() > len.saturating_mul(BEST_DEFLATE_RATIO) {
            return Err(Error::malformed(format!(
                "{len} bytes cannot hold the {} x {} pixels that the header states",
                image.width, image.height
            ))
            .with_remedy("copy the file again; it is cut short or damaged"));
        }
        if image.interlaced && image.packed_len() > LARGEST_INTERLACED {
            return Err(Error::unsupported("an interlaced PNG of more than 1 GiB")
                .with_remedy("save it without interlacing"));
        }
        Ok(image)
    }

    fn of(info: &png::Info<'_>, mask: bool) -> Result<Image> {
        let colour = match info.color_type {
            ColorType::Grayscale | ColorType::Indexed => None,
            ColorType::Rgb => Some("RGB"),
            ColorType::Rgba => Some("RGBA"),
            ColorType::GrayscaleAlpha => Some("grayscale with alpha"),
        };
        if let Some(colour) = colour.filter(|_| mask) {
            return Err(Error::unsupported(format!(
                "the PNG has {colour} pixels, which are not class ids"
            ))
            .with_remedy(remedy![
                "say which color is which class with ",
                Opt::MaskColors,
                ", or save the class ids as a grayscale or palette PNG, without alpha"
            ]));
        }
        let bits = match info.bit_depth {
            BitDepth::One => 1,
            BitDepth::Two => 2,
            BitDepth::Four => 4,
            BitDepth::Eight => 8,
            BitDepth::Sixteen => 16,
        };
        let image = Image {
            width: info.width as usize,
            height: info.height as usize,
            bits,
            channels: info.color_type.samples(),
            palette: info.color_type == ColorType::Indexed,
            interlaced: info.interlaced,
            colours: !mask,
        };
        if image.width == 0 || image.height == 0 {
            return Err(Error::malformed("the image is empty").with_remedy("copy the file again"));
        }
        if info.width.max(info.height) > LONGEST_SIDE {
            return Err(Error::malformed(format!(
                "the header states {} x {} pixels, but a side of a PNG has at most {LONGEST_SIDE}",
                image.width, image.height
            ))
            .with_remedy("copy the file again; it is damaged"));
        }
        Ok(image)
    }

    /// Bytes of a row as PNG packs it; at most 16 GiB, because of the longest side.
    fn packed_row_len(&self) -> usize {
        (self.width * self.channels * self.bits).div_ceil(8)
    }

    /// Bands of the cube.
    fn bands(&self) -> usize {
        if self.palette && self.colours { COLOURS } else { self.channels }
    }

    fn packed_len(&self) -> u64 {
        self.packed_row_len() as u64 * self.height as u64
    }

    fn dtype(&self) -> DType {
        match self.bits {
            1 if !self.palette => DType::Bool,
            16 => DType::U16,
            _ => DType::U8,
        }
    }

    fn format(&self) -> String {
        let colours = match self.channels {
            _ if self.palette => "palette",
            1 => "grayscale",
            2 => "grayscale with alpha",
            3 => "RGB",
            _ => "RGBA",
        };
        format!("PNG {}-bit {colours}", self.bits)
    }

    /// The colours of the palette, if they tell classes apart: programs also write palettes of
    /// greys.
    fn class_colors(&self, path: &Path) -> Vec<Option<Color>> {
        if !self.palette {
            return Vec::new();
        }
        let palette = || {
            let file = bounded_read::window(path).ok()?;
            let limits = Limits { bytes: DECODER_BYTES };
            let decoder = Decoder::new_with_limits(BufReader::new(file), limits);
            Some(decoder.read_info().ok()?.info().palette.as_deref()?.to_vec())
        };
        let palette = palette().unwrap_or_default();
        let (colors, _) = palette.as_chunks::<COLOURS>();
        let is_grey = |[red, green, blue]: &Color| red == green && green == blue;
        if colors.iter().all(is_grey) {
            return Vec::new();
        }
        colors.iter().copied().map(Some).collect()
    }

    /// A note that viewers stretch grayscale images of few bits, for users who compare with them.
    fn note(&self) -> Option<String> {
        let stretched = !self.palette && self.bits < 8;
        stretched.then(|| {
            format!(
                "class ids are the stored numbers 0 to {}; other programs may show them stretched to 255",
                (1 << self.bits) - 1
            )
        })
    }
}

/// Colours of an entry of a palette.
const COLOURS: usize = 3;

/// The numbers of an image from first to last, one or (big-endian) two bytes each.
struct Pixels {
    image: Image,
    /// The colours of a palette, if pixels are replaced by them.
    palette: Vec<u8>,
    reader: Reader<BufReader<Window>>,
    /// The whole image as PNG packs it, if it is interlaced.
    whole: Option<Vec<u8>>,
    next_row: usize,
    row: Vec<u8>,
    /// Bytes of `row` that were read.
    used: usize,
}

impl Pixels {
    fn open(path: &Path, image: Image) -> Result<Pixels> {
        let file = bounded_read::window(path)?;
        let limits = Limits { bytes: DECODER_BYTES.saturating_add(2 * image.packed_row_len()) };
        let mut decoder = Decoder::new_with_limits(BufReader::new(file), limits);
        decoder.set_transformations(Transformations::IDENTITY);
        decoder.set_ignore_text_chunk(true);
        decoder.set_ignore_iccp_chunk(true);
        let mut reader = decoder.read_info().map_err(malformed)?;
        if Image::of(reader.info(), !image.colours)? != image {
            return Err(Error::malformed("the file changed while it was read").at(path));
        }
        if reader.info().is_animated() {
            return Err(Error::unsupported("an animated PNG").with_remedy("save a single frame"));
        }
        let whole = if image.interlaced { Some(decode_whole(&mut reader, image)?) } else { None };
        let palette = match image.palette && image.colours {
            true => reader.info().palette.as_deref().unwrap_or_default().to_vec(),
            false => Vec::new(),
        };
        Ok(Pixels { image, palette, reader, whole, next_row: 0, row: Vec::new(), used: 0 })
    }

    /// Decodes the next row. Leaves `row` empty after the last one.
    fn advance(&mut self) -> std::result::Result<(), DecodingError> {
        self.row.clear();
        self.used = 0;
        if self.next_row == self.image.height {
            return Ok(());
        }
        let len = self.image.packed_row_len();
        if let Some(whole) = &self.whole {
            unpack(&whole[self.next_row * len..][..len], self.image, &mut self.row);
        } else if let Some(row) = self.reader.next_row()? {
            unpack(row.data(), self.image, &mut self.row);
        }
        if self.image.palette && self.image.colours {
            let colour = |index: &u8| {
                let start = usize::from(*index) * COLOURS;
                self.palette.get(start..start + COLOURS)
            };
            let colours: Option<Vec<&[u8]>> = self.row.iter().map(colour).collect();
            let colours = colours.map(|colours| colours.concat());
            self.row = colours.ok_or_else(|| {
                let what = "a pixel has a colour that the palette lacks";
                DecodingError::IoError(std::io::Error::new(std::io::ErrorKind::InvalidData, what))
            })?;
        }
        self.next_row += 1;
        if self.next_row == self.image.height && self.whole.is_none() {
            // The decoder compares the last checksum only after the last row.
            self.reader.next_row()?;
        }
        Ok(())
    }
}

impl Read for Pixels {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.used == self.row.len() {
            self.advance()?;
        }
        let read = (&self.row[self.used..]).read(out)?;
        self.used += read;
        Ok(read)
    }
}

fn decode_whole(reader: &mut Reader<BufReader<Window>>, image: Image) -> Result<Vec<u8>> {
    // Both are the same in a valid file, and the second was checked against the file's size.
    let len = reader.output_buffer_size().filter(|len| *len as u64 == image.packed_len());
    let len = len.ok_or_else(|| Error::malformed("the image has an impossible size"))?;
    let mut whole = vec![0; len];
    reader.next_frame(&mut whole).map_err(malformed)?;
    Ok(whole)
}

/// Appends the pixels of a packed row. Pixels of up to 8 bits take one byte each; their high bits
/// come first.
fn unpack(packed: &[u8], image: Image, out: &mut Vec<u8>) {
    let bits = image.bits;
    if bits >= 8 {
        out.extend_from_slice(packed);
        return;
    }
    let mask = (1u8 << bits) - 1;
    let pixels = packed
        .iter()
        .flat_map(|byte| (0..8 / bits).map(move |i| (byte >> (8 - bits * (i + 1))) & mask));
    out.extend(pixels.take(image.width * image.channels));
}

fn malformed(error: DecodingError) -> Error {
    let what = match &error {
        DecodingError::IoError(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => {
            "the PNG file is cut short".to_owned()
        }
        other => format!("cannot decode the PNG file: {other}"),
    };
    Error::malformed(what).with_remedy("copy the file again, or save it again").caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use hsipack_format::ErrorKind;
    use proptest::prelude::*;

    use super::*;
    use crate::RowBuffer;

    fn encode(width: u32, colour: ColorType, depth: BitDepth, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let row = (width as usize * colour.samples() * depth as usize).div_ceil(8);
        let mut encoder = png::Encoder::new(&mut bytes, width, (data.len() / row) as u32);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if colour == ColorType::Indexed {
            encoder.set_palette(vec![9; 3 * 256.min(1 << depth as usize)]);
        }
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
    }

    fn open_bytes(bytes: &[u8], mask: bool) -> Result<(CubeInfo, Vec<u8>)> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let source = open(file.path(), &OpenOptions { mask, ..Default::default() })?;
        let mut out = RowBuffer::new();
        source.read_rows(0..source.info().shape.rows, &mut out)?;
        Ok((source.info().clone(), out.bytes().to_vec()))
    }

    #[test]
    fn samples_keep_their_stored_numbers_at_every_depth() {
        for (depth, data, want, dtype) in [
            (BitDepth::One, &[0b1010_0000, 0b0100_0000][..], &[1, 0, 1, 0, 1, 0][..], DType::Bool),
            (BitDepth::Two, &[0b0001_1000, 0b1111_0000], &[0, 1, 2, 3, 3, 0], DType::U8),
            (BitDepth::Four, &[0x12, 0x30, 0xFE, 0xD0], &[1, 2, 3, 15, 14, 13], DType::U8),
            (BitDepth::Eight, &[1, 2, 3, 255, 0, 128], &[1, 2, 3, 255, 0, 128], DType::U8),
        ] {
            let (info, pixels) =
                open_bytes(&encode(3, ColorType::Grayscale, depth, data), true).unwrap();
            assert_eq!((pixels.as_slice(), info.dtype), (want, dtype));
            assert_eq!(info.shape, CubeShape::new(2, 3, 1));
            assert_eq!(info.notes.len(), usize::from((depth as u8) < 8));
        }
    }

    #[test]
    fn sides_longer_than_the_specification_allows_are_refused() {
        // Found by fuzzing: the number of bytes of this image does not fit into 64 bits.
        let png = claiming(BitDepth::Sixteen, 0xFCFF_FFEA, 0xFFFF_FFEC);
        let error = open_bytes(&png, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.to_string().contains("4244635626 x 4294967276 pixels"), "{error}");
    }

    /// A grayscale image of one pixel whose header states another width and height.
    fn claiming(depth: BitDepth, width: u32, height: u32) -> Vec<u8> {
        let mut png = encode(1, ColorType::Grayscale, depth, &[7; 2][..depth as usize / 8]);
        png[16..20].copy_from_slice(&width.to_be_bytes());
        png[20..24].copy_from_slice(&height.to_be_bytes());
        let mut checksum = flate2::Crc::new();
        checksum.update(&png[12..29]);
        png[29..33].copy_from_slice(&checksum.sum().to_be_bytes());
        png
    }

    #[test]
    fn palette_pixels_are_indices_of_type_uint8() {
        let png = encode(3, ColorType::Indexed, BitDepth::One, &[0b1010_0000]);
        let (info, pixels) = open_bytes(&png, true).unwrap();
        assert_eq!((pixels, info.dtype, info.notes.len()), (vec![1, 0, 1], DType::U8, 0));
    }

    #[test]
    fn sixteen_bits_come_in_native_byte_order() {
        let png = encode(2, ColorType::Grayscale, BitDepth::Sixteen, &[1, 2, 0xFF, 0]);
        let (info, pixels) = open_bytes(&png, true).unwrap();
        assert_eq!(info.dtype, DType::U16);
        assert_eq!(pixels, [0x0102u16.to_ne_bytes(), 0xFF00u16.to_ne_bytes()].concat());
    }

    #[test]
    fn colours_are_refused_as_masks_and_bands_of_cubes() {
        for colour in [ColorType::Rgb, ColorType::Rgba, ColorType::GrayscaleAlpha] {
            let png = encode(1, colour, BitDepth::Eight, &vec![7; colour.samples()]);
            let error = open_bytes(&png, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.remedy().unwrap().to_string().contains("palette"), "{error}");
            let (info, pixels) = open_bytes(&png, false).unwrap();
            assert_eq!((info.shape, info.notes.len()), (CubeShape::new(1, 1, colour.samples()), 1));
            assert_eq!(pixels, vec![7; colour.samples()]);
        }
        let png = encode(1, ColorType::Grayscale, BitDepth::Eight, &[7]);
        let (info, pixels) = open_bytes(&png, false).unwrap();
        assert_eq!((info.shape.bands, pixels), (1, vec![7]));
        // All colours of the palette are 9.
        let png = encode(3, ColorType::Indexed, BitDepth::One, &[0b1010_0000]);
        let (info, pixels) = open_bytes(&png, false).unwrap();
        assert_eq!((info.shape, pixels), (CubeShape::new(1, 3, 3), vec![9; 9]));
    }

    #[test]
    fn a_size_the_file_cannot_hold_is_refused_before_anything_is_allocated() {
        let png = claiming(BitDepth::Eight, LONGEST_SIDE, LONGEST_SIDE);
        let error = open_bytes(&png, true).unwrap_err();
        assert!(error.what().contains("cannot hold the 2147483647 x 2147483647"), "{error}");
    }

    #[test]
    fn a_file_cut_short_anywhere_is_an_error() {
        let data: Vec<u8> = (0..200).map(|i| (i * 37 % 251) as u8).collect();
        let png = encode(20, ColorType::Grayscale, BitDepth::Eight, &data);
        let end = png.len() - 12; // The last chunk, IEND, is empty.
        for len in 9..end {
            let error = open_bytes(&png[..len], true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "{len}: {error}");
        }
        assert_eq!(open_bytes(&png, true).unwrap().1, data);
    }

    #[test]
    fn a_changed_pixel_fails_the_checksum() {
        let data: Vec<u8> = (0..200).map(|i| (i * 37 % 251) as u8).collect();
        let mut png = encode(20, ColorType::Grayscale, BitDepth::Eight, &data);
        let position = png.len() - 20;
        png[position] ^= 1;
        assert!(open_bytes(&png, true).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_damaged_file_never_panics(at in 0usize..120, byte in any::<u8>()) {
            let mut png = encode(5, ColorType::Indexed, BitDepth::Four, &[0x12, 0x34, 0x50]);
            let position = at % png.len();
            png[position] = byte;
            let _ = open_bytes(&png, true);
        }
    }
}
