//! Decides the size of pages while memory is provided: huge pages, as long as the system can
//! provide them quickly.
//!
//! Huge pages are cleared at 5 to 12 GB/s if free memory lies in large blocks, small ones at 2 to 4
//! GB/s, and decoding into huge pages is a few percent faster. But if free memory is in small
//! pieces, for example after many files were read, the kernel has to move small pages to make room
//! for each huge one. The same machine then provided only 0.2 to 0.4 GB/s on huge pages, and 2 to 4
//! GB/s on small pages. So if huge pages take long, their time is compared with that of small ones.

use std::time::Duration;

/// Size of huge pages on x86-64 and on 4 KiB arm64.
pub const HUGE_PAGE: usize = 2 << 20;

/// The size of pages to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    Small,
    Huge,
}

/// If huge pages come at least this fast, in bytes per second, they are not compared with small
/// ones.
const QUICK: f64 = 2e9;
/// Huge pages may take at most this many times as long as small ones.
const SLOWER: f64 = 1.5;

/// Which pages come next.
#[derive(Debug)]
pub(super) enum Sizes {
    Huge,
    /// The last huge pages took this many seconds per byte. Small ones come next, for comparison.
    Compare(f64),
    /// Small ones, to the end.
    Small,
}

impl Sizes {
    pub(super) fn new(with_huge_pages: bool) -> Self {
        if with_huge_pages { Self::Huge } else { Self::Small }
    }

    /// The pages to ask for next.
    pub(super) fn next(&self) -> Pages {
        match self {
            Self::Huge => Pages::Huge,
            Self::Compare(_) | Self::Small => Pages::Small,
        }
    }

    /// Records how long `bytes` of such pages took. Returns whether huge pages are given up because
    /// of it.
    pub(super) fn took(&mut self, pages: Pages, bytes: usize, took: Duration) -> bool {
        let each = took.as_secs_f64() / bytes.max(1) as f64;
        let (next, given_up) = match *self {
            Self::Huge if pages == Pages::Huge && each * QUICK > 1.0 => {
                (Self::Compare(each), false)
            }
            Self::Compare(huge) if huge > SLOWER * each => (Self::Small, true),
            Self::Compare(_) | Self::Huge => (Self::Huge, false),
            Self::Small => (Self::Small, false),
        };
        *self = next;
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `pieces` pieces of a MiB are huge, if small ones take `small` microseconds, and
    /// huge ones `huge(piece)`.
    fn huge_pieces(pieces: usize, small: u64, huge: impl Fn(usize) -> u64) -> usize {
        let (mut sizes, mut count) = (Sizes::new(true), 0);
        for piece in 0..pieces {
            let pages = sizes.next();
            let took = if pages == Pages::Huge { huge(piece) } else { small };
            count += usize::from(pages == Pages::Huge);
            sizes.took(pages, 1 << 20, Duration::from_micros(took));
        }
        count
    }

    #[test]
    fn huge_pages_are_left_as_soon_as_they_are_slow() {
        // 200 microseconds are about 5 GB/s.
        assert_eq!(huge_pieces(40, 400, |_| 200), 40);
        assert_eq!(huge_pieces(40, 400, |_| 4000), 1);
        assert_eq!(huge_pieces(40, 400, |piece| if piece < 20 { 200 } else { 4000 }), 21);
        // All memory is slow: every other piece is small, for comparison.
        assert_eq!(huge_pieces(40, 4000, |_| 4000), 20);
    }

    #[test]
    fn giving_up_is_told_once() {
        let mut sizes = Sizes::new(true);
        let mut took = |pages, micros| sizes.took(pages, 1 << 20, Duration::from_micros(micros));
        assert!(!took(Pages::Huge, 4000));
        assert!(took(Pages::Small, 400));
        assert!(!took(Pages::Small, 4000));
        assert_eq!(Sizes::new(false).next(), Pages::Small);
    }
}
