//! Working memory for reads.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use crate::memory;

use hsipack_format::{Error, Result};

/// Alignment of buffers in bytes: one page. O_DIRECT on today's disks needs no more.
pub const PAGE: usize = 4096;

/// Buffers grow in steps of this many bytes. So for spans of similar size, they soon stop growing.
const STEP: usize = 256 << 10;

/// Working memory for reads. It is aligned to pages and reused from one read to the next.
pub struct ReadBuffer {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the buffer owns its memory; a `&ReadBuffer` only reads it.
unsafe impl Send for ReadBuffer {}
// SAFETY: as above.
unsafe impl Sync for ReadBuffer {}

impl ReadBuffer {
    /// A buffer without memory. The first read allocates it.
    pub const fn new() -> Self {
        Self { start: NonNull::dangling(), capacity: 0 }
    }

    /// Number of bytes it can hold without growing.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The first `len` bytes, which begin at a page boundary. If the buffer is smaller, it grows
    /// and loses its content.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn room(&mut self, len: usize) -> Result<&mut [u8]> {
        if len > self.capacity {
            *self = Self::with_capacity(grown(len))?;
        }
        // SAFETY: `len` bytes within the allocation (none if it is 0), all initialised, since the memory
        // was zeroed; borrowed from `self` alone.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) })
    }

    /// The first `len` bytes, unchanged.
    ///
    /// # Panics
    /// If the buffer is smaller.
    pub fn bytes(&self, len: usize) -> &[u8] {
        assert!(len <= self.capacity, "{len} bytes of a buffer of {}", self.capacity);
        // SAFETY: as in `room`; shared, since `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), len) }
    }

    fn with_capacity(capacity: usize) -> Result<Self> {
        let layout = Self::layout(capacity);
        // SAFETY: `capacity` is greater than 0: `grown` gives at least a step.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        start.map(|start| Self { start, capacity }).ok_or_else(|| {
            let bytes = memory::size(capacity as u64);
            Error::memory(format!("cannot allocate {bytes} to read into"))
                .with_remedy("free some memory, or raise the limit")
        })
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, PAGE).expect("a span of a file fits in memory addresses")
    }
}

/// The capacity of a buffer for `len` bytes.
pub(super) const fn grown(len: usize) -> usize {
    len.next_multiple_of(STEP)
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        if self.capacity > 0 {
            // SAFETY: allocated by `with_capacity`, with this layout.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) };
        }
    }
}

impl Default for ReadBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ReadBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadBuffer").field("capacity", &self.capacity).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_grows_and_stays() {
        let mut buffer = ReadBuffer::new();
        assert!(buffer.room(0).unwrap().is_empty() && buffer.bytes(0).is_empty());
        for len in [1, 5, STEP, STEP + 1, 3] {
            let room = buffer.room(len).unwrap();
            assert_eq!((room.len(), room.as_ptr() as usize % PAGE), (len, 0));
            room[len - 1] = 7;
            assert_eq!(buffer.bytes(len)[len - 1], 7);
        }
        assert_eq!(buffer.capacity(), 2 * STEP);
        let before = buffer.room(1).unwrap().as_ptr();
        assert_eq!(buffer.room(2 * STEP).unwrap().as_ptr(), before);
    }
}
