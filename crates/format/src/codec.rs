//! Chunk codec: `bytes`(little) → `blosc` → `crc32c`, the inner codec chain of every packed array.
//!
//! Blosc frames are Blosc-1 frames, which `hsipack_store::codec` has C-Blosc make and read. A chunk on disk is one frame followed by the CRC-32C of the frame, little-endian
//! ([`crc32c` codec](https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/index.html)).

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

// Blosc's and Zarr's `cname`, too.
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
    /// None.
    None,
    /// Bytes of equal significance come together.
    Byte,
    /// Bits of equal significance come together.
    Bit,
}

crate::option_names!(Shuffle, "shuffle", { None => "none", Byte => "byte", Bit => "bit" });

impl Shuffle {
    /// Zarr's name for it.
    pub const fn zarr_name(self) -> &'static str {
        match self {
            Shuffle::None => "noshuffle",
            Shuffle::Byte => "shuffle",
            Shuffle::Bit => "bitshuffle",
        }
    }

    /// The filter of that Zarr name.
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
    /// Bytes an element takes, for the filter.
    pub typesize: u8,
    /// Blosc's block size in bytes; 0 lets Blosc choose.
    pub blocksize: usize,
}

/// Bytes that the checksum takes behind a frame.
pub const CHECKSUM_LEN: usize = 4;
/// Bytes of the header of a Blosc frame.
pub const BLOSC_HEADER: usize = 16;
/// The most bytes one Blosc frame holds, by the width of its header fields.
pub const MAX_CHUNK: usize = i32::MAX as usize - BLOSC_HEADER;

/// Appends the CRC-32C of `bytes` to them.
pub fn append_checksum(bytes: &mut Vec<u8>) {
    append_checksum_from(0, bytes);
}

/// Appends the CRC-32C of what stands in `bytes` from `start` on.
pub fn append_checksum_from(start: usize, bytes: &mut Vec<u8>) {
    let checksum = crate::crc::crc32c(&bytes[start..]);
    bytes.extend(checksum.to_le_bytes());
}

/// Splits a stored chunk into its frame, after comparing the checksum behind it.
///
/// # Errors
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if they differ or there is no room for one.
pub fn verify(stored: &[u8]) -> Result<&[u8]> {
    let (frame, checksum) = split(stored)?;
    let (want, got) = (u32::from_le_bytes(*checksum), crate::crc::crc32c(frame));
    if want != got {
        return Err(Error::damaged(format!("checksum is {got:08x}, recorded was {want:08x}")));
    }
    Ok(frame)
}

/// The frame of a stored chunk, its checksum not compared.
///
/// # Errors
/// [`ErrorKind::Damaged`](crate::ErrorKind::Damaged) if there is no room for a checksum.
pub fn without_checksum(stored: &[u8]) -> Result<&[u8]> {
    split(stored).map(|(frame, _)| frame)
}

fn split(stored: &[u8]) -> Result<(&[u8], &[u8; CHECKSUM_LEN])> {
    stored
        .split_last_chunk::<CHECKSUM_LEN>()
        .ok_or_else(|| Error::damaged(format!("a chunk of {} bytes has no checksum", stored.len())))
}
