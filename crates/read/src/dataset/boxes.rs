//! Boxes around objects, from the columns `boxes` and `box_labels` of the samples.

use std::collections::BTreeSet;
use std::ops::Range;

use hsipack_format::Error;
use hsipack_format::samples::{BOX_LABELS, BOXES};
use serde::Deserialize;
use serde_json::Value;

use super::open::Dataset;
use crate::Result;

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
    /// Reads the boxes of a dataset. `None` if no sample has any: no column `boxes`, or one that holds other things than
    /// lists of `[left, top, right, bottom]`.
    ///
    /// # Errors
    /// If samples cannot be read, or labels do not belong to their boxes.
    pub fn read(dataset: &Dataset) -> Result<Option<Self>> {
        let samples = dataset.samples();
        if !samples.columns().iter().any(|column| column == BOXES) {
            return Ok(None);
        }
        let (mut boxes, mut labels) = (Self { starts: vec![0], ..Self::default() }, Vec::new());
        let mut are_boxes = false;
        for id in 0..samples.len() {
            let line: Line = serde_json::from_slice(&samples.line(id)?)
                .map_err(|error| Error::damaged(format!("sample {id}: {error}")))?;
            if let Some(edges) = line.boxes {
                let Ok(edges) = serde_json::from_value::<Vec<[f64; 4]>>(edges) else {
                    return Ok(None);
                };
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
                boxes.edges.extend(edges);
                labels.extend(of_sample);
            }
            boxes.starts.push(boxes.edges.len());
        }
        if !are_boxes {
            return Ok(None);
        }
        boxes.number(&labels).map_err(|error| error.at(dataset.path()))?;
        Ok(Some(boxes))
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

    /// The boxes of a sample: left, top, right and bottom, in pixels from the outer corner of the cube's first pixel.
    pub fn of_sample(&self, sample: usize) -> impl ExactSizeIterator<Item = [f64; 4]> {
        self.edges[self.numbers(sample)].iter().copied()
    }

    /// The class of every box of all samples: its position among [`names`](Self::names), or the stored number if there are
    /// no names. -1 without a label.
    pub fn classes(&self) -> &[i64] {
        &self.classes
    }

    /// The names of the classes, in the order of the alphabet; empty if labels are numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}
