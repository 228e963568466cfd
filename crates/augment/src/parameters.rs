//! The parameters drawn for a batch.

use serde::{Deserialize, Serialize};

use super::ops::{Drawn, Frame};
use super::{Matrix, Pipeline};
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

    /// The parameters for one position of the batch, as for a batch of that sample alone. They cannot be applied if the
    /// pipeline [takes pixels from others](Pipeline::takes_from_others).
    ///
    /// # Panics
    /// If there is no such position.
    pub fn of_sample(&self, place: usize) -> Self {
        let step =
            |step: &Step| Step { op: step.op.clone(), drawn: vec![step.drawn[place].clone()] };
        Self { frame: self.frame, steps: self.steps.iter().map(step).collect() }
    }

    /// Checks that the parameters belong to `pipeline` and to a batch of `samples`. Returns the frame before every
    /// step, and the final one.
    pub(crate) fn frames(&self, pipeline: &Pipeline, samples: usize) -> Result<Vec<Frame>> {
        let names = self.steps.iter().map(|step| step.op.as_str());
        if !names.eq(pipeline.ops.iter().map(|op| op.name())) {
            return Err(Error::conflict("the parameters were drawn for other augmentations")
                .with_remedy("replay them with the pipeline that drew them"));
        }
        if let Some(step) = self.steps.iter().find(|step| step.drawn.len() != samples) {
            return Err(Error::conflict(format!(
                "{} was drawn for {} samples, but the batch has {samples}",
                step.op,
                step.drawn.len()
            ))
            .with_remedy("draw parameters for this batch"));
        }
        let mut frames = vec![self.frame];
        for (op, step) in pipeline.ops.iter().zip(&self.steps) {
            let before = frames[frames.len() - 1];
            let after = op.frame(before)?;
            if after != before && step.drawn.iter().any(Option::is_none) {
                return Err(Error::conflict(format!(
                    "{} changes the frame's size, but was not drawn for every sample",
                    step.op
                ))
                .with_remedy("replay parameters with the pipeline and the frame size that they were drawn for"));
            }
            frames.push(after);
        }
        Ok(frames)
    }

    /// For every sample, the map of points from the input to the output, over all geometric augmentations. `None` for a
    /// sample with an elastic field, which is not a projective map, and for one whose only row or column was resized
    /// with its centre kept, because its pixel goes to several.
    ///
    /// # Errors
    /// If the parameters do not belong to `pipeline`.
    pub fn matrices(&self, pipeline: &Pipeline) -> Result<Vec<Option<Matrix>>> {
        let samples = self.steps.first().map_or(0, |step| step.drawn.len());
        let frames = self.frames(pipeline, samples)?;
        let mut maps = vec![Some(Matrix::IDENTITY); samples];
        for ((op, step), frame) in pipeline.ops.iter().zip(&self.steps).zip(frames) {
            let Some(geometric) = op.geometric() else { continue };
            for (map, drawn) in maps.iter_mut().zip(&step.drawn) {
                let (Some(drawn), Some(before)) = (drawn, *map) else { continue };
                let source = geometric.points(drawn, frame, pipeline.kornia)?;
                let forward = source.image.inverse().filter(|_| source.elastic.is_none());
                *map = forward.map(|forward| forward.after(&before));
            }
        }
        Ok(maps)
    }
}
