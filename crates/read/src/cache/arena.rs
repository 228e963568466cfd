//! Chunks in the memory of this process: one after another in one large memory, in the order in
//! which they came.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use hsipack_store::pages::Supply;

use crate::Result;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;

/// Every chunk begins at a multiple of this, which suits every element type and vector
/// instructions.
const ALIGN: usize = 64;
/// Bytes that are made ready ahead of the chunks that are kept.
const AHEAD: usize = 32 << 20;
/// The same if keeping may take only a limited time: clearing more would hold up the next batches.
const LITTLE_AHEAD: usize = 4 << 20;
/// If keeping may take at least this long, more is made ready ahead, and keeping may also wait for
/// it. While one thread waits, others that keep chunks wait, too.
const WAITS_FROM: Duration = Duration::from_millis(40);
/// ns that it takes to make a byte ready, before that was measured.
const CLEARING: f64 = 0.35;
/// If the system refuses even so few bytes of addresses, nothing is kept.
const LEAST: usize = 4 << 20;

/// A chunk's state. Larger numbers say where its bytes begin: [`READY`] at the start of the memory.
const EMPTY: u64 = 0;
const WRITING: u64 = 1;
const READY: u64 = 2;

/// Where a chunk is, if it is kept.
#[derive(Debug, Default)]
struct Entry {
    state: AtomicU64,
    /// Bytes of the chunk.
    len: AtomicU32,
}

/// Time that it took to keep a chunk.
#[derive(Debug)]
pub(super) struct KeepTime {
    /// Copying it.
    pub copied: Duration,
    /// Waiting for memory, and for other threads that wait for memory.
    pub waited: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Arena {
    /// `None` if the system refused the addresses.
    supply: Option<Supply>,
    /// Where the next chunk begins.
    next: Mutex<usize>,
    /// Bytes of chunks.
    used: AtomicU64,
    /// Per stack, per array.
    entries: Vec<Vec<Box<[Entry]>>>,
}

impl Arena {
    /// Room for at most `budget` bytes of chunks. It takes addresses, but no memory.
    ///
    /// # Errors
    /// If there is not enough memory for a note about every chunk.
    pub(super) fn new(dataset: &Dataset, budget: u64) -> Result<Self> {
        let entries = dataset.for_every_chunk("the cache", Entry::default)?;
        let arrays = (0..dataset.stacks().len()).flat_map(|stack| dataset.arrays(stack));
        // A compressed chunk is at most a few bytes longer than a decoded one.
        let of_array = |array: ArrayRef<'_>| {
            (array.count() as u64).saturating_mul((array.chunks.chunk_bytes() + 2 * ALIGN) as u64)
        };
        let (all, chunks) = arrays.fold((0u64, 0u64), |(all, chunks), array| {
            (all.saturating_add(of_array(array)), chunks + array.count() as u64)
        });
        let bytes = all.min(budget.saturating_add(chunks * ALIGN as u64));
        let supply = reserve(usize::try_from(bytes).unwrap_or(usize::MAX));
        Ok(Self { supply, next: Mutex::default(), used: AtomicU64::new(0), entries })
    }

    fn entry(&self, array: ArrayRef<'_>, number: usize) -> &Entry {
        &self.entries[array.stack][array.array][number]
    }

    /// The bytes of a chunk, if it is kept.
    pub(super) fn get(&self, array: ArrayRef<'_>, number: usize) -> Option<&[u8]> {
        let entry = self.entry(array, number);
        let start = entry.state.load(Ordering::Acquire).checked_sub(READY)? as usize;
        let len = entry.len.load(Ordering::Relaxed) as usize;
        let memory = NonNull::new(self.supply.as_ref()?.start())?;
        // SAFETY: whoever made the chunk ready had taken these bytes for it alone, they are within the memory, and nobody
        // writes to them again. The memory lives as long as this.
        Some(unsafe { std::slice::from_raw_parts(memory.as_ptr().add(start), len) })
    }

    /// Keeps a chunk, unless it is kept already or would make more than `budget` bytes. If keeping
    /// may take only a `left` time and no memory is ready, the chunk is not kept. Returns how long
    /// it took, if this call kept it.
    pub(super) fn keep(
        &self,
        array: ArrayRef<'_>,
        number: usize,
        bytes: &[u8],
        budget: u64,
        remaining: Option<Duration>,
    ) -> Option<KeepTime> {
        let begun = Instant::now();
        let (entry, len) = (self.entry(array, number), bytes.len() as u64);
        let Ok(short) = u32::try_from(bytes.len()) else { return None };
        if entry.state.load(Ordering::Relaxed) != EMPTY {
            return None;
        }
        let add = |used: u64| used.checked_add(len).filter(|used| *used <= budget);
        if self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            return None;
        }
        let begin =
            entry.state.compare_exchange(EMPTY, WRITING, Ordering::Relaxed, Ordering::Relaxed);
        let start = begin.ok().and_then(|_| {
            let start = self.take(bytes.len(), remaining);
            if start.is_none() {
                entry.state.store(EMPTY, Ordering::Relaxed);
            }
            start
        });
        let (Some(start), Some(supply)) = (start, &self.supply) else {
            // Another thread was first, or there is no memory.
            self.used.fetch_sub(len, Ordering::Relaxed);
            return None;
        };
        let before = Instant::now();
        // SAFETY: `take` gave these bytes of the memory to this call alone. Nobody reads them before the chunk is ready.
        unsafe {
            let to = supply.start().add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        entry.len.store(short, Ordering::Relaxed);
        entry.state.store(READY + start as u64, Ordering::Release);
        Some(KeepTime { copied: before.elapsed(), waited: before - begun })
    }

    /// Takes the next `len` bytes of the memory; returns where they begin.
    fn take(&self, len: usize, remaining: Option<Duration>) -> Option<usize> {
        let supply = self.supply.as_ref()?;
        let waits = remaining.is_none_or(|remaining| remaining >= WAITS_FROM);
        let mut next = match self.next.try_lock() {
            Ok(next) => next,
            Err(TryLockError::Poisoned(next)) => next.into_inner(),
            // Another thread may hold it while it waits for memory.
            Err(TryLockError::WouldBlock) if !waits => return None,
            Err(TryLockError::WouldBlock) => {
                self.next.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let (start, end) = (*next, next.checked_add(len)?.next_multiple_of(ALIGN));
        if end > supply.bytes() {
            return None;
        }
        let ahead = if waits { AHEAD } else { LITTLE_AHEAD };
        let wanted = end.saturating_add(ahead).min(supply.bytes());
        let more = wanted.saturating_sub(supply.ready());
        if waits || remaining.is_some_and(|remaining| remaining >= self.clearing(more)) {
            supply.want(wanted);
        }
        if supply.ready() < end && !waits {
            return None;
        }
        // It is waited for under the lock: whoever comes next needs the memory behind this.
        supply.wait(end).ok()?;
        *next = end;
        Some(start)
    }

    /// About how long it takes to make so many bytes ready.
    fn clearing(&self, bytes: usize) -> Duration {
        let ready = self.supply.as_ref().map_or(0, Supply::ready);
        let each = match ready {
            0 => CLEARING,
            ready => self.took().as_nanos() as f64 / ready as f64,
        };
        Duration::from_nanos((each * bytes as f64) as u64)
    }

    /// Bytes of the chunks that are kept.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Processor time that it took to make the memory ready.
    pub(super) fn took(&self) -> Duration {
        self.supply.as_ref().map_or(Duration::ZERO, Supply::took)
    }
}

/// Addresses for `bytes` bytes, or for as many as the system gives.
fn reserve(bytes: usize) -> Option<Supply> {
    let tries = std::iter::successors(Some(bytes), |bytes| Some(bytes / 2).filter(|n| *n >= LEAST));
    tries.filter(|bytes| *bytes > 0).find_map(|bytes| Supply::new(bytes, true).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_do_not_exist_are_not_needed() {
        let supply = reserve(1 << 60).unwrap();
        assert!(supply.bytes() < 1 << 60);
        assert!(reserve(0).is_none());
    }
}
