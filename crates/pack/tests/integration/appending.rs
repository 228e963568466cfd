//! Appends beside readers: a reader that opens sees the old or the new dataset; one that has it
//! open continues.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use half::f16;
use hsipack_format::{Result, Sample};
use hsipack_pack::convert::{self, ConvertOptions, Mode};
use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_store::Dataset;
use hsipack_store::dataset::ChunkArray;

use crate::conversion::{cubes, options, pack};

/// All cubes, and those in the dataset before the first append.
const ALL: usize = 16;
const FIRST: usize = 2;

/// A folder of cubes, and next to it the dataset of the first ones.
fn begun(folder: &Path) -> std::path::PathBuf {
    cubes(folder, ALL, 0);
    let out = folder.join("out");
    pack(&ConvertOptions { inputs: inputs(folder, 0..FIRST), ..options(folder, &out) });
    out
}

fn inputs(folder: &Path, which: std::ops::Range<usize>) -> Vec<String> {
    which.map(|number| folder.join(format!("cube{number:03}.hdr")).display().to_string()).collect()
}

fn append(folder: &Path, out: &Path, which: std::ops::Range<usize>) -> Result<convert::Report> {
    let options = ConvertOptions {
        inputs: inputs(folder, which),
        mode: Mode::APPEND,
        ..options(folder, out)
    };
    convert::convert(&options, &Progress::default(), &|_| {})
}

/// Reads every sample of a stack, keeping nothing open, and compares it with the packed values.
fn check_values(dataset: &Dataset) {
    let stack = &dataset.stacks()[0];
    assert_eq!(stack.image.len(), dataset.samples().len());
    for number in 0..stack.image.len() {
        let image: Vec<u8> = read(&stack.image, number);
        let want = (0..6 * 5 * 4).map(|i| (i as f32 * 0.37 + number as f32).sin() * 3.0 + 4.0);
        let want: Vec<u8> = want.flat_map(|value| f16::from_f32(value).to_le_bytes()).collect();
        assert!(image == want, "sample {number} has other values");
        let mask = read(&stack.masks[0], number);
        assert!(mask.iter().enumerate().all(|(i, id)| usize::from(*id) == (i + number) % 3));
    }
}

/// The complete records of a dataset's samples.
pub fn lines(dataset: &Dataset) -> Vec<Sample> {
    dataset
        .samples()
        .iter()
        .map(|sample| sample.unwrap_or_else(|error| panic!("{error}")))
        .collect()
}

fn read(array: &ChunkArray, index: usize) -> Vec<u8> {
    let mut values = vec![0; array.sample_bytes()];
    array.read_sample(index, &mut values).unwrap_or_else(|error| panic!("{error}"));
    values
}

#[test]
fn whoever_opens_and_reads_while_cubes_are_appended_never_sees_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = begun(folder.path());
    let done = AtomicBool::new(false);
    let before = Dataset::open(&out).unwrap();
    std::thread::scope(|scope| {
        // Ends the other threads, however this thread ends.
        struct End<'a>(&'a AtomicBool);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        scope.spawn(|| {
            let _end = End(&done);
            for number in FIRST..ALL {
                append(folder.path(), &out, number..number + 1).unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = FIRST;
                while !done.load(Ordering::Relaxed) {
                    let dataset = Dataset::open(&out).unwrap_or_else(|error| panic!("{error}"));
                    assert!(dataset.samples().len() >= last, "samples went away");
                    last = dataset.samples().len();
                    check_values(&dataset);
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let options = ValidateOptions { threads: 2, ..ValidateOptions::default() };
                let report = validate(&out, &options, &Progress::default());
                let report = report.unwrap_or_else(|error| panic!("{error}"));
                assert!(report.ok, "{:?}", report.problems);
            }
        });
    });
    // Its folder has been replaced long ago.
    assert_eq!(before.samples().len(), FIRST);
    check_values(&before);
    check_values(&Dataset::open(&out).unwrap());
    assert_eq!(Dataset::open(&out).unwrap().samples().len(), ALL);
}

#[test]
fn a_dataset_can_be_opened_as_it_was_before_appends() {
    let folder = tempfile::tempdir().unwrap();
    let out = begun(folder.path());
    let before = Dataset::open(&out).unwrap();
    append(folder.path(), &out, FIRST..5).unwrap();
    let between = Dataset::open(&out).unwrap();
    append(folder.path(), &out, 5..9).unwrap();
    for earlier in [&before, &between] {
        let now = Dataset::open(&out).unwrap();
        let now = now.as_it_was(earlier.fingerprint()).unwrap().unwrap();
        assert_eq!(lines(&now), lines(earlier));
        assert_eq!(now.fingerprint(), earlier.fingerprint());
        check_values(&now);
    }
    assert!(Dataset::open(&out).unwrap().as_it_was("another's").unwrap().is_none());
}

#[test]
fn another_dataset_at_the_same_place_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = begun(folder.path());
    let open = Dataset::open(&out).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    let image = &open.stacks()[0].image;
    let error = image.read_sample(0, &mut vec![0; image.sample_bytes()]).unwrap_err();
    assert!(error.what().contains("removed"), "{error}");
    pack(&ConvertOptions { inputs: inputs(folder.path(), 3..9), ..options(folder.path(), &out) });
    let error = image.read_sample(0, &mut vec![0; image.sample_bytes()]).unwrap_err();
    assert!(error.what().contains("replaced"), "{error}");
}

#[test]
fn one_writes_at_a_time_and_the_others_are_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = begun(folder.path());
    // The lock of a running conversion.
    let partial = hsipack_store::folder::partial(&out);
    std::fs::create_dir(&partial).unwrap();
    std::fs::write(partial.join("plan.json"), "{\"plan\": \"x\", \"append\": true}").unwrap();
    let lock = std::fs::File::create(partial.join("lock")).unwrap();
    lock.lock().unwrap();
    let error = append(folder.path(), &out, FIRST..3).unwrap_err();
    assert!(error.what().contains("another hsipack is writing here"), "{error}");
    let other = folder.path().join("other");
    let shard = out.join("6x5x4/image/c/0/0/0/0");
    let sound = std::fs::read(&shard).unwrap();
    let mut bytes = sound.clone();
    bytes[3] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    let mend = || repair(&out, &ValidateOptions::default(), &Progress::default());
    let error = mend().unwrap_err();
    assert!(error.what().contains("another hsipack is writing here"), "{error}");
    // After a kill, nobody holds the lock, and the conversion can be resumed.
    drop(lock);
    let error = append(folder.path(), &out, FIRST..3).unwrap_err();
    assert!(error.what().contains("there is an unfinished conversion here"), "{error}");
    std::fs::remove_dir_all(&partial).unwrap();
    assert_eq!(mend().unwrap().repaired_chunks, 1);
    assert_eq!(std::fs::read(&shard).unwrap(), sound);
    assert!(!partial.exists() && !other.exists());
    append(folder.path(), &out, FIRST..3).unwrap();
    assert!(!partial.exists());
}
