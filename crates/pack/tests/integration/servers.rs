//! Writing to servers: a dataset is complete or not there, and can be continued, at whatever
//! instant a process ends, whichever response is lost, and even if others write at the same time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hsipack_format::{ErrorKind, Result};
use hsipack_pack::convert::{self, ConvertOptions, Mode};
use hsipack_pack::progress::Progress;
use hsipack_pack::repair::repair;
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_store::{Dataset, remote};
use hsipack_testing::bucket::{Bucket, BucketFault};
use hsipack_testing::server::Server;
use serde_json::Value;

use crate::conversion::{content, cubes, options, pack};
use crate::grids::{is_of_grid, locate};

pub fn bucket(name: &str) -> Bucket {
    let bucket = Bucket::start(name);
    remote::set_options(&bucket.url(""), bucket.options()).unwrap();
    bucket
}

pub fn convert(options: &ConvertOptions) -> Result<convert::Report> {
    convert::convert(options, &Progress::default(), &|_| {})
}

/// Options that create or extend the dataset at `out` from the cubes `which` in `folder`. With one
/// thread, requests are always in the same order.
pub fn of(folder: &Path, out: &Path, which: std::ops::Range<usize>, mode: Mode) -> ConvertOptions {
    let inputs =
        which.map(|number| folder.join(format!("cube{number:03}.hdr")).display().to_string());
    ConvertOptions { inputs: inputs.collect(), mode, threads: 1, ..options(folder, out) }
}

/// The content of a file of a dataset, without what differs between two conversions.
fn without_when(below: &Path, bytes: Vec<u8>) -> Vec<u8> {
    if below == Path::new("SHA256SUMS") {
        let text = String::from_utf8(bytes).unwrap();
        let stable: Vec<&str> =
            text.lines().filter(|line| !line.ends_with("  zarr.json")).collect();
        return stable.join("\n").into_bytes();
    }
    if below != Path::new("zarr.json") {
        return bytes;
    }
    let mut root: Value = serde_json::from_slice(&bytes).unwrap();
    let attributes = root["attributes"]["hsipack"].as_object_mut().unwrap();
    attributes.shift_remove("created");
    attributes.shift_remove("write_id");
    for entry in attributes["history"].as_array_mut().unwrap() {
        let entry = entry.as_object_mut().unwrap();
        entry.shift_remove("created");
        // The hash of a SHA256SUMS.
        entry.shift_remove("continues");
    }
    root.to_string().into_bytes()
}

/// Every object of a dataset.
pub fn objects(bucket: &Bucket, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let keys = bucket.keys().into_iter();
    let keys = keys
        .filter_map(|key| Some((PathBuf::from(key.strip_prefix(name)?.strip_prefix('/')?), key)));
    keys.map(|(below, key)| {
        let bytes = without_when(&below, bucket.get(&key).unwrap());
        (below, bytes)
    })
    .collect()
}

/// Every file of a dataset.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |below: PathBuf| {
        let bytes = without_when(&below, std::fs::read(folder.join(&below)).unwrap());
        (below, bytes)
    };
    content(folder).into_keys().map(read).collect()
}

/// From the request `number` after now, nothing reaches the bucket any more, as if the process had
/// been killed.
pub fn kill_at(bucket: &Bucket, number: usize) {
    let requests = AtomicUsize::new(0);
    bucket.set_faults(move |_| match requests.fetch_add(1, Ordering::SeqCst) < number {
        true => BucketFault::None,
        false => BucketFault::Status(403),
    });
}

pub fn heal(bucket: &Bucket) {
    bucket.set_faults(|_| BucketFault::None);
}

/// The number of samples of a dataset whose chunks are all intact; `None` if there is no dataset.
pub fn intact(url: &Path) -> Option<usize> {
    match Dataset::open(url) {
        Ok(dataset) => {
            let report = validate(url, &ValidateOptions::default(), &Progress::default()).unwrap();
            assert!(report.ok, "{report:?}");
            Some(dataset.samples().len())
        }
        Err(error) => {
            assert!(error.what().contains("not a packed dataset"), "{error}");
            None
        }
    }
}

#[test]
fn a_dataset_on_a_server_is_that_of_a_folder() {
    let (bucket, folder) = (bucket("same"), tempfile::tempdir().unwrap());
    cubes(folder.path(), 7, 2);
    let (out, url) = (folder.path().join("out"), bucket.url("a/scans.hsipack"));
    pack(&options(folder.path(), &out));
    let report = pack(&options(folder.path(), &url));
    assert_eq!(report.output, "s3://same/a/scans.hsipack");
    let (ours, theirs) = (objects(&bucket, "a/scans.hsipack"), files(&out));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    assert!(ours == theirs);
    // Nothing else is left there.
    assert_eq!(bucket.keys().len(), ours.len());
    let options = ValidateOptions { source: true, ..ValidateOptions::default() };
    let report = validate(&url, &options, &Progress::default()).unwrap();
    assert!(report.ok && report.sources == 9, "{report:?}");
    let again = convert(&self::options(folder.path(), &url)).unwrap_err();
    assert!(again.what().contains("the output exists"), "{again}");
    let resume = Mode::RESUME;
    assert!(
        pack(&ConvertOptions { mode: resume, ..self::options(folder.path(), &url) })
            .already_complete
    );
}

/// Converts with `mode`, killed at every instant in turn. Each time, the dataset is as before or as
/// after, and the conversion can be continued. At first the dataset has `before` cubes, all on one
/// grid if they are `located`; at the end it has `after`. Returns the dataset's objects at the end.
fn killed_at_every_instant(
    name: &str,
    mode: Mode,
    (before, after): (usize, usize),
    located: bool,
) -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), after, 0);
    if located {
        locate(folder.path(), 0..before, 634200);
    }
    let work = |bucket: &Bucket, mode| of(folder.path(), &bucket.url("d"), before..after, mode);
    let whole = bucket(name);
    if before > 0 {
        pack(&of(folder.path(), &whole.url("d"), 0..before, Mode::CREATE));
    }
    let stored = |key: String| (key.clone(), whole.get(&key).unwrap());
    let old: Vec<(String, Vec<u8>)> = whole.keys().into_iter().map(stored).collect();
    let prepare = |bucket: &Bucket| {
        heal(bucket);
        bucket.clear();
        old.iter().for_each(|(key, content)| bucket.put(key, content.clone()));
    };
    let first = whole.requests().len();
    pack(&work(&whole, mode));
    let (requests, want) = (whole.requests().len() - first, objects(&whole, "d"));
    assert!(requests > 20, "{requests}");
    let killed = |bucket: &Bucket, number: usize| {
        let url = bucket.url("d");
        prepare(bucket);
        kill_at(bucket, number);
        let error = convert(&work(bucket, mode)).unwrap_err();
        assert!(error.what().contains("refuses"), "request {number}: {error}");
        heal(bucket);
        let samples = intact(&url).unwrap_or(0);
        assert!(samples == before || samples == after, "request {number}: {samples}");
        pack(&work(bucket, Mode { resume: true, append: before > 0 }));
        assert!(objects(bucket, "d") == want, "request {number}");
        assert_eq!(intact(&url), Some(after), "request {number}");
        let partial = bucket.keys().into_iter().find(|key| key.starts_with("d.partial"));
        assert_eq!((partial, bucket.open_uploads()), (None, 0));
        samples == after
    };
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (next, done, killed) = (&next, &done, &killed);
            scope.spawn(move || {
                let bucket = bucket(&format!("{name}-{worker}"));
                loop {
                    match next.fetch_add(1, Ordering::SeqCst) {
                        number if number < requests => {
                            done.fetch_add(killed(&bucket, number).into(), Ordering::SeqCst)
                        }
                        _ => return,
                    };
                }
            });
        }
    });
    let done = done.into_inner();
    assert!(0 < done && done < requests - 10, "{done} of {requests}");
    want
}

#[test]
fn a_conversion_that_is_killed_at_any_instant_leaves_a_dataset_or_none() {
    killed_at_every_instant("killed", Mode::CREATE, (0, 5), false);
}

#[test]
fn an_append_that_is_killed_at_any_instant_leaves_the_old_dataset_or_the_new_one() {
    killed_at_every_instant("killed-append", Mode::APPEND, (2, 5), false);
}

#[test]
fn an_append_of_cubes_that_lie_elsewhere_takes_the_grid_away_or_leaves_it() {
    let after = killed_at_every_instant("killed-grid", Mode::APPEND, (2, 5), true);
    assert!(after.keys().all(|file| !is_of_grid(file)), "{:?}", after.keys());
}

#[test]
fn an_append_on_a_server_of_cubes_that_lie_on_the_grid_keeps_it() {
    let (bucket, folder) = (bucket("grid"), tempfile::tempdir().unwrap());
    cubes(folder.path(), 5, 0);
    locate(folder.path(), 0..5, 634200);
    let (url, out) = (bucket.url("d"), folder.path().join("out"));
    for output in [&url, &out] {
        pack(&of(folder.path(), output, 0..2, Mode::CREATE));
        pack(&of(folder.path(), output, 2..5, Mode::APPEND));
    }
    assert!(objects(&bucket, "d") == files(&out));
    assert_eq!(objects(&bucket, "d").keys().filter(|file| is_of_grid(file)).count(), 6);
    assert_eq!(intact(&url), Some(5));
    // Damage on the server is repaired there.
    bucket.put("d/6x5x4/x/c/0", b"short".to_vec());
    let check = || validate(&url, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert_eq!(check().problems.len(), 1);
    repair(&url, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(check().ok && objects(&bucket, "d") == files(&out));
}

#[test]
fn whatever_answer_is_lost_the_dataset_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 5, 0);
    let written = |bucket: &Bucket| {
        let url = bucket.url("d");
        pack(&of(folder.path(), &url, 0..2, Mode::CREATE));
        pack(&of(folder.path(), &url, 2..5, Mode::APPEND));
        objects(bucket, "d")
    };
    let first = bucket("lost");
    let want = written(&first);
    let requests = first.requests().len();
    // After a lost response, a process waits before it asks again, so several cases run at the same time.
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (next, want, written) = (&next, &want, &written);
            scope.spawn(move || {
                let bucket = bucket(&format!("lost-{worker}"));
                loop {
                    let number = next.fetch_add(1, Ordering::SeqCst);
                    if number >= requests {
                        return;
                    }
                    lose(&bucket, number);
                    assert!(written(&bucket) == *want, "answer {number}");
                    assert_eq!(bucket.keys().len(), want.len(), "{:?}", bucket.keys());
                }
            });
        }
    });
}

/// An empty bucket that loses its response to request `number`.
fn lose(bucket: &Bucket, number: usize) {
    bucket.clear();
    let requests = AtomicUsize::new(0);
    bucket.set_faults(move |_| match requests.fetch_add(1, Ordering::SeqCst) {
        this if this == number => BucketFault::LostAnswer,
        _ => BucketFault::None,
    });
}

#[test]
fn of_two_writers_one_is_told_that_another_one_writes() {
    let (bucket, folder) = (bucket("two-writers"), tempfile::tempdir().unwrap());
    cubes(folder.path(), 6, 0);
    let url = bucket.url("d");
    for round in 0..10 {
        bucket.clear();
        // The cubes differ: if shards of both were mixed, samples would have wrong values.
        let results = std::thread::scope(|scope| {
            let (folder, url) = (folder.path(), url.as_path());
            let write = |which: std::ops::Range<usize>| {
                move || convert(&of(folder, url, which, Mode::CREATE))
            };
            let threads = [scope.spawn(write(0..3)), scope.spawn(write(3..6))];
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        let lost = results.into_iter().find_map(Result::err).unwrap();
        assert_eq!(lost.kind(), ErrorKind::Conflict, "round {round}: {lost}");
        let options = ValidateOptions { source: true, ..ValidateOptions::default() };
        let report = validate(&url, &options, &Progress::default()).unwrap();
        assert!(report.ok && report.sources == 3, "{report:?}");
    }
}

/// Runs `first` when another process is about to begin its work on the server: it has looked at the
/// output already.
fn before_the_next_begins(bucket: &Bucket, first: ConvertOptions) {
    let begun = AtomicBool::new(false);
    bucket.set_faults(move |request| {
        if request.key == "d.partial/plan.json"
            && request.writes
            && !begun.swap(true, Ordering::SeqCst)
        {
            let first = first.clone();
            std::thread::spawn(move || pack(&first)).join().unwrap();
        }
        BucketFault::None
    });
}

#[test]
fn a_dataset_that_was_finished_in_the_meantime_is_not_overwritten() {
    let (bucket, folder) = (bucket("meantime"), tempfile::tempdir().unwrap());
    cubes(folder.path(), 6, 0);
    let url = bucket.url("d");
    before_the_next_begins(&bucket, of(folder.path(), &url, 0..3, Mode::CREATE));
    let error = convert(&of(folder.path(), &url, 3..6, Mode::CREATE)).unwrap_err();
    assert!(error.what().contains("the output exists"), "{error}");
    assert_eq!(intact(&url), Some(3));
    before_the_next_begins(&bucket, of(folder.path(), &url, 3..4, Mode::APPEND));
    let error = convert(&of(folder.path(), &url, 4..6, Mode::APPEND)).unwrap_err();
    assert!(error.what().contains("another process has changed the dataset"), "{error}");
    assert_eq!(intact(&url), Some(4));
    bucket.set_faults(|_| BucketFault::None);
    pack(&of(folder.path(), &url, 4..6, Mode::APPEND));
    assert_eq!(intact(&url), Some(6));
    assert!(bucket.keys().iter().all(|key| !key.starts_with("d.partial")), "{:?}", bucket.keys());
}

#[test]
fn a_process_whose_work_another_resumes_stops_and_deletes_nothing() {
    let (bucket, folder) = (bucket("resumed"), tempfile::tempdir().unwrap());
    cubes(folder.path(), 5, 0);
    let (url, begun) = (bucket.url("d"), AtomicBool::new(false));
    let work = of(folder.path(), &url, 0..5, Mode::CREATE);
    let other = ConvertOptions { mode: Mode::RESUME, ..work.clone() };
    // While the first process records that its first shard is finished.
    bucket.set_faults(move |request| {
        if request.key.starts_with("d.partial/state")
            && request.writes
            && !begun.swap(true, Ordering::SeqCst)
        {
            let other = other.clone();
            std::thread::spawn(move || pack(&other)).join().unwrap();
        }
        BucketFault::None
    });
    let error = convert(&work).unwrap_err();
    assert!(error.what().contains("another process has taken over"), "{error}");
    assert_eq!(intact(&url), Some(5));
}

#[test]
fn an_error_in_the_middle_leaves_nothing_on_the_server() {
    let (bucket, folder) = (bucket("middle"), tempfile::tempdir().unwrap());
    cubes(folder.path(), 5, 0);
    let url = bucket.url("d");
    pack(&of(folder.path(), &url, 0..1, Mode::CREATE));
    let before = objects(&bucket, "d");
    let values = [1e6f32; 6 * 5 * 4];
    std::fs::write(folder.path().join("cube003.img"), bytemuck::cast_slice(&values)).unwrap();
    let error = convert(&of(folder.path(), &url, 1..5, Mode::APPEND)).unwrap_err();
    assert!(error.to_string().contains("cube003"), "{error}");
    // The last shard of the image may have other cubes after those of the dataset. They are never read.
    assert_eq!(objects(&bucket, "d").keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert_eq!((intact(&url), bucket.keys().len()), (Some(1), before.len()));
    bucket.clear();
    convert(&of(folder.path(), &url, 0..5, Mode::CREATE)).unwrap_err();
    assert!(bucket.keys().is_empty(), "{:?}", bucket.keys());
    // Objects of others are not touched.
    bucket.put("d/other", b"somebody's".to_vec());
    let error = convert(&of(folder.path(), &url, 0..2, Mode::CREATE)).unwrap_err();
    assert!(error.what().contains("there are objects"), "{error}");
    assert_eq!(bucket.keys(), ["d/other"]);
    let error = convert(&of(folder.path(), &bucket.url(""), 0..2, Mode::CREATE)).unwrap_err();
    assert!(error.what().contains("whole bucket"), "{error}");
}

#[test]
fn a_damaged_shard_on_a_server_is_made_again() {
    let (bucket, folder) = (bucket("repaired"), tempfile::tempdir().unwrap());
    cubes(folder.path(), 5, 0);
    let url = bucket.url("d");
    pack(&of(folder.path(), &url, 0..5, Mode::CREATE));
    let want = objects(&bucket, "d");
    for key in ["d/6x5x4/image/c/0/0/0/0", "d/6x5x4/mask/c/1/0/0", "d/6x5x4/wavelength/c/0"] {
        let mut bytes = bucket.get(key).unwrap();
        bytes[20] ^= 1;
        bucket.put(key, bytes);
    }
    let validated = || validate(&url, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(!validated().ok);
    let report = repair(&url, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(report.failed.is_empty() && report.remaining.is_empty(), "{report:?}");
    assert!(validated().ok && objects(&bucket, "d") == want);

    // A killed repair is reported, and done again.
    bucket.put("d/6x5x4/mask/c/1/0/0", b"damaged".to_vec());
    bucket.put(
        "d.partial/plan.json",
        br#"{"plan": "repair", "append": false, "writer": "x"}"#.to_vec(),
    );
    for mode in [Mode::APPEND, Mode { resume: true, append: true }] {
        let error = convert(&of(folder.path(), &url, 0..1, mode)).unwrap_err();
        assert!(error.to_string().contains("a repair was begun here"), "{error}");
    }
    repair(&url, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(validated().ok && objects(&bucket, "d") == want);
    assert_eq!(bucket.keys().len(), want.len());
}

/// Uploads every file of a folder to a bucket.
fn upload(bucket: &Bucket, folder: &Path, prefix: &str) {
    for below in content(folder).into_keys() {
        let key = format!("{prefix}/{}", below.display());
        bucket.put(&key, std::fs::read(folder.join(&below)).unwrap());
    }
}

#[test]
fn cubes_of_a_server_give_what_those_of_a_folder_give() {
    let (bucket, folder) = (bucket("sources"), tempfile::tempdir().unwrap());
    let cubes_here = folder.path().join("raw");
    std::fs::create_dir_all(cubes_here.join("day 1")).unwrap();
    cubes(&cubes_here, 4, 0);
    cubes(&cubes_here.join("day 1"), 0, 2);
    upload(&bucket, &cubes_here, "scans/raw");
    let (from_folder, from_server) = (folder.path().join("here"), folder.path().join("there"));
    let url = bucket.url("scans/raw");
    let from =
        |inputs: Vec<String>, out: &Path| ConvertOptions { inputs, ..options(&cubes_here, out) };
    pack(&from(vec![cubes_here.display().to_string()], &from_folder));
    let report = pack(&from(vec![url.display().to_string()], &from_server));
    assert_eq!(report.cubes, 6);
    let (ours, theirs) = (files(&from_server), files(&from_folder));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (file, content) in ours.iter().filter(|(file, _)| file.to_string_lossy().contains("/c/")) {
        assert!(content == &theirs[file], "{}", file.display());
    }
    let dataset = Dataset::open(&from_server).unwrap();
    let sample = dataset.samples().get(0).unwrap();
    assert_eq!(sample.source.path, "s3://sources/scans/raw/cube000.hdr");
    assert!(dataset.samples().names().any(|name| name == "day 1/cube000"));

    // Named one by one, by a glob, and in a list; with patterns that are URLs.
    let list = folder.path().join("list.csv");
    std::fs::write(
        &list,
        format!("path,split\n{0}/cube001.hdr,train\n{0}/cube002.hdr,test\n", url.display()),
    )
    .unwrap();
    bucket.put("scans/list.csv", b"path\nraw/cube003.hdr\n".to_vec());
    for (inputs, names) in [
        (vec![format!("{}/cube00[01].hdr", url.display())], vec!["cube000", "cube001"]),
        (vec![format!("{}/cube003.hdr", url.display())], vec!["cube003"]),
        (vec![list.display().to_string()], vec!["cube001", "cube002"]),
        (vec!["s3://sources/scans/list.csv".to_owned()], vec!["cube003"]),
    ] {
        let out = folder.path().join("out");
        let mut options = from(inputs.clone(), &out);
        options.mask[0].pattern = format!("{}/{{stem}}.png", url.display());
        pack(&options);
        let dataset = Dataset::open(&out).unwrap();
        assert_eq!(dataset.samples().names().collect::<Vec<_>>(), names, "{inputs:?}");
        let validated = ValidateOptions { source: true, ..ValidateOptions::default() };
        let report = validate(&out, &validated, &Progress::default()).unwrap();
        assert!(report.ok && report.sources == names.len(), "{report:?}");
        std::fs::remove_dir_all(&out).unwrap();
    }

    bucket.put("scans/raw/notes.txt", b"no cube".to_vec());
    for (input, words) in [
        (format!("{}/nothing.hdr", url.display()), "there is no such object"),
        (format!("{}/none*.hdr", url.display()), "no such file"),
        (format!("{}/notes.txt", url.display()), "notes.txt"),
    ] {
        let error = convert(&from(vec![input], &folder.path().join("out"))).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(words) && text.contains("s3://sources/scans/raw/"), "{text}");
        assert!(!text.contains("hsipack-inputs"), "{text}");
    }
    // From a server to a server, and repaired there.
    let out = bucket.url("packed");
    pack(&from(vec![url.display().to_string()], &out));
    let want = objects(&bucket, "packed");
    let mut bytes = bucket.get("packed/6x5x4/image/c/0/0/0/0").unwrap();
    bytes[30] ^= 4;
    bucket.put("packed/6x5x4/image/c/0/0/0/0", bytes);
    let report = repair(&out, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(report.remaining.is_empty() && objects(&bucket, "packed") == want, "{report:?}");
}

#[test]
fn cubes_of_a_server_are_opened_at_the_same_time() {
    let (bucket, folder) = (bucket("together"), tempfile::tempdir().unwrap());
    let cubes_here = folder.path().join("raw");
    std::fs::create_dir_all(&cubes_here).unwrap();
    cubes(&cubes_here, 12, 0);
    // Objects are fetched once by a process.
    upload(&bucket, &cubes_here, "raw/1");
    upload(&bucket, &cubes_here, "raw/4");
    let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (in_flight.clone(), most.clone());
    bucket.set_faults(move |request| {
        if request.method == "GET" && request.key.contains("cube0") {
            let now = counted.0.fetch_add(1, Ordering::SeqCst) + 1;
            counted.1.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            counted.0.fetch_sub(1, Ordering::SeqCst);
        }
        BucketFault::None
    });
    let pack_with = |threads| {
        most.store(0, Ordering::SeqCst);
        let out = folder.path().join(format!("out_{threads}"));
        let inputs = vec![bucket.url(&format!("raw/{threads}")).display().to_string()];
        pack(&ConvertOptions { inputs, threads, ..options(&cubes_here, &out) });
        let shard = std::fs::read(out.join("6x5x4/image/c/0/0/0/0")).unwrap();
        (shard, most.load(Ordering::SeqCst))
    };
    let ((serial, alone), (parallel, together)) = (pack_with(1), pack_with(4));
    assert!(serial == parallel);
    assert_eq!(alone, 1);
    assert!((3..=4).contains(&together), "{together} requests at once");
}

#[test]
fn cubes_of_a_plain_web_server_are_named_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 2, 0);
    let server = Server::start(folder.path());
    let (from_folder, from_server) = (folder.path().join("here"), folder.path().join("there"));
    pack(&of(folder.path(), &from_folder, 0..2, Mode::CREATE));
    let url = |name: &str| server.url(name).display().to_string();
    let named = vec![url("cube000.hdr"), url("cube001.img")];
    pack(&ConvertOptions { inputs: named, ..options(folder.path(), &from_server) });
    let (ours, theirs) = (files(&from_server), files(&from_folder));
    for (file, content) in ours.iter().filter(|(file, _)| file.to_string_lossy().contains("/c/")) {
        assert!(content == &theirs[file], "{}", file.display());
    }
    let out = folder.path().join("out");
    for (input, words) in
        [(url("nothing.hdr"), "there is no such object"), (url(""), "there is no such object")]
    {
        let error =
            convert(&ConvertOptions { inputs: vec![input], ..options(folder.path(), &out) });
        let error = error.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

/// All files below a folder as a zip archive, stored or deflated.
fn zipped(folder: &Path, method: zip::CompressionMethod) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default().compression_method(method);
    for below in content(folder).into_keys() {
        archive.start_file(below.display().to_string(), options).unwrap();
        let bytes = std::fs::read(folder.join(&below)).unwrap();
        std::io::Write::write_all(&mut archive, &bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn archives_of_a_server_are_looked_through() {
    let (bucket, folder) = (bucket("archives"), tempfile::tempdir().unwrap());
    let cubes_here = folder.path().join("raw");
    std::fs::create_dir_all(cubes_here.join("day")).unwrap();
    cubes(&cubes_here.join("day"), 3, 0);
    let here = folder.path().join("here");
    pack(&options(&cubes_here, &here));
    let web = folder.path().join("web");
    std::fs::create_dir(&web).unwrap();
    for method in [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated] {
        let bytes = zipped(&cubes_here, method);
        bucket.put("scans/a.zip", bytes.clone());
        std::fs::write(web.join("a.zip"), bytes).unwrap();
        let server = Server::start(&web);
        let url = bucket.url("scans/a.zip").display().to_string();
        let plain = server.url("a.zip").display().to_string();
        for (input, source, names) in [
            (url.clone(), &url, vec!["day/cube000", "day/cube001", "day/cube002"]),
            ("s3://archives/sca?s/*.zip".to_owned(), &url, vec!["day/cube000"]),
            ("s3://archives/scans".to_owned(), &url, vec!["a.zip/day/cube000"]),
            (format!("{url}/day"), &url, vec!["cube000"]),
            (format!("{url}/day/cube00[02].hdr"), &url, vec!["cube000", "cube002"]),
            (format!("{plain}/day/cube000.hdr"), &plain, vec!["cube000"]),
            (plain.clone(), &plain, vec!["day/cube000"]),
        ] {
            let out = folder.path().join("out");
            pack(&ConvertOptions { inputs: vec![input.clone()], ..options(&cubes_here, &out) });
            let dataset = Dataset::open(&out).unwrap();
            let found: Vec<_> = dataset.samples().names().collect();
            assert_eq!(found[..names.len().min(found.len())], names, "{input}");
            let sample = dataset.samples().get(0).unwrap();
            assert_eq!(sample.source.path, format!("{source}/day/cube000.hdr"));
            if found.len() == 3 {
                let ours = files(&out);
                let wanted = files(&here);
                for (file, content) in ours.iter().filter(|(file, _)| file.ends_with("c/0/0/0/0")) {
                    assert!(content == &wanted[file], "{}", file.display());
                }
            }
            let validated = ValidateOptions { source: true, ..ValidateOptions::default() };
            let report = validate(&out, &validated, &Progress::default()).unwrap();
            assert!(report.ok && report.sources == found.len(), "{report:?}");
            std::fs::remove_dir_all(&out).unwrap();
        }
        for input in [format!("{url}/day/none.hdr"), format!("{url}/no*.hdr")] {
            let out = folder.path().join("out");
            let error =
                convert(&ConvertOptions { inputs: vec![input], ..options(&cubes_here, &out) });
            let text = error.unwrap_err().to_string();
            assert!(text.contains("s3://archives/scans/a.zip/"), "{text}");
            assert!(!text.contains("hsipack-inputs"), "{text}");
        }
    }
}

#[test]
fn every_format_is_read_from_a_server() {
    let bucket = bucket("formats");
    let fixtures = crate::common::fixture("");
    upload(&bucket, &fixtures, "fixtures");
    let folder = tempfile::tempdir().unwrap();
    let (mut converted, mut refused) = (0, 0);
    let names: Vec<String> = {
        let text = std::fs::read_to_string(fixtures.join("TRUTH.json")).unwrap();
        let truth: BTreeMap<String, Value> = serde_json::from_str(&text).unwrap();
        truth.into_keys().collect()
    };
    for name in names {
        let input = name.replacen('#', "::", 1);
        let of = |path: String| {
            let out = folder.path().join("out");
            let _ = std::fs::remove_dir_all(&out);
            let mut options = ConvertOptions::new(vec![path], &out);
            options.values.dtype = hsipack_pack::convert::PackedType::F32;
            convert(&options).map(|_| files(&out))
        };
        let local = of(fixtures.join(&input).display().to_string());
        let remote = of(format!("s3://formats/fixtures/{input}"));
        match (local, remote) {
            (Ok(local), Ok(remote)) => {
                for (file, content) in
                    local.iter().filter(|(file, _)| file.to_string_lossy().contains("/c/"))
                {
                    assert!(content == &remote[file], "{name}: {}", file.display());
                }
                converted += 1;
            }
            // Files that make no dataset by themselves, such as masks.
            (Err(local), Err(remote)) => {
                assert_eq!((local.kind(), local.what()), (remote.kind(), remote.what()), "{name}");
                refused += 1;
            }
            (local, remote) => {
                panic!("{name}: {:?}, but of the server {:?}", local.map(drop), remote.map(drop))
            }
        }
    }
    assert!(converted > 60 && refused < converted, "{converted} {refused}");
}

#[test]
fn links_for_downloads_are_packed_under_their_plain_urls() {
    let folder = tempfile::tempdir().unwrap();
    let [inputs, out] = ["in", "out"].map(|name| folder.path().join(name));
    std::fs::create_dir(&inputs).unwrap();
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3, 2), }";
    bytes.extend_from_slice(format!("{header:<117}\n").as_bytes());
    bytes.extend((0..24u8).flat_map(|value| f32::from(value).to_le_bytes()));
    std::fs::write(inputs.join("cube.npy"), bytes).unwrap();
    let server = Server::start(&inputs);
    let url = server.url("cube.npy").display().to_string();
    let options = |query: &str| ConvertOptions {
        inputs: vec![format!("{url}{query}")],
        ..ConvertOptions::new(Vec::new(), &out)
    };
    for query in ["?download=2", "?download=1&token=secret"] {
        let error = convert(&options(query)).unwrap_err().to_string();
        assert!(error.contains("leave out what follows ?") && !error.contains("secret"), "{error}");
    }
    pack(&options("?download=1"));
    let samples = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    assert!(samples.contains("cube.npy\"") && !samples.contains("download"), "{samples}");
}
