//! TIFF, GeoTIFF and BigTIFF.
//!
//! A cube lies in a TIFF file in one of three ways:
//!
//! | layout | order of the values |
//! |---|---|
//! | pages: one band a page | (page, row, column) |
//! | planar: one page, each sample has its own strips | (sample, row, column) |
//! | contiguous: one page, samples side by side | (row, column, sample) |
//!
//! Strips and tiles are decoded as their rows are asked for, so memory does not grow with the image;
//! a compressed file that is one single strip leaves no other way than to keep that strip decoded,
//! up to 2 GiB. What the bands are comes from GDAL's metadata, where the file has them.
//!
//! `directory.rs` reads the directories, `tiff_chunks.rs` decodes.

mod chunks;
pub mod directory;
pub mod gdal_metadata;

use std::path::Path;
use std::sync::Arc;

use hsipack_format::{CubeShape, DType, Error, Result};

use self::chunks::{Chunk, Compression, PixelLayout, Plane, Planes};
use self::directory::{Directories, Page, has_signature};
use self::gdal_metadata::{GdalMetadata, parse_xml};
use crate::source::flat::{ByteSource, FileBytes, FlatLayout, FlatSource, MemoryBytes};
use crate::source::{Access, Axis, AxisOrder, CubeInfo, OpenOptions, RowBuffer, Source};

/// A row of the cube may take this many bytes; only damaged or crafted files declare more.
const MAX_ROW: u64 = 2 << 30;
/// A read of at least this many bytes costs little more than copying it.
const CHEAP_READ: usize = 64 << 10;

/// No cube has more bands; each takes memory of its own.
const MOST_IMAGES: usize = 1 << 16;

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(super) fn recognises(_path: &Path, head: &[u8]) -> bool {
    has_signature(head)
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if options.variable.is_some() {
        return Err(Error::unsupported("a TIFF file has no variables to name")
            .at(path)
            .with_remedy("give the path without '::'"));
    }
    let bytes = FileBytes::open(path)?;
    let len = bytes.len();
    open_source(Arc::new(bytes), len, path, options).map_err(|error| error.at(path))
}

/// Opens a TIFF file in memory: the way in for fuzzing.
///
/// # Errors
/// As [`open`].
#[doc(hidden)]
pub fn open_bytes(bytes: Vec<u8>, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let len = bytes.len() as u64;
    open_source(Arc::new(MemoryBytes(bytes)), len, Path::new("memory.tif"), options)
}

fn open_source(
    bytes: Arc<dyn ByteSource>,
    len: u64,
    path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn Source>> {
    let (directories, pages) = Directories::read(&*bytes, len)?;
    let mut notes = Vec::new();
    let images = cube_pages(&pages, &mut notes)?;
    let (first_number, first) = images[0];
    let description = directories.description(first).unwrap_or_default();
    let hints = Hints::read(&description, images.len())?;
    let pixel = pixel_layout(first, &directories, &mut notes)?;
    let planes = read_planes(&directories, &images, &pixel, len)?;
    let (pixel, planes) = add_headless_pages(pixel, planes, &hints, first, len)?;

    let contiguous = pixel.samples > 1;
    let (order, lengths) = match contiguous {
        true => {
            (options.axes.unwrap_or(AxisOrder::BIP), [pixel.height, pixel.width, pixel.samples])
        }
        false => {
            (options.axes.unwrap_or(AxisOrder::BSQ), [planes.len(), pixel.height, pixel.width])
        }
    };
    if !contiguous && planes.len() == 1 && !options.mask {
        return Err(Error::unsupported(format!(
            "a single {}x{} image, not a cube",
            pixel.height, pixel.width
        ))
        .with_remedy("give a file with several bands; a mask goes to --mask"));
    }
    let shape = order.shape(lengths);
    check_size(shape, pixel.dtype)?;
    if pixel.row_bytes() as u64 > MAX_ROW {
        return Err(Error::unsupported(format!("an image of {} columns is too wide", pixel.width)));
    }
    if !contiguous && planes.len() > 1 && !first.planar && options.axes.is_none() {
        notes.extend(doubtful_pages(lengths));
    }

    let mut info =
        CubeInfo::new(format_name(first, directories.big_tiff), shape, pixel.dtype, path);
    info.notes = notes;
    if let Some(xml) = directories.gdal_metadata(first) {
        match GdalMetadata::parse(&xml) {
            Ok(metadata) => metadata.describe(&mut info),
            Err(error) => info.notes.push(format!("{}; left out", error.what())),
        }
    }
    if let Some(text) = directories.gdal_nodata(first) {
        match text.trim().parse::<f64>() {
            // NaN marks itself.
            Ok(value) => info.ignore_value = (!value.is_nan()).then_some(value),
            Err(_) => info.notes.push(format!("the ignore value '{}' is no number", text.trim())),
        }
    }
    if planes.iter().any(|plane| plane.chunks.iter().any(|chunk| chunk.offset == 0)) {
        info.notes.push(format!(
            "page {first_number} leaves out strips or tiles; they hold the ignore value, or 0"
        ));
    }
    let fill = number_bytes(info.ignore_value.unwrap_or(0.0), pixel.dtype);
    let planes = Planes::new(bytes, pixel, planes, fill);
    let rows_together = planes.rows_together();
    let layout = FlatLayout {
        offset: 0,
        order,
        big_endian: cfg!(target_endian = "big"),
        rows_reversed: false,
    };
    Ok(Box::new(TiffSource {
        row_axis_is_y: order.position(Axis::Row) == usize::from(!contiguous),
        band_fastest: contiguous,
        rows_together,
        flat: FlatSource::new(info, layout, planes),
    }))
}

/// What tells this format from another in messages.
fn format_name(page: &Page, big_tiff: bool) -> &'static str {
    match (page.geo, big_tiff) {
        (true, _) => "GeoTIFF",
        (false, true) => "BigTIFF",
        (false, false) => "TIFF",
    }
}

/// The pages that make up the cube, with their numbers from 1: reduced copies and transparency
/// masks are not part of it, the others must be alike.
fn cube_pages<'a>(pages: &'a [Page], notes: &mut Vec<String>) -> Result<Vec<(usize, &'a Page)>> {
    let numbered = || pages.iter().enumerate().map(|(index, page)| (index + 1, page));
    let mut images: Vec<_> =
        numbered().filter(|(_, page)| page.subfile_type & 0b101 == 0).collect();
    if images.is_empty() {
        images = numbered().take(1).collect();
    }
    if images.len() < pages.len() {
        let skipped = pages.len() - images.len();
        notes.push(format!("{skipped} pages are reduced copies or masks of others; left out"));
    }
    let kind = |page: &Page| {
        (page.width, page.height, page.samples, page.bits, page.sample_format, page.planar)
    };
    let first = images[0].1;
    if images.iter().any(|(_, page)| kind(page) != kind(first)) {
        return Err(Error::ambiguous(format!("the pages differ: {}", list_pages(&images)))
            .with_remedy("keep only the pages that are bands of one cube"));
    }
    if images.len() > 1 && first.samples > 1 {
        return Err(Error::ambiguous(format!(
            "{} pages of {} samples per pixel each: several cubes, or bands in two places",
            images.len(),
            first.samples
        ))
        .with_remedy("write one file a cube"));
    }
    Ok(images)
}

/// `1-3: 10x20x1, 4: 5x10x1`, for messages.
fn list_pages(pages: &[(usize, &Page)]) -> String {
    let kind = |page: &Page| {
        let letter = match page.sample_format {
            2 => "int",
            3 => "float",
            _ => "uint",
        };
        format!("{}x{}x{} {letter}{}", page.height, page.width, page.samples, page.bits)
    };
    let mut runs: Vec<(usize, usize, String)> = Vec::new();
    for (number, page) in pages {
        let kind = kind(page);
        match runs.last_mut() {
            Some(run) if run.2 == kind => run.1 = *number,
            _ => runs.push((*number, *number, kind)),
        }
    }
    let more = if runs.len() > 8 { ", …" } else { "" };
    runs.truncate(8);
    let runs: Vec<_> = runs
        .into_iter()
        .map(|(from, to, kind)| match from == to {
            true => format!("{from}: {kind}"),
            false => format!("{from}-{to}: {kind}"),
        })
        .collect();
    runs.join(", ") + more
}

/// How the pixels of `page` are stored, if they can be read at all.
fn pixel_layout(
    page: &Page,
    directories: &Directories<'_>,
    notes: &mut Vec<String>,
) -> Result<PixelLayout> {
    let dtype = match (page.sample_format, page.bits) {
        (1 | 4, 1 | 2 | 4 | 8) => DType::U8,
        (1 | 4, 16) => DType::U16,
        (1 | 4, 32) => DType::U32,
        (1 | 4, 64) => DType::U64,
        (2, 8) => DType::I8,
        (2, 16) => DType::I16,
        (2, 32) => DType::I32,
        (2, 64) => DType::I64,
        (3, 16) => DType::F16,
        (3, 32) => DType::F32,
        (3, 64) => DType::F64,
        (5 | 6, _) => return Err(Error::unsupported("the values are complex numbers")),
        (format, bits) => {
            return Err(Error::unsupported(format!(
                "values of {bits} bits, sample format {format}"
            ))
            .with_remedy("convert the file to 8, 16, 32 or 64 bits per value"));
        }
    };
    if page.bits < 8 && page.samples > 1 {
        return Err(Error::unsupported(format!(
            "{} samples of {} bits per pixel",
            page.samples, page.bits
        )));
    }
    if page.fill_order == 2 && page.bits < 8 {
        return Err(Error::unsupported("the bits within bytes are in reverse order (FillOrder 2)"));
    }
    match page.photometric {
        Some(0) => {
            notes.push("zero is white in this image; the stored numbers are kept".to_owned())
        }
        Some(2) if page.samples == 3 => notes.push("an RGB image: a cube of 3 bands".to_owned()),
        Some(3) => notes.push("a palette image: the values are palette indices".to_owned()),
        Some(6) => {
            return Err(Error::unsupported("the image is stored as YCbCr colours")
                .with_remedy("convert it to RGB or to single bands"));
        }
        _ => {}
    }
    let size = |value: u64, what: &str| {
        usize::try_from(value)
            .ok()
            .filter(|value| *value <= u32::MAX as usize)
            .ok_or_else(|| Error::malformed(format!("the image has {value} {what}")))
    };
    Ok(PixelLayout {
        width: size(page.width, "columns")?,
        height: size(page.height, "rows")?,
        samples: if page.planar { 1 } else { page.samples as usize },
        bits: page.bits as usize,
        dtype,
        big_endian: directories.big_endian,
    })
}

/// Where the values of all planes lie: pages one after the other, samples one after the other.
fn read_planes(
    directories: &Directories<'_>,
    images: &[(usize, &Page)],
    pixel: &PixelLayout,
    len: u64,
) -> Result<Vec<Plane>> {
    let mut planes = Vec::new();
    // Every table entry takes at least 4 bytes of the file, so that more cannot be honest.
    let mut entries_left = len / 4;
    for (number, page) in images {
        let compression = Compression::from_tag(page.compression)?;
        let predictor = predictor(page, compression, pixel.dtype)?;
        let count = if page.planar { page.samples } else { 1 };
        let per_plane = page
            .width
            .div_ceil(page.chunk.0)
            .checked_mul(page.height.div_ceil(page.chunk.1))
            .filter(|chunks| *chunks <= len)
            .ok_or_else(|| {
                Error::malformed("the image claims more tiles than the file has bytes")
            })?;
        let expected = per_plane * count;
        entries_left = entries_left.checked_sub(expected).ok_or_else(|| {
            Error::malformed(format!(
                "page {number} should have {expected} strips or tiles, more than fit into the file"
            ))
        })?;
        let (offsets, counts) = directories.chunks(page, expected)?;
        let counts = match counts {
            Some(counts) => counts,
            None => uncounted_strips(page, &offsets, compression)?,
        };
        let chunks: Vec<Chunk> = offsets
            .into_iter()
            .zip(counts)
            .map(|(offset, length)| Chunk { offset, length })
            .collect();
        for (sample, chunks) in chunks.chunks(per_plane as usize).enumerate() {
            let plane = Plane {
                chunks: chunks.to_vec(),
                chunk: (chunk_length(page.chunk.0)?, chunk_length(page.chunk.1)?),
                tiled: page.tiled,
                compression,
                predictor,
                name: match page.planar {
                    true => format!("page {number}, band {}", sample + 1),
                    false => format!("page {number}"),
                },
            };
            plane.check(pixel, len)?;
            planes.push(plane);
        }
    }
    Ok(planes)
}

fn chunk_length(value: u64) -> Result<usize> {
    u32::try_from(value)
        .map(|value| value as usize)
        .map_err(|_| Error::malformed(format!("tiles have a side of {value} pixels")))
}

/// Byte counts of strips whose writer gave none: as many as the pixels take.
fn uncounted_strips(page: &Page, offsets: &[u64], compression: Compression) -> Result<Vec<u64>> {
    if page.tiled || compression != Compression::None {
        return Err(Error::malformed("the file does not say how long its strips or tiles are"));
    }
    let samples = if page.planar { 1 } else { page.samples };
    let down = page.height.div_ceil(page.chunk.1) as usize;
    let length = |index: usize| {
        let rows = page.chunk.1.min(page.height - (index % down) as u64 * page.chunk.1);
        let row = page.width.checked_mul(samples)?.checked_mul(page.bits)?.div_ceil(8);
        row.checked_mul(rows)
    };
    (0..offsets.len())
        .map(|index| {
            length(index).ok_or_else(|| Error::malformed("strips of more than 2^64 bytes"))
        })
        .collect()
}

fn predictor(page: &Page, compression: Compression, dtype: DType) -> Result<u16> {
    match page.predictor {
        1 => Ok(1),
        2 | 3 if matches!(compression, Compression::None | Compression::PackBits) => {
            Err(Error::malformed(format!(
                "predictor {} without LZW, deflate or zstd, which readers take in different ways",
                page.predictor
            ))
            .with_remedy("rewrite the file"))
        }
        2 if page.bits >= 8 => Ok(2),
        3 if dtype.is_float() => Ok(3),
        other => {
            Err(Error::malformed(format!("predictor {other} does not go with {dtype} values")))
        }
    }
}

/// ImageJ writes stacks beyond 4 GB as one directory with all images one after the other, and
/// tifffile can be told to.
fn add_headless_pages(
    pixel: PixelLayout,
    mut planes: Vec<Plane>,
    hints: &Hints,
    first: &Page,
    len: u64,
) -> Result<(PixelLayout, Vec<Plane>)> {
    let Some(images) = hints.headless_images.filter(|_| planes.len() == 1 && first.samples == 1)
    else {
        return Ok((pixel, planes));
    };
    let image_bytes = (pixel.row_bytes() as u64)
        .checked_mul(pixel.height as u64)
        .ok_or_else(|| Error::malformed("the image claims more than 2^64 bytes"))?;
    let start = planes[0].chunks[0].offset;
    let mut end = start;
    let together = planes[0].chunks.iter().all(|chunk| {
        let follows = chunk.offset == end;
        end = end.saturating_add(chunk.length);
        follows
    });
    if images > MOST_IMAGES {
        return Err(Error::unsupported(format!("the description announces {images} images")));
    }
    let raw = planes[0].compression == Compression::None && !first.tiled && pixel.bits >= 8;
    if !raw || !together || end - start != image_bytes {
        return Err(Error::unsupported(format!(
            "the description announces {images} images, the file has one"
        ))
        .with_remedy("save the stack again, uncompressed or as a multi-page TIFF"));
    }
    let fits = image_bytes.checked_mul(images as u64).and_then(|bytes| bytes.checked_add(start));
    if fits.is_none_or(|end| end > len) {
        return Err(Error::malformed(format!(
            "the description announces {images} images of {image_bytes} bytes, more than the file's \
             {len} bytes hold"
        ))
        .with_remedy("copy the file again; it is cut short"));
    }
    planes = (0..images as u64)
        .map(|index| Plane {
            chunks: vec![Chunk { offset: start + index * image_bytes, length: image_bytes }],
            chunk: (pixel.width, pixel.height),
            tiled: false,
            compression: Compression::None,
            predictor: 1,
            name: format!("image {}", index + 1),
        })
        .collect();
    Ok((pixel, planes))
}

/// What ImageDescription says about the pages' meaning.
#[derive(Debug, Default, PartialEq)]
struct Hints {
    /// Images that follow the first one without directories of their own.
    headless_images: Option<usize>,
}

impl Hints {
    /// Reads the description of a file of `pages` like pages, as ImageJ, tifffile and OME write it.
    ///
    /// # Errors
    /// If it says that the pages have more than one axis.
    fn read(description: &str, pages: usize) -> Result<Self> {
        let axes = if description.starts_with("ImageJ=") {
            imagej_axes(description)
        } else if description.trim_start().starts_with('{') {
            shaped_axes(description)
        } else if description.contains("<OME") {
            ome_axes(description)
        } else {
            None
        };
        let Some(axes) = axes else { return Ok(Self::default()) };
        let long: Vec<_> = axes.iter().copied().filter(|length| *length > 1).collect();
        let images = long.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
        if long.len() > 1 && (images == Some(pages) || pages == 1) {
            let axes: Vec<_> = axes.iter().map(usize::to_string).collect();
            return Err(Error::unsupported(format!(
                "the pages have several axes ({}): more than one cube",
                axes.join("x")
            ))
            .with_remedy("write one file a cube"));
        }
        let headless_images = images.filter(|images| pages == 1 && *images > 1);
        Ok(Self { headless_images })
    }
}

/// Lengths of ImageJ's channel, slice and frame axes.
fn imagej_axes(description: &str) -> Option<Vec<usize>> {
    let value = |key: &str| {
        description.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<usize>().ok())
    };
    let axes: Vec<_> = ["channels=", "slices=", "frames="].into_iter().filter_map(value).collect();
    let product = axes.iter().try_fold(1usize, |product, length| product.checked_mul(*length));
    let images = value("images=").unwrap_or(1);
    Some(if product == Some(images) { axes } else { vec![images] })
}

/// Lengths of the axes that tifffile's `{"shape": [...]}` has before row and column; `None` for
/// shapes of colour or contiguous images, which it does not tell from others.
fn shaped_axes(description: &str) -> Option<Vec<usize>> {
    let json: serde_json::Value = serde_json::from_str(description).ok()?;
    let shape: Vec<usize> = json["shape"]
        .as_array()?
        .iter()
        .map(|length| usize::try_from(length.as_u64()?).ok())
        .collect::<Option<_>>()?;
    // Only with the key does a missing directory mean that images follow headless.
    let truncated = json["truncated"].as_bool() == Some(true);
    (truncated || shape.len() > 3).then(|| shape[..shape.len().saturating_sub(2)].to_vec())
}

/// Lengths of OME's Z, C and T axes.
fn ome_axes(description: &str) -> Option<Vec<usize>> {
    let document = parse_xml(description).ok()?;
    let pixels = document.descendants().find(|node| node.tag_name().name() == "Pixels")?;
    ["SizeZ", "SizeC", "SizeT"].iter().map(|name| pixels.attribute(*name)?.parse().ok()).collect()
}

/// A sentence for page stacks that look like (row, column, band) arrays written page by page.
fn doubtful_pages([pages, height, width]: [usize; 3]) -> Option<String> {
    (width < pages && width < height).then(|| {
        format!(
            "its {pages} pages of {height}x{width} pixels are taken as bands; if they are image rows, \
             pass --axes yxb"
        )
    })
}

/// Refuses shapes that no memory could hold a row of.
fn check_size(shape: CubeShape, dtype: DType) -> Result<()> {
    let row = (shape.columns as u64)
        .checked_mul(shape.bands as u64)
        .and_then(|values| values.checked_mul(dtype.size() as u64));
    match shape.checked_values().is_some() && row.is_some_and(|row| row <= MAX_ROW) {
        true => Ok(()),
        false => Err(Error::unsupported(format!("a cube of {shape} {dtype} values is too large"))),
    }
}

/// `value` as one number of type `dtype`, native byte order; 0 if it does not fit.
fn number_bytes(value: f64, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Bool | DType::U8 => (value as u8).to_ne_bytes().to_vec(),
        DType::I8 => (value as i8).to_ne_bytes().to_vec(),
        DType::U16 => (value as u16).to_ne_bytes().to_vec(),
        DType::I16 => (value as i16).to_ne_bytes().to_vec(),
        DType::U32 => (value as u32).to_ne_bytes().to_vec(),
        DType::I32 => (value as i32).to_ne_bytes().to_vec(),
        DType::U64 => (value as u64).to_ne_bytes().to_vec(),
        DType::I64 => (value as i64).to_ne_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(value).to_ne_bytes().to_vec(),
        DType::F32 => (value as f32).to_ne_bytes().to_vec(),
        DType::F64 => value.to_ne_bytes().to_vec(),
    }
}

/// A cube in a TIFF file.
struct TiffSource {
    flat: FlatSource,
    /// Whether image rows are the file's rows, as they are unless the user says otherwise.
    row_axis_is_y: bool,
    /// Whether one read of the file gives all bands.
    band_fastest: bool,
    /// Rows that lie in the same strips or tiles.
    rows_together: usize,
}

impl Source for TiffSource {
    fn info(&self) -> &CubeInfo {
        self.flat.info()
    }

    fn access(&self) -> Access {
        Access::Random
    }

    /// Whole strips or tiles, as many as make reads worth their while, as far as the budget goes.
    fn preferred_rows(&self, budget: usize) -> usize {
        if !self.row_axis_is_y {
            return self.flat.preferred_rows(budget);
        }
        let CubeInfo { shape, dtype, .. } = self.info();
        let values = if self.band_fastest { shape.row_values() } else { shape.columns };
        let worthwhile = CHEAP_READ.div_ceil((values * dtype.size()).max(1)).max(1);
        let affordable = (budget / 2 / (shape.row_values() * dtype.size()).max(1)).max(1);
        let together = self.rows_together.max(1);
        let rows = worthwhile.next_multiple_of(together).min(affordable);
        let rows = if rows > together { rows - rows % together } else { rows };
        rows.clamp(1, shape.rows)
    }

    fn read_rows(&self, rows: std::ops::Range<usize>, out: &mut RowBuffer) -> Result<()> {
        self.flat.read_rows(rows, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_tell_headless_stacks_and_several_axes() {
        let images =
            |text: &str, pages| Hints::read(text, pages).map(|hints| hints.headless_images);
        assert_eq!(images("", 1).unwrap(), None);
        assert_eq!(images("ImageJ=1.5\nimages=100\nslices=100\n", 1).unwrap(), Some(100));
        assert_eq!(images("ImageJ=1.5\nimages=100\nslices=100\n", 100).unwrap(), None);
        assert!(images("ImageJ=1.5\nimages=12\nslices=4\nframes=3\n", 12).is_err());
        assert_eq!(images(r#"{"shape": [5, 4, 3]}"#, 5).unwrap(), None);
        assert_eq!(images(r#"{"shape": [5, 4, 3], "truncated": true}"#, 1).unwrap(), Some(5));
        assert!(images(r#"{"shape": [2, 5, 4, 3]}"#, 10).is_err());
        let ome = |z: u32, c: u32| {
            format!(
                r#"<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06">
                <Image><Pixels SizeX="3" SizeY="4" SizeZ="{z}" SizeC="{c}" SizeT="1"/></Image></OME>"#
            )
        };
        assert_eq!(images(&ome(1, 6), 6).unwrap(), None);
        assert!(images(&ome(2, 3), 6).is_err());
        let huge = "ImageJ=1\nimages=18446744073709551615\nslices=18446744073709551615\nframes=9";
        assert!(images(huge, 1).is_ok());
    }

    #[test]
    fn page_stacks_that_look_like_image_rows_are_pointed_out() {
        assert!(doubtful_pages([480, 640, 100]).unwrap().contains("--axes yxb"));
        assert_eq!(doubtful_pages([100, 480, 640]), None);
    }
}
