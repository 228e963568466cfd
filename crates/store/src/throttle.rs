//! How a disk or a network link is made to seem slower.
//!
//! Time is booked on a virtual clock, not measured. Every read takes `bytes / rate` on that clock
//! and waits until the real time reaches its end, so sleeping too long does not add up. While
//! nothing is read, the virtual clock may fall behind by up to `burst` bytes: a disk with
//! read-ahead would have fetched these meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(feature = "clap")]
use hsipack_format::arguments::{duration, rate};
use serde::{Deserialize, Serialize};

/// The speed of a simulated disk or network link. The feature `clap` makes it options of commands
/// that measure reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct Link {
    /// Read at most this many stored bytes per second, such as 1000MB/s, as from a slower disk or
    /// link [default: unlimited]
    // One limit for all files and requests together.
    #[serde(rename = "rate_limit")]
    #[cfg_attr(feature = "clap", arg(long = "rate-limit", value_name = "BYTES/s", value_parser = rate, help_heading = "Reading"))]
    pub rate: Option<u64>,
    /// Wait this long, such as 30ms, before every read of a file, or before the answer to every
    /// request for chunks [default: no wait]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME", value_parser = duration, default_value = "0s", hide_default_value = true, help_heading = "Reading"))]
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

/// Limits the data that pass a link.
#[derive(Debug)]
pub(crate) struct Limit {
    start: Instant,
    latency: Duration,
    schedule: Option<Mutex<Schedule>>,
}

impl Limit {
    pub(crate) fn new(link: Link, burst: u64) -> Self {
        assert!(link.rate != Some(0), "a link of 0 bytes per second");
        let schedule =
            link.rate.map(|rate| Mutex::new(Schedule { rate, burst, end: Duration::ZERO }));
        Self { start: Instant::now(), latency: link.latency, schedule }
    }

    /// The time from a request to the first byte.
    pub(crate) fn latency(&self) -> Duration {
        self.latency
    }

    /// Books `bytes` more and returns the time from now until they have passed.
    pub(crate) fn book(&self, bytes: u64) -> Duration {
        let Some(schedule) = &self.schedule else { return Duration::ZERO };
        let now = self.start.elapsed();
        let end = schedule.lock().unwrap_or_else(PoisonError::into_inner).book(now, bytes);
        end.saturating_sub(now)
    }

    /// Sleeps until `bytes` that are requested now have arrived.
    pub(crate) fn wait(&self, bytes: u64) {
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

/// The traffic between the server and the store.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) requests: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Simulates a slower link.
    limit: Option<Limit>,
}

impl Wire {
    pub(crate) fn new(link: Link) -> Self {
        // No burst: a server does not read ahead.
        let limit = (!link.is_free()).then(|| Limit::new(link, 0));
        Self { requests: AtomicU64::new(0), bytes: AtomicU64::new(0), limit }
    }

    /// Call this before a request for bytes.
    pub(crate) async fn ask(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.come_late().await;
    }

    /// Waits for the latency of an answer.
    pub(crate) async fn come_late(&self) {
        if let Some(limit) = &self.limit {
            tokio::time::sleep(limit.latency()).await;
        }
    }

    /// Call this when bytes of an answer have arrived.
    pub(crate) async fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(limit) = &self.limit {
            tokio::time::sleep(limit.book(bytes as u64)).await;
        }
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
}
