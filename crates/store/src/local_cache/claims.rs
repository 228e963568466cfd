//! Claims: which process is fetching a block. Processes that read the same dataset leave claimed
//! blocks to each other.

use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::folder::{self, BlockName};

/// State of a block when a process is about to fetch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// No other process is fetching the block, so this one should.
    Free,
    /// Another process is fetching the block, or is about to write it.
    Other,
    /// The block is in the cache.
    Cached,
}

/// The claims of this process on blocks of one dataset.
///
/// A claim is a lock on one byte of the file `claims`; the name of the block determines the byte.
/// The file itself stays empty. So a claim costs two calls to the system and no access to the disk,
/// and it ends with its process.
#[derive(Debug)]
pub(super) struct Claims {
    /// `None` if the file cannot be opened. Then nothing is claimed.
    file: Mutex<Option<File>>,
}

impl Claims {
    /// The claims in a dataset's folder.
    pub(super) fn open(folder: &Path) -> Self {
        Self { file: Mutex::new(folder::open_claims(folder)) }
    }

    /// Opens the file again after the folder was deleted and created again. This ends all claims of
    /// this process.
    pub(super) fn open_again(&self, folder: &Path) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = folder::open_claims(folder);
    }

    /// Claims a block; `false` if another process has claimed it.
    pub(super) fn claim(&self, block: BlockName) -> bool {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().is_none_or(|file| lock::set(file, byte_of(block)))
    }

    /// Ends a claim. Does nothing if this process has not claimed the block.
    pub(super) fn release(&self, block: BlockName) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            lock::clear(file, byte_of(block));
        }
    }
}

/// The byte that stands for a block. If two blocks have the same byte, they are not fetched at the
/// same time, which does no harm.
fn byte_of(block: BlockName) -> i64 {
    // The numbers of shards are hashes. The largest position is left out, because the system rejects it.
    (block.shard.wrapping_add(block.offset) >> 2) as i64
}

#[cfg(target_os = "linux")]
mod lock {
    use std::fs::File;
    use std::io;
    use std::os::fd::AsRawFd as _;

    /// Locks a byte of a file; `false` if the byte is locked through another opening of the file.
    pub(super) fn set(file: &File, byte: i64) -> bool {
        match call(file, byte, libc::F_WRLCK as libc::c_short) {
            Ok(()) => true,
            Err(error) => {
                // Any other error means that the file system has no such locks. Then nothing is claimed.
                !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
            }
        }
    }

    /// Unlocks a byte.
    pub(super) fn clear(file: &File, byte: i64) {
        // Fails only if the file system has no such locks.
        let _ = call(file, byte, libc::F_UNLCK as libc::c_short);
    }

    fn call(file: &File, byte: i64, kind: libc::c_short) -> io::Result<()> {
        // SAFETY: `flock` consists of integers, for which zeros are valid.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = kind;
        range.l_whence = libc::SEEK_SET as libc::c_short;
        range.l_start = byte;
        range.l_len = 1;
        // This kind of lock belongs to the open file, not to the process: two datasets of one process exclude each other
        // too, and closing another handle of the file unlocks nothing.
        // SAFETY: the descriptor is open while `file` is borrowed, and the call reads `range` only while it runs.
        match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod lock {
    use std::fs::File;

    pub(super) fn set(_file: &File, _byte: i64) -> bool {
        true
    }

    pub(super) fn clear(_file: &File, _byte: i64) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    const BLOCK: BlockName = BlockName { shard: u64::MAX, offset: 4096, len: 77 };

    #[test]
    fn a_claim_excludes_others_until_it_is_released_or_its_owner_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (first, other) = (Claims::open(folder.path()), Claims::open(folder.path()));
        let next = BlockName { offset: 8192, ..BLOCK };
        assert!(first.claim(BLOCK) && first.claim(BLOCK));
        assert!(!other.claim(BLOCK) && other.claim(next) && !first.claim(next));
        other.release(BLOCK);
        assert!(!other.claim(BLOCK), "only its owner can release a claim");
        first.release(BLOCK);
        assert!(other.claim(BLOCK) && !first.claim(BLOCK));
        drop(other);
        assert!(first.claim(BLOCK) && first.claim(next));
    }

    #[test]
    fn blocks_next_to_each_other_are_claimed_separately() {
        let folder = tempfile::tempdir().unwrap();
        let (first, other) = (Claims::open(folder.path()), Claims::open(folder.path()));
        let blocks = (0..100).map(|at| BlockName { shard: 7, offset: 4 * at, len: 4 });
        let blocks: Vec<BlockName> = blocks.collect();
        assert!(blocks.iter().all(|block| first.claim(*block)));
        blocks.iter().step_by(2).for_each(|block| first.release(*block));
        let free: Vec<bool> = blocks.iter().map(|block| other.claim(*block)).collect();
        assert!(free.iter().enumerate().all(|(at, free)| *free == (at % 2 == 0)), "{free:?}");
    }

    #[test]
    fn without_the_file_nothing_is_claimed_and_everything_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let gone = folder.path().join("gone");
        let (first, other) = (Claims::open(&gone), Claims::open(&gone));
        assert!(first.claim(BLOCK) && other.claim(BLOCK));
        std::fs::create_dir(&gone).unwrap();
        first.open_again(&gone);
        other.open_again(&gone);
        assert!(first.claim(BLOCK) && !other.claim(BLOCK));
    }
}
