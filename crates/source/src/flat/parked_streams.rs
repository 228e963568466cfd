//! Streams between sources: each sample of a compressed array is a source of its own, and continues
//! the stream where the sample before it ended. Otherwise each would decompress everything before
//! it, in time quadratic in their number.

use std::io::Read;
use std::sync::{Mutex, PoisonError};

use crate::recent::Identity;

/// A stream and how many of its bytes were read.
pub(crate) type Stream = (u64, Box<dyn Read + Send>);

/// Several threads read samples at the same time, and masks besides cubes.
const MAX_PARKED: usize = 32;

struct Parked {
    file: Identity,
    start: u64,
    stream: Stream,
}

impl Parked {
    fn fits(&self, file: &Identity, start: u64, offset: u64) -> bool {
        self.file == *file && self.start == start && self.stream.0 <= offset
    }
}

static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

/// Keeps a stream that begins `start` bytes after the start of `file`. The streams that were kept
/// last stay the longest.
pub(crate) fn park(file: Identity, start: u64, stream: Stream) {
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    parked.truncate(MAX_PARKED - 1);
    parked.insert(0, Parked { file, start, stream });
}

/// The stream that has read the most bytes up to `offset`.
pub(crate) fn take(file: &Identity, start: u64, offset: u64) -> Option<Stream> {
    let mut parked = PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    let fitting = parked.iter().enumerate().filter(|(_, parked)| parked.fits(file, start, offset));
    let (index, _) = fitting.max_by_key(|(_, parked)| parked.stream.0)?;
    Some(parked.remove(index).stream)
}

/// Closes all streams.
pub(crate) fn close() {
    PARKED.lock().unwrap_or_else(PoisonError::into_inner).clear();
}
