//! Batches that a device completes: their slots hold chunks as they are stored, or nothing but a
//! list of windows of cubes that are in the device's memory, instead of values.
//!
//! ```text
//! frame │ frame │ … │ values │ …  │ tables, bands, zeros ┊ statuses
//! ───────────────── gathered ──── └── added when the batch is taken ┘
//! └────────────────────── copied to the device ──────────┘ └ copied back
//! ```
//!
//! All windows of one array and sample come in one of these forms:
//!
//! - as the frames of their chunks;
//! - as values in a frame that is not compressed: chunks of other codecs, windows that reach beyond
//!   the edge of their cube, some of the bands, new class ids;
//! - from a cube in the device's memory ([`Residents`]). Chunks of the cube that are not there yet
//!   come with the batch, for themselves, so that later batches find them.
//!
//! Frames of files in the system's page cache are not gathered, if the device can read them there
//! ([`PageCache`]): they have their places in the slot, but the copies to the device take them from
//! the file's map. Checksums of chunks that are due are compared in the map when a task is done,
//! which later epochs do not read. The batch's arrays say where values lie on the device.
//! `compressed.rs` plans and fills such slots, and `device_work.rs` says how the device's work
//! follows.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::device_steps::Decoding;
use super::options::LoaderOptions;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::device::decode::{CHUNK_BYTES, STATUS_BYTES, WINDOW_BYTES, block_bytes};
use crate::device::page_cache::{Leased, Leases};
use crate::device::resident::{Cube, Region};
use crate::shuffle_buffer::ChunkRef;

/// Every entry starts at a multiple of this many bytes.
pub(super) const ALIGNMENT: usize = 16;
/// Frames that follow one another in a file with at most this many bytes between them are copied
/// together.
pub(super) const MAX_GAP: u64 = 64;

/// The contents of a slot that has no values.
#[derive(Debug, Default)]
pub(crate) struct Compressed {
    pub(super) entries: Vec<Entry>,
    /// Entries of each task.
    pub(super) tasks: Vec<Range<usize>>,
    /// Windows of cubes in the device's memory.
    pub(super) windows: Vec<ResidentWindow>,
    pub(super) loads: Loads,
    /// Parts of files that the device reads itself.
    pub(super) leases: Leases,
    /// Whether a chunk for the device's memory could not be read, or is damaged.
    pub(super) is_spoiled: AtomicBool,
    pub(super) decoding: Option<Arc<Decoding>>,
}

/// A piece of the slot.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) content: Content,
    /// Where in the slot it lies.
    pub(super) range: Range<usize>,
    /// If the device reads the frame in the page cache: what stands in the slot instead.
    pub(super) mapped: Option<Mapped>,
}

/// A frame in a file that is registered with the device.
#[derive(Debug)]
pub(super) struct Mapped {
    leased: Leased,
    /// Its first byte in the file.
    from: u64,
    /// The size of its blocks, once it was read.
    block: AtomicU32,
    /// Whether it was gathered nevertheless.
    is_gathered: AtomicBool,
}

impl Mapped {
    /// A frame that begins at byte `from` of its file.
    pub(super) fn new(leased: Leased, from: u64) -> Self {
        Self { leased, from, block: AtomicU32::new(0), is_gathered: AtomicBool::new(false) }
    }
}

impl Entry {
    /// If the device reads the frame in the page cache: the parts of its file, and its first byte
    /// there.
    pub(super) fn mapped(&self) -> Option<(&Leased, u64)> {
        let mapped =
            self.mapped.as_ref().filter(|mapped| !mapped.is_gathered.load(Ordering::Relaxed));
        mapped.map(|mapped| (&mapped.leased, mapped.from))
    }

    /// The size of the frame's blocks.
    pub(super) fn block(&self, slot: &[u8]) -> Option<u32> {
        match (&self.mapped, self.mapped()) {
            (Some(mapped), Some(_)) => Some(mapped.block.load(Ordering::Relaxed)),
            _ => Some(block_bytes(slot.get(self.range.clone())?)),
        }
    }

    /// Whether it is a frame as it is stored.
    pub(super) fn is_frame(&self, loads: &Loads) -> bool {
        match self.content {
            Content::Chunk { .. } => true,
            Content::Values(_) => false,
            Content::Load(number) => loads.0[number].is_frame,
        }
    }

    /// Takes a frame: copies it to the slot, unless the device reads it where it is.
    pub(super) fn take(&self, frame: &[u8], out: &mut [u8], leases: &Leases) {
        let Some(mapped) = &self.mapped else { return out.copy_from_slice(frame) };
        if leases.are_ready(&mapped.leased) {
            mapped.block.store(block_bytes(frame), Ordering::Relaxed);
        } else {
            mapped.is_gathered.store(true, Ordering::Relaxed);
            out.copy_from_slice(frame);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// Chunk `chunk` of a cube, as it is stored.
    Chunk { at: At, chunk: usize },
    /// The window, after the header of a frame that is not compressed.
    Values(At),
    /// A chunk for the device's memory: the number of the load.
    Load(usize),
}

/// An array of the batch, and a place in the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub array: usize,
    pub position: usize,
}

/// A window of a cube in the device's memory.
#[derive(Debug)]
pub(super) struct ResidentWindow {
    pub at: At,
    pub region: Arc<Region>,
    pub cube: Cube,
}

/// Chunks that a batch brings to the device's memory. Those that do not arrive are absent again
/// when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Loads(pub Vec<Load>);

/// A chunk for the device's memory.
#[derive(Debug)]
pub(super) struct Load {
    pub region: Arc<Region>,
    pub cube: Cube,
    /// Stack, array, and place of the cube in the stack.
    pub stored: (usize, usize, usize),
    /// Number of the chunk in its cube.
    pub chunk: usize,
    /// Whether it comes as it is stored, and not as values.
    pub is_frame: bool,
}

impl Load {
    /// Number of the chunk in its region.
    pub(super) fn number(&self) -> usize {
        self.cube.first + self.chunk
    }

    /// The array of its cube.
    pub(super) fn array<'a>(&self, dataset: &'a Dataset) -> ArrayRef<'a> {
        dataset.array(self.stored.0, self.stored.1)
    }
}

impl Drop for Loads {
    fn drop(&mut self) {
        self.0.iter().for_each(|load| load.region.unschedule(load.number()));
    }
}

impl Compressed {
    /// The entries of a task.
    pub(super) fn task(&self, number: usize) -> &[Entry] {
        &self.entries[self.tasks[number].clone()]
    }

    /// The device's work, once it is known.
    pub(super) fn decoding(&self) -> Option<Arc<Decoding>> {
        self.decoding.clone()
    }

    /// The place in the batch to which an error of an entry belongs.
    pub(super) fn position_of(entries: &[Entry]) -> usize {
        entries.first().map_or(0, |entry| match entry.content {
            Content::Chunk { at, .. } | Content::Values(at) => at.position,
            Content::Load(_) => 0,
        })
    }

    /// The chunks for the device's memory.
    pub(super) fn load_chunks(&self, dataset: &Dataset) -> impl Iterator<Item = ChunkRef> {
        let chunk = |load: &Load| ChunkRef::new(load.array(dataset), load.stored.2, load.chunk);
        self.loads.0.iter().map(chunk)
    }

    /// Whether the device reads all frames in the page cache, and nothing of them is read from a
    /// disk any more.
    pub(super) fn is_mapped(&self) -> bool {
        self.entries.iter().all(|entry| entry.mapped.is_some()) && self.leases.are_registered()
    }

    /// Whether a chunk for the device's memory is missing.
    pub(super) fn is_spoiled(&self) -> bool {
        self.is_spoiled.load(Ordering::Relaxed)
    }

    /// Leaves out the samples at `positions` (ascending). The frames that stay keep their places in
    /// the slot.
    pub(super) fn remove(&mut self, positions: &[usize]) {
        let stays = |at: At| !positions.contains(&at.position);
        let moved = |at: &mut At| {
            at.position -= positions.partition_point(|gone| *gone < at.position);
        };
        self.entries.retain(|entry| match entry.content {
            Content::Chunk { at, .. } | Content::Values(at) => stays(at),
            Content::Load(_) => true,
        });
        for entry in &mut self.entries {
            match &mut entry.content {
                Content::Chunk { at, .. } | Content::Values(at) => moved(at),
                Content::Load(_) => {}
            }
        }
        self.windows.retain(|window| stays(window.at));
        self.windows.iter_mut().for_each(|window| moved(&mut window.at));
        self.tasks.clear();
        self.decoding = None;
    }
}

/// Bytes of the tables of so many windows of cubes in the device's memory.
pub(super) fn table_bytes(windows: usize, options: &LoaderOptions) -> usize {
    let bands = options.bands.as_ref().map_or(0, |bands| 4 * bands.len());
    windows * (WINDOW_BYTES + CHUNK_BYTES + 2 * STATUS_BYTES) + bands + 8 * ALIGNMENT
}
