//! A packed dataset and how it is read, as plain data: what the command was asked for, here or for another process.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hsipack_read::augment::Pipeline;
use hsipack_read::plan::{Crop, Order, Patches};
use hsipack_read::store::{Link, StoreKind};
use hsipack_read::{CacheKind, Dataset, DeviceOptions, LoaderOptions};
use serde::{Deserialize, Serialize};

use super::packed::PackedOptions;
use crate::device::TrainingLibrary;
use crate::step::{StepKind, Trainer};
use crate::{Error, Result};

/// A packed dataset, how it is read, and the training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PackedRequest {
    /// The dataset.
    pub path: PathBuf,
    /// How its files are read.
    #[serde(with = "store_name")]
    pub store: StoreKind,
    /// As if the disk, or the way to the server, were so slow.
    pub link: Link,
    /// Samples of a batch.
    pub batch_size: usize,
    /// Rows and columns of random crops; whole cubes if `None`.
    pub crop: Option<[u32; 2]>,
    /// Crops of each cube in an epoch.
    pub crops_per_cube: u32,
    /// Windows around labelled pixels instead: the name of the mask, and which pixels.
    pub patches: Option<(String, Patches)>,
    /// Splits that are read; all samples if there are none.
    pub splits: Vec<String>,
    /// Decoding threads; one a core if `None`.
    pub threads: Option<usize>,
    /// Batches that the ring has room for.
    pub slots: usize,
    /// Where batches go, by name.
    pub device: String,
    /// Bytes a second of a bus that is emulated.
    pub emulated_bus: Option<f64>,
    /// What augments batches on the device.
    pub pipeline: Option<Pipeline>,
    /// Whether the system is to forget the files, to see what the disk costs.
    pub cold: bool,
    /// Whether to record what every thread does when.
    pub trace: bool,
    /// The training step.
    pub step: StepKind,
    /// How long every level is timed, at least.
    pub time: Duration,
}

impl PackedRequest {
    /// The same for a library.
    ///
    /// # Errors
    /// If the library has no such device.
    pub fn options<L: TrainingLibrary>(&self, library: &L) -> Result<PackedOptions> {
        let store = self.store.behind(&self.path, self.link)?;
        let mut loader = LoaderOptions::new(self.batch_size);
        loader.plan.order = Order::Shuffled;
        // What it costs to read and decode is looked for, whatever memory would spare.
        loader.cache = CacheKind::None;
        if let Some([rows, columns]) = self.crop {
            let per_sample = self.crops_per_cube;
            loader.plan.crop = Crop::Random { rows, columns, per_sample, min_labelled: 0.0 };
        }
        loader.patches = self.patches.clone();
        loader.splits = self.splits.clone();
        loader.threads = self.threads.unwrap_or(loader.threads);
        loader.slots = self.slots;
        loader.trace = self.trace.then(Arc::default);
        let mut device = DeviceOptions::new(library.named(&self.device)?);
        device.emulated_bus = self.emulated_bus;
        Ok(PackedOptions {
            path: self.path.clone(),
            store: Some(store),
            loader,
            device,
            pipeline: self.pipeline.clone(),
            cold: self.cold,
        })
    }

    /// What stands for training on such images.
    ///
    /// # Errors
    /// If the dataset cannot be opened, or the device has not enough memory.
    pub fn step<L: TrainingLibrary>(
        &self,
        library: &L,
        options: &PackedOptions,
    ) -> Result<Box<dyn Trainer<L::Tensor>>> {
        let dataset = Dataset::open(&self.path)?;
        let stack = dataset.stacks().first();
        let stack =
            stack.ok_or_else(|| Error::conflict("there are no samples to read").at(&self.path))?;
        library.step(self.step, stack.image.shape().bands, options.device.device)
    }
}

/// A store by its name.
mod store_name {
    use hsipack_read::store::StoreKind;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(store: &StoreKind, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(store.name())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<StoreKind, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}
