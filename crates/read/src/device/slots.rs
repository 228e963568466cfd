//! Device slots and their reuse. The states of a slot are:
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
//! 1. Every copy into a slot waits, on the device, for the slot's fences: one event for each stream
//!    that the slot was lent to, recorded when its last array was dropped.
//! 2. A slot is room only while no array lies over it. Its arrays own it together, and the last one
//!    gives it back.
//! 3. A host batch is dropped only when its copy's event is done.
//! 4. All work on a batch, on a stream that it was lent to, waits, on the device, for its copy's
//!    event.
//! 5. Memory is freed only when its fences are done.

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_augment::Device;
use hsipack_augment::array::{Memory, Stream};
use hsipack_store::process::OfProcess;

use super::backend::{Backend, DeviceMemory};
use super::exchange::Exchange;
use super::monitor::{Copies, Tally};
use super::resident::Residents;
use super::source::Source;
use crate::{Error, ErrorKind, Result};

/// Number of device slots at the start: one is copied into while one is used.
const SLOTS: usize = 2;
/// A consumer that asks for the next batch while it holds the previous one gets one more slot.
/// Slots beyond these are freed when they are no longer needed.
const RETAINED_SLOTS: usize = 3;

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
struct Filled<B: Backend, S: Source> {
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

impl<B: Backend, S: Source> Ready<B, S> {
    /// Counts the slot as held by the consumer, until it is given back.
    pub(super) fn hold(&self, rack: &Rack<B, S>) {
        rack.held.fetch_add(1, Ordering::Relaxed);
        if let Some(filled) = self.memory.filled.get() {
            filled.held.store(true, Ordering::Relaxed);
        }
    }
}

/// Result that the transfer thread hands over.
pub(super) enum Item<B: Backend, S: Source> {
    Batch(Ready<B, S>),
    End(S::Position),
    /// The error of a batch, and the position after the batch; no position if the same batch comes
    /// once more.
    Failed(Error, Option<S::Position>),
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
    /// Where times are recorded.
    pub(super) tally: Arc<Tally>,
    /// Samples that stay in the device's memory.
    residents: Vec<Arc<Residents>>,
}

impl<B: Backend, S: Source> Rack<B, S> {
    /// Allocates the first slots.
    ///
    /// # Errors
    /// If there is no memory on the device.
    pub(super) fn new(
        backend: Arc<B>,
        slot_bytes: usize,
        residents: Vec<Arc<Residents>>,
        tally: Arc<Tally>,
    ) -> Result<Arc<Self>> {
        let rack = Arc::new(Self {
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
            tally,
            residents,
        });
        for _ in 0..SLOTS {
            rack.add_slot(slot_bytes)?;
        }
        Ok(rack)
    }

    /// If the consumer holds every slot, makes one more.
    pub(super) fn make_room(&self, slot_bytes: usize) -> Result<()> {
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

    /// Releases what stays in the device's memory if this error says that it has too little.
    /// `false` if nothing was released.
    pub(super) fn makes_memory(&self, error: &Error) -> bool {
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
