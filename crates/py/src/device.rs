//! What the machine has.

use pyo3::prelude::*;

/// Whether there is a CUDA device, as its driver says; torch is not asked.
#[pyfunction]
pub fn cuda_is_available(py: Python<'_>) -> bool {
    py.detach(hsipack_read::cuda_is_available)
}

/// Whether this build runs on processors with AVX2 only. `_processor.py` asks before Python initialises the module, whose
/// code such a processor could not run: so it is a function that needs nothing of Python's.
#[unsafe(no_mangle)]
pub extern "C" fn hsipack_needs_avx2() -> bool {
    cfg!(all(target_arch = "x86_64", target_feature = "avx2"))
}
