//! Large memory, which threads of its own make ready ahead of its use.
//!
//! The system provides memory page by page, when a page is first written to, and clears it first.
//! That takes about as long as decoding into it, and a thread that decodes should not wait for it.
//! So large memory is one [`Supply`]: only addresses at first. Other threads make it ready from its
//! start, as far as somebody wants it, on huge pages where the system has them.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | [`Supply`]: memory that is made ready in order |
//! | `block.rs` | [`Block`]: memory of one array, not made ready ahead |
//! | `size.rs` | whether huge pages are worth their time |
//! | `system.rs` | the calls to the operating system |

mod block;
mod size;
#[cfg(not(miri))]
mod system;
#[cfg(miri)]
#[path = "without_maps.rs"]
mod system;

use std::fmt;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::threads;
pub use block::Block;
pub use size::HUGE_PAGE;
use size::{Pages, Sizes};

/// Bytes that are made ready at a time. The threads that wait for memory go on after each such
/// piece.
const PIECE: usize = 8 << 20;

/// No system that hsipack runs on has smaller pages.
const PAGE: usize = 4096;

/// One thread in so many cores makes memory ready. One cannot keep up with many that decode.
const CORES: usize = 4;
const MAX_THREADS: usize = 4;

/// Called with each piece that was provided, in order, before anybody may use it.
type Hook = Box<dyn Fn(Range<usize>) + Send + Sync>;

/// Memory that is made ready in order, from its start, as far as it is [wanted](Self::want).
pub struct Supply {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    start: NonNull<u8>,
    bytes: usize,
    hook: Option<Hook>,
    /// Threads that may make memory ready at the same time.
    most_threads: usize,
    /// Everything before this is ready.
    ready: AtomicUsize,
    /// Everything before this is wanted.
    wanted: AtomicUsize,
    stopped: AtomicBool,
    /// Processor time in ns that it took to make the memory ready.
    took: AtomicU64,
    inner: Mutex<Inner>,
    changed: Condvar,
}

// SAFETY: it owns its memory, as a Box does; whoever uses the memory decides which thread may touch which part when.
unsafe impl Send for Shared {}
// SAFETY: shared references give out a pointer and plain data only.
unsafe impl Sync for Shared {}

#[derive(Debug)]
struct Inner {
    sizes: Sizes,
    /// Why there are no huge pages, or fewer.
    notes: Vec<String>,
    /// The last refusal, and the number of refusals so far.
    refused: Option<io::ErrorKind>,
    refusals: u64,
    /// Where the next piece begins that no thread has taken.
    next: usize,
    /// Pieces that were provided, behind others that are not yet.
    done: Vec<Range<usize>>,
    /// Pieces that the system refused.
    missing: Vec<Range<usize>>,
    /// Threads that make memory ready now, or will.
    running: usize,
}

impl Supply {
    /// Addresses for `bytes` bytes, which are zero when they are ready.
    ///
    /// # Errors
    /// If the system refuses the addresses.
    pub fn new(bytes: usize, with_huge_pages: bool) -> io::Result<Self> {
        Self::with(bytes, with_huge_pages, None, most_threads())
    }

    /// The same. Calls `hook` with each piece of the memory that was made ready, before anybody may
    /// use the piece.
    ///
    /// # Errors
    /// If the system refuses the addresses.
    pub fn with_hook(
        bytes: usize,
        with_huge_pages: bool,
        hook: impl Fn(Range<usize>) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::with(bytes, with_huge_pages, Some(Box::new(hook)), most_threads())
    }

    fn with(
        bytes: usize,
        with_huge_pages: bool,
        hook: Option<Hook>,
        most_threads: usize,
    ) -> io::Result<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE_PAGE);
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let start = system::allocate(bytes)?;
        let inner = Inner {
            sizes: Sizes::new(with_huge_pages),
            notes: Vec::new(),
            refused: None,
            refusals: 0,
            next: 0,
            done: Vec::new(),
            missing: Vec::new(),
            running: 0,
        };
        // From here on, dropping `shared` frees the memory.
        let shared = Shared {
            start,
            bytes,
            hook,
            most_threads,
            ready: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            took: AtomicU64::new(0),
            inner: Mutex::new(inner),
            changed: Condvar::new(),
        };
        if with_huge_pages && let Err(why) = system::want_huge_pages(start, bytes) {
            let mut inner = shared.lock();
            inner.sizes = Sizes::new(false);
            inner.notes.push(format!("no huge pages: {why}"));
        }
        Ok(Self { shared: Arc::new(shared), threads: Mutex::default() })
    }

    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        self.shared.start.as_ptr()
    }

    /// Bytes of the whole memory, ready or not.
    pub fn bytes(&self) -> usize {
        self.shared.bytes
    }

    /// Bytes that are ready, from the start.
    pub fn ready(&self) -> usize {
        self.shared.ready.load(Ordering::Acquire)
    }

    /// Processor time that it took to make the memory ready.
    pub fn took(&self) -> Duration {
        Duration::from_nanos(self.shared.took.load(Ordering::Relaxed))
    }

    /// Makes the memory before `end` ready soon. Returns at once.
    pub fn want(&self, end: usize) {
        let (shared, end) = (&self.shared, end.min(self.shared.bytes));
        if shared.wanted.load(Ordering::Relaxed) >= end {
            return;
        }
        let mut inner = shared.lock();
        shared.wanted.fetch_max(end, Ordering::Relaxed);
        // A thread for each piece, up to the most.
        let pieces = end.saturating_sub(inner.next).div_ceil(PIECE);
        let more = pieces.min(shared.most_threads).saturating_sub(inner.running);
        inner.running += more;
        drop(inner);
        shared.changed.notify_all();
        for _ in 0..more {
            let worker = shared.clone();
            match threads::start("hsipack-memory", move || worker.run()) {
                Ok(thread) => self.threads().push(thread),
                Err(_) => {
                    let mut inner = shared.lock();
                    inner.running -= 1;
                    if inner.running == 0 {
                        drop(inner);
                        // Whoever wants the memory makes it ready.
                        shared.provide_wanted();
                    }
                }
            }
        }
    }

    /// Waits until the memory before `end` is ready. Meanwhile, this thread makes wanted memory
    /// ready, too: it has nothing else to do, and on a busy machine the other threads get only a
    /// part of a processor.
    ///
    /// # Errors
    /// If the system refuses the memory. It is asked again at the next call.
    pub fn wait(&self, end: usize) -> io::Result<()> {
        let (shared, end) = (&self.shared, end.min(self.shared.bytes));
        if self.ready() >= end {
            return Ok(());
        }
        self.want(end);
        let mut inner = shared.lock();
        let before = inner.refusals;
        if inner.refused.take().is_some() {
            shared.changed.notify_all();
        }
        loop {
            if self.ready() >= end {
                return Ok(());
            }
            if inner.refusals > before {
                return Err(inner.refused.unwrap_or(io::ErrorKind::OutOfMemory).into());
            }
            if shared.stopped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            inner = match inner.has_work(end) {
                true => {
                    shared.provide_piece(inner);
                    shared.lock()
                }
                false => shared.wait(inner),
            };
        }
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the threads that make memory ready. Calls that wait for memory return an error.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        drop(self.shared.lock());
        self.shared.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads());
        for thread in threads {
            // It returns nothing.
            let _ = thread.join();
        }
    }

    /// Keeps the memory from being swapped out. Each page is locked when it is made ready.
    ///
    /// # Errors
    /// If the system refuses; the text says why.
    pub fn lock(&self) -> Result<(), String> {
        system::lock(self.shared.start, self.shared.bytes)
    }

    /// How many bytes of the memory lie on huge pages, according to the system.
    pub fn huge_page_bytes(&self) -> usize {
        system::huge_page_bytes(self.shared.start, self.shared.bytes)
    }

    /// Why there are no huge pages, or fewer.
    pub fn notes(&self) -> Vec<String> {
        self.shared.lock().notes.clone()
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Supply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supply")
            .field("bytes", &self.bytes())
            .field("ready", &self.ready())
            .finish()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes memory ready whenever some is wanted, until all is or the supply is dropped.
    fn run(&self) {
        loop {
            self.provide_wanted();
            let mut inner = self.lock();
            loop {
                let is_all = inner.next == self.bytes && inner.missing.is_empty();
                if is_all || self.stopped.load(Ordering::Relaxed) {
                    inner.running -= 1;
                    return;
                }
                if inner.has_work(self.wanted.load(Ordering::Relaxed)) {
                    break;
                }
                inner = self.wait(inner);
            }
        }
    }

    /// Makes the wanted memory ready, piece by piece.
    fn provide_wanted(&self) {
        let mut has_more = true;
        while has_more && !self.stopped.load(Ordering::Relaxed) {
            has_more = self.provide_piece(self.lock());
        }
    }

    /// Makes the next piece of the wanted memory ready. Returns whether there was one that the
    /// system did not refuse.
    fn provide_piece(&self, mut inner: MutexGuard<'_, Inner>) -> bool {
        let wanted = self.wanted.load(Ordering::Relaxed);
        if !inner.has_work(wanted) {
            return false;
        }
        let piece = inner.missing.pop().unwrap_or_else(|| {
            let start = inner.next;
            // Whole huge pages, also where less is wanted.
            let end = wanted.next_multiple_of(HUGE_PAGE).min(start + PIECE).min(self.bytes);
            inner.next = end;
            start..end
        });
        let pages = inner.sizes.next();
        drop(inner);
        let before = system::thread_time();
        let touched = system::touch(self.start, piece.clone(), pages);
        let took = system::thread_time().saturating_sub(before);
        self.took.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        let mut inner = self.lock();
        match touched {
            Ok(()) => {
                if inner.sizes.took(pages, piece.len(), took) {
                    let note = "some huge pages: more of them would take longer to allocate than they save";
                    inner.notes.push(note.to_owned());
                }
                inner.done.push(piece);
                self.publish(inner);
                true
            }
            Err(error) => {
                inner.missing.push(piece);
                (inner.refused, inner.refusals) = (Some(error.kind()), inner.refusals + 1);
                drop(inner);
                self.changed.notify_all();
                false
            }
        }
    }

    /// Makes the provided pieces ready, as far as there are none missing before them.
    fn publish(&self, mut inner: MutexGuard<'_, Inner>) {
        loop {
            let ready = self.ready.load(Ordering::Relaxed);
            let Some(index) = inner.done.iter().position(|piece| piece.start == ready) else {
                break;
            };
            let piece = inner.done.swap_remove(index);
            // The lock is held meanwhile, so the hook gets the pieces in order.
            if let Some(hook) = &self.hook {
                hook(piece.clone());
            }
            self.ready.store(piece.end, Ordering::Release);
        }
        drop(inner);
        self.changed.notify_all();
    }
}

impl Inner {
    /// Whether there is memory to make ready, and the system did not refuse it just now.
    fn has_work(&self, wanted: usize) -> bool {
        self.refused.is_none() && (self.next < wanted || !self.missing.is_empty())
    }
}

/// Makes memory ready that is about to be filled: its whole pages. Their content is lost. This is
/// quicker than providing page by page, when each is first written to. If the system refuses, it
/// provides them then.
pub(crate) fn provide(bytes: &mut [u8]) {
    let before = bytes.as_ptr().align_offset(PAGE);
    let Some(pages) = bytes.get_mut(before..).filter(|pages| pages.len() >= PAGE) else { return };
    let len = pages.len() / PAGE * PAGE;
    // The kind of pages that the memory has.
    let _ = system::touch(NonNull::from(pages).cast(), 0..len, Pages::Huge);
}

/// Threads that may make memory ready at the same time.
fn most_threads() -> usize {
    let cores = crate::threads::cores();
    (cores / CORES).clamp(1, MAX_THREADS)
}

impl Drop for Shared {
    fn drop(&mut self) {
        system::free(self.start, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 80 << 20;

    #[test]
    fn memory_is_ready_as_far_as_it_is_wanted_and_zero() {
        let supply = Supply::new(BYTES, true).unwrap();
        assert_eq!((supply.ready(), supply.bytes() % HUGE_PAGE), (0, 0));
        assert!((supply.start() as usize).is_multiple_of(4096));
        supply.wait(5).unwrap();
        assert_eq!(supply.ready(), HUGE_PAGE);
        supply.wait(BYTES).unwrap();
        assert_eq!(supply.ready(), BYTES);
        supply.wait(usize::MAX).unwrap();
        // SAFETY: the memory is ready, and nobody else knows it.
        let bytes = unsafe { std::slice::from_raw_parts(supply.start(), BYTES) };
        assert!(bytes.iter().step_by(1000).all(|byte| *byte == 0));
        assert!(supply.huge_page_bytes() <= BYTES);
    }

    #[test]
    fn the_hook_gets_every_piece_once_before_it_is_ready() {
        let pieces = Arc::new(Mutex::new(Vec::new()));
        let received = pieces.clone();
        let hook = Box::new(move |piece| received.lock().unwrap().push(piece));
        let supply = Supply::with(BYTES, false, Some(hook), 3).unwrap();
        for end in [1 << 20, 20 << 20, BYTES] {
            supply.wait(end).unwrap();
            let covered = pieces.lock().unwrap().iter().map(Range::len).sum::<usize>();
            assert!(covered >= end && covered >= supply.ready());
        }
        supply.stop();
        let mut end = 0;
        for piece in pieces.lock().unwrap().iter() {
            assert_eq!(piece.start, end);
            end = piece.end;
        }
        assert_eq!(end, BYTES);
    }

    #[test]
    fn a_thread_that_waits_makes_memory_ready_itself() {
        let supply = Supply::with(BYTES, false, None, 0).unwrap();
        supply.wait(BYTES).unwrap();
        assert_eq!(supply.ready(), BYTES);
    }

    #[test]
    fn memory_of_any_place_and_length_can_be_provided() {
        let mut bytes = vec![7; 3 * PAGE];
        for (start, len) in [(0, 0), (1, 5), (PAGE - 1, 2), (3, PAGE), (5, 2 * PAGE + 9)] {
            provide(&mut bytes[start..start + len]);
            bytes[start..start + len].fill(8);
        }
        assert!(bytes.iter().all(|byte| [7, 8].contains(byte)));
        assert_eq!(bytes[bytes.len() - 1], 7);
    }

    #[test]
    fn threads_that_wait_all_go_on() {
        let supply = Supply::new(BYTES, true).unwrap();
        std::thread::scope(|scope| {
            for thread in 1..=8 {
                let supply = &supply;
                scope.spawn(move || supply.wait(thread * BYTES / 8).unwrap());
            }
        });
        assert_eq!(supply.ready(), BYTES);
    }

    #[test]
    fn unwanted_memory_is_not_provided_and_stop_ends_waits() {
        let supply = Supply::new(1 << 30, true).unwrap();
        supply.wait(1).unwrap();
        supply.stop();
        assert_eq!(supply.wait(1 << 30).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert!(supply.ready() < 1 << 30);
    }

    #[test]
    #[cfg(not(miri))]
    fn more_memory_than_there_are_addresses_is_an_error() {
        assert!(Supply::new(1 << 60, true).is_err());
        assert!(Supply::new(usize::MAX, true).is_err());
    }
}
