//! What arrays lie over.

use std::ffi::c_void;

use hsipack_format::Result;

use super::Device;

/// Memory that arrays lie over.
///
/// # Safety
/// The `bytes()` bytes at `start()` must be readable (by the host for [`Device::Cpu`], else by that device) and stay
/// where they are as long as the value lives, wherever that moves; and nobody may write to them in that time, unless
/// whoever has them written promises that nobody looks ([`Images::overwriting`](crate::Images::overwriting)).
pub unsafe trait Memory: Send + Sync {
    /// Where it is.
    fn device(&self) -> Device;

    /// Its first byte.
    fn start(&self) -> *mut u8;

    /// Its length.
    fn bytes(&self) -> usize;

    /// Says that work which is queued on `stream` from now on uses the memory: what is queued there waits until the
    /// memory's contents have come, and the memory is used for nothing else before what is queued there, by the time
    /// that it is let go of, is done. Memory of the host's has nothing to wait for.
    ///
    /// # Errors
    /// If the device cannot be told.
    fn lend(&self, stream: Stream) -> Result<()> {
        let _ = stream;
        Ok(())
    }
}

/// A stream of a CUDA device, as the driver names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(usize);

impl Stream {
    /// The default stream of a device, which waits for others and has them wait (`CU_STREAM_LEGACY`).
    pub const LEGACY: Self = Self(1);
    /// The calling thread's default stream (`CU_STREAM_PER_THREAD`).
    pub const PER_THREAD: Self = Self(2);

    /// The stream with this handle (a `CUstream` or `cudaStream_t`); null is the default stream.
    pub fn of(handle: *mut c_void) -> Self {
        if handle.is_null() { Self::LEGACY } else { Self(handle as usize) }
    }

    /// The stream that a consumer names in `__dlpack__(stream=…)`: no number means the default stream, and -1 that
    /// nobody has to wait.
    pub fn of_dlpack(number: Option<i64>) -> Option<Self> {
        match number {
            None | Some(0 | 1) => Some(Self::LEGACY),
            Some(-1) => None,
            Some(handle) => Some(Self(handle as usize)),
        }
    }

    /// The driver's handle.
    pub fn handle(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}
