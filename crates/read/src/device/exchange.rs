//! Exchange between the transfer thread and the consumer: the consumer gives room to copy into, the
//! transfer thread gives what was copied. There are no tensors, no device and no `unsafe` here. The
//! crate in crates/testing/models checks it under every interleaving of the two threads.
//!
//! ```text
//!                 give (consumer)              room (transfer)
//!    consumer ────────────────────▶ room ──────────────────────▶ transfer
//!       ▲                                                           │
//!       └─────────────────────────── items ◀────────────────────────┘
//!                 take (consumer)              put (transfer)
//! ```
//!
//! One thread transfers, and one consumes. Any thread that drops a batch may give room. The
//! following always holds:
//!
//! 1. Every piece of room and every item is in one place: in a queue here, or with one of the two
//!    sides.
//! 2. Items are taken in the order in which they were put.
//! 3. After `restart`, no earlier item is taken. Those in the queue are returned to the consumer,
//!    so that their room is given back. If the transfer thread puts one later, it gets the item
//!    back.
//! 4. After `stop`, and after the other side has ended, every call that waits returns.

use std::collections::VecDeque;
use std::time::Instant;

use crate::sync::{Condvar, Mutex, lock, wait, wait_until};

/// The most items that may wait to be taken. Batches are limited by the room; this limits ends of
/// epochs and errors.
const LIMIT: usize = 4;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Exchange<S, T> {
    inner: Mutex<Inner<S, T>>,
    /// The transfer thread has to look again.
    transfer: Condvar,
    /// The consumer has to look again.
    consumer: Condvar,
}

#[derive(Debug)]
struct Inner<S, T> {
    room: VecDeque<S>,
    items: VecDeque<T>,
    order: Order,
    /// The consumer waits for an item.
    asking: bool,
    stopped: bool,
    /// The transfer thread has ended.
    ended: bool,
    /// Nothing is kept any more.
    cleared: bool,
}

/// Where the transfer thread has to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    /// Increases with every restart.
    pub generation: u64,
    /// The epoch to begin.
    pub epoch: u64,
}

/// Why the transfer thread gets nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Interrupt {
    Restarted(Order),
    Stopped,
}

/// The result of [`Exchange::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<T> {
    Item(T),
    TimedOut,
    /// The transfer thread has ended.
    Ended,
}

impl<S, T> Exchange<S, T> {
    pub(super) fn new() -> Self {
        let inner = Inner {
            room: VecDeque::new(),
            items: VecDeque::new(),
            order: Order::default(),
            asking: false,
            stopped: false,
            ended: false,
            cleared: false,
        };
        Self { inner: Mutex::new(inner), transfer: Condvar::new(), consumer: Condvar::new() }
    }

    /// For the transfer thread: waits for room.
    pub(super) fn room(&self, generation: u64) -> Result<S, Interrupt> {
        self.wait_for(generation, |inner| inner.room.pop_front())
    }

    /// For the transfer thread: hands an item over. The item is returned if nobody will take it.
    pub(super) fn put(&self, generation: u64, item: T) -> Result<(), (T, Interrupt)> {
        let mut item = Some(item);
        let put = self.wait_for(generation, |inner| {
            (inner.items.len() < LIMIT).then(|| inner.items.extend(item.take()))
        });
        put.map_err(|interrupt| (item.take().expect("it was not put"), interrupt))?;
        self.consumer.notify_all();
        Ok(())
    }

    /// For the transfer thread: waits until all items are taken and the consumer asks for more.
    pub(super) fn asked(&self, generation: u64) -> Result<(), Interrupt> {
        self.wait_for(generation, |inner| (inner.asking && inner.items.is_empty()).then_some(()))
    }

    fn wait_for<R>(
        &self,
        generation: u64,
        mut get: impl FnMut(&mut Inner<S, T>) -> Option<R>,
    ) -> Result<R, Interrupt> {
        let mut inner = lock(&self.inner);
        loop {
            if inner.stopped {
                return Err(Interrupt::Stopped);
            }
            if inner.order.generation != generation {
                return Err(Interrupt::Restarted(inner.order));
            }
            if let Some(got) = get(&mut inner) {
                return Ok(got);
            }
            inner = wait(&self.transfer, inner);
        }
    }

    /// For the transfer thread: says that it has ended.
    pub(super) fn end(&self) {
        lock(&self.inner).ended = true;
        self.consumer.notify_all();
    }

    /// Gives room to copy into.
    pub(super) fn give(&self, room: S) {
        let mut inner = lock(&self.inner);
        if inner.cleared {
            // Nobody will use the room. It is dropped outside the lock, because that may take time.
            drop(inner);
            drop(room);
            return;
        }
        inner.room.push_back(room);
        drop(inner);
        self.transfer.notify_all();
    }

    /// For the consumer: waits for the next item.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Taken<T> {
        let mut inner = lock(&self.inner);
        let taken = loop {
            if let Some(item) = inner.items.pop_front() {
                break Taken::Item(item);
            }
            if inner.ended || inner.stopped {
                break Taken::Ended;
            }
            if !inner.asking {
                inner.asking = true;
                self.transfer.notify_all();
            }
            match wait_until(&self.consumer, inner, deadline) {
                (guard, false) => inner = guard,
                (guard, true) => {
                    inner = guard;
                    // An item that came just now is still taken.
                    break inner.items.pop_front().map_or(Taken::TimedOut, Taken::Item);
                }
            }
        };
        inner.asking = false;
        drop(inner);
        self.transfer.notify_all();
        taken
    }

    /// For the consumer: puts back an item that it could not use. The item comes first again.
    pub(super) fn untake(&self, item: T) {
        lock(&self.inner).items.push_front(item);
    }

    /// Whether an item can be taken without waiting.
    pub(super) fn has_items(&self) -> bool {
        !lock(&self.inner).items.is_empty()
    }

    /// For the consumer: makes the transfer thread begin with `epoch`. Returns the items that
    /// nobody will take.
    pub(super) fn restart(&self, epoch: u64) -> Vec<T> {
        let mut inner = lock(&self.inner);
        inner.order = Order { generation: inner.order.generation + 1, epoch };
        let items = inner.items.drain(..).collect();
        drop(inner);
        self.transfer.notify_all();
        items
    }

    /// Makes every call that waits return, now and later.
    pub(super) fn stop(&self) {
        lock(&self.inner).stopped = true;
        self.transfer.notify_all();
        self.consumer.notify_all();
    }

    /// After the end: drops everything that is left here, and everything that is given from now on.
    pub(super) fn clear(&self) {
        let mut inner = lock(&self.inner);
        inner.cleared = true;
        let remaining = (std::mem::take(&mut inner.room), std::mem::take(&mut inner.items));
        drop(inner);
        drop(remaining);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    type Numbers = Exchange<u32, u32>;

    fn soon() -> Option<Instant> {
        Some(Instant::now() + Duration::from_millis(5))
    }

    #[test]
    fn items_come_in_order_and_room_goes_round() {
        let exchange = Numbers::new();
        exchange.give(7);
        assert_eq!(exchange.room(0), Ok(7));
        (1..=3).for_each(|item| exchange.put(0, item).unwrap());
        assert!(exchange.has_items());
        assert_eq!(exchange.take(None), Taken::Item(1));
        exchange.untake(1);
        let taken: Vec<_> = (0..3).map(|_| exchange.take(None)).collect();
        assert_eq!(taken, [Taken::Item(1), Taken::Item(2), Taken::Item(3)]);
        assert_eq!(exchange.take(soon()), Taken::TimedOut);
    }

    #[test]
    fn a_restart_gives_back_what_was_not_taken_and_takes_nothing_of_before() {
        let exchange = Numbers::new();
        exchange.put(0, 1).unwrap();
        assert_eq!(exchange.restart(5), [1]);
        let order = Order { generation: 1, epoch: 5 };
        assert_eq!(exchange.put(0, 2), Err((2, Interrupt::Restarted(order))));
        assert_eq!(exchange.room(0), Err(Interrupt::Restarted(order)));
        exchange.put(1, 3).unwrap();
        assert_eq!(exchange.take(None), Taken::Item(3));
    }

    #[test]
    fn after_an_error_nothing_is_tried_before_the_consumer_asks() {
        let exchange = std::sync::Arc::new(Numbers::new());
        exchange.put(0, 1).unwrap();
        let transfer = exchange.clone();
        let thread = std::thread::spawn(move || {
            transfer.asked(0).unwrap();
            transfer.put(0, 2).unwrap();
        });
        assert_eq!(exchange.take(None), Taken::Item(1));
        std::thread::sleep(Duration::from_millis(20));
        assert!(!exchange.has_items(), "tried again before it was asked for");
        assert_eq!(exchange.take(None), Taken::Item(2));
        thread.join().unwrap();
    }

    #[test]
    fn after_stop_and_after_the_end_everything_returns() {
        let exchange = Numbers::new();
        exchange.end();
        assert_eq!(exchange.take(None), Taken::Ended);
        exchange.stop();
        assert_eq!(exchange.room(0), Err(Interrupt::Stopped));
        assert_eq!(exchange.asked(0), Err(Interrupt::Stopped));
        assert_eq!(exchange.put(0, 1), Err((1, Interrupt::Stopped)));
    }
}
