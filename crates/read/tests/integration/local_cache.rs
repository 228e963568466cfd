//! The local cache: its data are right, whatever happens to it, and it keeps the data that are
//! needed next.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hsipack_read::plan::{LastBatch, Order, Share};
use hsipack_read::store::{RemoteStore, Store};
use hsipack_read::{CacheKind, Dataset, Loader, LoaderOptions, OpenOptions, Verify};
use hsipack_store::local_cache::{CacheFolder, LocalCache, LocalCacheUse};
use hsipack_testing::server::Server;
use serde_json::json;

use crate::support::{StackSpec, write_dataset};

/// Bytes of a stored cube of [`large`], in one block.
const CUBE: u64 = 60 * 50 * 100 * 2 + 4;
const CUBES: usize = 60;

/// A served folder of datasets, and a folder for caches.
struct Served {
    folder: tempfile::TempDir,
    server: Server,
}

impl Served {
    fn new(name: &str, stacks: &[StackSpec]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_dataset(
            &folder.path().join("served").join(name),
            stacks,
            |id| json!({ "label": if id < 10 { "rare" } else { "common" } }),
        );
        let server = Server::start(&folder.path().join("served"));
        Self { folder, server }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn open(&self, name: &str, bytes: u64, verify: Verify) -> Dataset {
        let local_cache = Some(LocalCache { folder: self.cache(), bytes: Some(bytes) });
        // Little is kept in memory; otherwise nothing would be read from the disk.
        let store = Some(Arc::new(RemoteStore::with_bytes(4 * CUBE)) as Arc<dyn Store>);
        let options = OpenOptions { store, local_cache, verify, ..OpenOptions::default() };
        Dataset::open_with(self.server.url(name), options).unwrap()
    }

    fn blocks(&self) -> Vec<PathBuf> {
        let datasets = fs::read_dir(self.cache().join("datasets")).unwrap();
        let files = datasets.flat_map(|dataset| fs::read_dir(dataset.unwrap().path()).unwrap());
        let files = files.map(|file| file.unwrap().path());
        files
            .filter(|file| {
                file.to_string_lossy().matches('-').count() >= 2 && !file.ends_with("in-use")
            })
            .collect()
    }
}

/// Several stacks: slabs and tiles, small and large chunks, masks.
fn mixed() -> [StackSpec; 3] {
    [
        StackSpec { per_shard: 2, ..StackSpec::new(30, 20, 7, 8).masks(&["a"]).tile(5, 20) },
        StackSpec::new(40, 23, 7, 4).masks(&["a"]).tile(6, 9),
        StackSpec { codec: None, ..StackSpec::new(90, 700, 7, 6).masks(&["a"]).tile(90, 700) },
    ]
}

/// Cubes of equal length, with one block each.
fn large() -> [StackSpec; 1] {
    [StackSpec { codec: None, per_shard: 20, ..StackSpec::new(60, 50, 100, CUBES).tile(60, 50) }]
}

fn options(batch_size: usize, epochs: u64) -> LoaderOptions {
    let mut options = LoaderOptions::new(batch_size);
    options.cache = CacheKind::None;
    options.end_epoch = Some(epochs);
    options.threads = 2;
    options.slots = 2;
    options
}

/// The samples and images of the batches of an epoch.
fn epoch(loader: &mut Loader) -> Vec<(Vec<usize>, Vec<u8>)> {
    let batch = |batch: hsipack_read::Result<hsipack_read::Batch>| {
        let batch = batch.unwrap();
        (batch.items().iter().map(|item| item.sample).collect(), batch.image().bytes.to_vec())
    };
    loader.epoch().map(batch).collect()
}

fn epochs(dataset: &Dataset, options: LoaderOptions) -> Vec<Vec<(Vec<usize>, Vec<u8>)>> {
    let end = options.end_epoch.unwrap();
    let mut loader = Loader::new(dataset, options).unwrap();
    let all = (0..end).map(|_| {
        let epoch = epoch(&mut loader);
        if let Some(cache) = dataset.local_cache() {
            cache.flush();
        }
        epoch
    });
    all.collect()
}

fn used(dataset: &Dataset) -> LocalCacheUse {
    dataset.local_cache().unwrap().used()
}

#[test]
fn fetched_blocks_come_from_the_disk_in_later_epochs_and_processes() {
    let served = Served::new("made", &mixed());
    let files = Dataset::open(served.folder.path().join("served/made")).unwrap();
    let want = epochs(&files, options(3, 2));
    let dataset = served.open("made", 1 << 30, Verify::Once);
    assert!(epochs(&dataset, options(3, 2)) == want);
    let traffic = dataset.traffic().unwrap();
    let stored = used(&dataset);
    assert_eq!(traffic.bytes, stored.kept_bytes, "{traffic:?} {stored:?}");
    assert_eq!((stored.passed_bytes, stored.dropped_bytes, stored.damaged), (0, 0, 0));
    assert!(stored.problem.is_none() && stored.read_bytes > 0, "{stored:?}");
    drop(dataset);
    // Random access gives the same.
    let again = served.open("made", 1 << 30, Verify::Never);
    assert!(epochs(&again, options(3, 2)) == want);
    for sample in [0, 9, 17] {
        assert_eq!(again.sample(sample).unwrap(), files.sample(sample).unwrap());
        assert_eq!(again.mask(sample, "a").unwrap(), files.mask(sample, "a").unwrap());
    }
    assert_eq!(again.traffic().unwrap().requests, 0);
    let list = CacheFolder::open(&served.cache()).unwrap().list().unwrap();
    assert_eq!((list.len(), list[0].in_use), (1, true));
    assert_eq!(list[0].url.as_deref(), served.server.url("made").to_str());
    drop(again);
    assert!(!CacheFolder::open(&served.cache()).unwrap().list().unwrap()[0].in_use);
}

#[test]
fn the_first_epoch_uses_what_it_fetched_and_the_next_process_the_disk() {
    let served = Served::new("large", &large());
    let open = || {
        let local_cache = Some(LocalCache { folder: served.cache(), bytes: Some(1 << 30) });
        let options = OpenOptions { local_cache, ..OpenOptions::default() };
        Dataset::open_with(served.server.url("large"), options).unwrap()
    };
    let all = CUBES as u64 * CUBE;
    let dataset = open();
    let first = epochs(&dataset, options(6, 1));
    let cache = used(&dataset);
    assert_eq!((cache.kept_bytes, cache.passed_bytes), (all, 0));
    assert!(cache.read_bytes < all / 20, "{} of {all} bytes", cache.read_bytes);
    drop(dataset);
    let fetched = || {
        let requests = served.server.requests().into_iter();
        requests.filter(|request| request.range.is_some()).count()
    };
    let before = fetched();
    let dataset = open();
    assert_eq!(epochs(&dataset, options(6, 1)), first);
    assert_eq!((used(&dataset).read_bytes, fetched()), (all, before));
}

#[test]
fn whatever_becomes_of_its_files_values_are_right() {
    let served = Served::new("made", &mixed());
    let files = Dataset::open(served.folder.path().join("served/made")).unwrap();
    let want = epochs(&files, options(3, 1));
    let damages: [fn(&Path); 5] = [
        |file| {
            let mut bytes = fs::read(file).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 4;
            fs::write(file, bytes).unwrap();
        },
        |file| fs::write(file, "").unwrap(),
        |file| {
            let len = fs::metadata(file).unwrap().len();
            fs::File::options().write(true).open(file).unwrap().set_len(len - 1).unwrap();
        },
        |file| fs::remove_file(file).unwrap(),
        |file| {
            // Like after a power failure.
            let len = fs::metadata(file).unwrap().len() as usize;
            fs::write(file, vec![0; len]).unwrap();
        },
    ];
    for verify in [Verify::Once, Verify::Never] {
        let open = || served.open("made", 1 << 30, verify);
        let mut dataset = open();
        assert!(epochs(&dataset, options(3, 1)) == want);
        for damage in damages {
            let blocks = served.blocks();
            assert!(blocks.len() > 5, "{blocks:?}");
            blocks.iter().for_each(|file| damage(file));
            // Some files are open in this process, which need not notice the damage. Another process notices all.
            assert!(epochs(&dataset, options(3, 1)) == want, "{verify:?}");
            assert_eq!(used(&dataset).problem, None);
            dataset = open();
            assert!(epochs(&dataset, options(3, 1)) == want, "{verify:?}");
            assert_eq!(served.blocks().len(), blocks.len());
        }
        // Deletes the whole cache, while one reader has it open and the other does not.
        fs::remove_dir_all(served.cache()).unwrap();
        assert!(epochs(&dataset, options(3, 1)) == want);
        let dataset = open();
        fs::remove_dir_all(served.cache()).unwrap();
        assert!(epochs(&dataset, options(3, 1)) == want);
        assert!(!served.blocks().is_empty());
        assert!(CacheFolder::open(&served.cache()).unwrap().check().unwrap().damaged.is_empty());
    }
}

#[test]
fn files_that_are_turned_over_while_they_are_read_give_no_wrong_values() {
    let served = Served::new("made", &large());
    let files = Dataset::open(served.folder.path().join("served/made")).unwrap();
    let want = epochs(&files, options(3, 1));
    let dataset = served.open("made", 1 << 30, Verify::Once);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            let mut turn = 0u64;
            while !over.load(Ordering::Relaxed) {
                for file in served.blocks() {
                    turn += 1;
                    match turn % 4 {
                        0 => drop(fs::remove_file(&file)),
                        1 => drop(fs::write(&file, "short")),
                        2 => drop(
                            fs::File::options()
                                .write(true)
                                .open(&file)
                                .map(|file| file.set_len(1000)),
                        ),
                        _ => {}
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for _ in 0..5 {
            assert!(epochs(&dataset, options(3, 1)) == want);
        }
    });
}

/// Ends a thread, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes that a cache of `room` cubes must fetch if it knows the whole order: it removes, or does
/// not keep, the cube that is needed last.
fn oracle(orders: &[Vec<usize>], room: usize) -> Vec<u64> {
    let all: Vec<usize> = orders.iter().flatten().copied().collect();
    let next = |from: usize, cube: usize| {
        all[from..].iter().position(|other| *other == cube).map_or(usize::MAX, |steps| from + steps)
    };
    let (mut cached, mut at): (HashSet<usize>, usize) = (HashSet::new(), 0);
    let mut fetched = Vec::new();
    for order in orders {
        let mut missing = 0;
        for cube in order {
            at += 1;
            if cached.contains(cube) {
                continue;
            }
            missing += 1;
            cached.insert(*cube);
            if cached.len() > room {
                let last = *cached.iter().max_by_key(|cube| next(at, **cube)).unwrap();
                cached.remove(&last);
            }
        }
        fetched.push(missing * CUBE);
    }
    fetched
}

/// Fetched bytes of six epochs with a cache of a third of the dataset, and those of an oracle.
fn with_a_third(change: impl Fn(&mut LoaderOptions)) -> (Vec<u64>, Vec<u64>) {
    let served = Served::new("made", &large());
    let room = CUBES / 3;
    let limit = room as u64 * (CUBE + 4);
    let dataset = served.open("made", limit, Verify::Once);
    let mut options = options(1, 6);
    change(&mut options);
    let mut loader = Loader::new(&dataset, options).unwrap();
    let (mut orders, mut fetched, mut before) = (Vec::new(), Vec::new(), 0);
    for _ in 0..6 {
        orders.push(epoch(&mut loader).into_iter().flat_map(|(ids, _)| ids).collect::<Vec<_>>());
        dataset.local_cache().unwrap().flush();
        let bytes = dataset.traffic().unwrap().bytes;
        fetched.push(bytes - before);
        before = bytes;
        assert!(used(&dataset).total_bytes <= limit);
        let cached_bytes: u64 =
            served.blocks().iter().map(|file| fs::metadata(file).unwrap().len()).sum();
        assert!(cached_bytes <= limit, "{cached_bytes} of {limit}");
    }
    (fetched, oracle(&orders, room))
}

#[test]
fn a_cache_of_a_third_fetches_hardly_more_than_one_that_knows_the_order() {
    let each_once = |_: &mut LoaderOptions| {};
    let by_chance = |options: &mut LoaderOptions| options.plan.epoch_length = Some(CUBES / 2);
    let weighted = |options: &mut LoaderOptions| options.plan.order = Order::ClassBalanced;
    let changes: [&dyn Fn(&mut LoaderOptions); 3] = [&each_once, &by_chance, &weighted];
    for (number, change) in changes.into_iter().enumerate() {
        let (fetched, best) = with_a_third(change);
        let (sum, best_sum): (u64, u64) = (fetched.iter().sum(), best.iter().sum());
        // Some of the next batches are fetched ahead, and their data cannot be removed yet.
        assert!(sum as f64 <= 1.05 * best_sum as f64, "{number}: {fetched:?} {best:?}");
    }
}

#[test]
fn datasets_that_nobody_reads_give_way_and_others_do_not() {
    let served = Served::new("one", &large());
    let other =
        [StackSpec { codec: None, per_shard: 20, ..StackSpec::new(60, 50, 100, 30).tile(60, 50) }];
    write_dataset(&served.folder.path().join("served/two"), &other, |_| json!({}));
    let limit = 40 * (CUBE + 4);
    let first = served.open("one", limit, Verify::Once);
    let fingerprint = first.fingerprint().to_owned();
    epochs(&first, options(4, 1));
    let blocks_of = |fingerprint: &str| {
        let list = CacheFolder::open(&served.cache()).unwrap().list().unwrap();
        list.iter().find(|info| info.fingerprint == fingerprint).map_or(0, |info| info.blocks)
    };
    assert_eq!(blocks_of(&fingerprint), 40);
    let second = served.open("two", limit, Verify::Once);
    epochs(&second, options(4, 1));
    assert_eq!((blocks_of(&fingerprint), blocks_of(second.fingerprint())), (40, 0));
    drop((first, second));
    let second = served.open("two", limit, Verify::Once);
    // This also holds if some of its own blocks are needed later than others.
    epochs(&second, options(4, 3));
    assert_eq!(blocks_of(second.fingerprint()), 30);
    let cache = used(&second);
    assert_eq!((cache.kept_bytes, cache.passed_bytes), (30 * CUBE, 0), "{cache:?}");
    assert_eq!(second.traffic().unwrap().bytes, 30 * CUBE);
    assert!(cache.total_bytes <= limit);
}

#[test]
fn a_cache_shrinks_when_it_is_opened_with_a_smaller_size() {
    let served = Served::new("one", &large());
    let other =
        [StackSpec { codec: None, per_shard: 20, ..StackSpec::new(60, 50, 100, 10).tile(60, 50) }];
    write_dataset(&served.folder.path().join("served/two"), &other, |_| json!({}));
    let size = |cubes: u64| cubes * (CUBE + 4);
    let cached = || served.blocks().len() as u64;
    for name in ["one", "two"] {
        epochs(&served.open(name, 1 << 30, Verify::Once), options(4, 1));
    }
    assert_eq!(cached(), 70);
    // Blocks of a dataset that nobody reads go first.
    let second = served.open("two", size(40), Verify::Once);
    assert!((20..=40).contains(&cached()), "{}", cached());
    assert_eq!(used(&second).total_bytes, size(cached()));
    epochs(&second, options(4, 1));
    assert_eq!(second.traffic().unwrap().bytes, 0);
    // Others read it, so they keep their blocks.
    let again = served.open("two", size(4), Verify::Once);
    assert_eq!(cached(), 10);
    drop((second, again));
    let last = served.open("two", size(4), Verify::Once);
    assert_eq!((cached(), used(&last).total_bytes), (4, size(4)));
    let files = Dataset::open(served.folder.path().join("served/two")).unwrap();
    assert!(epochs(&last, options(4, 1)) == epochs(&files, options(4, 1)));
    assert!(used(&last).total_bytes <= size(4));
}

#[test]
fn processes_that_train_together_share_what_each_of_them_fetched() {
    let served = Served::new("made", &large());
    let datasets: Vec<Dataset> =
        (0..2).map(|_| served.open("made", 1 << 30, Verify::Once)).collect();
    for epoch_number in 0..3 {
        for (rank, dataset) in datasets.iter().enumerate() {
            let mut options = options(5, epoch_number + 1);
            options.share = Share { rank, world_size: 2 };
            options.plan.last = LastBatch::Drop;
            let mut loader = Loader::new(dataset, options).unwrap();
            for _ in 0..=epoch_number {
                epoch(&mut loader);
            }
            dataset.local_cache().unwrap().flush();
        }
    }
    let bytes: u64 = datasets.iter().map(|dataset| dataset.traffic().unwrap().bytes).sum();
    assert_eq!(bytes, CUBES as u64 * CUBE);
}

#[test]
fn files_of_this_machine_are_not_copied() {
    let served = Served::new("made", &mixed());
    let local_cache = Some(LocalCache { folder: served.cache(), bytes: None });
    let options = OpenOptions { local_cache, ..OpenOptions::default() };
    let dataset = Dataset::open_with(served.folder.path().join("served/made"), options).unwrap();
    assert!(dataset.local_cache().is_none() && dataset.traffic().is_none());
    assert!(!served.cache().exists());
}
