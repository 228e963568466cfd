//! Whoever runs kernels.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use hsipack_format::Result;

use crate::array::Stream;

/// Runs kernels: CUDA's driver; in tests, loops over what the same source is as C++.
pub trait Launcher: Send + Sync {
    /// Queues a kernel of `kernels.cu` on a stream, for a grid of so many blocks along its two axes.
    ///
    /// # Errors
    /// If there is no such kernel, or it cannot be queued.
    ///
    /// # Safety
    /// `arguments` point to what the kernel takes, and what these say is in memory has to be there until the stream is
    /// through with it.
    unsafe fn launch(
        &self,
        kernel: &str,
        grid: [u32; 2],
        arguments: &mut [*mut c_void; 4],
        stream: Stream,
    ) -> Result<()>;
}

/// Kernels for tensors of a library.
#[derive(Clone)]
pub struct Kernels {
    /// Who runs them.
    pub launcher: Arc<dyn Launcher>,
    /// The stream that the library's operations are queued on.
    pub stream: Stream,
}

impl Kernels {
    /// Queues one. `arguments` is what comes first; then there are three addresses on the device, the third of
    /// which may be 0.
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
        // SAFETY: arguments lie here until the call returns; the rest is the caller's promise.
        unsafe { self.launcher.launch(kernel, grid, &mut all, self.stream) }
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kernels").field("stream", &self.stream).finish_non_exhaustive()
    }
}
