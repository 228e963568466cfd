//! The operations that augmentations need, as calls of torch functions.

use std::sync::Arc;

use hsipack_augment::kernels::{self, Kernels, Launcher};
use hsipack_augment::tensors::{Binary, Tensors, Unary};
use hsipack_augment::{Array, Device, ElementType};
use hsipack_format::Result;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyInt, PyTuple};

use super::functions::{Functions, Torch};
use super::{Tensor, with};
use crate::dlpack::capsule;

/// Whole numbers up to this one are exact in `f64`.
const EXACT: f64 = (1u64 << 53) as f64;

/// The user's torch, computing on one device.
#[derive(Clone)]
pub struct PyTorch {
    device: Device,
    /// Torch's name of the device.
    named: Arc<Py<PyAny>>,
    /// Runs hsipack's kernels; without it, torch's operations do everything.
    launcher: Option<Arc<dyn Launcher>>,
}

type Answer<'py> = PyResult<Bound<'py, PyAny>>;

impl PyTorch {
    /// Operations on this device.
    ///
    /// # Errors
    /// If torch cannot be imported.
    pub fn on(device: Device) -> Result<Self> {
        let named = with(|py, torch| Ok(Arc::new(torch.device_of(py, device)?)))?;
        let launcher = match device {
            Device::Cuda(number) => kernels::of_device(number).ok(),
            Device::Cpu => None,
        };
        Ok(Self { device, named, launcher })
    }

    /// The arguments `dtype=` and `device=`.
    fn form<'py>(
        &self,
        py: Python<'py>,
        torch: &Torch,
        element: ElementType,
    ) -> PyResult<Bound<'py, PyDict>> {
        let form = PyDict::new(py);
        form.set_item(intern!(py, "dtype"), torch.dtype(element))?;
        form.set_item(intern!(py, "device"), &*self.named)?;
        Ok(form)
    }

    /// Random numbers from a torch function, with their own generator.
    fn random<'py>(
        &self,
        py: Python<'py>,
        torch: &Torch,
        function: &Py<PyAny>,
        shape: &[usize],
        seed: u64,
    ) -> Answer<'py> {
        let generator = torch.functions.generator.bind(py).call1((&*self.named,))?;
        generator.call_method1(intern!(py, "manual_seed"), (seed,))?;
        let form = self.form(py, torch, ElementType::F32)?;
        form.set_item(intern!(py, "generator"), generator)?;
        function.bind(py).call((PyTuple::new(py, shape)?,), Some(&form))
    }
}

/// A call whose result is a tensor.
fn made(work: impl for<'py> FnOnce(Python<'py>, &Torch) -> Answer<'py>) -> Result<Tensor> {
    with(|py, torch| Ok(work(py, torch)?.into()))
}

/// Converts a whole number to a Python int, so that integer tensors stay integers.
fn number(py: Python<'_>, value: f64) -> Bound<'_, PyAny> {
    if value.fract() == 0.0 && value.abs() <= EXACT && (value != 0.0 || value.is_sign_positive()) {
        PyInt::new(py, value as i64).into_any()
    } else {
        PyFloat::new(py, value).into_any()
    }
}

fn tuple<'py>(py: Python<'py>, numbers: &[usize]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, numbers)
}

impl Functions {
    fn unary(&self, op: Unary) -> &Py<PyAny> {
        match op {
            Unary::Abs => &self.abs,
            Unary::Floor => &self.floor,
            Unary::Isnan => &self.isnan,
            Unary::LogicalNot => &self.logical_not,
            Unary::Neg => &self.neg,
            Unary::Round => &self.round,
            Unary::Sqrt => &self.sqrt,
            Unary::Square => &self.square,
        }
    }

    fn binary(&self, op: Binary) -> &Py<PyAny> {
        match op {
            Binary::Add => &self.add,
            Binary::BitwiseAnd => &self.bitwise_and,
            Binary::Div => &self.div,
            Binary::Eq => &self.eq,
            Binary::FloorDivide => &self.floor_divide,
            Binary::Fmod => &self.fmod,
            Binary::Ge => &self.ge,
            Binary::Gt => &self.gt,
            Binary::Le => &self.le,
            Binary::LogicalAnd => &self.logical_and,
            Binary::LogicalOr => &self.logical_or,
            Binary::Lt => &self.lt,
            Binary::Maximum => &self.maximum,
            Binary::Minimum => &self.minimum,
            Binary::Mul => &self.mul,
            Binary::Ne => &self.ne,
            Binary::Sub => &self.sub,
        }
    }

    /// The function for a tensor and a number: torch's `maximum` and `minimum` do not accept
    /// numbers.
    fn with(&self, op: Binary) -> &Py<PyAny> {
        match op {
            Binary::Maximum => &self.clamp_min,
            Binary::Minimum => &self.clamp_max,
            op => self.binary(op),
        }
    }
}

impl Tensors for PyTorch {
    type Tensor = Tensor;

    fn shape(&self, tensor: &Tensor) -> Result<Vec<usize>> {
        tensor.shape()
    }

    fn element(&self, tensor: &Tensor) -> Result<ElementType> {
        tensor.element()
    }

    fn is_contiguous(&self, tensor: &Tensor) -> Result<bool> {
        with(|py, torch| {
            let tensor = tensor.torch(py, torch)?;
            torch.functions.is_contiguous.bind(py).call1((tensor,))?.extract()
        })
    }

    fn kernels(&self) -> Result<Option<Kernels>> {
        let (Some(launcher), Device::Cuda(number)) = (&self.launcher, self.device) else {
            return Ok(None);
        };
        let stream = with(|py, torch| torch.current_stream(py, number))?;
        Ok(Some(Kernels { launcher: launcher.clone(), stream }))
    }

    fn address(&self, tensor: &Tensor) -> Result<usize> {
        with(|py, torch| tensor.torch(py, torch)?.call_method0(intern!(py, "data_ptr"))?.extract())
    }

    fn empty(&self, shape: &[usize], element: ElementType) -> Result<Tensor> {
        made(|py, torch| {
            let form = self.form(py, torch, element)?;
            torch.functions.empty.bind(py).call((tuple(py, shape)?,), Some(&form))
        })
    }

    fn full(&self, shape: &[usize], value: f64, element: ElementType) -> Result<Tensor> {
        made(|py, torch| {
            let form = self.form(py, torch, element)?;
            let arguments = (tuple(py, shape)?, number(py, value));
            torch.functions.full.bind(py).call(arguments, Some(&form))
        })
    }

    fn arange(&self, len: usize, element: ElementType) -> Result<Tensor> {
        made(|py, torch| {
            let form = self.form(py, torch, element)?;
            torch.functions.arange.bind(py).call((len,), Some(&form))
        })
    }

    fn upload(&self, array: &Array) -> Result<Tensor> {
        made(|py, torch| {
            let here = torch.of_capsule(py, capsule(py, array)?)?;
            if self.device == Device::Cpu {
                return torch.functions.clone.bind(py).call1((here,));
            }
            // A copy from page-locked memory does not block; torch keeps the memory until the copy is done.
            let pinned = torch.functions.pin_memory.bind(py).call1((here,))?;
            let arguments = (pinned, &*self.named, torch.dtype(array.element()), true);
            torch.functions.to.bind(py).call1(arguments)
        })
    }

    fn normal(&self, shape: &[usize], seed: u64) -> Result<Tensor> {
        made(|py, torch| self.random(py, torch, &torch.functions.randn, shape, seed))
    }

    fn uniform(&self, shape: &[usize], seed: u64) -> Result<Tensor> {
        made(|py, torch| {
            let from_0 = self.random(py, torch, &torch.functions.rand, shape, seed)?;
            let twice = torch.functions.mul.bind(py).call1((from_0, 2))?;
            torch.functions.sub.bind(py).call1((twice, 1))
        })
    }

    fn permute(&self, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
        made(|py, torch| {
            let arguments = (tensor.torch(py, torch)?, tuple(py, axes)?);
            torch.functions.permute.bind(py).call1(arguments)
        })
    }

    fn reshape(&self, tensor: &Tensor, shape: &[usize]) -> Result<Tensor> {
        made(|py, torch| {
            let arguments = (tensor.torch(py, torch)?, tuple(py, shape)?);
            torch.functions.reshape.bind(py).call1(arguments)
        })
    }

    fn narrow(&self, tensor: &Tensor, axis: usize, first: usize, len: usize) -> Result<Tensor> {
        made(|py, torch| {
            torch.functions.narrow.bind(py).call1((tensor.torch(py, torch)?, axis, first, len))
        })
    }

    fn flip(&self, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
        made(|py, torch| {
            torch.functions.flip.bind(py).call1((tensor.torch(py, torch)?, tuple(py, axes)?))
        })
    }

    fn contiguous(&self, tensor: &Tensor) -> Result<Tensor> {
        made(|py, torch| torch.functions.contiguous.bind(py).call1((tensor.torch(py, torch)?,)))
    }

    fn stack(&self, tensors: &[Tensor], axis: usize) -> Result<Tensor> {
        made(|py, torch| {
            let tensors = tensors.iter().map(|tensor| tensor.torch(py, torch));
            let tensors = PyTuple::new(py, tensors.collect::<PyResult<Vec<_>>>()?)?;
            torch.functions.stack.bind(py).call1((tensors, axis))
        })
    }

    fn to(&self, tensor: &Tensor, element: ElementType) -> Result<Tensor> {
        made(|py, torch| {
            torch.functions.to.bind(py).call1((tensor.torch(py, torch)?, torch.dtype(element)))
        })
    }

    fn unary(&self, op: Unary, tensor: &Tensor) -> Result<Tensor> {
        made(|py, torch| torch.functions.unary(op).bind(py).call1((tensor.torch(py, torch)?,)))
    }

    fn binary(&self, op: Binary, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        made(|py, torch| {
            let arguments = (tensor.torch(py, torch)?, other.torch(py, torch)?);
            torch.functions.binary(op).bind(py).call1(arguments)
        })
    }

    fn with(&self, op: Binary, tensor: &Tensor, value: f64) -> Result<Tensor> {
        made(|py, torch| {
            let arguments = (tensor.torch(py, torch)?, number(py, value));
            torch.functions.with(op).bind(py).call1(arguments)
        })
    }

    fn r#where(&self, condition: &Tensor, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        made(|py, torch| {
            let of = |tensor: &Tensor| tensor.torch(py, torch);
            torch.functions.where_.bind(py).call1((of(condition)?, of(tensor)?, of(other)?))
        })
    }

    fn nan_to_num(
        &self,
        tensor: &Tensor,
        nan: f64,
        infinity: f64,
        negative: f64,
    ) -> Result<Tensor> {
        made(|py, torch| {
            let arguments = (tensor.torch(py, torch)?, nan, infinity, negative);
            torch.functions.nan_to_num.bind(py).call1(arguments)
        })
    }

    fn sum(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|py, torch| torch.functions.sum.bind(py).call1((tensor.torch(py, torch)?, axis, true)))
    }

    fn amax(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|py, torch| {
            torch.functions.amax.bind(py).call1((tensor.torch(py, torch)?, axis, true))
        })
    }

    fn any(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|py, torch| torch.functions.any.bind(py).call1((tensor.torch(py, torch)?, axis, true)))
    }

    fn argmax(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|py, torch| {
            torch.functions.argmax.bind(py).call1((tensor.torch(py, torch)?, axis, true))
        })
    }

    fn sort(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|py, torch| {
            let sorted = torch.functions.sort.bind(py).call1((tensor.torch(py, torch)?, axis))?;
            sorted.get_item(0)
        })
    }

    fn cumsum(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        made(|py, torch| torch.functions.cumsum.bind(py).call1((tensor.torch(py, torch)?, axis)))
    }

    fn index_select(&self, tensor: &Tensor, index: &Tensor) -> Result<Tensor> {
        made(|py, torch| {
            let arguments = (tensor.torch(py, torch)?, 0, index.torch(py, torch)?);
            torch.functions.index_select.bind(py).call1(arguments)
        })
    }

    fn scatter(&self, tensor: &Tensor, axis: usize, index: &Tensor, value: f64) -> Result<Tensor> {
        made(|py, torch| {
            let (tensor, index) = (tensor.torch(py, torch)?, index.torch(py, torch)?);
            torch.functions.scatter.bind(py).call1((tensor, axis, index, number(py, value)))
        })
    }

    fn embedding_bag(&self, table: &Tensor, indices: &Tensor, weights: &Tensor) -> Result<Tensor> {
        let shape = indices.shape()?;
        let (bags, rows) = (shape[0], shape[1]);
        made(|py, torch| {
            let form = self.form(py, torch, ElementType::I64)?;
            let arange = torch.functions.arange.bind(py);
            let offsets = arange.call((0, bags * rows, rows), Some(&form))?;
            let flat = |tensor: &Tensor| {
                torch.functions.reshape.bind(py).call1((tensor.torch(py, torch)?, (bags * rows,)))
            };
            let (table, indices, weights) =
                (table.torch(py, torch)?, flat(indices)?, flat(weights)?);
            const SUM: i32 = 0;
            let arguments = (table, indices, offsets, false, SUM, false, weights, false);
            torch.functions.embedding_bag.bind(py).call1(arguments)?.get_item(0)
        })
    }

    fn matmul(&self, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        made(|py, torch| {
            let arguments = (tensor.torch(py, torch)?, other.torch(py, torch)?);
            torch.functions.matmul.bind(py).call1(arguments)
        })
    }

    fn copy_(&self, into: &Tensor, from: &Tensor) -> Result<()> {
        with(|py, torch| {
            let arguments = (into.torch(py, torch)?, from.torch(py, torch)?);
            torch.functions.copy_.bind(py).call1(arguments).map(drop)
        })
    }

    fn index_copy_(&self, into: &Tensor, index: &Tensor, from: &Tensor) -> Result<()> {
        with(|py, torch| {
            let of = |tensor: &Tensor| tensor.torch(py, torch);
            let arguments = (of(into)?, 0, of(index)?, of(from)?);
            torch.functions.index_copy_.bind(py).call1(arguments).map(drop)
        })
    }

    fn binary_out(&self, op: Binary, into: &Tensor, tensor: &Tensor, other: &Tensor) -> Result<()> {
        with(|py, torch| {
            let out = PyDict::new(py);
            out.set_item(intern!(py, "out"), into.torch(py, torch)?)?;
            let arguments = (tensor.torch(py, torch)?, other.torch(py, torch)?);
            torch.functions.binary(op).bind(py).call(arguments, Some(&out)).map(drop)
        })
    }
}
