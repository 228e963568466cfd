//! Where batches come from: a loader on the CPU, or one that copies them to a GPU.

use std::time::Duration;

use hsipack_format::Result;
use hsipack_read::plan::{Item, Plan, State};
use hsipack_read::{
    Array, ArrayView, Batch, CacheChoice, CacheTimes, DType, Dataset, Device, DeviceBatch,
    DeviceCache, DeviceLoader, DeviceOptions, DeviceReport, ElementType, FloatType, Host, Integers,
    Loader, LoaderOptions, MemoryReport, PreparedDeviceLoader, PreparedLoader, Statistics,
    Workload,
};

/// A loader.
pub enum Source {
    Host(Box<Loader>),
    Device(Box<DeviceLoader<Host>>),
}

/// A batch of a [`Source`].
pub enum Taken {
    Host(Box<Batch>),
    Device(DeviceBatch<Host>),
}

impl Taken {
    /// Which sample and window each place of the batch holds.
    pub fn items(&self) -> &[Item] {
        match self {
            Self::Host(batch) => batch.items(),
            Self::Device(batch) => batch.items(),
        }
    }

    /// Bytes of the image and the masks.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Host(batch) => batch.bytes() as u64,
            Self::Device(batch) => {
                let masks = batch.masks.iter().map(|(_, mask)| mask);
                let arrays = std::iter::once(&batch.image).chain(masks);
                let of = |array: &Array| {
                    let values: usize = array.shape().iter().product();
                    (values * array.element().size()) as u64
                };
                arrays.map(of).sum()
            }
        }
    }

    /// The image and the masks, if they are in the memory of the CPU.
    pub fn arrays(&self) -> Option<(ArrayView<'_>, impl Iterator<Item = ArrayView<'_>>)> {
        match self {
            Self::Host(batch) => Some((batch.image(), batch.masks())),
            Self::Device(_) => None,
        }
    }
}

/// Calls a method that both loaders have.
macro_rules! either {
    ($source:expr, $loader:ident => $call:expr) => {
        match $source {
            Source::Host($loader) => $call,
            Source::Device($loader) => $call,
        }
    };
}

/// Options for batches of values as they are stored: nothing computes on the device here. If types
/// differ, the loader says that.
fn as_stored(dataset: &Dataset, masks: &[String], device: DeviceOptions) -> DeviceOptions {
    let same = |mut types: Vec<DType>| {
        types.dedup();
        (types.len() == 1).then(|| ElementType::from(types[0]))
    };
    let stacks = dataset.stacks();
    let images = (0..stacks.len()).filter_map(|stack| dataset.image_type(stack)).collect();
    let of_masks = stacks.iter().flat_map(|stack| masks.iter().filter_map(|name| stack.mask(name)));
    let masks = same(of_masks.map(|mask| mask.meta().dtype).collect());
    let image = same(images).filter(|element| element.is_float()).unwrap_or(device.image);
    DeviceOptions { layers: false, image, masks, ..device }
}

impl Source {
    /// A loader that goes on from a state, if there is one. Batches stay on the device: nothing is
    /// computed with them.
    ///
    /// # Errors
    /// As [`Loader::with_state`]; if the device cannot be used.
    pub fn new(
        dataset: &Dataset,
        options: LoaderOptions,
        device: DeviceOptions,
        saved: Option<&State>,
    ) -> Result<Self> {
        let fits = (0..dataset.stacks().len()).all(|stack| dataset.fits_float16(stack));
        let float = if fits { FloatType::F16 } else { FloatType::F32 };
        let options = LoaderOptions { integers: Integers::Physical(float), ..options };
        let prepared = PreparedLoader::new(dataset, options)?;
        let prepared = match saved {
            Some(state) => prepared.resumed(state)?,
            None => prepared,
        };
        if device == DeviceOptions::default() {
            return Ok(Self::Host(Box::new(prepared.start()?)));
        }
        let is_cpu = device.device == Device::Cpu;
        let keeps = !matches!(device.device_cache, DeviceCache::Auto | DeviceCache::None);
        let device = as_stored(prepared.dataset(), prepared.masks(), device);
        let device = device.widened(prepared.dataset(), Integers::Physical(float));
        let loader = PreparedDeviceLoader::of(prepared.clone(), device)?;
        // Without a device to keep samples on, starting says so.
        if is_cpu && !keeps {
            return Ok(Self::Host(Box::new(prepared.start()?)));
        }
        Ok(Self::Device(Box::new(loader.start(Host::new(1))?)))
    }

    /// See [`Loader::next_within`].
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<Option<Taken>>> {
        match self {
            Self::Host(loader) => Some(
                loader
                    .next_within(timeout)?
                    .map(|batch| batch.map(|batch| Taken::Host(Box::new(batch)))),
            ),
            Self::Device(loader) => {
                Some(loader.next_within(timeout)?.map(|batch| batch.map(Taken::Device)))
            }
        }
    }

    pub fn state(&self) -> State {
        either!(self, loader => loader.state())
    }

    pub fn dataset(&self) -> &Dataset {
        either!(self, loader => loader.dataset())
    }

    pub fn options(&self) -> &LoaderOptions {
        either!(self, loader => loader.options())
    }

    pub fn plan(&self) -> &Plan {
        either!(self, loader => loader.plan())
    }

    pub fn masks(&self) -> &[String] {
        either!(self, loader => loader.masks())
    }

    pub fn batches_per_epoch(&self) -> Result<usize> {
        either!(self, loader => loader.batches_per_epoch())
    }

    pub fn memory(&self) -> MemoryReport {
        either!(self, loader => loader.memory())
    }

    pub fn cache(&self) -> &CacheChoice {
        either!(self, loader => loader.cache())
    }

    pub fn cached_bytes(&self) -> u64 {
        either!(self, loader => loader.cached_bytes())
    }

    pub fn cache_times(&self) -> CacheTimes {
        match self {
            Self::Host(loader) => loader.cache_times(),
            Self::Device(loader) => loader.monitor().cache_times(),
        }
    }

    pub fn workload(&self) -> Workload {
        either!(self, loader => loader.workload())
    }

    pub fn statistics(&self) -> Statistics {
        either!(self, loader => loader.statistics())
    }

    /// How batches get to the device; `None` on the CPU.
    pub fn transfer(&self) -> Option<DeviceReport> {
        match self {
            Self::Host(_) => None,
            Self::Device(loader) => Some(loader.report()),
        }
    }
}
