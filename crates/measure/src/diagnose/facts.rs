//! Facts about a pipeline besides the times of its levels.

use hsipack_read::plan::{Crop, Patches, Regions};
use hsipack_read::{CacheChoice, Dataset, LoaderOptions, Workload};
use hsipack_store::remote::is_url;
use serde::{Deserialize, Serialize};

use crate::machine;

/// Facts about the pipeline besides the times of its levels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Facts {
    /// The kind of loader.
    pub kind: Kind,
    /// Decoding threads, or worker processes.
    pub threads: usize,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Available memory in bytes; `None` if unknown.
    pub available_memory: Option<u64>,
    /// Bytes of the samples as stored.
    pub stored_bytes: Option<u64>,
    /// Bytes of the samples, decoded.
    pub decoded_bytes: Option<u64>,
    /// Seconds that the loader needs for a batch with everything real, regardless of how long the
    /// rest takes.
    pub load_s: Option<f64>,
    /// Seconds per batch with more threads or workers, measured in the same rounds. For hsipack's
    /// loader: at the level `decode`, with one thread per core. For a DataLoader: with everything
    /// real. This is measured because it cannot be computed: cores may share resources, and if
    /// loading takes about as long as the step, a batch takes longer than either. `None` if it was
    /// not measured.
    pub more_threads_s: Option<f64>,
    /// The number of threads or workers for `more_threads_s`; 0 if it was not measured.
    pub more_threads: usize,
    /// How batches are copied to the device: `none`, `asynchronous`, `staged`, `emulated`, or
    /// `pageable` (from memory that is not page-locked).
    pub copies: String,
    /// Time per batch at the level `augment` without each of the augmentations.
    pub augmentations: Vec<AugmentationCost>,
    /// Rows and columns of the images.
    pub pixels: Option<[u32; 2]>,
    /// For a loader that is not hsipack's: the share of a sample's loading time in which its
    /// process computes, from 0 to 1. In the rest of the time it waits for files or the network.
    pub computing: Option<f64>,
    /// For a DataLoader: the share of a sample's loading time that its augmentations take, from 0
    /// to 1.
    pub augmenting: Option<f64>,
    /// For a DataLoader: the cost of its `collate_fn`.
    pub collate: Option<CollateCost>,
    /// Which chunks are already kept in memory: `compressed` or `decoded`; `none` or empty if no
    /// chunks are.
    pub cache: String,
    /// Whether crops are chosen by their labels.
    pub labelled_crops: bool,
    /// Whether reads are slowed down to emulate a slower disk or link.
    pub rate_limited: bool,
    /// Whether the dataset is on a server.
    pub remote: bool,
    /// Whether it has a cache on the local disk.
    pub locally_cached: bool,
    /// Whether files are read through memory maps.
    pub mapped: bool,
    /// The compressor of the image chunks, such as `zstd`.
    pub compressor: Option<String>,
    /// Whether checksums are verified each time a chunk is decoded.
    pub always_verified: bool,
    /// Rows and columns of chunks that would suit the crops, if chunks are whole rows and crops are
    /// much narrower.
    pub tiles: Option<[u32; 2]>,
    /// Cost of a window if each window decodes its chunks by itself; `None` if cubes are read
    /// whole.
    pub window: Option<WindowCost>,
    /// The default cache of a loader of all these samples.
    pub auto: Option<CacheChoice>,
    /// Whether the device is a GPU.
    pub gpu: bool,
}

/// The kind of loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// hsipack's loader.
    #[default]
    Hsipack,
    /// A `torch.utils.data.DataLoader`.
    Dataloader,
    /// Any other iterable.
    Iterable,
}

hsipack_format::option_names!(Kind, "kind of loader", {
    Hsipack => "hsipack",
    Dataloader => "dataloader",
    Iterable => "iterable",
});

/// Cost of a window if no chunks are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WindowCost {
    /// Its rows.
    pub rows: u32,
    /// Its columns.
    pub columns: u32,
    /// Bytes of its pixels in the image.
    pub bytes: u64,
    /// Mean number of image chunks that the window touches.
    pub chunks: f64,
    /// Bytes of such a chunk, decoded.
    pub chunk_bytes: u64,
    /// Mean number of times that a chunk is decoded per epoch.
    pub decoded: f64,
}

/// The function that collates samples into a batch, and its cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollateCost {
    /// Its name.
    pub name: String,
    /// Seconds that it takes per batch, in one process.
    pub batch_s: f64,
}

/// An augmentation, and the time of the pipeline without it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AugmentationCost {
    /// Its name.
    pub name: String,
    /// Seconds per batch without it.
    pub without_s: f64,
}

impl Facts {
    /// Facts that follow from a packed dataset, the options of its loader, and the workload.
    pub fn of(dataset: &Dataset, options: &LoaderOptions, workload: &Workload) -> Self {
        let image = dataset.stacks().first().map(|stack| &stack.image);
        let codec = image.and_then(|image| image.meta().codecs.compression);
        let crop = &options.plan.crop;
        // Tiles are at least 32 pixels high and wide: smaller ones cost more than they save.
        let size = window_size(options);
        let tiles = size.filter(|[_, columns]| {
            image.is_some_and(|image| {
                let width = image.shape().columns;
                image.grid().tile().columns == width && *columns as usize * 2 <= width
            })
        });
        Self {
            kind: Kind::Hsipack,
            threads: options.threads,
            cores: hsipack_store::threads::cores(),
            available_memory: machine::available_memory(),
            cache: options.cache.name().to_owned(),
            remote: is_url(dataset.path()),
            locally_cached: dataset.local_cache().is_some(),
            labelled_crops: matches!(crop, Crop::Random { min_labelled, .. } if *min_labelled > 0.0),
            compressor: codec.map(|codec| codec.compressor.name().to_owned()),
            tiles: tiles.map(|size| size.map(|side| side.max(32))),
            window: size.zip(image).map(|([rows, columns], image)| {
                let (chunk_bytes, values) =
                    (image.chunk_bytes() as u64, image.grid().chunk_values());
                let value = chunk_bytes / values.max(1) as u64;
                let window_bytes =
                    u64::from(rows) * u64::from(columns) * image.shape().bands as u64 * value;
                let Workload { chunks, decoded, .. } = *workload;
                WindowCost { rows, columns, bytes: window_bytes, chunks, chunk_bytes, decoded }
            }),
            ..Self::default()
        }
    }

    /// `bytes` if they may be kept in memory beside everything else: at most half of the available
    /// memory.
    pub(super) fn fit(&self, bytes: Option<u64>) -> Option<u64> {
        bytes.filter(|bytes| self.available_memory.is_some_and(|memory| *bytes <= memory / 2))
    }
}

/// Rows and columns of the windows; `None` for whole cubes.
fn window_size(options: &LoaderOptions) -> Option<[u32; 2]> {
    if let Some((_, Patches { rows, columns, .. })) = options.patches {
        return Some([rows, columns]);
    }
    if let Some((_, Regions { rows, columns, .. })) = options.regions {
        return Some([rows, columns]);
    }
    match options.plan.crop {
        Crop::Whole => None,
        Crop::Random { rows, columns, .. }
        | Crop::Centre { rows, columns }
        | Crop::Grid { rows, columns, .. } => Some([rows, columns]),
        Crop::Windows(ref windows) => {
            let (rows, columns) = windows.size();
            Some([rows, columns])
        }
    }
}
