//! An emulated device: batches are copied to other host memory, as slowly as over a given bus. With
//! it, machines without a GPU can measure what a copy would cost.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hsipack_augment::Device;
use hsipack_augment::array::{Buffer, Memory, Stream};

use super::backend::{Backend, DecodePlaces, DeviceMemory, GatherPlaces};
use super::decode::{Decode, Gather};
use crate::{Error, Result};

/// See the module's documentation. All work on its arrays is done at once, so there is nothing to
/// wait for: when an array is dropped, it is no longer in use, and when an array is received, it is
/// already copied.
pub(super) struct Emulated {
    bytes_per_s: f64,
    /// When the bus is free again.
    free: Mutex<Instant>,
}

impl Emulated {
    /// A bus of this many bytes per second.
    pub(super) fn new(bytes_per_s: f64) -> Self {
        Self { bytes_per_s, free: Mutex::new(Instant::now()) }
    }

    /// When a copy that begins now will be done.
    fn book(&self, bytes: usize) -> Instant {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_s);
        *free = (*free).max(Instant::now()) + time.unwrap_or(Duration::MAX / 4);
        *free
    }
}

// SAFETY: the buffer's memory stays where it is.
unsafe impl DeviceMemory for Buffer {
    fn start(&self) -> *mut u8 {
        Memory::start(self)
    }

    fn bytes(&self) -> usize {
        Memory::bytes(self)
    }
}

impl Backend for Emulated {
    type Event = ();
    type Memory = Buffer;

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn number(&self) -> Option<usize> {
        None
    }

    fn free_memory(&self) -> Result<u64> {
        Err(no_decoding())
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        Buffer::zeroed(bytes)
    }

    fn record(&self, _: Stream) -> Result<()> {
        Ok(())
    }

    fn wait(&self, _: Stream, (): &()) -> Result<()> {
        Ok(())
    }

    fn wait_on_copies(&self, (): &()) -> Result<()> {
        Ok(())
    }

    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        let through = self.book(bytes);
        // SAFETY: both have so many bytes, and nobody uses a slot while it is copied to, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        std::thread::sleep(through.saturating_duration_since(Instant::now()));
        Ok(())
    }

    fn copied(&self) -> Result<()> {
        Ok(())
    }

    fn prepare_decoding(&self) -> Result<()> {
        Err(no_decoding())
    }

    fn wait_on_decodes(&self, (): &()) -> Result<()> {
        Err(no_decoding())
    }

    unsafe fn queue_decode(&self, _: &Decode, _: &DecodePlaces) -> Result<()> {
        Err(no_decoding())
    }

    unsafe fn queue_gather(&self, _: &Gather, _: &GatherPlaces) -> Result<()> {
        Err(no_decoding())
    }

    unsafe fn queue_move(&self, _: *const u8, _: *mut u8, _: usize) -> Result<()> {
        Err(no_decoding())
    }

    unsafe fn queue_answers(&self, _: *const u8, _: *mut u8, _: usize) -> Result<()> {
        Err(no_decoding())
    }

    fn decoded(&self) -> Result<()> {
        Err(no_decoding())
    }

    fn seconds_between(&self, (): &(), (): &()) -> Option<f64> {
        None
    }

    fn finish(&self, (): &()) -> Result<()> {
        Ok(())
    }
}

fn no_decoding() -> Error {
    Error::conflict("an emulated device does not decode").with_remedy("use decode=\"host\"")
}
