//! Finds how many parallel requests fill a link.
//!
//! A few requests fill a fast direct link. A server that limits each connection needs many. Too
//! many delay the first bytes, because all requests share the link. So the number is found by
//! trial:
//!
//! - **The first batch** begins with as many requests as it needs, up to 24. With more, all of it
//!   would arrive at its end, and nothing could be decoded before.
//! - **Then the number doubles** as long as this gives many more bytes per second.
//! - **Later it changes in small steps.** A step up is kept if it gives more bytes per second, and
//!   a step down is kept if it costs hardly any. Otherwise the step is undone, and the other
//!   direction is tried later.
//!
//! Rates are measured with the bytes that arrive, not with the requests that end: requests that
//! start together also end together.

use std::time::{Duration, Instant};

/// Maximum number of requests for the first batch.
const FIRST: usize = 24;
/// Minimum number of requests after the first batch has arrived.
const AFTER_FIRST: usize = 16;
const LEAST: usize = 3;
/// Maximum number of requests.
const MAX_REQUESTS: usize = 64;
/// While the number doubles, the rate must grow by this factor.
const GROWTH: f64 = 1.15;
/// The rate must grow by this factor for a step up to be kept.
const GAIN: f64 = 1.08;
/// The rate must stay above this factor for a step down to be kept.
const LOSS: f64 = 0.98;
/// Number of measurements before the next trial after an unsuccessful one.
const TRIAL_INTERVAL: u32 = 12;
/// Minimum duration of a measurement.
const SHORTEST: Duration = Duration::from_millis(200);
/// The same while the number doubles, which must not take long.
const SHORTEST_DOUBLING: Duration = Duration::from_millis(50);

/// Finds the number from the measured rates.
#[derive(Debug)]
pub(super) struct Pace {
    at_once: usize,
    /// Whether the first batch is on its way. It is one measurement.
    is_first: bool,
    /// Whether the number still doubles.
    doubles: bool,
    /// The number before the step that is being tried.
    before: Option<usize>,
    /// Bytes per second with the number that was kept.
    best: f64,
    /// Number of measurements until the next step is tried.
    until_trial: u32,
    /// Whether the next step is down.
    down: bool,
    /// Start of the current measurement.
    since: Option<Instant>,
    /// Bytes that had been received at its start.
    received: u64,
    /// Number of requests that finished since.
    requests: usize,
    /// Whether requests were waiting for their turn during the whole measurement.
    busy: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at_once: FIRST,
            is_first: false,
            doubles: true,
            before: None,
            best: 0.0,
            until_trial: 0,
            down: false,
            since: None,
            received: 0,
            requests: 0,
            busy: true,
        }
    }
}

impl Pace {
    /// Number of requests that may run at the same time.
    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    /// Call this when all requests of the first batch are known, and no measurement has ended yet.
    pub(super) fn first_batch(&mut self, requests: usize) {
        if self.doubles && self.best == 0.0 {
            self.at_once = requests.clamp(LEAST, FIRST);
            self.is_first = true;
        }
    }

    /// Call this when all requests of the first batch are done. `received` is the number of bytes
    /// received so far.
    pub(super) fn first_batch_arrived(&mut self, received: u64, now: Instant) {
        if std::mem::take(&mut self.is_first)
            && let Some(since) = self.since
        {
            self.double(self.rate(received, now.saturating_duration_since(since)));
            self.begin(received, now);
        }
    }

    /// Call this when a request starts. `received` is the number of bytes received so far.
    pub(super) fn started(&mut self, received: u64, now: Instant) {
        if self.since.is_none() {
            self.begin(received, now);
        }
    }

    /// Call this when a request is done. `received` is the number of bytes received so far; `busy`
    /// says whether other requests are waiting for their turn.
    pub(super) fn finished(&mut self, received: u64, busy: bool, now: Instant) {
        let Some(since) = self.since else { return };
        self.requests += 1;
        self.busy &= busy;
        let took = now.saturating_duration_since(since);
        let (shortest, requests) = match self.doubles {
            true => (SHORTEST_DOUBLING, self.at_once),
            false => (SHORTEST, 2 * self.at_once),
        };
        if self.is_first || took < shortest || self.requests < requests {
            return;
        }
        // If no request waits, the link is not the bottleneck, and the measurement says nothing.
        if self.busy {
            let rate = self.rate(received, took);
            match self.doubles {
                true => self.double(rate),
                false => self.learn(rate),
            }
        }
        self.begin(received, now);
    }

    /// Bytes per second since the start of the measurement.
    fn rate(&self, received: u64, took: Duration) -> f64 {
        received.saturating_sub(self.received) as f64
            / took.max(Duration::from_millis(1)).as_secs_f64()
    }

    fn begin(&mut self, received: u64, now: Instant) {
        (self.since, self.received, self.requests, self.busy) = (Some(now), received, 0, true);
    }

    fn double(&mut self, rate: f64) {
        let grows = rate > GROWTH * self.best;
        if grows && self.at_once < MAX_REQUESTS {
            let more = (2 * self.at_once).clamp(AFTER_FIRST, MAX_REQUESTS);
            self.before = Some(std::mem::replace(&mut self.at_once, more));
            self.best = rate;
            return;
        }
        if let Some(before) = self.before.take().filter(|_| !grows) {
            self.at_once = before;
        }
        // The last step may have been too large, so steps down come first.
        (self.doubles, self.down, self.best) = (false, true, self.best.max(rate));
    }

    fn learn(&mut self, rate: f64) {
        let enough = if self.down { LOSS } else { GAIN };
        match self.before.take() {
            Some(_) if rate > enough * self.best => {
                self.best = self.best.max(rate);
                self.step();
            }
            Some(before) => {
                self.at_once = before;
                self.until_trial = TRIAL_INTERVAL;
                self.down = !self.down;
            }
            None if self.until_trial == 0 => {
                self.best = rate;
                self.step();
            }
            None => {
                self.until_trial -= 1;
                // The rate of a link may change.
                self.best += (rate - self.best) / 4.0;
            }
        }
    }

    fn step(&mut self) {
        let next = match self.down {
            true => (self.at_once - self.at_once.div_ceil(4)).max(LEAST),
            false => (self.at_once + self.at_once.div_ceil(2)).min(MAX_REQUESTS),
        };
        if next == self.at_once {
            (self.until_trial, self.down) = (TRIAL_INTERVAL, !self.down);
            return;
        }
        self.before = Some(std::mem::replace(&mut self.at_once, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: u64 = 4 << 20;

    /// A link that gives `rate(n)` bytes per second for n parallel requests.
    struct Simulated<F> {
        pace: Pace,
        start: Instant,
        seconds: f64,
        received: u64,
        rate: F,
    }

    impl<F: Fn(usize) -> f64> Simulated<F> {
        fn new(rate: F) -> Self {
            let (mut pace, start) = (Pace::default(), Instant::now());
            pace.started(0, start);
            Self { pace, start, seconds: 0.0, received: 0, rate }
        }

        /// Lets the first batch arrive.
        fn first_batch(&mut self, requests: usize) {
            self.pace.first_batch(requests);
            for _ in 0..requests {
                assert_eq!(self.request(), requests.min(FIRST));
            }
            let now = self.start + Duration::from_secs_f64(self.seconds);
            self.pace.first_batch_arrived(self.received, now);
        }

        /// Lets a request finish. Returns the number of parallel requests afterwards.
        fn request(&mut self) -> usize {
            self.seconds += REQUEST as f64 / (self.rate)(self.pace.at_once());
            self.received += REQUEST;
            let now = self.start + Duration::from_secs_f64(self.seconds);
            self.pace.finished(self.received, true, now);
            self.pace.at_once()
        }
    }

    /// Returns the mean number of requests chosen in the last half of `seconds`.
    fn settles(seconds: f64, rate: impl Fn(usize) -> f64) -> f64 {
        let mut link = Simulated::new(rate);
        let (mut sum, mut count) = (0, 0);
        while link.seconds < seconds {
            let chosen = link.request();
            if link.seconds > seconds / 2.0 {
                (sum, count) = (sum + chosen, count + 1);
            }
        }
        sum as f64 / f64::from(count)
    }

    #[test]
    fn a_link_that_needs_many_requests_has_them_soon() {
        for (batch, next) in [(6, 16), (18, 36), (50, 48)] {
            let mut link = Simulated::new(|n| (n as f64 * 30e6).min(1.5e9));
            link.first_batch(batch);
            let chosen: Vec<usize> = (0..64).map(|_| link.request()).collect();
            assert_eq!((chosen[0], chosen[63]), (next, 64), "{chosen:?}");
        }
    }

    #[test]
    fn a_link_that_is_full_gets_twice_its_first_requests_and_no_more() {
        let mut link = Simulated::new(|_| 200e6);
        link.first_batch(18);
        let chosen: Vec<usize> = (0..300).map(|_| link.request()).collect();
        assert_eq!(chosen.iter().max(), Some(&36), "{chosen:?}");
        assert!(chosen[299] < 18, "{chosen:?}");
        // There is only one first batch.
        link.pace.first_batch(40);
        assert!(link.pace.at_once() < 18);
    }

    #[test]
    fn a_pipe_that_is_full_gets_few_requests() {
        let chosen = settles(600.0, |_| 200e6);
        assert!(chosen < 4.0, "{chosen}");
        // Two requests are not enough to hide the latency, but five are.
        let chosen = settles(600.0, |n| 200e6 * (n as f64 / 5.0).min(1.0));
        assert!((4.5..7.0).contains(&chosen), "{chosen}");
    }

    #[test]
    fn connections_with_a_share_each_are_as_many_as_fill_the_link() {
        let chosen = settles(600.0, |n| (n as f64 * 50e6).min(1.6e9));
        assert!((28.0..50.0).contains(&chosen), "{chosen}");
        let chosen = settles(600.0, |n| n as f64 * 50e6);
        assert!(chosen > 60.0, "{chosen}");
    }

    #[test]
    fn whoever_does_not_wait_teaches_nothing() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        pace.started(0, start);
        for request in 0..1000u32 {
            let received = u64::from(request + 1) << 20;
            pace.finished(received, false, start + request * Duration::from_millis(50));
        }
        assert_eq!(pace.at_once(), FIRST);
    }
}
