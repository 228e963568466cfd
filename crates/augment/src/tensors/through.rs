//! Passes as tensor operations.

use super::Tensors;

/// An [`Engine`](crate::Engine) that does everything by the tensor operations of a library.
#[derive(Clone, Debug)]
pub struct Through<T: Tensors>(pub T);
