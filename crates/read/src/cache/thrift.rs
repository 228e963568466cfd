//! Decides whether there is time to keep a decoded chunk.
//!
//! Keeping a chunk takes time: the system clears the memory, and the chunk is copied. If decoding threads wait for a
//! consumer or for data, that costs nothing. If they do not, it delays batches, for epochs that may never come. So keeping
//! may take as much time as threads waited, as kept chunks have saved, and, after the first epoch, a part of the time of
//! decoding. So the first epoch is hardly slower than without a cache, and what is saved pays for more. Until the consumer
//! has its first batch, nothing is kept: threads wait then, too, but for the memory of the ring, or for connections, and
//! everything that works beside delays the batch.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Keeping may take this part of the time of decoding when chunks are decoded again: then there are probably many epochs.
const LATER_SHARE: f64 = 0.25;

/// Times in ns, of all decoding threads together.
#[derive(Debug, Default)]
pub(super) struct Thrift {
    /// Bytes of all chunks that an epoch needs, decoded.
    needed: u64,
    /// Whether the consumer has its first batch.
    begun: AtomicBool,
    /// In which threads waited for a task, or for data.
    free: AtomicU64,
    decoding: Sum,
    copying: Sum,
    /// Bytes that came from the cache.
    hits: AtomicU64,
}

/// A time, and the bytes that it was needed for.
#[derive(Debug, Default)]
struct Sum {
    time: AtomicU64,
    bytes: AtomicU64,
}

impl Sum {
    fn add(&self, bytes: usize, took: Duration) {
        self.time.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn time(&self) -> u64 {
        self.time.load(Ordering::Relaxed)
    }

    /// ns per byte.
    fn each(&self) -> f64 {
        self.time() as f64 / self.bytes.load(Ordering::Relaxed).max(1) as f64
    }
}

impl Thrift {
    /// For epochs that need so many bytes of decoded chunks.
    pub(super) fn new(needed: u64) -> Self {
        Self { needed, ..Self::default() }
    }

    /// The consumer has its first batch.
    pub(super) fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
    }

    pub(super) fn waited(&self, time: Duration) {
        if !self.begun.load(Ordering::Relaxed) {
            return;
        }
        self.free.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(super) fn decoded(&self, bytes: usize, took: Duration) {
        self.decoding.add(bytes, took);
    }

    /// A chunk was copied to where it is kept.
    pub(super) fn kept(&self, bytes: usize, took: Duration) {
        self.copying.add(bytes, took);
    }

    pub(super) fn hit(&self, bytes: usize) {
        self.hits.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Time that keeping may still take, if the memory took `cleared` so far; `None` if it took too much already.
    pub(super) fn left(&self, cleared: Duration) -> Option<Duration> {
        if !self.begun.load(Ordering::Relaxed) {
            return None;
        }
        let decoded = self.decoding.bytes.load(Ordering::Relaxed);
        let again = decoded.saturating_sub(self.needed) as f64;
        let part = (self.decoding.each() * again * LATER_SHARE) as u64;
        let may = self.free.load(Ordering::Relaxed) + part + self.saved();
        may.checked_sub(self.spent(cleared)).map(Duration::from_nanos)
    }

    /// Time that keeping took.
    pub(super) fn spent(&self, cleared: Duration) -> u64 {
        self.copying.time() + cleared.as_nanos() as u64
    }

    /// Time that kept chunks saved: they are copied, which takes as long as copying them when they were kept, and not
    /// decoded.
    pub(super) fn saved(&self) -> u64 {
        let each = (self.decoding.each() - self.copying.each()).max(0.0);
        (self.hits.load(Ordering::Relaxed) as f64 * each) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn affords(thrift: &Thrift, cleared: u32) -> bool {
        thrift.left(cleared * MS).is_some()
    }

    #[test]
    fn what_keeping_may_take_grows_with_waiting_decoding_and_savings() {
        let thrift = Thrift::new(1000);
        thrift.waited(10 * MS);
        assert!(!affords(&thrift, 0));
        thrift.begin();
        assert!(affords(&thrift, 0) && !affords(&thrift, 1));
        thrift.decoded(1000, 40 * MS);
        assert!(affords(&thrift, 0) && !affords(&thrift, 1));
        thrift.waited(11 * MS);
        assert!(affords(&thrift, 11) && !affords(&thrift, 12));
        // Decoding takes 40 µs a byte, copying 10.
        thrift.kept(100, MS);
        thrift.hit(500);
        assert_eq!((thrift.saved(), thrift.spent(MS)), (15_000_000, 2_000_000));
        assert!(affords(&thrift, 25) && !affords(&thrift, 26));
        // In a later epoch.
        thrift.decoded(100, 4 * MS);
        assert!(affords(&thrift, 26) && !affords(&thrift, 27));
    }

    #[test]
    fn chunks_that_are_decoded_faster_than_copied_save_nothing() {
        let thrift = Thrift::new(1000);
        thrift.decoded(1000, MS);
        thrift.kept(100, MS);
        thrift.hit(5000);
        assert_eq!(thrift.saved(), 0);
    }

    /// Epochs of 100 chunks. One thread decodes a chunk in 10 or copies it in 3, and never waits; memory for a chunk takes
    /// `clearing`. Returns the length of each epoch.
    fn epochs(count: usize, clearing: u32) -> Vec<u32> {
        let (thrift, mut kept, mut cleared) = (Thrift::new(100), [false; 100], 0);
        thrift.begin();
        let mut epoch = || {
            let mut took = 0;
            for kept in &mut kept {
                if *kept {
                    thrift.hit(1);
                    took += 3;
                    continue;
                }
                thrift.decoded(1, 10 * MS);
                took += 10;
                if affords(&thrift, cleared) {
                    thrift.kept(1, 3 * MS);
                    cleared += clearing;
                    took += clearing + 3;
                    *kept = true;
                }
            }
            took
        };
        (0..count).map(|_| epoch()).collect()
    }

    #[test]
    fn the_first_epoch_is_hardly_slower_than_without_a_cache_and_soon_all_is_kept() {
        // On huge pages that are at hand, and on small ones.
        for (clearing, soon) in [(4, 5), (17, 12)] {
            let epochs = epochs(40, clearing);
            assert!(epochs[0] <= 1_003 + clearing, "{epochs:?}");
            assert!(epochs.iter().all(|took| *took <= 1_253 + clearing), "{epochs:?}");
            assert_eq!(epochs[soon], 300, "{epochs:?}");
        }
    }
}
