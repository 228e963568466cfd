//! The loader as its user sees it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hsipack_augment::{Device, Library};
use hsipack_store::remote::is_url;

use super::backend::Backend;
use super::batch::DeviceBatch;
use super::batch_info::BatchInfo;
use super::cuda::Cuda;
use super::emulated::Emulated;
use super::host::Host;
use super::monitor::{Copies, DeviceReport, Monitor, Tally};
use super::options::{DeviceCache, DeviceOptions};
use super::page_cache::{Demand, Registering};
use super::prefetch::Prefetch;
use super::prepared::PreparedDeviceLoader;
use super::repeat::Repeat;
use super::resident::{Request, Residents};
use super::source::Source;
use super::tensors::{Augmentation, BatchTensors, TensorMaker};
use super::transfer::{Next, Transfer};
use crate::Result;
use crate::dataset::Dataset;
use crate::loader::{
    Batch, CacheChoice, Consumer, DecodePlace, Decoding, Loader, LoaderOptions, Member,
    PreparedLoader, Record, Shared, Statistics, Workload, no_device,
};
use crate::plan::{Crop, Plan, State};
use crate::ring::memory::MemoryReport;
use crate::trace::{Trace, Track};

/// A [`Loader`] whose batches are tensors of a library, on a device.
///
/// The [`Library`] defines what tensors are and computes with them. [`Host`](hsipack_augment::Host)
/// returns [`Array`](hsipack_augment::Array)s that belong to no library, and
/// `hsipack_torch::Libtorch` returns tensors of `tch`.
///
/// On the CPU, tensors lie over the ring's slots. Nothing is copied as long as no more than half of
/// the slots (at least one) are kept. Beyond that, batches are copied, so that any number may be
/// kept. If values have to be converted, normalised or augmented
/// ([`PreparedDeviceLoader::augmented`]), a thread does it while the batch before is used. On a
/// CUDA device, a thread copies batches ahead from page-locked memory into one of two device slots,
/// on a separate stream: while a batch is used, the next one is copied. Nobody waits for the device
/// or a whole stream.
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
/// A batch may be used on the stream that is current for the library (in the calling thread) when
/// the batch is asked for, and on streams that wait for this stream. When the last tensor over the
/// batch's memory is dropped, in whatever thread, an event is recorded on this stream, and the next
/// copy into the memory waits for the event. So if you use a batch on other streams, make this
/// stream wait for them before you drop the batch. Other libraries take arrays by DLPack, and name
/// the stream that they use them on ([`Memory::lend`](hsipack_augment::array::Memory::lend)). Do
/// not ask for batches while a CUDA graph is captured.
pub struct DeviceLoader<L: Library> {
    delivery: Box<dyn Delivery<L>>,
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

/// The remainder of an epoch, as an iterator; see [`DeviceLoader::epoch`].
#[derive(Debug)]
pub struct DeviceEpoch<'a, L: Library> {
    loader: &'a mut DeviceLoader<L>,
    over: bool,
}

/// How batches get to the device, and where their tensors are made.
trait Delivery<L: Library>: Send {
    fn next(&mut self, deadline: Option<Instant>) -> Result<Next<BatchTensors<L>, State>>;
    fn go_to(&mut self, epoch: u64);
    fn copies(&self) -> Arc<dyn Copies>;

    /// Whether a batch is prepared.
    fn is_ready(&self) -> bool {
        false
    }
}

/// The CPU, where the consumer's thread makes the tensors.
struct OnHost<L: Library> {
    host: Host,
    maker: TensorMaker<L>,
}

impl<L: Library> Delivery<L> for OnHost<L> {
    fn next(&mut self, deadline: Option<Instant>) -> Result<Next<BatchTensors<L>, State>> {
        self.host.next(deadline, |memory, info| self.maker.make(memory, info))
    }

    fn go_to(&mut self, epoch: u64) {
        self.host.go_to(epoch);
    }

    fn copies(&self) -> Arc<dyn Copies> {
        self.host.copies()
    }
}

/// The CPU, where a thread makes the tensors before they are asked for.
impl<L: Library> Delivery<L> for Prefetch<BatchTensors<L>> {
    fn next(&mut self, deadline: Option<Instant>) -> Result<Next<BatchTensors<L>, State>> {
        Prefetch::next(self, deadline)
    }

    fn go_to(&mut self, epoch: u64) {
        Prefetch::go_to(self, epoch);
    }

    fn copies(&self) -> Arc<dyn Copies> {
        Prefetch::copies(self)
    }

    fn is_ready(&self) -> bool {
        Prefetch::is_ready(self)
    }
}

/// A device. The consumer's thread queues the making of the tensors, because it belongs on the
/// consumer's stream.
struct OnDevice<B: Backend, S: Source, L: Library> {
    /// Its thread ends before files are unregistered, which it copies from.
    transfer: Transfer<B, S>,
    _registering: Option<Registering>,
    maker: TensorMaker<L>,
}

impl<B, S, L> Delivery<L> for OnDevice<B, S, L>
where
    B: Backend,
    S: Source<Info = Arc<BatchInfo>, Position = State> + 'static,
    L: Library,
{
    fn next(&mut self, deadline: Option<Instant>) -> Result<Next<BatchTensors<L>, State>> {
        self.transfer.next(deadline, |memory, info| self.maker.make(memory, info))
    }

    fn go_to(&mut self, epoch: u64) {
        self.transfer.go_to(epoch);
    }

    fn copies(&self) -> Arc<dyn Copies> {
        self.transfer.copies()
    }
}

impl Source for Loader {
    type Batch = Batch;
    type Info = Arc<BatchInfo>;
    type Position = State;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.next_batch()
    }

    fn next_if_ready(&mut self) -> Option<Option<Result<Batch>>> {
        // If the device is lost, it keeps the slot that it decodes from, and that of the next batch. Without a third one, no
        // batch could come any more, not even as an error.
        if self.options().slots < 3 {
            return None;
        }
        match self.next_within(Duration::ZERO) {
            Some(Ok(None)) => None,
            Some(Ok(Some(batch))) => Some(Some(Ok(batch))),
            Some(Err(error)) => Some(Some(Err(error))),
            None => Some(None),
        }
    }

    fn go_to(&mut self, epoch: u64) {
        self.set_epoch(epoch);
    }

    fn position(&self) -> State {
        self.state()
    }

    fn bytes(batch: &Batch) -> &[u8] {
        batch.memory()
    }

    fn info(batch: &Batch) -> Arc<BatchInfo> {
        BatchInfo::of(batch)
    }

    fn decoding(batch: &Batch) -> Option<Arc<Decoding>> {
        batch.decoding()
    }

    fn answers(batch: &mut Batch) -> &mut [u8] {
        batch.statuses_mut()
    }

    fn close_page_cache(&self, why: &str) {
        if let Some(page_cache) = &self.shared().page_cache {
            page_cache.close(why);
        }
    }

    fn decoded_here(&mut self, batch: Batch) -> Result<Batch> {
        Loader::decoded_here(self, batch)
    }
}

impl PreparedDeviceLoader {
    /// Opens the device, takes memory and starts the threads; see
    /// [`PreparedLoader::start`](crate::PreparedLoader::start).
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
    /// As [`Loader::new`]; if the device cannot be used (the error says why) or has too little
    /// memory; if the dataset lacks something that is asked for, such as statistics.
    pub fn new(
        dataset: &Dataset,
        options: LoaderOptions,
        device: DeviceOptions,
        library: L,
    ) -> Result<Self> {
        Self::begin_with(PreparedDeviceLoader::new(dataset, options, device)?, library)
    }

    /// Creates a loader that goes on where another loader, on any device, was when it returned
    /// `state`; see [`Loader::with_state`].
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
        let decodes = prepared.loader.options().decode == DecodePlace::Device;
        if decodes && prepared.options.device == Device::Cpu {
            return Err(no_device());
        }
        prepared.options.check_device()?;
        match (prepared.options.device, prepared.options.emulated_bus) {
            (Device::Cpu, Some(rate)) => Self::begin_on(Emulated::new(rate), prepared, library),
            (Device::Cpu, None) => Self::begin_on_host(prepared, library),
            (Device::Cuda(number), _) => {
                let cuda = Cuda::open(number)?;
                for options in prepared.loader.options_mut() {
                    options.memory.locker.get_or_insert_with(|| cuda.locker());
                }
                Self::begin_on(cuda, prepared, library)
            }
        }
    }

    /// Begins on the CPU. If there is something to compute, a thread computes it ahead.
    fn begin_on_host(prepared: PreparedDeviceLoader, library: L) -> Result<Self> {
        let mut loader = prepared.loader.clone().start()?;
        let (shared, state) = (loader.shared().clone(), loader.state());
        let computes = !prepared.computes_nothing();
        let (delivery, trace): (Box<dyn Delivery<L>>, _) = if computes && !prepared.options.repeat {
            loader.feed_preparer();
            let trace = shared.options().trace.clone();
            let maker = Self::maker(&prepared, &library, trace.clone(), Track::Preparer);
            let interrupt = stop_ring(&shared);
            let ahead = prepared.batches_ahead(shared.ring.slot_bytes());
            let host = Host::prefetched(loader, &prepared.options);
            let make = Box::new(move |memory: &_, info: &_| maker.make(memory, info));
            (Box::new(Prefetch::start(host, ahead, make, interrupt)?), trace)
        } else {
            let trace = shared.options().trace.clone();
            let maker = Self::maker(&prepared, &library, trace, Track::Consumer);
            // The loader inside records what the consumer does.
            (Box::new(OnHost { host: Host::new(loader, &prepared.options), maker }), None)
        };
        let tally = Arc::new(Tally::new(false));
        let monitor = Self::monitoring(&*delivery, &prepared, shared, tally, Vec::new());
        Ok(Self::of(delivery, library, prepared, monitor, state, trace))
    }

    /// Begins on a device to which batches have to be copied.
    pub(super) fn begin_on<B: Backend>(
        backend: B,
        prepared: PreparedDeviceLoader,
        library: L,
    ) -> Result<Self> {
        let mut inner = prepared.loader.clone();
        let decodes = inner.options().decode == DecodePlace::Device;
        let (mut residents, mut registering) = (Vec::new(), None);
        let mut completes = false;
        // To measure copies alone, values are copied.
        if !prepared.options.repeat {
            let keeps = prepared.options.keeps_samples(decodes);
            completes = decodes || keeps;
            if completes {
                backend.prepare_decoding()?;
            }
            if decodes {
                let started = register_files(&backend, &inner, &prepared.options)?;
                inner = inner.for_decoding().with_page_cache(started.cache().clone());
                registering = Some(started);
            }
            if keeps {
                residents = keep_samples(&backend, &inner, &prepared.options)?;
                inner = inner.with_residents(residents.clone());
            }
        }
        let mut loader = inner.start_inside()?;
        loader.feed_transfer();
        let (shared, state) = (loader.shared().clone(), loader.state());
        let interrupt = stop_ring(&shared);
        let slot_bytes = shared.batch_bytes;
        let backend = Arc::new(backend);
        let tally = Arc::new(Tally::new(completes));
        let shared_tally = tally.clone();
        let trace = shared.options().trace.clone();
        let maker = Self::maker(&prepared, &library, trace.clone(), Track::Consumer);
        let delivery: Box<dyn Delivery<L>> = if prepared.options.repeat {
            let source = Repeat::new(loader);
            let transfer =
                Transfer::start(backend, source, slot_bytes, residents, shared_tally, interrupt)?;
            Box::new(OnDevice { transfer, _registering: registering, maker })
        } else {
            let transfer =
                Transfer::start(backend, loader, slot_bytes, residents, shared_tally, interrupt)?;
            Box::new(OnDevice { transfer, _registering: registering, maker })
        };
        let notes = shared.ring.quick_memory_report().notes;
        let monitor = Self::monitoring(&*delivery, &prepared, shared, tally, notes);
        Ok(Self::of(delivery, library, prepared, monitor, state, trace))
    }

    fn maker(
        prepared: &PreparedDeviceLoader,
        library: &L,
        trace: Option<Arc<Trace>>,
        track: Track,
    ) -> TensorMaker<L> {
        let PreparedDeviceLoader { conversions, pipelines, .. } = prepared;
        let (conversions, pipelines) = (conversions.clone(), pipelines.clone());
        TensorMaker { library: library.clone(), conversions, pipelines, trace, track }
    }

    fn monitoring(
        delivery: &dyn Delivery<L>,
        prepared: &PreparedDeviceLoader,
        shared: Arc<Shared>,
        tally: Arc<Tally>,
        notes: Vec<String>,
    ) -> Monitor {
        let copies = delivery.copies();
        Monitor { shared, options: prepared.options.clone(), tally, copies, notes }
    }

    fn of(
        delivery: Box<dyn Delivery<L>>,
        library: L,
        prepared: PreparedDeviceLoader,
        monitor: Monitor,
        state: State,
        trace: Option<Arc<Trace>>,
    ) -> Self {
        let fresh = state.delivered.iter().all(|segment| segment.batches == 0);
        let consumer = Consumer::training();
        Self { delivery, library, prepared, monitor, state, fresh, failed: 0, consumer, trace }
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

    /// The next batch of the current epoch. At its end this is `None` once, and then the first
    /// batch of the next epoch.
    ///
    /// # Errors
    /// As [`Loader::next_batch`]; if the device is out of memory or lost. If nothing of the data is
    /// wrong, but the device refuses a copy or has no memory, the same batch comes once more, and
    /// counts as given if it fails again. If the device is lost, every batch fails.
    pub fn next_batch(&mut self) -> Option<Result<DeviceBatch<L>>> {
        self.next_before(None).map(|next| next.map(|batch| batch.expect("there is no deadline")))
    }

    /// Like [`next_batch`](Self::next_batch), but returns `Ok(None)` if no batch comes within
    /// `timeout`.
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
        let next = self.delivery.next(deadline);
        tally.waited(before.elapsed());
        match next {
            Ok(Next::Batch(BatchTensors { image, masks, info, augmented: Ok(how) }, state)) => {
                (self.state, self.fresh) = (state, false);
                tally.batches.fetch_add(1, Ordering::Relaxed);
                self.consumer.gets(info.number, record);
                let library = self.library.clone();
                let Augmentation { mixed, drawn } = how;
                Some(Ok(Some(DeviceBatch { image, masks, mixed, drawn, info, library })))
            }
            Ok(Next::Batch(BatchTensors { augmented: Err(error), .. }, state)) => {
                self.consumer.ends();
                self.failed += 1;
                (self.state, self.fresh) = (state, false);
                Some(Err(error))
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

    /// Whether the next batch is prepared, so that asking for it returns at once. Always false
    /// where nothing is prepared ahead: on a device, and on the CPU if batches need no conversion
    /// and no augmentation.
    pub fn is_ready(&self) -> bool {
        self.delivery.is_ready()
    }

    /// Drops unfinished batches and goes to the start of an epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        if !self.fresh || self.state.epoch != epoch {
            self.delivery.go_to(epoch);
            self.state = self.shared().state_before(epoch);
            self.fresh = true;
        }
    }

    /// How far training is: after the last batch given, or after its error, however many are copied
    /// ahead. See [`Loader::state`].
    pub fn state(&self) -> State {
        self.state.clone()
    }

    /// The dataset; the first one if there are several.
    pub fn dataset(&self) -> &Dataset {
        &self.shared().first().dataset
    }

    /// The options of the loader inside.
    pub fn options(&self) -> &LoaderOptions {
        self.shared().options()
    }

    /// The options for the device.
    pub fn device_options(&self) -> &DeviceOptions {
        &self.prepared.options
    }

    /// The plan of its epochs.
    pub fn plan(&self) -> &Plan {
        &self.shared().first().plan
    }

    /// Names of the masks that batches have.
    pub fn masks(&self) -> &[String] {
        &self.shared().first().masks
    }

    /// Names of the targets that batches have.
    pub fn targets(&self) -> &[String] {
        &self.shared().first().targets
    }

    /// Names of the further images that batches have.
    pub fn images(&self) -> &[String] {
        self.prepared.images()
    }

    /// Names of a mask's boolean layers, in the order of their axis. Empty for class ids; `None` if
    /// there is no such mask.
    pub fn layers(&self, mask: &str) -> Option<&[String]> {
        self.prepared.layers(mask)
    }

    /// Every stack that [`Normalization::Standardize`](super::Normalization) acts on: its name, and
    /// the split whose statistics are used, or `None` if those of all its samples are used.
    pub fn standardized_by(&self) -> Vec<(String, Option<String>)> {
        self.prepared.standardized_by()
    }

    /// Whether a stack is standardised by the statistics of all its samples although the dataset
    /// has a training split. Older datasets do not record statistics of splits, and a stack may
    /// have no sample of this split.
    pub fn lacks_train_statistics(&self) -> bool {
        self.prepared.lacks_train_statistics()
    }

    /// Number of batches that every rank gets in this epoch, including those already given.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn batches_per_epoch(&self) -> Result<usize> {
        let (shared, State { epoch, delivered, .. }) = (self.shared(), &self.state);
        shared.plan.batches(*epoch, delivered, shared.options().share)
    }

    /// Kind of the ring's memory, and why it is no better.
    pub fn memory(&self) -> MemoryReport {
        self.monitor.memory()
    }

    /// Cache policy, with its reason; that of the first dataset if there are several.
    pub fn cache(&self) -> &CacheChoice {
        &self.shared().first().cached
    }

    /// The loader's workload and its cost.
    pub fn workload(&self) -> Workload {
        Workload::new(
            self.dataset(),
            self.plan(),
            self.options().bands.as_deref(),
            self.cache().clone(),
        )
    }

    /// Bytes that the cache holds.
    pub fn cached_bytes(&self) -> u64 {
        self.monitor.cached_bytes()
    }

    /// How the loader works, and why it does no better.
    pub fn report(&self) -> DeviceReport {
        self.monitor.report()
    }

    /// Counters and times so far.
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

/// Takes memory of the device for the samples of a loader.
fn keep_samples<B: Backend>(
    backend: &B,
    loader: &PreparedLoader,
    options: &DeviceOptions,
) -> Result<Vec<Arc<Residents>>> {
    let members = loader.members();
    let needed = |member: &Member| member.cache().needed_bytes as f64;
    let all: f64 = members.iter().map(needed).sum();
    // Slots, buffers, and what is computed for a batch.
    let reserved = RESERVED_BATCHES * loader.batch_bytes() as u64;
    let keep = |member: &Member| {
        let samples = member.plan().samples().iter().map(|sample| {
            let sample = sample.sample;
            Ok((member.dataset().stack_of(sample)?, sample))
        });
        let as_stored = member.options().bands.is_none() && !member.changes_values();
        // The sizes of frames are in the indices of all shards, each of which would be asked for.
        let requested = options.device_cache;
        let are_near = requested == DeviceCache::Compressed || !is_url(member.dataset().path());
        let residents = Residents::join(
            backend,
            &Request {
                dataset: member.dataset(),
                samples: samples.collect::<Result<_>>()?,
                arrays: &|stack| member.arrays(stack),
                wanted: requested,
                limit: options.device_cache_bytes,
                reserved,
                by_windows: member.plan().options().crop != Crop::Whole,
                decodes: member.options().decode == DecodePlace::Device && as_stored && are_near,
                is_private: member.changes_values(),
                fraction: if all > 0.0 { needed(member) / all } else { 1.0 },
            },
        );
        residents.map(Arc::new)
    };
    members.iter().map(keep).collect()
}

/// Begins to register files of a loader with its device.
fn register_files<B: Backend>(
    backend: &B,
    loader: &PreparedLoader,
    options: &DeviceOptions,
) -> Result<Registering> {
    let demands = loader.members().iter().map(Member::demand).collect::<Result<Vec<_>>>()?;
    let smallest = demands.iter().map(|demand| demand.sample_bytes).min();
    let demand = Demand {
        stored_bytes: demands.iter().map(|demand| demand.stored_bytes).sum(),
        sample_bytes: smallest.flatten(),
        ranks: demands.iter().map(|demand| demand.ranks).max().unwrap_or(1),
    };
    Registering::start(backend.map_registrar(), options.page_cache, demand)
}

/// Batches for which the device's memory is left free when samples are kept there.
const RESERVED_BATCHES: u64 = 6;

/// Makes every wait for the ring end, for good.
fn stop_ring(shared: &Shared) -> Box<dyn Fn() + Send> {
    let ring = shared.ring.clone();
    Box::new(move || ring.slots().stop())
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
