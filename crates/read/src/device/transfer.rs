//! Copies batches to a device ahead of their use; see `docs/transfer.md`.
//!
//! A separate thread takes host batches, queues their copies on the device's copy stream and hands
//! the batches over. The consumer names the stream that it uses a batch on. This stream waits for
//! the copy, and nobody waits for a whole stream. The states of a device slot, and what always
//! holds, are in `slots.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use hsipack_augment::array::Memory;
use hsipack_store::threads;

use super::backend::Backend;
use super::exchange::Taken;
use super::monitor::{Copies, Tally};
use super::resident::Residents;
use super::slots::{ExchangeOf, Item, Rack, Ready, Refusal};
use super::source::Source;
use super::worker;
use crate::{Error, Result};

/// A batch as the consumer gets it.
#[derive(Debug)]
pub(super) enum Next<R, P> {
    Batch(R, P),
    End(P),
    TimedOut,
    /// A batch failed; the next one comes next. If the position is the one before, it was not an
    /// error of a batch.
    Failed(Error, P),
    /// No batch can come any more, as an error said before. The epoch is over.
    Over,
}

/// The consumer's side.
pub(super) struct Transfer<B: Backend, S: Source> {
    rack: Arc<Rack<B, S>>,
    thread: Option<JoinHandle<()>>,
    /// Makes a waiting call of the source return.
    interrupt: Box<dyn Fn() + Send>,
    slot_bytes: usize,
    /// Number of refusals so far.
    refusals: u64,
    /// Whether the next batch failed on the device before. It comes once more, in case memory was
    /// freed meanwhile. If it fails again, it counts as given. Otherwise a loop that skips errors
    /// would run for ever if the device is lost.
    is_retry: bool,
    /// Whether the end of the transfer thread was reported.
    is_over: bool,
}

impl<B: Backend, S: Source> Transfer<B, S> {
    /// Allocates the slots and starts the thread. `interrupt` has to make a waiting `source.next()`
    /// return, for good.
    ///
    /// # Errors
    /// If there is no memory on the device, or no thread can be started.
    pub(super) fn start(
        backend: Arc<B>,
        source: S,
        slot_bytes: usize,
        residents: Vec<Arc<Residents>>,
        tally: Arc<Tally>,
        interrupt: Box<dyn Fn() + Send>,
    ) -> Result<Self> {
        let rack = Rack::new(backend, slot_bytes, residents, tally)?;
        let shared = rack.clone();
        let thread = Some(threads::start("transfer", move || worker::run(shared, source))?);
        let (refusals, is_retry, is_over) = (0, false, false);
        Ok(Self { rack, thread, interrupt, slot_bytes, refusals, is_retry, is_over })
    }

    /// The next batch, which `build` makes from its memory. `build` also lends the memory to the
    /// stream that it is used on. If `build` fails, or there is no memory for one more slot, the
    /// same batch comes once more. If that fails, too, it is [`Next::Failed`].
    pub(super) fn next<R>(
        &mut self,
        deadline: Option<Instant>,
        mut build: impl FnMut(&Arc<dyn Memory>, &S::Info) -> Result<R>,
    ) -> Result<Next<R, S::Position>> {
        let rack = &self.rack;
        if let Err(error) = rack.make_room(self.slot_bytes) {
            if !std::mem::replace(&mut self.is_retry, true) {
                return Err(error);
            }
            // The batch that the transfer thread has no room for fails.
            if rack.refusal.load(Ordering::Relaxed) == 0 {
                self.refusals += 1;
                rack.refusal.store(self.refusals, Ordering::Relaxed);
                rack.exchange.give(Err(Refusal { number: self.refusals, error }));
            }
        }
        let taken = rack.exchange.take(deadline);
        if !matches!(taken, Taken::TimedOut) {
            rack.refusal.store(0, Ordering::Relaxed);
        }
        match taken {
            Taken::TimedOut => Ok(Next::TimedOut),
            Taken::Ended if std::mem::take(&mut self.is_over) => Ok(Next::Over),
            Taken::Ended => {
                self.is_over = true;
                Err(Error::bug("the transfer thread panicked"))
            }
            Taken::Item(Item::End(position)) => Ok(Next::End(position)),
            Taken::Item(Item::Failed(error, None)) => Err(error),
            Taken::Item(Item::Failed(error, Some(position))) => {
                self.is_retry = false;
                Ok(Next::Failed(error, position))
            }
            Taken::Item(Item::Batch(ready)) => {
                let mut taken = Untaken { exchange: &rack.exchange, ready: Some(ready) };
                let ready = taken.ready.as_ref().expect("put there above");
                let memory: Arc<dyn Memory> = ready.memory.clone();
                let built = build(&memory, &ready.info).or_else(|error| {
                    if rack.makes_memory(&error) { build(&memory, &ready.info) } else { Err(error) }
                });
                let built = match built {
                    Ok(built) => built,
                    Err(error) if std::mem::replace(&mut self.is_retry, true) => {
                        self.is_retry = false;
                        let ready = taken.ready.take().expect("put there above");
                        return Ok(Next::Failed(error, ready.position));
                    }
                    Err(error) => return Err(error),
                };
                self.is_retry = false;
                let ready = taken.ready.take().expect("put there above");
                ready.hold(rack);
                Ok(Next::Batch(built, ready.position))
            }
        }
    }

    /// Drops unfinished batches and begins an epoch.
    pub(super) fn go_to(&mut self, epoch: u64) {
        (self.is_retry, self.is_over) = (false, false);
        self.rack.refusal.store(0, Ordering::Relaxed);
        drop(self.rack.exchange.restart(epoch));
    }

    /// The counts of the slots.
    pub(super) fn copies(&self) -> Arc<dyn Copies>
    where
        S: 'static,
    {
        self.rack.clone()
    }
}

impl<B: Backend, S: Source> Drop for Transfer<B, S> {
    /// Stops and joins the thread, which waits for a copy that is under way. Batches that were
    /// given stay valid.
    fn drop(&mut self) {
        self.rack.exchange.stop();
        (self.interrupt)();
        if let Some(thread) = self.thread.take() {
            // Panics were reported as the end of the thread.
            let _ = thread.join();
        }
        // Batches that are kept keep the rack, but they need not keep all slots. No copy is under way any more.
        self.rack.exchange.clear();
    }
}

/// A batch that is put back when this is dropped, to come first again, unless it is taken out
/// before.
struct Untaken<'a, B: Backend, S: Source> {
    exchange: &'a ExchangeOf<B, S>,
    ready: Option<Ready<B, S>>,
}

impl<B: Backend, S: Source> Drop for Untaken<'_, B, S> {
    fn drop(&mut self) {
        if let Some(ready) = self.ready.take() {
            self.exchange.untake(Item::Batch(ready));
        }
    }
}
