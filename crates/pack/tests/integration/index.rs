//! `samples.index`: it is used if it is right, ignored if it is not, and written again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hsipack_format::checksums::SHA256SUMS;
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_pack::convert::{ConvertOptions, Mode};
use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::split::{By, SplitOptions, split};
use hsipack_pack::validate::{ProblemKind, ValidateOptions, validate};
use hsipack_store::Dataset;
use hsipack_testing::server::{Fault, Server};

use crate::appending::lines;
use crate::conversion::{cubes, options, pack};

const SAMPLES: &str = "samples.jsonl";

/// A dataset of five cubes of one shape and two of another, with labels and splits.
fn packed(folder: &Path) -> PathBuf {
    cubes(folder, 5, 2);
    let row = |number: usize| {
        let split = if number.is_multiple_of(3) { "val" } else { "train" };
        format!("cube{number:03},{split},p{},{}\n", number / 2, number * 10)
    };
    let table: String = (0..7).map(row).collect();
    fs::write(folder.join("table.csv"), format!("name,split,group,age\n{table}")).unwrap();
    let out = folder.join("out");
    pack(&with_table(folder, &out));
    out
}

fn with_table(folder: &Path, out: &Path) -> ConvertOptions {
    ConvertOptions { table: vec![folder.join("table.csv")], ..options(folder, out) }
}

/// Rewrites a file, with a time of change `seconds` from now.
fn write_at(file: &Path, content: &[u8], seconds: i64) {
    fs::write(file, content).unwrap();
    let now = SystemTime::now();
    let shift = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 { now - shift } else { now + shift };
    File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
}

/// The number of problems of the index that a validation finds. There must be no other problems.
fn problems(out: &Path) -> usize {
    let options = ValidateOptions { quick: true, ..ValidateOptions::default() };
    let report = validate(out, &options, &Progress::default()).unwrap();
    assert!(report.problems.iter().all(|problem| problem.kind == ProblemKind::Index));
    report.problems.len()
}

#[test]
fn opening_reads_the_index_and_not_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    assert!(!fs::read_to_string(out.join(SHA256SUMS)).unwrap().contains(SAMPLES_INDEX));
    let before = Dataset::open(&out).unwrap();
    let all = lines(&before);
    // A change of the same length that is older than the index is only noticed when lines are read.
    let text = fs::read_to_string(out.join(SAMPLES)).unwrap();
    write_at(&out.join(SAMPLES), text.replace("cube003", "cube333").as_bytes(), -60);
    let dataset = Dataset::open(&out).unwrap();
    let samples = dataset.samples();
    assert!(samples.names().eq(before.samples().names()));
    assert_eq!(samples.name(3), "cube003");
    assert_eq!(samples.get(2).unwrap(), all[2]);
    let error = samples.get(3).unwrap_err();
    assert!(error.what().contains("differs from samples.index"), "{error}");
    assert_eq!(error.path(), Some(out.join(SAMPLES).as_path()));
    assert!(samples.line(3).is_err());
    // An append refuses a text that differs from the one that was written.
    let more = folder.path().join("more");
    fs::create_dir(&more).unwrap();
    cubes(&more, 1, 0);
    fs::rename(more.join("cube000.hdr"), more.join("new.hdr")).unwrap();
    fs::rename(more.join("cube000.img"), more.join("new.img")).unwrap();
    fs::rename(more.join("cube000.png"), more.join("new.png")).unwrap();
    let append = ConvertOptions { mode: Mode::APPEND, ..options(&more, &out) };
    let error = hsipack_pack::convert::convert(&append, &Progress::default(), &|_| {});
    assert!(error.unwrap_err().what().contains("does not match SHA256SUMS"));
}

#[test]
fn lines_that_were_written_to_since_are_compared_with_their_sum() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let text = fs::read_to_string(out.join(SAMPLES)).unwrap();
    // Like a copy that does not keep times.
    write_at(&out.join(SAMPLES), text.as_bytes(), 60);
    assert_eq!(Dataset::open(&out).unwrap().samples().len(), 7);
    write_at(&out.join(SAMPLES), text.replace("train", "trian").as_bytes(), 60);
    let error = Dataset::open(&out).unwrap_err();
    assert!(error.what().contains("does not match SHA256SUMS"), "{error}");
    assert_eq!(error.path(), Some(out.join(SAMPLES).as_path()));
}

#[test]
fn an_index_that_cannot_be_used_is_done_without_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let file = out.join(SAMPLES_INDEX);
    let index = fs::read(&file).unwrap();
    let all = lines(&Dataset::open(&out).unwrap());
    let mut flipped = index.clone();
    flipped[index.len() / 2] ^= 1;
    let mut newer = index.clone();
    newer[8] = 2;
    // An index of another text.
    let mut other = index.clone();
    other[24] ^= 1;
    for wrong in [&flipped[..], &newer, &other, &index[..40], b"", b"anything"] {
        fs::write(&file, wrong).unwrap();
        assert_eq!(lines(&Dataset::open(&out).unwrap()), all);
        assert_eq!(problems(&out), 1);
        let options = ValidateOptions::default();
        let report = repair(&out, &options, &Progress::default()).unwrap();
        assert!(report.remaining.is_empty() && report.repaired_index, "{report:?}");
        assert_eq!(fs::read(&file).unwrap(), index);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(lines(&Dataset::open(&out).unwrap()), all);
    assert_eq!(problems(&out), 0);
    // A folder is not an index either.
    fs::create_dir(&file).unwrap();
    assert_eq!(lines(&Dataset::open(&out).unwrap()), all);
}

#[test]
fn an_index_of_other_stacks_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    fs::rename(out.join("3x5x4"), out.join("gone")).unwrap();
    fs::remove_dir_all(out.join("gone")).unwrap();
    let sums = fs::read_to_string(out.join(SHA256SUMS)).unwrap();
    let remaining: String = sums
        .lines()
        .filter(|line| !line.contains("3x5x4"))
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(out.join(SHA256SUMS), remaining).unwrap();
    let error = Dataset::open(&out).unwrap_err();
    assert!(error.what().contains("7 samples are listed, but the stacks hold 5"), "{error}");
}

#[test]
fn appended_samples_are_added_to_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let first = Dataset::open(&out).unwrap();
    let more = folder.path().join("more");
    fs::create_dir(&more).unwrap();
    cubes(&more, 1, 1);
    for ending in ["hdr", "img", "png"] {
        for (old, new) in [("cube000", "next0"), ("cube001", "next1")] {
            fs::rename(
                more.join(old).with_extension(ending),
                more.join(new).with_extension(ending),
            )
            .unwrap();
        }
    }
    // Without an index, an append reads the lines.
    let kept = fs::read(out.join(SAMPLES_INDEX)).unwrap();
    fs::remove_file(out.join(SAMPLES_INDEX)).unwrap();
    pack(&ConvertOptions { mode: Mode::APPEND, ..options(&more, &out) });
    assert_ne!(fs::read(out.join(SAMPLES_INDEX)).unwrap(), kept);
    assert_eq!(problems(&out), 0);
    let text = fs::read(out.join(SAMPLES)).unwrap();
    write_at(&out.join(SAMPLES), &text, -60);
    let now = Dataset::open(&out).unwrap();
    assert_eq!(now.samples().names().skip(7).collect::<Vec<_>>(), ["next0", "next1"]);
    assert_eq!(lines(&now)[..7], lines(&first));
    let was = now.as_it_was(first.fingerprint()).unwrap().unwrap();
    assert_eq!(lines(&was), lines(&first));
    assert_eq!(was.samples().columns(), ["age"]);

    // Adding masks does not change samples and index.
    let index = fs::read(out.join(SAMPLES_INDEX)).unwrap();
    let masks = SplitOptions {
        dataset: out.clone(),
        mask: "mask".into(),
        by: By::Pixels,
        shares: "a=0.5,b=rest".parse().unwrap(),
        name: Some("parts".into()),
        ..SplitOptions::default()
    };
    split(&masks, &Progress::default()).unwrap();
    assert_eq!(fs::read(out.join(SAMPLES_INDEX)).unwrap(), index);
    assert_eq!(problems(&out), 0);
}

#[test]
fn a_server_is_asked_for_a_long_list_when_a_line_is_read() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 3, 0);
    let row = |number: usize| format!("cube{number:03},{}\n", "x".repeat(100_000));
    let table: String = (0..3).map(row).collect();
    fs::write(folder.path().join("table.csv"), format!("name,notes\n{table}")).unwrap();
    let out = folder.path().join("out");
    pack(&with_table(folder.path(), &out));
    let all = lines(&Dataset::open(&out).unwrap());
    let text = fs::read(out.join(SAMPLES)).unwrap();

    // The whole list is fetched only when it is needed.
    let server = Server::start(folder.path());
    let count_requests =
        || server.requests().iter().filter(|request| request.path.ends_with(SAMPLES)).count();
    let dataset = Dataset::open(server.url("out")).unwrap();
    let opened = count_requests();
    assert!(dataset.samples().names().eq(["cube000", "cube001", "cube002"]));
    assert_eq!((dataset.samples().columns().len(), count_requests()), (1, opened));
    assert_eq!(lines(&dataset), all);
    assert_eq!(count_requests(), opened + 1);

    // Changed lines on the server are reported, and so is a replaced list.
    let dataset = Dataset::open(server.url("out")).unwrap();
    let other = String::from_utf8(text.clone()).unwrap().replace("cube001", "cube111");
    fs::write(out.join(SAMPLES), other).unwrap();
    let error = dataset.samples().get(1).unwrap_err();
    assert!(error.what().contains("does not match SHA256SUMS"), "{error}");
    fs::write(out.join(SAMPLES), &text).unwrap();

    // Without the index, or with a wrong one, the list is fetched.
    let missing = Server::with_faults(folder.path(), |request| {
        if request.path.ends_with(SAMPLES_INDEX) { Fault::Status(403) } else { Fault::None }
    });
    let dataset = Dataset::open(missing.url("out")).unwrap();
    assert_eq!(lines(&dataset), all);
    fs::write(out.join(SAMPLES_INDEX), b"anything").unwrap();
    assert_eq!(lines(&Dataset::open(server.url("out")).unwrap()), all);
}
