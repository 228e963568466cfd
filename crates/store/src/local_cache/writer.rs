//! The thread that writes blocks, so that no reader waits for the disk. It works in the background:
//! in the first epoch, the processors are for decoding.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::span_pool::SpanBytes;
use crate::{memory, threads, writeback};

/// Maximum number of bytes that wait to be written, or a sixteenth of the available memory if that
/// is less (every process of a node has its own queue). Blocks that arrive while the queue is full
/// are not kept, because a disk that is slower than the link must not delay readers. They can be
/// kept in the next epoch, but then they are fetched a second time.
const MAX_QUEUE_BYTES: u64 = 2 << 30;
/// How long the waiting blocks are still written after the last reader is closed. Then the rest is
/// dropped: a program must not be kept from ending for long by a slow disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of a block to be written, and its bytes.
type Job = (u32, Arc<SpanBytes>);

/// The bytes of blocks, by number.
type Waiting = HashMap<u32, Arc<SpanBytes>>;

/// Waiting blocks, and the thread that writes them. It starts with the first block.
#[derive(Debug)]
pub(super) struct Writer {
    most: u64,
    patience: Duration,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Signals that a block was added or written, or that the writer was closed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Total size of the jobs in bytes.
    bytes: u64,
    /// The blocks of the jobs, and the blocks that are being written.
    waiting: Waiting,
    /// Once the writer is closed: when the remaining jobs are dropped.
    ends: Option<Instant>,
}

impl Writer {
    pub(super) fn new() -> Self {
        let free = memory::available().map_or(u64::MAX, |available| available.bytes);
        let most = MAX_QUEUE_BYTES.min(free / 16);
        Self { most, patience: FLUSH_TIMEOUT, shared: Arc::default(), thread: Mutex::default() }
    }

    /// Queues a block to be written with `write`. Returns `false` if too many bytes wait.
    pub(super) fn add(
        &self,
        block: u32,
        bytes: &Arc<SpanBytes>,
        write: impl Fn(u32, &[u8]) + Send + 'static,
    ) -> bool {
        let mut queue = self.shared.lock();
        if queue.waiting.contains_key(&block) {
            // The same block was fetched twice.
            return true;
        }
        if queue.bytes + bytes.len() as u64 > self.most || queue.ends.is_some() {
            return false;
        }
        queue.waiting.insert(block, bytes.clone());
        queue.bytes += bytes.len() as u64;
        queue.jobs.push_back((block, bytes.clone()));
        drop(queue);
        self.shared.changed.notify_all();
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            // If the system refuses the thread, blocks are written only by `flush`.
            let work = move || {
                writeback::in_background();
                shared.work(&write);
            };
            *thread = threads::start("hsipack-cache", work).ok();
        }
        true
    }

    /// The bytes of a block that is not yet written.
    pub(super) fn waiting(&self, block: u32) -> Option<Arc<SpanBytes>> {
        self.shared.lock().waiting.get(&block).cloned()
    }

    /// Waits until all blocks are written.
    pub(super) fn flush(&self, write: impl Fn(u32, &[u8])) {
        while let Some(job) = { self.shared.lock().next() } {
            self.shared.run(job, &write);
        }
        let mut queue = self.shared.lock();
        // Blocks that are being written. Others may have been added meanwhile.
        while queue.waiting.len() > queue.jobs.len() {
            queue = self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.lock().ends = Some(Instant::now() + self.patience);
        self.shared.changed.notify_all();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // The thread returns nothing.
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

    /// Writes blocks until the writer is dropped and none are left, or its patience is over.
    fn work(&self, write: &dyn Fn(u32, &[u8])) {
        loop {
            let job = {
                let mut queue = self.lock();
                loop {
                    if queue.ends.is_some_and(|ends| Instant::now() >= ends) {
                        return;
                    }
                    if let Some(job) = queue.next() {
                        break job;
                    }
                    if queue.ends.is_some() {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// How many of `jobs` blocks a writer with this patience has written when it is gone. Each
    /// takes 1 ms.
    fn written(jobs: u32, patience: Duration) -> u32 {
        let count = Arc::new(AtomicU32::new(0));
        let mut writer = Writer::new();
        writer.patience = patience;
        for block in 0..jobs {
            let count = count.clone();
            assert!(writer.add(block, &Arc::new(SpanBytes::of(&[0])), move |_, _| {
                std::thread::sleep(Duration::from_millis(1));
                count.fetch_add(1, Ordering::Relaxed);
            }));
        }
        drop(writer);
        count.load(Ordering::Relaxed)
    }

    #[test]
    fn a_program_that_ends_waits_for_the_disk_but_not_for_long() {
        assert_eq!(written(20, FLUSH_TIMEOUT), 20);
        // 10 s of writing.
        assert!(written(10_000, Duration::ZERO) < 10_000);
    }
}
