//! The stages after the queue: the copy to the device, decoding there, the model's step.
//!
//! Each stage works on one batch at a time, in the order in which batches are taken. So all times
//! of a batch are known when it is taken:
//!
//! ```text
//! begin = max(end of the stage before, end of this stage for the batch before)
//! ```
//!
//! The first stage also waits for a free device slot, which a batch has until its step is done.

use std::collections::VecDeque;

use super::event::Event;
use super::model::Model;
use super::random::Use;
use super::times::Times;

/// The events of a batch that begins and ends each stage.
const COPY: [Event; 2] = [Event::Copying, Event::Copied];
const DECODE: [Event; 2] = [Event::Decoding, Event::Decoded];
const STEP: [Event; 2] = [Event::Stepping, Event::Done];

impl Model {
    /// The events at which the first stage after the queue begins and ends with a batch. At the
    /// end, it takes the next one.
    pub(super) fn first_stage(&self) -> [Event; 2] {
        match (&self.copy, &self.decode) {
            (Some(_), _) => COPY,
            (None, Some(_)) => DECODE,
            (None, None) => STEP,
        }
    }
}

/// A stage, with the events of a batch that begins and ends.
struct Stage<'a> {
    begins: Event,
    ends: Event,
    draw: Box<dyn Fn(u64) -> u64 + 'a>,
    /// When the stage is done with the last batch.
    free: u64,
}

/// The stages of a model, and when they and the device slots are free.
pub(super) struct Stages<'a> {
    stages: Vec<Stage<'a>>,
    /// When each device slot is free.
    slots: VecDeque<u64>,
    taken: u64,
}

impl<'a> Stages<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        let stage = |times: &'a Times, what, [begins, ends]: [Event; 2]| {
            let draw = Box::new(times.drawer(model.seed, what));
            Stage { begins, ends, draw, free: 0 }
        };
        let stages = [
            model.copy.as_ref().map(|times| stage(times, Use::Copy, COPY)),
            model.decode.as_ref().map(|times| stage(times, Use::Decode, DECODE)),
            Some(stage(&model.step, Use::Step, STEP)),
        ];
        Self {
            stages: stages.into_iter().flatten().collect(),
            slots: VecDeque::from(vec![0; model.device_slots]),
            taken: 0,
        }
    }

    /// Number of batches that were taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes a batch, and reports all its later events with their times, in order.
    pub(super) fn take(&mut self, now: u64, mut report: impl FnMut(Event, u64)) {
        let slot = self.slots.pop_front().unwrap_or(0);
        let mut time = now.max(slot);
        for stage in &mut self.stages {
            let begin = time.max(stage.free);
            time = begin.saturating_add((stage.draw)(self.taken));
            stage.free = time;
            report(stage.begins, begin);
            report(stage.ends, time);
        }
        self.slots.push_back(time);
        self.taken += 1;
    }
}
