//! What was drawn for a batch.

use serde::{Deserialize, Serialize};

use super::ops::{Drawn, Frame};
use super::{Matrix, Pipeline};
use hsipack_format::{Error, Result};

/// What was drawn for a batch: enough to explain it, or to do it again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// The frame of the images that go in.
    pub frame: Frame,
    /// One for each augmentation.
    pub steps: Vec<Step>,
}

/// What was drawn for one augmentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The augmentation's name.
    pub op: String,
    /// For every sample of the batch; `None` where the augmentation is not applied.
    pub drawn: Vec<Option<Drawn>>,
}

impl Parameters {
    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// If it is something else.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|error| {
            Error::malformed(format!("these are no parameters of augmentations: {error}"))
                .with_remedy("give what was written after drawing")
                .caused_by(error)
        })
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// What was drawn for one place of the batch, as of a batch of that sample alone. Of pipelines that
    /// [take pixels from others](Pipeline::takes_from_others) it cannot be applied.
    ///
    /// # Panics
    /// If there is no such place.
    pub fn of_sample(&self, place: usize) -> Self {
        let step =
            |step: &Step| Step { op: step.op.clone(), drawn: vec![step.drawn[place].clone()] };
        Self { frame: self.frame, steps: self.steps.iter().map(step).collect() }
    }

    /// Checks that they belong to `pipeline` and a batch of `samples`; gives the frame before every step, and the
    /// last one.
    pub(crate) fn frames(&self, pipeline: &Pipeline, samples: usize) -> Result<Vec<Frame>> {
        let names = self.steps.iter().map(|step| step.op.as_str());
        if !names.eq(pipeline.ops.iter().map(|op| op.name())) {
            return Err(Error::conflict("the parameters were drawn for other augmentations")
                .with_remedy("replay them with the pipeline that drew them"));
        }
        if let Some(step) = self.steps.iter().find(|step| step.drawn.len() != samples) {
            return Err(Error::conflict(format!(
                "{} was drawn for {} samples, the batch has {samples}",
                step.op,
                step.drawn.len()
            ))
            .with_remedy("draw for this batch"));
        }
        let mut frames = vec![self.frame];
        for (op, step) in pipeline.ops.iter().zip(&self.steps) {
            let before = frames[frames.len() - 1];
            let after = op.frame(before)?;
            if after != before && step.drawn.iter().any(Option::is_none) {
                return Err(Error::conflict(format!(
                    "{} changes the frame, but was not drawn for every sample",
                    step.op
                ))
                .with_remedy("replay parameters with the pipeline and the frame that drew them"));
            }
            frames.push(after);
        }
        Ok(frames)
    }

    /// Where every sample's points go: the map of the pixels that go in to those that come out, over all geometric
    /// augmentations; `None` for a sample that was moved by an elastic field, whose points go nowhere in a straight
    /// line, and for one of a single row or column that was resized with its centre kept, whose pixel goes to several.
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
