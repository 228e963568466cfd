//! A model with something changed.

use hsipack_format::{Opt, remedy};
use serde::{Deserialize, Serialize};

use super::model::{Model, Order};
use super::times::Times;
use crate::{Error, Result};

/// How a time changes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Multiplied by this factor.
    Factor(f64),
    /// To this mean in seconds; the spread changes in proportion.
    Seconds(f64),
}

impl Change {
    fn of(self, times: &Times) -> Times {
        match self {
            Self::Factor(factor) => times.times(factor),
            Self::Seconds(mean) => times.times(mean / times.mean_s()),
        }
    }

    /// Changes the times of a stage that a model may lack.
    fn of_stage(self, stage: &mut Option<Times>, option: Opt) -> Result<()> {
        *stage = Some(match (&stage, self) {
            (Some(times), change) => change.of(times),
            (None, Self::Seconds(mean)) => Times::new(mean, 0.0),
            (None, Self::Factor(_)) => {
                return Err(Error::conflict("there is no such time to multiply")
                    .with_remedy(remedy!["give ", option, ", or change it to a time"]));
            }
        });
        Ok(())
    }
}

/// A change to a model. If all fields are `None`, nothing changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WhatIf {
    /// The change in the user's words.
    pub name: String,
    /// Number of workers. If each worker loads its own batches, this is the number of loaders, and
    /// the queue keeps the same number of places per loader. If all workers share each batch, the
    /// load time changes in proportion instead, as if loading depended only on threads.
    pub workers: Option<usize>,
    /// The load time, applied after `workers`.
    pub load: Option<Change>,
    /// The time to copy a batch to the device. A time in seconds adds the copy if there is none.
    pub copy: Option<Change>,
    /// The time to decode a batch on the device. A time in seconds adds the decoding if there is
    /// none.
    pub decode: Option<Change>,
    /// Number of batches that can be on the device. If this change adds a stage so that batches are
    /// now copied and decoded, one more by default.
    pub device_slots: Option<usize>,
    /// The step time.
    pub step: Option<Change>,
    /// Places in the queue, applied after `workers`.
    pub queue: Option<usize>,
    /// Which batch the model gets next.
    pub order: Option<Order>,
}

impl Model {
    /// Applies a change to this model.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn changed(&self, change: &WhatIf) -> Result<Self> {
        let mut model = self.clone();
        match (change.workers, model.threads) {
            (Some(0), _) => {
                return Err(Error::conflict("there are 0 workers").with_remedy("choose at least 1"));
            }
            (Some(workers), Some(threads)) => {
                model.load = model.load.times(threads as f64 / workers as f64);
                model.threads = Some(workers);
            }
            (Some(workers), None) => {
                let queue = model.queue as f64 * workers as f64 / model.loaders as f64;
                (model.loaders, model.queue) = (workers, queue.round() as usize);
            }
            (None, _) => {}
        }
        if let Some(load) = change.load {
            model.load = load.of(&model.load);
        }
        let copied_ahead = Self::copies_ahead(model.copy.as_ref(), model.decode.as_ref());
        if let Some(copy) = change.copy {
            copy.of_stage(&mut model.copy, Opt::CopyTime)?;
        }
        if let Some(decode) = change.decode {
            decode.of_stage(&mut model.decode, Opt::DecodeTime)?;
        }
        let copies_ahead = Self::copies_ahead(model.copy.as_ref(), model.decode.as_ref());
        model.device_slots += usize::from(copies_ahead && !copied_ahead);
        model.device_slots = change.device_slots.unwrap_or(model.device_slots);
        if let Some(step) = change.step {
            model.step = step.of(&model.step);
        }
        model.queue = change.queue.unwrap_or(model.queue);
        model.order = change.order.unwrap_or(model.order);
        model.check()?;
        Ok(model)
    }
}
