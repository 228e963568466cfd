//! A device of the tests, in this process's memory. Its two streams, the consumer's and that for copies, advance on a
//! thread of their own, in any order that events allow, with random delays; and it notes whatever a real device
//! would make wrong data of.
//!
//! Memory that is freed is taken again at once, as libtorch's allocator does for a stream of its own: what was queued
//! on the consumer's stream may still read it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tch::{Device, Kind, Tensor};

use super::backend::Backend;
use crate::torch::tensor_over;
use crate::{Error, Result};

/// The fake device; clones are the same one.
#[derive(Clone)]
pub(super) struct Fake(Arc<World>);

struct World {
    inner: Mutex<Inner>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Consumer,
    Copies,
}

#[derive(Default)]
struct Inner {
    consumer: VecDeque<Op>,
    copies: VecDeque<Op>,
    /// Which events are done.
    events: Vec<bool>,
    /// Memory that is free: start and length.
    free: Vec<Memory>,
    /// Copies that are queued or running.
    written: Vec<Written>,
    held: Option<Stream>,
    dice: u64,
    /// Allocations until memory is out, which is one allocation long.
    until_no_memory: Option<usize>,
    lost: bool,
    over: bool,
    wrong: Vec<String>,
    copied: usize,
    checked: usize,
}

/// A copy that is queued or running.
struct Written {
    start: usize,
    /// The first event behind it.
    event: Option<usize>,
    /// The consumer's stream was told to wait for it.
    ordered: bool,
}

/// Bytes of the fake device, never given back to the system.
#[derive(Clone, Copy)]
struct Memory {
    start: usize,
    bytes: usize,
}

enum Op {
    Copy {
        from: usize,
        to: usize,
        bytes: usize,
    },
    Record(usize),
    Wait(usize),
    /// Work that reads memory.
    Read {
        start: usize,
        want: Vec<u8>,
        what: String,
    },
}

/// Frees memory when the last tensor over it is gone.
struct Owner {
    world: Arc<World>,
    memory: Memory,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut inner = self.world.lock();
        // Whoever gets it next may write on the consumer's stream at once.
        if inner.written.iter().any(|copy| copy.start == self.memory.start && !copy.ordered) {
            inner.wrong.push("memory is freed under a copy".to_owned());
        }
        inner.free.push(self.memory);
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut inner = self.lock();
        while !inner.over {
            let Some(op) = inner.next() else {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let delay = inner.roll() % 4;
            drop(inner);
            if delay > 0 {
                std::thread::sleep(Duration::from_micros(60 * delay));
            }
            inner = self.lock();
            inner.perform(op);
            self.changed.notify_all();
        }
    }
}

impl Inner {
    fn roll(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice
    }

    fn queue(&mut self, stream: Stream) -> &mut VecDeque<Op> {
        match stream {
            Stream::Consumer => &mut self.consumer,
            Stream::Copies => &mut self.copies,
        }
    }

    /// The first operation of a stream that may go on, of both if both may.
    fn next(&mut self) -> Option<Op> {
        let mut streams = [Stream::Consumer, Stream::Copies];
        if self.roll().is_multiple_of(2) {
            streams.reverse();
        }
        for stream in streams {
            let waits_for = match self.queue(stream).front() {
                Some(Op::Wait(event)) => Some(*event),
                Some(_) => None,
                None => continue,
            };
            let goes_on = waits_for.is_none_or(|event| self.events[event]);
            if goes_on && self.held != Some(stream) {
                return self.queue(stream).pop_front();
            }
        }
        None
    }

    fn perform(&mut self, op: Op) {
        match op {
            Op::Copy { from, to, bytes } => {
                // SAFETY: the transfer promises both to live until an event behind this is done; host memory of the
                // tests and memory of this device are never given back at all.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
                let place = self.written.iter().position(|copy| copy.start == to);
                self.written.swap_remove(place.expect("noted when it was queued"));
                self.copied += 1;
            }
            Op::Record(event) => self.events[event] = true,
            Op::Wait(_) => {}
            Op::Read { start, want, what } => {
                if self.is_written(start) && !self.is_fenced(start) {
                    self.wrong.push(format!("{what} is read while it may be written"));
                }
                // SAFETY: memory of this device is never given back, and only this thread writes to it.
                let have = unsafe { std::slice::from_raw_parts(start as *const u8, want.len()) };
                if have != want {
                    self.wrong.push(format!("{what} holds other bytes"));
                }
                self.checked += 1;
            }
        }
    }

    fn is_written(&self, start: usize) -> bool {
        self.written.iter().any(|copy| copy.start == start)
    }

    /// Whether the queued copy to `start` stands behind an event that is not done yet: then it cannot begin.
    fn is_fenced(&self, start: usize) -> bool {
        let mut waits = false;
        for op in &self.copies {
            match op {
                Op::Wait(event) => waits |= !self.events[*event],
                Op::Copy { to, .. } if *to == start => return waits,
                _ => {}
            }
        }
        false
    }

    fn check(&self) -> Result<()> {
        if self.lost { Err(Error::device("the device is lost: FAKE")) } else { Ok(()) }
    }
}

impl Fake {
    pub(super) fn new(seed: u64) -> Self {
        let inner =
            Inner { dice: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, ..Inner::default() };
        let world = Arc::new(World {
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            thread: Mutex::default(),
        });
        let running = world.clone();
        *world.thread.lock().unwrap() = Some(std::thread::spawn(move || running.run()));
        Self(world)
    }

    /// Queues work on the consumer's stream that reads a tensor's bytes and compares them.
    pub(super) fn read(&self, tensor: &Tensor, want: Vec<u8>, what: impl Into<String>) {
        let start = tensor.data_ptr() as usize;
        self.change(|inner| inner.consumer.push_back(Op::Read { start, want, what: what.into() }));
    }

    /// Has a stream stand still, or none.
    pub(super) fn hold(&self, stream: Option<Stream>) {
        self.change(|inner| inner.held = stream);
    }

    /// Memory is out once after so many allocations.
    pub(super) fn no_memory_after(&self, allocations: usize) {
        self.change(|inner| inner.until_no_memory = Some(allocations));
    }

    /// Every call fails from now on.
    pub(super) fn lose(&self) {
        self.change(|inner| inner.lost = true);
    }

    /// Copies done, and reads done.
    pub(super) fn done(&self) -> (usize, usize) {
        let inner = self.0.lock();
        (inner.copied, inner.checked)
    }

    /// Waits until `done` says so.
    pub(super) fn wait_until(&self, done: impl Fn((usize, usize)) -> bool) {
        let start = std::time::Instant::now();
        while !done(self.done()) {
            assert!(start.elapsed() < Duration::from_secs(20), "it never happens");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Lets everything that is queued be done, and says what was wrong.
    pub(super) fn finish_all(&self) {
        let mut inner = self.0.lock();
        inner.held = None;
        self.0.changed.notify_all();
        while !(inner.consumer.is_empty() && inner.copies.is_empty()) {
            let (guard, timeout) = self
                .0
                .changed
                .wait_timeout(inner, Duration::from_secs(20))
                .unwrap_or_else(PoisonError::into_inner);
            inner = guard;
            assert!(!timeout.timed_out(), "streams wait for each other");
        }
        drop(inner);
        // The last operation may be under way: an event behind it.
        let event = self.record(Stream::Consumer);
        self.wait_for(event);
        let event = self.record(Stream::Copies);
        self.wait_for(event);
        let inner = self.0.lock();
        assert!(inner.wrong.is_empty(), "{:?}", inner.wrong);
    }

    /// Ends its thread.
    pub(super) fn end(&self) {
        self.change(|inner| inner.over = true);
        if let Some(thread) = self.0.thread.lock().unwrap().take() {
            thread.join().unwrap();
        }
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.0.lock());
        self.0.changed.notify_all();
    }

    fn record(&self, stream: Stream) -> usize {
        let mut inner = self.0.lock();
        let event = inner.events.len();
        inner.events.push(false);
        inner.queue(stream).push_back(Op::Record(event));
        if stream == Stream::Copies {
            for copy in &mut inner.written {
                copy.event.get_or_insert(event);
            }
        }
        self.0.changed.notify_all();
        event
    }

    fn wait_for(&self, event: usize) {
        let mut inner = self.0.lock();
        while !inner.events[event] && !inner.lost {
            inner = self.0.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Backend for Fake {
    type Event = usize;

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn allocate(&self, bytes: usize) -> Result<Tensor> {
        let mut inner = self.0.lock();
        inner.check()?;
        inner.until_no_memory = match inner.until_no_memory {
            Some(0) => {
                inner.until_no_memory = None;
                return Err(Error::device("the device is out of memory: FAKE")
                    .with_remedy("use smaller batches or crops"));
            }
            left => left.map(|left| left - 1),
        };
        let fits = inner.free.iter().position(|memory| memory.bytes == bytes);
        let memory = match fits {
            Some(place) => inner.free.swap_remove(place),
            None => Memory { start: vec![0xAB_u8; bytes].leak().as_mut_ptr() as usize, bytes },
        };
        drop(inner);
        let owner = Owner { world: self.0.clone(), memory };
        // SAFETY: the memory is never given back; who writes when is what is tested.
        unsafe { tensor_over(memory.start as *mut u8, &[bytes as i64], Kind::Uint8, owner) }
    }

    fn lend(&self, _: &Tensor) -> Result<()> {
        self.0.lock().check()
    }

    fn fence(&self) -> Result<usize> {
        self.0.lock().check()?;
        Ok(self.record(Stream::Consumer))
    }

    fn wait_on_caller(&self, event: &usize) -> Result<()> {
        self.0.lock().check()?;
        self.change(|inner| {
            inner.consumer.push_back(Op::Wait(*event));
            for copy in &mut inner.written {
                copy.ordered |= copy.event.is_some_and(|behind| behind <= *event);
            }
        });
        Ok(())
    }

    fn wait_on_copies(&self, event: &usize) -> Result<()> {
        self.0.lock().check()?;
        self.change(|inner| inner.copies.push_back(Op::Wait(*event)));
        Ok(())
    }

    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        let mut inner = self.0.lock();
        inner.check()?;
        let (from, to) = (from as usize, to as usize);
        inner.written.push(Written { start: to, event: None, ordered: false });
        inner.copies.push_back(Op::Copy { from, to, bytes });
        let delay = inner.roll() % 3;
        self.0.changed.notify_all();
        drop(inner);
        // Whatever others do between this call and the next.
        std::thread::sleep(Duration::from_micros(80 * delay));
        Ok(())
    }

    fn copied(&self) -> Result<usize> {
        self.0.lock().check()?;
        Ok(self.record(Stream::Copies))
    }

    fn finish(&self, event: &usize) -> Result<()> {
        self.wait_for(*event);
        self.0.lock().check()
    }
}
