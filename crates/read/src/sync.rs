//! The locks of the ring and of the hand-over. crates/models compiles both with a file of its own in place of this one, over
//! the locks of the model checker `loom`.

use std::sync::PoisonError;
use std::time::Instant;

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Locks; a panic elsewhere while the lock was held changes nothing: no code of ours panics half-way
/// through a change of what a lock guards.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a signal; see [`lock`].
pub(crate) fn wait<'a, T>(signal: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    signal.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a signal, up to a deadline if there is one; also gives whether it is over.
pub(crate) fn wait_until<'a, T>(
    signal: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    let Some(deadline) = deadline else { return (wait(signal, guard), false) };
    let left = deadline.saturating_duration_since(Instant::now());
    let (guard, timeout) = signal.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner);
    (guard, timeout.timed_out())
}
