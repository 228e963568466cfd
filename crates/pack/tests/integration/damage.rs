//! Every kind of damage is found, and repaired if a source is there.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hsipack_format::ErrorKind;
use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::validate::{ProblemKind, Report, ValidateOptions, validate};
use hsipack_store::Dataset;

use crate::conversion::{content, cubes, options, pack};

fn check(dataset: &Path) -> Report {
    let options = ValidateOptions { threads: 1, ..ValidateOptions::default() };
    validate(dataset, &options, &Progress::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn dataset(folder: &Path) -> PathBuf {
    dataset_of(folder, 1)
}

/// A dataset of four cubes, and `other` cubes of another shape.
fn dataset_of(folder: &Path, other: usize) -> PathBuf {
    let cubes_folder = folder.join("in");
    std::fs::create_dir_all(&cubes_folder).unwrap();
    cubes(&cubes_folder, 4, other);
    let out = folder.join("out");
    pack(&options(&cubes_folder, &out));
    assert!(check(&out).ok);
    out
}

#[test]
fn threads_do_not_change_what_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    // Damages a chunk in each of two shards, and a value of a source.
    for shard in ["0/0/0/0", "1/0/0/0"] {
        let path = out.join("6x5x4/image/c").join(shard);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[30] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let source = folder.path().join("in/cube004.img");
    let mut values = std::fs::read(&source).unwrap();
    values[9] ^= 0x40;
    std::fs::write(&source, values).unwrap();
    let found = [1, 2, 7].map(|threads| {
        let options = ValidateOptions { threads, source: true, ..ValidateOptions::default() };
        let report = validate(&out, &options, &Progress::default()).unwrap();
        // The dataset's copy of the cube whose source changed is intact.
        assert_eq!((report.damaged_samples.len(), report.sources), (2, 3));
        assert!(report.problems.iter().any(|problem| problem.kind == ProblemKind::Source));
        Report { seconds: 0.0, ..report }
    });
    let found = found.map(|report| serde_json::to_string(&report).unwrap());
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

#[test]
fn a_check_that_is_stopped_ends_with_that_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    for source in [false, true] {
        for threads in [1, 3] {
            let options = ValidateOptions { threads, source, ..ValidateOptions::default() };
            let progress = Progress::default();
            progress.stop.store(true, Ordering::Relaxed);
            let error = validate(&out, &options, &progress).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Interrupted);
            assert_eq!(progress.bytes_in.load(Ordering::Relaxed), 0);
        }
    }
}

#[test]
fn every_single_flipped_byte_is_found() {
    // Thousands of validations, so each thread has its own dataset and a share of the bytes.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let flipped: usize = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || flip_bytes(thread, threads))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(flipped > 5000, "the dataset has only {flipped} bytes");
}

/// Flips bytes of a dataset's files, one at a time: from `first` on, `step` apart. Returns how
/// many.
fn flip_bytes(first: usize, step: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    // A second stack would have the same kinds of files.
    let out = dataset_of(folder.path(), 0);
    let mut bytes = 0;
    for (file, _) in content(&out) {
        let path = out.join(&file);
        let whole = std::fs::read(&path).unwrap();
        for at in (first..whole.len()).step_by(step) {
            let mut damaged = whole.clone();
            damaged[at] ^= if (at / step).is_multiple_of(2) { 0x01 } else { 0xFF };
            std::fs::write(&path, &damaged).unwrap();
            let found = !check(&out).ok;
            assert!(found, "byte {at} of {} was flipped and not found", file.display());
            bytes += 1;
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(check(&out).ok);
    bytes
}

#[test]
fn truncated_and_missing_files_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    for (file, _) in content(&out) {
        let path = out.join(&file);
        let whole = std::fs::read(&path).unwrap();
        for len in [0, 1, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(!check(&out).ok, "{} cut to {len} bytes", file.display());
        }
        std::fs::remove_file(&path).unwrap();
        // The index of the samples is optional: datasets of older versions do not have it.
        let is_needed = file != Path::new(SAMPLES_INDEX);
        assert_eq!(!check(&out).ok, is_needed, "{} removed", file.display());
        std::fs::write(&path, &whole).unwrap();
    }
}

#[test]
fn datasets_without_sums_have_fingerprints_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let fingerprints = ["one", "other"].map(|name| {
        let subfolder = folder.path().join(name);
        std::fs::create_dir(&subfolder).unwrap();
        let out = dataset(&subfolder);
        let with = Dataset::open(&out).unwrap().fingerprint().to_owned();
        std::fs::remove_file(out.join("SHA256SUMS")).unwrap();
        // The file contains only what can also be read without it.
        assert_eq!(Dataset::open_unverified(&out).unwrap().fingerprint(), with);
        let samples = out.join("samples.jsonl");
        let text = std::fs::read_to_string(&samples).unwrap();
        std::fs::write(&samples, text.replacen("\"name\":\"", &format!("\"name\":\"{name} "), 1))
            .unwrap();
        Dataset::open_unverified(&out).unwrap().fingerprint().to_owned()
    });
    assert_ne!(fingerprints[0], fingerprints[1]);
}

#[test]
fn damaged_samples_and_chunks_are_named_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    let before = content(&out);
    let shard = out.join("6x5x4/image/c/0/0/0/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    std::fs::remove_file(out.join("3x5x4/mask/c/0/0/0")).unwrap();
    std::fs::write(out.join("6x5x4/wavelength/c/0"), b"short").unwrap();
    let report = check(&out);
    assert_eq!(report.damaged_samples, ["cube004", "cube000"]);
    let chunk = report.problems.iter().find(|problem| problem.chunk.is_some()).unwrap();
    assert_eq!((chunk.index, chunk.chunk, chunk.shard), (Some(0), Some(0), Some(0)));

    let mended = repair(&out, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert_eq!(mended.repaired_samples.len(), 2);
    assert!(mended.remaining.is_empty() && mended.failed.is_empty(), "{mended:?}");
    assert_eq!(content(&out), before);
}

#[test]
fn a_source_that_changed_cannot_repair_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    let cube = folder.path().join("in/cube000.img");
    let mut values = std::fs::read(&cube).unwrap();
    values[2] ^= 0x40;
    std::fs::write(&cube, &values).unwrap();
    let options = ValidateOptions { source: true, ..ValidateOptions::default() };
    let report = validate(&out, &options, &Progress::default()).unwrap();
    assert!(!report.ok && report.damaged_samples.is_empty(), "{:?}", report.damaged_samples);
    assert_eq!(report.problems[0].sample.as_deref(), Some("cube000"));
    assert!(report.problems[0].what.contains("row 0, column 0, band 0"), "{:?}", report.problems);

    let shard = out.join("6x5x4/image/c/0/0/0/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    let mended = repair(&out, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(mended.failed[0].contains("changed since the conversion"), "{mended:?}");
    assert!(!mended.remaining.is_empty());
    assert_eq!(std::fs::read(&shard).unwrap(), bytes, "a failed repair must not touch the shard");
}

/// Writes `content` into a metadata file, and its checksum into `SHA256SUMS`, so that only its
/// meaning is wrong.
pub fn put(out: &Path, file: &str, content: &[u8]) {
    std::fs::write(out.join(file), content).unwrap();
    let sums = checksums::parse(&std::fs::read(out.join(SHA256SUMS)).unwrap()).unwrap();
    let files: Vec<(String, Vec<u8>)> = sums
        .into_iter()
        .map(|(file, _)| (file.clone(), std::fs::read(out.join(file)).unwrap()))
        .collect();
    let files = files.iter().map(|(file, content)| (file.as_str(), content.as_slice()));
    std::fs::write(out.join(SHA256SUMS), checksums::encode(files)).unwrap();
}

/// If opening refuses a file, validation finds the problem in the same file.
fn refused(out: &Path, file: &str, what: &str) {
    let error = Dataset::open(out).unwrap_err();
    assert_eq!(error.path(), Some(out.join(file).as_path()), "{error}");
    assert!(error.what().contains(what), "{error}");
    assert!(error.remedy().is_some() || error.kind() == ErrorKind::Malformed, "{error}");
    let report = check(out);
    let found = report.problems.iter().any(|problem| problem.path == out.join(file));
    assert!(found, "{:?}", report.problems);
}

#[test]
fn attributes_that_give_values_no_meaning_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    let file = "6x5x4/image/zarr.json";
    let sound = std::fs::read_to_string(out.join(file)).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut meta: serde_json::Value = serde_json::from_str(&sound).unwrap();
        let attributes = &mut meta["attributes"];
        let owner = if key == "keep_bits" { &mut attributes["hsipack"] } else { attributes };
        owner[key] = value;
        put(&out, file, meta.to_string().as_bytes());
    };
    for (key, value) in [
        ("scale_factor", 0.0.into()),
        ("scale_factor", 1e308.into()),
        ("scale_factor", 1e-310.into()),
        ("scale_factor", "2".into()),
        ("scale_factor", serde_json::Value::Null),
        ("add_offset", "0".into()),
        ("keep_bits", (-1).into()),
        ("keep_bits", 11.into()),
        ("keep_bits", "7".into()),
    ] {
        with(key, value);
        refused(&out, file, key);
    }
    for (key, value) in [("scale_factor", (-0.5).into()), ("keep_bits", 10.into())] {
        with(key, value);
        Dataset::open(&out).unwrap();
    }
    put(&out, file, sound.as_bytes());
    assert!(check(&out).ok);
}

#[test]
fn every_metadata_file_has_to_be_listed() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    let sums = std::fs::read_to_string(out.join(SHA256SUMS)).unwrap();
    for line in sums.lines() {
        let others: String =
            sums.lines().filter(|other| *other != line).map(|line| format!("{line}\n")).collect();
        std::fs::write(out.join(SHA256SUMS), others).unwrap();
        refused(&out, line.split_once("  ").unwrap().1, "not listed");
    }
}

#[test]
fn pipes_and_lists_without_measure_end_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    let shard = "6x5x4/image/c/0/0/0/0";
    for file in [shard, "samples.jsonl", SHA256SUMS, "6x5x4/wavelength/c/0"] {
        let path = out.join(file);
        let content = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0)
            .unwrap();
        let report = check(&out);
        let is_reported = report.problems.iter().any(|problem| problem.what.contains("a pipe"));
        assert!(is_reported, "{file}: {:?}", report.problems);
        assert_eq!(Dataset::open(&out).is_ok(), file == shard);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, content).unwrap();
    }
    let lines = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    put(&out, "samples.jsonl", lines.repeat(1000).as_bytes());
    refused(&out, "samples.jsonl", "5000 samples are listed, but the stacks hold 5 cubes");
    put(&out, "samples.jsonl", lines.replacen("cube000", &"x".repeat(5000), 1).as_bytes());
    refused(&out, "samples.jsonl", "a name of 5000 bytes");
}
