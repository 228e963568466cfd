//! Damage of every kind is found, and mended where a source is there.

use std::path::{Path, PathBuf};

use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::validate::{Report, ValidateOptions, validate};

use crate::conversion::{content, cubes, options, pack};

fn check(dataset: &Path) -> Report {
    let options = ValidateOptions { jobs: 1, ..ValidateOptions::default() };
    validate(dataset, &options, &Progress::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn dataset(folder: &Path) -> PathBuf {
    let cubes_folder = folder.join("in");
    std::fs::create_dir_all(&cubes_folder).unwrap();
    cubes(&cubes_folder, 4, 1);
    let out = folder.join("out");
    pack(&options(&cubes_folder, &out));
    assert!(check(&out).ok);
    out
}

#[test]
fn every_single_flipped_byte_is_found() {
    // Thousands of validations: every thread has a dataset of its own, and a share of the bytes.
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let flipped: usize = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || flip_bytes(thread, threads))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(flipped > 5000, "the dataset has only {flipped} bytes");
}

/// Flips every byte of a dataset's files from `first` on, `step` apart, one at a time; gives how many.
fn flip_bytes(first: usize, step: usize) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
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
        assert!(!check(&out).ok, "{} removed", file.display());
        std::fs::write(&path, &whole).unwrap();
    }
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
fn a_source_that_changed_is_no_help_and_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = dataset(folder.path());
    let cube = folder.path().join("in/cube000.img");
    let mut values = std::fs::read(&cube).unwrap();
    values[2] ^= 0x40;
    std::fs::write(&cube, &values).unwrap();
    let options = ValidateOptions { source: true, ..ValidateOptions::default() };
    let report = validate(&out, &options, &Progress::default()).unwrap();
    assert_eq!(report.damaged_samples, ["cube000"]);
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
