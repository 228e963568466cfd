//! Stored chunks that a device reads straight from the system's page cache, over the stand-in for
//! the CUDA driver: it refuses copies that reach beyond one registration, and reports everything
//! that is not unregistered.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use hsipack_read::augment::array::Stream;
use hsipack_read::plan::{Crop, Order};
use hsipack_read::store::{Limited, Link, Store, StoreKind};
use hsipack_read::{
    CacheKind, Dataset, DecodePlace, Device, DeviceBatch, DeviceCache, DeviceLoader, DeviceOptions,
    Host, Loader, LoaderOptions, OpenOptions, PageCacheBounds, Verify,
};
use hsipack_testing::{FakeCuda, FakeDriver, skipped};
use serde_json::json;

use crate::device_loading::runs_clean;
use crate::images::options;
use crate::support::{StackSpec, Written, write_dataset_of};

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const PAGE: u64 = 4096;

/// Cubes of several chunks, with a mask, in files that are longer than a page.
fn made() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let spec = StackSpec::new(70, 60, 12, 9).masks(&["a"]).tile(16, 24);
    let spec = StackSpec { per_shard: 3, ..spec };
    // Half of each value is noise, so that parts of cubes take fewer bytes compressed, too.
    let pixel = |_: &StackSpec, sample: usize, row: usize, column: usize, out: &mut Vec<u8>| {
        let mut noise = (sample * 7919 + row * 104_729 + column) as u32;
        for _ in 0..12 {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            out.extend([(noise >> 24) as u8, 0x3C + sample as u8 % 3]);
        }
    };
    let path = folder.path().join("made");
    let written = write_dataset_of(&path, &[spec], |_| json!({}), &pixel);
    (folder, written)
}

fn gpu(page_cache: PageCacheBounds) -> DeviceOptions {
    let device_cache = DeviceCache::None;
    DeviceOptions { layers: false, device_cache, page_cache, ..DeviceOptions::new(Device::Cuda(0)) }
}

fn bounds(bytes: u64, piece_bytes: u64) -> PageCacheBounds {
    PageCacheBounds { bytes, piece_bytes }
}

fn start(
    dataset: &Dataset,
    options: &LoaderOptions,
    page_cache: PageCacheBounds,
) -> DeviceLoader<Host> {
    let options = LoaderOptions { decode: DecodePlace::Device, ..options.clone() };
    DeviceLoader::new(dataset, options, gpu(page_cache), Host::new(1)).unwrap()
}

/// Compares a batch on the device with the same batch on the host, when the device's turn comes.
fn read(driver: &FakeDriver, have: &DeviceBatch<Host>, want: &hsipack_read::Batch) {
    let stream = Stream::LEGACY.handle() as usize;
    assert_eq!(have.items(), want.items());
    driver.read(stream, have.image.address() as u64, want.image().bytes);
    for ((_, have), want) in have.masks.iter().zip(want.masks()) {
        driver.read(stream, have.address() as u64, want.bytes);
    }
}

/// Reads batches of both loaders. A batch that the device refuses comes once more.
fn compare(
    driver: &FakeDriver,
    loader: &mut DeviceLoader<Host>,
    plain: &mut Loader,
    batches: usize,
) -> usize {
    let mut refused = 0;
    for _ in 0..batches {
        let have = match loader.next_batch() {
            Some(Err(_)) => {
                refused += 1;
                loader.next_batch()
            }
            other => other,
        };
        match (have, plain.next_batch()) {
            (Some(have), Some(want)) => read(driver, &have.unwrap(), &want.unwrap()),
            (None, None) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(loader.state(), plain.state());
    }
    refused
}

/// Reads two epochs of both, and returns the report's `chunks`, and the notes.
fn two_epochs(
    driver: &FakeDriver,
    dataset: &Dataset,
    options: &LoaderOptions,
    page_cache: PageCacheBounds,
) -> (&'static str, String) {
    let mut loader = start(dataset, options, page_cache);
    let mut plain = Loader::new(dataset, options.clone()).unwrap();
    let count = plain.batches_per_epoch().unwrap();
    assert_eq!(compare(driver, &mut loader, &mut plain, 2 * count + 2), 0);
    let (report, statistics) = (loader.report(), loader.statistics());
    assert!(statistics.page_cache_bytes <= statistics.link_bytes);
    assert_eq!(statistics.page_cache_bytes > 0, ["page cache", "both"].contains(&report.chunks));
    if page_cache.bytes > 0 {
        assert!(report.registered_bytes <= page_cache.bytes, "{report:?}");
    }
    (report.chunks, report.notes.join("\n"))
}

#[test]
fn frames_come_straight_from_mapped_files() {
    runs_clean("page_cache::straight", 3);
}

#[test]
#[ignore = "run by the test above"]
fn straight() {
    let (_folder, written) = made();
    let driver = FakeDriver::new();
    let mut options = options(2);
    options.cache = CacheKind::None;
    for verify in [Verify::Once, Verify::Always, Verify::Never] {
        let open = OpenOptions { verify, ..OpenOptions::default() };
        let dataset = Dataset::open_with(&written.path, open).unwrap();
        // In one piece a file, and in pieces of a page, so that frames reach from one to the next.
        for piece in [32 << 20, PAGE, 3 * PAGE - 5] {
            for order in [Order::Sequential, Order::Shuffled] {
                options.plan.order = order;
                options.plan.crop = Crop::Whole;
                let (chunks, notes) = two_epochs(&driver, &dataset, &options, bounds(0, piece));
                assert_eq!((chunks, notes.as_str()), ("page cache", ""));
                options.plan.crop =
                    Crop::Random { rows: 64, columns: 52, per_sample: 2, min_labelled: 0.0 };
                let (chunks, notes) = two_epochs(&driver, &dataset, &options, bounds(0, piece));
                assert_eq!((chunks, notes.as_str()), ("page cache", ""));
            }
        }
    }
}

#[test]
fn a_loader_copies_only_its_tables_from_the_ring_and_frames_in_few_copies() {
    runs_clean("page_cache::copies", 1);
}

#[test]
#[ignore = "run by the test above"]
fn copies() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let driver = FakeDriver::new();
    let mut options = options(3);
    options.cache = CacheKind::None;
    let mut loader = start(&dataset, &options, PageCacheBounds::default());
    let before = driver.calls("cuMemcpyHtoDAsync_v2");
    let batches = loader.epoch().map(Result::unwrap).count() as u64;
    let copies = driver.calls("cuMemcpyHtoDAsync_v2") - before;
    // For each cube, one copy of the image's frames and one of the mask's, which follow one another in their files; and one of
    // the tables. Two batches of the next epoch may be copied ahead.
    assert!(copies <= (batches + 2) * (2 * 3 + 1), "{copies} copies for {batches} batches");
    let statistics = loader.statistics();
    let tables = statistics.link_bytes - statistics.page_cache_bytes;
    assert!(tables * 10 < statistics.link_bytes, "{tables} of {}", statistics.link_bytes);
}

#[test]
fn registered_bytes_have_a_limit_and_other_chunks_are_gathered() {
    runs_clean("page_cache::limited", 3);
}

#[test]
#[ignore = "run by the test above"]
fn limited() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let driver = FakeDriver::new();
    let mut options = options(2);
    options.cache = CacheKind::None;
    options.plan.order = Order::Shuffled;
    let unregistered = driver.calls("cuMemHostUnregister");
    let (chunks, notes) = two_epochs(&driver, &dataset, &options, bounds(12 * PAGE, PAGE));
    assert_eq!(chunks, "both");
    assert!(notes.contains("no more than 48.0 KiB") || notes.contains("no more than"), "{notes}");
    // More than what is unregistered at the end: the pieces, and the slots of the ring.
    assert!(driver.calls("cuMemHostUnregister") - unregistered > 40);
    // Crops of files that do not all fit would register pieces again and again.
    options.plan.crop = Crop::Random { rows: 64, columns: 52, per_sample: 2, min_labelled: 0.0 };
    let (chunks, notes) = two_epochs(&driver, &dataset, &options, bounds(12 * PAGE, PAGE));
    assert_eq!(chunks, "gathered");
    assert!(notes.contains("batches read small parts of them"), "{notes}");
    // Not even one piece.
    options.plan.crop = Crop::Whole;
    let (chunks, _) = two_epochs(&driver, &dataset, &options, bounds(1, PAGE));
    assert_eq!(chunks, "gathered");
}

#[test]
fn stores_that_map_no_files_are_gathered_with_the_reason() {
    runs_clean("page_cache::other_stores", 1);
}

#[test]
#[ignore = "run by the test above"]
fn other_stores() {
    let (_folder, written) = made();
    let driver = FakeDriver::new();
    let mut options = options(2);
    options.cache = CacheKind::None;
    let slow: Arc<dyn Store> =
        Arc::new(Limited::disk(StoreKind::Mapped.store(), Link::of_rate(1 << 30)));
    for store in [StoreKind::Pread.store(), StoreKind::Direct.store(), slow] {
        let open = OpenOptions { store: Some(store), ..OpenOptions::default() };
        let dataset = Dataset::open_with(&written.path, open).unwrap();
        let (chunks, notes) = two_epochs(&driver, &dataset, &options, PageCacheBounds::default());
        assert_eq!(chunks, "gathered");
        assert!(notes.contains("does not map files"), "{notes}");
    }
    // Chunks that the host keeps.
    options.cache = CacheKind::Compressed;
    options.cache_bytes = 1 << 20;
    let dataset = Dataset::open(&written.path).unwrap();
    let (chunks, notes) = two_epochs(&driver, &dataset, &options, PageCacheBounds::default());
    assert_eq!(chunks, "gathered");
    assert!(notes.contains("kept in the host's memory"), "{notes}");
}

#[test]
fn without_read_only_registrations_chunks_are_gathered() {
    if !FakeCuda::has_kernels() {
        skipped("the stand-in was built without a C++ compiler");
        return;
    }
    let cuda = FakeCuda::new();
    let mut command = cuda.test("page_cache::unsupported");
    cuda.assert_clean(command.env("FAKE_CUDA_READ_ONLY", "0"));
}

#[test]
#[ignore = "run by the test above"]
fn unsupported() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(2);
    options.cache = CacheKind::None;
    let (chunks, notes) =
        two_epochs(&FakeDriver::new(), &dataset, &options, PageCacheBounds::default());
    assert_eq!(chunks, "gathered");
    assert!(notes.contains("cannot register memory that is read-only"), "{notes}");
}

#[test]
fn a_registration_that_fails_costs_only_the_gather_of_its_chunks() {
    runs_clean("page_cache::refused_registrations", 2);
}

#[test]
#[ignore = "run by the test above"]
fn refused_registrations() {
    let (_folder, written) = made();
    let driver = FakeDriver::new();
    let mut options = options(1);
    (options.cache, options.slots) = (CacheKind::None, 2);
    for nth in 1..=8 {
        let dataset = Dataset::open(&written.path).unwrap();
        let mut loader = start(&dataset, &options, bounds(40 * PAGE, 2 * PAGE));
        let mut plain = Loader::new(&dataset, options.clone()).unwrap();
        // Slots of the ring are registered, too, when they are first used.
        compare(&driver, &mut loader, &mut plain, 3);
        driver.fail("cuMemHostRegister_v2", nth, OUT_OF_MEMORY);
        compare(&driver, &mut loader, &mut plain, 30);
        let (report, notes) = (loader.report(), loader.report().notes.join("\n"));
        assert_eq!(report.chunks, "both", "{nth}: {notes}");
        assert!(notes.contains("part of a file is not registered"), "{nth}: {notes}");
        assert!(notes.contains("out of memory"), "{nth}: {notes}");
    }
}

#[test]
fn a_copy_from_a_file_that_the_driver_refuses_is_decoded_on_the_host() {
    runs_clean("page_cache::refused_copies", 2);
}

#[test]
#[ignore = "run by the test above"]
fn refused_copies() {
    let (_folder, written) = made();
    let driver = FakeDriver::new();
    let mut options = options(2);
    options.cache = CacheKind::None;
    let (mut closed, mut refused) = (0, 0);
    for nth in 1..=14 {
        let dataset = Dataset::open(&written.path).unwrap();
        let mut loader = start(&dataset, &options, bounds(0, 4 * PAGE));
        let mut plain = Loader::new(&dataset, options.clone()).unwrap();
        driver.fail("cuMemcpyHtoDAsync_v2", nth, INVALID_VALUE);
        let count = plain.batches_per_epoch().unwrap();
        refused += compare(&driver, &mut loader, &mut plain, 2 * count);
        let report = loader.report();
        closed += usize::from(report.notes.iter().any(|note| note.contains("INVALID_VALUE")));
    }
    assert!(closed > 8, "{closed} closed, {refused} refused");
}

/// Cuts a file to its first bytes, in place.
fn cut(path: &Path, bytes: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn shards(path: &Path) -> Vec<std::path::PathBuf> {
    (0..3).map(|shard| path.join(format!("70x60x12/image/c/{shard}/0/0/0"))).collect()
}

#[test]
fn a_file_cut_short_gives_its_old_bytes_or_the_error_of_the_host() {
    runs_clean("page_cache::cut_short", 3);
}

#[test]
#[ignore = "run by the test above"]
fn cut_short() {
    let driver = FakeDriver::new();
    let mut options = options(1);
    options.cache = CacheKind::None;
    options.masks = Some(Vec::new());
    options.plan.order = Order::Sequential;
    for verify in [Verify::Once, Verify::Always, Verify::Never] {
        // Registered before: the device has the pages.
        let (_folder, written) = made();
        let open = || {
            let open = OpenOptions { verify, ..OpenOptions::default() };
            Dataset::open_with(&written.path, open).unwrap()
        };
        let intact: Vec<Vec<u8>> = Loader::new(&open(), options.clone())
            .unwrap()
            .epoch()
            .map(|batch| batch.unwrap().image().bytes.to_vec())
            .collect();
        let (dataset, lengths) = (open(), shards(&written.path));
        let mut loader = start(&dataset, &options, bounds(0, PAGE));
        assert_eq!(loader.epoch().map(Result::unwrap).count(), 9);
        for shard in &lengths {
            cut(shard, fs::metadata(shard).unwrap().len() / 2);
        }
        let mut failed = 0;
        for _ in 0..2 {
            for (number, want) in intact.iter().enumerate() {
                match loader.next_batch().unwrap() {
                    Ok(batch) => {
                        let stream = Stream::LEGACY.handle() as usize;
                        driver.read(stream, batch.image.address() as u64, want);
                    }
                    Err(error) => {
                        failed += 1;
                        // The end of the last page is zeros now, which only the checksum says.
                        let text = error.to_string();
                        let is_named = text.contains("became shorter") || text.contains("checksum");
                        assert!(is_named, "{verify:?} {number}: {error}");
                    }
                }
            }
            assert!(loader.next_batch().is_none());
        }
        // What is compared again, or read for its header, cannot be read any more.
        assert!(failed > 0, "{verify:?}");
        drop(loader);
        // Cut before: the driver refuses these pages, and the host says what is wrong.
        let (first, other) = (open(), open());
        drop(dataset);
        let mut loader = start(&first, &options, bounds(0, PAGE));
        let mut plain = Loader::new(&other, options.clone()).unwrap();
        for _ in 0..12 {
            match (loader.next_batch(), plain.next_batch()) {
                (Some(Ok(have)), Some(Ok(want))) => read(&driver, &have, &want),
                (Some(Err(have)), Some(Err(want))) => {
                    assert_eq!(have.to_string(), want.to_string());
                }
                (None, None) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_file_that_is_replaced_stays_as_it_was_opened() {
    runs_clean("page_cache::replaced", 1);
}

#[test]
#[ignore = "run by the test above"]
fn replaced() {
    let (_folder, written) = made();
    let driver = FakeDriver::new();
    let mut options = options(2);
    options.cache = CacheKind::None;
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = start(&dataset, &options, bounds(20 * PAGE, PAGE));
    let mut plain = Loader::new(&dataset, options.clone()).unwrap();
    compare(&driver, &mut loader, &mut plain, 2);
    for shard in shards(&written.path) {
        let other = shard.with_extension("new");
        fs::write(&other, vec![7; fs::metadata(&shard).unwrap().len() as usize]).unwrap();
        fs::rename(other, &shard).unwrap();
    }
    // Files that were opened before; the first batches have opened all of them.
    compare(&driver, &mut loader, &mut plain, 2);
}

#[test]
fn loaders_that_end_in_the_middle_leave_nothing_registered() {
    runs_clean("page_cache::dropped", 4);
}

#[test]
#[ignore = "run by the test above"]
fn dropped() {
    let (_folder, written) = made();
    let mut options = options(2);
    options.cache = CacheKind::None;
    for batches in 0..6 {
        let dataset = Dataset::open(&written.path).unwrap();
        let mut loader = start(&dataset, &options, bounds(40 * PAGE, PAGE));
        let monitor = loader.monitor();
        let kept: Vec<_> = (0..batches).map_while(|_| loader.next_batch()).collect();
        loader.set_epoch(4);
        if batches % 2 == 0 {
            let _ = loader.next_batch();
        }
        drop(loader);
        // Files may be closed now, while batches and a handle for statistics live on.
        drop(dataset);
        assert_eq!(monitor.report().registered_bytes, 0);
        drop(kept);
    }
}
