//! Batches that a device decodes: their slots hold chunks as they are stored, instead of values.
//!
//! ```text
//! frame │ frame │ … │ values │ …  │ table of chunks │ zeros ┊ statuses
//! ───────────────── gathered ──── └──── added when the batch is taken ┘
//! └─────────────────── copied to the device ────────────────┘ └ copied back
//! ```
//!
//! All windows of one array and sample come either as the frames of their chunks, or as values in a frame that is not
//! compressed: chunks of other codecs, windows that reach beyond the edge of their cube, some of the bands, new class ids.
//! Checksums of chunks are compared here, where their bytes are copied anyway. The batch's arrays say where values lie on the
//! device.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::batch_plan::{BatchPlan, Part, array_of};
use super::reader::Reader;
use super::worker::fill;
use crate::cache::Cache;
use crate::dataset::array::ArrayRef;
use crate::decode::Scratch;
use crate::device::decode::{
    CHUNK_BYTES, Chunk, Decode, FRAME_HEADER, block_bytes, copied_frame, supports,
};
use crate::plan::{Crop, Item};
use crate::ring::slots::Failure;
use crate::{Error, ErrorKind, Result};

/// Windows of cubes of at most this many bytes are sent as values: many of them share chunks.
const SMALL: usize = 64 << 10;
/// Entries are gathered in tasks of up to this many bytes.
const TASK_BYTES: usize = 1 << 20;
/// Every entry starts at a multiple of this many bytes.
const ALIGNMENT: usize = 16;
/// Bytes of a chunk's status.
const STATUS: usize = 4;
/// The most blocks of threads for each chunk.
const MOST_SLOTS: u64 = 64;
/// A device may use at least this much scratch memory for a batch.
const LEAST_SCRATCH: u64 = 64 << 20;

/// The frames that a slot holds instead of values.
#[derive(Debug)]
pub(crate) struct Compressed {
    entries: Vec<Entry>,
    /// Entries of each task.
    tasks: Vec<Range<usize>>,
    decoding: Option<Decoding>,
}

/// A frame in the slot.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Array of the batch.
    array: usize,
    /// Place in the batch.
    pub position: usize,
    content: Content,
    /// Where in the slot it lies.
    place: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Content {
    /// This chunk of the cube, as it is stored.
    Chunk(usize),
    /// The window, after the header of a frame that is not compressed.
    Values,
}

/// A device's work on a batch, and where its parts lie in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoding {
    pub decode: Decode,
    /// Number of chunks.
    pub chunks: usize,
    /// First byte of the table of chunks.
    pub table: usize,
    /// First byte of the statuses, which are 0.
    pub statuses: usize,
    /// Bytes to copy to the device.
    pub bytes: usize,
    /// Bytes of the batch's values.
    pub values: usize,
}

impl Decoding {
    /// Where the statuses come back to, behind what is copied to the device.
    pub(crate) fn answers(&self) -> Range<usize> {
        self.bytes..self.bytes + self.chunks * STATUS
    }
}

impl Compressed {
    /// The entries of a task.
    pub(super) fn task(&self, number: usize) -> &[Entry] {
        &self.entries[self.tasks[number].clone()]
    }

    /// The device's work, once it is known.
    pub(super) fn decoding(&self) -> Option<Decoding> {
        self.decoding
    }

    /// Leaves out the samples at `positions` (ascending). The frames that stay keep their places in the slot.
    pub(super) fn remove(&mut self, positions: &[usize]) {
        self.entries.retain(|entry| !positions.contains(&entry.position));
        for entry in &mut self.entries {
            entry.position -= positions.partition_point(|gone| *gone < entry.position);
        }
        self.tasks.clear();
        self.decoding = None;
    }
}

/// Bytes that a batch takes besides its frames: the table, statuses, and the gaps between these.
fn overhead(chunks: usize) -> usize {
    chunks * (CHUNK_BYTES + 2 * STATUS) + 2 * ALIGNMENT
}

/// The scratch memory that a device may use for a batch of so many bytes.
fn scratch_limit(bytes: usize) -> u64 {
    (2 * bytes as u64).max(LEAST_SCRATCH)
}

/// Plans the batch into the slot in this way if it then takes fewer bytes than its values. Replaces `pieces` in this case.
pub(super) fn plan(reader: &Reader, plan: &mut BatchPlan, pieces: &mut Vec<Range<usize>>) {
    let keeps_decoded = reader.cache.as_ref().is_some_and(Cache::keeps_decoded);
    let parts = !matches!(reader.plan.options().crop, Crop::Whole);
    let small = plan.arrays.first().is_none_or(|image| image.sample_bytes() <= SMALL);
    if keeps_decoded || parts && small || reader.shuffle_buffer.is_some() {
        return;
    }
    let Some(entries) = entries(reader, plan) else { return };
    let (mut tasks, mut task_pieces): (Vec<Range<usize>>, Vec<Range<usize>>) = Default::default();
    for (number, Entry { place, .. }) in entries.iter().enumerate() {
        match (tasks.last_mut(), task_pieces.last_mut()) {
            (Some(task), Some(piece)) if place.end - piece.start <= TASK_BYTES => {
                task.end = number + 1;
                piece.end = place.end;
            }
            _ => {
                tasks.push(number..number + 1);
                task_pieces.push(place.clone());
            }
        }
    }
    *pieces = task_pieces;
    plan.compressed = Some(Compressed { entries, tasks, decoding: None });
}

/// The frames of a batch; `None` if they are not worth it.
fn entries(reader: &Reader, plan: &BatchPlan) -> Option<Vec<Entry>> {
    let (decoder, limit) = (reader.decoder(), plan.end());
    let (mut entries, mut end, mut scratch) = (Vec::new(), 0_usize, 0);
    for (array, layout) in plan.arrays.iter().enumerate() {
        for (position, item) in plan.items.iter().enumerate() {
            let stored = array_of(&reader.dataset, &reader.beside, *item, array).ok()?;
            let mut push = |content, bytes: usize| {
                let start = end.next_multiple_of(ALIGNMENT);
                end = start + bytes;
                entries.push(Entry { array, position, content, place: start..end });
            };
            let chosen = decoder.bands_of(stored).is_some() || reader.new_ids.of(stored).is_some();
            let frames = if chosen { None } else { frames(stored, reader, *item) };
            match frames
                .filter(|all| all.iter().map(|one| one.1).sum::<usize>() < layout.sample_bytes())
            {
                Some(frames) => {
                    scratch += frames.len() as u64 * largest_block(stored);
                    frames
                        .into_iter()
                        .for_each(|(chunk, bytes)| push(Content::Chunk(chunk), bytes));
                }
                None => {
                    i32::try_from(layout.sample_bytes() + FRAME_HEADER).ok()?;
                    push(Content::Values, layout.sample_bytes() + FRAME_HEADER);
                }
            }
            if end + overhead(entries.len()) >= limit {
                return None;
            }
        }
    }
    (scratch <= scratch_limit(limit)).then_some(entries)
}

/// The chunks of a window, and the bytes of their frames; `None` if a device cannot decode all of them.
fn frames(array: ArrayRef<'_>, reader: &Reader, item: Item) -> Option<Vec<(usize, usize)>> {
    let (shape, grid, codecs) = (array.shape(), array.grid(), array.chunks.meta().codecs);
    let codec = codecs.compression.filter(supports)?;
    if usize::from(codec.typesize) != array.dtype().size()
        || !item.window.is_inside(shape.rows, shape.columns)
    {
        return None;
    }
    let index = reader.dataset.samples().index(item.sample);
    let columns = item.window.column_range();
    let chunks = grid.chunk_rows(&item.window.row_range());
    let chunks = chunks.flat_map(|down| grid.chunks_in(down, &columns));
    let frame = |chunk| {
        let span = array.locate(index, chunk).ok()??.span;
        let bytes = usize::try_from(span.end - span.start).ok()?;
        let frame = bytes.checked_sub(if codecs.checksum { size_of::<u32>() } else { 0 })?;
        (frame > FRAME_HEADER).then_some((chunk, frame))
    };
    chunks.map(frame).collect()
}

/// The size of the blocks that the frames of an array probably have.
fn largest_block(array: ArrayRef<'_>) -> u64 {
    let asked = array
        .chunks
        .meta()
        .codecs
        .compression
        .map_or(0, |codec| codec.blocksize.saturating_mul(codec.typesize.into()));
    let block = if asked == 0 { 1 << 20 } else { asked.clamp(1 << 16, 1 << 20) };
    block.min(array.chunks.chunk_bytes()) as u64
}

/// Fills a task's piece of the slot.
pub(super) fn gather(
    reader: &Reader,
    plan: &BatchPlan,
    entries: &[Entry],
    memory: &mut [u8],
    scratch: &mut Scratch,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    let begin = entries.first().map_or(0, |entry| entry.place.start);
    for entry in entries {
        let position = entry.position;
        let out = &mut memory[entry.place.start - begin..entry.place.end - begin];
        match entry.content {
            Content::Chunk(chunk) => {
                let item = plan.items[position];
                let copy = || {
                    let array = array_of(&reader.dataset, &reader.beside, item, entry.array)?;
                    let index = reader.dataset.samples().index(item.sample);
                    reader.decoder().frame(array, index, chunk, out, scratch)
                };
                let copied = catch_unwind(AssertUnwindSafe(copy)).unwrap_or_else(|_| {
                    let what = format!("a decoding thread panicked at sample {}", item.sample);
                    Err(Error::new(ErrorKind::Io, what))
                });
                failures.extend(copied.err().map(|error| Failure { position, error }));
            }
            Content::Values => {
                let (header, values) = out.split_at_mut(FRAME_HEADER);
                header.copy_from_slice(&copied_frame(values.len() as u32));
                let bytes = values.len();
                let part = Part { array: entry.array, position, windows: 1, down: None, bytes };
                failures.extend(fill(reader, plan, &[part], values, scratch));
            }
        }
    }
    failures
}

/// Adds the table of chunks when all frames are in the slot. `false` if a device cannot decode the batch after all.
pub(super) fn finish(reader: &Reader, plan: &mut BatchPlan, bytes: &mut [u8]) -> bool {
    let decoding = decoding(reader, plan, bytes);
    match (decoding, &mut plan.compressed) {
        (Some(decoding), Some(compressed)) => {
            compressed.decoding = Some(decoding);
            true
        }
        _ => false,
    }
}

fn decoding(reader: &Reader, plan: &BatchPlan, bytes: &mut [u8]) -> Option<Decoding> {
    let entries = &plan.compressed.as_ref()?.entries;
    let (mut chunks, mut block, mut slots) = (Vec::new(), 0_u64, 1_u64);
    for Entry { array, position, content, place } in entries {
        let layout = plan.arrays[*array];
        let into = (layout.start + position * layout.sample_bytes()) as u64;
        let frame = place.start as u64..place.end as u64;
        let own = u64::from(block_bytes(bytes.get(place.clone())?)).max(1);
        let chunk = match *content {
            Content::Values => {
                let values = u32::try_from(layout.sample_bytes()).ok()?;
                Chunk::of_values(values, frame, into)
            }
            Content::Chunk(chunk) => {
                let item = plan.items[*position];
                let array = array_of(&reader.dataset, &reader.beside, item, *array).ok()?;
                let element = array.dtype().size();
                Chunk::new(array.grid(), element, chunk, item.window, frame, into)?
            }
        };
        let decoded = u64::from(chunk.decoded_bytes());
        slots = slots.max(decoded.div_ceil(own).min(MOST_SLOTS));
        if matches!(content, Content::Chunk(_)) {
            block = block.max(own.min(decoded));
        }
        chunks.push(chunk);
    }
    let count = chunks.len();
    let room = scratch_limit(bytes.len()) / (count as u64 * block).max(1);
    if room == 0 {
        return None;
    }
    let table = entries.last()?.place.end.next_multiple_of(ALIGNMENT);
    let statuses = table + count * CHUNK_BYTES;
    let end = statuses + count * STATUS;
    let (slots, values) = (slots.min(room) as u32, plan.end());
    let decode = Decode::new(&chunks, end as u64, values as u64, slots, block).ok()?;
    let decoding = Decoding { decode, chunks: count, table, statuses, bytes: end, values };
    let rows = bytes.get_mut(table..statuses)?.chunks_exact_mut(CHUNK_BYTES);
    rows.zip(&chunks).for_each(|(to, chunk)| to.copy_from_slice(&chunk.to_bytes()));
    bytes.get_mut(statuses..decoding.answers().end)?.fill(0);
    Some(decoding)
}

/// Fills a slot with values in the calling thread.
pub(super) fn decode_here(
    reader: &Reader,
    plan: &mut BatchPlan,
    bytes: &mut [u8],
) -> Result<Vec<Failure>> {
    plan.cut(&reader.decoder(), &reader.beside, &mut Vec::new())?;
    let (mut failures, mut scratch) = (Vec::new(), Scratch::default());
    for (number, array) in plan.arrays.iter().enumerate() {
        let parts: Vec<Part> =
            plan.parts().iter().copied().filter(|part| part.array == number).collect();
        failures.extend(fill(reader, plan, &parts, &mut bytes[array.start..], &mut scratch));
    }
    Ok(failures)
}
