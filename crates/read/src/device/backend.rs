//! The interface of a device for the transfer. There are CUDA (`cuda.rs`), a device emulated in
//! host memory (`emulated.rs`), and the fake device of the tests, which is late and fails on demand
//! (`fake.rs`).

use std::sync::Arc;

use hsipack_augment::Device;
use hsipack_augment::array::Stream;

use super::decode::{Decode, Gather};
use super::page_cache::MapRegistrar;
use crate::Result;

/// The remedy for a device that is lost.
pub(super) const LOST_REMEDY: &str =
    "restart the program; the system log (dmesg, Xid) says what happened to the device";

/// A device with a separate stream for copies. Consumers name the streams that they work on.
/// Nothing here waits for a stream or the device; only [`finish`](Self::finish) waits, for one
/// event.
pub(super) trait Backend: Send + Sync + 'static {
    /// A point in the work of a stream.
    type Event: Send + Sync;
    /// Memory of the device. It is freed when it is dropped. By then the device has to be done with
    /// it.
    type Memory: DeviceMemory;

    /// Where the memory is.
    fn device(&self) -> Device;

    /// The number by which other loaders of this process know the device, so that they can use its
    /// memory together. `None` if they cannot.
    fn number(&self) -> Option<usize>;

    /// Bytes of the device's memory that are free.
    fn free_memory(&self) -> Result<u64>;

    /// Registers parts of files, so that copies from their maps need no work of the host.
    ///
    /// # Errors
    /// If the device or its driver cannot; the text says why.
    fn map_registrar(&self) -> Result<Arc<dyn MapRegistrar>, String> {
        Err("the device cannot read the page cache".to_owned())
    }

    /// Allocates memory that no queued work refers to.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory>;

    /// Records an event after everything that is queued on a consumer's stream.
    fn record(&self, stream: Stream) -> Result<Self::Event>;

    /// Makes everything that is queued on a consumer's stream from now on wait for `event`.
    fn wait(&self, stream: Stream, event: &Self::Event) -> Result<()>;

    /// Makes copies that are queued from now on wait for `event`.
    fn wait_on_copies(&self, event: &Self::Event) -> Result<()>;

    /// Queues a copy of `from` to the start of `to`.
    ///
    /// # Errors
    /// An error means that nothing was queued.
    ///
    /// # Panics
    /// If `to` is shorter than `from`.
    ///
    /// # Safety
    /// `from` must not move or be written to, and `to` must live, until an event that
    /// [`copied`](Self::copied) returns afterwards is done. Nobody may use `to` meanwhile.
    unsafe fn copy(&self, from: &[u8], to: &Self::Memory) -> Result<()> {
        let room = to.bytes();
        assert!(room >= from.len(), "a batch of {} bytes for a slot of {room}", from.len());
        // SAFETY: `to` has room for all of it, and both stay as the caller promises.
        unsafe { self.queue_copy(from.as_ptr(), to.start(), from.len()) }
    }

    /// Queues a copy of `bytes` bytes from the host's memory at `from` to this device's memory at
    /// `to`.
    ///
    /// # Errors
    /// An error means that nothing was queued.
    ///
    /// # Safety
    /// `from` and `to` must each have `bytes` bytes, which do not overlap. The bytes at `from` must
    /// not move or be written to, and those at `to` must live, until an event that
    /// [`copied`](Self::copied) returns afterwards is done.
    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()>;

    /// Records an event after all copies that are queued, and after everything that later ones wait
    /// for.
    fn copied(&self) -> Result<Self::Event>;

    /// Makes the device ready to decode batches. Called before the functions below.
    ///
    /// # Errors
    /// If it cannot; the error says why.
    fn prepare_decoding(&self) -> Result<()>;

    /// Makes decodings that are queued from now on wait for `event`.
    fn wait_on_decodes(&self, event: &Self::Event) -> Result<()>;

    /// Queues the decoding of a batch.
    ///
    /// # Errors
    /// An error means that nothing was queued.
    ///
    /// # Safety
    /// All of the chunks, and what they refer to, must lie in this device's memory at these places,
    /// be there when the decoding begins, and stay until an event that [`decoded`](Self::decoded)
    /// returns afterwards is done. Nobody may use the memory meanwhile.
    unsafe fn queue_decode(&self, decode: &Decode, at: &DecodePlaces) -> Result<()>;

    /// Queues the gathering of windows, after the decodings that are queued.
    ///
    /// # Errors
    /// An error means that nothing was queued.
    ///
    /// # Safety
    /// As for [`queue_decode`](Self::queue_decode).
    unsafe fn queue_gather(&self, gather: &Gather, at: &GatherPlaces) -> Result<()>;

    /// Queues a copy of `bytes` bytes within this device's memory, after the decodings that are
    /// queued.
    ///
    /// # Errors
    /// An error means that nothing was queued.
    ///
    /// # Safety
    /// `from` and `to` must each have `bytes` bytes, which do not overlap, and which must stay, and
    /// which nobody else may use, until an event that [`decoded`](Self::decoded) returns afterwards
    /// is done.
    unsafe fn queue_move(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()>;

    /// Queues a copy of `bytes` bytes from this device's memory to the host's, after the decodings
    /// that are queued.
    ///
    /// # Errors
    /// An error means that nothing was queued.
    ///
    /// # Safety
    /// `from` and `to` must each have `bytes` bytes, which must stay, and which nobody may use,
    /// until an event that [`decoded`](Self::decoded) returns afterwards is done.
    unsafe fn queue_answers(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()>;

    /// Records an event after all decodings and answers that are queued, and after everything that
    /// later ones wait for.
    fn decoded(&self) -> Result<Self::Event>;

    /// Seconds from one event to another, which [`copied`](Self::copied) returned, and which are
    /// both done; `None` if the device does not say.
    fn seconds_between(&self, from: &Self::Event, to: &Self::Event) -> Option<f64>;

    /// Blocks the calling thread until `event` is done.
    fn finish(&self, event: &Self::Event) -> Result<()>;
}

/// Where the parts of a decoding are in a device's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodePlaces {
    /// The table of chunks.
    pub chunks: *const u8,
    /// Places of their frames are counted from here.
    pub compressed: *const u8,
    /// The batch that is written.
    pub batch: *mut u8,
    /// As many bytes as [`Decode::scratch_bytes`].
    pub scratch: *mut u8,
    /// One number for each chunk, 0 before.
    pub statuses: *mut u8,
}

/// Where the parts of a gathering are in a device's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatherPlaces {
    /// The table of windows.
    pub windows: *const u8,
    /// The list of bands.
    pub bands: *const u8,
    /// Places of cubes are counted from here.
    pub cubes: *const u8,
    /// The batch that is written.
    pub batch: *mut u8,
}

/// Memory of a device.
///
/// # Safety
/// The `bytes()` bytes at `start()` must not move as long as the value lives, even if the value
/// itself moves.
pub(super) unsafe trait DeviceMemory: Send + Sync + 'static {
    /// The first byte, as the device addresses it.
    fn start(&self) -> *mut u8;

    /// The length in bytes.
    fn bytes(&self) -> usize;
}

#[cfg(test)]
mod tests {
    use super::super::emulated::Emulated;
    use super::*;

    #[test]
    fn a_copy_fills_the_start_of_its_slot() {
        let device = Emulated::new(1e12);
        let slot = device.allocate(5).unwrap();
        // SAFETY: the copy is done when the call returns; both outlive it.
        unsafe { device.copy(&[1, 2, 3], &slot).unwrap() };
        // SAFETY: five bytes of the host's, which nobody writes to.
        let bytes = unsafe {
            std::slice::from_raw_parts(DeviceMemory::start(&slot), DeviceMemory::bytes(&slot))
        };
        assert_eq!(bytes, [1, 2, 3, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "a batch of 6 bytes for a slot of 5")]
    fn a_batch_larger_than_its_slot_is_not_copied() {
        let device = Emulated::new(1e12);
        let slot = device.allocate(5).unwrap();
        // SAFETY: nothing is copied.
        let _ = unsafe { device.copy(&[0; 6], &slot) };
    }
}
