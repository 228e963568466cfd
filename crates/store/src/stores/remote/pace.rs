//! Finds how many parallel requests fill a link.
//!
//! A few requests fill a fast direct link. A server that limits each connection needs many. Too many delay the first
//! bytes, because all requests share the link. So the number is found by trial: a step up is kept if it gives more bytes
//! per second, and a step down is kept if it costs hardly any. Otherwise the step is undone, and the other direction is
//! tried later.

use std::time::{Duration, Instant};

/// Number of requests at the start: as many as browsers and the cloud providers' own tools begin with.
const FIRST: usize = 8;
const LEAST: usize = 3;
const MOST: usize = 64;
/// The rate must grow by this factor for a step up to be kept.
const GAIN: f64 = 1.08;
/// The rate must stay above this factor for a step down to be kept.
const LOSS: f64 = 0.98;
/// Number of measurements before the next trial after an unsuccessful one.
const REST: u32 = 12;
/// Minimum duration of a measurement.
const SHORTEST: Duration = Duration::from_millis(200);

/// Finds the number from the measured rates.
#[derive(Debug)]
pub(super) struct Pace {
    at_once: usize,
    /// The number before the step that is being tried.
    before: Option<usize>,
    /// Bytes per second with the number that was kept.
    best: f64,
    /// Number of measurements until the next step is tried.
    rest: u32,
    /// Whether the next step is down.
    down: bool,
    /// The current measurement: its start, the bytes received, and the number of finished requests.
    since: Option<Instant>,
    bytes: u64,
    requests: usize,
    /// Whether requests were waiting for their turn during the whole measurement.
    busy: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at_once: FIRST,
            before: None,
            best: 0.0,
            rest: 0,
            down: false,
            since: None,
            bytes: 0,
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

    /// Call this when a request starts.
    pub(super) fn started(&mut self, now: Instant) {
        if self.since.is_none() {
            self.begin(now);
        }
    }

    /// Call this when a request of `bytes` is done. `busy` says whether others are waiting for their turn.
    pub(super) fn finished(&mut self, bytes: u64, busy: bool, now: Instant) {
        let Some(since) = self.since else { return };
        self.bytes += bytes;
        self.requests += 1;
        self.busy &= busy;
        let took = now.saturating_duration_since(since);
        if took < SHORTEST || self.requests < 2 * self.at_once {
            return;
        }
        // If no request waits, the link is not the bottleneck, and the measurement says nothing.
        if self.busy {
            self.learn(self.bytes as f64 / took.as_secs_f64());
        }
        self.begin(now);
    }

    fn begin(&mut self, now: Instant) {
        (self.since, self.bytes, self.requests, self.busy) = (Some(now), 0, 0, true);
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
                self.rest = REST;
                self.down = !self.down;
            }
            None if self.rest == 0 => {
                self.best = rate;
                self.step();
            }
            None => {
                self.rest -= 1;
                // The rate of a link may change.
                self.best += (rate - self.best) / 4.0;
            }
        }
    }

    fn step(&mut self) {
        let next = match self.down {
            true => (self.at_once - self.at_once.div_ceil(4)).max(LEAST),
            false => (self.at_once + self.at_once.div_ceil(2)).min(MOST),
        };
        if next == self.at_once {
            (self.rest, self.down) = (REST, !self.down);
            return;
        }
        self.before = Some(std::mem::replace(&mut self.at_once, next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a link that gives `rate(n)` bytes per second for n parallel requests. Returns the mean number of requests
    /// chosen in the last half of `seconds`.
    fn settles(seconds: f64, rate: impl Fn(usize) -> f64) -> f64 {
        const BYTES: u64 = 8 << 20;
        let (mut pace, start, mut time) = (Pace::default(), Instant::now(), 0.0);
        let (mut sum, mut count) = (0, 0);
        pace.started(start);
        while time < seconds {
            time += BYTES as f64 / rate(pace.at_once());
            pace.finished(BYTES, true, start + Duration::from_secs_f64(time));
            if time > seconds / 2.0 {
                (sum, count) = (sum + pace.at_once(), count + 1);
            }
        }
        sum as f64 / f64::from(count)
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
        pace.started(start);
        for request in 0..1000u32 {
            pace.finished(1 << 20, false, start + request * Duration::from_millis(50));
        }
        assert_eq!(pace.at_once(), FIRST);
    }
}
