//! A dataset of a loader, before memory is taken and threads are started.

use std::sync::Arc;

use hsipack_augment::Pipeline;
use hsipack_format::metadata::Role;
use hsipack_format::{CubeShape, Opt, Ratio, remedy};
use hsipack_store::dataset::ChunkArray;

use super::arrays::place;
use super::band_fit::BandFit;
use super::batch_plan::lay_out;
use super::cache_choice::{CacheChoice, Chosen, needed_bytes, ranks_here, stored_bytes};
use super::new_ids::IdTables;
use super::options::{LoaderOptions, OnDamage, ShuffleWindow};
use super::workload::Workload;
use crate::dataset::Dataset;
use crate::decode::Decoder;
use crate::device::page_cache::Demand;
use crate::device::resident::Residents;
use crate::plan::{Crop, Order, Plan, PlanOptions, PlanSample, Share, State};
use crate::{Error, Result};

/// One of the datasets that a loader reads: its samples, its plan, and what is kept of it in
/// memory.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its number among the datasets of the loader.
    pub(crate) number: usize,
    pub(crate) dataset: Dataset,
    pub(crate) options: LoaderOptions,
    /// The shuffle window of the options or, within an epoch that was resumed, the one that the
    /// epoch began with.
    shuffle_window: ShuffleWindow,
    /// The plan with all windows of an epoch shuffled together.
    unblocked: Plan,
    /// The plan of the epochs, with the shuffle window that was chosen.
    pub(crate) plan: Plan,
    pub(crate) masks: Vec<String>,
    pub(crate) targets: Vec<String>,
    pub(crate) images: Vec<String>,
    pub(crate) new_ids: Arc<IdTables>,
    /// The damage of samples without windows: damaged masks do not say where their windows are.
    skipped: Arc<[String]>,
    /// Bytes of its largest batch.
    pub(crate) slot_bytes: usize,
    /// Its fraction of the memory for chunks.
    memory_fraction: f64,
    pub(crate) cached: CacheChoice,
    /// Its samples in the memory of a device.
    pub(crate) residents: Option<Arc<Residents>>,
    /// Augmentations that draw the bands that images need.
    pub(crate) band_draw: Option<Arc<Pipeline>>,
    /// How its images get the bands of batches, if these have images of several datasets with
    /// others.
    pub(crate) fit: Option<Arc<BandFit>>,
}

impl Member {
    /// Checks the options and plans the epochs. What is kept in memory is not decided yet
    /// ([`Self::choose`]).
    pub(super) fn new(number: usize, dataset: &Dataset, options: LoaderOptions) -> Result<Self> {
        dataset.check_unchanged()?;
        check(&options)?;
        let options = match options.plan.mixes_items {
            true => options.for_mixing()?,
            false => options,
        };
        let dataset = &dataset.clone().with_integers(options.integers);
        let samples = choose(dataset, &options)?;
        let masks = choose_masks(dataset, &options, &samples)?;
        let targets = choose_companions(dataset, Role::Target, &options.targets, &samples)?;
        let images = choose_companions(dataset, Role::Image, &options.images, &samples)?;
        let beside = [&masks[..], &targets, &images].concat();
        let new_ids = IdTables::new(dataset, &options, &masks, &stacks_of(dataset, &samples)?)?;
        check_bands(dataset, &options, &samples)?;
        let (plan_options, skipped) = with_patches(dataset, &options, &samples)?;
        let align = alignment(dataset, &images, &samples, &plan_options)?;
        let plan_options = PlanOptions { align, ..plan_options };
        let plan = Plan::new(plan_samples(dataset, &options, &samples)?, plan_options)?;
        check_mixing(dataset, &plan, &beside)?;
        let slot_bytes = slot_bytes(dataset, &options, &plan, &beside, None)?;
        let needed = needed_bytes(dataset, &plan, &beside, options.bands.as_deref())?;
        Ok(Self {
            number,
            dataset: dataset.clone(),
            shuffle_window: options.shuffle_window,
            options,
            unblocked: plan.clone(),
            plan,
            masks,
            targets,
            images,
            new_ids: new_ids.into(),
            skipped: skipped
                .into_iter()
                .map(|damage| damage.without_remedy().to_string())
                .collect(),
            slot_bytes,
            memory_fraction: 1.0,
            cached: CacheChoice::open(needed),
            residents: None,
            band_draw: None,
            fit: None,
        })
    }

    /// The same, whose images are used by nothing but these augmentations. If they draw bands
    /// first, and bands are stored in groups, only groups with drawn bands are read.
    pub(crate) fn drawing_bands(mut self, pipeline: &Arc<Pipeline>) -> Self {
        let has_groups =
            self.dataset.stacks().iter().any(|stack| stack.image.grid().band_groups() > 1);
        // The draw for a batch depends on all its samples.
        let may_skip = self.options.on_damage == OnDamage::Skip;
        let draws = pipeline.draws_bands_first() && has_groups && !may_skip;
        self.band_draw = draws.then(|| pipeline.clone());
        self
    }

    /// The same, whose images get the bands of batches in this way.
    pub(super) fn fitted(self, fit: Option<BandFit>) -> Result<Self> {
        let Self { dataset, options, plan, .. } = &self;
        let slot_bytes = slot_bytes(dataset, options, plan, &self.beside(), fit.as_ref())?;
        Ok(Self { slot_bytes, fit: fit.map(Arc::new), ..self })
    }

    /// The same with this fraction of the memory for chunks.
    pub(super) fn with_memory(mut self, fraction: f64) -> Self {
        self.memory_fraction = fraction;
        let part = |bytes: u64| (bytes as f64 * fraction) as u64;
        if self.options.cache_bytes > 0 {
            // 0 would leave the size to the loader.
            self.options.cache_bytes = part(self.options.cache_bytes).max(1);
        }
        if let ShuffleWindow::Bytes(bytes) = self.options.shuffle_window {
            self.options.shuffle_window = ShuffleWindow::Bytes(part(bytes).max(1));
            self.shuffle_window = self.options.shuffle_window;
        }
        self
    }

    /// The same with another number of items in an epoch.
    pub(super) fn of_length(mut self, length: usize) -> Result<Self> {
        self.options.plan.epoch_length = Some(length);
        self.unblocked = self.unblocked.of_length(length)?;
        Ok(Self { plan: self.unblocked.clone(), ..self })
    }

    /// The same at another place among the processes that train together.
    pub(super) fn at(self, share: Share) -> Self {
        Self { options: LoaderOptions { share, ..self.options }, ..self }
    }

    /// Decides what is kept in memory beside a ring of `ring_bytes`.
    pub(super) fn choose(self, ring_bytes: u64) -> Result<Self> {
        let options = LoaderOptions { shuffle_window: self.shuffle_window, ..self.options.clone() };
        let Self { dataset, unblocked, memory_fraction, .. } = &self;
        let beside = &self.beside();
        let needed = self.cached.needed_bytes;
        let Chosen { choice, blocks } =
            Chosen::of(dataset, &options, unblocked, beside, needed, ring_bytes, *memory_fraction)?;
        let plan = match blocks {
            Some(blocks) => unblocked.in_blocks(blocks)?,
            None => unblocked.clone(),
        };
        Ok(Self { plan, cached: choice, ..self })
    }

    /// The same, so that it can go on from a state of this dataset ([`Self::check_state`]).
    pub(super) fn resumed(self, state: &State, ring_bytes: u64) -> Result<Self> {
        let shuffle_window = match self.options.shuffle_window {
            // The epoch goes on as it began, whatever memory this machine has.
            ShuffleWindow::Auto if state.is_within_epoch() => {
                state.shuffle_window.map_or(ShuffleWindow::All, ShuffleWindow::Bytes)
            }
            other => other,
        };
        let member = match shuffle_window == self.shuffle_window {
            true => self,
            false => Self { shuffle_window, ..self }.choose(ring_bytes)?,
        };
        member.check_state(state)?;
        Ok(member)
    }

    /// Says whether training can go on from a state of this dataset.
    fn check_state(&self, state: &State) -> Result<()> {
        let then = self.dataset.samples_at(&state.fingerprint);
        state.check(&self.plan, self.dataset.fingerprint(), then)?;
        match then.filter(|_| state.fingerprint != self.dataset.fingerprint()) {
            Some(then) => self.check_grown(state, then),
            None => Ok(()),
        }
    }

    /// Checks what else may differ if cubes or masks were added since the dataset had `then`
    /// samples: a plan does not know the labels of samples and pixels.
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

    /// The damage of samples that no epoch reads, because their masks do not say where their
    /// windows are.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// The arrays of a stack that are read: the image, then masks, targets and further images.
    pub(crate) fn arrays(&self, stack: usize) -> Result<Vec<usize>> {
        let beside = self.beside();
        let beside = beside.iter().map(|name| place(&self.dataset, stack, name));
        std::iter::once(Ok(0)).chain(beside).collect()
    }

    /// Amounts that it reads from files, for a device that reads them in the system's page cache.
    ///
    /// # Errors
    /// If a stack lacks an array that is read.
    pub(crate) fn demand(&self) -> Result<Demand> {
        let bands = self.options.bands.as_deref();
        let stored_bytes = stored_bytes(&self.dataset, &self.plan, &self.beside(), bands)?;
        let samples = self.plan.samples().len() as u64;
        let is_read_once = self.plan.options().crop == Crop::Whole;
        let sample_bytes = is_read_once.then(|| stored_bytes / samples.max(1));
        let ranks = ranks_here().min(self.options.share.world_size as u64);
        Ok(Demand { stored_bytes, sample_bytes, ranks })
    }

    /// Whether values are changed on the way to batches.
    pub(crate) fn changes_values(&self) -> bool {
        !self.options.new_ids.is_empty()
    }

    /// For each stack that is read, whether each band of its images in batches is valid, if images
    /// of several datasets are resampled to the same bands; otherwise `None`.
    pub fn resampled_bands(&self, stack: usize) -> Option<&[bool]> {
        self.fit.as_ref().and_then(|fit| fit.valid(stack))
    }

    /// Whether each band that is read from a stack has values, and is not marked as bad.
    pub(crate) fn good_bands(&self, stack: usize) -> Vec<bool> {
        let image = &self.dataset.stacks()[stack].image;
        let shape = image.shape();
        let mut good = self.dataset.good_bands(stack).unwrap_or_else(|| vec![true; shape.bands]);
        if let Some(statistics) = self.dataset.statistics(stack) {
            let values = image.len() * shape.rows * shape.columns;
            let has_values = statistics.nan.iter().map(|nan| *nan < values as u64);
            good.iter_mut().zip(has_values).for_each(|(good, has_values)| *good &= has_values);
        }
        match &self.options.bands {
            Some(bands) => bands.iter().map(|band| good[*band]).collect(),
            None => good,
        }
    }

    /// Its number among the datasets of the loader.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// The options, as far as they concern this dataset: its samples, seed, epoch length and cache.
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

    /// Names of the targets that batches have.
    pub fn targets(&self) -> &[String] {
        &self.targets
    }

    /// Names of the further images that batches have.
    pub fn images(&self) -> &[String] {
        &self.images
    }

    /// The further images that batches have: names, resolutions and numbers of bands.
    pub fn further(&self) -> Vec<(&str, Ratio, usize)> {
        let image = |name| {
            let stacks = self.dataset.stacks();
            let image = stacks.iter().find_map(|stack| stack.companion(name))?;
            Some((image.ratio(), image.shape().bands))
        };
        let described = self.images.iter().filter_map(|name| {
            let (ratio, bands) = image(name)?;
            Some((name.as_str(), ratio, bands))
        });
        described.collect()
    }

    /// Names of the masks, of the targets, then of the further images: the arrays beside the image.
    pub(super) fn beside(&self) -> Vec<String> {
        [&self.masks[..], &self.targets, &self.images].concat()
    }

    /// The companions that are read, with their types, channels or bands, and resolutions.
    pub(super) fn companion_kinds(&self) -> impl Iterator<Item = (&str, String)> {
        self.targets.iter().chain(&self.images).filter_map(|name| {
            let stacks = self.dataset.stacks();
            let companion = stacks.iter().find_map(|stack| stack.companion(name))?;
            Some((name.as_str(), kind_of(companion)))
        })
    }

    /// Cache policy, with its reason. The loader may decide otherwise when it starts.
    pub fn cache(&self) -> &CacheChoice {
        &self.cached
    }

    /// Samples and chunks that the loader reads, and their costs.
    pub fn workload(&self) -> Workload {
        let bands = self.options.bands.as_deref();
        Workload::new(&self.dataset, &self.plan, bands, self.cached.clone())
    }

    /// The state before the first batch of an epoch.
    pub(super) fn state_before(&self, epoch: u64) -> State {
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

/// The plan's options, with windows around labelled pixels or on regions if these are asked for.
fn with_patches(
    dataset: &Dataset,
    options: &LoaderOptions,
    samples: &[usize],
) -> Result<(PlanOptions, Vec<Error>)> {
    let on_damage = options.on_damage;
    let (windows, skipped) = match (&options.patches, &options.regions) {
        (None, None) => return Ok((options.plan.clone(), Vec::new())),
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
            let seed = options.plan.seed;
            dataset.windows_around_labels(samples, mask, patches, seed, on_damage)?
        }
        (None, Some((mask, regions))) => {
            dataset.windows_of_regions(samples, mask, regions, on_damage)?
        }
    };
    let crop = Crop::Windows(windows.into());
    Ok((PlanOptions { crop, ..options.plan.clone() }, skipped))
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

/// Ids of the samples that were asked for. A sequential order keeps them as they were given.
/// Otherwise they are ascending, so that a random order does not depend on how they were listed.
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
pub(super) fn stacks_of(dataset: &Dataset, samples: &[usize]) -> Result<Vec<usize>> {
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
            place(dataset, stack, name)?;
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

/// The companions of a role that are read: those that `chosen` names, otherwise those that all
/// stacks have.
fn choose_companions(
    dataset: &Dataset,
    role: Role,
    chosen: &Option<Vec<String>>,
    samples: &[usize],
) -> Result<Vec<String>> {
    let stacks = stacks_of(dataset, samples)?;
    let has = |stack: usize, name: &str| {
        dataset.stacks()[stack].companions_of(role).any(|array| array.name() == name)
    };
    if let Some(names) = chosen {
        for name in names {
            if let Some(stack) = stacks.iter().find(|stack| !has(**stack, name)) {
                return Err(dataset.no_companion(*stack, role, name));
            }
        }
        return Ok(names.clone());
    }
    let Some((first, others)) = stacks.split_first() else { return Ok(Vec::new()) };
    let names = dataset.stacks()[*first].companions_of(role).map(|array| array.name().to_owned());
    Ok(names.filter(|name| others.iter().all(|stack| has(*stack, name))).collect())
}

/// The type of a companion, its channels or bands, and its resolution, for errors.
fn kind_of(companion: &ChunkArray) -> String {
    let (dtype, bands) = (companion.meta().dtype, companion.shape().bands);
    let words = companion.role().map_or("band", Role::bands);
    let bands = match companion.has_bands() {
        true => format!(" with {bands} {words}s"),
        false => String::new(),
    };
    match companion.ratio() {
        ratio if ratio.is_same() => format!("{dtype}{bands}"),
        ratio => format!("{dtype}{bands} and {ratio} times the rows and columns"),
    }
}

/// The number of rows and columns at whose multiples windows begin and end, so that they hold whole
/// pixels of all further images.
///
/// # Errors
/// If the crops, patches or regions do not.
fn alignment(
    dataset: &Dataset,
    images: &[String],
    samples: &[usize],
    plan: &PlanOptions,
) -> Result<u32> {
    let mut align = 1;
    for stack in stacks_of(dataset, samples)? {
        for image in dataset.stacks()[stack].companions_of(Role::Image) {
            let step = image.ratio().coarser();
            if step == 1 || !images.iter().any(|name| name == image.name()) {
                continue;
            }
            let named = || {
                format!(
                    "the further image {:?}, which has a pixel for {step} of the cube along each axis",
                    image.name()
                )
            };
            plan.crop.check_aligned(step).map_err(|(what, other)| {
                Error::conflict(format!("{what} do not fit {}", named()))
                    .at(dataset.path())
                    .with_remedy(format!("read without that image, or choose {other}"))
            })?;
            align = least_common_multiple(align, step).ok_or_else(|| {
                Error::unsupported(format!("no window fits {} and the others", named()))
                    .at(dataset.path())
                    .with_remedy("read fewer further images")
            })?;
        }
    }
    Ok(align)
}

fn least_common_multiple(first: u32, other: u32) -> Option<u32> {
    let (mut divisor, mut remainder) = (first, other);
    while remainder > 0 {
        (divisor, remainder) = (remainder, divisor % remainder);
    }
    (first / divisor).checked_mul(other)
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

/// The length of an axis. The axes of a cube that can be read fit into 32 bits: its chunks hold
/// whole rows of columns or tiles below 2 GiB, and a file of 2^32 rows would be larger than any
/// disk.
fn axis(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Windows of one shape from several stacks come in one batch, so their element types must be the
/// same, and the channels, bands and resolutions of their companions.
fn check_mixing(dataset: &Dataset, plan: &Plan, beside: &[String]) -> Result<()> {
    let samples: Vec<usize> = plan.samples().iter().map(|sample| sample.sample).collect();
    let stacks = stacks_of(dataset, &samples)?;
    let types = |stack: usize| -> Result<Vec<String>> {
        let others = beside.iter().map(|name| place(dataset, stack, name));
        let arrays = std::iter::once(Ok(0)).chain(others);
        let kind = |array: Result<usize>| {
            let array = dataset.array(stack, array?);
            Ok(match array.chunks.role() {
                Some(_) => kind_of(array.chunks),
                None => array.dtype().to_string(),
            })
        };
        arrays.map(kind).collect()
    };
    let Some(first) = stacks.first().copied() else { return Ok(()) };
    for stack in &stacks[1..] {
        let (expected, found) = (types(first)?, types(*stack)?);
        if let Some(number) = (0..expected.len()).find(|number| expected[*number] != found[*number])
        {
            let array = number.checked_sub(1).map_or("image", |array| beside[array].as_str());
            return Err(Error::unsupported(format!(
                "array {array} is {} in stack {}, but {} in stack {}",
                expected[number],
                dataset.stacks()[first].name,
                found[number],
                dataset.stacks()[*stack].name
            ))
            .at(dataset.path())
            .with_remedy("pack them in the same way, or read the stacks one by one"));
        }
    }
    Ok(())
}

/// Bytes of the largest batch.
fn slot_bytes(
    dataset: &Dataset,
    options: &LoaderOptions,
    plan: &Plan,
    beside: &[String],
    fit: Option<&BandFit>,
) -> Result<usize> {
    let samples: Vec<usize> = plan.samples().iter().map(|sample| sample.sample).collect();
    let bands = options.bands.as_deref();
    let decoder = Decoder { dataset, bands, needed: None, cache: None, shuffle_buffer: None };
    let mut largest = 0;
    for stack in stacks_of(dataset, &samples)? {
        let bands = dataset.image(stack).shape().bands;
        for CubeShape { rows, columns, .. } in
            plan.shapes().iter().filter(|shape| shape.bands == bands)
        {
            let len = options.plan.batch_size;
            let bytes = lay_out(
                (&decoder, fit),
                beside,
                stack,
                len,
                (axis(*rows), axis(*columns)),
                &mut Vec::new(),
            )?;
            largest = largest.max(bytes);
        }
    }
    Ok(largest)
}
