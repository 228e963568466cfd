//! Copies batches to a device ahead of their use; see `docs/transfer.md`.
//!
//! A separate thread takes host batches, queues their copies on the device's copy stream and hands the batches over. The
//! consumer names the stream that it uses a batch on. This stream waits for the copy, and nobody waits for a whole
//! stream. The states of a device slot are:
//!
//! ```text
//!            copy queued            taken              its last array is dropped
//!   room ───────────────▶ ready ───────────▶ given ──────────────────────────────▶ room, behind fences
//!    ▲                      │ restart
//!    └──────────────────────┘
//! ```
//!
//! The following always holds:
//!
//! 1. Every copy into a slot waits, on the device, for the slot's fences: one event for each stream that the slot was
//!    lent to, recorded when its last array was dropped.
//! 2. A slot is room only while no array lies over it. Its arrays own it together, and the last one gives it back.
//! 3. A host batch is dropped only when its copy's event is done.
//! 4. All work on a batch, on a stream that it was lent to, waits, on the device, for its copy's event.
//! 5. Memory is freed only when its fences are done.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use hsipack_augment::Device;
use hsipack_augment::array::{Memory, Stream};
use hsipack_store::process::OfProcess;
use hsipack_store::threads;

use super::backend::{Backend, DeviceMemory};
use super::exchange::{Exchange, Taken};
use super::monitor::Copies;
use super::resident::Residents;
use super::worker::Worker;
use crate::loader::Decoding;
use crate::{Error, ErrorKind, Result};

/// Number of device slots at the start: one is copied into while one is used.
pub(super) const SLOTS: usize = 2;
/// A consumer that asks for the next batch while it holds the previous one gets one more slot. Slots beyond these are
/// freed when they are no longer needed.
const RETAINED_SLOTS: usize = 3;

/// Where host batches come from.
pub(super) trait Source: Send + 'static {
    /// A batch in host memory that does not move and is not written to until it is dropped.
    type Batch: Send;
    /// The metadata of a batch.
    type Info: Send + Sync;
    /// How far the consumer is when it has taken a batch.
    type Position: Send;

    fn next(&mut self) -> Option<Result<Self::Batch>>;

    /// The next batch, the end or an error, as of [`next`](Self::next), if it is there.
    fn next_if_ready(&mut self) -> Option<Option<Result<Self::Batch>>>;

    fn go_to(&mut self, epoch: u64);
    fn position(&self) -> Self::Position;
    fn bytes(batch: &Self::Batch) -> &[u8];
    fn info(batch: &Self::Batch) -> Self::Info;

    /// The device's work if it has to complete the batch, whose [`bytes`](Self::bytes) are then all that it needs.
    fn decoding(batch: &Self::Batch) -> Option<Arc<Decoding>>;

    /// Where the device's answers go: the status of each chunk.
    fn answers(batch: &mut Self::Batch) -> &mut [u8];

    /// Gathers the frames of all later batches, because the device cannot copy from the maps of files.
    fn close_page_cache(&self, why: &str);

    /// The same batch as values, after the device could not decode it.
    ///
    /// # Errors
    /// If it cannot be decoded here, either. This is then the error of the batch.
    fn decoded_here(&mut self, batch: Self::Batch) -> Result<Self::Batch>;
}

/// Memory on the device that no array lies over, and what copies into it have to wait for.
pub(super) struct Slot<B: Backend> {
    pub(super) memory: ManuallyDrop<B::Memory>,
    pub(super) fences: Vec<B::Event>,
    backend: Arc<B>,
}

impl<B: Backend> Drop for Slot<B> {
    fn drop(&mut self) {
        // If the device no longer reports what is done, it may still use the memory, so the memory is not freed.
        if self.fences.iter().all(|fence| self.backend.finish(fence).is_ok()) {
            // SAFETY: dropped here only, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

/// A slot that holds a batch. Arrays lie over it; the last one gives it back.
pub(super) struct Filled<B: Backend, S: Source> {
    /// `None` when the slot is given back.
    slot: Option<Slot<B>>,
    /// An event after the copy, or after the decoding.
    written: Arc<B::Event>,
    /// The streams that the slot was lent to.
    streams: Mutex<Vec<Stream>>,
    /// Whether the consumer has the batch.
    held: AtomicBool,
    rack: Arc<Rack<B, S>>,
}

impl<B: Backend, S: Source> Filled<B, S> {
    fn lend(&self, stream: Stream) -> Result<()> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        // Noted first, because a wait that fails may be queued nevertheless.
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        self.rack.backend.wait(stream, &self.written)
    }
}

impl<B: Backend, S: Source> Drop for Filled<B, S> {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        // Whoever drops the last array, in whatever thread, has queued its work before, so the fences come after this
        // work.
        let streams = self.streams.get_mut().unwrap_or_else(PoisonError::into_inner);
        let fences = streams.iter().map(|stream| self.rack.backend.record(*stream));
        match fences.collect::<Result<Vec<_>>>() {
            Ok(fences) => {
                slot.fences = fences;
                if self.held.load(Ordering::Relaxed) {
                    self.rack.held.fetch_sub(1, Ordering::Relaxed);
                }
                self.rack.exchange.give(Ok(slot));
            }
            // Nobody can say when the memory is free, so it is left to the device. It counts as held, so that another
            // slot is made in its place. The call that failed here fails again, and is reported, when the next batch is
            // asked for.
            Err(_) => {
                if !self.held.load(Ordering::Relaxed) {
                    self.rack.held.fetch_add(1, Ordering::Relaxed);
                }
                std::mem::forget(slot);
            }
        }
    }
}

/// The memory that arrays lie over: a filled slot, for the process that made it.
pub(super) struct Lent<B: Backend, S: Source> {
    device: Device,
    start: *mut u8,
    bytes: usize,
    /// A forked process has arrays over it, too, but must not call the device.
    filled: OfProcess<Filled<B, S>>,
}

// SAFETY: the address is that of the slot's memory, which may be used in any thread.
unsafe impl<B: Backend, S: Source> Send for Lent<B, S> {}
// SAFETY: as above; what changes is behind locks.
unsafe impl<B: Backend, S: Source> Sync for Lent<B, S> {}

// SAFETY: the device's memory stays where it is (`DeviceMemory`). Only copies write to it. `lend` orders the copy before,
// and the next copy is queued when the value is gone, after the fences.
unsafe impl<B: Backend, S: Source> Memory for Lent<B, S> {
    fn device(&self) -> Device {
        self.device
    }

    fn start(&self) -> *mut u8 {
        self.start
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn lend(&self, stream: Stream) -> Result<()> {
        match self.filled.get() {
            Some(filled) => filled.lend(stream),
            None => Err(Error::conflict("this batch belongs to the process that made it")
                .with_remedy("create the loader after the fork")),
        }
    }
}

/// A batch on the device.
pub(super) struct Ready<B: Backend, S: Source> {
    pub(super) memory: Arc<Lent<B, S>>,
    pub(super) info: S::Info,
    pub(super) position: S::Position,
}

/// Result that the transfer thread hands over.
pub(super) enum Item<B: Backend, S: Source> {
    Batch(Ready<B, S>),
    End(S::Position),
    /// The error of a batch, and the position after the batch; no position if the same batch comes once more.
    Failed(Error, Option<S::Position>),
}

/// A batch as the consumer gets it.
#[derive(Debug)]
pub(super) enum Next<R, P> {
    Batch(R, P),
    End(P),
    TimedOut,
    /// A batch failed; the next one comes next. If the position is the one before, it was not an error of a batch.
    Failed(Error, P),
    /// No batch can come any more, as an error said before. The epoch is over.
    Over,
}

/// Room for a batch, or a refusal.
pub(super) type Room<B> = std::result::Result<Slot<B>, Refusal>;

/// There is no memory for one more slot, so the next batch fails.
pub(super) struct Refusal {
    /// See [`Rack::refusal`].
    pub(super) number: u64,
    pub(super) error: Error,
}

pub(super) type ExchangeOf<B, S> = Exchange<Room<B>, Item<B, S>>;

/// The consumer's side.
pub(super) struct Transfer<B: Backend, S: Source> {
    rack: Arc<Rack<B, S>>,
    thread: Option<JoinHandle<()>>,
    /// Makes a waiting call of the source return.
    interrupt: Box<dyn Fn() + Send>,
    slot_bytes: usize,
    /// Number of refusals so far.
    refusals: u64,
    /// Whether the next batch failed on the device before. It comes once more, in case memory was freed meanwhile. If it
    /// fails again, it counts as given. Otherwise a loop that skips errors would run for ever if the device is lost.
    is_retry: bool,
    /// Whether the end of the transfer thread was reported.
    is_over: bool,
}

/// The handle with which a batch gives its slot back.
pub(super) struct Rack<B: Backend, S: Source> {
    pub(super) backend: Arc<B>,
    pub(super) exchange: ExchangeOf<B, S>,
    /// Number of slots.
    pub(super) slots: AtomicUsize,
    /// Number of slots that the consumer holds.
    pub(super) held: AtomicUsize,
    /// The number of the refusal that holds for the next batch; 0 if none does.
    pub(super) refusal: AtomicU64,
    /// Whether the device is lost.
    pub(super) is_lost: AtomicBool,
    given_away: AtomicU64,
    /// Bytes copied to the device.
    pub(super) copied_bytes: AtomicU64,
    /// Those of them that the device read in the system's page cache.
    pub(super) page_cache_bytes: AtomicU64,
    /// Those of them that are frames that were gathered.
    pub(super) gathered_bytes: AtomicU64,
    /// Batches that the device decoded.
    pub(super) decoded: AtomicU64,
    /// Images that came from the device's memory.
    pub(super) hits: AtomicU64,
    /// Samples that stay in the device's memory.
    residents: Vec<Arc<Residents>>,
}

impl<B: Backend, S: Source> Transfer<B, S> {
    /// Allocates the slots and starts the thread. `interrupt` has to make a waiting `source.next()` return, for good.
    ///
    /// # Errors
    /// If there is no memory on the device, or no thread can be started.
    pub(super) fn start(
        backend: Arc<B>,
        source: S,
        slot_bytes: usize,
        residents: Vec<Arc<Residents>>,
        interrupt: Box<dyn Fn() + Send>,
    ) -> Result<Self> {
        let rack = Arc::new(Rack {
            backend,
            exchange: Exchange::new(),
            slots: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            refusal: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            given_away: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            page_cache_bytes: AtomicU64::new(0),
            gathered_bytes: AtomicU64::new(0),
            decoded: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            residents,
        });
        for _ in 0..SLOTS {
            rack.add_slot(slot_bytes)?;
        }
        let worker = Worker::new(rack.clone(), source);
        let thread = Some(threads::start("transfer", move || worker.run())?);
        let (refusals, is_retry, is_over) = (0, false, false);
        Ok(Self { rack, thread, interrupt, slot_bytes, refusals, is_retry, is_over })
    }

    /// The next batch, which `build` makes from its memory. `build` also lends the memory to the stream that it is used
    /// on. If `build` fails, or there is no memory for one more slot, the same batch comes once more. If that fails, too,
    /// it is [`Next::Failed`].
    pub(super) fn next<R>(
        &mut self,
        deadline: Option<Instant>,
        mut build: impl FnMut(&Arc<dyn Memory>, &S::Info) -> Result<R>,
    ) -> Result<Next<R, S::Position>> {
        let rack = &self.rack;
        if let Err(error) = rack.make_room(self.slot_bytes) {
            if !std::mem::replace(&mut self.is_retry, true) {
                return Err(error);
            }
            // The batch that the transfer thread has no room for fails.
            if rack.refusal.load(Ordering::Relaxed) == 0 {
                self.refusals += 1;
                rack.refusal.store(self.refusals, Ordering::Relaxed);
                rack.exchange.give(Err(Refusal { number: self.refusals, error }));
            }
        }
        let taken = rack.exchange.take(deadline);
        if !matches!(taken, Taken::TimedOut) {
            rack.refusal.store(0, Ordering::Relaxed);
        }
        match taken {
            Taken::TimedOut => Ok(Next::TimedOut),
            Taken::Ended if std::mem::take(&mut self.is_over) => Ok(Next::Over),
            Taken::Ended => {
                self.is_over = true;
                Err(Error::bug("the transfer thread panicked"))
            }
            Taken::Item(Item::End(position)) => Ok(Next::End(position)),
            Taken::Item(Item::Failed(error, None)) => Err(error),
            Taken::Item(Item::Failed(error, Some(position))) => {
                self.is_retry = false;
                Ok(Next::Failed(error, position))
            }
            Taken::Item(Item::Batch(ready)) => {
                let mut taken = Untaken { exchange: &rack.exchange, ready: Some(ready) };
                let ready = taken.ready.as_ref().expect("put there above");
                let memory: Arc<dyn Memory> = ready.memory.clone();
                let built = build(&memory, &ready.info).or_else(|error| {
                    if rack.makes_memory(&error) { build(&memory, &ready.info) } else { Err(error) }
                });
                let built = match built {
                    Ok(built) => built,
                    Err(error) if std::mem::replace(&mut self.is_retry, true) => {
                        self.is_retry = false;
                        let ready = taken.ready.take().expect("put there above");
                        return Ok(Next::Failed(error, ready.position));
                    }
                    Err(error) => return Err(error),
                };
                self.is_retry = false;
                let ready = taken.ready.take().expect("put there above");
                rack.held.fetch_add(1, Ordering::Relaxed);
                if let Some(filled) = ready.memory.filled.get() {
                    filled.held.store(true, Ordering::Relaxed);
                }
                Ok(Next::Batch(built, ready.position))
            }
        }
    }

    /// Drops unfinished batches and begins an epoch.
    pub(super) fn go_to(&mut self, epoch: u64) {
        (self.is_retry, self.is_over) = (false, false);
        self.rack.refusal.store(0, Ordering::Relaxed);
        drop(self.rack.exchange.restart(epoch));
    }

    /// The counts of the slots.
    pub(super) fn copies(&self) -> Arc<dyn Copies>
    where
        S: 'static,
    {
        self.rack.clone()
    }
}

impl<B: Backend, S: Source> Copies for Rack<B, S> {
    fn device_slots(&self) -> usize {
        self.slots.load(Ordering::Relaxed)
    }

    fn given_away(&self) -> u64 {
        self.given_away.load(Ordering::Relaxed)
    }

    fn copied(&self) -> u64 {
        0
    }

    fn copied_bytes(&self) -> u64 {
        self.copied_bytes.load(Ordering::Relaxed)
    }

    fn page_cache_bytes(&self) -> u64 {
        self.page_cache_bytes.load(Ordering::Relaxed)
    }

    fn gathered_bytes(&self) -> u64 {
        self.gathered_bytes.load(Ordering::Relaxed)
    }

    fn decoded(&self) -> u64 {
        self.decoded.load(Ordering::Relaxed)
    }

    fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
}

impl<B: Backend, S: Source> Drop for Transfer<B, S> {
    /// Stops and joins the thread, which waits for a copy that is under way. Batches that were given stay valid.
    fn drop(&mut self) {
        self.rack.exchange.stop();
        (self.interrupt)();
        if let Some(thread) = self.thread.take() {
            // Panics were reported as the end of the thread.
            let _ = thread.join();
        }
        // Batches that are kept keep the rack, but they need not keep all slots. No copy is under way any more.
        self.rack.exchange.clear();
    }
}

impl<B: Backend, S: Source> Rack<B, S> {
    /// If the consumer holds every slot, makes one more.
    fn make_room(&self, slot_bytes: usize) -> Result<()> {
        let slots = self.slots.load(Ordering::Relaxed);
        if self.held.load(Ordering::Relaxed) < slots || self.exchange.has_items() {
            return Ok(());
        }
        if self.is_lost.load(Ordering::Relaxed) {
            // The transfer thread needs no more room, because every batch fails.
            return Ok(());
        }
        self.add_slot(slot_bytes)?;
        if slots >= RETAINED_SLOTS {
            self.given_away.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn add_slot(&self, slot_bytes: usize) -> Result<()> {
        let memory = ManuallyDrop::new(self.allocate(slot_bytes)?);
        self.slots.fetch_add(1, Ordering::Relaxed);
        self.exchange.give(Ok(Slot { memory, fences: Vec::new(), backend: self.backend.clone() }));
        Ok(())
    }

    /// Allocates memory. If the device has too little, what stays in its memory is released.
    pub(super) fn allocate(&self, bytes: usize) -> Result<B::Memory> {
        self.backend.allocate(bytes).or_else(|error| {
            if self.makes_memory(&error) { self.backend.allocate(bytes) } else { Err(error) }
        })
    }

    /// Releases what stays in the device's memory if this error says that it has too little. `false` if nothing was released.
    fn makes_memory(&self, error: &Error) -> bool {
        if error.kind() != ErrorKind::DeviceMemory {
            return false;
        }
        // All of it: the next allocation would fail as well.
        self.residents.iter().filter(|residents| residents.release()).count() > 0
    }

    /// The memory of a slot into which something is queued. `written` is an event after that.
    pub(super) fn lent(self: &Arc<Self>, slot: Slot<B>, written: Arc<B::Event>) -> Arc<Lent<B, S>> {
        let (start, bytes) = (slot.memory.start(), slot.memory.bytes());
        let filled = Filled {
            slot: Some(slot),
            written,
            streams: Mutex::default(),
            held: AtomicBool::new(false),
            rack: self.clone(),
        };
        let device = self.backend.device();
        Arc::new(Lent { device, start, bytes, filled: OfProcess::new(filled) })
    }

    /// Whether a free slot is no longer needed: the consumer needed many slots, and gave them back.
    pub(super) fn is_surplus(&self) -> bool {
        let slots = self.slots.load(Ordering::Relaxed);
        // The slots that the consumer does not hold have to be enough for it and for the next copy.
        let free = slots.saturating_sub(self.held.load(Ordering::Relaxed));
        slots > RETAINED_SLOTS && free > SLOTS
    }
}

/// A batch that is put back when this is dropped, to come first again, unless it is taken out before.
struct Untaken<'a, B: Backend, S: Source> {
    exchange: &'a ExchangeOf<B, S>,
    ready: Option<Ready<B, S>>,
}

impl<B: Backend, S: Source> Drop for Untaken<'_, B, S> {
    fn drop(&mut self) {
        if let Some(ready) = self.ready.take() {
            self.exchange.untake(Item::Batch(ready));
        }
    }
}
