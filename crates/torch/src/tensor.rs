//! Tensors of libtorch: their devices and the types of their elements.

use std::fmt;
use std::ops::Deref;

use hsipack_augment::{Device, ElementType};
use hsipack_format::{Error, Result};
use tch::Kind;

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
