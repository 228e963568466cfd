//! Tensors over arrays and arrays over tensors; devices.

use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

use hsipack_augment::array::{DlPack, Stream};
use hsipack_augment::{Array, Device, ElementType, Host, Library, TensorEngine};
use hsipack_format::{Error, Result};
use tch::Kind;

use crate::operations::Operations;
use crate::shim;

/// A libtorch tensor. Clones share its memory.
pub struct Tensor(pub tch::Tensor);

impl Clone for Tensor {
    fn clone(&self) -> Self {
        Self(self.0.shallow_clone())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Deref for Tensor {
    type Target = tch::Tensor;

    fn deref(&self) -> &tch::Tensor {
        &self.0
    }
}

impl From<tch::Tensor> for Tensor {
    fn from(tensor: tch::Tensor) -> Self {
        Self(tensor)
    }
}

impl From<Tensor> for tch::Tensor {
    fn from(tensor: Tensor) -> Self {
        tensor.0
    }
}

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

/// The device of a tensor.
///
/// # Errors
/// If the device is not supported.
pub fn device_of(tensor: &tch::Tensor) -> Result<Device> {
    match tensor.device() {
        tch::Device::Cpu => Ok(Device::Cpu),
        tch::Device::Cuda(number) => Ok(Device::Cuda(number)),
        other => Err(Error::unsupported(format!("a tensor on {other:?}"))
            .with_remedy("move it to the CPU or to a CUDA device")),
    }
}

/// The type of a tensor's elements.
///
/// # Errors
/// If the element type is not supported.
pub fn element_of(tensor: &tch::Tensor) -> Result<ElementType> {
    let kind = tensor.f_kind();
    let element = kind.as_ref().ok().and_then(|kind| match kind {
        Kind::Bool => Some(ElementType::Bool),
        Kind::Uint8 => Some(ElementType::U8),
        Kind::Int8 => Some(ElementType::I8),
        Kind::Int16 => Some(ElementType::I16),
        Kind::Int => Some(ElementType::I32),
        Kind::Int64 => Some(ElementType::I64),
        Kind::Half => Some(ElementType::F16),
        Kind::BFloat16 => Some(ElementType::BF16),
        Kind::Float => Some(ElementType::F32),
        Kind::Double => Some(ElementType::F64),
        _ => None,
    });
    element.ok_or_else(|| {
        let name = kind.map_or_else(|_| "another type".to_owned(), |kind| format!("{kind:?}"));
        Error::unsupported(format!("a tensor of {name}"))
            .with_remedy("convert it: images to Float or Half, masks to Int or Int64")
    })
}

/// tch's name for an element type.
///
/// # Errors
/// If tch has no such type: unsigned integers of more than eight bits.
pub fn kind_of(element: ElementType) -> Result<Kind> {
    Ok(match element {
        ElementType::Bool => Kind::Bool,
        ElementType::U8 => Kind::Uint8,
        ElementType::I8 => Kind::Int8,
        ElementType::I16 => Kind::Int16,
        ElementType::I32 => Kind::Int,
        ElementType::I64 => Kind::Int64,
        ElementType::F16 => Kind::Half,
        ElementType::BF16 => Kind::BFloat16,
        ElementType::F32 => Kind::Float,
        ElementType::F64 => Kind::Double,
        ElementType::U16 | ElementType::U32 | ElementType::U64 => {
            return Err(Error::unsupported(format!("tensors of {element}"))
                .with_remedy("ask for int32 or int64"));
        }
    })
}

/// Whether libtorch can use a CUDA device. The linker drops libtorch's CUDA part as unused, so it is loaded here.
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
