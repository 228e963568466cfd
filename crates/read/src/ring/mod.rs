//! A fixed number of slots in one range of memory. Worker threads fill them, and the consumer
//! borrows them.
//!
//! [`slots`] decides which thread may use which slot when. This file gives access to the memory.
//! The access is safe for these reasons (`docs/ring.md` has the whole argument):
//!
//! - A [`TaskLease`] is the only holder of its task, and before a slot's tasks are published, their
//!   pieces are checked not to overlap: the memory that `parts()` returns is exclusive.
//! - A [`Lease`] is the only holder of its slot, no task refers to the slot any more, and the lease
//!   keeps the ring alive: `bytes()` stays valid as long as it is borrowed.

pub(crate) mod memory;
pub(crate) mod slots;

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Instant;

use memory::{Memory, MemoryOptions, MemoryReport};
use slots::{Claimed, Failure, Slots, Taken};

use crate::{Error, Result};
use hsipack_format::{Opt, remedy};

/// Slots that hold batches, each described by a `P`.
pub(crate) struct Ring<P> {
    slots: Slots,
    contents: Box<[RwLock<Content<P>>]>,
    memory: Memory,
    slot_bytes: usize,
}

/// The feeder's plan for a slot.
#[derive(Default)]
struct Content<P> {
    plan: P,
    /// Where in the slot each task writes: ascending, without overlap.
    pieces: Vec<Range<usize>>,
}

/// The result of [`Ring::claim`].
pub(crate) enum Claim<'a, P> {
    Slot(PlanSlot<'a, P>),
    /// A new generation has begun.
    Restarted,
    Stopped,
}

/// The result of [`Ring::take`].
pub(crate) enum Next<P: Default> {
    /// A whole batch, its failures, and how many more batches are ready.
    Batch(Lease<P>, Vec<Failure>, usize),
    Finished,
    AllLeased,
    TimedOut,
    Stopped,
}

impl<P: Default> Ring<P> {
    /// Creates a ring of `slots` slots of `slot_bytes` bytes each.
    pub(crate) fn new(slots: usize, slot_bytes: usize, options: &MemoryOptions) -> Result<Self> {
        // Every slot begins on a page, which suits devices and huge pages.
        let slot_bytes = slot_bytes.next_multiple_of(4096);
        let bytes = slots.checked_mul(slot_bytes);
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            let what = format!("{slots} slots of {slot_bytes} bytes are too many");
            let remedy = remedy!["use fewer ", Opt::Slots, " or a smaller ", Opt::BatchSize];
            return Err(Error::conflict(what).with_remedy(remedy));
        }
        Ok(Self {
            slots: Slots::new(slots),
            contents: (0..slots).map(|_| RwLock::default()).collect(),
            memory: Memory::new(slots, slot_bytes, options)?,
            slot_bytes,
        })
    }

    /// Describes the ring's memory.
    pub(crate) fn memory_report(&self) -> MemoryReport {
        self.memory.report()
    }

    /// Describes the ring's memory, without counting huge pages.
    pub(crate) fn quick_memory_report(&self) -> MemoryReport {
        self.memory.quick_report()
    }

    /// Bytes of a slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.slot_bytes
    }

    /// The state machine, for calls that need no memory.
    pub(crate) fn slots(&self) -> &Slots {
        &self.slots
    }

    /// For the feeder: waits for a free slot to plan a batch into.
    pub(crate) fn claim(&self, generation: u64) -> Claim<'_, P> {
        match self.slots.claim(generation) {
            Claimed::Slot(slot) => {
                self.memory.is_claimed(slot);
                let mut content = self.write(slot);
                content.pieces.clear();
                Claim::Slot(PlanSlot { ring: self, slot, generation, content })
            }
            Claimed::Restarted => Claim::Restarted,
            Claimed::Stopped => Claim::Stopped,
        }
    }

    /// For workers: waits for a task; `None` after a stop.
    pub(crate) fn take_task(&self) -> Option<TaskLease<'_, P>> {
        let task = self.slots.take_task()?;
        let content = self.contents[task.slot].read().unwrap_or_else(PoisonError::into_inner);
        Some(TaskLease { ring: self, slot: task.slot, number: task.number, content: Some(content) })
    }

    /// For the consumer: waits for the next batch.
    pub(crate) fn take(self: &Arc<Self>, deadline: Option<Instant>) -> Next<P> {
        match self.slots.take(deadline) {
            Taken::Batch { slot, failures, waiting } => {
                let plan = std::mem::take(&mut self.write(slot).plan);
                Next::Batch(Lease { ring: self.clone(), slot, plan }, failures, waiting)
            }
            Taken::Finished => Next::Finished,
            Taken::AllLeased => Next::AllLeased,
            Taken::TimedOut => Next::TimedOut,
            Taken::Stopped => Next::Stopped,
        }
    }

    fn write(&self, slot: usize) -> RwLockWriteGuard<'_, Content<P>> {
        self.contents[slot].write().unwrap_or_else(PoisonError::into_inner)
    }

    /// First byte of a slot.
    fn start(&self, slot: usize) -> *mut u8 {
        debug_assert!((slot + 1) * self.slot_bytes <= self.memory.len());
        // SAFETY: the allocation is at least slots × slot_bytes long, which `new` checked to fit isize.
        unsafe { self.memory.start().add(slot * self.slot_bytes) }
    }
}

/// A free slot that the feeder has claimed.
pub(crate) struct PlanSlot<'a, P> {
    ring: &'a Ring<P>,
    slot: usize,
    generation: u64,
    content: RwLockWriteGuard<'a, Content<P>>,
}

impl<P: Default> PlanSlot<'_, P> {
    /// The plan of the slot's last batch, to be overwritten, and an empty list for the tasks'
    /// pieces.
    pub(crate) fn plan(&mut self) -> (&mut P, &mut Vec<Range<usize>>) {
        let content = &mut *self.content;
        (&mut content.plan, &mut content.pieces)
    }

    /// Hands the slot to the workers.
    ///
    /// # Panics
    /// If pieces overlap, are not ascending, or reach beyond the slot. Safe access to the memory
    /// depends on this check.
    pub(crate) fn publish(self) {
        let mut end = 0;
        for piece in &self.content.pieces {
            assert!(end <= piece.start && piece.start <= piece.end, "pieces of a slot overlap");
            end = piece.end;
        }
        assert!(end <= self.ring.slot_bytes, "a piece reaches beyond its slot");
        let (slots, slot, generation) = (&self.ring.slots, self.slot, self.generation);
        let tasks = self.content.pieces.len();
        drop(self.content);
        slots.publish(slot, tasks, generation);
    }
}

/// A task that a worker has taken. If it is dropped without [`done`](Self::done), the batch fails.
pub(crate) struct TaskLease<'a, P> {
    ring: &'a Ring<P>,
    slot: usize,
    number: usize,
    content: Option<RwLockReadGuard<'a, Content<P>>>,
}

impl<P: Default> TaskLease<'_, P> {
    /// The plan of the batch, the task's number in it, and the piece of the slot to write to. Waits
    /// until the slot's memory is ready; the piece is an error if the system refuses the memory.
    pub(crate) fn parts(&mut self) -> (&P, usize, Result<&mut [u8]>) {
        let content = self.content.as_deref().expect("held until the task is done");
        let piece = content.pieces[self.number].clone();
        let end = self.slot * self.ring.slot_bytes + piece.end;
        self.ring.memory.is_filled(end);
        let ready = self.ring.memory.wait(end);
        // SAFETY: `publish` checked that the piece lies in the slot and overlaps with no other; this lease is
        // the only one of its task, and the slot stays in `filling`, read by nobody, until it is given
        // back. The system fills new memory with zeros.
        let memory = unsafe {
            std::slice::from_raw_parts_mut(self.ring.start(self.slot).add(piece.start), piece.len())
        };
        (&content.plan, self.number, ready.map(|()| memory))
    }

    /// Gives the task back.
    pub(crate) fn done(mut self, failures: Vec<Failure>) {
        self.give_back(failures);
    }
}

impl<P> TaskLease<'_, P> {
    fn give_back(&mut self, failures: Vec<Failure>) {
        // The plan's lock is released first: as soon as the task is given back, a new batch may be planned
        // into the slot.
        if self.content.take().is_some() {
            self.ring.slots.task_done(self.slot, failures);
        }
    }
}

impl<P> Drop for TaskLease<'_, P> {
    fn drop(&mut self) {
        if self.content.is_some() {
            let error = Error::bug("a decoding thread panicked");
            self.give_back(vec![Failure { position: 0, error }]);
        }
    }
}

/// A slot with a whole batch, lent to the consumer. Dropping the lease frees the slot.
pub(crate) struct Lease<P: Default> {
    ring: Arc<Ring<P>>,
    slot: usize,
    plan: P,
}

impl<P: Default> Lease<P> {
    /// The plan of the batch in the slot.
    pub(crate) fn plan(&self) -> &P {
        &self.plan
    }

    /// The plan and the bytes of the slot, mutable.
    pub(crate) fn parts_mut(&mut self) -> (&mut P, &mut [u8]) {
        // SAFETY: as in `bytes`, and the lease is borrowed exclusively.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(self.ring.start(self.slot), self.ring.slot_bytes)
        };
        (&mut self.plan, bytes)
    }

    /// Waits until the memory of the whole slot is ready, and locked if a device locks it. Tasks
    /// wait only for the memory that they write to.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub(crate) fn wait(&self) -> Result<()> {
        self.ring.memory.wait((self.slot + 1) * self.ring.slot_bytes)
    }

    /// The slot's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the slot is `leased`, by this lease alone: all its tasks are back and it gets no new ones
        // until the lease is dropped. The ring, and with it the memory, lives as long as the lease.
        unsafe { std::slice::from_raw_parts(self.ring.start(self.slot), self.ring.slot_bytes) }
    }
}

impl<P: Default> Drop for Lease<P> {
    fn drop(&mut self) {
        // The plan goes back to the slot, so that its memory is used again.
        self.ring.write(self.slot).plan = std::mem::take(&mut self.plan);
        self.ring.slots.release(self.slot);
    }
}

impl<P> fmt::Debug for Ring<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("slots", &self.slots).field("memory", &self.memory).finish()
    }
}

impl<P: Default + fmt::Debug> fmt::Debug for Lease<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("slot", &self.slot).field("plan", &self.plan).finish()
    }
}

#[cfg(test)]
mod tests;
