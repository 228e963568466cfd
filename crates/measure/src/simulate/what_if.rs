//! A model with something changed.

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
}

/// A change to a model. If all fields are `None`, nothing changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WhatIf {
    /// The change in the user's words.
    pub name: String,
    /// Number of workers. If each worker loads its own batches, this is the number of loaders, and the queue keeps the
    /// same number of places per loader. If all workers share each batch, the load time changes in proportion instead,
    /// as if loading depended only on threads.
    pub workers: Option<usize>,
    /// The load time, applied after `workers`.
    pub load: Option<Change>,
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
        if let Some(step) = change.step {
            model.step = step.of(&model.step);
        }
        model.queue = change.queue.unwrap_or(model.queue);
        model.order = change.order.unwrap_or(model.order);
        model.check()?;
        Ok(model)
    }
}
