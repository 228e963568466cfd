//! Batches of values: the transfer thread copies them into a slot.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::super::backend::Backend;
use super::super::exchange::Interrupt;
use super::super::slots::{Item, Ready, Slot};
use super::super::source::Source;
use super::state::{InFlight, Taken, Worker};
use crate::Result;

impl<B: Backend, S: Source> Worker<B, S> {
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
        let begun_at = Instant::now();
        let copying = match self.queue(&taken.batch, &slot) {
            Ok(copying) => copying,
            Err(error) => {
                self.rack.exchange.give(Ok(slot));
                return self.refuse(taken, error);
            }
        };
        self.is_retry = false;
        self.hand_over(taken, info, slot, (begun_at, &copying))
    }

    /// Queues the copy, and returns an event before it. If that fails, no copy is queued.
    fn queue(&self, batch: &S::Batch, slot: &Slot<B>) -> Result<B::Event> {
        let backend = &self.rack.backend;
        slot.fences.iter().try_for_each(|fence| backend.wait_on_copies(fence))?;
        let copying = backend.copied()?;
        let bytes = S::bytes(batch);
        // SAFETY: `hand_over` keeps the batch until an event recorded afterwards is done, or for ever. The slot's memory
        // is kept by this side, the hand-over or arrays until this thread has waited for that event; no array lies over
        // it now, and what was queued on those that did stands before the fences.
        unsafe { backend.copy(bytes, &slot.memory) }?;
        self.rack.copied_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(copying)
    }

    fn hand_over(
        &mut self,
        taken: Taken<S>,
        info: S::Info,
        mut slot: Slot<B>,
        (begun_at, copying): (Instant, &B::Event),
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
                let waited = self.wait_for(copying);
                match flight.finish() {
                    Ok(()) => self.rack.tally.copied(begun_at.elapsed().saturating_sub(waited)),
                    // This batch was handed over. If it cannot be used, the consumer's stream says so.
                    Err(error) => self.lose(&error),
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
}
