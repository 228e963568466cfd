//! Plans and fills the slots of batches that a device completes (`stored_batch.rs`).

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::arrays::array_of;
use super::batch_plan::{BatchPlan, Part};
use super::device_work;
use super::fill::fill;
use super::reader::Reader;
use super::stored_batch::{
    ALIGNMENT, At, Compressed, Content, Entry, Load, MAX_GAP, Mapped, ResidentWindow, table_bytes,
};
use crate::cache::Cache;
use crate::dataset::array::{ArrayRef, Stored};
use crate::decode::{Decoder, Scratch, inside};
use crate::device::decode::{
    CHUNK_BYTES, FRAME_HEADER, STATUS_BYTES, WINDOW_BYTES, copied_frame, supports,
};
use crate::device::page_cache::{Leases, PageCache};
use crate::device::resident::{Cube, Kept, Region, Residents, frame, key};
use crate::plan::{Crop, Item, Pad};
use crate::ring::slots::Failure;
use crate::store::StoredFile;
use crate::{Error, ErrorKind, Result};

/// Windows of cubes of at most this many bytes are sent as values: many of them share chunks.
const SMALL: usize = 64 << 10;
/// Entries are gathered in tasks of up to this many bytes.
const TASK_BYTES: usize = 1 << 20;
/// Plans the batch into the slot of `slot_bytes` in this way, if the device keeps cubes or if it
/// then takes fewer bytes than its values. Replaces `pieces` in this case. `decodes` says whether
/// the device decodes frames.
pub(super) fn plan(
    reader: &Reader,
    plan: &mut BatchPlan,
    pieces: &mut Vec<Range<usize>>,
    (slot_bytes, decodes): (usize, bool),
    page_cache: Option<&PageCache>,
) {
    let keeps_decoded = reader.cache.as_ref().is_some_and(Cache::keeps_decoded);
    let parts = !matches!(reader.plan.options().crop, Crop::Whole);
    let small = plan.arrays.first().is_none_or(|image| image.sample_bytes() <= SMALL);
    let is_kept = keeps_decoded || parts && small || reader.shuffle_buffer.is_some();
    let residents = reader.residents.as_deref().filter(|residents| !residents.are_empty());
    if residents.is_none() && (is_kept || !decodes) {
        return;
    }
    let page_cache = page_cache.filter(|cache| {
        let is_kept = reader.cache.is_some();
        if is_kept {
            cache.note("chunks are kept in the host's memory");
        }
        !is_kept
    });
    let planner = Planner {
        reader,
        residents,
        page_cache,
        latest_file: None,
        sends_frames: decodes && !is_kept,
        loads_frames: decodes,
        limit: plan.end(),
        slot_bytes,
        built: Compressed::default(),
        sources: Vec::new(),
        end: 0,
        chunks: 0,
    };
    let Some(mut compressed) = planner.plan(plan, parts) else { return };
    let (mut tasks, mut task_pieces): (Vec<Range<usize>>, Vec<Range<usize>>) = Default::default();
    let mut work = 0;
    for (number, entry) in compressed.entries.iter().enumerate() {
        let (range, bytes) = (&entry.range, work_bytes(reader, plan, &compressed, entry));
        work += bytes;
        match (tasks.last_mut(), task_pieces.last_mut()) {
            (Some(task), Some(piece)) if work <= TASK_BYTES => {
                task.end = number + 1;
                piece.end = range.end;
            }
            _ => {
                tasks.push(number..number + 1);
                task_pieces.push(range.clone());
                work = bytes;
            }
        }
    }
    *pieces = task_pieces;
    compressed.tasks = tasks;
    plan.compressed = Some(compressed);
}

/// Bytes of a task that a decoding thread reads.
fn work_bytes(reader: &Reader, plan: &BatchPlan, compressed: &Compressed, entry: &Entry) -> usize {
    let is_due = |array: ArrayRef<'_>, index, chunk| array.is_due(array.number(index, chunk));
    let reads = match entry.content {
        _ if entry.mapped.is_none() => true,
        Content::Values(_) => true,
        Content::Chunk { at, chunk } => {
            let item = plan.items[at.position];
            let index = reader.dataset.samples().index(item.sample);
            let array = array_of(&reader.dataset, &reader.beside, item, at.array);
            array.is_ok_and(|array| is_due(array, index, chunk))
        }
        Content::Load(number) => {
            let load = &compressed.loads.0[number];
            is_due(load.array(&reader.dataset), load.stored.2, load.chunk)
        }
    };
    if reads { entry.range.len() } else { 0 }
}

/// Where a frame is in a file that the device may read itself.
struct FrameSource {
    file: Arc<dyn StoredFile>,
    from: u64,
}

/// Decides in which form the windows of a batch come.
struct Planner<'a> {
    reader: &'a Reader,
    residents: Option<&'a Residents>,
    /// Whether frames are sent for windows that are not in the device's memory.
    sends_frames: bool,
    /// Whether frames are sent for the device's memory.
    loads_frames: bool,
    /// Bytes of the batch as values.
    limit: usize,
    slot_bytes: usize,
    page_cache: Option<&'a PageCache>,
    /// The latest file, and whether the device may read it itself.
    latest_file: Option<(Arc<dyn StoredFile>, bool)>,
    built: Compressed,
    /// Of each entry.
    sources: Vec<Option<FrameSource>>,
    /// End of the entries.
    end: usize,
    /// Number of chunks that are decoded.
    chunks: usize,
}

impl Planner<'_> {
    /// `None` if the batch is better planned as values.
    fn plan(mut self, plan: &BatchPlan, by_windows: bool) -> Option<Compressed> {
        // Bytes of the windows that are not planned yet, if they come as values.
        let mut value_bytes_left: usize =
            plan.arrays.iter().map(|array| value_bytes(array.sample_bytes())).sum();
        value_bytes_left *= plan.items.len();
        for (array, layout) in plan.arrays.iter().enumerate() {
            for (position, item) in plan.items.iter().enumerate() {
                let reader = self.reader;
                let stored = array_of(&reader.dataset, &reader.beside, *item, array).ok()?;
                value_bytes_left -= value_bytes(layout.sample_bytes());
                let at = At { array, position };
                if !self.is_resident(stored, *item, at, value_bytes_left) {
                    let decoder = reader.decoder_of(plan, position);
                    self.send(&decoder, stored, *item, at, layout.sample_bytes())?;
                }
                // Without cubes in the device's memory, nothing is gained beyond this.
                if self.residents.is_none() && self.end + self.overhead() >= self.limit {
                    return None;
                }
            }
        }
        if self.built.windows.is_empty() {
            let gains = self.sends_frames && self.end + self.overhead() < self.limit;
            if !gains {
                return None;
            }
        } else if by_windows {
            self.load_ahead();
        }
        let fits = self.end + self.overhead() <= self.slot_bytes;
        fits.then(|| {
            self.lease();
            self.built
        })
    }

    /// Leases the parts of files that the device can read itself.
    fn lease(&mut self) {
        let Some(page_cache) = self.page_cache.filter(|_| !self.sources.is_empty()) else { return };
        let Compressed { entries, leases, .. } = &mut self.built;
        let mut leasing = page_cache.leasing(leases);
        for (entry, source) in entries.iter_mut().zip(&self.sources) {
            let Some(FrameSource { file, from }) = source else { continue };
            let span = *from..from + entry.range.len() as u64;
            let leased = leasing.lease(file, &span);
            entry.mapped = leased.map(|leased| Mapped::new(leased, *from));
        }
    }

    /// Bytes that a batch takes besides its entries: tables, statuses, and the gaps between these.
    fn overhead(&self) -> usize {
        self.chunks * (CHUNK_BYTES + 2 * STATUS_BYTES)
            + table_bytes(self.built.windows.len(), &self.reader.options)
    }

    fn push(&mut self, content: Content, bytes: usize) {
        self.push_at(self.end.next_multiple_of(ALIGNMENT), content, bytes, None);
    }

    /// Adds a frame. If it follows the one before in a file that the device may read, it does so in
    /// the slot, too, so that both are copied together.
    fn push_frame(&mut self, content: Content, (stored, bytes): (Stored<'_>, u32)) {
        let source = self
            .may_map(stored.file)
            .then(|| FrameSource { file: stored.file.clone(), from: stored.span.start });
        let gap = match (&source, self.sources.last(), self.built.entries.last()) {
            (Some(source), Some(Some(last)), Some(entry))
                if Arc::ptr_eq(&source.file, &last.file) =>
            {
                let end = last.from + entry.range.len() as u64;
                source.from.checked_sub(end).filter(|gap| *gap <= MAX_GAP)
            }
            _ => None,
        };
        let start = match gap {
            Some(gap) => self.end + gap as usize,
            None => self.end.next_multiple_of(ALIGNMENT),
        };
        self.push_at(start, content, bytes as usize, source);
    }

    /// Whether the device may read this file itself.
    fn may_map(&mut self, file: &Arc<dyn StoredFile>) -> bool {
        let Some(page_cache) = self.page_cache else { return false };
        match &self.latest_file {
            Some((latest, may_map)) if Arc::ptr_eq(latest, file) => *may_map,
            _ => {
                let may_map = page_cache.takes(file);
                self.latest_file = Some((file.clone(), may_map));
                may_map
            }
        }
    }

    fn push_at(
        &mut self,
        start: usize,
        content: Content,
        bytes: usize,
        source: Option<FrameSource>,
    ) {
        self.end = start + bytes;
        self.built.entries.push(Entry { content, range: start..self.end, mapped: None });
        self.sources.push(source);
        self.chunks += 1;
    }

    /// Sends a window as frames or values. `None` if that is not possible.
    fn send(
        &mut self,
        decoder: &Decoder<'_>,
        stored: ArrayRef<'_>,
        item: Item,
        at: At,
        bytes: usize,
    ) -> Option<()> {
        let has_values =
            decoder.bands_of(stored).is_some() || self.reader.new_ids.of(stored).is_some();
        let sends_values = has_values || !self.sends_frames;
        let frames = if sends_values { None } else { frames(stored, decoder, item) };
        let frame_bytes = |all: &Vec<(usize, (Stored<'_>, u32))>| {
            all.iter().map(|(_, (_, bytes))| *bytes as usize).sum::<usize>()
        };
        match frames.filter(|all| frame_bytes(all) < bytes) {
            Some(frames) => frames
                .into_iter()
                .for_each(|(chunk, frame)| self.push_frame(Content::Chunk { at, chunk }, frame)),
            None => {
                i32::try_from(bytes + FRAME_HEADER).ok()?;
                self.push(Content::Values(at), bytes + FRAME_HEADER);
            }
        }
        Some(())
    }

    /// Takes a window from the device's memory, if its cube has a place there. Chunks that are
    /// absent come with the batch, if its slot has room for them beside `value_bytes_left`.
    fn is_resident(
        &mut self,
        stored: ArrayRef<'_>,
        item: Item,
        at: At,
        value_bytes_left: usize,
    ) -> bool {
        let Some(residents) = self.residents else { return false };
        let (reader, shape, window) = (self.reader, stored.shape(), stored.window(item.window));
        let index = reader.dataset.samples().index(item.sample);
        let Some((region, cube)) = residents.find(key(stored, index)) else { return false };
        let is_inside = window.is_inside(shape.rows, shape.columns);
        // The device mirrors pixels of the array, not pixels of the image with what is within them.
        let is_mirrored = !is_inside && reader.pad(stored) == Pad::Reflect;
        if is_mirrored && !stored.chunks.ratio().is_same() {
            return false;
        }
        if region.kept() == Kept::Compressed
            && (!is_inside
                || reader.decoder().bands_of(stored).is_some()
                || reader.new_ids.of(stored).is_some())
        {
            return false;
        }
        // In later epochs, nothing is left to look up.
        if region.kept() == Kept::Decoded && region.is_complete() {
            self.take(at, region, cube);
            return true;
        }
        let (rows, columns) = inside(stored, window, reader.pad(stored));
        let grid = stored.grid();
        // Other loaders may use other bands of a cube in the device's memory.
        let chunks = grid.chunk_rows(&rows).flat_map(|down| grid.chunks_in(down, &columns, None));
        let chunks: Vec<usize> = chunks.collect();
        let absent: Vec<usize> =
            chunks.iter().copied().filter(|chunk| region.is_absent(cube.first + chunk)).collect();
        let may_load = residents.is_own(region);
        if !absent.is_empty()
            && (!may_load || !self.loads(region, cube, (stored, index), &absent, value_bytes_left))
        {
            return false;
        }
        if region.kept() == Kept::Compressed {
            self.chunks += chunks.len();
        }
        self.take(at, region, cube);
        true
    }

    /// Takes a window from the device's memory.
    fn take(&mut self, at: At, region: &Arc<Region>, cube: &Cube) {
        let (region, cube) = (region.clone(), cube.clone());
        self.built.windows.push(ResidentWindow { at, region, cube });
    }

    /// Brings chunks of a cube that are absent. `false` if there is no room for all of them.
    fn loads(
        &mut self,
        region: &Arc<Region>,
        cube: &Cube,
        (stored, index): (ArrayRef<'_>, usize),
        chunks: &[usize],
        value_bytes_left: usize,
    ) -> bool {
        let sizes: Option<Vec<Loaded<'_>>> =
            chunks.iter().map(|chunk| self.load_form(region, stored, index, *chunk)).collect();
        let Some(sizes) = sizes else { return false };
        let bytes: usize = sizes.iter().map(|form| form.bytes() + MAX_GAP as usize).sum();
        // The table's rows of these chunks and of the windows to come.
        let tables = 2 * chunks.len() * (CHUNK_BYTES + 2 * STATUS_BYTES) + WINDOW_BYTES;
        if self.end + bytes + value_bytes_left + self.overhead() + tables > self.slot_bytes {
            return false;
        }
        for (chunk, form) in chunks.iter().zip(sizes) {
            if !region.schedule(cube.first + chunk) {
                continue;
            }
            let load = Load {
                region: region.clone(),
                cube: cube.clone(),
                stored: (stored.stack, stored.array, index),
                chunk: *chunk,
                is_frame: matches!(form, Loaded::Frame(..)),
            };
            self.built.loads.0.push(load);
            let content = Content::Load(self.built.loads.0.len() - 1);
            match form {
                Loaded::Frame(stored, bytes) => self.push_frame(content, (stored, bytes)),
                Loaded::Values(bytes) => self.push(content, bytes),
            }
        }
        true
    }

    /// The form in which a chunk comes for the device's memory.
    fn load_form<'s>(
        &self,
        region: &Region,
        stored: ArrayRef<'s>,
        index: usize,
        chunk: usize,
    ) -> Option<Loaded<'s>> {
        let changed = self.reader.new_ids.of(stored).is_some();
        let frame = frame(stored, index, chunk).filter(|_| self.loads_frames && !changed);
        let values = stored.chunk_bytes() + FRAME_HEADER;
        match frame {
            Some((stored, bytes))
                if region.kept() == Kept::Compressed || (bytes as usize) < values =>
            {
                Some(Loaded::Frame(stored, bytes))
            }
            _ if region.kept() == Kept::Compressed => None,
            _ => i32::try_from(values).ok().map(|_| Loaded::Values(values)),
        }
    }

    /// Brings further chunks, as many as the slot has room for: windows come again and again from
    /// all of them.
    fn load_ahead(&mut self) {
        let Some(residents) = self.residents else { return };
        let dataset = &self.reader.dataset;
        residents.for_each_ahead(|region, key, cube| {
            let stored = dataset.array(key.stack as usize, key.array as usize);
            let mut absent = 0..stored.grid().chunks_per_sample();
            absent.all(|chunk| {
                !region.is_absent(cube.first + chunk)
                    || self.loads(region, cube, (stored, key.index as usize), &[chunk], 0)
            })
        });
    }
}

/// The form in which a chunk comes for the device's memory.
enum Loaded<'a> {
    /// Where it is stored, and the bytes of its frame.
    Frame(Stored<'a>, u32),
    /// Bytes of its values, with a header.
    Values(usize),
}

impl Loaded<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::Frame(_, bytes) => *bytes as usize,
            Self::Values(bytes) => *bytes,
        }
    }
}

/// Bytes of an entry of values.
fn value_bytes(sample_bytes: usize) -> usize {
    sample_bytes + FRAME_HEADER + ALIGNMENT + CHUNK_BYTES + 2 * STATUS_BYTES
}

/// The chunks of a window, where they are stored, and the bytes of their frames; `None` if a device
/// cannot decode all of them.
fn frames<'a>(
    array: ArrayRef<'a>,
    decoder: &Decoder<'_>,
    item: Item,
) -> Option<Vec<(usize, (Stored<'a>, u32))>> {
    let (shape, grid, codecs) = (array.shape(), array.grid(), array.chunks.meta().codecs);
    codecs.compression.filter(supports)?;
    let window = array.window(item.window);
    if !window.is_inside(shape.rows, shape.columns) {
        return None;
    }
    let index = decoder.dataset.samples().index(item.sample);
    let (columns, needed) = (window.column_range(), decoder.needed_of(array));
    let chunks = grid.chunk_rows(&window.row_range());
    let chunks = chunks.flat_map(|down| grid.chunks_in(down, &columns, needed));
    chunks.map(|chunk| Some((chunk, frame(array, index, chunk)?))).collect()
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
    let Some(compressed) = &plan.compressed else { return failures };
    let begin = entries.first().map_or(0, |entry| entry.range.start);
    for entry in entries {
        let out = &mut memory[entry.range.start - begin..entry.range.end - begin];
        match entry.content {
            Content::Chunk { at: At { array, position }, chunk } => {
                let item = plan.items[position];
                let copy = || {
                    let array = array_of(&reader.dataset, &reader.beside, item, array)?;
                    let index = reader.dataset.samples().index(item.sample);
                    let take = &mut |frame: &[u8]| entry.take(frame, out, &compressed.leases);
                    reader.decoder().frame(array, index, chunk, entry.range.len(), scratch, take)
                };
                let copied = catch_unwind(AssertUnwindSafe(copy)).unwrap_or_else(|_| {
                    let what = format!("a decoding thread panicked at sample {}", item.sample);
                    Err(Error::new(ErrorKind::Io, what))
                });
                failures.extend(copied.err().map(|error| Failure { position, error }));
            }
            Content::Values(At { array, position }) => {
                let (header, values) = out.split_at_mut(FRAME_HEADER);
                header.copy_from_slice(&copied_frame(values.len() as u32));
                let part = Part { array, position, windows: 1, down: None, bytes: values.len() };
                failures.extend(fill(reader, plan, &[part], values, scratch));
            }
            Content::Load(number) => {
                let load = &compressed.loads.0[number];
                let mut read =
                    || read_load(reader, load, (entry, &compressed.leases), out, scratch);
                // If the chunk is damaged, windows of several samples may need it. The batch is then decoded on the CPU, which
                // finds this out for each of them.
                let done = catch_unwind(AssertUnwindSafe(&mut read));
                if !matches!(done, Ok(Ok(()))) {
                    compressed.is_spoiled.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    failures
}

/// Reads a chunk for the device's memory.
fn read_load(
    reader: &Reader,
    load: &Load,
    (entry, leases): (&Entry, &Leases),
    out: &mut [u8],
    scratch: &mut Scratch,
) -> Result<()> {
    let (array, index) = (load.array(&reader.dataset), load.stored.2);
    if load.is_frame {
        let bytes = out.len();
        let take = &mut |frame: &[u8]| entry.take(frame, out, leases);
        return reader.decoder().frame(array, index, load.chunk, bytes, scratch, take);
    }
    let (header, values) = out.split_at_mut(FRAME_HEADER);
    header.copy_from_slice(&copied_frame(values.len() as u32));
    reader.decoder().delivered_chunk(array, index, load.chunk, values, scratch)?;
    if let Some(table) = reader.new_ids.of(array) {
        table.apply(array.dtype(), values);
    }
    Ok(())
}

/// Adds what the device needs when all entries are in the slot. `false` if it cannot complete the
/// batch after all.
pub(super) fn finish(reader: &Reader, plan: &mut BatchPlan, bytes: &mut [u8]) -> bool {
    let decoding = match &plan.compressed {
        Some(compressed) if !compressed.is_spoiled() => {
            device_work::prepare(reader, plan, compressed, bytes)
        }
        _ => None,
    };
    match (decoding, &mut plan.compressed) {
        (Some(decoding), Some(compressed)) => {
            compressed.decoding = Some(Arc::new(decoding));
            true
        }
        _ => false,
    }
}

/// Fills a slot with values in the calling thread.
pub(super) fn decode_here(
    reader: &Reader,
    plan: &mut BatchPlan,
    bytes: &mut [u8],
) -> Result<Vec<Failure>> {
    plan.cut(&|_| reader.arrays(), &mut Vec::new())?;
    let (mut failures, mut scratch) = (Vec::new(), Scratch::default());
    for (number, array) in plan.arrays.iter().enumerate() {
        let parts: Vec<Part> =
            plan.parts().iter().copied().filter(|part| part.array == number).collect();
        failures.extend(fill(reader, plan, &parts, &mut bytes[array.start..], &mut scratch));
    }
    Ok(failures)
}
