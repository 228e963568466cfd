//! Libraries whose tensors batches can be.

use hsipack_format::{Error, Result};

use crate::apply::{Augmented, Images};
use crate::array::{Array, Device, ElementType, Stream};
use crate::drawn::SampleKey;
use crate::engine::Engine;
use crate::host::Host;
use crate::parameters::Parameters;
use crate::pipeline::Pipeline;
use crate::prepare::{ImageConversion, LabelConversion, Validity};

/// A library of tensors: libtorch, the torch of a Python process, or none ([`Host`], whose tensors
/// are [`Array`]s).
///
/// In host memory, [`Host`] computes everything for all libraries, so that results are the same bit
/// for bit. On a device, the library's own operations are used.
pub trait Library: Clone + Send + Sync + 'static {
    /// A tensor. Clones share its memory.
    type Tensor: Clone + Send;
    /// The engine for a device.
    type Engine: Engine<Array = Self::Tensor>;

    /// The engine for host memory.
    fn host(&self) -> &Host;

    /// The engine for the device with this number.
    ///
    /// # Errors
    /// If the library cannot use it.
    fn engine(&self, device: usize) -> Result<Self::Engine>;

    /// The stream of this device on which the calling thread uses the library's tensors.
    ///
    /// # Errors
    /// If the library cannot use the device.
    fn stream(&self, device: usize) -> Result<Stream>;

    /// A tensor over an array's memory. On a device, the array must have been lent to the stream on
    /// which the tensor is used.
    ///
    /// # Errors
    /// If the library has no such device or element type.
    fn tensor(&self, array: Array) -> Result<Self::Tensor>;

    /// An array over the memory of a tensor, which must be in host memory.
    ///
    /// # Errors
    /// If the tensor's element type is not supported.
    fn array(&self, tensor: &Self::Tensor) -> Result<Array>;

    /// The device of a tensor.
    ///
    /// # Errors
    /// If the device is not supported.
    fn device(&self, tensor: &Self::Tensor) -> Result<Device>;

    /// Converts stored data (samples, rows, columns, bands) to an image (samples, bands, rows,
    /// columns).
    ///
    /// # Errors
    /// If there is no memory.
    fn image_of(&self, stored: Array, recipe: &ImageConversion) -> Result<Self::Tensor> {
        match stored.device() {
            Device::Cpu => self.tensor(self.host().image(&stored, recipe)?),
            // No engine is needed for this.
            Device::Cuda(_) if recipe.is_nothing(stored.element()) => {
                self.tensor(stored.permuted(&[0, 3, 1, 2]))
            }
            Device::Cuda(number) => self.engine(number)?.image(&self.tensor(stored)?, recipe),
        }
    }

    /// Converts stored data (samples, rows, columns, 1) to a mask.
    ///
    /// # Errors
    /// If there is no memory.
    fn labels_of(&self, stored: Array, recipe: &LabelConversion) -> Result<Self::Tensor> {
        match stored.device() {
            Device::Cpu => self.tensor(self.host().labels(&stored, recipe)?),
            Device::Cuda(_) if recipe.is_nothing() => {
                let shape = stored.shape()[..3].to_vec();
                self.tensor(stored.reshaped(&shape)?)
            }
            Device::Cuda(number) => {
                let stored = stored.reinterpreted(stored.element().signed());
                self.engine(number)?.labels(&self.tensor(stored)?, recipe)
            }
        }
    }

    /// Which pixels of stored data (samples, rows, columns, bands) have values: (samples, rows,
    /// columns) of `Bool`.
    ///
    /// # Errors
    /// If there is no memory.
    fn valid_of(&self, stored: Array, recipe: &Validity) -> Result<Self::Tensor> {
        match stored.device() {
            Device::Cpu => self.tensor(self.host().valid(&stored, recipe)?),
            Device::Cuda(number) => self.engine(number)?.valid(&self.tensor(stored)?, recipe),
        }
    }

    /// Applies drawn parameters to a batch; see [`Pipeline::apply`].
    ///
    /// # Errors
    /// As [`Pipeline::apply`], and if a mask is on another device than the images.
    fn apply(
        &self,
        pipeline: &Pipeline,
        images: Images<Self::Tensor>,
        parameters: &Parameters,
    ) -> Result<Augmented<Self::Tensor>> {
        match device_of(self, &images)? {
            Device::Cpu => {
                let images = images.of(|tensor| self.array(&tensor))?;
                pipeline.apply(self.host(), &images, parameters)?.of(|array| self.tensor(array))
            }
            Device::Cuda(number) => pipeline.apply(&self.engine(number)?, &images, parameters),
        }
    }

    /// Draws parameters for a batch and applies them; see [`Pipeline::augment`].
    ///
    /// # Errors
    /// As [`Pipeline::augment`].
    fn augment(
        &self,
        pipeline: &Pipeline,
        images: Images<Self::Tensor>,
        epoch: u64,
        samples: &[SampleKey],
    ) -> Result<(Augmented<Self::Tensor>, Parameters)> {
        match device_of(self, &images)? {
            Device::Cpu => {
                let images = images.of(|tensor| self.array(&tensor))?;
                let (augmented, parameters) =
                    pipeline.augment(self.host(), &images, epoch, samples)?;
                Ok((augmented.of(|array| self.tensor(array))?, parameters))
            }
            Device::Cuda(number) => {
                pipeline.augment(&self.engine(number)?, &images, epoch, samples)
            }
        }
    }

    /// Shape and element type of images (samples, bands, rows, columns).
    ///
    /// # Errors
    /// If the element type is not supported.
    fn look_at(&self, image: &Self::Tensor) -> Result<(Vec<usize>, ElementType)>;
}

/// The device on which images and masks are.
fn device_of<L: Library>(library: &L, images: &Images<L::Tensor>) -> Result<Device> {
    let device = library.device(&images.image)?;
    for mask in &images.masks {
        let other = library.device(&mask.labels)?;
        if other != device {
            return Err(Error::conflict(format!(
                "mask {} is on {other}, but its images are on {device}",
                mask.name
            ))
            .with_remedy("move both to the same device"));
        }
    }
    Ok(device)
}

impl Library for Host {
    type Tensor = Array;
    type Engine = Host;

    fn host(&self) -> &Host {
        self
    }

    fn engine(&self, device: usize) -> Result<Host> {
        Err(Error::unsupported(format!("there is no library that computes on cuda:{device}"))
            .with_remedy("install torch, or ask for batches on the CPU"))
    }

    /// Arrays are passed on to other libraries, which name their own streams.
    fn stream(&self, _: usize) -> Result<Stream> {
        Ok(Stream::LEGACY)
    }

    fn tensor(&self, array: Array) -> Result<Array> {
        Ok(array)
    }

    fn array(&self, tensor: &Array) -> Result<Array> {
        Ok(tensor.clone())
    }

    fn device(&self, tensor: &Array) -> Result<Device> {
        Ok(tensor.device())
    }

    fn look_at(&self, image: &Array) -> Result<(Vec<usize>, ElementType)> {
        Engine::look(self, image)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::array::Memory;
    use crate::{Flip, Frame, Mask, Op, SampleKey};

    /// Memory that claims to be on a GPU and is never read.
    struct Elsewhere;

    // SAFETY: it has no bytes.
    unsafe impl Memory for Elsewhere {
        fn device(&self) -> Device {
            Device::Cuda(1)
        }

        fn start(&self) -> *mut u8 {
            std::ptr::null_mut()
        }

        fn bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn masks_on_another_device_are_refused() {
        let pipeline = Pipeline::new(vec![Op::Hflip(Flip { p: 1.0 })]);
        let frame = Frame { rows: 1, columns: 1, bands: 1 };
        let parameters = pipeline.draw(frame, 0, &[SampleKey { sample: 0, repeat: 0 }]).unwrap();
        let image = Array::of_numbers(&[1.0], &[1, 1, 1, 1], ElementType::F32).unwrap();
        let labels = Array::new(Arc::new(Elsewhere), 0, &[0, 1, 1], ElementType::U8).unwrap();
        let images = Images::new(image, vec![Mask { name: "organs".into(), labels }]);
        let error = Host::new(1).apply(&pipeline, images, &parameters).unwrap_err();
        assert!(error.to_string().contains("organs is on cuda:1"), "{error}");
    }
}
