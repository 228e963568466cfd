//! Asking the system for threads so that a refusal is an error.
//!
//! Limits of processes and threads (`ulimit -u`, `pids.max` of control groups) are common on shared machines.
//! `std::thread::spawn` panics there.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::memory;
use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};

/// The stack that the standard library asks for.
const STACK: usize = 2 << 20;

/// Starts a thread.
///
/// # Errors
/// If the system refuses it.
pub fn start<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    with_room(|running| {
        Builder::new().name(name.into()).spawn(move || {
            drop(running);
            work()
        })
    })
}

/// Starts a thread of a scope. The others of the scope have to end by themselves where one is refused.
///
/// # Errors
/// If the system refuses it.
pub fn start_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    with_room(|running| {
        Builder::new().name(name.into()).spawn_scoped(scope, move || {
            drop(running);
            work()
        })
    })
}

/// Runs `work` in `count` threads at once and waits for all of them. Where one is refused, `stop` has those that run end
/// early.
///
/// # Errors
/// If the system refuses a thread.
pub fn run(count: usize, name: &str, work: impl Fn() + Sync, stop: impl FnOnce()) -> Result<()> {
    std::thread::scope(|scope| {
        let start = |_| start_scoped(scope, name, &work).map(drop);
        (0..count).try_for_each(start).inspect_err(|_| stop())
    })
}

/// Runs `work`, which ends when there is nothing left to do, in `count` threads at once, this one among them. Where the
/// system refuses some, in fewer.
pub fn share(count: usize, name: &str, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 1..count {
            if start_scoped(scope, name, &work).is_err() {
                break;
            }
        }
        work();
    });
}

/// A thread that gets its stack, but not the little that the standard library and the system's take for it afterwards, ends
/// the process before it runs. So where the address space is short, there has to be room for both, and until the thread runs
/// nothing else is started: `start` gives it what it drops then.
fn with_room<T>(start: impl FnOnce(Option<Sender<()>>) -> io::Result<T>) -> Result<T> {
    if !memory::is_short(STACK) {
        return start(None).map_err(refused);
    }
    let (running, runs) = mpsc::channel();
    let started = memory::with_room(STACK, "another thread", || {
        let thread = start(Some(running))?;
        // An error says that it was dropped.
        let _ = runs.recv();
        Ok(thread)
    })?;
    started.map_err(refused)
}

fn refused(error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the system refuses another thread: {error}"))
        .with_remedy(remedy![
            "ask for fewer ",
            Opt::Threads,
            ", or raise the limit of processes (`ulimit -u`)"
        ])
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_start_and_a_refusal_says_what_to_do() {
        assert_eq!(start("one", || 7).unwrap().join().unwrap(), 7);
        let seven = 7;
        let scoped = std::thread::scope(|scope| {
            start_scoped(scope, "two", || seven).unwrap().join().unwrap()
        });
        assert_eq!(scoped, 7);
        let runs = std::sync::atomic::AtomicUsize::new(0);
        let count = || {
            runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        };
        run(3, "three", count, || unreachable!("none is refused")).unwrap();
        share(2, "two", count);
        assert_eq!(runs.load(std::sync::atomic::Ordering::Relaxed), 5);
        let error = refused(io::ErrorKind::WouldBlock.into());
        assert!(error.to_string().contains("ulimit -u"), "{error}");
    }
}
