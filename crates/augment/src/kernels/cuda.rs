//! Runs kernels with the CUDA driver, in the device's primary context, which torch and other
//! libraries use as well.

use std::collections::HashMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUcontext, CUfunction, CUmodule, CUresult};
use hsipack_format::{Error, Result};

use super::arguments::THREADS;
use super::launcher::Launcher;
use crate::array::Stream;

/// The kernels as the driver reads them, with a final NUL.
const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");
/// The oldest CUDA version of a driver that understands them.
const LEAST_CUDA: c_int = 12000;
/// The environment variable that turns kernels off if it is 0.
const SWITCH: &str = "HSIPACK_KERNELS";

/// The kernels, loaded on one device. Like their context, they stay until the process ends.
struct Loaded {
    context: CUcontext,
    module: CUmodule,
    functions: Mutex<HashMap<String, usize>>,
}

// SAFETY: contexts, modules and functions of the driver may be used by any thread.
unsafe impl Send for Loaded {}
// SAFETY: as above; the driver locks what it has to.
unsafe impl Sync for Loaded {}

type ByDevice = HashMap<usize, Result<Arc<Loaded>, String>>;
static LOADED: Mutex<Option<ByDevice>> = Mutex::new(None);

/// The kernels on CUDA device `number`. The first call for a device lets the driver compile them,
/// unless the driver cached them in an earlier process.
///
/// # Errors
/// If the driver cannot load them, or `HSIPACK_KERNELS=0` turns them off. Every call for a device
/// returns the same result.
pub fn of_device(number: usize) -> Result<Arc<dyn Launcher>> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = loaded.get_or_insert_default().entry(number);
    let switch = std::env::var(SWITCH).ok();
    let loaded = loaded.or_insert_with(|| load(number, switch.as_deref()).map(Arc::new));
    match loaded {
        Ok(loaded) => Ok(loaded.clone()),
        Err(why) => Err(Error::device(format!("kernels on cuda:{number}: {why}"))
            .with_remedy("update the driver; till then operations of torch do their work")),
    }
}

fn load(number: usize, switch: Option<&str>) -> Result<Loaded, String> {
    if switch == Some("0") {
        return Err(format!("{SWITCH} is 0"));
    }
    // SAFETY: loads and unloads the driver's library, whose initialisers only set it up.
    if !unsafe { sys::is_culib_present() } {
        return Err("there is no NVIDIA driver".to_owned());
    }
    let mut version = 0;
    // SAFETY: the version is written to valid memory.
    told(unsafe { sys::cuDriverGetVersion(&mut version) })?;
    if version < LEAST_CUDA {
        return Err(format!("the driver is of CUDA {}.{}", version / 1000, version % 1000 / 10));
    }
    let (mut device, mut context, mut module) = (0, ptr::null_mut(), ptr::null_mut());
    let number = c_int::try_from(number).map_err(|_| "there is no such device".to_owned())?;
    // SAFETY: results are written to valid memory; the device comes from the driver.
    unsafe {
        told(sys::cuInit(0))?;
        told(sys::cuDeviceGet(&mut device, number))?;
        told(sys::cuDevicePrimaryCtxRetain(&mut context, device))?;
    }
    // SAFETY: the text ends with NUL.
    let loaded =
        within(context, || unsafe { sys::cuModuleLoadData(&mut module, PTX.as_ptr().cast()) });
    if let Err(why) = loaded {
        // SAFETY: retained above, released once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
        return Err(why);
    }
    Ok(Loaded { context, module, functions: Mutex::default() })
}

impl Loaded {
    fn function(&self, kernel: &str) -> Result<CUfunction, String> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(kernel) {
            return Ok(*function as CUfunction);
        }
        let name = CString::new(kernel).map_err(|error| error.to_string())?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded in this context, and the name ends with NUL.
        within(self.context, || unsafe {
            sys::cuModuleGetFunction(&mut function, self.module, name.as_ptr())
        })?;
        functions.insert(kernel.to_owned(), function as usize);
        Ok(function)
    }
}

impl Launcher for Loaded {
    unsafe fn launch(
        &self,
        kernel: &str,
        grid: [u32; 2],
        arguments: &mut [*mut c_void; 4],
        stream: Stream,
    ) -> Result<()> {
        let queued = self.function(kernel).and_then(|function| {
            let stream = stream.handle().cast();
            // SAFETY: the function belongs to this context; the caller is responsible for its arguments.
            within(self.context, || unsafe {
                sys::cuLaunchKernel(
                    function,
                    grid[0] as c_uint,
                    grid[1] as c_uint,
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
        });
        queued.map_err(|why| Error::device(format!("CUDA: {kernel}: {why}")))
    }
}

/// Runs `call` with this context current, and then restores the thread's previous context.
fn within(context: CUcontext, call: impl FnOnce() -> CUresult) -> Result<(), String> {
    // SAFETY: the context is retained.
    told(unsafe { sys::cuCtxPushCurrent_v2(context) })?;
    let result = call();
    let mut popped = ptr::null_mut();
    // SAFETY: pops the context that was pushed above.
    let back = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    told(result)?;
    told(back)
}

fn told(result: CUresult) -> Result<(), String> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(format!("{result:?}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ptx_is_that_of_the_source() {
        let source = hsipack_format::checksums::sha256(include_bytes!("kernels.cu"));
        let line = format!("// kernels.cu: {source}");
        assert_eq!(PTX.lines().next(), Some(&*line), "run scripts/dev/make_kernels.py");
    }

    #[test]
    fn they_can_be_turned_off() {
        assert_eq!(load(0, Some("0")).err().as_deref(), Some("HSIPACK_KERNELS is 0"));
    }

    #[test]
    fn without_a_driver_there_are_no_kernels() {
        // SAFETY: as above.
        if !unsafe { sys::is_culib_present() } {
            let Err(error) = of_device(0) else { panic!("kernels without a driver") };
            assert!(error.to_string().contains("no NVIDIA driver"), "{error}");
            assert!(error.remedy().is_some());
        }
    }
}
