//! Chunks kept in memory, as many as fit a budget.
//!
//! Each sample comes once in an epoch, so no chunk is worth more than another. The chunks that were
//! kept first stay, and the rest are read again every epoch. If the loader chose by itself to keep
//! decoded chunks, it keeps them only when there is time for it (`admission.rs`).
//!
//! Processes on one machine that train together keep decoded chunks in memory that they share
//! (`segment.rs`). They find one another through a socket (`rendezvous.rs`).

mod admission;
mod arena;
#[cfg(target_os = "linux")]
mod rendezvous;
#[cfg(not(target_os = "linux"))]
#[path = "rendezvous_unsupported.rs"]
mod rendezvous;
#[cfg(target_os = "linux")]
mod segment;

use std::time::Duration;

use hsipack_format::random;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use admission::Admission;
use arena::{Arena, KeepTime};
use rendezvous::{ChunksOf, Rendezvous};

/// Data to keep in memory, in addition to the operating system's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Decoded chunks, kept when there is time for it, if all that are needed fit into half of the
    /// free memory; otherwise those of a shuffle window, if there is one; otherwise chunks as
    /// stored if they fit; otherwise nothing.
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
    memory: Memory,
    admission: Admission,
    keeping: Keeping,
}

/// When decoded chunks are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// As soon as they are decoded.
    AtOnce,
    /// As soon as they are decoded; until the consumer has its first batch, only when there is time
    /// for it.
    AfterFirstBatch,
    /// When there is time for it (`admission.rs`). An epoch needs so many bytes of decoded chunks.
    InIdleTime { needed: u64 },
}

/// Where chunks are kept.
#[derive(Debug)]
enum Memory {
    /// In this process's memory.
    Own(Arena),
    /// In memory that processes share.
    Shared(SharedChunks),
}

/// Cost and gain of keeping decoded chunks so far. Times are in seconds, of all decoding threads
/// together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CacheTimes {
    /// Time in which memory for chunks was made ready, and chunks were copied there.
    pub keeping_s: f64,
    /// Time that it would have taken to decode the chunks that came from the cache, less that of
    /// copying them.
    pub saved_s: f64,
}

/// Memory for the decoded chunks of a dataset, which processes of one machine share.
#[derive(Debug)]
pub(crate) struct SharedChunks {
    rendezvous: Rendezvous,
    /// Number of every stack's first array.
    arrays: Vec<usize>,
}

impl SharedChunks {
    /// Joins all processes of this user on this machine that read this dataset. Returns `None` if
    /// there is no such memory.
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
        let rendezvous = Rendezvous::join(random::fold(parts), &of_arrays)?;
        Some(Self { rendezvous, arrays })
    }

    /// Bytes that all processes together keep in the memory.
    pub(crate) fn used(&self) -> u64 {
        self.rendezvous.segment().used()
    }

    fn array(&self, array: ArrayRef<'_>) -> usize {
        self.arrays[array.stack] + array.array
    }
}

impl Cache {
    /// An empty cache of at most `budget` bytes; `None` if nothing is to be kept.
    ///
    /// # Errors
    /// If there is not enough memory for a note about every chunk.
    pub(crate) fn new(
        dataset: &Dataset,
        kind: CacheKind,
        budget: u64,
        keeping: Keeping,
    ) -> Result<Option<Self>> {
        if kind == CacheKind::None {
            return Ok(None);
        }
        let memory = Memory::Own(Arena::new(dataset, budget)?);
        let keeping = if kind == CacheKind::Decoded { keeping } else { Keeping::AtOnce };
        let admission = Admission::new(match keeping {
            Keeping::InIdleTime { needed } => needed,
            // Time of decoding never pays for keeping.
            Keeping::AtOnce | Keeping::AfterFirstBatch => u64::MAX,
        });
        Ok(Some(Self { kind, budget, memory, admission, keeping }))
    }

    /// A cache of decoded chunks, of at most `budget` bytes, in memory that processes share.
    pub(crate) fn shared(chunks: SharedChunks, budget: u64) -> Self {
        chunks.rendezvous.segment().prefer_huge_pages(budget);
        let (kind, memory) = (CacheKind::Decoded, Memory::Shared(chunks));
        Self { kind, budget, memory, admission: Admission::new(0), keeping: Keeping::AtOnce }
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
        match &self.memory {
            Memory::Own(arena) => arena.get(array, number),
            Memory::Shared(chunks) => chunks.rendezvous.segment().get(chunks.array(array), number),
        }
    }

    /// Keeps a chunk that was decoded in this time, if there is room, and time.
    pub(crate) fn keep(
        &self,
        array: ArrayRef<'_>,
        number: usize,
        stored: &[u8],
        decoded: &[u8],
        took: Duration,
    ) {
        self.admission.decoded(decoded.len(), took);
        let took = match &self.memory {
            Memory::Own(arena) => {
                let left = match self.keeping {
                    Keeping::AtOnce => None,
                    Keeping::AfterFirstBatch if self.admission.has_begun() => None,
                    Keeping::AfterFirstBatch | Keeping::InIdleTime { .. } => {
                        match self.admission.left(arena.took()) {
                            None => return,
                            left => left,
                        }
                    }
                };
                let bytes = if self.keeps_decoded() { decoded } else { stored };
                arena.keep(array, number, bytes, self.budget, left)
            }
            Memory::Shared(chunks) => {
                let segment = chunks.rendezvous.segment();
                let copied = segment.keep(chunks.array(array), number, decoded, self.budget);
                copied.map(|copied| KeepTime { copied, waited: Duration::ZERO })
            }
        };
        if let Some(KeepTime { copied, waited }) = took {
            self.admission.kept(decoded.len(), copied, waited);
        }
    }

    /// Records that the consumer has its first batch.
    pub(crate) fn begin(&self) {
        self.admission.begin();
    }

    /// Records that a thread waited for a task, and then for data, in which time chunks may be
    /// kept.
    pub(crate) fn waited(&self, task: Duration, data: Duration) {
        match self.keeping {
            Keeping::AtOnce => {}
            Keeping::AfterFirstBatch if self.admission.has_begun() => {}
            Keeping::AfterFirstBatch => self.admission.waited_for_data(data),
            Keeping::InIdleTime { .. } => self.admission.waited(task, data),
        }
    }

    /// Records that so many bytes of decoded chunks came from the cache, and how long it took to
    /// copy them, if that was measured.
    pub(crate) fn gave(&self, bytes: usize, copied: Option<Duration>) {
        self.admission.hit(bytes, copied);
    }

    /// Cost and gain of keeping chunks so far.
    pub(crate) fn times(&self) -> CacheTimes {
        let cleared = match &self.memory {
            Memory::Own(arena) => arena.took(),
            Memory::Shared(_) => Duration::ZERO,
        };
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        CacheTimes {
            keeping_s: seconds(self.admission.spent(cleared)),
            saved_s: seconds(self.admission.saved()),
        }
    }

    /// Bytes kept. If the memory is shared, this includes the chunks of other processes.
    pub(crate) fn used(&self) -> u64 {
        match &self.memory {
            Memory::Own(arena) => arena.used(),
            Memory::Shared(chunks) => chunks.used(),
        }
    }
}
