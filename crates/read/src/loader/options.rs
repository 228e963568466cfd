//! What a loader is asked for.

use std::sync::Arc;

use serde::Serialize;

use crate::cache::CacheKind;
use crate::dataset::NewIds;
use crate::plan::{Patches, PlanOptions, Share};
use crate::ring::memory::MemoryOptions;
use crate::trace::Trace;

/// What a loader is asked for.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Batch size, order, crops, seed.
    pub plan: PlanOptions,
    /// This process among those that train together.
    pub share: Share,
    /// Only samples of these splits; all if empty.
    pub splits: Vec<String>,
    /// Only these samples, by id, each once; all if `None`. [`Order::Sequential`](crate::plan::Order::Sequential) keeps to
    /// their order.
    pub samples: Option<Vec<usize>>,
    /// How often every sample of the dataset is drawn by [`Order::Weighted`](crate::plan::Order::Weighted), relative to the
    /// others, by id; what their column `weight` says, else 1, if `None`.
    pub weights: Option<Vec<f64>>,
    /// Windows around labelled pixels, instead of a crop: the name of the mask, and which pixels.
    pub patches: Option<(String, Patches)>,
    /// Names of the masks to deliver; all that every stack has if `None`, but for patches none.
    pub masks: Option<Vec<String>>,
    /// Other class ids for those of masks, in what is delivered: masks, and labels of windows around labelled pixels.
    /// Which windows there are, and how classes are balanced, goes by the ids that the dataset has.
    pub new_ids: Vec<NewIds>,
    /// Bands to deliver, in this order; all if `None`.
    pub bands: Option<Vec<usize>>,
    /// Decoding threads.
    pub threads: usize,
    /// Batches in the ring: leased, ready and being filled together. At least 2, so that one is filled while
    /// one is used.
    pub slots: usize,
    /// What memory the ring is made of.
    pub memory: MemoryOptions,
    /// What to do about a damaged chunk.
    pub on_damage: OnDamage,
    /// What to keep in memory.
    pub cache: CacheKind,
    /// Bytes the cache may take; with [`CacheKind::Auto`] at most, 0 standing for half of the memory that is free.
    pub cache_bytes: u64,
    /// The last epoch is the one before this; without end if `None`.
    pub end_epoch: Option<u64>,
    /// Where to record what every thread does when.
    pub trace: Option<Arc<Trace>>,
}

/// What to do about a damaged chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDamage {
    /// End the epoch with an error that names shard and sample.
    #[default]
    Error,
    /// Leave the sample out, and count it.
    Skip,
}

hsipack_format::option_names!(OnDamage, "on_damage", { Error => "error", Skip => "skip" });

impl LoaderOptions {
    /// Options for batches of `batch_size` samples; a decoding thread a core and four slots.
    pub fn new(batch_size: usize) -> Self {
        Self {
            plan: PlanOptions::new(batch_size),
            share: Share::ALL,
            splits: Vec::new(),
            samples: None,
            weights: None,
            patches: None,
            masks: None,
            new_ids: Vec::new(),
            bands: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            slots: 4,
            memory: MemoryOptions::default(),
            on_damage: OnDamage::default(),
            cache: CacheKind::Auto,
            cache_bytes: 0,
            end_epoch: None,
            trace: None,
        }
    }
}
