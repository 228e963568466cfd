//! CUDA: page-locking, copies on a separate stream, events.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUdeviceptr, CUevent, CUstream};
use hsipack_augment::Device;
use hsipack_augment::array::Stream;

use super::backend::{Backend, DecodePlaces, DeviceMemory, GatherPlaces};
use super::cuda_kernel::Kernels;
use super::decode::{Decode, Gather};
use super::driver::{Context, check, memory_remedy};
use super::page_cache::MapRegistrar;
use crate::ring::memory::PageLocker;
use crate::{Error, Result};
use hsipack_store::mapping::page_size;

/// Flag of events between which no time is measured.
const UNTIMED: u32 = sys::CUevent_flags_enum::CU_EVENT_DISABLE_TIMING as u32;

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

// SAFETY: streams, events and functions of the driver may be used by any thread.
unsafe impl Send for Cuda {}
// SAFETY: as above; the driver locks what it has to.
unsafe impl Sync for Cuda {}
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

    /// Records an event on a stream. `flags` are more flags for the event, which blocks the thread
    /// that waits for it.
    fn event(&self, stream: CUstream, flags: u32) -> Result<Event> {
        let mut event = ptr::null_mut();
        let flags = flags | sys::CUevent_flags_enum::CU_EVENT_BLOCKING_SYNC as u32;
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
        let query = check(unsafe {
            sys::cuDeviceGetAttribute(&mut is_supported, attribute, self.context.device())
        });
        query.map_err(|error| error.what().to_owned())?;
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
        self.event(stream.handle().cast(), UNTIMED)
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
        self.event(self.copies, 0)
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
        self.event(self.decoder()?.stream, 0)
    }

    fn seconds_between(&self, from: &Event, to: &Event) -> Option<f64> {
        let mut milliseconds = 0.0;
        let measured = self.context.with(|| {
            // SAFETY: both events live; the time is written to a local variable.
            unsafe { sys::cuEventElapsedTime(&mut milliseconds, from.event, to.event) }
        });
        measured.ok().map(|()| f64::from(milliseconds) * 1e-3)
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

/// Parts of maps that are registered in this process, by address: loaders of one dataset (such as
/// those for training and validation) use the same maps, and the driver registers memory only once,
/// for all devices.
static MAPS: Mutex<BTreeMap<usize, Registered>> = Mutex::new(BTreeMap::new());

struct Registered {
    bytes: usize,
    users: usize,
    /// The context that registered it, and unregisters it.
    context: Arc<Context>,
}

impl MapRegistrar for MapLocker {
    fn register(&self, memory: &[u8]) -> Result<(), String> {
        // Maps consist of whole pages.
        let bytes = memory.len().next_multiple_of(page_size());
        let mut maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(registered) = maps.get_mut(&(memory.as_ptr() as usize))
            && registered.bytes == bytes
        {
            registered.users += 1;
            return Ok(());
        }
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_READ_ONLY;
        // SAFETY: the map stays until it was unregistered. It is shared and read-only, as the driver needs it.
        let registered = self.0.with(|| unsafe {
            sys::cuMemHostRegister_v2(memory.as_ptr().cast_mut().cast(), bytes, flags)
        });
        registered.map_err(|error| error.what().to_owned())?;
        let context = self.0.clone();
        maps.insert(memory.as_ptr() as usize, Registered { bytes, users: 1, context });
        Ok(())
    }

    fn unregister(&self, memory: &[u8]) {
        let start = memory.as_ptr() as usize;
        let mut maps = MAPS.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(registered) = maps.get_mut(&start) else { return };
        registered.users -= 1;
        if registered.users > 0 {
            return;
        }
        let Some(Registered { context, .. }) = maps.remove(&start) else { return };
        let start = memory.as_ptr().cast_mut().cast();
        // SAFETY: registered above; no copy from it is under way. Nobody can be told of an error here.
        let _ = context.with(|| unsafe { sys::cuMemHostUnregister(start) });
    }
}

#[cfg(test)]
mod tests {
    use hsipack_testing::skipped;

    use super::super::driver::{cuda_is_available, pci_bus_id};
    use super::*;

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
}
