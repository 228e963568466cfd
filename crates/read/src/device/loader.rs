//! The loader as its user sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hsipack_augment::array::{Memory, Stream};
use hsipack_augment::{Device, Library};

use super::backend::Backend;
use super::batch::{DeviceBatch, Info};
use super::cuda::Cuda;
use super::emulated::Emulated;
use super::host::Host;
use super::monitor::{Copies, DeviceReport, Monitor, Tally};
use super::options::DeviceOptions;
use super::prepared::PreparedDeviceLoader;
use super::repeat::Repeat;
use super::transfer::{Next, Source, Transfer};
use crate::Result;
use crate::dataset::Dataset;
use crate::loader::{
    Batch, CacheChoice, Consumer, Loader, LoaderOptions, Outlook, Record, Shared, Statistics,
};
use crate::plan::{Plan, State};
use crate::ring::memory::MemoryReport;
use crate::trace::Trace;

/// A [`Loader`] whose batches are tensors of a library, on a device.
///
/// The [`Library`] defines what tensors are and computes with them. [`Host`](hsipack_augment::Host) returns
/// [`Array`](hsipack_augment::Array)s that belong to no library, and `hsipack_torch::Libtorch` returns tensors of
/// `tch`.
///
/// On the CPU, tensors lie over the ring's slots. Nothing is copied as long as no more than half of the slots (at least
/// one) are kept. Beyond that, batches are copied, so that any number may be kept. On a CUDA device, a thread copies
/// batches ahead from page-locked memory into one of two device slots, on a separate stream: while a batch is used, the
/// next one is copied. Nobody waits for the device or a whole stream.
///
/// ```no_run
/// use hsipack_read::{Dataset, Device, DeviceLoader, DeviceOptions, Host, LoaderOptions};
///
/// let dataset = Dataset::open("tissue.hsipack")?;
/// let device = DeviceOptions::new(Device::Cpu);
/// let mut loader = DeviceLoader::new(&dataset, LoaderOptions::new(6), device, Host::default())?;
/// for batch in loader.epoch() {
///     let batch = batch?;
///     println!("{:?} on {}", batch.image.shape(), batch.image.device()); // (B, C, H, W), channels_last
/// }
/// # Ok::<(), hsipack_read::Error>(())
/// ```
///
/// # Streams
/// A batch may be used on the stream that is current for the library (in the calling thread) when the batch is asked
/// for, and on streams that wait for this stream. When the last tensor over the batch's memory is dropped, in whatever
/// thread, an event is recorded on this stream, and the next copy into the memory waits for the event. So if you use a
/// batch on other streams, make this stream wait for them before you drop the batch. Other libraries take arrays by
/// DLPack, and name the stream that they use them on ([`Memory::lend`]). Do not ask for batches while a CUDA graph is
/// captured.
pub struct DeviceLoader<L: Library> {
    way: Box<dyn Way<Made<L>>>,
    library: L,
    prepared: PreparedDeviceLoader,
    monitor: Monitor,
    /// The state after the last batch given, or after its error.
    state: State,
    /// Nothing was given or failed since the epoch of `state` was begun.
    fresh: bool,
    /// Number of batches that failed.
    failed: u64,
    consumer: Consumer,
    /// `None` on the CPU, where the loader inside records.
    trace: Option<Arc<Trace>>,
}

/// What remains of an epoch, as an iterator; see [`DeviceLoader::epoch`].
#[derive(Debug)]
pub struct DeviceEpoch<'a, L: Library> {
    loader: &'a mut DeviceLoader<L>,
    over: bool,
}

/// Tensors made from a slot.
struct Made<L: Library> {
    image: L::Tensor,
    masks: Vec<(String, L::Tensor)>,
    info: Arc<Info>,
}

/// Makes something from a slot's memory and the metadata of the batch in it.
type Make<'a, M> = &'a mut dyn FnMut(&Arc<dyn Memory>, &Arc<Info>) -> Result<M>;

/// How batches get to the device. `M` is what is made from them.
trait Way<M>: Send {
    fn next(&mut self, deadline: Option<Instant>, make: Make<'_, M>) -> Result<Next<M, State>>;
    fn go_to(&mut self, epoch: u64);
    fn copies(&self) -> Arc<dyn Copies>;
}

impl<M> Way<M> for Host {
    fn next(&mut self, deadline: Option<Instant>, make: Make<'_, M>) -> Result<Next<M, State>> {
        Host::next(self, deadline, make)
    }

    fn go_to(&mut self, epoch: u64) {
        Host::go_to(self, epoch);
    }

    fn copies(&self) -> Arc<dyn Copies> {
        Host::copies(self)
    }
}

impl<B, S, M> Way<M> for Transfer<B, S>
where
    B: Backend,
    S: Source<Info = Arc<Info>, Place = State> + 'static,
{
    fn next(&mut self, deadline: Option<Instant>, make: Make<'_, M>) -> Result<Next<M, State>> {
        Transfer::next(self, deadline, make)
    }

    fn go_to(&mut self, epoch: u64) {
        Transfer::go_to(self, epoch);
    }

    fn copies(&self) -> Arc<dyn Copies> {
        Transfer::copies(self)
    }
}

impl Source for Loader {
    type Batch = Batch;
    type Info = Arc<Info>;
    type Place = State;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.next_batch()
    }

    fn go_to(&mut self, epoch: u64) {
        self.set_epoch(epoch);
    }

    fn place(&self) -> State {
        self.state()
    }

    fn bytes(batch: &Batch) -> &[u8] {
        batch.memory()
    }

    fn info(batch: &Batch) -> Arc<Info> {
        Info::of(batch)
    }
}

impl PreparedDeviceLoader {
    /// Opens the device, takes memory and starts the threads; see [`PreparedLoader::start`](crate::PreparedLoader::start).
    ///
    /// # Errors
    /// If the device cannot be used (the error says why), or there is not enough memory.
    pub fn start<L: Library>(self, library: L) -> Result<DeviceLoader<L>> {
        DeviceLoader::begin_with(self, library)
    }
}

impl<L: Library> DeviceLoader<L> {
    /// Creates a loader at the start of epoch 0.
    ///
    /// # Errors
    /// As [`Loader::new`]; if the device cannot be used (the error says why) or has too little memory; if the dataset
    /// lacks something that is asked for, such as statistics.
    pub fn new(
        dataset: &Dataset,
        options: LoaderOptions,
        device: DeviceOptions,
        library: L,
    ) -> Result<Self> {
        Self::begin_with(PreparedDeviceLoader::new(dataset, options, device)?, library)
    }

    /// Creates a loader that goes on where another loader, on any device, was when it returned `state`; see
    /// [`Loader::with_state`].
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the state is of another dataset, seed or plan.
    pub fn with_state(
        dataset: &Dataset,
        options: LoaderOptions,
        device: DeviceOptions,
        library: L,
        state: &State,
    ) -> Result<Self> {
        let prepared = PreparedDeviceLoader::new(dataset, options, device)?.resumed(state)?;
        Self::begin_with(prepared, library)
    }

    pub(super) fn begin_with(mut prepared: PreparedDeviceLoader, library: L) -> Result<Self> {
        match (prepared.options.device, prepared.options.emulated_bus) {
            (Device::Cpu, Some(rate)) => Self::begin_on(Emulated::new(rate), prepared, library),
            (Device::Cpu, None) => {
                let loader = prepared.loader.clone().start()?;
                let (shared, place) = (loader.shared().clone(), loader.state());
                let way = Box::new(Host::new(loader, &prepared.options));
                Ok(Self::of(way, library, prepared, shared, place, Vec::new()))
            }
            (Device::Cuda(number), _) => {
                let cuda = Cuda::open(number)?;
                prepared.loader.options.memory.locker.get_or_insert_with(|| cuda.locker());
                Self::begin_on(cuda, prepared, library)
            }
        }
    }

    /// Begins on a device to which batches have to be copied.
    pub(super) fn begin_on<B: Backend>(
        backend: B,
        prepared: PreparedDeviceLoader,
        library: L,
    ) -> Result<Self> {
        let mut loader = prepared.loader.clone().start()?;
        loader.feed_transfer();
        let (shared, place) = (loader.shared().clone(), loader.state());
        let ring = shared.ring.clone();
        let interrupt = Box::new(move || ring.slots().stop());
        let slot_bytes = shared.ring.slot_bytes();
        let backend = Arc::new(backend);
        let way: Box<dyn Way<Made<L>>> = if prepared.options.repeat {
            Box::new(Transfer::start(backend, Repeat::new(loader), slot_bytes, interrupt)?)
        } else {
            Box::new(Transfer::start(backend, loader, slot_bytes, interrupt)?)
        };
        let notes = shared.ring.memory_report().notes;
        Ok(Self::of(way, library, prepared, shared, place, notes))
    }

    fn of(
        way: Box<dyn Way<Made<L>>>,
        library: L,
        prepared: PreparedDeviceLoader,
        shared: Arc<Shared>,
        state: State,
        notes: Vec<String>,
    ) -> Self {
        let fresh = state.given.iter().all(|segment| segment.batches == 0);
        let consumer = Consumer::training();
        let copies = way.copies();
        let trace = shared.options.trace.clone().filter(|_| copies.device_slots() > 0);
        let options = prepared.options.clone();
        let tally = Arc::new(Tally::new());
        let monitor = Monitor { shared, options, tally, copies, notes };
        Self { way, library, prepared, monitor, state, fresh, failed: 0, consumer, trace }
    }

    /// Where its batches are.
    pub fn device(&self) -> Device {
        self.prepared.options.device
    }

    /// The library that the tensors belong to.
    pub fn library(&self) -> &L {
        &self.library
    }

    /// The batches that remain of the current epoch; see [`Loader::epoch`].
    pub fn epoch(&mut self) -> DeviceEpoch<'_, L> {
        DeviceEpoch { loader: self, over: false }
    }

    /// The next batch of the current epoch. At its end this is `None` once, and then the first batch of the next epoch.
    ///
    /// # Errors
    /// As [`Loader::next_batch`]; if the device is out of memory or lost. If nothing of the data is wrong, but the device
    /// refuses a copy or has no memory, the same batch comes once more, and counts as given if it fails again. If the
    /// device is lost, every batch fails.
    pub fn next_batch(&mut self) -> Option<Result<DeviceBatch<L>>> {
        self.next_before(None).map(|next| next.map(|batch| batch.expect("there is no deadline")))
    }

    /// Like [`next_batch`](Self::next_batch), but returns `Ok(None)` if no batch comes within `timeout`.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<Option<DeviceBatch<L>>>> {
        self.next_before(Some(Instant::now() + timeout))
    }

    fn next_before(&mut self, deadline: Option<Instant>) -> Option<Result<Option<DeviceBatch<L>>>> {
        let before = Instant::now();
        let tally = &self.monitor.tally;
        let record = Record { times: &tally.times, trace: self.trace.as_deref() };
        self.consumer.asks(record);
        let (library, recipe) = (&self.library, &self.prepared.recipe);
        let next = self.way.next(deadline, &mut |memory, info| {
            memory.lend(match memory.device() {
                Device::Cpu => Stream::LEGACY,
                Device::Cuda(number) => library.stream(number)?,
            })?;
            let (image, masks) = recipe.make(library, memory, info)?;
            Ok(Made { image, masks, info: info.clone() })
        });
        tally.waited(before.elapsed());
        match next {
            Ok(Next::Batch(Made { image, masks, info }, state)) => {
                (self.state, self.fresh) = (state, false);
                tally.batches.fetch_add(1, Ordering::Relaxed);
                self.consumer.gets(info.number, record);
                let library = self.library.clone();
                Some(Ok(Some(DeviceBatch { image, masks, info, library })))
            }
            Ok(Next::TimedOut) => Some(Ok(None)),
            Ok(Next::End(state)) => {
                self.consumer.ends();
                (self.state, self.fresh) = (state, true);
                None
            }
            Ok(Next::Failed(error, state)) => {
                self.consumer.ends();
                self.failed += u64::from(state != self.state);
                (self.state, self.fresh) = (state, false);
                Some(Err(error))
            }
            Ok(Next::Over) => {
                self.consumer.ends();
                let after = self.shared().state_before(self.state.epoch + 1);
                (self.state, self.fresh) = (after, true);
                None
            }
            Err(error) => {
                self.consumer.ends();
                self.fresh = false;
                Some(Err(error))
            }
        }
    }

    /// Drops unfinished batches and goes to the start of an epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        if !self.fresh || self.state.epoch != epoch {
            self.way.go_to(epoch);
            self.state = self.shared().state_before(epoch);
            self.fresh = true;
        }
    }

    /// How far training is: after the last batch given, or after its error, however many are copied ahead. See [`Loader::state`].
    pub fn state(&self) -> State {
        self.state.clone()
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.shared().dataset
    }

    /// The options of the loader inside.
    pub fn options(&self) -> &LoaderOptions {
        &self.shared().options
    }

    /// The options for the device.
    pub fn device_options(&self) -> &DeviceOptions {
        &self.prepared.options
    }

    /// The plan of its epochs.
    pub fn plan(&self) -> &Plan {
        &self.shared().plan
    }

    /// Names of the masks that batches have.
    pub fn masks(&self) -> &[String] {
        &self.shared().masks
    }

    /// Names of a mask's boolean layers, in the order of their axis. Empty for class ids; `None` if there is no such
    /// mask.
    pub fn layers(&self, mask: &str) -> Option<&[String]> {
        self.prepared.layers(mask)
    }

    /// Every stack that [`Normalization::Standardize`](super::Normalization) acts on: its name, and the split whose
    /// statistics are used, or `None` if those of all its samples are used.
    pub fn standardized_by(&self) -> Vec<(String, Option<String>)> {
        self.prepared.standardized_by()
    }

    /// Whether a stack is standardised by the statistics of all its samples although the dataset has a training split.
    /// Older datasets do not record statistics of splits, and a stack may have no sample of this split.
    pub fn lacks_train_statistics(&self) -> bool {
        self.prepared.lacks_train_statistics()
    }

    /// Number of batches that every rank gets in a whole epoch.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn batches_per_epoch(&self) -> Result<usize> {
        let Shared { plan, options, .. } = &**self.shared();
        Ok(plan.epoch(self.state.epoch, &[], options.share)?.batches())
    }

    /// What kind of memory the ring has, and why it is no better.
    pub fn memory(&self) -> MemoryReport {
        self.monitor.memory()
    }

    /// What is kept in memory, and why.
    pub fn cache(&self) -> &CacheChoice {
        self.monitor.cache()
    }

    /// What the loader reads, and what that costs.
    pub fn outlook(&self) -> Outlook {
        Outlook::new(self.dataset(), self.plan(), self.cache().clone())
    }

    /// Bytes that the cache holds.
    pub fn cached_bytes(&self) -> u64 {
        self.monitor.cached_bytes()
    }

    /// How the loader works, and why it does no better.
    pub fn report(&self) -> DeviceReport {
        self.monitor.report()
    }

    /// What the loader did so far.
    pub fn statistics(&self) -> Statistics {
        self.monitor.statistics()
    }

    /// A handle that reads statistics and report, also in other threads.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Forgets how long batches took; see [`Loader::forget_times`].
    pub fn forget_times(&self) {
        self.monitor.tally.times.clear();
        self.shared().counters.times.clear();
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.monitor.shared
    }
}

impl<L: Library> fmt::Debug for DeviceLoader<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLoader")
            .field("report", &self.report())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<L: Library> Iterator for DeviceEpoch<'_, L> {
    type Item = Result<DeviceBatch<L>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let before = self.loader.failed;
        let next = self.loader.next_batch();
        self.over = match next {
            Some(Ok(_)) => false,
            // An error of a batch counts as the batch. Any other error might come for ever.
            Some(Err(_)) => self.loader.failed == before,
            None => true,
        };
        next
    }
}
