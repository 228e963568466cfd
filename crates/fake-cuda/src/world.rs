//! The global state of the stand-in, and the entry points of all calls.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::CUresult::{
    self, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT, CUDA_ERROR_NOT_INITIALIZED,
    CUDA_SUCCESS,
};
use crate::abi::Result;
use crate::calls::{Calls, How};
use crate::contexts::Contexts;
use crate::events::Events;
use crate::exit;
use crate::faults::{Faults, Kind};
use crate::host::HostMemory;
use crate::memory::DeviceMemory;
use crate::order::{Clock, Point};
use crate::settings::{Dice, Settings};
use crate::streams::Streams;

/// The state, and a signal that it changed.
pub struct World {
    state: Mutex<State>,
    changed: Condvar,
}

/// Everything that the stand-in knows.
pub struct State {
    pub settings: Settings,
    pub dice: Dice,
    pub faults: Faults,
    pub calls: Calls,
    pub initialised: bool,
    /// The device is lost: calls that work with it fail, no more work is done, and nothing is a fault any more.
    pub lost: bool,
    /// The process is ending.
    pub over: bool,
    pub contexts: Contexts,
    pub streams: Streams,
    pub events: Events,
    pub memory: DeviceMemory,
    pub host: HostMemory,
    /// Everything that the host has waited for, in any thread; all work queued from now on comes after it. Which
    /// threads have informed which others cannot be known here.
    pub seen: Clock,
}

/// The caller of a function.
#[derive(Clone, Copy)]
pub struct Caller {
    pub thread: usize,
    /// The current context.
    pub context: usize,
}

/// What a call requires.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Door {
    /// Nothing.
    Any,
    /// `cuInit` was called.
    Device,
    /// Also a current context, and a device that is not lost.
    Work,
    /// The same, for a call that gives something back. It does so even if it fails: the driver's errors then come from
    /// earlier work.
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

/// The global state; the first call starts the device's thread.
pub fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        exit::prepare();
        let builder = std::thread::Builder::new().name("fake-cuda".to_owned());
        builder.spawn(|| run()).expect("a thread for the fake device");
        World { state: Mutex::new(State::new(Settings::of_environment())), changed: Condvar::new() }
    })
}

/// The device's thread, which executes queued work. A panic ends the process.
extern "C" fn run() {
    const NAME: &str = "the device";
    let world = world();
    let mut state = world.lock(NAME);
    while !state.over {
        let Some(stream) = state.next_stream() else {
            state = world.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.faults.during = NAME;
            continue;
        };
        let delay = state.dice.delay();
        drop(state);
        sleep(delay);
        state = world.lock(NAME);
        if !state.lost
            && !state.over
            && let Some(operation) = state.streams.take(stream)
        {
            state.perform(operation);
            world.changed.notify_all();
        }
    }
}

fn sleep(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

/// The number of the calling thread.
pub fn thread() -> usize {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: Cell<usize> = const { Cell::new(0) });
    if OWN.get() == 0 {
        OWN.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
    }
    OWN.get()
}

/// A call that may be made at any time.
pub fn any(name: &'static str, call: impl FnOnce(&mut State) -> Result<()>) -> CUresult {
    enter(name, Door::Any, call)
}

/// A call that asks for devices, or changes a thread's current context.
pub fn device(name: &'static str, call: impl FnOnce(&mut State, usize) -> Result<()>) -> CUresult {
    enter(name, Door::Device, |state| call(state, thread()))
}

/// A call that works in the current context.
pub fn work<T: Waits>(
    name: &'static str,
    call: impl FnOnce(&mut State, Caller) -> Result<T>,
) -> CUresult {
    enter(name, Door::Work, |state| in_context(state, call))
}

/// A call that gives back something of a context.
pub fn back(name: &'static str, call: impl FnOnce(&mut State, Caller) -> Result<()>) -> CUresult {
    enter(name, Door::Back, |state| in_context(state, call))
}

fn in_context<T>(
    state: &mut State,
    call: impl FnOnce(&mut State, Caller) -> Result<T>,
) -> Result<T> {
    let thread = thread();
    let context = state.demand_context(thread)?;
    call(state, Caller { thread, context })
}

/// A call made by a test.
pub fn control(name: &'static str, call: impl FnOnce(&mut State) -> Result<()>) -> CUresult {
    let world = world();
    let result = call(&mut world.lock(name));
    world.changed.notify_all();
    result.err().unwrap_or(CUDA_SUCCESS)
}

fn enter<T: Waits>(
    name: &'static str,
    door: Door,
    call: impl FnOnce(&mut State) -> Result<T>,
) -> CUresult {
    if exit::is_forked(name) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    let world = world();
    let mut state = world.lock(name);
    let refusal = state.refusal(name, door);
    if let Some(refusal) = refusal
        && door != Door::Back
    {
        return refusal;
    }
    let pause = state.dice.pause();
    let result = call(&mut state);
    world.changed.notify_all();
    let result = result.and_then(|waits| world.wait(state, name, &waits.points()));
    sleep(pause);
    refusal.or(result.err()).unwrap_or(CUDA_SUCCESS)
}

impl World {
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
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let what = format!("not done after {patience:?}");
                return Err(state.wrong(Kind::Stuck, CUDA_ERROR_LAUNCH_TIMEOUT, what));
            }
            (state, _) =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state.faults.during = name;
        }
        Ok(state)
    }
}

impl State {
    fn new(settings: Settings) -> Self {
        let mut calls = Calls::default();
        settings.fail.iter().for_each(|order| calls.order(order.clone()));
        Self {
            dice: Dice::new(settings.seed),
            contexts: Contexts::new(settings.devices, settings.memory),
            settings,
            calls,
            faults: Faults::default(),
            initialised: false,
            lost: false,
            over: false,
            streams: Streams::default(),
            events: Events::default(),
            memory: DeviceMemory::default(),
            host: HostMemory::default(),
            seen: Clock::default(),
        }
    }

    /// Counts a call, and returns an error if it fails before it is processed.
    fn refusal(&mut self, name: &'static str, door: Door) -> Option<CUresult> {
        match self.calls.count(name) {
            Some(How::Result(result)) => return Some(result),
            Some(How::Lost) => self.lost = true,
            None => {}
        }
        if self.lost && matches!(door, Door::Work | Door::Back) {
            return Some(CUDA_ERROR_ILLEGAL_ADDRESS);
        }
        if door != Door::Any && !self.initialised {
            let what = "cuInit was not called";
            return Some(self.wrong(Kind::BadArgument, CUDA_ERROR_NOT_INITIALIZED, what));
        }
        None
    }

    /// One of the streams whose next operation can begin.
    fn next_stream(&mut self) -> Option<usize> {
        let ready = self.streams.ready();
        if ready.is_empty() || self.lost {
            return None;
        }
        Some(ready[self.dice.roll(ready.len() as u64) as usize])
    }

    /// Reports a fault.
    pub fn note(&mut self, kind: Kind, what: impl Display) {
        if !self.lost {
            self.faults.note(kind, what);
        }
    }

    /// Reports a fault of a call that fails.
    pub fn wrong(&mut self, kind: Kind, result: CUresult, what: impl Display) -> CUresult {
        self.note(kind, what);
        result
    }
}
