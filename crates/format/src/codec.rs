//! Chunk codec: `bytes`(little) → `blosc` → `crc32c`, the inner codec chain of every packed array.
//!
//! Frames are Blosc-1 frames, which `hsipack_store::codec` writes and reads with C-Blosc. A chunk on disk is one frame
//! followed by the CRC-32C of the frame, little-endian ([`crc32c`
//! codec](https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/index.html)).

use crate::{Error, Result};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Codec {
    /// Compressor inside Blosc.
    pub compressor: Compressor,
    /// 0 (store) to 9.
    pub level: u8,
    /// Filter before compression.
    pub shuffle: Shuffle,
    /// Size of an element in bytes, for the filter.
    pub typesize: u8,
    /// Blosc's block size in bytes; 0 lets Blosc choose.
    pub blocksize: usize,
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
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if the checksum differs or the chunk is too short to have one.
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
