//! A loader before it takes memory and starts threads.

use std::sync::Arc;

use hsipack_augment::Pipeline;
use hsipack_format::{Opt, remedy};
use hsipack_store::memory;

use super::cache_choice::CacheChoice;
use super::common_bands::fit_members;
use super::member::Member;
use super::options::LoaderOptions;
use super::stored_batch::table_bytes;
use super::workload::Workload;
use crate::cache::CacheKind;
use crate::dataset::Dataset;
use crate::device::page_cache::PageCache;
use crate::device::resident::Residents;
use crate::plan::{JoinedPlan, Plan, Share, State, lengths, seed_of};
use crate::{Error, Result};

/// A [`Loader`](super::Loader) whose options are checked and whose epochs are planned, but which
/// has neither memory nor threads yet.
///
/// It can be made long before training begins, in a process that later forks, and before it is
/// known which of several processes this one is ([`at`](Self::at)).
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
    /// The datasets that give samples, at least one.
    pub(super) members: Vec<Member>,
    pub(super) seed: u64,
    /// Where the loader begins.
    pub(super) begin: State,
    /// Whether batches may hold compressed chunks, because a device decodes them.
    pub(super) compressed: bool,
    /// Frames that this device reads in the system's page cache.
    pub(super) page_cache: Option<PageCache>,
}

impl PreparedLoader {
    /// Checks the options and plans the epochs. The loader will begin with epoch 0.
    ///
    /// # Errors
    /// If the options contradict each other or the dataset, or if memory is too small for the ring.
    pub fn new(dataset: &Dataset, options: LoaderOptions) -> Result<Self> {
        Self::joined(vec![(dataset.clone(), options)], None)
    }

    /// The same for several datasets with the same bands and masks. Every batch comes from one of
    /// them ([`Batch::dataset`](super::Batch::dataset)). If the order is shuffled, the datasets
    /// give batches in random turns, drawn from seed and epoch; otherwise they come one after the
    /// other. All have the options of the first, except for their
    /// [samples](LoaderOptions::samples), [weights](LoaderOptions::weights),
    /// [splits](LoaderOptions::splits) and [bands](LoaderOptions::bands).
    ///
    /// `weights` are the fractions of the datasets in an epoch, in any unit. An epoch has the items
    /// of all datasets, or [`epoch_length`](crate::plan::PlanOptions::epoch_length); items come
    /// several times if a dataset has fewer than its fraction.
    ///
    /// ```no_run
    /// use hsipack_read::{Dataset, LoaderOptions, PreparedLoader};
    ///
    /// let (enmap, prisma) = (Dataset::open("enmap.hsipack")?, Dataset::open("prisma.hsipack")?);
    /// let datasets = vec![(enmap, LoaderOptions::new(6)), (prisma, LoaderOptions::new(6))];
    /// let mut loader = PreparedLoader::joined(datasets, Some(&[1.0, 2.0]))?.start()?;
    /// for batch in loader.epoch() {
    ///     let batch = batch?;
    ///     println!("{:?} of {}", batch.image().shape, batch.dataset().path().display());
    /// }
    /// # Ok::<(), hsipack_read::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new); if the datasets do not have the same bands and masks, or weights are
    /// not valid.
    pub fn joined(
        datasets: Vec<(Dataset, LoaderOptions)>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        let prepared = Self::unchecked(datasets, weights)?;
        prepared.check_memory()?;
        prepared.batches_per_epoch(0)?;
        Ok(prepared)
    }

    /// The same without a look at the memory that a ring would need.
    pub(crate) fn unchecked(
        datasets: Vec<(Dataset, LoaderOptions)>,
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        let Some((_, first)) = datasets.first() else {
            return Err(Error::conflict("there are no datasets").with_remedy("give one or more"));
        };
        let first = first.clone();
        let members = match &*datasets {
            [(dataset, options)] => vec![Member::new(0, dataset, options.clone())?],
            _ => members_of(datasets, &first, weights)?,
        };
        let members = if first.plan.mixes_items { fit_members(members)? } else { members };
        let begin = State::new(members[0].plan(), "", 0);
        let seed = first.plan.seed;
        let prepared = Self { members, seed, begin, compressed: false, page_cache: None };
        prepared.chosen_again()
    }

    /// The same loader for another place among the processes that train together.
    ///
    /// # Errors
    /// If nothing is left for each process, there is not enough memory, or a shuffle window is no
    /// longer possible.
    pub fn at(self, share: Share) -> Result<Self> {
        if self.options().share == share {
            return Ok(self);
        }
        let members = self.members.into_iter().map(|member| member.at(share)).collect();
        let prepared = Self { members, ..self };
        prepared.batches_per_epoch(prepared.begin.epoch)?;
        let prepared = prepared.chosen_again()?;
        prepared.check_memory()?;
        Ok(prepared)
    }

    /// The same loader, which will go on where another loader was when it returned `state`. Batch
    /// size, threads and world size may differ: what is left of the epoch is divided again, and no
    /// item comes twice or is lost. Samples and masks may have been added to the dataset since
    /// ([`State::check`]).
    ///
    /// # Errors
    /// If the state is of another dataset, seed or plan.
    pub fn resumed(mut self, state: &State) -> Result<Self> {
        let seeds: Vec<u64> = self.members.iter().map(|member| member.options.plan.seed).collect();
        let states = state.split(&seeds)?;
        state.check_seed(self.seed)?;
        let ring_bytes = self.ring_bytes();
        let members = self.members.into_iter().zip(&states);
        let members = members.map(|(member, state)| member.resumed(state, ring_bytes));
        self.members = members.collect::<Result<_>>()?;
        self.check_memory()?;
        self.begin = State { delivered: state.delivered.clone(), ..self.state_before(state.epoch) };
        // What is impossible from the start is reported here already.
        self.joined_plan().epoch(state.epoch, &state.delivered, self.options().share)?;
        Ok(self)
    }

    /// The same loader, which will begin with this epoch.
    #[must_use]
    pub fn at_epoch(mut self, epoch: u64) -> Self {
        self.begin = self.state_before(epoch);
        self
    }

    /// The same loader, whose batches may hold compressed chunks, because a device decodes them.
    pub(crate) fn for_decoding(self) -> Self {
        Self { compressed: true, ..self }
    }

    /// The same loader, whose device reads frames in the system's page cache.
    pub(crate) fn with_page_cache(self, page_cache: PageCache) -> Self {
        Self { page_cache: Some(page_cache), ..self }
    }

    /// The same loader, whose batches are used by nothing but these augmentations, one for each
    /// dataset.
    pub(crate) fn drawing_bands(mut self, pipelines: &[Arc<Pipeline>]) -> Self {
        let members = self.members.into_iter().zip(pipelines);
        self.members = members.map(|(member, pipeline)| member.drawing_bands(pipeline)).collect();
        self
    }

    /// The same loader, which keeps these samples of each dataset in the memory of a device.
    pub(crate) fn with_residents(mut self, residents: Vec<Arc<Residents>>) -> Self {
        for (member, residents) in self.members.iter_mut().zip(residents) {
            member.residents = Some(residents);
        }
        self
    }

    /// Decides again what is kept in memory.
    pub(super) fn chosen_again(mut self) -> Result<Self> {
        let ring_bytes = self.ring_bytes();
        let members = self.members.into_iter().map(|member| member.choose(ring_bytes));
        self.members = members.collect::<Result<_>>()?;
        let before = self.state_before(self.begin.epoch);
        self.begin = State { delivered: std::mem::take(&mut self.begin.delivered), ..before };
        Ok(self)
    }

    /// Bytes of the largest batch.
    pub(crate) fn batch_bytes(&self) -> usize {
        self.members.iter().map(|member| member.slot_bytes).max().unwrap_or(0)
    }

    /// Bytes of a slot of the ring: of the largest batch, and of chunks for the memory of a device.
    pub(super) fn ring_slot_bytes(&self) -> usize {
        let room = |member: &Member| {
            let residents = member.residents.as_ref().filter(|residents| !residents.are_empty());
            residents.map_or(0, |residents| {
                let windows = member.options.plan.batch_size * (1 + member.beside().len());
                residents.load_bytes() + table_bytes(windows, &member.options)
            })
        };
        self.batch_bytes() + self.members.iter().map(room).max().unwrap_or(0)
    }

    fn ring_bytes(&self) -> u64 {
        self.batch_bytes() as u64 * self.options().slots as u64
    }

    pub(super) fn check_memory(&self) -> Result<()> {
        let caches = self.members.iter().map(|member| match member.cached.kind {
            CacheKind::None => 0,
            _ => member.cached.limit_bytes.min(member.cached.needed_bytes),
        });
        let cache = caches.fold(0, u64::saturating_add);
        check_memory(self.ring_slot_bytes(), self.options().slots, cache)
    }

    /// The datasets that are read.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The same, to change how their images get the bands of batches.
    pub(crate) fn members_mut(&mut self) -> &mut [Member] {
        &mut self.members
    }

    /// The dataset; the first one if there are several.
    pub fn dataset(&self) -> &Dataset {
        &self.members[0].dataset
    }

    /// The options; those of the first dataset if there are several.
    pub fn options(&self) -> &LoaderOptions {
        &self.members[0].options
    }

    /// The options of all datasets, to change what does not concern the plan.
    pub(crate) fn options_mut(&mut self) -> impl Iterator<Item = &mut LoaderOptions> {
        self.members.iter_mut().map(|member| &mut member.options)
    }

    /// The plan of the epochs; that of the first dataset if there are several.
    pub fn plan(&self) -> &Plan {
        &self.members[0].plan
    }

    /// Names of the masks that batches have.
    pub fn masks(&self) -> &[String] {
        &self.members[0].masks
    }

    /// Names of the targets that batches have.
    pub fn targets(&self) -> &[String] {
        &self.members[0].targets
    }

    /// Names of the further images that batches have.
    pub fn images(&self) -> &[String] {
        &self.members[0].images
    }

    /// Cache policy, with its reason; that of the first dataset if there are several. The loader
    /// may decide otherwise when it starts.
    pub fn cache(&self) -> &CacheChoice {
        &self.members[0].cached
    }

    /// Samples and chunks that the loader reads, and their costs; those of the first dataset if
    /// there are several.
    pub fn workload(&self) -> Workload {
        self.members[0].workload()
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
        Ok(self.joined_plan().epoch(epoch, &[], self.options().share)?.batches())
    }

    /// Number of batches that every rank gets in the epoch of a state, with those already given.
    /// Their batch size and the number of ranks may have been others.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn batches_in_epoch_of(&self, state: &State) -> Result<usize> {
        self.joined_plan().batches(state.epoch, &state.delivered, self.options().share)
    }

    /// The plans of all datasets.
    pub(super) fn joined_plan(&self) -> JoinedPlan {
        JoinedPlan::new(self.members.iter().map(|member| member.plan.clone()).collect(), self.seed)
    }

    /// The state before the first batch of an epoch.
    fn state_before(&self, epoch: u64) -> State {
        let states = self.members.iter().map(|member| member.state_before(epoch));
        State::joined(states.collect(), self.seed)
    }
}

impl Workload {
    /// The workload for a loader with these options. For windows around labelled pixels, all their
    /// masks are read.
    ///
    /// # Errors
    /// As [`Loader::new`](super::Loader::new), except for the memory of its ring.
    pub fn of(dataset: &Dataset, options: &LoaderOptions) -> Result<Self> {
        Ok(PreparedLoader::unchecked(vec![(dataset.clone(), options.clone())], None)?.workload())
    }
}

/// Plans several datasets. Those without a share in the epoch are left out.
fn members_of(
    datasets: Vec<(Dataset, LoaderOptions)>,
    first: &LoaderOptions,
    weights: Option<&[f64]>,
) -> Result<Vec<Member>> {
    let count = datasets.len();
    if let Some(weights) = weights {
        let are_valid = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
        if weights.len() != count || !are_valid || weights.iter().sum::<f64>() <= 0.0 {
            return Err(Error::conflict(format!(
                "{weights:?} are not weights of {count} datasets"
            ))
            .with_remedy("give each dataset a weight from 0 on, and at least one above 0"));
        }
    }
    let mut members = Vec::with_capacity(count);
    for (number, (dataset, mut options)) in datasets.into_iter().enumerate() {
        options.plan.seed = seed_of(first.plan.seed, number);
        options.plan.epoch_length = None;
        let weight = weights.map_or(1.0, |weights| weights[number]);
        if weight > 0.0 {
            members.push(Member::new(number, &dataset, options)?);
        }
    }
    if weights.is_some() || first.plan.epoch_length.is_some() {
        let items: Vec<usize> = members.iter().map(|member| member.plan.items()).collect();
        let weight = |(member, items): (&Member, &usize)| match weights {
            Some(weights) => weights[member.number],
            None => *items as f64,
        };
        let weights: Vec<f64> = members.iter().zip(&items).map(weight).collect();
        let total = match first.plan.epoch_length {
            Some(length) => length,
            None if first.plan.is_mix => with_largest_once(&items, &weights),
            None => items.iter().sum(),
        };
        let lengths = lengths(&weights, total);
        let members_of_length = members.into_iter().zip(lengths).filter(|(_, length)| *length > 0);
        members = members_of_length
            .map(|(member, length)| member.of_length(length))
            .collect::<Result<_>>()?;
    }
    members[1..].iter().try_for_each(|member| check_alike(&members[0], member))?;
    let needed: f64 = members.iter().map(|member| member.cached.needed_bytes as f64).sum();
    let fraction = |member: &Member| match needed > 0.0 {
        true => member.cached.needed_bytes as f64 / needed,
        false => 1.0 / count as f64,
    };
    Ok(members
        .into_iter()
        .map(|member| {
            let fraction = fraction(&member);
            member.with_memory(fraction)
        })
        .collect())
}

/// The length of an epoch in proportion to the weights in which the largest dataset comes once.
fn with_largest_once(items: &[usize], weights: &[f64]) -> usize {
    let largest = items.iter().zip(weights).max_by_key(|(items, _)| **items);
    let length =
        largest.map_or(0.0, |(items, weight)| *items as f64 * weights.iter().sum::<f64>() / weight);
    // Far more than anyone has, but few enough to count.
    length.round().clamp(1.0, u32::MAX.into()) as usize
}

/// Refuses datasets whose batches do not match.
fn check_alike(first: &Member, other: &Member) -> Result<()> {
    let error = |what: String| {
        Err(Error::conflict(what).with_remedy(
            "read the same bands, masks, targets and further images from all datasets",
        ))
    };
    let (path, other_path) = (first.dataset.path().display(), other.dataset.path().display());
    if first.masks != other.masks {
        return error(format!(
            "datasets with masks {:?} and {:?}: {path} and {other_path}",
            first.masks, other.masks
        ));
    }
    if first.targets != other.targets {
        return error(format!(
            "datasets with targets {:?} and {:?}: {path} and {other_path}",
            first.targets, other.targets
        ));
    }
    if first.images != other.images {
        return error(format!(
            "datasets with further images {:?} and {:?}: {path} and {other_path}",
            first.images, other.images
        ));
    }
    let kinds = first.companion_kinds().zip(other.companion_kinds());
    for ((name, ours), (_, theirs)) in kinds {
        if ours != theirs {
            return error(format!(
                "datasets whose {name:?} is {ours}, and {theirs}: {path} and {other_path}"
            ));
        }
    }
    let bands = |member: &Member| -> Vec<usize> {
        let read = member.options.bands.as_ref().map(Vec::len);
        let mut bands: Vec<usize> =
            member.plan.shapes().iter().map(|shape| read.unwrap_or(shape.bands)).collect();
        bands.sort_unstable();
        bands.dedup();
        bands
    };
    if first.options.plan.is_mix {
        return Ok(());
    }
    let (bands, others) = (bands(first), bands(other));
    if bands.len() > 1 || bands != others {
        return error(format!(
            "datasets of {bands:?} and {others:?} bands: {path} and {other_path}"
        ));
    }
    Ok(())
}

/// Compares ring and cache with the available memory. Otherwise the system would end the process
/// later, without a message. The cache never holds more than the decoded chunks that are read:
/// `cache` bytes.
fn check_memory(slot_bytes: usize, slots: usize, cache: u64) -> Result<()> {
    // The notes about each slot count as well: even a billion empty slots do not fit.
    let slot = (slot_bytes as u64).max(NOTES_A_SLOT);
    let ring = slot.saturating_mul(slots as u64);
    let Some(available) = memory::available() else { return Ok(()) };
    if ring.saturating_add(cache) <= available.bytes {
        return Ok(());
    }
    let what = format!(
        "{} slots of {} take {}{}, but only {} are available {}",
        slots,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_needs_memory() {
        check_memory(1000, 4, 1000).unwrap();
        if memory::available().is_some() {
            let error = check_memory(1000, 4, u64::MAX / 2).unwrap_err();
            assert!(error.to_string().contains("the cache"), "{error}");
        }
    }
}
