//! Where the pixels of a result come from: maps of the plane, interpolation, padding.

use hsipack_format::option_names;
use serde::{Deserialize, Serialize};

use crate::matrix::Matrix;

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
    /// The frame, mirrored: at the centres of the outermost pixels with `align_corners`, otherwise
    /// at their edges.
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
    /// Positions outside are clamped to these pixels (minimum x, maximum x, minimum y, maximum y)
    /// instead of the frame.
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
    /// 0.8 and earlier: without `align_corners`, warps are scaled and shifted by a fraction of a
    /// pixel.
    #[serde(rename = "0.8")]
    V0_8,
}

option_names!(KorniaCompat, "version of Kornia", { V0_9 => "0.9", V0_8 => "0.8" });
