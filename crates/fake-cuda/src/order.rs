//! What is ordered behind what.
//!
//! CUDA decides the order of two operations when the later one is queued: by its stream, by the events its stream
//! waits for, and by what the host has waited for. So the clock of an operation, which tells all operations that are
//! done before it begins, is known at once; and two operations that no clock orders are a fault, however they happen to
//! run.

/// An operation: the `count`th of a stream, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub stream: usize,
    pub count: u64,
}

/// For each stream, how many of its operations are before.
#[derive(Clone, Debug, Default)]
pub struct Clock(Vec<u64>);

/// An operation, and all that is done once it is.
#[derive(Clone, Debug)]
pub struct Point {
    pub stamp: Stamp,
    pub clock: Clock,
}

impl Clock {
    /// From here on, what is before `other` is before this, too.
    pub fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// Counts one more operation of `stream`.
    pub fn advance(&mut self, stream: usize) -> Stamp {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
        Stamp { stream, count: self.0[stream] }
    }

    /// Whether the operation is before this.
    pub fn covers(&self, stamp: Stamp) -> bool {
        self.0.get(stamp.stream).is_some_and(|count| *count >= stamp.count)
    }
}
