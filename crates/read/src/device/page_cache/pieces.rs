//! Pieces of files, their leases, and which of them are unregistered to make room for others.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use hsipack_store::mapping::Mapping;

use crate::store::StoredFile;

/// Most pieces at the same time. More than these cost the driver and the search for room too much.
const MAX_PIECES: usize = 1 << 14;
/// If the driver refuses this many pieces, or the first one, no others are tried.
const MAX_REFUSALS: usize = 16;

/// Part of a file. All pieces of a file have the same length, except for the last one.
#[derive(Debug)]
pub(super) struct Piece {
    pub file: Arc<dyn StoredFile>,
    pub map: Arc<Mapping>,
    pub span: Range<u64>,
    state: Mutex<State>,
    changed: Condvar,
    /// When it was leased the last time.
    used: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Queued,
    Registered,
    Refused,
}

impl Piece {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether it was registered, and wakes those who wait for it.
    pub fn settle(&self, is_registered: bool) {
        *self.lock() = if is_registered { State::Registered } else { State::Refused };
        self.changed.notify_all();
    }

    /// Waits until it is registered. `false` if it was refused.
    fn is_ready(&self) -> bool {
        let mut state = self.lock();
        while *state == State::Queued {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        *state == State::Registered
    }

    pub fn is_registered(&self) -> bool {
        *self.lock() == State::Registered
    }

    /// The bytes of the map. A device reads them; here they are only an address.
    pub fn memory(&self) -> &[u8] {
        // A map has at most as many bytes as there are addresses.
        &self.map.bytes()[self.span.start as usize..self.span.end as usize]
    }

    fn bytes(&self) -> u64 {
        self.span.end - self.span.start
    }
}

/// The pieces that a batch leases.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    pieces: Vec<Arc<Piece>>,
    piece_bytes: u64,
}

/// Some of the pieces of a [`Leases`], which follow one another in a file.
pub(crate) type Leased = Range<u32>;

impl Leases {
    fn all(&self, leased: &Leased) -> &[Arc<Piece>] {
        &self.pieces[leased.start as usize..leased.end as usize]
    }

    /// Waits until these pieces are registered. `false` if one of them was refused.
    pub(crate) fn are_ready(&self, leased: &Leased) -> bool {
        self.all(leased).iter().all(|piece| piece.is_ready())
    }

    /// Whether all pieces are registered now.
    pub(crate) fn are_registered(&self) -> bool {
        self.pieces.iter().all(|piece| piece.is_registered())
    }

    /// The map of the file that these pieces are of.
    pub(crate) fn map(&self, leased: &Leased) -> Option<&Arc<Mapping>> {
        self.all(leased).first().map(|piece| &piece.map)
    }

    /// Bytes of a piece. A copy must not reach beyond a multiple of them.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// The latest pieces, if they are those of this span.
    fn latest(&self, map: &Arc<Mapping>, numbers: &Range<u64>) -> Option<Leased> {
        let count = usize::try_from(numbers.end - numbers.start).ok()?;
        let first = self.pieces.len().checked_sub(count)?;
        let are_these = self.pieces[first..].iter().zip(numbers.clone()).all(|(piece, number)| {
            Arc::ptr_eq(&piece.map, map) && piece.span.start == number * self.piece_bytes
        });
        are_these.then_some(first as u32..self.pieces.len() as u32)
    }
}

/// All pieces of a loader.
#[derive(Debug)]
pub(super) struct Pieces {
    piece_bytes: u64,
    limit: u64,
    /// Whether each part of a file is needed once an epoch, so that the piece used last is needed
    /// last.
    is_read_once: bool,
    all: HashMap<(usize, u64), Arc<Piece>>,
    /// To be registered, in this order.
    queue: VecDeque<Arc<Piece>>,
    /// To be unregistered.
    surplus: Vec<Arc<Piece>>,
    bytes: u64,
    clock: u64,
    accepted: usize,
    refused: usize,
    /// Why no further piece is registered.
    closed: Option<String>,
    has_ended: bool,
    reasons: Reasons,
}

/// Why chunks are gathered.
#[derive(Clone, Debug, Default)]
pub(super) struct Reasons {
    /// A piece for which there was no room.
    pub has_no_room: bool,
    /// Why pieces were refused; the first reason.
    pub refusal: Option<String>,
    /// Other reasons that batches gave.
    pub others: Vec<&'static str>,
}

/// Work of the thread that registers.
#[derive(Debug)]
pub(super) enum Job {
    Unregister(Vec<Arc<Piece>>),
    Register(Arc<Piece>),
}

impl Pieces {
    /// No pieces yet. `piece_bytes` must be a multiple of the page size.
    pub fn new(limit: u64, piece_bytes: u64, is_read_once: bool) -> Self {
        Self {
            piece_bytes,
            limit,
            is_read_once,
            all: HashMap::new(),
            queue: VecDeque::new(),
            surplus: Vec::new(),
            bytes: 0,
            clock: 0,
            accepted: 0,
            refused: 0,
            closed: None,
            has_ended: false,
            reasons: Reasons::default(),
        }
    }

    /// Leases the pieces that hold a span of a file, and queues those that are not registered.
    /// `None` if there is no room for one of them, or one was refused.
    pub fn lease(
        &mut self,
        file: &Arc<dyn StoredFile>,
        map: &Arc<Mapping>,
        span: &Range<u64>,
        leases: &mut Leases,
    ) -> Option<Leased> {
        if self.is_closed() || span.is_empty() {
            return None;
        }
        leases.piece_bytes = self.piece_bytes;
        let numbers = span.start / self.piece_bytes..(span.end - 1) / self.piece_bytes + 1;
        if let Some(latest) = leases.latest(map, &numbers) {
            return Some(latest);
        }
        let before = leases.pieces.len();
        for number in numbers {
            let Some(piece) = self.piece(file, map, number) else {
                leases.pieces.truncate(before);
                return None;
            };
            leases.pieces.push(piece);
        }
        Some(before as u32..leases.pieces.len() as u32)
    }

    fn piece(
        &mut self,
        file: &Arc<dyn StoredFile>,
        map: &Arc<Mapping>,
        number: u64,
    ) -> Option<Arc<Piece>> {
        self.clock += 1;
        let key = (Arc::as_ptr(map) as usize, number);
        if let Some(piece) = self.all.get(&key) {
            piece.used.store(self.clock, Ordering::Relaxed);
            let is_refused = *piece.lock() == State::Refused;
            return (!is_refused).then(|| piece.clone());
        }
        let start = number * self.piece_bytes;
        let span = start..(start + self.piece_bytes).min(map.len());
        if span.is_empty() {
            return None;
        }
        if !self.makes_room(span.end - span.start) {
            self.reasons.has_no_room = true;
            return None;
        }
        let piece = Arc::new(Piece {
            file: file.clone(),
            map: map.clone(),
            span,
            state: Mutex::new(State::Queued),
            changed: Condvar::new(),
            used: AtomicU64::new(self.clock),
        });
        self.bytes += piece.bytes();
        self.all.insert(key, piece.clone());
        self.queue.push_back(piece.clone());
        Some(piece)
    }

    /// Gives up pieces that nobody leases, until there is room for so many bytes. `false` if there
    /// are too few.
    fn makes_room(&mut self, bytes: u64) -> bool {
        while self.bytes + bytes > self.limit || self.all.len() >= MAX_PIECES {
            // Leases are given under the lock of this table only. So a piece that only the table knows stays so.
            let free = self.all.iter().filter(|(_, piece)| {
                Arc::strong_count(piece) == 1 && *piece.lock() != State::Queued
            });
            let by_use = |(_, piece): &(&(usize, u64), &Arc<Piece>)| {
                let used = piece.used.load(Ordering::Relaxed);
                if self.is_read_once { u64::MAX - used } else { used }
            };
            let Some(key) = free.min_by_key(by_use).map(|(key, _)| *key) else { return false };
            if let Some(piece) = self.all.remove(&key)
                && piece.is_registered()
            {
                self.bytes -= piece.bytes();
                self.surplus.push(piece);
            }
        }
        true
    }

    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.surplus.is_empty()
    }

    /// The next work: what is given up is unregistered first.
    pub fn next_job(&mut self) -> Option<Job> {
        if !self.surplus.is_empty() {
            return Some(Job::Unregister(std::mem::take(&mut self.surplus)));
        }
        self.queue.pop_front().map(Job::Register)
    }

    /// Notes that a piece was registered, or why it was refused.
    pub fn settle(&mut self, piece: &Piece, result: Result<(), Refusal>) {
        match result {
            Ok(()) => self.accepted += 1,
            Err(Refusal { why, is_of_file }) => {
                self.bytes -= piece.bytes();
                if !is_of_file {
                    self.refused += 1;
                    if self.accepted == 0 || self.refused >= MAX_REFUSALS {
                        self.close(why.clone());
                    }
                }
                self.reasons.refusal.get_or_insert(why);
            }
        }
    }

    /// Leases nothing any more.
    pub fn close(&mut self, why: String) {
        self.closed.get_or_insert(why);
    }

    /// Leases nothing any more, because the loader ends.
    pub fn stop(&mut self) {
        self.has_ended = true;
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Ends everything. Returns the pieces that are registered.
    pub fn end(&mut self) -> Vec<Arc<Piece>> {
        self.stop();
        self.queue.clear();
        self.bytes = 0;
        let all = self.all.drain().map(|(_, piece)| piece).chain(self.surplus.drain(..));
        let (registered, others): (Vec<_>, Vec<_>) = all.partition(|piece| piece.is_registered());
        others.iter().for_each(|piece| piece.settle(false));
        registered
    }

    /// Notes a reason why chunks are gathered.
    pub fn note(&mut self, why: &'static str) {
        if !self.reasons.others.contains(&why) {
            self.reasons.others.push(why);
        }
    }

    pub fn is_closed(&self) -> bool {
        self.has_ended || self.closed.is_some()
    }

    /// Bytes that are registered, or are about to be.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Why nothing is registered any more, and why chunks were gathered.
    pub fn reasons(&self) -> (Option<&str>, &Reasons) {
        (self.closed.as_deref(), &self.reasons)
    }
}

/// Why a piece was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub why: String,
    /// Whether the file cannot be read there, so that others may be accepted.
    pub is_of_file: bool,
}

// Miri does not support memory maps of files.
#[cfg(all(test, not(miri)))]
mod tests {
    use crate::store::StoreKind;

    use super::*;

    const PIECE: u64 = 4096;

    fn file(folder: &tempfile::TempDir, name: &str, bytes: usize) -> Arc<dyn StoredFile> {
        let path = folder.path().join(name);
        std::fs::write(&path, vec![7; bytes]).unwrap();
        StoreKind::Mapped.store().open(&path).unwrap()
    }

    fn lease(
        pieces: &mut Pieces,
        file: &Arc<dyn StoredFile>,
        span: Range<u64>,
        leases: &mut Leases,
    ) -> Option<Leased> {
        pieces.lease(file, file.mapping().unwrap(), &span, leases)
    }

    /// Does all work. Returns the first bytes of what was registered and unregistered.
    fn work(pieces: &mut Pieces, refuses: impl Fn(u64) -> Option<Refusal>) -> [Vec<u64>; 2] {
        let (mut registered, mut unregistered) = (Vec::new(), Vec::new());
        while let Some(job) = pieces.next_job() {
            match job {
                Job::Unregister(all) => {
                    unregistered.extend(all.iter().map(|piece| piece.span.start));
                }
                Job::Register(piece) => {
                    let result = refuses(piece.span.start).map_or(Ok(()), Err);
                    registered.extend(result.is_ok().then_some(piece.span.start));
                    let is_registered = result.is_ok();
                    pieces.settle(&piece, result);
                    piece.settle(is_registered);
                }
            }
        }
        [registered, unregistered]
    }

    fn accept(_: u64) -> Option<Refusal> {
        None
    }

    #[test]
    fn a_span_leases_all_pieces_that_hold_it_and_each_is_registered_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder, "a", 10_000);
        let mut pieces = Pieces::new(1 << 20, PIECE, true);
        let mut leases = Leases::default();
        assert_eq!(lease(&mut pieces, &file, 0..10, &mut leases), Some(0..1));
        assert_eq!(lease(&mut pieces, &file, 5..4096, &mut leases), Some(0..1));
        assert_eq!(lease(&mut pieces, &file, 4090..9000, &mut leases), Some(1..4));
        assert_eq!(lease(&mut pieces, &file, 8192..10_000, &mut leases), Some(3..4));
        assert_eq!(pieces.bytes(), 10_000);
        assert!(!leases.are_registered());
        assert_eq!(work(&mut pieces, accept), [vec![0, 4096, 8192], vec![]]);
        assert!(leases.are_registered() && leases.are_ready(&(0..4)));
        assert_eq!(leases.pieces[3].memory().len(), 10_000 - 8192);
        // Nothing of an empty span, and nothing beyond the end.
        assert_eq!(lease(&mut pieces, &file, 5..5, &mut leases), None);
        assert_eq!(lease(&mut pieces, &file, 12_288..12_289, &mut leases), None);
    }

    #[test]
    fn pieces_that_are_needed_last_make_room_for_others_but_never_leased_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder, "a", 8 * PIECE as usize);
        let of = |number: u64| number * PIECE..number * PIECE + 1;
        for (is_read_once, first, second) in [(true, 2, 1), (false, 0, 1)] {
            let mut pieces = Pieces::new(3 * PIECE, PIECE, is_read_once);
            for number in 0..3 {
                assert!(lease(&mut pieces, &file, of(number), &mut Leases::default()).is_some());
                work(&mut pieces, accept);
            }
            let mut kept = Leases::default();
            assert!(lease(&mut pieces, &file, of(5), &mut kept).is_some());
            assert_eq!(work(&mut pieces, accept), [vec![5 * PIECE], vec![first * PIECE]]);
            assert!(lease(&mut pieces, &file, of(6), &mut kept).is_some());
            assert_eq!(work(&mut pieces, accept), [vec![6 * PIECE], vec![second * PIECE]]);
            assert!(lease(&mut pieces, &file, of(7), &mut kept).is_some());
            // All three are leased.
            assert_eq!(lease(&mut pieces, &file, of(4), &mut kept), None);
            assert!(pieces.reasons().1.has_no_room && kept.pieces.len() == 3);
            assert_eq!(pieces.bytes(), 3 * PIECE);
            drop(kept);
            // Two that are registered, and the one that made room; the last one was not registered yet.
            assert_eq!(pieces.end().len(), 3);
        }
    }

    #[test]
    fn queued_pieces_are_not_given_up_and_an_end_refuses_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder, "a", 2 * PIECE as usize);
        let mut pieces = Pieces::new(PIECE, PIECE, true);
        let mut leases = Leases::default();
        let first = lease(&mut pieces, &file, 0..1, &mut leases).unwrap();
        assert_eq!(lease(&mut pieces, &file, PIECE..PIECE + 1, &mut leases), None);
        assert!(pieces.end().is_empty());
        assert!(!leases.are_ready(&first));
        assert_eq!(lease(&mut pieces, &file, 0..1, &mut leases), None);
    }

    #[test]
    fn a_driver_that_refuses_the_first_piece_or_many_gets_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder, "a", 40 * PIECE as usize);
        let refusal = |is_of_file| Refusal { why: "no".into(), is_of_file };
        let mut pieces = Pieces::new(1 << 20, PIECE, true);
        let mut leases = Leases::default();
        lease(&mut pieces, &file, 0..1, &mut leases);
        work(&mut pieces, |_| Some(refusal(false)));
        assert!(pieces.is_closed() && pieces.bytes() == 0);

        let mut pieces = Pieces::new(1 << 20, PIECE, true);
        lease(&mut pieces, &file, 0..20 * PIECE, &mut leases);
        // The file's own failures do not count.
        work(&mut pieces, |start| (start > 2 * PIECE).then(|| refusal(true)));
        assert!(!pieces.is_closed() && pieces.bytes() == 3 * PIECE);
        lease(&mut pieces, &file, 20 * PIECE..40 * PIECE, &mut leases);
        work(&mut pieces, |_| Some(refusal(false)));
        assert!(pieces.is_closed());
        assert_eq!(lease(&mut pieces, &file, 0..1, &mut Leases::default()), None);
        assert_eq!(pieces.end().len(), 3);
    }
}
