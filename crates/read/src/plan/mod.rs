//! Decides which sample or crop comes when, on which rank.
//!
//! ```text
//! samples → order of the epoch → global batches → a rank's batches → items with their windows
//! ```
//! A [`Plan`] is a pure function of samples and [`PlanOptions`]: it reads nothing and starts no
//! threads. The same seed always gives the same items, whatever the number of threads and ranks. An
//! **item** is one window of one sample. [`Plan::epoch`] puts an epoch's items in order and cuts
//! them into **global batches** of batch size × world size items. Every rank takes an equal run of
//! each global batch. A [`State`] says which batches were given, and an epoch can go on from there
//! with another batch size or world size. What is left is then cut into new batches, and no item
//! comes twice or is lost.
//!
//! All items of a global batch have the same shape. If crops give samples of different shapes the
//! same shape, these samples are mixed, unless their numbers of bands differ. Otherwise batches of
//! different shapes take turns.
//!
//! # Example
//! ```
//! use hsipack_read::plan::{Crop, Plan, PlanOptions, PlanSample, Share, State};
//!
//! let samples = (0..10)
//!     .map(|sample| PlanSample::new(sample, 480, 640, 100))
//!     .collect();
//! let crop = Crop::Random { rows: 64, columns: 64, per_sample: 4, min_labelled: 0.0 };
//! let plan = Plan::new(samples, PlanOptions { crop, seed: 42, ..PlanOptions::new(8) })?;
//!
//! let epoch = plan.epoch(0, &[], Share { rank: 1, world_size: 2 })?;
//! assert_eq!(epoch.batches(), 3); // of 16, 16 and 8 of the 40 crops
//! let mut items = Vec::new();
//! epoch.batch(0, None, &mut items)?;
//! assert_eq!(items.len(), 8);
//!
//! // After a batch, training goes on with one process instead of two.
//! let state = epoch.state("fingerprint of the dataset", 1);
//! let state = State::from_json(&state.to_json())?;
//! state.check(&plan, "fingerprint of the dataset", None)?;
//! let remaining = plan.epoch(state.epoch, &state.delivered, Share::ALL)?;
//! assert_eq!((remaining.items(), remaining.batches()), (24, 3));
//! # Ok::<(), hsipack_read::Error>(())
//! ```

mod batches;
mod block_size;
mod blocks;
#[cfg(feature = "clap")]
mod crop_arguments;
mod crop_size;
mod crops;
mod index_set;
mod interleaved;
mod joined;
mod labelled;
mod order;
mod pad;
mod permutation;
mod pixels;
mod regions;
mod sequence;
mod state;
#[cfg(test)]
mod test;
mod window;
mod windows;

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use hsipack_augment::SampleKey;
use hsipack_format::names::by_name;
use hsipack_format::{Command, CubeShape, Opt, random, remedy};
use serde::{Deserialize, Serialize};

pub use batches::{LastBatch, Share};
pub use block_size::{BlockSize, chunks_touched};
pub use blocks::{Block, ShuffleBlocks};
pub use crop_size::{CropKind, CropSize, WindowOption};
pub use crops::{ATTEMPTS, Crop, Labelled};
pub(crate) use joined::{JoinedEpoch, JoinedPlan, PlanRun, lengths, seed_of};
pub use labelled::{LabelledPixels, Patches};
pub use order::Order;
pub use pad::Pad;
pub use regions::{Region, Regions};
pub use state::{DatasetState, Segment, State};
pub use window::Window;
pub use windows::Windows;

#[cfg(feature = "clap")]
use crate::arguments;
use crate::{Error, Result};
use batches::{Cut, Epoch, global_batch};
use blocks::PlannedBlocks;
use crops::Draw;
use order::Pool;
use sequence::{Drawn, PlannedWindows, Sequence};
use windows::{Shown, WindowNumber};

/// A sample as the plan sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanSample {
    /// Id of the sample in the dataset.
    pub sample: usize,
    /// Image rows of its cube.
    pub rows: u32,
    /// Image columns of its cube.
    pub columns: u32,
    /// Bands of its cube.
    pub bands: u32,
    /// The group (patient, animal, flight, …), for orders that use groups.
    pub group: Option<u32>,
    /// The class, for [`Order::ClassBalanced`].
    pub class: Option<u32>,
    /// How often [`Order::Weighted`] draws the sample, relative to the others.
    pub weight: f64,
}

impl PlanSample {
    /// A sample of `rows` × `columns` × `bands` with weight 1, without group or class.
    pub fn new(sample: usize, rows: u32, columns: u32, bands: u32) -> Self {
        Self { sample, rows, columns, bands, group: None, class: None, weight: 1.0 }
    }

    fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0 || self.bands == 0
    }
}

/// How a [`Plan`] orders, crops and batches samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct PlanOptions {
    /// Number of cubes, crops or patches in a batch
    // Of each rank.
    #[cfg_attr(feature = "clap", arg(short, long, value_name = "N", default_value_t = DEFAULT_BATCH_SIZE, value_parser = arguments::count(1..=u64::from(u32::MAX))))]
    pub batch_size: usize,
    /// Order of the items in an epoch
    ///
    /// weighted draws items by the column `weight` of the table. class-balanced draws every label
    /// equally often. groups-spread keeps the cubes of a group apart, groups-together keeps them
    /// next to each other.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", value_parser = arguments::one_of_or(&Order::ALL, &[("balanced", Order::ClassBalanced)]), default_value_t = Order::Shuffled, help_heading = "Samples"))]
    pub order: Order,
    /// Seed of everything that is drawn: the order and random crops
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "N", default_value_t = 0, help_heading = "Samples")
    )]
    pub seed: u64,
    /// The windows of the samples.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub crop: Crop,
    /// Number of cubes, or crops, in an epoch, for all ranks together [default: each once]
    ///
    /// A longer epoch takes further rounds of the same order, each newly shuffled. A shorter epoch
    /// ends early.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = arguments::count(1..=u64::from(u32::MAX)), help_heading = "Samples"))]
    pub epoch_length: Option<usize>,
    /// Treatment of a last batch that is not full
    ///
    /// pad fills it up with padding on every rank. drop skips it. short divides the remaining cubes
    /// among the ranks, and adds padding only if fewer cubes remain than there are ranks. All ranks
    /// get the same number of batches.
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "WHAT", value_parser = arguments::one_of(&LastBatch::ALL), default_value_t = LastBatch::Short, help_heading = "Samples"))]
    pub last: LastBatch,
    /// For data that do not fit into memory: blocks of cubes, of which only some come at a time, so
    /// that each is read about once per epoch. Only for [`Order::Shuffled`]. If `None`, all items
    /// are shuffled together.
    #[serde(skip)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub blocks: Option<Arc<ShuffleBlocks>>,
    /// If several datasets are read: whether they are a mix. Then they may have different bands,
    /// and take turns evenly, so that any run of batches has them in proportion; the largest
    /// dataset comes once in an epoch, unless it has a length.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub is_mix: bool,
    /// If several datasets are a mix: whether each batch has items of all of them, in proportion,
    /// instead of items of one.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub mixes_items: bool,
    /// Random and central windows begin at multiples of this many rows and columns, because they
    /// hold whole pixels of a coarser array. At least 1.
    #[serde(skip, default = "everywhere")]
    #[cfg_attr(feature = "clap", arg(skip = 1u32))]
    pub align: u32,
}

/// Windows may begin at any pixel.
fn everywhere() -> u32 {
    1
}

/// Number of items in a batch unless another number is given.
pub const DEFAULT_BATCH_SIZE: usize = 6;

impl Default for PlanOptions {
    fn default() -> Self {
        Self::new(DEFAULT_BATCH_SIZE)
    }
}

impl PlanOptions {
    /// Options for whole cubes in shuffled batches of `batch_size`, the last one short, seed 0.
    pub fn new(batch_size: usize) -> Self {
        Self {
            seed: 0,
            order: Order::Shuffled,
            crop: Crop::Whole,
            batch_size,
            last: LastBatch::Short,
            epoch_length: None,
            blocks: None,
            is_mix: false,
            mixes_items: false,
            align: everywhere(),
        }
    }
}

/// One window of one sample, in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// Id of the sample in the dataset.
    pub sample: usize,
    /// Which item of the sample it is in this epoch. Seeds drawn from (seed, epoch, sample, repeat)
    /// differ between items.
    pub repeat: u32,
    /// The window to read.
    pub window: Window,
    /// For a window around a labelled pixel, the class id of this pixel. For a window that shows a
    /// region, the region's class id.
    pub label: Option<u32>,
    /// For a window that shows a region, the id of the region's pixels in the mask.
    pub region: Option<u32>,
    /// Whether the item also comes in another batch, and only fills up this one (see
    /// [`LastBatch`]), or takes the place of a batch of damaged samples
    /// ([`OnDamage::Skip`](crate::OnDamage)). Leave such items out of validation metrics.
    pub padding: bool,
}

impl From<&Item> for SampleKey {
    fn from(item: &Item) -> Self {
        Self { sample: item.sample, repeat: u64::from(item.repeat) }
    }
}

/// Orders and crops the samples of every epoch, and cuts them into batches. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Plan(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    samples: Vec<PlanSample>,
    options: PlanOptions,
    pool: Pool,
    /// The windows, if they are numbered.
    windows: Option<PlannedWindows>,
    /// The blocks, if windows come block by block.
    blocks: Option<Arc<PlannedBlocks>>,
    /// Number of items in an epoch.
    length: usize,
    /// The number of every sample's shape.
    shape_of: Vec<u32>,
    shapes: Vec<CubeShape>,
    /// See [`Plan::digest`]. It is computed once, because the state of every batch needs it, and it
    /// goes over all samples.
    digest: String,
}

impl Plan {
    /// Creates a plan over these samples.
    ///
    /// # Errors
    /// If there are no samples; if one is empty, comes twice, is smaller than the crops, or lacks
    /// the class, group or weight that the order uses; if sizes, steps, shares or lengths are not
    /// valid; if an epoch has more than 2^32 items.
    pub fn new(samples: Vec<PlanSample>, options: PlanOptions) -> Result<Self> {
        options.crop.check()?;
        global_batch(options.batch_size, 1)?;
        check_samples(&samples)?;
        let samples = with_windows(samples, &options.crop)?;
        let classes_of_pixels =
            matches!(&options.crop, Crop::Windows(windows) if windows.are_labelled());
        let (shape_of, shapes) = number_shapes(&samples, &options.crop)?;
        let (strata, strata_count) = number_strata(&samples, options.order, classes_of_pixels)?;
        let counts = count_windows(&samples, &options)?;
        let windows = match &options.crop {
            Crop::Windows(windows) => Some(PlannedWindows::new(windows.clone(), options.order)),
            _ => None,
        };
        let blocks = plan_blocks(&samples, &options, &counts)?;
        let items = counts.iter().map(|count| *count as usize).sum();
        let weights = running_weights(&samples, options.order)?;
        let length = options.epoch_length.unwrap_or(items);
        check_length(length, items)?;
        let pool = Pool { counts, strata, strata_count, weights, items };
        let digest = digest(&samples, &options, &pool, length);
        Ok(Self(Arc::new(Inner {
            samples,
            options,
            pool,
            windows,
            blocks,
            length,
            shape_of,
            shapes,
            digest,
        })))
    }

    /// The same plan with other [`blocks`](PlanOptions::blocks).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_blocks(&self, blocks: ShuffleBlocks) -> Result<Self> {
        let blocks = Some(Arc::new(blocks));
        Self::new(self.0.samples.clone(), PlanOptions { blocks, ..self.0.options.clone() })
    }

    /// The same plan with another [`epoch_length`](PlanOptions::epoch_length).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn of_length(&self, length: usize) -> Result<Self> {
        let epoch_length = Some(length);
        Self::new(self.0.samples.clone(), PlanOptions { epoch_length, ..self.0.options.clone() })
    }

    /// Number of items of every sample in a round.
    pub(crate) fn counts(&self) -> &[u32] {
        &self.0.pool.counts
    }

    /// Rows and columns of the windows of a sample, which must be one of
    /// [`samples`](Self::samples).
    pub(crate) fn window_size(&self, sample: &PlanSample) -> (u32, u32) {
        self.0.options.crop.size(sample).unwrap_or((sample.rows, sample.columns))
    }

    /// The samples, as they were given.
    pub fn samples(&self) -> &[PlanSample] {
        &self.0.samples
    }

    /// The options.
    pub fn options(&self) -> &PlanOptions {
        &self.0.options
    }

    /// Every shape that a batch's items may have: rows and columns of the windows, and bands.
    pub fn shapes(&self) -> &[CubeShape] {
        &self.0.shapes
    }

    /// Number of items in an epoch over all ranks, without padding and before dropping.
    pub fn items(&self) -> usize {
        self.0.length
    }

    /// A hexadecimal hash of everything that decides which items an epoch has and how they are
    /// ordered and cropped, except the seed: samples, order, crop, epoch length and last batch. It
    /// stays the same across versions.
    pub fn digest(&self) -> &str {
        &self.0.digest
    }

    /// One rank's part of what is left of an epoch after the `delivered` segments. There are none
    /// at the start of an epoch; otherwise they come from a [`State`].
    ///
    /// # Errors
    /// If rank or world size are not valid, more batches were given than the epoch had, or
    /// [`LastBatch::Drop`] drops the whole epoch.
    pub fn epoch(&self, epoch: u64, delivered: &[Segment], share: Share) -> Result<EpochPlan> {
        self.epoch_in(epoch, delivered, self.0.options.batch_size, share)
    }

    /// The same in batches of another size.
    pub(crate) fn epoch_in(
        &self,
        epoch: u64,
        delivered: &[Segment],
        batch_size: usize,
        share: Share,
    ) -> Result<EpochPlan> {
        share.check()?;
        let Inner { options, pool, windows, blocks, length, shape_of, shapes, .. } = &*self.0;
        let keys = [options.seed, epoch];
        let (blocks, windows) = (blocks.as_ref(), windows.as_ref());
        let order = Sequence::draw(pool, blocks, windows, options.order, keys, *length);
        let cut = Epoch {
            order: &order,
            shapes: shape_of,
            shape_count: shapes.len(),
            // With blocks, batches of several shapes keep the order of the blocks.
            shuffle: (options.order.is_shuffled() && blocks.is_none()).then_some(keys),
            last: options.last,
        }
        .resume(delivered, batch_size, share.world_size)?;
        if cut.len() == 0 && cut.dropped() == *length {
            return Err(all_dropped(*length, shapes.len(), share.world_size * batch_size));
        }
        Ok(EpochPlan {
            plan: self.clone(),
            epoch,
            delivered: delivered.to_vec(),
            share,
            order,
            cut,
        })
    }

    /// An epoch whose items come in batches of several plans, so that it has no batches of its own.
    pub(crate) fn unbatched(&self, epoch: u64) -> EpochPlan {
        let Inner { options, pool, windows, blocks, length, .. } = &*self.0;
        let keys = [options.seed, epoch];
        let (blocks, windows) = (blocks.as_ref(), windows.as_ref());
        let order = Sequence::draw(pool, blocks, windows, options.order, keys, *length);
        let (share, cut) = (Share::ALL, Cut::none());
        EpochPlan { plan: self.clone(), epoch, delivered: Vec::new(), share, order, cut }
    }
}

/// The error that [`LastBatch::Drop`] drops all items of an epoch.
fn all_dropped(items: usize, shapes: usize, global: usize) -> Error {
    let items = plural(items, "item");
    Error::conflict(match shapes {
        0 | 1 => format!(
            "no batch is left when the last one is dropped: an epoch has {items}, but a full batch of all ranks has {global}"
        ),
        _ => format!(
            "no batch is left when the last ones are dropped: a full batch of all ranks has {global} items of one shape, but an epoch has {items} of {shapes} shapes, and no shape has so many"
        ),
    })
    .with_remedy(remedy![
        "choose a smaller ",
        Opt::BatchSize,
        ", ",
        Opt::Last.to("pad"),
        " or ",
        Opt::Last.to("short")
    ])
}

/// One rank's remaining batches of an epoch.
#[derive(Clone, Debug)]
pub struct EpochPlan {
    plan: Plan,
    epoch: u64,
    delivered: Vec<Segment>,
    share: Share,
    order: Sequence,
    cut: Cut,
}

impl EpochPlan {
    /// The epoch's number.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The epoch's batches that were given before these.
    pub(crate) fn delivered(&self) -> &[Segment] {
        &self.delivered
    }

    /// Number of batches left, the same on every rank; 0 if all were given.
    pub fn batches(&self) -> usize {
        self.cut.len()
    }

    /// Number of items left over all ranks, without padding and without dropped ones.
    pub fn items(&self) -> usize {
        self.cut.items()
    }

    /// Number of items left that [`LastBatch::Drop`] drops.
    pub fn dropped(&self) -> usize {
        self.cut.dropped()
    }

    /// The shape of the items of batch `n`, where 0 is the next one.
    ///
    /// # Errors
    /// If there is no such batch.
    pub fn shape(&self, n: usize) -> Result<CubeShape> {
        self.check(n)?;
        Ok(self.plan.0.shapes[self.shape_number(n)])
    }

    /// Replaces the contents of `items` by this rank's items of batch `n`, where 0 is the next one.
    /// Nothing is allocated if `items` has enough room. `labelled` is used only for
    /// [`Crop::Random`] with a labelled share.
    ///
    /// # Errors
    /// If there is no such batch; if labels are needed and `labelled` is `None`; if `labelled`
    /// fails.
    pub fn batch(
        &self,
        n: usize,
        mut labelled: Option<&mut dyn Labelled>,
        items: &mut Vec<Item>,
    ) -> Result<()> {
        self.check(n)?;
        items.clear();
        let last = self.plan.options().last;
        for (position, padding) in self.cut.part(n, self.shape_number(n), self.share, last) {
            let labelled = labelled.as_mut().map(|labelled| &mut **labelled as _);
            items.push(self.item(position, padding, labelled)?);
        }
        Ok(())
    }

    /// Adds the items at some places of the whole epoch to `items`. `labelled` is as for
    /// [`batch`](Self::batch).
    ///
    /// # Errors
    /// As [`batch`](Self::batch).
    pub(crate) fn push_items(
        &self,
        places: Range<u32>,
        padding: bool,
        mut labelled: Option<&mut dyn Labelled>,
        items: &mut Vec<Item>,
    ) -> Result<()> {
        for position in places {
            let labelled = labelled.as_mut().map(|labelled| &mut **labelled as _);
            items.push(self.item(position, padding, labelled)?);
        }
        Ok(())
    }

    /// Number of groups of blocks in the whole epoch; 0 if [`PlanOptions::blocks`] is `None`.
    /// Groups are numbered in the order in which they come.
    pub fn groups(&self) -> usize {
        self.order.blocks().map_or(0, |order| order.groups())
    }

    /// The group that batch `n` begins with, where 0 is the next batch. It rises with `n`. With
    /// several shapes, a batch may also have items of earlier or later groups.
    ///
    /// # Panics
    /// If there is no such batch.
    pub fn group(&self, n: usize) -> Option<usize> {
        Some(self.order.blocks()?.group(self.cut.first(n) as usize))
    }

    /// The blocks of a group.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn blocks(&self, group: usize) -> impl Iterator<Item = &Block> {
        self.order.blocks().into_iter().flat_map(move |order| order.blocks(group))
    }

    /// The state after every rank has got `batches` of these batches. If there are not so many,
    /// [`Plan::epoch`] refuses the state.
    pub fn state(&self, fingerprint: impl Into<String>, batches: usize) -> State {
        let mut state = State::new(&self.plan, fingerprint, self.epoch);
        let batch_size = self.plan.options().batch_size;
        let now = Segment { batch_size, world_size: self.share.world_size, batches };
        self.delivered.iter().copied().chain([now]).for_each(|segment| state.give(segment));
        state
    }

    fn check(&self, n: usize) -> Result<()> {
        if n < self.batches() {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "there is no batch {n}: {} left in this epoch",
            plural(self.batches(), "batch")
        ))
        .with_remedy("go on with the next epoch"))
    }

    /// Number of items in the whole epoch, on all ranks: places in its order.
    pub(crate) fn places(&self) -> u32 {
        self.order.len() as u32
    }

    /// Id of the sample at a place in the whole epoch, if its items have the shape with this
    /// number.
    pub(crate) fn sample_of_shape(&self, position: u32, shape: usize) -> Option<usize> {
        let sample = self.order.sample(position) as usize;
        let Inner { samples, shape_of, .. } = &*self.plan.0;
        (shape_of[sample] as usize == shape).then(|| samples[sample].sample)
    }

    /// The item at a place in the whole epoch, as padding.
    pub(crate) fn padding_at(
        &self,
        position: u32,
        labelled: Option<&mut (dyn Labelled + '_)>,
    ) -> Result<Item> {
        self.item(position, true, labelled)
    }

    /// Number of the shape of batch `n`, which must be there.
    pub(crate) fn shape_number(&self, n: usize) -> usize {
        let sample = self.order.sample(self.cut.first(n));
        self.plan.0.shape_of[sample as usize] as usize
    }

    #[inline]
    fn item(
        &self,
        position: u32,
        padding: bool,
        labelled: Option<&mut (dyn Labelled + '_)>,
    ) -> Result<Item> {
        let Drawn { sample: number, repeat, window } = self.order.get(position);
        let PlanOptions { seed, order, crop, align, .. } = self.plan.options();
        let sample = &self.plan.0.samples[number as usize];
        let draw =
            Draw { seed: *seed, epoch: self.epoch, repeat, replacement: order.has_replacement() };
        if let Crop::Windows(windows) = crop {
            let count = windows.of_sample(number as usize);
            let window = match order.has_replacement() {
                true => draw.of(u64::from(count), sample) as u32,
                // In listed orders, the number counts on through the rounds.
                false => window % count,
            };
            let Shown { window, label, region } =
                windows.get(WindowNumber { sample: number, window });
            return Ok(Item { sample: sample.sample, repeat, window, label, region, padding });
        }
        let window = crop.window(sample, draw, *align, labelled)?;
        Ok(Item { sample: sample.sample, repeat, window, label: None, region: None, padding })
    }
}

/// See [`Plan::digest`].
fn digest(samples: &[PlanSample], options: &PlanOptions, pool: &Pool, length: usize) -> String {
    let settings = [options.order as u64, options.last as u64, length as u64, samples.len() as u64];
    let samples = samples.iter().flat_map(|sample| {
        let [rows, columns, bands] = [sample.rows, sample.columns, sample.bands].map(u64::from);
        [sample.sample as u64, rows, columns, bands]
    });
    let windows = match &options.crop {
        Crop::Windows(windows) => windows.parts().to_vec(),
        _ => Vec::new(),
    };
    let strata = pool.strata.iter().map(|stratum| u64::from(*stratum));
    let weights = pool.weights.iter().map(|weight| weight.to_bits());
    let blocks = options.blocks.iter().flat_map(|blocks| blocks.parts());
    let parts = settings
        .into_iter()
        .chain(options.crop.parts())
        .chain(windows)
        .chain(blocks)
        .chain(samples)
        .chain(strata)
        .chain(weights)
        // Other plans have the digests that they had before there were mixes.
        .chain(options.is_mix.then_some(1))
        .chain(options.mixes_items.then_some(3))
        .chain((options.align > 1).then_some(u64::from(options.align) << 1));
    format!("{:016x}", random::fold(parts))
}

fn check_samples(samples: &[PlanSample]) -> Result<()> {
    if samples.is_empty() {
        return Err(Error::conflict("there are no samples to plan").with_remedy(remedy![
            "check ",
            Opt::Split,
            " and other filters"
        ]));
    }
    if let Some(empty) = samples.iter().find(|sample| sample.is_empty()) {
        let PlanSample { sample, rows, columns, bands, .. } = empty;
        return Err(Error::conflict(format!(
            "sample {sample} of {rows}x{columns}x{bands} is empty"
        ))
        .with_remedy("leave it out"));
    }
    let mut numbers: Vec<usize> = samples.iter().map(|sample| sample.sample).collect();
    numbers.sort_unstable();
    match numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(twice) => Err(Error::conflict(format!("sample {} is listed twice", twice[0]))
            .with_remedy("list every sample once; to read some more often, give weights")),
    }
}

/// The samples that have windows, in the order in which the windows list them; all samples if
/// windows are not numbered.
fn with_windows(samples: Vec<PlanSample>, crop: &Crop) -> Result<Vec<PlanSample>> {
    let Crop::Windows(windows) = crop else { return Ok(samples) };
    let by_id: HashMap<usize, &PlanSample> =
        samples.iter().map(|sample| (sample.sample, sample)).collect();
    let with =
        windows.samples().iter().map(|id| match by_id.get(id) {
            Some(sample) => Ok((*sample).clone()),
            None => Err(Error::conflict(format!(
                "windows are listed for sample {id}, which is not read"
            ))
            .with_remedy(remedy!["list windows of samples that are read, or check ", Opt::Split])),
        });
    let with = with.collect::<Result<Vec<_>>>()?;
    windows.check(&with)?;
    Ok(with)
}

/// The number of every sample's shape, in order of appearance, and the shapes.
fn number_shapes(samples: &[PlanSample], crop: &Crop) -> Result<(Vec<u32>, Vec<CubeShape>)> {
    let mut shapes = Vec::new();
    let mut numbers = HashMap::new();
    let mut shape_of = Vec::with_capacity(samples.len());
    for sample in samples {
        let (rows, columns) = crop.size(sample)?;
        let shape = CubeShape::new(rows as usize, columns as usize, sample.bands as usize);
        let number = *numbers.entry(shape).or_insert_with(|| {
            shapes.push(shape);
            shapes.len() as u32 - 1
        });
        shape_of.push(number);
    }
    Ok((shape_of, shapes))
}

/// Every sample's class or group as a number from 0, whichever the order uses, and how many there
/// are.
fn number_strata(
    samples: &[PlanSample],
    order: Order,
    classes_of_pixels: bool,
) -> Result<(Vec<u32>, usize)> {
    let (name, of): (_, fn(&PlanSample) -> Option<u32>) = match order {
        Order::ClassBalanced if classes_of_pixels => return Ok((Vec::new(), 0)),
        Order::ClassBalanced => ("label", |sample| sample.class),
        Order::GroupsSpread | Order::GroupsTogether => ("group", |sample| sample.group),
        Order::Sequential | Order::Shuffled | Order::Weighted => return Ok((Vec::new(), 0)),
    };
    let without = |sample: &PlanSample| {
        Error::conflict(format!("sample {} has no {name}, which this order needs", sample.sample))
            .with_remedy(remedy![
                format!("give every sample a {name} with "),
                Command::Convert.with(Opt::Table),
                ", leave out the others, or choose another ",
                Opt::Order
            ])
    };
    let strata: Vec<u32> = samples
        .iter()
        .map(|sample| of(sample).ok_or_else(|| without(sample)))
        .collect::<Result<_>>()?;
    let mut distinct = strata.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let number = |stratum| distinct.partition_point(|other| *other < stratum) as u32;
    Ok((strata.into_iter().map(number).collect(), distinct.len()))
}

/// Number of windows of every sample in a round.
fn count_windows(samples: &[PlanSample], options: &PlanOptions) -> Result<Vec<u32>> {
    let mut items = 0u64;
    let count = |(number, sample)| {
        let windows = match &options.crop {
            Crop::Windows(windows) => u64::from(windows.of_sample(number)),
            crop => crop.windows(sample),
        };
        items = items.saturating_add(windows);
        u32::try_from(items).map(|_| windows as u32).map_err(|_| too_many())
    };
    samples.iter().enumerate().map(count).collect()
}

/// The blocks that the options ask for, with the items of these samples.
fn plan_blocks(
    samples: &[PlanSample],
    options: &PlanOptions,
    counts: &[u32],
) -> Result<Option<Arc<PlannedBlocks>>> {
    let Some(blocks) = &options.blocks else { return Ok(None) };
    if options.order != Order::Shuffled {
        return Err(Error::conflict(format!(
            "a shuffle window cannot be used with {} order",
            options.order
        ))
        .with_remedy(remedy![
            "leave out ",
            Opt::ShuffleWindow,
            ", or choose ",
            Opt::Order.to(Order::Shuffled.to_string())
        ]));
    }
    let windows = match &options.crop {
        Crop::Windows(windows) => Some(&**windows),
        _ => None,
    };
    Ok(Some(PlannedBlocks::new(blocks, samples, counts, windows)?.into()))
}

/// Running sums of the weights, if the order uses them.
fn running_weights(samples: &[PlanSample], order: Order) -> Result<Vec<f64>> {
    if order != Order::Weighted {
        return Ok(Vec::new());
    }
    let remedy = "give weights of 0 or more, not all 0";
    if let Some(PlanSample { sample, weight, .. }) =
        samples.iter().find(|sample| !(sample.weight >= 0.0 && sample.weight.is_finite()))
    {
        return Err(
            Error::conflict(format!("sample {sample} has the weight {weight}")).with_remedy(remedy)
        );
    }
    let mut sum = 0.0;
    let add = |sample: &PlanSample| {
        sum += sample.weight;
        sum
    };
    let sums: Vec<f64> = samples.iter().map(add).collect();
    if sum > 0.0 && sum.is_finite() {
        return Ok(sums);
    }
    Err(Error::conflict(format!("the sum of the weights is {sum}")).with_remedy(remedy))
}

/// Refuses epochs without items, and epochs with more items or repeats than 32 bits can count.
fn check_length(length: usize, items: usize) -> Result<()> {
    if length == 0 {
        return Err(Error::conflict("an epoch has 0 items")
            .with_remedy(remedy!["give at least 1 as ", Opt::EpochLength]));
    }
    match length.checked_add(items) {
        Some(both) if u32::try_from(both).is_ok() => Ok(()),
        _ => Err(too_many()),
    }
}

fn too_many() -> Error {
    Error::conflict("an epoch and a round of its order have more than 4294967295 items together")
        .with_remedy(remedy![
            "choose a larger ",
            Opt::GridStep,
            ", a smaller ",
            Opt::CropsPerCube,
            " or a smaller ",
            Opt::EpochLength
        ])
}

/// `1 batch`, `2 batches`.
fn plural(count: impl Display, name: &str) -> String {
    let count = count.to_string();
    let ending = match (count.as_str(), name.ends_with("ch") || name.ends_with('s')) {
        ("1", _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{count} {name}{ending}")
}
