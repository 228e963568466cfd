//! The options of a loader.

use std::sync::Arc;

use hsipack_format::{Opt, remedy};
use serde::Serialize;

use crate::cache::CacheKind;
use crate::dataset::NewIds;
use crate::plan::{Patches, PlanOptions, Regions, Share};
use crate::ring::memory::MemoryOptions;
use crate::trace::Trace;
use crate::{Error, Result};

/// The options of a loader.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Batch size, order, crops, seed.
    pub plan: PlanOptions,
    /// The place of this process among those that train together.
    pub share: Share,
    /// Only samples of these splits; all if empty.
    pub splits: Vec<String>,
    /// Only these samples, by id, each once; all if `None`. [`Order::Sequential`](crate::plan::Order::Sequential) keeps
    /// their order.
    pub samples: Option<Vec<usize>>,
    /// How often [`Order::Weighted`](crate::plan::Order::Weighted) draws every sample of the dataset, relative to the
    /// others, by id. If `None`, the column `weight` of the samples is used; samples without it have 1.
    pub weights: Option<Vec<f64>>,
    /// Windows around labelled pixels, instead of a crop: the name of the mask, and which pixels.
    pub patches: Option<(String, Patches)>,
    /// Windows that show the regions of a mask, instead of a crop: the name of the mask, and which regions. All masks
    /// then have 0 beyond the edge of the cube, so that the pixels of a window that have the id
    /// [`Item::region`](crate::plan::Item::region) are those of the region.
    pub regions: Option<(String, Regions)>,
    /// Names of the masks to deliver. If `None`: no masks for patches, the mask of the regions for regions, and otherwise
    /// all masks that every stack has.
    pub masks: Option<Vec<String>>,
    /// New class ids for masks, used in what is delivered: masks, and labels of windows around labelled pixels. Which
    /// windows there are, and how classes are balanced, still depends on the ids in the dataset.
    pub new_ids: Vec<NewIds>,
    /// Bands to deliver, in this order; all if `None`.
    pub bands: Option<Vec<usize>>,
    /// Number of decoding threads.
    pub threads: usize,
    /// Number of batches in the ring: leased, ready and being filled together. At least 2, so that one is filled while
    /// one is used.
    pub slots: usize,
    /// What kind of memory the ring uses.
    pub memory: MemoryOptions,
    /// What to do about a damaged chunk.
    pub on_damage: OnDamage,
    /// What to keep in memory.
    pub cache: CacheKind,
    /// The most bytes that the cache may take. With [`CacheKind::Auto`], 0 stands for half of the free memory.
    pub cache_bytes: u64,
    /// Among which windows a window is shuffled if not all data fit into memory.
    pub shuffle_window: ShuffleWindow,
    /// The last epoch is the one before this. If `None`, epochs never end.
    pub end_epoch: Option<u64>,
    /// Where to record what every thread does when.
    pub trace: Option<Arc<Trace>>,
}

/// Among which windows a window is shuffled. Only crops, patches and listed windows come in shuffle windows, and only
/// with [`Order::Shuffled`](crate::plan::Order::Shuffled). Whole cubes never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShuffleWindow {
    /// All windows of the epoch, if their decoded chunks fit into the cache's limit. Otherwise those of as many blocks of
    /// cubes as fit into a quarter of the machine's memory (rounded down to a power of two), or into
    /// [`LoaderOptions::cache_bytes`] if that is given. With several processes, all windows of the epoch.
    #[default]
    Auto,
    /// All windows of the epoch.
    All,
    /// The windows of as many blocks of cubes as take this many bytes decoded, together with the next blocks.
    Bytes(u64),
}

impl std::fmt::Display for ShuffleWindow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::All => f.write_str("all"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl std::str::FromStr for ShuffleWindow {
    type Err = Error;

    /// `auto`, `all` or bytes.
    fn from_str(text: &str) -> Result<Self> {
        match text.parse() {
            _ if text == "auto" => Ok(Self::Auto),
            _ if text == "all" => Ok(Self::All),
            Ok(bytes) if bytes > 0 => Ok(Self::Bytes(bytes)),
            _ => Err(Error::conflict(format!("there is no shuffle window {text:?}"))
                .with_remedy(remedy!["give ", Opt::ShuffleWindow, " as auto, all or bytes"])),
        }
    }
}

/// What to do about a damaged chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDamage {
    /// The batch is an error that names shard and sample. The next batch is the one after it.
    #[default]
    Error,
    /// Skip the sample, and count it. If all samples of a batch are damaged, one item that can be read takes their place,
    /// as padding, so that every rank gets as many batches as planned.
    Skip,
}

hsipack_format::option_names!(OnDamage, "on_damage", { Error => "error", Skip => "skip" });

impl LoaderOptions {
    /// Options for batches of `batch_size` samples, with one decoding thread per core and four slots.
    pub fn new(batch_size: usize) -> Self {
        Self {
            plan: PlanOptions::new(batch_size),
            share: Share::ALL,
            splits: Vec::new(),
            samples: None,
            weights: None,
            patches: None,
            regions: None,
            masks: None,
            new_ids: Vec::new(),
            bands: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            slots: 4,
            memory: MemoryOptions::default(),
            on_damage: OnDamage::default(),
            cache: CacheKind::Auto,
            cache_bytes: 0,
            shuffle_window: ShuffleWindow::default(),
            end_epoch: None,
            trace: None,
        }
    }

    /// The same options, but the loader decides what is kept in memory, and nothing is recorded.
    pub fn by_itself(&self) -> Self {
        Self {
            cache: CacheKind::Auto,
            cache_bytes: 0,
            shuffle_window: ShuffleWindow::Auto,
            trace: None,
            ..self.clone()
        }
    }
}
