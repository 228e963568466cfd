//! What is kept in memory where the user leaves that to us: as much as helps, and fits.

use std::path::PathBuf;

use hsipack_store::memory;
use serde::Serialize;

use super::batch_plan::place;
use super::options::LoaderOptions;
use crate::Result;
use crate::cache::CacheKind;
use crate::dataset::Dataset;
use crate::dataset::files::is_sharded;
use crate::plan::Plan;

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
