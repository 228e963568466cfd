//! Shares, means and time series, from the events.

use serde::Serialize;

use super::event::{Event, Observer};
use super::model::Model;
use super::times::seconds;

/// Time series of a run in at most 512 spans of equal length.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Length of a span in seconds. The last span may extend beyond the end; its values are means
    /// up to the end.
    pub span_s: f64,
    /// Mean number of batches in the queue.
    pub queue: Vec<f64>,
    /// Mean number of loaders that are loading.
    pub loading: Vec<f64>,
    /// Mean number of loaders that hold a batch.
    pub holding: Vec<f64>,
    /// Share of the time during which the link copies a batch; empty if batches are not copied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copy: Vec<f64>,
    /// Share of the time during which the device decodes a batch; empty if it does not decode.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decode: Vec<f64>,
    /// Share of the time during which the model is busy.
    pub model: Vec<f64>,
}

/// Activity of a loader.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoaderTimes {
    pub loading: u64,
    pub holding: u64,
    pub loaded: u64,
    since: u64,
    holds: bool,
}

/// Current numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Levels {
    queue: u64,
    loading: u64,
    holding: u64,
    waiting: u64,
    copying: u64,
    decoding: u64,
    stepping: u64,
}

/// Sums of numbers, multiplied by nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    pub queue: u128,
    pub loading: u128,
    pub holding: u128,
    pub waiting: u128,
    pub copying: u128,
    pub decoding: u128,
    pub stepping: u128,
}

impl Sums {
    fn add(&mut self, levels: Levels, time: u64) {
        let product = |level: u64| u128::from(level) * u128::from(time);
        self.queue += product(levels.queue);
        self.loading += product(levels.loading);
        self.holding += product(levels.holding);
        self.waiting += product(levels.waiting);
        self.copying += product(levels.copying);
        self.decoding += product(levels.decoding);
        self.stepping += product(levels.stepping);
    }

    fn join(&mut self, other: Self) {
        self.queue += other.queue;
        self.loading += other.loading;
        self.holding += other.holding;
        self.waiting += other.waiting;
        self.copying += other.copying;
        self.decoding += other.decoding;
        self.stepping += other.stepping;
    }
}

/// Accumulates counts from the events.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub now: u64,
    pub loaded: u64,
    pub queued: u64,
    pub taken: u64,
    pub stepped: u64,
    pub done: u64,
    pub sums: Sums,
    /// Minimum and maximum number of batches in the queue since the first batch was taken; states
    /// of no duration do not count.
    pub levels: Option<(u64, u64)>,
    pub loaders: Vec<LoaderTimes>,
    /// Whether batches are copied, and whether the device decodes them.
    on_device: [bool; 2],
    /// The event at which a batch that was taken has a device slot.
    placed: Event,
    levels_now: Levels,
    span: u64,
    spans: Vec<Sums>,
}

/// Maximum number of spans; if there are more, spans are joined in pairs.
const SPANS: usize = 512;

impl Tally {
    /// A tally for a run of this model. `end` is the end of the run, if known.
    pub(super) fn new(model: &Model, end: Option<u64>) -> Self {
        let [placed, _] = model.first_stage();
        Self {
            now: 0,
            loaded: 0,
            queued: 0,
            taken: 0,
            stepped: 0,
            done: 0,
            sums: Sums::default(),
            levels: None,
            loaders: vec![LoaderTimes::default(); model.loaders],
            on_device: [model.copy.is_some(), model.decode.is_some()],
            placed,
            levels_now: Levels::default(),
            span: end.map_or(1_000_000, |end| end.div_ceil(SPANS as u64)).max(1),
            spans: Vec::with_capacity(SPANS),
        }
    }

    /// Advances to the end of the run.
    pub(super) fn finish(&mut self, end: u64) {
        self.advance(end);
        for loader in &mut self.loaders {
            let part = if loader.holds { &mut loader.holding } else { &mut loader.loading };
            *part += end - loader.since;
        }
    }

    fn advance(&mut self, time: u64) {
        if time == self.now {
            return;
        }
        let levels = self.levels_now;
        self.sums.add(levels, time - self.now);
        if self.taken > 0 {
            let (least, most) = self.levels.unwrap_or((levels.queue, levels.queue));
            self.levels = Some((least.min(levels.queue), most.max(levels.queue)));
        }
        while time > self.span.saturating_mul(SPANS as u64) {
            self.halve();
        }
        while self.now < time {
            let number = (self.now / self.span) as usize;
            let until = time.min((number as u64 + 1) * self.span);
            self.spans.resize(self.spans.len().max(number + 1), Sums::default());
            self.spans[number].add(levels, until - self.now);
            self.now = until;
        }
    }

    fn halve(&mut self) {
        self.span = self.span.saturating_mul(2);
        let joined = self.spans.chunks(2).map(|pair| {
            let mut sums = pair[0];
            pair[1..].iter().for_each(|other| sums.join(*other));
            sums
        });
        self.spans = joined.collect();
    }

    pub(super) fn series(&self) -> Series {
        let span = |number: usize| {
            let begin = number as u64 * self.span;
            (self.now - begin).min(self.span).max(1) as f64
        };
        let course = |of: fn(&Sums) -> u128| -> Vec<f64> {
            let mean = |(number, sums)| of(sums) as f64 / span(number);
            // Four digits are more than a chart shows, and keep files small.
            self.spans
                .iter()
                .enumerate()
                .map(mean)
                .map(|mean: f64| (mean * 1e4).round() / 1e4)
                .collect()
        };
        let [copies, decodes] = self.on_device;
        let course_if = |is_there: bool, of: fn(&Sums) -> u128| {
            if is_there { course(of) } else { Vec::new() }
        };
        Series {
            span_s: seconds(self.span),
            queue: course(|sums| sums.queue),
            loading: course(|sums| sums.loading),
            holding: course(|sums| sums.holding),
            copy: course_if(copies, |sums| sums.copying),
            decode: course_if(decodes, |sums| sums.decoding),
            model: course(|sums| sums.stepping),
        }
    }
}

impl Observer for Tally {
    fn see(&mut self, time: u64, event: Event, _: u64, loader: usize) {
        self.advance(time);
        let levels = &mut self.levels_now;
        let times = &mut self.loaders[loader];
        match event {
            Event::Begun => {
                levels.loading += 1;
                (times.since, times.holds) = (time, false);
            }
            Event::Loaded => {
                (levels.loading, levels.holding) = (levels.loading - 1, levels.holding + 1);
                self.loaded += 1;
                times.loaded += 1;
                times.loading += time - times.since;
                (times.since, times.holds) = (time, true);
            }
            Event::Queued => {
                (levels.holding, levels.queue) = (levels.holding - 1, levels.queue + 1);
                self.queued += 1;
                times.holding += time - times.since;
            }
            Event::Taken => {
                (levels.queue, levels.waiting) = (levels.queue - 1, 1);
                self.taken += 1;
            }
            Event::Copying => levels.copying = 1,
            Event::Copied => levels.copying = 0,
            Event::Decoding => levels.decoding = 1,
            Event::Decoded => levels.decoding = 0,
            Event::Stepping => {
                levels.stepping = 1;
                self.stepped += 1;
            }
            Event::Done => {
                levels.stepping = 0;
                self.done += 1;
            }
        }
        if event == self.placed {
            levels.waiting = 0;
        }
    }
}
