//! The array that Python gets: NumPy, torch and others share its memory.

use hsipack_augment::array::Stream;
use hsipack_augment::array::dlpack::device_numbers;
use hsipack_augment::{Device, ElementType};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};

use crate::dlpack::{apart, capsule, of_capsule, of_numpy, typestr};
use crate::errors::OrRaise;
use crate::exit::detached;
use crate::torch::{Tensor, TorchTensor};

/// An array for programs that support DLPack or NumPy's array interface.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct Array(Tensor);

impl Array {
    pub fn new(tensor: impl Into<Tensor>) -> Self {
        Self(tensor.into())
    }
}

#[pymethods]
impl Array {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // All consumers accept the first version of the protocol.
        let _ = max_version;
        let device = self.0.device().or_raise(py)?;
        if dl_device.is_some_and(|wanted| wanted != device_numbers(device)) {
            return Err(PyBufferError::new_err(format!(
                "the array is on {device}; take it first, then copy it to the other device"
            )));
        }
        let array = match &self.0 {
            Tensor::Ours(array) => array,
            Tensor::Torch(tensor) => return tensor.to_dlpack(py, stream, copy),
        };
        let copied;
        let array = match (copy, device) {
            (Some(true), Device::Cpu) => {
                copied = detached(py, || apart(array)).or_raise(py)?;
                &copied
            }
            (Some(true), _) => {
                return Err(PyBufferError::new_err(
                    "arrays on a device cannot be copied here; take the array first, then copy it",
                ));
            }
            _ => array,
        };
        if let (Device::Cuda(_), Some(stream)) = (device, Stream::of_dlpack(stream)) {
            detached(py, || array.memory().lend(stream)).or_raise(py)?;
        }
        Ok(capsule(py, array)?.into_any())
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        self.0.device().map(device_numbers).or_raise(py)
    }

    /// The interface from which NumPy makes an array without a copy.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let element = self.0.element().or_raise(py)?;
        let (Device::Cpu, Some(typestr)) = (self.0.device().or_raise(py)?, typestr(element)) else {
            return Err(PyAttributeError::new_err(self.not_numpys(py)?));
        };
        let array = self.0.array().or_raise(py)?;
        let bytes = element.size() as isize;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("shape", PyTuple::new(py, array.shape())?)?;
        let strides = array.strides().iter().map(|stride| stride * bytes);
        interface.set_item("strides", PyTuple::new(py, strides.collect::<Vec<_>>())?)?;
        interface.set_item("data", (array.address() as usize, false))?;
        Ok(interface)
    }

    /// Called by NumPy if there is no array interface; raises an error that says why there is none.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__(
        &self,
        py: Python<'_>,
        dtype: Option<Bound<'_, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<()> {
        let _ = (dtype, copy);
        Err(PyTypeError::new_err(self.not_numpys(py)?))
    }

    /// Lengths of the axes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape().or_raise(py)?)
    }

    /// The element type's name.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.0.element().map(ElementType::name).or_raise(py)
    }

    /// The device on which it is.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.device().or_raise(py)?.to_string())
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape(py)?.repr()?;
        let (element, device) = (self.dtype(py)?, self.device(py)?);
        Ok(format!("<hsipack.Array {shape} of {element} on {device}>"))
    }
}

impl Array {
    /// Why NumPy cannot use it.
    fn not_numpys(&self, py: Python<'_>) -> PyResult<String> {
        Ok(match self.0.device().or_raise(py)? {
            Device::Cpu => format!(
                "NumPy has no {}; choose float16 or float32, or take the array by DLPack",
                self.dtype(py)?
            ),
            device => {
                format!("the array is on {device}, where NumPy cannot use it; take it by DLPack")
            }
        })
    }
}

/// Reads an image or a mask from Python: a DLPack capsule, one of our arrays, a NumPy array, or a
/// torch tensor.
pub fn taken(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let py = object.py();
    if let Ok(array) = object.cast::<Array>() {
        return Ok(array.get().0.clone());
    }
    if let Ok(capsule) = object.cast::<PyCapsule>() {
        return of_capsule(capsule).map(Tensor::Ours);
    }
    if let Ok(interface) = object.getattr(intern!(py, "__array_interface__")) {
        return of_numpy(object, interface.cast()?).map(Tensor::Ours);
    }
    TorchTensor::of(object).map(Tensor::Torch)
}

impl From<Tensor> for Array {
    fn from(tensor: Tensor) -> Self {
        Self(tensor)
    }
}
