//! Which codec, shuffle, level and chunk size suit these cubes?
//!
//! Reads packed datasets, encodes and decodes their values with every combination on one thread,
//! and prints compression ratio and speeds of encoding and decoding as a table (Markdown).
//!
//! `cargo bench -p hsipack-pack --bench codec_sweep -- DATASET...`; `quick` as the first word tries
//! fewer levels.

use std::path::Path;
use std::time::Instant;

use hsipack_format::{Codec, Compressor, DType, Shuffle, codec};
use hsipack_pack::convert::LayoutOptions;
use hsipack_store::Dataset;

/// Most bytes that are used of each dataset.
const TRIED: usize = 64 << 20;
/// Each figure is the best of this many runs.
const RUNS: usize = 5;

fn main() {
    let mut datasets: Vec<String> =
        std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let quick = datasets.first().is_some_and(|word| word == "quick");
    if quick {
        datasets.remove(0);
    }
    let cubes: Vec<(String, Vec<u8>, usize)> =
        datasets.iter().flat_map(|path| load(Path::new(path))).collect();
    for (name, values, row) in &cubes {
        println!("\n{name}: {:.1} MB fp16", values.len() as f64 / 1e6);
        println!("| codec | level | shuffle | chunk kB | ratio | encode GB/s | decode GB/s |");
        println!("|---|---|---|---|---|---|---|");
        for codec in codecs(quick) {
            measure(values, 2 << 20, *row, &codec);
        }
        for chunk in [256 << 10, 512 << 10, 1 << 20, 4 << 20, 8 << 20] {
            let codec = LayoutOptions::default().codec(hsipack_format::DType::F16, chunk / 2);
            measure(values, chunk, *row, &codec);
        }
    }
}

/// The first cubes of every stack: name, values, bytes per row.
fn load(path: &Path) -> Vec<(String, Vec<u8>, usize)> {
    let dataset = Dataset::open(path).unwrap_or_else(|error| panic!("{error}"));
    let stacks = dataset.stacks().iter().map(|stack| {
        let mut values = Vec::new();
        let bytes = stack.image.sample_bytes();
        for index in 0..stack.image.len().min(TRIED.div_ceil(bytes)) {
            let start = values.len();
            values.resize(start + bytes, 0);
            stack
                .image
                .read_sample(index, &mut values[start..])
                .unwrap_or_else(|error| panic!("{error}"));
        }
        let name = format!("{} {}", path.display(), stack.name);
        (name, values, stack.image.shape().row_values() * 2)
    });
    stacks.collect()
}

fn codecs(quick: bool) -> Vec<Codec> {
    let levels: &[(Compressor, &[u8])] = if quick {
        &[(Compressor::Lz4, &[5, 9]), (Compressor::Lz4Hc, &[5]), (Compressor::Zstd, &[1])]
    } else {
        &[
            (Compressor::Lz4, &[1, 3, 5, 7, 9]),
            (Compressor::Lz4Hc, &[1, 2, 3, 4, 5, 7, 9]),
            (Compressor::Zstd, &[1, 3, 5, 9]),
            (Compressor::BloscLz, &[5, 9]),
        ]
    };
    let mut codecs = Vec::new();
    for (compressor, levels) in levels {
        for level in *levels {
            for shuffle in Shuffle::ALL {
                codecs.push(Codec::new(*compressor, *level, shuffle, DType::F16));
            }
        }
    }
    codecs
}

fn measure(values: &[u8], chunk: usize, row: usize, codec: &Codec) {
    let chunk = (chunk / row).max(1) * row;
    let chunks: Vec<&[u8]> = values.chunks(chunk).collect();
    let mut stored: Vec<Vec<u8>> =
        chunks.iter().map(|chunk| Vec::with_capacity(chunk.len() + 32)).collect();
    let slow = codec.compressor == Compressor::Lz4Hc
        || codec.compressor == Compressor::Zstd && codec.level > 3;
    let encode = best(if slow { 1 } else { RUNS }, || {
        for (chunk, stored) in chunks.iter().zip(&mut stored) {
            stored.clear();
            hsipack_store::codec::encode(codec, chunk, stored).expect("Blosc works");
        }
    });
    let mut out = vec![0; chunk];
    let decode = best(RUNS, || {
        for (chunk, stored) in chunks.iter().zip(&stored) {
            let frame = &stored[..stored.len() - codec::CHECKSUM_LEN];
            hsipack_store::codec::decode_frame(frame, &mut out[..chunk.len()])
                .expect("just encoded");
        }
    });
    let bytes = values.len() as f64;
    println!(
        "| {} | {} | {} | {} | {:.3} | {:.2} | {:.2} |",
        codec.compressor.name(),
        codec.level,
        codec.shuffle.zarr_name(),
        chunk / 1000,
        bytes / stored.iter().map(Vec::len).sum::<usize>() as f64,
        bytes / encode / 1e9,
        bytes / decode / 1e9
    );
}

fn best(runs: usize, mut work: impl FnMut()) -> f64 {
    let time = |()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..runs).map(|_| ()).map(time).fold(f64::INFINITY, f64::min)
}
