//! The device's work on a batch ([`super::stored_batch`]), and where its parts lie in the slot.
//!
//! | step | from | into |
//! |---|---|---|
//! | decode | frames in the slot | chunks of cubes that stay in the device's memory |
//! | move | frames in the slot | the same, if they stay compressed |
//! | decode | frames that stay in the device's memory | the batch |
//! | gather | cubes that stay in the device's memory | the batch |
//! | decode | frames and values in the slot | the batch |

use std::ops::Range;
use std::sync::Arc;

use super::arrays::array_of;
use super::batch_plan::BatchPlan;
use super::device_steps::{Decoding, LinkCopy, Step};
use super::reader::Reader;
use super::stored_batch::{ALIGNMENT, At, Compressed, Content, Entry, Load, MAX_GAP};
use crate::dataset::array::ArrayRef;
use crate::decode::fill;
use crate::device::decode::{
    CHUNK_BYTES, Chunk, Decode, Floats, Gather, GatherWindow, STATUS_BYTES, WINDOW_BYTES, slots_of,
};
use crate::device::resident::{Kept, Region};
use crate::plan::{Pad, Window};

/// Parts of the slot with at most so many bytes between them are copied together.
const SLOT_GAP: usize = 4096;
/// A device may use at least this much scratch memory at a time.
const MIN_SCRATCH: u64 = 64 << 20;

/// Adds the tables to the slot. `None` if the device cannot complete the batch after all.
pub(super) fn prepare(
    reader: &Reader,
    plan: &BatchPlan,
    compressed: &Compressed,
    bytes: &mut [u8],
) -> Option<Decoding> {
    let mut work = Work { reader, plan, compressed, jobs: Vec::new(), gathers: Vec::new() };
    work.loads(bytes)?;
    work.windows()?;
    work.link(bytes)?;
    // Without work, nothing would be written to the batch.
    (!work.jobs.is_empty() || !work.gathers.is_empty()).then_some(())?;
    work.finish(bytes)
}

/// Chunks with the same source, place and conversion, and the largest of their blocks.
struct Job {
    from: Option<Arc<Region>>,
    into: Option<Arc<Region>>,
    floats: Option<Floats>,
    chunks: Vec<Chunk>,
    block: u64,
    /// The most blocks that a chunk has.
    slots: u64,
}

/// Settings that all windows of an array have in common.
#[derive(Clone, Copy)]
struct WindowsOf {
    /// Stack and array.
    array: (usize, usize),
    /// Number of chosen bands.
    bands: Option<usize>,
    /// The padding, and the bytes of its value.
    padding: (Pad, [u8; 8]),
}

struct Work<'a> {
    reader: &'a Reader,
    plan: &'a BatchPlan,
    compressed: &'a Compressed,
    jobs: Vec<Job>,
    gathers: Vec<(Arc<Region>, Vec<GatherWindow>)>,
}

impl<'a> Work<'a> {
    fn array(&self, at: At) -> Option<ArrayRef<'a>> {
        let item = self.plan.items[at.position];
        array_of(&self.reader.dataset, &self.reader.beside, item, at.array).ok()
    }

    /// Where a window belongs in the batch.
    fn place_of(&self, at: At) -> u64 {
        let layout = self.plan.arrays[at.array];
        (layout.start + at.position * layout.sample_bytes()) as u64
    }

    /// Adds a chunk, whose frame has blocks of so many bytes. If it is stored (and not values), it
    /// may have integers.
    fn push(
        &mut self,
        from: Option<&Arc<Region>>,
        into: Option<&Arc<Region>>,
        mut chunk: Chunk,
        block: u32,
        stored: Option<ArrayRef<'_>>,
    ) {
        let mut floats = None;
        if let Some(array) = stored
            && let Some(conversion) = array.conversion()
        {
            chunk = chunk.of_integers(array.stored_dtype().size(), array.dtype().size());
            floats = conversion.floats();
        }
        let same = |first: &Option<Arc<Region>>, second: Option<&Arc<Region>>| {
            first.as_ref().map(Arc::as_ptr) == second.map(Arc::as_ptr)
        };
        let is_same =
            |job: &Job| same(&job.from, from) && same(&job.into, into) && job.floats == floats;
        let number = self.jobs.iter().position(is_same).unwrap_or_else(|| {
            let (from, into) = (from.cloned(), into.cloned());
            self.jobs.push(Job { from, into, floats, chunks: Vec::new(), block: 0, slots: 1 });
            self.jobs.len() - 1
        });
        let job = &mut self.jobs[number];
        let (block, decoded) = (u64::from(block).max(1), u64::from(chunk.decoded_bytes()));
        job.slots = job.slots.max(slots_of(decoded, block));
        if stored.is_some() {
            job.block = job.block.max(block.min(decoded));
        }
        job.chunks.push(chunk);
    }

    /// Chunks for the device's memory.
    fn loads(&mut self, bytes: &[u8]) -> Option<()> {
        for entry in &self.compressed.entries {
            let Entry { content, range, .. } = entry;
            let Content::Load(number) = *content else { continue };
            let load = &self.compressed.loads.0[number];
            let block = entry.block(bytes)?;
            load.region.set_block(load.number(), block);
            if load.region.kept() == Kept::Compressed {
                continue;
            }
            let array = self.reader.dataset.array(load.stored.0, load.stored.1);
            let frame = range.start as u64..range.end as u64;
            let (shape, element) = (array.shape(), array.dtype().size());
            let whole = Window {
                row: 0,
                column: 0,
                rows: u32::try_from(shape.rows).ok()?,
                columns: u32::try_from(shape.columns).ok()?,
            };
            let chunk =
                Chunk::new(array.grid(), element, load.chunk, whole, frame, load.cube.start)?;
            self.push(None, Some(&load.region), chunk, block, load.is_frame.then_some(array));
        }
        Some(())
    }

    fn windows_of(&self, array: ArrayRef<'_>) -> WindowsOf {
        let pad = self.reader.pad(array);
        let (mut value, size) = fill(array, pad);
        if let Some(table) = self.reader.new_ids.of(array) {
            table.apply(array.dtype(), &mut value[..size]);
        }
        let bands = self.reader.decoder().bands_of(array).map(<[usize]>::len);
        WindowsOf { array: (array.stack, array.array), bands, padding: (pad, value) }
    }

    /// Windows of cubes in the device's memory.
    fn windows(&mut self) -> Option<()> {
        // Windows of one array follow one another.
        let mut latest: Option<WindowsOf> = None;
        for window in &self.compressed.windows {
            let (at, region, cube) = (window.at, &window.region, &window.cube);
            let (array, into) = (self.array(at)?, self.place_of(at));
            let item = array.window(self.plan.items[at.position].window);
            if region.kept() == Kept::Decoded {
                let WindowsOf { bands, padding, .. } = match latest {
                    Some(latest) if latest.array == (array.stack, array.array) => latest,
                    _ => *latest.insert(self.windows_of(array)),
                };
                let cube = (array.shape(), array.dtype(), cube.start);
                let gathered =
                    GatherWindow::new((cube.0, cube.1), bands, item, padding, cube.2, into);
                let gathered = gathered.ok()?;
                match self.gathers.iter_mut().find(|(source, _)| Arc::ptr_eq(source, region)) {
                    Some((_, all)) => all.push(gathered),
                    None => self.gathers.push((region.clone(), vec![gathered])),
                }
                continue;
            }
            let (grid, element) = (array.grid(), array.dtype().size());
            let columns = item.column_range();
            let rows = grid.chunk_rows(&item.row_range());
            for number in rows.flat_map(|down| grid.chunks_in(down, &columns, None)) {
                let (start, len) = *cube.frames.get(number)?;
                let frame = start..start + u64::from(len);
                let block = region.block(cube.first + number);
                let chunk = Chunk::new(grid, element, number, item, frame, into)?;
                self.push(Some(region), None, chunk, block, Some(array));
            }
        }
        Some(())
    }

    /// Windows whose frames or values are in the slot.
    fn link(&mut self, bytes: &[u8]) -> Option<()> {
        for entry in &self.compressed.entries {
            let Entry { content, range, .. } = entry;
            let frame = range.start as u64..range.end as u64;
            let block = entry.block(bytes)?;
            match *content {
                Content::Load(_) => {}
                Content::Values(at) => {
                    let values = self.plan.arrays[at.array].sample_bytes();
                    let values = u32::try_from(values).ok()?;
                    let chunk = Chunk::of_values(values, frame, self.place_of(at));
                    self.push(None, None, chunk, block, None);
                }
                Content::Chunk { at, chunk } => {
                    let (array, into) = (self.array(at)?, self.place_of(at));
                    let item = array.window(self.plan.items[at.position].window);
                    let element = array.dtype().size();
                    let chunk = Chunk::new(array.grid(), element, chunk, item, frame, into)?;
                    self.push(None, None, chunk, block, Some(array));
                }
            }
        }
        Some(())
    }

    fn finish(self, bytes: &mut [u8]) -> Option<Decoding> {
        let Self { reader, plan, compressed, jobs, gathers } = self;
        let values = plan.end();
        let bands = reader.options.bands.as_deref().unwrap_or_default();
        let bands =
            bands.iter().map(|band| u32::try_from(*band).ok()).collect::<Option<Vec<_>>>()?;
        // Tables of chunks, tables of windows, the bands, the statuses.
        let end = compressed.entries.iter().map(|entry| entry.range.end).max().unwrap_or(0);
        let tables = end.next_multiple_of(ALIGNMENT);
        let mut table = tables;
        let chunks: usize = jobs.iter().map(|job| job.chunks.len()).sum();
        let windows: usize = gathers.iter().map(|(_, windows)| windows.len()).sum();
        let window_table = (table + chunks * CHUNK_BYTES).next_multiple_of(ALIGNMENT);
        let band_list = window_table + windows * WINDOW_BYTES;
        let statuses = (band_list + 4 * bands.len()).next_multiple_of(ALIGNMENT);
        let total = (statuses + chunks * STATUS_BYTES).max(1);
        let (frames, mut tail) = bytes.split_at_mut_checked(table)?;
        tail = tail.get_mut(..total.checked_sub(table)? + chunks * STATUS_BYTES)?;
        tail.fill(0);
        let at = |byte: usize| byte - frames.len();
        let mut steps = Vec::new();
        for load in compressed.entries.iter() {
            let Content::Load(number) = load.content else { continue };
            let loaded = &compressed.loads.0[number];
            if let Some((to, len)) = loaded.cube.frames.get(loaded.chunk) {
                let (from, bytes) = (load.range.start, load.range.len());
                // The place was reserved for a frame of this length.
                (bytes == *len as usize).then_some(())?;
                steps.push(Step::Move { from, bytes, into: loaded.region.clone(), to: *to });
            }
        }
        let mut status = statuses;
        let mut decodes = Vec::new();
        for Job { from, into, floats, chunks, block, slots } in jobs {
            let (source, target) = (
                from.as_ref().map_or(total as u64, |region| region.bytes()),
                into.as_ref().map_or(values as u64, |region| region.bytes()),
            );
            // As many chunks at a time as the scratch memory allows.
            let limit = (2 * values as u64).max(MIN_SCRATCH) / block.max(1);
            let slots = slots.min((limit / chunks.len() as u64).max(1));
            let group = usize::try_from(limit / slots).ok()?.max(1);
            for chunks in chunks.chunks(group) {
                let decode = Decode::new(chunks, source, target, slots as u32, block).ok()?;
                let decode = floats.map_or(decode, |floats| decode.converting(floats));
                for chunk in chunks {
                    tail[at(table)..at(table) + CHUNK_BYTES].copy_from_slice(&chunk.to_bytes());
                    table += CHUNK_BYTES;
                }
                let step = Step::Decode {
                    decode,
                    table: table - chunks.len() * CHUNK_BYTES,
                    statuses: status,
                    from: from.clone(),
                    into: into.clone(),
                };
                status += chunks.len() * STATUS_BYTES;
                decodes.push(step);
            }
        }
        steps.extend(decodes);
        let mut table = window_table;
        for (region, windows) in gathers {
            let gather = Gather::new(&windows, &bands, region.bytes(), values as u64).ok()?;
            let begin = table;
            for window in &windows {
                tail[at(table)..at(table) + WINDOW_BYTES].copy_from_slice(&window.to_bytes());
                table += WINDOW_BYTES;
            }
            steps.push(Step::Gather { gather, table: begin, bands: band_list, from: region });
        }
        for (number, band) in bands.iter().enumerate() {
            let start = at(band_list + 4 * number);
            tail[start..start + 4].copy_from_slice(&band.to_le_bytes());
        }
        let loads: Vec<(Arc<Region>, usize)> =
            compressed.loads.0.iter().map(|load| (load.region.clone(), load.number())).collect();
        let hits = compressed.windows.iter().filter(|window| window.at.array == 0).count();
        let earlier = earlier(reader, plan, compressed)?;
        let copies = copies(compressed, tables..total)?;
        let is_gathered =
            |entry: &&Entry| entry.mapped().is_none() && entry.is_frame(&compressed.loads);
        let gathered = compressed.entries.iter().filter(is_gathered);
        let gathered_bytes = gathered.map(|entry| entry.range.len()).sum();
        Some(Decoding {
            steps,
            chunks,
            statuses,
            bytes: total,
            copies,
            gathered_bytes,
            values,
            hits,
            earlier,
            loads,
        })
    }
}

/// The copies of a batch whose tables are at this place of the slot.
fn copies(compressed: &Compressed, tables: Range<usize>) -> Option<Vec<LinkCopy>> {
    let mut copies: Vec<LinkCopy> = Vec::new();
    let from_slot = |copies: &mut Vec<LinkCopy>, range: Range<usize>| match copies.last_mut() {
        Some(LinkCopy { to, map: None }) if range.start - to.end <= SLOT_GAP => to.end = range.end,
        _ => copies.push(LinkCopy { to: range, map: None }),
    };
    // The file, and the place in it, at which the latest copy ends.
    let mut latest: Option<(*const u8, u64)> = None;
    for entry in &compressed.entries {
        let range = entry.range.clone();
        let Some((leased, from)) = entry.mapped() else {
            from_slot(&mut copies, range);
            latest = None;
            continue;
        };
        let map = compressed.leases.map(leased)?.bytes();
        // Bytes between two frames are copied as well if they are the same in the file and in the slot.
        let gap = latest.zip(copies.last()).and_then(|((file, end), copy)| {
            let gap = range.start - copy.to.end;
            (file == map.as_ptr() && from.checked_sub(end) == Some(gap as u64)).then_some(gap)
        });
        let gap = gap.filter(|gap| *gap as u64 <= MAX_GAP);
        let (mut at, mut to) = match gap {
            Some(gap) => (from - gap as u64, range.start - gap),
            None => (from, range.start),
        };
        let end = from + range.len() as u64;
        latest = Some((map.as_ptr(), end));
        let mut joins = gap.is_some();
        // A copy lies within one registered part.
        while at < end {
            let part = compressed.leases.piece_bytes();
            let next = (at / part + 1).saturating_mul(part).min(end);
            let bytes = (next - at) as usize;
            match copies.last_mut() {
                Some(copy) if joins && at % part != 0 => copy.to.end = to + bytes,
                _ => {
                    let address = map.as_ptr().expose_provenance() + at as usize;
                    copies.push(LinkCopy { to: to..to + bytes, map: Some(address) });
                }
            }
            joins = false;
            (at, to) = (next, to + bytes);
        }
    }
    if !tables.is_empty() {
        from_slot(&mut copies, tables);
    }
    Some(copies)
}

/// The chunks that windows need, and that are not there yet, except for those that the batch brings
/// itself.
fn earlier(
    reader: &Reader,
    plan: &BatchPlan,
    compressed: &Compressed,
) -> Option<Vec<(Arc<Region>, usize)>> {
    let brings = |region: &Arc<Region>, chunk: usize| {
        let same = |load: &Load| load.number() == chunk && Arc::ptr_eq(&load.region, region);
        compressed.loads.0.iter().any(same)
    };
    let mut earlier = Vec::new();
    for resident in compressed.windows.iter().filter(|resident| !resident.region.is_complete()) {
        let item = plan.items[resident.at.position];
        let array = array_of(&reader.dataset, &reader.beside, item, resident.at.array).ok()?;
        let window = array.window(item.window);
        let (rows, columns) = crate::decode::inside(array, window, reader.pad(array));
        let grid = array.grid();
        let chunks = grid.chunk_rows(&rows);
        for chunk in chunks.flat_map(|down| grid.chunks_in(down, &columns, None)) {
            let chunk = resident.cube.first + chunk;
            if !resident.region.is_resident(chunk) && !brings(&resident.region, chunk) {
                earlier.push((resident.region.clone(), chunk));
            }
        }
    }
    Some(earlier)
}
