//! How long it took to load a batch.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::stats::nanoseconds;

/// When a batch was loaded, recorded by the threads that load it.
#[derive(Debug, Default)]
pub(crate) struct LoadTime {
    /// When there was a free slot for the batch.
    begun: Option<Instant>,
    /// Nanoseconds from then to the end of the task that ended last.
    took: AtomicU64,
}

impl LoadTime {
    pub(crate) fn begun(at: Instant) -> Self {
        Self { begun: Some(at), took: AtomicU64::new(0) }
    }

    /// Records that a decoding thread finished a task of the batch.
    pub(crate) fn did(&self, at: Instant) {
        let took = self.begun.map_or(Duration::ZERO, |begun| at.saturating_duration_since(begun));
        self.took.fetch_max(nanoseconds(took), Ordering::Relaxed);
    }
}

/// The loader as a server that delivers one batch after another, although its threads work on
/// several at a time.
#[derive(Debug, Default)]
pub(crate) struct LoadIntervals {
    /// When the last batch was ready.
    ready: Option<Instant>,
}

impl LoadIntervals {
    /// Seconds that the next batch took: from when there was a slot for it and the batch before was
    /// ready, until it was ready itself. So waiting for a slot does not count. Everything else that
    /// delays batches counts: planning, handing out tasks, threads that wait for a processor.
    /// Counting only the work would have promised a fifth more small batches than came.
    pub(crate) fn next(&mut self, loading: &LoadTime) -> Option<f64> {
        let begun = loading.begun?;
        let end = begun + Duration::from_nanos(loading.took.load(Ordering::Relaxed));
        let from = self.ready.map_or(begun, |ready| ready.max(begun));
        // A batch may be finished before the one that comes before it.
        self.ready = Some(from.max(end));
        Some(end.saturating_duration_since(from).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The milliseconds that batches took. Each batch is given as (slot free, tasks done) in
    /// milliseconds.
    fn took(batches: &[(u64, &[u64])]) -> Vec<u64> {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut loads = LoadIntervals::default();
        let interval = |(begun, tasks): &(u64, &[u64])| {
            let loading = LoadTime::begun(at(*begun));
            tasks.iter().for_each(|end| loading.did(at(*end)));
            (loads.next(&loading).expect("it has begun") * 1e3).round() as u64
        };
        batches.iter().map(interval).collect()
    }

    #[test]
    fn whatever_keeps_batches_from_coming_counts() {
        // Planned while earlier batches were decoded: batches come every 7 ms, whatever the threads did in that time.
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
    fn gaps_between_batches_take_no_time() {
        assert_eq!(LoadIntervals::default().next(&LoadTime::default()), None);
    }
}
