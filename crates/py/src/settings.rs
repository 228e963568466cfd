//! The settings of a loader, from Python's dictionary.

use hsipack_augment::Pipeline;
use hsipack_read::{DeviceOptions, Error, Integers, LoaderOptions, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use serde::{Deserialize, Serialize};

use crate::errors::{OrRaise, wrong_type};
use crate::options;
use crate::torch::Library;

/// The settings of a loader: its options, and what belongs to Python. `hsipack.Loader` makes the
/// dictionary.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Options of the decoding loader.
    #[serde(flatten)]
    pub loader: LoaderOptions,
    /// Options of the device and its tensors.
    #[serde(flatten)]
    pub device: DeviceOptions,
    /// The augmentations, as JSON.
    pipeline: Option<String>,
    /// The least share of an object that must be inside an image for its box to be in the batch; no
    /// boxes if `None`.
    pub min_visible: Option<f64>,
    /// Whether tensors on a device are passed to torch.
    torch: bool,
    /// Threads that compute in host memory.
    computing_threads: usize,
}

impl Settings {
    /// The form of images that are stored as integers: physical values, unless the dataset is read
    /// with `physical=False`.
    pub fn integers(&self) -> Integers {
        self.device.integers(match self.device.physical {
            true => Integers::default(),
            false => Integers::Stored,
        })
    }

    /// The settings in a dictionary. `None` stands for the default.
    pub fn of(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let chosen = PyDict::new(settings.py());
        for (name, value) in settings.iter().filter(|(_, value)| !value.is_none()) {
            chosen.set_item(name, value)?;
        }
        options::read(&chosen)
    }

    /// The library that computes.
    pub fn library(&self) -> Library {
        Library::new(self.computing_threads, self.torch)
    }

    /// The augmentations.
    pub fn pipeline(&self) -> Result<Option<Pipeline>> {
        self.pipeline.as_deref().map(Pipeline::from_json).transpose()
    }
}

/// The settings of a loader with their defaults, as JSON.
#[pyfunction]
pub fn loader_defaults() -> String {
    serde_json::to_string(&Settings::default()).expect("plain data")
}

/// Reads settings that Python made and checked. If a value still has the wrong type, this raises
/// our own kind of error instead of Python's.
pub fn read<'a, 'py, T: FromPyObject<'a, 'py, Error = PyErr>>(
    settings: &'a Bound<'py, PyAny>,
) -> PyResult<T> {
    settings.extract().or_else(|error: PyErr| {
        let py = settings.py();
        let what = error.value(py).to_string();
        // For "failed to extract field Settings.slots", whose cause says why.
        let name = what.rsplit('.').next().unwrap_or(&what).to_owned();
        let why = error.cause(py).map_or(what, |cause| cause.value(py).to_string());
        let value = settings.get_item(PyString::new(py, &name));
        let value = value
            .and_then(|value| value.repr())
            .map_or_else(|_| "…".into(), |text| text.to_string());
        let what = format!("{name}={value}: {why}");
        match error.cause(py).is_some_and(|cause| cause.is_instance_of::<PyTypeError>(py)) {
            true => Err(wrong_type(py, &what)),
            false => Err(Error::conflict(what)).or_raise(py),
        }
    })
}
