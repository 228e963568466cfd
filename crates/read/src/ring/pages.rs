//! Provides memory before it is used: on huge pages, as long as the system can provide them quickly.
//!
//! Huge pages make decoding into the ring a few percent faster. If free memory lies in large blocks, the kernel provides
//! them at 5 to 9 GB/s. If it does not, for example after many files were read, the kernel has to move small pages to
//! make room for each huge one. The same machine then provided only 0.2 to 0.4 GB/s on huge pages, and 2 to 4 GB/s on
//! small pages. So if huge pages take long, their time is compared with that of small ones.

use std::io;
use std::ops::Range;
use std::time::Duration;

/// The size of pages to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    Small,
    Huge,
}

/// Bytes that are provided at a time.
const PIECE: usize = 64 << 20;
/// If huge pages come at least this fast, in bytes per second, they are not compared with small ones.
const QUICK: f64 = 2e9;
/// Huge pages may take at most this many times as long as small ones.
const SLOWER: f64 = 1.5;

/// Provides `bytes` of memory. `touch` provides a part and returns how long it took. Returns how many bytes were asked to
/// be on huge pages.
///
/// # Errors
/// The errors of `touch`.
pub(super) fn provide(
    bytes: usize,
    mut touch: impl FnMut(Range<usize>, Pages) -> io::Result<Duration>,
) -> io::Result<usize> {
    let (mut start, mut huge) = (0, 0);
    // Provides the next part and returns how many seconds each byte of it took.
    let mut next = |start: &mut usize, size: usize, pages| -> io::Result<f64> {
        let part = *start..bytes.min(start.saturating_add(size));
        *start = part.end;
        let len = part.len().max(1);
        Ok(touch(part, pages)?.as_secs_f64() / len as f64)
    };
    while start < bytes {
        let before = start;
        let took = next(&mut start, PIECE, Pages::Huge)?;
        huge += start - before;
        if took * QUICK <= 1.0 || start == bytes {
            continue;
        }
        if took > SLOWER * next(&mut start, PIECE, Pages::Small)? {
            next(&mut start, usize::MAX, Pages::Small)?;
        }
    }
    Ok(huge)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Provides memory where each MiB takes `small` microseconds on small pages, and `huge(place)` microseconds on huge
    /// ones.
    fn provided(mib: usize, small: u64, huge: impl Fn(usize) -> u64) -> (usize, Vec<Range<usize>>) {
        let mut parts = Vec::new();
        let touch = |part: Range<usize>, pages| {
            let each = if pages == Pages::Huge { huge(part.start >> 20) } else { small };
            parts.push(part.clone());
            Ok(Duration::from_micros(each * (part.len() >> 20) as u64))
        };
        (provide(mib << 20, touch).unwrap() >> 20, parts)
    }

    #[test]
    fn every_byte_is_provided_once() {
        for (mib, huge) in [(0, 1), (2, 1), (64, 900), (128, 900), (300, 900), (1402, 1)] {
            let (_, parts) = provided(mib, 400, |_| huge);
            let mut end = 0;
            for part in parts {
                assert_eq!(part.start, end);
                end = part.end;
            }
            assert_eq!(end, mib << 20);
        }
    }

    #[test]
    fn huge_pages_are_left_as_soon_as_they_are_slow() {
        // Microseconds per MiB: 200 is about 5 GB/s.
        assert_eq!(provided(1402, 400, |_| 200).0, 1402);
        assert_eq!(provided(1402, 400, |_| 4000).0, 64);
        let used_up = |place| if place < 600 { 200 } else { 4000 };
        assert_eq!(provided(1402, 400, used_up).0, 704);
        // All memory is slow: every other piece is on small pages, for comparison.
        assert_eq!(provided(640, 4000, |_| 4000).0, 320);
        assert_eq!(provided(2, 400, |_| 4000).0, 2);
    }

    #[test]
    fn memory_that_is_refused_is_an_error() {
        let error = provide(1 << 30, |_, _| Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::OutOfMemory);
    }
}
