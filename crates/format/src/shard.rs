//! Shard files: chunks one after another, and at the end an index of their positions.
//!
//! The format is that of Zarr's [`sharding_indexed`][zarr] codec with `index_location: end`. The
//! index has one `(offset, length)` pair of little-endian u64 for each chunk, in C order of the
//! shard's chunk grid, followed by the CRC-32C of the pairs.
//!
//! [zarr]: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html

use std::ops::Range;

use crate::codec::CHECKSUM_LEN;
use crate::{Error, Result};

const ABSENT: u64 = u64::MAX;

/// The position of a chunk in its shard file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSpan {
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes, including the checksum.
    pub len: u64,
}

/// The positions of all chunks of a shard; `None` for chunks that were not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardIndex(pub Vec<Option<ChunkSpan>>);

impl ShardIndex {
    /// An index of `chunks` chunks, none of which was written.
    pub fn empty(chunks: usize) -> Self {
        Self(vec![None; chunks])
    }

    /// The size in bytes of an index of `chunks` chunks.
    pub const fn encoded_len(chunks: usize) -> usize {
        chunks * 16 + CHECKSUM_LEN
    }

    /// The position of the index in a shard file of `len` bytes with `chunks` chunks. The index is
    /// at the end.
    ///
    /// # Errors
    /// If the file is too short.
    pub fn span(chunks: usize, len: u64) -> Result<Range<u64>> {
        let index_len = Self::encoded_len(chunks);
        let start = len.checked_sub(index_len as u64).ok_or_else(|| {
            Error::damaged(format!(
                "the shard has {len} bytes, too few for its index of {index_len}"
            ))
        })?;
        Ok(start..len)
    }

    /// The index as it is stored in a shard file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::encoded_len(self.0.len()));
        for span in &self.0 {
            let (offset, len) = span.map_or((ABSENT, ABSENT), |span| (span.offset, span.len));
            bytes.extend(offset.to_le_bytes());
            bytes.extend(len.to_le_bytes());
        }
        let checksum = crate::crc::crc32c(&bytes);
        bytes.extend(checksum.to_le_bytes());
        bytes
    }

    /// Reads the index of a shard. Its chunks fill the `data_len` bytes before the index.
    ///
    /// # Errors
    /// If the checksum differs, or a span lies outside the data.
    pub fn decode(bytes: &[u8], data_len: u64) -> Result<Self> {
        let pairs = crate::codec::verify(bytes).map_err(|error| {
            Error::damaged(format!("the shard index is damaged: {}", error.what()))
        })?;
        let (pairs, []) = pairs.as_chunks::<16>() else {
            return Err(Error::damaged("the shard index has a broken length"));
        };
        let spans = pairs.iter().enumerate().map(|(chunk, pair)| {
            let (offset, len) = pair.split_at(8);
            let offset = u64::from_le_bytes(offset.try_into().expect("8 bytes"));
            let len = u64::from_le_bytes(len.try_into().expect("8 bytes"));
            if offset == ABSENT && len == ABSENT {
                return Ok(None);
            }
            match offset.checked_add(len) {
                Some(end) if end <= data_len => Ok(Some(ChunkSpan { offset, len })),
                _ => Err(Error::damaged(format!(
                    "the shard index puts chunk {chunk} outside the file"
                ))),
            }
        });
        spans.collect::<Result<_>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_specification_s_layout_is_what_is_written() {
        let index = ShardIndex(vec![Some(ChunkSpan { offset: 0, len: 3 }), None]);
        let bytes = index.encode();
        assert_eq!(bytes[..16], [0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..32], [0xFF; 16]);
        assert_eq!(bytes.len(), ShardIndex::encoded_len(2));
        assert_eq!(ShardIndex::decode(&bytes, 3).unwrap(), index);
    }

    #[test]
    fn spans_outside_the_file_are_refused() {
        for (offset, len) in [(0, 4), (4, 0), (u64::MAX - 1, 5), (3, u64::MAX)] {
            let bytes = ShardIndex(vec![Some(ChunkSpan { offset, len })]).encode();
            assert!(ShardIndex::decode(&bytes, 3).is_err(), "{offset} {len}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), len: u64) {
            let _ = ShardIndex::decode(&bytes, len);
        }

        #[test]
        fn any_flipped_byte_is_noticed(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = ShardIndex(vec![Some(ChunkSpan { offset: 5, len: 7 }), None]).encode();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            prop_assert!(ShardIndex::decode(&bytes, 100).is_err());
        }
    }
}
