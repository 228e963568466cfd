//! The kernel that decodes chunks, loaded by the CUDA driver, once for each device. The driver compiles it for its GPU, and
//! keeps what it compiled for other processes.

use std::collections::HashMap;
use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{self, CUdevice, CUfunction, CUmodule, CUstream};

use super::backend::DecodePlaces;
use super::cuda::Context;
use super::decode::{Decode, THREADS};
use crate::Result;

/// The kernel as the driver reads it, with a final NUL.
const PTX: &str = concat!(include_str!("decode/decode.ptx"), "\0");

/// The kernel `decode_frames` on a device.
pub(super) struct DecodeKernel {
    context: Arc<Context>,
    module: CUmodule,
    function: CUfunction,
}

// SAFETY: modules and functions of the driver may be used by any thread.
unsafe impl Send for DecodeKernel {}
// SAFETY: as above; the driver locks what it has to.
unsafe impl Sync for DecodeKernel {}

/// By device. Kernels are unloaded when the last loader that uses them is gone.
static LOADED: Mutex<Option<HashMap<CUdevice, Weak<DecodeKernel>>>> = Mutex::new(None);

impl DecodeKernel {
    /// The kernel on the device of a context.
    ///
    /// # Errors
    /// If the driver cannot load it.
    pub(super) fn of(context: &Arc<Context>) -> Result<Arc<Self>> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default().entry(context.device()).or_default();
        if let Some(kernel) = loaded.upgrade() {
            return Ok(kernel);
        }
        let kernel = Arc::new(Self::load(context.clone()).map_err(|error| {
            error
                .within("the kernel that decodes chunks cannot be loaded")
                .with_remedy("update the driver, or use decode=\"host\"")
        })?);
        *loaded = Arc::downgrade(&kernel);
        Ok(kernel)
    }

    fn load(context: Arc<Context>) -> Result<Self> {
        let mut module = ptr::null_mut();
        // SAFETY: the text ends with NUL, and the module is written to a local variable.
        context.with(|| unsafe { sys::cuModuleLoadData(&mut module, PTX.as_ptr().cast()) })?;
        // From here on, dropping the kernel unloads the module.
        let mut kernel = Self { context, module, function: ptr::null_mut() };
        let Self { context, function, .. } = &mut kernel;
        // SAFETY: the module is loaded in this context, and the name ends with NUL.
        context.with(|| unsafe {
            sys::cuModuleGetFunction(function, module, c"decode_frames".as_ptr())
        })?;
        Ok(kernel)
    }

    /// Queues the kernel on a stream of the same context.
    ///
    /// # Safety
    /// As [`Backend::queue_decode`](super::backend::Backend::queue_decode).
    pub(super) unsafe fn launch(
        &self,
        decode: &Decode,
        at: &DecodePlaces,
        stream: CUstream,
    ) -> Result<()> {
        // The parameters of the kernel, which the driver copies during the call.
        let mut arguments: [*mut c_void; 6] = [
            (&raw const *decode).cast_mut().cast(),
            (&raw const at.chunks).cast_mut().cast(),
            (&raw const at.compressed).cast_mut().cast(),
            (&raw const at.batch).cast_mut().cast(),
            (&raw const at.scratch).cast_mut().cast(),
            (&raw const at.statuses).cast_mut().cast(),
        ];
        let (blocks, threads) = (decode.blocks() as c_uint, THREADS as c_uint);
        // SAFETY: the function is of this context and has these parameters; the caller is responsible for the memory.
        self.context.with(|| unsafe {
            sys::cuLaunchKernel(
                self.function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }
}

impl Drop for DecodeKernel {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; streams that run it were waited for. Nobody can be told of an error here.
        let _ = self.context.with(|| unsafe { sys::cuModuleUnload(self.module) });
    }
}
