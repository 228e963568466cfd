//! The parameters drawn for a batch.

use serde::{Deserialize, Serialize};

use crate::drawn::Drawn;
use crate::frame::Frame;
use hsipack_format::{Error, Result};

/// The parameters drawn for a batch: enough to explain or to repeat the augmentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The frame of the input images.
    pub frame: Frame,
    /// One step per augmentation.
    pub steps: Vec<Step>,
}

/// The parameters drawn for one augmentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The augmentation's name.
    pub op: String,
    /// One entry per sample of the batch; `None` if the augmentation is not applied to it.
    pub drawn: Vec<Option<Drawn>>,
}

impl Parameters {
    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// If the JSON is not valid.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| {
            Error::malformed(format!("these are not drawn parameters: {error}"))
                .with_remedy("give the JSON that was written after drawing")
                .caused_by(error)
        })
    }

    /// Writes the parameters as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// The parameters for one position of the batch, as for a batch of that sample alone. They
    /// cannot be applied if the pipeline
    /// [takes pixels from others](crate::Pipeline::takes_from_others).
    ///
    /// # Panics
    /// If there is no such position.
    pub fn of_sample(&self, index: usize) -> Self {
        let step =
            |step: &Step| Step { op: step.op.clone(), drawn: vec![step.drawn[index].clone()] };
        Self { frame: self.frame, steps: self.steps.iter().map(step).collect() }
    }
}
