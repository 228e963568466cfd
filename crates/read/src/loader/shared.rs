//! State that the threads of a loader share.

use std::sync::{Arc, Mutex, PoisonError};

use super::batch_plan::BatchPlan;
use super::cache_choice::CacheChoice;
use super::member::Member;
use super::options::LoaderOptions;
use super::prepared::PreparedLoader;
use super::reader::{KeptChunks, Reader};
use super::stats::{Counters, Statistics};
use super::times::Record;
use crate::Result;
use crate::cache::CacheTimes;
use crate::device::page_cache::PageCache;
use crate::plan::{JoinedPlan, Segment, State};
use crate::ring::Ring;
use crate::ring::memory::MemoryOptions;

/// State that the threads of a loader share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The datasets, at least one.
    pub readers: Vec<Reader>,
    pub plan: JoinedPlan,
    seed: u64,
    pub ring: Arc<Ring<BatchPlan>>,
    pub counters: Counters,
    /// Whether batches may hold compressed chunks, because a device decodes them.
    pub compressed: bool,
    /// Frames that the device reads in the system's page cache.
    pub page_cache: Option<PageCache>,
    /// Bytes of the largest batch. Slots of the ring may have more.
    pub batch_bytes: usize,
    start: Mutex<Start>,
}

/// Where the feeder has to begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// The generation of the ring. The feeder looks here whenever there is a new one.
    pub generation: u64,
    pub epoch: u64,
    /// The batches of that epoch that were already given.
    pub delivered: Vec<Segment>,
}

impl Shared {
    /// Reserves the memory of the ring and of the caches.
    ///
    /// # Errors
    /// If there is not enough memory, or a dataset cannot be read.
    pub(crate) fn new(prepared: PreparedLoader) -> Result<Self> {
        prepared.check_memory()?;
        let options = prepared.options();
        let ring = Ring::new(options.slots, prepared.ring_slot_bytes(), &options.memory)?;
        Self::with_ring(ring, prepared, Reader::new)
    }

    fn with_ring(
        ring: Ring<BatchPlan>,
        prepared: PreparedLoader,
        reader: impl Fn(Member) -> Result<Reader>,
    ) -> Result<Self> {
        let plan = prepared.joined_plan();
        let batch_bytes = prepared.batch_bytes().next_multiple_of(4096);
        let PreparedLoader { members, seed, compressed, page_cache, .. } = prepared;
        let counters = Counters::new();
        counters.skipped(members.iter().map(|member| member.skipped().len()).sum());
        Ok(Self {
            readers: members.into_iter().map(reader).collect::<Result<_>>()?,
            plan,
            seed,
            ring: ring.into(),
            counters,
            compressed,
            page_cache,
            batch_bytes,
            start: Mutex::default(),
        })
    }

    /// The same without memory. It cannot fill a ring, but it can plan batches and read their
    /// items.
    pub(crate) fn without_ring(prepared: PreparedLoader) -> Result<Self> {
        let memory = MemoryOptions { locked: false, ..MemoryOptions::default() };
        let ring = Ring::new(prepared.options().slots, 0, &memory)?;
        Self::with_ring(ring, prepared, |member| Ok(Reader::without_cache(member)))
    }

    /// The first dataset.
    pub(crate) fn first(&self) -> &Reader {
        &self.readers[0]
    }

    /// The options that all datasets have in common: threads, slots, ranks, damage, trace. Others
    /// are those of the first dataset.
    pub(crate) fn options(&self) -> &LoaderOptions {
        &self.first().options
    }

    /// Cache policy of each dataset, and what is in its cache.
    pub(crate) fn caches(&self) -> impl Iterator<Item = (&CacheChoice, KeptChunks)> {
        self.readers.iter().map(|reader| (&reader.cached, reader.kept()))
    }

    /// Bytes that the caches hold.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.readers.iter().map(Reader::cached_bytes).sum()
    }

    /// Cost and gain of keeping decoded chunks so far.
    pub(crate) fn cache_times(&self) -> CacheTimes {
        self.readers.iter().fold(CacheTimes::default(), |sum, reader| {
            let CacheTimes { keeping_s, saved_s } = reader.kept().times;
            CacheTimes { keeping_s: sum.keeping_s + keeping_s, saved_s: sum.saved_s + saved_s }
        })
    }

    /// The state before the first batch of an epoch.
    pub(crate) fn state_before(&self, epoch: u64) -> State {
        let states = self.readers.iter().map(|reader| reader.state_before(epoch));
        State::joined(states.collect(), self.seed)
    }

    /// Where the times of batches are recorded.
    pub(crate) fn record(&self) -> Record<'_> {
        Record { times: &self.counters.times, trace: self.options().trace.as_deref() }
    }

    /// Where the time went so far, in the schema that all loaders use.
    pub(crate) fn statistics(&self) -> Statistics {
        let loader = self.counters.snapshot(self.options().threads, self.options().slots);
        Statistics {
            schema: 1,
            batches: loader.batches,
            waiting_s: loader.consumer_waiting_s,
            loaders: 1,
            slots: loader.slots,
            device_slots: 0,
            times: self.counters.times.get(),
            given_away: 0,
            copied: 0,
            link_bytes: 0,
            page_cache_bytes: 0,
            device_decoded: 0,
            device_cache_hits: 0,
            loader,
        }
    }

    /// Where the feeder has to begin.
    pub(crate) fn start(&self) -> Start {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops unfinished batches and makes the feeder begin elsewhere.
    pub(crate) fn restart(&self, epoch: u64, delivered: Vec<Segment>) {
        // The lock is held meanwhile, so that a feeder that sees the new generation waits for its start.
        let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.ring.slots().restart();
        *start = Start { generation, epoch, delivered };
    }
}
