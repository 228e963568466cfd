//! CUDA, through the driver, which is loaded at run time: page-locking, copies on a separate stream, events.
//!
//! torch, CuPy and JAX work in the device's primary context, and so does this module. The default stream is always
//! that of the calling thread's context. Therefore every call here makes the primary context current while it runs,
//! and then gives the thread its previous context back.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdeviceptr, CUevent, CUresult, CUstream};
use hsipack_augment::Device;
use hsipack_augment::array::Stream;

use super::backend::{Backend, DecodePlaces, DeviceMemory, GatherPlaces};
use super::cuda_kernel::Kernels;
use super::decode::{Decode, Gather};
use super::page_cache::MapRegistrar;
use super::transfer::LOST_REMEDY;
use crate::ring::memory::PageLocker;
use crate::{Error, Result};
use hsipack_format::{Opt, Remedy, remedy};
use hsipack_store::mapping::page_size;

/// The oldest CUDA version that a driver must offer. In older versions, functions that are called here may be missing.
const LEAST_CUDA: c_int = 12000;

/// A CUDA device.
pub(super) struct Cuda {
    number: usize,
    context: Arc<Context>,
    copies: CUstream,
    /// Made when batches are to be decoded.
    decoder: OnceLock<Decoder>,
}

/// The kernels, and the stream that they run on.
struct Decoder {
    kernels: Arc<Kernels>,
    stream: CUstream,
}

/// The primary context of a device, retained.
pub(super) struct Context {
    device: CUdevice,
    context: CUcontext,
}

/// A point in the work of a stream.
pub(super) struct Event {
    event: CUevent,
    context: Arc<Context>,
}

/// Memory of a device.
pub(super) struct DeviceBytes {
    start: CUdeviceptr,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: streams, events, functions and contexts of the driver may be used by any thread.
unsafe impl Send for Cuda {}
// SAFETY: as above; the driver locks what it has to.
unsafe impl Sync for Cuda {}
// SAFETY: as above.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Cuda {
    /// Opens device `number`.
    ///
    /// # Errors
    /// If there is no such device, no driver, or the driver is too old.
    pub(super) fn open(number: usize) -> Result<Self> {
        let context = Arc::new(Context::primary(number)?);
        let copies = context.stream()?;
        Ok(Self { number, context, copies, decoder: OnceLock::new() })
    }

    /// Page-locks memory for this device.
    pub(super) fn locker(&self) -> Arc<dyn PageLocker> {
        Arc::new(Locker(self.context.clone()))
    }

    fn event(&self, stream: CUstream) -> Result<Event> {
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32
            | sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC as u32;
        self.context.with(|| {
            // SAFETY: the event is written to a local variable.
            unsafe { sys::cuEventCreate(&mut event, flags) }
        })?;
        // From here on, dropping `event` destroys it.
        let event = Event { event, context: self.context.clone() };
        // SAFETY: both live; the stream is of this context, or the default stream of the current one, which is it.
        self.context.with(|| unsafe { sys::cuEventRecord(event.event, stream) })?;
        Ok(event)
    }

    fn decoder(&self) -> Result<&Decoder> {
        self.decoder.get().ok_or_else(|| Error::bug("decoding was not prepared"))
    }

    fn queue_wait(&self, stream: CUstream, event: &Event) -> Result<()> {
        // SAFETY: both live, and as above.
        self.context.with(|| unsafe { sys::cuStreamWaitEvent(stream, event.event, 0) })
    }
}

impl Backend for Cuda {
    type Event = Event;
    type Memory = DeviceBytes;

    fn device(&self) -> Device {
        Device::Cuda(self.number)
    }

    fn number(&self) -> Option<usize> {
        Some(self.number)
    }

    fn free_memory(&self) -> Result<u64> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both numbers are written to local variables.
        self.context.with(|| unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    fn map_registrar(&self) -> Result<Arc<dyn MapRegistrar>, String> {
        let attribute =
            sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
        let mut is_supported = 0;
        // SAFETY: the number is written to a local variable; the device is one that exists.
        let asked = told(unsafe {
            sys::cuDeviceGetAttribute(&mut is_supported, attribute, self.context.device)
        });
        asked.map_err(|error| error.what().to_owned())?;
        match is_supported {
            0 => Err("the driver cannot register memory that is read-only".to_owned()),
            _ => Ok(Arc::new(MapLocker(self.context.clone()))),
        }
    }

    fn allocate(&self, bytes: usize) -> Result<DeviceBytes> {
        let mut start = 0;
        let allocated = self.context.with(|| {
            // SAFETY: the address is written to a local variable.
            unsafe { sys::cuMemAlloc_v2(&mut start, bytes) }
        });
        allocated.map_err(|error| {
            error
                .within(format_args!(
                    "cannot allocate {} MiB on the device",
                    bytes.div_ceil(1 << 20)
                ))
                .with_remedy(memory_remedy())
        })?;
        Ok(DeviceBytes { start, bytes, context: self.context.clone() })
    }

    fn record(&self, stream: Stream) -> Result<Event> {
        // Another thread's default stream cannot be named here. The default stream of the device waits for it.
        let stream = if stream == Stream::PER_THREAD { Stream::LEGACY } else { stream };
        self.event(stream.handle().cast())
    }

    fn wait(&self, stream: Stream, event: &Event) -> Result<()> {
        self.queue_wait(stream.handle().cast(), event)
    }

    fn wait_on_copies(&self, event: &Event) -> Result<()> {
        self.queue_wait(self.copies, event)
    }

    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: both have so many bytes and stay, as the caller promises.
        self.context.with(|| unsafe {
            sys::cuMemcpyHtoDAsync_v2(to as sys::CUdeviceptr, from.cast(), bytes, self.copies)
        })
    }

    fn copied(&self) -> Result<Event> {
        self.event(self.copies)
    }

    fn prepare_decoding(&self) -> Result<()> {
        if self.decoder.get().is_none() {
            let kernels = Kernels::of(&self.context)?;
            let stream = self.context.stream()?;
            if let Err(Decoder { stream, .. }) = self.decoder.set(Decoder { kernels, stream }) {
                // Another thread was faster.
                self.context.destroy(stream);
            }
        }
        Ok(())
    }

    fn wait_on_decodes(&self, event: &Event) -> Result<()> {
        self.queue_wait(self.decoder()?.stream, event)
    }

    unsafe fn queue_decode(&self, decode: &Decode, at: &DecodePlaces) -> Result<()> {
        let Decoder { kernels, stream } = self.decoder()?;
        // SAFETY: the caller is responsible for the memory.
        unsafe { kernels.decode(decode, at, *stream) }
    }

    unsafe fn queue_gather(&self, gather: &Gather, at: &GatherPlaces) -> Result<()> {
        let Decoder { kernels, stream } = self.decoder()?;
        // SAFETY: the caller is responsible for the memory.
        unsafe { kernels.gather(gather, at, *stream) }
    }

    unsafe fn queue_move(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        let stream = self.decoder()?.stream;
        let (from, to) = (from as sys::CUdeviceptr, to as sys::CUdeviceptr);
        // SAFETY: both have so many bytes and stay, as the caller promises.
        self.context.with(|| unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) })
    }

    unsafe fn queue_answers(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        let stream = self.decoder()?.stream;
        // SAFETY: both have so many bytes and stay, as the caller promises.
        self.context.with(|| unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from as sys::CUdeviceptr, bytes, stream)
        })
    }

    fn decoded(&self) -> Result<Event> {
        self.event(self.decoder()?.stream)
    }

    fn finish(&self, event: &Event) -> Result<()> {
        // SAFETY: the event lives. It was made to block, so that the thread sleeps.
        self.context.with(|| unsafe { sys::cuEventSynchronize(event.event) })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        self.context.destroy(self.copies);
        if let Some(Decoder { stream, .. }) = self.decoder.get() {
            self.context.destroy(*stream);
        }
    }
}

// SAFETY: the driver gives memory of that length, which stays where it is until it is freed.
unsafe impl DeviceMemory for DeviceBytes {
    fn start(&self) -> *mut u8 {
        self.start as *mut u8
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for DeviceBytes {
    fn drop(&mut self) {
        // SAFETY: allocated once, freed once. The device is done with it, as `Backend::Memory` asks for.
        let _ = self.context.with(|| unsafe { sys::cuMemFree_v2(self.start) });
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event lives until here; streams that wait for it still do.
        let _ = self.context.with(|| unsafe { sys::cuEventDestroy_v2(self.event) });
    }
}

/// The PCI bus id of CUDA device `number`, such as `0000:3b:00.0`. It is the same for every library, however the
/// library numbers devices and whatever `CUDA_VISIBLE_DEVICES` hides.
///
/// # Errors
/// If there is no such device, no driver, or the driver is too old.
pub fn pci_bus_id(number: usize) -> Result<String> {
    let device = device(number)?;
    let mut id = [0; 32];
    // SAFETY: the device exists, and the driver writes at most so many characters, NUL among them.
    told(unsafe { sys::cuDeviceGetPCIBusId(id.as_mut_ptr(), id.len() as c_int, device) })?;
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
    told(unsafe { sys::cuInit(0) })?;
    let mut count = 0;
    // SAFETY: the count is written to a local variable.
    told(unsafe { sys::cuDeviceGetCount(&mut count) })?;
    let number = c_int::try_from(number).ok().filter(|number| *number < count);
    let number = number.ok_or_else(|| {
        Error::device(format!("there is no such CUDA device; there are {count}"))
            .with_remedy("devices are numbered from 0; CUDA_VISIBLE_DEVICES hides some")
    })?;
    let mut device = 0;
    // SAFETY: the device is written to a local variable, and the number is one that exists.
    told(unsafe { sys::cuDeviceGet(&mut device, number) })?;
    Ok(device)
}

impl Context {
    /// The driver's number of the device.
    pub(super) fn device(&self) -> CUdevice {
        self.device
    }

    fn primary(number: usize) -> Result<Self> {
        let device = device(number)?;
        let mut context = ptr::null_mut();
        // SAFETY: the context is written to a local variable, and the device is one that exists.
        told(unsafe { sys::cuDevicePrimaryCtxRetain(&mut context, device) })?;
        Ok(Self { device, context })
    }

    /// A stream that does not wait for the default stream, and for which that does not wait.
    fn stream(&self) -> Result<CUstream> {
        let mut stream = ptr::null_mut();
        self.with(|| {
            let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
            // SAFETY: the stream is written to a local variable.
            unsafe { sys::cuStreamCreate(&mut stream, flags) }
        })?;
        Ok(stream)
    }

    /// Destroys a stream. Work that is still queued on it is done nevertheless.
    fn destroy(&self, stream: CUstream) {
        // SAFETY: made by `stream`, and destroyed once. Nobody can be told of an error here.
        let _ = self.with(|| unsafe { sys::cuStreamDestroy_v2(stream) });
    }

    /// Runs `call` with this context current, and then gives the thread its previous context back.
    pub(super) fn with(&self, call: impl FnOnce() -> CUresult) -> Result<()> {
        // SAFETY: the context is retained.
        told(unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        let result = call();
        let mut popped = ptr::null_mut();
        // SAFETY: pops what was pushed.
        let back = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
        told(result)?;
        told(back)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once by `primary`, given back once.
        unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// Registers memory with a device.
struct Locker(Arc<Context>);

impl PageLocker for Locker {
    fn name(&self) -> &str {
        "CUDA"
    }

    fn lock(&self, memory: *mut u8, bytes: usize) -> Result<(), String> {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the ring's memory stays until it was unlocked.
        let locked = self
            .0
            .with(|| unsafe { sys::cuMemHostRegister_v2(memory.cast::<c_void>(), bytes, flags) });
        locked.map_err(|error| error.what().to_owned())
    }

    fn unlock(&self, memory: *mut u8, _: usize) {
        // SAFETY: registered by `lock`; no copy from it is under way, since its batches are gone.
        let _ = self.0.with(|| unsafe { sys::cuMemHostUnregister(memory.cast()) });
    }
}

/// Registers parts of memory maps of files with a device, as read-only.
struct MapLocker(Arc<Context>);

impl MapRegistrar for MapLocker {
    fn register(&self, memory: &[u8]) -> Result<(), String> {
        // Maps consist of whole pages.
        let bytes = memory.len().next_multiple_of(page_size());
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_READ_ONLY;
        // SAFETY: the map stays until it was unregistered. It is shared and read-only, as the driver needs it.
        let registered = self.0.with(|| unsafe {
            sys::cuMemHostRegister_v2(memory.as_ptr().cast_mut().cast(), bytes, flags)
        });
        registered.map_err(|error| error.what().to_owned())
    }

    fn unregister(&self, memory: &[u8]) {
        let start = memory.as_ptr().cast_mut().cast();
        // SAFETY: registered above; no copy from it is under way. Nobody can be told of an error here.
        let _ = self.0.with(|| unsafe { sys::cuMemHostUnregister(start) });
    }
}

fn memory_remedy() -> Remedy {
    remedy!["use a smaller ", Opt::BatchSize, " or crops, or free device memory"]
}

/// Checks that the driver offers the CUDA version that is needed here.
fn check_driver() -> Result<()> {
    let mut version = 0;
    // SAFETY: may be called before `cuInit`; the version is written to a local variable.
    told(unsafe { sys::cuDriverGetVersion(&mut version) })?;
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
fn told(result: CUresult) -> Result<()> {
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
    use hsipack_testing::skipped;

    use super::*;
    use crate::ErrorKind;

    #[test]
    fn without_a_driver_or_a_device_opening_says_why() {
        if cuda_is_available() {
            skipped("there is a CUDA device");
            return;
        }
        let error = Cuda::open(0).err().expect("nothing to open");
        assert!(error.remedy().is_some(), "{error}");
        assert_eq!(pci_bus_id(0).unwrap_err().to_string(), error.to_string());
    }

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
