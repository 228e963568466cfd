//! The device: which one, and waiting for it.

use tch::{Device, TchError};

use crate::{Error, Result};
use hsipack_format::{Opt, remedy};

/// Runs tensor operations without gradients, and makes the crate's error of libtorch's.
pub fn run<T>(work: impl FnOnce() -> Result<T, TchError>) -> Result<T> {
    tch::no_grad(work).map_err(failed)
}

/// An error that libtorch told of.
pub fn failed(error: TchError) -> Error {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or("it failed").trim_end_matches('.').to_owned();
    let short = first.contains("memory");
    let error = Error::device(format!("libtorch: {first}")).caused_by(error);
    if short { error.with_remedy(remedy!["use a smaller ", Opt::BatchSize]) } else { error }
}

/// The device of that name: `auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:1`.
///
/// # Errors
/// If there is none of that name.
pub fn device(name: &str) -> Result<Device> {
    let gpu = |number: usize| {
        if !hsipack_read::cuda_is_available() {
            return Err(Error::device(format!("there is no device {name}: libtorch finds no GPU"))
                .with_remedy(remedy![
                    "pass ",
                    Opt::Device.to("cpu"),
                    ", or look whether the NVIDIA driver is installed"
                ]));
        }
        let count = tch::Cuda::device_count();
        if number as i64 >= count {
            return Err(Error::device(format!("there is no device {name}"))
                .with_remedy(format!("GPUs are numbered from 0; there are {count}")));
        }
        Ok(Device::Cuda(number))
    };
    match name {
        "auto" => Ok(hsipack_read::best_device()),
        "cpu" => Ok(Device::Cpu),
        "cuda" => gpu(0),
        _ => match name.strip_prefix("cuda:").and_then(|number| number.parse().ok()) {
            Some(number) => gpu(number),
            None => Err(Error::unsupported(format!("no device is named {name}"))
                .with_remedy("use auto, cpu, cuda or cuda:1")),
        },
    }
}

/// Its name, such as `cuda:0`.
pub fn name(device: Device) -> String {
    match device {
        Device::Cuda(number) => format!("cuda:{number}"),
        _ => "cpu".to_owned(),
    }
}

/// Waits until the device has done what it was given.
pub fn wait(device: Device) {
    if let Device::Cuda(number) = device {
        tch::Cuda::synchronize(number as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name() {
        assert_eq!(device("cpu").unwrap(), Device::Cpu);
        assert!(device("tpu").unwrap_err().to_string().contains("cuda:1"));
        if !hsipack_read::cuda_is_available() {
            assert_eq!(name(device("auto").unwrap()), "cpu");
            assert!(device("cuda:7").unwrap_err().to_string().contains("device=cpu"));
        }
    }
}
