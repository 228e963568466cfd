//! Spans of objects that were requested in advance.
//!
//! ```text
//! queued ──▶ being fetched ──▶ there ──all its bytes were taken──▶ kept for a while ──▶ gone, its memory spare
//!  ▲ │  └─a reader waits for it: fetched at once   └─failed: reported to readers that wait, then gone
//!  │ ▼
//! claimed by another process ──▶ in the local cache: gone
//! ```
//!
//! - Spans are fetched in the order in which they were requested. [`Pace`] says how many at a time.
//!   Most of the link belongs to the spans of a loader's first batch until they have arrived. The
//!   memory of all spans that are being fetched or were fetched stays within the limit. But a span
//!   that a reader waits for is fetched at once, even beyond the limit, so that no reader waits for
//!   ever for memory that others hold.
//! - A span that was taken is kept while newer spans leave room for it, because several windows in
//!   a row may need the same chunk.
//! - A span that still waits to be written into the local cache is available at once.
//! - The memory of a span is used again ([`Pool`]) when the span was dropped, its last reader is
//!   done, and it was written into the local cache.
//! - A span that another process is fetching into the local cache is passed over, and the next
//!   spans are fetched first. It is looked at again every few ms, until it is in the cache or is
//!   queued again ([`Patience`]).
//! - The last batches of an epoch and the first batches of the next may need the same spans. A span
//!   that is requested again before it was dropped is kept until it was taken as often as it was
//!   requested.
//! - Bytes between wanted spans are fetched too, but never taken, so a span may never be used up.
//!   Spans are needed in about the order in which they were requested. So if more than twice the
//!   limit was taken since a span arrived, the span is dropped when memory is needed.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hsipack_format::Result;
use tokio::task::AbortHandle;

use super::claimed::{POLL_INTERVAL, Patience, poll_interval};
use super::object::OpenObject;
use super::pace::Pace;
use crate::local_cache::Claim;
use crate::remote::{self, Failure};
use crate::span_pool::{Pool, SpanBytes};
use crate::stopping;

/// Maximum number of waiting spans; more `prefetch` calls are ignored.
const QUEUE: usize = 4096;
/// For this time after a failure, all readers of the span get the error. Afterwards, the span is
/// fetched again.
const FAILURE_LIFETIME: Duration = Duration::from_secs(1);

/// Maximum size in bytes of spans that are kept after they were taken.
const MAX_TAKEN_BYTES: u64 = 64 << 20;
/// Maximum size in bytes of memory that waits for the next spans. A span that is dropped makes room
/// for one that is requested, so little memory waits.
const SPARE: u64 = 64 << 20;

/// Number of the object, start of the span.
type SpanKey = (u64, u64);

/// The spans that were requested.
#[derive(Debug)]
pub(super) struct PrefetchQueue {
    /// Maximum number of bytes that are being fetched or were fetched.
    limit: u64,
    table: Mutex<QueueState>,
    /// Memory for the next spans.
    pool: Arc<Pool>,
    /// Signals that a span has arrived or failed.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    spans: BTreeMap<SpanKey, SpanRequest>,
    /// Spans to be fetched, oldest first. Some may no longer exist.
    queue: VecDeque<SpanKey>,
    /// Spans that were completely taken, oldest first. Some may no longer exist. `kept` is their
    /// total size in bytes.
    taken: VecDeque<SpanKey>,
    kept: u64,
    /// Number of running requests.
    running: usize,
    /// Total size in bytes of the spans that are being fetched or were fetched.
    held: u64,
    /// Number of bytes taken so far, of any span.
    delivered: u64,
    /// Number of bytes received when the last request was done.
    received: u64,
    pace: Pace,
    first: First,
    /// Spans that other processes have claimed, oldest first. Some may no longer exist.
    claimed: VecDeque<SpanKey>,
    /// Whether a task looks at them again.
    is_polled: bool,
    patience: Patience,
}

/// The state of the first batch of a loader. Only its bytes are waited for at the start, so other
/// spans leave most of the link to them.
#[derive(Debug, Default)]
enum First {
    /// It is not yet known which spans it needs.
    #[default]
    Unknown,
    /// Its spans that have not arrived and have not failed.
    OnItsWay(HashSet<SpanKey>),
    Arrived,
}

#[derive(Debug)]
struct SpanRequest {
    object: Arc<OpenObject>,
    span: Range<u64>,
    /// Number of bytes that are wanted and not yet taken. It may exceed the span's length, if bytes
    /// are wanted more than once.
    wanted: u64,
    /// Whether the span was left to another process for too long, so that it is fetched in any
    /// case.
    overdue: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    Queued,
    /// Another process is fetching it; since when this process knows.
    Claimed(Instant),
    Fetching(AbortHandle),
    /// The bytes, and the value of `delivered` when they arrived.
    Fetched(Arc<SpanBytes>, u64),
    Failed(Failure, Instant),
}

/// Bytes of a span that has arrived.
pub(super) struct FetchedBytes {
    memory: Arc<SpanBytes>,
    range: Range<usize>,
}

impl FetchedBytes {
    /// The bytes that were wanted.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.memory[self.range.clone()]
    }
}

/// The result of a request.
struct Done {
    key: SpanKey,
    bytes: SpanBytes,
    begun: Instant,
    result: Result<(), Failure>,
}

impl PrefetchQueue {
    /// Starts without any requested spans.
    pub(super) fn new(limit: u64) -> Self {
        let pool = Pool::new(SPARE.min(limit));
        Self { limit, table: Mutex::default(), pool, changed: Condvar::new() }
    }

    /// Number of bytes that are wanted and were not taken.
    #[cfg(test)]
    pub(super) fn wanted(&self) -> u64 {
        self.lock().spans.values().map(|request| request.wanted).sum()
    }

    /// Bytes of memory that wait for the next spans.
    #[cfg(test)]
    pub(super) fn spare_bytes(&self) -> u64 {
        self.pool.bytes()
    }

    /// Drops all spans.
    #[cfg(test)]
    pub(super) fn forget_all(self: &Arc<Self>) {
        let numbers: Vec<u64> = self.lock().spans.keys().map(|(number, _)| *number).collect();
        for number in numbers {
            self.forget(number);
        }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a span, of which `wanted` bytes will be taken. Does nothing if there are too many
    /// spans.
    pub(super) fn ask(self: &Arc<Self>, object: &Arc<OpenObject>, span: Range<u64>, wanted: u64) {
        let mut table = self.lock();
        if let Some(key) = table.holding(object.number, &span) {
            return table.want_again(key, wanted);
        }
        self.ask_for(&mut table, object, span, wanted);
    }

    /// Requests a span unless it is known already. For a reader that takes a part of it now, and
    /// may have requested it before.
    pub(super) fn ask_once(self: &Arc<Self>, object: &Arc<OpenObject>, span: Range<u64>) {
        let mut table = self.lock();
        if table.holding(object.number, &span).is_none() {
            let wanted = span.end - span.start;
            self.ask_for(&mut table, object, span, wanted);
        }
    }

    /// Records that a reader got the bytes of a span from elsewhere.
    pub(super) fn pass(self: &Arc<Self>, object: &OpenObject, span: &Range<u64>) {
        let mut table = self.lock();
        if let Some(key) = table.holding(object.number, span) {
            table.took(key, span.end - span.start);
            self.go_on(&mut table);
        }
    }

    fn ask_for(
        self: &Arc<Self>,
        table: &mut QueueState,
        object: &Arc<OpenObject>,
        span: Range<u64>,
        wanted: u64,
    ) {
        let len = span.end - span.start;
        if table.spans.len() == QUEUE {
            table.give_way();
        }
        if len > self.limit || table.spans.len() == QUEUE || table.queue.len() == QUEUE {
            return;
        }
        let key = (object.number, span.start);
        if table.spans.contains_key(&key) {
            // A shorter span begins at the same place. The bytes after it are fetched when they are read.
            return;
        }
        let state = State::Queued;
        let request = SpanRequest { object: object.clone(), span, wanted, overdue: false, state };
        table.spans.insert(key, request);
        table.queue.push_back(key);
        self.go_on(table);
    }

    /// The bytes of a span that was requested and has arrived. `None` if not; then it may still be
    /// on its way.
    pub(super) fn take_arrived(
        self: &Arc<Self>,
        object: &OpenObject,
        span: &Range<u64>,
    ) -> Option<FetchedBytes> {
        let mut table = self.lock();
        let fetched = table.take(object.number, span)?;
        self.go_on(&mut table);
        Some(fetched)
    }

    /// The bytes of a span that was requested. Waits until they arrive. `None` if it was not
    /// requested, or if another process has written it into the local cache meanwhile.
    ///
    /// # Errors
    /// If they could not be fetched.
    pub(super) fn take(
        self: &Arc<Self>,
        object: &Arc<OpenObject>,
        span: &Range<u64>,
    ) -> Result<Option<FetchedBytes>> {
        let mut table = self.lock();
        // Since when this reader waits for another process.
        let mut since = None;
        loop {
            if let Some(fetched) = table.take(object.number, span) {
                self.go_on(&mut table);
                return Ok(Some(fetched));
            }
            let Some(key) = table.holding(object.number, span) else { return Ok(None) };
            match &table.spans[&key].state {
                State::Queued => self.start(&mut table, key),
                State::Claimed(_) => {
                    let now = Instant::now();
                    let waited = now.duration_since(*since.get_or_insert(now));
                    if waited >= table.patience.of_reader(now) {
                        table.waited_in_vain(now);
                        self.start(&mut table, key);
                        self.go_on(&mut table);
                        continue;
                    }
                    table = self.wait(table, object, POLL_INTERVAL)?;
                    table.look_again(key);
                }
                State::Fetching(_) => table = self.wait(table, object, stopping::POLL_INTERVAL)?,
                // It has just arrived.
                State::Fetched(..) => {}
                State::Failed(failure, when) => {
                    if when.elapsed() < FAILURE_LIFETIME {
                        return Err(failure.of(&object.url));
                    }
                    table.remove(key);
                }
            }
        }
    }

    /// Waits for a change, but not longer than `most`.
    fn wait<'a>(
        &self,
        table: MutexGuard<'a, QueueState>,
        object: &OpenObject,
        most: Duration,
    ) -> Result<MutexGuard<'a, QueueState>> {
        if stopping::stopped() {
            return Err(stopping::interrupted().at(&object.url));
        }
        Ok(self.changed.wait_timeout(table, most).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Drops all spans of an object.
    pub(super) fn forget(self: &Arc<Self>, number: u64) {
        let mut table = self.lock();
        let places = table.spans.range((number, 0)..=(number, u64::MAX));
        let places: Vec<SpanKey> = places.map(|(key, _)| *key).collect();
        for key in places {
            table.remove(key);
        }
        self.go_on(&mut table);
    }

    /// Call this when all spans of the first batch were requested. Ignored later.
    pub(super) fn first_batch(self: &Arc<Self>) {
        let mut table = self.lock();
        if !matches!(table.first, First::Unknown) {
            return;
        }
        let pending = table.spans.iter().filter(|(_, request)| request.is_pending());
        let spans: HashSet<SpanKey> = pending.map(|(key, _)| *key).collect();
        if spans.is_empty() {
            // Everything is in memory or in the local cache, so this says nothing about the link.
            return;
        }
        table.pace.first_batch(spans.len());
        table.first = First::OnItsWay(spans);
        self.go_on(&mut table);
    }

    /// Starts as many requests for queued spans as allowed.
    fn go_on(self: &Arc<Self>, table: &mut QueueState) {
        table.look_at_first();
        while let Some(key) = table.queue.front().copied() {
            let Some(request) = table.spans.get(&key).filter(|request| request.is_queued()) else {
                table.queue.pop_front();
                continue;
            };
            let len = request.span.end - request.span.start;
            if table.running >= table.at_once(key) || !table.make_room(len, self.limit) {
                return;
            }
            table.queue.pop_front();
            self.pool.shrink(self.limit - table.held);
            self.start(table, key);
        }
    }

    /// Starts the request for a queued span, unless its bytes are in the local cache or still wait
    /// to be written there, or another process is fetching them.
    fn start(self: &Arc<Self>, table: &mut QueueState, key: SpanKey) {
        let delivered = table.delivered;
        let request = table.spans.get_mut(&key).expect("it was just looked at");
        let len = request.span.end - request.span.start;
        if let Some(bytes) = request.object.waiting(&request.span) {
            request.state = State::Fetched(bytes, delivered);
            table.held += len;
            self.changed.notify_all();
            return;
        }
        let now = Instant::now();
        match request.object.claim(&request.span) {
            Claim::Other if !request.overdue && !table.patience.is_over(now) => {
                request.state = State::Claimed(now);
                self.poll(table, key);
                return;
            }
            Claim::Free | Claim::Other => {}
            Claim::Cached => {
                table.remove(key);
                self.changed.notify_all();
                return;
            }
        }
        let mut bytes = match self.pool.get(len as usize) {
            Ok(bytes) => bytes,
            Err(_) => {
                request.object.release(&request.span);
                request.state = State::Failed(Failure::Memory(len), Instant::now());
                self.changed.notify_all();
                return;
            }
        };
        let (object, span) = (request.object.clone(), request.span.clone());
        let received = object.received();
        // A weak reference, so that dropping the store does not wait for its requests.
        let ahead = Arc::downgrade(self);
        let started = remote::spawn(async move {
            let result = object.fetch(span, &mut bytes).await;
            if let Some(ahead) = ahead.upgrade() {
                ahead.done(Done { key, bytes, begun: now, result });
            }
        });
        match started {
            // The table is locked, so the request cannot be recorded as done before this.
            Ok(started) => {
                request.state = State::Fetching(started.abort_handle());
                table.running += 1;
                table.held += len;
                table.patience.started(now);
                table.pace.started(received, Instant::now());
            }
            Err(error) => {
                request.object.release(&request.span);
                let failure = Failure::Other(error.what().to_owned());
                request.state = State::Failed(failure, Instant::now());
                self.changed.notify_all();
            }
        }
    }

    /// Adds a span to those that other processes have claimed. A task looks at them every few ms,
    /// until there are none.
    fn poll(self: &Arc<Self>, table: &mut QueueState, key: SpanKey) {
        if !table.claimed.contains(&key) {
            table.claimed.push_back(key);
        }
        if table.is_polled {
            return;
        }
        let ahead = Arc::downgrade(self);
        let poll = async move {
            let mut pause = Some(POLL_INTERVAL);
            while let Some(time) = pause {
                tokio::time::sleep(time).await;
                pause = ahead.upgrade().and_then(|ahead| ahead.look_at_claimed());
            }
        };
        // If the network's threads cannot be started, only waiting readers look at the claims.
        table.is_polled = remote::spawn(poll).is_ok();
    }

    /// Queues spans that other processes have not fetched, and forgets spans that are in the local
    /// cache now. Returns the time until the next look; `None` if no span is claimed any more.
    fn look_at_claimed(self: &Arc<Self>) -> Option<Duration> {
        let mut table = self.lock();
        for key in table.claimed.clone() {
            table.look_again(key);
        }
        table.queue_again();
        self.go_on(&mut table);
        let claimed = table.claimed.len();
        table.is_polled = claimed > 0;
        drop(table);
        self.changed.notify_all();
        (claimed > 0).then(|| poll_interval(claimed))
    }

    fn done(self: &Arc<Self>, done: Done) {
        let mut table = self.lock();
        let delivered = table.delivered;
        match &done.result {
            Ok(()) => table.patience.fetched(done.begun.elapsed()),
            Err(_) => table.patience.failed(),
        }
        // Otherwise the span was dropped meanwhile, and is no longer counted.
        if let Some(request) = table.spans.get_mut(&done.key) {
            let (len, received) =
                (request.span.end - request.span.start, request.object.received());
            match done.result {
                Ok(()) => {
                    let bytes = Arc::new(done.bytes);
                    request.object.has_come(&request.span, &bytes);
                    request.state = State::Fetched(bytes, delivered);
                }
                Err(failure) => {
                    request.object.release(&request.span);
                    request.state = State::Failed(failure, Instant::now());
                    table.held -= len;
                }
            }
            let busy = !table.queue.is_empty();
            table.running -= 1;
            table.received = received;
            table.pace.finished(received, busy, Instant::now());
            self.go_on(&mut table);
        }
        drop(table);
        self.changed.notify_all();
    }
}

impl SpanRequest {
    fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued)
    }

    /// Whether its bytes are still to come.
    fn is_pending(&self) -> bool {
        matches!(self.state, State::Queued | State::Fetching(_))
    }
}

impl QueueState {
    /// Maximum number of running requests when the request for a queued span starts.
    fn at_once(&self, key: SpanKey) -> usize {
        match &self.first {
            First::OnItsWay(spans) if !spans.contains(&key) => (self.pace.at_once() / 4).max(2),
            _ => self.pace.at_once(),
        }
    }

    /// Updates the state of the first batch.
    fn look_at_first(&mut self) {
        let First::OnItsWay(spans) = &mut self.first else { return };
        spans.retain(|key| self.spans.get(key).is_some_and(SpanRequest::is_pending));
        if spans.is_empty() {
            self.first = First::Arrived;
            self.pace.first_batch_arrived(self.received, Instant::now());
        }
    }

    /// The key of the span that contains `span` of an object.
    fn holding(&self, number: u64, span: &Range<u64>) -> Option<SpanKey> {
        let (key, request) = self.spans.range((number, 0)..=(number, span.start)).next_back()?;
        (span.end <= request.span.end).then_some(*key)
    }

    /// The bytes of `span`, if they are in memory. Records that they were taken.
    fn take(&mut self, number: u64, span: &Range<u64>) -> Option<FetchedBytes> {
        let key = self.holding(number, span)?;
        let request = self.spans.get(&key)?;
        let State::Fetched(memory, _) = &request.state else { return None };
        let start = (span.start - request.span.start) as usize;
        let wanted = start..start + (span.end - span.start) as usize;
        let fetched = FetchedBytes { memory: memory.clone(), range: wanted };
        self.took(key, span.end - span.start);
        Some(fetched)
    }

    /// Looks whether a span is still claimed by another process. If not, it is in the local cache,
    /// or has to be fetched.
    fn look_again(&mut self, key: SpanKey) {
        let Some(request) = self.spans.get_mut(&key) else { return };
        let State::Claimed(since) = request.state else { return };
        match request.object.claim(&request.span) {
            Claim::Other => {
                let now = Instant::now();
                request.overdue = now.duration_since(since) > self.patience.ahead(now);
                if request.overdue {
                    request.state = State::Queued;
                }
            }
            // The other process was killed, or did not keep it. The claim is made again when the request starts.
            Claim::Free => {
                request.object.release(&request.span);
                request.state = State::Queued;
            }
            Claim::Cached => {
                self.patience.was_rewarded();
                self.remove(key);
            }
        }
    }

    /// Records that a reader has waited in vain for another process. All spans that were left to
    /// other processes are fetched now.
    fn waited_in_vain(&mut self, now: Instant) {
        self.patience.was_in_vain(now);
        for key in &self.claimed {
            if let Some(request) = self.spans.get_mut(key)
                && matches!(request.state, State::Claimed(_))
            {
                (request.overdue, request.state) = (true, State::Queued);
            }
        }
        self.queue_again();
    }

    /// Puts spans that are claimed no longer back to the beginning of the queue.
    fn queue_again(&mut self) {
        let state = |key: &SpanKey| self.spans.get(key).map(|request| &request.state);
        let is_queued = |key: &SpanKey| matches!(state(key), Some(State::Queued));
        let is_claimed = |key: &SpanKey| matches!(state(key), Some(State::Claimed(_)));
        let queued: Vec<SpanKey> = self.claimed.iter().copied().filter(is_queued).collect();
        let claimed = self.claimed.iter().copied().filter(is_claimed).collect();
        self.claimed = claimed;
        queued.into_iter().rev().for_each(|key| self.queue.push_front(key));
    }

    /// Records that bytes of a span were taken.
    fn took(&mut self, key: SpanKey, bytes: u64) {
        self.delivered += bytes;
        let request = self.spans.get_mut(&key).expect("whoever took them found it");
        if request.wanted == 0 {
            return;
        }
        request.wanted = request.wanted.saturating_sub(bytes);
        if request.wanted == 0 {
            self.kept += request.span.end - request.span.start;
            self.taken.push_back(key);
        }
        while self.kept > MAX_TAKEN_BYTES && self.give_way() {}
    }

    /// Records that `bytes` more of a span are wanted.
    fn want_again(&mut self, key: SpanKey, bytes: u64) {
        let delivered = self.delivered;
        let request = self.spans.get_mut(&key).expect("whoever asks found it");
        if request.wanted == 0 {
            // The span was completely taken, and kept for a while.
            self.kept -= request.span.end - request.span.start;
        }
        request.wanted += bytes;
        if let State::Fetched(_, since) = &mut request.state {
            *since = delivered;
        }
    }

    /// Removes the span that has been completely taken for the longest time; `false` if there is
    /// none.
    fn give_way(&mut self) -> bool {
        while let Some(key) = self.taken.pop_front() {
            if self.spans.get(&key).is_some_and(|request| request.wanted == 0) {
                self.remove(key);
                return true;
            }
        }
        false
    }

    /// Removes a span in any state.
    fn remove(&mut self, key: SpanKey) {
        let Some(request) = self.spans.remove(&key) else { return };
        let len = request.span.end - request.span.start;
        if request.wanted == 0 {
            self.kept -= len;
        }
        match request.state {
            State::Queued | State::Claimed(_) | State::Failed(..) => {}
            State::Fetching(task) => {
                task.abort();
                request.object.release(&request.span);
                self.running -= 1;
                self.held -= len;
            }
            State::Fetched(..) => self.held -= len,
        }
    }

    /// Drops spans that are no longer wanted, to make room for `len` more bytes. Returns whether
    /// the bytes are now within the limit.
    fn make_room(&mut self, len: u64, limit: u64) -> bool {
        while self.held + len > limit {
            if self.give_way() {
                continue;
            }
            let is_stale = |request: &SpanRequest| matches!(request.state, State::Fetched(_, since) if self.delivered - since > 2 * limit);
            let stale = self.spans.iter().find(|(_, request)| is_stale(request));
            let Some(key) = stale.map(|(key, _)| *key) else { return false };
            self.remove(key);
        }
        true
    }
}
