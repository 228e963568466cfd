//! The training step of a measurement: a wait, or a small network.

use std::thread::sleep;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Result;

/// Work of the device for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Waits this many seconds, like a device that computes without the CPU.
    Time(f64),
    /// Trains a small convolutional network.
    Network,
}

/// Trains on batches.
pub trait Trainer<T> {
    /// Trains on images (B, C, H, W), and returns when the device has finished.
    ///
    /// # Errors
    /// If the device has not enough memory, or fails.
    fn train(&mut self, image: &T) -> Result<()>;
}

/// Waits for a fixed time without using the CPU, like a device that computes by itself.
pub struct Wait<F> {
    time: Duration,
    /// Waits for the device.
    device: F,
}

impl<F: Fn() -> Result<()>> Wait<F> {
    /// A step of this many seconds, which begins after `device` has waited for the device.
    pub fn new(seconds: f64, device: F) -> Self {
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO);
        Self { time, device }
    }
}

impl<T, F: Fn() -> Result<()>> Trainer<T> for Wait<F> {
    fn train(&mut self, _: &T) -> Result<()> {
        (self.device)()?;
        sleep(self.time);
        Ok(())
    }
}
