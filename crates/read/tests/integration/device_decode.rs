//! The kernel that decodes frames on a GPU, tested without a GPU: its source is compiled as C++,
//! with the lanes of a warp in random order, and compared with C-Blosc.

#![cfg(target_os = "linux")]

use std::ffi::{CString, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use half::f16;
use hsipack_format::codec::{TARGET_BLOCK, without_checksum};
use hsipack_format::metadata::Scaling;
use hsipack_format::random::{Random, Stream};
use hsipack_format::{Codec, Compressor, CubeShape, DType, Grid, Shuffle, Tile};
use hsipack_read::FloatType;
use hsipack_read::device_decode::{Chunk, Decode, Floats, Gather, GatherWindow, Status, supports};
use hsipack_read::plan::{Pad, Window};
use hsipack_store::codec::{decode_frame, encode};

/// The number of executions of the fuzzing test, instead of those of every run.
const EXECUTIONS: &str = "HSIPACK_DECODE_EXECUTIONS";

/// The kernels as C++.
struct Kernel {
    order: unsafe extern "C" fn(u64),
    decode:
        unsafe extern "C" fn(*const Decode, *const Chunk, *const u8, *mut u8, *mut u8, *mut u32),
    gather_order: unsafe extern "C" fn(u64),
    gather:
        unsafe extern "C" fn(*const Gather, *const GatherWindow, *const u32, *const u8, *mut u8),
}

fn compiler(options: &[&str], from: &str, into: &Path) {
    let target = &format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").opt_level(2).target(target).host(target).cargo_metadata(false);
    let mut command = build.get_compiler().to_command();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(from);
    command.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(into).args(options).arg(source);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let load = |name: &str| {
            let library = folder.path().join(format!("{name}.so"));
            let options = ["-shared", "-fPIC", "-DHSIPACK_ON_HOST", "-x", "c++"];
            compiler(&options, &format!("src/device/decode/{name}.cu"), &library);
            let path = CString::new(library.to_str().unwrap()).unwrap();
            // SAFETY: a library that does nothing when it is loaded; it stays, as the functions do.
            let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            assert!(!library.is_null());
            library
        };
        let function = |library: *mut c_void, name: &std::ffi::CStr| {
            // SAFETY: the library is loaded, and the name ends with NUL.
            let function = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!function.is_null());
            function
        };
        let (decode, gather) = (load("decode"), load("gather"));
        // SAFETY: `decode.cu` and `gather.cu` declare them like this.
        unsafe {
            Kernel {
                order: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64)>(function(
                    decode,
                    c"decode_order",
                )),
                decode: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(
                        *const Decode,
                        *const Chunk,
                        *const u8,
                        *mut u8,
                        *mut u8,
                        *mut u32,
                    ),
                >(function(decode, c"decode_frames")),
                gather_order: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u64)>(
                    function(gather, c"gather_order"),
                ),
                gather: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(
                        *const Gather,
                        *const GatherWindow,
                        *const u32,
                        *const u8,
                        *mut u8,
                    ),
                >(function(gather, c"gather_windows")),
            }
        }
    })
}

/// Decodes chunks into `batch`.
fn run(
    chunks: &[Chunk],
    compressed: &[u8],
    batch: &mut [u8],
    slots: u32,
    block: u64,
    order: u64,
) -> Vec<Status> {
    let lens = [compressed.len() as u64, batch.len() as u64];
    let what = Decode::new(chunks, lens[0], lens[1], slots, block).unwrap();
    run_as(what, chunks, compressed, batch, order)
}

fn run_as(
    what: Decode,
    chunks: &[Chunk],
    compressed: &[u8],
    batch: &mut [u8],
    order: u64,
) -> Vec<Status> {
    let mut scratch = vec![0xa5_u8; what.scratch_bytes() as usize];
    let mut statuses = vec![0_u32; chunks.len()];
    let kernel = kernel();
    // SAFETY: all memory is as large as `Decode::new` compared it with, and `scratch_bytes` says.
    unsafe {
        (kernel.order)(order);
        (kernel.decode)(
            &raw const what,
            chunks.as_ptr(),
            compressed.as_ptr(),
            batch.as_mut_ptr(),
            scratch.as_mut_ptr(),
            statuses.as_mut_ptr(),
        );
    }
    statuses.into_iter().map(Status::of).collect()
}

/// A chunk that is wanted whole: one row of pixels, each a value.
fn whole(values: usize, element: usize, frame: std::ops::Range<u64>) -> Chunk {
    let shape = CubeShape { rows: 1, columns: values, bands: 1 };
    let grid = Grid::new(shape, Tile { rows: 1, columns: values }, 1).unwrap();
    let window = Window { row: 0, column: 0, rows: 1, columns: values as u32 };
    Chunk::new(&grid, element, 0, window, frame, 0).unwrap()
}

/// Decodes one frame.
fn decoded(frame: &[u8], codec: Codec, bytes: usize, slots: u32, order: u64) -> (Status, Vec<u8>) {
    let element = usize::from(codec.typesize);
    let chunk = whole(bytes / element, element, 0..frame.len() as u64);
    let mut batch = vec![0xcc_u8; bytes];
    let status = run(&[chunk], frame, &mut batch, slots, bytes as u64, order)[0];
    (status, batch)
}

fn frame_of(codec: Codec, chunk: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    encode(&codec, chunk, &mut stored).unwrap();
    without_checksum(&stored).unwrap().to_vec()
}

/// A frame of one block with this LZ4 stream, of `bytes` bytes.
fn frame_with(stream: &[u8], bytes: usize) -> Vec<u8> {
    let (bytes, stream_bytes) = (bytes as u32, stream.len() as u32);
    let mut frame = vec![2, 1, 0x20, 1];
    for number in [bytes, bytes, 24 + stream_bytes, 20, stream_bytes] {
        frame.extend(number.to_le_bytes());
    }
    frame.extend(stream);
    frame
}

/// Values that compress to everything that LZ4 has: long and short matches near and far, repeated
/// values, many literals.
fn values(kind: usize, bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut level = 20_000_i64;
    let mut smooth = || {
        level += random.below(41) as i64 - 20;
        (level as u16).to_le_bytes()
    };
    match kind {
        0 => (0..bytes.div_ceil(2)).flat_map(|_| smooth()).take(bytes).collect(),
        1 => (0..bytes).map(|_| random.below(256) as u8).collect(),
        2 => vec![7; bytes],
        3 => (0..bytes).map(|at| (at % 11) as u8).collect(),
        // Stretches of all of these, some repeated.
        _ => {
            let mut all: Vec<u8> = Vec::new();
            while all.len() < bytes {
                let len = 1 + random.below(700) as usize;
                match random.below(4) {
                    0 => all.extend(std::iter::repeat_n(random.below(256) as u8, len)),
                    1 => all.extend((0..len).map(|_| random.below(256) as u8)),
                    _ if all.is_empty() => {}
                    _ => {
                        let from = random.below(all.len() as u64) as usize;
                        let end = (from + len).min(all.len());
                        all.extend_from_within(from..end);
                    }
                }
            }
            all.truncate(bytes);
            all
        }
    }
}

fn codecs() -> impl Iterator<Item = Codec> {
    let kinds = [DType::U8, DType::F16, DType::F32];
    let compressors =
        [(Compressor::Lz4, 1), (Compressor::Lz4, 5), (Compressor::Lz4Hc, 9), (Compressor::Lz4, 0)];
    kinds.into_iter().flat_map(move |dtype| {
        compressors.into_iter().flat_map(move |(compressor, level)| {
            Shuffle::ALL
                .into_iter()
                .map(move |shuffle| Codec::new(compressor, level, shuffle, dtype))
        })
    })
}

#[test]
fn every_variant_is_decoded_as_by_blosc() {
    let mut random = Random::keyed(Stream::Order, [49]);
    for codec in codecs() {
        assert!(supports(&codec));
        let element = usize::from(codec.typesize);
        // One element; less than one group of 8; without and with a shorter last block, which is not split; groups that do not
        // fill the last one; several blocks of equal size.
        for values_of_chunk in [1, 7, 129, 8 * 41, 5003, 100_000, 160_001] {
            let bytes = values_of_chunk * element;
            for kind in 0..5 {
                let chunk = values(kind, bytes, &mut random);
                for codec in [
                    codec,
                    codec.with_blocks(TARGET_BLOCK, bytes),
                    Codec { blocksize: 1 << 16, ..codec },
                ] {
                    let frame = frame_of(codec, &chunk);
                    let (slots, order) = (1 + random.below(6) as u32, random.bits());
                    let (status, batch) = decoded(&frame, codec, bytes, slots, order);
                    assert_eq!(status, Status::Sound, "{codec:?} {bytes} {kind}");
                    assert!(batch == chunk, "{codec:?}: {bytes} bytes of kind {kind} differ");
                }
            }
        }
    }
}

#[test]
fn other_codecs_are_reported() {
    let chunk: Vec<u8> = (0..60_000_u32).map(|at| (at / 7) as u8).collect();
    for (compressor, dtype) in [
        (Compressor::Zstd, DType::F16),
        (Compressor::Zlib, DType::F16),
        (Compressor::BloscLz, DType::F16),
        (Compressor::Lz4, DType::F64),
    ] {
        let codec = Codec::new(compressor, 5, Shuffle::Byte, dtype);
        assert!(!supports(&codec));
        let frame = frame_of(codec, &chunk);
        assert_eq!(decoded(&frame, codec, chunk.len(), 2, 3).0, Status::Unsupported);
    }
    // Blocks that are larger than scratch memory.
    let codec = Codec::new(Compressor::Lz4, 5, Shuffle::Byte, DType::F16);
    let frame = frame_of(codec, &chunk);
    let all = whole(30_000, 2, 0..frame.len() as u64);
    let mut batch = vec![0; chunk.len()];
    assert_eq!(run(&[all], &frame, &mut batch, 1, 1000, 1), [Status::Unsupported]);
}

#[test]
fn windows_get_their_part_of_every_chunk() {
    let mut random = Random::keyed(Stream::Order, [50]);
    for round in 0..60 {
        let below = |most: u64, random: &mut Random| 1 + random.below(most) as usize;
        let shape = CubeShape {
            rows: below(40, &mut random),
            columns: below(40, &mut random),
            bands: below(20, &mut random),
        };
        let tile = Tile {
            rows: below(shape.rows as u64, &mut random),
            columns: below(shape.columns as u64, &mut random),
        };
        let group = below(2 * shape.bands as u64, &mut random);
        let grid = Grid::new(shape, tile, 1).unwrap().in_band_groups(group).unwrap();
        let dtype = [DType::U8, DType::F16, DType::F32][round % 3];
        let codec = Codec::new(Compressor::Lz4, 5, Shuffle::ALL[round / 3 % 3], dtype);
        let pixel = shape.bands * dtype.size();
        let cube = values(4, shape.rows * shape.columns * pixel, &mut random);
        // Two windows of the cube in one batch, with bytes before and after each that must stay.
        let windows = [(), ()].map(|()| {
            let [row, column] = [shape.rows, shape.columns].map(|size| random.below(size as u64));
            Window {
                row: row as i32,
                column: column as i32,
                rows: 1 + random.below(shape.rows as u64 - row) as u32,
                columns: 1 + random.below(shape.columns as u64 - column) as u32,
            }
        });
        let (mut want, mut chunks, mut compressed) = (vec![0xcc_u8; 13], Vec::new(), Vec::new());
        for window in windows {
            let into = want.len() as u64;
            for number in 0..grid.chunks_per_sample() {
                let region = grid.region(number);
                // Overhang is filled with something else.
                let of_chunk = grid.band_group() * dtype.size();
                let bytes = region.bands.len() * dtype.size();
                let mut chunk = vec![0xee_u8; grid.chunk_values() * dtype.size()];
                for (down, row) in region.rows.clone().enumerate() {
                    for (column, from) in region.columns.clone().enumerate() {
                        let from = (row * shape.columns + from) * pixel
                            + region.bands.start * dtype.size();
                        let to = (down * tile.columns + column) * of_chunk;
                        chunk[to..to + bytes].copy_from_slice(&cube[from..from + bytes]);
                    }
                }
                let frame = frame_of(codec, &chunk);
                // Frames are stored one after the other, at any address.
                compressed.resize(compressed.len() + random.below(5) as usize, 0);
                let start = compressed.len() as u64;
                compressed.extend_from_slice(&frame);
                let frame = start..compressed.len() as u64;
                chunks.extend(Chunk::new(&grid, dtype.size(), number, window, frame, into));
            }
            for row in window.row_range() {
                let from = (row * shape.columns + window.column as usize) * pixel;
                want.extend_from_slice(&cube[from..from + window.columns as usize * pixel]);
            }
            want.extend([0xcc; 9]);
        }
        let mut batch = vec![0xcc_u8; want.len()];
        let block = (tile.rows * tile.columns * pixel) as u64;
        let statuses = run(&chunks, &compressed, &mut batch, 2, block, random.bits());
        assert!(statuses.iter().all(|status| *status == Status::Sound));
        assert!(batch == want, "{grid:?} {windows:?}");
    }
}

/// The bytes of a number, and those of the float that it becomes.
fn converted(number: i64, dtype: DType, into: FloatType, scaling: Scaling) -> (Vec<u8>, Vec<u8>) {
    let Scaling { factor, offset, missing } = scaling;
    let is_missing = missing == Some(number as f64);
    let float = match into {
        FloatType::F16 if is_missing => f16::NAN.to_le_bytes().to_vec(),
        FloatType::F16 => {
            let single = (number as f32).mul_add(factor as f32, offset as f32);
            f16::from_f32(single).to_le_bytes().to_vec()
        }
        FloatType::F32 if is_missing => f32::NAN.to_le_bytes().to_vec(),
        FloatType::F32 => ((number as f64 * factor + offset) as f32).to_le_bytes().to_vec(),
    };
    (number.to_le_bytes()[..dtype.size()].to_vec(), float)
}

#[test]
fn integers_become_floats_as_on_the_host() {
    let mut random = Random::keyed(Stream::Order, [54]);
    let kinds = [DType::U8, DType::I8, DType::U16, DType::I16];
    for round in 0..96 {
        let (dtype, into) = (kinds[round % 4], [FloatType::F16, FloatType::F32][round / 4 % 2]);
        let codec = Codec::new(
            Compressor::Lz4,
            // Some frames are plain copies.
            if round % 5 == 0 { 0 } else { 5 },
            Shuffle::ALL[round / 8 % 3],
            dtype,
        );
        let codec = Codec { blocksize: if round % 3 == 0 { 1 << 10 } else { 0 }, ..codec };
        let mut below = |most: u64| 1 + random.below(most) as usize;
        let shape = CubeShape { rows: below(40), columns: below(40), bands: below(30) };
        let tile = Tile { rows: below(shape.rows as u64), columns: below(shape.columns as u64) };
        let group = below(2 * shape.bands as u64);
        let grid = Grid::new(shape, tile, 1).unwrap().in_band_groups(group).unwrap();
        // Values from below 2^-14 to beyond float16, of which one is missing.
        let factor = [1e-4, 1.0, 3e-8, -0.37, 700.0][random.below(5) as usize];
        let offset = [0.0, -0.1, 12.5][random.below(3) as usize];
        let missing = (random.below(3) > 0).then_some(5.0);
        let scaling = Scaling { factor, offset, missing };
        let (least, greatest) = dtype.integers().unwrap();
        let span = if random.below(2) == 0 { 20 } else { (greatest - least + 1) as u64 };
        let cube: Vec<i64> =
            (0..shape.values()).map(|_| (least + random.below(span) as i64).max(least)).collect();
        let cube: Vec<i64> =
            cube.iter().map(|number| if number % 7 == 0 { 5 } else { *number }).collect();
        let value = |row: usize, column: usize, band: usize| {
            cube[(row * shape.columns + column) * shape.bands + band]
        };
        let [row, column] = [shape.rows, shape.columns].map(|size| random.below(size as u64));
        let window = Window {
            row: row as i32,
            column: column as i32,
            rows: 1 + random.below(shape.rows as u64 - row) as u32,
            columns: 1 + random.below(shape.columns as u64 - column) as u32,
        };
        let (mut chunks, mut compressed) = (Vec::new(), Vec::new());
        let element = if into == FloatType::F16 { 2 } else { 4 };
        for number in 0..grid.chunks_per_sample() {
            let region = grid.region(number);
            let mut chunk = vec![0xee_u8; grid.chunk_values() * dtype.size()];
            for (down, row) in region.rows.clone().enumerate() {
                for (across, column) in region.columns.clone().enumerate() {
                    for (offset, band) in region.bands.clone().enumerate() {
                        let pixel = down * tile.columns + across;
                        let at = (pixel * grid.band_group() + offset) * dtype.size();
                        let (bytes, _) = converted(value(row, column, band), dtype, into, scaling);
                        chunk[at..at + bytes.len()].copy_from_slice(&bytes);
                    }
                }
            }
            compressed.resize(compressed.len() + random.below(5) as usize, 0);
            let start = compressed.len() as u64;
            compressed.extend(frame_of(codec, &chunk));
            let frame = start..compressed.len() as u64;
            let chunk = Chunk::new(&grid, element, number, window, frame, 11);
            chunks.extend(chunk.map(|chunk| chunk.of_integers(dtype.size(), element)));
        }
        let mut want = vec![0xcc_u8; 11];
        for row in window.row_range() {
            for column in window.column_range() {
                for band in 0..shape.bands {
                    want.extend(converted(value(row, column, band), dtype, into, scaling).1);
                }
            }
        }
        want.extend([0xcc; 9]);
        let mut batch = vec![0xcc_u8; want.len()];
        let block = (grid.chunk_values() * dtype.size()) as u64;
        let lens = [compressed.len() as u64, batch.len() as u64];
        let what = Decode::new(&chunks, lens[0], lens[1], 3, block).unwrap();
        let what = what.converting(Floats::new(dtype, into, scaling).unwrap());
        let statuses = run_as(what, &chunks, &compressed, &mut batch, random.bits());
        assert!(statuses.iter().all(|status| *status == Status::Sound), "{codec:?}: {statuses:?}");
        assert!(batch == want, "{dtype} to {into:?}: {scaling:?}, {grid:?} {window:?} {codec:?}");
    }
}

/// Some damage.
fn damage(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        let len = frame.len() as u64;
        let near = random.below(2) == 0;
        let at = random.below(if near { len.min(40) } else { len }) as usize;
        match random.below(5) {
            0 => frame[at] ^= 1 << random.below(8),
            1 => frame[at] = random.below(256) as u8,
            2 => frame[at] = [0, 1, 15, 0xf0, 255][random.below(5) as usize],
            3 => {
                let from = random.below(len) as usize;
                let end = (from + 9).min(frame.len()).min(from + frame.len() - at);
                frame.copy_within(from..end, at);
            }
            // The end is missing, and the header says so.
            _ if len > 20 => {
                frame.truncate(20 + random.below(len - 20) as usize);
                let bytes = frame.len() as u32;
                frame[12..16].copy_from_slice(&bytes.to_le_bytes());
            }
            _ => {}
        }
    }
}

#[test]
fn damaged_frames_are_refused_where_blosc_refuses_them() {
    let mut random = Random::keyed(Stream::Order, [51]);
    let (mut sound, mut refused, mut stricter) = (0, 0, 0);
    for codec in codecs() {
        for kind in [0, 3, 4] {
            let bytes = usize::from(codec.typesize) * [600, 2100, 20_011][kind % 3];
            let chunk = values(kind, bytes, &mut random);
            let good = frame_of(Codec { blocksize: 1 << 9, ..codec }, &chunk);
            for _ in 0..120 {
                let mut frame = good.clone();
                damage(&mut frame, &mut random);
                let mut want = vec![0xcc_u8; bytes];
                let blosc = decode_frame(&frame, &mut want);
                let (status, batch) = decoded(&frame, codec, bytes, 3, random.bits());
                match (blosc, status) {
                    (Ok(()), Status::Sound) => {
                        assert!(batch == want, "{codec:?}");
                        sound += 1;
                    }
                    (Err(_), Status::Sound) => panic!("{codec:?}: C-Blosc refuses it"),
                    (Err(_), _) => refused += 1,
                    // Other compressors; matches at offset 0, which have no meaning.
                    (Ok(()), _) => stricter += 1,
                }
            }
        }
    }
    assert!(sound > 500 && refused > 3000, "{sound} {refused}");
    assert!(stricter < 300, "{stricter}");
}

#[test]
fn matches_of_every_offset_and_length_repeat_what_was_before() {
    // Around the size of a warp, and of the memory that holds what it decoded last (RECENT in decode.cu).
    let near = |number: u32| number.saturating_sub(2)..=number + 2;
    let offsets = [1, 3, 32, 64, 2048, 4092, 4096, 8192].into_iter().flat_map(near);
    let lengths = [4, 19, 32, 64, 2048, 4064, 4096, 5000, 9000];
    let codec = Codec::new(Compressor::Lz4, 5, Shuffle::None, DType::U8);
    let mut random = Random::keyed(Stream::Order, [50]);
    let lengthened = |length: usize, stream: &mut Vec<u8>| {
        if let Some(excess) = length.checked_sub(15) {
            stream.extend(std::iter::repeat_n(255, excess / 255));
            stream.push((excess % 255) as u8);
        }
    };
    for offset in offsets.filter(|offset| *offset > 0) {
        // Some literals, matches of this offset with a few literals after each, the last literals.
        let literals = |count: usize, random: &mut Random| -> Vec<u8> {
            (0..count).map(|_| random.bits() as u8).collect()
        };
        let (mut stream, mut chunk): (Vec<u8>, Vec<u8>) = Default::default();
        for (number, length) in lengths.iter().flat_map(|length| near(*length)).enumerate() {
            let length = length.max(4) as usize;
            let before = if number == 0 { offset as usize } else { number % 40 };
            stream.push((before.min(15) << 4 | (length - 4).min(15)) as u8);
            lengthened(before, &mut stream);
            let new = literals(before, &mut random);
            stream.extend(&new);
            chunk.extend(&new);
            stream.extend((offset as u16).to_le_bytes());
            lengthened(length - 4, &mut stream);
            for _ in 0..length {
                chunk.push(chunk[chunk.len() - offset as usize]);
            }
        }
        let last = literals(12, &mut random);
        stream.push(12 << 4);
        stream.extend(&last);
        chunk.extend(&last);
        let frame = frame_with(&stream, chunk.len());
        let mut blosc = vec![0; chunk.len()];
        decode_frame(&frame, &mut blosc).unwrap();
        assert!(blosc == chunk, "C-Blosc, offset {offset}");
        let (status, batch) = decoded(&frame, codec, chunk.len(), 1, random.bits());
        assert_eq!(status, Status::Sound, "offset {offset}");
        assert!(batch == chunk, "matches of offset {offset} differ");
    }
}

#[test]
fn blocks_that_break_the_rules_of_lz4_are_damage() {
    let frame = |stream: &[u8]| frame_with(stream, 21);
    let codec = Codec::new(Compressor::Lz4, 5, Shuffle::None, DType::U8);
    let check = |stream: &[u8], want: Option<&[u8]>| {
        let (status, batch) = decoded(&frame(stream), codec, 21, 1, 1);
        let sound = (status == Status::Sound).then_some(&batch[..]);
        assert_eq!(sound, want, "{stream:?}");
        let mut blosc = [0; 21];
        let result = decode_frame(&frame(stream), &mut blosc);
        assert_eq!(result.is_ok().then_some(&blosc[..]), want, "{stream:?}");
    };
    // A literal, a match of 8 bytes, twelve literals.
    let mut stream = vec![0x14, b'a', 1, 0, 0xc0];
    stream.extend([b'b'; 12]);
    check(&stream, Some(b"aaaaaaaaabbbbbbbbbbbb"));
    // C-Blosc accepts offset 0, and gives whatever its memory had.
    stream[2] = 0;
    assert_eq!(decoded(&frame(&stream), codec, 21, 1, 1).0, Status::Damaged);
    // Before the first byte.
    stream[2] = 2;
    check(&stream, None);
    // Matches end at least five bytes before the end.
    check(&[0x1b, b'a', 1, 0, 0x50, b'b', b'b', b'b', b'b', b'b'], Some(b"aaaaaaaaaaaaaaaabbbbb"));
    check(&[0x1c, b'a', 1, 0, 0x40, b'b', b'b', b'b', b'b'], None);
    // More literals than there are; a byte after the last ones; too few bytes; none.
    check(&[0x1b, b'a', 1, 0, 0x50, b'b', b'b', b'b', b'b'], None);
    check(&[0x1b, b'a', 1, 0, 0x50, b'b', b'b', b'b', b'b', b'b', 0], None);
    check(&[0x1a, b'a', 1, 0, 0x50, b'b', b'b', b'b', b'b', b'b'], None);
    check(&[], None);
}

/// Frames for the fuzzing program.
fn corpus(path: &Path) {
    let mut random = Random::keyed(Stream::Order, [52]);
    let mut all: Vec<u8> = Vec::new();
    for codec in codecs() {
        for (kind, values_of_chunk) in [(0, 300), (4, 300), (4, 1031), (3, 40), (2, 700)] {
            let bytes = values_of_chunk * usize::from(codec.typesize);
            let codec = Codec { blocksize: 1 << 9, ..codec };
            let frame = frame_of(codec, &values(kind, bytes, &mut random));
            all.extend((frame.len() as u32).to_le_bytes());
            all.extend((bytes as u32).to_le_bytes());
            all.extend(frame);
        }
    }
    fs::write(path, all).unwrap();
}

#[test]
fn nothing_outside_its_memory_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    let [program, frames]: [PathBuf; 2] = ["fuzz", "frames"].map(|name| folder.path().join(name));
    let sanitizers = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
    compiler(&sanitizers, "tests/support/decode_fuzz.cpp", &program);
    corpus(&frames);
    let executions = std::env::var(EXECUTIONS).unwrap_or_else(|_| "20000".to_owned());
    let mut fuzz = Command::new(&program);
    // The corpus is kept until the end.
    fuzz.env("ASAN_OPTIONS", "detect_leaks=0");
    let done = fuzz.arg(&frames).args([executions.as_str(), "49"]).output().unwrap();
    let [out, errors] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(done.status.success(), "{out}{errors}");
    println!("{out}");
}

#[test]
fn gathering_stays_in_its_memory() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("fuzz");
    let sanitizers = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"];
    compiler(&sanitizers, "tests/support/gather_fuzz.cpp", &program);
    let executions = std::env::var(EXECUTIONS).unwrap_or_else(|_| "20000".to_owned());
    let done = Command::new(&program).args([executions.as_str(), "53"]).output().unwrap();
    let [out, errors] = [&done.stdout, &done.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(done.status.success(), "{out}{errors}");
    println!("{out}");
}

/// The pixel of an axis that a window has at a place, found by walking; `None` if it has a value
/// there.
fn walked(index: i64, length: i64, pad: Pad) -> Option<i64> {
    match pad {
        _ if (0..length).contains(&index) => Some(index),
        Pad::Value(_) => None,
        Pad::Edge => Some(index.clamp(0, length - 1)),
        Pad::Reflect if length == 1 => Some(0),
        Pad::Reflect if index < 0 => walked(-index, length, pad),
        Pad::Reflect => walked(2 * (length - 1) - index, length, pad),
    }
}

#[test]
fn gathered_windows_equal_a_plain_computation() {
    let mut random = Random::keyed(Stream::Order, [53]);
    let kernel = kernel();
    for round in 0..400 {
        let dtype = [DType::U8, DType::F16, DType::F32][round % 3];
        let element = dtype.size();
        let mut size = |most: u64| 1 + random.below(most) as usize;
        let shape = CubeShape { rows: size(12), columns: size(14), bands: size(40) };
        let (rows, columns) = (size(30), size(30));
        let bytes = shape.rows * shape.columns * shape.bands * element;
        // Cubes and windows at any place, so that they are aligned in every way.
        let (gap, cubes) = (size(40), size(3));
        let memory: Vec<u8> = (0..gap + cubes * bytes).map(|_| random.below(256) as u8).collect();
        let chosen = random.below(3) == 0;
        let all: Vec<u32> = (0..shape.bands as u32).collect();
        let count = 1 + random.below(shape.bands as u64 + 2);
        let some: Vec<u32> = (0..count).map(|_| random.below(shape.bands as u64) as u32).collect();
        let (bands, list) = if chosen { (&some, &some[..]) } else { (&all, &[][..]) };
        let sample = rows * columns * bands.len() * element;
        let (before, windows) = (random.below(40) as usize, 1 + random.below(5) as usize);
        let (mut table, mut want) = (Vec::new(), vec![0xcc_u8; before]);
        for number in 0..windows {
            let pad = [Pad::Reflect, Pad::Edge, Pad::Value(1.0)][random.below(3) as usize];
            let fill = random.bits().to_le_bytes();
            let from = gap + random.below(cubes as u64) as usize * bytes;
            let mut begin = |size: usize, length: usize| {
                random.below((size + length + 8) as u64) as i32 - size as i32 - 3
            };
            let (row, column) = (begin(rows, shape.rows), begin(columns, shape.columns));
            let window = Window { row, column, rows: rows as u32, columns: columns as u32 };
            let into = (before + number * sample) as u64;
            let count = chosen.then_some(list.len());
            let cube = (shape, dtype);
            let row_of = GatherWindow::new(cube, count, window, (pad, fill), from as u64, into);
            table.push(row_of.unwrap());
            for down in 0..rows as i64 {
                for across in 0..columns as i64 {
                    let y = walked(i64::from(row) + down, shape.rows as i64, pad);
                    let x = walked(i64::from(column) + across, shape.columns as i64, pad);
                    for band in bands {
                        match y.zip(x) {
                            None => want.extend(&fill[..element]),
                            Some((y, x)) => {
                                let pixel = y as usize * shape.columns + x as usize;
                                let at = pixel * shape.bands + *band as usize;
                                want.extend(&memory[from + at * element..][..element]);
                            }
                        }
                    }
                }
            }
        }
        want.extend([0xcc; 16]);
        let mut batch = vec![0xcc_u8; want.len()];
        let (length, room) = (memory.len() as u64, (want.len() - 16) as u64);
        let gather = Gather::new(&table, list, length, room).unwrap();
        // SAFETY: `Gather::new` compared the table with this memory.
        unsafe {
            (kernel.gather_order)(random.bits());
            (kernel.gather)(
                &raw const gather,
                table.as_ptr(),
                list.as_ptr(),
                memory.as_ptr(),
                batch.as_mut_ptr(),
            );
        }
        assert!(batch == want, "round {round}: {shape:?} {dtype:?} {rows}x{columns} {table:?}");
    }
}
