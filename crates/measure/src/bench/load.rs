//! A GPU's load, as NVML tells it, looked at by a thread.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hsipack_read::augment::Device;
use nvml_wrapper::Nvml;

use super::busy::WINDOW_S;

/// Looks at a GPU until it is told to stop.
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<f64>>,
}

impl Watch {
    /// Begins to look; `None` for the CPU, and where there is no NVML or it does not know the device.
    pub fn start(device: Device) -> Option<Self> {
        let place = place(device)?;
        let nvml = Nvml::init().ok()?;
        nvml.device_by_pci_bus_id(place.as_str()).ok()?.utilization_rates().ok()?;
        let (stop, stopped) = channel();
        let look = move || {
            let Ok(device) = nvml.device_by_pci_bus_id(place) else { return Vec::new() };
            let mut loads = Vec::new();
            let mut next = Instant::now() + Duration::from_secs_f64(WINDOW_S);
            loop {
                match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return loads,
                }
                next += Duration::from_secs_f64(WINDOW_S);
                // A look that fails is left out: the next one is near.
                loads.extend(
                    device.utilization_rates().ok().map(|load| f64::from(load.gpu) / 100.0),
                );
            }
        };
        // What is measured needs no such thread.
        let thread = hsipack_store::threads::start("load", look).ok()?;
        Some(Self { stop, thread })
    }

    /// Shares of 0 to 1, one for each window of [`WINDOW_S`].
    pub fn stop(self) -> Vec<f64> {
        // The thread only ends when told to.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// The GPU's name.
pub fn gpu_name(device: Device) -> Option<String> {
    Nvml::init().ok()?.device_by_pci_bus_id(place(device)?).ok()?.name().ok()
}

/// Where a GPU sits. NVML numbers all GPUs, CUDA those that it is shown, and maybe in another order.
fn place(device: Device) -> Option<String> {
    let Device::Cuda(number) = device else { return None };
    hsipack_read::pci_bus_id(number).ok()
}
