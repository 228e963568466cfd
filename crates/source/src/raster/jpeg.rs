//! JPEG pictures as cubes of their colours: one band, or red, green and blue.
//!
//! The decoder decodes a picture as a whole. JPEG changes values, so pictures are masks only if
//! their colours are classes.

use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use hsipack_format::{CubeShape, DType, Error, Result};
use hsipack_store::bounded_read;
use hsipack_store::window::Window;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;

use crate::flat::{FlatLayout, FlatSource, StreamBytes};
use crate::raster::png::PICTURE_NOTE;
use crate::{AxisOrder, CubeInfo, OpenOptions, Source, foreign};

const SIGNATURE: &[u8] = b"\xFF\xD8\xFF";
/// The format allows this.
const LONGEST_SIDE: usize = (1 << 16) - 1;
/// The most values of a picture, which is in memory as a whole.
const MAX_VALUES: usize = 1 << 30;
/// At most this many values are in a byte of a file: 64 in a block that takes a few bits.
const BEST_RATIO: u64 = 1024;

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(_path: &Path, head: &[u8]) -> bool {
    head.starts_with(SIGNATURE)
}

/// Opens the picture in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, is too large, or is meant as a mask.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if options.mask && !options.colors {
        return foreign::open(path, options);
    }
    open_picture(path, options).map_err(|error| error.at(path))
}

fn open_picture(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    if let Some(variable) = &options.variable {
        return Err(Error::unsupported(format!("a picture has no variable '{variable}' in it"))
            .with_remedy(format!("leave out ::{variable}")));
    }
    let picture = Picture::measure(path)?;
    let shape = CubeShape::new(picture.rows, picture.columns, picture.bands);
    let mut info = CubeInfo::new("JPEG", shape, DType::U8, path);
    info.notes.push(PICTURE_NOTE.to_owned());
    info.notes.push("JPEG changes the values of a picture when it is saved".to_owned());
    let layout =
        FlatLayout { offset: 0, order: AxisOrder::BIP, big_endian: false, rows_reversed: false };
    let path = path.to_owned();
    let bytes = StreamBytes::new(path.clone(), 0, move || {
        Ok(Box::new(Cursor::new(picture.decode(&path)?)) as Box<dyn Read + Send>)
    });
    Ok(Box::new(FlatSource::new(info, layout, bytes)))
}

/// Entries of the header of a file.
#[derive(Clone, Copy, PartialEq)]
struct Picture {
    rows: usize,
    columns: usize,
    bands: usize,
}

impl Picture {
    fn measure(path: &Path) -> Result<Self> {
        let (decoder, len) = decoder(path, 3)?;
        let picture = Self::of(decoder)?;
        let values = picture.values();
        if values > MAX_VALUES {
            return Err(Error::unsupported(format!(
                "a picture of {} x {} pixels is too large",
                picture.rows, picture.columns
            ))
            .with_remedy("save it as TIFF"));
        }
        if values as u64 > len.saturating_mul(BEST_RATIO) {
            return Err(malformed(format!(
                "{len} bytes cannot hold the {} x {} pixels that the header states",
                picture.columns, picture.rows
            )));
        }
        Ok(picture)
    }

    fn of(mut decoder: JpegDecoder<BufReader<Window>>) -> Result<Self> {
        decoder.decode_headers().map_err(|error| undecodable(&error))?;
        let info = decoder.info().ok_or_else(|| malformed("there is no header".to_owned()))?;
        let bands = match info.components {
            1 => 1,
            3 => 3,
            other => {
                return Err(Error::unsupported(format!("a JPEG of {other} colours"))
                    .with_remedy("save it as RGB"));
            }
        };
        let picture = Self { rows: info.height.into(), columns: info.width.into(), bands };
        match picture.values() {
            0 => Err(malformed("the picture is empty".to_owned())),
            _ => Ok(picture),
        }
    }

    fn values(self) -> usize {
        self.rows * self.columns * self.bands
    }

    fn decode(self, path: &Path) -> Result<Vec<u8>> {
        let (mut decoder, _) = decoder(path, self.bands)?;
        let values = decoder.decode().map_err(|error| undecodable(&error).at(path))?;
        match values.len() == self.values() {
            true => Ok(values),
            false => Err(malformed("the file changed while it was read".to_owned()).at(path)),
        }
    }
}

/// A decoder of the file at `path`, and the file's size in bytes.
fn decoder(path: &Path, bands: usize) -> Result<(JpegDecoder<BufReader<Window>>, u64)> {
    let file = bounded_read::window(path)?;
    let len = file.len();
    let colours = if bands == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(LONGEST_SIDE)
        .set_max_height(LONGEST_SIDE)
        .jpeg_set_out_colorspace(colours);
    Ok((JpegDecoder::new_with_options(BufReader::new(file), options), len))
}

fn malformed(what: String) -> Error {
    Error::malformed(what).with_remedy("copy the file again, or save it again")
}

fn undecodable(error: &DecodeErrors) -> Error {
    malformed(format!("cannot decode the JPEG file: {error}"))
}

#[cfg(test)]
mod tests {
    use hsipack_format::ErrorKind;

    use super::*;

    #[test]
    fn damaged_files_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jpg");
        let header: &[u8] = &[
            0xFF, 0xD8, 0xFF, 0xC0, 0, 17, 8, 0xFF, 0xFF, 0xFF, 0xFF, 3, 1, 0x11, 0, 2, 0x11, 0, 3,
            0x11, 0,
        ];
        for bytes in [&header[..4], &header[..12], header] {
            std::fs::write(&path, bytes).unwrap();
            let error = open(&path, &OpenOptions::default()).err().unwrap();
            assert!(
                matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Unsupported),
                "{error}"
            );
            assert_eq!(error.path(), Some(&*path));
        }
    }
}
