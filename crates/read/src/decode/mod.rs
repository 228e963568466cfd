//! Decodes stored chunks into rows of a batch.
//!
//! `hsipack_store::rows` decides which chunk goes where. Here the chunks are taken from the cache
//! or the store, and the work is measured.

mod gather;
mod padded;
mod prefetch;

use std::time::{Duration, Instant};

use hsipack_store::rows::{self, Chunks, Part, Values};

use crate::cache::Cache;
use crate::dataset::Dataset;
use crate::dataset::array::{ArrayRef, Stored};
use crate::dataset::integers::Conversion;
use crate::plan::Window;
use crate::shuffle_buffer::{BufferedChunk, ChunkRef, ShuffleBuffer};
use crate::store::ReadBuffer;
use crate::{Error, ErrorKind, Result};

pub(crate) use gather::GroupsOfGrid;
pub(crate) use padded::{fill, inside};
pub(crate) use prefetch::ChunkPrefetch;

/// If a window has at least this many stored bytes, other threads read its chunks ahead.
const WORTH: u64 = 1 << 20;

/// Decodes windows of one dataset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    pub dataset: &'a Dataset,
    /// The bands of images to read; all if `None`.
    pub bands: Option<&'a [usize]>,
    /// Those of these bands that are used; all if `None`. The others may get any values.
    pub needed: Option<&'a [usize]>,
    pub cache: Option<&'a Cache>,
    /// Chunks that are held in memory while their windows come.
    pub shuffle_buffer: Option<&'a ShuffleBuffer>,
}

/// Working memory of one thread, and what it measured.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    read: ReadBuffer,
    /// A decoded chunk, aligned for every element type.
    decoded: Vec<u64>,
    /// Integers that are converted to the values of a part.
    integers: Vec<u8>,
    edge: padded::Edge,
    /// Values of a part of an image that is brought to other bands.
    pub unfitted: Vec<u8>,
    /// A spectrum before and after that.
    pub spectra: [Vec<f32>; 2],
    /// Measurements since the meter was last read.
    pub meter: Meter,
    /// Whether to record when reads happen.
    traced: bool,
    /// When reads happened.
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
    /// Time in the store: reading, or waiting for the disk. Page faults of memory maps count as
    /// decoding.
    pub read: Duration,
}

impl Scratch {
    /// Like the default, but `traced` says whether to record when reads happen.
    pub(crate) fn traced(traced: bool) -> Self {
        Self { traced, ..Self::default() }
    }
}

impl Decoder<'_> {
    /// Reads a window of a sample's cube into `out`, which it fills: (row, column, band).
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
        self.all_rows(array, index, window, out, scratch)
    }

    /// Reads a window that lies inside the cube at `index`.
    pub(crate) fn all_rows(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        window: Window,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut rest = out;
        let (rows, row_bytes) = (window.row_range(), self.row_bytes(array, window));
        for down in array.grid().chunk_rows(&rows) {
            let bytes = array.grid().rows_in(down, &rows).len() * row_bytes;
            let (part, after) = rest.split_at_mut(bytes);
            self.rows(array, index, down, window, part, scratch)?;
            rest = after;
        }
        debug_assert!(rest.is_empty());
        Ok(())
    }

    /// Makes the store read the window's chunks ahead while the first one, which is needed at once,
    /// is decoded. Errors are ignored here, because reading the chunks reports them.
    fn ask_ahead(&self, array: ArrayRef<'_>, index: usize, window: Window) {
        let (grid, columns, bands) = (array.grid(), window.column_range(), self.needed_of(array));
        let rows = grid.chunk_rows(&window.row_range());
        let chunks = rows.flat_map(|down| grid.chunks_in(down, &columns, bands));
        let stored = chunks.skip(1).filter_map(|chunk| array.locate(index, chunk).ok().flatten());
        let stored: Vec<_> = stored.collect();
        if stored.iter().map(|stored| stored.span.end - stored.span.start).sum::<u64>() < WORTH {
            return;
        }
        let mut ahead = ChunkPrefetch::default();
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
    pub(crate) fn bands_of(&self, array: ArrayRef<'_>) -> Option<&[usize]> {
        self.bands.filter(|_| array.array == 0)
    }

    /// The bands that decide which chunks are read.
    pub(crate) fn needed_of(&self, array: ArrayRef<'_>) -> Option<&[usize]> {
        self.needed.filter(|_| array.array == 0).or(self.bands_of(array))
    }

    /// Reads the rows of a window that lie in chunk row `down` of the cube at `index` into `out`,
    /// which it fills.
    pub(crate) fn rows(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        down: usize,
        window: Window,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let part = Part {
            down,
            rows: array.grid().rows_in(down, &window.row_range()),
            columns: window.column_range(),
            bands: self.bands_of(array),
            needed: self.needed_of(array),
        };
        // Taken out, because decoding chunks needs the rest of the scratch.
        let mut decoded = std::mem::take(&mut scratch.decoded);
        let has_whole_pixels = part.bands.is_none() && array.grid().band_groups() == 1;
        let mut integers = Vec::new();
        if !has_whole_pixels {
            std::mem::swap(&mut integers, &mut scratch.integers);
        }
        let mut chunks = CubeChunks { decoder: self, array, index, scratch, held: None };
        let stored = array.stored_dtype().size();
        let mut take = |values: Values<'_>, out: &mut [u8]| {
            rows::take(array.grid(), values, &part, &mut chunks, &mut decoded, out)
        };
        let done = match array.conversion() {
            None => take(Values::stored(stored), out),
            Some(conversion) if has_whole_pixels => {
                let convert = |from: &[u8], to: &mut [u8]| conversion.run(from, to);
                take(Values::converted(stored, array.dtype().size(), &convert), out)
            }
            Some(conversion) => {
                conversion.fill(out, &mut integers, &mut |out| take(Values::stored(stored), out))
            }
        };
        scratch.decoded = decoded;
        if !has_whole_pixels {
            scratch.integers = integers;
        }
        done
    }

    /// Reads a whole chunk into `out`, which it fills, as its values are delivered.
    pub(crate) fn delivered_chunk(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        chunk: usize,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.chunk(array, index, chunk, array.conversion().as_ref(), out, scratch)
    }

    /// Decodes a whole chunk into `out`, which it fills with converted values if there is a
    /// conversion.
    fn chunk(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        chunk: usize,
        conversion: Option<&Conversion>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let number = array.number(index, chunk);
        scratch.meter.chunks += 1;
        let put = |decoded: &[u8], out: &mut [u8]| match conversion {
            Some(conversion) => conversion.run(decoded, out),
            None => out.copy_from_slice(decoded),
        };
        if let Some(buffer) = self.shuffle_buffer.and_then(|buffer| buffer.get(array, number)) {
            scratch.meter.cached_chunks += 1;
            put(buffer.bytes(), out);
            return Ok(());
        }
        if let Some(cache) = self.cache {
            if let Some(decoded) = cache.decoded(array, number) {
                scratch.meter.cached_chunks += 1;
                let before = Instant::now();
                put(decoded, out);
                // Converting values is no part of copying them.
                let copied = conversion.is_none().then(|| before.elapsed());
                cache.gave(decoded.len(), copied);
                return Ok(());
            }
            if let Some(stored) = cache.stored(array, number) {
                scratch.meter.cached_chunks += 1;
                return decode(array, index, chunk, stored, conversion, out, &mut scratch.integers);
            }
        }
        let keeps_decoded = self.cache.is_some_and(Cache::keeps_decoded);
        match conversion.filter(|_| keeps_decoded) {
            None => self.load(array, index, chunk, conversion, out, scratch),
            Some(conversion) => {
                let mut integers = std::mem::take(&mut scratch.integers);
                let done = conversion.fill(out, &mut integers, &mut |integers| {
                    self.load(array, index, chunk, None, integers, scratch)
                });
                scratch.integers = integers;
                done
            }
        }
    }

    /// Decodes a chunk and holds it, unless it is held already.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or there is no memory for it.
    pub(crate) fn hold(
        &self,
        buffer: &ShuffleBuffer,
        chunk: ChunkRef,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let array = chunk.array(self.dataset);
        let (index, chunk_index) = (chunk.index as usize, chunk.chunk as usize);
        let number = array.number(index, chunk_index);
        if buffer.holds(array, number) {
            return Ok(());
        }
        let mut bytes = buffer.memory(array.chunks.chunk_bytes())?;
        scratch.meter.chunks += 1;
        self.load(array, index, chunk_index, None, &mut bytes, scratch)?;
        buffer.hold(chunk, number, bytes);
        Ok(())
    }

    /// Calls `take` with the frame of a chunk, which has so many bytes, without its checksum. That
    /// is compared if it is due.
    ///
    /// # Errors
    /// If the chunk cannot be read, its checksum differs, or its frame has another length.
    pub(crate) fn frame(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        chunk: usize,
        bytes: usize,
        scratch: &mut Scratch,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let number = array.number(index, chunk);
        scratch.meter.chunks += 1;
        let mut taken = |stored: &[u8]| {
            let frame = array.frame(number, stored).and_then(|frame| match frame.len() == bytes {
                true => Ok(frame),
                false => Err(Error::damaged(format!("a frame has {} bytes", frame.len()))),
            });
            take(frame.map_err(|error| array.in_chunk(index, chunk, error))?);
            Ok(())
        };
        if let Some(stored) = self.cache.and_then(|cache| cache.stored(array, number)) {
            scratch.meter.cached_chunks += 1;
            return taken(stored);
        }
        let located =
            array.locate(index, chunk).map_err(|error| array.in_chunk(index, chunk, error))?;
        let Some(stored) = located else {
            return Err(Error::bug("a chunk that was never written has no frame"));
        };
        self.with_stored(&stored, scratch, &mut |bytes| {
            taken(bytes)?;
            // A cache of decoded chunks has no use for the frame.
            if let Some(cache) = self.cache.filter(|cache| !cache.keeps_decoded()) {
                cache.keep(array, number, bytes, &[], Duration::ZERO);
            }
            Ok(())
        })
    }

    /// Reads the bytes of a stored chunk, and measures that.
    fn with_stored(
        &self,
        stored: &Stored<'_>,
        scratch: &mut Scratch,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let Scratch { read, meter, traced, reads, .. } = scratch;
        meter.stored_bytes += stored.span.end - stored.span.start;
        let before = Instant::now();
        stored.file.with_bytes(stored.span.clone(), read, &mut |bytes| {
            let after = Instant::now();
            meter.read += after - before;
            if *traced {
                reads.push((before, after));
            }
            each(bytes)
        })
    }

    /// Decodes a whole chunk from the store into `out`, which it fills with converted values if
    /// there is a conversion.
    fn load(
        &self,
        array: ArrayRef<'_>,
        index: usize,
        chunk: usize,
        conversion: Option<&Conversion>,
        out: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let number = array.number(index, chunk);
        let located =
            array.locate(index, chunk).map_err(|error| array.in_chunk(index, chunk, error))?;
        // Taken out, because reading needs the rest of the scratch.
        let mut integers = std::mem::take(&mut scratch.integers);
        let done = match (located, conversion) {
            (None, None) => array.chunks.fill(out),
            (None, Some(conversion)) => {
                conversion.fill(out, &mut integers, &mut |out| array.chunks.fill(out))
            }
            (Some(stored), _) => self.with_stored(&stored, scratch, &mut |bytes| {
                let after = Instant::now();
                decode(array, index, chunk, bytes, conversion, out, &mut integers)?;
                if let Some(cache) = self.cache {
                    // A cache of decoded chunks asked for values that are not converted.
                    cache.keep(array, number, bytes, out, after.elapsed());
                }
                Ok(())
            }),
        };
        scratch.integers = integers;
        done
    }
}

/// The chunks of one cube, from the cache or the store.
struct CubeChunks<'a, 'd> {
    decoder: &'a Decoder<'d>,
    array: ArrayRef<'a>,
    index: usize,
    scratch: &'a mut Scratch,
    /// The held chunk that is being copied from.
    held: Option<BufferedChunk>,
}

impl Chunks for CubeChunks<'_, '_> {
    fn decode(&mut self, chunk: usize, out: &mut [u8]) -> Result<()> {
        self.decoder.chunk(self.array, self.index, chunk, None, out, self.scratch)
    }

    fn deliver(&mut self, chunk: usize, out: &mut [u8]) -> Result<()> {
        self.decoder.delivered_chunk(self.array, self.index, chunk, out, self.scratch)
    }

    fn decoded(&mut self, chunk: usize) -> Option<&[u8]> {
        let number = self.array.number(self.index, chunk);
        let decoded = match self.decoder.shuffle_buffer {
            Some(buffer) => {
                if !buffer.holds(self.array, number) {
                    // Another thread is about to decode this chunk, or is not that far. The windows of a batch in one
                    // chunk do not wait for it, but decode the chunk once. If that fails, it fails again where errors are
                    // reported.
                    let chunk = ChunkRef::new(self.array, self.index, chunk);
                    self.decoder.hold(buffer, chunk, self.scratch).ok()?;
                }
                self.held = buffer.get(self.array, number);
                self.held.as_ref()?.bytes()
            }
            None => {
                let cache = self.decoder.cache?;
                let decoded = cache.decoded(self.array, number)?;
                cache.gave(decoded.len(), None);
                decoded
            }
        };
        self.scratch.meter.chunks += 1;
        self.scratch.meter.cached_chunks += 1;
        Some(decoded)
    }
}

/// Decodes a chunk, and converts its values if there is a conversion. Errors name the sample, the
/// shard and the chunk.
fn decode(
    array: ArrayRef<'_>,
    index: usize,
    chunk: usize,
    stored: &[u8],
    conversion: Option<&Conversion>,
    out: &mut [u8],
    integers: &mut Vec<u8>,
) -> Result<()> {
    let number = array.number(index, chunk);
    let decoded = match conversion {
        Some(conversion) => array.convert(number, stored, conversion, integers, out),
        None => array.decode(number, stored, out),
    };
    decoded.map_err(|error| array.in_chunk(index, chunk, error))
}

/// Whether a sample with this error may be skipped instead of ending the epoch: only if the
/// sample's data are damaged, not if the machine fails.
pub(crate) fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::Damaged
}
