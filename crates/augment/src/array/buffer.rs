//! Memory of the host's for arrays that are made here, kept for the next batch.
//!
//! The memory of large results goes back to the system when they are dropped, so that every batch would pay for its page
//! faults anew: about as long as copying it. A pool keeps what its buffers leave and gives it out again.

use std::sync::{Arc, Mutex, TryLockError, Weak};

use bytemuck::{Pod, Zeroable};
use hsipack_format::Result;
use hsipack_store::memory;

use super::{Array, Device, ElementType, Memory};

/// Buffers of a size that are kept at most: one that is used, one that is still held, one that is made.
const KEPT: usize = 3;
/// Buffers of all sizes that are kept at most: images and masks, of another stack, too.
const KEPT_IN_ALL: usize = 4 * KEPT;
/// Bytes from which on page faults matter, and pages had better be huge.
const LARGE: usize = 8 << 20;

/// What memory is made of, so that it is aligned for every element type and for vector instructions.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

// SAFETY: plain bytes, all of which may be 0.
unsafe impl Zeroable for Line {}
// SAFETY: plain bytes without padding, of which every pattern is one.
unsafe impl Pod for Line {}

/// Memory of the host's, to be filled and then shared by arrays.
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
    /// So many bytes, all 0.
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

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.lines)[..self.bytes]
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.bytes]
    }

    /// To be shared by arrays; nobody writes to it from now on.
    pub fn shared(self) -> Arc<dyn Memory> {
        Arc::new(self)
    }

    /// An array over all of it.
    ///
    /// # Errors
    /// If it is too short.
    pub fn array(self, shape: &[usize], element: ElementType) -> Result<Array> {
        Array::new(self.shared(), 0, shape, element)
    }
}

// SAFETY: the vector's memory stays where it is, and once shared nobody has it mutably.
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

/// Asks for huge pages, whose faults are fewer.
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

/// Memory that buffers left, oldest first.
#[derive(Debug, Default)]
pub struct Pool(Mutex<Vec<Vec<Line>>>);

impl Pool {
    /// So many bytes, whatever they are, whose memory comes back here when the last array over them is gone.
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
        // What goes is dropped outside the lock.
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

    /// Nobody waits for the lock: a process that was forked finds it in whatever state it was.
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
        // The pool's end leaves buffers alone.
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
