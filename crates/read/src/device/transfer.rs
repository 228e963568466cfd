//! Copies batches to a device ahead of their use; see `docs/transfer.md`.
//!
//! A thread of its own takes host batches, queues their copies on the device's copy stream and hands them over; the
//! consumer makes its own stream wait for the copy, and nobody waits for a whole stream. A device slot is
//!
//! ```text
//!            copy queued            taken                 nobody looks at it any more
//!   room ───────────────▶ ready ───────────▶ given ──────────────────────────────────▶ room (with a fence)
//!    ▲                      │ restart          │ still looked at, and the transfer starves
//!    └──────────────────────┘                  └─▶ given away: its tensors own the memory, a new slot comes
//! ```
//!
//! Always:
//!
//! 1. Whatever is copied into a slot waits, on the device, for the slot's fence: an event that was recorded on the
//!    consumer's stream after the last tensor over the slot was dropped (or after the slot was allocated).
//! 2. A slot becomes room only when its base tensor is the only user of its storage. The base is never handed out.
//! 3. A host batch is dropped only when its copy's event is done.
//! 4. Whatever the consumer's stream does with a batch waits, on the device, for its copy's event.

use std::mem::ManuallyDrop;
use std::sync::atomic::{self, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use hsipack_store::threads;
use tch::Tensor;

use super::backend::Backend;
use super::handover::{Handover, Interrupt, Taken};
use crate::torch::storage_uses;
use crate::{Error, ErrorKind, Result};

/// Device slots at the start: one is copied into while one is used.
pub(super) const SLOTS: usize = 2;
/// A consumer that asks for the next batch while it holds the one before gets one more.
const MOST_SLOTS: usize = 3;

/// Where host batches come from.
pub(super) trait Source: Send + 'static {
    /// A batch in host memory that stays where it is, unwritten, until it is dropped.
    type Batch: Send;
    /// What is known of a batch beside its bytes.
    type Info: Send;
    /// How far the consumer is when it has taken a batch.
    type Place: Send;

    fn next(&mut self) -> Option<Result<Self::Batch>>;
    fn go_to(&mut self, epoch: u64);
    fn place(&self) -> Self::Place;
    fn bytes(batch: &Self::Batch) -> &[u8];
    fn info(batch: &Self::Batch) -> Self::Info;
}

/// Memory on the device, and what copies into it have to wait for.
struct Slot<E> {
    memory: Tensor,
    fence: Option<E>,
}

/// What the transfer thread hands over.
enum Item<E, I, P> {
    Batch { memory: Tensor, copied: Arc<E>, info: I, place: P },
    End(P),
    Failed(Error),
}

/// What the consumer gets.
#[derive(Debug)]
pub(super) enum Next<R, P> {
    Batch(R, P),
    End(P),
    TimedOut,
}

/// What was made of a batch, and what is to be dropped after it.
type Built<R, P> = Next<(R, Box<dyn Send>), P>;
type SlotOf<B> = Slot<<B as Backend>::Event>;
type ItemOf<B, S> = Item<<B as Backend>::Event, <S as Source>::Info, <S as Source>::Place>;
type HandoverOf<B, S> = Handover<SlotOf<B>, ItemOf<B, S>>;

/// The consumer's side.
pub(super) struct Transfer<B: Backend, S: Source> {
    rack: Arc<Rack<B, S>>,
    thread: Option<JoinHandle<()>>,
    /// Has a call of the source that waits return.
    interrupt: Box<dyn Fn() + Send>,
    slot_bytes: usize,
}

/// What a batch that was given needs to give its slot back.
struct Rack<B: Backend, S: Source> {
    backend: Arc<B>,
    handover: Arc<HandoverOf<B, S>>,
    /// Base tensors of the slots that were given, oldest first.
    given: Mutex<Vec<Tensor>>,
    slots: AtomicUsize,
    given_away: AtomicU64,
}

/// Belongs to a batch that was given: its last field, so that the batch's tensors are gone when this is dropped.
struct Lease<B: Backend, S: Source>(Arc<Rack<B, S>>);

impl<B: Backend, S: Source> Drop for Lease<B, S> {
    fn drop(&mut self) {
        // What fails here fails again, and is told, when the next batch is asked for.
        let _ = self.0.reclaim();
    }
}

impl<B: Backend, S: Source> Transfer<B, S> {
    /// Allocates the slots and starts the thread. `interrupt` has to make a `source.next()` that waits return,
    /// for good.
    ///
    /// # Errors
    /// If there is no memory on the device, or no thread.
    pub(super) fn start(
        backend: Arc<B>,
        source: S,
        slot_bytes: usize,
        interrupt: Box<dyn Fn() + Send>,
    ) -> Result<Self> {
        let handover = Arc::new(Handover::new());
        let rack = Arc::new(Rack {
            backend: backend.clone(),
            handover: handover.clone(),
            given: Mutex::default(),
            slots: AtomicUsize::new(0),
            given_away: AtomicU64::new(0),
        });
        for _ in 0..SLOTS {
            rack.add_slot(slot_bytes)?;
        }
        let worker = Worker { backend, source, handover, generation: 0, pending: None, lost: None };
        let thread = threads::start("transfer", move || worker.run())?;
        Ok(Self { rack, thread: Some(thread), interrupt, slot_bytes })
    }

    /// The next batch, made by `build` of its memory, of which `build` may give out views only. Where it fails,
    /// the same batch comes again. Also gives what is to be dropped last of the batch.
    pub(super) fn next<R>(
        &mut self,
        deadline: Option<Instant>,
        build: impl FnOnce(&Tensor, &S::Info) -> Result<R>,
    ) -> Result<Built<R, S::Place>> {
        let rack = &self.rack;
        rack.reclaim()?;
        rack.make_room(self.slot_bytes)?;
        match rack.handover.take(deadline) {
            Taken::TimedOut => Ok(Next::TimedOut),
            Taken::Ended => Err(Error::bug("the transfer thread panicked")),
            Taken::Item(Item::End(place)) => Ok(Next::End(place)),
            Taken::Item(Item::Failed(error)) => Err(error),
            Taken::Item(item) => {
                let mut taken = Untaken { handover: &rack.handover, item: Some(item) };
                let Some(Item::Batch { memory, copied, info, .. }) = &taken.item else {
                    unreachable!("other items were looked at above");
                };
                rack.backend.wait_on_caller(copied)?;
                rack.backend.lend(memory)?;
                let built = build(memory, info)?;
                let Some(Item::Batch { memory, place, .. }) = taken.item.take() else {
                    unreachable!("it is the same item");
                };
                rack.given().push(memory);
                // Where all tensors were made anew, the slot is free already.
                rack.reclaim()?;
                Ok(Next::Batch((built, Box::new(Lease(rack.clone()))), place))
            }
        }
    }

    /// Drops what is under way and begins with an epoch.
    pub(super) fn go_to(&mut self, epoch: u64) {
        let handover = &self.rack.handover;
        handover.restart(epoch).into_iter().for_each(|item| free(handover, item));
    }

    /// Device slots there are.
    pub(super) fn slots(&self) -> usize {
        self.rack.slots.load(Ordering::Relaxed)
    }

    /// Slots whose memory was left to tensors that the consumer kept.
    pub(super) fn given_away(&self) -> u64 {
        self.rack.given_away.load(Ordering::Relaxed)
    }
}

impl<B: Backend, S: Source> Drop for Transfer<B, S> {
    /// Stops and joins the thread, which waits for a copy that is under way. Batches that were given stay valid.
    fn drop(&mut self) {
        self.rack.handover.stop();
        (self.interrupt)();
        if let Some(thread) = self.thread.take() {
            // Panics were told as the thread's end.
            let _ = thread.join();
        }
        // Batches that are kept keep the rack; they need not keep all slots. No copy is under way any more.
        self.rack.handover.clear();
    }
}

impl<B: Backend, S: Source> Rack<B, S> {
    fn given(&self) -> MutexGuard<'_, Vec<Tensor>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room of the slots that nobody looks at any more.
    fn reclaim(&self) -> Result<()> {
        let mut given = self.given();
        let mut place = 0;
        while place < given.len() {
            if storage_uses(&given[place])? > 1 {
                place += 1;
                continue;
            }
            // Whoever dropped the last tensor, in whichever thread, queued its work before; the fence comes behind.
            atomic::fence(Ordering::Acquire);
            let fence = Some(self.backend.fence()?);
            let memory = given.remove(place);
            self.handover.give(Slot { memory, fence });
        }
        Ok(())
    }

    /// Where the consumer holds every slot, adds one, or gives the oldest one's memory away for a new one.
    fn make_room(&self, slot_bytes: usize) -> Result<()> {
        let held = self.given().len();
        if held < self.slots.load(Ordering::Relaxed) || self.handover.has_items() {
            return Ok(());
        }
        self.add_slot(slot_bytes)?;
        if held >= MOST_SLOTS {
            // The tensors over it are its owners from now on. It is in the list: only this thread and those that
            // drop batches remove slots, and if they did so just now there is simply one more.
            let mut given = self.given();
            if given.len() == held {
                drop(given.remove(0));
                self.slots.fetch_sub(1, Ordering::Relaxed);
                self.given_away.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn add_slot(&self, slot_bytes: usize) -> Result<()> {
        let memory = self.backend.allocate(slot_bytes)?;
        let fence = Some(self.backend.fence()?);
        self.slots.fetch_add(1, Ordering::Relaxed);
        self.handover.give(Slot { memory, fence });
        Ok(())
    }
}

/// An item that goes back, to come first again, unless it is taken out.
struct Untaken<'a, S, T> {
    handover: &'a Handover<S, T>,
    item: Option<T>,
}

impl<S, T> Drop for Untaken<'_, S, T> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.handover.untake(item);
        }
    }
}

/// Gives the slot of an item back that nobody will take. Copies follow each other: the next one into it needs no
/// fence to come after this one.
fn free<E, I, P>(handover: &Handover<Slot<E>, Item<E, I, P>>, item: Item<E, I, P>) {
    if let Item::Batch { memory, .. } = item {
        handover.give(Slot { memory, fence: None });
    }
}

/// The transfer thread.
struct Worker<B: Backend, S: Source> {
    backend: Arc<B>,
    source: S,
    handover: Arc<HandoverOf<B, S>>,
    generation: u64,
    /// A batch whose copy could not be queued.
    pending: Option<S::Batch>,
    /// Why copies cannot be waited for any more.
    lost: Option<(ErrorKind, String)>,
}

/// Says that the thread has ended, also if it panicked.
struct Ending<'a, S, T>(&'a Handover<S, T>);

impl<S, T> Drop for Ending<'_, S, T> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A host batch whose copy is queued; it is dropped when the copy is done.
struct InFlight<'a, B: Backend, S: Source> {
    backend: &'a B,
    batch: ManuallyDrop<S::Batch>,
    copied: Option<Arc<B::Event>>,
}

impl<B: Backend, S: Source> InFlight<'_, B, S> {
    /// Waits for the copy. Where that fails, the device may still read the batch for all we know: its slot of the
    /// ring is left to it for good.
    fn finish(mut self) -> Result<()> {
        self.wait()
    }

    fn wait(&mut self) -> Result<()> {
        let Some(copied) = self.copied.take() else { return Ok(()) };
        self.backend.finish(&copied)?;
        // SAFETY: `copied` is taken, so this is the only time.
        unsafe { ManuallyDrop::drop(&mut self.batch) };
        Ok(())
    }
}

impl<B: Backend, S: Source> Drop for InFlight<'_, B, S> {
    fn drop(&mut self) {
        // Only after a panic or an interruption is there anything left to wait for.
        let _ = self.wait();
    }
}

impl<B: Backend, S: Source> Worker<B, S> {
    fn run(mut self) {
        let handover = self.handover.clone();
        let _ending = Ending(&*handover);
        loop {
            match self.step() {
                Ok(()) => {}
                Err(Interrupt::Restarted(order)) => {
                    self.pending = None;
                    self.generation = order.generation;
                    self.source.go_to(order.epoch);
                }
                Err(Interrupt::Stopped) => return,
            }
        }
    }

    /// Copies one batch, or hands over why there is none.
    fn step(&mut self) -> Result<(), Interrupt> {
        if let Some((kind, what)) = &self.lost {
            let error = Error::new(*kind, what.clone()).with_remedy(LOST_REMEDY);
            return self.fail(error);
        }
        let batch = match self.pending.take().map(Ok).or_else(|| self.source.next()) {
            Some(Ok(batch)) => batch,
            Some(Err(error)) => return self.fail(error),
            None => return self.put(Item::End(self.source.place())),
        };
        let info = S::info(&batch);
        let slot = self.handover.room(self.generation)?;
        if let Err(error) = self.queue(&batch, &slot) {
            self.pending = Some(batch);
            self.handover.give(slot);
            return self.fail(error);
        }
        self.hand_over(batch, info, slot)
    }

    /// Queues the copy; where it fails nothing is queued.
    fn queue(&self, batch: &S::Batch, slot: &SlotOf<B>) -> Result<()> {
        if let Some(fence) = &slot.fence {
            self.backend.wait_on_copies(fence)?;
        }
        // SAFETY: `hand_over` keeps the batch until an event recorded afterwards is done, or for ever. The slot's
        // memory is kept by this side, the hand-over or the rack until this thread has waited for that event,
        // or by tensors whose stream waits for it (see `docs/transfer.md`).
        unsafe { self.backend.copy(S::bytes(batch), &slot.memory) }
    }

    fn hand_over(
        &mut self,
        batch: S::Batch,
        info: S::Info,
        slot: SlotOf<B>,
    ) -> Result<(), Interrupt> {
        let backend = self.backend.clone();
        let mut flight: InFlight<'_, B, S> =
            InFlight { backend: &backend, batch: ManuallyDrop::new(batch), copied: None };
        match backend.copied() {
            Ok(copied) => {
                let copied = Arc::new(copied);
                flight.copied = Some(copied.clone());
                let place = self.source.place();
                let memory = slot.memory;
                self.put(Item::Batch { memory, copied, info, place })?;
                match flight.finish() {
                    Ok(()) => Ok(()),
                    Err(error) => self.lose(error),
                }
            }
            // The copy cannot be waited for: the batch is left to it.
            Err(error) => {
                self.handover.give(slot);
                self.lose(error)
            }
        }
    }

    /// The device no longer says what is done: no further copy is begun.
    fn lose(&mut self, error: Error) -> Result<(), Interrupt> {
        self.lost = Some((error.kind(), error.what().to_owned()));
        self.fail(error)
    }

    /// Hands an error over, and goes on when the consumer asks again.
    fn fail(&self, error: Error) -> Result<(), Interrupt> {
        self.put(Item::Failed(error))?;
        self.handover.asked(self.generation)
    }

    fn put(&self, item: ItemOf<B, S>) -> Result<(), Interrupt> {
        self.handover.put(self.generation, item).map_err(|(item, interrupt)| {
            free(&self.handover, item);
            interrupt
        })
    }
}

/// What to do about a device that is lost.
pub(super) const LOST_REMEDY: &str =
    "restart the program; the system's log (dmesg, Xid) says what happened to the device";
