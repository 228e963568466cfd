//! What a device must do for the transfer. CUDA is one (`cuda.rs`); tests have another, which is late and fails
//! when told to (`fake.rs`).

use tch::{Device, Tensor};

use crate::Result;

/// A device with a stream of its own for copies, and a *current stream* for every calling thread, on which that
/// thread's tensor operations run. Nothing here waits for a stream or the device; only [`finish`](Self::finish)
/// waits, for one event.
pub(super) trait Backend: Send + Sync + 'static {
    /// A point in the work of a stream.
    type Event: Send + Sync;

    /// The device of the tensors.
    fn device(&self) -> Device;

    /// Allocates `bytes` of device memory (one axis of bytes) for the caller's current stream: work that is queued
    /// there already may still use it, so copies have to wait for a [`fence`](Self::fence) made afterwards.
    fn allocate(&self, bytes: usize) -> Result<Tensor>;

    /// Tells the allocator that the caller's current stream uses `memory` from now on.
    fn lend(&self, memory: &Tensor) -> Result<()>;

    /// A point behind all that is queued on the caller's current stream.
    fn fence(&self) -> Result<Self::Event>;

    /// What is queued on the caller's current stream from now on waits for `event`.
    fn wait_on_caller(&self, event: &Self::Event) -> Result<()>;

    /// Copies that are queued from now on wait for `event`.
    fn wait_on_copies(&self, event: &Self::Event) -> Result<()>;

    /// Queues a copy of `from` to the start of `to`, memory that [`allocate`](Self::allocate) made.
    ///
    /// # Errors
    /// If nothing was queued.
    ///
    /// # Panics
    /// If `to` is shorter than `from`.
    ///
    /// # Safety
    /// `from` must stay where it is, unwritten, and `to`'s memory must live, until an event that
    /// [`copied`](Self::copied) makes afterwards is done.
    unsafe fn copy(&self, from: &[u8], to: &Tensor) -> Result<()> {
        let room = to.numel() * to.kind().elt_size_in_bytes();
        assert!(
            to.is_contiguous() && room >= from.len(),
            "a batch of {} bytes for a slot of {room}",
            from.len()
        );
        // SAFETY: `to` has room for all of it, and both stay as the caller promises.
        unsafe { self.queue_copy(from.as_ptr(), to.data_ptr().cast(), from.len()) }
    }

    /// Queues a copy of `bytes` bytes from the host's memory at `from` to this device's memory at `to`.
    ///
    /// # Errors
    /// If nothing was queued.
    ///
    /// # Safety
    /// `from` and `to` must have so many bytes, apart from each other. The bytes at `from` must stay where they are,
    /// unwritten, and those at `to` must live, until an event that [`copied`](Self::copied) makes afterwards is done.
    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()>;

    /// A point behind all copies that are queued.
    fn copied(&self) -> Result<Self::Event>;

    /// Blocks the calling thread until `event` is done.
    fn finish(&self, event: &Self::Event) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::super::emulated::Emulated;
    use super::*;

    #[test]
    fn a_copy_fills_the_start_of_its_slot() {
        let device = Emulated::new(1e12);
        let slot = device.allocate(5).unwrap();
        // SAFETY: the copy is done when the call returns; both outlive it.
        unsafe { device.copy(&[1, 2, 3], &slot).unwrap() };
        assert_eq!(Vec::<u8>::try_from(&slot).unwrap(), [1, 2, 3, 0, 0]);
        let words = Tensor::zeros([2], (Kind::Int, Device::Cpu));
        // SAFETY: as above.
        unsafe { device.copy(&[1, 0, 0, 0, 2], &words).unwrap() };
        assert_eq!(Vec::<i32>::try_from(&words).unwrap(), [1, 2]);
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
