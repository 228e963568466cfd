//! Planted bottlenecks in a small dataset, on the CPU and over an emulated bus.

use std::cell::Cell;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hsipack_measure::diagnose::{
    Action, Diagnosis, Effort, Level, Limits, PackedOptions, Rounds, run,
};
use hsipack_measure::{Error, ErrorKind, Result};
use hsipack_pack::convert::{ConvertOptions, MaskOption, convert};
use hsipack_pack::progress::Progress;
use hsipack_read::augment::array::Buffer;
use hsipack_read::augment::{Array, Device, ElementType, Host, Pipeline};
use hsipack_read::plan::{Crop, Pad, Patches, Windows};
use hsipack_read::store::{Limited, Link, StoreKind};
use hsipack_read::{CacheKind, DeviceOptions, LoaderOptions, Normalization};

use crate::machine::{alone, waiting};

/// Rows, columns and bands of the cubes.
const SHAPE: [usize; 3] = [32, 24, 16];
const CUBES: usize = 12;
/// A step that takes much longer than everything that is not planted.
const STEP: Duration = Duration::from_millis(8);

fn dataset(folder: &Path) -> PathBuf {
    dataset_of(folder, SHAPE, CUBES)
}

fn dataset_of(folder: &Path, shape: [usize; 3], count: usize) -> PathBuf {
    packed(folder, shape, count, |_| {})
}

/// Packs cubes with the given options.
fn packed(
    folder: &Path,
    [rows, columns, bands]: [usize; 3],
    count: usize,
    set: impl FnOnce(&mut ConvertOptions),
) -> PathBuf {
    let cubes = folder.join("cubes");
    std::fs::create_dir(&cubes).unwrap();
    for cube in 0..count {
        let values = (0..rows * columns * bands).map(|index| ((index * 7 + cube) % 101) as f32);
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        let shape = format!("{rows}, {columns}, {bands}");
        write_npy(&cubes.join(format!("{cube:02}.npy")), "<f4", &shape, &bytes);
    }
    let packed = folder.join("packed.hsipack");
    let mut options = ConvertOptions::new(vec![cubes.to_str().unwrap().to_owned()], packed.clone());
    set(&mut options);
    convert(&options, &Progress::default(), &|_| {}).unwrap();
    packed
}

fn write_npy(path: &Path, kind: &str, shape: &str, values: &[u8]) {
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    header.push_str(&" ".repeat(117 - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(values);
    std::fs::write(path, bytes).unwrap();
}

fn options(path: &Path) -> PackedOptions {
    let mut loader = LoaderOptions::new(3);
    // Without a cache, so that reading and decoding are measured.
    loader.cache = hsipack_read::CacheKind::None;
    loader.threads = 2;
    PackedOptions {
        path: path.to_owned(),
        store: None,
        loader,
        device: DeviceOptions::new(Device::Cpu),
        pipeline: None,
        cold: false,
    }
}

const EFFORT: Effort = Effort {
    rounds: Rounds::new(3),
    time: Duration::from_millis(30),
    verify: false,
    limits: Limits { share: 0.05, spreads: 2.0 },
};
const VERIFY: Effort = Effort { verify: true, ..EFFORT };

/// Named masks.
type Masks = [(String, Array)];

fn diagnose(options: &PackedOptions, effort: Effort, step: Duration) -> Diagnosis {
    let mut message_count = 0;
    let stop = AtomicBool::new(false);
    let mut sleep = |image: &Array, _: &Masks| {
        assert_eq!(image.shape()[1], SHAPE[2], "bands");
        std::thread::sleep(step);
        Ok(())
    };
    let host = Host::default();
    let diagnosis = certain(|| {
        run(options, effort, &host, &mut sleep, &stop, &mut |_| message_count += 1).unwrap()
    });
    assert!(message_count >= effort.rounds.requested() * diagnosis.verdict.rows.len());
    diagnosis
}

/// The first of up to five diagnoses that calls itself certain. A busy machine may make rounds too
/// different for that.
fn certain(mut again: impl FnMut() -> Diagnosis) -> Diagnosis {
    let steady = |it: &Diagnosis| it.verified.as_ref().is_none_or(|verified| verified.steady);
    let mut diagnosis = again();
    for _ in 0..4 {
        if !(diagnosis.verdict.settled && steady(&diagnosis)) {
            diagnosis = again();
        }
    }
    diagnosis
}

fn bytes(samples: usize) -> f64 {
    (samples * SHAPE.iter().product::<usize>() * 2) as f64
}

#[test]
fn nobody_is_accused_where_the_step_dominates() {
    let _machine = waiting();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let options = PackedOptions { cold: true, ..options(&path) };
    // The disk is the machine's own, and may be slow: a few milliseconds for a batch.
    let step = 10 * STEP;
    let diagnosis = diagnose(&options, VERIFY, step);
    assert_eq!(diagnosis.verdict.culprit, None, "{}", diagnosis.text());
    let levels: Vec<Level> = diagnosis.verdict.rows.iter().map(|row| row.level).collect();
    let real = [Level::Collate, Level::Decode, Level::Read, Level::Cold];
    let all = [&[Level::Step, Level::Prepare][..], &real].concat();
    assert_eq!(levels, all);
    assert!(diagnosis.remedy.is_none() && diagnosis.verified.is_none());
    let statistics = diagnosis.statistics.unwrap();
    assert!(
        statistics.times.load_s.count > 0
            && statistics.times.step_s.quantile(0.5) >= step.as_secs_f64()
    );
}

#[test]
fn a_slow_disk_is_named_and_memory_helps_as_predicted() {
    let _machine = waiting();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let shards = path.join("32x24x16/image/c");
    let stored: u64 = walk(&shards).iter().map(|file| file.metadata().unwrap().len()).sum();
    // Reading a batch takes three steps.
    let rate = stored as f64 / (CUBES / 3) as f64 / (3.0 * STEP.as_secs_f64());
    let store = Limited::new(StoreKind::Pread.store(), Link::of_rate(rate as u64), 0);
    let options = PackedOptions { store: Some(Arc::new(store)), ..options(&path) };
    let diagnosis = diagnose(&options, VERIFY, STEP);
    let text = diagnosis.text();
    assert_eq!(diagnosis.verdict.culprit, Some(Level::Read), "{text}");
    assert!(text.contains("cache=compressed"), "{text}");
    assert!(diagnosis.verified.unwrap().gain > 1.5, "{text}");
}

#[test]
fn a_slow_copy_is_named_and_crops_help() {
    let _machine = waiting();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let mut options = options(&path);
    options.device.emulated_bus = Some(bytes(3) / (4.0 * STEP.as_secs_f64()));
    let diagnosis = diagnose(&options, VERIFY, STEP);
    let text = diagnosis.text();
    assert_eq!(diagnosis.verdict.culprit, Some(Level::Copy), "{text}");
    let remedy = diagnosis.remedy.unwrap();
    assert_eq!(remedy.action, Action::Crop { pixels: [16, 24] });
    assert!((remedy.predicted_gain.unwrap() - 2.0).abs() < 0.3, "{text}");
    assert!(diagnosis.verified.unwrap().gain > 1.4, "{text}");
}

#[test]
fn slow_normalisation_is_named() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let mut options = options(&path);
    options.device.image = ElementType::F32;
    options.device.normalization = Normalization::Snv;
    // Nothing but this is in the way of the batches.
    (options.loader.cache, options.loader.cache_bytes) = (CacheKind::Decoded, u64::MAX);
    let diagnosis = diagnose(&options, EFFORT, Duration::ZERO);
    let text = diagnosis.text();
    assert_eq!(diagnosis.verdict.culprit, Some(Level::Prepare), "{text}");
    let row = diagnosis.verdict.row(Level::Prepare).unwrap();
    assert!(row.cost_s > 0.5 * diagnosis.verdict.real_s(), "{text}");
    assert!(text.contains("if spectra are normalised"), "{text}");
}

#[test]
fn slow_augmentation_is_named_with_its_dearest_part() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    // Smoothing the elastic fields takes many times as long as decoding these cubes.
    let pipeline =
        r#"[{"op": "hflip", "p": 1.0}, {"op": "elastic", "p": 1.0, "kernel": [101, 101]}]"#;
    let pipeline = Some(Pipeline::from_json(pipeline).unwrap());
    let options = PackedOptions { pipeline, ..options(&path) };
    let diagnosis = diagnose(&options, EFFORT, Duration::ZERO);
    let text = diagnosis.text();
    assert_eq!(diagnosis.verdict.culprit, Some(Level::Augment), "{text}");
    let costs = &diagnosis.facts.augmentations;
    assert!(costs[1].without_s < costs[0].without_s, "{text}");
}

#[test]
fn it_stops_when_told_and_passes_the_steps_error_on() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let options = options(&path);
    let host = Host::new(1);
    let mut none = |_: &Array, _: &Masks| Ok(());
    let stop = AtomicBool::new(true);
    let error = run(&options, EFFORT, &host, &mut none, &stop, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    let go_on = AtomicBool::new(false);
    let mut fails = |_: &Array, _: &Masks| -> Result<()> { Err(Error::conflict("out of luck")) };
    let error = run(&options, EFFORT, &host, &mut fails, &go_on, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("out of luck"), "{error}");
    let mut wrong = options.clone();
    wrong.loader.splits = vec!["test".to_owned()];
    let error = run(&wrong, EFFORT, &host, &mut none, &go_on, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("no sample is in split 'test'"), "{error}");
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn rounds_that_differ_are_followed_by_more_up_to_a_bound() {
    let _machine = waiting();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let effort = Effort { time: Duration::ZERO, ..EFFORT };
    let mut steps = 0;
    // Each step takes longer than the one before.
    let mut slower = |_: &Array, _: &Masks| {
        steps += 1;
        std::thread::sleep(Duration::from_micros(300 * steps));
        Ok(())
    };
    let mut messages = Vec::new();
    let stop = AtomicBool::new(false);
    let (options, host) = (options(&path), Host::new(1));
    let tell = &mut |what: &str| messages.push(what.to_owned());
    let diagnosis = run(&options, effort, &host, &mut slower, &stop, tell);
    let verdict = diagnosis.unwrap().verdict;
    assert!(!verdict.settled);
    assert!(
        verdict.rows.iter().all(|row| row.rounds == Rounds::MAX_FACTOR * effort.rounds.requested())
    );
    assert_eq!(messages.first().unwrap(), "round 1 of 3: the training step");
    assert_eq!(messages.last().unwrap(), "round 9, to be sure: reading files");
}

#[test]
fn the_kept_batch_is_augmented_into_memory_that_is_used_again_as_a_loaders_batches_are() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    // Batches large enough that the loader keeps their memory.
    let path = dataset_of(folder.path(), [160, 160, 60], 3);
    let pipeline = Some(Pipeline::from_json(r#"[{"op": "hflip", "p": 1.0}]"#).unwrap());
    let options = PackedOptions { pipeline, ..options(&path) };
    let effort = Effort { time: Duration::ZERO, ..EFFORT };
    let (augmenting, mut places, mut others) = (Cell::new(false), Vec::new(), Vec::new());
    let mut step = |image: &Array, _: &Masks| {
        if augmenting.get() {
            places.push(image.address() as usize);
            // Takes the memory that was returned to the system, so that new memory is elsewhere.
            others.push(Buffer::zeroed(image.memory().bytes())?);
        }
        Ok(())
    };
    let mut tell = |what: &str| augmenting.set(what.ends_with(Level::Augment.adds()));
    let (stop, host) = (AtomicBool::new(false), Host::new(2));
    run(&options, effort, &host, &mut step, &stop, &mut tell).unwrap();
    let batches = places.len();
    places.sort_unstable();
    places.dedup();
    assert!(batches >= 12 && places.len() <= 3, "{} places of {batches} batches", places.len());
}

#[test]
fn windows_around_labels_come_of_cubes_that_have_some_and_the_default_is_what_helps() {
    let _machine = waiting();
    let folder = tempfile::tempdir().unwrap();
    let path = labelled(folder.path());
    let mut options = options(&path);
    // Each window reads its chunk: three steps for those of a batch.
    let shards = walk(&path.join("32x24x16/image/c"));
    let stored: u64 = shards.iter().map(|file| file.metadata().unwrap().len()).sum();
    let rate = 64.0 * stored as f64 / CUBES as f64 / (3.0 * STEP.as_secs_f64());
    let store = Limited::new(StoreKind::Pread.store(), Link::of_rate(rate as u64), 0);
    options.store = Some(Arc::new(store));
    options.loader.plan.batch_size = 64;
    options.loader.patches = Some(("classes".into(), Patches::new(3, 3)));
    let effort = Effort { time: Duration::from_millis(5), ..VERIFY };
    let mut shapes = HashSet::new();
    let mut step = |image: &Array, _: &Masks| {
        shapes.insert(image.shape().to_vec());
        Ok(())
    };
    let (stop, host) = (AtomicBool::new(false), Host::default());
    let diagnosis =
        certain(|| run(&options, effort, &host, &mut step, &stop, &mut |_| {}).unwrap());
    let text = diagnosis.text();
    assert_eq!(shapes, HashSet::from([vec![64, SHAPE[2], 3, 3]]), "whole batches");
    let window = diagnosis.facts.window.unwrap();
    assert_eq!((window.rows, window.bytes), (3, 9 * 16 * 2), "{text}");
    assert!(window.decoded > 100.0 && diagnosis.facts.pixels.is_none(), "{text}");
    assert_eq!(diagnosis.verdict.culprit, Some(Level::Read), "{text}");
    let remedy = diagnosis.remedy.unwrap();
    let kept = Action::Cache { cache: CacheKind::Auto, bytes: 6 * bytes(1) as u64 };
    assert_eq!(remedy.action, kept, "{text}");
    assert!(text.contains("cache=auto") && remedy.advice[0].starts_with("loaders keep"), "{text}");
    assert!(diagnosis.verified.unwrap().gain > 2.0, "{text}");
    // Without labels, there is nothing to read.
    options.loader.samples = Some(vec![1, 3]);
    let none = run(&options, effort, &host, &mut |_, _| Ok(()), &stop, &mut |_| {});
    let error = none.unwrap_err().to_string();
    assert!(error.contains("no pixel has one of the requested labels"), "{error}");
}

#[test]
fn listed_windows_of_other_samples_are_left_out() {
    let _machine = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = dataset(folder.path());
    let mut options = options(&path);
    let listed: Vec<_> = (0..CUBES * 100).map(|number| (number % CUBES, -1, 5)).collect();
    let windows = Windows::listed((4, 2), Pad::Reflect, &listed).unwrap();
    options.loader.plan.crop = Crop::Windows(windows.into());
    let effort = Effort { rounds: Rounds::new(1), time: Duration::ZERO, ..EFFORT };
    let (stop, host) = (AtomicBool::new(false), Host::new(1));
    let mut step = |image: &Array, _: &Masks| {
        assert_eq!(image.shape()[..], [3, SHAPE[2], 4, 2]);
        Ok(())
    };
    let diagnosis = run(&options, effort, &host, &mut step, &stop, &mut |_| {}).unwrap();
    assert_eq!(diagnosis.facts.window.unwrap().decoded, 100.0);
}

/// Cubes of one chunk each. Every second one has labels.
fn labelled(folder: &Path) -> PathBuf {
    let classes = folder.join("classes");
    std::fs::create_dir(&classes).unwrap();
    let [rows, columns, _] = SHAPE;
    for cube in 0..CUBES {
        let label = |pixel| ((pixel % 3) * ((cube + 1) % 2)) as u8;
        let labels: Vec<u8> = (0..rows * columns).map(label).collect();
        let shape = format!("{rows}, {columns}");
        write_npy(&classes.join(format!("{cube:02}.npy")), "|u1", &shape, &labels);
    }
    let pattern = format!("{}/{{stem}}.npy", classes.display());
    packed(folder, SHAPE, CUBES, |options| {
        options.mask = vec![MaskOption::new("classes", pattern)];
    })
}
