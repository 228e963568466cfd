//! Datasets on servers.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hsipack_read::plan::Order;
use hsipack_read::store::{RemoteStore, Store};
use hsipack_read::{CacheKind, Dataset, ErrorKind, Loader, LoaderOptions, OpenOptions};
use hsipack_testing::server::{Fault, Link, Request, Server};
use serde_json::json;

use crate::images;
use crate::support::{StackSpec, write_dataset};

/// A folder with a dataset of two stacks, one of slabs and one of tiles, in several shards.
fn made() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let stacks = [
        StackSpec { per_shard: 2, ..StackSpec::new(30, 20, 7, 8).masks(&["a"]).tile(5, 20) },
        StackSpec::new(40, 23, 7, 4).masks(&["a"]).tile(6, 9),
    ];
    write_dataset(&folder.path().join("made"), &stacks, |_| json!({}));
    folder
}

fn is_chunk(request: &Request) -> bool {
    request.path.contains("/c/") && request.range.is_some()
}

/// The images of two epochs.
fn epochs(path: &Path, cache: CacheKind) -> Vec<(Vec<usize>, Vec<u8>)> {
    let dataset = Dataset::open(path).unwrap();
    let options = LoaderOptions { cache, cache_bytes: 1 << 20, ..images::options(3) };
    let mut loader = Loader::new(&dataset, options).unwrap();
    let mut all = Vec::new();
    for _ in 0..2 {
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            let ids = batch.items().iter().map(|item| item.sample).collect();
            all.push((ids, batch.image().bytes.to_vec()));
        }
    }
    all
}

#[test]
fn batches_are_those_of_the_files_whatever_breaks() {
    let folder = made();
    let files = epochs(&folder.path().join("made"), CacheKind::None);
    let server = Server::with_faults(folder.path(), |request| match request.number % 7 {
        3 if request.number > 30 => Fault::Reset,
        5 if request.number > 30 => Fault::CutAfter(10),
        _ => Fault::None,
    });
    for cache in [CacheKind::None, CacheKind::Decoded, CacheKind::Auto] {
        assert!(epochs(&server.url("made"), cache) == files, "{cache:?}");
    }
}

#[test]
fn servers_that_know_no_ranges_from_the_end_are_read_all_the_same() {
    let folder = made();
    let files = epochs(&folder.path().join("made"), CacheKind::None);
    let server = Server::with_faults(folder.path(), |request| match request.tail {
        Some(_) => Fault::WrongTail,
        None => Fault::None,
    });
    assert!(epochs(&server.url("made"), CacheKind::None) == files);
}

#[test]
fn a_second_epoch_that_is_cached_fetches_nothing() {
    let folder = made();
    let server = Server::start(folder.path());
    let dataset = Dataset::open(server.url("made")).unwrap();
    let options = LoaderOptions { end_epoch: Some(2), ..images::options(3) };
    let mut loader = Loader::new(&dataset, options).unwrap();
    let chunks = || server.requests().iter().filter(|request| is_chunk(request)).count();
    loader.epoch().for_each(|batch| drop(batch.unwrap()));
    let first = chunks();
    loader.epoch().for_each(|batch| drop(batch.unwrap()));
    assert!(first > 0);
    assert_eq!(chunks(), first);
}

#[test]
fn no_byte_is_fetched_twice_in_an_epoch() {
    let folder = made();
    let link = Link { latency: Duration::from_millis(5), rate: None };
    for _ in 0..20 {
        let server = Server::behind(folder.path(), link);
        let dataset = Dataset::open(server.url("made")).unwrap();
        let mut options =
            LoaderOptions { end_epoch: Some(1), cache: CacheKind::None, ..images::options(3) };
        // In another order, bytes of other batches are between those of one batch, and are fetched together with them.
        options.plan.order = Order::Sequential;
        let mut loader = Loader::new(&dataset, options).unwrap();
        loader.epoch().for_each(|batch| drop(batch.unwrap()));
        let mut spans: Vec<(String, (u64, u64))> = server
            .requests()
            .into_iter()
            .filter(is_chunk)
            .filter_map(|request| Some((request.path, request.range?)))
            .collect();
        spans.sort();
        for pair in spans.windows(2) {
            let [(earlier, (_, last)), (later, (first, _))] = pair else { unreachable!() };
            assert!(earlier != later || last < first, "{pair:?}");
        }
    }
}

/// How long opening takes is known only on a machine that does nothing else.
mod alone {
    use super::*;

    #[test]
    fn opening_takes_two_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        // All cubes of a stack are in one shard, as they are in shards of the usual size.
        let stacks = [
            StackSpec { per_shard: 8, ..StackSpec::new(30, 20, 7, 8).masks(&["a"]).tile(5, 20) },
            StackSpec { per_shard: 4, ..StackSpec::new(40, 23, 7, 4).masks(&["a"]).tile(6, 9) },
        ];
        write_dataset(&folder.path().join("made"), &stacks, |_| json!({}));
        let late = Duration::from_millis(400);
        let server = Server::with_faults(folder.path(), move |_| Fault::Late(late));
        let begun = Instant::now();
        let dataset = Dataset::open(server.url("made")).unwrap();
        let took = begun.elapsed();
        let requests = server.requests();
        assert!(requests.len() > 12, "{requests:?}");
        assert!(took < 3 * late, "{took:?} for {} requests", requests.len());
        dataset.sample(0).unwrap();
        let requests = server.requests();
        let count =
            |is: &dyn Fn(&Request) -> bool| requests.iter().filter(|request| is(request)).count();
        // Once to read it, and once to check that everything was read from the same dataset.
        assert_eq!(count(&|request| request.path.ends_with("SHA256SUMS")), 2);
        // What SHA256SUMS does not list does not exist.
        let coordinate = |request: &Request| {
            request.path.contains("wavelength") || request.path.contains("fwhm")
        };
        assert_eq!(count(&coordinate), 0);
        let mut tails: Vec<_> = requests.iter().filter(|request| request.tail.is_some()).collect();
        assert_eq!(tails.len(), 4, "{tails:?}");
        tails.dedup_by_key(|request| &request.path);
        assert_eq!(tails.len(), 4, "{tails:?}");
    }

    #[test]
    fn the_first_batch_needs_one_comparison_with_the_server() {
        let folder = made();
        let server = Server::start(folder.path());
        let dataset = Dataset::open(server.url("made")).unwrap();
        let mut loader = Loader::new(&dataset, images::options(3)).unwrap();
        loader.epoch().next().unwrap().unwrap();
        let requests = server.requests();
        let first = requests.iter().position(is_chunk).unwrap();
        let compares =
            |request: &&Request| request.method == "HEAD" && request.path.ends_with("SHA256SUMS");
        assert_eq!(requests[..first].iter().filter(compares).count(), 1, "{requests:?}");
    }

    #[test]
    fn shards_of_other_sizes_take_one_more_round_trip() {
        let folder = made();
        let late = Duration::from_millis(400);
        let server = Server::with_faults(folder.path(), move |_| Fault::Late(late));
        let begun = Instant::now();
        let dataset = Dataset::open(server.url("made")).unwrap();
        let took = begun.elapsed();
        assert!(took < 4 * late, "{took:?}");
        let tails = server.requests().iter().filter(|request| request.tail.is_some()).count();
        let shards: usize = dataset.stacks().iter().map(|stack| 2 * stack.image.shards()).sum();
        assert_eq!(tails, shards);
    }
}

#[test]
fn a_dataset_that_is_replaced_after_it_was_opened_is_an_error_at_first_use() {
    let folder = made();
    let (original, next) = (folder.path().join("made"), folder.path().join("next"));
    fs::create_dir(&next).unwrap();
    copy(&original, &next);
    let replaces = Arc::new(AtomicBool::new(false));
    let replacing = replaces.clone();
    let server = Server::with_faults(folder.path(), move |request| {
        let opened = request.method == "HEAD" && request.path.ends_with("SHA256SUMS");
        // The same bytes, but other objects.
        if opened && replacing.swap(false, Ordering::SeqCst) {
            fs::write(next.join("SHA256SUMS"), "other sums").unwrap();
            fs::rename(&original, original.with_extension("old")).unwrap();
            fs::rename(&next, &original).unwrap();
        }
        Fault::None
    });
    replaces.store(true, Ordering::SeqCst);
    let dataset = Dataset::open(server.url("made")).unwrap();
    let error = dataset.sample(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("open it again"), "{error}");
    let error = Loader::new(&dataset, images::options(3)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_dataset_that_is_replaced_while_it_is_opened_is_opened_whole() {
    let folder = made();
    let (original, next) = (folder.path().join("made"), folder.path().join("next"));
    let stacks = [StackSpec::new(9, 8, 5, 7).masks(&["a"])];
    write_dataset(&next, &stacks, |id| json!({ "label": id }));
    let wanted = Dataset::open(&next).unwrap();
    let (fingerprint, cube) = (wanted.fingerprint().to_owned(), wanted.sample(3).unwrap());
    let replaced = AtomicBool::new(false);
    let server = Server::with_faults(folder.path(), move |request| {
        // Its metadata have been read by now.
        if request.path.contains("/image/c/") && !replaced.swap(true, Ordering::Relaxed) {
            fs::rename(&original, original.with_extension("old")).unwrap();
            fs::rename(&next, &original).unwrap();
        }
        Fault::None
    });
    let dataset = Dataset::open(server.url("made")).unwrap();
    assert_eq!(dataset.fingerprint(), fingerprint);
    assert_eq!(dataset.sample(3).unwrap(), cube);
}

#[test]
fn a_turned_bit_is_found_and_the_chunk_is_named() {
    let folder = made();
    let server = Server::with_faults(folder.path(), |request| match is_chunk(request) {
        true => Fault::Corrupt,
        false => Fault::None,
    });
    let dataset = Dataset::open(server.url("made")).unwrap();
    let mut loader = Loader::new(&dataset, images::options(3)).unwrap();
    let error = loader.epoch().next().unwrap().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(
        error.to_string().contains("chunk") && error.to_string().contains("http://"),
        "{error}"
    );
}

#[test]
fn blocks_that_are_fetched_again_are_checked_again() {
    let folder = made();
    let damages = Arc::new(AtomicBool::new(false));
    let damaging = damages.clone();
    let server = Server::with_faults(folder.path(), move |request| {
        let damaged = damaging.load(Ordering::SeqCst) && is_chunk(request);
        if damaged && request.number.is_multiple_of(17) { Fault::Corrupt } else { Fault::None }
    });
    // Nothing is kept, so every epoch fetches all chunks.
    let store = Some(Arc::new(RemoteStore::with_bytes(0)) as Arc<dyn Store>);
    let options = OpenOptions { store, ..OpenOptions::default() };
    let dataset = Dataset::open_with(server.url("made"), options).unwrap();
    let options = LoaderOptions { cache: CacheKind::None, ..images::options(1) };
    let mut loader = Loader::new(&dataset, options).unwrap();
    let (mut first, mut right, mut errors) = (HashMap::new(), 0, 0);
    // Which request is damaged depends on the threads, so some epochs are needed.
    for epoch in 0..60 {
        if right > 12 && errors > 0 {
            break;
        }
        damages.store(epoch > 0, Ordering::SeqCst);
        for batch in loader.epoch() {
            match batch {
                Ok(batch) => {
                    let (sample, bytes) = (batch.items()[0].sample, batch.image().bytes.to_vec());
                    assert!(*first.entry(sample).or_insert_with(|| bytes.clone()) == bytes);
                    right += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
                    errors += 1;
                }
            }
        }
    }
    assert!(first.len() == 12 && right > 12 && errors > 0, "{right} {errors}");
}

#[test]
fn credentials_that_expire_are_an_error_of_the_batch() {
    let folder = made();
    let expired = Arc::new(AtomicBool::new(false));
    let now = expired.clone();
    let server = Server::with_faults(folder.path(), move |request| {
        match is_chunk(request) && now.load(Ordering::SeqCst) {
            true => Fault::Status(403),
            false => Fault::None,
        }
    });
    let dataset = Dataset::open(server.url("made")).unwrap();
    let options = LoaderOptions { cache: CacheKind::None, slots: 2, ..images::options(1) };
    let mut loader = Loader::new(&dataset, options).unwrap();
    let mut batches = loader.epoch();
    drop(batches.next().unwrap().unwrap());
    expired.store(true, Ordering::SeqCst);
    let error = batches.find_map(Result::err).expect("nothing can be fetched any more");
    assert!(error.to_string().contains("status 403"), "{error}");
}

#[test]
fn a_loader_is_closed_at_once_while_its_server_is_away() {
    let folder = made();
    let server = Server::with_faults(folder.path(), |request| match is_chunk(request) {
        true => Fault::Late(Duration::from_secs(600)),
        false => Fault::None,
    });
    let dataset = Dataset::open(server.url("made")).unwrap();
    let loader = Loader::new(&dataset, images::options(3)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(server.requests().iter().any(is_chunk));
    let begun = Instant::now();
    drop(loader);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn a_dataset_without_its_metadata_is_none() {
    let folder = made();
    let server = Server::start(folder.path());
    for (path, words) in [("nothing", "check the URL"), ("made/samples.jsonl", "check the URL")] {
        let error = Dataset::open(server.url(path)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    std::fs::remove_file(folder.path().join("made/samples.jsonl")).unwrap();
    let error = Dataset::open(server.url("made")).unwrap_err();
    assert_eq!(error.path(), Some(server.url("made/samples.jsonl").as_path()));
}

#[test]
fn a_server_that_refuses_has_replaced_nothing() {
    let folder = made();
    let refuses = Arc::new(AtomicBool::new(false));
    let now = refuses.clone();
    let server = Server::with_faults(folder.path(), move |_| match now.load(Ordering::SeqCst) {
        true => Fault::Status(403),
        false => Fault::None,
    });
    let dataset = Dataset::open(server.url("made")).unwrap();
    dataset.check_unchanged().unwrap();
    refuses.store(true, Ordering::SeqCst);
    let before = server.requests().len();
    let error = dataset.check_unchanged().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("status 403"), "{error}");
    assert_eq!(server.requests().len(), before + 1);
    refuses.store(false, Ordering::SeqCst);
    dataset.check_unchanged().unwrap();
    std::fs::remove_dir_all(folder.path().join("made")).unwrap();
    let error = dataset.check_unchanged().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
}
