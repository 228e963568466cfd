//! The hsipack dataset: what is on disk, and what it means.
#![deny(missing_docs)]

mod cube;
mod dtype;
mod error;

pub use cube::CubeShape;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
