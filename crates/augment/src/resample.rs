//! The operation that moves the pixels of a batch, for any engine.

use crate::geometry::{Interpolation, Outside, Source};
use crate::matrix::{Matrix, Whole};

/// How the pixels of one sample move.
#[derive(Clone, Debug, PartialEq)]
pub enum Resampling {
    /// They stay in place.
    Keep,
    /// They only change places.
    Places(Whole),
    /// They are resampled.
    Sample(Source),
}

/// The settings that the augmentations of one move share.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResampleOptions {
    /// How pixels outside the frame are made.
    pub outside: Option<Outside>,
    /// How values between pixels are computed.
    pub interpolation: Option<Interpolation>,
}

/// How one array is moved: an image, or labels.
#[derive(Clone, Copy, Debug)]
pub struct ResampleJob<'a> {
    /// Rows and columns of the result.
    pub to: [usize; 2],
    /// The move of every sample.
    pub moves: &'a [Resampling],
    /// Whether this array contains labels: then the maps of masks are used, and the nearest pixel
    /// without arithmetic.
    pub labels: bool,
    /// The value outside the frame, if the padding is a constant.
    pub fill: f64,
    /// The settings that the augmentations share.
    pub together: ResampleOptions,
}

impl ResampleJob<'_> {
    /// The map for a resampled array.
    pub fn map<'s>(&self, source: &'s Source) -> &'s Matrix {
        if self.labels { &source.mask } else { &source.image }
    }

    /// Whether the nearest pixel is taken.
    pub fn nearest(&self) -> bool {
        self.labels || self.together.interpolation == Some(Interpolation::Nearest)
    }

    /// How pixels outside the frame are made, if they matter.
    pub fn outside(&self) -> Option<Outside> {
        self.together.outside
    }
}
