//! Memory of fetched spans, which is used again.
//!
//! The system clears every page of new memory when it is first used, which takes about as long as
//! copying it. So memory comes back here when its last reader drops it. That may be a decoder, the
//! queue of spans, or the writer of the local cache. It is never cleared again: whoever gets it
//! writes all of it before anybody reads it.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hsipack_format::Result;

use crate::memory;

/// Lengths are rounded up to this many bytes, so that the memory of one block fits others of about
/// its size.
const ROUNDING: usize = 256 << 10;

/// Memory that is not in use now.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Maximum number of bytes to keep.
    limit: usize,
    spare: Mutex<Vec<Box<[u8]>>>,
}

/// The bytes of a span. Their memory returns to its pool when they are dropped.
#[derive(Debug)]
pub(crate) struct SpanBytes {
    memory: Box<[u8]>,
    len: usize,
    pool: Arc<Pool>,
}

impl Pool {
    /// An empty pool that keeps up to `limit` bytes.
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Arc::new(Self { limit, spare: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for `len` bytes, which holds anything.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub(crate) fn get(self: &Arc<Self>, len: usize) -> Result<SpanBytes> {
        let fitting = |memory: &[u8]| memory.len() >= len && memory.len() / 2 <= len.max(ROUNDING);
        let reused = {
            let mut spare = self.lock();
            let sizes = spare.iter().enumerate().filter(|(_, memory)| fitting(memory));
            let best = sizes.min_by_key(|(_, memory)| memory.len()).map(|(index, _)| index);
            best.map(|index| spare.swap_remove(index))
        };
        let memory = match reused {
            Some(memory) => memory,
            None => new_memory(len)?,
        };
        Ok(SpanBytes { memory, len, pool: self.clone() })
    }

    /// Frees memory until at most `bytes` are kept.
    pub(crate) fn shrink(&self, bytes: u64) {
        let mut spare = self.lock();
        while total(&spare) as u64 > bytes {
            spare.pop();
        }
    }

    /// Bytes of all memory that is kept.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        total(&self.lock()) as u64
    }

    fn put(&self, memory: Box<[u8]>) {
        let mut spare = self.lock();
        if total(&spare) + memory.len() <= self.limit {
            spare.push(memory);
        }
    }
}

fn total(spare: &[Box<[u8]>]) -> usize {
    spare.iter().map(|memory| memory.len()).sum()
}

fn new_memory(len: usize) -> Result<Box<[u8]>> {
    let rounded = if len < ROUNDING { len } else { len.next_multiple_of(ROUNDING) };
    Ok(memory::zeroed(rounded, "what is read ahead")?.into_boxed_slice())
}

impl SpanBytes {
    /// Bytes that belong to no store, for tests.
    #[cfg(test)]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { memory: bytes.into(), len: bytes.len(), pool: Pool::new(0) }
    }
}

impl Deref for SpanBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[..self.len]
    }
}

impl DerefMut for SpanBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[..self.len]
    }
}

impl Drop for SpanBytes {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn memory_is_used_again_and_not_cleared() {
        let pool = Pool::new(64 << 20);
        let mut first = pool.get(3 * MIB).unwrap();
        first.fill(7);
        let address = first.as_ptr();
        drop(first);
        let shorter = pool.get(2 * MIB + 5).unwrap();
        assert_eq!((shorter.as_ptr(), shorter.len()), (address, 2 * MIB + 5));
        assert!(shorter.iter().all(|byte| *byte == 7));
        drop(shorter);
        let longer = pool.get(3 * MIB).unwrap();
        assert_eq!(longer.as_ptr(), address);
        assert!(longer.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn memory_that_is_much_too_large_is_not_used() {
        let pool = Pool::new(64 << 20);
        drop(pool.get(4 * MIB).unwrap());
        assert!(pool.get(MIB).unwrap().memory.len() < 2 * MIB);
        assert_eq!(pool.get(3 * MIB).unwrap().memory.len(), 4 * MIB);
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        let pool = Pool::new(2 << 20);
        drop([pool.get(MIB).unwrap(), pool.get(MIB).unwrap(), pool.get(MIB).unwrap()]);
        assert_eq!(total(&pool.lock()), 2 * MIB);
        pool.shrink(MIB as u64);
        assert_eq!(total(&pool.lock()), MIB);
    }
}
