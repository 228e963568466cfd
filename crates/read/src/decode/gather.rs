//! Copies windows out of decoded chunks in memory, in a separate loop.
//!
//! Training on spectra or small patches reads millions of windows per second. For each of them, the lookups in
//! [`Decoder::rows`] take longer than the copy. And with so much code between two copies, the processor cannot wait for
//! several places of memory at once.

use super::{Decoder, Meter};
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

/// The decoded chunks of one cube in memory.
pub(crate) struct Gather<'a> {
    kept: Kept<'a>,
    array: ArrayRef<'a>,
    /// The number of the cube's first chunk among all chunks of the array.
    first: usize,
    rows: usize,
    columns: usize,
    /// Rows and columns of a chunk, as 32-bit numbers because processors divide these in half the time.
    tile: (u32, u32),
    across: usize,
    /// Bytes of a pixel as it is stored.
    pixel_bytes: usize,
    conversion: Option<Conversion>,
}

impl<'a> Decoder<'a> {
    /// The chunks of the cube at `index`, if decoded chunks are kept with all bands, and all bands are wanted.
    pub(crate) fn gather(&self, array: ArrayRef<'a>, index: usize) -> Option<Gather<'a>> {
        let kept = match self.shuffle_buffer {
            Some(buffer) => Kept::ShuffleBuffer(buffer),
            None => Kept::Cached(self.cache.filter(|cache| cache.keeps_decoded())?),
        };
        if self.bands_of(array).is_some() || array.grid().band_groups() > 1 {
            return None;
        }
        let (grid, shape) = (array.grid(), array.shape());
        let side = |length: usize| u32::try_from(length).ok();
        Some(Gather {
            kept,
            array,
            first: array.number(index, 0),
            rows: shape.rows,
            columns: shape.columns,
            tile: (side(grid.tile().rows)?, side(grid.tile().columns)?),
            across: grid.across(),
            pixel_bytes: shape.bands * array.stored_dtype().size(),
            conversion: array.conversion(),
        })
    }
}

impl Gather<'_> {
    /// Copies windows into `out`, one after another. Stops at the first window that does not lie in a single chunk in
    /// memory. Returns how many windows it copied.
    pub(crate) fn copy(
        &self,
        windows: impl Iterator<Item = Window>,
        out: &mut [u8],
        meter: &mut Meter,
    ) -> usize {
        let mut rest = out;
        let mut copied = 0;
        for window in windows {
            let Some((number, start)) = self.find(window) else { break };
            let held;
            let chunk = match self.kept {
                Kept::Cached(cache) => cache.decoded(self.array, number),
                Kept::ShuffleBuffer(all) => {
                    held = all.get(self.array, number);
                    held.as_ref().map(BufferedChunk::bytes)
                }
            };
            let Some(chunk) = chunk else { break };
            let (row_bytes, pitch) = (
                window.columns as usize * self.pixel_bytes,
                self.tile.1 as usize * self.pixel_bytes,
            );
            let row_of = |row: usize| &chunk[start + row * pitch..][..row_bytes];
            let Some(conversion) = &self.conversion else {
                let (out, after) = rest.split_at_mut(row_bytes * window.rows as usize);
                rest = after;
                for (row, out) in out.chunks_exact_mut(row_bytes).enumerate() {
                    out.copy_from_slice(row_of(row));
                }
                copied += 1;
                continue;
            };
            let width = conversion.converted_bytes(row_bytes);
            let (out, after) = rest.split_at_mut(width * window.rows as usize);
            rest = after;
            for (row, out) in out.chunks_exact_mut(width).enumerate() {
                conversion.run(row_of(row), out);
            }
            copied += 1;
        }
        meter.chunks += copied as u64;
        meter.cached_chunks += copied as u64;
        if let Kept::Cached(cache) = self.kept {
            cache.gave(copied * self.array.chunks.chunk_bytes());
        }
        copied
    }

    /// The number of the chunk that contains the whole window, and where in the chunk the window's first value is.
    fn find(&self, window: Window) -> Option<(usize, usize)> {
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
        let number = self.first + down as usize * self.across + across as usize;
        let pixel = row as usize * self.tile.1 as usize + column as usize;
        Some((number, pixel * self.pixel_bytes))
    }
}
