//! The state of the transfer thread, and how it hands over its results.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::backend::{Backend, DeviceMemory, LOST_REMEDY};
use super::super::exchange::Interrupt;
use super::super::slots::{Item, Rack, Room, Slot};
use super::super::source::Source;
use crate::{Error, ErrorKind, Result};

/// Buffers grow in steps of this many bytes, and by a part more than is needed.
const STEP: usize = 1 << 20;

/// The transfer thread.
pub(super) struct Worker<B: Backend, S: Source> {
    pub(super) rack: Arc<Rack<B, S>>,
    pub(super) source: S,
    pub(super) generation: u64,
    /// A batch whose copy could not be queued. It is tried once more.
    pub(super) pending: Option<Taken<S>>,
    /// Whether the next batch is that one.
    pub(super) is_retry: bool,
    /// The next batch, error or end, if it was there while a batch was decoded. It goes before
    /// `buffers`, into which it is copied.
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

/// A host batch whose copy is queued; it is dropped when the copy is done.
pub(super) struct InFlight<B: Backend, S: Source> {
    pub backend: Arc<B>,
    pub batch: ManuallyDrop<S::Batch>,
    /// The event to wait for. Without one, the batch is left to the device for good.
    pub copied: Option<Arc<B::Event>>,
}

impl<B: Backend, S: Source> InFlight<B, S> {
    /// Waits for the copy. If that fails, the device may still read the batch, so its slot of the
    /// ring is left to the device for good.
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

/// A compressed batch whose copy is queued.
pub(super) struct Staged<B: Backend, S: Source> {
    pub(super) flight: InFlight<B, S>,
    /// Events before and after its copy.
    pub(super) copy: CopyEvents<B>,
    pub(super) position: S::Position,
    /// Which buffer it is in.
    pub(super) buffer: usize,
}

/// Events before and after a copy, between which its time is measured.
pub(super) struct CopyEvents<B: Backend> {
    pub(super) copying: B::Event,
    pub(super) copied: Arc<B::Event>,
}

/// Memory on the device besides the slots.
pub(super) struct Buffers<B: Backend> {
    pub(super) backend: Arc<B>,
    /// For compressed batches, in turns.
    pub(super) compressed: [Option<B::Memory>; 2],
    pub(super) turn: usize,
    pub(super) scratch: Option<B::Memory>,
}

impl<B: Backend> Buffers<B> {
    pub(super) fn new(backend: Arc<B>) -> Self {
        Self { backend, compressed: [None, None], turn: 0, scratch: None }
    }

    /// Leaves all buffers to the device for good, because it no longer reports what is done.
    pub(super) fn abandon(&mut self) {
        self.compressed.iter_mut().for_each(|memory| std::mem::forget(memory.take()));
        std::mem::forget(self.scratch.take());
    }
}

/// Memory of at least so many bytes: what is there, or a larger allocation in its place. No queued
/// work may use it.
pub(super) fn grown<'a, B: Backend, S: Source>(
    rack: &Rack<B, S>,
    memory: &'a mut Option<B::Memory>,
    bytes: usize,
) -> Result<&'a B::Memory> {
    if memory.as_ref().is_none_or(|memory| memory.bytes() < bytes) {
        // Freed first: there may be no room for both.
        *memory = None;
        *memory = Some(rack.allocate((bytes + bytes / 8).next_multiple_of(STEP))?);
    }
    Ok(memory.as_ref().expect("allocated above if it was missing"))
}

impl<B: Backend, S: Source> Worker<B, S> {
    pub(super) fn new(rack: Arc<Rack<B, S>>, source: S) -> Self {
        let buffers = Buffers::new(rack.backend.clone());
        let (pending, ahead, lost) = (None, None, None);
        Self { rack, source, generation: 0, pending, is_retry: false, ahead, buffers, lost }
    }

    /// The error of every batch if the device is lost.
    pub(super) fn loss(&self) -> Option<Error> {
        let (kind, what) = self.lost.as_ref()?;
        Some(Error::new(*kind, what.clone()).with_remedy(LOST_REMEDY))
    }

    /// A slot to write into. Slots that are no longer needed are freed on the way. This happens
    /// here because it may have to wait for the consumer's work.
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

    /// Leaves a slot to the device for good. It counts as held, so that another one is made in its
    /// place.
    pub(super) fn abandon(&self, slot: Slot<B>) {
        self.rack.held.fetch_add(1, Ordering::Relaxed);
        std::mem::forget(slot);
    }

    /// Waits until an event is done, and returns how long that took. If it fails, so does waiting
    /// for a later event.
    pub(super) fn wait_for(&self, event: &B::Event) -> Duration {
        let from = Instant::now();
        let _ = self.rack.backend.finish(event);
        from.elapsed()
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
