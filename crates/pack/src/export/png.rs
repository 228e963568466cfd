//! `.png`: a mask as a grayscale image of 8 or 16 bits, whose pixels are the stored ids.

use std::io::Write;
use std::path::Path;

use hsipack_format::metadata::Scaling;
use hsipack_format::{DType, Error, Result};

use super::Written;
use super::raster::Raster;
use crate::staged::Staged;

/// Writes the file.
pub(super) fn write(raster: &Raster<'_>, path: &Path) -> Result<Written> {
    let (shape, dtype) = (raster.shape, raster.dtype);
    let side = |length: usize| {
        u32::try_from(length).map_err(|_| {
            Error::unsupported("the mask is too large for PNG").at(path).with_remedy("use .npy")
        })
    };
    if dtype.size() > 2 {
        return Err(Error::unsupported(format!(
            "the mask is {dtype}, but PNG holds at most 16 bits"
        ))
        .at(path)
        .with_remedy("use .npy, .tif or .hdr"));
    }
    let fail = |error: png::EncodingError| Error::io(path, "cannot write", error.into());
    let mut file = Staged::create(path)?;
    let mut encoder = png::Encoder::new(file.writer(), side(shape.columns)?, side(shape.rows)?);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.set_depth(match dtype {
        DType::U16 => png::BitDepth::Sixteen,
        _ => png::BitDepth::Eight,
    });
    let mut writer = encoder.write_header().map_err(fail)?;
    let mut stream = writer.stream_writer().map_err(fail)?;
    (raster.rows)(&mut |bytes| {
        let result = match dtype {
            DType::U16 => {
                let (ids, _) = bytes.as_chunks::<2>();
                // PNG is big-endian.
                let swapped: Vec<u8> = ids.iter().flat_map(|[low, high]| [*high, *low]).collect();
                stream.write_all(&swapped)
            }
            _ => stream.write_all(bytes),
        };
        result.map_err(|error| Error::io(path, "cannot write", error))
    })?;
    stream.finish().map_err(fail)?;
    writer.finish().map_err(fail)?;
    file.commit()?;
    Ok((dtype, Scaling::NONE, Vec::new()))
}
