//! Starting threads so that a refusal is an error, and thread pools for data-parallel loops.
//!
//! Limits on processes and threads (`ulimit -u`, `pids.max` of control groups) are common on shared
//! machines. At such a limit, `std::thread::spawn` panics, and so does rayon if a parallel loop
//! runs outside a pool. So parallel loops run in a [`Pool`].

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rayon::iter::{ParallelBridge, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};

/// Number of processors that this process may use, at least 1.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

use crate::memory;
use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};

/// The stack size that the standard library requests.
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

/// Starts a thread in a scope. If a thread is refused, the other threads of the scope have to end
/// by themselves.
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

/// Threads for data-parallel loops: a rayon pool whose start may fail. When it is dropped, its
/// threads end before `drop` returns, so that they no longer count against the system's limits when
/// the next pool starts.
#[derive(Debug)]
pub struct Pool {
    /// `None` only while the pool is being dropped.
    pool: Option<ThreadPool>,
    threads: Vec<JoinHandle<()>>,
}

/// Starts a pool of `count` threads, at least one.
///
/// # Errors
/// If the system refuses a thread. Then the threads that were already started have ended.
pub fn pool(count: usize, name: &str) -> Result<Pool> {
    let (mut threads, mut refusal) = (Vec::new(), None);
    let start_one = |thread: rayon::ThreadBuilder| {
        let started = start(name, move || thread.run());
        started.map(|thread| threads.push(thread)).map_err(|error| {
            refusal = Some(error);
            io::ErrorKind::WouldBlock.into()
        })
    };
    let built = ThreadPoolBuilder::new().num_threads(count.max(1)).spawn_handler(start_one).build();
    match built {
        Ok(pool) => Ok(Pool { pool: Some(pool), threads }),
        Err(error) => {
            // Rayon has told the started threads to end.
            threads.into_iter().for_each(wait_for);
            Err(refusal.unwrap_or_else(|| refused(io::Error::other(error))))
        }
    }
}

impl Pool {
    /// Gives each item, in order, to the next free thread, and returns the results in the order of
    /// the items. `state` creates the state that a thread keeps from item to item.
    ///
    /// The iterator itself runs in one thread at a time. An item is taken from it only when a
    /// thread is free. So files are read from front to back, and only few items exist at the same
    /// time.
    ///
    /// # Errors
    /// The error of the first item that fails, in the order of the items, not of time. After a
    /// failure, no further items are taken.
    pub fn in_turn<I, S, T>(
        &self,
        items: I,
        state: impl Fn() -> S + Send + Sync,
        work: impl Fn(&mut S, I::Item) -> Result<T> + Send + Sync,
    ) -> Result<Vec<T>>
    where
        I: Iterator<Item: Send> + Send,
        T: Send,
    {
        let failed = AtomicBool::new(false);
        // All items before the failing one were taken before it, so they are finished too.
        let items = items.enumerate().take_while(|_| !failed.load(Ordering::Relaxed));
        let work = |state: &mut S, (number, item)| {
            let result = work(state, item);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            (number, result)
        };
        let mut results: Vec<(usize, Result<T>)> =
            self.install(|| items.par_bridge().map_init(state, work).collect());
        results.sort_unstable_by_key(|(number, _)| *number);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl Deref for Pool {
    type Target = ThreadPool;

    fn deref(&self) -> &ThreadPool {
        self.pool.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        drop(self.pool.take());
        self.threads.drain(..).for_each(wait_for);
    }
}

/// Waits until a thread of a pool has ended. Rayon passes panics of its jobs to the code that waits
/// for the jobs, so no panic arrives here.
fn wait_for(thread: JoinHandle<()>) {
    let _ = thread.join();
}

/// Like [`Pool::in_turn`], in up to `count` threads that are started for it. If the system refuses
/// them, or one is enough, the calling thread does all the work.
///
/// # Errors
/// Those of [`Pool::in_turn`].
pub fn in_turn<I, S, T>(
    count: usize,
    name: &str,
    items: I,
    state: impl Fn() -> S + Send + Sync,
    work: impl Fn(&mut S, I::Item) -> Result<T> + Send + Sync,
) -> Result<Vec<T>>
where
    I: ExactSizeIterator<Item: Send> + Send,
    T: Send,
{
    let count = count.min(items.len());
    match (count > 1).then(|| pool(count, name)) {
        Some(Ok(pool)) => pool.in_turn(items, state, work),
        _ => {
            let mut state = state();
            items.map(|item| work(&mut state, item)).collect()
        }
    }
}

/// Starts a thread, with room for more than its stack. If a thread gets its stack, but not the
/// small amounts that the standard library and the system library allocate for it afterwards, the
/// whole process ends. So if the address space is short, there must be room for both, and nothing
/// else is started until the thread runs. The thread shows that it runs by dropping the sender.
fn with_room<T>(start: impl FnOnce(Option<Sender<()>>) -> io::Result<T>) -> Result<T> {
    if !memory::is_short(STACK) {
        return start(None).map_err(refused);
    }
    let (running, runs) = mpsc::channel();
    let started = memory::with_address_space(STACK, || {
        let thread = start(Some(running))?;
        // `recv` returns an error as soon as the sender was dropped.
        let _ = runs.recv();
        Ok(thread)
    });
    started.flatten().map_err(refused)
}

fn refused(error: io::Error) -> Error {
    let limit = match error.kind() {
        io::ErrorKind::OutOfMemory => "memory (`ulimit -v`)",
        _ => "processes (`ulimit -u`)",
    };
    Error::new(ErrorKind::Io, format!("the system refuses to start another thread: {error}"))
        .with_remedy(remedy![
            "use fewer ",
            Opt::Threads,
            format!(", or raise the limit of {limit}")
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
        let error = refused(io::ErrorKind::WouldBlock.into());
        assert!(error.to_string().contains("ulimit -u"), "{error}");
        let error = refused(io::ErrorKind::OutOfMemory.into());
        assert!(error.to_string().contains("ulimit -v") && memory::refused(&error), "{error}");
    }

    fn third(number: usize) -> Result<usize> {
        std::thread::sleep(std::time::Duration::from_micros(300 * (number as u64 % 3)));
        Ok(3 * number)
    }

    #[test]
    fn results_come_in_order_whatever_the_threads() {
        let want: Vec<usize> = (0..100).map(|number| 3 * number).collect();
        for threads in [1, 2, 5] {
            let workers = pool(threads, "own").unwrap();
            assert_eq!(workers.current_num_threads(), threads);
            let found = workers.in_turn(0..100, || (), |(), number| third(number)).unwrap();
            assert_eq!(found, want);
            let found = in_turn(threads, "own", 0..100, || (), |(), number| third(number));
            assert_eq!(found.unwrap(), want);
        }
    }

    #[test]
    fn the_first_error_in_order_is_given_and_the_rest_left() {
        let done = std::sync::atomic::AtomicUsize::new(0);
        for threads in [1, 2, 5] {
            let workers = pool(threads, "own").unwrap();
            done.store(0, Ordering::Relaxed);
            let work = |(): &mut (), number: usize| {
                done.fetch_add(1, Ordering::Relaxed);
                // Of two failing items, the later one fails first.
                if number == 7 {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                if number == 7 || number == 8 {
                    return Err(Error::damaged(number.to_string()));
                }
                third(number)
            };
            let error = workers.in_turn(0..100_000, || (), work).unwrap_err();
            assert_eq!(error.what(), "7");
            assert!(done.load(Ordering::Relaxed) < 1000);
        }
    }

    #[test]
    fn each_thread_keeps_its_state() {
        let created = std::sync::atomic::AtomicUsize::new(0);
        let workers = pool(3, "own").unwrap();
        let state = || {
            created.fetch_add(1, Ordering::Relaxed);
            0
        };
        let count = |calls: &mut usize, _| {
            *calls += 1;
            Ok(*calls)
        };
        let found = workers.in_turn(0..1000, state, count).unwrap();
        // One thread may have done all the work, and rayon may have created a state that was not used.
        let used = found.iter().filter(|calls| **calls == 1).count();
        assert!((1..=3).contains(&used), "{used}");
        assert!((used..=4).contains(&created.load(Ordering::Relaxed)));
    }

    #[test]
    fn a_pool_that_is_dropped_has_ended() {
        let name = "ends-at-drop";
        let threads = || {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
            let names =
                tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|thread_name| thread_name.trim() == name).count()
        };
        let workers = pool(4, name).unwrap();
        workers.broadcast(|_| ());
        assert_eq!(threads(), 4);
        drop(workers);
        assert_eq!(threads(), 0);
    }

    #[test]
    fn a_panic_reaches_whoever_waits() {
        let workers = pool(2, "own").unwrap();
        let run = || workers.in_turn(0..10, || (), |(), _| -> Result<()> { panic!("on purpose") });
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
