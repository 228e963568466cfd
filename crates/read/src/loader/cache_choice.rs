//! Decides what is kept in memory if the user leaves that to the loader: as much as helps, and
//! fits.

use hsipack_format::{Opt, remedy};
use hsipack_store::memory;
use serde::{Deserialize, Serialize};

use super::arrays::place;
use super::blocks::{self, Cutting};
use super::options::{DecodePlace, LoaderOptions, ShuffleWindow};
use crate::cache::{CacheKind, SharedChunks};
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::dataset::files::is_sharded;
use crate::plan::{Crop, Plan, ShuffleBlocks};
use crate::{Error, Result};

/// Cache policy of a loader, with its reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CacheChoice {
    /// The data that are kept.
    pub kind: CacheKind,
    /// Whether this was chosen by [`CacheKind::Auto`].
    pub chosen: bool,
    /// The most bytes that it may take.
    pub limit_bytes: u64,
    /// Bytes of all decoded chunks that the windows lie in.
    pub needed_bytes: u64,
    /// Whether the processes of this machine that train together keep the chunks in memory that
    /// they share.
    pub shared: bool,
    /// The windows among which a window is shuffled, if not among all of them.
    pub shuffle_window: Option<Shuffled>,
    /// The reason, in words.
    pub why: String,
}

/// The windows among which a window is shuffled: those of some blocks of cubes, whose chunks are
/// all held decoded at the same time. A window is equally likely to come at any place of an epoch,
/// but windows that come near one another are of the same blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shuffled {
    /// Bytes of decoded chunks: those of the blocks whose windows come, and those of the next
    /// blocks.
    pub bytes: u64,
    /// Number of blocks that come together.
    pub blocks: usize,
    /// Number of all blocks of an epoch.
    pub of_blocks: usize,
    /// How often a chunk is decoded in an epoch, on average, if windows lie in all chunks.
    pub decoded: f64,
}

impl CacheChoice {
    /// Before it is decided, for windows whose decoded chunks take `needed_bytes`.
    pub(super) fn open(needed_bytes: u64) -> Self {
        Self {
            kind: CacheKind::Auto,
            chosen: true,
            limit_bytes: 0,
            needed_bytes,
            shared: false,
            shuffle_window: None,
            why: "not decided yet".to_owned(),
        }
    }
}

/// The chosen cache, and the blocks in which windows come.
pub(super) struct Chosen {
    pub choice: CacheChoice,
    pub blocks: Option<ShuffleBlocks>,
}

impl Chosen {
    /// Chooses what the options ask for. `Auto` is decided by this fraction of the memory that is
    /// available beside a ring of `ring_bytes`.
    pub(super) fn of(
        dataset: &Dataset,
        options: &LoaderOptions,
        plan: &Plan,
        masks: &[String],
        needed_bytes: u64,
        ring_bytes: u64,
        fraction: f64,
    ) -> Result<Self> {
        if options.decode == DecodePlace::Device && options.cache == CacheKind::Decoded {
            let what = "decoded chunks are kept, which a device that decodes has no use for";
            return Err(Error::conflict(what).with_remedy(remedy![
                "leave out ",
                Opt::Cache,
                " or ",
                Opt::Decode
            ]));
        }
        let chooser = Chooser { dataset, options, plan, masks, needed_bytes, fraction };
        match options.shuffle_window {
            ShuffleWindow::Bytes(bytes) => chooser.asked_for(bytes),
            ShuffleWindow::All | ShuffleWindow::Auto if options.cache != CacheKind::Auto => {
                let (kind, bytes) = (options.cache, options.cache_bytes);
                Ok(chooser.whole(kind, bytes, "requested".to_owned()))
            }
            ShuffleWindow::All | ShuffleWindow::Auto => chooser.by_memory(ring_bytes),
        }
    }
}

struct Chooser<'a> {
    dataset: &'a Dataset,
    options: &'a LoaderOptions,
    plan: &'a Plan,
    masks: &'a [String],
    /// Bytes of all decoded chunks that the windows lie in.
    needed_bytes: u64,
    /// The fraction of the memory that is for this dataset. 1 unless the loader reads several.
    fraction: f64,
}

impl Chooser<'_> {
    /// All windows are shuffled together.
    fn whole(&self, kind: CacheKind, limit_bytes: u64, why: String) -> Chosen {
        let choice = CacheChoice {
            kind,
            chosen: self.options.cache == CacheKind::Auto,
            limit_bytes,
            needed_bytes: self.needed_bytes,
            shared: false,
            shuffle_window: None,
            why,
        };
        Chosen { choice, blocks: None }
    }

    /// Windows come block by block.
    fn in_blocks(&self, bytes: u64, cutting: Cutting, why: String) -> Chosen {
        let Cutting { blocks, decoded } = cutting;
        let shuffled = Shuffled {
            bytes,
            blocks: blocks.together,
            of_blocks: blocks.blocks.len(),
            decoded: (decoded * 1e3).round() / 1e3,
        };
        let choice = CacheChoice {
            kind: CacheKind::Decoded,
            chosen: self.options.cache == CacheKind::Auto,
            limit_bytes: bytes,
            needed_bytes: self.needed_bytes,
            shared: false,
            shuffle_window: Some(shuffled),
            why,
        };
        Chosen { choice, blocks: Some(blocks) }
    }

    /// The shuffle window that the user asked for.
    fn asked_for(&self, bytes: u64) -> Result<Chosen> {
        if !matches!(self.options.cache, CacheKind::Auto | CacheKind::Decoded) {
            let kind = self.options.cache;
            return Err(Error::conflict(format!(
                "a shuffle window holds decoded chunks, so it cannot be combined with cache kind {kind}"
            ))
            .with_remedy(remedy![
                "leave out ",
                Opt::Cache,
                " or ",
                Opt::ShuffleWindow
            ]));
        }
        match blocks::cut(self.dataset, self.plan, self.options.bands.as_deref(), bytes)? {
            Ok(cutting) => Ok(self.in_blocks(bytes, cutting, "requested".to_owned())),
            Err(blocks::NoBlocks::AllFit) => {
                let why = "requested, and all chunks fit into the shuffle window".to_owned();
                Ok(self.whole(CacheKind::Decoded, self.needed_bytes, why))
            }
            Err(blocks::NoBlocks::NothingGained) => {
                let why = "a shuffle window was requested, but windows hardly share chunks";
                Ok(self.whole(CacheKind::None, 0, why.to_owned()))
            }
            Err(no) => Err(Error::conflict(format!(
                "a shuffle window of {} is not possible: {}",
                memory::size(bytes),
                no.words()
            ))
            .with_remedy(remedy![
                "leave out ",
                Opt::ShuffleWindow,
                " or give a larger one; it works for shuffled crops, patches and listed windows"
            ])),
        }
    }

    /// This dataset's part of some memory.
    fn part(&self, bytes: u64) -> u64 {
        if self.fraction < 1.0 { (bytes as f64 * self.fraction) as u64 } else { bytes }
    }

    /// Keeps as much as fits.
    fn by_memory(&self, ring_bytes: u64) -> Result<Chosen> {
        let whole = matches!(self.plan.options().crop, Crop::Whole);
        if self.options.decode == DecodePlace::Device && whole {
            let why = "the device decodes, so no decoded chunks are kept".to_owned();
            return Ok(self.whole(CacheKind::None, 0, why));
        }
        let ranks = ranks_here().min(self.options.share.world_size as u64);
        if let Some(shared) = self.shared(ring_bytes, ranks) {
            return Ok(shared);
        }
        let (limit, limited_by) = match (self.options.cache_bytes, memory::available()) {
            (0, None) => {
                let why = "the system does not say how much memory is free".to_owned();
                return Ok(self.whole(CacheKind::None, 0, why));
            }
            (0, Some(available)) => {
                let by = match ranks {
                    _ if self.fraction < 1.0 => {
                        format!("its part of half of the free memory {}", available.by)
                    }
                    1 => format!("half of the free memory {}", available.by),
                    _ => format!("1/{ranks} of half of the free memory {}", available.by),
                };
                (self.part(available.bytes.saturating_sub(ring_bytes) / 2 / ranks), by)
            }
            (bytes, _) => (bytes, "the given limit".to_owned()),
        };
        let room = format!("{} ({limited_by})", memory::size(limit));
        let decoded = memory::size(self.needed_bytes);
        if self.needed_bytes <= limit {
            let why =
                format!("all chunks that are read take {decoded} decoded; they fit into {room}");
            return Ok(self.whole(CacheKind::Decoded, self.needed_bytes, why));
        }
        let (blocks, no_blocks) = self.own_blocks()?;
        if let Some((bytes, cutting)) = blocks {
            let why = format!(
                "all chunks that are read take {decoded} decoded; they do not fit into {room}, so windows are shuffled within {} of {} blocks of cubes at a time",
                cutting.blocks.together,
                cutting.blocks.blocks.len()
            );
            return Ok(self.in_blocks(bytes, cutting, why));
        }
        let bands = self.options.bands.as_deref();
        let stored = stored_bytes(self.dataset, self.plan, self.masks, bands)?;
        let sizes = format!("{decoded} decoded, {} as stored", memory::size(stored));
        let (kind, bytes, fits) = match stored <= limit {
            true => (CacheKind::Compressed, stored, "only the stored chunks fit"),
            false => (CacheKind::None, 0, "neither fits"),
        };
        let why = format!("all chunks that are read take {sizes}; {fits} into {room}{no_blocks}");
        Ok(self.whole(kind, bytes, why))
    }

    /// All chunks in memory that the processes of this machine share, if there are several
    /// processes and the chunks fit.
    fn shared(&self, ring_bytes: u64, ranks: u64) -> Option<Chosen> {
        let needed = self.needed_bytes;
        if ranks < 2 {
            return None;
        }
        let chunks = SharedChunks::join(self.dataset)?;
        let limit = match self.options.cache_bytes {
            // What other processes already keep in the shared memory is no longer free, but it can be used here.
            0 => {
                let free = memory::available()?.bytes + chunks.used();
                self.part(free.saturating_sub(ring_bytes * ranks) / 2)
            }
            bytes => bytes.saturating_mul(ranks),
        };
        if needed > limit {
            return None;
        }
        let why = format!(
            "all chunks that are read take {} decoded; {ranks} processes on this machine keep them in shared memory, which has room for {}",
            memory::size(needed),
            memory::size(limit)
        );
        let mut chosen = self.whole(CacheKind::Decoded, limit, why);
        chosen.choice.shared = true;
        Some(chosen)
    }

    /// Blocks for which this machine has enough memory, or why there are none. The order depends on
    /// the size of the blocks. So the whole memory counts, which stays the same, and not the free
    /// memory.
    fn own_blocks(&self) -> Result<(Option<(u64, Cutting)>, String)> {
        let none = |why: &str| Ok((None, why.to_owned()));
        if self.options.shuffle_window == ShuffleWindow::All {
            return none("");
        }
        let bytes = match (self.options.cache_bytes, memory::limit()) {
            (0, None) => return none(""),
            (0, Some(limit)) => shuffle_window_bytes(self.part(limit)),
            (bytes, _) => bytes,
        };
        match blocks::cut(self.dataset, self.plan, self.options.bands.as_deref(), bytes)? {
            // On machines with unequal memory, each process would use another order.
            Ok(_) if self.options.share.world_size > 1 => none(
                "; a shuffle window, which decodes each chunk about once per epoch, is not chosen automatically if several processes train together",
            ),
            Ok(cutting) => Ok((Some((bytes, cutting)), String::new())),
            Err(blocks::NoBlocks::TooLarge) => {
                none("; two cubes, or two blocks of a cube, do not fit as a shuffle window either")
            }
            Err(_) => none(""),
        }
    }
}

/// The size of a shuffle window if the user leaves it to the loader, for a memory of `limit` bytes.
/// It is a quarter of this, so that there is room for what others use, and rounded down to a power
/// of two, so that nearly equal machines get the same size.
pub fn shuffle_window_bytes(limit: u64) -> u64 {
    1 << (limit / 4).max(1).ilog2()
}

/// Number of processes on this machine that train together, as reported by torchrun.
pub(super) fn ranks_here() -> u64 {
    let variable = std::env::var("LOCAL_WORLD_SIZE").ok();
    variable.and_then(|text| text.parse().ok()).unwrap_or(1).max(1)
}

/// Calls `each` with every array that a plan reads, and the places of its samples.
fn for_each_array(
    dataset: &Dataset,
    plan: &Plan,
    masks: &[String],
    mut each: impl FnMut(ArrayRef<'_>, &[usize]),
) -> Result<()> {
    let mut by_stack: Vec<Vec<usize>> = vec![Vec::new(); dataset.stacks().len()];
    for sample in plan.samples() {
        let stack = dataset.stack_of(sample.sample)?;
        by_stack[stack].push(dataset.samples().index(sample.sample));
    }
    for (stack, samples) in by_stack.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
        let masks = masks.iter().map(|name| place(dataset, stack, name));
        for array in std::iter::once(Ok(0)).chain(masks) {
            each(dataset.array(stack, array?), samples);
        }
    }
    Ok(())
}

/// Bytes of all decoded chunks of the samples that a plan reads, with any of `bands`.
pub(super) fn needed_bytes(
    dataset: &Dataset,
    plan: &Plan,
    masks: &[String],
    bands: Option<&[usize]>,
) -> Result<u64> {
    let mut bytes = 0;
    for_each_array(dataset, plan, masks, |array, samples| {
        let chunks = samples.len() * array.grid().chunks_with(bands.filter(|_| array.array == 0));
        bytes += chunks as u64 * array.chunks.chunk_bytes() as u64;
    })?;
    Ok(bytes)
}

/// Bytes of these chunks as they are stored, if all chunks of a file have as many. Files whose size
/// cannot be read count as nothing, because reading them reports the error.
pub(super) fn stored_bytes(
    dataset: &Dataset,
    plan: &Plan,
    masks: &[String],
    bands: Option<&[usize]>,
) -> Result<u64> {
    let mut bytes = 0;
    for_each_array(dataset, plan, masks, |array, samples| {
        let grid = array.grid();
        let (groups, all) =
            (grid.groups_of(bands.filter(|_| array.array == 0)), grid.band_groups());
        let of_groups = |bytes: u64| bytes / all as u64 * groups as u64;
        if !is_sharded(array.chunks) {
            for index in samples {
                let chunks = 0..grid.chunks_per_sample();
                let of_chunk = |chunk| array.file_bytes(array.number(*index, chunk), *index, chunk);
                bytes += of_groups(chunks.map(of_chunk).sum());
            }
            return;
        }
        let mut shards: Vec<usize> = samples.iter().map(|index| grid.locate(*index).0).collect();
        shards.sort_unstable();
        shards.dedup();
        bytes += of_groups(shards.into_iter().map(|shard| array.file_bytes(shard, 0, 0)).sum());
    })?;
    Ok(bytes)
}
