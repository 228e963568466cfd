//! Chunks kept in memory, as many as fit a budget.
//!
//! Every sample of an epoch comes once, so no chunk is worth more than another: what came first stays, and
//! the rest is read again every epoch. What is kept is chosen here, too, where the user leaves that to us.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hsipack_store::memory;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::dataset::files::is_sharded;
use crate::loader::{LoaderOptions, place};
use crate::plan::Plan;

/// What to keep in memory, beside what the operating system keeps of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheKind {
    /// Decoded chunks if all that are needed fit into half of the memory that is free, else chunks as stored if those do,
    /// else nothing.
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

/// What a loader keeps in memory, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CacheChoice {
    /// What is kept.
    pub kind: CacheKind,
    /// Whether that was chosen here, by [`CacheKind::Auto`].
    pub chosen: bool,
    /// Bytes that it may take at most.
    pub limit_bytes: u64,
    /// Bytes of all chunks that the windows lie in, decoded.
    pub needed_bytes: u64,
    /// In words.
    pub why: String,
}

impl CacheChoice {
    /// What the options ask for; `Auto` is decided by what is free beside a ring of `ring_bytes`.
    pub(crate) fn of(
        dataset: &Dataset,
        options: &LoaderOptions,
        plan: &Plan,
        masks: &[String],
        ring_bytes: u64,
    ) -> Result<Self> {
        let needed = needed(dataset, plan, masks)?;
        let choice = |kind, limit_bytes, why| Self {
            kind,
            chosen: options.cache == CacheKind::Auto,
            limit_bytes,
            needed_bytes: needed.decoded,
            why,
        };
        if options.cache != CacheKind::Auto {
            return Ok(choice(options.cache, options.cache_bytes, "asked for".to_owned()));
        }
        let (limit, limited_by) = match (options.cache_bytes, memory::available()) {
            (0, None) => {
                let why = "the system does not say how much memory is free".to_owned();
                return Ok(choice(CacheKind::None, 0, why));
            }
            (0, Some(available)) => {
                let ranks = ranks_here().min(options.share.world_size as u64);
                let by = match ranks {
                    1 => format!("half of what is free {}", available.by),
                    _ => format!("one of {ranks} parts of half of what is free {}", available.by),
                };
                (available.bytes.saturating_sub(ring_bytes) / 2 / ranks, by)
            }
            (bytes, _) => (bytes, "the limit that was given".to_owned()),
        };
        let room = format!("{} ({limited_by})", memory::size(limit));
        let decoded = memory::size(needed.decoded);
        if needed.decoded <= limit {
            let why =
                format!("all chunks that are read take {decoded} decoded, which fit into {room}");
            return Ok(choice(CacheKind::Decoded, needed.decoded, why));
        }
        let stored = needed.stored(dataset);
        let sizes = format!("{decoded} decoded, {} as stored", memory::size(stored));
        Ok(match stored <= limit {
            true => {
                let why =
                    format!("all chunks that are read take {sizes}; only these fit into {room}");
                choice(CacheKind::Compressed, stored, why)
            }
            false => {
                let why = format!("all chunks that are read take {sizes}; neither fit into {room}");
                choice(CacheKind::None, 0, why)
            }
        })
    }
}

/// Processes of this machine that train together, as torchrun says.
fn ranks_here() -> u64 {
    let said = std::env::var("LOCAL_WORLD_SIZE").ok();
    said.and_then(|said| said.parse().ok()).unwrap_or(1).max(1)
}

/// The chunks that a plan's windows lie in.
struct Needed {
    /// Their bytes, decoded.
    decoded: u64,
    /// Arrays with the places in them of the samples that are read.
    arrays: Vec<(usize, usize, Vec<usize>)>,
}

/// All chunks of the samples that a plan reads.
fn needed(dataset: &Dataset, plan: &Plan, masks: &[String]) -> Result<Needed> {
    let mut by_stack: Vec<Vec<usize>> = vec![Vec::new(); dataset.stacks().len()];
    for sample in plan.samples() {
        let stack = dataset.stack_of(sample.sample)?;
        by_stack[stack].push(dataset.samples().index(sample.sample));
    }
    let mut needed = Needed { decoded: 0, arrays: Vec::new() };
    for (stack, samples) in by_stack.into_iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        let masks = masks.iter().map(|name| place(dataset, stack, name));
        for array in std::iter::once(Ok(0)).chain(masks) {
            let array = dataset.array(stack, array?);
            let chunks = samples.len() * array.grid().chunks_per_sample();
            needed.decoded += chunks as u64 * array.chunks.chunk_bytes() as u64;
            needed.arrays.push((stack, array.array, samples.clone()));
        }
    }
    Ok(needed)
}

impl Needed {
    /// Bytes of the files that hold them; what cannot be looked at counts as nothing, reading will tell.
    fn stored(&self, dataset: &Dataset) -> u64 {
        let length = |path: PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        let in_array = |(stack, array, samples): &(usize, usize, Vec<usize>)| -> u64 {
            let array = dataset.array(*stack, *array);
            let grid = array.grid();
            if !is_sharded(array.chunks) {
                let chunks = |index: &usize| {
                    let index = *index;
                    (0..grid.chunks_per_sample())
                        .map(move |chunk| array.chunks.chunk_path(index, chunk))
                };
                return samples.iter().flat_map(chunks).map(length).sum();
            }
            let mut shards: Vec<usize> =
                samples.iter().map(|index| grid.locate(*index).0).collect();
            shards.sort_unstable();
            shards.dedup();
            shards.into_iter().map(|shard| length(array.chunks.shard_path(shard))).sum()
        };
        self.arrays.iter().map(in_array).sum()
    }
}

/// Chunks in memory.
#[derive(Debug)]
pub(crate) struct Cache {
    kind: CacheKind,
    /// Bytes that may still be used.
    left: AtomicU64,
    used: AtomicU64,
    /// Per stack, per array.
    arrays: Vec<Vec<Chunks>>,
}

/// A place for every chunk of an array.
type Chunks = Box<[OnceLock<Box<[u8]>>]>;

impl Cache {
    /// An empty cache of at most `budget` bytes; `None` if nothing is to be kept.
    ///
    /// # Errors
    /// If there is no memory for a note about every chunk.
    pub(crate) fn new(dataset: &Dataset, kind: CacheKind, budget: u64) -> Result<Option<Self>> {
        if kind == CacheKind::None {
            return Ok(None);
        }
        let slots = |stack: usize, array: usize| {
            let array = dataset.array(stack, array);
            // The dataset, once open, has as many notes already.
            let chunks = array.chunks.len() * array.grid().chunks_per_sample();
            let mut slots = memory::reserved(chunks, "the cache")?;
            slots.extend((0..chunks).map(|_| OnceLock::new()));
            Ok(slots.into())
        };
        let arrays = |stack: usize| {
            let arrays = 0..=dataset.stacks()[stack].masks.len();
            arrays.map(|array| slots(stack, array)).collect::<Result<_>>()
        };
        let arrays = (0..dataset.stacks().len()).map(arrays).collect::<Result<_>>()?;
        Ok(Some(Self { kind, left: AtomicU64::new(budget), used: AtomicU64::new(0), arrays }))
    }

    /// The decoded chunk, if that is what is kept and it is.
    pub(crate) fn decoded(&self, array: ArrayRef<'_>, number: usize) -> Option<&[u8]> {
        if self.kind == CacheKind::Decoded { self.get(array, number) } else { None }
    }

    /// The stored chunk, if that is what is kept and it is.
    pub(crate) fn stored(&self, array: ArrayRef<'_>, number: usize) -> Option<&[u8]> {
        if self.kind == CacheKind::Compressed { self.get(array, number) } else { None }
    }

    /// Whether the chunk is kept.
    pub(crate) fn holds(&self, array: ArrayRef<'_>, number: usize) -> bool {
        self.get(array, number).is_some()
    }

    fn get(&self, array: ArrayRef<'_>, number: usize) -> Option<&[u8]> {
        self.arrays[array.stack][array.array][number].get().map(|chunk| &**chunk)
    }

    /// Keeps a chunk if there is room.
    pub(crate) fn keep(&self, array: ArrayRef<'_>, number: usize, stored: &[u8], decoded: &[u8]) {
        let bytes = if self.kind == CacheKind::Decoded { decoded } else { stored };
        let len = bytes.len() as u64;
        let take = |left: u64| left.checked_sub(len);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return;
        }
        let place = &self.arrays[array.stack][array.array][number];
        if place.set(bytes.into()).is_ok() {
            self.used.fetch_add(len, Ordering::Relaxed);
        } else {
            // Another thread was first.
            self.left.fetch_add(len, Ordering::Relaxed);
        }
    }

    /// Bytes kept.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }
}
