//! Tensors as DLPack and NumPy see them: the same memory, no copy.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use hsipack_read::{DlPack, Error};
use pyo3::exceptions::{PyAttributeError, PyBufferError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use tch::{Device, Kind, Tensor};

use crate::errors::OrRaise;

const FRESH: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";

/// A tensor, for whoever speaks DLPack or NumPy's array interface.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct Array {
    tensor: Mutex<Tensor>,
    /// Its signed integers are unsigned ones.
    unsigned: bool,
}

impl Array {
    pub fn new(tensor: Tensor) -> Self {
        Self::of_bits(tensor, false)
    }

    pub fn of_bits(tensor: Tensor, unsigned: bool) -> Self {
        Self { tensor: Mutex::new(tensor), unsigned }
    }

    fn tensor(&self) -> Tensor {
        self.tensor.lock().unwrap_or_else(PoisonError::into_inner).shallow_clone()
    }
}

#[pymethods]
impl Array {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Batches are ordered behind the stream that was current when they were asked for; and everybody takes the
        // protocol's first version.
        let _ = (stream, max_version);
        let mut tensor = self.tensor();
        if dl_device.is_some_and(|device| DlPack::device(&tensor).ok() != Some(device)) {
            return Err(PyBufferError::new_err("the array is on another device; copy it there"));
        }
        if copy == Some(true) {
            tensor = py.detach(move || tensor.copy());
        }
        let shared = DlPack::of(&tensor, self.unsigned).or_raise(py)?;
        let managed = NonNull::new(shared.into_raw()).expect("an export is not null");
        // SAFETY: the pointer is a managed tensor that nobody else owns; `release` frees it if nobody takes it.
        unsafe { PyCapsule::new_with_pointer_and_destructor(py, managed, FRESH, Some(release)) }
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        DlPack::device(&self.tensor()).or_raise(py)
    }

    /// What NumPy makes an array of, without a copy.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let tensor = self.tensor();
        if tensor.device() != Device::Cpu {
            return Err(PyAttributeError::new_err("the array is not in the host's memory"));
        }
        let bytes = tensor.kind().elt_size_in_bytes() as i64;
        let strides: Vec<i64> = tensor.stride().iter().map(|stride| stride * bytes).collect();
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", type_string(tensor.kind(), self.unsigned)?)?;
        interface.set_item("shape", PyTuple::new(py, tensor.size())?)?;
        interface.set_item("strides", PyTuple::new(py, strides)?)?;
        interface.set_item("data", (tensor.data_ptr() as usize, false))?;
        Ok(interface)
    }
}

/// NumPy's name of an element type.
fn type_string(kind: Kind, unsigned: bool) -> PyResult<&'static str> {
    Ok(match (kind, unsigned) {
        (Kind::Bool, _) => "|b1",
        (Kind::Uint8, _) => "|u1",
        (Kind::Int8, _) => "|i1",
        (Kind::Int16, false) => "<i2",
        (Kind::Int16, true) => "<u2",
        (Kind::Int, false) => "<i4",
        (Kind::Int, true) => "<u4",
        (Kind::Int64, false) => "<i8",
        (Kind::Int64, true) => "<u8",
        (Kind::Half, _) => "<f2",
        (Kind::Float, _) => "<f4",
        (Kind::Double, _) => "<f8",
        (other, _) => {
            let what = format!("NumPy has no {other:?}; ask for float16 or float32");
            return Err(PyAttributeError::new_err(what));
        }
    })
}

/// Frees what a capsule holds if nobody took it.
unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with the capsule that is being freed, attached to the interpreter; the pointer is ours as
    // long as the capsule has the first name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr());
            if let Some(managed) = NonNull::new(managed) {
                drop(DlPack::from_raw(managed));
            }
        }
    }
}

/// The tensor that a DLPack capsule holds, which is used up.
pub fn tensor_of(capsule: &Bound<'_, PyCapsule>) -> PyResult<Tensor> {
    let managed: NonNull<c_void> = capsule.pointer_checked(Some(FRESH))?;
    // SAFETY: a capsule of this name holds a managed tensor; with the other name its destructor leaves it alone.
    let shared = unsafe {
        if ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        DlPack::from_raw(managed)
    };
    let tensor = shared.into_tensor().or_raise(capsule.py())?;
    // Asking for a type that tch has no name for panics later.
    let known = tensor.f_kind().map_err(|error| {
        Error::unsupported(format!("a tensor of a type that is not computed with: {error}"))
            .with_remedy("convert it: mask.int(), image.float()")
    });
    known.or_raise(capsule.py()).map(|_| tensor)
}
