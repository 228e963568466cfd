//! The source of every sample's pixels.

use hsipack_format::Result;

use crate::matrix::{Matrix, Whole};
use crate::ops::{Frame, Interpolation, KorniaCompat, Op, Outside, Source};
use crate::parameters::Step;
use crate::stages::Together;

/// What happens to the pixels of one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// They stay in place.
    Keep,
    /// They only change places.
    Places(Whole),
    /// They are resampled.
    Sample(Source),
}

/// The moves of all samples under consecutive geometric augmentations.
pub fn moves(
    ops: &[Op],
    steps: &[Step],
    frames: &[Frame],
    compat: KorniaCompat,
) -> Result<Vec<Move>> {
    let samples = steps.first().map_or(0, |step| step.drawn.len());
    let (from, to) = (frames[0], frames[frames.len() - 1]);
    (0..samples)
        .map(|sample| {
            let mut total = Source::nothing();
            let mut moved = false;
            for ((op, step), frame) in ops.iter().zip(steps).zip(frames) {
                let (Some(drawn), Some(op)) = (&step.drawn[sample], op.geometric()) else {
                    continue;
                };
                let source = op.source(drawn, *frame, compat)?;
                total = Source {
                    image: total.image.after(&source.image),
                    mask: total.mask.after(&source.mask),
                    bounds: source.bounds,
                    elastic: source.elastic,
                };
                moved = true;
            }
            let stays = total.image == Matrix::IDENTITY && total.elastic.is_none();
            if !moved || (stays && from == to) {
                return Ok(Move::Keep);
            }
            let whole = total.image.whole().filter(|whole| {
                let size = [to.rows, to.columns];
                let inside = whole.stays_inside(size, [from.rows, from.columns]);
                // Masks may come from places a fraction of a pixel away: from the same pixels, if it is less than half.
                let together = total.mask.is_within(0.5, &total.image, size);
                inside && together && total.elastic.is_none()
            });
            Ok(whole.map_or(Move::Sample(total), Move::Places))
        })
        .collect()
}

/// How one array is moved: an image, or labels.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Rows and columns of the result.
    pub to: [usize; 2],
    /// The move of every sample.
    pub moves: &'a [Move],
    /// Whether this array contains labels: then the maps of masks are used, and the nearest pixel without arithmetic.
    pub labels: bool,
    /// The value outside the frame, if the padding is a constant.
    pub fill: f64,
    /// The settings that the augmentations share.
    pub together: Together,
}

impl Job<'_> {
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
