//! What came out.

use serde::Serialize;

use super::engine::{self, Event, Observer};
use super::model::{End, Model, Order};
use super::tally::{Series, Tally};
use super::times::{Times, nanoseconds, seconds};
use super::trace::{Trace, Tracer};
use crate::Result;

/// Most batches a second, if nobody is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Loaders by the mean load time.
    pub loading: f64,
    /// One by the mean step time.
    pub step: f64,
}

/// What bounds the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Loading: the model waits.
    Loading,
    /// The model's step: loaders wait.
    Step,
    /// Both are within 10 % of each other; how unevenly batches come and how many can wait decides, too.
    Balanced,
}

hsipack_format::option_names!(Limit, "limit", {
    Loading => "loading",
    Step => "step",
    Balanced => "balanced",
});

/// What one loader did, as shares of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LoaderShare {
    /// It loaded.
    pub busy: f64,
    /// It held a batch and waited.
    pub blocked: f64,
    /// Batches that it loaded.
    pub batches: u64,
}

/// What came out of a model. Rates are batches a second, shares are from 0 to 1 of the duration, which includes the
/// beginning, when nothing was loaded yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Batches that the model has done.
    pub batches: u64,
    /// Time simulated, in seconds.
    pub duration_s: f64,
    /// Batches done by the duration.
    pub batches_per_s: f64,
    /// Batches that were loaded; all of them are done, in the model's step, in the queue or held.
    pub loaded: u64,
    /// Batches in the model's step at the end: 0 or 1.
    pub stepping: u64,
    /// Batches in the queue at the end.
    pub queued: u64,
    /// Batches that loaders hold at the end.
    pub held: u64,
    /// The model waited for batches.
    pub consumer_idle: f64,
    /// Mean number of batches in the queue.
    pub queue_mean: f64,
    /// Least number of batches in the queue since the first one was taken.
    pub queue_min: u64,
    /// Most batches in the queue.
    pub queue_max: u64,
    /// Loaders loaded, of all loaders' time.
    pub loaders_busy: f64,
    /// Loaders held a finished batch and waited: for room in the queue, or for the model.
    pub loaders_blocked: f64,
    /// Of each loader.
    pub per_loader: Vec<LoaderShare>,
    /// Most batches a second.
    pub bounds: Bounds,
    /// What bounds the rate.
    pub limit: Limit,
    /// The model as it was simulated.
    pub options: Options,
    /// The course of it.
    pub series: Series,
}

/// A model as JSON shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Options {
    /// Batches that are loaded at the same time.
    pub loaders: usize,
    /// Threads that share each batch, where they do.
    pub threads: Option<usize>,
    /// Load times.
    pub load: Times,
    /// Step times.
    pub step: Times,
    /// Places in the queue.
    pub queue: usize,
    /// Which batch the model gets next.
    pub order: Order,
    /// Of the random numbers.
    pub seed: u64,
    /// When the run was to end, in seconds.
    pub duration_s: Option<f64>,
    /// After how many batches it was to end.
    pub batches: Option<u64>,
}

/// A run: what came out, and its first batches one by one.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What came out.
    pub outcome: Outcome,
    /// The first batches.
    pub trace: Trace,
}

/// A run with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// What was changed, or what is the base.
    pub name: String,
    /// What came out.
    pub run: Run,
}

/// A base and what would be if something were changed, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The base.
    #[serde(flatten)]
    pub base: Outcome,
    /// What was changed, and what came out.
    pub what_if: Vec<Changed>,
}

/// What came out of a change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// The change in the user's words.
    pub name: String,
    /// Batches a second by the base's.
    pub speedup: Option<f64>,
    /// What came out.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Report {
    /// Of scenarios, of which the first is the base. `None` if there are none.
    pub fn new(scenarios: &[Scenario]) -> Option<Self> {
        let (base, others) = scenarios.split_first()?;
        let base = base.run.outcome.clone();
        let changed = |one: &Scenario| Changed {
            name: one.name.clone(),
            speedup: (base.batches > 0).then(|| one.run.outcome.batches_per_s / base.batches_per_s),
            outcome: one.run.outcome.clone(),
        };
        let what_if = others.iter().map(changed).collect();
        Some(Self { base, what_if })
    }
}

/// Both observers.
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
/// If it is none; see [`Model::check`].
pub fn simulate(model: &Model) -> Result<Run> {
    model.check()?;
    let known = match model.end {
        End::Seconds(time) => Some(nanoseconds(time)),
        End::Batches(_) => None,
    };
    let tally = Tally::new(model.loaders, known);
    let mut both = Both { tally, tracer: Tracer::default() };
    let end = engine::run(model, &mut both)?;
    let Both { mut tally, tracer } = both;
    tally.finish(end);
    Ok(Run { outcome: outcome(model, &tally), trace: tracer.finish(end) })
}

fn outcome(model: &Model, tally: &Tally) -> Outcome {
    let end = tally.now.max(1) as f64;
    let all = end * model.loaders as f64;
    let bounds = Bounds { loading: model.loading_bound(), step: model.step_bound() };
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
        stepping: tally.taken - tally.done,
        queued: tally.queued - tally.taken,
        held: tally.loaded - tally.queued,
        consumer_idle: (1.0 - tally.sums.stepping as f64 / end).max(0.0),
        queue_mean: tally.sums.queue as f64 / end,
        queue_min,
        queue_max,
        loaders_busy: tally.sums.loading as f64 / all,
        loaders_blocked: tally.sums.holding as f64 / all,
        per_loader: tally.loaders.iter().map(share).collect(),
        bounds,
        limit: limit(bounds),
        options: Options::of(model),
        series: tally.series(),
    }
}

fn limit(Bounds { loading, step }: Bounds) -> Limit {
    if loading < 0.9 * step {
        Limit::Loading
    } else if step < 0.9 * loading {
        Limit::Step
    } else {
        Limit::Balanced
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
            step: model.step.clone(),
            queue: model.queue,
            order: model.order,
            seed: model.seed,
            duration_s,
            batches,
        }
    }
}
