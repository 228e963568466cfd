//! Boxes around objects, as bytes for NumPy.

use std::sync::Arc;

use hsipack_augment::ObjectBox;
use hsipack_format::{Error, Result};
use hsipack_read::{Boxes, DeviceBatch};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::OrRaise;
use crate::torch::Library;

/// Which boxes the batches of a loader have.
pub struct LoaderBoxes {
    /// Of each dataset of the loader.
    pub tables: Vec<Option<Arc<Boxes>>>,
    /// The least share of an object that must be inside the image.
    pub min_visible: f64,
}

/// Number of boxes of each item; left, top, right and bottom of all boxes (float64); their numbers
/// in the dataset (int64).
pub type BoxArrays<'py> = (Vec<usize>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

impl LoaderBoxes {
    /// The boxes of a batch; `None` if its datasets have none.
    pub fn of<'py>(
        &self,
        py: Python<'py>,
        batch: &DeviceBatch<Library>,
    ) -> PyResult<Option<BoxArrays<'py>>> {
        let table = |number: usize| self.tables.get(number).and_then(Option::as_deref);
        if batch.datasets().all(|(number, _)| table(number).is_none()) {
            return Ok(None);
        }
        let items = batch.boxes_of(table, self.min_visible).or_raise(py)?;
        Ok(Some(of_items(py, &items)))
    }
}

/// The boxes of items, in the form for Python.
pub fn of_items<'py>(py: Python<'py>, items: &[Vec<(usize, ObjectBox)>]) -> BoxArrays<'py> {
    let counts = items.iter().map(Vec::len).collect();
    let all = || items.iter().flatten();
    let edges: Vec<f64> = all().flat_map(|(_, object)| object.edges).collect();
    let numbers: Vec<i64> = all().map(|(number, _)| *number as i64).collect();
    (counts, bytes(py, &edges), bytes(py, &numbers))
}

/// The classes of all boxes of a dataset (int64), and the names of the classes.
pub type Classes<'py> = (Bound<'py, PyBytes>, Vec<String>);

/// The classes of these boxes.
pub fn classes<'py>(py: Python<'py>, boxes: &Boxes) -> Classes<'py> {
    (bytes(py, boxes.classes()), boxes.names().to_vec())
}

/// The boxes of each sample, from left, top, right and bottom of each (float64).
pub fn taken(samples: &[Vec<u8>]) -> Result<Vec<Vec<ObjectBox>>> {
    let boxes = samples.iter().map(|bytes| {
        let (numbers, others) = bytes.as_chunks::<8>();
        let numbers: Vec<f64> = numbers.iter().copied().map(f64::from_ne_bytes).collect();
        let (boxes, more) = numbers.as_chunks::<4>();
        let are_whole = others.is_empty() && more.is_empty();
        are_whole.then(|| boxes.iter().map(|edges| ObjectBox::new(*edges)).collect())
    });
    boxes.collect::<Option<_>>().ok_or_else(|| Error::bug("boxes of another size"))
}

/// Left, top, right, bottom and the visible share of the boxes of each sample (float64).
pub fn edges<'py>(py: Python<'py>, samples: &[Vec<ObjectBox>]) -> Vec<Bound<'py, PyBytes>> {
    let numbers = |object: &ObjectBox| {
        let [left, top, right, bottom] = object.edges;
        [left, top, right, bottom, object.visible]
    };
    let of_sample = |boxes: &Vec<ObjectBox>| {
        let numbers: Vec<f64> = boxes.iter().flat_map(numbers).collect();
        bytes(py, &numbers)
    };
    samples.iter().map(of_sample).collect()
}

fn bytes<'py, T: bytemuck::NoUninit>(py: Python<'py>, numbers: &[T]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, bytemuck::cast_slice(numbers))
}
