//! The interface for running kernels.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use hsipack_format::Result;

use crate::array::Stream;

/// Runs kernels: the CUDA driver, or in tests loops over the same source compiled as C++.
pub trait Launcher: Send + Sync {
    /// Queues a kernel of `kernels.cu` on a stream, for a grid with this many blocks along its two
    /// axes.
    ///
    /// # Errors
    /// If there is no such kernel, or it cannot be queued.
    ///
    /// # Safety
    /// `arguments` must point to the arguments of the kernel, and the memory that they refer to
    /// must stay valid until the stream has finished the kernel.
    unsafe fn launch(
        &self,
        kernel: &str,
        grid: [u32; 2],
        arguments: &mut [*mut c_void; 4],
        stream: Stream,
    ) -> Result<()>;
}

/// Kernels for the tensors of a library.
#[derive(Clone)]
pub struct Kernels {
    /// Runs the kernels.
    pub launcher: Arc<dyn Launcher>,
    /// The stream on which the library's operations are queued.
    pub stream: Stream,
}

impl Kernels {
    /// Queues a kernel. `arguments` is its first argument; the others are three addresses on the
    /// device, the third of which may be 0.
    ///
    /// # Safety
    /// As [`Launcher::launch`].
    pub(crate) unsafe fn launch<A>(
        &self,
        kernel: &str,
        grid: [u32; 2],
        arguments: &A,
        [from, into, numbers]: [usize; 3],
    ) -> Result<()> {
        let (mut from, mut into, mut numbers) = (from, into, numbers);
        let mut all: [*mut c_void; 4] = [
            (&raw const *arguments).cast_mut().cast(),
            (&raw mut from).cast(),
            (&raw mut into).cast(),
            (&raw mut numbers).cast(),
        ];
        // SAFETY: the arguments are valid until the call returns; the caller is responsible for the rest.
        unsafe { self.launcher.launch(kernel, grid, &mut all, self.stream) }
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kernels").field("stream", &self.stream).finish_non_exhaustive()
    }
}
