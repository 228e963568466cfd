//! Events: points in the work of streams.

use crate::abi::CUresult::{self, CUDA_ERROR_INVALID_HANDLE};
use crate::abi::{CUevent, Result, Tag, handle, number};
use crate::faults::Kind;
use crate::order::Point;
use crate::world::State;

/// All events ever made; a handle contains the event's index.
#[derive(Default)]
pub struct Events(Vec<Event>);

struct Event {
    context: usize,
    /// The point that was recorded last.
    point: Option<Point>,
    destroyed: bool,
}

impl Events {
    /// Makes an event of a context.
    pub fn create(&mut self, context: usize) -> CUevent {
        self.0.push(Event { context, point: None, destroyed: false });
        handle(Tag::Event, self.0.len() - 1)
    }

    /// Number of events of a context that are not destroyed.
    pub fn alive(&self, context: usize) -> usize {
        self.0.iter().filter(|event| event.context == context && !event.destroyed).count()
    }

    /// Destroys all events of a context.
    pub fn destroy_all(&mut self, context: usize) {
        let own = self.0.iter_mut().filter(|event| event.context == context);
        own.for_each(|event| event.destroyed = true);
    }
}

impl State {
    /// The index of an event that is not destroyed.
    fn event(&mut self, event: CUevent) -> Result<usize> {
        let place = number(Tag::Event, event).filter(|place| *place < self.events.0.len());
        match place {
            Some(place) if !self.events.0[place].destroyed => Ok(place),
            Some(_) => Err(self.bad_handle("the event was destroyed")),
            None => Err(self.bad_handle(format_args!("{event:#x} is no event"))),
        }
    }

    /// Reports an invalid handle.
    pub fn bad_handle(&mut self, what: impl std::fmt::Display) -> CUresult {
        self.wrong(Kind::BadHandle, CUDA_ERROR_INVALID_HANDLE, what)
    }

    /// Records an event after all work queued on a stream.
    pub fn record(&mut self, event: CUevent, stream: usize) -> Result<()> {
        let place = self.event(event)?;
        if self.events.0[place].context != self.streams.context(stream) {
            let what = "the event and the stream are of different contexts";
            return Err(self.wrong(Kind::WrongContext, CUDA_ERROR_INVALID_HANDLE, what));
        }
        self.events.0[place].point = Some(self.mark(stream, &[]));
        Ok(())
    }

    /// The point after which an event was recorded, if it was.
    pub fn point(&mut self, event: CUevent) -> Result<Option<Point>> {
        let place = self.event(event)?;
        Ok(self.events.0[place].point.clone())
    }

    /// Destroys an event. Waits for it remain in effect.
    pub fn destroy_event(&mut self, event: CUevent) -> Result<()> {
        let place = self.event(event)?;
        self.events.0[place].destroyed = true;
        Ok(())
    }
}
