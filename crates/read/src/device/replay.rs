//! The items of a device loader's batches, to look at what training gets or got.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_augment::{Array, Device, Host, Images, Mask};

use super::batch_info::{BatchInfo, Source};
use super::conversion::Conversion;
use super::options::DeviceOptions;
use crate::Result;
use crate::dataset::Dataset;
use crate::loader::{CacheChoice, LoaderOptions, PreparedLoader, Shared};
use crate::plan::{EpochPlan, Item, Plan};
use crate::trace::BatchNumber;

/// The batches of a [`DeviceLoader`](super::DeviceLoader) with the same options, by epoch and
/// number, without its ring and its threads. You can ask for any batch of any epoch, and for any of
/// its items.
///
/// The items of a batch, and their bytes, are the same as the loader's, because the same code plans
/// and reads them. If the options leave the shuffle window to the loader
/// ([`ShuffleWindow::Auto`](crate::ShuffleWindow::Auto)), it is decided by this machine's memory.
///
/// ```no_run
/// use hsipack_read::augment::{Host, Pipeline, SampleKey};
/// use hsipack_read::{Dataset, Device, DeviceOptions, LoaderOptions, Replay};
///
/// let dataset = Dataset::open("tissue.hsipack")?;
/// let replay = Replay::new(&dataset, LoaderOptions::new(6), DeviceOptions::new(Device::Cpu))?;
/// let (epoch, batch) = (3, 0);
/// let items = replay.items(epoch, batch)?;
/// let images = replay.read(&items)?; // (samples, bands, rows, columns)
/// let pipeline = Pipeline::from_json(r#"[{"op": "hflip"}]"#)?;
/// let keys: Vec<SampleKey> = items.iter().map(SampleKey::from).collect();
/// let (augmented, drawn) = pipeline.augment(&Host::default(), &images, epoch, &keys)?;
/// println!("{:?}: {}", augmented.image.shape(), drawn.to_json());
/// # Ok::<(), hsipack_read::Error>(())
/// ```
pub struct Replay {
    shared: Shared,
    conversion: Arc<Conversion>,
    host: Host,
    /// The epoch that was asked for last.
    epoch: Mutex<Option<Arc<EpochPlan>>>,
}

impl Replay {
    /// The batches of a loader with these options. Images come on the CPU, whatever device is asked
    /// for.
    ///
    /// # Errors
    /// As [`Loader::new`](crate::Loader::new), except for the memory of its ring; if the options of
    /// images contradict the dataset.
    pub fn new(dataset: &Dataset, options: LoaderOptions, device: DeviceOptions) -> Result<Self> {
        let options = LoaderOptions { integers: device.integers(options.integers), ..options };
        let prepared = PreparedLoader::unchecked(vec![(dataset.clone(), options)], None)?;
        let device = DeviceOptions { device: Device::Cpu, ..device };
        let conversion = Conversion::new(&prepared.members()[0], &device)?.into();
        let shared = Shared::without_ring(prepared)?;
        Ok(Self { shared, conversion, host: Host::default(), epoch: Mutex::default() })
    }

    /// The plan of all epochs.
    pub fn plan(&self) -> &Plan {
        &self.shared.first().plan
    }

    /// Names of the masks that items have.
    pub fn masks(&self) -> &[String] {
        &self.shared.first().masks
    }

    /// Names of a mask's boolean layers, bit 0 first; empty for class ids.
    pub fn layers(&self, mask: &str) -> &[String] {
        self.conversion.layers(mask).unwrap_or_default()
    }

    /// The cache of a loader, and the windows among which it would shuffle.
    pub fn cache(&self) -> &CacheChoice {
        &self.shared.first().cached
    }

    /// This rank's part of an epoch.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn epoch(&self, number: u64) -> Result<Arc<EpochPlan>> {
        let mut last = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(epoch) if epoch.epoch() == number => Ok(Arc::clone(epoch)),
            _ => {
                let epoch = self.plan().epoch(number, &[], self.shared.options().share)?;
                Ok(Arc::clone(last.insert(Arc::new(epoch))))
            }
        }
    }

    /// The items of this rank's batch `batch` of an epoch, where 0 is the first one.
    ///
    /// # Errors
    /// If there is no such batch, or crops should have labelled pixels and a mask cannot be read.
    pub fn items(&self, epoch: u64, batch: usize) -> Result<Vec<Item>> {
        self.shared.first().items(&*self.epoch(epoch)?, batch)
    }

    /// Reads items of one shape, for example some items of a batch, in the order given. Returns an
    /// image (samples, bands, rows, columns), masks, targets and further images, as the loader
    /// delivers them before they are augmented.
    ///
    /// # Errors
    /// If a chunk is damaged or cannot be read, the dataset was replaced, or there is no memory.
    pub fn read(&self, items: &[Item]) -> Result<Images<Array>> {
        let (buffer, arrays) = self.shared.first().read(items)?;
        let number = BatchNumber { epoch: 0, batch: 0 };
        let (dataset, items) = (self.shared.first().dataset.clone(), items.to_vec());
        let further = self.shared.first().further().to_vec();
        let source = Source { dataset, dataset_number: 0, reader: 0, places: 0..items.len() };
        let (sources, mixes_items) = (vec![source], false);
        let info = BatchInfo { sources, mixes_items, number, items, arrays, further };
        let conversions = std::slice::from_ref(&self.conversion);
        let (image, masks) = Conversion::make(conversions, &self.host, &buffer.shared(), &info)?;
        let masks = masks.into_iter().map(|(name, labels)| Mask { name, labels });
        Ok(Images::new(image, masks.collect()).with_further(info.further))
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("options", self.shared.options()).finish_non_exhaustive()
    }
}
