//! The order of operations.
//!
//! CUDA decides the order of two operations when the later one is queued: by its stream, by the
//! events its stream waits for, and by what the host has waited for. So the clock of an operation,
//! which contains all operations that are done before it begins, is known at once. Two operations
//! that no clock orders are a fault, in whatever order they happen to run.

/// An operation: number `count` on its stream, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    pub stream: usize,
    pub count: u64,
}

/// For each stream, the number of its operations that come before.
#[derive(Clone, Debug, Default)]
pub struct Clock(Vec<u64>);

/// An operation, and everything that is done once it is done.
#[derive(Clone, Debug)]
pub struct Point {
    pub stamp: Stamp,
    pub clock: Clock,
}

impl Clock {
    /// From now on, everything before `other` is also before this.
    pub fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (time, other) in self.0.iter_mut().zip(&other.0) {
            *time = (*time).max(*other);
        }
    }

    /// Counts another operation of `stream`.
    pub fn advance(&mut self, stream: usize) -> Stamp {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
        Stamp { stream, count: self.0[stream] }
    }

    /// Whether the operation comes before this.
    pub fn covers(&self, stamp: Stamp) -> bool {
        self.0.get(stamp.stream).is_some_and(|count| *count >= stamp.count)
    }
}
