//! The transfer thread.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | its loop |
//! | `state.rs` | its state, and how it hands over its results |
//! | `copy.rs` | batches of values |
//! | `decode.rs` | batches that the device decodes, or gathers from its memory |

mod copy;
mod decode;
mod state;

use std::sync::Arc;

use self::state::{Ahead, Taken, Worker};
use super::backend::Backend;
use super::exchange::Interrupt;
use super::slots::{Item, Rack};
use super::source::Source;

/// Says that the thread has ended, also if it panicked.
struct Ending<B: Backend, S: Source>(Arc<Rack<B, S>>);

impl<B: Backend, S: Source> Drop for Ending<B, S> {
    fn drop(&mut self) {
        self.0.exchange.end();
    }
}

/// Copies batches of the source into slots until the consumer stops it.
pub(super) fn run<B: Backend, S: Source>(rack: Arc<Rack<B, S>>, source: S) {
    Worker::new(rack, source).run();
}

impl<B: Backend, S: Source> Worker<B, S> {
    pub(super) fn run(mut self) {
        let _ending = Ending(self.rack.clone());
        loop {
            match self.step() {
                Ok(()) => {}
                Err(Interrupt::Restarted(order)) => {
                    (self.pending, self.is_retry) = (None, false);
                    // Its copy may be under way, which is waited for.
                    self.ahead = None;
                    self.generation = order.generation;
                    self.source.go_to(order.epoch);
                }
                Err(Interrupt::Stopped) => return,
            }
        }
    }

    /// Copies one batch, or hands over the reason why there is none.
    fn step(&mut self) -> Result<(), Interrupt> {
        let taken = match (self.pending.take(), self.ahead.take()) {
            (Some(taken), ahead) => {
                self.ahead = ahead;
                taken
            }
            (None, Some(Ahead::Batch(taken))) => taken,
            (None, Some(Ahead::Staged(staged))) => return self.decode(staged),
            (None, Some(Ahead::End(position))) => return self.put(Item::End(position)),
            (None, Some(Ahead::Failed(error, position))) => return self.fail(error, position),
            (None, None) => match self.source.next() {
                Some(Ok(batch)) => Taken { batch, position: self.source.position() },
                Some(Err(error)) => {
                    let position = self.source.position();
                    return self.fail(error, position);
                }
                None => {
                    let position = self.source.position();
                    return self.put(Item::End(position));
                }
            },
        };
        if let Some(error) = self.loss() {
            // Every batch fails by itself, so that the epoch ends, as on other ranks.
            let Taken { batch, position } = taken;
            drop(batch);
            return self.fail(error, position);
        }
        if S::decoding(&taken.batch).is_some() {
            return match self.stage(taken) {
                Ok(staged) => self.decode(staged),
                Err(refused) => self.refuse_staging(refused),
            };
        }
        self.copy(taken)
    }
}
