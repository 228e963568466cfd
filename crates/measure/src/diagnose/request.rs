//! A packed dataset and the options for reading it, as plain data: the request of the command, for this or another
//! process.

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

/// A packed dataset, the options for reading it, and the training step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PackedRequest {
    /// The dataset.
    pub path: PathBuf,
    /// How its files are read.
    #[serde(with = "store_name")]
    pub store: StoreKind,
    /// Emulates a disk, or a connection to the server, of limited speed.
    pub link: Link,
    /// Samples per batch.
    pub batch_size: usize,
    /// Rows and columns of random crops; whole cubes if `None`.
    pub crop: Option<[u32; 2]>,
    /// Crops per cube in an epoch.
    pub crops_per_cube: u32,
    /// Windows around labelled pixels instead: the name of the mask, and which pixels.
    pub patches: Option<(String, Patches)>,
    /// Splits to read; all samples if empty.
    pub splits: Vec<String>,
    /// Decoding threads; one per core if `None`.
    pub threads: Option<usize>,
    /// Number of slots in the ring.
    pub slots: usize,
    /// Name of the device on which batches are delivered.
    pub device: String,
    /// Bytes per second of an emulated bus.
    pub emulated_bus: Option<f64>,
    /// Augmentations on the device.
    pub pipeline: Option<Pipeline>,
    /// Whether to drop the files from the system's cache, to measure the cost of the disk.
    pub cold: bool,
    /// Whether to trace all threads.
    pub trace: bool,
    /// The training step.
    pub step: StepKind,
    /// Minimum time for every level.
    pub time: Duration,
}

impl PackedRequest {
    /// The same options for a library.
    ///
    /// # Errors
    /// If the library has no such device.
    pub fn options<L: TrainingLibrary>(&self, library: &L) -> Result<PackedOptions> {
        let store = self.store.behind(&self.path, self.link)?;
        let mut loader = LoaderOptions::new(self.batch_size);
        loader.plan.order = Order::Shuffled;
        // Measure the full cost of reading and decoding, even if a cache would avoid it.
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

    /// The training step for these images: a wait or a network.
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

/// Serialises a store by its name.
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
