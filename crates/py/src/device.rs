//! Devices and features of the machine.

use pyo3::prelude::*;

use crate::exit::detached;

/// Whether the CUDA driver reports a device; torch is not used.
#[pyfunction]
pub fn cuda_is_available(py: Python<'_>) -> bool {
    detached(py, hsipack_read::cuda_is_available)
}

/// Whether this build needs a processor with AVX2. `_processor.py` calls this before Python
/// initialises the module, because a processor without AVX2 could not run the module's code. So
/// this function uses nothing from Python.
#[unsafe(no_mangle)]
pub extern "C" fn hsipack_needs_avx2() -> bool {
    cfg!(all(target_arch = "x86_64", target_feature = "avx2"))
}
