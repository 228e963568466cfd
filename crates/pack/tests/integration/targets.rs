//! Targets: floats for each pixel, packed beside the image.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use hsipack_format::ErrorKind;
use hsipack_pack::convert::parts::{self, Part, WorkOptions};
use hsipack_pack::convert::plan::Plan;
use hsipack_pack::convert::{Assignment, ConvertOptions, Mode, convert};
use hsipack_pack::info::DatasetReport;
use hsipack_pack::merge::{MergeOptions, merge};
use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_store::Dataset;

use crate::conversion::{content, cubes, options, pack};
use crate::packing::write_envi;

/// A value of the target `methane`, which is missing at every eleventh pixel.
fn value(number: usize, pixel: usize) -> f32 {
    if (pixel + number).is_multiple_of(11) {
        f32::NAN
    } else {
        (pixel * 7 + number) as f32 * 1e3 + 0.1
    }
}

/// Cubes of two shapes, a target of one channel and one of three, and a folder for the results.
fn folders(count: usize) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [inputs, targets, outputs] = ["in", "targets", "made"].map(|name| folder.path().join(name));
    for folder in [&inputs, &targets, &outputs] {
        std::fs::create_dir(folder).unwrap();
    }
    cubes(&inputs, count, 2);
    for number in 0..count + 2 {
        let rows = if number < count { 6 } else { 3 };
        for (name, channels) in [("methane", 1), ("shares", 3)] {
            let values = (0..rows * 5 * channels).map(|pixel| value(number, pixel));
            let file = format!("cube{number:03}_{name}");
            let unit = "data units = ppm m\nband names = {a, b, c}\n";
            let more = if channels == 1 { "" } else { unit };
            write_envi(&targets, &file, [rows, 5, channels], &values.collect::<Vec<_>>(), more);
        }
    }
    (folder, inputs, outputs)
}

fn target(name: &str) -> Assignment {
    let value = format!("{{dir}}/../targets/{{stem}}_{name}.hdr");
    Assignment { name: name.to_owned(), value }
}

fn with_targets(inputs: &Path, out: &Path) -> ConvertOptions {
    let target = vec![target("shares"), target("methane")];
    ConvertOptions { target, ..options(inputs, out) }
}

fn floats(dataset: &Dataset, stack: &str, name: &str, index: usize) -> Vec<u32> {
    let array = dataset.stack(stack).unwrap().target(name).unwrap();
    let mut bytes = vec![0; array.sample_bytes()];
    array.read_sample(index, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|value| u32::from_le_bytes(*value)).collect()
}

fn check(dataset: &Path, source: bool) -> hsipack_pack::validate::Report {
    let options = ValidateOptions { source, ..ValidateOptions::default() };
    validate(dataset, &options, &Progress::default()).unwrap()
}

#[test]
fn targets_are_packed_bit_for_bit() {
    let (_folder, inputs, outputs) = folders(5);
    let out = outputs.join("out");
    let report = pack(&with_targets(&inputs, &out));
    assert_eq!(report.stacks[0].targets, ["methane", "shares"]);
    let dataset = Dataset::open(&out).unwrap();
    for (stack, first, count, rows) in [("6x5x4", 0, 5, 6), ("3x5x4", 5, 2, 3)] {
        for index in 0..count {
            for (name, channels) in [("methane", 1), ("shares", 3)] {
                let want = (0..rows * 5 * channels).map(|pixel| value(first + index, pixel));
                let want: Vec<u32> = want.map(f32::to_bits).collect();
                assert_eq!(floats(&dataset, stack, name, index), want, "{stack} {name} {index}");
            }
        }
    }
    let target = dataset.stacks()[0].target("shares").unwrap();
    let meaning = target.meta().companion_meaning().unwrap();
    assert_eq!(meaning.band_names.unwrap(), ["a", "b", "c"]);
    let report = DatasetReport::new(&dataset).unwrap();
    assert_eq!((report.stacks[0].targets.len(), report.stacks[0].targets[1].channels), (2, 3));
    let checked = check(&out, true);
    assert!(checked.ok && checked.sources == 7, "{checked:?}");
    // Three arrays beside the image, each with chunks of four rows.
    assert_eq!(checked.chunks, 5 * 4 * 2 + 2 * 4);
}

#[test]
fn other_values_in_the_file_of_a_target_are_found() {
    let (folder, inputs, outputs) = folders(3);
    let out = outputs.join("out");
    pack(&with_targets(&inputs, &out));
    let file = folder.path().join("targets/cube001_shares.img");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4 * (3 * 7 + 2) + 1] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let report = check(&out, true);
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    let what = &report.problems[0].what;
    assert!(what.starts_with("target shares: row 1, column 2, channel 2: "), "{what}");
}

#[test]
fn damaged_targets_are_repaired() {
    let (_folder, inputs, outputs) = folders(4);
    let out = outputs.join("out");
    pack(&with_targets(&inputs, &out));
    let before = content(&out);
    let shard = out.join("6x5x4/shares/c/0/0/0/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&shard, &bytes).unwrap();
    std::fs::remove_file(out.join("3x5x4/methane/c/0/0/0")).unwrap();
    let report = check(&out, false);
    let damaged: Vec<_> =
        report.problems.iter().filter_map(|problem| problem.array.as_deref()).collect();
    assert!(damaged.contains(&"shares") && damaged.contains(&"methane"), "{report:?}");
    let mended = repair(&out, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(mended.remaining.is_empty() && mended.failed.is_empty(), "{mended:?}");
    assert_eq!(content(&out), before);
}

#[test]
fn appends_parts_and_resumed_conversions_give_the_same_dataset() {
    let (_folder, inputs, outputs) = folders(7);
    let whole = outputs.join("whole");
    pack(&with_targets(&inputs, &whole));
    let want = content(&whole);

    // In parts.
    let (out, file) = (outputs.join("parts"), outputs.join("plan.json"));
    let options = with_targets(&inputs, &out);
    parts::plan(&options, &file, &Progress::default(), &|_| {}).unwrap();
    for number in [2, 1, 3] {
        let part = Part::new(number, 3).unwrap();
        let work = WorkOptions { threads: 1, ..WorkOptions::new(part) };
        parts::work(&file, &work, &Progress::default(), &|_| {}).unwrap();
    }
    parts::commit(&file, false).unwrap();
    assert_eq!(content(&out), want);

    // Stopped after some cubes, and resumed.
    let out = outputs.join("resumed");
    let options = ConvertOptions { threads: 1, ..with_targets(&inputs, &out) };
    let progress = Progress::default();
    let stop = |_: &Plan| progress.stop.store(true, Ordering::Relaxed);
    let error = convert(&options, &progress, &stop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    let resume = ConvertOptions { mode: Mode::RESUME, ..options };
    let other = ConvertOptions { target: vec![target("shares")], ..resume.clone() };
    let error = convert(&other, &Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("pass the same target"), "{error}");
    pack(&resume);
    assert_eq!(content(&out), want);

    // A target that changed since the plan.
    let (out, file) = (outputs.join("changed"), outputs.join("changed.json"));
    parts::plan(&with_targets(&inputs, &out), &file, &Progress::default(), &|_| {}).unwrap();
    let changed = inputs.join("../targets/cube002_methane.img");
    let mut bytes = std::fs::read(&changed).unwrap();
    bytes[1] ^= 1;
    std::fs::write(&changed, bytes).unwrap();
    let work = WorkOptions::new(Part::new(1, 1).unwrap());
    let error = parts::work(&file, &work, &Progress::default(), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("changed since the conversion was planned"), "{error}");
}

#[test]
fn cubes_are_appended_with_the_targets_of_the_dataset() {
    let (_folder, inputs, outputs) = folders(5);
    let only = |out: &Path, which: &[usize]| {
        let name = |number: &usize| inputs.join(format!("cube{number:03}.hdr"));
        let inputs = which.iter().map(|number| name(number).display().to_string());
        ConvertOptions { inputs: inputs.collect(), ..with_targets(&inputs_of(out), out) }
    };
    fn inputs_of(out: &Path) -> PathBuf {
        out.join("../../in")
    }
    let (out, whole) = (outputs.join("out"), outputs.join("whole"));
    pack(&only(&out, &[0, 1]));
    pack(&ConvertOptions { mode: Mode::APPEND, ..only(&out, &[2, 3, 4]) });
    pack(&only(&whole, &[0, 1, 2, 3, 4]));
    let shards = |path: &Path| {
        let mut files = content(path);
        files.retain(|path, _| {
            path.starts_with("6x5x4/shares/c") || path.starts_with("6x5x4/methane/c")
        });
        files
    };
    assert_eq!(shards(&out), shards(&whole));
    assert!(check(&out, true).ok);
    let before = content(&out);
    for (target, what) in [
        (vec![target("shares")], "the dataset has the targets [\"methane\", \"shares\"]"),
        (Vec::new(), "but [] are given"),
    ] {
        let options = ConvertOptions { mode: Mode::APPEND, target, ..only(&out, &[5]) };
        // The other shape has no stack yet, so its cubes may have any targets: this one has the shape of the dataset.
        let inputs = vec![inputs_of(&out).join("cube004.hdr").display().to_string()];
        let options = ConvertOptions { inputs, name: Some("again".to_owned()), ..options };
        let error = convert(&options, &Progress::default(), &|_| {}).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    assert_eq!(content(&out), before);
}

#[test]
fn merged_datasets_keep_their_targets() {
    let (_folder, inputs, outputs) = folders(4);
    let [first, second, both] = ["one", "other", "both"].map(|name| outputs.join(name));
    pack(&with_targets(&inputs, &first));
    let name = Some("plain {stem}".to_owned());
    pack(&ConvertOptions { name, ..options(&inputs, &second) });
    let merging = MergeOptions {
        datasets: vec![first.clone(), second],
        output: both.clone(),
        ..MergeOptions::default()
    };
    merge(&merging, &Progress::default()).unwrap();
    let (before, merged) = (Dataset::open(&first).unwrap(), Dataset::open(&both).unwrap());
    for index in 0..4 {
        let of = |dataset| floats(dataset, "6x5x4", "shares", index);
        assert_eq!(of(&merged), of(&before));
        let missing = floats(&merged, "6x5x4", "shares", index + 4);
        assert!(missing.iter().all(|bits| f32::from_bits(*bits).is_nan()));
    }
    assert!(check(&both, false).ok);
}

#[test]
fn targets_that_do_not_fit_are_refused_before_anything_is_written() {
    let (folder, inputs, outputs) = folders(3);
    let out = outputs.join("out");
    let targets = folder.path().join("targets");
    write_envi(&targets, "cube002_shares", [6, 5, 2], &[0.5; 60], "");
    write_envi(&targets, "cube001_small", [5, 6, 1], &[0.5; 30], "");
    for number in [0, 2, 3, 4] {
        let rows = if number < 3 { 6 } else { 3 };
        write_envi(
            &targets,
            &format!("cube{number:03}_small"),
            [rows, 5, 1],
            &vec![0.5; rows * 5],
            "",
        );
    }
    for (target, what) in [
        (target("shares"), "its target \"shares\" has 2 channels, but 3 in other cubes"),
        (target("small"), "has 5x6 pixels, but its cube"),
        (target("none"), "its target \"none\" is missing: there is no"),
        (
            Assignment { name: "wavelength".to_owned(), ..target("shares") },
            "cannot be the name of a target",
        ),
        (
            Assignment { name: "mask".to_owned(), ..target("shares") },
            "a mask and a target are named mask",
        ),
    ] {
        let options = ConvertOptions { target: vec![target], ..options(&inputs, &out) };
        let error = convert(&options, &Progress::default(), &|_| {}).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.remedy().is_some(), "{error}");
        assert_eq!(std::fs::read_dir(&outputs).unwrap().count(), 0, "{error}");
    }
}

#[test]
fn a_dataset_without_targets_is_packed_as_before() {
    let (_folder, inputs, outputs) = folders(3);
    let out = outputs.join("out");
    pack(&options(&inputs, &out));
    let root = std::fs::read_to_string(out.join("zarr.json")).unwrap();
    assert!(!root.contains("target"), "{root}");
}
