//! Decoded chunks that are held in memory while their windows come (see
//! [`crate::plan::ShuffleBlocks`]), and then dropped.
//!
//! Threads look up chunks while others drop them. A thread that has a chunk keeps it as long as it
//! needs it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwapOption, Guard};
use hsipack_store::memory;

use crate::Result;
use crate::dataset::Dataset;
use crate::dataset::array::ArrayRef;

/// A chunk of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChunkRef {
    /// The stack.
    pub stack: u32,
    /// The array in the stack: 0 is the image; 1, 2, … are the masks.
    pub array: u32,
    /// The place of the cube in the stack.
    pub index: u32,
    /// The number of the chunk in its cube.
    pub chunk: u32,
}

impl ChunkRef {
    /// Chunk `chunk` of the cube at `index` of an array.
    pub(crate) fn new(array: ArrayRef<'_>, index: usize, chunk: usize) -> Self {
        Self {
            stack: array.stack as u32,
            array: array.array as u32,
            index: index as u32,
            chunk: chunk as u32,
        }
    }

    /// The array that the chunk belongs to.
    pub(crate) fn array(self, dataset: &Dataset) -> ArrayRef<'_> {
        dataset.array(self.stack as usize, self.array as usize)
    }
}

/// A held chunk. Its values stay in memory as long as this lives.
pub(crate) struct BufferedChunk(Guard<Option<Arc<Vec<u8>>>>);

impl BufferedChunk {
    /// Its values.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |bytes| bytes)
    }
}

/// A place for every chunk of an array.
type Places = Box<[ArcSwapOption<Vec<u8>>]>;

/// Decoded chunks in memory.
#[derive(Debug)]
pub(crate) struct ShuffleBuffer {
    /// Per stack, per array, a place for every chunk.
    places: Vec<Vec<Places>>,
    inner: Mutex<Inner>,
    /// Bytes held.
    used: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    /// The chunks that are held.
    chunks: Vec<ChunkRef>,
    /// Memory of dropped chunks, to be used again: new memory from the system costs as much time as
    /// decoding.
    spare: Vec<Vec<u8>>,
}

impl ShuffleBuffer {
    /// Creates an empty set.
    ///
    /// # Errors
    /// If there is not enough memory for a note about every chunk.
    pub(crate) fn new(dataset: &Dataset) -> Result<Self> {
        let places = dataset.for_every_chunk("the shuffle window", ArcSwapOption::empty)?;
        Ok(Self { places, inner: Mutex::default(), used: AtomicU64::new(0) })
    }

    /// A chunk of an array by its number in the array, if it is held.
    pub(crate) fn get(&self, array: ArrayRef<'_>, number: usize) -> Option<BufferedChunk> {
        let chunk = self.places[array.stack][array.array][number].load();
        chunk.is_some().then_some(BufferedChunk(chunk))
    }

    /// Whether the chunk is held.
    pub(crate) fn holds(&self, array: ArrayRef<'_>, number: usize) -> bool {
        self.get(array, number).is_some()
    }

    /// Memory for a chunk of this many bytes, with arbitrary contents.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub(crate) fn memory(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut inner = self.lock();
        // The chunks are of a few arrays only, so one of the right size is soon found.
        let found = inner.spare.iter().position(|spare| spare.len() == bytes);
        let spare = found.map(|index| inner.spare.swap_remove(index));
        drop(inner);
        match spare {
            Some(spare) => Ok(spare),
            None => memory::zeroed(bytes, "a chunk of the shuffle window"),
        }
    }

    /// Holds a decoded chunk.
    pub(crate) fn hold(&self, chunk: ChunkRef, number: usize, bytes: Vec<u8>) {
        let len = bytes.len() as u64;
        let slot = &self.places[chunk.stack as usize][chunk.array as usize][number];
        let mut inner = self.lock();
        if slot.load().is_some() {
            // Another thread was first.
            inner.spare.push(bytes);
            return;
        }
        slot.store(Some(Arc::new(bytes)));
        inner.chunks.push(chunk);
        self.used.fetch_add(len, Ordering::Relaxed);
    }

    /// Drops all chunks that are not wanted.
    pub(crate) fn keep_only(&self, dataset: &Dataset, wanted: &HashSet<ChunkRef>) {
        let mut inner = self.lock();
        let Inner { chunks, spare } = &mut *inner;
        spare.clear();
        chunks.retain(|chunk| {
            if wanted.contains(chunk) {
                return true;
            }
            let array = chunk.array(dataset);
            let number = array.number(chunk.index as usize, chunk.chunk as usize);
            let dropped = self.places[array.stack][array.array][number].swap(None);
            let bytes = dropped.as_ref().map_or(0, |bytes| bytes.len() as u64);
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            // If a thread still uses the chunk, the last one to do so frees its memory.
            spare.extend(dropped.and_then(Arc::into_inner));
            false
        });
    }

    /// Bytes held.
    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
