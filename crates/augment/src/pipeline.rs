//! A list of augmentations, and drawing parameters for a batch.

use serde::{Deserialize, Deserializer, Serialize};

use hsipack_format::{Error, Result};

use crate::drawn::{Drawn, SampleKey};
use crate::frame::Frame;
use crate::geometry::KorniaCompat;
use crate::matrix::Matrix;
use crate::ops::{self, ImageBands, Op};
use crate::parameters::{Parameters, Step};

/// A list of augmentations, and how they are applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// The augmentations, in order.
    pub ops: Vec<Op>,
    /// Seed of all random numbers. In JSON, `null` and no seed mean that the program chooses one;
    /// here it is 0 then.
    #[serde(default, deserialize_with = "seed_or_zero")]
    pub seed: u64,
    /// Whether to merge consecutive geometric augmentations into one warp, so that pixels are
    /// interpolated once. Otherwise each one resamples, as in Kornia.
    #[serde(default = "yes")]
    pub fuse: bool,
    /// Label of mask pixels without a source: outside the frame, in erased rectangles and in hidden
    /// patches.
    #[serde(default)]
    pub mask_fill: MaskFill,
    /// The Kornia version whose arithmetic warps follow.
    #[serde(default)]
    pub kornia: KorniaCompat,
    /// Names of the images whose values augmentations change: `image`, or further images.
    /// Augmentations that move pixels move all images.
    #[serde(default = "image_only", skip_serializing_if = "is_image_only")]
    pub arrays: Vec<String>,
}

/// The name of the image in [`Pipeline::arrays`].
pub(crate) const IMAGE: &str = "image";

fn image_only() -> Vec<String> {
    vec![IMAGE.to_owned()]
}

fn is_image_only(arrays: &[String]) -> bool {
    arrays == [IMAGE]
}

fn seed_or_zero<'de, D: Deserializer<'de>>(json: D) -> std::result::Result<u64, D::Error> {
    Ok(Option::deserialize(json)?.unwrap_or_default())
}

/// One label for all masks, or one for each mask by name. In JSON, a number or an object of
/// numbers. Masks that the object does not name get 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MaskFill {
    /// The same label for all masks.
    All(i64),
    /// Labels by the names of the masks.
    Each(std::collections::BTreeMap<String, i64>),
}

impl Default for MaskFill {
    fn default() -> Self {
        Self::All(0)
    }
}

impl MaskFill {
    /// Whether it has a label for the mask with this name alone.
    pub(crate) fn names(&self, mask: &str) -> bool {
        matches!(self, Self::Each(labels) if labels.contains_key(mask))
    }

    /// The label for the mask with this name.
    pub fn of(&self, mask: &str) -> i64 {
        match self {
            Self::All(label) => *label,
            Self::Each(labels) => labels.get(mask).copied().unwrap_or(0),
        }
    }
}

impl Pipeline {
    /// These augmentations, merged where possible, with seed 0.
    pub fn new(ops: Vec<Op>) -> Self {
        let (mask_fill, kornia) = (MaskFill::default(), KorniaCompat::default());
        Self { ops, seed: 0, fuse: true, mask_fill, kornia, arrays: image_only() }
    }

    /// Reads a pipeline from JSON, as written by [`to_json`](Self::to_json) or by hand: an object
    /// with `ops` and optionally `seed`, `fuse`, `mask_fill`, `kornia` and `arrays`, or only the
    /// list of augmentations.
    ///
    /// # Errors
    /// If the JSON is not valid; the error says where.
    pub fn from_json(json: &str) -> Result<Self> {
        let bad = |error: serde_json::Error| {
            Error::malformed(format!("this is not a list of augmentations: {error}"))
                .with_remedy("give a list such as [{\"op\": \"hflip\", \"p\": 0.5}]")
                .caused_by(error)
        };
        if json.trim_start().starts_with('[') {
            return Ok(Self::new(serde_json::from_str(json).map_err(bad)?));
        }
        serde_json::from_str(json).map_err(bad)
    }

    /// Writes the pipeline as JSON, with every option.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data")
    }

    /// Whether an augmentation names this mask.
    pub fn needs(&self, mask: &str) -> bool {
        self.ops.iter().any(|op| op.masks().any(|name| name == mask))
    }

    /// Whether an augmentation may give a sample pixels from other samples of its batch. If none
    /// does, the result for a sample does not depend on the other samples in the batch:
    /// [`Parameters::of_sample`].
    pub fn takes_from_others(&self) -> bool {
        self.ops.iter().any(Op::takes_from_others)
    }

    /// Whether an augmentation draws the bands that images have: [`Parameters::bands`].
    pub fn draws_bands(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::RandomBands(_)))
    }

    /// Whether images need only the bands that [`needed_bands`](Self::needed_bands) returns: bands
    /// are drawn before anything else uses the images.
    pub fn draws_bands_first(&self) -> bool {
        let restores = self.ops.iter().any(|op| matches!(op, Op::ValidGuard(_)));
        matches!(self.ops.first(), Some(Op::RandomBands(_))) && self.arrays == [IMAGE] && !restores
    }

    /// For every sample of a batch, the bands that the first augmentation draws, as
    /// [`draw`](Self::draw) does.
    ///
    /// # Errors
    /// As [`frame`](Self::frame).
    pub fn needed_bands(
        &self,
        frame: Frame,
        epoch: u64,
        samples: &[SampleKey],
    ) -> Result<Vec<Vec<usize>>> {
        let first = Self { ops: self.ops[..1].to_vec(), ..self.clone() };
        let drawn = first.draw(frame, epoch, samples)?.bands(&first)?;
        drawn.ok_or_else(|| Error::bug("the first augmentation draws no bands"))
    }

    /// Whether an augmentation resamples spectra to other bands. It needs the bands of the images:
    /// [`with_bands`](Self::with_bands).
    pub fn resamples_bands(&self) -> bool {
        self.ops.iter().any(|op| matches!(op, Op::Resample(_)))
    }

    /// The same for images with these bands.
    ///
    /// # Errors
    /// If the wavelengths do not fit, or bands are drawn before they are resampled.
    pub fn with_bands(mut self, bands: &ImageBands) -> Result<Self> {
        let mut bands = bands.clone();
        let mut draws = false;
        for op in &mut self.ops {
            match op {
                Op::Resample(_) if draws => {
                    return Err(Error::conflict(
                        "resample comes after random_bands, whose images have other wavelengths in each batch",
                    )
                    .with_remedy("put resample before random_bands"));
                }
                Op::Resample(resample) => {
                    resample.source = Some(bands);
                    bands = resample.target().map_err(|error| error.within("resample"))?;
                }
                Op::RandomBands(_) => draws = true,
                _ => {}
            }
        }
        Ok(self)
    }

    /// The bands that resampled images have, before bands of them are drawn; `None` if no
    /// augmentation resamples.
    ///
    /// # Errors
    /// If the bands of the images are unknown.
    pub fn resampled_bands(&self) -> Result<Option<ImageBands>> {
        let last = self.ops.iter().rev().find_map(|op| match op {
            Op::Resample(resample) => Some(resample.target()),
            _ => None,
        });
        last.transpose()
    }

    /// The bands of images that resampled ones are made of; `None` if no augmentation resamples.
    ///
    /// # Errors
    /// If the bands of the images are unknown.
    pub fn used_bands(&self) -> Result<Option<Vec<usize>>> {
        let first = self.ops.iter().find_map(|op| match op {
            Op::Resample(resample) => Some(resample.response()),
            _ => None,
        });
        Ok(first.transpose()?.map(|response| response.used_bands()))
    }

    /// The output frame for an input frame.
    ///
    /// # Errors
    /// If options are not valid, or do not fit the frame.
    pub fn frame(&self, frame: Frame) -> Result<Frame> {
        self.ops.iter().try_fold(frame, |frame, op| op.frame(frame))
    }

    /// Draws parameters for a batch. The parameters of a sample depend only on seed, epoch and its
    /// own key. Only its partners in mixing also depend on the other samples in the batch.
    ///
    /// # Errors
    /// As [`frame`](Self::frame).
    pub fn draw(&self, frame: Frame, epoch: u64, samples: &[SampleKey]) -> Result<Parameters> {
        let mut steps = Vec::with_capacity(self.ops.len());
        let mut now = frame;
        for (number, op) in self.ops.iter().enumerate() {
            let next = op.frame(now)?;
            let draw = ops::Draw { key: [self.seed, epoch], op: number, samples, frame: now };
            steps.push(Step { op: op.name().to_owned(), drawn: op.draw(draw)? });
            now = next;
        }
        Ok(Parameters { frame, steps })
    }
}

impl Parameters {
    /// Checks that the parameters belong to `pipeline` and to a batch of `samples`. Returns the
    /// frame before every step, and the final one.
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

    /// For every sample, the bands of the input that its image has after augmentation, in their
    /// order. `None` if no augmentation draws bands.
    ///
    /// # Errors
    /// If the parameters do not belong to `pipeline`.
    pub fn bands(&self, pipeline: &Pipeline) -> Result<Option<Vec<Vec<usize>>>> {
        if !pipeline.draws_bands() {
            return Ok(None);
        }
        let samples = self.steps.first().map_or(0, |step| step.drawn.len());
        self.frames(pipeline, samples)?;
        let mut bands: Option<Vec<Vec<usize>>> = None;
        let steps = pipeline.ops.iter().zip(&self.steps);
        for (_, step) in steps.filter(|(op, _)| matches!(op, Op::RandomBands(_))) {
            let before = bands.take();
            let of_sample = |(sample, drawn): (usize, &Option<Drawn>)| match (drawn, &before) {
                (Some(Drawn::Bands { bands }), None) => Ok(bands.clone()),
                (Some(Drawn::Bands { bands }), Some(before)) => {
                    let of_input = bands.iter().map(|band| before[sample].get(*band).copied());
                    of_input.collect::<Option<_>>().ok_or_else(|| Drawn::Plain.misfit(&step.op))
                }
                (Some(other), _) => Err(other.misfit(&step.op)),
                (None, _) => Err(Drawn::Plain.misfit(&step.op)),
            };
            bands = Some(step.drawn.iter().enumerate().map(of_sample).collect::<Result<_>>()?);
        }
        Ok(bands)
    }

    /// For every sample, the map of points from the input to the output, over all geometric
    /// augmentations. `None` for a sample with an elastic field, which is not a projective map, and
    /// for one whose only row or column was resized with its centre kept, because its pixel goes to
    /// several.
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

fn yes() -> bool {
    true
}
