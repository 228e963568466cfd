//! Converts our arrays for NumPy and DLPack, and theirs to ours: the memory is shared, not copied.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use hsipack_augment as augment;
use hsipack_augment::array::{Buffer, DlPack, Memory, Reach, contiguous};
use hsipack_augment::{Device, ElementType};
use hsipack_format::{Error, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::errors::OrRaise;

const FRESH: &CStr = c"dltensor";
const USED: &CStr = c"used_dltensor";

/// NumPy's name of an element type; it has no bfloat16.
pub fn typestr(element: ElementType) -> Option<&'static str> {
    Some(match element {
        ElementType::Bool => "|b1",
        ElementType::U8 => "|u1",
        ElementType::I8 => "|i1",
        ElementType::U16 => "<u2",
        ElementType::I16 => "<i2",
        ElementType::U32 => "<u4",
        ElementType::I32 => "<i4",
        ElementType::U64 => "<u8",
        ElementType::I64 => "<i8",
        ElementType::F16 => "<f2",
        ElementType::BF16 => return None,
        ElementType::F32 => "<f4",
        ElementType::F64 => "<f8",
    })
}

/// A capsule with the DLPack form of an array. It keeps the array alive as long as its consumer
/// needs it.
pub fn capsule<'py>(py: Python<'py>, array: &augment::Array) -> PyResult<Bound<'py, PyCapsule>> {
    let managed = DlPack::of(array).into_raw();
    // SAFETY: the pointer is a managed tensor that nobody else owns; `release` frees it if no consumer takes it.
    unsafe { PyCapsule::new_with_pointer_and_destructor(py, managed, FRESH, Some(release)) }
}

/// Frees the contents of a capsule if no consumer took them.
unsafe extern "C" fn release(capsule: *mut ffi::PyObject) {
    // SAFETY: called by Python with the capsule that is being freed, attached to the interpreter; the pointer is ours
    // as long as the capsule has its first name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, FRESH.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, FRESH.as_ptr());
            if let Some(managed) = NonNull::new(managed) {
                drop(DlPack::from_raw(managed));
            }
        }
    }
}

/// Takes the array out of a DLPack capsule; the capsule cannot be used again.
pub fn of_capsule(capsule: &Bound<'_, PyCapsule>) -> PyResult<augment::Array> {
    let managed: NonNull<c_void> = capsule.pointer_checked(Some(FRESH))?;
    // SAFETY: a capsule of this name holds a managed tensor; with the other name its destructor does not touch it.
    let shared = unsafe {
        if ffi::PyCapsule_SetName(capsule.as_ptr(), USED.as_ptr()) != 0 {
            return Err(PyErr::fetch(capsule.py()));
        }
        DlPack::from_raw(managed)
    };
    // SAFETY: the memory is read during the call that received it, or passed on to the caller that asked for it. A
    // program that writes to it at that time has a data race, as with every function of NumPy and torch.
    unsafe { shared.into_array() }.or_raise(capsule.py())
}

/// Memory of a NumPy array.
struct Numpys {
    _owner: Py<PyAny>,
    start: *mut u8,
    bytes: usize,
}

// SAFETY: it is only read; the owner is a Python object, whose references may be dropped in any thread.
unsafe impl Send for Numpys {}
// SAFETY: as above.
unsafe impl Sync for Numpys {}

// SAFETY: NumPy does not move the memory as long as the array is referenced; the code that creates this value promises
// that nobody writes to it.
unsafe impl Memory for Numpys {
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn start(&self) -> *mut u8 {
        self.start
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Converts a NumPy array whose strides are whole elements.
pub fn of_numpy(
    owner: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyDict>,
) -> PyResult<augment::Array> {
    let py = owner.py();
    let item = |name: &str| -> PyResult<Bound<'_, PyAny>> {
        interface.get_item(name)?.ok_or_else(|| PyTypeError::new_err(format!("no {name}")))
    };
    let typestr_given: String = item("typestr")?.extract()?;
    let element =
        ElementType::ALL.into_iter().find(|element| typestr(*element) == Some(&typestr_given));
    let element = element
        .ok_or_else(|| {
            Error::unsupported(format!("arrays of NumPy type {typestr_given} are not supported"))
                .with_remedy("convert it: mask.astype(\"int32\"), image.astype(\"float32\")")
        })
        .or_raise(py)?;
    let shape: Vec<usize> = item("shape")?.extract()?;
    let (address, _): (usize, bool) = item("data")?.extract()?;
    let size = element.size();
    let strides: Option<Vec<isize>> = match interface.get_item("strides")? {
        Some(strides) => strides.extract()?,
        None => None,
    };
    let strides =
        strides.map(|strides| strides.iter().map(|stride| stride / size as isize).collect());
    let strides: Vec<isize> = strides.unwrap_or_else(|| contiguous(&shape));
    let reach = Reach::of(&shape, &strides);
    let memory = Numpys {
        _owner: owner.clone().unbind(),
        start: (address as *mut u8).wrapping_sub(reach.before * size),
        bytes: (reach.before + reach.after) * size,
    };
    augment::Array::with_strides(Arc::new(memory), reach.before * size, &shape, &strides, element)
        .or_raise(py)
}

/// Copies the elements into new memory, with the same strides.
pub fn apart(array: &augment::Array) -> Result<augment::Array> {
    let size = array.element().size();
    let reach = Reach::of(array.shape(), array.strides());
    let (before, len) = (reach.before * size, (reach.before + reach.after) * size);
    let bytes = if len == 0 || array.device() != Device::Cpu {
        &[][..]
    } else {
        // SAFETY: the first and the last element lie in the array's memory, which is host memory and does not change
        // while the array lives.
        unsafe { std::slice::from_raw_parts(array.address().wrapping_sub(before), len) }
    };
    let memory = Buffer::of(bytes)?.shared();
    augment::Array::with_strides(memory, before, array.shape(), array.strides(), array.element())
}

/// The array at index 0 of the first axis.
pub fn first(array: &augment::Array) -> Result<augment::Array> {
    let start = array.address() as usize - array.memory().start() as usize;
    let (shape, strides) = (&array.shape()[1..], &array.strides()[1..]);
    augment::Array::with_strides(array.memory().clone(), start, shape, strides, array.element())
}
