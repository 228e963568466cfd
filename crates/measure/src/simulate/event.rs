//! The events in the life of a batch, and who receives them.

/// An event in the life of a batch. Of events at the same time, those that end a stage come first,
/// and so on in the order here: what begins may need what ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    Done,
    Decoded,
    Copied,
    Stepping,
    Decoding,
    Copying,
    Loaded,
    Begun,
    Queued,
    Taken,
}

/// Receives all events in the order of their times, in nanoseconds.
pub(super) trait Observer {
    /// Receives an event of a batch, and the loader that loads or loaded it. First come, batches
    /// are numbered from 0 in the order in which they are begun; in order, in the order in which
    /// they are taken.
    fn see(&mut self, time: u64, event: Event, batch: u64, loader: usize);
}
