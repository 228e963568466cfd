//! The kernels that decode chunks and gather windows, loaded by the CUDA driver, once for each
//! device. The driver compiles them for its GPU, and keeps what it compiled for other processes.

use std::collections::HashMap;
use std::ffi::{CStr, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cudarc::driver::sys::{self, CUdevice, CUfunction, CUmodule, CUstream};
use hsipack_format::{Opt, remedy};

use super::backend::{DecodePlaces, GatherPlaces};
use super::decode::{Decode, Gather, THREADS};
use super::driver::Context;
use crate::Result;

/// The kernels as the driver reads them, with a final NUL.
const DECODE: &str = concat!(include_str!("decode/decode.ptx"), "\0");
const GATHER: &str = concat!(include_str!("decode/gather.ptx"), "\0");

/// The kernels `decode_frames` and `gather_windows` on a device.
pub(super) struct Kernels {
    decode: Kernel,
    gather: Kernel,
}

/// A kernel on a device.
struct Kernel {
    context: Arc<Context>,
    module: CUmodule,
    function: CUfunction,
}

// SAFETY: modules and functions of the driver may be used by any thread.
unsafe impl Send for Kernel {}
// SAFETY: as above; the driver locks what it has to.
unsafe impl Sync for Kernel {}

/// By device. Kernels are unloaded when the last loader that uses them is gone.
static LOADED: Mutex<Option<HashMap<CUdevice, Weak<Kernels>>>> = Mutex::new(None);

impl Kernels {
    /// The kernels on the device of a context.
    ///
    /// # Errors
    /// If the driver cannot load them.
    pub(super) fn of(context: &Arc<Context>) -> Result<Arc<Self>> {
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let loaded = loaded.get_or_insert_default().entry(context.device()).or_default();
        if let Some(kernels) = loaded.upgrade() {
            return Ok(kernels);
        }
        let kernel = |ptx, name| {
            Kernel::load(context.clone(), ptx, name).map_err(|error| {
                error.within("the kernels that decode chunks cannot be loaded").with_remedy(
                    remedy![
                        "update the driver, or use ",
                        Opt::Decode.to("host"),
                        " and ",
                        Opt::DeviceCache.to("none")
                    ],
                )
            })
        };
        let decode = kernel(DECODE, c"decode_frames")?;
        let kernels = Arc::new(Self { decode, gather: kernel(GATHER, c"gather_windows")? });
        *loaded = Arc::downgrade(&kernels);
        Ok(kernels)
    }

    /// Queues `decode_frames` on a stream of the same context.
    ///
    /// # Safety
    /// As [`Backend::queue_decode`](super::backend::Backend::queue_decode).
    pub(super) unsafe fn decode(
        &self,
        decode: &Decode,
        at: &DecodePlaces,
        stream: CUstream,
    ) -> Result<()> {
        let arguments = [
            (&raw const *decode).cast(),
            (&raw const at.chunks).cast(),
            (&raw const at.compressed).cast(),
            (&raw const at.batch).cast(),
            (&raw const at.scratch).cast(),
            (&raw const at.statuses).cast(),
        ];
        // SAFETY: these are the parameters of the kernel; the caller is responsible for the memory.
        unsafe { self.decode.launch(decode.blocks(), arguments, stream) }
    }

    /// Queues `gather_windows` on a stream of the same context.
    ///
    /// # Safety
    /// As [`Backend::queue_gather`](super::backend::Backend::queue_gather).
    pub(super) unsafe fn gather(
        &self,
        gather: &Gather,
        at: &GatherPlaces,
        stream: CUstream,
    ) -> Result<()> {
        let arguments = [
            (&raw const *gather).cast(),
            (&raw const at.windows).cast(),
            (&raw const at.bands).cast(),
            (&raw const at.cubes).cast(),
            (&raw const at.batch).cast(),
        ];
        // SAFETY: as above.
        unsafe { self.gather.launch(gather.blocks(), arguments, stream) }
    }
}

impl Kernel {
    fn load(context: Arc<Context>, ptx: &'static str, name: &CStr) -> Result<Self> {
        let mut module = ptr::null_mut();
        // SAFETY: the text ends with NUL, and the module is written to a local variable.
        context.with(|| unsafe { sys::cuModuleLoadData(&mut module, ptx.as_ptr().cast()) })?;
        // From here on, dropping the kernel unloads the module.
        let mut kernel = Self { context, module, function: ptr::null_mut() };
        let Self { context, function, .. } = &mut kernel;
        context.with(|| {
            // SAFETY: the module is loaded in this context, and the name ends with NUL.
            unsafe { sys::cuModuleGetFunction(function, module, name.as_ptr()) }
        })?;
        Ok(kernel)
    }

    /// Queues the kernel with so many blocks of threads. The driver copies the values at
    /// `arguments` during the call.
    ///
    /// # Safety
    /// `arguments` must be the addresses of the kernel's parameters, and the memory that these name
    /// must stay until the kernel is done.
    unsafe fn launch<const COUNT: usize>(
        &self,
        blocks: u32,
        arguments: [*const c_void; COUNT],
        stream: CUstream,
    ) -> Result<()> {
        let mut arguments = arguments.map(<*const c_void>::cast_mut);
        // SAFETY: the function is of this context; the caller is responsible for the rest.
        self.context.with(|| unsafe {
            sys::cuLaunchKernel(
                self.function,
                blocks as c_uint,
                1,
                1,
                THREADS as c_uint,
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

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: loaded once, unloaded once; streams that run it were waited for. Nobody can be told of an error here.
        let _ = self.context.with(|| unsafe { sys::cuModuleUnload(self.module) });
    }
}
