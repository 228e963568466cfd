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

/// How values between pixels are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// From the four nearest pixels. Masks always use the nearest.
    #[default]
    Bilinear,
    /// The value of the nearest pixel.
    Nearest,
}

option_names!(Interpolation, "interpolation", { Bilinear => "bilinear", Nearest => "nearest" });

/// The values outside the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Padding {
    /// Zeros (or `fill`); masks get `mask_fill`.
    #[default]
    Zeros,
    /// The outermost pixels, repeated.
    Border,
    /// The frame, mirrored: at the centres of the outermost pixels with `align_corners`, otherwise at their edges.
    Reflection,
}

option_names!(Padding, "padding", { Zeros => "zeros", Border => "border", Reflection => "reflection" });

/// How pixels outside the frame are made, if an operation needs any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outside {
    /// The kind of padding.
    pub padding: Padding,
    /// Value used instead of zero.
    pub fill: f64,
    /// Whether frames are mirrored at the centres of the outermost pixels instead of their edges.
    pub align_corners: bool,
}

/// The source of one sample's pixels: maps from the result's pixels to the frame's.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// For images.
    pub image: Matrix,
    /// For masks.
    pub mask: Matrix,
    /// Positions outside are clamped to these pixels (minimum x, maximum x, minimum y, maximum y) instead of the frame.
    pub bounds: Option<[f64; 4]>,
    /// Displacements of elastic warps, which are applied first.
    pub elastic: Option<Field>,
}

/// A field of displacements, generated from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Seed of the noise.
    pub seed: u64,
    /// Rows and columns of the smoothing kernel.
    pub kernel: [usize; 2],
    /// Standard deviations of the kernel along rows and columns, in pixels.
    pub sigma: [f64; 2],
    /// Displacement along x and y in pixels for a smoothed value of 1.
    pub pixels: [f64; 2],
}

impl Source {
    /// The same map for images and masks.
    pub fn map(map: Matrix) -> Self {
        Self { image: map, mask: map, bounds: None, elastic: None }
    }

    /// The identity: pixels stay.
    pub fn nothing() -> Self {
        Self::map(Matrix::IDENTITY)
    }
}

/// The Kornia version whose arithmetic warps follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum KorniaCompat {
    /// 0.9: matrices are applied exactly.
    #[default]
    #[serde(rename = "0.9")]
    V0_9,
    /// 0.8 and earlier: without `align_corners`, warps are scaled and shifted by a fraction of a pixel.
    #[serde(rename = "0.8")]
    V0_8,
}

option_names!(KorniaCompat, "version of Kornia", { V0_9 => "0.9", V0_8 => "0.8" });

/// A geometric operation.
pub(crate) trait Geometric {
    /// The frame after the operation.
    fn frame(&self, frame: Frame) -> Result<Frame> {
        Ok(frame)
    }
    /// The source of the pixels.
    fn source(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source>;
    /// The same map for points, without the small shifts that decide between two pixels.
    fn points(&self, drawn: &Drawn, frame: Frame, compat: KorniaCompat) -> Result<Source> {
        self.source(drawn, frame, compat)
    }
    /// How pixels outside the frame are made, if any are needed.
    fn outside(&self) -> Option<Outside> {
        None
    }
    /// How values between pixels are computed; `None` if none are needed.
    fn interpolation(&self) -> Option<Interpolation> {
        None
    }
    /// Whether it can be merged into one move with the operations before it.
    fn follows(&self) -> bool {
        true
    }
    /// Whether it can be merged into one move with the operations after it.
    fn precedes(&self) -> bool {
        true
    }
}
