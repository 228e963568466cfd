//! The loader as its user sees it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tch::{Device, Tensor};

use super::backend::Backend;
use super::batch::{DeviceBatch, Info};
use super::cuda::Cuda;
use super::emulated::Emulated;
use super::host::Host;
use super::options::DeviceOptions;
use super::recipe::{Recipe, is_train};
use super::repeat::Repeat;
use super::transfer::{Next, Source, Transfer};
use crate::dataset::Dataset;
use crate::loader::{
    Batch, BatchTimes, Consumer, Loader, LoaderOptions, Record, Shared, Statistics, Times,
};
use crate::plan::{Plan, State};
use crate::ring::memory::MemoryReport;
use crate::torch::pool::Pool;
use crate::trace::Trace;
use crate::{Error, Result};

/// A [`Loader`] whose batches are tensors on a device.
///
/// On the CPU they lie over the ring's slots: nothing is copied as long as no more than half of the slots (at least
/// one) are kept; beyond that, batches are copied, so that any number may be kept. On a CUDA device a thread copies
/// batches ahead from page-locked memory into one of two device slots, on a stream of its own: while a batch is
/// used, the next one is copied. Nobody waits for the device or a whole stream.
///
/// ```no_run
/// use hsipack_read::{Dataset, DeviceLoader, DeviceOptions, LoaderOptions, best_device};
///
/// let dataset = Dataset::open("tissue.hsipack")?;
/// let device = DeviceOptions::new(best_device());
/// let mut loader = DeviceLoader::new(&dataset, LoaderOptions::new(6), device)?;
/// for batch in loader.epoch() {
///     let batch = batch?;
///     println!("{:?} on {:?}", batch.image.size(), batch.image.device()); // (B, C, H, W), channels_last
/// }
/// # Ok::<(), hsipack_read::Error>(())
/// ```
///
/// # Streams
/// A batch may be used on the stream that is current (for the calling thread) when it is asked for, and on streams
/// that wait for it. The memory of a batch is written to again only after what was queued on the current stream
/// when its last tensor was dropped, or was found to be, at the next call. So whoever uses a batch on other streams
/// lets the current one wait for them before dropping it. Do not ask for batches while a CUDA graph is captured.
pub struct DeviceLoader {
    way: Box<dyn Way>,
    recipe: Recipe,
    shared: Arc<Shared>,
    options: DeviceOptions,
    /// Behind the last batch given.
    state: State,
    /// Nothing was given or failed since the epoch of `state` was begun.
    fresh: bool,
    batches: u64,
    waiting: Duration,
    times: Times,
    consumer: Consumer,
    /// On the CPU the loader inside records.
    trace: Option<Arc<Trace>>,
    /// Where results of augmentations lie, on the CPU.
    results: Option<Arc<Pool>>,
    notes: Vec<String>,
}

/// What remains of an epoch, as an iterator; see [`DeviceLoader::epoch`].
#[derive(Debug)]
pub struct DeviceEpoch<'a> {
    loader: &'a mut DeviceLoader,
    over: bool,
}

/// What a device loader does, and why it does no better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReport {
    /// Where batches are: `cpu`, `cuda:0`, …, or `emulated` (on the CPU).
    pub device: String,
    /// How they come there: `none` (tensors lie over the ring), `asynchronous` from page-locked memory, `staged` by the
    /// driver from memory that is not, or `emulated`.
    pub copies: &'static str,
    /// Bytes of a slot of the ring, and of a device slot.
    pub slot_bytes: usize,
    /// Device slots; 0 on the CPU.
    pub device_slots: usize,
    /// Why it is no better.
    pub notes: Vec<String>,
}

/// Tensors made of a slot.
type Made = (Tensor, Vec<(String, Tensor)>, Arc<Info>);
/// What makes them.
type Make<'a> = &'a mut dyn FnMut(&Tensor, &Arc<Info>) -> Result<Made>;
/// Tensors, and what is dropped after them.
type Given = (Made, Option<Box<dyn Send>>);

/// How batches come to the device.
trait Way: Send {
    fn next(&mut self, deadline: Option<Instant>, make: Make<'_>) -> Result<Next<Given, State>>;
    fn go_to(&mut self, epoch: u64);
    fn device_slots(&self) -> usize;
    fn given_away(&self) -> u64;
    fn copied(&self) -> u64;
}

impl Way for Host {
    fn next(&mut self, deadline: Option<Instant>, make: Make<'_>) -> Result<Next<Given, State>> {
        Ok(match Host::next(self, deadline, make)? {
            Next::Batch(made, state) => Next::Batch((made, None), state),
            Next::End(state) => Next::End(state),
            Next::TimedOut => Next::TimedOut,
        })
    }

    fn go_to(&mut self, epoch: u64) {
        Host::go_to(self, epoch);
    }

    fn device_slots(&self) -> usize {
        0
    }

    fn given_away(&self) -> u64 {
        0
    }

    fn copied(&self) -> u64 {
        Host::copied(self)
    }
}

impl<B: Backend, S: Source<Info = Arc<Info>, Place = State>> Way for Transfer<B, S> {
    fn next(&mut self, deadline: Option<Instant>, make: Make<'_>) -> Result<Next<Given, State>> {
        Ok(match Transfer::next(self, deadline, make)? {
            Next::Batch((made, hold), state) => Next::Batch((made, Some(hold)), state),
            Next::End(state) => Next::End(state),
            Next::TimedOut => Next::TimedOut,
        })
    }

    fn go_to(&mut self, epoch: u64) {
        Transfer::go_to(self, epoch);
    }

    fn device_slots(&self) -> usize {
        self.slots()
    }

    fn given_away(&self) -> u64 {
        Transfer::given_away(self)
    }

    fn copied(&self) -> u64 {
        0
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

impl DeviceLoader {
    /// A loader at the start of epoch 0.
    ///
    /// # Errors
    /// As [`Loader::new`]; if the device cannot be used, which the error explains, or has too little memory; if the
    /// dataset lacks what is asked for, such as statistics.
    pub fn new(dataset: &Dataset, options: LoaderOptions, device: DeviceOptions) -> Result<Self> {
        Self::start(dataset, options, device, None)
    }

    /// A loader that goes on where another one, on whatever device, was when it gave `state`; see
    /// [`Loader::with_state`].
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the state is of another dataset, seed or plan.
    pub fn with_state(
        dataset: &Dataset,
        options: LoaderOptions,
        device: DeviceOptions,
        state: &State,
    ) -> Result<Self> {
        Self::start(dataset, options, device, Some(state))
    }

    fn start(
        dataset: &Dataset,
        options: LoaderOptions,
        device: DeviceOptions,
        state: Option<&State>,
    ) -> Result<Self> {
        match device.device {
            Device::Cpu if device.emulated_bus.is_some() => {
                let bytes_per_s = device.emulated_bus.unwrap_or_default();
                if !(bytes_per_s > 0.0 && bytes_per_s.is_finite()) {
                    return Err(Error::conflict(format!("a bus of {bytes_per_s} bytes a second"))
                        .with_remedy("give a rate above 0"));
                }
                Self::start_on(Emulated::new(bytes_per_s), dataset, options, device, state)
            }
            Device::Cpu if device.repeat => {
                Err(Error::conflict("one batch, copied again and again, on the CPU")
                    .with_remedy("nothing is copied there; ask for a device, or an emulated bus"))
            }
            Device::Cpu => {
                let loader = loader(dataset, options, state)?;
                let recipe = Recipe::new(loader.shared(), &device)?;
                let (shared, place) = (loader.shared().clone(), loader.state());
                let way = Box::new(Host::new(loader, device.copy));
                Ok(Self::of(way, recipe, shared, device, place, Vec::new()))
            }
            Device::Cuda(number) => {
                let cuda = Cuda::open(number)?;
                let mut options = options;
                options.memory.locker.get_or_insert_with(|| cuda.locker());
                Self::start_on(cuda, dataset, options, device, state)
            }
            other => Err(Error::unsupported(format!("batches on {other:?}"))
                .with_remedy("ask for the CPU or a CUDA device")),
        }
    }

    /// Starts on a device that batches have to be copied to.
    pub(super) fn start_on<B: Backend>(
        backend: B,
        dataset: &Dataset,
        options: LoaderOptions,
        device: DeviceOptions,
        state: Option<&State>,
    ) -> Result<Self> {
        let mut loader = loader(dataset, options, state)?;
        loader.feed_transfer();
        // Constants of the recipe go where the backend's tensors are.
        let there = DeviceOptions { device: backend.device(), ..device.clone() };
        let recipe = Recipe::new(loader.shared(), &there)?;
        let (shared, place) = (loader.shared().clone(), loader.state());
        let ring = shared.ring.clone();
        let interrupt = Box::new(move || ring.slots().stop());
        let slot_bytes = shared.ring.slot_bytes();
        let backend = Arc::new(backend);
        let way: Box<dyn Way> = if device.repeat {
            Box::new(Transfer::start(backend, Repeat::new(loader), slot_bytes, interrupt)?)
        } else {
            Box::new(Transfer::start(backend, loader, slot_bytes, interrupt)?)
        };
        let notes = shared.ring.memory_report().notes.clone();
        Ok(Self::of(way, recipe, shared, device, place, notes))
    }

    fn of(
        way: Box<dyn Way>,
        recipe: Recipe,
        shared: Arc<Shared>,
        options: DeviceOptions,
        state: State,
        notes: Vec<String>,
    ) -> Self {
        let fresh = state.given.iter().all(|segment| segment.batches == 0);
        let waiting = Duration::ZERO;
        let (times, consumer) = (Times::new(), Consumer::training());
        let results = (options.device == Device::Cpu).then(Arc::default);
        let trace = shared.options.trace.clone().filter(|_| way.device_slots() > 0);
        Self {
            way,
            recipe,
            shared,
            options,
            state,
            fresh,
            batches: 0,
            waiting,
            times,
            consumer,
            trace,
            results,
            notes,
        }
    }

    /// The batches that remain of the present epoch; see [`Loader::epoch`].
    pub fn epoch(&mut self) -> DeviceEpoch<'_> {
        DeviceEpoch { loader: self, over: false }
    }

    /// The next batch of the present epoch; `None` at its end, once, and then the first one of the next epoch.
    ///
    /// # Errors
    /// As [`Loader::next_batch`]; if the device is out of memory or lost. The next call tries again: no batch is
    /// left out.
    pub fn next_batch(&mut self) -> Option<Result<DeviceBatch>> {
        self.next_before(None).map(|next| next.map(|batch| batch.expect("there is no deadline")))
    }

    /// As [`next_batch`](Self::next_batch), but gives `Ok(None)` if no batch comes within `timeout`.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<Option<DeviceBatch>>> {
        self.next_before(Some(Instant::now() + timeout))
    }

    fn next_before(&mut self, deadline: Option<Instant>) -> Option<Result<Option<DeviceBatch>>> {
        let before = Instant::now();
        self.consumer.asks(Record { times: &self.times, trace: self.trace.as_deref() });
        let recipe = &self.recipe;
        let next = self.way.next(deadline, &mut |memory, info| {
            let (image, masks) = recipe.make(memory, info)?;
            Ok((image, masks, info.clone()))
        });
        self.waiting += before.elapsed();
        match next {
            Ok(Next::Batch(((image, masks, info), hold), state)) => {
                (self.state, self.fresh) = (state, false);
                self.batches += 1;
                let results = self.results.clone();
                let record = Record { times: &self.times, trace: self.trace.as_deref() };
                self.consumer.gets(info.number, record);
                Some(Ok(Some(DeviceBatch { image, masks, info, results, _hold: hold })))
            }
            Ok(Next::TimedOut) => Some(Ok(None)),
            Ok(Next::End(state)) => {
                self.consumer.ends();
                (self.state, self.fresh) = (state, true);
                None
            }
            Err(error) => {
                self.consumer.ends();
                self.fresh = false;
                Some(Err(error))
            }
        }
    }

    /// Drops what is under way and goes to the start of an epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        if !self.fresh || self.state.epoch != epoch {
            self.way.go_to(epoch);
            self.state = State::new(&self.shared.plan, self.shared.dataset.fingerprint(), epoch);
            self.fresh = true;
        }
    }

    /// How far training is: behind the last batch given, however many are copied ahead. See [`Loader::state`].
    pub fn state(&self) -> State {
        self.state.clone()
    }

    /// The dataset.
    pub fn dataset(&self) -> &Dataset {
        &self.shared.dataset
    }

    /// The options of the loader inside.
    pub fn options(&self) -> &LoaderOptions {
        &self.shared.options
    }

    /// What was asked of the device.
    pub fn device_options(&self) -> &DeviceOptions {
        &self.options
    }

    /// The plan of its epochs.
    pub fn plan(&self) -> &Plan {
        &self.shared.plan
    }

    /// Names of the masks that batches have.
    pub fn masks(&self) -> &[String] {
        &self.shared.masks
    }

    /// Names of a mask's boolean layers, in the order of their axis; empty for class ids, `None` if there is no such
    /// mask.
    pub fn layers(&self, mask: &str) -> Option<&[String]> {
        self.recipe.layers(mask)
    }

    /// Every stack that [`Normalization::Standardize`](super::Normalization) acts on: its name, and the split whose
    /// statistics it is standardised by, or `None` where those of all its samples are.
    pub fn standardized_by(&self) -> Vec<(String, Option<String>)> {
        self.recipe.standardized_by()
    }

    /// Whether a stack is standardised by statistics of all its samples though the dataset has a split to train on:
    /// older datasets do not record statistics of splits, and a stack may have no sample of it.
    pub fn lacks_train_statistics(&self) -> bool {
        let splits = self.shared.dataset.labels().splits();
        self.standardized_by().iter().any(|(_, split)| split.is_none())
            && splits.iter().any(|split| is_train(split))
    }

    /// Batches that every rank gets in a whole epoch.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn batches_per_epoch(&self) -> Result<usize> {
        let epoch = self.shared.plan.epoch(self.state.epoch, &[], self.shared.options.share)?;
        Ok(epoch.batches())
    }

    /// What memory the ring has, and why it is no better.
    pub fn memory(&self) -> &MemoryReport {
        self.shared.ring.memory_report()
    }

    /// What it does, and why it does no better.
    pub fn report(&self) -> DeviceReport {
        let device_slots = self.way.device_slots();
        let page_locked = self.memory().kind == "page-locked";
        let mut notes = self.notes.clone();
        let given_away = self.way.given_away();
        if given_away > 0 {
            notes.push(format!(
                "new device memory was taken {given_away} times, since tensors over the slots were kept; copy what \
                 you keep"
            ));
        }
        if self.way.copied() > 0 {
            notes.push(format!(
                "{} batches were copied, since others were kept; drop batches after use or ask for more slots",
                self.way.copied()
            ));
        }
        DeviceReport {
            device: match self.options.device {
                Device::Cuda(number) => format!("cuda:{number}"),
                _ if self.options.emulated_bus.is_some() => "emulated".to_owned(),
                _ => "cpu".to_owned(),
            },
            copies: match (device_slots, page_locked) {
                (0, _) => "none",
                _ if self.options.emulated_bus.is_some() => "emulated",
                (_, true) => "asynchronous",
                (_, false) => "staged",
            },
            slot_bytes: self.shared.ring.slot_bytes(),
            device_slots,
            notes,
        }
    }

    /// What it did so far.
    pub fn statistics(&self) -> Statistics {
        let times = self.times.get();
        let inside = self.shared.statistics();
        Statistics {
            batches: self.batches,
            waiting_s: self.waiting.as_secs_f64(),
            times: BatchTimes { load_s: inside.times.load_s, ..times },
            given_away: self.way.given_away(),
            copied: self.way.copied(),
            ..inside
        }
    }

    /// Forgets how long batches took; see [`Loader::forget_times`].
    pub fn forget_times(&self) {
        self.times.clear();
        self.shared.counters.times.clear();
    }
}

fn loader(dataset: &Dataset, options: LoaderOptions, state: Option<&State>) -> Result<Loader> {
    match state {
        Some(state) => Loader::with_state(dataset, options, state),
        None => Loader::new(dataset, options),
    }
}

impl fmt::Debug for DeviceLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLoader")
            .field("report", &self.report())
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Iterator for DeviceEpoch<'_> {
    type Item = Result<DeviceBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.loader.next_batch();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}
