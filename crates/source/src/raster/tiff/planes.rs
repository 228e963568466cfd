//! How the pixels of the cube's pages are stored, and where the values of each plane lie.

use hsipack_format::{DType, Error, Result};

use super::chunks::{Chunk, Compression, PixelLayout, Plane};
use super::description::Hints;
use super::directory::{Directories, Page};
use super::pages::Image;

/// No cube has more bands. Each takes memory of its own.
const MAX_IMAGES: usize = 1 << 16;

/// How the pixels of `page` are stored, if they can be read at all.
pub(super) fn pixel_layout(
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
pub(super) fn read_planes(
    directories: &Directories<'_>,
    images: &[Image],
    pixel: &PixelLayout,
    len: u64,
) -> Result<Vec<Plane>> {
    let mut planes = Vec::new();
    // Every table entry takes at least 4 bytes of the file, so no valid file has more of them.
    let mut entries_left = len / 4;
    for Image { name: number, page } in images {
        let compression = Compression::from_tag(page.compression)?;
        let predictor = predictor(page, compression, pixel.dtype)?;
        let count = if page.planar { page.samples } else { 1 };
        let per_plane = page
            .width
            .div_ceil(page.chunk.0)
            .checked_mul(page.height.div_ceil(page.chunk.1))
            .filter(|chunks| *chunks <= len)
            .ok_or_else(|| {
                Error::malformed("the image states more tiles than the file has bytes")
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

/// Byte counts of strips if their writer gave none: as many bytes as the pixels take.
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
                "predictor {} without LZW, deflate or zstd is ambiguous: readers interpret it in different ways",
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

/// Adds images that have no directories. ImageJ writes stacks beyond 4 GB as one directory with all
/// images one after the other, and tifffile can do so, too.
pub(super) fn add_headless_pages(
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
        .ok_or_else(|| Error::malformed("the image states more than 2^64 bytes"))?;
    let start = planes[0].chunks[0].offset;
    let mut end = start;
    let together = planes[0].chunks.iter().all(|chunk| {
        let follows = chunk.offset == end;
        end = end.saturating_add(chunk.length);
        follows
    });
    if images > MAX_IMAGES {
        return Err(Error::unsupported(format!("the description states {images} images")));
    }
    let raw = planes[0].compression == Compression::None && !first.tiled && pixel.bits >= 8;
    if !raw || !together || end - start != image_bytes {
        return Err(Error::unsupported(format!(
            "the description states {images} images, but the file has one"
        ))
        .with_remedy("save the stack again, uncompressed or as a multi-page TIFF"));
    }
    let fits = image_bytes.checked_mul(images as u64).and_then(|bytes| bytes.checked_add(start));
    if fits.is_none_or(|end| end > len) {
        return Err(Error::malformed(format!(
            "the description states {images} images of {image_bytes} bytes, but the file has only {len} bytes"
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
