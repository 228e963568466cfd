//! The locks of the ring and of the hand-over: the standard library's. The crate in
//! crates/testing/models compiles this file, too, and there the locks are those of the model
//! checker `loom`, in which no time passes and no deadline is ever over.

use std::sync::PoisonError;
use std::time::Instant;

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Locks. If another thread panicked while it held the lock, this changes nothing: our code never
/// panics halfway through changing the data that a lock guards.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a signal; see [`lock`].
pub(crate) fn wait<'a, T>(signal: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    signal.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a signal, up to a deadline if there is one. Also returns whether the deadline is over.
pub(crate) fn wait_until<'a, T>(
    signal: &Condvar,
    guard: MutexGuard<'a, T>,
    deadline: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    let Some(deadline) = deadline else { return (wait(signal, guard), false) };
    let remaining = deadline.saturating_duration_since(Instant::now());
    let (guard, timeout) =
        signal.wait_timeout(guard, remaining).unwrap_or_else(PoisonError::into_inner);
    (guard, timeout.timed_out())
}
