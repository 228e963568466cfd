//! Reads ahead into the page cache, with threads that read files from front to back.
//!
//! Advice (`MADV_WILLNEED`, `POSIX_FADV_WILLNEED`) fills the cache page by page. On a disk with a
//! sequential read rate of 1620 MB/s, it reached 810–920 MB/s and took three times the processor
//! time. The system's own read-ahead begins when a program reads sequentially, and works in large
//! folios and far ahead. So threads read the files sequentially: the bytes they read are discarded,
//! but the pages stay in the cache. Bytes that are already cached are not read again. There are a
//! few threads, so that the disk has work while one thread waits for a processor.
//!
//! A reader that needs bytes that were requested waits until a thread has read them
//! ([`PagePrefetcher::wait_for`]). Page faults in between would send requests of their own, and
//! interrupt the sequential read that makes the disk fast.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::buffer::PAGE;

/// Reads spans into the page cache, in the order in which they were requested. The threads start
/// with the first span, and end when the `PagePrefetcher` is dropped.
#[derive(Debug, Default)]
pub(super) struct PagePrefetcher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process that started the threads; 0 before. Forked children have none of its threads,
    /// and its locks may be held for ever in them.
    process: AtomicU32,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    /// Signals that a thread has made progress.
    progress: Condvar,
    /// Number of spans requested and not yet read. While it is 0, readers need not look into the
    /// queue.
    pending: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    spans: VecDeque<(Arc<Path>, Range<u64>)>,
    /// For each thread, the rest of the span that it reads.
    current: [Option<(Arc<Path>, Range<u64>)>; THREADS],
    /// The threads have to end.
    closed: bool,
    /// A thread could not be started, so nothing is read ahead.
    broken: bool,
}

/// Number of threads.
const THREADS: usize = 2;
/// Bytes read at once.
const PIECE: u64 = 1 << 20;
/// Maximum number of bytes that one thread reads in sequence, so that another thread can read too.
const SEQUENCE: u64 = 16 << 20;
/// Number of files that a thread keeps open.
const OPEN_FILES: usize = 8;
/// Maximum number of spans in the queue. Beyond that, the oldest are dropped: their readers read
/// them themselves.
const SPANS: usize = 1024;

impl PagePrefetcher {
    /// Requests a span of a file.
    pub(super) fn ask(&self, path: &Arc<Path>, span: Range<u64>) {
        if self.is_forked() {
            return;
        }
        let mut queue = self.shared.lock();
        if queue.broken {
            return;
        }
        if queue.spans.len() == SPANS {
            queue.spans.pop_front();
        }
        if queue.spans.capacity() == 0 {
            // Allocate the full capacity once, so that later calls never allocate, however far behind the threads
            // are.
            queue.spans.reserve_exact(SPANS);
        }
        queue.spans.push_back((path.clone(), span));
        self.shared.count(&queue);
        drop(queue);
        self.shared.more.notify_one();
        self.start();
    }

    /// Waits until all requested bytes of `span` were read ahead.
    pub(super) fn wait_for(&self, path: &Arc<Path>, span: &Range<u64>) {
        if self.shared.pending.load(Ordering::Acquire) == 0 || self.is_forked() {
            return;
        }
        let mut queue = self.shared.lock();
        while !queue.broken && queue.has(path, span) {
            let woken = self.shared.progress.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether this is a forked child of the process that started the threads.
    fn is_forked(&self) -> bool {
        let process = self.process.load(Ordering::Relaxed);
        process != 0 && process != std::process::id()
    }

    fn start(&self) {
        self.process.store(std::process::id(), Ordering::Relaxed);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for number in threads.len()..THREADS {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new()
                .name(format!("read ahead {number}"))
                .spawn(move || shared.work(number));
            match started {
                Ok(started) => threads.push(started),
                // Without threads, everything still works, only slower.
                Err(_) => {
                    self.shared.lock().broken = true;
                    return self.shared.progress.notify_all();
                }
            }
        }
    }
}

impl Drop for PagePrefetcher {
    fn drop(&mut self) {
        if self.is_forked() {
            // A join would wait for ever.
            return std::mem::forget(std::mem::take(&mut self.threads));
        }
        self.shared.lock().closed = true;
        self.shared.more.notify_all();
        for thread in self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // The result does not matter: readers see any error themselves.
            let _ = thread.join();
        }
    }
}

impl Queue {
    /// The oldest span, joined with spans that directly follow it: the longer a sequential read is,
    /// the further the system reads ahead.
    fn pop(&mut self) -> Option<(Arc<Path>, Range<u64>)> {
        let (path, mut span) = self.spans.pop_front()?;
        while let Some((next, more)) = self.spans.front()
            && Arc::ptr_eq(next, &path)
            && more.start == span.end
            && more.end - span.start <= SEQUENCE
        {
            span.end = more.end;
            self.spans.pop_front();
        }
        Some((path, span))
    }

    fn has(&self, path: &Arc<Path>, span: &Range<u64>) -> bool {
        let overlaps = |(of, requested): &(Arc<Path>, Range<u64>)| {
            Arc::ptr_eq(of, path) && requested.start < span.end && span.start < requested.end
        };
        self.current.iter().flatten().any(overlaps) || self.spans.iter().any(overlaps)
    }
}

impl Shared {
    /// Updates the number of pending spans.
    fn count(&self, queue: &Queue) {
        let pending = queue.spans.len() + queue.current.iter().flatten().count();
        self.pending.store(pending, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, thread: usize) {
        be_prompt();
        let mut sink = Sink::new();
        let mut open: VecDeque<(Arc<Path>, File)> = VecDeque::with_capacity(OPEN_FILES);
        while let Some((path, span)) = self.next(thread) {
            if let Some(file) = file_of(&mut open, &path) {
                self.read(thread, file, span, &mut sink);
            }
            self.note(thread, None);
        }
    }

    fn read(&self, thread: usize, file: &File, span: Range<u64>, sink: &mut Sink) {
        for start in span.clone().step_by(PIECE as usize) {
            let end = span.end.min(start + PIECE);
            if !is_cached(file, start..end) && sink.swallow(file, start..end).is_err() {
                return;
            }
            if !self.note(thread, Some(end)) {
                return;
            }
        }
    }

    /// Records how far a thread has read its span (`None`: to its end). Returns `false` if the
    /// thread has to end.
    fn note(&self, thread: usize, read: Option<u64>) -> bool {
        let mut queue = self.lock();
        match (&mut queue.current[thread], read) {
            (Some((_, span)), Some(end)) => span.start = end,
            (current, _) => *current = None,
        }
        self.count(&queue);
        let goes_on = !queue.closed;
        drop(queue);
        self.progress.notify_all();
        goes_on
    }

    fn next(&self, thread: usize) -> Option<(Arc<Path>, Range<u64>)> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(request) = queue.pop() {
                queue.current[thread] = Some(request.clone());
                return Some(request);
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Where the bytes go: the null device, to which the system passes pages without copying them, or a
/// buffer if that does not work.
struct Sink {
    null: Option<File>,
    buffer: Vec<u8>,
}

impl Sink {
    fn new() -> Self {
        let null = File::options().write(true).open("/dev/null").ok();
        Self { null, buffer: Vec::new() }
    }

    fn swallow(&mut self, file: &File, span: Range<u64>) -> std::io::Result<()> {
        if let Some(null) = &self.null {
            if hand_over(file, null, span.clone()) {
                return Ok(());
            }
            self.null = None;
        }
        self.buffer.resize(PIECE as usize, 0);
        file.read_at(&mut self.buffer[..(span.end - span.start) as usize], span.start).map(drop)
    }
}

/// Sends a span of one file to another; `false` if the system does not support that for these
/// files. If the file has become shorter, this ends early, and the file's readers get the error.
fn hand_over(file: &File, to: &File, span: Range<u64>) -> bool {
    let mut at = span.start as libc::off_t;
    while (at as u64) < span.end {
        let (from, to) = (file.as_raw_fd(), to.as_raw_fd());
        let len = (span.end - at as u64) as usize;
        // SAFETY: both descriptors are open, and `at` lives beyond the call, which moves it on.
        match unsafe { libc::sendfile(to, from, &raw mut at, len) } {
            0 => break,
            sent if sent < 0 => return false,
            _ => {}
        }
    }
    true
}

/// Asks the scheduler for short time slices that begin soon. The thread does little, but while it
/// waits for a processor that decoding threads use, the disk is idle.
fn be_prompt() {
    /// The kernel's `struct sched_attr`, first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        /// Length of a time slice in ns, if the scheduler supports it (since Linux 6.12).
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let size = std::mem::size_of::<Attributes>() as u32;
    let attributes = Attributes { size, runtime: 100_000, ..Attributes::default() };
    // SAFETY: the call reads the struct and concerns the calling thread only. If it is refused, the thread waits
    // like any other.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// The file, which is kept open. The most recently used file is the first.
fn file_of<'a>(open: &'a mut VecDeque<(Arc<Path>, File)>, path: &Arc<Path>) -> Option<&'a File> {
    let index = open.iter().position(|(opened, _)| opened == path);
    let entry = match index.and_then(|index| open.remove(index)) {
        Some(entry) => entry,
        None => (path.clone(), File::open(path).ok()?),
    };
    open.truncate(OPEN_FILES - 1);
    open.push_front(entry);
    open.front().map(|(_, file)| file)
}

/// Whether the span is in the page cache. `false` if the system does not report it (before Linux
/// 6.5, or for files of other users); then the span is read again.
fn is_cached(file: &File, span: Range<u64>) -> bool {
    /// The kernel's `struct cachestat_range` and `struct cachestat`.
    #[repr(C)]
    struct Bytes {
        start: u64,
        len: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Pages {
        cached: u64,
        dirty: u64,
        writeback: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    let (bytes, mut pages) =
        (Bytes { start: span.start, len: span.end - span.start }, Pages::default());
    // SAFETY: the call reads one struct and fills the other; both live beyond it.
    let failed = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            &raw const bytes,
            &raw mut pages,
            0 as libc::c_uint,
        )
    };
    let page = PAGE as u64;
    failed == 0 && pages.cached >= span.end.div_ceil(page) - span.start / page
}

/// The number of `cachestat`, the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

#[cfg(test)]
mod tests {
    use hsipack_testing::skipped;

    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_span_that_was_asked_for_comes_into_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<Path> = folder.path().join("shard").into();
        std::fs::write(&path, vec![7; 9 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        // SAFETY: advice about an open file.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        file.read_at(&mut [0], 0).unwrap();
        if is_cached(&file, 0..9 << 20) || !is_cached(&file, 0..1) {
            skipped("a folder in memory, or a system that does not tell what it caches");
            return;
        }
        let warmer = PagePrefetcher::default();
        warmer.ask(&path, 1000..9 << 20);
        let start = Instant::now();
        while !is_cached(&file, 1000..9 << 20) {
            assert!(start.elapsed() < Duration::from_secs(60), "it never came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn whoever_waits_finds_the_bytes_read_or_nothing_to_wait_for() {
        let folder = tempfile::tempdir().unwrap();
        let path: Arc<Path> = folder.path().join("shard").into();
        std::fs::write(&path, vec![7; 5 << 20]).unwrap();
        let warmer = PagePrefetcher::default();
        warmer.wait_for(&path, &(0..10));
        std::thread::scope(|scope| {
            for reader in 0..3u64 {
                let (warmer, path) = (&warmer, &path);
                scope.spawn(move || {
                    for step in 0..200 {
                        let start = (step * 7919 + reader) % (4 << 20);
                        warmer.ask(path, start..start + (1 << 20));
                        warmer.wait_for(path, &(start..start + 1000));
                    }
                });
            }
        });
        // A file that no longer exists blocks nothing.
        let gone: Arc<Path> = folder.path().join("gone").into();
        warmer.ask(&gone, 0..10);
        warmer.wait_for(&gone, &(0..10));
    }

    #[test]
    fn spans_of_files_that_are_gone_do_no_harm_and_the_thread_ends() {
        let folder = tempfile::tempdir().unwrap();
        let warmer = PagePrefetcher::default();
        for number in 0..3 * OPEN_FILES {
            let path = folder.path().join(format!("{number}"));
            if number % 2 == 0 {
                std::fs::write(&path, b"bytes").unwrap();
            }
            warmer.ask(&path.into(), 0..5 + number as u64);
        }
        drop(warmer);
    }
}
