//! Which augmentations a benchmark applies.

use hsipack_read::augment::{Affine, Flip, Op, Padding, Pipeline, Range};
use serde::{Deserialize, Serialize};

/// How cubes are augmented.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Augment {
    /// No augmentation.
    None,
    /// As in the published benchmark: an affine map for half of the cubes, and a flip along each
    /// axis for a quarter.
    #[default]
    Published,
    /// By a list of the user.
    Pipeline(Pipeline),
}

impl Augment {
    /// The list of augmentations; `None` if there are none.
    pub fn pipeline(&self, seed: u64) -> Option<Pipeline> {
        match self {
            Self::None => None,
            Self::Published => Some(Pipeline { seed, ..published() }),
            Self::Pipeline(pipeline) => Some(pipeline.clone()),
        }
    }
}

/// The published benchmark's augmentations: an affine map (±45°, 6.25 %, 0.9 to 1.1, reflection)
/// for half of the cubes, and a flip along each axis for a quarter of them.
pub fn published() -> Pipeline {
    let flip = Flip { p: 0.25 };
    Pipeline::new(vec![
        Op::Affine(Affine {
            p: 0.5,
            degrees: Range::around_zero(45.0),
            translate: [0.0625, 0.0625],
            scale: Range::new(0.9, 1.1),
            padding: Padding::Reflection,
            ..Affine::default()
        }),
        Op::Hflip(flip.clone()),
        Op::Vflip(flip),
    ])
}
