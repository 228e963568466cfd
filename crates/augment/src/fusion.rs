//! Which augmentations are fused, and the operation on a batch that follows from their parameters.

use std::ops::Range;

use hsipack_format::{Error, Result};

use crate::drawn::Drawn;
use crate::frame::Frame;
use crate::geometry::{KorniaCompat, Source};
use crate::matrix::Matrix;
use crate::operation::{ByBands, Linear, Operation};
use crate::ops::{Action, Bands, Geometric, Op};
use crate::parameters::Step;
use crate::pipeline::Pipeline;
use crate::resample::{ResampleOptions, Resampling};

/// Consecutive augmentations that are done in one pass.
#[derive(Debug)]
pub struct Stage {
    pub ops: Range<usize>,
    pub kind: StageKind,
}

#[derive(Debug)]
pub enum StageKind {
    /// One move of pixels.
    Geometry(ResampleOptions),
    /// One factor and one summand per band.
    Bands,
    /// One linear map of spectra.
    Spectra,
    /// An operation that cannot be merged with others.
    Single,
}

/// The stages of a list.
pub fn stages(pipeline: &Pipeline) -> Vec<Stage> {
    let mut stages: Vec<Stage> = Vec::new();
    for (number, op) in pipeline.ops.iter().enumerate() {
        let joined = stages.last().and_then(|last| join(pipeline, last, op));
        match (joined, stages.last_mut()) {
            (Some(kind), Some(last)) => {
                last.ops.end += 1;
                last.kind = kind;
            }
            _ => stages.push(Stage { ops: number..number + 1, kind: kind_of(op) }),
        }
    }
    stages
}

fn kind_of(op: &Op) -> StageKind {
    match op.action() {
        Action::Moves(geometric) => {
            let (outside, interpolation) = (geometric.outside(), geometric.interpolation());
            StageKind::Geometry(ResampleOptions { outside, interpolation })
        }
        Action::Bands(_) => StageKind::Bands,
        Action::Spectra(_) => StageKind::Spectra,
        Action::Single(_) => StageKind::Single,
    }
}

/// The kind of the last stage after adding one more augmentation, if that is possible.
fn join(pipeline: &Pipeline, last: &Stage, op: &Op) -> Option<StageKind> {
    match (&last.kind, kind_of(op)) {
        (StageKind::Geometry(now), StageKind::Geometry(next)) if pipeline.fuse => {
            let before = &pipeline.ops[last.ops.end - 1];
            let precedes = before.geometric().is_some_and(Geometric::precedes);
            if !precedes || !op.geometric().is_some_and(Geometric::follows) {
                return None;
            }
            Some(StageKind::Geometry(ResampleOptions {
                outside: agree(now.outside, next.outside)?,
                interpolation: agree(now.interpolation, next.interpolation)?,
            }))
        }
        (StageKind::Bands, StageKind::Bands) => Some(StageKind::Bands),
        (StageKind::Spectra, StageKind::Spectra) => Some(StageKind::Spectra),
        _ => None,
    }
}

/// The setting that suits both, if there is one. `None` suits everything.
fn agree<T: PartialEq>(a: Option<T>, b: Option<T>) -> Option<Option<T>> {
    match (a, b) {
        (Some(a), Some(b)) => (a == b).then_some(Some(a)),
        (a, b) => Some(a.or(b)),
    }
}

/// Work of a stage on a batch.
pub enum Task {
    /// Moves pixels.
    Resampling(Vec<Resampling>, ResampleOptions),
    /// Everything else.
    Operation(Operation),
}

/// Returns the work of a stage on a batch; `frames` are the frames before each of its
/// augmentations, and after the last.
pub fn task(pipeline: &Pipeline, stage: &Stage, steps: &[Step], frames: &[Frame]) -> Result<Task> {
    let ops = &pipeline.ops[stage.ops.clone()];
    Ok(Task::Operation(match &stage.kind {
        StageKind::Geometry(together) => {
            let moves = resamplings(ops, steps, frames, pipeline.kornia)?;
            return Ok(Task::Resampling(moves, *together));
        }
        StageKind::Bands => by_band(ops, steps, frames[0])?,
        StageKind::Spectra => spectral(ops, steps, frames[0])?,
        StageKind::Single => match ops[0].action() {
            Action::Single(single) => single.pass(&ops[0], &steps[0].drawn, frames[0])?,
            _ => return Err(Error::bug(format!("{} by itself", ops[0].name()))),
        },
    }))
}

/// The moves of all samples under consecutive geometric augmentations.
fn resamplings(
    ops: &[Op],
    steps: &[Step],
    frames: &[Frame],
    compat: KorniaCompat,
) -> Result<Vec<Resampling>> {
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
                return Ok(Resampling::Keep);
            }
            let whole = total.image.whole().filter(|whole| {
                let size = [to.rows, to.columns];
                let inside = whole.stays_inside(size, [from.rows, from.columns]);
                // Masks may come from places a fraction of a pixel away: from the same pixels, if it is less than half.
                let together = total.mask.is_within(0.5, &total.image, size);
                inside && together && total.elastic.is_none()
            });
            Ok(whole.map_or(Resampling::Sample(total), Resampling::Places))
        })
        .collect()
}

/// The factors and summands of consecutive augmentations.
fn by_band(ops: &[Op], steps: &[Step], frame: Frame) -> Result<Operation> {
    let samples = steps.first().map_or(0, |step| step.drawn.len());
    let merged = ByBands::merge(samples, frame.bands, |sample, by| {
        for (op, step) in ops.iter().zip(steps) {
            if let Some(drawn) = &step.drawn[sample] {
                bands_of(op)?.then(op, drawn, by)?;
            }
        }
        Ok(())
    })?;
    Ok(Operation::ByBand(merged))
}

/// The linear maps of consecutive augmentations.
fn spectral(ops: &[Op], steps: &[Step], frame: Frame) -> Result<Operation> {
    let samples = steps.first().map_or(0, |step| step.drawn.len());
    let by_sample = (0..samples).map(|sample| {
        let mut map: Option<Vec<f64>> = None;
        for (op, step) in ops.iter().zip(steps) {
            let Some(drawn) = &step.drawn[sample] else { continue };
            let next = spectral_map(op, drawn, frame.bands)?;
            map = Some(match map {
                None => next,
                Some(map) => product(&map, &next, frame.bands),
            });
        }
        Ok(map.map(|map| Linear { map, offset: Vec::new() }))
    });
    Ok(Operation::Linear(by_sample.collect::<Result<_>>()?, None))
}

fn spectral_map(op: &Op, drawn: &Drawn, bands: usize) -> Result<Vec<f64>> {
    let Action::Spectra(spectra) = op.action() else { return Err(together(op)) };
    let Drawn::Number { value } = drawn else { return Err(drawn.misfit(op.name())) };
    if !(-1e6..=1e6).contains(value) {
        return Err(drawn.misfit(op.name()));
    }
    let last = bands as f64 - 1.0;
    let mut map = vec![0.0; bands * bands];
    for band in 0..bands {
        for (position, weight) in spectra.weights(*value, band, bands) {
            map[position.clamp(0.0, last) as usize * bands + band] += weight;
        }
    }
    Ok(map)
}

fn bands_of(op: &Op) -> Result<&dyn Bands> {
    match op.action() {
        Action::Bands(bands) => Ok(bands),
        _ => Err(together(op)),
    }
}

fn together(op: &Op) -> Error {
    Error::bug(format!("{} is done together with others of another kind", op.name()))
}

fn product(matrix: &[f64], other: &[f64], bands: usize) -> Vec<f64> {
    let mut product = vec![0.0; bands * bands];
    for (line, row) in product.chunks_exact_mut(bands).zip(matrix.chunks_exact(bands)) {
        for (value, other) in row.iter().zip(other.chunks_exact(bands)) {
            line.iter_mut().zip(other).for_each(|(sum, other)| *sum += value * other);
        }
    }
    product
}
