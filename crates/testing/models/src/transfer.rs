//! The hand-over: the transfer thread, the consumer, and other code that drops batches.
//!
//! The memory of a device slot is one `loom` cell. The model fails if a copy goes into a slot that
//! is still being read, if a read is not ordered after the copy, or if a thread waits forever.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::exchange::{Exchange, Interrupt, Taken};

/// A slot's number and the batch that was copied into it; or an error.
type Item = Result<(usize, u64), ()>;

struct Device {
    exchange: Exchange<usize, Item>,
    memory: Vec<UnsafeCell<u64>>,
}

impl Device {
    fn new(slots: usize) -> Arc<Self> {
        let memory = (0..slots).map(|_| UnsafeCell::new(u64::MAX)).collect();
        let device = Self { exchange: Exchange::new(), memory };
        (0..slots).for_each(|slot| device.exchange.give(slot));
        Arc::new(device)
    }

    /// Copies `batches` batches per order, until it is stopped. If `fails`, an error comes before
    /// the first batch.
    fn transfer(&self, batches: u64, mut fails: bool) {
        let (mut generation, mut next) = (0, 0);
        while next < batches {
            match self.step(generation, 100 * generation + next, &mut fails) {
                Ok(()) => next += 1,
                Err(Interrupt::Restarted(order)) => (generation, next) = (order.generation, 0),
                Err(Interrupt::Stopped) => break,
            }
        }
        self.exchange.end();
    }

    fn step(&self, generation: u64, batch: u64, fails: &mut bool) -> Result<(), Interrupt> {
        if std::mem::take(fails) {
            self.exchange.put(generation, Err(())).map_err(|(_, interrupt)| interrupt)?;
            self.exchange.asked(generation)?;
        }
        let slot = self.exchange.room(generation)?;
        // SAFETY: loom checks that nobody else has access.
        self.memory[slot].with_mut(|value| unsafe { *value = batch });
        self.exchange.put(generation, Ok((slot, batch))).map_err(|(item, interrupt)| {
            self.free(item);
            interrupt
        })
    }

    fn free(&self, item: Item) {
        if let Ok((slot, _)) = item {
            self.exchange.give(slot);
        }
    }

    /// Takes an item and reads its slot, which is not returned.
    fn take(&self) -> Option<Item> {
        let Taken::Item(item) = self.exchange.take(None) else { return None };
        if let Ok((slot, batch)) = item {
            // SAFETY: loom checks that nobody writes.
            self.memory[slot].with(|value| assert_eq!(unsafe { *value }, batch));
        }
        Some(item)
    }

    /// Takes a batch, and returns its slot.
    fn consume(&self) -> Option<u64> {
        let item = self.take()?;
        self.free(item);
        item.ok().map(|(_, batch)| batch)
    }
}

/// Checks every interleaving with at most four preemptions.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(model);
}

fn start(device: &Arc<Device>, batches: u64, fails: bool) -> thread::JoinHandle<()> {
    let transfer = device.clone();
    thread::spawn(move || transfer.transfer(batches, fails))
}

#[test]
fn batches_come_in_order_through_two_slots() {
    check(|| {
        let device = Device::new(2);
        let transfer = start(&device, 3, false);
        (0..3).for_each(|batch| assert_eq!(device.consume(), Some(batch)));
        assert_eq!(device.consume(), None);
        device.exchange.stop();
        transfer.join().unwrap();
    });
}

#[test]
fn a_slot_given_back_by_another_thread_is_used_again() {
    check(|| {
        let device = Device::new(1);
        let transfer = start(&device, 2, false);
        let item = device.take().unwrap();
        let holder = device.clone();
        let holder = thread::spawn(move || holder.free(item));
        assert_eq!(device.consume(), Some(1));
        holder.join().unwrap();
        device.exchange.stop();
        transfer.join().unwrap();
    });
}

#[test]
fn a_stop_at_any_time_ends_the_thread() {
    check(|| {
        let device = Device::new(1);
        let transfer = start(&device, 3, true);
        let consumer = device.clone();
        let consumer = thread::spawn(move || consumer.consume());
        device.exchange.stop();
        transfer.join().unwrap();
        consumer.join().unwrap();
        device.exchange.clear();
    });
}

#[test]
fn a_restart_at_any_time_gives_no_batch_of_before_and_loses_no_slot() {
    check(|| {
        let device = Device::new(2);
        // More batches than slots: it cannot finish before the restart.
        let transfer = start(&device, 3, false);
        device.exchange.restart(1).into_iter().for_each(|item| device.free(item));
        assert_eq!((device.consume(), device.consume()), (Some(100), Some(101)));
        assert_eq!(device.consume(), Some(102));
        device.exchange.stop();
        transfer.join().unwrap();
    });
}

#[test]
fn after_an_error_it_goes_on_when_asked() {
    check(|| {
        let device = Device::new(1);
        let transfer = start(&device, 1, true);
        assert_eq!(device.take(), Some(Err(())));
        assert_eq!(device.consume(), Some(0));
        device.exchange.stop();
        transfer.join().unwrap();
    });
}
