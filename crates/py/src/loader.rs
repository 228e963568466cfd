//! Batches, and the state to resume from.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use hsipack_augment::{Device, kernels};
use hsipack_measure::diagnose::Facts;
use hsipack_read::plan::{Crop, Item, Plan, Share, State, Window};
use hsipack_read::{
    CacheChoice, CacheKind, DeviceBatch, DeviceLoader, Error, KeptChunks, LoaderOptions,
    LoaderStats, Member, MemoryReport, Monitor, OfProcess, PreparedDeviceLoader, PreparedLoader,
    Result, Statistics, Workload,
};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyString};
use serde_json::json;

use crate::array::Array;
use crate::augment::{ResampledBands, pairs, parts_of_bands};
use crate::boxes::LoaderBoxes;
use crate::dataset::Dataset;
use crate::errors::OrRaise;
use crate::exit::{detached, pause};
use crate::settings::Settings;
use crate::task::{POLL_INTERVAL, Task, Worker, patiently};
use crate::torch::Library;

/// A device loader. It takes memory and starts threads when the first batch is asked for.
///
/// On the CPU, a separate thread waits for batches, because that may take long; the caller's thread
/// checks for signals meanwhile. It takes what is prepared already by itself. On a CUDA device, the
/// caller's thread does the work, because its stream is used, and it only queues the work.
///
/// Only asking for batches and moving elsewhere need the lock of `running`. State, statistics and
/// reports can be read at any time, in any thread, and in signal handlers that interrupt a wait for
/// a batch.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct Loader {
    prepared: Mutex<Arc<PreparedDeviceLoader>>,
    library: Library,
    progress: Mutex<Progress>,
    running: Mutex<Option<OfProcess<Running>>>,
    /// A start that a signal handler interrupted; the next call waits for it.
    starting: Mutex<Option<OfProcess<Starting>>>,
    monitor: Mutex<Watched>,
    /// Makes the batches, as long as the loader is open; for the end of the process.
    source: Mutex<Option<OfProcess<Weak<Source>>>>,
    closed: Arc<AtomicBool>,
    boxes: Option<LoaderBoxes>,
}

/// The start of a loader, in another thread.
type Starting = Task<Result<DeviceLoader<Library>>>;

/// How far training is.
struct Progress {
    /// The state after the last batch returned.
    state: State,
    /// The state before it.
    before: State,
}

/// Where statistics and reports come from.
enum Watched {
    /// No batch was asked for yet.
    Idle,
    Running(OfProcess<Monitor>),
    /// The last statistics and the last report.
    Closed(String, String),
}

struct Running {
    /// `None` on a device, where the caller's thread does the work.
    worker: Option<Worker>,
    source: Arc<Source>,
    /// The batch that the worker is preparing. If the call is interrupted, the next call returns
    /// this batch.
    pending: Option<Task<Step>>,
}

/// Makes batches.
struct Source {
    /// `None` once it was closed as the process ends.
    loader: Mutex<Option<DeviceLoader<Library>>>,
    /// A finished step that no call has returned yet: a signal handler raised, or the process ends.
    finished_step: Mutex<Option<Step>>,
    /// Set when nobody waits for the batch in preparation any more.
    cancelled: AtomicBool,
    /// Set when the loader is closed.
    closed: Arc<AtomicBool>,
}

/// Name of what augments batches on a device, with the reason if it is not the fastest way. Null
/// before the first batch, when the device may still change.
fn augmented_by(device: Device, at_work: bool) -> serde_json::Value {
    match device {
        _ if !at_work => json!({"by": null}),
        Device::Cpu => json!({"by": "loops"}),
        Device::Cuda(number) => match kernels::of_device(number) {
            Ok(_) => json!({"by": "kernels"}),
            Err(error) => json!({"by": "torch", "why": error.to_string()}),
        },
    }
}

/// How long the end of the process waits for each loader that another thread is using.
const AT_EXIT: Duration = Duration::from_secs(1);

/// The result of asking for a batch.
enum Step {
    Batch(Box<DeviceBatch<Library>>, State),
    End(State),
    /// No batch came in time.
    Waiting,
    Failed(Error, State),
}

impl Source {
    /// Ends its threads and frees its memory as the process ends, although a thread that was
    /// stopped may have called it. Does nothing if that thread still uses it after a while.
    fn close(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        let end = Instant::now() + AT_EXIT;
        let mut loader = loop {
            match self.loader.try_lock() {
                Ok(loader) => break loader,
                Err(TryLockError::Poisoned(loader)) => break loader.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() > end => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        drop(lock(&self.finished_step).take());
        drop(loader.take());
    }

    /// Makes a step, and keeps it until it is taken or this is closed. So a thread that is stopped
    /// does not keep it.
    fn make(&self) {
        let mut loader = lock(&self.loader);
        *lock(&self.finished_step) = Some(self.step_of(&mut loader));
    }

    /// The next batch, if it comes within a short time.
    fn step(&self) -> Step {
        self.step_of(&mut lock(&self.loader))
    }

    fn step_of(&self, loader: &mut Option<DeviceLoader<Library>>) -> Step {
        let Some(loader) = loader else { return Step::Waiting };
        match loader.next_within(POLL_INTERVAL) {
            None => Step::End(loader.state()),
            Some(Ok(None)) => Step::Waiting,
            Some(Ok(Some(batch))) => Step::Batch(Box::new(batch), loader.state()),
            Some(Err(error)) => Step::Failed(error, loader.state()),
        }
    }

    /// Whether the next batch is prepared.
    fn is_ready(&self) -> bool {
        lock(&self.loader).as_ref().is_some_and(DeviceLoader::is_ready)
    }

    /// The next batch, unless waiting is cancelled before.
    fn steps(&self) -> Step {
        loop {
            match self.step() {
                Step::Waiting if !self.is_cancelled() => {}
                step => return step,
            }
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed) || self.closed.load(Ordering::Relaxed)
    }
}

impl Running {
    /// The next step that is not a wait.
    fn next(&mut self, py: Python<'_>) -> PyResult<Step> {
        loop {
            let finished = lock(&self.source.finished_step).take();
            let step = match finished {
                Some(step) => step,
                None if self.worker.is_some() && !self.is_ready() => self.wait(py)?,
                None => {
                    detached(py, || self.source.make());
                    lock(&self.source.finished_step).take().unwrap_or(Step::Waiting)
                }
            };
            // Check here and not on the way back to the caller: there, an exception would replace the batch.
            if let Err(raised) = py.check_signals() {
                *lock(&self.source.finished_step) = Some(step);
                return Err(raised);
            }
            match step {
                Step::Waiting if !self.source.closed.load(Ordering::Relaxed) => {}
                step => return Ok(step),
            }
        }
    }

    /// Whether the next batch is prepared, and the worker is not about to take it.
    fn is_ready(&self) -> bool {
        self.pending.is_none() && self.source.is_ready()
    }

    fn wait(&mut self, py: Python<'_>) -> PyResult<Step> {
        let Self { worker, source, pending, .. } = self;
        let task = pending.take().unwrap_or_else(|| {
            let source = source.clone();
            source.cancelled.store(false, Ordering::Relaxed);
            worker.as_ref().expect("checked by the caller").run(move || source.steps())
        });
        task.wait(py).inspect_err(|_| self.pending = Some(task))
    }

    /// Drops the batch in preparation.
    fn cancel(&mut self, py: Python<'_>) -> PyResult<()> {
        self.source.cancelled.store(true, Ordering::Relaxed);
        *lock(&self.source.finished_step) = None;
        if let Some(task) = self.pending.take() {
            task.wait(py).inspect_err(|_| self.pending = Some(task))?;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.source.cancelled.store(true, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> Error {
    Error::conflict("this loader is closed").with_remedy("create another one")
}

fn of_another_process() -> Error {
    Error::conflict("this loader belongs to the process that made it")
        .with_remedy("create the loader after the fork")
}

impl Loader {
    /// The lock that asking for batches needs. Raises an error if another thread has it.
    fn iterating(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<OfProcess<Running>>>> {
        pause(py);
        match self.running.try_lock() {
            Ok(running) => Ok(running),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                let error = Error::conflict("another thread is using this loader");
                Err(error.with_remedy("create one loader per thread, or share one behind a lock"))
                    .or_raise(py)
            }
        }
    }

    fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(closed()).or_raise(py);
        }
        Ok(())
    }

    fn prepared(&self) -> Arc<PreparedDeviceLoader> {
        lock(&self.prepared).clone()
    }

    fn state_now(&self) -> State {
        lock(&self.progress).state.clone()
    }

    /// Remembers a position that is not the next batch's.
    fn moved(&self, state: State) {
        *lock(&self.progress) = Progress { before: state.clone(), state };
    }

    /// Takes memory and starts the threads.
    fn start(&self, py: Python<'_>) -> PyResult<Running> {
        let (prepared, library) = (self.prepared(), self.library.clone());
        let on_cpu = prepared.device_options().device == Device::Cpu;
        let begun = lock(&self.starting).as_ref().and_then(|task| task.get().cloned());
        let begun = match begun {
            Some(task) => task,
            None => Task::start(py, move || Arc::unwrap_or_clone(prepared).start(library))?,
        };
        // If a signal handler raises, the next call goes on from here. If the process ends, the loader is closed there.
        *lock(&self.starting) = Some(OfProcess::new(begun.clone()));
        let loader = loop {
            match begun.poll(py, POLL_INTERVAL) {
                Ok(None) => {}
                Ok(Some(loader)) => break loader,
                Err(panicked) => {
                    *lock(&self.starting) = None;
                    return Err(panicked);
                }
            }
            py.check_signals()?;
            self.check_open(py)?;
        };
        *lock(&self.starting) = None;
        let loader = loader.or_raise(py)?;
        // The loader may have chosen another shuffle window.
        self.moved(loader.state());
        *lock(&self.monitor) = Watched::Running(OfProcess::new(loader.monitor()));
        let source = Arc::new(Source {
            loader: Mutex::new(Some(loader)),
            finished_step: Mutex::new(None),
            cancelled: AtomicBool::new(false),
            closed: self.closed.clone(),
        });
        *lock(&self.source) = Some(OfProcess::new(Arc::downgrade(&source)));
        let worker = on_cpu.then(|| Worker::start(py)).transpose()?;
        Ok(Running { worker, source, pending: None })
    }

    /// Calls `with` with the monitor of the loader at work; `None` before the first batch.
    fn watched(
        &self,
        py: Python<'_>,
        with: impl FnOnce(Option<&Monitor>) -> String,
        last: impl FnOnce(&str, &str) -> String,
    ) -> PyResult<String> {
        match &*lock(&self.monitor) {
            Watched::Idle => Ok(with(None)),
            Watched::Running(monitor) => match monitor.get() {
                Some(monitor) => Ok(with(Some(monitor))),
                None => Err(of_another_process()).or_raise(py),
            },
            Watched::Closed(statistics, report) => Ok(last(statistics, report)),
        }
    }

    /// Keeps the last statistics and the last report, in place of the monitor.
    fn end_watch(&self) {
        let mut watched = lock(&self.monitor);
        let monitor = match &*watched {
            Watched::Idle => None,
            Watched::Running(monitor) => monitor.get(),
            Watched::Closed(..) => return,
        };
        let memory = monitor.map(Monitor::quick_memory);
        *watched = Watched::Closed(self.statistics(monitor), self.report(monitor, memory));
    }

    fn statistics(&self, monitor: Option<&Monitor>) -> String {
        let statistics = monitor.map(Monitor::statistics).unwrap_or_else(|| {
            let prepared = self.prepared();
            let LoaderOptions { threads, slots, .. } = *prepared.options();
            let loader = LoaderStats { threads, slots, ..LoaderStats::default() };
            Statistics { schema: 1, loaders: 1, slots, loader, ..Statistics::default() }
        });
        serde_json::to_string(&statistics).expect("plain data")
    }

    fn report(&self, monitor: Option<&Monitor>, memory: Option<MemoryReport>) -> String {
        let prepared = self.prepared();
        let standardized: serde_json::Map<String, serde_json::Value> = prepared
            .standardized_by()
            .into_iter()
            .map(|(stack, split)| (stack, json!(split)))
            .collect();
        let caches: Vec<_> = match monitor {
            Some(monitor) => monitor.caches().collect(),
            None => prepared
                .members()
                .iter()
                .map(|member| (member.cache(), KeptChunks::default()))
                .collect(),
        };
        let layers = |mask: &String| {
            prepared.layers(mask).filter(|layers| !layers.is_empty()).map(<[String]>::to_vec)
        };
        let device = prepared.device_options().device;
        json!({
            "transfer": monitor.map(Monitor::report),
            "memory": memory,
            "masks": prepared.masks(),
            "targets": prepared.targets(),
            "images": prepared.images(),
            "layers": prepared.masks().iter().map(layers).collect::<Vec<_>>(),
            "cache": caches_together(&caches),
            "caches": caches.iter().map(cache_report).collect::<Vec<_>>(),
            "threads": prepared.options().threads,
            "slots": prepared.options().slots,
            "standardized_by": standardized,
            "regions": regions_report(prepared.members()),
            "skipped": prepared.members().iter().flat_map(Member::skipped).collect::<Vec<_>>(),
            "augment": prepared.augmentations().map(|_| augmented_by(device, monitor.is_some())),
        })
        .to_string()
    }
}

#[pymethods]
impl Loader {
    #[new]
    fn new(
        py: Python<'_>,
        datasets: Vec<(Bound<'_, Dataset>, Bound<'_, PyDict>)>,
        weights: Option<Vec<f64>>,
        state: Option<&str>,
    ) -> PyResult<Self> {
        let mut members = Vec::with_capacity(datasets.len());
        let mut of_all = None;
        for (dataset, settings) in &datasets {
            let mut settings = Settings::of(settings)?;
            let mut options = std::mem::take(&mut settings.loader);
            options.integers = of_all.get_or_insert(settings).integers();
            members.push((dataset.get().get(py)?, options));
        }
        let of_all = of_all.unwrap_or_default();
        let (pipeline, library) = (of_all.pipeline().or_raise(py)?, of_all.library());
        let boxes = of_all.min_visible.map(|min_visible| {
            let tables = datasets.iter().map(|(dataset, _)| dataset.get().boxes_of(py));
            Ok::<_, PyErr>(LoaderBoxes { tables: tables.collect::<PyResult<_>>()?, min_visible })
        });
        let boxes = boxes.transpose()?;
        if let (Some(_), Some(pipeline)) = (&boxes, &pipeline) {
            pipeline.check_boxes().or_raise(py)?;
        }
        let device = of_all.device;
        let state = state.map(State::from_json).transpose().or_raise(py)?;
        let prepare = move || {
            let loader = PreparedLoader::joined(members, weights.as_deref())?;
            let mut prepared = PreparedDeviceLoader::of(loader, device)?;
            if let Some(state) = state {
                prepared = prepared.resumed(&state)?;
            }
            match pipeline {
                Some(pipeline) => prepared.augmented(pipeline),
                None => Ok(prepared),
            }
        };
        let prepared = patiently(py, prepare)?.or_raise(py)?;
        let state = prepared.state().clone();
        Ok(Self {
            prepared: Mutex::new(prepared.into()),
            library,
            progress: Mutex::new(Progress { before: state.clone(), state }),
            running: Mutex::new(None),
            starting: Mutex::new(None),
            monitor: Mutex::new(Watched::Idle),
            source: Mutex::new(None),
            closed: Arc::default(),
            boxes,
        })
    }

    /// Moves to another place among the processes that train together, and to a device, before the
    /// first batch.
    fn place(
        &self,
        py: Python<'_>,
        rank: usize,
        world_size: usize,
        device: Option<usize>,
    ) -> PyResult<()> {
        let running = self.iterating(py)?;
        if running.is_some() {
            return Err(Error::bug("a loader at work was moved to another rank")).or_raise(py);
        }
        let (prepared, share) = (self.prepared(), Share { rank, world_size });
        let device = device.map_or(Device::Cpu, Device::Cuda);
        let begin = move || Arc::unwrap_or_clone(prepared).at(share, device);
        *lock(&self.prepared) = patiently(py, begin)?.or_raise(py)?.into();
        Ok(())
    }

    /// Appends the next batch as a dictionary; `None` once at the end of an epoch.
    ///
    /// Does not return it, because an exception from a signal handler would replace it. An error
    /// counts as a batch: the next call goes on after it.
    fn next(&self, py: Python<'_>, into: &Bound<'_, PyList>) -> PyResult<()> {
        let mut running = self.iterating(py)?;
        hsipack_store::mapping::guard();
        self.check_open(py)?;
        if running.is_none() {
            *running = Some(OfProcess::new(self.start(py)?));
        }
        let Some(iteration) = running.as_mut().expect("started above").get_mut() else {
            return Err(of_another_process()).or_raise(py);
        };
        let step = iteration.next(py)?;
        if self.closed.load(Ordering::Relaxed) {
            // Whoever closed it left the threads to this call.
            let running = running.take();
            detached(py, move || drop((running, step)));
            return Err(closed()).or_raise(py);
        }
        drop(running);
        let gone = |state| {
            let mut progress = lock(&self.progress);
            progress.before = std::mem::replace(&mut progress.state, state);
        };
        match step {
            Step::Batch(batch, state) => {
                gone(state);
                let spectra = are_spectra(lock(&self.prepared).plan());
                into.append(batch_dict(py, *batch, spectra, self.boxes.as_ref())?)
            }
            Step::End(state) => {
                gone(state);
                into.append(py.None())
            }
            Step::Failed(error, state) => {
                gone(state);
                Err(error).or_raise(py)
            }
            Step::Waiting => Err(Error::bug("a loader waited without a reason")).or_raise(py),
        }
    }

    /// Drops the batch in preparation and goes to the start of an epoch.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        let mut running = self.iterating(py)?;
        self.check_open(py)?;
        let Some(running) = &mut *running else {
            drop(lock(&self.starting).take());
            let prepared = Arc::unwrap_or_clone(self.prepared()).at_epoch(epoch);
            self.moved(prepared.state().clone());
            *lock(&self.prepared) = prepared.into();
            return Ok(());
        };
        let Some(running) = running.get_mut() else {
            return Err(of_another_process()).or_raise(py);
        };
        running.cancel(py)?;
        let source = running.source.clone();
        let moved = detached(py, || {
            let mut loader = lock(&source.loader);
            loader.as_mut().map(|loader| {
                loader.set_epoch(epoch);
                loader.state()
            })
        });
        match moved {
            Some(state) => self.moved(state),
            None => return Err(closed()).or_raise(py),
        }
        Ok(())
    }

    /// The state after the last batch returned, or before it, as JSON.
    fn state(&self, before: bool) -> String {
        let progress = lock(&self.progress);
        if before { progress.before.to_json() } else { progress.state.to_json() }
    }

    /// Continues from a state.
    fn load_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state = State::from_json(state).or_raise(py)?;
        let mut running = self.iterating(py)?;
        self.check_open(py)?;
        let prepared = self.prepared();
        // Do this before dropping the batch in preparation: if the state does not fit, nothing changes.
        let prepared =
            patiently(py, move || Arc::unwrap_or_clone(prepared).resumed(&state))?.or_raise(py)?;
        if let Some(iteration) = running.as_mut() {
            let Some(iteration) = iteration.get_mut() else {
                return Err(of_another_process()).or_raise(py);
            };
            iteration.cancel(py)?;
        }
        drop(lock(&self.starting).take());
        self.moved(prepared.state().clone());
        *lock(&self.prepared) = prepared.into();
        *lock(&self.monitor) = Watched::Idle;
        // Stopping its threads may take a while.
        let before = running.take();
        patiently(py, move || drop(before))
    }

    /// The epoch of the next batch.
    #[getter]
    fn epoch(&self) -> u64 {
        lock(&self.progress).state.epoch
    }

    /// Number of batches of this rank in the whole current epoch.
    fn batches_per_epoch(&self, py: Python<'_>) -> PyResult<usize> {
        let (prepared, state) = (self.prepared(), self.state_now());
        patiently(py, move || prepared.batches_in_epoch_of(&state))?.or_raise(py)
    }

    /// Bytes that its caches hold.
    fn cached_bytes(&self) -> u64 {
        match &*lock(&self.monitor) {
            Watched::Running(monitor) => monitor.get().map_or(0, Monitor::cached_bytes),
            Watched::Idle | Watched::Closed(..) => 0,
        }
    }

    /// Its statistics, as JSON.
    fn stats_json(&self, py: Python<'_>) -> PyResult<String> {
        self.watched(py, |monitor| self.statistics(monitor), |statistics, _| statistics.to_owned())
    }

    /// The trace of all threads, as a file for browsers.
    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let Some(trace) = self.prepared().options().trace.clone() else {
            let error = Error::conflict("this loader does not record a trace");
            return Err(error.with_remedy("call start_trace() before its first batch"))
                .or_raise(py);
        };
        let bytes = detached(py, || {
            let mut bytes = Vec::new();
            trace.write(&mut bytes).expect("memory can be written to");
            bytes
        });
        Ok(PyBytes::new(py, &bytes))
    }

    /// A report, as JSON, of how it works, and why it is not faster.
    fn report_json(&self, py: Python<'_>) -> PyResult<String> {
        let report = |monitor: Option<&Monitor>| self.report(monitor, monitor.map(Monitor::memory));
        self.watched(py, report, |_, report| report.to_owned())
    }

    /// For a diagnosis: ids of the samples that it reads, the number of windows of each, and the
    /// facts besides the times, as JSON. The facts include what the loader would keep in memory by
    /// default.
    fn workload(&self, py: Python<'_>) -> PyResult<(Vec<usize>, Vec<u32>, String)> {
        let prepared = self.prepared();
        let look = move || {
            let workload = prepared.workload();
            let (dataset, kept) = (prepared.dataset(), &workload.cache);
            let options = LoaderOptions {
                cache: kept.kind,
                cache_bytes: kept.limit_bytes,
                ..prepared.options().clone()
            };
            let facts = Facts::of(dataset, &options, &workload);
            let auto = match kept.kind {
                CacheKind::Decoded if kept.chosen => kept.clone(),
                _ => Workload::of(dataset, &options.by_itself())?.cache,
            };
            Ok((workload, Facts { auto: Some(auto), ..facts }))
        };
        let (Workload { samples, counts, .. }, facts) = patiently(py, look)?.or_raise(py)?;
        Ok((samples, counts, serde_json::to_string(&facts).expect("plain data")))
    }

    /// For each dataset with samples, its number and, for each stack, which bands of batches are
    /// valid, if images are resampled to the same bands.
    fn bands_in_batches(&self) -> Vec<(usize, Vec<Option<Vec<bool>>>)> {
        let prepared = self.prepared();
        let of_member = |member: &Member| {
            let stacks = 0..member.dataset().stacks().len();
            let valid = stacks.map(|stack| member.resampled_bands(stack).map(<[bool]>::to_vec));
            (member.number(), valid.collect())
        };
        prepared.members().iter().map(of_member).collect()
    }

    /// For each dataset with samples, its number and the bands that resampled images have, before
    /// bands of them are drawn.
    fn resampled_bands(&self, py: Python<'_>) -> PyResult<Vec<(usize, Option<ResampledBands>)>> {
        let prepared = self.prepared();
        let numbers = prepared.members().iter().map(Member::number);
        let bands = prepared.resampled_bands().or_raise(py)?;
        Ok(numbers.zip(bands.into_iter().map(|bands| bands.map(parts_of_bands))).collect())
    }

    /// Whether it standardises by statistics of all samples although there is a training split.
    fn lacks_train_statistics(&self) -> bool {
        self.prepared().lacks_train_statistics()
    }

    /// Stops its threads; batches that are still held stay valid. A call that waits for a batch
    /// meanwhile, in another thread or below a signal handler, ends with an error.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.closed.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.end_watch();
        drop(lock(&self.starting).take());
        let running = match self.running.try_lock() {
            Ok(mut running) => running.take(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().take(),
            // The call that has the lock sees that the loader is closed, and stops the threads.
            Err(TryLockError::WouldBlock) => None,
        };
        detached(py, move || drop(running));
        Ok(())
    }

    /// Closes it as the process ends, also if another thread is using it.
    fn close_at_exit(&self, py: Python<'_>) {
        self.closed.store(true, Ordering::Relaxed);
        // It would keep memory of the device.
        self.end_watch();
        let starting = lock(&self.starting).take();
        if let Some(task) = starting.as_ref().and_then(OfProcess::get) {
            task.discard(py, AT_EXIT);
        }
        let source = lock(&self.source).take();
        if let Some(source) = source.and_then(|source| source.get().and_then(Weak::upgrade)) {
            detached(py, move || source.close());
        }
    }
}

/// The number of windows that show regions, and how many of these regions are larger than their
/// windows; null if windows do not show regions.
fn regions_report(members: &[Member]) -> serde_json::Value {
    let (mut shown, mut cut) = (0, None);
    for member in members {
        let Crop::Windows(windows) = &member.plan().options().crop else { continue };
        if let Some(larger) = windows.cut_regions() {
            shown += windows.len();
            cut = Some(cut.unwrap_or(0) + larger);
        }
    }
    cut.map_or(json!(null), |cut| json!({"windows": shown, "cut": cut}))
}

/// The cache policy of a dataset, and what is in its cache.
fn cache_report((choice, kept): &(&CacheChoice, KeptChunks)) -> serde_json::Value {
    let mut report = serde_json::to_value(choice).expect("plain data");
    report["bytes"] = json!(kept.bytes);
    report["keeping_s"] = json!(kept.times.keeping_s);
    report["saved_s"] = json!(kept.times.saved_s);
    report
}

/// The caches of all datasets as one.
fn caches_together(caches: &[(&CacheChoice, KeptChunks)]) -> serde_json::Value {
    let [first, others @ ..] = caches else { return json!(null) };
    let mut report = cache_report(first);
    if others.is_empty() {
        return report;
    }
    if others.iter().any(|(choice, _)| choice.kind != first.0.kind) {
        report["kind"] = json!("mixed");
    }
    let all = |of: &dyn Fn(&CacheChoice, &KeptChunks) -> f64| -> f64 {
        caches.iter().map(|(choice, kept)| of(choice, kept)).sum()
    };
    let bytes = |of: &dyn Fn(&CacheChoice, &KeptChunks) -> u64| -> u64 {
        caches.iter().map(|(choice, kept)| of(choice, kept)).sum()
    };
    report["limit_bytes"] = json!(bytes(&|choice, _| choice.limit_bytes));
    report["needed_bytes"] = json!(bytes(&|choice, _| choice.needed_bytes));
    report["bytes"] = json!(bytes(&|_, kept| kept.bytes));
    report["keeping_s"] = json!(all(&|_, kept| kept.times.keeping_s));
    report["saved_s"] = json!(all(&|_, kept| kept.times.saved_s));
    report["shared"] = json!(caches.iter().any(|(choice, _)| choice.shared));
    report["shuffle_window"] = json!(null);
    let why = caches.iter().enumerate();
    let why = why.map(|(number, (choice, _))| format!("dataset {number}: {}", choice.why));
    report["why"] = json!(why.collect::<Vec<_>>().join("; "));
    report
}

/// Integers in memory owned by Python, for an array of `count` items of `N` numbers.
fn numbers<const N: usize>(
    py: Python<'_>,
    count: usize,
    values: impl Iterator<Item = [i64; N]>,
) -> PyResult<Bound<'_, PyByteArray>> {
    PyByteArray::new_with(py, count * size_of::<[i64; N]>(), |bytes| {
        let places = bytes.as_chunks_mut::<8>().0.as_chunks_mut::<N>().0;
        for (number, values) in places.iter_mut().zip(values) {
            *number = values.map(i64::to_ne_bytes);
        }
        Ok(())
    })
}

/// Names of a batch's samples. If many windows are from one sample, its name is made only once.
fn names<'py>(py: Python<'py>, batch: &DeviceBatch<Library>) -> PyResult<Bound<'py, PyList>> {
    let mut ids = batch.ids();
    let is_one = batch.datasets().len() == 1;
    if let Some(first) = ids.next()
        && ids.all(|id| id == first)
        && is_one
    {
        // For Python, repeating a list is much faster than adding the same item again and again.
        let name = PyList::new(py, [batch.name(0)])?;
        return Ok(name.as_sequence().repeat(batch.ids().len())?.cast_into()?);
    }
    let mut names_of_samples: HashMap<usize, Bound<'py, PyString>> = HashMap::new();
    let mut last: Option<(usize, Bound<'py, PyString>)> = None;
    let names = batch.ids().enumerate().map(|(index, id)| {
        if let Some((_, name)) = last.as_ref().filter(|(last, _)| is_one && *last == id) {
            return name.clone();
        }
        if !is_one {
            return PyString::new(py, batch.name(index));
        }
        let name = names_of_samples
            .entry(id)
            .or_insert_with(|| PyString::new(py, batch.name(index)))
            .clone();
        last = Some((id, name.clone()));
        name
    });
    PyList::new(py, names.collect::<Vec<_>>())
}

/// Whether the windows of a plan are single pixels, listed or labelled.
fn are_spectra(plan: &Plan) -> bool {
    matches!(&plan.options().crop, Crop::Windows(windows) if windows.size() == (1, 1))
}

/// A batch in the form for Python.
fn batch_dict<'py>(
    py: Python<'py>,
    mut batch: DeviceBatch<Library>,
    spectra: bool,
    boxes: Option<&LoaderBoxes>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let items = batch.items();
    let of_items = |number: &dyn Fn(&Item) -> i64| {
        numbers(py, items.len(), items.iter().map(|item| [number(item)]))
    };
    let window = |item: &Item| {
        let Window { row, column, rows, columns } = item.window;
        [i64::from(row), i64::from(column), i64::from(rows), i64::from(columns)]
    };
    let sources: Vec<_> = batch.datasets().map(|(number, places)| (number, places.len())).collect();
    dict.set_item("datasets", sources)?;
    dict.set_item("epoch", batch.epoch())?;
    dict.set_item("ids", of_items(&|item| item.sample as i64)?)?;
    dict.set_item("repeats", of_items(&|item| i64::from(item.repeat))?)?;
    let padding: Vec<u8> = items.iter().map(|item| u8::from(item.padding)).collect();
    dict.set_item("padding", PyByteArray::new(py, &padding))?;
    dict.set_item("windows", numbers(py, items.len(), items.iter().map(window))?)?;
    let labels = batch.classes().map(|class| [class.map_or(-1, i64::from)]);
    dict.set_item("labels", numbers(py, items.len(), labels)?)?;
    let are_regions = items.iter().any(|item| item.region.is_some());
    let region = |item: &Item| item.region.map_or(0, i64::from);
    dict.set_item("regions", are_regions.then(|| of_items(&region)).transpose()?)?;
    dict.set_item("names", names(py, &batch)?)?;
    dict.set_item("spectra", spectra)?;
    dict.set_item("boxes", boxes.map(|boxes| boxes.of(py, &batch)).transpose()?.flatten())?;
    let bands = batch.bands().or_raise(py)?;
    let count = bands.as_ref().and_then(|items| items.first()).map(Vec::len);
    let drawn = bands.map(|items| {
        numbers(
            py,
            items.len() * count.unwrap_or(0),
            items.iter().flatten().map(|band| [*band as i64]),
        )
    });
    dict.set_item("bands", drawn.transpose()?)?;
    dict.set_item("mixed", pairs(std::mem::take(&mut batch.mixed)))?;
    let masks = std::mem::take(&mut batch.masks);
    let masks: Vec<_> = masks.into_iter().map(|(name, mask)| (name, Array::new(mask))).collect();
    dict.set_item("masks", masks)?;
    // The batch is dropped here. Its slot is returned when the last of these tensors is dropped.
    dict.set_item("image", Array::new(batch.image.clone()))?;
    Ok(dict)
}
