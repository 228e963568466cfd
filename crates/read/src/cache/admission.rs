//! Decides whether there is time to keep a decoded chunk.
//!
//! Keeping a chunk takes time: the system clears the memory, and the chunk is copied. On an idle
//! processor that costs nothing; otherwise it delays batches, for epochs that may never come. So
//! keeping is paid from a budget of time, to which these add: time in which decoding threads waited
//! for the consumer, because all slots were full; time in which they waited for data while the
//! machine had idle processors (fetching data takes processor time, too); most of the time that
//! kept chunks saved; and, after the first epoch, a small part of the time of decoding. So epochs
//! become faster with every chunk that is kept. Time that is saved is computed from the latest
//! chunks: while data comes over a link, the processors have other work, and decoding takes longer
//! than later.
//!
//! The budget is capped, because time that was not used is gone: spending a long wait later would
//! delay the batches of that moment. Until the consumer has its first batch, everything that works
//! beside delays it, and threads wait for memory and connections, too. Then only chunks that would
//! otherwise be fetched again are kept, only waits for data add to the budget, and its cap is
//! lower.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hsipack_store::processors;

/// Part of the time of decoding that keeping may take when chunks are decoded again: then there are
/// probably many epochs.
const LATER_FRACTION: f64 = 0.05;
/// Part of the time that kept chunks save that keeping others may take. Copying slows down what
/// decodes beside it, which is not measured, so the whole of it would cost more than was saved.
const SAVED_FRACTION: f64 = 0.75;
/// Times per byte are means of about so many bytes, the latest.
const RECENT_BYTES: f64 = (32 << 20) as f64;
/// The budget is at most this much.
const MAX_BUDGET: Duration = Duration::from_millis(50);
/// The same before the consumer has its first batch.
const MAX_EARLY_BUDGET: Duration = Duration::from_millis(20);
/// How often to ask the system for the idle time of the processors, which it counts in steps of 10
/// ms.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// Times of all decoding threads together.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Bytes of all chunks that an epoch needs, decoded.
    needed: u64,
    /// Whether the consumer has its first batch.
    begun: AtomicBool,
    /// ns that keeping may take now. Negative if it took more than it could.
    budget: AtomicI64,
    /// ns that the system took for the memory, as far as they are paid.
    cleared: AtomicU64,
    idle: Mutex<IdleTime>,
    decoding: Rate,
    copying: Rate,
    /// Bytes that were decoded.
    decoded: AtomicU64,
    /// ns that decoding threads took to keep chunks.
    keeping: AtomicU64,
    /// ns that kept chunks saved.
    saved: AtomicU64,
}

/// Waits since the last look at the idle time of the processors.
#[derive(Debug, Default)]
struct IdleTime {
    waits: Duration,
    /// When that was, and the idle time then.
    last: Option<(Instant, Option<Duration>)>,
}

impl IdleTime {
    /// Adds a wait. Now and then, returns how much of the waits was beside idle processors.
    fn add(
        &mut self,
        wait: Duration,
        now: Instant,
        idle_time: impl FnOnce() -> Option<Duration>,
    ) -> Duration {
        self.waits += wait;
        let is_due = self.last.is_none_or(|(then, _)| now >= then + SAMPLE_INTERVAL);
        if !is_due {
            return Duration::ZERO;
        }
        let idle = idle_time();
        let waits = std::mem::take(&mut self.waits);
        match (self.last.replace((now, idle)), idle) {
            (Some((_, Some(before))), Some(idle)) => waits.min(idle.saturating_sub(before)),
            // The first look.
            (None, Some(_)) => Duration::ZERO,
            // The system does not say.
            _ => waits,
        }
    }
}

/// Recent time per byte, in ns.
#[derive(Debug, Default)]
struct Rate(AtomicU64);

impl Rate {
    fn add(&self, bytes: usize, took: Duration) {
        let bytes = bytes.max(1) as f64;
        let each = took.as_nanos() as f64 / bytes;
        let next = match self.each() {
            0.0 => each,
            recent => recent + (each - recent) * bytes / (bytes + RECENT_BYTES),
        };
        // If two threads add at the same time, one of both is lost.
        self.0.store(next.to_bits(), Ordering::Relaxed);
    }

    /// ns per byte; 0 if nothing was measured.
    fn each(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

impl Admission {
    /// For epochs that need so many bytes of decoded chunks.
    pub(super) fn new(needed: u64) -> Self {
        Self { needed, ..Self::default() }
    }

    /// The consumer has its first batch.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    /// Whether the consumer has its first batch.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// A thread waited for a task, which then waited for data.
    pub(super) fn waited(&self, task: Duration, data: Duration) {
        if self.has_begun() {
            self.earn(task.as_nanos() as f64);
            self.waited_for_data(data);
        }
    }

    /// A thread waited for data.
    pub(super) fn waited_for_data(&self, time: Duration) {
        self.waited_beside(time, Instant::now(), processors::idle_time);
    }

    fn waited_beside(
        &self,
        time: Duration,
        now: Instant,
        idle_time: impl FnOnce() -> Option<Duration>,
    ) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        self.earn(idle.add(time, now, idle_time).as_nanos() as f64);
    }

    /// A chunk was decoded in this time.
    pub(super) fn decoded(&self, bytes: usize, took: Duration) {
        self.decoding.add(bytes, took);
        let before = self.decoded.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.needed {
            self.earn(took.as_nanos() as f64 * LATER_FRACTION);
        }
    }

    /// So many bytes came from the cache. They were not decoded, but copied. If that was not
    /// measured, it took as long as copying them when they were kept. Often it takes longer: they
    /// are no longer near the processor.
    pub(super) fn hit(&self, bytes: usize, copied: Option<Duration>) {
        let len = bytes as f64;
        let copied = copied.map_or(len * self.copying.each(), |took| took.as_nanos() as f64);
        let saved = (len * self.decoding.each() - copied).max(0.0);
        self.saved.fetch_add(saved as u64, Ordering::Relaxed);
        self.earn(saved * SAVED_FRACTION);
    }

    /// Time that keeping may take now, if the memory took `cleared` so far; `None` if there is no
    /// time.
    pub(super) fn left(&self, cleared: Duration) -> Option<Duration> {
        let cleared = cleared.as_nanos() as u64;
        let paid = self.cleared.fetch_max(cleared, Ordering::Relaxed);
        self.pay(cleared.saturating_sub(paid));
        let budget = u64::try_from(self.budget.load(Ordering::Relaxed)).ok()?;
        (budget > 0).then(|| Duration::from_nanos(budget))
    }

    /// A chunk was copied to where it is kept, after a wait for memory.
    pub(super) fn kept(&self, bytes: usize, copied: Duration, waited: Duration) {
        self.copying.add(bytes, copied);
        let took = (copied + waited).as_nanos() as u64;
        self.keeping.fetch_add(took, Ordering::Relaxed);
        self.pay(took);
    }

    fn pay(&self, nanoseconds: u64) {
        self.budget.fetch_sub(nanoseconds as i64, Ordering::Relaxed);
    }

    fn earn(&self, nanoseconds: f64) {
        if nanoseconds > 0.0 {
            let most = if self.has_begun() { MAX_BUDGET } else { MAX_EARLY_BUDGET };
            let most = most.as_nanos() as i64;
            let add = |budget: i64| Some(budget.saturating_add(nanoseconds as i64).min(most));
            let _ = self.budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// ns that keeping took.
    pub(super) fn spent(&self, cleared: Duration) -> u64 {
        self.keeping.load(Ordering::Relaxed) + cleared.as_nanos() as u64
    }

    /// ns that kept chunks saved.
    pub(super) fn saved(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn affords(admission: &Admission, cleared: u32) -> bool {
        admission.left(cleared * MS).is_some()
    }

    /// Waits beside processors that are idle all the time.
    fn wait(admission: &Admission, start: Instant, at: u32, time: u32) {
        admission.waited_beside(time * MS, start + at * MS, || Some(at * MS));
    }

    #[test]
    fn waits_pay_for_keeping_after_the_first_batch() {
        let (admission, start) = (Admission::new(1000), Instant::now());
        admission.waited(10 * MS, MS);
        assert!(!affords(&admission, 0));
        admission.begin();
        assert!(!affords(&admission, 0));
        wait(&admission, start, 100, 10);
        assert!(!affords(&admission, 0), "the first look says nothing about the time before");
        wait(&admission, start, 110, 5);
        assert!(!affords(&admission, 0), "not looked at again yet");
        wait(&admission, start, 160, 5);
        assert_eq!(admission.left(Duration::ZERO), Some(10 * MS));
        assert!(affords(&admission, 9) && !affords(&admission, 10));
        admission.kept(100, MS, Duration::ZERO);
        wait(&admission, start, 220, 1);
        assert!(!affords(&admission, 10), "the debt is paid first");
        wait(&admission, start, 280, 1);
        assert!(affords(&admission, 10));
    }

    #[test]
    fn waits_for_data_pay_a_little_before_the_first_batch() {
        let (admission, start) = (Admission::new(1000), Instant::now());
        wait(&admission, start, 0, 0);
        wait(&admission, start, 10_000, 10_000);
        assert_eq!(admission.left(Duration::ZERO), Some(MAX_EARLY_BUDGET));
        admission.begin();
        wait(&admission, start, 20_000, 10_000);
        assert_eq!(admission.left(Duration::ZERO), Some(MAX_BUDGET));
    }

    #[test]
    fn waits_for_the_consumer_pay_even_beside_busy_processors() {
        let admission = Admission::new(1000);
        admission.begin();
        admission.waited(7 * MS, Duration::ZERO);
        assert_eq!(admission.left(Duration::ZERO), Some(7 * MS));
    }

    #[test]
    fn waits_beside_busy_processors_pay_for_nothing() {
        let (admission, start) = (Admission::new(1000), Instant::now());
        admission.begin();
        for at in 0..10 {
            admission.waited_beside(50 * MS, start + at * 60 * MS, || Some(7 * MS));
        }
        assert!(!affords(&admission, 0));
        admission.waited_beside(50 * MS, start + 600 * MS, || Some(10 * MS));
        assert_eq!(admission.left(Duration::ZERO), Some(3 * MS));
    }

    #[test]
    fn if_idle_times_are_unknown_all_waits_pay() {
        let (admission, start) = (Admission::new(1000), Instant::now());
        admission.begin();
        admission.waited_beside(5 * MS, start, || None);
        assert_eq!(admission.left(Duration::ZERO), Some(5 * MS));
    }

    #[test]
    fn the_budget_is_capped() {
        let (admission, start) = (Admission::new(1000), Instant::now());
        admission.begin();
        wait(&admission, start, 0, 0);
        wait(&admission, start, 10_000, 10_000);
        assert_eq!(admission.left(Duration::ZERO), Some(MAX_BUDGET));
    }

    #[test]
    fn waits_for_memory_are_paid_but_do_not_count_as_copying() {
        let (admission, chunk) = (Admission::new(1 << 30), 1 << 20);
        admission.begin();
        admission.waited(50 * MS, Duration::ZERO);
        admission.decoded(chunk, 10 * MS);
        admission.kept(chunk, 2 * MS, 30 * MS);
        assert_eq!(admission.left(Duration::ZERO), Some(18 * MS));
        admission.hit(chunk, None);
        assert_eq!(admission.saved(), 8_000_000);
        assert_eq!(admission.left(Duration::ZERO), Some(24 * MS));
    }

    #[test]
    fn chunks_that_are_copied_slowly_save_little() {
        let (admission, chunk) = (Admission::new(1 << 30), 1 << 20);
        admission.begin();
        admission.decoded(chunk, 10 * MS);
        admission.kept(chunk, 2 * MS, Duration::ZERO);
        admission.hit(chunk, Some(6 * MS));
        assert_eq!(admission.saved(), 4_000_000);
        admission.hit(chunk, Some(60 * MS));
        assert_eq!(admission.saved(), 4_000_000);
    }

    #[test]
    fn chunks_that_are_decoded_faster_than_copied_save_nothing() {
        let admission = Admission::new(1000);
        admission.begin();
        admission.decoded(1000, MS);
        admission.kept(100, MS, Duration::ZERO);
        admission.hit(5000, None);
        assert_eq!(admission.saved(), 0);
        assert!(!affords(&admission, 0));
    }

    /// Epochs of 100 chunks. One thread decodes a chunk in 10 or copies it in 3, and never waits;
    /// memory for a chunk takes `clearing`. In the first epoch, decoding takes `slower` times as
    /// long. Returns the length of each epoch.
    fn epochs(count: usize, clearing: u32, slower: u32) -> Vec<u32> {
        const CHUNK: usize = 2 << 20;
        let admission = Admission::new(100 * CHUNK as u64);
        let (mut kept, mut cleared) = ([false; 100], 0);
        admission.begin();
        let mut epoch = |decoding: u32| {
            let mut took = 0;
            for kept in &mut kept {
                if *kept {
                    admission.hit(CHUNK, Some(3 * MS));
                    took += 3;
                    continue;
                }
                admission.decoded(CHUNK, decoding * MS);
                took += decoding;
                if affords(&admission, cleared) {
                    admission.kept(CHUNK, 3 * MS, Duration::ZERO);
                    cleared += clearing;
                    took += clearing + 3;
                    *kept = true;
                }
            }
            took
        };
        let first = epoch(10 * slower);
        std::iter::once(first).chain((1..count).map(|_| epoch(10))).collect()
    }

    #[test]
    fn no_epoch_is_slower_than_without_a_cache_and_in_the_end_all_is_kept() {
        // On huge pages that are at hand, and on small ones; and if other work of the first epoch slows it down.
        for (clearing, soon) in [(4, 6), (17, 14)] {
            for slower in [1, 4] {
                let epochs = epochs(60, clearing, slower);
                assert_eq!(epochs[0], 1000 * slower, "{epochs:?}");
                assert!(epochs[1..].iter().all(|took| *took <= 1_053 + clearing), "{epochs:?}");
                // With every chunk that is kept, epochs become faster.
                let average = epochs[1..=soon].iter().sum::<u32>() / soon as u32;
                assert!(average < 960 + clearing, "{epochs:?}");
                assert_eq!(epochs[soon], 300, "{epochs:?}");
            }
        }
    }
}
