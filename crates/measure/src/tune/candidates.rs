//! The codecs, levels, filters and chunk sizes that are tried.

use hsipack_format::codec::TARGET_BLOCK;
use hsipack_format::grid::TARGET_CHUNK;
use hsipack_format::{Codec, Compressor, DType, Shuffle, Tile};
use hsipack_read::Conversion;

use super::sample::Sample;

/// The largest chunk size that is tried.
pub const LARGEST_CHUNK: usize = 8 << 20;

/// One way to store chunks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Compressor, level and filter.
    pub codec: Codec,
    /// Target size of a chunk, in uncompressed bytes.
    pub chunk_bytes: usize,
    /// Target size of a codec's blocks, in uncompressed bytes.
    pub block_bytes: usize,
    /// Mantissa bits kept; `None` keeps all bits of float16.
    pub keep_bits: Option<u8>,
    /// The conversion of the integers that are stored instead of float16.
    pub integers: Option<Conversion>,
}

impl Candidate {
    /// A codec with chunks of the default size and all bits.
    pub fn new(compressor: Compressor, level: u8, shuffle: Shuffle) -> Self {
        let codec = Codec::new(compressor, level, shuffle, DType::F16);
        let (chunk_bytes, block_bytes) = (TARGET_CHUNK, TARGET_BLOCK);
        Self { codec, chunk_bytes, block_bytes, keep_bits: None, integers: None }
    }

    /// Bytes of the values as float16, of so many bytes that are stored.
    pub fn half_bytes(&self, stored: usize) -> usize {
        self.integers.map_or(stored, |conversion| conversion.converted_bytes(stored))
    }

    /// `lz4hc 4 byte`, as the options of `convert` spell it.
    pub fn name(&self) -> String {
        let Codec { compressor, level, shuffle, .. } = self.codec;
        format!("{compressor} {level} {shuffle}")
    }
}

/// All codecs that are tried with chunks of the default size.
pub fn codecs(quick: bool) -> Vec<Candidate> {
    let levels: &[(Compressor, &[u8])] = if quick {
        &[(Compressor::Lz4, &[5]), (Compressor::Lz4Hc, &[4]), (Compressor::Zstd, &[1])]
    } else {
        &[
            (Compressor::Lz4, &[1, 5]),
            (Compressor::Lz4Hc, &[1, 4, 9]),
            (Compressor::Zstd, &[1, 3, 9]),
            (Compressor::BloscLz, &[5]),
        ]
    };
    let shuffled = levels.iter().flat_map(|(compressor, levels)| {
        levels.iter().flat_map(|level| {
            [Shuffle::Byte, Shuffle::Bit]
                .map(|shuffle| Candidate::new(*compressor, *level, shuffle))
        })
    });
    // Without a filter, only integers compress. Two codecs show whether that is the case here.
    let plain = [(Compressor::Lz4, 5), (Compressor::Zstd, 1)]
        .map(|(compressor, level)| Candidate::new(compressor, level, Shuffle::None));
    shuffled.chain(plain).collect()
}

/// Other chunk sizes for the best codecs: only sizes that cut the sample's cubes differently.
pub fn chunk_sizes(best: &[Candidate], sample: &Sample, quick: bool) -> Vec<Candidate> {
    let targets: &[usize] = if quick {
        &[512 << 10, LARGEST_CHUNK]
    } else {
        &[256 << 10, 512 << 10, 1 << 20, 4 << 20, LARGEST_CHUNK]
    };
    let cut = |target: usize| -> Vec<usize> {
        // The sample may hold fewer rows of a cube than a large chunk has.
        let rows = |piece: &super::sample::Piece| {
            Tile::slab(piece.shape, 2, target).rows.min(piece.rows.len())
        };
        sample.pieces.iter().map(rows).collect()
    };
    let mut cuts = vec![cut(TARGET_CHUNK)];
    let mut found = Vec::new();
    for target in targets {
        let rows = cut(*target);
        if !cuts.contains(&rows) {
            cuts.push(rows);
            found.extend(
                best.iter().map(|candidate| Candidate { chunk_bytes: *target, ..*candidate }),
            );
        }
    }
    found
}
