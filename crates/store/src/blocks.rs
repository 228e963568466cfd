//! One chunk, decompressed block by block, for readers that convert its values.
//!
//! C-Blosc decompresses each block into planes, one for each byte of a value, and then puts the
//! bytes of values together. A reader that converts values does both in one pass while the planes
//! are in the processor's cache. Planes that did not compress are read where they are stored.
//!
//! ```text
//! u8 version = 2, u8 codec version, u8 flags, u8 typesize, u32 bytes, u32 bytes of a block, u32 bytes of the frame
//! u32 start of every block (not if the frame is a plain copy)
//! blocks: one stream, or one for each byte of a value; u32 length before each
//! ```

use hsipack_format::Result;
use hsipack_format::codec::{BLOSC_HEADER, MAX_CHUNK};

use crate::memory;

/// Flags of a frame: bytes are shuffled, the frame is a plain copy, bits are shuffled, blocks have
/// one stream.
const SHUFFLED: u8 = 0x01;
const COPIED: u8 = 0x02;
const BITSHUFFLED: u8 = 0x04;
const RESERVED: u8 = 0x08;
const ONE_STREAM: u8 = 0x10;
/// The number of LZ4 in the upper bits of the flags.
const LZ4: u8 = 1;
/// Blocks whose streams would be shorter have one stream.
const SHORTEST_STREAM: usize = 128;

/// The values of a part of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// Values next to one another.
    Values(&'a [u8]),
    /// The first bytes of values of two bytes, and the second bytes.
    Planes([&'a [u8]; 2]),
}

impl Block<'_> {
    /// Bytes of its values.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Values(values) => values.len(),
            Self::Planes([first, second]) => first.len() + second.len(),
        }
    }
}

/// Decompresses a frame of `bytes` bytes, and calls `each` with its blocks, in order. `scratch` is
/// working memory.
///
/// `false` if the frame is damaged, or not of LZ4 with values of one byte or shuffled values of two
/// bytes. Some calls may have been made then. [`codec::decode`](crate::codec::decode) decompresses
/// such frames, or says what is wrong.
///
/// # Errors
/// If there is no memory for a block.
pub fn decode_blocks(
    frame: &[u8],
    bytes: usize,
    scratch: &mut Vec<u8>,
    each: &mut dyn FnMut(Block<'_>),
) -> Result<bool> {
    let Some(frame) = Frame::parse(frame, bytes) else { return Ok(false) };
    if frame.is_copied {
        each(Block::Values(&frame.bytes[BLOSC_HEADER..]));
        return Ok(true);
    }
    if scratch.len() < frame.block_bytes {
        memory::room(scratch, frame.block_bytes, "a block of a chunk")?;
        scratch.resize(frame.block_bytes, 0);
    }
    for number in 0..frame.chunk_bytes.div_ceil(frame.block_bytes) {
        match frame.block(number, scratch) {
            Some(block) => each(block),
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// A frame, and its header.
struct Frame<'a> {
    bytes: &'a [u8],
    chunk_bytes: usize,
    block_bytes: usize,
    typesize: usize,
    is_copied: bool,
    has_one_stream: bool,
}

impl<'a> Frame<'a> {
    /// `None` if it must be left to C-Blosc.
    fn parse(bytes: &'a [u8], chunk_bytes: usize) -> Option<Self> {
        let (&[version, codec_version, flags, typesize], sizes) = bytes.split_first_chunk()?;
        let word = |at: usize| Some(u32::from_le_bytes(*sizes.get(at..)?.first_chunk()?) as usize);
        let (block_bytes, typesize) = (word(4)?, usize::from(typesize));
        let is_whole = version == 2
            && flags & RESERVED == 0
            && word(0)? == chunk_bytes
            && word(8)? == bytes.len()
            && (1..=MAX_CHUNK).contains(&chunk_bytes)
            && (1..=chunk_bytes).contains(&block_bytes);
        let is_copied = flags & COPIED != 0;
        let is_known = match is_copied {
            true => bytes.len() == BLOSC_HEADER + chunk_bytes && typesize > 0,
            false => {
                let is_shuffled = flags & (SHUFFLED | BITSHUFFLED) == SHUFFLED;
                let has_values = match typesize {
                    1 => flags & BITSHUFFLED == 0,
                    2 => is_shuffled && (chunk_bytes | block_bytes).is_multiple_of(2),
                    _ => false,
                };
                has_values && flags >> 5 == LZ4 && codec_version == 1
            }
        };
        let has_one_stream = flags & ONE_STREAM != 0;
        (is_whole && is_known).then_some(Self {
            bytes,
            chunk_bytes,
            block_bytes,
            typesize,
            is_copied,
            has_one_stream,
        })
    }

    /// Block `number`, with its streams in `scratch` if they are compressed. `None` if it is
    /// damaged.
    fn block<'s>(&self, number: usize, scratch: &'s mut [u8]) -> Option<Block<'s>>
    where
        'a: 's,
    {
        let bytes = self.block_bytes.min(self.chunk_bytes - number * self.block_bytes);
        let start = self.bytes[BLOSC_HEADER..].get(4 * number..)?.first_chunk()?;
        let mut streams = self.bytes.get(u32::from_le_bytes(*start) as usize..)?;
        let scratch = &mut scratch[..bytes];
        if self.typesize == 1 {
            return stream(&mut streams, scratch).map(Block::Values);
        }
        let is_split = !self.has_one_stream
            && bytes == self.block_bytes
            && bytes / self.typesize >= SHORTEST_STREAM;
        if is_split {
            let (first, second) = scratch.split_at_mut(bytes / 2);
            let first = stream(&mut streams, first)?;
            return Some(Block::Planes([first, stream(&mut streams, second)?]));
        }
        let (first, second) = stream(&mut streams, scratch)?.split_at(bytes / 2);
        Some(Block::Planes([first, second]))
    }
}

/// Takes a stream from the front of `streams`. It is decompressed into `scratch`, which it must
/// fill, if it is compressed.
fn stream<'s>(streams: &mut &'s [u8], scratch: &'s mut [u8]) -> Option<&'s [u8]> {
    let (length, tail) = streams.split_first_chunk()?;
    let (stored, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *streams = tail;
    if stored.len() == scratch.len() {
        return Some(stored);
    }
    let lengths = [stored.len(), scratch.len()].map(|length| i32::try_from(length).ok());
    let [Some(stored_bytes), Some(bytes)] = lengths else { return None };
    let (from, into) = (stored.as_ptr().cast(), scratch.as_mut_ptr().cast());
    // SAFETY: the stream is readable, and the scratch memory writable, for the lengths that LZ4 is told. It checks that it stays
    // within them.
    let written = unsafe { lz4_sys::LZ4_decompress_safe(from, into, stored_bytes, bytes) };
    (written == bytes).then_some(scratch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decode_frame, encode};
    use hsipack_format::codec::verify;
    use hsipack_format::{Codec, Compressor, DType, Shuffle};
    use proptest::prelude::*;

    /// The chunk that the blocks of a frame have.
    fn joined(frame: &[u8], bytes: usize) -> Option<Vec<u8>> {
        let mut chunk = Vec::new();
        let mut take = |block: Block<'_>| {
            let before = chunk.len();
            match block {
                Block::Values(values) => chunk.extend(values),
                Block::Planes([first, second]) => {
                    chunk.extend(first.iter().zip(second).flat_map(|(low, high)| [*low, *high]));
                }
            }
            assert_eq!(chunk.len() - before, block.bytes());
        };
        let is_decoded = decode_blocks(frame, bytes, &mut Vec::new(), &mut take).unwrap();
        is_decoded.then_some(chunk)
    }

    fn frame(codec: &Codec, chunk: &[u8]) -> Vec<u8> {
        let mut stored = Vec::new();
        encode(codec, chunk, &mut stored).unwrap();
        verify(&stored).unwrap().to_vec()
    }

    /// Values whose low bytes are more or less noise.
    fn values(count: usize, noise: u32) -> Vec<u8> {
        let value = |at: u32| ((at / 9) + (at.wrapping_mul(2_654_435_761) >> (31 - noise))) as u16;
        (0..count as u32).flat_map(|at| value(at).to_le_bytes()).collect()
    }

    #[test]
    fn blocks_hold_what_c_blosc_decodes() {
        for (level, blocksize) in [(0, 0), (4, 0), (9, 1 << 12), (5, 1 << 16)] {
            for (dtype, shuffle) in [
                (DType::I16, Shuffle::Byte),
                (DType::U8, Shuffle::Byte),
                (DType::U8, Shuffle::None),
            ] {
                for compressor in [Compressor::Lz4, Compressor::Lz4Hc] {
                    let codec =
                        Codec { blocksize, ..Codec::new(compressor, level, shuffle, dtype) };
                    for (count, noise) in
                        [(1, 0), (3, 9), (70, 3), (130, 0), (5000, 8), (90_001, 5)]
                    {
                        let chunk = values(count, noise);
                        let decoded = joined(&frame(&codec, &chunk), chunk.len());
                        assert!(decoded == Some(chunk), "{codec:?}: {count} values, {noise}");
                    }
                }
            }
        }
    }

    #[test]
    fn other_frames_are_left_to_c_blosc() {
        let chunk = values(5000, 3);
        for (compressor, shuffle, dtype) in [
            (Compressor::Zstd, Shuffle::Byte, DType::I16),
            (Compressor::BloscLz, Shuffle::Byte, DType::I16),
            (Compressor::Lz4, Shuffle::Bit, DType::I16),
            (Compressor::Lz4, Shuffle::None, DType::I16),
            (Compressor::Lz4, Shuffle::Bit, DType::U8),
            (Compressor::Lz4, Shuffle::Byte, DType::F32),
        ] {
            let frame = frame(&Codec::new(compressor, 5, shuffle, dtype), &chunk);
            assert!(joined(&frame, chunk.len()).is_none(), "{compressor} {shuffle}");
        }
        let whole = frame(&Codec::new(Compressor::Lz4, 5, Shuffle::Byte, DType::I16), &chunk);
        assert!(
            joined(&whole, chunk.len() + 2).is_none() && joined(&whole[..99], 10_000).is_none()
        );
    }

    proptest! {
        #[test]
        fn damaged_frames_are_decoded_as_by_c_blosc_or_not_at_all(
            noise in 0u32..14, count in 1usize..4000, blocksize in 256usize..4096, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 1..4)
        ) {
            let chunk = values(count, noise);
            let codec = Codec { blocksize, ..Codec::new(Compressor::Lz4, 5, Shuffle::Byte, DType::I16) };
            let mut frame = frame(&codec, &chunk);
            for (at, byte, is_near) in damage {
                let end = if is_near { frame.len().min(40) } else { frame.len() };
                frame[at.index(end)] = byte;
            }
            let mut out = vec![0; chunk.len()];
            if let Some(blocks) = joined(&frame, chunk.len()) {
                prop_assert!(decode_frame(&frame, &mut out).is_ok());
                prop_assert_eq!(blocks, out);
            }
        }
    }
}
