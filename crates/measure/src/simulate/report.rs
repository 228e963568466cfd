//! The results of a simulation.

use serde::Serialize;

use super::bounds::{Bounds, Limit};
use super::engine;
use super::event::{Event, Observer};
use super::model::{End, Model, Order};
use super::tally::{Series, Tally};
use super::times::{Times, nanoseconds, seconds};
use super::trace::{Trace, Tracer};
use crate::Result;

/// Activity of the stages before the step on a device, as shares of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DeviceShare {
    /// Share of the time in which the link copied.
    pub copying: f64,
    /// Share of the time in which the device decoded.
    pub decoding: f64,
    /// Share of the time in which the next batch waited for a free device slot.
    pub waiting: f64,
    /// Batches that were taken from the queue and are not in the model's step, at the end.
    pub batches: u64,
}

/// Activity of one loader, as shares of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoaderShare {
    /// Share of the time in which it loaded.
    pub busy: f64,
    /// Share of the time in which it held a batch and waited.
    pub blocked: f64,
    /// Number of batches that it loaded.
    pub batches: u64,
}

/// The results for a model. Rates are in batches per second. Shares are from 0 to 1 of the whole
/// duration, including the beginning, when no batch was loaded yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Batches that the model has finished.
    pub batches: u64,
    /// Simulated time in seconds.
    pub duration_s: f64,
    /// Finished batches divided by the duration.
    pub batches_per_s: f64,
    /// Batches that were loaded. Each of them is finished, in the model's step, on the device, in
    /// the queue, or held.
    pub loaded: u64,
    /// Batches in the model's step at the end: 0 or 1.
    pub stepping: u64,
    /// Batches in the queue at the end.
    pub queued: u64,
    /// Batches that loaders hold at the end.
    pub held: u64,
    /// Share of the time in which the model waited for batches.
    pub consumer_idle: f64,
    /// Mean number of batches in the queue.
    pub queue_mean: f64,
    /// Minimum number of batches in the queue since the first one was taken.
    pub queue_min: u64,
    /// Maximum number of batches in the queue since the first one was taken.
    pub queue_max: u64,
    /// Share of all loaders' time in which they loaded.
    pub loaders_busy: f64,
    /// Share of all loaders' time in which they held a finished batch and waited for the queue, the
    /// link or the model.
    pub loaders_blocked: f64,
    /// Activity of each loader.
    pub per_loader: Vec<LoaderShare>,
    /// Activity of the link and the device; `None` if batches are neither copied nor decoded on a
    /// device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceShare>,
    /// Upper bounds of the rate.
    pub bounds: Bounds,
    /// The limit of the rate.
    pub limit: Limit,
    /// The model as it was simulated.
    pub options: Options,
    /// Time series of the run.
    pub series: Series,
}

/// A model as JSON shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Options {
    /// Number of batches that are loaded at the same time.
    pub loaders: usize,
    /// Number of threads, if all threads share each batch.
    pub threads: Option<usize>,
    /// Load times.
    pub load: Times,
    /// Copy times; `None` if batches are not copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<Times>,
    /// Decode times; `None` if the device does not decode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decode: Option<Times>,
    /// Number of device slots; `None` if batches are neither copied nor decoded on a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_slots: Option<usize>,
    /// Step times.
    pub step: Times,
    /// Places in the queue.
    pub queue: usize,
    /// Which batch the model gets next.
    pub order: Order,
    /// Seed of the random numbers.
    pub seed: u64,
    /// Requested duration in seconds.
    pub duration_s: Option<f64>,
    /// Requested number of batches.
    pub batches: Option<u64>,
}

/// A run: its results, and its first batches one by one.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The results.
    pub outcome: Outcome,
    /// The first batches.
    pub trace: Trace,
}

/// A run with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The name of the change, or of the base.
    pub name: String,
    /// The run.
    pub run: Run,
}

/// A base and its what-if changes, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The base.
    #[serde(flatten)]
    pub base: Outcome,
    /// The changes and their results.
    pub what_if: Vec<Changed>,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// The change in the user's words.
    pub name: String,
    /// Batches per second, divided by those of the base.
    pub speedup: Option<f64>,
    /// The results.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Report {
    /// Compares scenarios, the first of which is the base. `None` if there are none.
    pub fn new(scenarios: &[Scenario]) -> Option<Self> {
        let (base, others) = scenarios.split_first()?;
        let base = base.run.outcome.clone();
        let changed = |scenario: &Scenario| Changed {
            name: scenario.name.clone(),
            speedup: (base.batches > 0)
                .then(|| scenario.run.outcome.batches_per_s / base.batches_per_s),
            outcome: scenario.run.outcome.clone(),
        };
        let what_if = others.iter().map(changed).collect();
        Some(Self { base, what_if })
    }
}

/// Tally and tracer as one observer.
struct Both {
    tally: Tally,
    tracer: Tracer,
}

impl Observer for Both {
    fn see(&mut self, time: u64, event: Event, batch: u64, loader: usize) {
        self.tally.see(time, event, batch, loader);
        self.tracer.see(time, event, batch, loader);
    }
}

/// Simulates a model.
///
/// # Errors
/// If the model is not valid; see [`Model::check`].
pub fn simulate(model: &Model) -> Result<Run> {
    model.check()?;
    let duration = match model.end {
        End::Seconds(time) => Some(nanoseconds(time)),
        End::Batches(_) => None,
    };
    let tally = Tally::new(model, duration);
    let mut both = Both { tally, tracer: Tracer::default() };
    let end = engine::run(model, &mut both)?;
    let Both { mut tally, tracer } = both;
    tally.finish(end);
    Ok(Run { outcome: outcome(model, &tally), trace: tracer.finish(end) })
}

fn outcome(model: &Model, tally: &Tally) -> Outcome {
    let end = tally.now.max(1) as f64;
    let all = end * model.loaders as f64;
    let bounds = model.bounds();
    let (queue_min, queue_max) = tally.levels.unwrap_or_default();
    let share = |loader: &super::tally::LoaderTimes| LoaderShare {
        busy: loader.loading as f64 / end,
        blocked: loader.holding as f64 / end,
        batches: loader.loaded,
    };
    Outcome {
        batches: tally.done,
        duration_s: seconds(tally.now),
        batches_per_s: tally.done as f64 / seconds(tally.now.max(1)),
        loaded: tally.loaded,
        stepping: tally.stepped - tally.done,
        queued: tally.queued - tally.taken,
        held: tally.loaded - tally.queued,
        consumer_idle: (1.0 - tally.sums.stepping as f64 / end).max(0.0),
        queue_mean: tally.sums.queue as f64 / end,
        queue_min,
        queue_max,
        loaders_busy: tally.sums.loading as f64 / all,
        loaders_blocked: tally.sums.holding as f64 / all,
        per_loader: tally.loaders.iter().map(share).collect(),
        device: model.has_device().then(|| DeviceShare {
            copying: tally.sums.copying as f64 / end,
            decoding: tally.sums.decoding as f64 / end,
            waiting: tally.sums.waiting as f64 / end,
            batches: tally.taken - tally.stepped,
        }),
        bounds,
        limit: bounds.limit(),
        options: Options::of(model),
        series: tally.series(),
    }
}

impl Options {
    fn of(model: &Model) -> Self {
        let (duration_s, batches) = match model.end {
            End::Seconds(time) => (Some(time), None),
            End::Batches(batches) => (None, Some(batches)),
        };
        Self {
            loaders: model.loaders,
            threads: model.threads,
            load: model.load.clone(),
            copy: model.copy.clone(),
            decode: model.decode.clone(),
            device_slots: model.has_device().then_some(model.device_slots),
            step: model.step.clone(),
            queue: model.queue,
            order: model.order,
            seed: model.seed,
            duration_s,
            batches,
        }
    }
}
