//! Timeline of every thread, for `chrome://tracing` and <https://ui.perfetto.dev>.
//!
//! The file is in Chrome's trace event format: a row for each thread, a span for everything it did,
//! and a line for the number of batches that are ready.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

/// A recording of events, which loaders add to until it is full; see
/// [`LoaderOptions::trace`](crate::LoaderOptions::trace).
///
/// An event costs about 0.1 µs and 64 bytes. When the recording is full, further events are counted
/// but not recorded.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    events: Vec<Event>,
    left_out: u64,
}

/// The thread that did something: a row of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Track {
    /// The thread that takes batches: training.
    Consumer,
    /// The thread that copies batches to a device.
    Transfer,
    /// The thread that converts, normalises and augments batches on the CPU.
    Preparer,
    /// The thread that plans batches.
    Planner,
    /// A decoding thread, from 0.
    Decoder(usize),
}

/// A batch, by its number in its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchNumber {
    /// The epoch, counted from 0.
    pub epoch: u64,
    /// The number of the batch among the batches of this rank.
    pub batch: usize,
}

#[derive(Clone, Copy, Debug)]
struct Event {
    track: Track,
    name: &'static str,
    start: Duration,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Span(Duration, Option<BatchNumber>),
    Level(usize),
}

/// The number of events that a recording has room for by default: about 64 MB, and 100 MB as a
/// file.
pub const DEFAULT_LIMIT: usize = 1_000_000;

impl Default for Trace {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT)
    }
}

impl Trace {
    /// Creates a recording of at most `limit` events. Its clock starts now.
    pub fn new(limit: usize) -> Self {
        Self { start: Instant::now(), limit, inner: Mutex::default() }
    }

    /// Records that a thread did something from `start` to `end`, possibly for a batch.
    pub fn span(
        &self,
        track: Track,
        name: &'static str,
        (start, end): (Instant, Instant),
        batch: Option<BatchNumber>,
    ) {
        let lasted = end.saturating_duration_since(start);
        self.add(track, name, start, What::Span(lasted, batch));
    }

    /// Records that `count` batches are ready from now on.
    pub(crate) fn ready(&self, count: usize) {
        self.add(Track::Consumer, "batches ready", Instant::now(), What::Level(count));
    }

    fn add(&self, track: Track, name: &'static str, at: Instant, what: What) {
        let start = at.saturating_duration_since(self.start);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.events.len() < self.limit {
            inner.events.push(Event { track, name, start, what });
        } else {
            inner.left_out += 1;
        }
    }

    /// The number of events that did not fit.
    pub fn left_out(&self) -> u64 {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).left_out
    }

    /// Writes everything that was recorded so far as one JSON object, with times in microseconds
    /// since the recording began.
    ///
    /// # Errors
    /// If `out` cannot be written to.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        // The lock is released before writing, so that other threads can go on.
        let (mut events, left_out) = {
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            (inner.events.clone(), inner.left_out)
        };
        events.sort_by_key(|event| event.start);
        let rows: BTreeMap<Track, u32> =
            events.iter().map(|event| (event.track, event.track.row())).collect();
        let other = json!({"program": "hsipack", "events_left_out": left_out});
        write!(out, "{{\"displayTimeUnit\":\"ms\",\"otherData\":{other},\"traceEvents\":[")?;
        let name =
            |kind, row, name| Named { ph: "M", pid: 1, tid: row, name: kind, args: Name { name } };
        serde_json::to_writer(&mut *out, &name("process_name", 0, "hsipack".to_owned()))?;
        for (track, row) in rows {
            out.write_all(b",\n")?;
            serde_json::to_writer(&mut *out, &name("thread_name", row, track.name()))?;
        }
        for event in &events {
            out.write_all(b",\n")?;
            event.write(out)?;
        }
        out.write_all(b"]}")
    }
}

/// Metadata of the format: the name of a row.
#[derive(Serialize)]
struct Named {
    ph: &'static str,
    pid: u32,
    tid: u32,
    name: &'static str,
    args: Name,
}

#[derive(Serialize)]
struct Name {
    name: String,
}

impl Event {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let us = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let (row, ts) = (self.track.row(), us(self.start));
        let event = match self.what {
            What::Span(lasted, batch) => {
                let mut event = json!({
                    "ph": "X", "pid": 1, "tid": row, "ts": ts, "dur": us(lasted), "name": self.name,
                });
                if let Some(BatchNumber { epoch, batch }) = batch {
                    event["args"] = json!({"epoch": epoch, "batch": batch});
                }
                event
            }
            What::Level(count) => json!({
                "ph": "C", "pid": 1, "ts": ts, "name": self.name, "args": {"batches": count},
            }),
        };
        serde_json::to_writer(out, &event).map_err(io::Error::from)
    }
}

impl Track {
    /// The row's number. Rows are shown in the order of these numbers.
    fn row(self) -> u32 {
        match self {
            Track::Consumer => 1,
            Track::Transfer => 2,
            Track::Planner => 3,
            Track::Preparer => 4,
            Track::Decoder(number) => 100 + number as u32,
        }
    }

    fn name(self) -> String {
        match self {
            Track::Consumer => "consumer".to_owned(),
            Track::Transfer => "transfer".to_owned(),
            Track::Planner => "planner".to_owned(),
            Track::Preparer => "preparer".to_owned(),
            Track::Decoder(number) => format!("decoder {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(trace: &Trace) -> serde_json::Value {
        let mut bytes = Vec::new();
        trace.write(&mut bytes).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn spans_and_levels_are_written_as_chrome_wants_them() {
        let trace = Trace::new(3);
        let (start, us) = (trace.start, Duration::from_micros);
        let batch = BatchNumber { epoch: 1, batch: 2 };
        trace.span(Track::Decoder(1), "decode", (start + us(7), start + us(9)), Some(batch));
        trace.span(Track::Consumer, "wait", (start, start + us(5)), None);
        trace.ready(3);
        trace.ready(4);
        let value = written(&trace);
        assert_eq!(value["otherData"]["events_left_out"], 1);
        let events = value["traceEvents"].as_array().unwrap();
        let names = events.iter().filter(|event| event["ph"] == "M");
        let names: Vec<_> = names.map(|event| event["args"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["hsipack", "consumer", "decoder 1"]);
        let spans: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
        assert_eq!((spans[0]["ts"].as_f64(), spans[0]["dur"].as_f64()), (Some(0.0), Some(5.0)));
        assert_eq!((&spans[1]["name"], &spans[1]["args"]["batch"]), (&json!("decode"), &json!(2)));
        assert_eq!(events.iter().find(|event| event["ph"] == "C").unwrap()["args"]["batches"], 3);
    }

    #[test]
    fn an_empty_recording_is_a_file_too() {
        assert_eq!(written(&Trace::default())["traceEvents"].as_array().unwrap().len(), 1);
    }
}
