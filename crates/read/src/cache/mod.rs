//! Chunks kept in memory, as many as fit a budget.
//!
//! Each sample comes once in an epoch, so no chunk is worth more than another. The chunks that came first stay, and the
//! rest are read again every epoch.
//!
//! Processes on one machine that train together keep decoded chunks in memory that they share (`segment.rs`). They find
//! one another through a socket (`meeting.rs`).

#[cfg(target_os = "linux")]
mod meeting;
#[cfg(not(target_os = "linux"))]
#[path = "alone.rs"]
mod meeting;
#[cfg(target_os = "linux")]
mod segment;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hsipack_format::random;
use hsipack_store::memory;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use meeting::{ChunksOf, Meeting};

/// What to keep in memory, in addition to what the operating system keeps of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Decoded chunks if all that are needed fit into half of the free memory; otherwise those of a shuffle window, if
    /// there is one; otherwise chunks as stored if they fit; otherwise nothing.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// Chunks as stored: saves reading, for slow disks and networks.
    Compressed,
    /// Decoded chunks: saves decoding too, for datasets that fit.
    Decoded,
}

hsipack_format::option_names!(CacheKind, "cache", {
    Auto => "auto",
    None => "none",
    Compressed => "compressed",
    Decoded => "decoded",
});

/// Chunks in memory.
#[derive(Debug)]
pub(crate) struct Cache {
    kind: CacheKind,
    /// The most bytes that it may use.
    budget: u64,
    places: Places,
}

/// Where chunks are kept.
#[derive(Debug)]
enum Places {
    /// In this process's memory.
    Own {
        /// Bytes that may still be used.
        left: AtomicU64,
        used: AtomicU64,
        /// Per stack, per array.
        arrays: Vec<Vec<Chunks>>,
    },
    /// In memory that processes share.
    Shared(SharedChunks),
}

/// Memory for the decoded chunks of a dataset, which processes of one machine share.
#[derive(Debug)]
pub(crate) struct SharedChunks {
    meeting: Meeting,
    /// Number of every stack's first array.
    arrays: Vec<usize>,
}

impl SharedChunks {
    /// Joins all processes of this user on this machine that read this dataset. Returns `None` if there is no such
    /// memory.
    pub(crate) fn join(dataset: &Dataset) -> Option<Self> {
        let mut of_arrays = Vec::new();
        let mut arrays = Vec::new();
        let mut parts = dataset.fingerprint().bytes().map(u64::from).collect::<Vec<_>>();
        for stack in 0..dataset.stacks().len() {
            arrays.push(of_arrays.len());
            for array in dataset.arrays(stack) {
                let (count, bytes) = (array.count(), array.chunks.chunk_bytes());
                parts.extend([count as u64, bytes as u64]);
                of_arrays.push(ChunksOf { count, bytes });
            }
        }
        let meeting = Meeting::join(random::fold(parts), &of_arrays)?;
        Some(Self { meeting, arrays })
    }

    /// Bytes that all processes together keep in the memory.
    pub(crate) fn used(&self) -> u64 {
        self.meeting.segment().used()
    }

    fn array(&self, array: ArrayRef<'_>) -> usize {
        self.arrays[array.stack] + array.array
    }
}

/// A copy of a chunk.
fn copied(bytes: &[u8]) -> Result<Box<[u8]>> {
    let mut copy = memory::reserved(bytes.len(), "a chunk")?;
    copy.extend_from_slice(bytes);
    Ok(copy.into_boxed_slice())
}

/// A place for every chunk of an array.
type Chunks = Box<[OnceLock<Box<[u8]>>]>;

impl Cache {
    /// An empty cache of at most `budget` bytes; `None` if nothing is to be kept.
    ///
    /// # Errors
    /// If there is not enough memory for a note about every chunk.
    pub(crate) fn new(dataset: &Dataset, kind: CacheKind, budget: u64) -> Result<Option<Self>> {
        if kind == CacheKind::None {
            return Ok(None);
        }
        let arrays = dataset.for_every_chunk("the cache", OnceLock::new)?;
        let places = Places::Own { left: AtomicU64::new(budget), used: AtomicU64::new(0), arrays };
        Ok(Some(Self { kind, budget, places }))
    }

    /// A cache of decoded chunks, of at most `budget` bytes, in memory that processes share.
    pub(crate) fn shared(chunks: SharedChunks, budget: u64) -> Self {
        Self { kind: CacheKind::Decoded, budget, places: Places::Shared(chunks) }
    }

    /// Whether chunks are kept decoded.
    pub(crate) fn keeps_decoded(&self) -> bool {
        self.kind == CacheKind::Decoded
    }

    /// The decoded chunk, if decoded chunks are kept and this one is.
    pub(crate) fn decoded(&self, array: ArrayRef<'_>, number: usize) -> Option<&[u8]> {
        if self.keeps_decoded() { self.get(array, number) } else { None }
    }

    /// The stored chunk, if stored chunks are kept and this one is.
    pub(crate) fn stored(&self, array: ArrayRef<'_>, number: usize) -> Option<&[u8]> {
        if self.kind == CacheKind::Compressed { self.get(array, number) } else { None }
    }

    /// Whether the chunk is kept.
    pub(crate) fn holds(&self, array: ArrayRef<'_>, number: usize) -> bool {
        self.get(array, number).is_some()
    }

    fn get(&self, array: ArrayRef<'_>, number: usize) -> Option<&[u8]> {
        match &self.places {
            Places::Own { arrays, .. } => {
                arrays[array.stack][array.array][number].get().map(|chunk| &**chunk)
            }
            Places::Shared(chunks) => chunks.meeting.segment().get(chunks.array(array), number),
        }
    }

    /// Keeps a chunk if there is room.
    pub(crate) fn keep(&self, array: ArrayRef<'_>, number: usize, stored: &[u8], decoded: &[u8]) {
        let bytes = if self.kind == CacheKind::Decoded { decoded } else { stored };
        let (left, used, arrays) = match &self.places {
            Places::Own { left, used, arrays } => (left, used, arrays),
            Places::Shared(chunks) => {
                let segment = chunks.meeting.segment();
                return segment.keep(chunks.array(array), number, bytes, self.budget);
            }
        };
        let len = bytes.len() as u64;
        let take = |left: u64| left.checked_sub(len);
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return;
        }
        let place = &arrays[array.stack][array.array][number];
        // If the system refuses the memory, the chunk is not kept, and is read again.
        if copied(bytes).is_ok_and(|copy| place.set(copy).is_ok()) {
            used.fetch_add(len, Ordering::Relaxed);
        } else {
            // Another thread may also have been first.
            left.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// Bytes kept. If the memory is shared, this includes the chunks of other processes.
    pub(crate) fn used(&self) -> u64 {
        match &self.places {
            Places::Own { used, .. } => used.load(Ordering::Relaxed),
            Places::Shared(chunks) => chunks.used(),
        }
    }
}
