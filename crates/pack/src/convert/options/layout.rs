//! Options that decide how chunks and shards are laid out and compressed.

use std::num::NonZeroUsize;
use std::str::FromStr;

#[cfg(feature = "clap")]
use hsipack_format::arguments::{bytes, one_of};
use hsipack_format::codec::TARGET_BLOCK;
use hsipack_format::grid::{TARGET_CHUNK, TARGET_GROUP};
use hsipack_format::names::by_name;
use hsipack_format::{Codec, Compressor, CubeShape, DType, Shuffle, Tile};
use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use super::words::{SOMETHING_ELSE, words};

/// How chunks and shards are laid out and compressed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args), command(next_help_heading = "Layout"))]
#[serde(default)]
pub struct LayoutOptions {
    /// Compressor: lz4hc (fastest to read), lz4 (20 times faster to write, a tenth larger), zstd
    /// (smallest, slowest to read), zlib or blosclz
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", value_parser = one_of(&Compressor::ALL), default_value_t = Compressor::Lz4Hc))]
    pub codec: Compressor,
    /// Compression level, 0 (no compression) to 9
    #[cfg_attr(feature = "clap", arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=9)))]
    pub level: u8,
    /// Shuffle filter before compression
    #[serde(with = "by_name")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME", value_parser = one_of(&Shuffle::ALL), default_value_t = Shuffle::Byte))]
    pub filter: Shuffle,
    /// Chunk shape in pixels: ROWS (full width), or ROWSxCOLUMNS for crops of large scenes
    /// [default: whole rows of about 2 MiB]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ROWS[xCOLUMNS]"))]
    pub chunk: Option<ChunkShape>,
    /// Store bands in groups of this many, so that reading some bands of cubes decodes only their
    /// groups; auto chooses the number [default: chunks hold all bands]
    ///
    /// Reading all bands takes longer then. Auto makes groups of 16 bands, and none for cubes with
    /// fewer than 64.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N|auto"))]
    pub band_group: Option<BandGroup>,
    /// Target size of the blocks of a chunk, uncompressed, within Blosc's limits (64 KiB to 1 MiB).
    /// Blocks divide a chunk evenly if they can. Small ones suit GPUs, which decompress each alone
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, default_value = "128kB"))]
    pub block_size: usize,
    /// Target size of a shard file, uncompressed; a shard holds at least one cube
    #[serde(deserialize_with = "at_least_1")]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, default_value = "512MiB"))]
    pub shard_size: usize,
}

/// Reads a number above 0.
pub(super) fn at_least_1<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<usize, D::Error> {
    NonZeroUsize::deserialize(from).map(usize::from)
}

/// A chunk shape chosen by the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "(usize, Option<usize>)")]
pub struct ChunkShape {
    /// Rows.
    pub rows: usize,
    /// Columns; `None` is the cube's width.
    pub columns: Option<usize>,
}

/// How many bands a chunk holds, if not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BandGroup {
    /// As many as suit the cubes.
    Auto,
    /// This many, or all bands if a cube has fewer.
    Bands(NonZeroUsize),
}

const BAND_GROUPS: &str = "at least 1 band, or auto";

impl FromStr for BandGroup {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            number => number.parse().map(Self::Bands).map_err(|_| format!("give {BAND_GROUPS}")),
        }
    }
}

impl BandGroup {
    /// Bands of a group that `Auto` makes.
    const BANDS: usize = 16;
    /// Cubes with fewer bands are not divided by `Auto`.
    const LEAST: usize = 64;

    /// The number of bands of a chunk of cubes of `shape`.
    fn of(self, shape: CubeShape) -> usize {
        match self {
            Self::Bands(bands) => bands.get().min(shape.bands),
            Self::Auto if shape.bands < Self::LEAST => shape.bands,
            Self::Auto => Self::BANDS,
        }
    }
}

from_words! {
    BandGroup: BAND_GROUPS;
}

#[derive(Deserialize)]
#[serde(untagged)]
enum GivenChunk {
    Rows(usize),
    Both(usize, Option<usize>),
}

impl<'de> Deserialize<'de> for ChunkShape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let takes = "at least 1 pixel: rows, or (rows, columns)";
        match GivenChunk::deserialize(from) {
            Ok(GivenChunk::Rows(0) | GivenChunk::Both(0, _) | GivenChunk::Both(_, Some(0))) => {
                Err(D::Error::invalid_value(Unexpected::Unsigned(0), &takes))
            }
            Ok(GivenChunk::Rows(rows)) => Ok(Self { rows, columns: None }),
            Ok(GivenChunk::Both(rows, columns)) => Ok(Self { rows, columns }),
            Err(_) => Err(D::Error::invalid_type(SOMETHING_ELSE, &takes)),
        }
    }
}

impl From<ChunkShape> for (usize, Option<usize>) {
    fn from(chunk: ChunkShape) -> Self {
        (chunk.rows, chunk.columns)
    }
}

impl FromStr for ChunkShape {
    type Err = String;

    /// Parses `ROWS` or `ROWSxCOLUMNS`.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let number = |part: &str| {
            part.parse().map_err(|_| "give ROWS or ROWSxCOLUMNS, such as 16 or 64x64".to_owned())
        };
        match text.split_once(['x', 'X']) {
            Some((rows, columns)) => {
                Ok(Self { rows: number(rows)?, columns: Some(number(columns)?) })
            }
            None => Ok(Self { rows: number(text)?, columns: None }),
        }
    }
}

/// As recorded in `docs/benchmarks`, lz4hc level 4 decodes a third faster than lz4 level 5 and is a
/// tenth smaller. Writing takes twenty times as long, but is done only once.
impl Default for LayoutOptions {
    fn default() -> Self {
        Self {
            codec: Compressor::Lz4Hc,
            level: 4,
            filter: Shuffle::Byte,
            chunk: None,
            band_group: None,
            block_size: TARGET_BLOCK,
            shard_size: hsipack_format::grid::TARGET_SHARD,
        }
    }
}

impl LayoutOptions {
    /// The codec for chunks with this number of values of `dtype`.
    pub fn codec(&self, dtype: DType, values: usize) -> Codec {
        let codec = Codec::new(self.codec, self.level, self.filter, dtype);
        codec.with_blocks(self.block_size, values.saturating_mul(dtype.size()))
    }

    /// The number of bands of a chunk of cubes of `shape`.
    pub fn band_group(&self, shape: CubeShape) -> usize {
        self.band_group.map_or(shape.bands, |group| group.of(shape))
    }

    /// Rows × columns of a chunk of cubes of `shape`.
    pub fn tile(&self, shape: CubeShape, value_size: usize) -> Tile {
        match self.chunk {
            None => {
                let bands = self.band_group(shape);
                let target = if bands < shape.bands { TARGET_GROUP } else { TARGET_CHUNK };
                Tile::slab(CubeShape { bands, ..shape }, value_size, target)
            }
            Some(chunk) => Tile {
                rows: chunk.rows.min(shape.rows),
                columns: chunk.columns.unwrap_or(shape.columns).min(shape.columns),
            },
        }
    }
}
