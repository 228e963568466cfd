//! A list of augmentations, and drawing for a batch.

use serde::{Deserialize, Serialize};

use hsipack_format::{Error, Result};

use crate::ops::{self, Frame, KorniaCompat, Op, SampleKey};
use crate::parameters::{Parameters, Step};

/// A list of augmentations and how to go about them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// The augmentations, in order.
    pub ops: Vec<Op>,
    /// Seed of everything drawn.
    #[serde(default)]
    pub seed: u64,
    /// Consecutive geometric augmentations are one warp, so that pixels are interpolated once. Without, every one
    /// resamples, as Kornia does.
    #[serde(default = "yes")]
    pub fuse: bool,
    /// What masks are given where there is nothing: outside the frame, in erased rectangles and hidden patches.
    #[serde(default)]
    pub mask_fill: MaskFill,
    /// Which Kornia the arithmetic of warps follows.
    #[serde(default)]
    pub kornia: KorniaCompat,
}

/// A label for all masks, or for each by name. In JSON a number, or an object of numbers; masks that it does not
/// name are given 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MaskFill {
    /// The same for all masks.
    All(i64),
    /// By the masks' names.
    Each(std::collections::BTreeMap<String, i64>),
}

impl Default for MaskFill {
    fn default() -> Self {
        Self::All(0)
    }
}

impl MaskFill {
    /// The label for the mask of that name.
    pub fn of(&self, mask: &str) -> i64 {
        match self {
            Self::All(label) => *label,
            Self::Each(labels) => labels.get(mask).copied().unwrap_or(0),
        }
    }
}

impl Pipeline {
    /// These augmentations, fused, with seed 0.
    pub fn new(ops: Vec<Op>) -> Self {
        let (mask_fill, kornia) = (MaskFill::default(), KorniaCompat::default());
        Self { ops, seed: 0, fuse: true, mask_fill, kornia }
    }

    /// Reads what [`to_json`](Self::to_json) wrote, or a user: an object with `ops` and, where they are not to be the
    /// defaults, `seed`, `fuse`, `mask_fill` and `kornia`; or the list of augmentations alone.
    ///
    /// # Errors
    /// If it is something else; where and what is named.
    pub fn from_json(json: &str) -> Result<Self> {
        let bad = |error: serde_json::Error| {
            Error::malformed(format!("these are no augmentations: {error}"))
                .with_remedy("give a list such as [{\"op\": \"hflip\", \"p\": 0.5}]")
                .caused_by(error)
        };
        if json.trim_start().starts_with('[') {
            return Ok(Self::new(serde_json::from_str(json).map_err(bad)?));
        }
        serde_json::from_str(json).map_err(bad)
    }

    /// As JSON, with every option.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data")
    }

    /// Whether an augmentation names this mask.
    pub fn needs(&self, mask: &str) -> bool {
        self.ops.iter().any(|op| op.masks().any(|name| name == mask))
    }

    /// Whether an augmentation may give a sample pixels of others of its batch. Where none does, what becomes of a sample
    /// does not depend on who else is in the batch: [`Parameters::of_sample`].
    pub fn takes_from_others(&self) -> bool {
        self.ops.iter().any(Op::takes_from_others)
    }

    /// The frame that comes out for one that goes in.
    ///
    /// # Errors
    /// If options mean nothing, or do not fit the frame.
    pub fn frame(&self, frame: Frame) -> Result<Frame> {
        self.ops.iter().try_fold(frame, |frame, op| op.frame(frame))
    }

    /// Draws for a batch. What a sample is given depends on seed, epoch and its own key alone (its partners in
    /// mixing, of course, on who else is in the batch).
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

fn yes() -> bool {
    true
}
