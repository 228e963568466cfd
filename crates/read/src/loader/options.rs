//! The options of a loader.

use std::sync::Arc;

use hsipack_format::names::by_name;
use hsipack_format::{Opt, remedy};
use hsipack_store::threads::cores;
use serde::{Deserialize, Serialize};

use super::band_fit::CommonBands;
#[cfg(feature = "clap")]
use crate::arguments;
use crate::cache::CacheKind;
use crate::dataset::{Integers, NewIds};
use crate::packed;
use crate::plan::{DEFAULT_BATCH_SIZE, Patches, PlanOptions, Regions, Share};
use crate::ring::memory::MemoryOptions;
use crate::trace::Trace;
use crate::{Error, Result};

/// The options of a loader.
///
/// An option is a field, here or in the structs that belong to it, and nowhere else: its name, its
/// default, its documentation, and the values that it takes. `serde` makes them the settings of
/// Python's `hsipack.Loader` and the requests to other processes. The feature `clap` makes those
/// that have a flag arguments of `hsipack read`: the documentation is then also the help. Options
/// that have no flag are marked with `skip`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct LoaderOptions {
    /// Batch size, order, crops, seed.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub plan: PlanOptions,
    /// The place of this process among those that train together.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub share: Share,
    /// Read only cubes of these splits, such as train or train,val (repeatable)
    /// [default: all cubes]
    #[serde(rename = "split")]
    #[cfg_attr(
        feature = "clap",
        arg(long = "split", value_name = "NAME", value_delimiter = ',', help_heading = "Samples")
    )]
    pub splits: Vec<String>,
    /// Only these samples, by id, each once; all if `None`.
    /// [`Order::Sequential`](crate::plan::Order::Sequential) keeps their order.
    #[serde(with = "packed::optional")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub samples: Option<Vec<usize>>,
    /// How often [`Order::Weighted`](crate::plan::Order::Weighted) draws every sample of the
    /// dataset, relative to the others, by id. If `None`, the column `weight` of the samples is
    /// used; samples without it have 1.
    #[serde(with = "packed::optional")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub weights: Option<Vec<f64>>,
    /// Windows around labelled pixels, instead of a crop: the name of the mask, and which pixels.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub patches: Option<(String, Patches)>,
    /// Windows that show the regions of a mask, instead of a crop: the name of the mask, and which
    /// regions. All masks then have 0 beyond the edge of the cube, so that the pixels of a window
    /// that have the id [`Item::region`](crate::plan::Item::region) are those of the region.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub regions: Option<(String, Regions)>,
    /// Names of the masks to deliver. If `None`: no masks for patches, the mask of the regions for
    /// regions, and otherwise all masks that every stack has.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub masks: Option<Vec<String>>,
    /// Names of the targets to deliver. If `None`, all targets that every stack has.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub targets: Option<Vec<String>>,
    /// Names of the further images to deliver. If `None`, all further images that every stack has.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub images: Option<Vec<String>>,
    /// New class ids for masks, used in what is delivered: masks, and labels of windows around
    /// labelled pixels. Which windows there are, and how classes are balanced, still depends on the
    /// ids in the dataset.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub new_ids: Vec<NewIds>,
    /// Bands to keep, counted from 0, in this order, such as 0,5,10-20 [default: all]
    // With its path, the type is one value for clap: a list.
    #[cfg_attr(feature = "clap", arg(long, value_name = "LIST", value_parser = arguments::bands, help_heading = "Contents"))]
    pub bands: Option<std::vec::Vec<usize>>,
    /// If [`mixes_items`](PlanOptions::mixes_items): the bands of the batches. If `None`, all
    /// datasets must have the same bands.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub common_bands: Option<CommonBands>,
    /// Number of threads that decode [default: one per core]
    #[cfg_attr(feature = "clap", arg(short = 'j', short_alias = 't', long, value_name = "N", value_parser = arguments::count(1..=1024), default_value_t = cores(), hide_default_value = true, help_heading = "Resources"))]
    pub threads: usize,
    /// Number of batches that the ring has room for: in use, ready, and being decoded
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value_t = 4, value_parser = arguments::count(2..=65535), help_heading = "Resources"))]
    pub slots: usize,
    /// Kind of memory for the ring.
    #[serde(flatten)]
    #[cfg_attr(feature = "clap", command(flatten))]
    pub memory: MemoryOptions,
    /// Keep chunks in memory: compressed (saves reading) or decoded (also saves decoding)
    ///
    /// auto keeps all chunks decoded, when there is time for it, if they fit into half of the free
    /// memory. Otherwise it keeps the decoded chunks of a shuffle window (--shuffle-window), if
    /// there is one; otherwise all chunks compressed, if they fit; otherwise none. The report says
    /// what was chosen, and why.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_parser = arguments::one_of(&CacheKind::ALL), default_value_t = CacheKind::Auto, help_heading = "Resources"))]
    pub cache: CacheKind,
    /// Memory for the cache. With --cache compressed or decoded, chunks that do not fit are read
    /// again every epoch
    // With `CacheKind::Auto`, 0 stands for half of the free memory.
    #[serde(rename = "cache_size")]
    #[cfg_attr(feature = "clap", arg(long = "cache-size", value_name = "BYTES", value_parser = arguments::bytes, default_value_t = 0, hide_default_value = true, help_heading = "Resources"))]
    pub cache_bytes: u64,
    /// Shuffle windows (--windows, --patch) within the whole epoch, or within this many decoded
    /// bytes at a time
    ///
    /// With a number of bytes, the windows of some cubes, or parts of cubes, are shuffled at a
    /// time: as many as take this many bytes decoded. Then each chunk is decoded about once per
    /// epoch.
    ///
    /// auto shuffles among all windows of the epoch if their chunks fit into the cache. Otherwise
    /// it takes --cache-size, or a quarter of the machine's memory rounded down to a power of two.
    /// With several processes it takes the whole epoch, because all processes would have to use the
    /// same size. The order depends on the size: give the size to get the same order on other
    /// machines.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "auto|all|BYTES", value_parser = arguments::shuffle_window, default_value_t = ShuffleWindow::Auto, help_heading = "Resources"))]
    pub shuffle_window: ShuffleWindow,
    /// Decode chunks on the CPU (host), or on the GPU that batches are copied to (device)
    ///
    /// With device, chunks cross the bus as they are stored, and the GPU decodes them: LZ4 with
    /// elements of 1, 2 or 4 bytes, in batches for which that takes fewer bytes. The CPU decodes
    /// the rest. This was not run on a GPU yet, so auto is host.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHERE", value_parser = arguments::one_of(&DecodePlace::ALL), default_value_t = DecodePlace::Auto, help_heading = "Device"))]
    pub decode: DecodePlace,
    /// Skip cubes with damaged chunks, and count them; a batch without any other cube gets one that
    /// can be read, as padding [default: a damaged chunk is an error]
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long = "skip-damaged", action = clap::ArgAction::SetTrue, value_parser = arguments::on_damage(), help_heading = "Reading"))]
    pub on_damage: OnDamage,
    /// The form of images that are stored as integers. Device loaders take the type of their images
    /// ([`DeviceOptions::integers`](crate::DeviceOptions::integers)).
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub integers: Integers,
    /// The last epoch is the one before this. If `None`, epochs never end.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub end_epoch: Option<u64>,
    /// Where to record what every thread does when. Serialised, it is whether to record.
    #[serde(with = "recording")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub trace: Option<Arc<Trace>>,
}

/// A [`LoaderOptions::trace`] as a flag: every process records for itself.
mod recording {
    use super::{Arc, Trace};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(trace: &Option<Arc<Trace>>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bool(trace.is_some())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<Trace>>, D::Error> {
        Ok(bool::deserialize(from)?.then(Arc::default))
    }
}

/// Among which windows a window is shuffled. Only crops, patches and listed windows come in shuffle
/// windows, and only with [`Order::Shuffled`](crate::plan::Order::Shuffled). Whole cubes never do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShuffleWindow {
    /// All windows of the epoch, if their decoded chunks fit into the cache's limit. Otherwise
    /// those of as many blocks of cubes as fit into a quarter of the machine's memory (rounded down
    /// to a power of two), or into [`LoaderOptions::cache_bytes`] if that is given. With several
    /// processes, all windows of the epoch.
    #[default]
    Auto,
    /// All windows of the epoch.
    All,
    /// The windows of as many blocks of cubes as take this many bytes decoded, together with the
    /// next blocks.
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

/// Which processor decodes chunks if batches are copied to a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DecodePlace {
    /// The CPU, until decoding on a GPU was measured.
    #[default]
    Auto,
    /// The GPU, for chunks that it can decode, in batches for which fewer bytes are copied that
    /// way.
    Device,
    /// The CPU.
    Host,
}

hsipack_format::option_names!(DecodePlace, "decode", {
    Auto => "auto",
    Device => "device",
    Host => "host",
});

/// Treatment of a damaged chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDamage {
    /// The batch is an error that names shard and sample. The next batch is the one after it.
    #[default]
    Error,
    /// Skip the sample, and count it. If all samples of a batch are damaged, one item that can be
    /// read takes their place, as padding, so that every rank gets as many batches as planned.
    Skip,
}

hsipack_format::option_names!(OnDamage, "on_damage", { Error => "error", Skip => "skip" });

impl Default for LoaderOptions {
    fn default() -> Self {
        Self::new(DEFAULT_BATCH_SIZE)
    }
}

impl LoaderOptions {
    /// Options for batches of `batch_size` samples, with one decoding thread per core and four
    /// slots.
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
            targets: None,
            images: None,
            new_ids: Vec::new(),
            bands: None,
            common_bands: None,
            threads: cores(),
            slots: 4,
            memory: MemoryOptions::default(),
            on_damage: OnDamage::default(),
            cache: CacheKind::Auto,
            cache_bytes: 0,
            shuffle_window: ShuffleWindow::default(),
            decode: DecodePlace::default(),
            integers: Integers::default(),
            end_epoch: None,
            trace: None,
        }
    }

    /// The options of a dataset whose samples come in batches with those of others.
    ///
    /// # Errors
    /// If a device is to decode, or there is a shuffle window.
    pub(super) fn for_mixing(self) -> Result<Self> {
        let refuse = |what: &str, option: Opt| {
            Err(Error::unsupported(format!("batches of items of several datasets with {what}"))
                .with_remedy(remedy![
                    "leave out ",
                    option,
                    ", or give hsipack.mix batches=\"one\""
                ]))
        };
        if self.decode == DecodePlace::Device {
            return refuse("chunks that the GPU decodes", Opt::Decode);
        }
        if let ShuffleWindow::Bytes(_) = self.shuffle_window {
            return refuse("a shuffle window of some bytes", Opt::ShuffleWindow);
        }
        Ok(Self { shuffle_window: ShuffleWindow::All, ..self })
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
