//! Augmentations with the tensor operations of a library: libtorch's, or those of the torch of a
//! Python process.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | the operations that a library must have |
//! | `engine.rs` | the engine, and how many samples it computes at once |
//! | `warp.rs` | moving pixels |
//! | `rectangles.rs` | rectangles, and mixing |
//! | `labels.rs` | operations that depend on labels: transplanting, guarding |
//! | `values.rs` | bands, spectra, noise, light, blur |
//! | `kernels.rs` | our own kernels, which replace some operations where they are available |
//! | `prepare.rs` | from stored data to images and masks; normalising |

mod engine;
mod kernels;
mod labels;
mod prepare;
mod rectangles;
mod values;
mod warp;

pub use engine::TensorEngine;

use hsipack_format::Result;

use crate::array::{Array, ElementType};
use crate::kernels::Kernels;

/// Tensors of a library on one device, and the operations that augmentations need. Names and
/// meanings are those of torch: broadcasting, type promotion, views that share memory. No operation
/// may wait for the device, and none may be recorded for gradients.
///
/// Axes are counted from 0. Numbers are passed as `f64`; a whole number does not change the type of
/// integer tensors.
pub trait Tensors {
    /// A tensor. Clones are the same tensor, and share its memory.
    type Tensor: Clone;

    /// Lengths of the axes.
    fn shape(&self, tensor: &Self::Tensor) -> Result<Vec<usize>>;
    /// Element type.
    fn element(&self, tensor: &Self::Tensor) -> Result<ElementType>;
    /// Whether the elements are contiguous.
    fn is_contiguous(&self, tensor: &Self::Tensor) -> Result<bool>;

    /// Our own kernels for the device; `None` if there are none, so that the operations here do
    /// everything.
    fn kernels(&self) -> Result<Option<Kernels>> {
        Ok(None)
    }
    /// Address of the first element on the device; only kernels need it.
    fn address(&self, tensor: &Self::Tensor) -> Result<usize>;

    /// A tensor on the device with undefined values.
    fn empty(&self, shape: &[usize], element: ElementType) -> Result<Self::Tensor>;
    /// A tensor on the device, filled with a number.
    fn full(&self, shape: &[usize], number: f64, element: ElementType) -> Result<Self::Tensor>;
    /// 0, 1, … up to `len` - 1.
    fn arange(&self, len: usize, element: ElementType) -> Result<Self::Tensor>;
    /// A copy on the device of a contiguous array in host memory.
    fn upload(&self, array: &Array) -> Result<Self::Tensor>;
    /// Standard normal numbers (float32) that depend only on the seed, the shape and the device.
    /// The library's own generators are not affected.
    fn normal(&self, shape: &[usize], seed: u64) -> Result<Self::Tensor>;
    /// The same, but uniform in [-1, 1).
    fn uniform(&self, shape: &[usize], seed: u64) -> Result<Self::Tensor>;

    /// `permute`.
    fn permute(&self, tensor: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor>;
    /// `reshape`: a view if possible, otherwise a copy.
    fn reshape(&self, tensor: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor>;
    /// `narrow`: a view of `len` indices of an axis from `first` on.
    fn narrow(
        &self,
        tensor: &Self::Tensor,
        axis: usize,
        first: usize,
        len: usize,
    ) -> Result<Self::Tensor>;
    /// `flip`.
    fn flip(&self, tensor: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor>;
    /// `contiguous`.
    fn contiguous(&self, tensor: &Self::Tensor) -> Result<Self::Tensor>;
    /// `stack`, along a new axis.
    fn stack(&self, tensors: &[Self::Tensor], axis: usize) -> Result<Self::Tensor>;
    /// `to` another element type; returns the tensor itself if it already has that type.
    fn to(&self, tensor: &Self::Tensor, element: ElementType) -> Result<Self::Tensor>;

    /// An operation on one tensor.
    fn unary(&self, op: Unary, tensor: &Self::Tensor) -> Result<Self::Tensor>;
    /// An operation on two tensors.
    fn binary(
        &self,
        op: Binary,
        tensor: &Self::Tensor,
        other: &Self::Tensor,
    ) -> Result<Self::Tensor>;
    /// An operation on a tensor and a number.
    fn with(&self, op: Binary, tensor: &Self::Tensor, number: f64) -> Result<Self::Tensor>;
    /// `where`: `tensor` if the condition is true, otherwise `other`.
    fn r#where(
        &self,
        condition: &Self::Tensor,
        tensor: &Self::Tensor,
        other: &Self::Tensor,
    ) -> Result<Self::Tensor>;
    /// `nan_to_num`, with replacements for NaN, infinity and negative infinity.
    fn nan_to_num(
        &self,
        tensor: &Self::Tensor,
        nan: f64,
        infinity: f64,
        negative: f64,
    ) -> Result<Self::Tensor>;

    /// `sum` over an axis, which is kept with length 1.
    fn sum(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// `amax` over an axis, which is kept with length 1.
    fn amax(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// `any` over an axis, which is kept with length 1.
    fn any(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// `argmax` over an axis, which is kept with length 1; if there are several maxima, the first
    /// one.
    fn argmax(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// The values of `sort` along an axis, from the smallest.
    fn sort(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// `cumsum` along an axis.
    fn cumsum(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;

    /// `index_select` along axis 0; the index is int64.
    fn index_select(&self, tensor: &Self::Tensor, index: &Self::Tensor) -> Result<Self::Tensor>;
    /// `scatter` of one number along an axis; the index is int64.
    fn scatter(
        &self,
        tensor: &Self::Tensor,
        axis: usize,
        index: &Self::Tensor,
        number: f64,
    ) -> Result<Self::Tensor>;
    /// `embedding_bag` with mode `sum`: selects rows of `table` (rows, values) with these indices
    /// (int64) and weights (the table's type), both (bags, rows per bag), and returns (bags,
    /// values).
    fn embedding_bag(
        &self,
        table: &Self::Tensor,
        indices: &Self::Tensor,
        weights: &Self::Tensor,
    ) -> Result<Self::Tensor>;
    /// `matmul`.
    fn matmul(&self, tensor: &Self::Tensor, other: &Self::Tensor) -> Result<Self::Tensor>;

    /// `copy_`, which casts and broadcasts.
    fn copy_(&self, into: &Self::Tensor, from: &Self::Tensor) -> Result<()>;
    /// `index_copy_` along axis 0; the index is int64.
    fn index_copy_(
        &self,
        into: &Self::Tensor,
        index: &Self::Tensor,
        from: &Self::Tensor,
    ) -> Result<()>;
    /// An arithmetic operation on two tensors with `out=into`: computed in the wider type of the
    /// two, and rounded once to the type of `into`, which may be one of them.
    fn binary_out(
        &self,
        op: Binary,
        into: &Self::Tensor,
        tensor: &Self::Tensor,
        other: &Self::Tensor,
    ) -> Result<()>;
}

/// Operations on one tensor, as torch calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // torch's names
pub enum Unary {
    Abs,
    Floor,
    Isnan,
    LogicalNot,
    Neg,
    /// Rounds half to even.
    Round,
    Sqrt,
    Square,
}

/// Operations on two tensors, or a tensor and a number, as torch calls them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // torch's names
pub enum Binary {
    Add,
    BitwiseAnd,
    Div,
    Eq,
    FloorDivide,
    Fmod,
    Ge,
    Gt,
    Le,
    LogicalAnd,
    LogicalOr,
    Lt,
    Maximum,
    Minimum,
    Mul,
    Ne,
    Sub,
}
