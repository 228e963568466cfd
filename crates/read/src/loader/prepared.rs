//! A loader before it takes memory and starts threads.

use std::sync::Arc;

use hsipack_format::{CubeShape, DType, Opt, remedy};
use hsipack_store::memory;

use super::batch_plan::lay_out;
use super::cache_choice::{CacheChoice, Chosen};
use super::new_ids::IdTables;
use super::options::{LoaderOptions, ShuffleWindow};
use super::outlook::Outlook;
use crate::cache::CacheKind;
use crate::dataset::Dataset;
use crate::decode::Decoder;
use crate::plan::{Crop, Order, Plan, PlanOptions, PlanSample, Share, State};
use crate::{Error, Result};

/// A [`Loader`](super::Loader) whose options are checked and whose epochs are planned, but which has neither memory nor threads yet.
///
/// It can be made long before training begins, in a process that later forks, and before it is known which of several
/// processes this one is ([`at`](Self::at)).
///
/// ```no_run
/// use hsipack_read::plan::Share;
/// use hsipack_read::{Dataset, LoaderOptions, PreparedLoader};
///
/// let dataset = Dataset::open("tissue.hsipack")?;
/// let prepared = PreparedLoader::new(&dataset, LoaderOptions::new(6))?;
/// println!("{} batches", prepared.batches_per_epoch(0)?);
/// let loader = prepared.at(Share { rank: 1, world_size: 4 })?.start()?;
/// # Ok::<(), hsipack_read::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PreparedLoader {
    pub(crate) dataset: Dataset,
    pub(crate) options: LoaderOptions,
    /// The shuffle window of the options or, within an epoch that was resumed, the one that the epoch began with.
    shuffle_window: ShuffleWindow,
    /// The plan with all windows of an epoch shuffled together.
    unblocked: Plan,
    /// The plan of the epochs, with the shuffle window that was chosen.
    pub(crate) plan: Plan,
    pub(crate) masks: Vec<String>,
    pub(crate) new_ids: Arc<IdTables>,
    pub(crate) slot_bytes: usize,
    pub(crate) cached: CacheChoice,
    /// Where the loader begins.
    pub(crate) begin: State,
}

impl PreparedLoader {
    /// Checks the options and plans the epochs. The loader will begin with epoch 0.
    ///
    /// # Errors
    /// If the options contradict each other or the dataset, or if memory is too small for the ring.
    pub fn new(dataset: &Dataset, options: LoaderOptions) -> Result<Self> {
        let prepared = Self::unchecked(dataset, options)?;
        prepared.check_memory()?;
        prepared.batches_per_epoch(0)?;
        Ok(prepared)
    }

    /// The same without a look at the memory that a ring would need.
    pub(crate) fn unchecked(dataset: &Dataset, options: LoaderOptions) -> Result<Self> {
        dataset.check_unchanged()?;
        check(&options)?;
        let samples = choose(dataset, &options)?;
        let masks = choose_masks(dataset, &options, &samples)?;
        let new_ids = IdTables::new(dataset, &options, &masks, &stacks_of(dataset, &samples)?)?;
        check_bands(dataset, &options, &samples)?;
        let plan_options = with_patches(dataset, &options, &samples)?;
        let plan = Plan::new(plan_samples(dataset, &options, &samples)?, plan_options)?;
        check_mixing(dataset, &plan, &masks)?;
        let slot_bytes = slot_bytes(dataset, &options, &plan, &masks)?;
        let shuffle_window = options.shuffle_window;
        let (plan, unblocked, cached) = chosen(dataset, &options, plan, &masks, slot_bytes)?;
        let begin = state_before(&plan, dataset, &cached, 0);
        Ok(Self {
            dataset: dataset.clone(),
            options,
            shuffle_window,
            unblocked,
            plan,
            masks,
            new_ids: new_ids.into(),
            slot_bytes,
            cached,
            begin,
        })
    }

    /// The same loader for another place among the processes that train together.
    ///
    /// # Errors
    /// If nothing is left for each process, there is not enough memory, or a shuffle window is no longer possible.
    pub fn at(self, share: Share) -> Result<Self> {
        if self.options.share == share {
            return Ok(self);
        }
        let prepared = Self { options: LoaderOptions { share, ..self.options }, ..self };
        prepared.batches_per_epoch(prepared.begin.epoch)?;
        prepared.chosen_again()
    }

    /// The same loader, which will go on where another loader was when it returned `state`. Batch size, threads and world
    /// size may differ: what is left of the epoch is divided again, and no item comes twice or is lost. Samples and masks
    /// may have been added to the dataset since ([`State::check`]).
    ///
    /// # Errors
    /// If the state is of another dataset, seed or plan.
    pub fn resumed(mut self, state: &State) -> Result<Self> {
        let shuffle_window = match self.options.shuffle_window {
            // The epoch goes on as it began, whatever memory this machine has.
            ShuffleWindow::Auto if state.is_within_epoch() => {
                state.shuffle_window.map_or(ShuffleWindow::All, ShuffleWindow::Bytes)
            }
            other => other,
        };
        if shuffle_window != self.shuffle_window {
            self = Self { shuffle_window, ..self }.chosen_again()?;
        }
        let then = self.dataset.samples_at(&state.fingerprint);
        state.check(&self.plan, self.dataset.fingerprint(), then)?;
        if let Some(then) = then.filter(|_| state.fingerprint != self.dataset.fingerprint()) {
            self.check_grown(state, then)?;
        }
        self.begin = State { given: state.given.clone(), ..self.state_before(state.epoch) };
        // What is impossible from the start is reported here already.
        self.plan.epoch(state.epoch, &state.given, self.options.share)?;
        Ok(self)
    }

    /// The same loader, which will begin with this epoch.
    #[must_use]
    pub fn at_epoch(mut self, epoch: u64) -> Self {
        self.begin = self.state_before(epoch);
        self
    }

    /// Decides again what is kept in memory.
    pub(super) fn chosen_again(self) -> Result<Self> {
        let Self { dataset, unblocked, masks, slot_bytes, shuffle_window, .. } = &self;
        let options = LoaderOptions { shuffle_window: *shuffle_window, ..self.options.clone() };
        let (plan, unblocked, cached) =
            chosen(dataset, &options, unblocked.clone(), masks, *slot_bytes)?;
        let begin = State {
            given: self.begin.given.clone(),
            ..state_before(&plan, dataset, &cached, self.begin.epoch)
        };
        let prepared = Self { plan, unblocked, cached, begin, ..self };
        prepared.check_memory()?;
        Ok(prepared)
    }

    fn check_memory(&self) -> Result<()> {
        let mut options = self.options.clone();
        (options.cache, options.cache_bytes) = (self.cached.kind, self.cached.limit_bytes);
        check_memory(&options, self.slot_bytes, self.cached.needed_bytes)
    }

    /// Checks what else may differ if cubes or masks were added since the dataset had `then` samples: a plan does not know
    /// the labels of samples and pixels.
    fn check_grown(&self, state: &State, then: usize) -> Result<()> {
        // Crops are chosen by all masks that are read.
        let by_masks = matches!(
            self.plan.options().crop,
            Crop::Random { min_labelled, .. } if min_labelled > 0.0
        );
        if by_masks && state.is_within_epoch() {
            return Err(state.began_before(then));
        }
        let labels = self.dataset.labels();
        if let Some((class, before)) = labels.renumbered(then) {
            let label = &labels.classes()[class as usize].label;
            return Err(Error::state(format!(
                "samples with new labels were added, so the classes have other numbers than in the training state: {label} was {before} and is now {class}"
            ))
            .at(self.dataset.path())
            .with_remedy(remedy![
                "train on with the dataset as it was: open it with ",
                Opt::AsOf.to(state.fingerprint.clone())
            ]));
        }
        Ok(())
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The options.
    pub fn options(&self) -> &LoaderOptions {
        &self.options
    }

    /// The plan of the epochs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Names of the masks that batches have.
    pub fn masks(&self) -> &[String] {
        &self.masks
    }

    /// Cache policy, with its reason. The loader may decide otherwise when it starts.
    pub fn cache(&self) -> &CacheChoice {
        &self.cached
    }

    /// Samples and chunks that the loader reads, and their costs.
    pub fn outlook(&self) -> Outlook {
        Outlook::new(&self.dataset, &self.plan, self.cached.clone())
    }

    /// The state that the loader begins with.
    pub fn state(&self) -> &State {
        &self.begin
    }

    /// Number of batches that every rank gets in a whole epoch.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn batches_per_epoch(&self, epoch: u64) -> Result<usize> {
        Ok(self.plan.epoch(epoch, &[], self.options.share)?.batches())
    }

    /// The state before the first batch of an epoch.
    fn state_before(&self, epoch: u64) -> State {
        state_before(&self.plan, &self.dataset, &self.cached, epoch)
    }
}

/// The state before the first batch of an epoch.
pub(super) fn state_before(
    plan: &Plan,
    dataset: &Dataset,
    cached: &CacheChoice,
    epoch: u64,
) -> State {
    let shuffle_window = cached.shuffle_window.as_ref().map(|window| window.bytes);
    State { shuffle_window, ..State::new(plan, dataset.fingerprint(), epoch) }
}

/// The plan with the shuffle window that is chosen, the plan without one, and what is kept in memory.
fn chosen(
    dataset: &Dataset,
    options: &LoaderOptions,
    unblocked: Plan,
    masks: &[String],
    slot_bytes: usize,
) -> Result<(Plan, Plan, CacheChoice)> {
    let ring_bytes = slot_bytes as u64 * options.slots as u64;
    let Chosen { choice, blocks } = Chosen::of(dataset, options, &unblocked, masks, ring_bytes)?;
    let plan = match blocks {
        Some(blocks) => unblocked.clone().in_blocks(blocks)?,
        None => unblocked.clone(),
    };
    Ok((plan, unblocked, choice))
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
pub(super) fn check_memory(options: &LoaderOptions, slot_bytes: usize, needed: u64) -> Result<()> {
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
