//! Rates and shares between two looks at the loader.

use hsipack_measure::diagnose::{Limit, Observed};
use hsipack_measure::machine::Usage;
use hsipack_read::LoaderStats;
use hsipack_read::plan::Crop;
use hsipack_read::store::Traffic;
use serde::Serialize;

use super::source::Source;

/// Counts of the batches taken so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Items that only filled up batches.
    pub padding: u64,
    pub batches: u64,
    /// Items, with padding.
    pub samples: u64,
    /// Bytes of images and masks.
    pub bytes: u64,
}

/// The state of all counters at one time.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    stats: LoaderStats,
    usage: Usage,
    traffic: Option<Traffic>,
    /// Items that only filled up batches.
    padding: u64,
}

impl Look {
    /// The look before the loader began, because its threads work from the first moment on.
    pub fn start(loader: &Source, usage: Usage) -> Self {
        let LoaderStats { threads, slots, .. } = loader.statistics().loader;
        let stats = LoaderStats { threads, slots, ..LoaderStats::default() };
        let traffic = loader.dataset().traffic().map(|_| Traffic::default());
        Self { stats, usage, traffic, padding: 0 }
    }

    /// The look when so many batches were taken. If they are copied ahead, the loader itself has
    /// given more.
    pub fn at(loader: &Source, taken: Counts) -> Self {
        let traffic = loader.dataset().traffic();
        let Counts { padding, batches, samples, bytes } = taken;
        let stats = loader.statistics().loader;
        let stats = match loader {
            Source::Host(_) => stats,
            Source::Device(_) => LoaderStats { batches, samples, bytes, ..stats },
        };
        Self { stats, usage: Usage::now(), traffic, padding }
    }
}

/// The name of the items of a batch: `cube` or `crop`.
pub fn unit(loader: &Source) -> &'static str {
    if loader.plan().options().crop == Crop::Whole { "cube" } else { "crop" }
}

/// The work done in a period of time. Sizes are in bytes, times in seconds, rates per second.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    pub batches: u64,
    /// Cubes or crops in them, with padding.
    pub samples: u64,
    pub padding: u64,
    pub skipped: u64,
    pub seconds: f64,
    /// Delivered, images and masks.
    pub bytes: u64,
    pub stored_bytes: u64,
    pub disk_bytes: Option<u64>,
    pub chunks: u64,
    pub cached_chunks: u64,
    pub cubes_per_s: f64,
    pub gb_per_s: f64,
    pub stored_gb_per_s: f64,
    /// Delivered bytes divided by bytes read.
    pub ratio: Option<f64>,
    /// Shares of the time of the decoding threads; `read` is part of `decode_busy`.
    pub decode_busy: f64,
    pub read: f64,
    pub idle: f64,
    /// Share of the planning thread's time.
    pub plan_busy: f64,
    /// Share of the consumer's time.
    pub consumer_waiting: f64,
    pub consumer_waiting_s: f64,
    pub mean_ready: f64,
    pub limit: Limit,
    /// Requests to a server, for chunks; `None` for files.
    pub requests: Option<u64>,
    pub fetched_bytes: Option<u64>,
}

impl Figures {
    /// The work done between two looks.
    pub fn between(earlier: &Look, later: &Look) -> Self {
        let stats = later.stats.since(&earlier.stats);
        let usage = later.usage.since(earlier.usage);
        let before = earlier.traffic.unwrap_or_default();
        let seconds = stats.elapsed_s.max(f64::MIN_POSITIVE);
        let threads = seconds * stats.threads.max(1) as f64;
        // Work is counted when it ends, so a short period may seem to hold more work than fits.
        let share = |time: f64, all: f64| (time / all).clamp(0.0, 1.0);
        let decode_busy = share(stats.decode_busy_s, threads);
        let mut figures = Self {
            batches: stats.batches,
            samples: stats.samples,
            padding: later.padding - earlier.padding,
            skipped: stats.skipped,
            seconds: stats.elapsed_s,
            bytes: stats.bytes,
            stored_bytes: stats.stored_bytes,
            disk_bytes: usage.disk_bytes,
            chunks: stats.chunks,
            cached_chunks: stats.cached_chunks,
            cubes_per_s: stats.samples_per_s(),
            gb_per_s: stats.gb_per_s(),
            stored_gb_per_s: stats.stored_bytes as f64 * 1e-9 / seconds,
            ratio: (stats.stored_bytes > 0 && stats.bytes > 0)
                .then(|| stats.bytes as f64 / stats.stored_bytes as f64),
            decode_busy,
            read: share(stats.read_s, threads),
            idle: 1.0 - decode_busy,
            plan_busy: share(stats.plan_busy_s, seconds),
            consumer_waiting: share(stats.consumer_waiting_s, seconds),
            consumer_waiting_s: stats.consumer_waiting_s,
            mean_ready: stats.mean_ready,
            limit: Limit::Decode,
            requests: later.traffic.map(|traffic| traffic.requests - before.requests),
            fetched_bytes: later.traffic.map(|traffic| traffic.bytes - before.bytes),
        };
        figures.limit = Observed {
            consumer_waiting: figures.consumer_waiting,
            decode_busy,
            plan_busy: figures.plan_busy,
            decode_busy_s: stats.decode_busy_s,
            read_s: stats.read_s,
            stored_bytes: stats.stored_bytes,
            disk_bytes: usage.disk_bytes,
            cpu_s: usage.cpu_s,
        }
        .limit();
        figures
    }

    /// `91.2 cubes/s, 5.60 GB/s`.
    pub fn rates(&self, unit: &str) -> String {
        format!("{:.1} {unit}s/s, {:.2} GB/s", self.cubes_per_s, self.gb_per_s)
    }
}
