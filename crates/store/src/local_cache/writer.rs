//! The thread that writes blocks, so that nobody who reads waits for the disk.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::{memory, threads};

/// Bytes that wait to be written, at most, or an eighth of the memory that is free if that is less. What comes while so many
/// wait is not kept: a disk that is slower than the link must not hold up those who read. The next epoch keeps it.
const MOST: u64 = 512 << 20;

/// A block to be written, and its bytes.
type Job = (u32, Arc<Vec<u8>>);

/// Blocks by their numbers, and their bytes.
type Waiting = HashMap<u32, Arc<Vec<u8>>>;

/// Blocks that wait, and the thread that writes them; it starts with the first one.
#[derive(Debug)]
pub(super) struct Writer {
    most: u64,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is more to write, or nothing any more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Bytes of the jobs.
    bytes: u64,
    /// The jobs' blocks, and those that are being written.
    waiting: Waiting,
    closed: bool,
}

impl Writer {
    pub(super) fn new() -> Self {
        let free = memory::available().map_or(u64::MAX, |available| available.bytes);
        Self { most: MOST.min(free / 8), shared: Arc::default(), thread: Mutex::default() }
    }

    /// Has a block written by `write`, unless too many wait: then `false`.
    pub(super) fn add(
        &self,
        block: u32,
        bytes: &Arc<Vec<u8>>,
        write: impl Fn(u32, &[u8]) + Send + 'static,
    ) -> bool {
        let mut queue = self.shared.lock();
        if queue.bytes + bytes.len() as u64 > self.most || queue.closed {
            return false;
        }
        if queue.waiting.insert(block, bytes.clone()).is_some() {
            // It was fetched once more.
            return true;
        }
        queue.bytes += bytes.len() as u64;
        queue.jobs.push_back((block, bytes.clone()));
        drop(queue);
        self.shared.changed.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            // Where it is refused, nothing is written until somebody waits for it.
            *thread = threads::start("hsipack-cache", move || shared.work(&write)).ok();
        }
        true
    }

    /// The bytes of a block that is not written yet.
    pub(super) fn waiting(&self, block: u32) -> Option<Arc<Vec<u8>>> {
        self.shared.lock().waiting.get(&block).cloned()
    }

    /// Waits until all is written.
    pub(super) fn flush(&self, write: impl Fn(u32, &[u8])) {
        while let Some(job) = { self.shared.lock().next() } {
            self.shared.run(job, &write);
        }
        let mut queue = self.shared.lock();
        while !queue.waiting.is_empty() {
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn next(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.bytes -= job.1.len() as u64;
        Some(job)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until the writer is dropped and nothing is left.
    fn work(&self, write: &dyn Fn(u32, &[u8])) {
        loop {
            let job = {
                let mut queue = self.lock();
                loop {
                    if let Some(job) = queue.next() {
                        break job;
                    }
                    if queue.closed {
                        return;
                    }
                    queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            };
            self.run(job, write);
        }
    }

    fn run(&self, (block, bytes): Job, write: &dyn Fn(u32, &[u8])) {
        write(block, &bytes);
        self.lock().waiting.remove(&block);
        self.changed.notify_all();
    }
}
