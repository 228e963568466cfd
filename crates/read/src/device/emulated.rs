//! A device that is not there: batches are copied to other memory of the host, as slowly as over a given bus. For
//! measuring, on machines without a GPU, what a copy would cost.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tch::{Device, Kind, Tensor};

use super::backend::Backend;
use crate::Result;
use crate::torch::run;

/// See the module's documentation. What is done with its tensors is done at once, so there is nothing to wait for:
/// who drops a tensor has used it, and who was given one finds it copied.
pub(super) struct Emulated {
    bytes_per_s: f64,
    /// When the bus is free again.
    free: Mutex<Instant>,
}

impl Emulated {
    /// A bus of so many bytes a second.
    pub(super) fn new(bytes_per_s: f64) -> Self {
        Self { bytes_per_s, free: Mutex::new(Instant::now()) }
    }

    /// When a copy that begins now has come through.
    fn book(&self, bytes: usize) -> Instant {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let time = Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_s);
        *free = (*free).max(Instant::now()) + time.unwrap_or(Duration::MAX / 4);
        *free
    }
}

impl Backend for Emulated {
    type Event = ();

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn allocate(&self, bytes: usize) -> Result<Tensor> {
        run(|| Tensor::f_zeros([bytes as i64], (Kind::Uint8, Device::Cpu)))
    }

    fn lend(&self, _: &Tensor) -> Result<()> {
        Ok(())
    }

    fn fence(&self) -> Result<()> {
        Ok(())
    }

    fn wait_on_caller(&self, (): &()) -> Result<()> {
        Ok(())
    }

    fn wait_on_copies(&self, (): &()) -> Result<()> {
        Ok(())
    }

    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        let through = self.book(bytes);
        // SAFETY: both have so many bytes, as the caller promises; the base tensor of a slot is the only user of its
        // storage while it is copied to.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        std::thread::sleep(through.saturating_duration_since(Instant::now()));
        Ok(())
    }

    fn copied(&self) -> Result<()> {
        Ok(())
    }

    fn finish(&self, (): &()) -> Result<()> {
        Ok(())
    }
}
