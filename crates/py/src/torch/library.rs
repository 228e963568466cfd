//! The library of batches: our arrays in host memory, the user's torch on a device.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hsipack_augment::array::Stream;
use hsipack_augment::prepare::{ImageConversion, LabelConversion, Validity};
use hsipack_augment::{
    Array, Augmented, Device, ElementType, Engine, Host, Images, Parameters, Pipeline, SampleKey,
    TensorEngine,
};
use hsipack_format::{ErrorKind, Result};

use crate::exit::attached;

use super::{PyTorch, Tensor, with};

/// The library of the package. In host memory it computes by itself, so that results do not depend
/// on torch or its version. On a device, the user's torch computes.
#[derive(Clone, Debug)]
pub struct Library {
    host: Host,
    /// Whether tensors on a device are passed to torch, which uses them on its current stream.
    torch: bool,
    /// For tests: torch computes in host memory as well.
    everywhere: bool,
}

/// One host per number of threads, so that all users of that number share threads and memory.
static HOSTS: Mutex<BTreeMap<usize, Host>> = Mutex::new(BTreeMap::new());

/// The engine for host memory with this many threads.
pub fn host(threads: usize) -> Host {
    // In a forked process, the lock may stay taken forever.
    match HOSTS.try_lock() {
        Ok(mut hosts) => hosts.entry(threads).or_insert_with(|| Host::new(threads)).clone(),
        Err(_) => Host::new(threads),
    }
}

impl Library {
    /// A library with this many threads in host memory; `torch` says whether tensors on a device
    /// are passed to torch.
    pub fn new(threads: usize, torch: bool) -> Self {
        Self { host: host(threads), torch, everywhere: false }
    }

    /// The same, but torch computes in host memory as well.
    pub fn by_torch(self) -> Self {
        Self { everywhere: true, ..self }
    }

    /// Runs `work` with the user's torch on a device. Other Python threads run during torch's
    /// functions, but the interpreter is not released between them: otherwise a thread that waits
    /// for it would take turns with every small operation.
    fn by<T>(
        &self,
        device: Device,
        work: impl FnOnce(&TensorEngine<PyTorch>) -> Result<T>,
    ) -> Result<T> {
        let engine = TensorEngine(PyTorch::on(device)?);
        attached(|py| {
            let _plain = with(|_, torch| torch.without_autocast(py, device))?;
            work(&engine)
        })
    }
}

impl hsipack_augment::Library for Library {
    type Tensor = Tensor;
    type Engine = TensorEngine<PyTorch>;

    fn host(&self) -> &Host {
        &self.host
    }

    fn engine(&self, device: usize) -> Result<TensorEngine<PyTorch>> {
        Ok(TensorEngine(PyTorch::on(Device::Cuda(device))?))
    }

    fn stream(&self, device: usize) -> Result<Stream> {
        if !self.torch {
            // The consumer of the array names a stream.
            return Ok(Stream::LEGACY);
        }
        with(|py, torch| torch.current_stream(py, device))
    }

    fn tensor(&self, array: Array) -> Result<Tensor> {
        Ok(Tensor::Ours(array))
    }

    fn array(&self, tensor: &Tensor) -> Result<Array> {
        tensor.array()
    }

    fn device(&self, tensor: &Tensor) -> Result<Device> {
        tensor.device()
    }

    fn look_at(&self, image: &Tensor) -> Result<(Vec<usize>, ElementType)> {
        Ok((image.shape()?, image.element()?))
    }

    fn image_of(&self, stored: Array, recipe: &ImageConversion) -> Result<Tensor> {
        if recipe.is_nothing(stored.element()) {
            return Ok(Tensor::Ours(stored.permuted(&[0, 3, 1, 2])));
        }
        match stored.device() {
            Device::Cpu => Ok(Tensor::Ours(Engine::image(&self.host, &stored, recipe)?)),
            device => self.by(device, |engine| engine.image(&Tensor::Ours(stored), recipe)),
        }
    }

    fn labels_of(&self, stored: Array, recipe: &LabelConversion) -> Result<Tensor> {
        if recipe.layers == 0 && recipe.element == recipe.stored {
            let shape = &stored.shape()[..3];
            return Ok(Tensor::Ours(stored.reshaped(shape)?));
        }
        match stored.device() {
            Device::Cpu => Ok(Tensor::Ours(Engine::labels(&self.host, &stored, recipe)?)),
            device => {
                let stored = stored.reinterpreted(stored.element().signed());
                let labels = self.by(device, |engine| engine.labels(&Tensor::Ours(stored), recipe));
                labels.map_err(|error| match error.kind() {
                    ErrorKind::Unsupported => error.or_remedy(format!(
                        "for masks as they are stored, read ds.with_masks(layers=False, dtype=\"{}\")",
                        recipe.stored
                    )),
                    _ => error,
                })
            }
        }
    }

    fn valid_of(&self, stored: Array, recipe: &Validity) -> Result<Tensor> {
        match stored.device() {
            Device::Cpu => Ok(Tensor::Ours(Engine::valid(&self.host, &stored, recipe)?)),
            device => self.by(device, |engine| engine.valid(&Tensor::Ours(stored), recipe)),
        }
    }

    fn apply(
        &self,
        pipeline: &Pipeline,
        images: Images<Tensor>,
        parameters: &Parameters,
    ) -> Result<Augmented<Tensor>> {
        match images.image.device()? {
            Device::Cpu if !self.everywhere => {
                let images = images.of(|tensor| tensor.array())?;
                let augmented = pipeline.apply(&self.host, &images, parameters)?;
                augmented.of(|array| Ok(Tensor::Ours(array)))
            }
            device => self.by(device, |engine| pipeline.apply(engine, &images, parameters)),
        }
    }

    fn augment(
        &self,
        pipeline: &Pipeline,
        images: Images<Tensor>,
        epoch: u64,
        samples: &[SampleKey],
    ) -> Result<(Augmented<Tensor>, Parameters)> {
        match images.image.device()? {
            Device::Cpu if !self.everywhere => {
                let images = images.of(|tensor| tensor.array())?;
                let (augmented, drawn) = pipeline.augment(&self.host, &images, epoch, samples)?;
                Ok((augmented.of(|array| Ok(Tensor::Ours(array)))?, drawn))
            }
            device => self.by(device, |engine| pipeline.augment(engine, &images, epoch, samples)),
        }
    }
}
