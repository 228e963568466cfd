//! Streams: queues of operations, each ordered after the previous one and after the points it waits
//! for.

use std::collections::VecDeque;
use std::time::Instant;

use crate::abi::{Tag, handle};
use crate::operation::{Operation, Work};
use crate::order::{Clock, Point, Stamp};

/// Kinds of streams. The first three kinds of a context wait for each other: the default stream
/// waits for everything queued on the others, and they wait for everything queued on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamKind {
    /// The default stream.
    Legacy,
    /// The default stream of a thread.
    PerThread(usize),
    Blocking,
    NonBlocking,
}

/// All streams ever made; a handle contains the stream's index.
#[derive(Default)]
pub struct Streams(Vec<Stream>);

struct Stream {
    context: usize,
    kind: StreamKind,
    /// Clock of the operation that was queued last.
    clock: Clock,
    operations: VecDeque<Operation>,
    done: u64,
    /// When each operation was done, from the first one.
    times: Vec<Instant>,
    held: bool,
    destroyed: bool,
}

impl Streams {
    /// Makes a stream in a context.
    pub fn create(&mut self, context: usize, kind: StreamKind) -> usize {
        self.0.push(Stream {
            context,
            kind,
            clock: Clock::default(),
            operations: VecDeque::new(),
            done: 0,
            times: Vec::new(),
            held: false,
            destroyed: false,
        });
        self.0.len() - 1
    }

    /// A default stream of a context.
    pub fn default_of(&mut self, context: usize, kind: StreamKind) -> usize {
        let same = |stream: &Stream| stream.context == context && stream.kind == kind;
        self.0.iter().position(same).unwrap_or_else(|| self.create(context, kind))
    }

    /// The context of a stream.
    pub fn context(&self, stream: usize) -> usize {
        self.0[stream].context
    }

    /// The streams of a context, including destroyed ones, because their work may not be done yet.
    pub fn of_context(&self, context: usize) -> Vec<usize> {
        (0..self.0.len()).filter(|stream| self.context(*stream) == context).collect()
    }

    /// Number of streams of a context that were created and not destroyed.
    pub fn alive(&self, context: usize) -> usize {
        let is_created = |stream: &&Stream| {
            matches!(stream.kind, StreamKind::Blocking | StreamKind::NonBlocking)
        };
        let streams = self.0.iter().filter(|stream| stream.context == context && !stream.destroyed);
        streams.filter(is_created).count()
    }

    /// Destroys a stream. Work queued on it is still done.
    pub fn destroy(&mut self, stream: usize) {
        self.0[stream].destroyed = true;
    }

    /// Pauses or resumes a stream.
    pub fn hold(&mut self, stream: usize, held: bool) {
        self.0[stream].held = held;
    }

    /// Resumes all streams.
    pub fn hold_none(&mut self) {
        self.0.iter_mut().for_each(|stream| stream.held = false);
    }

    /// The name of a stream in a fault.
    pub fn name(&self, stream: usize) -> String {
        match self.0[stream].kind {
            StreamKind::Legacy => "the default stream".to_owned(),
            StreamKind::PerThread(_) => "a thread's default stream".to_owned(),
            StreamKind::Blocking | StreamKind::NonBlocking => {
                format!("stream {:#x}", handle(Tag::Stream, stream))
            }
        }
    }

    /// The last operation of a stream.
    pub fn last(&self, stream: usize) -> Point {
        let state = &self.0[stream];
        let count = state.done + state.operations.len() as u64;
        Point { stamp: Stamp { stream, count }, clock: state.clock.clone() }
    }

    /// Queues work after everything on its stream, everything that the host has seen done, and
    /// `after`.
    pub fn queue(
        &mut self,
        stream: usize,
        host_clock: &Clock,
        after: &[Point],
        work: Work,
    ) -> Point {
        let mut clock = self.0[stream].clock.clone();
        clock.join(host_clock);
        let mut stamps = Vec::new();
        for point in after.iter().chain(&self.implied(stream)) {
            clock.join(&point.clock);
            stamps.push(point.stamp);
        }
        let stamp = clock.advance(stream);
        let state = &mut self.0[stream];
        state.clock = clock.clone();
        state.operations.push_back(Operation { stamp, work, after: stamps });
        Point { stamp, clock }
    }

    /// The points for which work on a stream waits implicitly.
    fn implied(&self, stream: usize) -> Vec<Point> {
        let Stream { context, kind, .. } = self.0[stream];
        let waits = |other: &usize| match (kind, self.0[*other].kind) {
            (StreamKind::NonBlocking, _) | (_, StreamKind::NonBlocking) => false,
            (StreamKind::Legacy, _) => *other != stream,
            (_, other) => other == StreamKind::Legacy,
        };
        let others = self.of_context(context).into_iter().filter(waits);
        others.map(|other| self.last(other)).collect()
    }

    /// Whether an operation is done.
    pub fn is_done(&self, stamp: Stamp) -> bool {
        self.0[stamp.stream].done >= stamp.count
    }

    /// When an operation was done; `None` before.
    pub fn time(&self, stamp: Stamp) -> Option<Instant> {
        self.0[stamp.stream].times.get(stamp.count as usize - 1).copied()
    }

    /// Whether no work is queued.
    pub fn is_idle(&self) -> bool {
        self.0.iter().all(|stream| stream.operations.is_empty())
    }

    /// The streams whose next operation can begin.
    pub fn ready(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|stream| self.is_ready(*stream)).collect()
    }

    fn is_ready(&self, stream: usize) -> bool {
        let stream = &self.0[stream];
        let next = stream.operations.front();
        !stream.held && next.is_some_and(|next| next.after.iter().all(|stamp| self.is_done(*stamp)))
    }

    /// Takes the next operation of a stream if it can begin, and counts it as done.
    pub fn take(&mut self, stream: usize) -> Option<Operation> {
        if !self.is_ready(stream) {
            return None;
        }
        let state = &mut self.0[stream];
        state.done += 1;
        state.times.push(Instant::now());
        state.operations.pop_front()
    }

    /// The context of a stream, and whether the stream was destroyed; `None` if there is no such
    /// stream.
    pub fn get(&self, stream: usize) -> Option<(usize, bool)> {
        self.0.get(stream).map(|stream| (stream.context, stream.destroyed))
    }
}
