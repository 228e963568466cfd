//! What a loader is asked for.

use std::sync::Arc;

use hsipack_format::{Opt, remedy};
use serde::Serialize;

use crate::cache::CacheKind;
use crate::dataset::NewIds;
use crate::plan::{Patches, PlanOptions, Regions, Share};
use crate::ring::memory::MemoryOptions;
use crate::trace::Trace;
use crate::{Error, Result};

/// What a loader is asked for.
#[derive(Clone, Debug)]
pub struct LoaderOptions {
    /// Batch size, order, crops, seed.
    pub plan: PlanOptions,
    /// This process among those that train together.
    pub share: Share,
    /// Only samples of these splits; all if empty.
    pub splits: Vec<String>,
    /// Only these samples, by id, each once; all if `None`. [`Order::Sequential`](crate::plan::Order::Sequential) keeps to
    /// their order.
    pub samples: Option<Vec<usize>>,
    /// How often every sample of the dataset is drawn by [`Order::Weighted`](crate::plan::Order::Weighted), relative to the
    /// others, by id; what their column `weight` says, else 1, if `None`.
    pub weights: Option<Vec<f64>>,
    /// Windows around labelled pixels, instead of a crop: the name of the mask, and which pixels.
    pub patches: Option<(String, Patches)>,
    /// Windows that show the regions of a mask, instead of a crop: its name, and which regions. All masks have 0 beyond the
    /// edge of the cube then, so that a window's pixels of [`Item::region`](crate::plan::Item::region) are the region's.
    pub regions: Option<(String, Regions)>,
    /// Names of the masks to deliver; all that every stack has if `None`, but for patches none, and for regions theirs.
    pub masks: Option<Vec<String>>,
    /// Other class ids for those of masks, in what is delivered: masks, and labels of windows around labelled pixels.
    /// Which windows there are, and how classes are balanced, goes by the ids that the dataset has.
    pub new_ids: Vec<NewIds>,
    /// Bands to deliver, in this order; all if `None`.
    pub bands: Option<Vec<usize>>,
    /// Decoding threads.
    pub threads: usize,
    /// Batches in the ring: leased, ready and being filled together. At least 2, so that one is filled while
    /// one is used.
    pub slots: usize,
    /// What memory the ring is made of.
    pub memory: MemoryOptions,
    /// What to do about a damaged chunk.
    pub on_damage: OnDamage,
    /// What to keep in memory.
    pub cache: CacheKind,
    /// Bytes the cache may take; with [`CacheKind::Auto`] at most, 0 standing for half of the memory that is free.
    pub cache_bytes: u64,
    /// Among which windows windows are shuffled, where not all data fit into memory.
    pub shuffle_window: ShuffleWindow,
    /// The last epoch is the one before this; without end if `None`.
    pub end_epoch: Option<u64>,
    /// Where to record what every thread does when.
    pub trace: Option<Arc<Trace>>,
}

/// Among which windows windows are shuffled. Only crops, patches and listed windows come in shuffle windows, as
/// [`Order::Shuffled`](crate::plan::Order::Shuffled) has them; whole cubes never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShuffleWindow {
    /// All of the epoch, if their chunks fit decoded into the cache's limit; else those of as many blocks of cubes as a
    /// quarter of the machine's memory (rounded down to a power of two) has room for, or of [`LoaderOptions::cache_bytes`]
    /// if that is given. With several processes, all of the epoch.
    #[default]
    Auto,
    /// All of the epoch.
    All,
    /// Those of as many blocks of cubes as take so many bytes decoded, with the next ones.
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
    /// End the epoch with an error that names shard and sample.
    #[default]
    Error,
    /// Leave the sample out, and count it.
    Skip,
}

hsipack_format::option_names!(OnDamage, "on_damage", { Error => "error", Skip => "skip" });

impl LoaderOptions {
    /// Options for batches of `batch_size` samples; a decoding thread a core and four slots.
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

    /// The same, but what is kept in memory is left to the loader, and nothing is recorded.
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
