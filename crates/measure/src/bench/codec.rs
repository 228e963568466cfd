//! How `+blosc` packs float32 cubes: with the codec that decompresses these cubes fastest, found by
//! trying.
//!
//! The strategy can only save reading time, and which codec decompresses fast depends on the
//! values: for noise it is a compressor that gives up early and copies, for counts of few bits it
//! is one that finds long matches.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsipack_format::grid::TARGET_CHUNK;
use hsipack_format::{Codec, Compressor, CubeShape, DType, Shuffle, Tile};
use hsipack_pack::convert::LayoutOptions;

use super::npy;
use super::options::CubeSize;
use crate::Result;
use crate::tune::{Bench, Candidate, Chunks, Limits, Measured};

/// Bytes of a value.
const VALUE: usize = 4;
/// Bytes of the sample that every codec is tried on, taken from at most `CUBES` cubes.
const SAMPLE: usize = 64 << 20;
const CUBES: usize = 8;
/// Codecs whose speed is at least this share of the fastest count as equally fast, because
/// measuring is no more exact. The one with the best ratio is taken.
const ALIKE: f64 = 0.97;
const LIMITS: Limits = Limits {
    rounds: 9,
    first: Duration::from_secs(3),
    encode: Duration::ZERO,
    decode: Duration::from_millis(40),
    leaders: 0,
};
/// Samples smaller than this are decoded for a shorter time, in proportion but at least a tenth.
/// The whole sample is still decoded many times.
const SMALL: usize = 4 << 20;

/// The codecs that are tried, all with byte shuffle: with bit shuffle nothing decompressed faster,
/// on generated or on real cubes.
const TRIED: [(Compressor, u8); 7] = [
    (Compressor::Lz4, 1),
    (Compressor::Lz4, 5),
    (Compressor::Lz4, 9),
    (Compressor::Lz4Hc, 4),
    (Compressor::Lz4Hc, 9),
    (Compressor::BloscLz, 1),
    (Compressor::BloscLz, 5),
];

/// The layout that decompresses cubes 0 to `count`, .npy files in `folder`, fastest with this many
/// `threads`.
///
/// # Errors
/// If they cannot be read, or `stop` was set.
pub fn fastest(
    folder: &Path,
    count: usize,
    shape: CubeSize,
    threads: usize,
    stop: &AtomicBool,
) -> Result<LayoutOptions> {
    let chunks = Arc::new(sample(folder, count, shape)?);
    // More threads than cores would take memory and show nothing.
    let cores = hsipack_store::threads::cores();
    let threads = vec![threads.clamp(1, cores)];
    let limits = Limits { decode: time(chunks.bytes()), ..LIMITS };
    let mut bench = Bench::new(chunks.clone(), chunks.largest(), limits, threads, stop);
    let candidates = TRIED.map(|(compressor, level)| {
        let candidate = Candidate::new(compressor, level, Shuffle::Byte);
        Candidate { codec: candidate.codec.of_dtype(DType::F32), ..candidate }
    });
    let tried = bench.sweep_once(&candidates, &|_| chunks.clone())?;
    let Codec { compressor, level, shuffle, .. } = choose(&tried).codec;
    Ok(LayoutOptions { codec: compressor, level, filter: shuffle, ..LayoutOptions::default() })
}

/// How long a sample of this size is decoded in every round.
fn time(bytes: usize) -> Duration {
    LIMITS.decode.mul_f64((bytes as f64 / SMALL as f64).clamp(0.1, 1.0))
}

/// The codec as it is written in the options of `hsipack convert`.
pub fn name(codec: &Codec) -> String {
    Candidate::new(codec.compressor, codec.level, codec.shuffle).name()
}

fn choose(tried: &[Measured]) -> Candidate {
    let fastest = tried.iter().map(Measured::decode_at_most).fold(0.0, f64::max);
    let alike = tried.iter().filter(|measured| measured.decode_at_most() >= ALIKE * fastest);
    let best = alike.max_by(|a, b| a.ratio.total_cmp(&b.ratio));
    best.expect("the fastest is alike itself").candidate
}

/// Rows from the middle of some of the cubes, cut as they would be packed.
fn sample(folder: &Path, count: usize, shape: CubeSize) -> Result<Chunks> {
    let cubes = count.min(CUBES);
    let row = shape.columns * shape.bands * VALUE;
    let tile =
        Tile::slab(CubeShape::new(shape.rows, shape.columns, shape.bands), VALUE, TARGET_CHUNK);
    let slabs = shape.rows / tile.rows;
    let wanted = (SAMPLE / cubes.max(1) / (tile.rows * row)).clamp(1, slabs);
    let first = (slabs - wanted) / 2 * tile.rows;
    let cuts: Vec<Range<usize>> =
        (0..wanted).map(|at| at * tile.rows * row..(at + 1) * tile.rows * row).collect();
    let rows = first..first + wanted * tile.rows;
    let data = (0..cubes)
        .map(|number| npy::read(&npy::path(folder, number * count / cubes), shape, rows.clone()))
        .collect::<Result<Vec<_>>>()?;
    Ok(Chunks::in_turn(data, &vec![cuts; cubes]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::Rate;

    fn measured(level: u8, ratio: f64, gb_per_s: f64) -> Measured {
        let rate = Rate { threads: 2, gb_per_s, least: gb_per_s, greatest: gb_per_s };
        let candidate = Candidate::new(Compressor::Lz4, level, Shuffle::Byte);
        let (name, decode) = (candidate.name(), vec![rate]);
        Measured { name, candidate, bytes: 1, ratio, write: rate, decode, front: false }
    }

    #[test]
    fn of_the_fastest_the_smallest_is_taken() {
        let tried = [measured(1, 1.3, 5.0), measured(2, 1.4, 4.9), measured(3, 9.0, 4.5)];
        assert_eq!(choose(&tried).codec.level, 2);
        assert_eq!(choose(&tried[2..]).codec.level, 3);
    }

    #[test]
    fn small_samples_take_less_time() {
        let ms = Duration::from_millis;
        let sizes = [0, SMALL / 10, SMALL / 2, SMALL, SAMPLE];
        assert_eq!(sizes.map(|bytes| time(bytes).as_millis()), [4, 4, 20, 40, 40]);
        assert!(time(SMALL - 1) <= ms(40) && time(1) >= ms(4));
    }

    #[test]
    fn the_sample_is_whole_chunks_of_all_cubes_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        // One chunk is 5 rows, 2.1 MB together.
        let shape = CubeSize { rows: 15, columns: 105, bands: 1000 };
        let row = shape.columns * shape.bands;
        for number in 0..2 {
            let values: Vec<f32> =
                (0..shape.values()).map(|at| (number * shape.rows + at / row) as f32).collect();
            let path = npy::path(folder.path(), number);
            npy::write(&path, shape, bytemuck::cast_slice(&values)).unwrap();
        }
        let chunks = sample(folder.path(), 2, shape).unwrap();
        let first = |at| f32::from_le_bytes(chunks.get(at)[..4].try_into().unwrap());
        assert_eq!((0..chunks.len()).map(first).collect::<Vec<_>>(), [0., 15., 5., 20., 10., 25.]);
        assert_eq!(chunks.largest(), 5 * row * VALUE);
        let stop = AtomicBool::new(false);
        let layout = fastest(folder.path(), 2, shape, 1, &stop).unwrap();
        assert!(TRIED.contains(&(layout.codec, layout.level)));
    }
}
