//! Augmentations that move pixels.
//!
//! | file | augmentations |
//! |---|---|
//! | `turns.rs` | flips and quarter turns: pixels change places |
//! | `warps.rs` | affine maps, rotation, perspective, elastic fields: pixels are interpolated |
//! | `frames.rs` | crops, resizing, padding: the frame changes |

mod frames;
mod turns;
mod warps;

use serde::{Deserialize, Serialize};

use super::super::matrix::Matrix;
use super::{Drawn, Frame};
pub use frames::{CenterCrop, PadTo, RandomCrop, Resize, ResizedCrop};
use hsipack_format::{Result, option_names};
pub use turns::{Flip, Rot90};
pub use warps::{Affine, Elastic, Perspective, Rotate};

/// How values between pixels come about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// From the four nearest pixels. Masks always take the nearest.
    #[default]
    Bilinear,
    /// The nearest pixel's.
    Nearest,
}

option_names!(Interpolation, "interpolation", { Bilinear => "bilinear", Nearest => "nearest" });

/// What lies outside the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Zeros (or `fill`); masks are given `mask_fill`.
    #[default]
    Zeros,
    /// The outermost pixels, again and again.
    Border,
    /// The frame mirrored: about the outermost pixels' centres with `align_corners`, about their edges without.
    Reflection,
}

option_names!(Padding, "padding", { Zeros => "zeros", Border => "border", Reflection => "reflection" });

/// How pixels outside the frame are made, as far as an operation needs any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outside {
    /// How.
    pub padding: Padding,
    /// What zeros are replaced with.
    pub fill: f64,
    /// Whether mirrors stand at the outermost pixels' centres, not their edges.
    pub align_corners: bool,
}

/// Where the pixels of one sample's result come from: maps of the result's pixels to the frame's.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// For images.
    pub image: Matrix,
    /// For masks.
    pub mask: Matrix,
    /// What is outside is clamped to these pixels (least x, greatest x, least y, greatest y) instead of the frame.
    pub bounds: Option<[f64; 4]>,
    /// Displacements that come first, of elastic warps.
    pub elastic: Option<Field>,
}

/// A field of displacements, made from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What its numbers are made from.
    pub seed: u64,
    /// Rows and columns of the kernel that smooths it.
    pub kernel: [usize; 2],
    /// Standard deviations of the kernel along rows and columns, in pixels.
    pub sigma: [f64; 2],
    /// Pixels along x and y for a smoothed number of 1.
    pub pixels: [f64; 2],
}

impl Source {
    /// The same map for images and masks.
    pub fn map(map: Matrix) -> Self {
        Self { image: map, mask: map, bounds: None, elastic: None }
    }

    /// Pixels stay.
    pub fn nothing() -> Self {
        Self::map(Matrix::IDENTITY)
    }
}

/// Which Kornia the arithmetic of warps follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KorniaCompat {
    /// 0.9: matrices mean what they say.
    #[default]
    #[serde(rename = "0.9")]
    V0_9,
    /// 0.8 and before: without `align_corners`, warps are scaled and moved by part of a pixel.
    #[serde(rename = "0.8")]
    V0_8,
}

option_names!(KorniaCompat, "version of Kornia", { V0_9 => "0.9", V0_8 => "0.8" });

/// A geometric operation.
pub(crate) trait Geometric {
    /// The frame that comes out.
    fn frame(&self, frame: Frame) -> Result<Frame> {
        Ok(frame)
    }
    /// Where the pixels come from.
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source>;
    /// The same for points, without what decides which of two pixels is taken.
    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        self.source(drawn, frame, compat)
    }
    /// What is needed from outside the frame.
    fn outside(&self) -> Option<Outside> {
        None
    }
    /// How values between pixels come about; `None` if there are none.
    fn interpolation(&self) -> Option<Interpolation> {
        None
    }
    /// Whether it can be one move with those before it.
    fn follows(&self) -> bool {
        true
    }
    /// Whether it can be one move with those after it.
    fn precedes(&self) -> bool {
        true
    }
}
