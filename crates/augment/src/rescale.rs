//! The operations on images, for further images of another resolution.
//!
//! Pixel centres have whole coordinates, so position `x` of the image is position `f·x + (f - 1)/2`
//! of an array with `f` times as many rows and columns. A map `M` of the image is the map `S·M·S⁻¹`
//! of the array, where `S` is this change of coordinates.

use std::borrow::Cow;

use hsipack_format::{Error, Ratio, Result};

use crate::frame::Frame;
use crate::fusion::{Stage, Task, stages, task};
use crate::geometry::Source;
use crate::matrix::{Matrix, Whole};
use crate::operation::{Cut, Operation, Rectangle};
use crate::ops::Op;
use crate::parameters::Step;
use crate::pipeline::{IMAGE, Pipeline};
use crate::resample::Resampling;

/// The moves of a further image for those of the image from a frame of `from` rows and columns to
/// one of `to`, and its rows and columns afterwards.
///
/// # Errors
/// If the result does not have whole rows and columns, or pixels move by fields of the image's
/// resolution.
pub(crate) fn moves<'m>(
    name: &str,
    ratio: Ratio,
    moves: &'m [Resampling],
    from: [usize; 2],
    to: [usize; 2],
) -> Result<(Cow<'m, [Resampling]>, [usize; 2])> {
    if ratio.is_same() {
        return Ok((Cow::Borrowed(moves), to));
    }
    let [own_from, own_to] = [size_of(name, ratio, from)?, size_of(name, ratio, to)?];
    let scaled = |step: &Resampling| match step {
        Resampling::Keep => Ok(Resampling::Keep),
        Resampling::Places(whole) => Ok(match scaled_whole(*whole, ratio) {
            Some(whole) if whole.stays_inside(own_to, own_from) => Resampling::Places(whole),
            // Pixels of a coarser array may lie across others.
            _ => Resampling::Sample(Source::map(scaled_matrix(&matrix_of(*whole), ratio))),
        }),
        Resampling::Sample(Source { elastic: Some(_), .. }) => {
            Err(no_pixels("an elastic warp", name, ratio))
        }
        Resampling::Sample(Source { image, mask, bounds, elastic: None }) => {
            Ok(Resampling::Sample(Source {
                image: scaled_matrix(image, ratio),
                mask: scaled_matrix(mask, ratio),
                bounds: bounds.map(|bounds| scaled_bounds(bounds, ratio)),
                elastic: None,
            }))
        }
    };
    Ok((moves.iter().map(scaled).collect::<Result<_>>()?, own_to))
}

/// The same rectangles of a further image of so many rows and columns. A pixel of a coarser one
/// belongs to a rectangle if its centre does.
pub(crate) fn cuts(ratio: Ratio, [rows, columns]: [usize; 2], cuts: &[Cut]) -> Vec<Cut> {
    let (finer, coarser) = (ratio.finer() as usize, ratio.coarser() as usize);
    // The first pixel whose centre is at or behind a pixel's edge.
    let first = |edge: usize| (2 * edge * finer + coarser - 1) / (2 * coarser);
    let scaled = |cut: &Cut| {
        let Cut { sample, donor, to, from } = *cut;
        let along = |start: usize, size: usize, source: usize, length: usize| {
            let (begin, end) = (first(start), first(start + size));
            let shift = source as i64 - start as i64;
            let shift = (shift * finer as i64).div_euclid(coarser as i64);
            // Rounding may lead out of the frame by less than a pixel.
            let last = length as i64 - (end - begin) as i64;
            (begin, end - begin, (begin as i64 + shift).clamp(0, last.max(0)) as usize)
        };
        let (x, width, from_x) = along(to.x, to.width, from.x, columns);
        let (y, height, from_y) = along(to.y, to.height, from.y, rows);
        (width > 0 && height > 0).then_some(Cut {
            sample,
            donor,
            to: Rectangle { x, y, width, height },
            from: Rectangle { x: from_x, y: from_y, width, height },
        })
    };
    cuts.iter().filter_map(scaled).collect()
}

/// The error for an operation that needs the pixels of the image.
pub(crate) fn no_pixels(op: &str, name: &str, ratio: Ratio) -> Error {
    Error::unsupported(format!(
        "{op} cannot be applied to the further image {name}, which has {ratio} times the rows and columns"
    ))
    .with_remedy("read without that image, or pack it at the resolution of the cubes")
}

/// Rows and columns of a further image beside images of this size.
fn size_of(name: &str, ratio: Ratio, size: [usize; 2]) -> Result<[usize; 2]> {
    let [rows, columns] = size.map(|length| ratio.length(length));
    rows.zip(columns).map(|(rows, columns)| [rows, columns]).ok_or_else(|| {
        let step = ratio.coarser();
        Error::conflict(format!(
            "images of {} x {} pixels do not fit the further image {name}, which has a pixel for {step} of theirs along each axis",
            size[0], size[1]
        ))
        .with_remedy(format!("choose sizes that are multiples of {step}, or read without that image"))
    })
}

/// The operation of a stage on the values of a further image: its name, resolution and number of
/// bands.
///
/// # Errors
/// If it does not fit the bands of that image, or depends on pixels of a mask.
pub(crate) fn values(
    pipeline: &Pipeline,
    stage: &Stage,
    steps: &[Step],
    frames: &[Frame],
    (name, ratio, bands): (&str, Ratio, usize),
) -> Result<Operation> {
    let frame = |frame: &Frame| {
        let [rows, columns] = size_of(name, ratio, [frame.rows, frame.columns])?;
        Ok(Frame { rows, columns, bands })
    };
    let frames = frames.iter().map(frame).collect::<Result<Vec<Frame>>>()?;
    let op = pipeline.ops[stage.ops.start].name();
    let fitted = task(pipeline, stage, steps, &frames).map_err(|error| {
        Error::conflict(format!("{op} cannot change the further image {name}: {}", error.what()))
            .with_remedy("leave the image out of arrays, or augment it in a list of its own")
    })?;
    match fitted {
        Task::Operation(Operation::Linear(_, Some(_))) => {
            Err(Error::unsupported(format!("{op} changes pixels of a mask, not those of {name}"))
                .with_remedy("leave the image out of arrays"))
        }
        Task::Operation(operation) => Ok(operation),
        Task::Resampling(..) => Err(Error::bug("a stage that moves pixels changes values")),
    }
}

/// Checks that all images whose values are changed are among these further images.
///
/// # Errors
/// If one is not.
pub(crate) fn check_arrays<'n>(
    pipeline: &Pipeline,
    further: impl Iterator<Item = &'n str> + Clone,
) -> Result<()> {
    let is_missing =
        |name: &&String| *name != IMAGE && !further.clone().any(|image| image == *name);
    let Some(missing) = pipeline.arrays.iter().find(is_missing) else { return Ok(()) };
    let names: Vec<&str> = std::iter::once(IMAGE).chain(further.clone()).collect();
    Err(Error::conflict(format!("arrays names {missing}, which is no image of the batch"))
        .with_remedy(format!("the images are {}", names.join(", "))))
}

impl Pipeline {
    /// Checks that the pipeline can be applied to images of this frame together with further images
    /// of these names, resolutions and numbers of bands.
    ///
    /// # Errors
    /// If an augmentation needs the pixels of the image, makes images of a size that does not fit,
    /// or does not fit the bands of an image whose values it should change.
    pub fn check_further(&self, frame: Frame, further: &[(&str, Ratio, usize)]) -> Result<()> {
        check_arrays(self, further.iter().map(|(name, ..)| *name))?;
        let mut frames = vec![frame];
        let mut steps = Vec::with_capacity(self.ops.len());
        for op in &self.ops {
            let before = frames[frames.len() - 1];
            frames.push(op.frame(before)?);
            steps.push(Step { op: op.name().to_owned(), drawn: vec![op.trial(before)?] });
        }
        for (name, ratio, bands) in further {
            let refused = |op: &&Op| matches!(op, Op::Elastic(_) | Op::Transplant(_));
            if let Some(op) = self.ops.iter().find(refused).filter(|_| !ratio.is_same()) {
                return Err(no_pixels(op.name(), name, *ratio));
            }
            for now in &frames {
                size_of(name, *ratio, [now.rows, now.columns])?;
            }
            if !self.arrays.iter().any(|array| array == name) {
                continue;
            }
            for stage in stages(self) {
                let (first, last) = (stage.ops.start, stage.ops.end);
                let (steps, frames) = (&steps[first..last], &frames[first..=last]);
                let is_of_values = matches!(task(self, &stage, steps, frames)?, Task::Operation(operation) if operation.changes_values());
                if is_of_values {
                    values(self, &stage, steps, frames, (name, *ratio, *bands))?;
                }
            }
        }
        Ok(())
    }
}

/// The change of coordinates from the image to an array.
fn change(ratio: Ratio) -> Matrix {
    let factor = ratio.factor();
    let shift = (factor - 1.0) / 2.0;
    Matrix::axes(factor, shift, factor, shift)
}

fn scaled_matrix(map: &Matrix, ratio: Ratio) -> Matrix {
    let (forth, factor) = (change(ratio), ratio.factor());
    let shift = (factor - 1.0) / 2.0;
    let back = Matrix::axes(1.0 / factor, -shift / factor, 1.0 / factor, -shift / factor);
    let Matrix(mut rows) = forth.after(&map.after(&back));
    // Affine maps stay affine.
    if map.is_affine() {
        rows[2] = [0.0, 0.0, 1.0];
    }
    Matrix(rows)
}

fn matrix_of(Whole { x, y }: Whole) -> Matrix {
    Matrix([x.map(|number| number as f64), y.map(|number| number as f64), [0.0, 0.0, 1.0]])
}

/// A map onto whole pixels in whole numbers; `None` if it is not onto whole pixels of the array.
fn scaled_whole(Whole { x, y }: Whole, ratio: Ratio) -> Option<Whole> {
    let (finer, coarser) = (i64::from(ratio.finer()), i64::from(ratio.coarser()));
    let axis = |[a, b, shift]: [i64; 3]| {
        // (f - 1)/2 · (1 - a - b), where a + b is 1 or -1.
        let turned = (1 - a - b) / 2;
        let moved = shift * finer + (finer - coarser) * turned;
        (moved % coarser == 0).then_some([a, b, moved / coarser])
    };
    Some(Whole { x: axis(x)?, y: axis(y)? })
}

/// The same outermost pixels.
fn scaled_bounds([left, right, top, bottom]: [f64; 4], ratio: Ratio) -> [f64; 4] {
    let factor = ratio.factor();
    let (least, greatest) = (|at: f64| at * factor, |at: f64| (at + 1.0) * factor - 1.0);
    [least(left), greatest(right), least(top), greatest(bottom)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(finer: u32, coarser: u32) -> Ratio {
        Ratio::new(finer, coarser).unwrap()
    }

    #[test]
    fn mirrors_and_turns_stay_whole_at_any_resolution() {
        // A mirror of 6 columns, a quarter turn of 6 x 6.
        let mirror = Whole { x: [-1, 0, 5], y: [0, 1, 0] };
        let turn = Whole { x: [0, 1, 0], y: [-1, 0, 5] };
        for (ratio, last) in
            [(ratio(2, 1), 11), (ratio(3, 1), 17), (ratio(1, 2), 2), (ratio(1, 3), 1)]
        {
            let scaled = scaled_whole(mirror, ratio).unwrap();
            assert_eq!(scaled, Whole { x: [-1, 0, last], y: [0, 1, 0] });
            assert_eq!(scaled_whole(turn, ratio).unwrap().y, [-1, 0, last]);
            let float = scaled_matrix(&matrix_of(mirror), ratio);
            assert!((float.0[0][2] - last as f64).abs() < 1e-9, "{float:?}");
        }
        let shift = Whole { x: [1, 0, 4], y: [0, 1, 3] };
        assert_eq!(scaled_whole(shift, ratio(2, 1)).unwrap().x, [1, 0, 8]);
        assert_eq!(scaled_whole(shift, ratio(1, 2)), None);
    }

    #[test]
    fn crops_that_do_not_fit_are_refused() {
        let crop = [Resampling::Places(Whole { x: [1, 0, 0], y: [0, 1, 0] })];
        let error = moves("thermal", ratio(1, 3), &crop, [9, 9], [6, 5]).unwrap_err();
        assert!(error.to_string().contains("6 x 5 pixels do not fit"), "{error}");
        let (_, to) = moves("thermal", ratio(1, 3), &crop, [9, 9], [6, 3]).unwrap();
        assert_eq!(to, [2, 1]);
    }

    #[test]
    fn rectangles_cover_the_pixels_whose_centres_they_hold() {
        let cut = |x: usize, width: usize| Cut {
            sample: 0,
            donor: 1,
            to: Rectangle { x, y: 0, width, height: 6 },
            from: Rectangle { x, y: 0, width, height: 6 },
        };
        let along = |cut: Cut, ratio| {
            cuts(ratio, [6, 18], &[cut]).first().map(|cut| (cut.to.x, cut.to.width, cut.from.x))
        };
        assert_eq!(along(cut(1, 3), ratio(2, 1)), Some((2, 6, 2)));
        // Centres of coarse pixels are at 1, 4, 7, … of the image.
        assert_eq!(along(cut(1, 3), ratio(1, 3)), Some((0, 1, 0)));
        assert_eq!(along(cut(2, 3), ratio(1, 3)), Some((1, 1, 1)));
        assert_eq!(along(cut(2, 2), ratio(1, 3)), None);
    }
}
