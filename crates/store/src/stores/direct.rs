//! Reads files without the page cache (O_DIRECT), for data much larger than RAM, for which the
//! cache would be of no use.
//!
//! The system does not read ahead for such files, so the store does. `prefetch` queues spans, and a
//! few threads of the store read them into their own buffers. `with_bytes` takes spans that are
//! ready, waits for spans that are being read, and reads all others itself.
//!
//! # Invariants
//!
//! An entry of the table is a span of a file that was requested:
//!
//! ```text
//! queued ──thread──▶ reading ──▶ ready ──all its bytes were taken──▶ gone, its buffer spare
//!    └─with_bytes reads the span itself──▶ gone         └─it failed, its file was closed, it is stale──▶ gone
//! ```
//!
//! - Entries are sorted by (file, start) and unique, so a span is found by binary search.
//! - The capacities of all existing buffers add up to `held`, which never exceeds the limit. A
//!   thread that gets no buffer waits (back-pressure), and spans stay in the queue meanwhile.
//! - A buffer is written only by the thread that holds its only `Arc`. Afterwards, entries and
//!   readers share it.
//! - An entry that is never taken would hold its buffer for ever. So an entry is stale if more than
//!   4 × N reads were made since it became ready, where N is the number of entries. Stale entries
//!   are dropped when a buffer is needed.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::threads;

use super::buffer::{PAGE, ReadBuffer, grown};
use super::store::Store;
use super::stored_file::{StoredFile, cannot_read, checked, open_descriptor, readable};
use hsipack_format::{Error, Opt, Result, remedy};

/// How a [`DirectStore`] reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectOptions {
    /// Threads that read ahead; with 0, nothing is read ahead.
    pub threads: usize,
    /// Maximum size in bytes of the buffers for reading ahead.
    pub bytes: usize,
}

impl Default for DirectOptions {
    /// 4 threads, 256 MiB.
    fn default() -> Self {
        Self { threads: 4, bytes: 256 << 20 }
    }
}

/// Maximum number of waiting spans; more `prefetch` calls are ignored.
const QUEUE: usize = 4096;

/// A store that reads with O_DIRECT. It holds a descriptor for each open file. Its threads end when
/// it is dropped.
#[derive(Debug)]
pub struct DirectStore {
    ahead: Arc<ReadAhead>,
    threads: Vec<JoinHandle<()>>,
    files: AtomicU64,
}

impl DirectStore {
    /// Creates the store and starts its threads. If the system refuses some, it uses those that
    /// started; if it has none, nothing is read ahead.
    pub fn new(options: DirectOptions) -> Self {
        let ahead = Arc::new(ReadAhead::new(options.bytes));
        let threads = (0..options.threads).map_while(|thread| {
            let ahead = ahead.clone();
            threads::start(format!("hsipack-direct-{thread}"), move || ahead.work()).ok()
        });
        Self { threads: threads.collect(), ahead, files: AtomicU64::new(0) }
    }
}

impl Store for DirectStore {
    fn open(&self, path: &Path) -> Result<Arc<dyn StoredFile>> {
        let opened = open_descriptor(path, libc::O_DIRECT);
        let (file, len) = opened.map_err(|error| refused(path, error))?;
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(OpenFile { number, file, path: path.to_owned(), len });
        Ok(Arc::new(DirectFile { file, ahead: self.ahead.clone() }))
    }
}

impl Drop for DirectStore {
    fn drop(&mut self) {
        self.ahead.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has already printed its message.
            let _ = thread.join();
        }
    }
}

/// A file system without O_DIRECT reports an invalid argument.
fn refused(path: &Path, error: Error) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    if source.and_then(io::Error::raw_os_error) != Some(libc::EINVAL) {
        return error;
    }
    Error::unsupported("the file system does not offer O_DIRECT").at(path).with_remedy(remedy![
        "choose ",
        Opt::Store.to("mmap"),
        " or ",
        Opt::Store.to("pread")
    ])
}

#[derive(Debug)]
struct OpenFile {
    number: u64,
    file: File,
    path: PathBuf,
    len: u64,
}

impl OpenFile {
    /// Reads the pages around `span` into `buffer`; returns the position of the span in it.
    fn read(&self, span: &Range<u64>, buffer: &mut ReadBuffer) -> Result<Range<usize>> {
        let first = span.start / PAGE as u64 * PAGE as u64;
        let (want, room) = extent(span);
        let pages = buffer.room(room)?;
        let mut done = 0;
        while done < want {
            match self.file.read_at(&mut pages[done..], first + done as u64) {
                Ok(0) => return Err(self.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.failed(error)),
            }
            // A read ends within a page only at the end of the file. The next read would not be aligned.
            if !done.is_multiple_of(PAGE) && done < want {
                return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
            }
        }
        Ok((span.start - first) as usize..want)
    }

    fn failed(&self, error: io::Error) -> Error {
        refused(&self.path, cannot_read(&self.path, error))
    }
}

/// Number of bytes from the start of the first page of `span` to the end of `span`, and to the end
/// of its last page.
fn extent(span: &Range<u64>) -> (usize, usize) {
    let want = (span.end - span.start / PAGE as u64 * PAGE as u64) as usize;
    (want, want.next_multiple_of(PAGE))
}

#[derive(Debug)]
struct DirectFile {
    file: Arc<OpenFile>,
    ahead: Arc<ReadAhead>,
}

impl StoredFile for DirectFile {
    fn path(&self) -> &Path {
        &self.file.path
    }

    fn len(&self) -> u64 {
        self.file.len
    }

    fn with_bytes(
        &self,
        span: Range<u64>,
        buffer: &mut ReadBuffer,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if checked(&self.file.path, &span, self.file.len)?.is_empty() {
            return take(&[]);
        }
        if let Some((ready, range)) = self.ahead.take(self.file.number, &span) {
            let taken = take(&ready.bytes(range.end)[range]);
            drop(ready);
            self.ahead.tell_threads();
            return taken;
        }
        // This read may have made an entry stale.
        self.ahead.tell_threads();
        let range = self.file.read(&span, buffer)?;
        take(&buffer.bytes(range.end)[range])
    }

    fn prefetch(&self, span: Range<u64>) {
        if let Some(span) = readable(&span, self.file.len) {
            self.ahead.queue(&self.file, span);
        }
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        self.ahead.forget(self.file.number);
    }
}

/// Spans that were requested and not yet taken.
#[derive(Debug)]
struct ReadAhead {
    limit: usize,
    table: Mutex<ReadAheadState>,
    /// Wakes threads: a span was queued, a buffer may be free, or the store was closed.
    work: Condvar,
    /// Wakes readers: a span is ready, or has failed.
    ready: Condvar,
}

#[derive(Debug, Default)]
struct ReadAheadState {
    entries: Vec<Entry>,
    /// (file, start) of queued entries, oldest first. Entries that no longer exist are skipped.
    queue: VecDeque<(u64, u64)>,
    spare: Vec<Arc<ReadBuffer>>,
    /// Total capacity of all buffers.
    held: usize,
    /// Number of reads so far, of any span.
    reads: u64,
    closed: bool,
}

#[derive(Debug)]
struct Entry {
    file: Arc<OpenFile>,
    span: Range<u64>,
    /// Number of bytes that were not yet taken.
    remaining: u64,
    state: State,
}

#[derive(Debug)]
enum State {
    Queued,
    Reading,
    /// The buffer, the position of the span in it, and the number of reads when it became ready.
    Ready(Arc<ReadBuffer>, Range<usize>, u64),
}

/// A buffer that contains the span that a reader wanted, and the position of the span.
type Taken = (Arc<ReadBuffer>, Range<usize>);

impl ReadAhead {
    fn new(limit: usize) -> Self {
        let table = ReadAheadState {
            entries: Vec::with_capacity(QUEUE),
            queue: VecDeque::with_capacity(QUEUE),
            ..ReadAheadState::default()
        };
        Self { limit, table: Mutex::new(table), work: Condvar::new(), ready: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, ReadAheadState> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a span to the queue, unless it is already in the table, is too large, or the queue is
    /// full.
    fn queue(&self, file: &Arc<OpenFile>, span: Range<u64>) {
        let mut table = self.lock();
        let full = table.entries.len() == QUEUE || table.queue.len() == QUEUE;
        if table.closed || full || grown(extent(&span).1) > self.limit {
            return;
        }
        let Err(index) = table.place(file.number, span.start) else { return };
        if table.holding(file.number, &span).is_some() {
            return;
        }
        table.queue.push_back((file.number, span.start));
        let remaining = span.end - span.start;
        table
            .entries
            .insert(index, Entry { file: file.clone(), span, remaining, state: State::Queued });
        drop(table);
        self.work.notify_one();
    }

    /// The bytes of a span that was read ahead. Waits if they are being read. `None` if the caller
    /// has to read them.
    fn take(&self, file: u64, span: &Range<u64>) -> Option<Taken> {
        let mut table = self.lock();
        table.reads += 1;
        loop {
            let at = table.holding(file, span)?;
            match &table.entries[at].state {
                State::Reading => {
                    table = self.ready.wait(table).unwrap_or_else(PoisonError::into_inner);
                }
                State::Queued => {
                    // Reading it now is faster than waiting for its turn. The rest of a longer span stays queued.
                    table.took(at, span);
                    return None;
                }
                State::Ready(buffer, range, _) => {
                    let start = range.start + (span.start - table.entries[at].span.start) as usize;
                    let taken = (buffer.clone(), start..start + (span.end - span.start) as usize);
                    table.took(at, span);
                    return Some(taken);
                }
            }
        }
    }

    /// Wakes a thread, because a buffer may be free now.
    fn tell_threads(&self) {
        // Taking the lock once ensures that no thread is between its check and its wait.
        drop(self.lock());
        self.work.notify_one();
    }

    /// Drops all entries of a file.
    fn forget(&self, file: u64) {
        let mut table = self.lock();
        while let Some(at) = table.entries.iter().position(|entry| entry.file.number == file) {
            table.remove(at);
        }
        table.queue.retain(|(number, _)| *number != file);
        drop(table);
        self.work.notify_all();
    }

    /// Ends the threads. Nothing is read ahead afterwards.
    fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        table.queue.clear();
        table.entries.retain(|entry| matches!(entry.state, State::Reading | State::Ready(..)));
        drop(table);
        self.work.notify_all();
    }

    /// The loop of each thread.
    fn work(&self) {
        while let Some((file, span, buffer)) = self.next() {
            let mut buffer = Unfinished { ahead: self, file, span, buffer: Some(buffer) };
            buffer.read();
        }
    }

    /// The next span to read, and a buffer for it; `None` if the store was closed.
    fn next(&self) -> Option<(Arc<OpenFile>, Range<u64>, Arc<ReadBuffer>)> {
        let mut table = self.lock();
        loop {
            if table.closed {
                return None;
            }
            if let Some(next) = table.start(self.limit) {
                return Some(next);
            }
            table = self.work.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A read by a thread. Its `drop` ensures that no reader waits for ever, even if the thread panics.
struct Unfinished<'a> {
    ahead: &'a ReadAhead,
    file: Arc<OpenFile>,
    span: Range<u64>,
    buffer: Option<Arc<ReadBuffer>>,
}

impl Unfinished<'_> {
    fn read(&mut self) {
        let Some(buffer) = &mut self.buffer else { return };
        let bytes = Arc::get_mut(buffer).expect("a thread holds the one handle of its buffer");
        // If the read fails, the reader that needs the bytes tries again and gets the error.
        let range = self.file.read(&self.span, bytes).ok();
        self.finish(range);
    }

    fn finish(&mut self, range: Option<Range<usize>>) {
        let Some(buffer) = self.buffer.take() else { return };
        let mut table = self.ahead.lock();
        let (number, reads) = (self.file.number, table.reads);
        match (table.place(number, self.span.start), range) {
            (Ok(at), Some(range)) => {
                table.entries[at].state = State::Ready(buffer, range, reads);
            }
            (Ok(at), None) => {
                table.spare.push(buffer);
                table.entries.remove(at);
            }
            // The file was closed meanwhile.
            (Err(_), _) => table.spare.push(buffer),
        }
        drop(table);
        self.ahead.ready.notify_all();
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl ReadAheadState {
    /// The position of the entry that starts at `start` of `file`, or the position where it would
    /// be inserted.
    fn place(&self, file: u64, start: u64) -> std::result::Result<usize, usize> {
        self.entries
            .binary_search_by_key(&(file, start), |entry| (entry.file.number, entry.span.start))
    }

    /// The entry that contains all of `span`: the last entry that does not start later, if it
    /// reaches far enough.
    fn holding(&self, file: u64, span: &Range<u64>) -> Option<usize> {
        let at = match self.place(file, span.start) {
            Ok(at) => at,
            Err(after) => after.checked_sub(1)?,
        };
        let entry = &self.entries[at];
        (entry.file.number == file && span.end <= entry.span.end).then_some(at)
    }

    /// Counts `span` of entry `at` as taken. The entry is removed with its last byte.
    fn took(&mut self, at: usize, span: &Range<u64>) {
        let entry = &mut self.entries[at];
        entry.remaining = entry.remaining.saturating_sub(span.end - span.start);
        if entry.remaining == 0 {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        if let State::Ready(buffer, ..) = self.entries.remove(at).state {
            self.spare.push(buffer);
        }
    }

    /// Assigns the oldest queued entry to the caller for reading, if there is one and a buffer is
    /// available.
    fn start(&mut self, limit: usize) -> Option<(Arc<OpenFile>, Range<u64>, Arc<ReadBuffer>)> {
        let at = loop {
            let (file, start) = *self.queue.front()?;
            match self.place(file, start) {
                Ok(at) if matches!(self.entries[at].state, State::Queued) => break at,
                _ => self.queue.pop_front(),
            };
        };
        let (file, span) = (self.entries[at].file.clone(), self.entries[at].span.clone());
        let buffer = self.buffer(extent(&span).1, limit)?;
        // `buffer` may have removed other entries from the table, but never a queued one.
        let at = self.place(file.number, span.start).expect("only ready entries are stale");
        self.entries[at].state = State::Reading;
        self.queue.pop_front();
        Some((file, span, buffer))
    }

    /// A buffer for `len` bytes that nobody else holds: a free one that is large enough, otherwise
    /// a new one within the limit. To make room for a new one, smaller buffers and stale entries
    /// are dropped.
    fn buffer(&mut self, len: usize, limit: usize) -> Option<Arc<ReadBuffer>> {
        let fits = |buffer: &mut Arc<ReadBuffer>| {
            Arc::get_mut(buffer).is_some_and(|buffer| buffer.capacity() >= len)
        };
        if let Some(at) = self.spare.iter_mut().position(fits) {
            return Some(self.spare.swap_remove(at));
        }
        let capacity = grown(len);
        while self.held + capacity > limit {
            match self.spare.iter_mut().position(|buffer| Arc::get_mut(buffer).is_some()) {
                Some(at) => self.held -= self.spare.swap_remove(at).capacity(),
                None => self.remove(self.stale()?),
            }
        }
        let mut buffer = ReadBuffer::new();
        // Without memory, nothing is read ahead. The reader that needs the bytes gets the error.
        buffer.room(len).ok()?;
        self.held += capacity;
        Some(Arc::new(buffer))
    }

    /// An entry that became ready so many reads ago that it is probably not needed.
    fn stale(&self) -> Option<usize> {
        let patience = 4 * self.entries.len() as u64;
        self.entries.iter().position(
            |entry| matches!(&entry.state, State::Ready(_, _, then) if self.reads - then > patience),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    const PIECE: u64 = 300_000;

    fn content(len: u64) -> Vec<u8> {
        (0..len).map(|at| (at % 251) as u8).collect()
    }

    fn store(threads: usize, bytes: usize) -> (tempfile::TempDir, DirectStore, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shard");
        std::fs::write(&path, content(20 * PIECE)).unwrap();
        (folder, DirectStore::new(DirectOptions { threads, bytes }), path)
    }

    fn wait_for(store: &DirectStore, what: impl Fn(&ReadAheadState) -> bool) {
        let start = Instant::now();
        while !what(&store.ahead.lock()) {
            assert!(start.elapsed() < Duration::from_secs(20), "{:?}", store.ahead.lock());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ready(table: &ReadAheadState) -> usize {
        table.entries.iter().filter(|entry| matches!(entry.state, State::Ready(..))).count()
    }

    fn check(file: &dyn StoredFile, span: Range<u64>) {
        let want = content(20 * PIECE)[span.start as usize..span.end as usize].to_vec();
        let mut calls = 0;
        file.with_bytes(span, &mut ReadBuffer::new(), &mut |bytes| {
            calls += 1;
            assert!(bytes == want);
            Ok(())
        })
        .unwrap();
        assert_eq!(calls, 1);
    }

    #[test]
    fn prefetched_bytes_are_taken_and_their_buffers_reused() {
        let (_folder, store, path) = store(2, 1 << 20);
        let file = store.open(&path).unwrap();
        for piece in 0..20 {
            let span = piece * PIECE..(piece + 1) * PIECE;
            file.prefetch(span.clone());
            wait_for(&store, |table| ready(table) == 1);
            let mut buffer = ReadBuffer::new();
            file.with_bytes(span.clone(), &mut buffer, &mut |_| Ok(())).unwrap();
            assert_eq!(buffer.capacity(), 0, "the caller's buffer was not needed");
            let table = store.ahead.lock();
            assert_eq!((table.entries.len(), table.spare.len()), (0, 1));
        }
        file.prefetch(5..PIECE);
        check(&*file, 5..PIECE);
    }

    #[test]
    fn buffers_stay_within_the_limit_and_every_span_is_read_in_the_end() {
        let (_folder, store, path) = store(3, 1 << 20);
        let file = store.open(&path).unwrap();
        for piece in 0..20 {
            file.prefetch(piece * PIECE..(piece + 1) * PIECE);
        }
        wait_for(&store, |table| ready(table) == 2);
        for piece in 0..20 {
            check(&*file, piece * PIECE..(piece + 1) * PIECE);
            assert!(store.ahead.lock().held <= 1 << 20);
        }
        assert!(store.ahead.lock().entries.is_empty());
    }

    #[test]
    fn members_of_a_run_are_taken_one_by_one() {
        let (_folder, store, path) = store(1, 4 << 20);
        let file = store.open(&path).unwrap();
        file.prefetch(100..3 * PIECE);
        wait_for(&store, |table| ready(table) == 1);
        check(&*file, PIECE..2 * PIECE);
        check(&*file, 100..PIECE);
        assert_eq!(ready(&store.ahead.lock()), 1);
        check(&*file, 2 * PIECE..3 * PIECE);
        assert_eq!(ready(&store.ahead.lock()), 0);
        check(&*file, 50..150);
    }

    #[test]
    fn spans_that_nobody_takes_give_way() {
        let (_folder, store, path) = store(1, 1 << 20);
        let file = store.open(&path).unwrap();
        for piece in [0, 1] {
            file.prefetch(piece * PIECE..(piece + 1) * PIECE);
        }
        wait_for(&store, |table| ready(table) == 2);
        file.prefetch(2 * PIECE..3 * PIECE);
        for _ in 0..20 {
            check(&*file, 7 * PIECE..7 * PIECE + 10);
            file.prefetch(9 * PIECE..9 * PIECE + 1);
        }
        wait_for(&store, |table| {
            table
                .holding(0, &(2 * PIECE..3 * PIECE))
                .is_some_and(|at| matches!(table.entries[at].state, State::Ready(..)))
        });
        check(&*file, 2 * PIECE..3 * PIECE);
        check(&*file, 0..PIECE);
    }

    #[test]
    fn files_and_stores_may_go_in_any_order() {
        let (_folder, store, path) = store(2, 1 << 20);
        let (file, other) = (store.open(&path).unwrap(), store.open(&path).unwrap());
        for piece in 0..20 {
            file.prefetch(piece * PIECE..(piece + 1) * PIECE);
            other.prefetch(piece * PIECE..(piece + 1) * PIECE);
        }
        drop(file);
        assert!(store.ahead.lock().entries.iter().all(|entry| entry.file.number == 1));
        drop(store);
        for piece in 0..20 {
            other.prefetch(0..PIECE);
            check(&*other, piece * PIECE..(piece + 1) * PIECE);
        }
    }

    #[test]
    fn a_failed_read_ahead_is_an_error_of_the_read() {
        let (_folder, store, path) = store(2, 1 << 20);
        let file = store.open(&path).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        file.prefetch(0..PIECE);
        wait_for(&store, |table| table.entries.is_empty());
        let error = file.with_bytes(0..PIECE, &mut ReadBuffer::new(), &mut |_| Ok(())).unwrap_err();
        assert!(error.what().contains("shorter") && error.path() == Some(&path), "{error}");
    }

    #[test]
    fn a_file_system_without_direct_reads_is_explained() {
        let path = Path::new("a");
        let error = refused(path, cannot_read(path, io::Error::from_raw_os_error(libc::EINVAL)));
        assert!(error.to_string().contains("choose store=mmap or store=pread"), "{error}");
        let other = refused(path, cannot_read(path, io::Error::from_raw_os_error(libc::EIO)));
        assert!(!other.to_string().contains("O_DIRECT"));
    }
}
