//! Chunk codec: `bytes`(little) → `blosc` → `crc32c`, the inner codec chain of every packed array.
//!
//! A further codec is a variant of [`Compressor`], its entry in Zarr metadata here, and its calls
//! in `hsipack_store::codec`.
//!
//! Frames are Blosc-1 frames, which `hsipack_store::codec` writes and reads with C-Blosc. A chunk
//! on disk is one frame followed by the CRC-32C of the frame, little-endian
//! ([`crc32c` codec](https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/index.html)).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::names::by_name;
use crate::{DType, Error, Result};

/// A compressor inside Blosc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it all
pub enum Compressor {
    BloscLz,
    Lz4,
    Lz4Hc,
    Zlib,
    Zstd,
}

// These are also Blosc's and Zarr's names (`cname`).
crate::option_names!(Compressor, "codec", {
    BloscLz => "blosclz",
    Lz4 => "lz4",
    Lz4Hc => "lz4hc",
    Zlib => "zlib",
    Zstd => "zstd",
});

/// The filter that Blosc applies before compressing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// No filter.
    None,
    /// Bytes of equal significance are grouped together.
    Byte,
    /// Bits of equal significance are grouped together.
    Bit,
}

crate::option_names!(Shuffle, "shuffle", { None => "none", Byte => "byte", Bit => "bit" });

impl Shuffle {
    /// The name in Zarr metadata.
    pub const fn zarr_name(self) -> &'static str {
        match self {
            Shuffle::None => "noshuffle",
            Shuffle::Byte => "shuffle",
            Shuffle::Bit => "bitshuffle",
        }
    }

    /// The filter with this Zarr name.
    pub fn of_zarr_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shuffle| shuffle.zarr_name() == name)
    }
}

/// How chunks of one array are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Codec {
    /// Compressor inside Blosc.
    #[serde(with = "by_name")]
    pub compressor: Compressor,
    /// 0 (store) to 9.
    pub level: u8,
    /// Filter before compression.
    #[serde(with = "by_name")]
    pub shuffle: Shuffle,
    /// Size of an element in bytes, for the filter.
    pub typesize: u8,
    /// The block size that Blosc is asked for, in bytes; 0 lets Blosc choose. For codecs other than
    /// zstd, Blosc makes blocks of as many elements: larger by the size of an element.
    pub blocksize: usize,
}

/// Target size of the blocks of a chunk, in bytes. Blocks are decompressed independently, on a GPU
/// at the same time; smaller blocks are hardly compressed worse, and not faster on a CPU.
pub const TARGET_BLOCK: usize = 128_000;

/// Chunks below this size are one block, whatever Blosc is asked for.
const SMALLEST_DIVIDED: usize = 32 << 10;
/// Blosc's least and largest block, in bytes, for codecs that it splits blocks for.
const SPLIT_BLOCKS: [usize; 2] = [64 << 10, 1 << 20];
/// The most elements in such a block.
const MAX_SPLIT_ELEMENTS: usize = 1 << 18;
/// The least block that is chosen for other codecs, in bytes.
const SMALLEST_BLOCK: usize = 4 << 10;

impl Codec {
    /// A codec for elements of this type, whose block size is left to Blosc.
    pub const fn new(compressor: Compressor, level: u8, shuffle: Shuffle, dtype: DType) -> Self {
        Self { compressor, level, shuffle, typesize: dtype.size() as u8, blocksize: 0 }
    }

    /// The same codec for elements of another type.
    #[must_use]
    pub const fn of_dtype(self, dtype: DType) -> Self {
        Self { typesize: dtype.size() as u8, ..self }
    }

    /// The same codec with blocks of about `target` bytes for chunks of `chunk` bytes, within
    /// Blosc's limits. If the number of elements in a chunk allows it, all blocks are of equal
    /// size; otherwise the last one is shorter.
    #[must_use]
    pub fn with_blocks(self, target: usize, chunk: usize) -> Self {
        if self.level == 0 || chunk < SMALLEST_DIVIDED {
            return Self { blocksize: 0, ..self };
        }
        let typesize = usize::from(self.typesize);
        let splits = self.compressor != Compressor::Zstd && typesize <= 16;
        let [least, most] = if splits {
            [SPLIT_BLOCKS[0], SPLIT_BLOCKS[1].min(MAX_SPLIT_ELEMENTS * typesize)]
        } else {
            [SMALLEST_BLOCK, chunk.max(SMALLEST_BLOCK)]
        };
        let target = target.clamp(least, most);
        let elements =
            even_block(chunk / typesize, [least, target, most].map(|size| size / typesize));
        Self { blocksize: if splits { elements } else { elements * typesize }, ..self }
    }

    /// The codec in Zarr v3 metadata: its name and configuration.
    pub fn to_zarr(self) -> Value {
        json!({ "name": "blosc", "configuration": {
            "cname": self.compressor.name(),
            "clevel": self.level,
            "shuffle": self.shuffle.zarr_name(),
            "typesize": self.typesize,
            "blocksize": self.blocksize,
        }})
    }

    /// The codec that Zarr v3 metadata of an array of this type name; `None` if hsipack knows no
    /// such codec.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn of_zarr(name: &str, configuration: &Value, dtype: DType) -> Result<Option<Self>> {
        match name {
            "blosc" => Self::of_blosc(configuration, dtype).map(Some),
            _ => Ok(None),
        }
    }

    fn of_blosc(configuration: &Value, dtype: DType) -> Result<Self> {
        let missing = |key: &str| {
            Error::malformed(format!("{key} of blosc is missing or is not what Zarr v3 requires"))
        };
        let text = |key| configuration[key].as_str().ok_or_else(|| missing(key));
        let number = |key| configuration[key].as_u64();
        let cname = text("cname")?;
        let compressor = Compressor::ALL.into_iter().find(|candidate| candidate.name() == cname);
        let compressor = compressor.ok_or_else(|| {
            Error::unsupported(format!("blosc compressor {cname} is not in this build"))
        })?;
        let shuffle = text("shuffle")?;
        let shuffle = Shuffle::of_zarr_name(shuffle)
            .ok_or_else(|| Error::malformed(format!("blosc shuffle is {shuffle:?}")))?;
        let level = number("clevel").filter(|level| *level <= 9);
        let typesize = number("typesize").filter(|size| (1..=255).contains(size));
        let blocksize = number("blocksize").and_then(|size| usize::try_from(size).ok());
        Ok(Self {
            compressor,
            level: level.ok_or_else(|| missing("clevel"))? as u8,
            shuffle,
            typesize: typesize.unwrap_or(dtype.size() as u64) as u8,
            blocksize: blocksize.unwrap_or(0),
        })
    }
}

/// Bit shuffling processes as many elements at a time.
const SHUFFLE_GROUP: usize = 8;

/// The number of elements in each block of a chunk with `chunk` elements: from `least` to `most`,
/// and nearest to `target` if it divides the chunk evenly and is at most twice as large or small.
fn even_block(chunk: usize, [least, target, most]: [usize; 3]) -> usize {
    if chunk <= target {
        return chunk;
    }
    let [low, high] = [least.max(target / 2), most.min(target * 2)];
    let counts = chunk.div_ceil(high.max(1))..=chunk / low.max(1);
    let even = counts.filter(|count| chunk.is_multiple_of(*count)).map(|count| chunk / count);
    // Relative distance: twice as large is as far as half as large.
    let distance = |block: usize| block.max(target) as f64 / block.min(target).max(1) as f64;
    let worse = |block: &usize| !block.is_multiple_of(SHUFFLE_GROUP);
    let nearest = even.min_by(|first, other| {
        worse(first).cmp(&worse(other)).then(distance(*first).total_cmp(&distance(*other)))
    });
    nearest.unwrap_or_else(|| {
        let count = (chunk + target / 2) / target;
        let block = chunk.div_ceil(count.max(1)).next_multiple_of(SHUFFLE_GROUP);
        block.clamp(least, most)
    })
}

/// Length of the checksum after a frame, in bytes.
pub const CHECKSUM_LEN: usize = 4;
/// Length of the header of a Blosc frame, in bytes.
pub const BLOSC_HEADER: usize = 16;
/// The maximum number of bytes in one Blosc frame, limited by the width of its header fields.
pub const MAX_CHUNK: usize = i32::MAX as usize - BLOSC_HEADER;

/// Appends to `bytes` their CRC-32C.
pub fn append_checksum(bytes: &mut Vec<u8>) {
    append_checksum_from(0, bytes);
}

/// Appends the CRC-32C of the part of `bytes` that begins at `start`.
pub fn append_checksum_from(start: usize, bytes: &mut Vec<u8>) {
    let checksum = crate::crc::crc32c(&bytes[start..]);
    bytes.extend(checksum.to_le_bytes());
}

/// Compares the checksum of a stored chunk and returns its frame.
///
/// # Errors
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the checksum differs or the chunk is too
/// short to have one.
pub fn verify(stored: &[u8]) -> Result<&[u8]> {
    let (frame, checksum) = split(stored)?;
    let (want, got) = (u32::from_le_bytes(*checksum), crate::crc::crc32c(frame));
    if want != got {
        return Err(Error::damaged(format!(
            "the checksum is {got:08x}, but {want:08x} was recorded"
        )));
    }
    Ok(frame)
}

/// The frame of a stored chunk; the checksum is not compared.
///
/// # Errors
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the chunk is too short to have a checksum.
pub fn without_checksum(stored: &[u8]) -> Result<&[u8]> {
    split(stored).map(|(frame, _)| frame)
}

fn split(stored: &[u8]) -> Result<(&[u8], &[u8; CHECKSUM_LEN])> {
    stored
        .split_last_chunk::<CHECKSUM_LEN>()
        .ok_or_else(|| Error::damaged(format!("a chunk of {} bytes has no checksum", stored.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a block, as C-Blosc makes it of the size that it is asked for.
    fn block(codec: Codec, chunk: usize) -> usize {
        let requested = codec.blocksize;
        let block = match codec.compressor {
            _ if requested == 0 => chunk,
            Compressor::Zstd => requested,
            _ => (requested.min(1 << 18) * usize::from(codec.typesize)).clamp(1 << 16, 1 << 20),
        };
        block.min(chunk)
    }

    #[test]
    fn blocks_divide_chunks_evenly() {
        for (dtype, chunk, compressor, want) in [
            (DType::F16, 2_048_000, Compressor::Lz4Hc, 128_000),
            (DType::F16, 2_048_000, Compressor::Zstd, 128_000),
            (DType::F32, 2_048_000, Compressor::Lz4, 128_000),
            (DType::U8, 307_200, Compressor::Lz4Hc, 153_600),
            (DType::U16, 614_400, Compressor::Lz4Hc, 122_880),
            // 610 × 103 pixels of Pavia University.
            (DType::F16, 16 * 340 * 103 * 2, Compressor::Lz4Hc, 140_080),
            (DType::F16, 100_000, Compressor::Lz4Hc, 100_000),
            (DType::F16, 20_000, Compressor::BloscLz, 20_000),
        ] {
            let codec = Codec::new(compressor, 4, Shuffle::Byte, dtype);
            let codec = codec.with_blocks(TARGET_BLOCK, chunk);
            assert_eq!(block(codec, chunk), want, "{codec:?} {chunk}");
            assert_eq!(chunk % want, 0);
        }
    }

    #[test]
    fn blocks_of_awkward_chunks_are_nearly_equal() {
        // A prime number of elements.
        let chunk = 2 * 1_000_003;
        let codec = Codec::new(Compressor::Lz4, 5, Shuffle::Bit, DType::F16);
        let size = block(codec.with_blocks(TARGET_BLOCK, chunk), chunk);
        assert!((64_000..=256_000).contains(&size) && size.is_multiple_of(16), "{size}");
        assert!(chunk % size > size * 9 / 10, "{size}");
    }

    #[test]
    fn targets_beyond_the_limits_of_blosc_are_the_limits() {
        let codec = Codec::new(Compressor::Lz4, 5, Shuffle::Byte, DType::F16);
        assert_eq!(block(codec.with_blocks(1, 1 << 24), 1 << 24), 1 << 16);
        assert_eq!(block(codec.with_blocks(usize::MAX, 1 << 24), 1 << 24), 1 << 19);
        let stored = Codec { level: 0, ..codec };
        assert_eq!(stored.with_blocks(TARGET_BLOCK, 1 << 24), stored);
    }
}
