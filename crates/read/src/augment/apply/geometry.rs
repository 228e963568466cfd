//! Where the pixels of every sample come from, and bringing them there.

use tch::{Device, Kind, TchError, Tensor};

use super::super::matrix::{Matrix, Whole};
use super::super::ops::values::gaussian;
use super::super::ops::{Field, Frame, Interpolation, KorniaCompat, Op, Source};
use super::super::parameters::Step;
use super::sample::to_device;
use super::stages::Together;
use super::{Work, host, sample};
use crate::Result;
use crate::torch::{fill_uniform, run};

/// What happens to the pixels of one sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Move {
    /// They stay.
    Keep,
    /// They only change places.
    Places(Whole),
    /// They are sampled.
    Sample(Source),
}

/// The moves of all samples under geometric augmentations that follow one another.
pub(super) fn moves(
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

/// One array to be moved.
#[derive(Debug)]
pub(super) struct Job<'a> {
    /// (samples, rows, columns, values), contiguous.
    pub from: &'a Tensor,
    /// Rows and columns of the result.
    pub to: [usize; 2],
    pub moves: &'a [Move],
    /// Labels: masks' maps, the nearest pixel, no arithmetic.
    pub labels: bool,
    /// What is outside the frame is this, where padding is of one value.
    pub fill: f64,
    pub together: Together,
    /// Displacements of samples that have a field, (2, rows, columns) in pixels, x first.
    pub fields: &'a [Option<Tensor>],
}

impl Job<'_> {
    /// The map of a sampled pixel's place.
    pub fn map<'s>(&self, source: &'s Source) -> &'s Matrix {
        map(self.labels, source)
    }

    pub fn nearest(&self) -> bool {
        self.labels || self.together.interpolation == Some(Interpolation::Nearest)
    }
}

/// The map that labels, or values, follow.
pub(super) fn map(labels: bool, source: &Source) -> &Matrix {
    if labels { &source.mask } else { &source.image }
}

impl Work {
    /// Brings pixels of images and masks to their places.
    pub(super) fn r#move(&mut self, moves: &[Move], to: Frame, together: &Together) -> Result<()> {
        if moves.iter().all(|step| *step == Move::Keep) {
            return Ok(());
        }
        let to = [to.rows, to.columns];
        let fields = moves
            .iter()
            .map(|step| match step {
                Move::Sample(Source { elastic: Some(field), .. }) => {
                    displacement(field, to, self.image.device()).map(Some)
                }
                _ => Ok(None),
            })
            .collect::<Result<Vec<_>>>()?;
        let fill = together.outside.map_or(0.0, |outside| outside.fill);
        let (from, together, fields) = (&self.image, *together, &fields);
        self.image = moved(&Job { from, to, moves, labels: false, fill, together, fields })?;
        self.ours = true;
        for mask in &mut self.masks {
            let (from, fill) = (&mask.labels, mask.fill as f64);
            mask.labels = moved(&Job { from, to, moves, labels: true, fill, together, fields })?;
            mask.ours = true;
        }
        Ok(())
    }
}

fn moved(job: &Job<'_>) -> Result<Tensor> {
    if host::takes(job) { host::moved(job) } else { sample::moved(job) }
}

/// A smooth field of displacements (2, rows, columns) in pixels, x first: uniform numbers in [-1, 1) smoothed with a
/// Gaussian, zeros around.
fn displacement(field: &Field, size: [usize; 2], device: Device) -> Result<Tensor> {
    smooth(&elastic_noise(field.seed, size, device)?, field)
}

/// The numbers (2, rows, columns) that an elastic field is smoothed from: along x, along y.
#[doc(hidden)]
pub fn elastic_noise(seed: u64, [rows, columns]: [usize; 2], device: Device) -> Result<Tensor> {
    let shape = [2, rows as i64, columns as i64];
    let mut noise = run(|| Tensor::f_empty(shape, (Kind::Float, device)))?;
    fill_uniform(&mut noise, seed)?;
    Ok(noise)
}

/// Smooths numbers (2, rows, columns) and scales them to pixels.
fn smooth(noise: &Tensor, field: &Field) -> Result<Tensor> {
    let Field { kernel: [high, wide], sigma, pixels, .. } = field;
    let weights = |size: usize, sigma: f64, scale: f64| -> Vec<f32> {
        gaussian(sigma, size / 2).into_iter().map(|weight| (scale * weight) as f32).collect()
    };
    let planes = [0, 1].map(|plane| {
        let noise = run(|| noise.f_get(plane as i64))?;
        let down = weights(*high, sigma[0], pixels[plane]);
        let across = weights(*wide, sigma[1], 1.0);
        if host::takes_image(&noise) {
            let noise = run(|| noise.f_unsqueeze(-1))?;
            let smoothed = host::blur(&noise, &down, &across, host::Around::Zeros)?;
            return run(|| smoothed.f_squeeze_dim(-1));
        }
        run(|| convolved(&noise, &down, &across))
    });
    let [x, y] = planes;
    let planes = [x?, y?];
    run(|| Tensor::f_stack(&planes, 0))
}

/// One plane (rows, columns), smoothed, zeros around.
fn convolved(noise: &Tensor, down: &[f32], across: &[f32]) -> Result<Tensor, TchError> {
    let (high, wide) = (down.len() as i64 / 2, across.len() as i64 / 2);
    let down = to_device(Tensor::f_from_slice(down)?, noise.device())?.f_view([1, 1, -1, 1])?;
    let across = to_device(Tensor::f_from_slice(across)?, noise.device())?.f_view([1, 1, 1, -1])?;
    let none = None::<&Tensor>;
    noise
        .f_view([1, 1, noise.size()[0], noise.size()[1]])?
        .f_conv2d(&across, none, [1, 1], [0, wide], [1, 1], 1)?
        .f_conv2d(&down, none, [1, 1], [high, 0], [1, 1], 1)?
        .f_view_as(noise)
}
