//! The driver of CUDA, which is loaded at run time: its devices, their contexts, its errors.
//!
//! torch, CuPy and JAX work in the device's primary context, and so does this crate. The default
//! stream is always that of the calling thread's context. Therefore every call makes the primary
//! context current while it runs, and then gives the thread its previous context back.

use std::ffi::{CStr, c_int};
use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult, CUstream};
use hsipack_format::{Opt, Remedy, remedy};

use super::backend::LOST_REMEDY;
use crate::{Error, Result};

/// The oldest CUDA version that a driver must offer. In older versions, functions that are called
/// here may be missing.
const LEAST_CUDA: c_int = 12000;

/// The primary context of a device, retained.
pub(super) struct Context {
    device: CUdevice,
    context: CUcontext,
}

// SAFETY: contexts of the driver may be used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks what it has to.
unsafe impl Sync for Context {}
/// The PCI bus id of CUDA device `number`, such as `0000:3b:00.0`. It is the same for every
/// library, however the library numbers devices and whatever `CUDA_VISIBLE_DEVICES` hides.
///
/// # Errors
/// If there is no such device, no driver, or the driver is too old.
pub fn pci_bus_id(number: usize) -> Result<String> {
    let device = device(number)?;
    let mut id = [0; 32];
    // SAFETY: the device exists, and the driver writes at most so many characters, NUL among them.
    check(unsafe { sys::cuDeviceGetPCIBusId(id.as_mut_ptr(), id.len() as c_int, device) })?;
    // SAFETY: the driver wrote a C string there; what it left ends with the zeros of before.
    let id = unsafe { CStr::from_ptr(id.as_ptr()) };
    Ok(id.to_string_lossy().into_owned())
}

/// Whether there is a CUDA device that can be used: a driver that is new enough and shows a device.
pub fn cuda_is_available() -> bool {
    device(0).is_ok()
}

/// The driver's handle of device `number`.
fn device(number: usize) -> Result<CUdevice> {
    // SAFETY: loads and unloads the driver's library, whose initialisers do nothing but set it up.
    if !unsafe { sys::is_culib_present() } {
        return Err(Error::device("there is no NVIDIA driver: libcuda is not found")
            .with_remedy(remedy!["install the driver, or use ", Opt::Device.to("cpu")]));
    }
    check_driver()?;
    // SAFETY: may be called at any time, by any thread.
    check(unsafe { sys::cuInit(0) })?;
    let mut count = 0;
    // SAFETY: the count is written to a local variable.
    check(unsafe { sys::cuDeviceGetCount(&mut count) })?;
    let number = c_int::try_from(number).ok().filter(|number| *number < count);
    let number = number.ok_or_else(|| {
        Error::device(format!("there is no such CUDA device; there are {count}"))
            .with_remedy("devices are numbered from 0; CUDA_VISIBLE_DEVICES hides some")
    })?;
    let mut device = 0;
    // SAFETY: the device is written to a local variable, and the number is one that exists.
    check(unsafe { sys::cuDeviceGet(&mut device, number) })?;
    Ok(device)
}

impl Context {
    /// The driver's number of the device.
    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    /// The primary context of device `number`.
    ///
    /// # Errors
    /// If there is no such device, no driver, or the driver is too old.
    pub(super) fn primary(number: usize) -> Result<Self> {
        let device = device(number)?;
        let mut context = ptr::null_mut();
        // SAFETY: the context is written to a local variable, and the device is one that exists.
        check(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        Ok(Self { device, context })
    }

    /// A stream that does not wait for the default stream, and for which that does not wait.
    pub(super) fn stream(&self) -> Result<CUstream> {
        let mut stream = ptr::null_mut();
        self.with(|| {
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the stream is written to a local variable.
            unsafe { sys::cuStreamCreate(&mut stream, flags) }
        })?;
        Ok(stream)
    }

    /// Destroys a stream. Work that is still queued on it is done nevertheless.
    pub(super) fn destroy(&self, stream: CUstream) {
        // SAFETY: made by `stream`, and destroyed once. Nobody can be told of an error here.
        let _ = self.with(|| unsafe { sys::cuStreamDestroy_v2(stream) });
    }

    /// Runs `call` with this context current, and then gives the thread its previous context back.
    pub(super) fn with(&self, call: impl FnOnce() -> CUresult) -> Result<()> {
        // SAFETY: the context is retained.
        check(unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        // While a thread of the program captures a CUDA graph, the driver refuses calls of all others that it takes for unsafe
        // (allocating, registering, waiting for events), and spoils the capture. None of these here is part of a graph.
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the mode is read from and written to a local variable.
        let exchanged = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        let result = call();
        if exchanged == CUresult::CUDA_SUCCESS {
            // SAFETY: as above; gives the thread its mode back.
            unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
        }
        let mut popped = ptr::null_mut();
        // SAFETY: pops what was pushed.
        let back = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        check(result)?;
        check(back)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once by `primary`, given back once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// The remedy for a device with too little memory.
pub(super) fn memory_remedy() -> Remedy {
    remedy!["use a smaller ", Opt::BatchSize, " or crops, or free device memory"]
}

/// Checks that the driver offers the CUDA version that is needed here.
fn check_driver() -> Result<()> {
    let mut version = 0;
    // SAFETY: may be called before `cuInit`; the version is written to a local variable.
    check(unsafe { sys::cuDriverGetVersion(&mut version) })?;
    if version < LEAST_CUDA {
        let name = |version: c_int| format!("{}.{}", version / 1000, version % 1000 / 10);
        let what = format!(
            "the NVIDIA driver is too old: it offers CUDA {}, and {} is needed",
            name(version),
            name(LEAST_CUDA)
        );
        return Err(Error::device(what)
            .with_remedy(remedy!["install a newer driver, or use ", Opt::Device.to("cpu")]));
    }
    Ok(())
}

/// Turns the driver's result into an error.
pub(super) fn check(result: CUresult) -> Result<()> {
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = ptr::null();
    // SAFETY: the address of the name, which lives for ever, is written to a local variable.
    let found = unsafe { sys::cuGetErrorName(result, &mut name) };
    let name = if found == CUresult::CUDA_SUCCESS && !name.is_null() {
        // SAFETY: the driver's names end with NUL.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    } else {
        format!("error {}", result as u32)
    };
    Err(meaning(result, &name))
}

/// The error for the user that an error of the driver means.
fn meaning(result: CUresult, name: &str) -> Error {
    match result {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Error::device_memory(format!("the device is out of memory: {name}"))
                .with_remedy(memory_remedy())
        }
        CUresult::CUDA_ERROR_NO_DEVICE => Error::device(format!("there is no CUDA device: {name}"))
            .with_remedy(remedy!["use ", Opt::Device.to("cpu")]),
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        | CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
        | CUresult::CUDA_ERROR_STUB_LIBRARY => {
            Error::device(format!("the NVIDIA driver does not work: {name}"))
                .with_remedy("install the driver again, and restart the machine")
        }
        CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE
        | CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
        | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
        | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
        | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
        | CUresult::CUDA_ERROR_LAUNCH_FAILED
        | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
        | CUresult::CUDA_ERROR_ASSERT
        | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
        | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
        | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | CUresult::CUDA_ERROR_INVALID_PC
        | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
        | CUresult::CUDA_ERROR_DEINITIALIZED
        | CUresult::CUDA_ERROR_UNKNOWN => {
            Error::device(format!("the device is lost: {name}")).with_remedy(LOST_REMEDY)
        }
        _ => Error::device(format!("CUDA: {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn errors_of_the_driver_say_what_to_do() {
        let error = meaning(CUresult::CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY");
        assert!(error.to_string().contains("use a smaller batch_size or crops"), "{error}");
        assert_eq!(error.kind(), ErrorKind::DeviceMemory);
        let error = meaning(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS");
        assert!(error.to_string().contains("lost: CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
        assert_eq!((error.kind(), error.remedy()), (ErrorKind::Device, Some(&LOST_REMEDY.into())));
    }
}
