//! Host memory for arrays that are made here; it is kept for the next batch.
//!
//! If large results were freed when they are dropped, every batch would pay for their page faults
//! again, which takes about as long as copying them. So a pool keeps the memory of dropped buffers
//! and reuses it.

use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use bytemuck::{Pod, Zeroable};
use hsipack_format::{Error, Result};
use hsipack_store::memory;
use hsipack_store::pages::{Block, HUGE_PAGE};

use super::{Array, Device, ElementType, Memory};

/// Maximum number of kept buffers of one size: one in use, one still held, one being made.
const MAX_PER_SIZE: usize = 3;
/// Maximum number of kept buffers of all sizes: images and masks, perhaps of another stack as well.
const MAX_IN_ALL: usize = 4 * MAX_PER_SIZE;
/// Size in bytes from which page faults matter, and a buffer is a block of its own.
const LARGE: usize = 8 << 20;

/// Unit of small allocations, so that memory is aligned for every element type and for vector
/// instructions.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: plain bytes, all of which may be 0.
unsafe impl Zeroable for Line {}
// SAFETY: plain bytes without padding; every bit pattern is valid.
unsafe impl Pod for Line {}

/// The memory of a buffer.
#[derive(Debug)]
enum Storage {
    Small(Vec<Line>),
    Large(Block),
}

impl Storage {
    fn zeroed(bytes: usize) -> Result<Self> {
        if bytes < LARGE {
            return memory::zeroed(bytes.div_ceil(size_of::<Line>()), "an array").map(Self::Small);
        }
        Block::new(bytes).map(Self::Large).map_err(|error| {
            Error::memory(format!("cannot allocate {} for an array", memory::size(bytes as u64)))
                .with_remedy("free some memory, raise the limit, or ask for less")
                .caused_by(error)
        })
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Small(lines) => bytemuck::cast_slice(lines),
            Self::Large(block) => block,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Small(lines) => bytemuck::cast_slice_mut(lines),
            Self::Large(block) => block,
        }
    }

    /// Whether it is what a buffer of `bytes` bytes needs, and not much more.
    fn fits(&self, bytes: usize) -> bool {
        match self {
            Self::Small(lines) => bytes < LARGE && lines.len() == bytes.div_ceil(size_of::<Line>()),
            Self::Large(block) => {
                bytes >= LARGE && (bytes..bytes.saturating_add(HUGE_PAGE)).contains(&block.len())
            }
        }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self::Small(Vec::new())
    }
}

/// Host memory that is filled first and then shared by arrays.
#[derive(Debug)]
pub struct Buffer {
    storage: Storage,
    bytes: usize,
    pool: Weak<Pool>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Buffer {
    /// Zeroed memory of this size.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn zeroed(bytes: usize) -> Result<Self> {
        Ok(Self { storage: Storage::zeroed(bytes)?, bytes, pool: Weak::new() })
    }

    /// A copy of these bytes.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        let mut buffer = Self::zeroed(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.storage.bytes()[..self.bytes]
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.storage.bytes_mut()[..self.bytes]
    }

    /// Shares the memory with arrays. From then on, nobody may write to it.
    pub fn shared(self) -> Arc<dyn Memory> {
        Arc::new(self)
    }

    /// An array over the whole memory.
    ///
    /// # Errors
    /// If the memory is too short.
    pub fn array(self, shape: &[usize], element: ElementType) -> Result<Array> {
        Array::new(self.shared(), 0, shape, element)
    }
}

// SAFETY: the memory does not move, and once it is shared, there is no mutable access to it.
unsafe impl Memory for Buffer {
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn start(&self) -> *mut u8 {
        self.storage.bytes().as_ptr().cast_mut()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.keep(std::mem::take(&mut self.storage));
        }
    }
}

/// Memory of dropped buffers.
#[derive(Debug)]
pub struct Pool {
    /// Oldest first.
    kept: Mutex<Vec<Storage>>,
    /// The most that are kept of one size, and of all sizes.
    most: [usize; 2],
    /// The process that made the pool.
    process: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            kept: Mutex::default(),
            most: [MAX_PER_SIZE, MAX_IN_ALL],
            process: std::process::id(),
        }
    }
}

impl Pool {
    /// A pool that keeps at most one buffer: the next array needs the memory of the one that was
    /// just dropped.
    pub fn of_one() -> Self {
        Self { most: [1, 1], ..Self::default() }
    }

    /// A buffer of this size with undefined contents. Its memory returns to this pool when the last
    /// array over it is dropped.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn buffer(self: &Arc<Self>, bytes: usize) -> Result<Buffer> {
        let kept = self.with(|kept| {
            let index = kept.iter().rposition(|storage| storage.fits(bytes))?;
            Some(kept.remove(index))
        });
        let storage = kept.map_or_else(|| Storage::zeroed(bytes), Ok)?;
        Ok(Buffer { storage, bytes, pool: Arc::downgrade(self) })
    }

    fn keep(&self, storage: Storage) {
        let [of_one_size, in_all] = self.most;
        // Drop the memory outside the lock.
        let gone = self.with(|kept| {
            let len = storage.bytes().len();
            let alike = kept.iter().filter(|other| other.bytes().len() == len).count();
            if len == 0 || alike >= of_one_size {
                return Some(storage);
            }
            kept.push(storage);
            (kept.len() > in_all).then(|| kept.remove(0))
        });
        drop(gone);
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<Storage>) -> Option<T>) -> Option<T> {
        if std::process::id() == self.process {
            return work(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner));
        }
        // In a forked process, it may stay locked forever.
        match self.kept.try_lock() {
            Ok(mut kept) => work(&mut kept),
            Err(TryLockError::Poisoned(kept)) => work(&mut kept.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(buffer: &Buffer) -> *mut u8 {
        Memory::start(buffer)
    }

    #[test]
    fn memory_is_given_again_when_the_last_array_over_it_is_gone() {
        let pool = Arc::new(Pool::default());
        let first = pool.buffer(1000).unwrap();
        let address = start(&first);
        let array = first.array(&[500], ElementType::F16).unwrap();
        let view = array.narrowed(0, 3, 2);
        drop(array);
        assert_ne!(start(&pool.buffer(1000).unwrap()), address);
        drop(view);
        let again = [pool.buffer(1000).unwrap(), pool.buffer(1000).unwrap()];
        assert!(again.iter().any(|buffer| start(buffer) == address));
        // Dropping the pool does not affect the buffers.
        drop(pool);
        assert_eq!(again[0].bytes().len(), 1000);
    }

    #[test]
    fn large_memory_is_zero_and_given_again_too() {
        let pool = Arc::new(Pool::of_one());
        let mut first = pool.buffer(LARGE + 100).unwrap();
        assert_eq!(first.bytes().len(), LARGE + 100);
        assert!(first.bytes().iter().step_by(999).all(|byte| *byte == 0));
        first.bytes_mut().fill(7);
        let address = start(&first);
        drop([first, pool.buffer(LARGE).unwrap(), pool.buffer(2 * LARGE).unwrap()]);
        let kept =
            || pool.kept.lock().unwrap().iter().map(|storage| storage.bytes().len()).sum::<usize>();
        assert_eq!(kept(), 2 * LARGE, "the last one, which made the others go");
        drop(pool.buffer(LARGE + 100).unwrap());
        assert_ne!(start(&pool.buffer(10).unwrap()), address);
        assert!(Buffer::zeroed(usize::MAX).unwrap_err().to_string().contains("for an array"));
    }

    #[test]
    fn memory_is_kept_although_another_thread_uses_the_pool() {
        let pool = Arc::new(Pool::default());
        let buffer = pool.buffer(1000).unwrap();
        let kept = pool.kept.lock().unwrap();
        std::thread::scope(|scope| {
            let dropping = scope.spawn(move || drop(buffer));
            std::thread::sleep(std::time::Duration::from_millis(20));
            drop(kept);
            dropping.join().unwrap();
        });
        assert_eq!(pool.kept.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_pool_is_bounded_and_drops_the_oldest_buffer() {
        let pool = Arc::new(Pool::default());
        let kept = || pool.kept.lock().unwrap().len();
        drop((0..MAX_PER_SIZE + 2).map(|_| pool.buffer(1 << 10).unwrap()).collect::<Vec<_>>());
        assert_eq!(kept(), MAX_PER_SIZE);
        for more in 1..=2 * MAX_IN_ALL {
            drop(pool.buffer((1 << 12) + 64 * more).unwrap());
        }
        assert_eq!(kept(), MAX_IN_ALL);
        drop(pool.buffer(0).unwrap());
        assert_eq!(kept(), MAX_IN_ALL);
    }
}
