//! A library whose tensors have a shape, an element type and an address, but no memory: its
//! operations compute shapes, and are counted.

use std::ffi::c_void;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hsipack_augment::array::Stream;
use hsipack_augment::kernels::{Kernels, Launcher};
use hsipack_augment::tensors::{Binary, Tensors, Unary};
use hsipack_augment::{Array, ElementType};
use hsipack_format::Result;

/// An address that suits every vector. It is never read.
const ADDRESS: usize = 1 << 20;

/// A tensor without memory.
#[derive(Clone)]
pub struct Tensor {
    shape: Rc<[usize]>,
    element: ElementType,
    contiguous: bool,
}

/// Counts of the calls that were queued on the device.
#[derive(Clone, Copy, Default)]
pub struct Work {
    pub kernels: u64,
    pub operations: u64,
    /// Bytes.
    pub uploaded: u64,
}

impl Work {
    pub fn divided(self, batches: u64) -> Self {
        let Self { kernels, operations, uploaded } = self;
        let by = |number: u64| number / batches;
        Self { kernels: by(kernels), operations: by(operations), uploaded: by(uploaded) }
    }
}

/// The library.
#[derive(Clone, Default)]
pub struct Inert {
    launched: Arc<Launched>,
    operations: Rc<std::cell::Cell<u64>>,
    uploaded: Rc<std::cell::Cell<u64>>,
}

#[derive(Default)]
struct Launched(AtomicU64);

impl Launcher for Launched {
    unsafe fn launch(
        &self,
        _: &str,
        _: [u32; 2],
        _: &mut [*mut c_void; 4],
        _: Stream,
    ) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Inert {
    /// A contiguous tensor.
    pub fn tensor(&self, shape: &[usize], element: ElementType) -> Tensor {
        Tensor { shape: shape.into(), element, contiguous: true }
    }

    /// The work so far, which then begins again.
    pub fn take_work(&self) -> Work {
        Work {
            kernels: self.launched.0.swap(0, Ordering::Relaxed),
            operations: self.operations.take(),
            uploaded: self.uploaded.take(),
        }
    }

    fn operation(&self, shape: &[usize], element: ElementType) -> Result<Tensor> {
        self.operations.set(self.operations.get() + 1);
        Ok(self.tensor(shape, element))
    }

    fn view(&self, shape: &[usize], tensor: &Tensor, contiguous: bool) -> Result<Tensor> {
        let contiguous = contiguous && tensor.contiguous;
        Ok(Tensor { contiguous, ..self.operation(shape, tensor.element)? })
    }

    fn reduced(&self, tensor: &Tensor, axis: usize, element: ElementType) -> Result<Tensor> {
        let mut shape = tensor.shape.to_vec();
        shape[axis] = 1;
        self.operation(&shape, element)
    }
}

fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let axes = a.len().max(b.len());
    let length = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(axes).map_or(1, |axis| shape[axis])
    };
    (0..axes).map(|axis| length(a, axis).max(length(b, axis))).collect()
}

fn promoted(a: ElementType, b: ElementType) -> ElementType {
    match (a.is_float(), b.is_float()) {
        (true, false) => a,
        (false, true) => b,
        _ if a.size() >= b.size() => a,
        _ => b,
    }
}

fn result_of(op: Binary, element: ElementType) -> ElementType {
    match op {
        Binary::Eq
        | Binary::Ge
        | Binary::Gt
        | Binary::Le
        | Binary::LogicalAnd
        | Binary::LogicalOr
        | Binary::Lt
        | Binary::Ne => ElementType::Bool,
        _ => element,
    }
}

impl Tensors for Inert {
    type Tensor = Tensor;

    fn shape(&self, tensor: &Tensor) -> Result<Vec<usize>> {
        Ok(tensor.shape.to_vec())
    }

    fn element(&self, tensor: &Tensor) -> Result<ElementType> {
        Ok(tensor.element)
    }

    fn is_contiguous(&self, tensor: &Tensor) -> Result<bool> {
        Ok(tensor.contiguous)
    }

    fn kernels(&self) -> Result<Option<Kernels>> {
        Ok(Some(Kernels { launcher: self.launched.clone(), stream: Stream::LEGACY }))
    }

    fn address(&self, _: &Tensor) -> Result<usize> {
        Ok(ADDRESS)
    }

    fn empty(&self, shape: &[usize], element: ElementType) -> Result<Tensor> {
        self.operation(shape, element)
    }

    fn full(&self, shape: &[usize], _: f64, element: ElementType) -> Result<Tensor> {
        self.operation(shape, element)
    }

    fn arange(&self, len: usize, element: ElementType) -> Result<Tensor> {
        self.operation(&[len], element)
    }

    fn upload(&self, array: &Array) -> Result<Tensor> {
        let bytes: usize = array.shape().iter().product::<usize>() * array.element().size();
        self.uploaded.set(self.uploaded.get() + bytes as u64);
        self.operation(array.shape(), array.element())
    }

    fn normal(&self, shape: &[usize], _: u64) -> Result<Tensor> {
        self.operation(shape, ElementType::F32)
    }

    fn uniform(&self, shape: &[usize], _: u64) -> Result<Tensor> {
        self.operation(shape, ElementType::F32)
    }

    fn permute(&self, tensor: &Tensor, axes: &[usize]) -> Result<Tensor> {
        let shape: Vec<usize> = axes.iter().map(|axis| tensor.shape[*axis]).collect();
        // Images are views of memory in the order (sample, row, column, band), and are turned back into it.
        let contiguous = axes == [0, 2, 3, 1];
        Ok(Tensor { contiguous, ..self.operation(&shape, tensor.element)? })
    }

    fn reshape(&self, tensor: &Tensor, shape: &[usize]) -> Result<Tensor> {
        self.view(shape, tensor, true)
    }

    fn narrow(&self, tensor: &Tensor, axis: usize, _: usize, len: usize) -> Result<Tensor> {
        let mut shape = tensor.shape.to_vec();
        shape[axis] = len;
        self.view(&shape, tensor, axis == 0)
    }

    fn flip(&self, tensor: &Tensor, _: &[usize]) -> Result<Tensor> {
        self.operation(&tensor.shape, tensor.element)
    }

    fn contiguous(&self, tensor: &Tensor) -> Result<Tensor> {
        if tensor.contiguous { Ok(tensor.clone()) } else { self.flip(tensor, &[]) }
    }

    fn stack(&self, tensors: &[Tensor], axis: usize) -> Result<Tensor> {
        let mut shape = tensors[0].shape.to_vec();
        shape.insert(axis, tensors.len());
        self.operation(&shape, tensors[0].element)
    }

    fn to(&self, tensor: &Tensor, element: ElementType) -> Result<Tensor> {
        if tensor.element == element {
            return Ok(tensor.clone());
        }
        Ok(Tensor { contiguous: tensor.contiguous, ..self.operation(&tensor.shape, element)? })
    }

    fn unary(&self, op: Unary, tensor: &Tensor) -> Result<Tensor> {
        let element = match op {
            Unary::Isnan | Unary::LogicalNot => ElementType::Bool,
            _ => tensor.element,
        };
        self.operation(&tensor.shape, element)
    }

    fn binary(&self, op: Binary, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        let element = result_of(op, promoted(tensor.element, other.element));
        self.operation(&broadcast(&tensor.shape, &other.shape), element)
    }

    fn with(&self, op: Binary, tensor: &Tensor, _: f64) -> Result<Tensor> {
        self.operation(&tensor.shape, result_of(op, tensor.element))
    }

    fn r#where(&self, condition: &Tensor, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        let shape = broadcast(&condition.shape, &broadcast(&tensor.shape, &other.shape));
        self.operation(&shape, promoted(tensor.element, other.element))
    }

    fn nan_to_num(&self, tensor: &Tensor, _: f64, _: f64, _: f64) -> Result<Tensor> {
        self.operation(&tensor.shape, tensor.element)
    }

    fn sum(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        let whole = if tensor.element.is_float() { tensor.element } else { ElementType::I64 };
        self.reduced(tensor, axis, whole)
    }

    fn amax(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        self.reduced(tensor, axis, tensor.element)
    }

    fn any(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        self.reduced(tensor, axis, ElementType::Bool)
    }

    fn argmax(&self, tensor: &Tensor, axis: usize) -> Result<Tensor> {
        self.reduced(tensor, axis, ElementType::I64)
    }

    fn sort(&self, tensor: &Tensor, _: usize) -> Result<Tensor> {
        self.operation(&tensor.shape, tensor.element)
    }

    fn cumsum(&self, tensor: &Tensor, _: usize) -> Result<Tensor> {
        self.operation(&tensor.shape, tensor.element)
    }

    fn index_select(&self, tensor: &Tensor, index: &Tensor) -> Result<Tensor> {
        let mut shape = tensor.shape.to_vec();
        shape[0] = index.shape[0];
        self.operation(&shape, tensor.element)
    }

    fn scatter(&self, tensor: &Tensor, _: usize, _: &Tensor, _: f64) -> Result<Tensor> {
        self.operation(&tensor.shape, tensor.element)
    }

    fn embedding_bag(&self, table: &Tensor, indices: &Tensor, _: &Tensor) -> Result<Tensor> {
        self.operation(&[indices.shape[0], table.shape[1]], table.element)
    }

    fn matmul(&self, tensor: &Tensor, other: &Tensor) -> Result<Tensor> {
        let (from, to) = (tensor.shape.len() - 1, other.shape.len() - 1);
        let mut shape = broadcast(&tensor.shape[..from - 1], &other.shape[..to - 1]);
        shape.extend([tensor.shape[from - 1], other.shape[to]]);
        self.operation(&shape, tensor.element)
    }

    fn copy_(&self, into: &Tensor, _: &Tensor) -> Result<()> {
        self.operation(&into.shape, into.element).map(drop)
    }

    fn index_copy_(&self, into: &Tensor, _: &Tensor, from: &Tensor) -> Result<()> {
        self.copy_(into, from)
    }

    fn binary_out(&self, _: Binary, into: &Tensor, tensor: &Tensor, _: &Tensor) -> Result<()> {
        self.copy_(into, tensor)
    }
}
