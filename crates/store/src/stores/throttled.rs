//! Makes any store behave as if its disk or server were slower: one rate for all files and threads together, and a delay
//! before every read.
//!
//! Time is booked on a virtual clock, not measured. Every read takes `bytes / rate` on that clock and waits until the real
//! time reaches its end, so sleeping too long does not add up. While nothing is read, the virtual clock may fall behind by
//! up to `burst` bytes: a disk with read-ahead would have fetched these meanwhile.

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Near, ReadBuffer, Store, StoredFile, Traffic, checked};
use crate::local_cache::CachedDataset;
use crate::remote::ShardTails;
use hsipack_format::Result;
use serde::{Deserialize, Serialize};

/// A store with a limited rate and added latency.
#[derive(Debug)]
pub struct Limited {
    store: Arc<dyn Store>,
    limit: Arc<Limit>,
}

/// The speed of a simulated disk or network link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Bytes per second for all files and requests together; unlimited if `None`.
    pub rate: Option<u64>,
    /// The time from a request to the first byte. It is added before every read of a file, and before the answer to every
    /// request.
    #[serde(default)]
    pub latency: Duration,
}

impl Link {
    /// A link with this rate in bytes per second, without latency.
    pub fn of_rate(rate: u64) -> Self {
        Self { rate: Some(rate), latency: Duration::ZERO }
    }

    /// Whether the link has no limit and no latency.
    pub fn is_free(self) -> bool {
        self.rate.is_none() && self.latency.is_zero()
    }
}

impl Limited {
    /// `store` behind a link, with a read-ahead of up to `burst` bytes.
    ///
    /// # Panics
    /// If its rate is 0.
    pub fn new(store: Arc<dyn Store>, link: Link, burst: u64) -> Self {
        Self { store, limit: Arc::new(Limit::new(link, burst)) }
    }

    /// `store` behind a link with the read-ahead of a disk: 50 ms of reading, at most 64 MiB. This is too little to
    /// influence a measurement.
    ///
    /// # Panics
    /// If its rate is 0.
    pub fn disk(store: Arc<dyn Store>, link: Link) -> Self {
        Self::new(store, link, link.rate.map_or(0, |rate| (rate / 20).min(64 << 20)))
    }
}

impl Store for Limited {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let file = self.store.open(path)?;
        Ok(Arc::new(LimitedFile { file, limit: self.limit.clone() }))
    }

    fn keep_in(&self, cache: &Arc<CachedDataset>) {
        self.store.keep_in(cache);
    }

    fn expect(&self, tails: ShardTails) {
        self.store.expect(tails);
    }

    fn batch_requested(&self) {
        self.store.batch_requested();
    }

    fn traffic(&self) -> Option<Traffic> {
        self.store.traffic()
    }
}

#[derive(Debug)]
struct LimitedFile {
    file: Arc<dyn StoredFile>,
    limit: Arc<Limit>,
}

impl StoredFile for LimitedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        // Invalid spans cost no time.
        checked(self.path(), &span, self.len())?;
        self.limit.wait(span.end - span.start);
        self.file.with_bytes(span, buffer, take)
    }

    fn read_into(&self, span: Range<u64>, out: &mut [u8]) -> Result<()> {
        checked(self.path(), &span, self.len())?;
        self.limit.wait(span.end - span.start);
        self.file.read_into(span, out)
    }

    fn prefetch(&self, span: Range<u64>) {
        self.file.prefetch(span);
    }

    fn near(&self) -> Near {
        self.file.near()
    }

    fn divide(&self, chunks: &[Option<Range<u64>>], per_sample: usize) {
        self.file.divide(chunks, per_sample);
    }

    fn cached_as(&self) -> Option<u32> {
        self.file.cached_as()
    }

    fn release(&self) {
        self.file.release();
    }
}

/// Limits the data that pass a link.
#[derive(Debug)]
pub(super) struct Limit {
    start: Instant,
    latency: Duration,
    schedule: Option<Mutex<Schedule>>,
}

impl Limit {
    pub(super) fn new(link: Link, burst: u64) -> Self {
        assert!(link.rate != Some(0), "a link of 0 bytes per second");
        let schedule =
            link.rate.map(|rate| Mutex::new(Schedule { rate, burst, end: Duration::ZERO }));
        Self { start: Instant::now(), latency: link.latency, schedule }
    }

    /// The time from a request to the first byte.
    pub(super) fn latency(&self) -> Duration {
        self.latency
    }

    /// Books `bytes` more and returns the time from now until they have passed.
    pub(super) fn book(&self, bytes: u64) -> Duration {
        let Some(schedule) = &self.schedule else { return Duration::ZERO };
        let now = self.start.elapsed();
        let end = schedule.lock().unwrap_or_else(PoisonError::into_inner).book(now, bytes);
        end.saturating_sub(now)
    }

    /// Sleeps until `bytes` that are requested now have arrived.
    fn wait(&self, bytes: u64) {
        std::thread::sleep(self.latency + self.book(bytes));
    }
}

/// The virtual clock of the disk, as time since its start.
#[derive(Debug)]
struct Schedule {
    rate: u64,
    burst: u64,
    /// The time at which all bytes booked so far have arrived.
    end: Duration,
}

impl Schedule {
    /// Books `bytes` requested at `now`; returns the time at which they have arrived.
    fn book(&mut self, now: Duration, bytes: u64) -> Duration {
        let ahead = now.saturating_sub(self.time(self.burst));
        self.end = self.end.max(ahead) + self.time(bytes);
        self.end
    }

    fn time(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.rate as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn schedule(burst: u64) -> Schedule {
        Schedule { rate: 1000, burst, end: Duration::ZERO }
    }

    #[test]
    fn readers_that_never_pause_get_the_rate() {
        let mut schedule = schedule(500);
        let mut now = Duration::ZERO;
        for read in 1..=100 {
            // Every read is late by a fifth of its time. The delays do not add up.
            now = schedule.book(now, 100) + SECOND / 50;
            assert_eq!(schedule.end, SECOND / 10 * read);
        }
    }

    #[test]
    fn pauses_earn_credit_up_to_the_burst() {
        let mut schedule = schedule(500);
        assert_eq!(schedule.book(SECOND / 5, 100), SECOND / 10, "two tenths earned, one spent");
        let now = 10 * SECOND;
        for _ in 0..5 {
            assert!(schedule.book(now, 100) <= now, "the burst comes at once");
        }
        assert_eq!(schedule.book(now, 100), now + SECOND / 10);
    }

    #[test]
    fn without_a_burst_every_read_takes_its_time() {
        let mut schedule = schedule(0);
        assert_eq!(schedule.book(5 * SECOND, 1000), 6 * SECOND);
        assert_eq!(schedule.book(9 * SECOND, 500), 9 * SECOND + SECOND / 2);
    }

    #[test]
    fn every_read_waits_for_the_latency() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; 100]).unwrap();
        let link = Link { latency: Duration::from_millis(20), ..Link::default() };
        let file = Limited::disk(super::super::StoreKind::Pread.store(), link).open(&path).unwrap();
        let start = Instant::now();
        file.with_bytes(0..50, &mut ReadBuffer::new(), &mut |_| Ok(())).unwrap();
        file.read_into(50..60, &mut [0; 10]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
    }

    #[test]
    fn threads_and_files_share_the_rate() {
        let folder = tempfile::tempdir().unwrap();
        let pread = super::super::StoreKind::Pread.store();
        let store = Limited::new(pread, Link::of_rate(1 << 20), 0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = folder.path().join(thread.to_string());
                std::fs::write(&path, vec![1; 1 << 16]).unwrap();
                let file = store.open(&path).unwrap();
                scope.spawn(move || {
                    file.with_bytes(0..1 << 16, &mut ReadBuffer::new(), &mut |_| Ok(())).unwrap();
                });
            }
        });
        // 4 × 64 KiB at 1 MiB/s.
        assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    }
}
