//! The first batches one by one, from the events.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::event::{Event, Observer};

/// Times of the events of a batch in nanoseconds; `None` if an event did not happen before the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTrace {
    /// The loader that loaded it.
    pub loader: usize,
    /// When the loader began.
    pub begun: Option<u64>,
    /// When it was loaded. From then on, the loader holds it.
    pub loaded: Option<u64>,
    /// When it was queued. The loader then begins its next batch.
    pub queued: Option<u64>,
    /// When the first stage after the queue took it: the link, the device, or the model.
    pub taken: Option<u64>,
    /// When its copy to the device began.
    pub copying: Option<u64>,
    /// When it was copied.
    pub copied: Option<u64>,
    /// When the device began to decode it.
    pub decoding: Option<u64>,
    /// When it was decoded.
    pub decoded: Option<u64>,
    /// When its step began.
    pub stepping: Option<u64>,
    /// When the model finished its step.
    pub done: Option<u64>,
}

/// The first batches of a run, up to 1000.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The batches, by number.
    pub batches: Vec<BatchTrace>,
    /// Time in nanoseconds up to which the trace is complete: the end of the run, or the time at
    /// which the first batch that is not recorded was begun.
    pub until: u64,
    /// Whether `until` is the end of the run.
    pub whole: bool,
}

/// Maximum number of batches in a trace.
const MAX_BATCHES: usize = 1000;

/// Records the first batches.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    batches: Vec<BatchTrace>,
    missing: Option<u64>,
}

impl Tracer {
    /// The trace of a run that ended at this time.
    pub(super) fn finish(self, end: u64) -> Trace {
        let whole = self.missing.is_none();
        Trace { batches: self.batches, until: self.missing.unwrap_or(end), whole }
    }
}

impl Observer for Tracer {
    fn see(&mut self, time: u64, event: Event, batch: u64, loader: usize) {
        if batch >= MAX_BATCHES as u64 {
            self.missing.get_or_insert(time);
            return;
        }
        let number = batch as usize;
        if number >= self.batches.len() {
            self.batches.resize(number + 1, BatchTrace::default());
        }
        let trace = &mut self.batches[number];
        match event {
            Event::Begun => (trace.loader, trace.begun) = (loader, Some(time)),
            Event::Loaded => trace.loaded = Some(time),
            Event::Queued => trace.queued = Some(time),
            Event::Taken => trace.taken = Some(time),
            Event::Copying => trace.copying = Some(time),
            Event::Copied => trace.copied = Some(time),
            Event::Decoding => trace.decoding = Some(time),
            Event::Decoded => trace.decoded = Some(time),
            Event::Stepping => trace.stepping = Some(time),
            Event::Done => trace.done = Some(time),
        }
    }
}

/// Serialises times in whole microseconds, one row per batch, to keep pages small:
/// `[loader, [begun, loaded, queued, taken, done]]` and, if anything was copied or decoded,
/// `[copying, copied, decoding, decoded, stepping]`.
impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micro = |time: u64| (time + 500) / 1000;
        let micros = |times: [Option<u64>; 5]| times.map(|time| time.map(micro));
        let host = |batch: &BatchTrace| {
            let BatchTrace { loader, begun, loaded, queued, taken, done, .. } = *batch;
            (loader, micros([begun, loaded, queued, taken, done]))
        };
        let device = |batch: &BatchTrace| {
            let BatchTrace { copying, copied, decoding, decoded, stepping, .. } = *batch;
            micros([copying, copied, decoding, decoded, stepping])
        };
        let has_device =
            self.batches.iter().any(|batch| batch.copying.or(batch.decoding).is_some());
        let mut out = serializer.serialize_struct("Trace", 3)?;
        out.serialize_field("until_us", &micro(self.until))?;
        out.serialize_field("whole", &self.whole)?;
        let hosts = self.batches.iter().map(host);
        if has_device {
            let rows = hosts.zip(self.batches.iter().map(device));
            let rows = rows.map(|((loader, times), device)| (loader, times, device));
            out.serialize_field("batches_us", &rows.collect::<Vec<_>>())?;
        } else {
            out.serialize_field("batches_us", &hosts.collect::<Vec<_>>())?;
        }
        out.end()
    }
}
