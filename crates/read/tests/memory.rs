//! How much of the heap and of memory the reader uses. These tests have a process of their own and
//! run one after the other, because they count the allocations of all threads.

#[path = "support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hsipack_read::plan::{Crop, Pad, Windows};
use hsipack_read::store::{Limited, Link, ReadBuffer, Store, StoreKind, StoredFile};
use hsipack_read::{CacheKind, Dataset, Loader, LoaderOptions};
use serde_json::json;
use support::{StackSpec, write_dataset};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PIECE: u64 = 300_000;
const PIECES: u64 = 30;
/// How many spans are requested before they are read.
const AHEAD: u64 = 5;
const MAX_AHEAD: u64 = 3 * AHEAD;

fn span(piece: u64) -> Range<u64> {
    let piece = piece % PIECES;
    piece * PIECE..piece * PIECE + PIECE - piece
}

/// Makes a store that keeps bytes read ahead allocate all buffers that are ever needed at the same
/// time: that number of spans is held together, all in buffers of the store.
fn grow_buffers(file: &dyn StoredFile) {
    fn held(file: &dyn StoredFile, remaining: u64) -> bool {
        let Some(next) = remaining.checked_sub(1) else { return true };
        let (mut buffer, mut all) = (ReadBuffer::new(), false);
        let take = &mut |_: &[u8]| {
            all = held(file, next);
            Ok(())
        };
        file.with_bytes(span(next), &mut buffer, take).unwrap();
        all && buffer.capacity() == 0
    }
    let start = Instant::now();
    loop {
        (0..=MAX_AHEAD + 1).for_each(|piece| file.prefetch(span(piece)));
        std::thread::sleep(Duration::from_millis(20));
        if held(file, MAX_AHEAD + 2) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is read ahead");
    }
}

/// Counts allocations while a file is read piece by piece, after some time.
fn counted(store: &dyn Store, folder: &Path, holds_bytes: bool) -> usize {
    let file = store.open(&folder.join("shard")).unwrap();
    if holds_bytes {
        grow_buffers(&*file);
    }
    let mut buffer = ReadBuffer::new();
    // This span was not requested ahead, so the reader's own buffer grows.
    file.with_bytes(span(0), &mut buffer, &mut |_| Ok(())).unwrap();
    let mut read = |rounds: usize, ahead: u64| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for piece in (0..rounds).flat_map(|_| 0..PIECES) {
            for distance in AHEAD..=ahead {
                file.prefetch(span(piece + distance));
            }
            file.with_bytes(span(piece), &mut buffer, &mut |bytes| {
                assert!(bytes.iter().all(|byte| *byte == 7));
                Ok(())
            })
            .unwrap();
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    read(3, AHEAD);
    // Also if more spans are requested at once than ever before.
    fewest(|| read(8, AHEAD) + read(2, MAX_AHEAD))
}

/// The fewest allocations of several counts. On a busy machine, a thread that was started long ago
/// may run for the first time during any one count, and allocates its name then. What allocates
/// with every read or batch does so during each count.
fn fewest(count: impl FnMut() -> usize) -> usize {
    std::iter::repeat_with(count).take(4).min().unwrap_or_default()
}

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn reading_allocates_nothing_once_buffers_have_grown() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shard"), vec![7; (PIECE * PIECES) as usize]).unwrap();
    for kind in StoreKind::ALL {
        let holds_bytes = kind == StoreKind::Direct;
        assert_eq!(counted(&*kind.store(), folder.path(), holds_bytes), 0, "{kind}");
        let limited = Limited::new(kind.store(), Link::of_rate(1 << 30), 1 << 30);
        assert_eq!(counted(&limited, folder.path(), holds_bytes), 0, "{kind}, limited");
    }
}

fn loader(spec: StackSpec, crop: Crop, batch_size: usize) -> (tempfile::TempDir, Loader) {
    let folder = tempfile::tempdir().unwrap();
    let written = write_dataset(&folder.path().join("made"), &[spec], |_| json!({}));
    let mut options = LoaderOptions::new(batch_size);
    options.plan.crop = crop;
    options.slots = 3;
    // Without a cache, which stores a chunk when it is decoded for the first time.
    options.cache = CacheKind::None;
    let loader = Loader::new(&Dataset::open(&written.path).unwrap(), options).unwrap();
    (folder, loader)
}

#[test]
fn batches_allocate_nothing_in_any_thread() {
    let _alone = alone();
    let whole = StackSpec::new(12, 10, 7, 80).masks(&["a"]).tile(5, 10);
    let tiled = StackSpec::new(40, 40, 3, 20).masks(&["a"]).tile(16, 16);
    let crop = Crop::Random { rows: 9, columns: 9, per_sample: 4, min_labelled: 0.2 };
    // Some reach beyond the edge.
    let list: Vec<_> = (0..80).map(|number| (number % 20, (number / 2) as i32 - 4, 3)).collect();
    let windows = Crop::Windows(Windows::listed((9, 9), Pad::Reflect, &list).unwrap().into());
    for (spec, crop) in [(whole, Crop::Whole), (tiled.clone(), crop), (tiled, windows)] {
        let (_folder, mut loader) = loader(spec, crop.clone(), 2);
        // After this, every slot and working buffer has its full size, and every shard and mask is open.
        for _ in 0..3 {
            loader.epoch().for_each(|batch| drop(batch.unwrap()));
        }
        let counted = || {
            let mut epoch = loader.epoch();
            epoch.by_ref().take(8).for_each(|batch| drop(batch.unwrap()));
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            epoch.by_ref().take(20).for_each(|batch| drop(batch.unwrap()));
            ALLOCATIONS.load(Ordering::Relaxed) - before
        };
        assert_eq!(fewest(counted), 0, "{crop:?}");
    }
}

/// Bytes of memory that the process has.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn memory_is_the_ring_and_little_more_and_does_not_grow() {
    let _alone = alone();
    let before = resident();
    let spec = StackSpec::new(24, 20, 16, 100).masks(&["a"]).tile(8, 20);
    let (_folder, mut loader) = loader(spec, Crop::Whole, 4);
    let batches = |loader: &mut Loader, count: usize| {
        let mut delivered = 0;
        while delivered < count {
            delivered += usize::from(loader.next_batch().is_some_and(|batch| batch.is_ok()));
        }
    };
    batches(&mut loader, 500);
    let early = resident();
    batches(&mut loader, 10_000);
    let late = resident();
    assert!(late < early + (1 << 20), "grew from {early} to {late} bytes");
    let ring = loader.memory().bytes;
    assert!(
        late < before + ring + (64 << 20),
        "{before} before, a ring of {ring}, {late} at the end"
    );
}
