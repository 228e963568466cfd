//! Chunk codec: `bytes`(little) → `blosc` → `crc32c`, the inner codec chain of every packed array.
//!
//! A further codec is a variant of [`Compressor`], its entry in Zarr metadata here, and its calls in `hsipack_store::codec`.
//!
//! Frames are Blosc-1 frames, which `hsipack_store::codec` writes and reads with C-Blosc. A chunk on disk is one frame
//! followed by the CRC-32C of the frame, little-endian ([`crc32c`
//! codec](https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/index.html)).

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
    /// Blosc's block size in bytes; 0 lets Blosc choose.
    pub blocksize: usize,
}

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

    /// The codec that Zarr v3 metadata of an array of this type name; `None` if hsipack knows no such codec.
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
        let compressor = Compressor::ALL.into_iter().find(|one| one.name() == cname);
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
