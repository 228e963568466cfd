//! The streams of handles, and queuing work on them.

use crate::abi::CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
use crate::abi::{CUstream, Result, STREAM_LEGACY, STREAM_PER_THREAD, Tag, number};
use crate::faults::Kind;
use crate::operation::Work;
use crate::order::Point;
use crate::state::{Caller, State};
use crate::streams::StreamKind;

impl State {
    /// The stream of a handle. Default streams belong to the current context.
    pub fn stream(&mut self, caller: Caller, stream: CUstream) -> Result<usize> {
        let kind = match stream {
            0 | STREAM_LEGACY => StreamKind::Legacy,
            STREAM_PER_THREAD => StreamKind::PerThread(caller.thread),
            _ => return self.made_stream(stream),
        };
        Ok(self.streams.default_of(caller.context, kind))
    }

    /// The stream of a handle, which must not be a default stream.
    pub fn made_stream(&mut self, stream: CUstream) -> Result<usize> {
        let found =
            number(Tag::Stream, stream).and_then(|index| Some((index, self.streams.get(index)?)));
        let Some((index, (context, destroyed))) = found else {
            return Err(self.bad_handle(format_args!("{stream:#x} is no stream")));
        };
        if destroyed {
            return Err(self.bad_handle("the stream was destroyed"));
        }
        if !self.contexts.is_alive(context) {
            let what = "the stream's context was released";
            return Err(self.wrong(Kind::BadHandle, CUDA_ERROR_CONTEXT_IS_DESTROYED, what));
        }
        Ok(index)
    }

    /// Queues work on a stream.
    pub fn queue(&mut self, stream: usize, after: &[Point], work: Work) -> Point {
        self.streams.queue(stream, &self.host_clock, after, work)
    }

    /// Queues a point that does nothing.
    pub fn mark(&mut self, stream: usize, after: &[Point]) -> Point {
        self.queue(stream, after, Work::Nothing)
    }
}
