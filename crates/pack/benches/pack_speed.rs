//! How close is convert to bare compression, and validate to bare decompression?
//!
//! In one run, alternating: C-Blosc only encodes the same chunks of fp16 values with the same
//! number of threads; then a whole conversion of float32 files in the page cache. The same for
//! decoding, validation and the statistics of all samples. Prints medians and their ratio.
//!
//! ```text
//! cargo bench -p hsipack-pack --bench pack_speed [-- DIR [CUBES [REPEATS [ROWS [lz4] [validate]]]]]
//! ```
//!
//! DIR should be a RAM disk, to exclude the disk; ROWS is the height of a chunk; lz4 uses lz4 level
//! 5; validate packs once and compares only decoding, validation and statistics.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::{Codec, Compressor, CubeShape, Tile, codec};
use hsipack_pack::convert::{ChunkShape, ConvertOptions, LayoutOptions, convert};
use hsipack_pack::progress::Progress;
use hsipack_pack::statistics::{StatisticsOptions, statistics};
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_store::Dataset;

const SHAPE: CubeShape = CubeShape::new(480, 640, 100);

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from).join("hsipack-bench");
    let cubes: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(6);
    let repeats: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(7);
    let chunk_rows: Option<usize> = args.next().and_then(|arg| arg.parse().ok());
    let rows = chunk_rows.unwrap_or(Tile::slab(SHAPE, 2, hsipack_format::grid::TARGET_CHUNK).rows);
    let words: Vec<String> = args.collect();
    let has = |word: &str| words.iter().any(|arg| arg == word);
    let mut layout = LayoutOptions::default();
    if has("lz4") {
        (layout.codec, layout.level) = (Compressor::Lz4, 5);
    }
    layout.chunk = Some(ChunkShape { rows, columns: None });
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("in")).expect("a writable folder");
    let chunks: Vec<Vec<u8>> =
        (0..cubes).flat_map(|cube| write_cube(&folder.join("in"), cube, rows)).collect();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{cubes} cubes of {SHAPE}, float32 BIP in {}, {repeats} repeats, medians",
        folder.display()
    );
    if has("validate") {
        pack(&folder, &layout, cores);
        for threads in [1, cores] {
            compare_reading(&folder.join("out"), cubes, repeats, threads);
        }
        let _ = std::fs::remove_dir_all(&folder);
        return;
    }
    for threads in [1, cores] {
        compare(&folder, &chunks, &layout, cubes, repeats, threads);
    }
    let _ = std::fs::remove_dir_all(&folder);
}

/// Writes a cube as ENVI BIP, and returns its chunks as fp16 bytes.
fn write_cube(folder: &Path, number: usize, rows: usize) -> Vec<Vec<u8>> {
    let values = synthetic(number as u32);
    std::fs::write(folder.join(format!("cube{number}.img")), bytemuck::cast_slice(&values))
        .expect("space for the cubes");
    let header = format!(
        "ENVI\nsamples = {}\nlines = {}\nbands = {}\nheader offset = 0\ndata type = 4\ninterleave = bip\nbyte order = 0\n",
        SHAPE.columns, SHAPE.rows, SHAPE.bands
    );
    std::fs::write(folder.join(format!("cube{number}.hdr")), header).expect("space for the cubes");
    let mut packed = vec![f16::ZERO; values.len()];
    packed.convert_from_f32_slice(&values);
    packed
        .chunks(rows * SHAPE.row_values())
        .map(|chunk| bytemuck::cast_slice(chunk).to_vec())
        .collect()
}

/// Reflectances: four materials with smooth spectra in soft-edged fields, illumination, 1 % noise.
fn synthetic(seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut uniform = move || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / u32::MAX as f32
    };
    let spectra: Vec<Vec<f32>> = (0..4)
        .map(|material| {
            let (centre, width) = (0.2 + 0.2 * material as f32, 0.1 + 0.05 * material as f32);
            let band = |b: usize| b as f32 / SHAPE.bands as f32;
            (0..SHAPE.bands)
                .map(|b| 0.15 + 0.5 * (-((band(b) - centre) / width).powi(2)).exp())
                .collect()
        })
        .collect();
    let mut values = Vec::with_capacity(SHAPE.values());
    for y in 0..SHAPE.rows {
        for x in 0..SHAPE.columns {
            let field =
                ((x as f32 * 0.011 + seed as f32).sin() + (y as f32 * 0.017).cos() + 2.0) * 0.99;
            let (material, light) = (field as usize, 0.7 + 0.3 * (x as f32 / SHAPE.columns as f32));
            values.extend(
                spectra[material.min(3)]
                    .iter()
                    .map(|r| r * light * (1.0 + 0.02 * (uniform() + uniform() - 1.0))),
            );
        }
    }
    values
}

fn compare(
    folder: &Path,
    chunks: &[Vec<u8>],
    layout: &LayoutOptions,
    cubes: usize,
    repeats: usize,
    threads: usize,
) {
    let codec = layout.codec(hsipack_format::DType::F16, chunks[0].len() / 2);
    let (mut encode, mut convert) = (vec![], vec![]);
    let mut stored = Vec::new();
    let out = folder.join("out");
    for _ in 0..repeats {
        encode.push(bare_encode(chunks, &codec, threads, &mut stored));
        convert.push(pack(folder, layout, threads));
    }
    let ratio = (cubes * SHAPE.values() * 2) as f64 / stored.iter().sum::<usize>() as f64;
    println!("ratio {ratio:.2}");
    report(threads, cubes, "bare encode", &encode, &encode);
    report(threads, cubes, "convert", &convert, &encode);
    compare_reading(&out, cubes, repeats, threads);
}

fn compare_reading(dataset: &Path, cubes: usize, repeats: usize, threads: usize) {
    let (mut decode, mut check, mut gather) = (vec![], vec![], vec![]);
    for _ in 0..repeats {
        decode.push(bare_decode(dataset, threads));
        check.push(validation(dataset, threads));
        gather.push(statistics_of_all(dataset, threads));
    }
    report(threads, cubes, "bare decode", &decode, &decode);
    report(threads, cubes, "validate", &check, &decode);
    report(threads, cubes, "statistics", &gather, &decode);
}

fn report(threads: usize, cubes: usize, name: &str, times: &[f64], baseline: &[f64]) {
    let (time, base) = (median(times), median(baseline));
    println!(
        "{threads} threads  {name:<14} {time:7.3} s  {:6.2} GB/s fp16  {:5.1} cubes/s  {:5.1} % of bare, best {:.3} s",
        (cubes * SHAPE.values() * 2) as f64 / time / 1e9,
        cubes as f64 / time,
        100.0 * base / time,
        times.iter().copied().fold(f64::INFINITY, f64::min),
    );
}

/// Converts the cubes, and returns the seconds.
fn pack(folder: &Path, layout: &LayoutOptions, threads: usize) -> f64 {
    let out = folder.join("out");
    let _ = std::fs::remove_dir_all(&out);
    let mut options = ConvertOptions::new(vec![folder.join("in").display().to_string()], &out);
    options.threads = threads;
    options.layout = layout.clone();
    seconds(|| {
        convert(&options, &Progress::default(), &|_| {}).expect("the cubes are sound");
    })
}

/// Validates the dataset, and returns the seconds.
fn validation(dataset: &Path, threads: usize) -> f64 {
    let options = ValidateOptions { threads, ..ValidateOptions::default() };
    seconds(|| assert!(validate(dataset, &options, &Progress::default()).expect("a dataset").ok))
}

/// Computes the statistics of all samples, and returns the seconds.
fn statistics_of_all(dataset: &Path, threads: usize) -> f64 {
    let options = StatisticsOptions { threads, ..StatisticsOptions::new(dataset) };
    let (progress, total) = (Progress::default(), AtomicU64::new(0));
    seconds(|| assert!(!statistics(&options, &progress, &total).expect("a dataset").is_empty()))
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Runs `work` on every item with `threads` threads, each with its own state.
fn parallel<S>(
    items: usize,
    threads: usize,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) + Sync,
) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut state = state();
                loop {
                    let item = next.fetch_add(1, Ordering::Relaxed);
                    if item >= items {
                        break;
                    }
                    work(&mut state, item);
                }
            });
        }
    });
}

fn bare_encode(chunks: &[Vec<u8>], codec: &Codec, threads: usize, stored: &mut Vec<usize>) -> f64 {
    let lens: Vec<AtomicUsize> = chunks.iter().map(|_| AtomicUsize::new(0)).collect();
    let time = seconds(|| {
        parallel(chunks.len(), threads, Vec::new, |out: &mut Vec<u8>, item| {
            out.clear();
            lens[item].store(
                hsipack_store::codec::encode(codec, &chunks[item], out).expect("Blosc works"),
                Ordering::Relaxed,
            );
        });
    });
    *stored = lens.into_iter().map(AtomicUsize::into_inner).collect();
    time
}

fn bare_decode(dataset: &Path, threads: usize) -> f64 {
    let dataset = Dataset::open(dataset).expect("a dataset");
    let array = &dataset.stacks()[0].image;
    let chunks = array.grid().chunks_per_sample();
    let mut frames = Vec::new();
    for index in 0..array.len() {
        let (shard, first) = array.grid().locate(index);
        let shard = array.shard(shard).expect("a shard");
        for chunk in 0..chunks {
            let frame =
                shard.with_stored(first + chunk, |stored| Ok(codec::verify(stored)?.to_vec()));
            frames.push(frame.expect("a sound chunk").expect("a chunk"));
        }
    }
    let out = || vec![0u8; array.chunk_bytes()];
    seconds(|| {
        parallel(frames.len(), threads, out, |out, item| {
            hsipack_store::codec::decode_frame(&frames[item], out).expect("sound")
        })
    })
}
