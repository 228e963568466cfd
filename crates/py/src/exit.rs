//! The end of the process while other threads are in calls of the package.
//!
//! Python does not wait for daemon threads. Once it finalises, it ends every other thread that asks
//! for the interpreter: before Python 3.14, `pthread_exit` unwinds the thread's stack. Rust frames
//! must not be unwound in this way, and the process crashes. So no thread may ask for the
//! interpreter after finalisation began if it has Rust frames on its stack.
//!
//! The package's `atexit` handler calls [`end_calls`] before finalisation begins. From then on,
//! other threads stop here for ever, without the interpreter:
//!
//! - where a call begins or ends to work without the interpreter ([`detached`]);
//! - where Rust begins or ends to call Python code ([`calling`], [`attached`]).
//!
//! `end_calls` waits until nobody is between these places and holds or awaits the interpreter: a
//! thread whose call is returning, or a function of the user that was called from Rust. It waits
//! for [`MAX_WAIT`] at most. If such a function takes longer, [`Hanging`] stops its thread where
//! Python unwinds it. This works on most systems, but not on all.
//!
//! A call may be nested: work without the interpreter calls torch, which releases the interpreter
//! in turn. Only the outermost call stops, because it holds no locks of a loader: the handler
//! closes the loaders afterwards.
//!
//! The handler may run long before the end: other `atexit` handlers follow. If one of them waits
//! for a thread that was stopped, it would wait for ever. So a stopped thread goes on if
//! finalisation does not begin within [`REPRIEVE`].

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::marker::Ungil;
use pyo3::prelude::*;

/// Maximum time that the end of the process waits for calls.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// How long a thread is stopped if the process does not end.
const REPRIEVE: Duration = Duration::from_secs(10);
/// Interval at which waiting threads look again.
const INTERVAL: Duration = Duration::from_millis(2);

/// The process that is ending; 0 if none. A forked child has another number, so it is not ending.
static ENDING: AtomicU32 = AtomicU32::new(0);
/// Number of the process (upper half) and how many of its calls hold or await the interpreter
/// (lower half). The calls of a parent process do not count in its forked child, where their
/// threads do not exist.
static ACTIVE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread ends the process. Its calls work until the end.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    /// Number of nested calls of [`detached`] in this thread.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// How often this thread is counted in [`ACTIVE`].
    static COUNTED: Cell<u32> = const { Cell::new(0) };
    /// Whether this thread has released the interpreter in [`detached`].
    static RELEASED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` while other Python threads run.
pub fn detached<T: Ungil>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let depth = DEPTH.get();
    let value = {
        let _inside = Restored::new(&DEPTH, depth + 1);
        let _released = Restored::new(&RELEASED, true);
        py.detach(|| {
            stop_if_ending(depth > 0);
            let value = work();
            count(1);
            stop_if_ending(depth > 0);
            value
        })
    };
    count(-1);
    value
}

/// Stops this thread if another one is ending the process. For calls that need what the end has
/// closed.
pub fn pause(py: Python<'_>) {
    if must_stop(DEPTH.get() > 0) {
        py.detach(stop);
    }
}

/// Runs `work`, which calls Python code that may release the interpreter, such as a function of the
/// user.
pub fn calling<T>(py: Python<'_>, work: impl FnOnce() -> T) -> T {
    pause(py);
    let value = counted(work);
    pause(py);
    value
}

/// Runs `work`, which asks for the interpreter, while this thread is counted.
fn counted<T>(work: impl FnOnce() -> T) -> T {
    count(1);
    let hanging = Hanging;
    let value = work();
    std::mem::forget(hanging);
    count(-1);
    value
}

/// Runs `work` with the interpreter, in any thread.
pub fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    // Threads that Rust started have no state of Python. Closing a loader waits for its threads, so these go on as long as
    // the interpreter can be had.
    if must_stop(true) {
        stop();
    }
    // SAFETY: looks up the calling thread's state; needs no interpreter.
    let is_native = unsafe { pyo3::ffi::PyGILState_GetThisThreadState() }.is_null();
    let released = Restored::new(&RELEASED, false);
    if is_native || released.before {
        return counted(|| Python::attach(work));
    }
    Python::attach(|py| calling(py, || work(py)))
}

/// Forgets an earlier end. Called when the module is initialised: a program may start the
/// interpreter again.
pub fn begin() {
    ENDING.store(0, Ordering::SeqCst);
    ENDS.set(false);
}

/// Stops the calls of all other threads, and waits until none of them holds or awaits the
/// interpreter.
#[pyfunction]
pub fn end_calls(py: Python<'_>) {
    ENDS.set(true);
    ENDING.store(std::process::id(), Ordering::SeqCst);
    py.detach(|| {
        let end = Instant::now() + MAX_WAIT;
        while active() > COUNTED.get() && Instant::now() < end {
            thread::sleep(INTERVAL);
        }
    });
}

/// Number of counted calls of this process.
fn active() -> u32 {
    let active = ACTIVE.load(Ordering::SeqCst);
    if (active >> 32) as u32 == std::process::id() { active as u32 } else { 0 }
}

/// Counts this thread once more, or once less.
fn count(change: i32) {
    let before = COUNTED.get();
    COUNTED.set(before.saturating_add_signed(change));
    let process = std::process::id();
    let changed = |active: u64| {
        // In a forked child, the thread that forked has its calls still on its stack.
        let depth = if (active >> 32) as u32 == process { active as u32 } else { before };
        Some(u64::from(process) << 32 | u64::from(depth.saturating_add_signed(change)))
    };
    let _ = ACTIVE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, changed);
}

/// Whether a call of this thread must stop. A nested call goes on until finalisation begins.
fn must_stop(nested: bool) -> bool {
    let ending = ENDING.load(Ordering::SeqCst);
    ending != 0 && ending == std::process::id() && !ENDS.get() && (!nested || is_finalizing())
}

fn stop_if_ending(nested: bool) {
    if must_stop(nested) {
        stop();
    }
}

/// Stops this thread, which must not hold the interpreter. Returns only if the process does not
/// end.
fn stop() {
    let counted = COUNTED.get();
    (0..counted).for_each(|_| count(-1));
    let end = Instant::now() + REPRIEVE;
    while !is_finalizing() {
        if Instant::now() > end {
            ENDING.store(0, Ordering::SeqCst);
            (0..counted).for_each(|_| count(1));
            return;
        }
        thread::sleep(INTERVAL);
    }
    hang();
}

fn hang() -> ! {
    loop {
        thread::park();
    }
}

/// Whether the interpreter is finalising, or has been finalised. Any thread may ask.
fn is_finalizing() -> bool {
    type Asked = unsafe extern "C" fn() -> c_int;
    static ASKED: OnceLock<Option<Asked>> = OnceLock::new();
    let is_finalizing = ASKED.get_or_init(|| {
        // It has the first name from Python 3.13 on.
        let found = [c"Py_IsFinalizing", c"_Py_IsFinalizing"].into_iter().find_map(|name| {
            // SAFETY: looks up a name among the symbols of the process.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        });
        // SAFETY: in all versions, the functions of these names take nothing and return an `int`.
        found.map(|address| unsafe { std::mem::transmute::<*mut libc::c_void, Asked>(address) })
    });
    // SAFETY: both functions read a number of the process, in any thread and at any time.
    unsafe {
        is_finalizing.is_some_and(|is_finalizing| is_finalizing() != 0)
            || pyo3::ffi::Py_IsInitialized() == 0
    }
}

/// Stops the thread if Python unwinds its stack. An ordinary panic goes on.
struct Hanging;

impl Drop for Hanging {
    fn drop(&mut self) {
        if thread::panicking() {
            count(-1);
        } else {
            hang();
        }
    }
}

/// A value of this thread that gets its old value back when this is dropped.
struct Restored<T: Copy + 'static> {
    cell: &'static thread::LocalKey<Cell<T>>,
    before: T,
}

impl<T: Copy + 'static> Restored<T> {
    fn new(cell: &'static thread::LocalKey<Cell<T>>, value: T) -> Self {
        Self { cell, before: cell.replace(value) }
    }
}

impl<T: Copy + 'static> Drop for Restored<T> {
    fn drop(&mut self) {
        self.cell.set(self.before);
    }
}
