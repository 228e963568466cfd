//! The thread that registers pieces of files with a device.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use hsipack_store::{mapping, memory, threads};

use super::PageCacheBounds;
use super::pieces::{Job, Leased, Leases, Piece, Pieces, Refusal};
use crate::Result;
use crate::store::{ReadBuffer, StoredFile};

/// Registers parts of memory maps with a device, which then reads them without the host.
pub(crate) trait MapRegistrar: Send + Sync {
    /// Registers part of a shared, read-only map of a file. It begins on a page, and stays mapped
    /// until it is unregistered.
    ///
    /// # Errors
    /// If the driver refuses; the text says why.
    fn register(&self, memory: &[u8]) -> Result<(), String>;

    /// Unregisters what [`register`](Self::register) registered. No copy from it is under way.
    fn unregister(&self, memory: &[u8]);
}

/// Bytes to register if the system does not report its memory, times 4.
const DEFAULT_BYTES: u64 = 4 << 30;
/// A cold piece is read ahead in parts of this many bytes, by several threads.
const AHEAD_BYTES: usize = 8 << 20;

/// Leases pieces of files that are registered with a device. Clones are the same.
#[derive(Clone)]
pub(crate) struct PageCache(Arc<Inner>);

struct Inner {
    pieces: Mutex<Pieces>,
    /// There is work, or the end has come.
    work: Condvar,
    device: Option<Arc<dyn MapRegistrar>>,
}

/// Amounts of stored data that a loader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Bytes of all files.
    pub stored_bytes: u64,
    /// Stored bytes of a sample on average, if every sample is read once an epoch, and as a whole.
    pub sample_bytes: Option<u64>,
    /// Processes of this machine that do the same.
    pub ranks: u64,
}

impl Demand {
    /// Whether pieces are read that are needed. If not all files fit, pieces are registered again
    /// and again, and a cold one is read from the disk as a whole each time.
    fn is_worthwhile(&self, limit: u64, piece_bytes: u64) -> bool {
        let is_large = |bytes: u64| bytes >= piece_bytes / 4;
        self.stored_bytes <= limit || self.sample_bytes.is_some_and(is_large)
    }
}

/// The thread that registers. When this is dropped, everything is unregistered; no copy may be
/// under way then.
pub(crate) struct Registering {
    cache: PageCache,
    thread: Option<JoinHandle<()>>,
}

impl Registering {
    /// Begins. `device` says how to register, or why that is not possible.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(
        device: Result<Arc<dyn MapRegistrar>, String>,
        bounds: PageCacheBounds,
        demand: Demand,
    ) -> Result<Self> {
        let limit = match bounds.bytes {
            0 => {
                let available = memory::available().map_or(DEFAULT_BYTES, |memory| memory.bytes);
                available / (4 * demand.ranks.max(1))
            }
            bytes => bytes,
        };
        let page = mapping::page_size() as u64;
        let piece_bytes = bounds.piece_bytes.max(1).next_multiple_of(page);
        let mut pieces = Pieces::new(limit, piece_bytes, demand.sample_bytes.is_some());
        let device = match device {
            Ok(device) if demand.is_worthwhile(limit, piece_bytes) => Some(device),
            Ok(_) => {
                pieces.close(format!(
                    "the files take more than {}, which is registered at a time, and batches read small parts of them",
                    memory::size(limit)
                ));
                None
            }
            Err(why) => {
                pieces.close(why);
                None
            }
        };
        let does_work = device.is_some();
        let inner = Inner { pieces: Mutex::new(pieces), work: Condvar::new(), device };
        let cache = PageCache(Arc::new(inner));
        let running = Ending(cache.0.clone());
        let thread = match does_work {
            true => Some(threads::start("register", move || running.0.run())?),
            false => None,
        };
        Ok(Self { cache, thread })
    }

    /// The part that other threads use.
    pub(crate) fn cache(&self) -> &PageCache {
        &self.cache
    }
}

impl Drop for Registering {
    fn drop(&mut self) {
        self.cache.0.lock().stop();
        self.cache.0.work.notify_all();
        if let Some(thread) = self.thread.take() {
            // After a panic, there is nothing more to report: chunks were gathered.
            let _ = thread.join();
        }
    }
}

/// Unregisters everything at the end of the thread, even if it panicked.
struct Ending(Arc<Inner>);

impl Drop for Ending {
    fn drop(&mut self) {
        let registered = self.0.lock().end();
        registered.iter().for_each(|piece| self.0.unregister(piece));
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut pieces = self.lock();
        loop {
            match pieces.next_job() {
                // What was leased before keeps its place: batches may be copied from it.
                Some(Job::Register(piece)) => {
                    let is_closed = pieces.is_closed();
                    drop(pieces);
                    let result = if is_closed { Err(closed()) } else { self.register(&piece) };
                    let is_registered = result.is_ok();
                    pieces = self.lock();
                    pieces.settle(&piece, result);
                    piece.settle(is_registered);
                }
                Some(Job::Unregister(surplus)) => {
                    drop(pieces);
                    surplus.iter().for_each(|piece| self.unregister(piece));
                    drop(surplus);
                    pieces = self.lock();
                }
                None if pieces.has_ended() => return,
                None => pieces = self.work.wait(pieces).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn register(&self, piece: &Piece) -> Result<(), Refusal> {
        // Waits for the threads that read ahead: the driver would read cold pages one after another.
        let Range { start, end } = piece.span;
        for start in (start..end).step_by(AHEAD_BYTES) {
            piece.file.prefetch(start..end.min(start + AHEAD_BYTES as u64));
        }
        let reads =
            piece.file.with_bytes(piece.span.clone(), &mut ReadBuffer::new(), &mut |_| Ok(()));
        let refusal = |why: String, is_of_file| Refusal { why, is_of_file };
        reads.map_err(|error| refusal(error.what().to_owned(), true))?;
        if !piece.map.were_read() {
            return Err(refusal(format!("{} cannot be read", piece.map.path().display()), true));
        }
        let Some(device) = &self.device else { return Err(closed()) };
        device.register(piece.memory()).map_err(|why| refusal(why, false))
    }

    fn unregister(&self, piece: &Piece) {
        if let Some(device) = &self.device {
            device.unregister(piece.memory());
        }
    }
}

fn closed() -> Refusal {
    Refusal { why: "no further parts are registered".to_owned(), is_of_file: true }
}

impl PageCache {
    /// Whether parts of this file may be registered.
    pub(crate) fn takes(&self, file: &Arc<dyn StoredFile>) -> bool {
        let mut pieces = self.0.lock();
        if file.mapping().is_none() {
            pieces.note("the store does not map files into memory");
            return false;
        }
        !pieces.is_closed()
    }

    /// Notes a reason why chunks are gathered.
    pub(crate) fn note(&self, why: &'static str) {
        self.0.lock().note(why);
    }

    /// Begins to lease the pieces of a batch. Other threads wait until this is dropped.
    pub(crate) fn leasing<'a>(&'a self, leases: &'a mut Leases) -> Leasing<'a> {
        Leasing { pieces: self.0.lock(), leases, work: &self.0.work }
    }

    /// Registers nothing any more, because the driver refuses copies.
    pub(crate) fn close(&self, why: &str) {
        self.0.lock().close(why.to_owned());
    }

    /// Bytes that are registered.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.lock().bytes()
    }

    /// Why chunks are gathered, in words. `None` if no reason is known.
    pub(crate) fn why_gathered(&self) -> Option<String> {
        let pieces = self.0.lock();
        let (closed, reasons) = pieces.reasons();
        let no_room = reasons.has_no_room.then(|| {
            let limit = memory::size(pieces.limit());
            format!("no more than {limit} of files are registered at a time")
        });
        closed
            .map(ToOwned::to_owned)
            .or_else(|| {
                reasons
                    .refusal
                    .clone()
                    .map(|why| format!("part of a file is not registered: {why}"))
            })
            .or(no_room)
            .or_else(|| reasons.others.first().map(|why| (*why).to_owned()))
    }
}

/// Leases the pieces of a batch.
pub(crate) struct Leasing<'a> {
    pieces: MutexGuard<'a, Pieces>,
    leases: &'a mut Leases,
    work: &'a Condvar,
}

impl Leasing<'_> {
    /// Leases the pieces that hold a span of a file. `None` if its chunks have to be gathered.
    pub(crate) fn lease(
        &mut self,
        file: &Arc<dyn StoredFile>,
        span: &Range<u64>,
    ) -> Option<Leased> {
        self.pieces.lease(file, file.mapping()?, span, self.leases)
    }
}

impl Drop for Leasing<'_> {
    fn drop(&mut self) {
        // The thread waits for the lock, which is released next.
        if self.pieces.has_work() {
            self.work.notify_one();
        }
    }
}

impl std::fmt::Debug for PageCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PageCache").field(&*self.0.lock()).finish()
    }
}
