//! Host memory for arrays that are made here; it is kept for the next batch.
//!
//! If large results were freed when they are dropped, every batch would pay for their page faults again, which takes
//! about as long as copying them. So a pool keeps the memory of dropped buffers and reuses it.

use std::sync::{Arc, Mutex, TryLockError, Weak};

use bytemuck::{Pod, Zeroable};
use hsipack_format::Result;
use hsipack_store::memory;

use super::{Array, Device, ElementType, Memory};

/// Maximum number of kept buffers of one size: one in use, one still held, one being made.
const KEPT: usize = 3;
/// Maximum number of kept buffers of all sizes: images and masks, perhaps of another stack as well.
const KEPT_IN_ALL: usize = 4 * KEPT;
/// Size in bytes from which page faults matter and huge pages are requested.
const LARGE: usize = 8 << 20;

/// Unit of allocation, so that memory is aligned for every element type and for vector instructions.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: plain bytes, all of which may be 0.
unsafe impl Zeroable for Line {}
// SAFETY: plain bytes without padding; every bit pattern is valid.
unsafe impl Pod for Line {}

/// Host memory that is filled first and then shared by arrays.
#[derive(Debug)]
pub struct Buffer {
    lines: Vec<Line>,
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
        let lines: Vec<Line> = memory::zeroed(bytes.div_ceil(size_of::<Line>()), "an array")?;
        if bytes >= LARGE {
            huge(&lines);
        }
        Ok(Self { lines, bytes, pool: Weak::new() })
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
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
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

// SAFETY: the vector's memory does not move, and once it is shared, there is no mutable access to it.
unsafe impl Memory for Buffer {
    fn device(&self) -> Device {
        Device::Cpu
    }

    fn start(&self) -> *mut u8 {
        self.lines.as_ptr().cast_mut().cast()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.keep(std::mem::take(&mut self.lines));
        }
    }
}

/// Requests huge pages, which cause fewer page faults.
fn huge(lines: &[Line]) {
    const PAGE: usize = 4096;
    let range = lines.as_ptr_range();
    let start = (range.start as usize).next_multiple_of(PAGE);
    let end = range.end as usize / PAGE * PAGE;
    if start < end {
        // SAFETY: whole pages of the vector's own memory; advice changes no content, and may be refused.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
}

/// Memory of dropped buffers, oldest first.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Vec<Vec<Line>>>);

impl Pool {
    /// A buffer of this size with undefined contents. Its memory returns to this pool when the last array over it is
    /// dropped.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn buffer(self: &Arc<Self>, bytes: usize) -> Result<Buffer> {
        let lines = bytes.div_ceil(size_of::<Line>());
        let kept = self.with(|kept| {
            let place = kept.iter().rposition(|one| one.len() == lines)?;
            Some(kept.remove(place))
        });
        let mut buffer = match kept {
            Some(lines) => Buffer { lines, bytes, pool: Weak::new() },
            None => Buffer::zeroed(bytes)?,
        };
        buffer.pool = Arc::downgrade(self);
        Ok(buffer)
    }

    fn keep(&self, lines: Vec<Line>) {
        // Drop the memory outside the lock.
        let gone = self.with(|kept| {
            let alike = kept.iter().filter(|one| one.len() == lines.len()).count();
            if lines.is_empty() || alike >= KEPT {
                return Some(lines);
            }
            kept.push(lines);
            (kept.len() > KEPT_IN_ALL).then(|| kept.remove(0))
        });
        drop(gone);
    }

    /// Never waits for the lock: in a forked process it may stay locked forever.
    fn with<T>(&self, work: impl FnOnce(&mut Vec<Vec<Line>>) -> Option<T>) -> Option<T> {
        match self.0.try_lock() {
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
        let place = start(&first);
        let array = first.array(&[500], ElementType::F16).unwrap();
        let view = array.narrowed(0, 3, 2);
        drop(array);
        assert_ne!(start(&pool.buffer(1000).unwrap()), place);
        drop(view);
        let again = [pool.buffer(1000).unwrap(), pool.buffer(1000).unwrap()];
        assert!(again.iter().any(|buffer| start(buffer) == place));
        // Dropping the pool does not affect the buffers.
        drop(pool);
        assert_eq!(again[0].bytes().len(), 1000);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes() {
        let pool = Arc::new(Pool::default());
        let kept = || pool.0.lock().unwrap().len();
        drop((0..KEPT + 2).map(|_| pool.buffer(1 << 10).unwrap()).collect::<Vec<_>>());
        assert_eq!(kept(), KEPT);
        for more in 1..=2 * KEPT_IN_ALL {
            drop(pool.buffer((1 << 12) + 64 * more).unwrap());
        }
        assert_eq!(kept(), KEPT_IN_ALL);
        drop(pool.buffer(0).unwrap());
        assert_eq!(kept(), KEPT_IN_ALL);
    }
}
