//! A guard against an endless loop in libhdf5.
//!
//! HDF5 stores texts of variable length in global heap collections. A collection starts with
//! `GCOL`, a version (1), three zero bytes and the collection's size. Objects follow. Each has an
//! index (2 bytes), a reference count (2), four unused bytes, a size (8) and, unless the index is
//! 0, the data, padded to 8 bytes. Index 0 is the free space at the end; its size includes its
//! header.
//!
//! libhdf5 2.x steps from object to object and never gets past free space of size 0. One damaged
//! byte can cause this. Therefore the collections at the start and at the end of the file, where
//! most metadata lie, are checked before libhdf5 sees them.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// How many bytes are searched at each end of the file. Planning opens every file of a folder, some
/// of them more than once, so this is kept small.
const SEARCH_BYTES: u64 = 1 << 20;

/// Whether the file holds a collection in which libhdf5 would loop forever.
pub(super) fn endless(file: &File) -> std::io::Result<bool> {
    let len = file.metadata()?.len();
    let tail = len.saturating_sub(SEARCH_BYTES).max(SEARCH_BYTES.min(len));
    for (start, end) in [(0, len.min(SEARCH_BYTES)), (tail, len)] {
        let mut bytes = vec![0; (end - start) as usize];
        file.read_exact_at(&mut bytes, start)?;
        if any_endless(&bytes) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether any collection in `bytes` has free space of size 0.
fn any_endless(bytes: &[u8]) -> bool {
    let mut remaining = bytes;
    while let Some(at) = remaining.windows(4).position(|word| word == b"GCOL") {
        remaining = &remaining[at..];
        if stuck(remaining).unwrap_or(false) {
            return true;
        }
        remaining = &remaining[4..];
    }
    false
}

/// Whether stepping through the collection at the start of `bytes` gets stuck. `None` if `bytes`
/// does not start with a whole collection.
fn stuck(bytes: &[u8]) -> Option<bool> {
    let number = |at: usize| {
        let bytes = bytes.get(at..)?.first_chunk::<8>()?;
        usize::try_from(u64::from_le_bytes(*bytes)).ok()
    };
    if bytes.get(4..8)? != [1, 0, 0, 0] {
        return None;
    }
    let size = number(8)?;
    let collection = bytes.get(..size)?;
    let mut at = 16usize;
    while at.checked_add(16)? <= size {
        let free = collection[at..at + 2] == [0, 0];
        let data = number(at + 8)?;
        let step = if free { data } else { data.checked_next_multiple_of(8)?.checked_add(16)? };
        if step == 0 {
            return Some(true);
        }
        at = at.checked_add(step)?;
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A collection with one object of `claimed` bytes, and free space up to 4096 bytes.
    fn collection(claimed: u8) -> Vec<u8> {
        let mut bytes = b"GCOL\x01\0\0\0".to_vec();
        bytes.extend(4096u64.to_le_bytes());
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0, claimed, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(b"nm\0\0\0\0\0\0");
        bytes.extend([0; 8]);
        bytes.extend((4096u64 - 40).to_le_bytes());
        bytes.resize(4096, 0);
        bytes
    }

    #[test]
    fn only_free_space_of_size_zero_is_endless() {
        let with = |claimed| {
            let mut bytes = vec![7; 72];
            bytes.extend(collection(claimed));
            any_endless(&bytes)
        };
        assert!(!with(2));
        assert!(with(56), "the walk lands in zeros");
        assert!(!any_endless(b"GCOL"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(at in 0usize..64, damage: [u8; 8], cut in 0usize..4096) {
            let mut bytes = collection(2);
            bytes[at..at + 8].copy_from_slice(&damage);
            bytes.truncate(cut);
            any_endless(&bytes);
        }
    }
}
