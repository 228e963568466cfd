//! A GPU's load as NVML reports it, polled by a thread.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hsipack_read::augment::Device;
use nvml_wrapper::Nvml;

use super::busy::WINDOW_S;

/// Polls a GPU's load until it is stopped.
pub struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Vec<f64>>,
}

impl Watch {
    /// Starts polling. `None` for the CPU, if there is no NVML, or if NVML does not know the
    /// device.
    pub fn start(device: Device) -> Option<Self> {
        let address = pci_address(device)?;
        let nvml = Nvml::init().ok()?;
        nvml.device_by_pci_bus_id(address.as_str()).ok()?.utilization_rates().ok()?;
        let (stop, stopped) = channel();
        let look = move || {
            let Ok(device) = nvml.device_by_pci_bus_id(address) else { return Vec::new() };
            let mut loads = Vec::new();
            let mut next = Instant::now() + Duration::from_secs_f64(WINDOW_S);
            loop {
                match stopped.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return loads,
                }
                next += Duration::from_secs_f64(WINDOW_S);
                // A failed reading is skipped: the next one follows soon.
                loads.extend(
                    device.utilization_rates().ok().map(|load| f64::from(load.gpu) / 100.0),
                );
            }
        };
        // The benchmark works without this thread.
        let thread = hsipack_store::threads::start("load", look).ok()?;
        Some(Self { stop, thread })
    }

    /// Shares of 0 to 1, one for each window of [`WINDOW_S`].
    pub fn stop(self) -> Vec<f64> {
        // The thread ends only when it is told to.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// The GPU's name.
pub fn gpu_name(device: Device) -> Option<String> {
    Nvml::init().ok()?.device_by_pci_bus_id(pci_address(device)?).ok()?.name().ok()
}

/// PCI address of a GPU. NVML numbers all GPUs; CUDA numbers only the visible ones, and perhaps in
/// another order.
fn pci_address(device: Device) -> Option<String> {
    let Device::Cuda(number) = device else { return None };
    hsipack_read::pci_bus_id(number).ok()
}
