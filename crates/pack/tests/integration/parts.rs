//! Conversions in parts: the dataset is the same as from one process, whichever workers wrote the
//! parts, in whatever order, and even if they died or wrote a part twice. A commit accepts only
//! complete receipts of its plan.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use hsipack_format::{ErrorKind, Result};
use hsipack_pack::convert::parts::{self, Part, State, WorkOptions, WorkReport};
use hsipack_pack::convert::{self, ConvertOptions, Mode};
use hsipack_pack::progress::Progress;
use hsipack_store::Dataset;
use hsipack_testing::bucket::Bucket;

use crate::conversion::{content, cubes, options, pack};
use crate::servers::{bucket, heal, intact, kill_at, objects};

/// A folder with cubes of two shapes and their masks, and a folder for the results.
fn folders(count: usize) -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [inputs, outputs] = ["in", "made"].map(|name| folder.path().join(name));
    std::fs::create_dir(&inputs).unwrap();
    std::fs::create_dir(&outputs).unwrap();
    cubes(&inputs, count, 4);
    (folder, inputs, outputs)
}

fn plan(options: &ConvertOptions, file: &Path) -> Result<parts::Planned> {
    parts::plan(options, file, &Progress::default(), &|_| {})
}

fn work(file: &Path, part: Part) -> Result<WorkReport> {
    let options = WorkOptions { threads: 1, ..WorkOptions::new(part) };
    parts::work(file, &options, &Progress::default(), &|_| {})
}

fn commit(file: &Path) -> Result<convert::Report> {
    parts::commit(file, false)
}

fn part(number: usize, of: usize) -> Part {
    Part::new(number, of).unwrap()
}

/// The options, restricted to the cubes `which`.
fn only(all: &ConvertOptions, folder: &Path, which: std::ops::Range<usize>) -> ConvertOptions {
    let name = |number| folder.join(format!("cube{number:03}.hdr")).display().to_string();
    ConvertOptions { inputs: which.map(name).collect(), ..all.clone() }
}

#[test]
fn any_number_of_parts_in_any_order_is_the_conversion() {
    let (_folder, inputs, outputs) = folders(13);
    let whole = outputs.join("whole");
    pack(&options(&inputs, &whole));
    for (of, order) in
        [(1, vec![1]), (2, vec![2, 1]), (5, vec![3, 5, 1, 4, 2, 4]), (16, (1..=16).rev().collect())]
    {
        let [out, file] = ["out", "plan.json"].map(|name| outputs.join(format!("{of}-{name}")));
        let planned = plan(&options(&inputs, &out), &file).unwrap();
        assert_eq!((planned.cubes, planned.shards, planned.already_complete), (17, 6, false));
        assert!(!out.exists());
        let look = parts::state(&file, false).unwrap();
        assert_eq!(look().unwrap(), State { shards: 6, done: 0, committed: false });
        let mut written = 0;
        for number in order {
            let report = work(&file, part(number, of)).unwrap();
            written += report.written;
            assert_eq!(report.left, 6 - written);
            assert_eq!(look().unwrap().done, written);
        }
        assert_eq!(written, 6);
        assert!(!out.exists());
        let report = commit(&file).unwrap();
        assert_eq!((report.cubes, report.already_complete), (17, false));
        assert!(content(&out) == content(&whole), "{of} parts");
        assert_eq!(look().unwrap(), State { shards: 6, done: 6, committed: true });
        assert!(!outputs.join(format!("{of}-out.partial")).exists());
        // Working on everything again does nothing.
        assert!(work(&file, Part::WHOLE).unwrap().already_complete);
        assert!(commit(&file).unwrap().already_complete);
        let resumed = ConvertOptions { mode: Mode::RESUME, ..options(&inputs, &out) };
        assert!(plan(&resumed, &file).unwrap().already_complete);
    }
}

#[test]
fn appended_parts_are_the_append() {
    let (_folder, inputs, outputs) = folders(11);
    let [whole, out, file] = ["whole", "out", "plan.json"].map(|name| outputs.join(name));
    for path in [&whole, &out] {
        pack(&only(&options(&inputs, path), &inputs, 0..4));
    }
    let append = |out: &Path| ConvertOptions {
        mode: Mode::APPEND,
        ..only(&options(&inputs, out), &inputs, 4..14)
    };
    pack(&append(&whole));
    plan(&append(&out), &file).unwrap();
    for number in [2, 3, 1] {
        work(&file, part(number, 3)).unwrap();
        assert_eq!(Dataset::open(&out).unwrap().samples().len(), 4);
    }
    commit(&file).unwrap();
    assert!(content(&out) == content(&whole));
    assert!(commit(&file).unwrap().already_complete);
}

#[test]
fn a_dataset_that_changed_since_is_not_appended_to() {
    let (_folder, inputs, outputs) = folders(11);
    let [out, file] = ["out", "plan.json"].map(|name| outputs.join(name));
    let all = options(&inputs, &out);
    pack(&only(&all, &inputs, 0..4));
    let append = |which| ConvertOptions { mode: Mode::APPEND, ..only(&all, &inputs, which) };
    plan(&append(4..6), &file).unwrap();
    work(&file, Part::WHOLE).unwrap();
    // Someone deletes the folder, and appends something else.
    let partial = outputs.join("out.partial");
    let kept = outputs.join("kept");
    let look = parts::state(&file, false).unwrap();
    assert_eq!(look().unwrap().done, 1);
    std::fs::rename(&partial, &kept).unwrap();
    pack(&append(6..8));
    // A discarded conversion is reported.
    assert!(look().unwrap_err().what().contains("no conversion was begun here"));
    let error = work(&file, Part::WHOLE).unwrap_err();
    assert!(error.what().contains("no conversion was begun here"), "{error}");
    std::fs::rename(&kept, &partial).unwrap();
    for error in [work(&file, Part::WHOLE).unwrap_err(), commit(&file).unwrap_err()] {
        assert!(error.what().contains("has changed since the plan"), "{error}");
    }
    assert_eq!(intact(&out), Some(6));
}

/// The files at the output and next to it.
fn all_of(folder: &Path) -> impl PartialEq + std::fmt::Debug {
    content(folder)
}

#[test]
fn a_receipt_that_is_missing_foreign_stale_or_damaged_is_named_and_nothing_is_changed() {
    let (_folder, inputs, outputs) = folders(13);
    let [whole, out, file] = ["whole", "out", "plan.json"].map(|name| outputs.join(name));
    pack(&options(&inputs, &whole));
    let stale = {
        plan(&ConvertOptions { mask_fill: Some(3), ..options(&inputs, &out) }, &file).unwrap();
        work(&file, Part::WHOLE).unwrap();
        let state = outputs.join("out.partial/state/6x5x4/2.json");
        let receipt = std::fs::read(state).unwrap();
        std::fs::remove_dir_all(outputs.join("out.partial")).unwrap();
        receipt
    };
    plan(&options(&inputs, &out), &file).unwrap();
    work(&file, part(1, 2)).unwrap();
    let refused = |kind: ErrorKind, words: &[&str]| {
        let before = all_of(&outputs);
        let error = commit(&file).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(all_of(&outputs) == before);
        assert!(!out.exists());
    };
    refused(
        ErrorKind::Conflict,
        &["3 of 6 shards have no receipt: 0 of 6x5x4, 2 of 6x5x4, 4 of 6x5x4"],
    );
    work(&file, part(2, 2)).unwrap();
    let receipt = outputs.join("out.partial/state/6x5x4/2.json");
    let good = std::fs::read(&receipt).unwrap();
    let mut flipped = good.clone();
    flipped[200] ^= 1;
    let other = std::fs::read(outputs.join("out.partial/state/6x5x4/1.json")).unwrap();
    for (bytes, kind, words) in [
        (stale, ErrorKind::Conflict, "the receipt of shard 2 of 6x5x4 belongs to another plan"),
        (flipped, ErrorKind::Damaged, "the receipt of shard 2 of 6x5x4 is damaged"),
        (good[..100].to_vec(), ErrorKind::Damaged, "the receipt of shard 2 of 6x5x4 is damaged"),
        (other, ErrorKind::Conflict, "the receipt of shard 2 of 6x5x4 belongs to another shard"),
    ] {
        std::fs::write(&receipt, &bytes).unwrap();
        refused(kind, &[words, "2.json"]);
        // The next worker writes it again.
        assert_eq!(work(&file, Part::WHOLE).unwrap().written, 1);
        assert_eq!(std::fs::read(&receipt).unwrap(), good);
    }
    let shard = outputs.join("out.partial/dataset/6x5x4/image/c/2/0/0/0");
    let bytes = std::fs::read(&shard).unwrap();
    std::fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    refused(ErrorKind::Damaged, &["shard 2 of 6x5x4 has", "its receipt says", "c/2/0/0/0"]);
    std::fs::remove_file(&shard).unwrap();
    refused(ErrorKind::Damaged, &["shard 2 of 6x5x4 is missing"]);
    std::fs::remove_file(&receipt).unwrap();
    assert_eq!(work(&file, Part::WHOLE).unwrap().written, 1);
    commit(&file).unwrap();
    assert!(content(&out) == content(&whole));
}

#[test]
fn files_that_changed_since_they_were_planned_are_refused() {
    let (_folder, inputs, outputs) = folders(13);
    let [out, file] = ["out", "plan.json"].map(|name| outputs.join(name));
    plan(&options(&inputs, &out), &file).unwrap();
    let cube = std::fs::read(inputs.join("cube004.img")).unwrap();
    let other_cube = [&cube[..17], &[cube[17] ^ 1], &cube[18..]].concat();
    let other_mask = std::fs::read(inputs.join("cube005.png")).unwrap();
    for (file_name, named, other) in
        [("cube004.img", "cube004.hdr", other_cube), ("cube004.png", "cube004.png", other_mask)]
    {
        let path = inputs.join(file_name);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &other).unwrap();
        let text = work(&file, Part::WHOLE).unwrap_err().to_string();
        assert!(
            text.contains(named) && text.contains("changed since the conversion was planned"),
            "{text}"
        );
        // Finished shards stay, and the conversion continues when the file is as before.
        std::fs::write(&path, &whole).unwrap();
    }
    work(&file, Part::WHOLE).unwrap();
    commit(&file).unwrap();
    assert_eq!(intact(&out), Some(17));
}

#[test]
fn plans_that_are_damaged_or_of_another_version_are_refused() {
    let (_folder, inputs, outputs) = folders(5);
    let [out, file] = ["out", "plan.json"].map(|name| outputs.join(name));
    plan(&options(&inputs, &out), &file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let refused = |text: &str, words: &str| {
        std::fs::write(&file, text).unwrap();
        for error in [work(&file, Part::WHOLE).unwrap_err(), commit(&file).unwrap_err()] {
            assert!(error.to_string().contains(words), "{error}");
        }
    };
    refused(&text[..text.len() - 2], "changed or cut short");
    refused(&text.replace("cube001", "cube002"), "changed or cut short");
    refused("{}", "changed or cut short");
    let other = text.replace("hsipack 0.", "hsipack 9.");
    let content = &other[other.find("\"content\":").unwrap() + 10..other.len() - 2];
    let hash = hsipack_format::checksums::sha256(content.as_bytes());
    refused(&format!("{{\"sha256\":\"{hash}\",\"content\":{content}}}\n"), "wrote this plan");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(work(&file, Part::WHOLE).unwrap_err().kind(), ErrorKind::Io);
    std::fs::write(&file, &text).unwrap();
    work(&file, Part::WHOLE).unwrap();
    commit(&file).unwrap();
}

#[test]
fn a_plan_has_no_progress_of_another_one_for_its_output() {
    let (_folder, inputs, outputs) = folders(13);
    let [out, old, new] = ["out", "old.json", "new.json"].map(|name| outputs.join(name));
    plan(&options(&inputs, &out), &old).unwrap();
    std::fs::remove_dir_all(outputs.join("out.partial")).unwrap();
    plan(&only(&options(&inputs, &out), &inputs, 0..12), &new).unwrap();
    work(&new, part(1, 2)).unwrap();
    let look = parts::state(&old, false).unwrap();
    let error = look().unwrap_err().to_string();
    assert!(error.contains("another conversion than the planned one was begun here"), "{error}");
    assert!(error.contains("out.partial"), "{error}");
    work(&new, Part::WHOLE).unwrap();
    commit(&new).unwrap();
    assert!(look().unwrap_err().what().contains("no conversion was begun here"));
    // A plan that is complete stays complete while cubes are appended.
    let append =
        ConvertOptions { mode: Mode::APPEND, ..only(&options(&inputs, &out), &inputs, 12..13) };
    plan(&append, &old).unwrap();
    let State { done, shards, committed } = parts::state(&new, false).unwrap()().unwrap();
    assert!(done == shards && committed);
}

#[test]
fn one_process_may_go_on_with_what_several_began() {
    let (_folder, inputs, outputs) = folders(13);
    let [whole, out, file] = ["whole", "out", "plan.json"].map(|name| outputs.join(name));
    pack(&options(&inputs, &whole));
    plan(&options(&inputs, &out), &file).unwrap();
    // Another conversion cannot begin there.
    let error =
        convert::convert(&options(&inputs, &out), &Progress::default(), &|_| {}).unwrap_err();
    assert!(error.what().contains("there is an unfinished conversion here"), "{error}");
    let error = plan(&options(&inputs, &out), &outputs.join("another.json")).unwrap_err();
    assert!(error.what().contains("there is an unfinished conversion here"), "{error}");
    work(&file, part(2, 4)).unwrap();
    let resumed = ConvertOptions { mode: Mode::RESUME, ..options(&inputs, &out) };
    // A lost plan is written again.
    std::fs::remove_file(&file).unwrap();
    plan(&resumed, &file).unwrap();
    work(&file, part(1, 4)).unwrap();
    pack(&resumed);
    assert!(content(&out) == content(&whole));
    assert!(work(&file, part(3, 4)).unwrap().already_complete);
    // A plan that cannot be written begins nothing.
    let nowhere = outputs.join("none/plan.json");
    std::fs::write(outputs.join("none"), "a file").unwrap();
    plan(&options(&inputs, &outputs.join("other")), &nowhere).unwrap_err();
    assert!(!outputs.join("other.partial").exists());
}

#[test]
fn workers_that_do_the_same_at_once_do_no_harm() {
    let (_folder, inputs, outputs) = folders(25);
    let whole = outputs.join("whole");
    pack(&options(&inputs, &whole));
    for round in 0..5 {
        let [out, file] = ["out", "plan.json"].map(|name| outputs.join(format!("{round}-{name}")));
        plan(&options(&inputs, &out), &file).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| work(&file, Part::WHOLE).unwrap());
            }
        });
        commit(&file).unwrap();
        assert!(content(&out) == content(&whole));
    }
}

#[test]
fn parts_on_a_server_are_the_conversion_and_leave_nothing_else() {
    let (bucket, (_folder, inputs, outputs)) = (bucket("parts"), folders(13));
    let whole = outputs.join("whole");
    pack(&options(&inputs, &whole));
    let url = bucket.url("d");
    let file = bucket.url("plans/plan.json");
    pack(&options(&inputs, &url));
    let want = objects(&bucket, "d");
    bucket.clear();
    plan(&options(&inputs, &url), &file).unwrap();
    let look = parts::state(&file, false).unwrap();
    for number in [3, 1, 2, 1] {
        work(&file, part(number, 3)).unwrap();
        assert_eq!(intact(&url), None);
    }
    assert_eq!(look().unwrap().done, 6);
    bucket.remove("d.partial/state/6x5x4/1.json");
    let error = commit(&file).unwrap_err();
    assert!(error.what().contains("1 of 6 shards have no receipt: 1 of 6x5x4"), "{error}");
    assert_eq!(work(&file, Part::WHOLE).unwrap().written, 1);
    commit(&file).unwrap();
    assert!(objects(&bucket, "d") == want);
    assert!(work(&file, Part::WHOLE).unwrap().already_complete);
    assert!(commit(&file).unwrap().already_complete);
    assert!(bucket.keys().iter().all(|key| key.starts_with("d/") || key == "plans/plan.json"));
    // A conversion that was resumed belongs to the process that resumed it.
    bucket.clear();
    plan(&options(&inputs, &url), &file).unwrap();
    let old = outputs.join("old.json");
    std::fs::write(&old, bucket.get("plans/plan.json").unwrap()).unwrap();
    let resumed = ConvertOptions { mode: Mode::RESUME, ..options(&inputs, &url) };
    plan(&resumed, &file).unwrap();
    let error = work(&old, Part::WHOLE).unwrap_err();
    assert!(error.what().contains("another process has taken over"), "{error}");
    work(&file, Part::WHOLE).unwrap();
    commit(&file).unwrap();
    assert!(objects(&bucket, "d") == want);
}

#[test]
fn steps_that_are_killed_at_any_request_can_be_done_again() {
    let (_folder, inputs, outputs) = folders(7);
    let options =
        |bucket: &Bucket| ConvertOptions { threads: 1, ..self::options(&inputs, &bucket.url("d")) };
    let first = bucket("parts-killed");
    pack(&options(&first));
    let want = objects(&first, "d");
    first.clear();
    let count = |bucket: &Bucket, step: &dyn Fn()| {
        let before = bucket.requests().len();
        step();
        bucket.requests().len() - before
    };
    let file = outputs.join("first.json");
    let requests = count(&first, &|| {
        plan(&options(&first), &file).unwrap();
        work(&file, Part::WHOLE).unwrap();
        commit(&file).unwrap();
    });
    assert!(requests > 20, "{requests}");
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (next, want, options, outputs) = (&next, &want, &options, &outputs);
            scope.spawn(move || {
                let bucket = bucket(&format!("parts-killed-{worker}"));
                let file = outputs.join(format!("{worker}.json"));
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= requests {
                        return;
                    }
                    bucket.clear();
                    let _ = std::fs::remove_file(&file);
                    kill_at(&bucket, number);
                    let steps = || {
                        plan(&options(&bucket), &file)?;
                        work(&file, Part::WHOLE)?;
                        commit(&file)
                    };
                    steps().unwrap_err();
                    heal(&bucket);
                    let samples = intact(&bucket.url("d"));
                    assert!([None, Some(11)].contains(&samples), "request {number}: {samples:?}");
                    if !file.exists() {
                        let resumed = Mode::RESUME;
                        plan(&ConvertOptions { mode: resumed, ..options(&bucket) }, &file).unwrap();
                    }
                    work(&file, Part::WHOLE).unwrap();
                    commit(&file).unwrap();
                    assert!(objects(&bucket, "d") == *want, "request {number}");
                    let others = bucket.keys().into_iter().find(|key| !key.starts_with("d/"));
                    assert_eq!((others, bucket.open_uploads()), (None, 0), "request {number}");
                }
            });
        }
    });
}

#[test]
fn relative_paths_are_seen_from_the_folder_of_the_plan() {
    let (_folder, inputs, outputs) = folders(3);
    let [out, file] = ["out", "plan.json"].map(|name| outputs.join(name));
    let mut options = options(&inputs, &out);
    options.mask = vec![super::packing::mask("mask", "{stem}.png")];
    plan(&options, &file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let here = std::env::current_dir().unwrap();
    assert!(text.contains(&format!("\"folder\":{:?}", here.display().to_string())), "{text}");
    work(&file, Part::WHOLE).unwrap();
    commit(&file).unwrap();
    options.mask = vec![super::packing::mask("mask", "{dir}/{stem}.png")];
    options.output = outputs.join("other");
    plan(&options, &file).unwrap();
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"folder\":null"));
}
