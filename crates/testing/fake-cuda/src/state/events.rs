//! Recording events, and the points and times they mark.

use std::time::Instant;

use crate::abi::CUresult::{CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_NOT_READY};
use crate::abi::{CUevent, Result, Tag, number};
use crate::events::Event;
use crate::faults::Kind;
use crate::order::Point;
use crate::state::State;

impl State {
    /// The index of an event that is not destroyed.
    fn event(&mut self, event: CUevent) -> Result<usize> {
        let index = number(Tag::Event, event).filter(|index| *index < self.events.0.len());
        match index {
            Some(index) if !self.events.0[index].destroyed => Ok(index),
            Some(_) => Err(self.bad_handle("the event was destroyed")),
            None => Err(self.bad_handle(format_args!("{event:#x} is no event"))),
        }
    }

    /// Records an event after all work queued on a stream.
    pub fn record(&mut self, event: CUevent, stream: usize) -> Result<()> {
        let index = self.event(event)?;
        if self.events.0[index].context != self.streams.context(stream) {
            let what = "the event and the stream are of different contexts";
            return Err(self.wrong(Kind::WrongContext, CUDA_ERROR_INVALID_HANDLE, what));
        }
        self.events.0[index].point = Some(self.mark(stream, &[]));
        Ok(())
    }

    /// The point after which an event was recorded, if it was.
    pub fn point(&mut self, event: CUevent) -> Result<Option<Point>> {
        let index = self.event(event)?;
        Ok(self.events.0[index].point.clone())
    }

    /// When an event was done.
    pub fn time(&mut self, event: CUevent) -> Result<Instant> {
        let index = self.event(event)?;
        let Event { point, is_timed, .. } = &self.events.0[index];
        let Some(point) = point.as_ref().filter(|_| *is_timed) else {
            let what = "the event was not recorded, or was made without times";
            return Err(self.wrong(Kind::BadArgument, CUDA_ERROR_INVALID_HANDLE, what));
        };
        self.streams.time(point.stamp).ok_or(CUDA_ERROR_NOT_READY)
    }

    /// Destroys an event. Waits for it remain in effect.
    pub fn destroy_event(&mut self, event: CUevent) -> Result<()> {
        let index = self.event(event)?;
        self.events.0[index].destroyed = true;
        Ok(())
    }
}
