//! Streams that inflate to far more than the declared cube: they give an error, and need no more
//! memory than three times the cube. The test has a process of its own, because it measures the
//! memory of the process.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use hsipack_format::ErrorKind;
use hsipack_source::{OpenOptions, RowBuffer};

const SHAPE: [usize; 3] = [128, 128, 256];
const CUBE: usize = 128 * 128 * 256 * 2;
/// The bytes to which the bombs inflate, in addition to the cube.
const SURPLUS: usize = 256 << 20;

/// Writes the cube, all zeros, and `surplus` more bytes.
fn fill<W: Write>(mut to: W, head: &[u8], surplus: usize) -> W {
    to.write_all(head).unwrap();
    let zeros = vec![0; 1 << 20];
    let mut remaining = CUBE + surplus;
    while remaining > 0 {
        let count = remaining.min(zeros.len());
        to.write_all(&zeros[..count]).unwrap();
        remaining -= count;
    }
    to
}

fn gzip(head: &[u8], surplus: usize) -> Vec<u8> {
    fill(GzEncoder::new(Vec::new(), Compression::fast()), head, surplus).finish().unwrap()
}

fn zlib(head: &[u8], surplus: usize) -> Vec<u8> {
    fill(ZlibEncoder::new(Vec::new(), Compression::fast()), head, surplus).finish().unwrap()
}

fn envi(folder: &Path, surplus: usize) -> PathBuf {
    let header = "ENVI\nsamples = 128\nlines = 128\nbands = 256\ndata type = 12\ninterleave = bil\n\
                  byte order = 0\nfile compression = 1\n";
    std::fs::write(folder.join("a.hdr"), header).unwrap();
    std::fs::write(folder.join("a.img"), gzip(&[], surplus)).unwrap();
    folder.join("a.hdr")
}

/// A zip archive with one member whose length in the directory is that of the cube.
fn npz(folder: &Path, surplus: usize) -> PathBuf {
    let mut header = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    header.extend(b"{'descr': '<u2', 'fortran_order': False, 'shape': (128, 128, 256), }");
    header.resize(127, b' ');
    header.push(b'\n');
    let data = fill(DeflateEncoder::new(Vec::new(), Compression::fast()), &header, surplus);
    let data = data.finish().unwrap();
    let mut crc = flate2::Crc::new();
    crc.update(&header);
    crc.update(&vec![0; CUBE]);
    let (name, size) = (b"cube.npy", (header.len() + CUBE) as u32);
    let mut fields = vec![20, 0, 0, 0, 8, 0, 0, 0, 0, 0];
    for number in [crc.sum(), data.len() as u32, size] {
        fields.extend(number.to_le_bytes());
    }
    fields.extend([name.len() as u8, 0, 0, 0]);
    let mut zip = [b"PK\x03\x04", &fields[..], name, &data[..]].concat();
    let start = zip.len() as u32;
    zip.extend([b"PK\x01\x02\x14\x00", &fields[..], &[0; 14], name].concat());
    let len = zip.len() as u32 - start;
    zip.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    zip.extend([len.to_le_bytes(), start.to_le_bytes()].concat());
    zip.extend([0, 0]);
    std::fs::write(folder.join("a.npz"), zip).unwrap();
    folder.join("a.npz")
}

fn matlab(folder: &Path, surplus: usize) -> PathBuf {
    let words =
        |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let inside = [
        words(&[6, 8, 11, 0, 5, 12, 128, 128, 256, 0]),
        words(&[1, 4]),
        b"cube\0\0\0\0".to_vec(),
        words(&[4, CUBE as u32]),
    ]
    .concat();
    let matrix = [words(&[14, (inside.len() + CUBE) as u32]), inside].concat();
    let stream = zlib(&matrix, surplus);
    let mut file = b"MATLAB 5.0 MAT-file".to_vec();
    file.resize(124, b' ');
    file.extend([0, 1, b'I', b'M']);
    file.extend(words(&[15, stream.len() as u32]));
    file.extend(stream);
    std::fs::write(folder.join("a.mat"), file).unwrap();
    folder.join("a.mat")
}

/// One strip with all bands, interleaved by pixel.
fn tiff(folder: &Path, surplus: usize) -> PathBuf {
    let strip = zlib(&[], surplus);
    let tags: [(u16, u32); 10] = [
        (256, 128),
        (257, 128),
        (258, 16),
        (259, 8),
        (262, 1),
        (273, 8),
        (277, 256),
        (278, 128),
        (279, strip.len() as u32),
        (339, 1),
    ];
    let mut file = b"II\x2A\0".to_vec();
    file.extend((8 + strip.len() as u32).to_le_bytes());
    file.extend(strip);
    file.extend((tags.len() as u16).to_le_bytes());
    for (tag, value) in tags {
        file.extend([&tag.to_le_bytes()[..], &[4, 0, 1, 0, 0, 0], &value.to_le_bytes()].concat());
    }
    file.extend([0; 4]);
    std::fs::write(folder.join("a.tif"), file).unwrap();
    folder.join("a.tif")
}

fn zarr_of(folder: &Path, name: &str, metadata: &str, chunk: &str, bytes: Vec<u8>) -> PathBuf {
    let array = folder.join(name);
    let chunk = array.join(chunk);
    std::fs::create_dir_all(chunk.parent().unwrap()).unwrap();
    let file = if metadata.contains("zarr_format\": 3") { "zarr.json" } else { ".zarray" };
    std::fs::write(array.join(file), metadata).unwrap();
    std::fs::write(chunk, bytes).unwrap();
    array
}

const GZIP: &str = r#"{"name": "gzip", "configuration": {"level": 1}}"#;

fn v3(codecs: &str) -> String {
    format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [128, 128, 256], "data_type": "uint16",
        "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [128, 128, 256]}}}},
        "chunk_key_encoding": {{"name": "default"}}, "fill_value": 0, "codecs": {codecs}}}"#
    )
}

const BYTES: &str = r#"{"name": "bytes", "configuration": {"endian": "little"}}"#;

fn zarr_gzip(folder: &Path, surplus: usize) -> PathBuf {
    let metadata = v3(&format!("[{BYTES}, {GZIP}]"));
    zarr_of(folder, "a.zarr", &metadata, "c/0/0/0", gzip(&[], surplus))
}

fn zarr_zlib(folder: &Path, surplus: usize) -> PathBuf {
    let metadata = r#"{"zarr_format": 2, "shape": [128, 128, 256], "chunks": [128, 128, 256],
        "dtype": "<u2", "compressor": {"id": "zlib", "level": 1}, "fill_value": 0, "order": "C",
        "filters": null}"#;
    zarr_of(folder, "b.zarr", metadata, "0.0.0", zlib(&[], surplus))
}

fn zarr_shard(folder: &Path, surplus: usize) -> PathBuf {
    let metadata = v3(&format!(
        r#"[{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [128, 128, 256],
        "codecs": [{BYTES}, {GZIP}], "index_codecs": [{BYTES}], "index_location": "end"}}}}]"#
    ));
    let mut shard = gzip(&[], surplus);
    let len = shard.len() as u64;
    shard.extend([0u64.to_le_bytes(), len.to_le_bytes()].concat());
    zarr_of(folder, "c.zarr", &metadata, "c/0/0/0", shard)
}

/// Zstandard: one repeated byte in each block, in a frame without its size.
fn zarr_zstd(folder: &Path, surplus: usize) -> PathBuf {
    const BLOCK: usize = 128 << 10;
    let mut frame = b"\x28\xb5\x2f\xfd\x00\x58".to_vec();
    let blocks = (CUBE + surplus) / BLOCK;
    for block in 1..=blocks {
        let header = (BLOCK as u32) << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    let metadata = v3(&format!(
        r#"[{BYTES}, {{"name": "zstd", "configuration": {{"level": 1, "checksum": false}}}}]"#
    ));
    zarr_of(folder, "d.zarr", &metadata, "c/0/0/0", frame)
}

/// The memory of the process in bytes: now (`VmRSS`) or its peak (`VmHWM`).
fn memory(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn read_all(path: &Path, variable: Option<&str>) -> hsipack_format::Result<()> {
    let options = OpenOptions { variable: variable.map(str::to_owned), ..OpenOptions::default() };
    let source = hsipack_source::open(path, &options)?;
    let shape = source.info().shape;
    assert_eq!([shape.rows, shape.columns, shape.bands], SHAPE);
    let mut rows = RowBuffer::new();
    let step = source.preferred_rows(CUBE / 4).clamp(1, shape.rows);
    for start in (0..shape.rows).step_by(step) {
        source.read_rows(start..shape.rows.min(start + step), &mut rows)?;
        assert!(rows.bytes().iter().all(|byte| *byte == 0));
    }
    Ok(())
}

#[test]
fn bombs_are_refused_and_take_no_more_than_three_times_the_cube() {
    type Write = fn(&Path, usize) -> PathBuf;
    let containers: [(&str, Write); 8] = [
        ("ENVI, gzip", envi),
        ("npz", npz),
        ("MATLAB v5", matlab),
        ("TIFF", tiff),
        ("Zarr v3, gzip", zarr_gzip),
        ("Zarr v2, zlib", zarr_zlib),
        ("Zarr shard, gzip", zarr_shard),
        ("Zarr, zstd", zarr_zstd),
    ];
    let hdf5 = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hdf5/bomb.h5");
    read_all(&hdf5, Some("sound")).unwrap_or_else(|error| panic!("{error}"));
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let before = memory("VmHWM:");
    let error = read_all(&hdf5, Some("cube")).expect_err("HDF5");
    // The system counts each thread's pages late, so the peak may seem to fall.
    let taken = memory("VmHWM:").saturating_sub(before);
    eprintln!("HDF5: {} KiB; {error}", taken >> 10);
    assert!(taken < 3 * CUBE, "HDF5: {taken} bytes");
    assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    for (name, write) in containers {
        let folder = tempfile::tempdir().unwrap();
        // The same file without the surplus is valid.
        read_all(&write(folder.path(), 0), None).unwrap_or_else(|error| panic!("{name}: {error}"));
        let path = write(folder.path(), SURPLUS);
        // Resets the system's record of the peak.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before = memory("VmHWM:");
        let error = read_all(&path, None).expect_err(name);
        // The system counts each thread's pages late, so the peak may seem to fall.
        let taken = memory("VmHWM:").saturating_sub(before);
        eprintln!("{name}: {} KiB; {error}", taken >> 10);
        assert!(taken < 3 * CUBE, "{name}: {taken} bytes");
        assert_eq!(error.kind(), ErrorKind::Malformed, "{name}: {error}");
        let message = error.to_string();
        assert!(
            message.contains("more than") || message.contains("longer than"),
            "{name}: {error}"
        );
        assert!(error.path().is_some() && error.remedy().is_some(), "{name}: {error}");
    }
}
