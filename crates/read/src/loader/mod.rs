//! Batches, epoch after epoch, from a ring that threads keep filled.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | the consumer's side: epochs, state, errors |
//! | `options.rs` | the options |
//! | `prepared.rs` | a loader without memory and threads, of one or several datasets |
//! | `member.rs` | one of its datasets: checking of the options, the plan |
//! | `reader.rs` | one of the datasets of a running loader: its plan, its chunks in memory |
//! | `shared.rs` | what all threads share |
//! | `common_bands.rs`, `band_fit.rs` | images of several datasets in one batch: checks; how they get the same bands |
//! | `arrays.rs` | the stored arrays that a batch is read from |
//! | `batch_plan.rs` | what lies where in a slot, and the tasks that fill it |
//! | `fill.rs` | fills a slot with values |
//! | `stored_batch.rs` | what a slot holds if a device completes the batch |
//! | `compressed.rs` | plans and fills such slots |
//! | `device_steps.rs`, `device_work.rs` | the device's work on such a batch, and how it is prepared |
//! | `cache_choice.rs` | what is kept in memory, and why |
//! | `blocks.rs` | which blocks of cubes come together in a shuffle |
//! | `local_plan.rs` | which chunks will be needed when, for the cache on the local disk |
//! | `workload.rs` | what a loader would read and keep, computed without one |
//! | `shuffle_schedule.rs` | which chunks are held while the windows of blocks come |
//! | `feeder.rs` | the planning thread |
//! | `worker.rs` | the decoding threads |
//! | `replacement.rs` | items in place of batches that are damaged as a whole |
//! | `replay.rs` | items of a batch, read without a ring and its threads |
//! | `labelled.rs` | labelled pixels, for crops |
//! | `new_ids.rs` | new class ids in batches |
//! | `background.rs` | keeps the threads from delaying the consumer |
//! | `batch.rs` | a batch as the consumer sees it |
//! | `load_times.rs` | how long it took to load a batch |
//! | `stats.rs` | where the time goes |
//! | `times.rs` | how long batches took, one by one |

mod arrays;
pub(crate) mod background;
mod band_fit;
mod batch;
mod batch_plan;
mod blocks;
mod cache_choice;
mod common_bands;
mod compressed;
mod device_steps;
mod device_work;
mod feeder;
mod fill;
mod labelled;
mod load_times;
mod local_plan;
mod member;
mod new_ids;
mod options;
mod prepared;
mod reader;
mod replacement;
mod replay;
mod shared;
mod shuffle_schedule;
mod stats;
mod stored_batch;
mod times;
mod worker;
mod workload;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) use band_fit::BandFit;
pub use band_fit::CommonBands;
pub use batch::{ArrayView, Batch};
pub(crate) use batch_plan::BatchArray;
pub use cache_choice::{CacheChoice, Shuffled, shuffle_window_bytes};
pub(crate) use device_steps::{Decoding, LinkCopy, Step};
pub use member::Member;
pub use options::{DecodePlace, LoaderOptions, OnDamage, ShuffleWindow};
pub use prepared::PreparedLoader;
pub use reader::KeptChunks;
pub(crate) use reader::Reader;
pub(crate) use shared::Shared;
pub use stats::{LoaderStats, Statistics};
pub use times::BatchTimes;
pub(crate) use times::{Consumer, Record, Times};
pub use workload::Workload;

use crate::cache::{Cache, CacheKind, CacheTimes};
use crate::dataset::Dataset;
use crate::decode::is_damage;
use crate::plan::{Plan, Segment, State};
use crate::ring::memory::MemoryReport;
use crate::ring::slots::Failure;
use crate::ring::{Lease, Next};
use crate::{Error, Result};
use batch_plan::BatchPlan;
use hsipack_format::{Command, Opt, remedy};
use hsipack_store::{stopping, threads};
use load_times::LoadIntervals;
use replacement::{Replacement, Replacements};

/// Streams batches of a dataset, epoch after epoch. Its threads and its ring live as long as it
/// does.
///
/// ```no_run
/// use hsipack_read::{Dataset, Loader, LoaderOptions};
///
/// let dataset = Dataset::open("tissue.hsipack")?;
/// let mut loader = Loader::new(&dataset, LoaderOptions::new(6))?;
/// for _ in 0..10 {
///     for batch in loader.epoch() {
///         let batch = batch?;
///         let image = batch.image(); // (samples, rows, columns, bands), float16
///         println!("{:?} {:?}", image.shape, batch.ids().collect::<Vec<_>>());
///     }
/// }
/// # Ok::<(), hsipack_read::Error>(())
/// ```
#[derive(Debug)]
pub struct Loader {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    position: Position,
    /// A batch of the next epoch, taken before the current epoch was known to be over.
    pending: Option<TakenBatch>,
    consumer: Consumer,
    loads: LoadIntervals,
    /// Of each reader.
    replacements: Vec<Replacements>,
}

/// A slot as taken from the ring.
#[derive(Debug)]
struct TakenBatch {
    lease: Lease<BatchPlan>,
    failures: Vec<Failure>,
    /// How many more batches were ready.
    ready: usize,
    /// How many of its samples are damaged and were removed.
    skipped: usize,
    /// The damage of the first of them.
    damage: Option<Error>,
}

/// How far the consumer is.
#[derive(Debug, Default)]
struct Position {
    epoch: u64,
    /// The batches of this epoch that were given before the loader began with it.
    delivered: Vec<Segment>,
    /// How many batches of this epoch were given since. A batch that failed counts, because its
    /// error was given.
    batches: usize,
    /// All batches of the epoch were given, but its end was not reported yet.
    at_end: bool,
}

/// The remainder of an epoch, as an iterator; see [`Loader::epoch`].
#[derive(Debug)]
pub struct Epoch<'a> {
    loader: &'a mut Loader,
    over: bool,
}

impl PreparedLoader {
    /// Takes memory and starts the threads. If the loader decides what it keeps in memory, it
    /// decides again, by the memory that is free now.
    ///
    /// # Errors
    /// If the dataset was replaced since, or there is not enough memory.
    pub fn start(self) -> Result<Loader> {
        if self.options().decode == DecodePlace::Device {
            return Err(no_device());
        }
        self.start_inside()
    }

    /// The same for the loader inside a device loader.
    pub(crate) fn start_inside(self) -> Result<Loader> {
        self.members.iter().try_for_each(|member| member.dataset.check_recently())?;
        let prepared = match self.options().cache {
            CacheKind::Auto => self.chosen_again()?,
            _ => self,
        };
        Loader::begin_with(prepared)
    }
}

impl Loader {
    /// Creates a loader at the start of epoch 0.
    ///
    /// # Errors
    /// If the options contradict each other or the dataset, or there is not enough memory for the
    /// ring.
    pub fn new(dataset: &Dataset, options: LoaderOptions) -> Result<Self> {
        if options.decode == DecodePlace::Device {
            return Err(no_device());
        }
        Self::begin_with(PreparedLoader::new(dataset, options)?)
    }

    /// Creates a loader that goes on where another loader was when it returned `state`. Batch size,
    /// threads and world size may differ: what is left of the epoch is divided again, and no item
    /// comes twice or is lost. Samples and masks may have been added to the dataset since
    /// ([`State::check`]).
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the state is of another dataset, seed or plan.
    pub fn with_state(dataset: &Dataset, options: LoaderOptions, state: &State) -> Result<Self> {
        if options.decode == DecodePlace::Device {
            return Err(no_device());
        }
        Self::begin_with(PreparedLoader::new(dataset, options)?.resumed(state)?)
    }

    /// Takes memory and starts the threads.
    fn begin_with(prepared: PreparedLoader) -> Result<Self> {
        let begin = prepared.begin.clone();
        let shared = Arc::new(Shared::new(prepared)?);
        let mut loader = Self {
            shared,
            threads: Vec::new(),
            position: Position::default(),
            pending: None,
            consumer: Consumer::training(),
            loads: LoadIntervals::default(),
            replacements: Vec::new(),
        };
        loader.replacements.resize_with(loader.shared.readers.len(), Replacements::default);
        if begin.epoch > 0 || begin.is_within_epoch() {
            loader.go_to(begin.epoch, begin.delivered);
        }
        // A plan that is impossible from the start is reported here already.
        loader.shared.plan.epoch(
            loader.position.epoch,
            &loader.position.delivered,
            loader.shared.options().share,
        )?;
        loader.spawn("plan".to_owned(), feeder::run)?;
        for thread in 0..loader.shared.options().threads {
            loader.spawn(format!("decode {thread}"), move |shared| worker::run(shared, thread))?;
        }
        Ok(loader)
    }

    fn spawn(&mut self, name: String, run: impl FnOnce(&Shared) + Send + 'static) -> Result<()> {
        let shared = self.shared.clone();
        let ring = shared.ring.clone();
        let stop = Arc::new(move || ring.slots().is_stopped());
        self.threads.push(threads::start(name, move || {
            background::wait_for_turns();
            // Closing the loader must not wait for a server that does not answer.
            stopping::until(stop, || run(&shared));
        })?);
        Ok(())
    }

    /// The batches that remain of the current epoch. After its end, the next call returns the next
    /// epoch, whose first batches are already being decoded. If the iterator is dropped early, the
    /// next call goes on after the last batch given. [`set_epoch`](Self::set_epoch) goes to another
    /// epoch.
    ///
    /// A batch that fails is an error in its place; the iterator goes on with the next batch. It
    /// ends after an error that is not an error of a batch (all slots are kept).
    pub fn epoch(&mut self) -> Epoch<'_> {
        Epoch { loader: self, over: false }
    }

    /// The next batch of the current epoch. At its end this is `None` once, and then the first
    /// batch of the next epoch.
    ///
    /// # Errors
    /// If a chunk is damaged or cannot be read, the dataset was replaced, or all slots of the ring
    /// are kept. If slots are merely kept, the next call waits again. Any other error is the error
    /// of one batch, and counts as that batch: the next call returns the batch after it, and
    /// [`state`](Self::state) is the state after it. So a loop that skips errors ends with the
    /// epoch, and ranks stay in step.
    pub fn next_batch(&mut self) -> Option<Result<Batch>> {
        self.next_before(None).map(|next| next.map(|batch| batch.expect("there is no deadline")))
    }

    /// Like [`next_batch`](Self::next_batch), but returns `Ok(None)` if no batch comes within
    /// `timeout`.
    ///
    /// # Errors
    /// As [`next_batch`](Self::next_batch).
    pub fn next_within(&mut self, timeout: Duration) -> Option<Result<Option<Batch>>> {
        self.next_before(Some(Instant::now() + timeout))
    }

    fn next_before(&mut self, deadline: Option<Instant>) -> Option<Result<Option<Batch>>> {
        self.consumer.asks(self.shared.record());
        let next = self.find_next(deadline);
        match &next {
            Some(Ok(Some(batch))) => {
                let took = self.loads.next(batch.loading());
                took.into_iter().for_each(|took| self.shared.counters.times.load(took));
                self.consumer.gets(batch.number(), self.shared.record());
            }
            Some(Ok(None)) => {}
            None | Some(Err(_)) => self.consumer.ends(),
        }
        next
    }

    fn find_next(&mut self, deadline: Option<Instant>) -> Option<Result<Option<Batch>>> {
        loop {
            if self.position.at_end {
                self.begin(self.position.epoch + 1);
                return None;
            }
            let taken = match self.take(deadline) {
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    // Nothing was left of the last epoch, or it is over already.
                    if self.shared.options().end_epoch.is_some_and(|end| self.position.epoch < end)
                    {
                        self.begin(self.position.epoch + 1);
                    }
                    return None;
                }
                Err(Taking::TimedOut) => return Some(Ok(None)),
                Err(Taking::Failed(error)) => return Some(Err(error)),
                Err(Taking::Lost(error)) => {
                    // No batch can come any more, so the epoch ends with this error.
                    self.position.batches += 1;
                    self.position.at_end = true;
                    return Some(Err(error));
                }
            };
            if taken.lease.plan().epoch != self.position.epoch {
                // Nothing was left of the current epoch.
                self.pending = Some(taken);
                self.position.at_end = true;
                continue;
            }
            return Some(self.accept(taken, deadline));
        }
    }

    /// Waits for the next batch of any epoch; `None` if none will come.
    fn take(&mut self, deadline: Option<Instant>) -> Result<Option<TakenBatch>, Taking> {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        let before = Instant::now();
        let next = self.shared.ring.take(deadline);
        self.shared.counters.waited(before.elapsed());
        match next {
            Next::Batch(lease, failures, ready) => {
                Ok(Some(TakenBatch { lease, failures, ready, skipped: 0, damage: None }))
            }
            Next::Finished => Ok(None),
            Next::TimedOut => Err(Taking::TimedOut),
            Next::AllLeased => {
                let slots = self.shared.options().slots;
                let error = Error::conflict(format!(
                    "you keep all {slots} slots of the ring, so there is no slot for another batch"
                ));
                Err(Taking::Failed(error.with_remedy(remedy![
                    "drop batches after use, copy what you keep, or use more ",
                    Opt::Slots
                ])))
            }
            Next::Stopped => {
                Err(Taking::Lost(Error::bug("the planning thread of the loader panicked")))
            }
        }
    }

    /// Turns a slot into a batch, or into the error of a batch. `None` if the deadline passes
    /// before the replacement of a damaged batch is found.
    fn accept(
        &mut self,
        mut taken: TakenBatch,
        deadline: Option<Instant>,
    ) -> Result<Option<Batch>> {
        let BatchPlan { number, batches, .. } = *taken.lease.plan();
        let complete = self.complete(&mut taken, deadline);
        if matches!(complete, Ok(false)) {
            self.pending = Some(taken);
            return Ok(None);
        }
        self.position.batches += 1;
        self.position.at_end = number + 1 == batches;
        complete?;
        let TakenBatch { mut lease, ready, skipped, .. } = taken;
        if lease.plan().compressed.is_some() && !self.finish_compressed(&mut lease)? {
            lease = self.decode_here(lease)?.lease;
        }
        let batch = Batch::new(lease, self.shared.clone());
        let caches = self.shared.readers.iter().filter_map(|reader| reader.cache.as_ref());
        caches.for_each(Cache::begin);
        if let Some(trace) = &self.shared.options().trace {
            trace.ready(ready);
        }
        self.shared.counters.given(batch.len(), batch.bytes(), skipped, ready);
        Ok(Some(batch))
    }

    /// Leaves damaged samples out of a batch, if they are to be skipped. `false` if the deadline
    /// passes before the replacement of a damaged batch is found.
    fn complete(&mut self, taken: &mut TakenBatch, deadline: Option<Instant>) -> Result<bool> {
        self.without_damaged(taken)?;
        if taken.lease.plan().items.is_empty() { self.replace(taken, deadline) } else { Ok(true) }
    }

    /// Adds what a device needs to complete a batch. `false` if it cannot complete it.
    fn finish_compressed(&self, lease: &mut Lease<BatchPlan>) -> Result<bool> {
        // Tables come behind what tasks wrote, if there are tasks at all.
        lease.wait()?;
        let reader = &self.shared.readers[lease.plan().reader];
        let (plan, bytes) = lease.parts_mut();
        Ok(compressed::finish(reader, plan, bytes))
    }

    /// Decodes a batch in this thread that a device cannot decode. The error of damage is then the
    /// same as without a device.
    fn decode_here(&mut self, mut lease: Lease<BatchPlan>) -> Result<TakenBatch> {
        lease.wait()?;
        let reader = &self.shared.readers[lease.plan().reader];
        let (plan, bytes) = lease.parts_mut();
        let failures = compressed::decode_here(reader, plan, bytes)?;
        let mut taken = TakenBatch { lease, failures, ready: 0, skipped: 0, damage: None };
        self.complete(&mut taken, None)?;
        self.shared.counters.skipped(taken.skipped);
        Ok(taken)
    }

    /// The same batch with its values, after a device could not decode it.
    ///
    /// # Errors
    /// If a chunk is damaged or cannot be read. This is then the error of the batch.
    pub(crate) fn decoded_here(&mut self, batch: Batch) -> Result<Batch> {
        Ok(Batch::new(self.decode_here(batch.into_lease())?.lease, self.shared.clone()))
    }

    /// Removes the damaged samples of a batch, if they are to be skipped.
    fn without_damaged(&self, taken: &mut TakenBatch) -> Result<()> {
        let TakenBatch { lease, failures, skipped, damage, .. } = taken;
        let (plan, bytes) = lease.parts_mut();
        if let Some(error) = plan.error.take() {
            return Err(error);
        }
        failures.append(&mut plan.damaged);
        failures.sort_by_key(|failure| failure.position);
        let skip = self.shared.options().on_damage == OnDamage::Skip;
        if let Some(bad) = failures.iter().position(|failure| !skip || !is_damage(&failure.error)) {
            return Err(failures.swap_remove(bad).error);
        }
        let mut positions: Vec<usize> = failures.iter().map(|failure| failure.position).collect();
        positions.dedup();
        if !positions.is_empty() {
            plan.remove(&positions, bytes);
            *skipped = positions.len();
            *damage = failures.drain(..).next().map(|failure| failure.error);
        }
        Ok(())
    }

    /// Puts an item that can be read in place of a batch whose samples are all damaged, so that the
    /// epoch has as many batches as planned, on every rank. `false` if the deadline passes before
    /// one is found.
    fn replace(&mut self, taken: &mut TakenBatch, deadline: Option<Instant>) -> Result<bool> {
        // The batch may have had no task that waited for the slot.
        taken.lease.wait()?;
        let (plan, bytes) = taken.lease.parts_mut();
        let reader = &self.shared.readers[plan.reader];
        let is_stopped = || self.shared.ring.slots().is_stopped();
        let replacements = &mut self.replacements[plan.reader];
        match replacements.find(reader, plan, bytes, deadline, is_stopped)? {
            Replacement::Found(item) => {
                plan.items.push(item);
                plan.sources.clear();
                // Its values are in the slot.
                plan.compressed = None;
            }
            Replacement::Pending => return Ok(false),
            Replacement::None => {
                let what = format!(
                    "all samples of batch {} of rank {} are damaged, and no other sample of its shape can be read in their place",
                    plan.number,
                    self.shared.options().share.rank
                );
                let error = Error::damaged(what).at(reader.dataset.path()).with_remedy(remedy![
                    "run ",
                    Command::Repair,
                    ", or leave these samples out"
                ]);
                return Err(match taken.damage.take() {
                    Some(damage) => error.caused_by(damage),
                    None => error,
                });
            }
        }
        Ok(true)
    }

    /// Begins an epoch that the feeder has reached by itself.
    fn begin(&mut self, epoch: u64) {
        self.position = Position { epoch, ..Position::default() };
    }

    /// Drops unfinished batches and goes to the start of an epoch.
    pub fn set_epoch(&mut self, epoch: u64) {
        let at_start = self.position.batches == 0 && self.position.delivered.is_empty();
        if epoch != self.position.epoch || !at_start {
            self.go_to(epoch, Vec::new());
        }
    }

    fn go_to(&mut self, epoch: u64, delivered: Vec<Segment>) {
        self.pending = None;
        self.loads = LoadIntervals::default();
        self.shared.restart(epoch, delivered.clone());
        self.position = Position { epoch, delivered, ..Position::default() };
    }

    /// How far training is: after the last batch given, or after its error. Save this with a
    /// checkpoint and resume with [`with_state`](Self::with_state).
    pub fn state(&self) -> State {
        let Position { epoch, delivered, batches, at_end, .. } = &self.position;
        if *at_end {
            return self.shared.state_before(epoch + 1);
        }
        let now = Segment {
            batch_size: self.shared.options().plan.batch_size,
            world_size: self.shared.options().share.world_size,
            batches: *batches,
        };
        self.shared.state_before(*epoch).after(delivered, now)
    }

    /// Notes that the consumer is a thread that copies batches to a device.
    pub(crate) fn feed_transfer(&mut self) {
        self.consumer = Consumer::transfer();
    }

    /// Notes that the consumer is a thread that prepares batches.
    pub(crate) fn feed_preparer(&mut self) {
        self.consumer = Consumer::preparer();
    }

    /// State that the loader's threads share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The dataset; the first one if there are several.
    pub fn dataset(&self) -> &Dataset {
        &self.shared.first().dataset
    }

    /// The options that the loader was created with; those of the first dataset if there are
    /// several.
    pub fn options(&self) -> &LoaderOptions {
        self.shared.options()
    }

    /// The plan of its epochs; that of the first dataset if there are several.
    pub fn plan(&self) -> &Plan {
        &self.shared.first().plan
    }

    /// Names of the masks that batches have.
    pub fn masks(&self) -> &[String] {
        &self.shared.first().masks
    }

    /// Names of the targets that batches have.
    pub fn targets(&self) -> &[String] {
        &self.shared.first().targets
    }

    /// Names of the further images that batches have.
    pub fn images(&self) -> &[String] {
        self.shared.first().further()
    }

    /// Number of batches that every rank gets in this epoch, including those already given.
    ///
    /// # Errors
    /// As [`Plan::epoch`].
    pub fn batches_per_epoch(&self) -> Result<usize> {
        let Position { epoch, delivered, .. } = &self.position;
        self.shared.plan.batches(*epoch, delivered, self.shared.options().share)
    }

    /// Kind of the ring's memory, and why it is no better.
    pub fn memory(&self) -> MemoryReport {
        self.shared.ring.memory_report()
    }

    /// Cache policy, with its reason; that of the first dataset if there are several.
    pub fn cache(&self) -> &CacheChoice {
        &self.shared.first().cached
    }

    /// The loader's workload and its cost; that of the first dataset if there are several.
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
        self.shared.cached_bytes()
    }

    /// Cost and gain of keeping decoded chunks so far.
    pub fn cache_times(&self) -> CacheTimes {
        self.shared.cache_times()
    }

    /// Where the time went so far, and how long the latest batches took.
    pub fn statistics(&self) -> Statistics {
        self.shared.statistics()
    }

    /// Forgets how long batches took, for example while files were not in the system's cache yet.
    pub fn forget_times(&self) {
        self.shared.counters.times.clear();
    }
}

/// The error of a loader without a device that is to decode on one.
pub(crate) fn no_device() -> Error {
    Error::conflict("no device decodes, because batches are on the CPU").with_remedy(remedy![
        "use ",
        Opt::Device.to("cuda"),
        ", or leave out ",
        Opt::Decode
    ])
}

/// Why no batch was taken.
enum Taking {
    TimedOut,
    Failed(Error),
    /// No batch can come any more.
    Lost(Error),
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let before = self.loader.position.batches;
        let next = self.loader.next_batch();
        self.over = match next {
            Some(Ok(_)) => false,
            // An error of a batch counts as the batch. Any other error might come for ever.
            Some(Err(_)) => self.loader.position.batches == before,
            None => true,
        };
        next
    }
}

impl Drop for Loader {
    /// Stops and joins all threads. Batches that are still held stay valid.
    fn drop(&mut self) {
        self.shared.ring.slots().stop();
        for thread in self.threads.drain(..) {
            // Threads catch panics in their work. If a thread panicked nevertheless, there is nothing more to
            // report.
            let _ = thread.join();
        }
    }
}
