//! Where the pixels of every sample come from.

use hsipack_format::Result;

use crate::matrix::{Matrix, Whole};
use crate::ops::{Frame, Interpolation, KorniaCompat, Op, Outside, Source};
use crate::parameters::Step;
use crate::stages::Together;

/// What happens to the pixels of one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// They stay.
    Keep,
    /// They only change places.
    Places(Whole),
    /// They are sampled.
    Sample(Source),
}

/// The moves of all samples under geometric augmentations that follow one another.
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
                let inside = whole.stays_inside([to.rows, to.columns], [from.rows, from.columns]);
                inside && total.elastic.is_none()
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
    /// What happens to every sample.
    pub moves: &'a [Move],
    /// Labels: masks' maps, the nearest pixel, no arithmetic.
    pub labels: bool,
    /// What is outside the frame is this, where padding is of one value.
    pub fill: f64,
    /// What the augmentations agree in.
    pub together: Together,
}

impl Job<'_> {
    /// The map of a sampled pixel's place.
    pub fn map<'s>(&self, source: &'s Source) -> &'s Matrix {
        if self.labels { &source.mask } else { &source.image }
    }

    /// Whether the nearest pixel is taken.
    pub fn nearest(&self) -> bool {
        self.labels || self.together.interpolation == Some(Interpolation::Nearest)
    }

    /// What is outside the frame, if that matters.
    pub fn outside(&self) -> Option<Outside> {
        self.together.outside
    }
}
