//! Events: points in the work of streams.

use crate::abi::{CUevent, Tag, handle};
use crate::order::Point;

/// All events ever made; a handle contains the event's index.
#[derive(Default)]
pub struct Events(pub Vec<Event>);

/// An event.
pub struct Event {
    pub context: usize,
    /// The point that was recorded last.
    pub point: Option<Point>,
    /// Whether it was made to measure times.
    pub is_timed: bool,
    pub destroyed: bool,
}

impl Events {
    /// Makes an event of a context.
    pub fn create(&mut self, context: usize, is_timed: bool) -> CUevent {
        self.0.push(Event { context, point: None, is_timed, destroyed: false });
        handle(Tag::Event, self.0.len() - 1)
    }

    /// Number of events of a context that are not destroyed.
    pub fn alive(&self, context: usize) -> usize {
        self.0.iter().filter(|event| event.context == context && !event.destroyed).count()
    }

    /// Destroys all events of a context.
    pub fn destroy_all(&mut self, context: usize) {
        let events = self.0.iter_mut().filter(|event| event.context == context);
        events.for_each(|event| event.destroyed = true);
    }
}
