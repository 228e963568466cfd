//! Loaders of all kinds, from files and from a server, stopped at random times, with errors, slow
//! consumers and batches that are kept. It takes two seconds. `HSIPACK_SOAK_SECONDS=1800` makes it
//! half an hour, `HSIPACK_SOAK_SEED=2` makes other loaders.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hsipack_read::plan::{Crop, LastBatch, Order, Patches, Share};
use hsipack_read::store::{Limited, Link, RemoteStore, Store, StoreKind};
use hsipack_read::{
    Batch, CacheKind, Dataset, Loader, LoaderOptions, OnDamage, OpenOptions, Result, ShuffleWindow,
    Verify,
};
use hsipack_store::local_cache::LocalCache;
use hsipack_testing::server::{Fault, Server};
use serde_json::json;

use crate::loading::check;
use crate::support::{StackSpec, Written, write_dataset};

/// Loaders until the server starts anew: it remembers all requests.
const LOADERS_OF_A_SERVER: u64 = 300;

/// A small generator. Its numbers do not matter, but a seed must determine all of them.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        // Any odd number will do: the state must not be 0, and small seeds must differ in many bits.
        Self((seed << 1 | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize].clone()
    }
}

fn options(dice: &mut Dice) -> LoaderOptions {
    let mut options = LoaderOptions::new(1 + dice.below(6) as usize);
    options.threads = 1 + dice.below(4) as usize;
    options.slots = 2 + dice.below(4) as usize;
    options.memory.locked = dice.below(2) != 0;
    options.memory.no_huge_pages = true;
    options.cache = dice.one_of(&CacheKind::ALL);
    options.cache_bytes = dice.one_of(&[0, 20_000, 1 << 20]);
    options.on_damage = dice.one_of(&[OnDamage::Error, OnDamage::Skip]);
    options.plan.seed = dice.below(100);
    options.plan.order =
        dice.one_of(&[Order::Sequential, Order::Shuffled, Order::Shuffled, Order::Weighted]);
    options.plan.last = dice.one_of(&[LastBatch::Short, LastBatch::Drop, LastBatch::Pad]);
    options.shuffle_window = dice.one_of(&[
        ShuffleWindow::Auto,
        ShuffleWindow::All,
        ShuffleWindow::Bytes(8_000),
        ShuffleWindow::Bytes(40_000),
    ]);
    let world_size = 1 + dice.below(3) as usize;
    options.share = Share { rank: dice.below(world_size as u64) as usize, world_size };
    options.end_epoch = dice.one_of(&[None, Some(1 + dice.0 % 3)]);
    options.plan.crop = dice.one_of(&[
        Crop::Whole,
        Crop::Centre { rows: 6, columns: 11 },
        Crop::Random { rows: 9, columns: 7, per_sample: 2, min_labelled: 0.2 },
        Crop::Grid { rows: 8, columns: 8, row_step: 5, column_step: 8, pad: None },
    ]);
    if dice.below(4) == 0 {
        options.plan.crop = Crop::Whole;
        options.patches = Some(("a".into(), Patches::new(5, 7)));
    }
    options
}

/// Answers most requests, and fails at others, always at the same ones for a seed.
fn served(folder: &Path, seed: u64) -> Server {
    Server::with_faults(folder, move |request| {
        let mut dice = Dice::new(seed ^ (request.number as u64) << 20);
        dice.below(7);
        match dice.below(60) {
            0 => Fault::Status(503),
            1 => Fault::Reset,
            2 => Fault::CutAfter(dice.below(400) as usize),
            3 => Fault::Corrupt,
            4 => Fault::Late(Duration::from_millis(dice.below(60))),
            _ => Fault::None,
        }
    })
}

/// Opens a dataset from its files or from the server.
fn open(written: &Written, server: &Server, cache: &Path, dice: &mut Dice) -> Result<Dataset> {
    let verify = dice.one_of(&[Verify::Once, Verify::Always]);
    if dice.below(6) == 0 {
        // Little is kept in memory, so the local cache is read; and it is too small for all datasets.
        let store = Some(Arc::new(RemoteStore::with_bytes(20_000)) as Arc<dyn Store>);
        let folder = LocalCache { folder: cache.to_owned(), bytes: Some(150_000) };
        let local_cache = (dice.below(2) == 0).then_some(folder);
        let name = written.path.file_name().unwrap().to_str().unwrap();
        let options = OpenOptions { store, verify, as_of: None, local_cache };
        return Dataset::open_with(server.url(name), options);
    }
    let store =
        dice.one_of(&[StoreKind::Mapped, StoreKind::Mapped, StoreKind::Pread, StoreKind::Direct]);
    let mut store = store.store();
    if dice.below(4) == 0 {
        store = Arc::new(Limited::new(store, Link::of_rate(20_000_000), 100_000));
    }
    let options = OpenOptions { store: Some(store), verify, as_of: None, local_cache: None };
    Ok(Dataset::open_with(&written.path, options).unwrap())
}

/// Runs one loader from creation to end. Returns the numbers of its batches and errors.
fn live(written: &Written, server: &Server, cache: &Path, dice: &mut Dice) -> (usize, usize) {
    // A file of the dataset may have been damaged on its way.
    let Ok(dataset) = open(written, server, cache, dice) else { return (0, 1) };
    let options = options(dice);
    // If something is wrong, it shows what was tried.
    println!("{} of {}, {options:?}", dataset.path().display(), written.path.display());
    let Ok(mut loader) = Loader::new(&dataset, options) else { return (0, 1) };
    let (mut batches, mut errors) = (0, 0);
    let mut kept: Vec<Batch> = Vec::new();
    for _ in 0..dice.below(60) {
        match dice.below(40) {
            0 => loader.set_epoch(dice.below(5)),
            1 => std::thread::sleep(Duration::from_millis(dice.below(4))),
            2 => drop(std::mem::take(&mut kept)),
            3 => {
                // Batches that are dropped in another thread.
                let moved = std::mem::take(&mut kept);
                std::thread::spawn(move || drop(moved));
            }
            _ => {}
        }
        match loader.next_within(Duration::from_secs(60)) {
            None => {}
            Some(Ok(None)) => panic!("no batch within a minute"),
            Some(Ok(Some(batch))) => {
                check(&batch, written, None);
                batches += 1;
                if dice.below(5) == 0 {
                    kept.push(batch);
                }
            }
            Some(Err(_)) => {
                errors += 1;
                kept.clear();
            }
        }
    }
    kept.iter().for_each(|batch| check(batch, written, None));
    if dice.below(10) == 0 {
        std::panic::resume_unwind(Box::new("the consumer panicked"));
    }
    if dice.below(2) == 0 {
        drop(loader);
        kept.iter().for_each(|batch| check(batch, written, None));
    }
    (batches, errors)
}

fn own_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    let prefixes = ["decode ", "plan", "hsipack-cache"];
    names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))).count()
}

#[test]
fn loaders_that_are_stopped_fail_or_wait_leave_nothing_behind() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds = number("HSIPACK_SOAK_SECONDS");
    let seed = number("HSIPACK_SOAK_SEED").unwrap_or(0);
    let folder = tempfile::tempdir().unwrap();
    let specs = [
        StackSpec::new(20, 18, 5, 23).masks(&["a"]).tile(7, 5),
        StackSpec::new(20, 18, 5, 23).masks(&["a"]),
    ];
    let mut sets: Vec<Written> = (0..)
        .zip(&specs)
        .map(|(number, spec)| {
            write_dataset(
                &folder.path().join(format!("{number}")),
                std::slice::from_ref(spec),
                |_| json!({}),
            )
        })
        .collect();
    let bad = write_dataset(&folder.path().join("bad"), &specs[1..], |_| json!({}));
    let shard = bad.path.join("20x18x5/image/c/2/0/0/0");
    let mut bytes = std::fs::read(&shard).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&shard, bytes).unwrap();
    sets.push(bad);

    let mut dice = Dice::new(seed);
    let cache = folder.path().join("cache");
    let mut server = served(folder.path(), seed);
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(2));
    let (mut loaders, mut batches, mut errors, mut panics) = (0u64, 0, 0, 0);
    // Beside other tests, a loader may take seconds, so run enough of them however long that takes.
    while Instant::now() < end || loaders <= 5 || batches <= 50 {
        let written = &sets[dice.below(sets.len() as u64) as usize];
        match catch_unwind(AssertUnwindSafe(|| live(written, &server, &cache, &mut dice))) {
            Ok((more, failed)) => (batches, errors) = (batches + more, errors + failed),
            Err(panic) if panic.downcast_ref::<&str>() == Some(&"the consumer panicked") => {
                panics += 1
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
        loaders += 1;
        if loaders % LOADERS_OF_A_SERVER == 0 {
            server = served(folder.path(), seed ^ loaders);
        }
    }
    drop(server);
    println!(
        "{loaders} loaders, {batches} batches, {errors} errors, {panics} panics of the consumer"
    );
    if seconds.is_some() {
        // This test is alone in the process, so no other test has loaders.
        assert_eq!(own_threads(), 0);
        let statm = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = statm.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        println!("{line}, {} descriptors", std::fs::read_dir("/proc/self/fd").unwrap().count());
    }
}
