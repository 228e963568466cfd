//! Operations of a library of tensors that measurements use: devices, copies to them, waiting for
//! them, and a network.

use hsipack_format::{Opt, remedy};
use hsipack_read::augment::{Array, Device, Host, Library};

use crate::network::Network;
use crate::step::{StepKind, Trainer, Wait};
use crate::{Error, Result};

/// A library that can train: [`Host`] on the CPU, or the torch of a Python process on all of its
/// devices.
pub trait TrainingLibrary: Library + Clone + 'static {
    /// The device with this name: `auto` (the one that training would use), `cpu`, `cuda` or
    /// `cuda:1`.
    ///
    /// # Errors
    /// If the library has no such device.
    fn named(&self, name: &str) -> Result<Device>;

    /// Copies an array as a training script does: `tensor.to(device)`, from memory that is not
    /// page-locked.
    ///
    /// # Errors
    /// If the device has not enough memory.
    fn copied(&self, array: Array, device: Device) -> Result<Self::Tensor>;

    /// Waits until the device has finished all its work.
    ///
    /// # Errors
    /// If the device fails.
    fn wait(&self, device: Device) -> Result<()>;

    /// A small network for images with this many bands.
    ///
    /// # Errors
    /// If the device has not enough memory.
    fn network(&self, bands: usize, device: Device) -> Result<Box<dyn Trainer<Self::Tensor>>>;

    /// The training step for images with this many bands: a wait or a network.
    ///
    /// # Errors
    /// As [`network`](Self::network).
    fn step(
        &self,
        kind: StepKind,
        bands: usize,
        device: Device,
    ) -> Result<Box<dyn Trainer<Self::Tensor>>> {
        match kind {
            StepKind::Network => self.network(bands, device),
            StepKind::Time(seconds) => {
                let library = self.clone();
                Ok(Box::new(Wait::new(seconds, move || library.wait(device))))
            }
        }
    }
}

impl TrainingLibrary for Host {
    fn named(&self, name: &str) -> Result<Device> {
        match parse(name)? {
            None | Some(Device::Cpu) => Ok(Device::Cpu),
            Some(Device::Cuda(_)) => Err(elsewhere(name)),
        }
    }

    fn copied(&self, array: Array, device: Device) -> Result<Array> {
        match device {
            Device::Cpu => Ok(array),
            Device::Cuda(_) => Err(elsewhere(&device.to_string())),
        }
    }

    fn wait(&self, _: Device) -> Result<()> {
        Ok(())
    }

    fn network(&self, bands: usize, _: Device) -> Result<Box<dyn Trainer<Array>>> {
        Ok(Box::new(Network::new(bands, self.threads())?))
    }
}

/// The error if a GPU is requested but the library cannot use one.
fn elsewhere(name: &str) -> Error {
    Error::unsupported(format!("device {name} needs torch, which is not available here"))
        .with_remedy(remedy![
            "pass ",
            Opt::Device.to("cpu"),
            ", or install the Python package with torch (pip install 'hsipack[torch]') and run its command hsipack"
        ])
}

/// Parses the name of a device; `None` for `auto`.
///
/// # Errors
/// If the name is not that of a device.
pub fn parse(name: &str) -> Result<Option<Device>> {
    Ok(match name {
        "auto" => None,
        "cpu" => Some(Device::Cpu),
        "cuda" => Some(Device::Cuda(0)),
        _ => match name.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
            Some(number) => Some(Device::Cuda(number)),
            None => {
                return Err(Error::unsupported(format!("no device is named {name}"))
                    .with_remedy("use auto, cpu, cuda or cuda:1"));
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use hsipack_read::augment::ElementType;
    use hsipack_read::augment::array::Buffer;

    use super::*;

    #[test]
    fn a_wait_waits_and_a_network_trains() {
        let host = Host::new(1);
        let image = Buffer::zeroed(2 * 6 * 5 * 4 * size_of::<f32>()).unwrap();
        let image = image.array(&[2, 6, 5, 4], ElementType::F32).unwrap().permuted(&[0, 3, 1, 2]);
        let mut wait = host.step(StepKind::Time(0.02), 4, Device::Cpu).unwrap();
        let start = Instant::now();
        wait.train(&image).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
        host.step(StepKind::Network, 4, Device::Cpu).unwrap().train(&image).unwrap();
        assert!(host.step(StepKind::Network, 5, Device::Cpu).unwrap().train(&image).is_err());
    }

    #[test]
    fn devices_are_found_by_name() {
        assert_eq!(parse("cuda").unwrap(), Some(Device::Cuda(0)));
        assert_eq!(parse("cuda:3").unwrap(), Some(Device::Cuda(3)));
        for bad in ["", "tpu", "cuda:", "cuda:-1", "cuda:x"] {
            assert!(parse(bad).unwrap_err().to_string().contains("cuda:1"), "{bad}");
        }
        let host = Host::new(1);
        assert_eq!(host.named("auto").unwrap(), Device::Cpu);
        assert_eq!(host.named("cpu").unwrap(), Device::Cpu);
        let error = host.named("cuda:7").unwrap_err().to_string();
        assert!(error.contains("device cuda:7") && error.contains("hsipack[torch]"), "{error}");
    }
}
