//! How long the latest batches took, in memory that is allocated once.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::trace::{BatchNumber, Trace, Track};

/// How long the latest batches took, in seconds; at most 16384 of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchTimes {
    /// Time that loading a batch takes, from when there is room for it. With `loaders` batches
    /// loaded at the same time, batches come every `load_s / loaders` if nothing else has to be
    /// waited for.
    pub load_s: Distribution,
    /// With a device: time to copy a batch, compressed or not, from when there is a slot for it and
    /// what used the slot before is done.
    #[serde(default)]
    pub copy_s: Distribution,
    /// With a device that decodes or gathers: time that this takes, from when the batch is copied
    /// and there is a slot; 0 for a batch that the CPU decoded.
    #[serde(default)]
    pub decode_s: Distribution,
    /// Time that the consumer waited for a batch.
    pub wait_s: Distribution,
    /// Time from getting a batch to asking for the next one: the training step, augmentations
    /// included.
    pub step_s: Distribution,
}

/// Remembers the latest times of batches.
#[derive(Debug)]
pub(crate) struct Times {
    load: Latest,
    copy: Latest,
    decode: Latest,
    wait: Latest,
    step: Latest,
}

impl Times {
    pub(crate) fn new() -> Self {
        let latest = Latest::new;
        Self { load: latest(), copy: latest(), decode: latest(), wait: latest(), step: latest() }
    }

    pub(crate) fn load(&self, seconds: f64) {
        self.load.push(seconds);
    }

    pub(crate) fn copy(&self, seconds: f64) {
        self.copy.push(seconds);
    }

    pub(crate) fn decode(&self, seconds: f64) {
        self.decode.push(seconds);
    }

    pub(crate) fn wait(&self, seconds: f64) {
        self.wait.push(seconds);
    }

    pub(crate) fn step(&self, seconds: f64) {
        self.step.push(seconds);
    }

    pub(crate) fn clear(&self) {
        let Self { load, copy, decode, wait, step } = self;
        [load, copy, decode, wait, step].into_iter().for_each(Latest::clear);
    }

    pub(crate) fn get(&self) -> BatchTimes {
        BatchTimes {
            load_s: self.load.distribution(),
            copy_s: self.copy.distribution(),
            decode_s: self.decode.distribution(),
            wait_s: self.wait.distribution(),
            step_s: self.step.distribution(),
        }
    }
}

/// The consumer of batches: when it asked for one, and when it got one.
#[derive(Debug)]
pub(crate) struct Consumer {
    track: Track,
    /// Times of the consumer's work with batches.
    use_of: &'static str,
    requested_at: Option<Instant>,
    delivered: Option<(Instant, BatchNumber)>,
}

/// Where the consumer's times are recorded.
#[derive(Clone, Copy)]
pub(crate) struct Record<'a> {
    pub times: &'a Times,
    pub trace: Option<&'a Trace>,
}

impl Consumer {
    /// A consumer that trains.
    pub(crate) fn training() -> Self {
        Self { track: Track::Consumer, use_of: "step", requested_at: None, delivered: None }
    }

    /// A consumer that copies batches to a device.
    pub(crate) fn transfer() -> Self {
        Self { track: Track::Transfer, use_of: "hand to the device", ..Self::training() }
    }

    /// A consumer that prepares batches on the CPU.
    pub(crate) fn preparer() -> Self {
        Self { track: Track::Preparer, use_of: "prepare", ..Self::training() }
    }

    /// Records that the consumer asks for a batch, possibly again.
    pub(crate) fn asks(&mut self, record: Record<'_>) {
        if self.requested_at.is_none() {
            let now = Instant::now();
            if let Some((delivered_at, batch)) = self.delivered.take() {
                record.times.step((now - delivered_at).as_secs_f64());
                if let Some(trace) = record.trace {
                    trace.span(self.track, self.use_of, (delivered_at, now), Some(batch));
                }
            }
            self.requested_at = Some(now);
        }
    }

    /// Records that the consumer gets the batch.
    pub(crate) fn gets(&mut self, batch: BatchNumber, record: Record<'_>) {
        let now = Instant::now();
        if let Some(requested_at) = self.requested_at.take() {
            record.times.wait((now - requested_at).as_secs_f64());
            if let Some(trace) = record.trace {
                trace.span(self.track, "wait for a batch", (requested_at, now), Some(batch));
            }
        }
        self.delivered = Some((now, batch));
    }

    /// Records that there was no batch to get.
    pub(crate) fn ends(&mut self) {
        (self.requested_at, self.delivered) = (None, None);
    }
}

/// How many times are remembered.
const MAX_TIMES: usize = 16384;

/// The latest times. The oldest is overwritten.
#[derive(Debug)]
struct Latest(Mutex<(Vec<f64>, usize)>);

impl Latest {
    fn new() -> Self {
        Self(Mutex::new((Vec::with_capacity(MAX_TIMES), 0)))
    }

    fn push(&self, seconds: f64) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (values, next) = &mut *inner;
        if values.len() < MAX_TIMES {
            values.push(seconds);
        } else {
            values[*next] = seconds;
        }
        *next = (*next + 1) % MAX_TIMES;
    }

    fn clear(&self) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.0.clear();
        inner.1 = 0;
    }

    fn distribution(&self) -> Distribution {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        Distribution::of(values)
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_batch_asked_for_twice_is_waited_for_once() {
        let (times, mut consumer) = (Times::new(), Consumer::training());
        let record = Record { times: &times, trace: None };
        let pause = || sleep(Duration::from_millis(2));
        consumer.asks(record);
        pause();
        consumer.asks(record);
        pause();
        consumer.gets(BatchNumber { epoch: 0, batch: 0 }, record);
        pause();
        consumer.asks(record);
        consumer.ends();
        consumer.asks(record);
        let BatchTimes { wait_s, step_s, .. } = times.get();
        assert_eq!((wait_s.count, step_s.count), (1, 1));
        assert!(wait_s.mean >= 4e-3 && step_s.mean >= 2e-3, "{wait_s:?} {step_s:?}");
    }

    #[test]
    fn the_latest_are_remembered() {
        let times = Times::new();
        assert!(times.get().load_s.is_empty());
        for time in 0..MAX_TIMES + 10 {
            times.load(time as f64);
        }
        let load = times.get().load_s;
        assert_eq!((load.count, load.percentiles[0]), (MAX_TIMES as u64, 10.0));
        times.clear();
        times.load(3.0);
        assert_eq!(times.get().load_s.mean, 3.0);
    }
}
