//! The transfer thread.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::backend::{Backend, LOST_REMEDY};
use super::decoding::{Buffers, Staged};
use super::exchange::Interrupt;
use super::transfer::{Item, Rack, Ready, Room, Slot, Source};
use crate::{Error, ErrorKind, Result};

/// The transfer thread.
pub(super) struct Worker<B: Backend, S: Source> {
    pub(super) rack: Arc<Rack<B, S>>,
    pub(super) source: S,
    pub(super) generation: u64,
    /// A batch whose copy could not be queued. It is tried once more.
    pending: Option<Taken<S>>,
    /// Whether the next batch is that one.
    is_retry: bool,
    /// The next batch, error or end, if it was there while a batch was decoded. It goes before `buffers`, into which it is copied.
    pub(super) ahead: Option<Ahead<B, S>>,
    /// For batches that the device decodes.
    pub(super) buffers: Buffers<B>,
    /// Why copies can no longer be waited for.
    pub(super) lost: Option<(ErrorKind, String)>,
}

/// A batch that the source gave, and the position after it.
pub(super) struct Taken<S: Source> {
    pub batch: S::Batch,
    pub position: S::Position,
}

/// A result of the source that came while a batch was decoded.
pub(super) enum Ahead<B: Backend, S: Source> {
    /// Its copy is queued.
    Staged(Staged<B, S>),
    Batch(Taken<S>),
    End(S::Position),
    /// The error of a batch, and the position after it.
    Failed(Error, S::Position),
}

/// Says that the thread has ended, also if it panicked.
struct Ending<B: Backend, S: Source>(Arc<Rack<B, S>>);

impl<B: Backend, S: Source> Drop for Ending<B, S> {
    fn drop(&mut self) {
        self.0.exchange.end();
    }
}

/// A host batch whose copy is queued; it is dropped when the copy is done.
pub(super) struct InFlight<B: Backend, S: Source> {
    pub backend: Arc<B>,
    pub batch: ManuallyDrop<S::Batch>,
    /// The event to wait for. Without one, the batch is left to the device for good.
    pub copied: Option<Arc<B::Event>>,
}

impl<B: Backend, S: Source> InFlight<B, S> {
    /// Waits for the copy. If that fails, the device may still read the batch, so its slot of the ring is left to the
    /// device for good.
    pub fn finish(mut self) -> Result<()> {
        self.wait()
    }

    /// Waits for the copy, and returns the batch.
    pub fn into_batch(mut self) -> Result<S::Batch> {
        let copied = self.copied.take().expect("set when the copy was queued");
        self.backend.finish(&copied)?;
        // SAFETY: `copied` is taken, so nobody else takes or drops the batch.
        Ok(unsafe { ManuallyDrop::take(&mut self.batch) })
    }

    fn wait(&mut self) -> Result<()> {
        let Some(copied) = self.copied.take() else { return Ok(()) };
        self.backend.finish(&copied)?;
        // SAFETY: `copied` is taken, so this is the only time.
        unsafe { ManuallyDrop::drop(&mut self.batch) };
        Ok(())
    }
}

impl<B: Backend, S: Source> Drop for InFlight<B, S> {
    fn drop(&mut self) {
        // Something is left to wait for only after a panic or an interruption.
        let _ = self.wait();
    }
}

impl<B: Backend, S: Source> Worker<B, S> {
    pub(super) fn new(rack: Arc<Rack<B, S>>, source: S) -> Self {
        let buffers = Buffers::new(rack.backend.clone());
        let (pending, ahead, lost) = (None, None, None);
        Self { rack, source, generation: 0, pending, is_retry: false, ahead, buffers, lost }
    }

    pub(super) fn run(mut self) {
        let _ending = Ending(self.rack.clone());
        loop {
            match self.step() {
                Ok(()) => {}
                Err(Interrupt::Restarted(order)) => {
                    (self.pending, self.is_retry) = (None, false);
                    // Its copy may be under way, which is waited for.
                    self.ahead = None;
                    self.generation = order.generation;
                    self.source.go_to(order.epoch);
                }
                Err(Interrupt::Stopped) => return,
            }
        }
    }

    /// Copies one batch, or hands over the reason why there is none.
    fn step(&mut self) -> Result<(), Interrupt> {
        let taken = match (self.pending.take(), self.ahead.take()) {
            (Some(taken), ahead) => {
                self.ahead = ahead;
                taken
            }
            (None, Some(Ahead::Batch(taken))) => taken,
            (None, Some(Ahead::Staged(staged))) => return self.decode(staged),
            (None, Some(Ahead::End(position))) => return self.put(Item::End(position)),
            (None, Some(Ahead::Failed(error, position))) => return self.fail(error, position),
            (None, None) => match self.source.next() {
                Some(Ok(batch)) => Taken { batch, position: self.source.position() },
                Some(Err(error)) => {
                    let position = self.source.position();
                    return self.fail(error, position);
                }
                None => {
                    let position = self.source.position();
                    return self.put(Item::End(position));
                }
            },
        };
        if let Some(error) = self.loss() {
            // Every batch fails by itself, so that the epoch ends, as on other ranks.
            let Taken { batch, position } = taken;
            drop(batch);
            return self.fail(error, position);
        }
        if S::decoding(&taken.batch).is_some() {
            return match self.stage(taken) {
                Ok(staged) => self.decode(staged),
                Err(refused) => self.refuse_staging(refused),
            };
        }
        self.copy(taken)
    }

    /// The error of every batch if the device is lost.
    pub(super) fn loss(&self) -> Option<Error> {
        let (kind, what) = self.lost.as_ref()?;
        Some(Error::new(*kind, what.clone()).with_remedy(LOST_REMEDY))
    }

    /// Copies a batch of values.
    pub(super) fn copy(&mut self, taken: Taken<S>) -> Result<(), Interrupt> {
        let info = S::info(&taken.batch);
        let slot = match self.room()? {
            Ok(slot) => slot,
            Err(refusal) => {
                let Taken { batch, position } = taken;
                drop(batch);
                return self.fail(refusal.error, position);
            }
        };
        if let Err(error) = self.queue(&taken.batch, &slot) {
            self.rack.exchange.give(Ok(slot));
            return self.refuse(taken, error);
        }
        self.is_retry = false;
        self.hand_over(taken, info, slot)
    }

    /// A slot to write into. Slots that are no longer needed are freed on the way. This happens here because it may have
    /// to wait for the consumer's work.
    pub(super) fn room(&self) -> Result<Room<B>, Interrupt> {
        loop {
            let slot = match self.rack.exchange.room(self.generation)? {
                Ok(slot) => slot,
                Err(refusal) => {
                    if self.rack.refusal.load(Ordering::Relaxed) == refusal.number {
                        return Ok(Err(refusal));
                    }
                    continue;
                }
            };
            if !self.rack.is_surplus() {
                return Ok(Ok(slot));
            }
            self.rack.slots.fetch_sub(1, Ordering::Relaxed);
            drop(slot);
        }
    }

    /// Queues the copy. If that fails, nothing is queued.
    fn queue(&self, batch: &S::Batch, slot: &Slot<B>) -> Result<()> {
        let backend = &self.rack.backend;
        slot.fences.iter().try_for_each(|fence| backend.wait_on_copies(fence))?;
        let bytes = S::bytes(batch);
        // SAFETY: `hand_over` keeps the batch until an event recorded afterwards is done, or for ever. The slot's memory
        // is kept by this side, the hand-over or arrays until this thread has waited for that event; no array lies over
        // it now, and what was queued on those that did stands before the fences.
        unsafe { backend.copy(bytes, &slot.memory) }?;
        self.rack.copied_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn hand_over(
        &mut self,
        taken: Taken<S>,
        info: S::Info,
        mut slot: Slot<B>,
    ) -> Result<(), Interrupt> {
        let Taken { batch, position } = taken;
        let backend = self.rack.backend.clone();
        let mut flight: InFlight<B, S> =
            InFlight { backend: backend.clone(), batch: ManuallyDrop::new(batch), copied: None };
        match backend.copied() {
            Ok(copied) => {
                let copied = Arc::new(copied);
                flight.copied = Some(copied.clone());
                // The copy comes after the fences: whoever waits for the copy has waited for them.
                slot.fences.clear();
                let memory = self.rack.lent(slot, copied);
                self.put(Item::Batch(Ready { memory, info, position }))?;
                // This batch was handed over. If it cannot be used, the consumer's stream says so.
                if let Err(error) = flight.finish() {
                    self.lose(&error);
                }
                Ok(())
            }
            // The copy cannot be waited for, so the batch and the slot are left to it.
            Err(error) => {
                self.abandon(slot);
                self.lose(&error);
                self.fail(error, position)
            }
        }
    }

    /// Leaves a slot to the device for good. It counts as held, so that another one is made in its place.
    pub(super) fn abandon(&self, slot: Slot<B>) {
        self.rack.held.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(slot);
    }

    /// The device no longer reports what is done, so no further copy is begun.
    pub(super) fn lose(&mut self, error: &Error) {
        self.lost = Some((error.kind(), error.what().to_owned()));
        self.buffers.abandon();
        self.rack.is_lost.store(true, Ordering::Relaxed);
    }

    /// Hands over the error of a batch whose copy was refused. The batch is tried once more.
    pub(super) fn refuse(&mut self, taken: Taken<S>, error: Error) -> Result<(), Interrupt> {
        if std::mem::take(&mut self.is_retry) {
            let Taken { batch, position } = taken;
            drop(batch);
            return self.fail(error, position);
        }
        (self.pending, self.is_retry) = (Some(taken), true);
        self.tell(error, None)
    }

    /// Notes that a batch was accepted by the device.
    pub(super) fn is_accepted(&mut self) {
        self.is_retry = false;
    }

    /// Hands over the error of a batch, and the position after it.
    pub(super) fn fail(&self, error: Error, position: S::Position) -> Result<(), Interrupt> {
        self.tell(error, Some(position))
    }

    /// Hands an error over, and goes on when the consumer asks again.
    fn tell(&self, error: Error, position: Option<S::Position>) -> Result<(), Interrupt> {
        self.put(Item::Failed(error, position))?;
        self.rack.exchange.asked(self.generation)
    }

    pub(super) fn put(&self, item: Item<B, S>) -> Result<(), Interrupt> {
        // If nobody will take an item, it gives its slot back when it is dropped here.
        self.rack.exchange.put(self.generation, item).map_err(|(_, interrupt)| interrupt)
    }
}
