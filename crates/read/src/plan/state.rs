//! The state to save with a checkpoint, so that training goes on with exactly the next batch.

use serde::{Deserialize, Serialize};

use super::{Plan, plural};
use crate::{Error, Result};
use hsipack_format::{Opt, random, remedy};

/// The version of the state that this version of hsipack writes.
const VERSION: u32 = 1;

/// Batches of an epoch that were given with one batch size and one world size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Number of items in a rank's batch.
    pub batch_size: usize,
    /// Number of processes that trained together.
    pub world_size: usize,
    /// Global batches given. Each rank got this number of batches.
    pub batches: usize,
}

impl Segment {
    /// The error that the epoch had fewer batches `left`.
    pub(super) fn is_too_long(&self, remaining: usize) -> Error {
        Error::state(format!(
            "the training state belongs to another epoch: {} of {} x {} items were read, but the epoch had only {remaining} left",
            plural(self.batches, "batch"),
            self.world_size,
            self.batch_size,
        ))
        .with_remedy("resume with the dataset and options of the saved state")
    }
}

/// How far training has come in a dataset. It is the same on every rank.
///
/// [`EpochPlan::state`](super::EpochPlan::state) returns a state. [`State::check`] says whether a
/// plan can go on from it. Then pass its `epoch` and `delivered` to [`Plan::epoch`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Version of the state.
    pub version: u32,
    /// The epoch that training is in.
    pub epoch: u64,
    /// Seed of the orders and crops.
    pub seed: u64,
    /// Fingerprint of the dataset, or of all datasets together.
    pub fingerprint: String,
    /// [`Plan::digest`] of the plan whose batches were given, or of all plans together.
    pub plan: String,
    /// The epoch's batches that were delivered, oldest first.
    #[serde(rename = "given")]
    pub delivered: Vec<Segment>,
    /// Bytes of the loader's shuffle window, if it had one: the order depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<u64>,
    /// If the loader reads several datasets, each of them in order; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<DatasetState>,
}

/// One of several datasets in a [`State`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetState {
    /// Fingerprint of the dataset.
    pub fingerprint: String,
    /// [`Plan::digest`] of its plan.
    pub plan: String,
    /// Bytes of its shuffle window, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shuffle_window: Option<u64>,
}

impl From<State> for DatasetState {
    fn from(state: State) -> Self {
        let State { fingerprint, plan, shuffle_window, .. } = state;
        Self { fingerprint, plan, shuffle_window }
    }
}

impl State {
    /// The state before the first batch of an epoch.
    pub fn new(plan: &Plan, fingerprint: impl Into<String>, epoch: u64) -> Self {
        Self {
            version: VERSION,
            epoch,
            seed: plan.options().seed,
            fingerprint: fingerprint.into(),
            plan: plan.digest().to_owned(),
            delivered: Vec::new(),
            shuffle_window: None,
            datasets: Vec::new(),
        }
    }

    /// The state of several datasets together, from the state of each. If only one of them gives
    /// samples, it is the state of this one, but for the seed.
    pub(crate) fn joined(mut states: Vec<Self>, seed: u64) -> Self {
        if states.len() == 1 {
            return Self { seed, ..states.remove(0) };
        }
        let together = |of: &dyn Fn(&Self) -> &str| {
            let bytes = states.iter().flat_map(|state| of(state).bytes().chain([0]));
            format!("{:016x}", random::fold(bytes.map(u64::from)))
        };
        Self {
            version: VERSION,
            epoch: states.first().map_or(0, |state| state.epoch),
            seed,
            fingerprint: together(&|state| &state.fingerprint),
            plan: together(&|state| &state.plan),
            delivered: Vec::new(),
            shuffle_window: None,
            datasets: states.into_iter().map(DatasetState::from).collect(),
        }
    }

    /// The state of each dataset, if there are `datasets` with these seeds. Their batches are given
    /// in turns, so `delivered` is only good for telling whether an epoch was begun.
    ///
    /// # Errors
    /// If the state is of another number of datasets.
    pub(crate) fn split(&self, seeds: &[u64]) -> Result<Vec<Self>> {
        let several = if self.datasets.is_empty() { 1 } else { self.datasets.len() };
        if several != seeds.len() {
            return Err(Error::state(format!(
                "the training state is of {}, but the loader reads {}",
                plural(several, "dataset"),
                seeds.len()
            ))
            .with_remedy("resume with the datasets of the saved state"));
        }
        let of = |(state, seed): (&DatasetState, &u64)| Self {
            seed: *seed,
            fingerprint: state.fingerprint.clone(),
            plan: state.plan.clone(),
            shuffle_window: state.shuffle_window,
            datasets: Vec::new(),
            ..self.clone()
        };
        Ok(match &*self.datasets {
            [] => vec![Self { seed: seeds[0], ..self.clone() }],
            datasets => datasets.iter().zip(seeds).map(of).collect(),
        })
    }

    /// The state after the batches `delivered` and `now` of the epoch.
    pub(crate) fn after(mut self, delivered: &[Segment], now: Segment) -> Self {
        delivered.iter().copied().chain([now]).for_each(|segment| self.give(segment));
        self
    }

    /// Whether an epoch was begun, so that its order must not change.
    pub(crate) fn is_within_epoch(&self) -> bool {
        self.delivered.iter().any(|segment| segment.batches > 0)
    }

    /// Reads a state from JSON.
    ///
    /// # Errors
    /// If it is not a state, or is a state of a later version.
    pub fn from_json(text: &str) -> Result<Self> {
        let state: Self = serde_json::from_str(text).map_err(|error| {
            Error::malformed(format!("not a training state: {error}"))
                .with_remedy("pass the state that was saved with the checkpoint")
        })?;
        state.check_version()?;
        Ok(state)
    }

    /// The state as one JSON object.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a state has string keys and whole numbers")
    }

    /// Says whether training can go on from this state with `plan` on the dataset with this
    /// fingerprint. Batch size and world size may have changed. Between epochs, other options may
    /// have changed, too, but not the seed.
    ///
    /// `samples_then` is the number of samples that the dataset had when its fingerprint was that
    /// of the state; `None` if it never had it. Samples and masks may have been added since, but
    /// within an epoch the plan must still be the same: its splits or samples must not include new
    /// ones.
    ///
    /// # Errors
    /// If it cannot; the error says what differs.
    pub fn check(&self, plan: &Plan, fingerprint: &str, samples_then: Option<usize>) -> Result<()> {
        self.check_version()?;
        if self.fingerprint != fingerprint && samples_then.is_none() {
            return Err(Error::state(format!(
                "the training state belongs to another dataset: its fingerprint is {}, but this dataset has {fingerprint}",
                self.fingerprint
            ))
            .with_remedy("open the dataset of the saved state"));
        }
        self.check_seed(plan.options().seed)?;
        if self.plan != plan.digest() && self.is_within_epoch() {
            if let Some(samples) = samples_then.filter(|_| self.fingerprint != fingerprint) {
                return Err(self.began_before(samples));
            }
            return Err(Error::state(format!(
                "the training state is in the middle of epoch {} with other samples, order, crops, shuffle window, epoch length or last batch",
                self.epoch
            ))
            .with_remedy("resume with the options of the saved state, and change them between epochs"));
        }
        Ok(())
    }

    /// Says whether the state has this seed.
    ///
    /// # Errors
    /// If it has another one.
    pub(crate) fn check_seed(&self, seed: u64) -> Result<()> {
        if self.seed == seed {
            return Ok(());
        }
        Err(Error::state(format!(
            "the training state has seed {}, but seed {seed} is requested",
            self.seed
        ))
        .with_remedy(remedy!["pass ", Opt::Seed.to(self.seed)]))
    }

    /// The error that the epoch began when the dataset had `samples`, and that it cannot be
    /// finished with those it has now.
    pub(crate) fn began_before(&self, samples: usize) -> Error {
        Error::state(format!(
            "the training state is in the middle of epoch {}, which began when the dataset had {}; cubes or masks were added since",
            self.epoch,
            plural(samples, "sample"),
        ))
        .with_remedy(remedy![
            "finish the epoch with the dataset as it was: open it with ",
            Opt::AsOf.to(self.fingerprint.clone()),
            "; the next epoch may have all samples"
        ])
    }

    fn check_version(&self) -> Result<()> {
        if self.version == VERSION {
            return Ok(());
        }
        Err(Error::unsupported(format!("the training state has version {}", self.version))
            .with_remedy("use the version of hsipack that wrote it, or a later one"))
    }

    /// Adds batches to those given.
    pub(super) fn give(&mut self, segment: Segment) {
        match self.delivered.last_mut() {
            _ if segment.batches == 0 => {}
            Some(last)
                if (last.batch_size, last.world_size)
                    == (segment.batch_size, segment.world_size) =>
            {
                last.batches = last.batches.saturating_add(segment.batches);
            }
            _ => self.delivered.push(segment),
        }
    }
}
