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

    /// Queues a copy of `from` to the start of `to`.
    ///
    /// # Errors
    /// If nothing was queued.
    ///
    /// # Safety
    /// `from` must stay where it is, unwritten, and `to`'s memory must live, until an event that
    /// [`copied`](Self::copied) makes afterwards is done.
    unsafe fn copy(&self, from: &[u8], to: &Tensor) -> Result<()>;

    /// A point behind all copies that are queued.
    fn copied(&self) -> Result<Self::Event>;

    /// Blocks the calling thread until `event` is done.
    fn finish(&self, event: &Self::Event) -> Result<()>;
}
