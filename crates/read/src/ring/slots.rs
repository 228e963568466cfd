//! The states of the ring, without its memory: who may use which slot when.
//!
//! ```text
//!         claim             publish            last task done           take             release
//!  free ────────▶ planned ──────────▶ filling ────────────────▶ ready ────────▶ leased ────────▶ free
//!    ▲               │ publish after      │ last task done           │
//!    │               │ a restart          │ after a restart          │ restart
//!    └───────────────┴────────────────────┴──────────────────────────┘
//! ```
//!
//! One feeder claims slots and publishes batches. Any number of workers take tasks and give them
//! back. One consumer takes batches in the order in which they were published. Whoever holds a
//! lease releases it. The following always holds:
//!
//! 1. A slot is in one state. `queue` names every filling and ready slot of the current generation
//!    once, in the order of their batches.
//! 2. Each task of a slot is handed out at most once between `publish` and `ready`.
//! 3. A slot leaves `filling` only when every task that was handed out has come back and no task is
//!    left to hand out. So nobody writes into a slot that is ready, leased or free.
//! 4. Batches are taken in the order of `publish`.
//! 5. After `stop`, nothing is handed out any more, and every call that waits returns.
//!
//! Back-pressure comes from `claim`, which waits for a free slot. `restart` begins a new
//! generation: batches that were not taken are dropped as soon as their tasks are back. One lock
//! guards everything. It is taken three times per task, and held for a few instructions only.

use std::collections::VecDeque;

use crate::Error;
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait, wait_until};

/// The states of all slots.
#[derive(Debug)]
pub(crate) struct Slots {
    inner: Mutex<Inner>,
    /// A slot became free, or the feeder has to look again.
    room: Condvar,
    /// Tasks were published.
    work: Condvar,
    /// The first batch of the queue is ready, or none will come.
    ready: Condvar,
}

#[derive(Debug)]
struct Inner {
    states: Box<[State]>,
    queue: VecDeque<usize>,
    generation: u64,
    /// The feeder has no more batches in this generation.
    finished: bool,
    stopped: bool,
}

#[derive(Debug)]
enum State {
    Free,
    Planned,
    Filling(Filling),
    Ready(Vec<Failure>),
    Leased,
}

#[derive(Debug)]
struct Filling {
    /// Tasks to hand out. If the generation is over, only the tasks that were already taken.
    tasks: usize,
    taken: usize,
    done: usize,
    /// The generation is over: when all tasks are back, the slot is freed instead of handed out.
    dropped: bool,
    failures: Vec<Failure>,
}

/// A sample of a task that could not be read.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The sample's place in the batch.
    pub position: usize,
    pub error: Error,
}

/// A task of a slot, handed out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub slot: usize,
    pub number: usize,
}

/// The result of [`Slots::claim`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// A slot to plan a batch into.
    Slot(usize),
    /// A new generation has begun.
    Restarted,
    Stopped,
}

/// The result of [`Slots::take`].
#[derive(Debug)]
pub(crate) enum Taken {
    /// A slot with a whole batch, and its failures. The slot is leased from now on.
    Batch {
        slot: usize,
        failures: Vec<Failure>,
        waiting: usize,
    },
    /// The feeder has no more batches.
    Finished,
    /// All slots are leased: waiting would never end.
    AllLeased,
    /// Nothing came before the deadline.
    TimedOut,
    Stopped,
}

impl Slots {
    pub(crate) fn new(slots: usize) -> Self {
        let inner = Inner {
            states: (0..slots).map(|_| State::Free).collect(),
            queue: VecDeque::with_capacity(slots),
            generation: 0,
            finished: false,
            stopped: false,
        };
        Self {
            inner: Mutex::new(inner),
            room: Condvar::new(),
            work: Condvar::new(),
            ready: Condvar::new(),
        }
    }

    /// For the feeder: waits for a free slot.
    pub(crate) fn claim(&self, generation: u64) -> Claimed {
        let mut inner = lock(&self.inner);
        loop {
            if inner.stopped {
                return Claimed::Stopped;
            }
            if inner.generation != generation {
                return Claimed::Restarted;
            }
            let free = inner.states.iter().position(|state| matches!(state, State::Free));
            if let Some(slot) = free {
                inner.states[slot] = State::Planned;
                return Claimed::Slot(slot);
            }
            inner = wait(&self.room, inner);
        }
    }

    /// For the feeder: how many of its latest batches may still be written to. These are the
    /// earliest unfinished batch and all after it.
    pub(crate) fn unfinished(&self) -> usize {
        let inner = lock(&self.inner);
        let filling = |slot: &usize| matches!(inner.states[*slot], State::Filling(_));
        let first = inner.queue.iter().position(filling);
        first.map_or(0, |first| inner.queue.len() - first)
    }

    /// For the feeder: publishes a claimed slot with `tasks` tasks.
    pub(crate) fn publish(&self, slot: usize, tasks: usize, generation: u64) {
        let mut inner = lock(&self.inner);
        debug_assert!(matches!(inner.states[slot], State::Planned));
        if inner.generation != generation || inner.stopped {
            inner.states[slot] = State::Free;
            return;
        }
        inner.states[slot] = State::Filling(Filling {
            tasks,
            taken: 0,
            done: 0,
            dropped: false,
            failures: Vec::new(),
        });
        inner.queue.push_back(slot);
        inner.settle(slot);
        self.tell(inner);
        // A worker that is awake takes tasks until there are none, so no more than these are needed.
        match tasks {
            0 => {}
            1 => self.work.notify_one(),
            _ => self.work.notify_all(),
        }
    }

    /// For the feeder: says that no more batches come in this generation, then waits for the next
    /// one. Returns `false` if the ring was stopped instead.
    pub(crate) fn finish(&self, generation: u64) -> bool {
        let mut inner = lock(&self.inner);
        while !inner.stopped && inner.generation == generation {
            inner.finished = true;
            self.ready.notify_all();
            inner = wait(&self.room, inner);
        }
        !inner.stopped
    }

    /// For workers: waits for a task of the earliest batch that has one. Returns `None` after
    /// `stop`.
    pub(crate) fn take_task(&self) -> Option<Task> {
        let mut inner = lock(&self.inner);
        loop {
            if inner.stopped {
                return None;
            }
            if let Some(task) = inner.next_task() {
                return Some(task);
            }
            inner = wait(&self.work, inner);
        }
    }

    /// For workers: gives a task back, with its failures.
    pub(crate) fn task_done(&self, slot: usize, failures: Vec<Failure>) {
        let mut inner = lock(&self.inner);
        let State::Filling(filling) = &mut inner.states[slot] else {
            unreachable!("tasks are out only while a slot is filling");
        };
        filling.done += 1;
        filling.failures.extend(failures);
        inner.settle(slot);
        self.tell(inner);
    }

    /// For the consumer: waits for the next batch.
    pub(crate) fn take(&self, deadline: Option<std::time::Instant>) -> Taken {
        let mut inner = lock(&self.inner);
        loop {
            if let Some(taken) = inner.try_take() {
                return taken;
            }
            match wait_until(&self.ready, inner, deadline) {
                (guard, false) => inner = guard,
                // A batch that became ready just now is still taken.
                (mut guard, true) => return guard.try_take().unwrap_or(Taken::TimedOut),
            }
        }
    }

    /// For the holder of a lease: gives the slot back.
    pub(crate) fn release(&self, slot: usize) {
        let mut inner = lock(&self.inner);
        debug_assert!(matches!(inner.states[slot], State::Leased));
        inner.states[slot] = State::Free;
        drop(inner);
        self.room.notify_all();
    }

    /// Drops every batch that was not taken, begins a new generation and returns its number.
    pub(crate) fn restart(&self) -> u64 {
        let mut inner = lock(&self.inner);
        inner.generation += 1;
        inner.finished = false;
        while let Some(slot) = inner.queue.pop_front() {
            match &mut inner.states[slot] {
                State::Filling(filling) => {
                    filling.tasks = filling.taken;
                    filling.dropped = true;
                    inner.settle(slot);
                }
                state => *state = State::Free,
            }
        }
        let generation = inner.generation;
        drop(inner);
        self.room.notify_all();
        generation
    }

    /// Stops the ring: every call that waits returns, and nothing is handed out any more. Leases
    /// stay valid.
    pub(crate) fn stop(&self) {
        lock(&self.inner).stopped = true;
        self.room.notify_all();
        self.work.notify_all();
        self.ready.notify_all();
    }

    /// Whether the ring was stopped.
    #[cfg(not(loom))]
    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.inner).stopped
    }

    /// The current generation.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn generation(&self) -> u64 {
        lock(&self.inner).generation
    }

    /// Wakes the threads that can go on after a slot was settled.
    fn tell(&self, inner: MutexGuard<'_, Inner>) {
        let front_is_ready =
            inner.queue.front().is_some_and(|slot| matches!(inner.states[*slot], State::Ready(_)));
        let is_free = inner.states.iter().any(|state| matches!(state, State::Free));
        drop(inner);
        if front_is_ready {
            self.ready.notify_all();
        }
        if is_free {
            self.room.notify_all();
        }
    }
}

impl Inner {
    fn next_task(&mut self) -> Option<Task> {
        self.queue.iter().find_map(|slot| match &mut self.states[*slot] {
            State::Filling(filling) if filling.taken < filling.tasks => {
                filling.taken += 1;
                Some(Task { slot: *slot, number: filling.taken - 1 })
            }
            _ => None,
        })
    }

    /// If all tasks of a filling slot are back, makes the slot ready or free.
    fn settle(&mut self, slot: usize) {
        let State::Filling(filling) = &mut self.states[slot] else { return };
        if filling.done < filling.tasks {
            return;
        }
        self.states[slot] = if filling.dropped {
            State::Free
        } else {
            State::Ready(std::mem::take(&mut filling.failures))
        };
    }

    fn try_take(&mut self) -> Option<Taken> {
        if self.stopped {
            return Some(Taken::Stopped);
        }
        let Some(slot) = self.queue.front().copied() else {
            let all_leased = self.states.iter().all(|state| matches!(state, State::Leased));
            return match (self.finished, all_leased) {
                (true, _) => Some(Taken::Finished),
                (_, true) => Some(Taken::AllLeased),
                _ => None,
            };
        };
        let State::Ready(failures) = &mut self.states[slot] else { return None };
        let failures = std::mem::take(failures);
        self.states[slot] = State::Leased;
        self.queue.pop_front();
        let is_ready = |slot: &&usize| matches!(self.states[**slot], State::Ready(_));
        let waiting = self.queue.iter().filter(is_ready).count();
        Some(Taken::Batch { slot, failures, waiting })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn taken(slots: &Slots) -> Option<usize> {
        match slots.take(Some(std::time::Instant::now())) {
            Taken::Batch { slot, .. } => Some(slot),
            _ => None,
        }
    }

    #[test]
    fn a_batch_is_given_when_its_last_task_is_back() {
        let slots = Slots::new(2);
        assert_eq!(slots.claim(0), Claimed::Slot(0));
        slots.publish(0, 2, 0);
        assert_eq!(slots.take_task(), Some(Task { slot: 0, number: 0 }));
        assert_eq!(slots.take_task(), Some(Task { slot: 0, number: 1 }));
        slots.task_done(0, Vec::new());
        assert_eq!(taken(&slots), None);
        slots.task_done(0, Vec::new());
        assert_eq!(taken(&slots), Some(0));
    }

    #[test]
    fn batches_keep_their_order_whichever_is_done_first() {
        let slots = Slots::new(3);
        for slot in 0..2 {
            assert_eq!(slots.claim(0), Claimed::Slot(slot));
            slots.publish(slot, 1, 0);
        }
        assert!(slots.take_task().is_some() && slots.take_task().is_some());
        slots.task_done(1, Vec::new());
        assert_eq!(taken(&slots), None);
        slots.task_done(0, Vec::new());
        assert_eq!((taken(&slots), taken(&slots)), (Some(0), Some(1)));
    }

    #[test]
    fn a_restart_frees_what_is_ready_at_once_and_what_is_filling_when_its_tasks_are_back() {
        let slots = Slots::new(2);
        for slot in 0..2 {
            assert_eq!(slots.claim(0), Claimed::Slot(slot));
        }
        slots.publish(0, 0, 0);
        slots.publish(1, 2, 0);
        assert_eq!(slots.take_task(), Some(Task { slot: 1, number: 0 }));
        assert_eq!(slots.restart(), 1);
        assert_eq!(slots.claim(0), Claimed::Restarted);
        assert_eq!(slots.claim(1), Claimed::Slot(0));
        slots.publish(0, 1, 1);
        assert_eq!(slots.take_task(), Some(Task { slot: 0, number: 0 }), "not the dropped batch's");
        slots.task_done(1, Vec::new());
        assert_eq!(slots.claim(1), Claimed::Slot(1));
    }

    #[test]
    fn a_slot_planned_before_a_restart_is_not_given() {
        let slots = Slots::new(1);
        assert_eq!(slots.claim(0), Claimed::Slot(0));
        slots.restart();
        slots.publish(0, 0, 0);
        assert_eq!(taken(&slots), None);
        assert_eq!(slots.claim(1), Claimed::Slot(0));
    }

    #[test]
    fn holding_every_slot_is_told_instead_of_waiting_for_ever() {
        let slots = Slots::new(1);
        slots.claim(0);
        slots.publish(0, 0, 0);
        assert_eq!(taken(&slots), Some(0));
        assert!(matches!(slots.take(None), Taken::AllLeased));
        slots.release(0);
        assert_eq!(slots.claim(0), Claimed::Slot(0));
    }

    #[test]
    fn after_stop_everything_returns() {
        let slots = Slots::new(1);
        slots.stop();
        assert_eq!(slots.claim(0), Claimed::Stopped);
        assert_eq!(slots.take_task(), None);
        assert!(matches!(slots.take(None), Taken::Stopped));
        assert!(!slots.finish(0));
    }
}
