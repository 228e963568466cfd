//! The entry points of all calls, the work of the device, waiting.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::CUresult::{
    self, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_NOT_INITIALIZED,
    CUDA_SUCCESS,
};
use crate::abi::Result;
use crate::calls::How;
use crate::exit;
use crate::faults::Kind;
use crate::order::Point;
use crate::settings::Settings;
use crate::state::{Caller, State};

/// The state, and a signal that it changed.
pub struct World {
    state: Mutex<State>,
    changed: Condvar,
}

/// Requirements of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    /// Nothing.
    Any,
    /// `cuInit` was called.
    Device,
    /// Also a current context, and a device that is not lost.
    Work,
    /// The same, for a call that gives something back. It does so even if it fails: the driver's
    /// errors then come from earlier work.
    Back,
}

/// The points that a call waits for after it was made.
pub trait Waits {
    fn points(self) -> Vec<Point>;
}

impl Waits for () {
    fn points(self) -> Vec<Point> {
        Vec::new()
    }
}

impl Waits for Vec<Point> {
    fn points(self) -> Vec<Point> {
        self
    }
}

/// Nanoseconds of processor time that the program's threads spent in calls.
static IN_CALLS: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds of processor time that the program's threads spent in calls of the stand-in.
pub fn nanoseconds_in_calls() -> u64 {
    IN_CALLS.load(Ordering::Relaxed)
}

/// Counts the processor time of a call until it is dropped.
struct CallClock(u64);

impl CallClock {
    fn start() -> Self {
        Self(thread_nanoseconds())
    }
}

impl Drop for CallClock {
    fn drop(&mut self) {
        IN_CALLS.fetch_add(thread_nanoseconds().saturating_sub(self.0), Ordering::Relaxed);
    }
}

/// Processor time of the calling thread.
fn thread_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is written to a local variable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn sleep(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// The number of the calling thread.
pub fn thread() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });
    if NUMBER.get() == 0 {
        NUMBER.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

fn in_context<T>(
    state: &mut State,
    call: impl FnOnce(&mut State, Caller) -> Result<T>,
) -> Result<T> {
    let thread = thread();
    let context = state.demand_context(thread)?;
    call(state, Caller { thread, context })
}

impl World {
    pub fn new(settings: Settings) -> Self {
        Self { state: Mutex::new(State::new(settings)), changed: Condvar::new() }
    }

    /// Executes queued work, until the process ends.
    pub fn run(&self) {
        const NAME: &str = "the device";
        let mut state = self.lock(NAME);
        while !state.over {
            let Some(stream) = state.next_stream() else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.faults.during = NAME;
                continue;
            };
            let delay = if state.settings.prompt { Duration::ZERO } else { state.dice.delay() };
            drop(state);
            sleep(delay);
            state = self.lock(NAME);
            if !state.lost
                && !state.over
                && let Some(operation) = state.streams.take(stream)
            {
                state.perform(operation);
                self.changed.notify_all();
            }
        }
    }

    /// A call that may be made at any time.
    pub fn any(&self, name: &'static str, call: impl FnOnce(&mut State) -> Result<()>) -> CUresult {
        self.enter(name, Door::Any, call)
    }

    /// A call that asks for devices, or changes a thread's current context.
    pub fn device(
        &self,
        name: &'static str,
        call: impl FnOnce(&mut State, usize) -> Result<()>,
    ) -> CUresult {
        self.enter(name, Door::Device, |state| call(state, thread()))
    }

    /// A call that works in the current context.
    pub fn work<T: Waits>(
        &self,
        name: &'static str,
        call: impl FnOnce(&mut State, Caller) -> Result<T>,
    ) -> CUresult {
        self.enter(name, Door::Work, |state| in_context(state, call))
    }

    /// A call that gives back something of a context.
    pub fn back(
        &self,
        name: &'static str,
        call: impl FnOnce(&mut State, Caller) -> Result<()>,
    ) -> CUresult {
        self.enter(name, Door::Back, |state| in_context(state, call))
    }

    /// A call made by a test.
    pub fn control(
        &self,
        name: &'static str,
        call: impl FnOnce(&mut State) -> Result<()>,
    ) -> CUresult {
        let result = call(&mut self.lock(name));
        self.changed.notify_all();
        result.err().unwrap_or(CUDA_SUCCESS)
    }

    fn enter<T: Waits>(
        &self,
        name: &'static str,
        door: Door,
        call: impl FnOnce(&mut State) -> Result<T>,
    ) -> CUresult {
        if exit::is_forked(name) {
            return CUDA_ERROR_NOT_INITIALIZED;
        }
        let _clock = CallClock::start();
        let mut state = self.lock(name);
        let refusal = refusal(&mut state, name, door);
        if let Some(refusal) = refusal
            && door != Door::Back
        {
            return refusal;
        }
        let pause = if state.settings.prompt { Duration::ZERO } else { state.dice.pause() };
        let result = call(&mut state);
        self.changed.notify_all();
        let result = result.and_then(|waits| self.wait(state, name, &waits.points()));
        sleep(pause);
        refusal.or(result.err()).unwrap_or(CUDA_SUCCESS)
    }

    /// The state; faults found from now on belong to `name`.
    pub fn lock(&self, name: &'static str) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.faults.during = name;
        state
    }

    /// Waits until the host sees these points done.
    fn wait(
        &self,
        state: MutexGuard<'_, State>,
        name: &'static str,
        points: &[Point],
    ) -> Result<()> {
        let mut state = self.wait_until(state, name, |state| {
            points.iter().all(|point| state.streams.is_done(point.stamp))
        })?;
        points.iter().for_each(|point| state.observe(point));
        Ok(())
    }

    /// Lets all queued work be done.
    pub fn finish(&self, name: &'static str) -> Result<()> {
        let mut state = self.lock(name);
        state.streams.hold_none();
        self.changed.notify_all();
        self.wait_until(state, name, |state| state.streams.is_idle()).map(drop)
    }

    fn wait_until<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        name: &'static str,
        is_done: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'a, State>> {
        let patience = state.settings.patience;
        let until = Instant::now() + patience;
        while !is_done(&state) {
            if state.lost {
                return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
            }
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                let what = format!("not done after {patience:?}");
                return Err(state.wrong(Kind::Stuck, CUDA_ERROR_LAUNCH_TIMEOUT, what));
            }
            (state, _) =
                self.changed.wait_timeout(state, remaining).unwrap_or_else(PoisonError::into_inner);
            state.faults.during = name;
        }
        Ok(state)
    }
}

/// Counts a call, and returns an error if it fails before it is processed.
fn refusal(state: &mut State, name: &'static str, door: Door) -> Option<CUresult> {
    match state.calls.count(name) {
        Some(How::Result(result)) => return Some(result),
        Some(How::Lost) => state.lost = true,
        None => {}
    }
    if state.lost && matches!(door, Door::Work | Door::Back) {
        return Some(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    if door != Door::Any && !state.initialised {
        let what = "cuInit was not called";
        return Some(state.wrong(Kind::BadArgument, CUDA_ERROR_NOT_INITIALIZED, what));
    }
    None
}
