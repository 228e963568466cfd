//! Reading ahead into the page cache, by a thread that reads files from front to back.
//!
//! Advice (`MADV_WILLNEED`, `POSIX_FADV_WILLNEED`) fills the cache page by page: measured on a disk that a
//! plain sequential read takes 1620 MB/s from, it came to 810–920 MB/s at three times the processor time. The
//! system's own read-ahead, which begins when somebody reads sequentially, works in large folios and far
//! ahead. So somebody does: what the thread reads is thrown away, and the pages stay. What is in the cache
//! already is not read again.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Reads spans into the page cache, in the order in which they were asked for. Its thread starts with the
/// first span, and ends when it is dropped.
#[derive(Debug, Default)]
pub(super) struct Warmer {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    spans: VecDeque<(Arc<Path>, Range<u64>)>,
    /// The thread has to end.
    closed: bool,
    /// The thread could not be started; nothing is read ahead.
    broken: bool,
}

/// Bytes read at once.
const PIECE: u64 = 2 << 20;
/// How far apart bytes are that are looked for in the cache: the system reads at least as much together.
const PROBE: u64 = 512 << 10;
/// Files kept open by the thread.
const OPEN_FILES: usize = 8;
/// Spans remembered. Beyond that the oldest are forgotten: they are being read by those who want them.
const SPANS: usize = 1024;

impl Warmer {
    /// Asks for a span of a file.
    pub(super) fn ask(&self, path: &Arc<Path>, span: Range<u64>) {
        let mut queue = self.shared.lock();
        if queue.broken {
            return;
        }
        if queue.spans.len() == SPANS {
            queue.spans.pop_front();
        }
        queue.spans.push_back((path.clone(), span));
        drop(queue);
        self.shared.more.notify_one();
        self.start();
    }

    fn start(&self) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let shared = self.shared.clone();
            let started = std::thread::Builder::new()
                .name("read ahead".to_owned())
                .spawn(move || shared.work());
            match started {
                Ok(started) => *thread = Some(started),
                // Without it everything is only slower.
                Err(_) => self.shared.lock().broken = true,
            }
        }
    }
}

impl Drop for Warmer {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.more.notify_one();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // It has nothing to tell: errors are found by those who read.
        let _ = thread.map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut buffer = vec![0; PIECE as usize];
        let mut open: VecDeque<(Arc<Path>, File)> = VecDeque::with_capacity(OPEN_FILES);
        while let Some((path, span)) = self.next() {
            let Some(file) = file_of(&mut open, &path) else { continue };
            let mut start = span.start;
            while start < span.end && !self.lock().closed {
                let end = span.end.min(start + PIECE);
                if !is_cached(file, start..end) {
                    let piece = &mut buffer[..(end - start) as usize];
                    if file.read_at(piece, start).is_err() {
                        break;
                    }
                }
                start = end;
            }
        }
    }

    fn next(&self) -> Option<(Arc<Path>, Range<u64>)> {
        let mut queue = self.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(span) = queue.spans.pop_front() {
                return Some(span);
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The file, kept open: the one asked for latest is the first.
fn file_of<'a>(open: &'a mut VecDeque<(Arc<Path>, File)>, path: &Arc<Path>) -> Option<&'a File> {
    let known = open.iter().position(|(known, _)| known == path);
    let entry = match known.and_then(|place| open.remove(place)) {
        Some(entry) => entry,
        None => (path.clone(), File::open(path).ok()?),
    };
    open.truncate(OPEN_FILES - 1);
    open.push_front(entry);
    open.front().map(|(_, file)| file)
}

/// Whether the span seems to be in the page cache: single bytes of it are, a piece apart.
fn is_cached(file: &File, span: Range<u64>) -> bool {
    span.clone().step_by(PROBE as usize).chain([span.end - 1]).all(|at| has(file, at))
}

fn has(file: &File, at: u64) -> bool {
    let mut byte = 0u8;
    let part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the one part is a byte that lives beyond the call.
    let read = unsafe {
        libc::preadv2(file.as_raw_fd(), &raw const part, 1, at as libc::off_t, libc::RWF_NOWAIT)
    };
    // File systems that do not know the flag, like those in memory, refuse it: reading ahead of them gains
    // nothing, or they read ahead themselves.
    let refused = || std::io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP);
    read >= 0 || refused()
}

#[cfg(test)]
mod tests {
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
        if is_cached(&file, 0..9 << 20) {
            println!("skipped: the temporary folder has no disk behind its page cache");
            return;
        }
        let warmer = Warmer::default();
        warmer.ask(&path, 1000..9 << 20);
        let start = Instant::now();
        while !is_cached(&file, 1000..9 << 20) {
            assert!(start.elapsed() < Duration::from_secs(60), "it never came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn spans_of_files_that_are_gone_do_no_harm_and_the_thread_ends() {
        let folder = tempfile::tempdir().unwrap();
        let warmer = Warmer::default();
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
