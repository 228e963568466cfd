//! Operations of the user's torch for measurements: devices, copies, waiting for them, and a
//! network.

use hsipack_augment::{Array, Device};
use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_measure::device::{TrainingLibrary, parse};
use hsipack_measure::step::Trainer;
use pyo3::intern;
use pyo3::prelude::*;

use super::{Library, Tensor, Torch, with};

impl TrainingLibrary for Library {
    fn named(&self, name: &str) -> Result<Device> {
        match parse(name)? {
            Some(Device::Cpu) => Ok(Device::Cpu),
            None => with(|py, torch| {
                let count = torch.devices(py)?;
                Ok(if count > 0 { Device::Cuda(0) } else { Device::Cpu })
            }),
            Some(Device::Cuda(number)) => {
                let missing = with(|py, torch| torch.missing(py, number))?;
                missing.map_or(Ok(Device::Cuda(number)), Err)
            }
        }
    }

    fn copied(&self, array: Array, device: Device) -> Result<Tensor> {
        let pageable = Tensor::Ours(array);
        if device == Device::Cpu {
            return Ok(pageable);
        }
        with(|py, torch| {
            let arguments = (pageable.torch(py, torch)?, torch.device_of(py, device)?);
            Ok(torch.functions.to.bind(py).call1(arguments)?.into())
        })
    }

    fn wait(&self, device: Device) -> Result<()> {
        match device {
            Device::Cpu => Ok(()),
            Device::Cuda(number) => {
                with(|py, torch| torch.functions.synchronize.bind(py).call1((number,)).map(drop))
            }
        }
    }

    fn network(&self, bands: usize, device: Device) -> Result<Box<dyn Trainer<Tensor>>> {
        with(|py, torch| {
            let module = py.import(intern!(py, "hsipack._network"))?;
            let arguments = (bands, torch.device_of(py, device)?);
            let network = module.getattr(intern!(py, "Network"))?.call1(arguments)?.unbind();
            Ok(Box::new(Network { network, library: self.clone(), device }) as Box<_>)
        })
    }
}

/// A network of `hsipack._network`.
struct Network {
    network: Py<PyAny>,
    library: Library,
    device: Device,
}

impl Trainer<Tensor> for Network {
    fn train(&mut self, image: &Tensor) -> Result<()> {
        with(|py, torch| {
            let image = image.torch(py, torch)?;
            self.network.call_method1(py, intern!(py, "train"), (image,)).map(drop)
        })?;
        self.library.wait(self.device)
    }
}

impl Torch {
    /// Number of GPUs that torch sees.
    fn devices(&self, py: Python<'_>) -> PyResult<usize> {
        if !self.functions.is_available.bind(py).call0()?.is_truthy()? {
            return Ok(0);
        }
        self.functions.device_count.bind(py).call0()?.extract()
    }

    /// The error if torch does not have the GPU with this number, with a remedy; `None` if it has
    /// it.
    fn missing(&self, py: Python<'_>, number: usize) -> PyResult<Option<Error>> {
        let count = self.devices(py)?;
        if number < count {
            return Ok(None);
        }
        let torch = py.import("torch")?;
        let version = torch.getattr("__version__")?.str()?.to_string();
        let cuda = torch.getattr("version")?.getattr("cuda")?;
        let hip = torch.getattr("version")?.getattr("hip")?;
        Ok(Some(if count > 0 {
            let gpus = if count == 1 { "1 GPU".to_owned() } else { format!("{count} GPUs") };
            Error::unsupported(format!("there is no cuda:{number}: torch sees {gpus}"))
                .with_remedy(remedy!["pass ", Opt::Device.to("cuda:0")])
        } else if cuda.is_none() && hip.is_none() {
            Error::unsupported(format!("torch {version} was built without CUDA")).with_remedy(
                remedy![
                    "install a torch with CUDA, see https://pytorch.org/get-started, or pass ",
                    Opt::Device.to("cpu")
                ],
            )
        } else {
            Error::unsupported(format!("torch {version} sees no GPU")).with_remedy(remedy![
                "check that nvidia-smi lists one and that CUDA_VISIBLE_DEVICES does not hide it, or pass ",
                Opt::Device.to("cpu")
            ])
        }))
    }
}
