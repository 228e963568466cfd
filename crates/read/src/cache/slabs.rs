//! Memory for kept chunks. It comes from the system in large slabs with huge pages, because the system needs longer to
//! provide small pages than it takes to copy a chunk into them: about 2 µs for 4 KiB on a virtual machine.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use hsipack_store::memory;

use crate::Result;

/// Bytes of a slab.
const SLAB: usize = 64 << 20;

/// The unused parts of slabs. A thread that copies a chunk takes one of them, so threads do not wait for one another.
#[derive(Debug, Default)]
pub(super) struct Slabs(Mutex<Vec<BytesMut>>);

impl Slabs {
    /// A copy of a chunk. If a new slab is needed, it has at most `most` bytes, or those of the chunk.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub(super) fn copy(&self, chunk: &[u8], most: u64) -> Result<Bytes> {
        let mut slab = match self.with_room(chunk.len()) {
            Some(slab) => slab,
            None => {
                let most = usize::try_from(most).unwrap_or(usize::MAX);
                new(SLAB.min(most).max(chunk.len()))?
            }
        };
        let mut copy = slab.split_to(chunk.len());
        copy.copy_from_slice(chunk);
        if !slab.is_empty() {
            self.lock().push(slab);
        }
        Ok(copy.freeze())
    }

    /// A part that is long enough. Parts that are too short are given up.
    fn with_room(&self, bytes: usize) -> Option<BytesMut> {
        let mut parts = self.lock();
        while let Some(part) = parts.pop() {
            if part.len() >= bytes {
                return Some(part);
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, Vec<BytesMut>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new(bytes: usize) -> Result<BytesMut> {
    // The system provides the pages when they are first written.
    let memory: Vec<u8> = memory::zeroed(bytes, "the cache")?;
    memory::want_huge_pages(&memory);
    Ok(Bytes::from(memory).try_into_mut().expect("it has one owner"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_all_threads_are_copied() {
        let slabs = Slabs::default();
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let slabs = &slabs;
                scope.spawn(move || {
                    let chunk = |size: usize| vec![thread ^ size as u8; size];
                    let sizes = (1..2000).map(|number| 1 + number * 7919 % 3001);
                    let kept: Vec<Bytes> = sizes
                        .clone()
                        .map(|size| slabs.copy(&chunk(size), 100_000).unwrap())
                        .collect();
                    for (size, kept) in sizes.zip(kept) {
                        assert!(kept == chunk(size));
                    }
                });
            }
        });
        // At most one part for each thread.
        assert!(slabs.lock().len() <= 8);
    }

    #[test]
    fn chunks_lie_side_by_side_and_slabs_are_no_larger_than_allowed() {
        let slabs = Slabs::default();
        let one = slabs.copy(&[1; 300], 1000).unwrap();
        let two = slabs.copy(&[2; 300], 1000).unwrap();
        assert_eq!(one.as_ptr().addr() + 300, two.as_ptr().addr());
        assert_eq!(slabs.lock()[0].len(), 400);
        // What is left is too short.
        let three = slabs.copy(&[3; 500], 10).unwrap();
        assert!(slabs.lock().is_empty());
        assert!(one == [1; 300][..] && two == [2; 300][..] && three == [3; 500][..]);
        let four = slabs.copy(&[4], u64::MAX).unwrap();
        assert_eq!((four.len(), slabs.lock()[0].len()), (1, SLAB - 1));
    }
}
