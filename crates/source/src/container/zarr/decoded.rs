//! Finds out how much a compressed chunk decodes to, before memory is allocated for it. `zarrs`
//! decodes whatever a frame holds, and a few MB can become some GB. Gzip and zlib do not state
//! their decoded size: see `inflate`.

use super::metadata::Compressor;

/// Bytes that other codecs (checksums) may add before compression.
const EXTRA: u64 = 1 << 10;
/// A block of Zstandard decodes to at most this many bytes.
const ZSTD_BLOCK: u64 = 128 << 10;
/// Bytes of a checksum after a compressed chunk.
const CHECKSUM: usize = 4;

/// Whether a compressed chunk decodes to no more than `most` bytes and a little. Damaged chunks
/// pass: as far as they decode at all, they do not decode to more.
pub(super) fn fits(compressor: Compressor, bytes: &[u8], most: u64) -> bool {
    let most = most + EXTRA;
    match compressor {
        // Limited while they are inflated.
        Compressor::Gzip | Compressor::Zlib => true,
        Compressor::Zstd => zstd_bound(bytes).is_none_or(|bound| bound <= most),
        Compressor::Blosc => blosc_len(bytes).is_none_or(|len| len <= most),
    }
}

/// The decoded size that the header of a Blosc frame states. The frame never decodes to more.
fn blosc_len(bytes: &[u8]) -> Option<u64> {
    let header = bytes.first_chunk::<16>()?;
    let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    // The last number in the header is the frame's own length, and a checksum may follow the frame. Bytes of
    // any other length are not a frame, but for example a shard's index.
    let is_frame =
        bytes.len().checked_sub(number(12) as usize).is_some_and(|trailing| trailing <= CHECKSUM);
    is_frame.then(|| number(4).into())
}

/// The most bytes that Zstandard frames decode to: the size that each states, otherwise what its
/// blocks can hold. `None` if these are not whole frames.
fn zstd_bound(mut bytes: &[u8]) -> Option<u64> {
    let mut bound = 0u64;
    let all = bytes.len();
    while bytes.len() > CHECKSUM || bytes.len() == all {
        let magic = u32::from_le_bytes(*bytes.first_chunk()?);
        bytes = &bytes[4..];
        // Skippable frames.
        if magic & 0xFFFF_FFF0 == 0x184D_2A50 {
            let len = u32::from_le_bytes(*bytes.first_chunk()?);
            bytes = bytes.get(4..)?.get(len as usize..)?;
            continue;
        }
        if magic != 0xFD2F_B528 {
            return None;
        }
        let (descriptor, tail) = bytes.split_first()?;
        let single = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size_len = match descriptor >> 6 {
            0 => usize::from(single),
            1 => 2,
            2 => 4,
            _ => 8,
        };
        let tail = tail.get(usize::from(!single) + dictionary..)?;
        let (stated, mut remaining) = tail.split_at_checked(size_len)?;
        let mut raw = [0; 8];
        raw[..size_len].copy_from_slice(stated);
        let stated = u64::from_le_bytes(raw) + if size_len == 2 { 256 } else { 0 };
        let mut blocks = 0u64;
        loop {
            let header = u32::from_le_bytes([
                *remaining.first()?,
                *remaining.get(1)?,
                *remaining.get(2)?,
                0,
            ]);
            let size = header >> 3;
            // Raw, one byte repeated, compressed.
            let (stored, decoded) = match header >> 1 & 3 {
                0 => (size, u64::from(size)),
                1 => (1, u64::from(size)),
                _ => (size, ZSTD_BLOCK),
            };
            blocks = blocks.saturating_add(decoded);
            remaining = remaining.get(3..)?.get(stored as usize..)?;
            if header & 1 == 1 {
                break;
            }
        }
        bytes = remaining.get(if descriptor & 4 != 0 { 4 } else { 0 }..)?;
        bound = bound.saturating_add(if size_len == 0 { blocks } else { stated });
    }
    Some(bound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn zstandard_frames_say_what_they_decode_to() {
        // numcodecs.Zstd(3).encode(bytes(100_000))
        let stated = b"\x28\xb5\x2f\xfd\xa0\xa0\x86\x01\x00\x55\x00\x00\x10\x00\x00\x01\x00\x9b\x86\x39\xc0\x02";
        assert_eq!(zstd_bound(stated), Some(100_000));
        assert_eq!(zstd_bound(&stated.repeat(2)), Some(200_000));
        assert_eq!(zstd_bound(&stated[..20]), None);
        assert_eq!(
            zstd_bound(&[stated, &b"1234"[..]].concat()),
            Some(100_000),
            "a checksum behind"
        );
        // One block of a byte that is repeated 70,000 times, in a frame without a size.
        let block = (70_000u32 << 3 | 1 << 1 | 1).to_le_bytes();
        let unstated = [b"\x28\xb5\x2f\xfd\x00\x58", &block[..3], b"z"].concat();
        assert_eq!(zstd_bound(&unstated), Some(70_000));
        let skippable = [b"\x50\x2a\x4d\x18\x03\0\0\0abc", &stated[..]].concat();
        assert_eq!(zstd_bound(&skippable), Some(100_000));
        assert!(!fits(Compressor::Zstd, stated, 50_000));
    }

    #[test]
    fn blosc_frames_say_what_they_decode_to() {
        let mut frame = vec![2, 1, 0x21, 2];
        frame.extend([5000u32, 5000, 20].iter().flat_map(|number| number.to_le_bytes()));
        frame.extend([0; 4]);
        assert_eq!(blosc_len(&frame), Some(5000));
        assert!(fits(Compressor::Blosc, &frame, 5000));
        assert!(!fits(Compressor::Blosc, &frame, 1000));
        assert_eq!(blosc_len(&frame[..19]), None, "cut short, or no frame");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), zstd: bool) {
            let bytes = if zstd { [b"\x28\xb5\x2f\xfd", &bytes[..]].concat() } else { bytes };
            for codec in [Compressor::Zstd, Compressor::Blosc] {
                fits(codec, &bytes, 100);
            }
        }
    }
}
