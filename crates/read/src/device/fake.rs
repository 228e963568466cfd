//! A device for tests, in this process's memory. It completes copies late, out of order, or with an
//! error. It has one stream for copies, and the streams of consumers. They advance on a separate
//! thread, in any order that events allow, with random delays. The device notes everything that
//! would give wrong data on a real device.
//!
//! Memory that is freed is allocated again at once, so that work that is still queued on it is
//! noticed.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hsipack_augment::array::Stream;
use hsipack_augment::{Array, Device};

use super::backend::{Backend, DecodePlaces, DeviceMemory, GatherPlaces};
use super::decode::{Decode, Gather, decode_by_blosc, gather_by_loops};
use crate::{Error, Result};

/// The fake device. Clones are the same device.
#[derive(Clone)]
pub(super) struct Fake(Arc<World>);

struct World {
    inner: Mutex<Inner>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A queue of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Consumer(Stream),
    Copies,
    Decodes,
}

impl Queue {
    /// The consumer's default stream.
    pub(super) const CONSUMER: Self = Self::Consumer(Stream::LEGACY);
}

#[derive(Default)]
struct Inner {
    queues: Vec<(Queue, VecDeque<Op>)>,
    /// When each event was done.
    events: Vec<Option<Instant>>,
    /// Memory that is free.
    free: Vec<Span>,
    /// Starts of the memory that queued and running operations use, one entry each.
    used: Vec<usize>,
    /// Starts of the memory that queued and running copies write to.
    written: Vec<usize>,
    held: Option<Queue>,
    dice: u64,
    /// How many allocations succeed before one fails.
    until_no_memory: Option<usize>,
    /// How many of the next copies are refused.
    refused_copies: usize,
    /// How many of the next decodings are refused.
    refused_decodes: usize,
    /// How many of the next records of events on consumers' streams are refused.
    refused_records: usize,
    lost: bool,
    over: bool,
    wrong: Vec<String>,
    copied: usize,
    checked: usize,
}

/// Bytes of the fake device, never given back to the system.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    bytes: usize,
}

enum Op {
    Copy {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// A decoding, by C-Blosc instead of the kernel.
    Decode(Decode, Places),
    /// Gathering of windows: the table, the cubes, the batch.
    Gather(Gather, [usize; 3]),
    /// A copy within the device.
    Move {
        from: usize,
        to: usize,
        bytes: usize,
    },
    /// A copy to the host.
    Answer {
        from: usize,
        to: usize,
        bytes: usize,
    },
    Record(usize),
    Wait(usize),
    /// A consumer's work that reads memory of the slot that begins at `slot`.
    Read {
        slot: usize,
        start: usize,
        want: Vec<u8>,
        what: String,
    },
}

/// Addresses of a decoding.
#[derive(Clone, Copy)]
struct Places {
    chunks: usize,
    compressed: usize,
    batch: usize,
    scratch: usize,
    statuses: usize,
}

impl Places {
    /// The starts of the memory that a decoding uses. The batch, the compressed bytes and the
    /// scratch memory are allocations of their own.
    fn used(&self) -> [usize; 3] {
        [self.compressed, self.batch, self.scratch]
    }
}

/// Memory of the device.
pub(super) struct FakeMemory {
    world: Arc<World>,
    span: Span,
}

// SAFETY: the memory is never given back to the system, and never moves.
unsafe impl DeviceMemory for FakeMemory {
    fn start(&self) -> *mut u8 {
        self.span.start as *mut u8
    }

    fn bytes(&self) -> usize {
        self.span.bytes
    }
}

impl Drop for FakeMemory {
    fn drop(&mut self) {
        let mut inner = self.world.lock();
        if inner.used.contains(&self.span.start) {
            inner.wrong.push("memory is freed while the device uses it".to_owned());
        }
        inner.free.push(self.span);
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

    fn queue(&mut self, queue: Queue) -> &mut VecDeque<Op> {
        let index = self.queues.iter().position(|(name, _)| *name == queue);
        let index = index.unwrap_or_else(|| {
            self.queues.push((queue, VecDeque::new()));
            self.queues.len() - 1
        });
        &mut self.queues[index].1
    }

    fn is_idle(&self) -> bool {
        self.queues.iter().all(|(_, ops)| ops.is_empty())
    }

    /// The first operation of any queue that can go on.
    fn next(&mut self) -> Option<Op> {
        let first = self.roll() as usize;
        let count = self.queues.len();
        for index in (0..count).map(|index| (index + first) % count) {
            let (queue, ops) = &self.queues[index];
            let goes_on = match ops.front() {
                Some(Op::Wait(event)) => self.events[*event].is_some(),
                Some(_) => true,
                None => false,
            };
            if goes_on && self.held != Some(*queue) {
                return self.queues[index].1.pop_front();
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
                take_out(&mut self.written, to);
                take_out(&mut self.used, to);
                self.copied += 1;
            }
            Op::Decode(decode, places) => {
                if self.written.contains(&places.compressed) {
                    self.wrong.push("a batch is decoded while it is copied".to_owned());
                }
                // SAFETY: memory of this device is never given back, and the queued decoding may use it.
                unsafe { decode_frames(&decode, places) };
                take_out(&mut self.written, places.batch);
                places.used().into_iter().for_each(|start| take_out(&mut self.used, start));
            }
            Op::Gather(gather, [windows, cubes, batch]) => {
                // SAFETY: memory of this device is never given back, and the queued work may use it.
                unsafe {
                    gather_by_loops(
                        &gather,
                        windows as *const _,
                        cubes as *const u8,
                        batch as *mut u8,
                    );
                }
                take_out(&mut self.written, batch);
                [cubes, batch].into_iter().for_each(|start| take_out(&mut self.used, start));
            }
            Op::Move { from, to, bytes } | Op::Answer { from, to, bytes } => {
                // SAFETY: as for copies.
                unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
            }
            Op::Record(event) => self.events[event] = Some(Instant::now()),
            Op::Wait(_) => {}
            Op::Read { slot, start, want, what } => {
                if self.written.contains(&slot) && !self.is_fenced(slot) {
                    self.wrong.push(format!("{what} is read while it may be written"));
                }
                // SAFETY: memory of this device is never given back, and only this thread writes to it.
                let have = unsafe { std::slice::from_raw_parts(start as *const u8, want.len()) };
                if have != want {
                    self.wrong.push(format!("{what} holds other bytes"));
                }
                take_out(&mut self.used, slot);
                self.checked += 1;
            }
        }
    }

    /// Whether the queued copy to `start` comes after an event that is not done yet, so that it
    /// cannot begin.
    fn is_fenced(&self, start: usize) -> bool {
        let mut waits;
        for (queue, ops) in &self.queues {
            if !matches!(queue, Queue::Copies | Queue::Decodes) {
                continue;
            }
            waits = false;
            for op in ops {
                match op {
                    Op::Wait(event) => waits |= self.events[*event].is_none(),
                    Op::Copy { to, .. } if *to == start => return waits,
                    Op::Decode(_, places) if places.batch == start => return waits,
                    Op::Gather(_, [_, _, batch]) if *batch == start => return waits,
                    _ => {}
                }
            }
        }
        false
    }

    /// Returns an error as long as `remaining` is not 0, and counts it down.
    fn refuses(remaining: &mut usize) -> Result<()> {
        if *remaining == 0 {
            return Ok(());
        }
        *remaining -= 1;
        Err(Error::device("the device refuses: FAKE"))
    }

    fn check(&self) -> Result<()> {
        if self.lost { Err(Error::device("the device is lost: FAKE")) } else { Ok(()) }
    }
}

fn take_out(starts: &mut Vec<usize>, start: usize) {
    let index = starts.iter().position(|other| *other == start);
    starts.swap_remove(index.expect("noted when it was queued"));
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

    /// Queues work on the consumer's stream that reads the bytes of an array and compares them.
    pub(super) fn read(&self, array: &Array, want: Vec<u8>, what: impl Into<String>) {
        self.read_on(Stream::LEGACY, array, want, what);
    }

    /// The same on another stream.
    pub(super) fn read_on(
        &self,
        stream: Stream,
        array: &Array,
        want: Vec<u8>,
        what: impl Into<String>,
    ) {
        let (slot, start) = (array.memory().start() as usize, array.address() as usize);
        let op = Op::Read { slot, start, want, what: what.into() };
        self.change(|inner| {
            inner.used.push(slot);
            inner.queue(Queue::Consumer(stream)).push_back(op);
        });
    }

    /// Makes a queue stand still. With `None`, all queues go on.
    pub(super) fn hold(&self, queue: Option<Queue>) {
        self.change(|inner| inner.held = queue);
    }

    /// Makes memory run out once, after this many allocations.
    pub(super) fn no_memory_after(&self, allocations: usize) {
        self.change(|inner| inner.until_no_memory = Some(allocations));
    }

    /// Makes this many of the next copies fail, without being queued.
    pub(super) fn refuse_copies(&self, count: usize) {
        self.change(|inner| inner.refused_copies = count);
    }

    /// Makes this many of the next decodings fail, without being queued.
    pub(super) fn refuse_decodes(&self, count: usize) {
        self.change(|inner| inner.refused_decodes = count);
    }

    /// Makes this many of the next records of consumers' events fail.
    pub(super) fn refuse_records(&self, count: usize) {
        self.change(|inner| inner.refused_records = count);
    }

    /// Makes every call fail from now on.
    pub(super) fn lose(&self) {
        self.change(|inner| inner.lost = true);
    }

    /// How many copies and how many reads are done.
    pub(super) fn done(&self) -> (usize, usize) {
        let inner = self.0.lock();
        (inner.copied, inner.checked)
    }

    /// Waits until `done` returns true.
    pub(super) fn wait_until(&self, done: impl Fn((usize, usize)) -> bool) {
        let start = std::time::Instant::now();
        while !done(self.done()) {
            assert!(start.elapsed() < Duration::from_secs(20), "it never happens");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Lets everything that is queued finish, and checks that nothing was wrong.
    pub(super) fn finish_all(&self) {
        let mut inner = self.0.lock();
        inner.held = None;
        self.0.changed.notify_all();
        while !inner.is_idle() {
            let (guard, timeout) = self
                .0
                .changed
                .wait_timeout(inner, Duration::from_secs(20))
                .unwrap_or_else(PoisonError::into_inner);
            inner = guard;
            assert!(!timeout.timed_out(), "streams wait for each other");
        }
        let queues: Vec<Queue> = inner.queues.iter().map(|(queue, _)| *queue).collect();
        drop(inner);
        // The last operation may still be running: wait for an event after it.
        for queue in queues {
            let event = self.record_in(queue);
            self.wait_for(event);
        }
        let inner = self.0.lock();
        assert!(inner.wrong.is_empty(), "{:?}", inner.wrong);
    }

    /// Ends the device's thread.
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

    fn record_in(&self, queue: Queue) -> usize {
        let mut inner = self.0.lock();
        let event = inner.events.len();
        inner.events.push(None);
        inner.queue(queue).push_back(Op::Record(event));
        self.0.changed.notify_all();
        event
    }

    fn wait_for(&self, event: usize) {
        let mut inner = self.0.lock();
        while inner.events[event].is_none() && !inner.lost {
            inner = self.0.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Backend for Fake {
    type Event = usize;
    type Memory = FakeMemory;

    fn device(&self) -> Device {
        Device::Cpu
    }

    fn number(&self) -> Option<usize> {
        None
    }

    fn free_memory(&self) -> Result<u64> {
        self.0.lock().check()?;
        Ok(1 << 30)
    }

    fn allocate(&self, bytes: usize) -> Result<FakeMemory> {
        let mut inner = self.0.lock();
        inner.check()?;
        inner.until_no_memory = match inner.until_no_memory {
            Some(0) => {
                inner.until_no_memory = None;
                return Err(Error::device_memory("the device is out of memory: FAKE")
                    .with_remedy("use smaller batches or crops"));
            }
            remaining => remaining.map(|count| count - 1),
        };
        let fits = inner.free.iter().position(|span| span.bytes == bytes);
        let span = match fits {
            Some(index) => inner.free.swap_remove(index),
            None => Span { start: vec![0xAB_u8; bytes].leak().as_mut_ptr() as usize, bytes },
        };
        drop(inner);
        Ok(FakeMemory { world: self.0.clone(), span })
    }

    fn record(&self, stream: Stream) -> Result<usize> {
        let mut inner = self.0.lock();
        inner.check()?;
        Inner::refuses(&mut inner.refused_records)?;
        drop(inner);
        Ok(self.record_in(Queue::Consumer(stream)))
    }

    fn wait(&self, stream: Stream, event: &usize) -> Result<()> {
        self.0.lock().check()?;
        self.change(|inner| inner.queue(Queue::Consumer(stream)).push_back(Op::Wait(*event)));
        Ok(())
    }

    fn wait_on_copies(&self, event: &usize) -> Result<()> {
        self.0.lock().check()?;
        self.change(|inner| inner.queue(Queue::Copies).push_back(Op::Wait(*event)));
        Ok(())
    }

    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        let mut inner = self.0.lock();
        inner.check()?;
        Inner::refuses(&mut inner.refused_copies)?;
        let (from, to) = (from as usize, to as usize);
        inner.written.push(to);
        inner.used.push(to);
        inner.queue(Queue::Copies).push_back(Op::Copy { from, to, bytes });
        let delay = inner.roll() % 3;
        self.0.changed.notify_all();
        drop(inner);
        // Other threads may act between this call and the next.
        std::thread::sleep(Duration::from_micros(80 * delay));
        Ok(())
    }

    fn copied(&self) -> Result<usize> {
        self.0.lock().check()?;
        Ok(self.record_in(Queue::Copies))
    }

    fn prepare_decoding(&self) -> Result<()> {
        self.0.lock().check()
    }

    fn wait_on_decodes(&self, event: &usize) -> Result<()> {
        self.0.lock().check()?;
        self.change(|inner| inner.queue(Queue::Decodes).push_back(Op::Wait(*event)));
        Ok(())
    }

    unsafe fn queue_decode(&self, decode: &Decode, at: &DecodePlaces) -> Result<()> {
        let mut inner = self.0.lock();
        inner.check()?;
        Inner::refuses(&mut inner.refused_decodes)?;
        let places = Places {
            chunks: at.chunks as usize,
            compressed: at.compressed as usize,
            batch: at.batch as usize,
            scratch: at.scratch as usize,
            statuses: at.statuses as usize,
        };
        inner.written.push(places.batch);
        inner.used.extend(places.used());
        inner.queue(Queue::Decodes).push_back(Op::Decode(*decode, places));
        self.0.changed.notify_all();
        Ok(())
    }

    unsafe fn queue_gather(&self, gather: &Gather, at: &GatherPlaces) -> Result<()> {
        let mut inner = self.0.lock();
        inner.check()?;
        Inner::refuses(&mut inner.refused_decodes)?;
        let places = [at.windows as usize, at.cubes as usize, at.batch as usize];
        inner.written.push(places[2]);
        inner.used.extend(&places[1..]);
        inner.queue(Queue::Decodes).push_back(Op::Gather(*gather, places));
        self.0.changed.notify_all();
        Ok(())
    }

    unsafe fn queue_move(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        self.0.lock().check()?;
        let (from, to) = (from as usize, to as usize);
        self.change(|inner| {
            inner.queue(Queue::Decodes).push_back(Op::Move { from, to, bytes });
        });
        Ok(())
    }

    unsafe fn queue_answers(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        self.0.lock().check()?;
        let (from, to) = (from as usize, to as usize);
        self.change(|inner| {
            inner.queue(Queue::Decodes).push_back(Op::Answer { from, to, bytes });
        });
        Ok(())
    }

    fn decoded(&self) -> Result<usize> {
        self.0.lock().check()?;
        Ok(self.record_in(Queue::Decodes))
    }

    fn seconds_between(&self, from: &usize, to: &usize) -> Option<f64> {
        let inner = self.0.lock();
        let (from, to) = (inner.events[*from]?, inner.events[*to]?);
        Some((to - from).as_secs_f64())
    }

    fn finish(&self, event: &usize) -> Result<()> {
        self.wait_for(*event);
        self.0.lock().check()
    }
}

/// Does the kernel's work.
///
/// # Safety
/// The memory at these places must be as large as `decode` and the table of chunks say, and nobody
/// may use it meanwhile.
unsafe fn decode_frames(decode: &Decode, places: Places) {
    let Places { chunks, compressed, batch, scratch, statuses } = places;
    // SAFETY: the caller is responsible; the scratch memory is written to as the kernel does.
    unsafe {
        std::ptr::write_bytes(scratch as *mut u8, 0x5A, decode.scratch_bytes() as usize);
        decode_by_blosc(
            decode,
            chunks as *const _,
            compressed as *const u8,
            batch as *mut u8,
            statuses as *mut u32,
        );
    }
}
