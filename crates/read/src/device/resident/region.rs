//! Memory of a device that cubes are kept in.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use hsipack_store::process::OfProcess;

use super::choice::Kept;
use crate::device::backend::DeviceMemory;

/// See [`super`].
const ABSENT: u8 = 0;
const SCHEDULED: u8 = 1;
const RESIDENT: u8 = 2;

/// One allocation, and the state of each chunk that has a place there.
pub(crate) struct Region {
    kept: Kept,
    bytes: u64,
    /// `None` after it was released.
    memory: Mutex<Option<OfProcess<Arc<dyn DeviceMemory>>>>,
    chunks: Box<[AtomicU8]>,
    /// Size of the blocks of each frame, if frames are kept.
    blocks: Box<[AtomicU32]>,
    /// Number of chunks that are not resident.
    missing: AtomicUsize,
}

impl Region {
    /// Memory for so many chunks, none of which is there yet.
    pub(super) fn new(kept: Kept, memory: Arc<dyn DeviceMemory>, chunks: usize) -> Self {
        let blocks = if kept == Kept::Compressed { chunks } else { 0 };
        Self {
            kept,
            bytes: memory.bytes() as u64,
            memory: Mutex::new(Some(OfProcess::new(memory))),
            chunks: (0..chunks).map(|_| AtomicU8::new(ABSENT)).collect(),
            blocks: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            missing: AtomicUsize::new(chunks),
        }
    }

    /// The form of its cubes.
    pub(crate) fn kept(&self) -> Kept {
        self.kept
    }

    /// Bytes of its memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its memory; `None` if it was released. Whoever queues work on it keeps it until the work is
    /// done.
    pub(in crate::device) fn memory(&self) -> Option<Arc<dyn DeviceMemory>> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref()?.get().cloned()
    }

    /// Whether its memory was released.
    pub(crate) fn is_released(&self) -> bool {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Gives up the memory, for good. It is freed when no queued work uses it any more. `None` if
    /// it was released before.
    pub(super) fn release(&self) -> Option<Weak<dyn DeviceMemory>> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let released = memory.take()?;
        drop(memory);
        released.get().map(Arc::downgrade)
    }

    /// Schedules a chunk that is absent. `false` if it is not absent.
    pub(crate) fn schedule(&self, chunk: usize) -> bool {
        self.change(chunk, ABSENT, SCHEDULED)
    }

    /// A scheduled chunk does not come after all. Nothing changes if it came.
    pub(crate) fn unschedule(&self, chunk: usize) {
        self.change(chunk, SCHEDULED, ABSENT);
    }

    /// A scheduled chunk was seen decoded, or copied.
    pub(crate) fn confirm(&self, chunk: usize) {
        if self.change(chunk, SCHEDULED, RESIDENT) {
            self.missing.fetch_sub(1, Ordering::Release);
        }
    }

    fn change(&self, chunk: usize, from: u8, to: u8) -> bool {
        self.chunks[chunk].compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a chunk is absent.
    pub(crate) fn is_absent(&self, chunk: usize) -> bool {
        self.chunks[chunk].load(Ordering::Acquire) == ABSENT
    }

    /// Whether a chunk is there.
    pub(crate) fn is_resident(&self, chunk: usize) -> bool {
        self.chunks[chunk].load(Ordering::Acquire) == RESIDENT
    }

    /// Whether all chunks are there, so that nobody writes to it any more.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Fraction of its chunks that are there.
    pub(super) fn fraction(&self) -> f64 {
        let count = self.chunks.len().max(1) as f64;
        1.0 - self.missing.load(Ordering::Acquire) as f64 / count
    }

    /// Notes the size of the blocks of a chunk's frame.
    pub(crate) fn set_block(&self, chunk: usize, bytes: u32) {
        if let Some(block) = self.blocks.get(chunk) {
            block.store(bytes, Ordering::Release);
        }
    }

    /// The size of the blocks of a chunk's frame; 0 if it is not known.
    pub(crate) fn block(&self, chunk: usize) -> u32 {
        self.blocks.get(chunk).map_or(0, |block| block.load(Ordering::Acquire))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("kept", &self.kept)
            .field("bytes", &self.bytes)
            .field("chunks", &self.chunks.len())
            .field("missing", &self.missing)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hsipack_augment::array::Buffer;

    use super::*;

    #[test]
    fn a_region_is_complete_when_all_chunks_were_confirmed() {
        let region = Region::new(Kept::Compressed, Arc::new(Buffer::zeroed(64).unwrap()), 2);
        assert!(region.schedule(0) && !region.schedule(0) && region.is_absent(1));
        region.confirm(0);
        // A batch that is dropped later does not take back what came.
        region.unschedule(0);
        assert!(region.is_resident(0) && !region.is_complete());
        assert!(region.schedule(1));
        region.unschedule(1);
        region.confirm(1);
        assert!(!region.is_resident(1) && region.schedule(1));
        region.confirm(1);
        region.confirm(1);
        assert!(region.is_complete());
    }

    #[test]
    fn released_memory_lives_as_long_as_somebody_uses_it() {
        let region = Region::new(Kept::Decoded, Arc::new(Buffer::zeroed(64).unwrap()), 1);
        let used = region.memory().unwrap();
        let released = region.release().unwrap();
        assert!(region.is_released() && region.memory().is_none() && region.release().is_none());
        assert_eq!(released.strong_count(), 1);
        drop(used);
        assert_eq!(released.strong_count(), 0);
    }
}
