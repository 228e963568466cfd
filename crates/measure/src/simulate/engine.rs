//! The event loop.
//!
//! ```text
//! begun ──▶ loaded ──▶ queued ──▶ taken ──▶ copying ──▶ copied, decoding ──▶ decoded, stepping ──▶ done
//!   loading    holding    queue      waiting     copy                 decoding                step
//! ```
//!
//! At any time, a loader loads or holds one batch, at most `queue` batches are queued and not
//! taken, and each stage after the queue (`stages.rs`) works on at most one batch. The first of
//! these stages takes a batch when it is done with the one before. A loader begins its next batch
//! at the moment when its last one is queued.
//!
//! First come: batches are queued in the order in which they are loaded. A batch that finds the
//! queue full is queued when another one is taken. In order: the places of the queue belong to the
//! next `queue` batches by number, so batch b is queued once it is loaded and batch b − `queue` is
//! taken. Without a queue, a batch is queued at the moment when it is taken.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::event::{Event, Observer};
use super::model::{End, MAX_BATCHES, Model, Order, too_many};
use super::random::Use;
use super::stages::Stages;
use super::times::nanoseconds;
use crate::Result;

struct Engine<'a, L> {
    model: &'a Model,
    load: L,
    stages: Stages<'a>,
    observer: &'a mut dyn Observer,
    /// Future events with their times, batches and loaders.
    future: BinaryHeap<Reverse<(u64, Event, u64, usize)>>,
    now: u64,
    /// Whether the first stage after the queue has a batch.
    busy: bool,
    begun: u64,
    /// First come: queued batches with their loaders, and then (`held`) batches that loaders hold.
    queued: VecDeque<(u64, usize)>,
    held: VecDeque<(u64, usize)>,
    /// In order: whether each batch that is not yet taken is loaded, at its number modulo the
    /// length.
    loaded: Vec<bool>,
}

/// Runs a checked model; returns the time at which it ended, in nanoseconds.
///
/// # Errors
/// If there are too many batches.
pub(super) fn run(model: &Model, observer: &mut dyn Observer) -> Result<u64> {
    let (end, batches) = match model.end {
        End::Seconds(time) => (nanoseconds(time), u64::MAX),
        End::Batches(batches) => (u64::MAX, batches),
    };
    let mut engine = Engine {
        model,
        load: model.load.drawer(model.seed, Use::Load),
        stages: Stages::new(model),
        observer,
        future: BinaryHeap::with_capacity(model.loaders + 1),
        now: 0,
        busy: false,
        begun: 0,
        queued: VecDeque::new(),
        held: VecDeque::new(),
        loaded: match model.order {
            Order::FirstCome => Vec::new(),
            Order::InOrder => vec![false; model.loaders + model.queue],
        },
    };
    for loader in 0..model.loaders {
        engine.begin(loader, loader as u64);
    }
    let [_, release] = model.first_stage();
    let mut done = 0;
    while let Some(Reverse((time, event, batch, loader))) =
        engine.future.pop().filter(|Reverse((time, ..))| *time <= end)
    {
        engine.now = time;
        engine.see(event, batch, loader);
        if event == Event::Loaded {
            engine.load_ends(batch, loader);
        }
        if event == Event::Done {
            done += 1;
            if done == batches {
                return Ok(time);
            }
            if done > MAX_BATCHES {
                return Err(too_many());
            }
        }
        engine.busy &= event != release;
        engine.take();
    }
    Ok(end)
}

impl<L: Fn(u64) -> u64> Engine<'_, L> {
    fn see(&mut self, event: Event, batch: u64, loader: usize) {
        self.observer.see(self.now, event, batch, loader);
    }

    fn begin(&mut self, loader: usize, batch: u64) {
        self.see(Event::Begun, batch, loader);
        self.begun += 1;
        let end = self.now.saturating_add((self.load)(batch));
        self.future.push(Reverse((end, Event::Loaded, batch, loader)));
    }

    fn load_ends(&mut self, batch: u64, loader: usize) {
        match self.model.order {
            Order::FirstCome if self.queued.len() < self.model.queue => self.put(batch, loader),
            Order::FirstCome => self.held.push_back((batch, loader)),
            Order::InOrder => {
                let slot = self.slot(batch);
                self.loaded[slot] = true;
                if batch < self.stages.taken() + self.model.queue as u64 {
                    self.put(batch, loader);
                }
            }
        }
    }

    /// Queues a batch; its loader begins the next one.
    fn put(&mut self, batch: u64, loader: usize) {
        self.see(Event::Queued, batch, loader);
        let next = match self.model.order {
            Order::FirstCome => {
                self.queued.push_back((batch, loader));
                self.begun
            }
            Order::InOrder => batch + self.model.loaders as u64,
        };
        self.begin(loader, next);
    }

    /// The first stage after the queue takes the next batch, if it can.
    fn take(&mut self) {
        if self.busy {
            return;
        }
        match self.model.order {
            Order::FirstCome => self.take_first(),
            Order::InOrder => self.take_next(),
        }
    }

    fn take_first(&mut self) {
        if self.queued.is_empty() {
            // Without a queue, take the batch directly from its loader.
            let Some((batch, loader)) = self.held.pop_front() else { return };
            self.put(batch, loader);
        }
        let Some((batch, loader)) = self.queued.pop_front() else { return };
        self.pass_on(batch, loader);
        if self.queued.len() < self.model.queue
            && let Some((batch, loader)) = self.held.pop_front()
        {
            self.put(batch, loader);
        }
    }

    fn take_next(&mut self) {
        let batch = self.stages.taken();
        let slot = self.slot(batch);
        if !std::mem::take(&mut self.loaded[slot]) {
            return;
        }
        let loader = self.loader_of(batch);
        if self.model.queue == 0 {
            self.put(batch, loader);
        }
        self.pass_on(batch, loader);
        let enters = batch + self.model.queue as u64;
        if enters > batch && self.loaded[self.slot(enters)] {
            self.put(enters, self.loader_of(enters));
        }
    }

    /// The batch goes through the stages after the queue.
    fn pass_on(&mut self, batch: u64, loader: usize) {
        let Self { now, stages, observer, future, .. } = self;
        observer.see(*now, Event::Taken, batch, loader);
        stages.take(*now, |event, time| {
            // What begins now is seen now: everything that ends now was seen before a batch is taken.
            if time == *now {
                observer.see(time, event, batch, loader);
            } else {
                future.push(Reverse((time, event, batch, loader)));
            }
        });
        self.busy = true;
    }

    fn slot(&self, batch: u64) -> usize {
        (batch % self.loaded.len() as u64) as usize
    }

    fn loader_of(&self, batch: u64) -> usize {
        (batch % self.model.loaders as u64) as usize
    }
}
