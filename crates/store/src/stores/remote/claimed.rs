//! How long spans are left to other processes, which fetch them into the local cache.
//!
//! Nobody waits long for a process that is slow, stopped, or cannot write: a reader waits for
//! another process about as long as a request of its own takes. Then this process fetches
//! everything itself that others had claimed. If that happens again, it ignores all claims for a
//! while.

use std::time::{Duration, Instant};

/// How often a few claims are looked at again.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How much longer than a request takes a reader waits. The other process has to write what has
/// arrived, which takes some time on a busy machine.
const TO_WRITE: Duration = Duration::from_millis(500);
/// How long a reader waits if no request has finished yet: as long as the first one has been
/// running, and this much more.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// How long a span that no reader waits for is left to another process, at least.
const MIN_AHEAD: Duration = Duration::from_secs(5);
/// How long claims are ignored.
const IGNORE_DURATION: Duration = Duration::from_secs(10);
/// After this many waits in a row that were in vain, claims are ignored.
const MAX_IN_VAIN: u32 = 2;

/// How often `claimed` claims are looked at again. Each look costs a few µs, which must not add up.
pub(super) fn poll_interval(claimed: usize) -> Duration {
    POLL_INTERVAL * (1 + claimed as u32 / 32)
}

/// Decides how long to wait for other processes.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// How long a request takes, as a moving average; `None` if none has finished yet.
    request: Option<Duration>,
    /// When the first request started, until one has finished.
    first: Option<Instant>,
    /// Number of waits in a row that were in vain.
    in_vain: u32,
    ignored_until: Option<Instant>,
}

impl Patience {
    /// Call this when a request starts.
    pub(super) fn started(&mut self, now: Instant) {
        self.first.get_or_insert(now);
    }

    /// Call this when a request has succeeded.
    pub(super) fn fetched(&mut self, took: Duration) {
        let before = self.request.unwrap_or(took);
        self.request = Some(before - before / 8 + took / 8);
    }

    /// Call this when a request has failed. How long it took says nothing.
    pub(super) fn failed(&mut self) {
        self.first = None;
    }

    /// How long a reader waits for a span that another process fetches.
    pub(super) fn of_reader(&self, now: Instant) -> Duration {
        let first = self.first.map_or(Duration::ZERO, |first| now.saturating_duration_since(first));
        self.request.map_or(FIRST_WAIT + first, |request| request + TO_WRITE)
    }

    /// How long a span is left to another process while no reader waits for it.
    pub(super) fn ahead(&self, now: Instant) -> Duration {
        (4 * self.of_reader(now)).max(MIN_AHEAD)
    }

    /// Call this when another process has written a span that was left to it.
    pub(super) fn was_rewarded(&mut self) {
        self.in_vain = 0;
    }

    /// Call this when a reader has waited in vain.
    pub(super) fn was_in_vain(&mut self, now: Instant) {
        self.in_vain += 1;
        if self.in_vain >= MAX_IN_VAIN {
            self.ignored_until = Some(now + IGNORE_DURATION);
        }
    }

    /// Whether claims are ignored at present.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.ignored_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_wait_as_long_as_a_request_takes() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        assert_eq!(patience.of_reader(now), FIRST_WAIT);
        patience.started(now);
        let later = now + Duration::from_secs(2);
        patience.started(later);
        assert_eq!(patience.of_reader(later), FIRST_WAIT + Duration::from_secs(2));
        (0..100).for_each(|_| patience.fetched(Duration::from_secs(3)));
        let wait = patience.of_reader(later).as_secs_f64();
        assert!((wait - 3.5).abs() < 0.01, "{wait}");
        (0..100).for_each(|_| patience.fetched(Duration::from_millis(1)));
        let wait = patience.of_reader(later).as_secs_f64();
        assert!((wait - 0.501).abs() < 0.001, "{wait}");
        assert_eq!(patience.ahead(later), MIN_AHEAD);
    }

    #[test]
    fn requests_that_fail_do_not_prolong_the_wait() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        patience.started(now);
        patience.failed();
        assert_eq!(patience.of_reader(now + Duration::from_secs(60)), FIRST_WAIT);
    }

    #[test]
    fn many_claims_are_looked_at_less_often() {
        assert_eq!(poll_interval(8), POLL_INTERVAL);
        assert_eq!(poll_interval(4096), 129 * POLL_INTERVAL);
    }

    #[test]
    fn claims_are_ignored_for_a_while_after_repeated_waits_in_vain() {
        let (mut patience, now) = (Patience::default(), Instant::now());
        patience.was_in_vain(now);
        patience.was_rewarded();
        patience.was_in_vain(now);
        assert!(!patience.is_over(now));
        patience.was_in_vain(now);
        assert!(patience.is_over(now) && !patience.is_over(now + IGNORE_DURATION));
        // Claims are looked at again, but one more wait in vain is enough.
        patience.was_in_vain(now + IGNORE_DURATION);
        assert!(patience.is_over(now + IGNORE_DURATION));
    }
}
