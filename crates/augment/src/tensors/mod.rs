//! Augmentations by the tensor operations of a library: libtorch's, or those of a Python process's torch.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | the operations that a library has to have |
//! | `through.rs` | passes as tensor operations |
//! | `warp.rs` | moving pixels |
//! | `labels.rs` | what depends on labels: transplanting, guarding |
//! | `prepare.rs` | from what is stored to images and masks; normalising |

mod through;

pub use through::Through;

use hsipack_format::Result;

use crate::array::ElementType;

/// Tensors of a library on one device, and the operations that augmentations need of it. They are torch's, and mean
/// what torch's of that name mean: broadcasting, promotion of types, views that share memory. Nothing may wait for the
/// device.
///
/// Axes are counted from 0. Numbers that go along are `f64`; they take the tensor's element type, as torch's do.
pub trait Tensors {
    /// A tensor. Clones are the same tensor, and share its memory.
    type Tensor: Clone;

    // Looking.

    /// Lengths of the axes.
    fn shape(&self, tensor: &Self::Tensor) -> Result<Vec<usize>>;
    /// Element type.
    fn element(&self, tensor: &Self::Tensor) -> Result<ElementType>;
    /// Whether the elements follow one another without gaps.
    fn is_contiguous(&self, tensor: &Self::Tensor) -> Result<bool>;

    // Making.

    /// A tensor on the device, whose values are whatever lies there.
    fn empty(&self, shape: &[usize], element: ElementType) -> Result<Self::Tensor>;
    /// Numbers of the host's on the device, of that element type.
    fn numbers(
        &self,
        numbers: &[f64],
        shape: &[usize],
        element: ElementType,
    ) -> Result<Self::Tensor>;
    /// 0, 1, … up to `len` - 1.
    fn arange(&self, len: usize, element: ElementType) -> Result<Self::Tensor>;
    /// Standard normal numbers (float32) that depend on the seed, the shape and the device alone; no other generator changes.
    fn normal(&self, shape: &[usize], seed: u64) -> Result<Self::Tensor>;
    /// The same, uniform in [-1, 1).
    fn uniform(&self, shape: &[usize], seed: u64) -> Result<Self::Tensor>;

    // Views, and other shapes.

    /// `permute`.
    fn permute(&self, tensor: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor>;
    /// `reshape`, which copies only where it has to.
    fn reshape(&self, tensor: &Self::Tensor, shape: &[usize]) -> Result<Self::Tensor>;
    /// `narrow`.
    fn narrow(
        &self,
        tensor: &Self::Tensor,
        axis: usize,
        first: usize,
        len: usize,
    ) -> Result<Self::Tensor>;
    /// `select`: one index of an axis, which goes.
    fn select(&self, tensor: &Self::Tensor, axis: usize, index: usize) -> Result<Self::Tensor>;
    /// `flip`.
    fn flip(&self, tensor: &Self::Tensor, axes: &[usize]) -> Result<Self::Tensor>;
    /// `contiguous`.
    fn contiguous(&self, tensor: &Self::Tensor) -> Result<Self::Tensor>;
    /// `stack`.
    fn stack(&self, tensors: &[Self::Tensor], axis: usize) -> Result<Self::Tensor>;
    /// `to` of another element type.
    fn to(&self, tensor: &Self::Tensor, element: ElementType) -> Result<Self::Tensor>;

    // Arithmetic, value by value.

    /// An operation on one tensor.
    fn unary(&self, op: Unary, tensor: &Self::Tensor) -> Result<Self::Tensor>;
    /// An operation on two tensors.
    fn binary(&self, op: Binary, one: &Self::Tensor, other: &Self::Tensor) -> Result<Self::Tensor>;
    /// An operation on a tensor and a number.
    fn with(&self, op: Binary, tensor: &Self::Tensor, number: f64) -> Result<Self::Tensor>;
    /// `where`: `one` where the condition holds, else `other`.
    fn choose(
        &self,
        condition: &Self::Tensor,
        one: &Self::Tensor,
        other: &Self::Tensor,
    ) -> Result<Self::Tensor>;
    /// `nan_to_num` with what takes the place of NaN, of infinity and of its negative.
    fn replace(
        &self,
        tensor: &Self::Tensor,
        nan: f64,
        infinity: f64,
        negative: f64,
    ) -> Result<Self::Tensor>;

    // Over axes.

    /// `sum` over an axis, which stays with length 1, in that element type.
    fn sum(&self, tensor: &Self::Tensor, axis: usize, element: ElementType)
    -> Result<Self::Tensor>;
    /// `amax` over an axis, which stays with length 1.
    fn max(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// `any` over an axis, which stays with length 1.
    fn any(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// `argmax` over an axis, which stays with length 1: the first of the greatest.
    fn argmax(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;
    /// `cumsum` along an axis.
    fn cumsum(&self, tensor: &Self::Tensor, axis: usize) -> Result<Self::Tensor>;

    // By index.

    /// `index_select` along axis 0.
    fn index_select(&self, tensor: &Self::Tensor, index: &Self::Tensor) -> Result<Self::Tensor>;
    /// `scatter` of one number along an axis.
    fn scatter(
        &self,
        tensor: &Self::Tensor,
        axis: usize,
        index: &Self::Tensor,
        number: f64,
    ) -> Result<Self::Tensor>;
    /// `embedding_bag` with mode `sum`: rows of `table` (rows, values) with these indices and weights, each (bags, rows of
    /// a bag); gives (bags, values).
    fn embedding_bag(
        &self,
        table: &Self::Tensor,
        indices: &Self::Tensor,
        weights: &Self::Tensor,
    ) -> Result<Self::Tensor>;

    // Products.

    /// `matmul`.
    fn matmul(&self, one: &Self::Tensor, other: &Self::Tensor) -> Result<Self::Tensor>;
    /// `conv2d` of planes (planes, 1, rows, columns) with one kernel (1, 1, rows, columns), zeros around.
    fn conv2d(
        &self,
        planes: &Self::Tensor,
        kernel: &Self::Tensor,
        zeros: [usize; 2],
    ) -> Result<Self::Tensor>;
    /// Planes (planes, 1, rows, columns), mirrored about their outermost pixels: `reflection_pad2d` by so many rows and
    /// columns on either side.
    fn mirror(&self, planes: &Self::Tensor, by: [usize; 2]) -> Result<Self::Tensor>;

    // In place.

    /// `copy_`, which casts.
    fn copy_(&self, into: &Self::Tensor, from: &Self::Tensor) -> Result<()>;
    /// `fill_`.
    fn fill_(&self, into: &Self::Tensor, number: f64) -> Result<()>;
    /// An operation on two tensors, whose result takes the place of `into`; it is computed in the wider type of the two,
    /// as torch's operations in place are.
    fn binary_(&self, op: Binary, into: &Self::Tensor, other: &Self::Tensor) -> Result<()>;
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
    /// Half to even.
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
    /// Division, rounded down.
    FloorDiv,
    Eq,
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
