//! Reading rows of a cube from its chunks.
//!
//! If a chunk consists of whole rows that are all wanted, with all bands, it is decoded directly
//! into its place. Other chunks are decoded into working memory, from which the wanted rows,
//! columns and bands are copied. Loaders, `validate`, `export` and previews all read rows this way.
//! Each of them decides where the chunks come from ([`Chunks`]).

mod copy;

use std::fmt;
use std::ops::Range;

use hsipack_format::{Grid, Result};

use crate::memory;
pub use copy::WindowCopy;

/// The chunks of one cube.
pub trait Chunks {
    /// Decodes chunk `chunk` into `out` and fills it.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    fn decode(&mut self, chunk: usize, out: &mut [u8]) -> Result<()>;

    /// The same with values as they are delivered, if they are converted ([`Values::converted`]).
    ///
    /// # Errors
    /// As for [`decode`](Self::decode).
    fn deliver(&mut self, chunk: usize, out: &mut [u8]) -> Result<()> {
        self.decode(chunk, out)
    }

    /// The chunk's decoded values, if they are in memory.
    fn decoded(&mut self, _chunk: usize) -> Option<&[u8]> {
        None
    }
}

/// Writes values as they are delivered.
pub type Convert<'a> = dyn Fn(&[u8], &mut [u8]) + 'a;

/// The values of a cube, on the way from its chunks to the output.
#[derive(Clone, Copy)]
pub struct Values<'a> {
    /// Bytes of a value in a chunk.
    stored: usize,
    /// Bytes of a value in the output, and the conversion.
    converted: Option<(usize, &'a Convert<'a>)>,
}

impl<'a> Values<'a> {
    /// Values of so many bytes, which are delivered as they are stored.
    pub fn stored(bytes: usize) -> Self {
        Self { stored: bytes, converted: None }
    }

    /// Values of `stored` bytes that become values of `delivered` bytes. [`take`] needs whole
    /// pixels of them: all bands, in one chunk.
    pub fn converted(stored: usize, delivered: usize, convert: &'a Convert<'a>) -> Self {
        Self { stored, converted: Some((delivered, convert)) }
    }

    fn delivered(&self) -> usize {
        self.converted.map_or(self.stored, |(bytes, _)| bytes)
    }

    fn put(&self, from: &[u8], to: &mut [u8]) {
        match self.converted {
            Some((_, convert)) => convert(from, to),
            None => to.copy_from_slice(from),
        }
    }
}

impl fmt::Debug for Values<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "values of {} bytes, delivered as {}", self.stored, self.delivered())
    }
}

/// A part of one row of chunks.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// Which row of chunks.
    pub down: usize,
    /// Rows of the cube; all of them are in that row of chunks.
    pub rows: Range<usize>,
    /// Columns of the cube.
    pub columns: Range<usize>,
    /// Bands in the wanted order; all bands if `None`.
    pub bands: Option<&'a [usize]>,
    /// The bands that are used. Chunks without any of them are not read, and the values of their
    /// bands stay as they are in the output.
    pub needed: Option<&'a [usize]>,
}

/// Reads a part of a cube into `out`, which it fills with the bands that are used: (row, column,
/// band). `decoded` is working memory for one chunk. It is allocated once and is aligned for every
/// type of value.
///
/// # Errors
/// The errors of `chunks`, and if the system refuses the working memory.
pub fn take(
    grid: &Grid,
    values: Values<'_>,
    part: &Part<'_>,
    chunks: &mut impl Chunks,
    decoded: &mut Vec<u64>,
    out: &mut [u8],
) -> Result<()> {
    let tile = grid.tile();
    let (rows, wanted) = (&part.rows, &part.columns);
    let has_whole_pixels = grid.band_groups() == 1 && part.bands.is_none();
    debug_assert!(has_whole_pixels || values.converted.is_none());
    // One whole chunk is wanted, so it can be decoded directly into `out`.
    let straight = wanted.start.is_multiple_of(tile.columns)
        && wanted.len() == tile.columns
        && rows.len() == tile.rows
        && has_whole_pixels;
    for chunk in grid.chunks_in(part.down, wanted, part.needed) {
        if straight {
            match values.converted {
                Some(_) => chunks.deliver(chunk, out)?,
                None => chunks.decode(chunk, out)?,
            }
            continue;
        }
        let region = grid.region(chunk);
        let columns = region.columns.start.max(wanted.start)..region.columns.end.min(wanted.end);
        let copy = WindowCopy {
            from_row: rows.start - region.rows.start,
            from_column: columns.start - region.columns.start,
            from_width: tile.columns,
            to_column: columns.start - wanted.start,
            to_width: wanted.len(),
            rows: rows.len(),
            columns: columns.len(),
            values,
            bands: grid.band_group(),
            of_bands: grid.shape().bands,
            group: region.bands,
            chosen: part.bands,
        };
        if let Some(decoded) = chunks.decoded(chunk) {
            copy.run(decoded, out);
            continue;
        }
        let bytes = grid.chunk_values() * values.stored;
        if decoded.len() < bytes.div_ceil(8) {
            *decoded = memory::zeroed(bytes.div_ceil(8), "a chunk")?;
        }
        let whole = &mut bytemuck::cast_slice_mut(decoded)[..bytes];
        chunks.decode(chunk, whole)?;
        copy.run(whole, out);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::{CubeShape, Tile};
    use proptest::prelude::*;

    /// Chunks whose values encode their position in the cube. Chunks with odd numbers are in
    /// memory.
    struct Numbered {
        grid: Grid,
        chunk: Vec<u8>,
    }

    fn value(row: usize, column: usize, band: usize) -> u8 {
        (row * 31 + column * 7 + band) as u8
    }

    impl Chunks for Numbered {
        fn decode(&mut self, chunk: usize, out: &mut [u8]) -> Result<()> {
            let (tile, bands) = (self.grid.tile(), self.grid.band_group());
            let region = self.grid.region(chunk);
            for (number, value_out) in out.iter_mut().enumerate() {
                let (pixel, band) = (number / bands, number % bands);
                let (row, column) = (pixel / tile.columns, pixel % tile.columns);
                let band = region.bands.start + band;
                *value_out = value(region.rows.start + row, region.columns.start + column, band);
            }
            Ok(())
        }

        fn decoded(&mut self, chunk: usize) -> Option<&[u8]> {
            let mut bytes = vec![0; self.grid.chunk_values()];
            self.decode(chunk, &mut bytes).unwrap();
            self.chunk = bytes;
            (chunk % 2 == 1).then_some(&self.chunk)
        }
    }

    proptest! {
        #[test]
        fn any_part_of_a_cube_is_what_its_chunks_hold(
            cube in (1usize..9, 1usize..9, 1usize..20), tile in (1usize..9, 1usize..9), at in any::<[prop::sample::Index; 4]>(),
            group in 1usize..24, chosen in prop::option::of(prop::collection::vec(any::<prop::sample::Index>(), 1..9))
        ) {
            let (height, width, bands) = cube;
            let tile = Tile { rows: tile.0.min(height), columns: tile.1.min(width) };
            let grid = Grid::new(CubeShape::new(height, width, bands), tile, 1).unwrap();
            let grid = grid.in_band_groups(group).unwrap();
            let (row, column) = (at[0].index(height), at[1].index(width));
            let rows = row..row + at[2].index(height - row) + 1;
            let columns = column..column + at[3].index(width - column) + 1;
            let chosen: Option<Vec<usize>> =
                chosen.map(|list| list.iter().map(|band| band.index(bands)).collect());
            let list = chosen.clone().unwrap_or_else(|| (0..bands).collect());
            let mut want = Vec::new();
            for y in rows.clone() {
                for x in columns.clone() {
                    want.extend(list.iter().map(|band| value(y, x, *band)));
                }
            }
            let mut got = vec![0; want.len()];
            let mut remaining = got.as_mut_slice();
            let (mut chunks, mut decoded) = (Numbered { grid, chunk: Vec::new() }, Vec::new());
            for down in grid.chunk_rows(&rows) {
                let part = Part {
                    down, rows: grid.rows_in(down, &rows), columns: columns.clone(), bands: chosen.as_deref(), needed: chosen.as_deref(),
                };
                let (out, after) = remaining.split_at_mut(part.rows.len() * columns.len() * list.len());
                take(&grid, Values::stored(1), &part, &mut chunks, &mut decoded, out).unwrap();
                remaining = after;
            }
            prop_assert_eq!(got, want);
        }
    }
}
