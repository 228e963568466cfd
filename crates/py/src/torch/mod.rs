//! The user's torch, called through Python: any version works, because nothing here links to it.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | tensors: our arrays, or tensors of torch |
//! | `functions.rs` | functions and element types of torch, looked up once |
//! | `tensors.rs` | the operations that augmentations need, as calls of torch functions |
//! | `library.rs` | the library of batches: our arrays in host memory, torch tensors on a device |
//! | `training.rs` | what measuring needs from torch: devices, copies, waiting, a network |

mod functions;
mod library;
mod tensors;
mod training;

use std::ops::Range;
use std::sync::Arc;

use hsipack_augment as augment;
use hsipack_augment::array::Stream;
use hsipack_augment::{Device, ElementType};
use hsipack_format::{Error, Result};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

pub use functions::Torch;
pub use library::{Library, host};
pub use tensors::PyTorch;

use crate::dlpack::{apart, capsule, of_capsule};
use crate::errors::OrRaise;
use crate::exit::{attached, detached};

/// A tensor of the package. In host memory, it is always our array. On a device, it is our array
/// until something is computed, and then a torch tensor.
#[derive(Clone)]
pub enum Tensor {
    Ours(augment::Array),
    Torch(TorchTensor),
}

/// A torch tensor. Clones are the same tensor.
#[derive(Clone)]
pub struct TorchTensor(Arc<Py<PyAny>>);

impl From<augment::Array> for Tensor {
    fn from(array: augment::Array) -> Self {
        Self::Ours(array)
    }
}

impl From<Bound<'_, PyAny>> for Tensor {
    fn from(tensor: Bound<'_, PyAny>) -> Self {
        Self::Torch(TorchTensor(Arc::new(tensor.unbind())))
    }
}

impl Tensor {
    /// The device on which it is.
    pub fn device(&self) -> Result<Device> {
        match self {
            Self::Ours(array) => Ok(array.device()),
            Self::Torch(tensor) => with(|py, _| tensor.device(py)),
        }
    }

    /// Type of its elements.
    pub fn element(&self) -> Result<ElementType> {
        match self {
            Self::Ours(array) => Ok(array.element()),
            Self::Torch(tensor) => with(|py, torch| torch.element_of(tensor.0.bind(py))),
        }
    }

    /// Lengths of its axes.
    pub fn shape(&self) -> Result<Vec<usize>> {
        match self {
            Self::Ours(array) => Ok(array.shape().to_vec()),
            Self::Torch(tensor) => with(|py, _| tensor.shape(py)),
        }
    }

    /// Addresses of its memory.
    pub fn memory(&self) -> Result<Range<usize>> {
        let (start, bytes) = match self {
            Self::Ours(array) => (array.memory().start() as usize, array.memory().bytes()),
            Self::Torch(tensor) => with(|py, _| {
                let storage = tensor.0.bind(py).call_method0(intern!(py, "untyped_storage"))?;
                let start: usize = storage.call_method0(intern!(py, "data_ptr"))?.extract()?;
                Ok((start, storage.call_method0(intern!(py, "nbytes"))?.extract()?))
            })?,
        };
        Ok(start..start + bytes)
    }

    /// Copies the elements into new memory.
    pub fn apart(&self) -> Result<Self> {
        match self {
            Self::Ours(array) => Ok(Self::Ours(apart(array)?)),
            Self::Torch(tensor) => {
                with(|py, torch| Ok(torch.functions.clone.bind(py).call1((&*tensor.0,))?.into()))
            }
        }
    }

    /// As our array. The memory of a torch tensor is shared by DLPack.
    pub fn array(&self) -> Result<augment::Array> {
        match self {
            Self::Ours(array) => Ok(array.clone()),
            Self::Torch(tensor) => with(|py, _| {
                let capsule = tensor.to_dlpack(py, None, None)?;
                of_capsule(capsule.cast()?)
            }),
        }
    }

    /// As a torch tensor over the same memory. Memory of a device is lent to torch's current
    /// stream.
    fn torch<'py>(&self, py: Python<'py>, torch: &Torch) -> PyResult<Bound<'py, PyAny>> {
        let array = match self {
            Self::Torch(tensor) => return Ok(tensor.0.bind(py).clone()),
            Self::Ours(array) => array,
        };
        if let Device::Cuda(number) = array.device() {
            let stream = torch.current_stream(py, number)?;
            detached(py, || array.memory().lend(stream)).or_raise(py)?;
        }
        torch.of_capsule(py, capsule(py, array)?)
    }
}

impl TorchTensor {
    /// The object as a tensor.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let torch = Torch::get(object.py())?;
        if torch.is_tensor(object)? {
            return Ok(Self(Arc::new(object.clone().unbind())));
        }
        let what = format!("expected a tensor or an array, not {}", object.get_type().name()?);
        let error = Error::conflict(what).with_remedy("give a torch tensor or a NumPy array");
        Err(error).or_raise(object.py())
    }

    fn device(&self, py: Python<'_>) -> PyResult<Device> {
        let device = self.0.bind(py).getattr(intern!(py, "device"))?;
        let kind = device.getattr(intern!(py, "type"))?;
        match kind.extract::<&str>()? {
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(device.getattr(intern!(py, "index"))?.extract()?)),
            other => {
                let error = Error::unsupported(format!("tensors on {other} are not supported"));
                Err(error.with_remedy("copy it to the CPU or to a CUDA device first")).or_raise(py)
            }
        }
    }

    fn shape(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        self.0.bind(py).getattr(intern!(py, "shape"))?.extract()
    }

    /// A DLPack capsule of it.
    pub fn to_dlpack<'py>(
        &self,
        py: Python<'py>,
        stream: Option<i64>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut tensor = self.0.bind(py).clone();
        if copy == Some(true) {
            tensor = tensor.call_method0(intern!(py, "clone"))?;
        }
        let arguments = PyDict::new(py);
        if let (Some(stream), Device::Cuda(_)) = (stream, self.device(py)?) {
            arguments.set_item(intern!(py, "stream"), stream)?;
        }
        tensor.call_method(intern!(py, "__dlpack__"), (), Some(&arguments))
    }
}

/// Runs `work` with torch, in Python.
fn with<T>(work: impl FnOnce(Python<'_>, &Torch) -> PyResult<T>) -> Result<T> {
    attached(|py| {
        let done = Torch::get(py).and_then(|torch| work(py, torch));
        done.map_err(|error| failed(py, &error))
    })
}

/// The error for an exception.
fn failed(py: Python<'_>, error: &PyErr) -> Error {
    let value = error.value(py);
    let what = value.to_string();
    let named = error.get_type(py).name().map_or_else(|_| String::new(), |name| name.to_string());
    match &named[..] {
        // One of our errors that passed through Python.
        "UnsupportedError" | "ConflictError" => {
            let text = |name: &str| value.getattr(name).and_then(|text| text.extract::<String>());
            let error = Error::unsupported(text("what").unwrap_or(what));
            match text("remedy") {
                Ok(remedy) => error.with_remedy(remedy),
                Err(_) => error,
            }
        }
        "OutOfMemoryError" => Error::device_memory(format!("torch: {}", first_line(&what)))
            .with_remedy("use smaller batches, or free memory on the device"),
        _ => Error::device(format!("torch: {named}: {}", first_line(&what))),
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

impl Torch {
    /// The stream on which the calling thread's work on a device is queued.
    pub fn current_stream(&self, py: Python<'_>, number: usize) -> PyResult<Stream> {
        let handle: usize = self.stream_of(py, number)?.extract()?;
        Ok(Stream::of(handle as *mut std::ffi::c_void))
    }
}
