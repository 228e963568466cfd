//! One of the datasets that a running loader reads: its plan, and its chunks in memory.

use std::sync::Arc;

use hsipack_augment::Pipeline;
use hsipack_store::remote::is_url;

use super::band_fit::BandFit;
use super::batch_plan::BatchPlan;
use super::cache_choice::CacheChoice;
use super::member::{Member, state_before};
use super::new_ids::IdTables;
use super::options::LoaderOptions;
use crate::Result;
use crate::cache::{Cache, CacheKind, CacheTimes, Keeping, SharedChunks};
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::decode::Decoder;
use crate::device::resident::Residents;
use crate::plan::{Crop, Pad, Plan, State};
use crate::shuffle_buffer::ShuffleBuffer;

/// Keeping fewer bytes of decoded chunks than this takes a few ms, which nobody notices.
const IDLE_TIME_FROM: u64 = 16 << 20;

/// A dataset, and how it is read.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Its number among the datasets of the loader.
    pub number: usize,
    pub dataset: Dataset,
    pub options: LoaderOptions,
    pub plan: Plan,
    /// Names of the masks, in the order of their arrays.
    pub masks: Vec<String>,
    /// Names of the targets, whose arrays follow those of the masks.
    pub targets: Vec<String>,
    /// Names of the masks, the targets and the further images: the arrays beside the image.
    pub beside: Vec<String>,
    /// New class ids for the masks.
    pub new_ids: Arc<IdTables>,
    pub cache: Option<Cache>,
    /// The chunks of a shuffle window.
    pub shuffle_buffer: Option<ShuffleBuffer>,
    /// The cache policy, with its reason.
    pub cached: CacheChoice,
    /// Samples in the memory of a device.
    pub residents: Option<Arc<Residents>>,
    /// Augmentations that draw the bands that images need.
    pub band_draw: Option<Arc<Pipeline>>,
    /// How images get the bands of batches, if these have images of several datasets with others.
    pub fit: Option<Arc<BandFit>>,
}

/// Chunks of a dataset in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeptChunks {
    /// Bytes of the chunks.
    pub bytes: u64,
    /// Cost and gain of keeping them.
    pub times: CacheTimes,
}

impl Reader {
    /// A reader that keeps chunks in memory.
    ///
    /// # Errors
    /// If there is not enough memory for notes about chunks.
    pub(super) fn new(member: Member) -> Result<Self> {
        let mut reader = Self::without_cache(member);
        if reader.needs_no_cache() {
            return Ok(reader);
        }
        let (dataset, cached) = (&reader.dataset, &reader.cached);
        if cached.shuffle_window.is_some() {
            reader.shuffle_buffer = Some(ShuffleBuffer::new(dataset)?);
            return Ok(reader);
        }
        let (kind, bytes) = (cached.kind, cached.limit_bytes);
        // If other processes left the shared memory meanwhile, this one can still keep chunks for itself.
        let chunks = cached.shared.then(|| SharedChunks::join(dataset)).flatten();
        reader.cache = match chunks {
            Some(chunks) => Some(Cache::shared(chunks, bytes)),
            None => {
                // If several windows of an epoch need a chunk, keeping it pays in the same epoch.
                let once = reader.plan.items() <= reader.plan.samples().len();
                let needed = cached.needed_bytes;
                let keeping = match cached.chosen && once && needed >= IDLE_TIME_FROM {
                    false => Keeping::AtOnce,
                    // What is not kept is fetched again, which others may have to pay for.
                    true if is_url(dataset.path()) && dataset.local_cache().is_none() => {
                        Keeping::AfterFirstBatch
                    }
                    true => Keeping::InIdleTime { needed },
                };
                Cache::new(dataset, kind, bytes, keeping)?
            }
        };
        Ok(reader)
    }

    /// A reader that keeps nothing.
    pub(super) fn without_cache(member: Member) -> Self {
        let beside = member.beside();
        let Member {
            number,
            dataset,
            mut options,
            plan,
            masks,
            targets,
            new_ids,
            cached,
            residents,
            band_draw,
            fit,
            ..
        } = member;
        (options.cache, options.cache_bytes) = (cached.kind, cached.limit_bytes);
        Self {
            number,
            dataset,
            options,
            plan,
            masks,
            targets,
            beside,
            new_ids,
            cache: None,
            shuffle_buffer: None,
            cached,
            residents,
            band_draw,
            fit,
        }
    }

    /// Whether the loader would keep chunks in memory by its own choice, but a device keeps all of
    /// them.
    fn needs_no_cache(&self) -> bool {
        let are_whole = self.residents.as_ref().is_some_and(|residents| residents.are_whole());
        are_whole && self.cached.chosen
    }

    /// The dataset, and the names of the arrays beside the image.
    pub(super) fn arrays(&self) -> (&Dataset, &[String]) {
        (&self.dataset, &self.beside)
    }

    /// Names of the further images.
    pub(crate) fn further(&self) -> &[String] {
        &self.beside[self.masks.len() + self.targets.len()..]
    }

    pub(crate) fn decoder(&self) -> Decoder<'_> {
        Decoder {
            dataset: &self.dataset,
            bands: self.options.bands.as_deref(),
            needed: None,
            cache: self.cache.as_ref(),
            shuffle_buffer: self.shuffle_buffer.as_ref(),
        }
    }

    /// The decoder of the item at `position` of a batch.
    pub(super) fn decoder_of<'a>(&'a self, plan: &'a BatchPlan, position: usize) -> Decoder<'a> {
        Decoder { needed: plan.needed.get(position).map(Vec::as_slice), ..self.decoder() }
    }

    /// Bytes of chunks in memory.
    pub(super) fn cached_bytes(&self) -> u64 {
        let held = self.shuffle_buffer.as_ref().map_or(0, ShuffleBuffer::used);
        held + self.cache.as_ref().map_or(0, Cache::used)
    }

    /// Contents of its cache.
    pub(super) fn kept(&self) -> KeptChunks {
        let times = self.cache.as_ref().map_or(CacheTimes::default(), Cache::times);
        KeptChunks { bytes: self.cached_bytes(), times }
    }

    /// Whether every chunk that is read is decoded in memory.
    pub(super) fn keeps_all(&self) -> bool {
        self.cached.kind == CacheKind::Decoded && self.cached_bytes() >= self.cached.needed_bytes
    }

    /// The state before the first batch of an epoch.
    pub(super) fn state_before(&self, epoch: u64) -> State {
        state_before(&self.plan, &self.dataset, &self.cached, epoch)
    }

    /// The padding of an array's windows beyond the edge of their cube. If no window reaches there,
    /// it does not matter.
    pub(super) fn pad(&self, array: ArrayRef<'_>) -> Pad {
        let crop = &self.plan.options().crop;
        match crop {
            // Mirrored pixels are not part of a region.
            Crop::Windows(windows) if windows.are_regions() && !array.is_image() => Pad::Value(0.0),
            _ => crop.pad().unwrap_or(Pad::Edge),
        }
    }
}
