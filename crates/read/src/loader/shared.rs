//! What the threads of a loader share.

use std::sync::{Arc, Mutex, PoisonError};

use super::batch_plan::BatchPlan;
use super::cache_choice::CacheChoice;
use super::new_ids::IdTables;
use super::options::LoaderOptions;
use super::prepared::{PreparedLoader, check_memory, state_before};
use super::stats::{Counters, Statistics};
use super::times::Record;
use crate::Result;
use crate::cache::{Cache, CacheKind, CacheTimes, SharedChunks};
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::decode::Decoder;
use crate::held::Held;
use crate::plan::{Crop, Pad, Plan, Segment, State};
use crate::ring::Ring;
use crate::ring::memory::MemoryOptions;

/// Keeping fewer bytes of decoded chunks than this takes a few ms, which nobody notices.
const THRIFTY_FROM: u64 = 16 << 20;

/// What the threads of a loader share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub dataset: Dataset,
    pub options: LoaderOptions,
    pub plan: Plan,
    /// Names of the masks, in the order of their arrays.
    pub masks: Vec<String>,
    /// New class ids for the masks.
    pub new_ids: Arc<IdTables>,
    pub ring: Arc<Ring<BatchPlan>>,
    pub counters: Counters,
    pub cache: Option<Cache>,
    /// The chunks of a shuffle window.
    pub held: Option<Held>,
    /// What is kept in memory, and why.
    pub cached: CacheChoice,
    start: Mutex<Start>,
}

/// Where the feeder has to begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// The generation of the ring. The feeder looks here whenever there is a new one.
    pub generation: u64,
    pub epoch: u64,
    /// The batches of that epoch that were already given.
    pub given: Vec<Segment>,
}

impl Shared {
    /// Reserves the memory of the ring and of the cache.
    ///
    /// # Errors
    /// If there is not enough memory, or the dataset cannot be read.
    pub(crate) fn new(prepared: PreparedLoader) -> Result<Self> {
        let cached = &prepared.cached;
        let slot_bytes = prepared.slot_bytes;
        let mut options = prepared.options.clone();
        (options.cache, options.cache_bytes) = (cached.kind, cached.limit_bytes);
        check_memory(&options, slot_bytes, cached.needed_bytes)?;
        let ring = Ring::new(options.slots, slot_bytes, &options.memory)?;
        let mut shared = Self::with_ring(ring, prepared, options);
        let (dataset, bytes) = (&shared.dataset, shared.options.cache_bytes);
        if shared.cached.shuffle_window.is_some() {
            shared.held = Some(Held::new(dataset)?);
            return Ok(shared);
        }
        // If other processes left the shared memory meanwhile, this one can still keep chunks for itself.
        let chunks = shared.cached.shared.then(|| SharedChunks::join(dataset)).flatten();
        shared.cache = match chunks {
            Some(chunks) => Some(Cache::shared(chunks, bytes)),
            None => {
                // If several windows of an epoch need a chunk, keeping it pays in the same epoch.
                let once = shared.plan.items() <= shared.plan.samples().len();
                let needed = shared.cached.needed_bytes;
                let is_thrifty = shared.cached.chosen && once && needed >= THRIFTY_FROM;
                let thrifty_for = is_thrifty.then_some(needed);
                Cache::new(dataset, shared.options.cache, bytes, thrifty_for)?
            }
        };
        Ok(shared)
    }

    /// The same without memory. It cannot fill a ring, but it can plan batches and read their items.
    pub(crate) fn without_ring(prepared: PreparedLoader) -> Result<Self> {
        let memory = MemoryOptions { locked: false, ..MemoryOptions::default() };
        let options = prepared.options.clone();
        let ring = Ring::new(options.slots, 0, &memory)?;
        Ok(Self::with_ring(ring, prepared, options))
    }

    /// The same with this ring, and without any cache.
    fn with_ring(ring: Ring<BatchPlan>, prepared: PreparedLoader, options: LoaderOptions) -> Self {
        let PreparedLoader { dataset, plan, masks, new_ids, cached, .. } = prepared;
        Self {
            dataset,
            options,
            plan,
            masks,
            new_ids,
            ring: ring.into(),
            counters: Counters::new(),
            cache: None,
            held: None,
            cached,
            start: Mutex::default(),
        }
    }

    pub(crate) fn decoder(&self) -> Decoder<'_> {
        Decoder {
            dataset: &self.dataset,
            bands: self.options.bands.as_deref(),
            cache: self.cache.as_ref(),
            held: self.held.as_ref(),
        }
    }

    /// Bytes that the cache holds.
    pub(crate) fn cached_bytes(&self) -> u64 {
        let held = self.held.as_ref().map_or(0, Held::used);
        held + self.cache.as_ref().map_or(0, Cache::used)
    }

    /// Cost and gain of keeping decoded chunks so far.
    pub(crate) fn cache_times(&self) -> CacheTimes {
        self.cache.as_ref().map_or(CacheTimes::default(), Cache::times)
    }

    /// The state before the first batch of an epoch.
    pub(crate) fn state_before(&self, epoch: u64) -> State {
        state_before(&self.plan, &self.dataset, &self.cached, epoch)
    }

    /// Whether every chunk that is read is decoded in memory.
    pub(crate) fn keeps_all(&self) -> bool {
        self.cached.kind == CacheKind::Decoded && self.cached_bytes() >= self.cached.needed_bytes
    }

    /// The padding of an array's windows beyond the edge of their cube. If no window reaches there, it does not matter.
    pub(crate) fn pad(&self, array: ArrayRef<'_>) -> Pad {
        let crop = &self.plan.options().crop;
        match crop {
            // Mirrored pixels are not part of a region.
            Crop::Windows(windows) if windows.are_regions() && array.array != 0 => Pad::Value(0.0),
            _ => crop.pad().unwrap_or(Pad::Edge),
        }
    }

    /// Where the times of batches are recorded.
    pub(crate) fn record(&self) -> Record<'_> {
        Record { times: &self.counters.times, trace: self.options.trace.as_deref() }
    }

    /// Where the time went so far, in the schema that all loaders use.
    pub(crate) fn statistics(&self) -> Statistics {
        let loader = self.counters.snapshot(self.options.threads, self.options.slots);
        Statistics {
            schema: 1,
            batches: loader.batches,
            waiting_s: loader.consumer_waiting_s,
            loaders: 1,
            slots: loader.slots,
            times: self.counters.times.get(),
            given_away: 0,
            copied: 0,
            loader,
        }
    }

    /// Where the feeder has to begin.
    pub(crate) fn start(&self) -> Start {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops unfinished batches and makes the feeder begin elsewhere.
    pub(crate) fn restart(&self, epoch: u64, given: Vec<Segment>) {
        // The lock is held meanwhile, so that a feeder that sees the new generation waits for its start.
        let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.ring.slots().restart();
        *start = Start { generation, epoch, given };
    }
}
