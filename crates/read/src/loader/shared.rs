//! What the threads of a loader share.

use std::sync::{Mutex, PoisonError};

use hsipack_format::{CubeShape, DType, Opt, remedy};
use hsipack_store::memory;
use hsipack_store::remote::is_url;

use super::batch_plan::{BatchPlan, lay_out};
use super::cache_choice::{CacheChoice, Chosen};
use super::new_ids::IdTables;
use super::options::LoaderOptions;
use super::stats::{Counters, Statistics};
use super::times::Record;
use crate::cache::{Cache, CacheKind};
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;
use crate::decode::Decoder;
use crate::held::Held;
use crate::plan::{Crop, Order, Pad, Plan, PlanOptions, PlanSample, Segment, State};
use crate::ring::Ring;
use crate::ring::memory::MemoryOptions;
use crate::{Error, Result};

/// What the threads of a loader share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub dataset: Dataset,
    pub options: LoaderOptions,
    pub plan: Plan,
    /// Names of the masks, in the order of their arrays.
    pub masks: Vec<String>,
    /// New class ids for the masks.
    pub new_ids: IdTables,
    pub ring: std::sync::Arc<Ring<BatchPlan>>,
    pub counters: Counters,
    pub cache: Option<Cache>,
    /// The chunks of a shuffle window.
    pub held: Option<Held>,
    /// What is kept in memory, and why.
    pub cached: CacheChoice,
    start: Mutex<Start>,
}

/// Where the feeder has to begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Start {
    /// The generation of the ring. The feeder looks here whenever there is a new one.
    pub generation: u64,
    pub epoch: u64,
    /// The batches of that epoch that were already given.
    pub given: Vec<Segment>,
}

/// A loader before it takes memory and starts threads.
pub(super) struct Prepared {
    pub plan: Plan,
    pub masks: Vec<String>,
    new_ids: IdTables,
    slot_bytes: usize,
    pub chosen: Chosen,
}

impl Prepared {
    pub(super) fn new(dataset: &Dataset, options: &LoaderOptions) -> Result<Self> {
        check(options)?;
        let chosen = choose(dataset, options)?;
        let masks = choose_masks(dataset, options, &chosen)?;
        let new_ids = IdTables::new(dataset, options, &masks, &stacks_of(dataset, &chosen)?)?;
        check_bands(dataset, options, &chosen)?;
        let plan_options = with_patches(dataset, options, &chosen)?;
        let plan = Plan::new(plan_samples(dataset, options, &chosen)?, plan_options)?;
        check_mixing(dataset, &plan, &masks)?;
        let slot_bytes = slot_bytes(dataset, options, &plan, &masks)?;
        let ring_bytes = slot_bytes as u64 * options.slots as u64;
        let chosen = Chosen::of(dataset, options, &plan, &masks, ring_bytes)?;
        Ok(Self { plan, masks, new_ids, slot_bytes, chosen })
    }
}

impl Shared {
    pub(crate) fn new(dataset: Dataset, mut options: LoaderOptions) -> Result<Self> {
        let mut prepared = Prepared::new(&dataset, &options)?;
        let (slot_bytes, cached) = (prepared.slot_bytes, &prepared.chosen.choice);
        (options.cache, options.cache_bytes) = (cached.kind, cached.limit_bytes);
        check_memory(&options, slot_bytes, cached.needed_bytes)?;
        let later = options.memory.later || is_url(dataset.path());
        let memory = MemoryOptions { later, ..options.memory.clone() };
        let ring = Ring::new(options.slots, slot_bytes, &memory)?;
        let (in_blocks, cache) = (prepared.chosen.blocks.is_some(), prepared.chosen.shared.take());
        let mut shared = Self::with_ring(ring, prepared, dataset, options)?;
        let (dataset, bytes) = (&shared.dataset, shared.options.cache_bytes);
        match cache {
            _ if in_blocks => shared.held = Some(Held::new(dataset)?),
            Some(cache) => shared.cache = Some(Cache::shared(cache, bytes)),
            None => shared.cache = Cache::new(dataset, shared.options.cache, bytes)?,
        }
        Ok(shared)
    }

    /// The same without memory. It cannot fill a ring, but it can plan batches and read their items.
    pub(crate) fn without_ring(dataset: Dataset, options: LoaderOptions) -> Result<Self> {
        let prepared = Prepared::new(&dataset, &options)?;
        let memory = MemoryOptions { later: true, plain: true, ..MemoryOptions::default() };
        let ring = Ring::new(options.slots, 0, &memory)?;
        Self::with_ring(ring, prepared, dataset, options)
    }

    /// The same with this ring, and without any cache.
    fn with_ring(
        ring: Ring<BatchPlan>,
        prepared: Prepared,
        dataset: Dataset,
        options: LoaderOptions,
    ) -> Result<Self> {
        let Prepared { plan, masks, new_ids, chosen, .. } = prepared;
        let plan = match chosen.blocks {
            Some(blocks) => plan.in_blocks(blocks)?,
            None => plan,
        };
        Ok(Self {
            dataset,
            options,
            plan,
            masks,
            new_ids,
            ring: ring.into(),
            counters: Counters::new(),
            cache: None,
            held: None,
            cached: chosen.choice,
            start: Mutex::default(),
        })
    }

    pub(crate) fn decoder(&self) -> Decoder<'_> {
        Decoder {
            dataset: &self.dataset,
            bands: self.options.bands.as_deref(),
            cache: self.cache.as_ref(),
            held: self.held.as_ref(),
        }
    }

    /// Bytes that the cache holds.
    pub(crate) fn cached_bytes(&self) -> u64 {
        let held = self.held.as_ref().map_or(0, Held::used);
        held + self.cache.as_ref().map_or(0, Cache::used)
    }

    /// The state before the first batch of an epoch.
    pub(crate) fn state_before(&self, epoch: u64) -> State {
        let shuffle_window = self.cached.shuffle_window.as_ref().map(|window| window.bytes);
        State { shuffle_window, ..State::new(&self.plan, self.dataset.fingerprint(), epoch) }
    }

    /// Whether every chunk that is read is decoded in memory.
    pub(crate) fn keeps_all(&self) -> bool {
        self.cached.kind == CacheKind::Decoded && self.cached_bytes() >= self.cached.needed_bytes
    }

    /// The padding of an array's windows beyond the edge of their cube. If no window reaches there, it does not matter.
    pub(crate) fn pad(&self, array: ArrayRef<'_>) -> Pad {
        let crop = &self.plan.options().crop;
        match crop {
            // Mirrored pixels are not part of a region.
            Crop::Windows(windows) if windows.are_regions() && array.array != 0 => Pad::Value(0.0),
            _ => crop.pad().unwrap_or(Pad::Edge),
        }
    }

    /// Where the times of batches are recorded.
    pub(crate) fn record(&self) -> Record<'_> {
        Record { times: &self.counters.times, trace: self.options.trace.as_deref() }
    }

    /// Where the time went so far, in the schema that all loaders use.
    pub(crate) fn statistics(&self) -> Statistics {
        let loader = self.counters.snapshot(self.options.threads, self.options.slots);
        Statistics {
            schema: 1,
            batches: loader.batches,
            waiting_s: loader.consumer_waiting_s,
            loaders: 1,
            slots: loader.slots,
            times: self.counters.times.get(),
            given_away: 0,
            copied: 0,
            loader,
        }
    }

    /// Where the feeder has to begin.
    pub(crate) fn start(&self) -> Start {
        self.start.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops unfinished batches and makes the feeder begin elsewhere.
    pub(crate) fn restart(&self, epoch: u64, given: Vec<Segment>) {
        // The lock is held meanwhile, so that a feeder that sees the new generation waits for its start.
        let mut start = self.start.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = self.ring.slots().restart();
        *start = Start { generation, epoch, given };
    }
}

/// The plan's options, with windows around labelled pixels or on regions if these are asked for.
fn with_patches(
    dataset: &Dataset,
    options: &LoaderOptions,
    samples: &[usize],
) -> Result<PlanOptions> {
    let windows = match (&options.patches, &options.regions) {
        (None, None) => return Ok(options.plan.clone()),
        (Some(_), Some(_)) => {
            return Err(Error::conflict(
                "patches around labelled pixels and regions cannot be combined",
            )
            .with_remedy("choose one of them"));
        }
        _ if options.plan.crop != Crop::Whole => {
            return Err(Error::conflict(
                "crops and patches around labelled pixels cannot be combined",
            )
            .with_remedy(remedy!["leave out ", Opt::Crop, " or ", Opt::Patch]));
        }
        (Some((mask, patches)), None) => {
            dataset.windows_around_labels(samples, mask, patches, options.plan.seed)?
        }
        (None, Some((mask, regions))) => dataset.windows_of_regions(samples, mask, regions)?,
    };
    Ok(PlanOptions { crop: Crop::Windows(windows.into()), ..options.plan.clone() })
}

fn check(options: &LoaderOptions) -> Result<()> {
    if options.threads == 0 {
        return Err(Error::conflict("there are no decoding threads")
            .with_remedy(remedy!["use at least 1 with ", Opt::Threads]));
    }
    if options.slots < 2 {
        return Err(Error::conflict(format!("the ring has {} slots, too few", options.slots))
            .with_remedy(remedy![
                "use at least 2 ",
                Opt::Slots,
                ", so that one is filled while another is used"
            ]));
    }
    Ok(())
}

/// Compares ring and cache with the available memory. Otherwise the system would end the process later, without a
/// message. The cache never holds more than the `needed` bytes of the decoded chunks that are read.
fn check_memory(options: &LoaderOptions, slot_bytes: usize, needed: u64) -> Result<()> {
    // The notes about each slot count as well: even a billion empty slots do not fit.
    let slot = (slot_bytes as u64).max(NOTES_A_SLOT);
    let ring = slot.saturating_mul(options.slots as u64);
    let cache = match options.cache {
        CacheKind::None => 0,
        _ => options.cache_bytes.min(needed),
    };
    let Some(available) = memory::available() else { return Ok(()) };
    if ring.saturating_add(cache) <= available.bytes {
        return Ok(());
    }
    let what = format!(
        "{} slots of {} take {}{}, but only {} are available {}",
        options.slots,
        memory::size(slot),
        memory::size(ring),
        if cache > 0 { format!(", the cache {}", memory::size(cache)) } else { String::new() },
        memory::size(available.bytes),
        available.by
    );
    let fit = available.bytes.saturating_sub(cache) / slot.max(1);
    let remedy = match fit {
        fit if fit >= 2 => remedy![
            "use fewer ",
            Opt::Slots,
            " or a smaller ",
            Opt::BatchSize,
            format!("; {fit} slots fit")
        ],
        _ if cache > 0 => {
            remedy!["choose a smaller ", Opt::CacheSize, " or ", Opt::BatchSize]
        }
        _ => remedy!["choose a smaller ", Opt::BatchSize, " or ", Opt::Crop],
    };
    Err(Error::memory(what).with_remedy(remedy))
}

/// Bytes that the loader notes about a slot, in addition to its batch.
const NOTES_A_SLOT: u64 = 1024;

/// Ids of the samples that were asked for. A sequential order keeps them as they were given. Otherwise they are
/// ascending, so that a random order does not depend on how they were listed.
fn choose(dataset: &Dataset, options: &LoaderOptions) -> Result<Vec<usize>> {
    let mut ids: Vec<usize> = match &options.samples {
        Some(ids) => ids.clone(),
        None => (0..dataset.len()).collect(),
    };
    if options.plan.order != Order::Sequential {
        ids.sort_unstable();
    }
    if let Some(missing) = ids.iter().find(|id| **id >= dataset.len()) {
        dataset.stack_of(*missing)?;
    }
    if options.splits.is_empty() { Ok(ids) } else { dataset.in_splits(ids, &options.splits) }
}

/// The stacks of samples, each once, in order.
fn stacks_of(dataset: &Dataset, samples: &[usize]) -> Result<Vec<usize>> {
    let stacks = samples.iter().map(|sample| dataset.stack_of(*sample));
    let mut stacks = stacks.collect::<Result<Vec<_>>>()?;
    stacks.sort_unstable();
    stacks.dedup();
    Ok(stacks)
}

fn choose_masks(
    dataset: &Dataset,
    options: &LoaderOptions,
    samples: &[usize],
) -> Result<Vec<String>> {
    let stacks = stacks_of(dataset, samples)?;
    if let Some(names) = &options.masks {
        for (stack, name) in
            stacks.iter().flat_map(|stack| names.iter().map(move |name| (*stack, name)))
        {
            super::batch_plan::place(dataset, stack, name)?;
        }
        return Ok(names.clone());
    }
    if options.patches.is_some() {
        return Ok(Vec::new());
    }
    if let Some((mask, _)) = &options.regions {
        return Ok(vec![mask.clone()]);
    }
    let Some((first, others)) = stacks.split_first() else { return Ok(Vec::new()) };
    let names = dataset.stacks()[*first].masks.iter().map(|mask| mask.name().to_owned());
    let everywhere =
        |name: &String| others.iter().all(|stack| dataset.stacks()[*stack].mask(name).is_some());
    Ok(names.filter(everywhere).collect())
}

fn check_bands(dataset: &Dataset, options: &LoaderOptions, samples: &[usize]) -> Result<()> {
    let Some(bands) = &options.bands else { return Ok(()) };
    if bands.is_empty() {
        return Err(Error::conflict("no bands are chosen").with_remedy("choose some, or all"));
    }
    for stack in stacks_of(dataset, samples)? {
        let has = dataset.image(stack).shape().bands;
        if let Some(band) = bands.iter().find(|band| **band >= has) {
            let name = &dataset.stacks()[stack].name;
            return Err(Error::conflict(format!("there is no band {band} in stack {name}"))
                .at(dataset.path())
                .with_remedy(format!("bands are numbered from 0 to {}", has - 1)));
        }
    }
    Ok(())
}

fn plan_samples(
    dataset: &Dataset,
    options: &LoaderOptions,
    samples: &[usize],
) -> Result<Vec<PlanSample>> {
    if let Some(weights) = options.weights.as_ref().filter(|all| all.len() != dataset.len()) {
        return Err(Error::conflict(format!(
            "there are {} weights for {} samples",
            weights.len(),
            dataset.len()
        ))
        .at(dataset.path())
        .with_remedy("give one weight for every sample of the dataset, in their order"));
    }
    let weighted = options.plan.order == Order::Weighted;
    let plan_sample = |sample: &usize| {
        let number = *sample;
        let stack = dataset.stack_of(number).expect("chosen among those that exist");
        let shape = dataset.image(stack).shape();
        // The axes of a cube that can be read fit into 32 bits. Its chunks hold whole rows of columns or tiles below
        // 2 GiB, and a file of 2^32 rows would be larger than any disk.
        let axis = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let weight = match &options.weights {
            Some(weights) => Some(weights[number]),
            None if weighted => {
                let sample = dataset.samples().get(number)?;
                sample.columns.get("weight").and_then(|value| value.as_f64())
            }
            None => None,
        };
        Ok(PlanSample {
            group: dataset.labels().group_of(number),
            class: dataset.labels().class_of(number),
            weight: weight.unwrap_or(1.0),
            ..PlanSample::new(*sample, axis(shape.rows), axis(shape.columns), axis(shape.bands))
        })
    };
    samples.iter().map(plan_sample).collect()
}

/// Windows of one shape from several stacks come in one batch, so their element types must be the same.
fn check_mixing(dataset: &Dataset, plan: &Plan, masks: &[String]) -> Result<()> {
    let samples: Vec<usize> = plan.samples().iter().map(|sample| sample.sample).collect();
    let stacks = stacks_of(dataset, &samples)?;
    let types = |stack: usize| -> Result<Vec<DType>> {
        let masks = masks.iter().map(|name| super::batch_plan::place(dataset, stack, name));
        let arrays = std::iter::once(Ok(0)).chain(masks);
        arrays.map(|array| Ok(dataset.array(stack, array?).dtype())).collect()
    };
    let Some(first) = stacks.first().copied() else { return Ok(()) };
    for stack in &stacks[1..] {
        let (one, other) = (types(first)?, types(*stack)?);
        if let Some(place) = (0..one.len()).find(|place| one[*place] != other[*place]) {
            let array = place.checked_sub(1).map_or("image", |mask| masks[mask].as_str());
            return Err(Error::unsupported(format!(
                "array {array} is {} in stack {}, but {} in stack {}",
                one[place],
                dataset.stacks()[first].name,
                other[place],
                dataset.stacks()[*stack].name
            ))
            .at(dataset.path())
            .with_remedy("pack them with the same type, or read the stacks one by one"));
        }
    }
    Ok(())
}

/// Bytes of the largest batch.
fn slot_bytes(
    dataset: &Dataset,
    options: &LoaderOptions,
    plan: &Plan,
    masks: &[String],
) -> Result<usize> {
    let samples: Vec<usize> = plan.samples().iter().map(|sample| sample.sample).collect();
    let bands = options.bands.as_deref();
    let decoder = Decoder { dataset, bands, cache: None, held: None };
    let mut largest = 0;
    for stack in stacks_of(dataset, &samples)? {
        let bands = dataset.image(stack).shape().bands;
        for CubeShape { rows, columns, .. } in
            plan.shapes().iter().filter(|shape| shape.bands == bands)
        {
            let len = options.plan.batch_size;
            let bytes = lay_out(&decoder, masks, stack, len, (*rows, *columns), &mut Vec::new())?;
            largest = largest.max(bytes);
        }
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_without_a_bound_needs_no_more_than_what_is_read() {
        let mut options = LoaderOptions::new(1);
        (options.cache, options.cache_bytes) = (CacheKind::Decoded, u64::MAX);
        check_memory(&options, 1000, 1000).unwrap();
        if memory::available().is_some() {
            let error = check_memory(&options, 1000, u64::MAX / 2).unwrap_err();
            assert!(error.to_string().contains("the cache"), "{error}");
        }
    }
}
