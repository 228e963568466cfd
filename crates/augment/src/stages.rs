//! Which augmentations are done together.

use std::ops::Range;

use crate::ops::{Action, Geometric, Interpolation, Op, Outside};
use crate::pipeline::Pipeline;

/// Consecutive augmentations that are done in one pass.
#[derive(Debug)]
pub struct Stage {
    pub ops: Range<usize>,
    pub kind: Kind,
}

#[derive(Debug)]
pub enum Kind {
    /// One move of pixels.
    Geometry(Together),
    /// One factor and one summand per band.
    Bands,
    /// One linear map of spectra.
    Spectra,
    /// An operation that cannot be merged with others.
    Single,
}

/// The settings that the augmentations of one move share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Together {
    /// How pixels outside the frame are made.
    pub outside: Option<Outside>,
    /// How values between pixels are computed.
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
    match op.action() {
        Action::Moves(geometric) => {
            let (outside, interpolation) = (geometric.outside(), geometric.interpolation());
            Kind::Geometry(Together { outside, interpolation })
        }
        Action::Bands(_) => Kind::Bands,
        Action::Spectra(_) => Kind::Spectra,
        Action::Single(_) => Kind::Single,
    }
}

/// The kind of the last stage after adding one more augmentation, if that is possible.
fn join(pipeline: &Pipeline, last: &Stage, op: &Op) -> Option<Kind> {
    match (&last.kind, kind_of(op)) {
        (Kind::Geometry(now), Kind::Geometry(next)) if pipeline.fuse => {
            let before = &pipeline.ops[last.ops.end - 1];
            let precedes = before.geometric().is_some_and(Geometric::precedes);
            if !precedes || !op.geometric().is_some_and(Geometric::follows) {
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

/// The setting that suits both, if there is one. `None` suits everything.
fn agree<T: PartialEq>(one: Option<T>, other: Option<T>) -> Option<Option<T>> {
    match (one, other) {
        (Some(one), Some(other)) => (one == other).then_some(Some(one)),
        (one, other) => Some(one.or(other)),
    }
}
