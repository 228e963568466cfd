//! Cuts the planned cubes into pieces that threads read and transform independently.

use std::ops::Range;
use std::sync::Arc;

use hsipack_format::Result;
use hsipack_source::{Access, RowBuffer, Source};

use super::{PlannedSample, open_source};
use crate::convert::ValueOptions;
use crate::convert::pixel_position::PixelPosition;
use crate::convert::transform::{Scratch, Transform};

/// An open planned cube.
pub(crate) struct Opened<'a> {
    pub sample: &'a PlannedSample,
    pub source: Box<dyn Source>,
    transform: Transform,
}

/// Rows of a planned cube that one thread reads, in the given order.
pub(crate) struct Piece<'a> {
    pub cube: Arc<Opened<'a>>,
    /// Ranges of rows, each read at once. A source that must be read in order has all of them in
    /// one piece.
    pub reads: Vec<Range<usize>>,
}

/// Buffers that a thread reuses for all pieces.
#[derive(Default)]
pub(crate) struct Room {
    pub rows: RowBuffer,
    pub scratch: Scratch,
}

impl<'a> Opened<'a> {
    /// Opens a cube. Its values are divided by `scale`.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(sample: &'a PlannedSample, values: &ValueOptions, scale: f64) -> Result<Self> {
        let source = open_source(&sample.input, values)?;
        Ok(Self { sample, source, transform: sample.transform(values, scale)? })
    }

    /// Divides these reads into pieces.
    pub fn pieces(self, reads: Vec<Range<usize>>) -> Vec<Piece<'a>> {
        let cube = Arc::new(self);
        match cube.source.access() {
            Access::Sequential => vec![Piece { cube, reads }],
            Access::Random => {
                let piece = |rows| Piece { cube: cube.clone(), reads: vec![rows] };
                reads.into_iter().map(piece).collect()
            }
        }
    }

    /// Reads rows and passes their transformed values to `each`, in single precision.
    ///
    /// # Errors
    /// If they cannot be read or transformed.
    pub fn read(
        &self,
        rows: Range<usize>,
        room: &mut Room,
        each: &mut dyn FnMut(&[f32]),
    ) -> Result<()> {
        self.read_tiles(rows, room, &mut |_, values| {
            each(values);
            Ok(())
        })
    }

    /// The same as [`read`](Self::read), with the place of the first pixel of `values`.
    ///
    /// # Errors
    /// The same as those of [`read`](Self::read), and if `each` fails.
    pub fn read_tiles(
        &self,
        rows: Range<usize>,
        room: &mut Room,
        each: &mut dyn FnMut(PixelPosition, &[f32]) -> Result<()>,
    ) -> Result<()> {
        self.source.read_rows(rows.clone(), &mut room.rows)?;
        self.transform
            .apply(&room.rows, rows.start, 0..rows.len(), &mut room.scratch, each)
            .map_err(|error| error.at(&self.sample.input.file))
    }

    /// The row, column and band of value `at` of a tile.
    pub fn locate(&self, tile: PixelPosition, at: usize) -> (usize, usize, usize) {
        let (PixelPosition { row, column }, band) = self.transform.locate(tile, at);
        (row, column, band)
    }

    /// The same as [`read`](Self::read), but in double precision.
    ///
    /// # Errors
    /// The same as those of [`read`](Self::read).
    pub fn read_f64(
        &self,
        rows: Range<usize>,
        room: &mut Room,
        each: &mut dyn FnMut(&[f64]),
    ) -> Result<()> {
        self.source.read_rows(rows.clone(), &mut room.rows)?;
        let mut hand = |_, values: &[f64]| {
            each(values);
            Ok(())
        };
        self.transform
            .apply_f64(&room.rows, rows.start, &mut room.scratch, &mut hand)
            .map_err(|error| error.at(&self.sample.input.file))
    }
}
