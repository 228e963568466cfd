//! From stored chunks to rows of a batch.
//!
//! A chunk that is whole rows of what is wanted decodes straight into its place. Others decode into
//! working memory, from which the wanted rows, columns and bands are copied.

mod ahead;
mod copy;

use std::time::{Duration, Instant};

use hsipack_store::memory;

use crate::cache::Cache;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::plan::Window;
use crate::store::ReadBuffer;
use crate::{Error, ErrorKind, Result};
use copy::Copy;

pub(crate) use ahead::Ahead;

/// Stored bytes of a window from which on it is worth the turns of other threads to have them read ahead.
const WORTH: u64 = 1 << 20;

/// Decodes windows of one dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    pub dataset: &'a Dataset,
    /// Bands of images that are wanted, all if `None`.
    pub bands: Option<&'a [usize]>,
    pub cache: Option<&'a Cache>,
}

/// Working memory of one thread, and what it measured.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    read: ReadBuffer,
    /// A decoded chunk, aligned for every element type.
    decoded: Vec<u64>,
    /// Since it was last looked at.
    pub meter: Meter,
    /// Whether to note when reads were.
    traced: bool,
    /// When they were.
    pub reads: Vec<(Instant, Instant)>,
}

/// Where the time of decoding goes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    /// Chunks decoded or copied from the cache.
    pub chunks: u64,
    /// Bytes read from the store.
    pub stored_bytes: u64,
    /// Chunks that came from the cache.
    pub cached_chunks: u64,
    /// Time in the store: reading, or waiting for the disk. Page faults of memory maps count as decoding.
    pub read: Duration,
}

impl Scratch {
    /// As the default, but maybe noting when reads were.
    pub(crate) fn traced(traced: bool) -> Self {
        Self { traced, ..Self::default() }
    }
}

impl Decoder<'_> {
    /// Reads a window of the cube of a sample into `out`, which it fills: (row, column, band).
    pub(crate) fn window(
        &self,
        array: ArrayRef<'_>,
        sample: usize,
        window: Window,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let index = self.dataset.samples().index(sample);
        self.ask_ahead(array, index, window);
        let mut rest = out;
        for down in chunk_rows(array, window) {
            let (part, after) = rest
                .split_at_mut(self.row_bytes(array, window) * rows_of(array, down, window).len());
            self.rows(array, index, down, window, part, scratch)?;
            rest = after;
        }
        debug_assert!(rest.is_empty());
        Ok(())
    }

    /// Has the store read the window's chunks ahead while the first one, which is wanted at once, is decoded. Errors wait
    /// for those who read.
    fn ask_ahead(&self, array: ArrayRef<'_>, index: usize, window: Window) {
        let chunks = chunk_rows(array, window).flat_map(|down| chunks_of(array, down, window));
        let stored = chunks.skip(1).filter_map(|chunk| array.locate(index, chunk).ok().flatten());
        let stored: Vec<_> = stored.collect();
        if stored.iter().map(|stored| stored.span.end - stored.span.start).sum::<u64>() < WORTH {
            return;
        }
        let mut ahead = Ahead::default();
        stored.into_iter().for_each(|stored| ahead.want(stored));
        ahead.end();
    }

    /// Bytes of one row of a window as delivered.
    pub(crate) fn row_bytes(&self, array: ArrayRef<'_>, window: Window) -> usize {
        window.columns as usize
            * self.bands_of(array).map_or(array.shape().bands, <[usize]>::len)
            * array.dtype().size()
    }

    /// Masks have no bands to choose from.
    fn bands_of(&self, array: ArrayRef<'_>) -> Option<&[usize]> {
        self.bands.filter(|_| array.array == 0)
    }

    /// Reads the rows of a window that lie in chunk row `down` of the cube at `index` into `out`, which they
    /// fill.
    pub(crate) fn rows(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        down: usize,
        window: Window,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (grid, tile) = (array.grid(), array.grid().tile());
        let rows = rows_of(array, down, window);
        let (first, end) = (window.column as usize, (window.column + window.columns) as usize);
        // What is decoded lies in `out` as it is wanted: all of one chunk.
        let straight = first.is_multiple_of(tile.columns)
            && end - first == tile.columns
            && rows.len() == tile.rows
            && self.bands_of(array).is_none();
        for chunk in chunks_of(array, down, window) {
            if straight {
                self.chunk(array, index, chunk, out, scratch)?;
                continue;
            }
            let region = grid.region(chunk);
            let columns = region.columns.start.max(first)..region.columns.end.min(end);
            let copy = Copy {
                from_row: rows.start - region.rows.start,
                from_column: columns.start - region.columns.start,
                from_width: tile.columns,
                to_column: columns.start - first,
                to_width: end - first,
                rows: rows.len(),
                columns: columns.len(),
                element: array.dtype().size(),
                bands: array.shape().bands,
                chosen: self.bands_of(array),
            };
            self.copy_chunk(array, index, chunk, copy, out, scratch)?;
        }
        Ok(())
    }

    fn copy_chunk(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        chunk: usize,
        copy: Copy<'_>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let cached = self.cache.and_then(|cache| cache.decoded(array, array.number(index, chunk)));
        if let Some(decoded) = cached {
            scratch.meter.chunks += 1;
            scratch.meter.cached_chunks += 1;
            copy.run(decoded, out);
            return Ok(());
        }
        let bytes = array.chunks.chunk_bytes();
        let mut decoded = std::mem::take(&mut scratch.decoded);
        if decoded.len() < bytes.div_ceil(8) {
            decoded = memory::zeroed(bytes.div_ceil(8), "a chunk")?;
        }
        let whole = &mut bytemuck::cast_slice_mut(&mut decoded)[..bytes];
        let done = self.chunk(array, index, chunk, whole, scratch);
        if done.is_ok() {
            copy.run(whole, out);
        }
        scratch.decoded = decoded;
        done
    }

    /// Decodes a whole chunk into `out`, which it fills.
    fn chunk(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        chunk: usize,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let number = array.number(index, chunk);
        scratch.meter.chunks += 1;
        if let Some(cache) = self.cache {
            if let Some(decoded) = cache.decoded(array, number) {
                scratch.meter.cached_chunks += 1;
                out.copy_from_slice(decoded);
                return Ok(());
            }
            if let Some(stored) = cache.stored(array, number) {
                scratch.meter.cached_chunks += 1;
                return decode(array, index, chunk, stored, out);
            }
        }
        let located =
            array.locate(index, chunk).map_err(|error| array.in_chunk(index, chunk, error))?;
        let Some(stored) = located else { return array.chunks.fill(out) };
        let Scratch { read, meter, traced, reads, .. } = scratch;
        meter.stored_bytes += stored.span.end - stored.span.start;
        let before = Instant::now();
        stored.file.with_bytes(stored.span, read, &mut |bytes| {
            let after = Instant::now();
            meter.read += after - before;
            if *traced {
                reads.push((before, after));
            }
            decode(array, index, chunk, bytes, out)?;
            if let Some(cache) = self.cache {
                cache.keep(array, number, bytes, out);
            }
            Ok(())
        })
    }
}

/// Decodes, with an error that names sample, shard and chunk.
fn decode(
    array: ArrayRef<'_>,
    index: usize,
    chunk: usize,
    stored: &[u8],
    out: &mut [u8],
) -> Result<()> {
    let number = array.number(index, chunk);
    array.decode(number, stored, out).map_err(|error| array.in_chunk(index, chunk, error))
}

/// Whether a sample with this error may be left out instead of ending the epoch: it is this sample's data
/// that are bad, not the machine.
pub(crate) fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Damaged
}

/// Numbers of the chunk rows that a window touches.
pub(crate) fn chunk_rows(array: ArrayRef<'_>, window: Window) -> std::ops::Range<usize> {
    let rows = array.grid().tile().rows;
    window.row as usize / rows..((window.row + window.rows) as usize).div_ceil(rows)
}

/// Numbers of the chunks of chunk row `down` that a window touches.
pub(crate) fn chunks_of(
    array: ArrayRef<'_>,
    down: usize,
    window: Window,
) -> std::ops::Range<usize> {
    let (columns, first) = (array.grid().tile().columns, down * array.grid().across());
    let end = (window.column + window.columns) as usize;
    first + window.column as usize / columns..first + end.div_ceil(columns)
}

/// Rows of the cube that lie in chunk row `down` and in a window.
pub(crate) fn rows_of(array: ArrayRef<'_>, down: usize, window: Window) -> std::ops::Range<usize> {
    let tile = array.grid().tile();
    let (start, end) = (window.row as usize, (window.row + window.rows) as usize);
    (down * tile.rows).max(start)..((down + 1) * tile.rows).min(end)
}
