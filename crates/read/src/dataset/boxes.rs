//! Boxes around objects, from the columns `boxes` and `box_labels` of the samples.

use std::collections::BTreeSet;
use std::ops::Range;

use hsipack_augment::ObjectBox;
use hsipack_format::Error;
use hsipack_format::samples::boxes::{self, BOX_LABELS, BOXES};
use serde::Deserialize;
use serde_json::Value;

use super::open::Dataset;
use crate::Result;
use crate::plan::Window;

/// The boxes of all samples of a dataset.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boxes {
    edges: Vec<[f64; 4]>,
    classes: Vec<i64>,
    names: Vec<String>,
    /// The number of boxes of the samples before each sample, and of all.
    starts: Vec<usize>,
}

/// The columns of a sample.
#[derive(Deserialize)]
struct Line {
    boxes: Option<Value>,
    box_labels: Option<Value>,
}

impl Boxes {
    /// Reads the boxes of a dataset. `None` if no sample has any: no column `boxes`, or one that
    /// holds other things than lists of `[left, top, right, bottom]`.
    ///
    /// # Errors
    /// If samples cannot be read, or labels do not belong to their boxes.
    pub fn read(dataset: &Dataset) -> Result<Option<Self>> {
        let samples = dataset.samples();
        if !samples.columns().iter().any(|column| column == BOXES) {
            return Ok(None);
        }
        let (mut all, mut labels) = (Self { starts: vec![0], ..Self::default() }, Vec::new());
        let mut are_boxes = false;
        for id in 0..samples.len() {
            let line: Line = serde_json::from_slice(&samples.line(id)?)
                .map_err(|error| Error::damaged(format!("sample {id}: {error}")))?;
            if let Some(edges) = line.boxes {
                let Some(edges) = boxes::edges(&edges) else { return Ok(None) };
                if let Some(empty) = edges.iter().find(|edges| !has_area(edges)) {
                    return Err(Error::conflict(format!(
                        "sample {:?} has the box {empty:?} (left, top, right, bottom), which has no area",
                        samples.name(id)
                    ))
                    .at(dataset.path())
                    .with_remedy("correct the column boxes with `hsipack table`"));
                }
                are_boxes = true;
                let of_sample = match line.box_labels {
                    None => vec![Value::Null; edges.len()],
                    Some(Value::Array(labels)) if labels.len() == edges.len() => labels,
                    Some(_) => {
                        return Err(Error::conflict(format!(
                            "sample {:?} has {} boxes, but its {BOX_LABELS} are not a list of as many",
                            samples.name(id),
                            edges.len()
                        ))
                        .at(dataset.path())
                        .with_remedy("correct the columns with `hsipack table`"));
                    }
                };
                all.edges.extend(edges);
                labels.extend(of_sample);
            }
            all.starts.push(all.edges.len());
        }
        if !are_boxes {
            return Ok(None);
        }
        all.number(&labels).map_err(|error| error.at(dataset.path()))?;
        Ok(Some(all))
    }

    /// Numbers the labels.
    fn number(&mut self, labels: &[Value]) -> Result<()> {
        let names: BTreeSet<&str> = labels.iter().filter_map(Value::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let class = |label: &Value| match label {
            Value::Null => Some(-1),
            Value::String(name) => names.binary_search(&name.as_str()).ok().map(|at| at as i64),
            number if names.is_empty() => number.as_i64(),
            _ => None,
        };
        let classes = labels.iter().map(|label| {
            class(label).ok_or_else(|| {
                Error::conflict(format!(
                    "the label {label} of a box is not {}",
                    match names.is_empty() {
                        true => "a whole number",
                        false => "a name, as other labels are",
                    }
                ))
                .with_remedy(
                    "give all boxes names, or all of them whole numbers, with `hsipack table`",
                )
            })
        });
        self.classes = classes.collect::<Result<_>>()?;
        self.names = names.into_iter().map(str::to_owned).collect();
        Ok(())
    }

    /// Number of boxes of all samples.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether no sample has boxes.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// The positions of a sample's boxes among those of all samples.
    pub fn numbers(&self, sample: usize) -> Range<usize> {
        match self.starts.get(sample..sample + 2) {
            Some([first, end]) => *first..*end,
            _ => 0..0,
        }
    }

    /// The boxes of a sample: left, top, right and bottom, in pixels from the outer corner of the
    /// cube's first pixel.
    pub fn of_sample(&self, sample: usize) -> impl ExactSizeIterator<Item = [f64; 4]> {
        self.edges[self.numbers(sample)].iter().copied()
    }

    /// All boxes of a sample, cut by a window of its cube.
    pub(crate) fn in_window(&self, sample: usize, window: Window) -> Vec<ObjectBox> {
        let Window { row, column, rows, columns } = window;
        let size = [rows as usize, columns as usize];
        let cut = |edges| ObjectBox::new(edges).in_window([row.into(), column.into()], size);
        self.of_sample(sample).map(cut).collect()
    }

    /// Those of all boxes of a sample of which enough is visible, with their positions among those
    /// of all samples.
    pub(crate) fn visible(
        &self,
        sample: usize,
        objects: Vec<ObjectBox>,
        min_visible: f64,
    ) -> Vec<(usize, ObjectBox)> {
        let is_left = |object: &ObjectBox| object.visible > 0.0 && object.visible >= min_visible;
        let numbered = self.numbers(sample).zip(objects);
        numbered.filter(|(_, object)| is_left(object)).collect()
    }

    /// The boxes of which at least the share `min_visible` is in a window of a sample, as
    /// [`DeviceBatch::boxes`] gives them without augmentations.
    ///
    /// [`DeviceBatch::boxes`]: crate::DeviceBatch::boxes
    pub fn cut(&self, sample: usize, window: Window, min_visible: f64) -> Vec<(usize, ObjectBox)> {
        self.visible(sample, self.in_window(sample, window), min_visible)
    }

    /// The class of every box of all samples: its position among [`names`](Self::names), or the
    /// stored number if there are no names. -1 without a label.
    pub fn classes(&self) -> &[i64] {
        &self.classes
    }

    /// The names of the classes, in the order of the alphabet; empty if labels are numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

fn has_area([left, top, right, bottom]: &[f64; 4]) -> bool {
    right > left && bottom > top
}
