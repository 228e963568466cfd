//! Describes a cube in a file, or a packed dataset.
//!
//! The field names of these types are the keys of `hsipack info --json` and must not change.
//!
//! | file | job |
//! |---|---|
//! | `cube.rs` | the report on a cube |
//! | `dataset.rs` | the report on a dataset |
//! | `values.rs` | wavelengths and statistics of values, for both reports |

mod cube;
mod dataset;
mod values;

pub use cube::{CubeReport, ScalingReport};
pub use dataset::{
    BoxesReport, CodecReport, DatasetReport, Earlier, Georeferenced, ImageReport, MaskReport,
    Quantisation, StackReport, TargetReport,
};
pub use values::{Values, Wavelengths};
