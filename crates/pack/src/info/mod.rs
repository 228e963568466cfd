//! What is known about a cube in a file, or about a packed dataset.
//!
//! The field names of these types are the keys of `hsipack info --json`; they stay.
//!
//! | file | job |
//! |---|---|
//! | `cube.rs` | the report on a cube |
//! | `dataset.rs` | the report on a dataset |
//! | `values.rs` | what both tell of wavelengths and values |

mod cube;
mod dataset;
mod values;

pub use cube::{CubeReport, ScalingReport};
pub use dataset::{
    CodecReport, DatasetReport, Georeferenced, MaskReport, Quantisation, StackReport,
};
pub use values::{Values, Wavelengths};
