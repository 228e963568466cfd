//! The directories of a TIFF file: header, tags, and where the strips and tiles of a page lie.
//!
//! ```text
//! header      II|MM, 42 (classic) or 43 (BigTIFF), offset of the first directory
//! directory   number of entries, entries (tag, type, count, value or its offset), next directory
//! ```
//!
//! Nothing here trusts the file: every offset and count is checked against the size of the file
//! before anything is read or allocated, and the chain of directories must not go in circles.

use std::collections::HashSet;

use hsipack_format::{Error, Result};

use crate::flat::ByteSource;

/// No cube has more bands, so no file needs more directories.
const MAX_PAGES: usize = 1 << 14;
/// No writer puts more entries into one directory.
const MAX_ENTRIES: u64 = 4096;
/// No pyramid has more levels, so no directory needs more directories within it.
const MAX_SUB_PAGES: u64 = 256;
/// No text tag is longer (GDAL metadata of 500 bands take 200 KB).
const MAX_TEXT: u64 = 64 << 20;

const SUBFILE_TYPE: u16 = 254;
/// The older tag: 2 is a reduced copy.
const OLD_SUBFILE_TYPE: u16 = 255;
const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS_PER_SAMPLE: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const FILL_ORDER: u16 = 266;
pub(super) const DESCRIPTION: u16 = 270;
const STRIP_OFFSETS: u16 = 273;
const SAMPLES_PER_PIXEL: u16 = 277;
const ROWS_PER_STRIP: u16 = 278;
const STRIP_BYTE_COUNTS: u16 = 279;
const PLANAR_CONFIGURATION: u16 = 284;
pub(super) const PAGE_NAME: u16 = 285;
const PREDICTOR: u16 = 317;
const SUB_DIRECTORIES: u16 = 330;
const TILE_WIDTH: u16 = 322;
const TILE_HEIGHT: u16 = 323;
const TILE_OFFSETS: u16 = 324;
const TILE_BYTE_COUNTS: u16 = 325;
/// The meaning of the samples that are no colours: 1 and 2 are alpha.
pub(super) const EXTRA_SAMPLES: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;
/// Private tags in which programs write wavelengths, or names of pages, such as those of classes.
pub(super) const PRIVATE: [u16; 2] = [65000, 65001];
pub(super) const XMP: u16 = 700;
pub(super) const IMAGEJ_SIZES: u16 = 50838;
pub(super) const IMAGEJ_TEXTS: u16 = 50839;
const GDAL_METADATA: u16 = 42112;
const GDAL_NODATA: u16 = 42113;
pub(super) const GEO_KEYS: u16 = 34735;
pub(super) const GEO_TEXTS: u16 = 34737;
pub(super) const MODEL_PIXEL_SCALE: u16 = 33550;
pub(super) const MODEL_TIE_POINTS: u16 = 33922;
pub(super) const MODEL_TRANSFORMATION: u16 = 34264;

/// The tags that matter here. Others are not kept, because thousands of directories that overlap in
/// the file could have thousands of entries each.
const RELEVANT_TAGS: [u16; 35] = [
    PRIVATE[0],
    PRIVATE[1],
    PAGE_NAME,
    XMP,
    IMAGEJ_SIZES,
    IMAGEJ_TEXTS,
    SUBFILE_TYPE,
    OLD_SUBFILE_TYPE,
    SUB_DIRECTORIES,
    WIDTH,
    HEIGHT,
    BITS_PER_SAMPLE,
    COMPRESSION,
    PHOTOMETRIC,
    FILL_ORDER,
    DESCRIPTION,
    STRIP_OFFSETS,
    SAMPLES_PER_PIXEL,
    ROWS_PER_STRIP,
    STRIP_BYTE_COUNTS,
    PLANAR_CONFIGURATION,
    PREDICTOR,
    TILE_WIDTH,
    TILE_HEIGHT,
    TILE_OFFSETS,
    TILE_BYTE_COUNTS,
    EXTRA_SAMPLES,
    SAMPLE_FORMAT,
    GDAL_METADATA,
    GDAL_NODATA,
    GEO_KEYS,
    GEO_TEXTS,
    MODEL_PIXEL_SCALE,
    MODEL_TIE_POINTS,
    MODEL_TRANSFORMATION,
];

/// One directory entry.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u16,
    kind: u16,
    count: u64,
    /// Where the values lie.
    at: u64,
}

impl Entry {
    /// Bytes of one value, or `None` for a type the specification does not know.
    fn value_size(self) -> Option<u64> {
        Some(match self.kind {
            1 | 2 | 6 | 7 => 1,
            3 | 8 => 2,
            4 | 9 | 11 | 13 => 4,
            5 | 10 | 12 | 16 | 17 | 18 => 8,
            _ => return None,
        })
    }
}

/// One image of the file: a directory's tags that matter here, checked one by one but not yet
/// against each other.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Page {
    entries: Vec<Entry>,
    /// NewSubfileType: bit 0 a reduced copy, bit 2 a transparency mask.
    pub subfile_type: u64,
    /// Columns.
    pub width: u64,
    /// Rows.
    pub height: u64,
    /// Values per pixel.
    pub samples: u64,
    /// Bits per value, the same for all samples.
    pub bits: u64,
    /// SampleFormat, the same for all samples: 1 unsigned, 2 signed, 3 float, 5 and 6 complex.
    pub sample_format: u64,
    /// Compression scheme.
    pub compression: u64,
    /// Predictor: 1 none, 2 horizontal differences, 3 floating point.
    pub predictor: u64,
    /// PhotometricInterpretation: 0 white is zero, 1 black is zero, 2 RGB, 3 palette.
    pub photometric: Option<u64>,
    /// Whether each sample has strips or tiles of its own.
    pub planar: bool,
    /// FillOrder, 2 if the bits of a byte are reversed.
    pub fill_order: u64,
    /// Width and height of tiles, or of strips if there are no tiles.
    pub chunk: (u64, u64),
    /// Whether chunks are tiles.
    pub tiled: bool,
    /// Whether there are GeoTIFF keys.
    pub geo: bool,
}

/// An open TIFF file: its bytes and how to read numbers from them.
#[doc(hidden)]
pub struct Directories<'a> {
    bytes: &'a dyn ByteSource,
    len: u64,
    /// Whether the file's numbers are big-endian.
    pub big_endian: bool,
    /// Whether offsets have 8 bytes.
    pub big_tiff: bool,
}

/// Whether a file that starts with `head` is a TIFF file.
pub(crate) fn has_signature(head: &[u8]) -> bool {
    matches!(head.get(..4), Some(b"II\x2A\0" | b"MM\0\x2A" | b"II\x2B\0" | b"MM\0\x2B"))
}

impl<'a> Directories<'a> {
    /// Reads the header and all directories of a file of `len` bytes.
    ///
    /// # Errors
    /// If the file is cut short or contradicts itself.
    pub fn read(bytes: &'a dyn ByteSource, len: u64) -> Result<(Self, Vec<Page>)> {
        let mut head = [0; 16];
        let available = (len as usize).min(16);
        if available < 8 {
            return Err(Error::malformed("the file ends within its TIFF header"));
        }
        bytes.read_at(0, &mut head[..available])?;
        if !has_signature(&head) {
            return Err(Error::malformed("not a TIFF file"));
        }
        let big_endian = head[0] == b'M';
        let big_tiff = head[2] == 43 || head[3] == 43;
        let this = Self { bytes, len, big_endian, big_tiff };
        let first = if big_tiff {
            if available < 16 || this.u16(&head[4..]) != 8 {
                return Err(Error::malformed("the BigTIFF header is damaged"));
            }
            this.u64(&head[8..])
        } else {
            this.u32(&head[4..])
        };
        let pages = this.pages(first)?;
        Ok((this, pages))
    }

    fn u16(&self, bytes: &[u8]) -> u64 {
        let bytes = [bytes[0], bytes[1]];
        u64::from(if self.big_endian {
            u16::from_be_bytes(bytes)
        } else {
            u16::from_le_bytes(bytes)
        })
    }

    fn u32(&self, bytes: &[u8]) -> u64 {
        let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
        u64::from(if self.big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    fn u64(&self, bytes: &[u8]) -> u64 {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[..8]);
        if self.big_endian { u64::from_be_bytes(eight) } else { u64::from_le_bytes(eight) }
    }

    /// Reads `count` bytes at `offset`, which must lie within the file.
    fn bytes_at(&self, offset: u64, count: u64, what: &str) -> Result<Vec<u8>> {
        if offset.checked_add(count).is_none_or(|end| end > self.len) {
            return Err(Error::malformed(format!(
                "{what} should lie at byte {offset}, but the file has only {} bytes",
                self.len
            ))
            .with_remedy("copy the file again; it is cut short or damaged"));
        }
        let mut bytes = vec![0; count as usize];
        self.bytes.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Follows the chain of directories.
    fn pages(&self, first: u64) -> Result<Vec<Page>> {
        let mut pages = Vec::new();
        let mut visited = HashSet::new();
        let mut next = first;
        while next != 0 {
            if !visited.insert(next) {
                return Err(Error::malformed("the TIFF directories form a loop"));
            }
            if pages.len() == MAX_PAGES {
                return Err(Error::unsupported(format!(
                    "the file has more than {MAX_PAGES} TIFF pages"
                )));
            }
            let number = pages.len() + 1;
            let (page, following) = self
                .directory(next)
                .and_then(|(entries, following)| Ok((self.page(entries)?, following)))
                .map_err(|error| in_page(number, error))?;
            pages.push(page);
            next = following;
        }
        match pages.is_empty() {
            true => Err(Error::malformed("the TIFF file holds no image")),
            false => Ok(pages),
        }
    }

    /// The images in the directories within the directory of `page`: copies of it for pyramids, or
    /// the image of which it is a preview. Images that cannot be read are skipped.
    pub fn sub_pages(&self, page: &Page) -> Vec<Page> {
        let entry = page.entries.iter().find(|entry| entry.tag == SUB_DIRECTORIES);
        let offsets = entry.and_then(|entry| self.numbers(*entry, MAX_SUB_PAGES).ok());
        let page_at = |offset| self.directory(offset).and_then(|(entries, _)| self.page(entries));
        offsets.unwrap_or_default().into_iter().filter_map(|offset| page_at(offset).ok()).collect()
    }

    /// The entries of the directory at `offset`, and where the next one is.
    fn directory(&self, offset: u64) -> Result<(Vec<Entry>, u64)> {
        let (count_size, entry_size, next_size) =
            if self.big_tiff { (8, 20, 8) } else { (2, 12, 4) };
        let count = self.bytes_at(offset, count_size, "a TIFF directory")?;
        let count = if self.big_tiff { self.u64(&count) } else { self.u16(&count) };
        if count == 0 || count > MAX_ENTRIES {
            return Err(Error::malformed(format!("the directory has {count} entries")));
        }
        let start = offset + count_size;
        let bytes = self.bytes_at(start, count * entry_size + next_size, "a TIFF directory")?;
        let mut entries = Vec::new();
        for (index, raw) in
            bytes[..(count * entry_size) as usize].chunks_exact(entry_size as usize).enumerate()
        {
            let value = if self.big_tiff { 12 } else { 8 };
            let mut entry = Entry {
                tag: self.u16(raw) as u16,
                kind: self.u16(&raw[2..]) as u16,
                count: if self.big_tiff { self.u64(&raw[4..]) } else { self.u32(&raw[4..]) },
                at: start + index as u64 * entry_size + value,
            };
            let size = entry.value_size().and_then(|size| size.checked_mul(entry.count));
            let inline = if self.big_tiff { 8 } else { 4 };
            if size.is_none_or(|size| size > inline) {
                let at = &raw[value as usize..];
                entry.at = if self.big_tiff { self.u64(at) } else { self.u32(at) };
            }
            // If a tag occurs twice, the first one counts.
            if RELEVANT_TAGS.contains(&entry.tag)
                && entries.iter().all(|earlier: &Entry| earlier.tag != entry.tag)
            {
                entries.push(entry);
            }
        }
        let next = &bytes[(count * entry_size) as usize..];
        Ok((entries, if self.big_tiff { self.u64(next) } else { self.u32(next) }))
    }

    /// The unsigned numbers of an entry; refuses more than `most`.
    fn numbers(&self, entry: Entry, most: u64) -> Result<Vec<u64>> {
        let tag = entry.tag;
        let size = match entry.kind {
            1 | 3 | 4 | 13 | 16 | 18 => entry.value_size().unwrap_or(1),
            kind => {
                return Err(Error::malformed(format!("tag {tag} is of type {kind}, not a count")));
            }
        };
        if entry.count == 0 || entry.count > most {
            return Err(Error::malformed(format!("tag {tag} has {} values", entry.count)));
        }
        let bytes = self.bytes_at(entry.at, entry.count * size, &format!("tag {tag}"))?;
        Ok(bytes
            .chunks_exact(size as usize)
            .map(|raw| match size {
                1 => u64::from(raw[0]),
                2 => self.u16(raw),
                4 => self.u32(raw),
                _ => self.u64(raw),
            })
            .collect())
    }

    /// The one number of a tag, if there is such a tag.
    fn number(&self, entries: &[Entry], tag: u16) -> Result<Option<u64>> {
        match entries.iter().find(|entry| entry.tag == tag) {
            Some(entry) => Ok(Some(self.numbers(*entry, 1)?[0])),
            None => Ok(None),
        }
    }

    /// The number that all samples share.
    fn shared(&self, entries: &[Entry], tag: u16, samples: u64, what: &str) -> Result<Option<u64>> {
        let Some(entry) = entries.iter().find(|entry| entry.tag == tag) else { return Ok(None) };
        let numbers = self.numbers(*entry, samples)?;
        match numbers.iter().all(|number| *number == numbers[0]) {
            true => Ok(Some(numbers[0])),
            false => Err(Error::unsupported(format!("the bands differ in {what}"))
                .with_remedy("convert the file so that all bands have one type")),
        }
    }

    fn page(&self, entries: Vec<Entry>) -> Result<Page> {
        let number = |tag| self.number(&entries, tag);
        let need = |tag, what: &str| {
            number(tag)?
                .filter(|value| *value > 0)
                .ok_or_else(|| Error::malformed(format!("the image has no {what}")))
        };
        let width = need(WIDTH, "width")?;
        let height = need(HEIGHT, "height")?;
        let samples = number(SAMPLES_PER_PIXEL)?.unwrap_or(1);
        if samples == 0 || samples > u64::from(u16::MAX) {
            return Err(Error::malformed(format!("the image has {samples} samples per pixel")));
        }
        let tiled = entries.iter().any(|entry| entry.tag == TILE_OFFSETS);
        let chunk = if tiled {
            (need(TILE_WIDTH, "tile width")?, need(TILE_HEIGHT, "tile height")?)
        } else {
            let rows = number(ROWS_PER_STRIP)?.unwrap_or(height);
            if rows == 0 {
                return Err(Error::malformed("strips have no rows"));
            }
            (width, rows.min(height))
        };
        Ok(Page {
            subfile_type: match number(SUBFILE_TYPE)? {
                Some(bits) => bits,
                None => u64::from(number(OLD_SUBFILE_TYPE)? == Some(2)),
            },
            width,
            height,
            samples,
            bits: self.shared(&entries, BITS_PER_SAMPLE, samples, "bits per sample")?.unwrap_or(1),
            sample_format: self
                .shared(&entries, SAMPLE_FORMAT, samples, "sample format")?
                .unwrap_or(1),
            compression: number(COMPRESSION)?.unwrap_or(1),
            predictor: number(PREDICTOR)?.unwrap_or(1),
            photometric: number(PHOTOMETRIC)?,
            planar: samples > 1 && number(PLANAR_CONFIGURATION)? == Some(2),
            fill_order: number(FILL_ORDER)?.unwrap_or(1),
            chunk,
            tiled,
            geo: entries.iter().any(|entry| entry.tag == GEO_KEYS),
            entries,
        })
    }

    /// Offset and byte count of the page's strips or tiles, of which there must be `expected`. Byte
    /// counts are `None` if the file has none, as with old writers.
    ///
    /// # Errors
    /// If there are not `expected` of them, or the tables lie outside the file.
    pub fn chunks(&self, page: &Page, expected: u64) -> Result<(Vec<u64>, Option<Vec<u64>>)> {
        let (offsets, counts, what) = match page.tiled {
            true => (TILE_OFFSETS, TILE_BYTE_COUNTS, "tiles"),
            false => (STRIP_OFFSETS, STRIP_BYTE_COUNTS, "strips"),
        };
        let table = |tag| match page.entries.iter().find(|entry| entry.tag == tag) {
            Some(entry) if entry.count != expected => Err(Error::malformed(format!(
                "the image should have {expected} {what}, but the file lists {}",
                entry.count
            ))),
            Some(entry) => self.numbers(*entry, expected).map(Some),
            None => Ok(None),
        };
        let offsets = table(offsets)?.ok_or_else(|| {
            Error::malformed(format!("the file does not say where its {what} are"))
        })?;
        Ok((offsets, table(counts)?))
    }

    /// The first `count` numbers of a tag of double precision; `None` if there is no such tag, it
    /// has fewer, or it cannot be read.
    pub(super) fn doubles(&self, page: &Page, tag: u16, count: u64) -> Option<Vec<f64>> {
        let entry = page.entries.iter().find(|entry| entry.tag == tag)?;
        let fits = entry.kind == 12 && entry.count >= count;
        let bytes = fits.then(|| self.bytes_at(entry.at, count * 8, "numbers").ok())??;
        Some(bytes.chunks_exact(8).map(|raw| f64::from_bits(self.u64(raw))).collect())
    }

    /// The floating-point numbers of a tag, at most `most`, if there is such a tag and they can be
    /// read.
    pub(super) fn reals(&self, page: &Page, tag: u16, most: u64) -> Option<Vec<f64>> {
        let entry = page.entries.iter().find(|entry| entry.tag == tag && entry.count <= most)?;
        let size = entry.value_size().filter(|_| matches!(entry.kind, 11 | 12))?;
        let bytes = self.bytes_at(entry.at, entry.count * size, "numbers").ok()?;
        let number = |raw: &[u8]| match size {
            4 => f64::from(f32::from_bits(self.u32(raw) as u32)),
            _ => f64::from_bits(self.u64(raw)),
        };
        Some(bytes.chunks_exact(size as usize).map(number).collect())
    }

    /// The numbers of a tag of 16 bits each, at most `most`; `None` if there is no such tag or it
    /// cannot be read.
    pub(super) fn shorts(&self, page: &Page, tag: u16, most: u64) -> Option<Vec<u16>> {
        let entry = page.entries.iter().find(|entry| entry.tag == tag && entry.kind == 3)?;
        let numbers = self.numbers(*entry, most).ok()?;
        Some(numbers.into_iter().map(|number| number as u16).collect())
    }

    /// The text of a tag up to its first NUL, if there is such a tag and it can be read.
    pub(super) fn text(&self, page: &Page, tag: u16) -> Option<String> {
        let entry = page.entries.iter().find(|entry| entry.tag == tag)?;
        let text = matches!(entry.kind, 1 | 2 | 7) && entry.count <= MAX_TEXT;
        let bytes = text.then(|| self.bytes_at(entry.at, entry.count, "a text").ok())??;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// The text of a tag, if it has at most `most` bytes.
    pub(super) fn short_text(&self, page: &Page, tag: u16, most: u64) -> Option<String> {
        let entry = page.entries.iter().find(|entry| entry.tag == tag)?;
        (entry.count <= most).then(|| self.text(page, tag))?
    }

    /// The bytes of a tag, if there is such a tag and they can be read.
    pub(super) fn raw(&self, page: &Page, tag: u16) -> Option<Vec<u8>> {
        let entry = page.entries.iter().find(|entry| entry.tag == tag)?;
        let is_bytes = matches!(entry.kind, 1 | 2 | 7) && entry.count <= MAX_TEXT;
        is_bytes.then(|| self.bytes_at(entry.at, entry.count, "bytes").ok())?
    }

    /// The whole numbers of a tag, at most `most`; `None` if there is no such tag or it cannot be
    /// read.
    pub(super) fn long_numbers(&self, page: &Page, tag: u16, most: u64) -> Option<Vec<u64>> {
        let entry = page.entries.iter().find(|entry| entry.tag == tag)?;
        self.numbers(*entry, most).ok()
    }

    /// ImageDescription.
    pub fn description(&self, page: &Page) -> Option<String> {
        self.text(page, DESCRIPTION)
    }

    /// GDAL's metadata, an XML text.
    pub fn gdal_metadata(&self, page: &Page) -> Option<String> {
        self.text(page, GDAL_METADATA)
    }

    /// GDAL's ignore value, a number as text.
    pub fn gdal_nodata(&self, page: &Page) -> Option<String> {
        self.text(page, GDAL_NODATA)
    }
}

/// Says in which page (counted from 1) something is wrong.
fn in_page(number: usize, error: Error) -> Error {
    error.within(format_args!("page {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flat::MemoryBytes;

    /// A little-endian file of one directory with these (tag, value) entries.
    fn file(entries: &[(u16, u32)]) -> Vec<u8> {
        let mut bytes = b"II\x2A\0\x08\0\0\0".to_vec();
        bytes.extend((entries.len() as u16).to_le_bytes());
        for (tag, value) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend([4, 0, 1, 0, 0, 0]);
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn only_the_first_entry_of_a_known_tag_is_kept() {
        let mut entries: Vec<(u16, u32)> = (1000..5000).map(|tag| (tag, 1)).collect();
        entries.extend([(WIDTH, 5), (HEIGHT, 7), (WIDTH, 6)]);
        let bytes = MemoryBytes(file(&entries));
        let (_, pages) = Directories::read(&bytes, bytes.0.len() as u64).unwrap();
        assert_eq!((pages[0].width, pages[0].height), (5, 7));
        assert_eq!(pages[0].entries.len(), 2);
    }
}
