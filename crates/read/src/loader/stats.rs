//! Where a loader spends its time. This is always counted, at the cost of a few instructions per
//! task.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::times::{BatchTimes, Times};
use crate::decode::Meter;

/// Counters that all threads add to.
#[derive(Debug)]
pub(crate) struct Counters {
    start: Instant,
    batches: AtomicU64,
    samples: AtomicU64,
    bytes: AtomicU64,
    skipped: AtomicU64,
    chunks: AtomicU64,
    cached_chunks: AtomicU64,
    stored_bytes: AtomicU64,
    read: AtomicU64,
    decode_busy: AtomicU64,
    decode_waiting: AtomicU64,
    plan_busy: AtomicU64,
    plan_waiting: AtomicU64,
    consumer_waiting: AtomicU64,
    ready: AtomicU64,
    /// The times of single batches.
    pub times: Times,
}

/// Counters and times of a loader since it was created, or between two snapshots
/// ([`since`](Self::since)). Times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoaderStats {
    /// Time that passed.
    pub elapsed_s: f64,
    /// Batches given to the consumer.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of these samples, images and masks, uncompressed.
    pub bytes: u64,
    /// Samples skipped because they are damaged.
    pub skipped: u64,
    /// Chunks decoded or copied from the cache.
    pub chunks: u64,
    /// Of those, chunks that came from the cache.
    pub cached_chunks: u64,
    /// Bytes read from the store.
    pub stored_bytes: u64,
    /// Decoding threads.
    pub threads: usize,
    /// Time that all decoding threads together worked, including reading.
    pub decode_busy_s: f64,
    /// Of that, time in reads. Page faults of memory maps count as decoding.
    pub read_s: f64,
    /// Time that all decoding threads together had nothing to do because the ring was full.
    pub decode_waiting_s: f64,
    /// Time that the planning thread worked.
    pub plan_busy_s: f64,
    /// Time that the planning thread waited for a free slot.
    pub plan_waiting_s: f64,
    /// Time that the consumer waited for batches because the loader was too slow.
    pub consumer_waiting_s: f64,
    /// Slots of the ring.
    pub slots: usize,
    /// Mean number of further batches that were ready when one was taken.
    pub mean_ready: f64,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let zero = AtomicU64::default;
        Self {
            start: Instant::now(),
            batches: zero(),
            samples: zero(),
            bytes: zero(),
            skipped: zero(),
            chunks: zero(),
            cached_chunks: zero(),
            stored_bytes: zero(),
            read: zero(),
            decode_busy: zero(),
            decode_waiting: zero(),
            plan_busy: zero(),
            plan_waiting: zero(),
            consumer_waiting: zero(),
            ready: zero(),
            times: Times::new(),
        }
    }

    /// Records that a decoding thread did a task after waiting for it.
    pub(crate) fn decoded(&self, waiting: Duration, busy: Duration, meter: Meter) {
        add(&self.decode_waiting, nanoseconds(waiting));
        add(&self.decode_busy, nanoseconds(busy));
        add(&self.read, nanoseconds(meter.read));
        add(&self.chunks, meter.chunks);
        add(&self.cached_chunks, meter.cached_chunks);
        add(&self.stored_bytes, meter.stored_bytes);
    }

    /// Records that the planning thread planned a batch after waiting for a slot.
    pub(crate) fn planned(&self, waiting: Duration, busy: Duration) {
        add(&self.plan_waiting, nanoseconds(waiting));
        add(&self.plan_busy, nanoseconds(busy));
    }

    /// Records that the consumer waited.
    pub(crate) fn waited(&self, waiting: Duration) {
        add(&self.consumer_waiting, nanoseconds(waiting));
    }

    /// Records that the consumer got a batch when `ready` more were ready.
    pub(crate) fn given(&self, samples: usize, bytes: usize, skipped: usize, ready: usize) {
        add(&self.batches, 1);
        add(&self.samples, samples as u64);
        add(&self.bytes, bytes as u64);
        add(&self.skipped, skipped as u64);
        add(&self.ready, ready as u64);
    }

    /// Records that damaged samples of a batch that was given, or of all epochs, were skipped.
    pub(crate) fn skipped(&self, samples: usize) {
        add(&self.skipped, samples as u64);
    }

    pub(crate) fn snapshot(&self, threads: usize, slots: usize) -> LoaderStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| get(counter) as f64 * 1e-9;
        let batches = get(&self.batches);
        LoaderStats {
            elapsed_s: self.start.elapsed().as_secs_f64(),
            batches,
            samples: get(&self.samples),
            bytes: get(&self.bytes),
            skipped: get(&self.skipped),
            chunks: get(&self.chunks),
            cached_chunks: get(&self.cached_chunks),
            stored_bytes: get(&self.stored_bytes),
            threads,
            decode_busy_s: seconds(&self.decode_busy),
            read_s: seconds(&self.read),
            decode_waiting_s: seconds(&self.decode_waiting),
            plan_busy_s: seconds(&self.plan_busy),
            plan_waiting_s: seconds(&self.plan_waiting),
            consumer_waiting_s: seconds(&self.consumer_waiting),
            slots,
            mean_ready: get(&self.ready) as f64 / batches.max(1) as f64,
        }
    }
}

fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

/// A time as a number that fits a counter.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The statistics of any kind of loader. Every command prints them, and `hsipack simulate --from`
/// reads them. See docs/statistics.md. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Version of this schema: 1.
    pub schema: u32,
    /// Batches given to the consumer.
    pub batches: u64,
    /// Time that the consumer waited for batches to be copied or decoded.
    pub waiting_s: f64,
    /// Number of batches that are loaded at the same time, independently of one another. 1 if all
    /// threads share the next batch, as in this loader; the number of workers if each worker has
    /// its own batch.
    pub loaders: usize,
    /// Number of batches that there is room for: in use, ready and being loaded.
    pub slots: usize,
    /// Number of batches that a device has memory for; 0 on the CPU.
    #[serde(default)]
    pub device_slots: usize,
    /// How long the latest batches took.
    pub times: BatchTimes,
    /// How often new device memory was taken because the user kept tensors over the slots' memory.
    pub given_away: u64,
    /// On the CPU: batches that were copied because the user kept others.
    pub copied: u64,
    /// With a device: bytes copied to it.
    #[serde(default)]
    pub link_bytes: u64,
    /// Those of them that the device read in the system's page cache, without a copy on the host.
    #[serde(default)]
    pub page_cache_bytes: u64,
    /// Batches that the device decoded.
    #[serde(default)]
    pub device_decoded: u64,
    /// Images that came from the memory of the device
    /// ([`DeviceOptions::device_cache`](crate::DeviceOptions::device_cache)).
    #[serde(default)]
    pub device_cache_hits: u64,
    /// Statistics of the loader inside. With a device, its threads are up to three batches ahead,
    /// and its consumer is the thread that copies.
    pub loader: LoaderStats,
}

impl LoaderStats {
    /// The difference to an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let batches = self.batches - earlier.batches;
        let ready =
            self.mean_ready * self.batches as f64 - earlier.mean_ready * earlier.batches as f64;
        Self {
            elapsed_s: self.elapsed_s - earlier.elapsed_s,
            batches,
            samples: self.samples - earlier.samples,
            bytes: self.bytes - earlier.bytes,
            skipped: self.skipped - earlier.skipped,
            chunks: self.chunks - earlier.chunks,
            cached_chunks: self.cached_chunks - earlier.cached_chunks,
            stored_bytes: self.stored_bytes - earlier.stored_bytes,
            threads: self.threads,
            decode_busy_s: self.decode_busy_s - earlier.decode_busy_s,
            read_s: self.read_s - earlier.read_s,
            decode_waiting_s: self.decode_waiting_s - earlier.decode_waiting_s,
            plan_busy_s: self.plan_busy_s - earlier.plan_busy_s,
            plan_waiting_s: self.plan_waiting_s - earlier.plan_waiting_s,
            consumer_waiting_s: self.consumer_waiting_s - earlier.consumer_waiting_s,
            slots: self.slots,
            mean_ready: ready / batches.max(1) as f64,
        }
    }

    /// Samples per second.
    pub fn samples_per_s(&self) -> f64 {
        self.samples as f64 / self.elapsed_s.max(f64::MIN_POSITIVE)
    }

    /// Gigabytes (10⁹ bytes) per second, uncompressed.
    pub fn gb_per_s(&self) -> f64 {
        self.bytes as f64 * 1e-9 / self.elapsed_s.max(f64::MIN_POSITIVE)
    }
}
