//! Functions and element types of torch, looked up once.

use hsipack_augment::{Device, ElementType};
use hsipack_format::Error;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict};

use crate::errors::OrRaise;

/// Declares the functions by their names in torch.
macro_rules! functions {
    ($($name:ident = $path:literal,)*) => {
        /// Functions and classes of torch.
        pub struct Functions {
            $(pub $name: Py<PyAny>,)*
        }

        impl Functions {
            fn of(torch: &Bound<'_, PyAny>) -> PyResult<Self> {
                Ok(Self { $($name: found(torch, $path)?,)* })
            }
        }
    };
}

functions! {
    abs = "abs",
    add = "add",
    amax = "amax",
    any = "any",
    arange = "arange",
    argmax = "argmax",
    autocast = "autocast",
    bitwise_and = "bitwise_and",
    clamp_max = "clamp_max",
    clamp_min = "clamp_min",
    clone = "clone",
    contiguous = "Tensor.contiguous",
    copy_ = "Tensor.copy_",
    cumsum = "cumsum",
    current_stream = "cuda.current_stream",
    device = "device",
    device_count = "cuda.device_count",
    div = "div",
    embedding_bag = "embedding_bag",
    empty = "empty",
    eq = "eq",
    flip = "flip",
    floor = "floor",
    floor_divide = "floor_divide",
    fmod = "fmod",
    from_dlpack = "utils.dlpack.from_dlpack",
    full = "full",
    ge = "ge",
    generator = "Generator",
    gt = "gt",
    index_copy_ = "Tensor.index_copy_",
    index_select = "index_select",
    is_available = "cuda.is_available",
    is_contiguous = "Tensor.is_contiguous",
    is_autocast_enabled = "is_autocast_enabled",
    isnan = "isnan",
    le = "le",
    logical_and = "logical_and",
    logical_not = "logical_not",
    logical_or = "logical_or",
    lt = "lt",
    matmul = "matmul",
    maximum = "maximum",
    minimum = "minimum",
    mul = "mul",
    nan_to_num = "nan_to_num",
    narrow = "narrow",
    ne = "ne",
    neg = "neg",
    permute = "permute",
    pin_memory = "Tensor.pin_memory",
    rand = "rand",
    randn = "randn",
    reshape = "reshape",
    round = "round",
    scatter = "scatter",
    sort = "sort",
    sqrt = "sqrt",
    square = "square",
    stack = "stack",
    sub = "sub",
    sum = "sum",
    synchronize = "cuda.synchronize",
    tensor = "Tensor",
    to = "Tensor.to",
    where_ = "where",
}

fn found(torch: &Bound<'_, PyAny>, path: &str) -> PyResult<Py<PyAny>> {
    let mut found = torch.clone();
    for name in path.split('.') {
        found = found.getattr(name)?;
    }
    Ok(found.unbind())
}

/// The torch of this process; it is imported on first use.
pub struct Torch {
    pub functions: Functions,
    /// Element types, in the order of [`ElementType::ALL`].
    dtypes: Vec<Py<PyAny>>,
}

static TORCH: PyOnceLock<Torch> = PyOnceLock::new();

impl Torch {
    /// Imports torch if necessary.
    pub fn get(py: Python<'_>) -> PyResult<&Self> {
        TORCH.get_or_try_init(py, || {
            let torch =
                py.import("hsipack._torch")?.call_method1("load", ("computing on a device",))?;
            let dtypes = ElementType::ALL.map(|element| found(&torch, element.name()));
            Ok(Self {
                functions: Functions::of(&torch)?,
                dtypes: dtypes.into_iter().collect::<PyResult<_>>()?,
            })
        })
    }

    /// Torch's name of an element type.
    pub fn dtype(&self, element: ElementType) -> &Py<PyAny> {
        let index = ElementType::ALL.iter().position(|known_type| *known_type == element);
        &self.dtypes[index.expect("all are there")]
    }

    /// A tensor's element type.
    pub fn element_of(&self, tensor: &Bound<'_, PyAny>) -> PyResult<ElementType> {
        let py = tensor.py();
        let dtype = tensor.getattr(intern!(py, "dtype"))?;
        let index = self.dtypes.iter().position(|known_type| known_type.is(&dtype));
        index
            .map(|index| ElementType::ALL[index])
            .ok_or_else(|| {
                Error::unsupported(format!("tensors of {dtype} are not supported"))
                    .with_remedy("convert it: mask.int(), image.float()")
            })
            .or_raise(py)
    }

    /// Whether an object is a tensor.
    pub fn is_tensor(&self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        object.is_instance(self.functions.tensor.bind(object.py()))
    }

    /// Torch's name of a device.
    pub fn device_of(&self, py: Python<'_>, device: Device) -> PyResult<Py<PyAny>> {
        let device = match device {
            Device::Cpu => self.functions.device.bind(py).call1(("cpu",)),
            Device::Cuda(number) => self.functions.device.bind(py).call1(("cuda", number)),
        };
        device.map(Bound::unbind)
    }

    /// A tensor over the memory in a capsule.
    pub fn of_capsule<'py>(
        &self,
        py: Python<'py>,
        capsule: Bound<'py, PyCapsule>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.functions.from_dlpack.bind(py).call1((capsule,))
    }

    /// The handle of the current stream of a device.
    pub fn stream_of<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Bound<'py, PyAny>> {
        let stream = self.functions.current_stream.bind(py).call1((number,))?;
        stream.getattr(intern!(py, "cuda_stream"))
    }

    /// Turns autocast off as long as the result lives, so that torch does not cast values by
    /// itself.
    pub fn without_autocast<'py>(&self, py: Python<'py>, device: Device) -> PyResult<Plain<'py>> {
        let kind = match device {
            Device::Cpu => intern!(py, "cpu"),
            Device::Cuda(_) => intern!(py, "cuda"),
        };
        if !self.functions.is_autocast_enabled.bind(py).call1((kind,))?.is_truthy()? {
            return Ok(Plain(None));
        }
        let options = PyDict::new(py);
        options.set_item(intern!(py, "enabled"), false)?;
        let manager = self.functions.autocast.bind(py).call((kind,), Some(&options))?;
        manager.call_method0(intern!(py, "__enter__"))?;
        Ok(Plain(Some(manager)))
    }
}

/// Torch with autocast turned off. When this is dropped, autocast is restored.
pub struct Plain<'py>(Option<Bound<'py, PyAny>>);

impl Drop for Plain<'_> {
    fn drop(&mut self) {
        if let Some(manager) = self.0.take() {
            let none = manager.py().None();
            // It only restores the earlier state.
            let _ = manager.call_method1("__exit__", (&none, &none, &none));
        }
    }
}
