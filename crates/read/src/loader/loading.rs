//! How long a batch took those who load it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::stats::nanoseconds;

/// When a batch was loaded, written down by the threads that do it.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// A free slot was there for it.
    begun: Option<Instant>,
    /// Nanoseconds from then to the end of the task that ended last.
    took: AtomicU64,
}

impl Loading {
    pub(crate) fn begun(at: Instant) -> Self {
        Self { begun: Some(at), took: AtomicU64::new(0) }
    }

    /// A decoding thread has done a task of it.
    pub(crate) fn did(&self, at: Instant) {
        let took = self.begun.map_or(Duration::ZERO, |begun| at.saturating_duration_since(begun));
        self.took.fetch_max(nanoseconds(took), Ordering::Relaxed);
    }
}

/// The loader as a server of batches, one after the other, although its threads work on several at a time.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    /// When the last batch was ready.
    ready: Option<Instant>,
}

impl Loads {
    /// Seconds that the next batch took: since there was a slot for it and the batch before was ready, until it was
    /// ready. So waiting for a slot does not count, but all else does that keeps batches from coming: planning, handing
    /// out tasks, threads that wait for a processor. Work alone would have promised a fifth more small batches than
    /// came.
    pub(crate) fn next(&mut self, loading: &Loading) -> Option<f64> {
        let begun = loading.begun?;
        let end = begun + Duration::from_nanos(loading.took.load(Ordering::Relaxed));
        let from = self.ready.map_or(begun, |ready| ready.max(begun));
        // A batch may be finished before the one that it comes after.
        self.ready = Some(from.max(end));
        Some(end.saturating_duration_since(from).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds that batches took of which (slot free, tasks done) are given in milliseconds.
    fn took(batches: &[(u64, &[u64])]) -> Vec<u64> {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut loads = Loads::default();
        let one = |(begun, tasks): &(u64, &[u64])| {
            let loading = Loading::begun(at(*begun));
            tasks.iter().for_each(|end| loading.did(at(*end)));
            (loads.next(&loading).expect("it has begun") * 1e3).round() as u64
        };
        batches.iter().map(one).collect()
    }

    #[test]
    fn whatever_keeps_batches_from_coming_counts() {
        // Planned while those before were decoded: batches come every 7 ms, whatever threads did of that time.
        let batches = [(0, &[6, 7][..]), (1, &[14, 11]), (8, &[21, 20]), (15, &[27, 28])];
        assert_eq!(took(&batches), [7, 7, 7, 7]);
    }

    #[test]
    fn waiting_for_a_slot_does_not_count() {
        assert_eq!(took(&[(0, &[7]), (100, &[105, 103]), (200, &[206])]), [7, 5, 6]);
    }

    #[test]
    fn a_batch_that_is_finished_early_takes_no_time_of_the_next() {
        assert_eq!(took(&[(0, &[10]), (0, &[8]), (0, &[13, 12])]), [10, 0, 3]);
    }

    #[test]
    fn what_is_no_batch_takes_no_time() {
        assert_eq!(Loads::default().next(&Loading::default()), None);
    }
}
