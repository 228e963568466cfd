//! A loader's statistics and report, readable while its batches are waited for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hsipack_augment::Device;
use serde::Serialize;

use super::options::DeviceOptions;
use super::page_cache::PageCache;
use super::resident::ResidentReport;
use crate::cache::CacheTimes;
use crate::loader::{BatchTimes, CacheChoice, KeptChunks, Shared, Statistics, Times};
use crate::ring::memory::MemoryReport;

/// Reads how a [`DeviceLoader`](super::DeviceLoader) works. All methods return at once, in any
/// thread, also while another thread waits for a batch.
#[derive(Clone)]
pub struct Monitor {
    pub(super) shared: Arc<Shared>,
    pub(super) options: DeviceOptions,
    pub(super) tally: Arc<Tally>,
    pub(super) copies: Arc<dyn Copies>,
    /// Notes about the ring's memory.
    pub(super) notes: Vec<String>,
}

/// How a device loader works, and why it does no better.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceReport {
    /// Where batches are: `cpu`, `cuda:0`, …, or `emulated` (on the CPU).
    pub device: String,
    /// How batches get there: `none` (tensors lie over the ring), `asynchronous` from page-locked
    /// memory, `staged` by the driver from memory that is not page-locked, or `emulated`.
    pub copies: &'static str,
    /// Bytes of a slot of the ring, and of a device slot.
    pub slot_bytes: usize,
    /// Number of device slots; 0 on the CPU.
    pub device_slots: usize,
    /// Where chunks are decoded: `host`, or `device` if the device decodes those that it can.
    pub decode: &'static str,
    /// How the chunks that the device decoded so far came there: straight from the system's
    /// `page cache`; `gathered` in memory of the host first; `both`; or `none`.
    pub chunks: &'static str,
    /// Bytes of files that are registered with the device, which reads them in the page cache.
    pub registered_bytes: u64,
    /// Samples that stay in the memory of the device; those of the first dataset if there are
    /// several.
    pub device_cache: ResidentReport,
    /// Why the loader does no better.
    pub notes: Vec<String>,
}

/// The consumer's counts, and the times of batches after they were loaded.
pub(super) struct Tally {
    pub batches: AtomicU64,
    /// Nanoseconds.
    waiting: AtomicU64,
    pub times: Times,
    /// Whether the device decodes or gathers batches.
    completes: bool,
}

/// The counts of copied batches.
pub(super) trait Copies: Send + Sync {
    /// Number of slots on the device; 0 on the CPU.
    fn device_slots(&self) -> usize;
    /// How often device memory was allocated because the consumer kept tensors over the slots.
    fn given_away(&self) -> u64;
    /// On the CPU: batches that were copied because the consumer kept others.
    fn copied(&self) -> u64;

    /// Bytes copied to the device.
    fn copied_bytes(&self) -> u64 {
        0
    }

    /// Those of them that the device read in the system's page cache.
    fn page_cache_bytes(&self) -> u64 {
        0
    }

    /// Those of them that are frames that were gathered on the host.
    fn gathered_bytes(&self) -> u64 {
        0
    }

    /// Batches that the device decoded.
    fn decoded(&self) -> u64 {
        0
    }

    /// Images that came from the device's memory.
    fn hits(&self) -> u64 {
        0
    }
}

impl Tally {
    /// Counts for a loader, on whose device batches are decoded or gathered or not.
    pub(super) fn new(completes: bool) -> Self {
        let zero = AtomicU64::default;
        Self { batches: zero(), waiting: zero(), times: Times::new(), completes }
    }

    /// Records how long it took to copy a batch of values.
    pub(super) fn copied(&self, time: Duration) {
        self.times.copy(time.as_secs_f64());
        if self.completes {
            self.times.decode(0.0);
        }
    }

    /// Records how long it took to copy a batch, if the device says so, and to decode or gather it.
    pub(super) fn completed(&self, copy_s: Option<f64>, decode: Duration) {
        copy_s.into_iter().for_each(|seconds| self.times.copy(seconds));
        self.times.decode(decode.as_secs_f64());
    }

    pub(super) fn waited(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.waiting.fetch_add(time, Ordering::Relaxed);
    }
}

impl Monitor {
    /// Statistics since the loader began.
    pub fn statistics(&self) -> Statistics {
        let inside = self.shared.statistics();
        Statistics {
            batches: self.tally.batches.load(Ordering::Relaxed),
            waiting_s: self.tally.waiting.load(Ordering::Relaxed) as f64 * 1e-9,
            device_slots: self.copies.device_slots(),
            times: BatchTimes { load_s: inside.times.load_s, ..self.tally.times.get() },
            given_away: self.copies.given_away(),
            copied: self.copies.copied(),
            link_bytes: self.copies.copied_bytes(),
            page_cache_bytes: self.copies.page_cache_bytes(),
            device_decoded: self.copies.decoded(),
            device_cache_hits: self.copies.hits(),
            ..inside
        }
    }

    /// Kind of the ring's memory, with the reason if it is no better.
    pub fn memory(&self) -> MemoryReport {
        self.shared.ring.memory_report()
    }

    /// The same without counting huge pages, for which the kernel needs tens of ms in a process
    /// with much memory.
    pub fn quick_memory(&self) -> MemoryReport {
        self.shared.ring.quick_memory_report()
    }

    /// Cache policy of each dataset, with its reason, and what is in its cache.
    pub fn caches(&self) -> impl Iterator<Item = (&CacheChoice, KeptChunks)> {
        self.shared.caches()
    }

    /// Bytes that the caches hold.
    pub fn cached_bytes(&self) -> u64 {
        self.shared.cached_bytes()
    }

    /// Cost and gain of keeping decoded chunks so far.
    pub fn cache_times(&self) -> CacheTimes {
        self.shared.cache_times()
    }

    /// How the loader works, and why it does no better.
    pub fn report(&self) -> DeviceReport {
        let device_slots = self.copies.device_slots();
        let page_locked = self.quick_memory().kind == "page-locked";
        let mut notes = self.notes.clone();
        let given_away = self.copies.given_away();
        if given_away > 0 {
            notes.push(format!(
                "new device memory was allocated {given_away} times, because you kept tensors that use the slots; copy what you keep"
            ));
        }
        if self.copies.copied() > 0 {
            notes.push(format!(
                "{} batches were copied, because you kept earlier ones; drop batches after use, or use more slots",
                self.copies.copied()
            ));
        }
        let residents = self.shared.first().residents.as_ref();
        let device_cache = match residents {
            Some(residents) => residents.report(),
            None if self.options.device == Device::Cpu => {
                ResidentReport::none("batches are on the CPU")
            }
            None => ResidentReport::none(self.options.no_cache(self.shared.compressed)),
        };
        if self
            .shared
            .readers
            .iter()
            .filter_map(|reader| reader.residents.as_ref())
            .any(|kept| kept.was_released())
        {
            notes.push(
                "the device ran out of memory, so the device cache was released: samples cross the bus again"
                    .to_owned(),
            );
        }
        if self.shared.compressed
            && self.copies.decoded() == 0
            && self.copies.hits() == 0
            && self.tally.batches.load(Ordering::Relaxed) > 0
        {
            notes.push(
                "the device decoded no batch: it decodes LZ4 with elements of 1, 2 or 4 bytes, if compressed batches are smaller and nothing is kept decoded"
                    .to_owned(),
            );
        }
        let page_cache = self.shared.page_cache.as_ref();
        let (mapped, gathered) = (self.copies.page_cache_bytes(), self.copies.gathered_bytes());
        let why = page_cache.filter(|_| gathered > 0).and_then(PageCache::why_gathered);
        notes.extend(why.map(|why| format!("chunks were gathered on the host: {why}")));
        DeviceReport {
            device: match self.options.device {
                Device::Cpu if self.options.emulated_bus.is_some() => "emulated".to_owned(),
                device => device.to_string(),
            },
            copies: match (device_slots, page_locked) {
                (0, _) => "none",
                _ if self.options.emulated_bus.is_some() => "emulated",
                (_, true) => "asynchronous",
                (_, false) => "staged",
            },
            slot_bytes: self.shared.ring.slot_bytes(),
            device_slots,
            decode: if self.shared.compressed { "device" } else { "host" },
            chunks: match (mapped > 0, gathered > 0) {
                (true, true) => "both",
                (true, false) => "page cache",
                (false, true) => "gathered",
                (false, false) => "none",
            },
            registered_bytes: page_cache.map_or(0, PageCache::bytes),
            device_cache,
            notes,
        }
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("report", &self.report()).finish_non_exhaustive()
    }
}
