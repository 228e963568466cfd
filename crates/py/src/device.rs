//! Devices that there are.

use pyo3::prelude::*;

/// Whether there is a CUDA device, as its driver says; torch is not asked.
#[pyfunction]
pub fn cuda_is_available(py: Python<'_>) -> bool {
    py.detach(hsipack_read::cuda_is_available)
}
