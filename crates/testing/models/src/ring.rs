//! The ring: a feeder, workers, the consumer, and other holders of a batch.
//!
//! The memory of a slot is one `loom` cell per task. The model fails if a write is not ordered
//! before the consumer's read, if two threads write at once, or if a thread waits forever.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::slots::{Claimed, Slots, Taken};

const TASKS: usize = 2;

/// Slots, with memory.
struct Ring {
    slots: Slots,
    memory: Vec<[UnsafeCell<u64>; TASKS]>,
}

impl Ring {
    fn new(slots: usize) -> Arc<Self> {
        let cells = || std::array::from_fn(|_| UnsafeCell::new(u64::MAX));
        Arc::new(Self { slots: Slots::new(slots), memory: (0..slots).map(|_| cells()).collect() })
    }

    /// Publishes batches, and then waits, until the ring is stopped or restarted; returns whether
    /// it was restarted.
    fn feed(&self, batches: u64, generation: u64) -> bool {
        for batch in 0..batches {
            if let Err(restarted) = self.put(batch, generation) {
                return restarted;
            }
        }
        self.slots.finish(generation)
    }

    /// Publishes a batch. As in the real ring, it is planned before the workers can see it.
    fn put(&self, batch: u64, generation: u64) -> Result<(), bool> {
        let slot = match self.slots.claim(generation) {
            Claimed::Slot(slot) => slot,
            Claimed::Restarted => return Err(true),
            Claimed::Stopped => return Err(false),
        };
        for cell in &self.memory[slot] {
            // SAFETY: loom checks that nobody else has access.
            cell.with_mut(|value| unsafe { *value = 1000 * generation + 10 * batch });
        }
        self.slots.publish(slot, TASKS, generation);
        Ok(())
    }

    fn work(&self) {
        while let Some(task) = self.slots.take_task() {
            // SAFETY: loom checks that nobody else has access.
            self.memory[task.slot][task.number].with_mut(|value| unsafe { *value += 1 });
            self.slots.task_done(task.slot, Vec::new());
        }
    }

    /// Takes a batch, checks that every part was written exactly once, and returns the slot.
    fn consume(&self) -> Option<u64> {
        let Taken::Batch { slot, .. } = self.slots.take(None) else { return None };
        // SAFETY: loom checks that nobody writes.
        let values = self.memory[slot].each_ref().map(|cell| cell.with(|value| unsafe { *value }));
        assert!(values.iter().all(|value| value % 10 == 1), "{values:?}");
        self.slots.release(slot);
        Some(values[0] / 10)
    }
}

/// Checks every interleaving with at most `switches` preemptions. This is the usual limit, because
/// checking all interleavings would take days.
fn check(switches: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(switches);
    builder.check(model);
}

#[test]
fn one_worker_and_one_slot() {
    check(2, || {
        let ring = Ring::new(1);
        let (feeder, worker) = (ring.clone(), ring.clone());
        let feeder = thread::spawn(move || feeder.feed(2, 0));
        let worker = thread::spawn(move || worker.work());
        assert_eq!((ring.consume(), ring.consume(), ring.consume()), (Some(0), Some(1), None));
        ring.slots.stop();
        assert!(!feeder.join().unwrap());
        worker.join().unwrap();
    });
}

fn two_workers(switches: usize, batches: u64) {
    check(switches, move || {
        let ring = Ring::new(2);
        let (feeder, first, two) = (ring.clone(), ring.clone(), ring.clone());
        let feeder = thread::spawn(move || feeder.feed(batches, 0));
        let first = thread::spawn(move || first.work());
        let two = thread::spawn(move || two.work());
        (0..batches).for_each(|batch| assert_eq!(ring.consume(), Some(batch)));
        ring.slots.stop();
        feeder.join().unwrap();
        first.join().unwrap();
        two.join().unwrap();
    });
}

/// The consumer's thread is also the feeder: with three threads, all places for two preemptions are
/// checked in seconds.
#[test]
fn two_workers_share_a_batch() {
    check(2, || {
        let ring = Ring::new(2);
        let (first, two) = (ring.clone(), ring.clone());
        let first = thread::spawn(move || first.work());
        let two = thread::spawn(move || two.work());
        ring.put(0, 0).unwrap();
        assert_eq!(ring.consume(), Some(0));
        ring.slots.stop();
        first.join().unwrap();
        two.join().unwrap();
    });
}

#[test]
#[ignore = "takes a minute"]
fn two_workers_share_a_batch_of_a_feeder() {
    two_workers(2, 1);
}

#[test]
fn two_workers_share_two_batches_in_two_slots() {
    two_workers(1, 2);
}

#[test]
fn a_stop_at_any_time_ends_every_thread() {
    check(2, || {
        let ring = Ring::new(1);
        let (feeder, worker, consumer) = (ring.clone(), ring.clone(), ring.clone());
        let feeder = thread::spawn(move || feeder.feed(2, 0));
        let worker = thread::spawn(move || worker.work());
        let consumer = thread::spawn(move || consumer.consume().into_iter().count());
        ring.slots.stop();
        feeder.join().unwrap();
        worker.join().unwrap();
        consumer.join().unwrap();
    });
}

#[test]
fn a_restart_at_any_time_gives_no_batch_of_before() {
    check(2, || {
        let ring = Ring::new(2);
        let (feeder, worker) = (ring.clone(), ring.clone());
        let feeder = thread::spawn(move || {
            // The generation is that of the start, as the real feeder reads it.
            if feeder.feed(1, 0) {
                feeder.feed(1, 1);
            }
        });
        let worker = thread::spawn(move || worker.work());
        assert_eq!(ring.slots.restart(), 1);
        assert_eq!(ring.consume(), Some(100));
        ring.slots.stop();
        feeder.join().unwrap();
        worker.join().unwrap();
    });
}

#[test]
fn a_lease_given_back_by_another_thread_lets_the_feeder_go_on() {
    check(2, || {
        let ring = Ring::new(1);
        let (feeder, worker, holder) = (ring.clone(), ring.clone(), ring.clone());
        let feeder = thread::spawn(move || feeder.feed(2, 0));
        let worker = thread::spawn(move || worker.work());
        let Taken::Batch { slot, .. } = ring.slots.take(None) else { panic!("no batch") };
        let holder = thread::spawn(move || holder.slots.release(slot));
        holder.join().unwrap();
        assert_eq!(ring.consume(), Some(1));
        ring.slots.stop();
        feeder.join().unwrap();
        worker.join().unwrap();
    });
}
