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

pub use frames::*;
use hsipack_format::Result;
pub use turns::*;
pub use warps::*;

use crate::drawn::Drawn;
use crate::frame::Frame;
use crate::geometry::{Interpolation, KorniaCompat, Outside, Source};

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
