//! One block that is open for reading.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hsipack_format::{Error, ErrorKind, Result};

use super::folder::{BlockName, is_whole};
use crate::memory;
use crate::stores::{FileMapper, ReadBuffer, StoredFile};

/// The system records times of changes with a precision of a few ms. A second change within this
/// time may not alter the recorded time.
const COARSE: Duration = Duration::from_millis(50);

/// A block that is mapped into memory. Its checksum is compared when it is first read, and again if
/// the file was changed since.
#[derive(Debug)]
pub(super) struct OpenBlock {
    file: Arc<dyn StoredFile>,
    /// Used to detect changes.
    handle: File,
    name: BlockName,
    /// The state of the file when its checksum was last found correct.
    good: Mutex<Option<Stamp>>,
}

/// Properties that change when a file's bytes are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    len: u64,
    /// Time of the last change, in s and ns.
    modified: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> Option<Self> {
        let file = file.metadata().ok()?;
        Some(Self { len: file.len(), modified: (file.mtime(), file.mtime_nsec()) })
    }

    /// Whether a further change would get another time.
    fn is_old(self) -> bool {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (seconds, nanos) = self.modified;
        let modified =
            u64::try_from(seconds).ok().map(|seconds| Duration::new(seconds, nanos as u32));
        match (since_1970, modified) {
            (Ok(now), Some(modified)) => now.checked_sub(modified).is_some_and(|age| age > COARSE),
            _ => false,
        }
    }
}

/// Sets the time of change of a file that was just written to one that no later change can have, so
/// that the first check of it remains valid.
///
/// # Errors
/// If the system refuses.
pub(super) fn date_back(file: &File) -> io::Result<()> {
    file.set_modified(SystemTime::now() - 2 * COARSE)
}

impl OpenBlock {
    /// Opens the file at `path`; `None` if it does not have the length of the block.
    ///
    /// # Errors
    /// If it cannot be opened or mapped.
    pub(super) fn open(store: &FileMapper, path: &Path, name: BlockName) -> Result<Option<Self>> {
        let handle = File::open(path).map_err(|error| Error::io(path, "cannot open", error))?;
        let file = store.open_file(&handle, path)?;
        let is_right = file.len() == name.file_bytes();
        Ok(is_right.then(|| Self { file, handle, name, good: Mutex::default() }))
    }

    /// A hint that the block will be needed soon.
    pub(super) fn prefetch(&self) {
        self.file.prefetch(0..self.name.file_bytes());
    }

    /// Whether the block is intact.
    pub(super) fn is_good(&self) -> bool {
        self.checked().is_some()
    }

    /// Whether another process or the user deleted the file. It then takes up disk space only
    /// because it is open.
    pub(super) fn is_deleted(&self) -> bool {
        self.handle.metadata().is_ok_and(|file| file.nlink() == 0)
    }

    /// Calls `take` with some of the block's bytes. `None` if the file is not intact, or was
    /// changed meanwhile.
    pub(super) fn with(
        &self,
        span: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Option<Result<()>> {
        let stamp = self.checked()?;
        let taken = self.read(span, take);
        if Stamp::of(&self.handle)? != stamp || taken.as_ref().is_err_and(is_unreadable) {
            return None;
        }
        Some(taken)
    }

    /// The current state of the file, if it is intact.
    fn checked(&self) -> Option<Stamp> {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.handle)?;
        if *good == Some(stamp) {
            return Some(stamp);
        }
        let is_old = stamp.is_old();
        let mut whole = false;
        let read = self.read(0..self.name.file_bytes(), &mut |bytes| {
            whole = is_whole(bytes, self.name);
            Ok(())
        });
        if !whole || read.is_err() || Stamp::of(&self.handle)? != stamp {
            return None;
        }
        *good = is_old.then_some(stamp);
        Some(stamp)
    }

    fn read(&self, span: Range<u64>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.file.with_bytes(span, &mut ReadBuffer::new(), take)
    }
}

/// Whether an error is about reading the block's file, not about the content of its bytes.
fn is_unreadable(error: &Error) -> bool {
    error.kind() == ErrorKind::Io && !memory::refused(error)
}

#[cfg(test)]
mod tests {
    use hsipack_format::codec::append_checksum;

    use super::*;

    /// An open block and its file.
    fn made() -> (tempfile::TempDir, std::path::PathBuf, OpenBlock, Vec<u8>) {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..10_000u32).map(|at| (at * 7 % 251) as u8).collect();
        let name = BlockName { shard: 1, offset: 0, len: content.len() as u64 };
        let path = folder.path().join(name.file());
        let mut bytes = content.clone();
        append_checksum(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let block = OpenBlock::open(&FileMapper::default(), &path, name).unwrap().unwrap();
        (folder, path, block, content)
    }

    fn read(block: &OpenBlock) -> Option<Vec<u8>> {
        let mut got = Vec::new();
        let taken = block.with(100..200, &mut |bytes| {
            got.extend_from_slice(bytes);
            Ok(())
        });
        taken.map(|taken| taken.map(|()| got).unwrap())
    }

    #[test]
    fn changes_are_noticed_however_soon_they_come() {
        use std::os::unix::fs::FileExt as _;
        for pause in [0, 1, 5, 100] {
            let (_folder, path, block, content) = made();
            assert_eq!(read(&block).as_deref(), Some(&content[100..200]));
            std::thread::sleep(Duration::from_millis(pause));
            assert_eq!(read(&block).as_deref(), Some(&content[100..200]));
            let file = File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"other", 5000).unwrap();
            assert_eq!(read(&block), None, "after {pause} ms");
        }
    }

    #[test]
    fn a_file_that_is_dated_back_is_compared_once() {
        let (_folder, path, block, _) = made();
        date_back(&File::options().write(true).open(&path).unwrap()).unwrap();
        assert!(block.is_good());
        assert!(block.good.lock().unwrap().is_some());
        let (_folder, _path, block, _) = made();
        assert!(block.is_good());
        assert!(block.good.lock().unwrap().is_none(), "another change may have the same time");
    }

    #[test]
    fn files_cut_short_or_deleted_are_told() {
        let (_folder, path, block, content) = made();
        assert!(!block.is_deleted());
        std::fs::remove_file(&path).unwrap();
        assert!(block.is_deleted());
        assert_eq!(read(&block).as_deref(), Some(&content[100..200]));
        let (_folder, path, block, _) = made();
        File::options().write(true).open(&path).unwrap().set_len(50).unwrap();
        assert_eq!(read(&block), None);
    }

    #[test]
    fn a_change_while_it_is_read_makes_it_worthless() {
        let (_folder, path, block, _) = made();
        std::thread::sleep(2 * COARSE);
        let taken = block.with(0..10, &mut |_| {
            std::fs::write(&path, vec![0; 10_004]).unwrap();
            Ok(())
        });
        assert!(taken.is_none());
    }

    #[test]
    fn errors_of_whoever_takes_are_theirs() {
        let (_folder, _path, block, _) = made();
        let taken = block.with(0..10, &mut |_| Err(Error::damaged("a chunk")));
        assert_eq!(taken.unwrap().unwrap_err().kind(), ErrorKind::Damaged);
    }
}
