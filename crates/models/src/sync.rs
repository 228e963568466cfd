//! What stands here in place of `crates/read/src/sync.rs`: the locks of the model checker.

use std::sync::PoisonError;
use std::time::Instant;

pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn wait<'a, T>(signal: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    signal.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// The model has no clock: no deadline is ever over.
pub(crate) fn wait_until<'a, T>(
    signal: &Condvar,
    guard: MutexGuard<'a, T>,
    _: Option<Instant>,
) -> (MutexGuard<'a, T>, bool) {
    (wait(signal, guard), false)
}
