//! Frames of snapshot cameras: the filters of the bands are tiles of a mosaic on the sensor.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use hsipack_format::{CubeShape, Error, Opt, Result, remedy};
use serde::{Deserialize, Serialize};

use crate::{Access, CubeInfo, OpenOptions, RowBuffer, Source, open};

/// Rows and columns of the tile of filters. A whole tile is a pixel, and its bands are in row
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Sides", into = "(usize, usize)")]
pub struct Mosaic {
    rows: usize,
    columns: usize,
}

/// No camera has more bands in a tile.
const LONGEST_SIDE: usize = 64;

/// A mosaic as users give it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Sides {
    Both(usize, usize),
    Text(String),
}

impl TryFrom<Sides> for Mosaic {
    type Error = Error;

    fn try_from(sides: Sides) -> Result<Self> {
        match sides {
            Sides::Both(rows, columns) => Self::new(rows, columns),
            Sides::Text(text) => text.parse(),
        }
    }
}

impl From<Mosaic> for (usize, usize) {
    fn from(mosaic: Mosaic) -> Self {
        (mosaic.rows, mosaic.columns)
    }
}

impl Mosaic {
    fn new(rows: usize, columns: usize) -> Result<Self> {
        let is_side = |side| (1..=LONGEST_SIDE).contains(&side);
        match is_side(rows) && is_side(columns) && rows * columns > 1 {
            true => Ok(Self { rows, columns }),
            false => Err(Error::conflict(format!("{rows}x{columns} is not a mosaic of filters"))
                .with_remedy("give rows x columns of its tile, such as 4x4")),
        }
    }
}

impl FromStr for Mosaic {
    type Err = Error;

    /// Parses `ROWSxCOLUMNS`.
    fn from_str(text: &str) -> Result<Self> {
        let sides = text.split_once(['x', 'X']);
        let sides =
            sides.and_then(|(rows, columns)| Some((rows.parse().ok()?, columns.parse().ok()?)));
        let (rows, columns) = sides.ok_or_else(|| {
            Error::conflict(format!("{text:?} is not a mosaic of filters"))
                .with_remedy("give rows x columns of its tile, such as 4x4")
        })?;
        Self::new(rows, columns)
    }
}

impl fmt::Display for Mosaic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.rows, self.columns)
    }
}

/// Opens a file of one band: a picture in grayscale, or a 2-D array, which is not a cube by itself.
///
/// # Errors
/// If it cannot be opened.
pub fn open_frame(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    match open(path, options) {
        Ok(source) => Ok(source),
        Err(error) => {
            let options = OpenOptions { mask: true, ..options.clone() };
            open(path, &options).map_err(|_| error)
        }
    }
}

/// The cube in a frame: a pixel for each whole tile.
///
/// # Errors
/// If the frame has several bands, or is smaller than a tile.
pub fn demosaic(frame: Box<dyn Source>, mosaic: Mosaic) -> Result<Box<dyn Source>> {
    let frame_info = frame.info();
    let CubeShape { rows, columns, bands } = frame_info.shape;
    if bands != 1 || rows < mosaic.rows || columns < mosaic.columns {
        return Err(Error::conflict(format!(
            "{} is not a frame of a {mosaic} mosaic",
            frame_info.shape
        ))
        .at(&frame_info.files[0])
        .with_remedy(remedy![
            "give a raw frame of one band; or leave out ",
            Opt::Mosaic,
            " for cubes"
        ]));
    }
    let shape =
        CubeShape::new(rows / mosaic.rows, columns / mosaic.columns, mosaic.rows * mosaic.columns);
    let format = format!("{} (mosaic {mosaic})", frame_info.format);
    let mut info = CubeInfo::new(format, shape, frame_info.dtype, &frame_info.files[0]);
    info.files.clone_from(&frame_info.files);
    info.scaling = frame_info.scaling;
    info.ignore_value = frame_info.ignore_value;
    info.exposure.clone_from(&frame_info.exposure);
    let remainder = (rows % mosaic.rows, columns % mosaic.columns);
    if remainder != (0, 0) {
        info.notes.push(format!(
            "the last {} rows and {} columns of the frame make no whole tile and are left out",
            remainder.0, remainder.1
        ));
    }
    Ok(Box::new(MosaicSource { info, frame, mosaic }))
}

struct MosaicSource {
    info: CubeInfo,
    frame: Box<dyn Source>,
    mosaic: Mosaic,
}

impl Source for MosaicSource {
    fn info(&self) -> &CubeInfo {
        &self.info
    }

    fn access(&self) -> Access {
        self.frame.access()
    }

    fn preferred_rows(&self, budget: usize) -> usize {
        // The frame's rows are held, too.
        let rows = self.frame.preferred_rows(budget / 2) / self.mosaic.rows;
        rows.clamp(1, self.info.shape.rows)
    }

    fn read_rows(&self, rows: Range<usize>, out: &mut RowBuffer) -> Result<()> {
        let Mosaic { rows: tall, columns: wide } = self.mosaic;
        let CubeShape { columns, bands, .. } = self.info.shape;
        let mut frame = RowBuffer::new();
        self.frame.read_rows(rows.start * tall..rows.end * tall, &mut frame)?;
        let size = self.info.dtype.size();
        let line = self.frame.info().shape.columns * size;
        let to = out.reset(self.info.dtype, rows.len() * columns * bands);
        for (row, to) in to.chunks_exact_mut(columns * bands * size).enumerate() {
            for (band, from) in
                frame.bytes()[row * tall * line..].chunks_exact(line).take(tall).enumerate()
            {
                for (pixel, to) in to.chunks_exact_mut(bands * size).enumerate() {
                    to[band * wide * size..][..wide * size]
                        .copy_from_slice(&from[pixel * wide * size..][..wide * size]);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hsipack_format::DType;

    use super::*;
    use crate::AxisOrder;
    use crate::flat::{FlatLayout, FlatSource, MemoryBytes};

    fn frame(rows: usize, columns: usize, bands: usize) -> Box<dyn Source> {
        let shape = CubeShape::new(rows, columns, bands);
        let info = CubeInfo::new("test", shape, DType::U16, "frame");
        let layout = FlatLayout {
            offset: 0,
            order: AxisOrder::BIP,
            big_endian: false,
            rows_reversed: false,
        };
        let bytes = (0..shape.values() as u16).flat_map(u16::to_le_bytes).collect();
        Box::new(FlatSource::new(info, layout, MemoryBytes(bytes)))
    }

    #[test]
    fn a_tile_is_a_pixel_with_its_bands_in_row_order() {
        let cube = demosaic(frame(5, 7, 1), "2x3".parse().unwrap()).unwrap();
        assert_eq!(cube.info().shape, CubeShape::new(2, 2, 6));
        assert_eq!(cube.info().notes.len(), 1);
        let mut out = RowBuffer::new();
        cube.read_rows(1..2, &mut out).unwrap();
        assert_eq!(out.as_slice::<u16>(), [14, 15, 16, 21, 22, 23, 17, 18, 19, 24, 25, 26]);
    }

    #[test]
    fn other_files_and_tiles_are_refused() {
        let mosaic: Mosaic = "4x4".parse().unwrap();
        for frame in [frame(8, 8, 2), frame(3, 8, 1)] {
            assert!(demosaic(frame, mosaic).is_err());
        }
        for text in ["", "4", "4x", "0x4", "1x1", "4x4x4", "1000x1000"] {
            assert!(text.parse::<Mosaic>().is_err(), "{text}");
        }
        assert_eq!(serde_json::from_str::<Mosaic>("[4, 4]").unwrap(), mosaic);
        assert_eq!(serde_json::from_str::<Mosaic>("\"4x4\"").unwrap(), mosaic);
    }
}
