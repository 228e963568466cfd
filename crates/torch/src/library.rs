//! Tensors over arrays and arrays over tensors; devices.

use std::sync::OnceLock;

use hsipack_augment::array::{DlPack, Stream};
use hsipack_augment::{Array, Device, ElementType, Host, Library, TensorEngine};
use hsipack_format::{Error, Result};

use crate::operations::Operations;
use crate::shim;
use crate::tensor::{Tensor, device_of, element_of, kind_of};

/// libtorch as the library for the tensors of batches.
#[derive(Clone, Debug, Default)]
pub struct Libtorch {
    host: Host,
}

impl Libtorch {
    /// libtorch, with this many threads for computing in host memory.
    pub fn new(threads: usize) -> Self {
        Self { host: Host::new(threads) }
    }
}

impl Library for Libtorch {
    type Tensor = Tensor;
    type Engine = TensorEngine<Operations>;

    fn host(&self) -> &Host {
        &self.host
    }

    fn engine(&self, device: usize) -> Result<TensorEngine<Operations>> {
        if cuda_is_available() {
            return Ok(TensorEngine(Operations::on(tch::Device::Cuda(device))));
        }
        Err(Error::device(format!("libtorch cannot use cuda:{device}"))
            .with_remedy("check the driver with nvidia-smi, or ask for batches on the CPU"))
    }

    fn stream(&self, device: usize) -> Result<Stream> {
        self.engine(device)?;
        shim::current_stream(device)
    }

    fn tensor(&self, array: Array) -> Result<Tensor> {
        kind_of(array.element())?;
        if let Device::Cuda(device) = array.device() {
            self.engine(device)?;
        }
        shim::from_dlpack(DlPack::of(&array)).map(Tensor)
    }

    fn array(&self, tensor: &Tensor) -> Result<Array> {
        element_of(tensor)?;
        match device_of(tensor)? {
            // SAFETY: as everywhere with tensors, a program that computes with one does not write to it at the same
            // time.
            Device::Cpu => unsafe { shim::to_dlpack(tensor)?.into_array() },
            device => Err(Error::bug(format!("a tensor on {device} as an array of the host's"))),
        }
    }

    fn device(&self, tensor: &Tensor) -> Result<Device> {
        device_of(tensor)
    }

    fn look_at(&self, image: &Tensor) -> Result<(Vec<usize>, ElementType)> {
        let shape = image.size().into_iter().map(|length| length as usize).collect();
        Ok((shape, element_of(image)?))
    }
}

/// Whether libtorch can use a CUDA device. The linker drops libtorch's CUDA part as unused, so it
/// is loaded here.
pub fn cuda_is_available() -> bool {
    static LOADED: OnceLock<bool> = OnceLock::new();
    let loaded = *LOADED.get_or_init(|| {
        // SAFETY: libtorch's own library, found beside it by the run path; its initialisers register CUDA.
        let library = unsafe {
            libc::dlopen(c"libtorch_cuda.so".as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL)
        };
        !library.is_null()
    });
    loaded && tch::Cuda::is_available()
}

/// The first CUDA device, or the CPU if there is none.
pub fn best_device() -> Device {
    if cuda_is_available() { Device::Cuda(0) } else { Device::Cpu }
}

#[cfg(test)]
mod tests {
    use hsipack_augment::array::Buffer;
    use tch::Kind;

    use super::*;

    #[test]
    fn a_tensor_over_an_array_keeps_its_memory_as_long_as_anyone_looks_at_it() {
        let array = Array::of_numbers(&[1.0, 2.0, 3.0, 4.0], &[2, 2], ElementType::F32).unwrap();
        let memory = array.memory().clone();
        let tensor = Libtorch::default().tensor(array).unwrap();
        assert_eq!(tensor.data_ptr().cast::<u8>(), memory.start());
        let row = tensor.get(1);
        drop(tensor);
        assert_eq!(std::sync::Arc::strong_count(&memory), 2);
        assert_eq!(Vec::<f32>::try_from(&row).unwrap(), [3.0, 4.0]);
        drop(row);
        assert_eq!(std::sync::Arc::strong_count(&memory), 1);
    }

    #[test]
    fn an_array_over_a_tensor_shares_its_memory_and_keeps_its_strides() {
        let libtorch = Libtorch::default();
        for element in ElementType::ALL {
            let Ok(kind) = kind_of(element) else {
                let array = Buffer::zeroed(8).unwrap().array(&[1], element).unwrap();
                let error = libtorch.tensor(array).unwrap_err();
                assert!(error.to_string().contains(element.name()) && error.remedy().is_some());
                continue;
            };
            let tensor = tch::Tensor::ones([2, 3, 4], (kind, tch::Device::Cpu)).permute([2, 0, 1]);
            let tensor = Tensor(tensor.narrow(0, 1, 2));
            let array = libtorch.array(&tensor).unwrap();
            assert_eq!((array.shape(), array.strides()), (&[2, 2, 3][..], &[1, 12, 4][..]));
            assert_eq!((array.address(), array.element()), (tensor.data_ptr().cast(), element));
            let back = libtorch.tensor(array).unwrap();
            assert_eq!((back.data_ptr(), back.stride()), (tensor.data_ptr(), tensor.stride()));
            assert_eq!(libtorch.look_at(&back).unwrap(), (vec![2, 2, 3], element));
        }
        let complex = Tensor(tch::Tensor::ones([1], (Kind::ComplexFloat, tch::Device::Cpu)));
        let error = libtorch.array(&complex).unwrap_err();
        assert!(error.to_string().contains("ComplexFloat") && error.remedy().is_some());
    }

    #[test]
    fn without_a_gpu_there_is_an_error_and_the_cpu_is_best() {
        if cuda_is_available() {
            return;
        }
        assert_eq!(best_device(), Device::Cpu);
        let libtorch = Libtorch::new(1);
        assert!(libtorch.engine(0).is_err() && libtorch.stream(0).is_err());
        assert!(shim::current_stream(0).is_err());
    }
}
