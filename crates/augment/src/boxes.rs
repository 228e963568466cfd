//! Boxes around objects, moved as the pixels are.

use hsipack_format::{Error, Result};

use crate::engine::Engine;
use crate::frame::Frame;
use crate::fusion::{StageKind, Task, stages, task};
use crate::geometry::{KorniaCompat, Source};
use crate::host::Host;
use crate::matrix::Matrix;
use crate::ops::Op;
use crate::parameters::{Parameters, Step};
use crate::pipeline::Pipeline;
use crate::resample::Resampling;

/// The least width and height of what is left of a box, in pixels. Narrower strips come from
/// rounding.
const LEAST: f64 = 1e-3;

/// A box around an object in an image.
///
/// Positions are in pixels from the outer corner of the first pixel: a box around a whole image of
/// 480 × 640 pixels is `[0.0, 0.0, 640.0, 480.0]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ObjectBox {
    /// Left, top, right and bottom.
    pub edges: [f64; 4],
    /// The share of the first box that is still inside the image, from 0 to 1. If it is 0, the
    /// object is not in the image, and `edges` have no meaning.
    pub visible: f64,
}

impl ObjectBox {
    /// A box that is visible as a whole.
    pub fn new(edges: [f64; 4]) -> Self {
        Self { edges, visible: 1.0 }
    }

    /// The part inside a window of the image, relative to the window's corner. `row` and `column`
    /// may be negative.
    #[must_use]
    pub fn in_window(self, [row, column]: [i64; 2], size: [usize; 2]) -> Self {
        let [left, top, right, bottom] = self.edges;
        let (x, y) = (column as f64, row as f64);
        Self { edges: [left - x, top - y, right - x, bottom - y], ..self }.inside(size)
    }

    /// The part inside a frame of these rows and columns.
    fn inside(self, [rows, columns]: [usize; 2]) -> Self {
        let [left, top, right, bottom] = self.edges;
        let (height, width) = (rows as f64, columns as f64);
        let edges = [left.max(0.0), top.max(0.0), right.min(width), bottom.min(height)];
        if edges == self.edges {
            return self;
        }
        let area = |[left, top, right, bottom]: [f64; 4]| (right - left) * (bottom - top);
        let is_empty = edges[2] - edges[0] < LEAST || edges[3] - edges[1] < LEAST;
        let share = if is_empty { 0.0 } else { area(edges) / area(self.edges) };
        Self { edges, visible: self.visible * share }
    }

    /// The box around its four corners under a map of pixels. `None` if a corner has no image.
    fn around(&self, map: &Matrix) -> Option<[f64; 4]> {
        let [left, top, right, bottom] = self.edges.map(|edge| edge - 0.5);
        let corners = [[left, top], [right, top], [left, bottom], [right, bottom]];
        let mut around = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
        for [x, y] in corners {
            // Beyond the horizon of a perspective, points come back from the other side.
            let scale = map.0[2][0] * x + map.0[2][1] * y + map.0[2][2];
            let [x, y] = map.apply([x, y]);
            if scale <= 0.0 || !x.is_finite() || !y.is_finite() {
                return None;
            }
            around = [around[0].min(x), around[1].min(y), around[2].max(x), around[3].max(y)];
        }
        Some(around.map(|edge| edge + 0.5))
    }
}

impl Pipeline {
    /// Checks that boxes can be moved by these augmentations.
    ///
    /// # Errors
    /// Augmentations that rearrange parts of images, take parts from others, or depend on pixels,
    /// move no boxes.
    pub fn check_boxes(&self) -> Result<()> {
        match self.ops.iter().find(|op| !op.moves_boxes()) {
            None => Ok(()),
            Some(op) => Err(Error::unsupported(format!("boxes cannot follow {}", op.name()))
                .with_remedy("leave it out, or read no boxes")),
        }
    }
}

impl Parameters {
    /// Moves the boxes of every sample as the augmentations move its pixels.
    ///
    /// A box becomes the box around its moved corners, of which the part inside the frame is kept.
    /// Elastic warps have no exact map of points: there, it becomes the box around all pixels that
    /// come from the box.
    ///
    /// Where consecutive augmentations are merged into one warp, boxes are moved by it, too. Erased
    /// rectangles and mixed images leave boxes as they are.
    ///
    /// ```
    /// use hsipack_augment::{Frame, ObjectBox, Pipeline, SampleKey};
    ///
    /// let pipeline = Pipeline::from_json(r#"[{"op": "hflip", "p": 1.0}]"#)?;
    /// let frame = Frame { rows: 48, columns: 64, bands: 10 };
    /// let parameters = pipeline.draw(frame, 0, &[SampleKey { sample: 0, repeat: 0 }])?;
    /// let mut boxes = [vec![ObjectBox::new([2.0, 3.0, 12.0, 9.0])]];
    /// parameters.move_boxes(&pipeline, &mut boxes)?;
    /// assert_eq!(boxes[0][0].edges, [52.0, 3.0, 62.0, 9.0]);
    /// # Ok::<(), hsipack_format::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the parameters do not belong to `pipeline` or to as many samples, or an augmentation
    /// moves no boxes.
    pub fn move_boxes(&self, pipeline: &Pipeline, boxes: &mut [Vec<ObjectBox>]) -> Result<()> {
        pipeline.check_boxes()?;
        let frames = self.frames(pipeline, boxes.len())?;
        let start = |object: &ObjectBox| Moving { object: *object, map: Matrix::IDENTITY };
        let mut moving: Vec<Vec<Moving>> =
            boxes.iter().map(|objects| objects.iter().map(start).collect()).collect();
        for stage in stages(pipeline) {
            if !matches!(stage.kind, StageKind::Geometry(_)) {
                continue;
            }
            let ops = &pipeline.ops[stage.ops.clone()];
            let steps = &self.steps[stage.ops.clone()];
            let frames = &frames[stage.ops.start..=stage.ops.end];
            let Task::Resampling(moves, _) = task(pipeline, &stage, steps, frames)? else {
                continue;
            };
            let (from, to) = (frames[0], frames[frames.len() - 1]);
            for (sample, (objects, resampling)) in moving.iter_mut().zip(&moves).enumerate() {
                let visible = objects.iter_mut().filter(|moving| moving.object.visible > 0.0);
                match resampling {
                    Resampling::Keep => {}
                    Resampling::Sample(source) if source.elastic.is_some() => {
                        displace(resampling, source, [from, to], visible)?;
                    }
                    Resampling::Places(_) | Resampling::Sample(_) => {
                        let map = points(ops, steps, frames, sample, pipeline.kornia)?;
                        visible.for_each(|moving| moving.transform(map.as_ref(), to));
                    }
                }
            }
        }
        for (boxes, moving) in boxes.iter_mut().zip(moving) {
            *boxes = moving.iter().map(Moving::settled).collect();
        }
        Ok(())
    }
}

/// A box on its way. As long as it is in the frame, its corners are mapped only at the end: the box
/// around a box around turned corners would grow with every step.
struct Moving {
    object: ObjectBox,
    map: Matrix,
}

impl Moving {
    /// The box around the moved corners, which lie in the frame.
    fn settled(&self) -> ObjectBox {
        let edges = match self.map == Matrix::IDENTITY {
            true => self.object.edges,
            false => self.object.around(&self.map).unwrap_or(self.object.edges),
        };
        ObjectBox { edges, ..self.object }
    }

    /// Moves the box by a map of points. Without one, it may be anywhere in the frame.
    fn transform(&mut self, map: Option<&Matrix>, to: Frame) {
        let whole = [0.0, 0.0, to.columns as f64, to.rows as f64];
        let around = map.and_then(|map| {
            self.map = map.after(&self.map);
            self.object.around(&self.map)
        });
        let moved = ObjectBox { edges: around.unwrap_or(whole), ..self.object };
        let inside = moved.inside([to.rows, to.columns]);
        if around.is_none() || inside != moved {
            *self = Self { object: inside, map: Matrix::IDENTITY };
        }
    }
}

/// The map of points of one sample over consecutive geometric augmentations without a field. `None`
/// if there is none: a single row or column that was resized with its centre kept goes to several
/// pixels.
fn points(
    ops: &[Op],
    steps: &[Step],
    frames: &[Frame],
    sample: usize,
    compat: KorniaCompat,
) -> Result<Option<Matrix>> {
    let mut map = Some(Matrix::IDENTITY);
    for ((op, step), frame) in ops.iter().zip(steps).zip(frames) {
        let (Some(drawn), Some(geometric)) = (&step.drawn[sample], op.geometric()) else {
            continue;
        };
        let forward = geometric.points(drawn, *frame, compat)?.image.inverse();
        map = forward.zip(map).map(|(forward, before)| forward.after(&before));
    }
    Ok(map)
}

/// Moves boxes by a field: each becomes the box around the pixels that come from it.
fn displace<'b>(
    resampling: &Resampling,
    source: &Source,
    [from, to]: [Frame; 2],
    visible: impl Iterator<Item = &'b mut Moving>,
) -> Result<()> {
    let moving: Vec<&mut Moving> = visible.collect();
    if moving.is_empty() {
        return Ok(());
    }
    let objects: Vec<ObjectBox> = moving.iter().map(|moving| moving.settled()).collect();
    // The same numbers as on a device but for rounding, which moves no pixel by more than a small part of one.
    let host = Host::new(1);
    let fields = host.fields(std::slice::from_ref(resampling), [to.rows, to.columns])?;
    let Some(Some(field)) = fields.first() else {
        return Err(Error::bug("a warp without a field"));
    };
    let (across, down) = field.split_at(to.rows * to.columns);
    let nothing = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    let mut around = vec![nothing; objects.len()];
    for (pixel, (dx, dy)) in across.iter().zip(down).enumerate() {
        let (row, column) = ((pixel / to.columns) as f64, (pixel % to.columns) as f64);
        let at = [column + f64::from(*dx), row + f64::from(*dy)];
        let [x, y] = source.image.apply(at).map(|centre| centre + 0.5);
        for (around, object) in around.iter_mut().zip(&objects) {
            let [left, top, right, bottom] = object.edges;
            if left <= x && x <= right && top <= y && y <= bottom {
                around[0] = around[0].min(column);
                around[1] = around[1].min(row);
                around[2] = around[2].max(column + 1.0);
                around[3] = around[3].max(row + 1.0);
            }
        }
    }
    for ((moving, object), around) in moving.into_iter().zip(objects).zip(around) {
        // The part outside the image is lost, as it is for other moves.
        let inside = object.inside([from.rows, from.columns]);
        let visible = if around == nothing { 0.0 } else { inside.visible };
        *moving = Moving { object: ObjectBox { edges: around, visible }, map: Matrix::IDENTITY };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawn::SampleKey;

    const FRAME: Frame = Frame { rows: 40, columns: 60, bands: 3 };

    fn moved(ops: &str, boxes: &[[f64; 4]]) -> Vec<ObjectBox> {
        let pipeline = Pipeline::from_json(ops).unwrap();
        let parameters = pipeline.draw(FRAME, 3, &[SampleKey { sample: 5, repeat: 0 }]).unwrap();
        let mut boxes = [boxes.iter().map(|edges| ObjectBox::new(*edges)).collect::<Vec<_>>()];
        parameters.move_boxes(&pipeline, &mut boxes).unwrap();
        boxes.into_iter().next().unwrap()
    }

    #[test]
    fn windows_cut_boxes_and_say_how_much_is_visible() {
        let object = ObjectBox::new([10.0, 20.0, 30.0, 40.0]);
        let cut = object.in_window([30, 15], [5, 100]);
        assert_eq!(cut.edges, [0.0, 0.0, 15.0, 5.0]);
        assert_eq!(cut.visible, 15.0 * 5.0 / 400.0);
        assert_eq!(object.in_window([-5, -5], [100, 100]).edges, [15.0, 25.0, 35.0, 45.0]);
        assert_eq!(object.in_window([40, 0], [10, 100]).visible, 0.0);
        let strip = ObjectBox::new([10.0, 20.0, 30.0 + 1e-9, 40.0]).in_window([0, 30], [50, 50]);
        assert_eq!(strip.visible, 0.0);
    }

    #[test]
    fn moves_by_whole_pixels_are_exact() {
        let object = [2.5, 3.0, 12.0, 9.0];
        let [flipped] = moved(r#"[{"op": "vflip", "p": 1.0}]"#, &[object])[..] else { panic!() };
        assert_eq!(flipped.edges, [2.5, 31.0, 12.0, 37.0]);
        let [cropped] =
            moved(r#"[{"op": "center_crop", "size": [20, 20]}]"#, &[[25.0, 5.0, 35.0, 15.0]])[..]
        else {
            panic!()
        };
        assert_eq!(cropped, ObjectBox { edges: [5.0, 0.0, 15.0, 5.0], visible: 0.5 });
        let [resized] = moved(
            r#"[{"op": "resize", "size": [20, 120], "align_corners": false}]"#,
            &[object],
        )[..] else {
            panic!()
        };
        assert_eq!(resized.edges, [5.0, 1.5, 24.0, 4.5]);
        let [padded] = moved(r#"[{"op": "pad_to", "size": [80, 80]}]"#, &[object])[..] else {
            panic!()
        };
        assert_eq!(padded.edges, object);
    }

    #[test]
    fn boxes_out_of_the_frame_stay_out() {
        let ops = r#"[{"op": "center_crop", "size": [10, 10]}, {"op": "rotate", "degrees": 30.0, "p": 1.0}]"#;
        let unfused = format!(r#"{{"ops": {ops}, "fuse": false}}"#);
        let [lost] = moved(&unfused, &[[0.0, 0.0, 5.0, 5.0]])[..] else { panic!() };
        assert_eq!(lost.visible, 0.0);
    }

    #[test]
    fn elastic_warps_move_boxes_as_they_move_pixels() {
        let ops = r#"[{"op": "elastic", "alpha": [0.0, 0.0], "p": 1.0}]"#;
        let [same] = moved(ops, &[[10.0, 12.0, 20.0, 30.0]])[..] else { panic!() };
        assert_eq!(same, ObjectBox::new([10.0, 12.0, 20.0, 30.0]));
    }

    #[test]
    fn augmentations_that_rearrange_parts_are_refused() {
        for op in ["jigsaw", "cutmix_rect", "transplant", "valid_guard"] {
            let ops = match op {
                "valid_guard" => r#"[{"op": "valid_guard", "mask": "valid"}]"#.to_owned(),
                op => format!(r#"[{{"op": "{op}"}}]"#),
            };
            let error = Pipeline::from_json(&ops).unwrap().check_boxes().unwrap_err();
            assert_eq!(error.what(), format!("boxes cannot follow {op}"));
        }
        Pipeline::from_json(r#"[{"op": "mixup"}, {"op": "erase"}]"#)
            .unwrap()
            .check_boxes()
            .unwrap();
    }
}
