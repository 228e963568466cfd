//! Memory of one array: taken from the system in one piece, and given back as such.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::{HUGE_PAGE, system};

/// Zeroed bytes, on huge pages where the system has them. The system provides them when they are
/// first written to, so it takes no time to make one.
pub struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a Box does.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `bytes` bytes.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(HUGE_PAGE);
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let start = system::allocate(bytes)?;
        // Small pages do as well.
        let _ = system::want_huge_pages(start, bytes);
        Ok(Self { start, bytes })
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is this block's alone, as long as it lives; the system fills it with zeros.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the block is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        system::free(self.start, self.bytes);
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("bytes", &self.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_zero_and_holds_what_is_written() {
        let mut block = Block::new(5 << 20).unwrap();
        assert!(block.len() >= 5 << 20 && (block.as_ptr() as usize).is_multiple_of(4096));
        assert!(block.iter().step_by(999).all(|byte| *byte == 0));
        block.fill(7);
        assert!(block.iter().step_by(999).all(|byte| *byte == 7));
        assert!(Block::new(usize::MAX).is_err());
    }
}
