//! Copies windows out of decoded chunks in memory, in a separate loop.
//!
//! Training on spectra or small patches reads millions of windows per second. For each of them, the
//! lookups in [`Decoder::rows`] take longer than the copy. And with so much code between two
//! copies, the processor cannot wait for several places of memory at once.

use hsipack_format::Grid;
use hsipack_store::rows::{Values, WindowCopy};

use super::{Decoder, Scratch};
use crate::cache::Cache;
use crate::dataset::array::ArrayRef;
use crate::dataset::integers::Conversion;
use crate::plan::Window;
use crate::shuffle_buffer::{BufferedChunk, ShuffleBuffer};

/// Where the decoded chunks are.
#[derive(Clone, Copy)]
enum Kept<'a> {
    Cached(&'a Cache),
    ShuffleBuffer(&'a ShuffleBuffer),
}

/// The band groups of the chunks from which windows are copied, found once for all windows of a
/// grid.
#[derive(Debug, Default)]
pub(crate) struct GroupsOfGrid {
    grid: Option<Grid>,
    groups: Vec<usize>,
}

impl GroupsOfGrid {
    /// The groups of `grid` that have any of `bands`. `bands` must be the same in all calls.
    fn with(&mut self, grid: &Grid, bands: Option<&[usize]>) -> &[usize] {
        if self.grid != Some(*grid) {
            self.grid = Some(*grid);
            self.groups.clear();
            self.groups.extend(grid.groups_with(bands));
        }
        &self.groups
    }
}

/// Some bands of a window, or bands from several chunks.
struct SomeBands<'a> {
    grid: &'a Grid,
    element: usize,
    groups: &'a [usize],
    chosen: Option<&'a [usize]>,
}

/// The decoded chunks of one cube in memory.
pub(crate) struct Gather<'a> {
    kept: Kept<'a>,
    array: ArrayRef<'a>,
    /// The number of the cube's first chunk among all chunks of the array.
    first: usize,
    rows: usize,
    columns: usize,
    /// Rows and columns of a chunk, as 32-bit numbers because processors divide these in half the
    /// time.
    tile: (u32, u32),
    across: usize,
    /// Bytes of a pixel of a window, as they are stored.
    pixel_bytes: usize,
    conversion: Option<Conversion>,
    /// `None` if windows have all bands, which are in one chunk.
    some_bands: Option<SomeBands<'a>>,
}

impl<'a> Decoder<'a> {
    /// The chunks of the cube at `index`, if decoded chunks are kept.
    pub(crate) fn gather(
        &self,
        array: ArrayRef<'a>,
        index: usize,
        groups: &'a mut GroupsOfGrid,
    ) -> Option<Gather<'a>> {
        let kept = match self.shuffle_buffer {
            Some(buffer) => Kept::ShuffleBuffer(buffer),
            None => Kept::Cached(self.cache.filter(|cache| cache.keeps_decoded())?),
        };
        let (grid, shape) = (array.grid(), array.shape());
        let chosen = self.bands.filter(|_| array.array == 0);
        // Windows whose bands are drawn need few of the groups.
        if self.needed.is_some() && array.array == 0 && grid.band_groups() > 1 {
            return None;
        }
        let element = array.stored_dtype().size();
        let some_bands = (chosen.is_some() || grid.band_groups() > 1).then(|| SomeBands {
            grid,
            element,
            groups: groups.with(grid, chosen),
            chosen,
        });
        let side = |length: usize| u32::try_from(length).ok();
        Some(Gather {
            kept,
            array,
            first: array.number(index, 0),
            rows: shape.rows,
            columns: shape.columns,
            tile: (side(grid.tile().rows)?, side(grid.tile().columns)?),
            across: grid.across(),
            pixel_bytes: chosen.map_or(shape.bands, <[usize]>::len) * element,
            conversion: array.conversion(),
            some_bands,
        })
    }
}

/// Where a window lies: the number of the first chunk with its pixels, and its first row and column
/// in this chunk.
struct Location {
    chunk: usize,
    row: usize,
    column: usize,
}

impl Gather<'_> {
    /// Copies windows into `out`, one after another. Stops at the first window whose pixels do not
    /// lie in a single chunk of each band group, or whose chunks are not in memory. Returns how
    /// many windows it copied.
    pub(crate) fn copy(
        &self,
        windows: impl Iterator<Item = Window>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> usize {
        let mut rest = out;
        let mut copied = 0;
        for window in windows {
            let Some(location) = self.find(window) else { break };
            let stored = window.rows as usize * window.columns as usize * self.pixel_bytes;
            let bytes = self.conversion.map_or(stored, |to| to.converted_bytes(stored));
            let (out, after) = rest.split_at_mut(bytes);
            let done = match &self.some_bands {
                None => self.all_bands(&location, window, out),
                Some(bands) => {
                    self.some_bands(bands, &location, window, out, &mut scratch.integers)
                }
            };
            if done.is_none() {
                break;
            }
            rest = after;
            copied += 1;
        }
        let chunks = copied * self.some_bands.as_ref().map_or(1, |bands| bands.groups.len());
        scratch.meter.chunks += chunks as u64;
        scratch.meter.cached_chunks += chunks as u64;
        if let Kept::Cached(cache) = self.kept {
            cache.gave(chunks * self.array.chunks.chunk_bytes(), None);
        }
        copied
    }

    /// Calls `copy` with a chunk, if it is in memory.
    fn with_chunk<T>(&self, number: usize, copy: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self.kept {
            Kept::Cached(cache) => cache.decoded(self.array, number).map(copy),
            Kept::ShuffleBuffer(all) => {
                all.get(self.array, number).as_ref().map(BufferedChunk::bytes).map(copy)
            }
        }
    }

    /// Copies a window with all bands, which are in one chunk. `None` if it is not in memory.
    fn all_bands(&self, location: &Location, window: Window, out: &mut [u8]) -> Option<()> {
        let (columns, width) = (window.columns as usize, self.tile.1 as usize);
        let (row_bytes, pitch) = (columns * self.pixel_bytes, width * self.pixel_bytes);
        let start = (location.row * width + location.column) * self.pixel_bytes;
        self.with_chunk(location.chunk, |chunk| {
            let row_of = |row: usize| &chunk[start + row * pitch..][..row_bytes];
            let Some(conversion) = &self.conversion else {
                for (row, out) in out.chunks_exact_mut(row_bytes).enumerate() {
                    out.copy_from_slice(row_of(row));
                }
                return;
            };
            let width = conversion.converted_bytes(row_bytes);
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                conversion.run(row_of(row), out);
            }
        })
    }

    /// Copies some bands of a window, or bands from several chunks. `None` if a chunk is not in
    /// memory, or there is no memory for `integers`.
    fn some_bands(
        &self,
        bands: &SomeBands<'_>,
        location: &Location,
        window: Window,
        out: &mut [u8],
        integers: &mut Vec<u8>,
    ) -> Option<()> {
        let SomeBands { grid, element, groups, chosen } = *bands;
        let all = |out: &mut [u8]| -> Option<()> {
            for group in groups {
                let first = group * grid.band_group();
                let copy = WindowCopy {
                    from_row: location.row,
                    from_column: location.column,
                    from_width: grid.tile().columns,
                    to_column: 0,
                    to_width: window.columns as usize,
                    rows: window.rows as usize,
                    columns: window.columns as usize,
                    values: Values::stored(element),
                    bands: grid.band_group(),
                    of_bands: grid.shape().bands,
                    group: first..grid.shape().bands.min(first + grid.band_group()),
                    chosen,
                };
                self.with_chunk(location.chunk + group, |chunk| copy.run(chunk, out))?;
            }
            Some(())
        };
        let Some(conversion) = &self.conversion else { return all(out) };
        let mut done = None;
        let filled = conversion.fill(out, integers, &mut |stored| {
            done = all(stored);
            Ok(())
        });
        done.filter(|()| filled.is_ok())
    }

    /// The location of a window whose pixels lie in one chunk, or in one of each band group.
    fn find(&self, window: Window) -> Option<Location> {
        if !window.is_inside(self.rows, self.columns) {
            return None;
        }
        // The window is inside, so neither is negative.
        let (row, column) = (window.row as u32, window.column as u32);
        let (down, across) = (row / self.tile.0, column / self.tile.1);
        let (row, column) = (row - down * self.tile.0, column - across * self.tile.1);
        if row + window.rows > self.tile.0 || column + window.columns > self.tile.1 {
            return None;
        }
        let position = down as usize * self.across + across as usize;
        let chunk = self.first + position * self.array.grid().band_groups();
        Some(Location { chunk, row: row as usize, column: column as usize })
    }
}
