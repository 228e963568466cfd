//! A copy of an array whose samples are interleaved, in which each sample is in one piece.
//!
//! In such an array (`yxbn`), the values of a sample are spread over the whole array, so reading
//! one sample reads almost everything, and reading all of them would take time quadratic in their
//! number. The array is therefore read once, and written in the order of its samples to a temporary
//! file without a name, which disappears with the process at the latest.
//!
//! ```text
//! array:  outer × samples × inner      → copy:  samples × outer × inner
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use hsipack_format::{Error, Result};

use super::bytes::ByteSource;
use crate::Access;
use crate::recent::Identity;

/// Memory for rearranging values.
pub(crate) const BLOCK_BYTES: usize = 32 << 20;
/// The most copies that are kept: of an array of cubes, and of one of masks.
const MAX_COPIES: usize = 2;

/// The place of an interleaved array in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interleaved {
    /// Bytes before the first value.
    pub offset: u64,
    /// How many times all samples take turns.
    pub outer: usize,
    /// Number of samples.
    pub samples: usize,
    /// Bytes of a sample in each turn.
    pub inner: usize,
}

#[derive(PartialEq)]
struct Key {
    file: Identity,
    name: String,
    array: Interleaved,
}

/// A copy; empty while it is written.
type Slot = Arc<Mutex<Option<Arc<SampleCopy>>>>;

static COPIES: Mutex<Vec<(Key, Slot)>> = Mutex::new(Vec::new());

/// The samples of an array, one after the other.
pub(crate) struct SampleCopy(File);

impl SampleCopy {
    /// The copy of the array `name` in the file at `path`, which `write` writes unless there is
    /// one. Threads that need the same copy wait until it is written. `None` if the file cannot be
    /// recognised later, or the disk for temporary files is full.
    ///
    /// # Errors
    /// If the array cannot be read.
    pub fn of(
        path: &Path,
        name: &str,
        array: Interleaved,
        write: impl FnOnce(&File) -> Result<(), Failure>,
    ) -> Result<Option<Arc<SampleCopy>>> {
        let Some(file) = Identity::of(path) else { return Ok(None) };
        let key = Key { file, name: name.to_owned(), array };
        let slot = {
            let mut copies = COPIES.lock().unwrap_or_else(PoisonError::into_inner);
            match copies.iter().position(|(other, _)| *other == key) {
                Some(position) => copies[position].1.clone(),
                None => {
                    let slot = Slot::default();
                    copies.truncate(MAX_COPIES - 1);
                    copies.insert(0, (key, slot.clone()));
                    slot
                }
            }
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.is_none() {
            let Ok(file) = tempfile::tempfile() else { return Ok(None) };
            match write(&file) {
                Ok(()) => *slot = Some(Arc::new(Self(file))),
                Err(Failure::Write) => return Ok(None),
                Err(Failure::Read(error)) => return Err(error),
            }
        }
        Ok(slot.clone())
    }
}

/// Deletes all copies.
pub(crate) fn forget() {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

impl ByteSource for SampleCopy {
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let read = self.0.read_exact_at(out, offset);
        read.map_err(|error| Error::io(std::env::temp_dir(), "cannot read a temporary file", error))
    }

    fn access(&self) -> Access {
        Access::Random
    }
}

/// Why a copy was not written.
pub(crate) enum Failure {
    /// The array cannot be read.
    Read(Error),
    /// The copy cannot be written.
    Write,
}

impl Interleaved {
    /// Writes a part of each of the samples from `first` on, which take turns in `block`, with
    /// `inner` bytes each, to `file`. The part begins `at` bytes after the start of a sample.
    pub fn write_turns(
        self,
        block: &[u8],
        [first, samples, inner]: [usize; 3],
        at: usize,
        file: &File,
    ) -> Result<(), Failure> {
        let mut part = Vec::with_capacity(block.len() / samples);
        for sample in 0..samples {
            part.clear();
            for turn in block.chunks_exact(samples * inner) {
                part.extend_from_slice(&turn[sample * inner..][..inner]);
            }
            self.put(&part, first + sample, at, file)?;
        }
        Ok(())
    }

    fn put(self, part: &[u8], sample: usize, at: usize, file: &File) -> Result<(), Failure> {
        let of_sample = (self.outer * self.inner) as u64;
        let offset = sample as u64 * of_sample + at as u64;
        file.write_all_at(part, offset).map_err(|_| Failure::Write)
    }

    /// Writes the samples in `bytes` to `file`, one after the other. The array is read from its
    /// start to its end.
    pub fn write(self, bytes: &dyn ByteSource, file: &File) -> Result<(), Failure> {
        let Self { offset, outer, samples, inner } = self;
        let turn = samples * inner;
        let read = |at: usize, out: &mut [u8]| {
            bytes.read_at(offset + at as u64, out).map_err(Failure::Read)
        };
        if turn > BLOCK_BYTES {
            // Pieces of one sample in one turn, as they are in the array.
            let mut piece = vec![0; inner.min(BLOCK_BYTES)];
            for number in 0..outer * samples {
                let (number, sample) = (number / samples, number % samples);
                for start in (0..inner).step_by(BLOCK_BYTES) {
                    let piece = &mut piece[..BLOCK_BYTES.min(inner - start)];
                    read(number * turn + sample * inner + start, piece)?;
                    self.put(piece, sample, number * inner + start, file)?;
                }
            }
            return Ok(());
        }
        let together = (BLOCK_BYTES / turn.max(1)).clamp(1, outer);
        let mut block = vec![0; together * turn];
        for first in (0..outer).step_by(together) {
            let block = &mut block[..together.min(outer - first) * turn];
            read(first * turn, block)?;
            self.write_turns(block, [0, samples, inner], first * inner, file)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flat::MemoryBytes;

    #[test]
    fn samples_are_in_one_piece() {
        for (outer, samples, inner) in
            [(5, 3, 4), (1, 4, 6), (7, 1, 2), (3, 5, 1), (2, 3, 20 << 20)]
        {
            let value = |turn: usize, sample: usize, at: usize| (turn * 31 + sample * 7 + at) as u8;
            let mut array = vec![0xEE; 9];
            for turn in 0..outer {
                for sample in 0..samples {
                    array.extend((0..inner).map(|at| value(turn, sample, at)));
                }
            }
            let file = tempfile::tempfile().unwrap();
            let interleaved = Interleaved { offset: 9, outer, samples, inner };
            assert!(interleaved.write(&MemoryBytes(array), &file).is_ok());
            let copy = SampleCopy(file);
            let mut sample_bytes = vec![0; outer * inner];
            for sample in 0..samples {
                copy.read_at((sample * outer * inner) as u64, &mut sample_bytes).unwrap();
                for (turn, bytes) in sample_bytes.chunks_exact(inner).enumerate() {
                    let is_right = |at: usize| bytes[at] == value(turn, sample, at);
                    assert!((0..inner).all(is_right), "{turn} {sample}");
                }
            }
        }
    }
}
