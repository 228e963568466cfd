//! Libraries whose tensors batches can be.

use hsipack_format::{Error, Result};

use crate::apply::{Augmented, Images};
use crate::array::{Array, Device, ElementType, Stream};
use crate::engine::Engine;
use crate::host::Host;
use crate::ops::SampleKey;
use crate::parameters::Parameters;
use crate::pipeline::Pipeline;
use crate::prepare::{ImageRecipe, LabelRecipe};

/// A library of tensors: libtorch, the torch of a Python process, or none ([`Host`], whose tensors are [`Array`]s).
///
/// In the host's memory everything is computed by [`Host`], whatever the library, so that results are the same bit for
/// bit; on a device by the library's own operations.
pub trait Library: Clone + Send + Sync + 'static {
    /// A tensor. Clones share its memory.
    type Tensor: Clone + Send;
    /// What computes on a device.
    type Engine: Engine<Array = Self::Tensor>;

    /// What computes in the host's memory.
    fn host(&self) -> &Host;

    /// What computes on the device of that number.
    ///
    /// # Errors
    /// If the library cannot use it.
    fn engine(&self, device: usize) -> Result<Self::Engine>;

    /// The stream of that device on which the calling thread uses the library's tensors.
    ///
    /// # Errors
    /// If the library cannot use the device.
    fn stream(&self, device: usize) -> Result<Stream>;

    /// A tensor over an array's memory. On a device the array has been lent the stream that the tensor is used on.
    ///
    /// # Errors
    /// If the library has no such device or element type.
    fn tensor(&self, array: Array) -> Result<Self::Tensor>;

    /// An array over the memory of a tensor, which is in the host's.
    ///
    /// # Errors
    /// If the tensor has an element type that nothing here computes with.
    fn array(&self, tensor: &Self::Tensor) -> Result<Array>;

    /// Where a tensor is.
    ///
    /// # Errors
    /// If it is on a device that nothing here computes on.
    fn device(&self, tensor: &Self::Tensor) -> Result<Device>;

    /// An image (samples, bands, rows, columns) of what is stored, (samples, rows, columns, bands).
    ///
    /// # Errors
    /// If there is no memory.
    fn image_of(&self, stored: Array, recipe: &ImageRecipe) -> Result<Self::Tensor> {
        match stored.device() {
            Device::Cpu => self.tensor(self.host().image(&stored, recipe)?),
            // Needs nobody who computes there.
            Device::Cuda(_) if recipe.is_nothing(stored.element()) => {
                self.tensor(stored.permuted(&[0, 3, 1, 2]))
            }
            Device::Cuda(number) => self.engine(number)?.image(&self.tensor(stored)?, recipe),
        }
    }

    /// A mask of what is stored, (samples, rows, columns, 1).
    ///
    /// # Errors
    /// If there is no memory.
    fn labels_of(&self, stored: Array, recipe: &LabelRecipe) -> Result<Self::Tensor> {
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

    /// Does to a batch what was drawn for it; see [`Pipeline::apply`].
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

    /// Draws for a batch and does what was drawn; see [`Pipeline::augment`].
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

    /// Rows, columns, bands and number of samples of images (samples, bands, rows, columns), and their element type.
    ///
    /// # Errors
    /// If nothing here computes with them.
    fn look_at(&self, image: &Self::Tensor) -> Result<(Vec<usize>, ElementType)>;
}

/// The device that images and masks are on.
fn device_of<L: Library>(library: &L, images: &Images<L::Tensor>) -> Result<Device> {
    let device = library.device(&images.image)?;
    for mask in &images.masks {
        let other = library.device(&mask.labels)?;
        if other != device {
            return Err(Error::conflict(format!(
                "mask {} is on {other}, its images are on {device}",
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
        Err(Error::unsupported(format!("computing on cuda:{device} without a library that does"))
            .with_remedy("install torch, or ask for batches on the CPU"))
    }

    /// Arrays are handed to others, who name their streams themselves.
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

    /// Memory that claims to be a GPU's, and is never read.
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
