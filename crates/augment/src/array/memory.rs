//! The memory behind arrays.

use std::ffi::c_void;

use hsipack_format::Result;

use super::device::Device;

/// Memory behind arrays.
///
/// # Safety
/// The `bytes()` bytes at `start()` must be readable (by the host for [`Device::Cpu`], otherwise by
/// that device) and must not move as long as the value lives, even if the value itself is moved.
/// Nobody may write to them in that time, unless whoever causes the write promises that nobody
/// reads them ([`Images::overwriting`](crate::Images::overwriting)).
pub unsafe trait Memory: Send + Sync {
    /// The device on which it is.
    fn device(&self) -> Device;

    /// The address of its first byte.
    fn start(&self) -> *mut u8;

    /// Its length in bytes.
    fn bytes(&self) -> usize;

    /// Announces that work queued on `stream` from now on uses the memory. That work then waits
    /// until the contents of the memory have arrived. When the memory is released, it is not reused
    /// before the work queued on the stream by then is done. Host memory needs no waiting.
    ///
    /// # Errors
    /// If the device reports an error.
    fn lend(&self, stream: Stream) -> Result<()> {
        let _ = stream;
        Ok(())
    }
}

/// A stream of a CUDA device, identified by the driver's handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stream(usize);

impl Stream {
    /// The default stream of a device. It waits for other streams, and they wait for it
    /// (`CU_STREAM_LEGACY`).
    pub const LEGACY: Self = Self(1);
    /// The calling thread's default stream (`CU_STREAM_PER_THREAD`).
    pub const PER_THREAD: Self = Self(2);

    /// The stream with this handle (a `CUstream` or `cudaStream_t`); null is the default stream.
    pub fn of(handle: *mut c_void) -> Self {
        if handle.is_null() { Self::LEGACY } else { Self(handle as usize) }
    }

    /// The stream that a consumer names in `__dlpack__(stream=…)`: no number means the default
    /// stream, and -1 means that no synchronisation is needed.
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
