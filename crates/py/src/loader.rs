//! Batches, and the state to resume from.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use hsipack_augment::{Device, Mixed, Pipeline, kernels};
use hsipack_measure::diagnose::Facts;
use hsipack_read::plan::{Crop, Item, Plan, State, Window};
use hsipack_read::trace::{Trace, Track};
use hsipack_read::{
    CacheKind, DeviceBatch, DeviceLoader, DeviceOptions, Error, LoaderOptions, OfProcess, Outlook,
    Result,
};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList, PyString};
use serde_json::json;

use crate::array::Array;
use crate::augment::pairs;
use crate::dataset::Dataset;
use crate::errors::OrRaise;
use crate::exit::{detached, pause};
use crate::settings::{Settings, read};
use crate::task::{LOOK, Task, Worker, patiently};
use crate::torch::Library;

/// A device loader, and the augmentations for its batches.
///
/// On the CPU, a separate thread takes, converts and augments batches, because each of these may take long; the
/// caller's thread checks for signals meanwhile. On a CUDA device, the caller's thread does the work, because its
/// stream is used, and it only queues the work.
#[pyclass(frozen, module = "hsipack._hsipack")]
pub struct Loader {
    own: Mutex<OfProcess<Option<Running>>>,
    /// Makes its batches, as long as the loader is open; for the end of the process.
    source: OfProcess<Weak<Source>>,
}

struct Running {
    worker: Worker,
    source: Arc<Source>,
    /// The batch that the worker is preparing. If the call is interrupted, the next call returns this batch.
    pending: Option<Task<Step>>,
    /// The state after the last batch returned.
    state: State,
    /// The state before it.
    before: State,
    on_cpu: bool,
    plan: Plan,
    dataset: hsipack_read::Dataset,
    options: LoaderOptions,
    device: DeviceOptions,
    library: Library,
}

/// Makes batches.
struct Source {
    /// `None` once it was closed as the process ends.
    loader: Mutex<Option<DeviceLoader<Library>>>,
    pipeline: Option<Pipeline>,
    /// A finished step that no call has returned yet: a signal handler raised, or the process ends.
    made: Mutex<Option<Step>>,
    /// Set when nobody waits for a batch any more.
    cancelled: AtomicBool,
    /// Set when it is closed as the process ends.
    ended: AtomicBool,
}

/// What augments batches on a device; if it is not the fastest way, also why.
fn augmented_by(device: Device) -> serde_json::Value {
    let Device::Cuda(number) = device else { return json!({"by": "loops"}) };
    match kernels::of_device(number) {
        Ok(_) => json!({"by": "kernels"}),
        Err(error) => json!({"by": "torch", "why": error.to_string()}),
    }
}

/// The result of asking for a batch.
enum Step {
    Batch(Box<Ready>, State),
    End(State),
    /// No batch came in time.
    Waiting,
    Failed(Error),
}

/// A batch that is ready to return.
struct Ready {
    batch: DeviceBatch<Library>,
    mixed: Vec<Mixed>,
}

/// The loader of a [`Source`], which nobody else uses meanwhile.
struct OpenLoader<'a>(MutexGuard<'a, Option<DeviceLoader<Library>>>);

const ENDED: &str = "closed only as the process ends";

impl Deref for OpenLoader<'_> {
    type Target = DeviceLoader<Library>;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref().expect(ENDED)
    }
}

impl DerefMut for OpenLoader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0.as_mut().expect(ENDED)
    }
}

fn closed() -> Error {
    Error::conflict("this loader is closed").with_remedy("create another one")
}

impl Source {
    fn loader(&self) -> OpenLoader<'_> {
        OpenLoader(self.loader.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends its threads and frees its memory as the process ends, although a thread that was stopped may have called it.
    /// Does nothing if that thread still uses it after a second.
    fn close(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.cancelled.store(true, Ordering::Relaxed);
        let end = Instant::now() + Duration::from_secs(1);
        let mut loader = loop {
            match self.loader.try_lock() {
                Ok(loader) => break loader,
                Err(TryLockError::Poisoned(loader)) => break loader.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() > end => return,
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        drop(self.made().take());
        drop(loader.take());
    }

    fn is_open(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    fn made(&self) -> MutexGuard<'_, Option<Step>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next batch, if it comes within a short time.
    fn step(&self) -> Step {
        self.step_of(&mut self.loader())
    }

    /// Makes a step, and keeps it until it is taken or this is closed. So a thread that is stopped does not keep it.
    fn make(&self) {
        let mut loader = self.loader();
        *self.made() = Some(self.step_of(&mut loader));
    }

    fn step_of(&self, loader: &mut OpenLoader<'_>) -> Step {
        if loader.0.is_none() {
            return Step::Failed(closed());
        }
        match loader.next_within(LOOK) {
            None => Step::End(loader.state()),
            Some(Ok(None)) => Step::Waiting,
            Some(Ok(Some(batch))) => match self.augmented(batch, loader.options().trace.as_deref())
            {
                Ok(ready) => Step::Batch(Box::new(ready), loader.state()),
                Err(error) => Step::Failed(error),
            },
            Some(Err(error)) => Step::Failed(error),
        }
    }

    fn augmented(&self, mut batch: DeviceBatch<Library>, trace: Option<&Trace>) -> Result<Ready> {
        let Some(pipeline) = &self.pipeline else { return Ok(Ready { batch, mixed: Vec::new() }) };
        let before = Instant::now();
        let (mixed, _) = batch.augment(pipeline)?;
        if let Some(trace) = trace {
            let span = (before, Instant::now());
            trace.span(Track::Consumer, "augment", span, Some(batch.number()));
        }
        Ok(Ready { batch, mixed })
    }

    /// The next batch, unless waiting is cancelled before.
    fn steps(&self) -> Step {
        loop {
            match self.step() {
                Step::Waiting if !self.cancelled.load(Ordering::Relaxed) => {}
                step => return step,
            }
        }
    }
}

impl Running {
    fn next(&mut self, py: Python<'_>) -> PyResult<Option<Box<Ready>>> {
        loop {
            let made = self.source.made().take();
            let step = match made {
                Some(step) => step,
                None if self.on_cpu => self.wait(py)?,
                None => {
                    detached(py, || self.source.make());
                    let made = self.source.made().take();
                    made.unwrap_or_else(|| Step::Failed(closed()))
                }
            };
            // Check here and not on the way back to the caller: there, an exception would replace the batch.
            if let Err(raised) = py.check_signals() {
                *self.source.made() = Some(step);
                return Err(raised);
            }
            match step {
                Step::Batch(ready, state) => {
                    self.before = std::mem::replace(&mut self.state, state);
                    return Ok(Some(ready));
                }
                Step::End(state) => {
                    self.state = state;
                    return Ok(None);
                }
                Step::Failed(error) => return Err(error).or_raise(py),
                Step::Waiting => {}
            }
        }
    }

    fn wait(&mut self, py: Python<'_>) -> PyResult<Step> {
        let task = self.pending.take().unwrap_or_else(|| {
            let source = self.source.clone();
            source.cancelled.store(false, Ordering::Relaxed);
            self.worker.run(move || source.steps())
        });
        task.wait(py).inspect_err(|_| self.pending = Some(task))
    }

    /// Drops the batch in preparation.
    fn cancel(&mut self, py: Python<'_>) -> PyResult<()> {
        self.source.cancelled.store(true, Ordering::Relaxed);
        *self.source.made() = None;
        if let Some(task) = self.pending.take() {
            task.wait(py).inspect_err(|_| self.pending = Some(task))?;
        }
        Ok(())
    }
}

impl Loader {
    /// Runs `work` on the loader. Raises an error in other processes than the one that made the loader, and if another
    /// thread uses it.
    fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Option<Running>) -> PyResult<T>,
    ) -> PyResult<T> {
        pause(py);
        hsipack_store::mapping::guard();
        let mut own = match self.own.try_lock() {
            Ok(own) => own,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let error = Error::conflict("another thread is using this loader");
                return Err(
                    error.with_remedy("create one loader per thread, or share one behind a lock")
                )
                .or_raise(py);
            }
        };
        match own.get_mut() {
            Some(running) => work(running),
            None => {
                let error = Error::conflict("this loader belongs to the process that made it");
                Err(error.with_remedy("create the loader after the fork")).or_raise(py)
            }
        }
    }

    fn running<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Running) -> PyResult<T>,
    ) -> PyResult<T> {
        self.with(py, |running| match running {
            Some(running) if running.source.is_open() => work(running),
            _ => Err(closed()).or_raise(py),
        })
    }
}

#[pymethods]
impl Loader {
    #[new]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        settings: &Bound<'_, PyAny>,
        state: Option<&str>,
    ) -> PyResult<Self> {
        let dataset = dataset.get(py)?;
        let settings: Settings = read(settings)?;
        let (options, device) = (settings.loader().or_raise(py)?, settings.device().or_raise(py)?);
        let (pipeline, library) = (settings.pipeline().or_raise(py)?, settings.library());
        let state = state.map(State::from_json).transpose().or_raise(py)?;
        let (options_too, device_too, dataset_too) =
            (options.clone(), device.clone(), dataset.clone());
        let library_too = library.clone();
        let start = move || match state {
            Some(state) => DeviceLoader::with_state(&dataset, options, device, library, &state),
            None => DeviceLoader::new(&dataset, options, device, library),
        };
        let loader = patiently(py, start)?.or_raise(py)?;
        let (state, plan) = (loader.state(), loader.plan().clone());
        let source = Arc::new(Source {
            loader: Mutex::new(Some(loader)),
            pipeline,
            made: Mutex::new(None),
            cancelled: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&source);
        let running = Running {
            worker: Worker::start(py)?,
            source,
            pending: None,
            before: state.clone(),
            state,
            on_cpu: device_too.device == Device::Cpu,
            plan,
            dataset: dataset_too,
            options: options_too,
            device: device_too,
            library: library_too,
        };
        let own = Mutex::new(OfProcess::new(Some(running)));
        Ok(Self { own, source: OfProcess::new(weak) })
    }

    /// Appends the next batch as a dictionary; `None` once at the end of an epoch.
    ///
    /// Does not return it, because an exception from a signal handler would replace it.
    fn next(&self, py: Python<'_>, into: &Bound<'_, PyList>) -> PyResult<()> {
        let (ready, spectra) = self.running(py, |running| {
            let ready = running.next(py)?;
            Ok((ready, are_spectra(&running.plan)))
        })?;
        into.append(ready.map(|ready| given(py, *ready, spectra)).transpose()?)
    }

    /// Drops the batch in preparation and goes to the start of an epoch.
    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.running(py, |running| {
            running.cancel(py)?;
            let source = running.source.clone();
            running.state = detached(py, || {
                let mut loader = source.loader();
                loader.set_epoch(epoch);
                loader.state()
            });
            Ok(())
        })
    }

    /// The state after the last batch returned, or before it, as JSON.
    fn state(&self, py: Python<'_>, before: bool) -> PyResult<String> {
        self.running(py, |running| {
            let state = if before { &running.before } else { &running.state };
            Ok(state.to_json())
        })
    }

    /// Continues from a state.
    fn load_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let state = State::from_json(state).or_raise(py)?;
        self.running(py, |running| {
            let Running { dataset, options, device, library, .. } = &*running;
            let (dataset, options, device, library) =
                (dataset.clone(), options.clone(), device.clone(), library.clone());
            // Do this before dropping the batch in preparation: if the state does not fit, nothing changes.
            let resume =
                move || DeviceLoader::with_state(&dataset, options, device, library, &state);
            let loader = patiently(py, resume)?.or_raise(py)?;
            running.cancel(py)?;
            (running.state, running.plan) = (loader.state(), loader.plan().clone());
            let before = std::mem::replace(&mut *running.source.loader(), loader);
            // Stopping its threads may take a while.
            patiently(py, move || drop(before))
        })
    }

    /// The epoch of the next batch.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.running(py, |running| Ok(running.state.epoch))
    }

    /// Number of batches of this rank in the whole current epoch.
    fn batches_per_epoch(&self, py: Python<'_>) -> PyResult<usize> {
        self.running(py, |running| {
            let (plan, epoch) = (running.plan.clone(), running.state.epoch);
            let share = running.options.share;
            let count = move || Ok(plan.epoch(epoch, &[], share)?.batches());
            patiently(py, count)?.or_raise(py)
        })
    }

    /// Its statistics, as JSON.
    fn stats_json(&self, py: Python<'_>) -> PyResult<String> {
        self.running(py, |running| {
            let source = running.source.clone();
            let stats = detached(py, || source.loader().statistics());
            Ok(serde_json::to_string(&stats).expect("plain data"))
        })
    }

    /// The trace of all threads, as a file for browsers.
    fn trace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.running(py, |running| {
            let Some(trace) = running.options.trace.clone() else {
                let error = Error::conflict("this loader does not record a trace");
                return Err(error.with_remedy("create it with trace=True")).or_raise(py);
            };
            let bytes = detached(py, || {
                let mut bytes = Vec::new();
                trace.write(&mut bytes).expect("memory can be written to");
                bytes
            });
            Ok(PyBytes::new(py, &bytes))
        })
    }

    /// A report, as JSON, of how it works, and why it is not faster.
    fn report_json(&self, py: Python<'_>) -> PyResult<String> {
        self.running(py, |running| {
            let source = running.source.clone();
            let regions = regions_report(&running.plan);
            let report = detached(py, || {
                let loader = source.loader();
                let standardized: serde_json::Map<String, serde_json::Value> =
                    loader.standardized_by().into_iter().map(|(stack, split)| (stack, json!(split))).collect();
                json!({
                    "transfer": loader.report(),
                    "memory": loader.memory(),
                    "masks": loader.masks(),
                    "layers": loader.masks().iter().map(|mask| loader.layers(mask)).collect::<Vec<_>>(),
                    "cache": cache_report(&loader),
                    "threads": loader.options().threads,
                    "slots": loader.options().slots,
                    "standardized_by": standardized,
                    "regions": regions,
                    "augment": source.pipeline.as_ref().map(|_| augmented_by(loader.device())),
                })
            });
            Ok(report.to_string())
        })
    }

    /// For a diagnosis: ids of the samples that it reads, the number of windows of each, and the facts besides the
    /// times, as JSON. The facts include what the loader would keep in memory by default.
    fn outlook(&self, py: Python<'_>) -> PyResult<(Vec<usize>, Vec<u32>, String)> {
        self.running(py, |running| {
            let source = running.source.clone();
            let (options, dataset) = (running.options.by_itself(), running.dataset.clone());
            let look = move || {
                let loader = source.loader();
                let outlook = loader.outlook();
                let facts = Facts::of(&dataset, loader.options(), &outlook);
                drop(loader);
                let auto = match outlook.cache.kind {
                    CacheKind::Decoded if outlook.cache.chosen => outlook.cache.clone(),
                    _ => Outlook::of(&dataset, &options)?.cache,
                };
                Ok((outlook, Facts { auto: Some(auto), ..facts }))
            };
            let (Outlook { samples, counts, .. }, facts) = patiently(py, look)?.or_raise(py)?;
            Ok((samples, counts, serde_json::to_string(&facts).expect("plain data")))
        })
    }

    /// Whether it standardises by statistics of all samples although there is a training split.
    fn lacks_train_statistics(&self, py: Python<'_>) -> PyResult<bool> {
        self.running(py, |running| Ok(running.source.loader().lacks_train_statistics()))
    }

    /// Stops its threads; batches that are still held stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |running| {
            let running = running.take();
            detached(py, move || drop(running));
            Ok(())
        })
    }

    /// Closes it as the process ends, also if another thread is using it.
    fn close_at_exit(&self, py: Python<'_>) {
        if let Some(source) = self.source.get().and_then(Weak::upgrade) {
            detached(py, move || source.close());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.source.cancelled.store(true, Ordering::Relaxed);
    }
}

/// The kind of cache, the reason for it, and its current size.
fn cache_report(loader: &DeviceLoader<Library>) -> serde_json::Value {
    let mut report = serde_json::to_value(loader.cache()).expect("plain data");
    report["bytes"] = json!(loader.cached_bytes());
    report
}

/// The number of windows that show regions, and how many of these regions are larger than their windows; null if
/// windows do not show regions.
fn regions_report(plan: &Plan) -> serde_json::Value {
    let Crop::Windows(windows) = &plan.options().crop else { return json!(null) };
    match windows.cut_regions() {
        Some(cut) => json!({"windows": windows.len(), "cut": cut}),
        None => json!(null),
    }
}

/// Integers in memory owned by Python, for an array of `count` items of `N` numbers.
fn numbers<const N: usize>(
    py: Python<'_>,
    count: usize,
    values: impl Iterator<Item = [i64; N]>,
) -> PyResult<Bound<'_, PyByteArray>> {
    PyByteArray::new_with(py, count * size_of::<[i64; N]>(), |bytes| {
        let places = bytes.as_chunks_mut::<8>().0.as_chunks_mut::<N>().0;
        for (place, values) in places.iter_mut().zip(values) {
            *place = values.map(i64::to_ne_bytes);
        }
        Ok(())
    })
}

/// Names of a batch's samples. If many windows are from one sample, its name is made only once.
fn names<'py>(py: Python<'py>, batch: &DeviceBatch<Library>) -> PyResult<Bound<'py, PyList>> {
    let mut ids = batch.ids();
    if let Some(first) = ids.next()
        && ids.all(|id| id == first)
    {
        // For Python, repeating a list is much faster than adding the same item again and again.
        let one = PyList::new(py, [batch.name(0)])?;
        return Ok(one.as_sequence().repeat(batch.ids().len())?.cast_into()?);
    }
    let mut made: HashMap<usize, Bound<'py, PyString>> = HashMap::new();
    let mut last: Option<(usize, Bound<'py, PyString>)> = None;
    let names = batch.ids().enumerate().map(|(place, id)| {
        if let Some((_, name)) = last.as_ref().filter(|(last, _)| *last == id) {
            return name.clone();
        }
        let name = made.entry(id).or_insert_with(|| PyString::new(py, batch.name(place))).clone();
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
fn given<'py>(py: Python<'py>, ready: Ready, spectra: bool) -> PyResult<Bound<'py, PyDict>> {
    let Ready { mut batch, mixed } = ready;
    let given = PyDict::new(py);
    let items = batch.items();
    let of_items = |number: &dyn Fn(&Item) -> i64| {
        numbers(py, items.len(), items.iter().map(|item| [number(item)]))
    };
    let window = |item: &Item| {
        let Window { row, column, rows, columns } = item.window;
        [i64::from(row), i64::from(column), i64::from(rows), i64::from(columns)]
    };
    given.set_item("epoch", batch.epoch())?;
    given.set_item("ids", of_items(&|item| item.sample as i64)?)?;
    given.set_item("repeats", of_items(&|item| i64::from(item.repeat))?)?;
    let padding: Vec<u8> = items.iter().map(|item| u8::from(item.padding)).collect();
    given.set_item("padding", PyByteArray::new(py, &padding))?;
    given.set_item("windows", numbers(py, items.len(), items.iter().map(window))?)?;
    let labels = batch.classes().map(|class| [class.map_or(-1, i64::from)]);
    given.set_item("labels", numbers(py, items.len(), labels)?)?;
    let are_regions = items.iter().any(|item| item.region.is_some());
    let region = |item: &Item| item.region.map_or(0, i64::from);
    given.set_item("regions", are_regions.then(|| of_items(&region)).transpose()?)?;
    given.set_item("names", names(py, &batch)?)?;
    given.set_item("spectra", spectra)?;
    given.set_item("mixed", pairs(mixed))?;
    let masks = std::mem::take(&mut batch.masks);
    let masks: Vec<_> = masks.into_iter().map(|(name, mask)| (name, Array::new(mask))).collect();
    given.set_item("masks", masks)?;
    // The batch is dropped here. Its slot is returned when the last of these tensors is dropped.
    given.set_item("image", Array::new(batch.image.clone()))?;
    Ok(given)
}
