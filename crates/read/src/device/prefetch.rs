//! Prepares batches on the CPU ahead of their use: a thread of its own takes them from the loader,
//! and converts, normalises and augments them, while the consumer uses the batch before.
//!
//! The consumer and the thread give each other room and batches as with a device ([`Exchange`]). A
//! piece of room stands for one batch that may be prepared before it is asked for, so this needs
//! the memory of one or two more batches.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use hsipack_augment::array::Memory;
use hsipack_store::threads;

use super::batch_info::BatchInfo;
use super::exchange::{Exchange, Interrupt, Taken};
use super::host::Host;
use super::monitor::Copies;
use super::transfer::Next;
use crate::loader::background;
use crate::plan::State;
use crate::{Error, Result};

/// Makes what the consumer gets from a batch's memory and metadata.
pub(super) type Make<M> = Box<dyn FnMut(&Arc<dyn Memory>, &Arc<BatchInfo>) -> Result<M> + Send>;

/// Result that the thread hands over.
enum Item<M> {
    Batch(M, State, Room<M>),
    End(State),
    /// The error of a batch, and the state after the batch; no state if the same batch comes once
    /// more.
    Failed(Error, Option<State>),
}

type ExchangeOf<M> = Exchange<(), Item<M>>;

/// Room for a batch, which is given back when this is dropped: when the batch is taken, or when
/// nobody will take it.
struct Room<M>(Arc<ExchangeOf<M>>);

impl<M> Drop for Room<M> {
    fn drop(&mut self) {
        self.0.give(());
    }
}

/// The consumer's side.
pub(super) struct Prefetch<M> {
    exchange: Arc<ExchangeOf<M>>,
    thread: Option<JoinHandle<()>>,
    /// Makes a waiting call of the loader return, for good.
    interrupt: Box<dyn Fn() + Send>,
    copies: Arc<dyn Copies>,
    /// Whether the end of the thread was reported.
    is_over: bool,
}

impl<M: Send + 'static> Prefetch<M> {
    /// Starts the thread, which prepares up to `ahead` batches before they are asked for.
    /// `interrupt` has to make a waiting call of the loader in `host` return, for good.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(super) fn start(
        host: Host,
        ahead: usize,
        make: Make<M>,
        interrupt: Box<dyn Fn() + Send>,
    ) -> Result<Self> {
        let exchange = Arc::new(Exchange::new());
        (0..ahead).for_each(|_| exchange.give(()));
        let copies = host.copies();
        let state = host.state();
        let preparer = Preparer { exchange: exchange.clone(), host, make, generation: 0, state };
        let thread = Some(threads::start("prepare", move || preparer.run())?);
        Ok(Self { exchange, thread, interrupt, copies, is_over: false })
    }

    /// The next batch. Like [`Host::next`], but what is made was made by the thread.
    pub(super) fn next(&mut self, deadline: Option<Instant>) -> Result<Next<M, State>> {
        match self.exchange.take(deadline) {
            Taken::Item(Item::Batch(batch, state, _room)) => Ok(Next::Batch(batch, state)),
            Taken::Item(Item::End(state)) => Ok(Next::End(state)),
            Taken::Item(Item::Failed(error, Some(state))) => Ok(Next::Failed(error, state)),
            Taken::Item(Item::Failed(error, None)) => Err(error),
            Taken::TimedOut => Ok(Next::TimedOut),
            Taken::Ended if std::mem::take(&mut self.is_over) => Ok(Next::Over),
            Taken::Ended => {
                self.is_over = true;
                Err(Error::bug("the thread that prepares batches panicked"))
            }
        }
    }
}

impl<M> Prefetch<M> {
    /// Drops prepared batches and begins an epoch.
    pub(super) fn go_to(&mut self, epoch: u64) {
        self.is_over = false;
        drop(self.exchange.restart(epoch));
    }

    /// Whether a batch is prepared.
    pub(super) fn is_ready(&self) -> bool {
        self.exchange.has_items()
    }

    pub(super) fn copies(&self) -> Arc<dyn Copies> {
        self.copies.clone()
    }
}

impl<M> Drop for Prefetch<M> {
    fn drop(&mut self) {
        self.exchange.stop();
        (self.interrupt)();
        if let Some(thread) = self.thread.take() {
            // Panics were reported as the end of the thread.
            let _ = thread.join();
        }
        self.exchange.clear();
    }
}

/// The thread.
struct Preparer<M> {
    exchange: Arc<ExchangeOf<M>>,
    host: Host,
    make: Make<M>,
    generation: u64,
    /// The state after what was handed over last.
    state: State,
}

/// Says that the thread has ended, also if it panicked.
struct Ending<M>(Arc<ExchangeOf<M>>);

impl<M> Drop for Ending<M> {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl<M> Preparer<M> {
    fn run(mut self) {
        let _ending = Ending(self.exchange.clone());
        background::wait_for_turns();
        loop {
            match self.step() {
                Ok(()) => {}
                Err(Interrupt::Restarted(order)) => {
                    self.generation = order.generation;
                    self.host.go_to(order.epoch);
                    self.state = self.host.state();
                }
                Err(Interrupt::Stopped) => return,
            }
        }
    }

    /// Prepares one batch, or hands over the reason why there is none.
    fn step(&mut self) -> std::result::Result<(), Interrupt> {
        self.exchange.room(self.generation)?;
        let room = Room(self.exchange.clone());
        let mut next = self.host.next(None, &mut self.make);
        if matches!(&next, Ok(Next::Failed(_, state)) if *state == self.state) {
            // No slot is free for the next batch. The consumer may drop what it keeps before it asks for the batch.
            self.exchange.asked(self.generation)?;
            next = self.host.next(None, &mut self.make);
        }
        if let Ok(Next::Batch(_, state) | Next::End(state) | Next::Failed(_, state)) = &next {
            self.state = state.clone();
        }
        let (error, state) = match next {
            Ok(Next::Batch(batch, state)) => return self.put(Item::Batch(batch, state, room)),
            Ok(Next::End(state)) => return self.put(Item::End(state)),
            Ok(Next::Failed(error, state)) => (error, Some(state)),
            Err(error) => (error, None),
            // Nothing was waited for, and the host's loader reports its own end as an error.
            Ok(Next::TimedOut | Next::Over) => return Ok(()),
        };
        self.put(Item::Failed(error, state))?;
        // The next one is tried when the consumer asks for it, which may have freed memory by then.
        self.exchange.asked(self.generation)
    }

    fn put(&self, item: Item<M>) -> std::result::Result<(), Interrupt> {
        // If nobody will take an item, it gives its room back when it is dropped here.
        self.exchange.put(self.generation, item).map_err(|(_, interrupt)| interrupt)
    }
}
