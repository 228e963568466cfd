//! Which augmentations are done together.

use std::ops::Range;

use crate::ops::{Interpolation, Op, Outside};
use crate::pipeline::Pipeline;

/// Augmentations that follow one another and are done in one pass.
#[derive(Debug)]
pub struct Stage {
    pub ops: Range<usize>,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// One move of pixels.
    Geometry(Together),
    /// One product and one sum by band.
    Bands,
    /// One linear map of spectra.
    Spectra,
    /// Done by itself.
    Single,
}

/// What the augmentations of one move agree in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Together {
    pub outside: Option<Outside>,
    pub interpolation: Option<Interpolation>,
}

/// The stages of a list.
pub fn of(pipeline: &Pipeline) -> Vec<Stage> {
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

fn kind_of(op: &Op) -> Kind {
    if let Some(geometric) = op.geometric() {
        let (outside, interpolation) = (geometric.outside(), geometric.interpolation());
        return Kind::Geometry(Together { outside, interpolation });
    }
    match op {
        Op::Gain(_)
        | Op::Offset(_)
        | Op::BandDropout(_)
        | Op::BandJitter(_)
        | Op::BandOffset(_)
        | Op::Standardize(_) => Kind::Bands,
        Op::SpectralShift(_) | Op::SpectralSmooth(_) => Kind::Spectra,
        _ => Kind::Single,
    }
}

/// What the last stage is with one more augmentation, if it can take it.
fn join(pipeline: &Pipeline, last: &Stage, op: &Op) -> Option<Kind> {
    match (&last.kind, kind_of(op)) {
        (Kind::Geometry(now), Kind::Geometry(next)) if pipeline.fuse => {
            // A field is evaluated at the result's pixels, so nothing may move them afterwards; pixels that are
            // put around a frame must not show what a warp before it moved out of sight; and resizing by edges
            // looks no further than its own window.
            let before = &pipeline.ops[last.ops.end - 1];
            let ends = matches!(before, Op::Elastic(_)) || by_edges(before);
            if ends || by_edges(op) || pads(op) {
                return None;
            }
            Some(Kind::Geometry(Together {
                outside: agree(now.outside, next.outside)?,
                interpolation: agree(now.interpolation, next.interpolation)?,
            }))
        }
        (Kind::Bands, Kind::Bands) => Some(Kind::Bands),
        (Kind::Spectra, Kind::Spectra) => Some(Kind::Spectra),
        _ => None,
    }
}

fn by_edges(op: &Op) -> bool {
    match op {
        Op::Resize(op) => op.by_centres() == Some(false),
        Op::ResizedCrop(op) => op.by_centres() == Some(false),
        _ => false,
    }
}

fn pads(op: &Op) -> bool {
    matches!(op, Op::PadTo(_))
        || matches!(op, Op::RandomCrop(crop) if crop.pad_if_needed || crop.pad != [0; 4])
}

/// What both want, if they do not want different things; to want nothing is an agreement, too.
fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}
