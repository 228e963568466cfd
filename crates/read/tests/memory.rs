//! What the reader takes of the heap and of memory. These tests have a process of their own and run one after
//! the other, since they count what all threads do.

#[path = "support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hsipack_read::plan::Crop;
use hsipack_read::store::{Limited, ReadBuffer, Store, StoreKind};
use hsipack_read::{Dataset, Loader, LoaderOptions};
use serde_json::json;
use support::{StackSpec, write_dataset};

struct Counting;

/// Whether the caller is the process's first thread: it runs no test, but prints what became of the last one
/// while the next one runs.
fn in_harness() -> bool {
    // SAFETY: these two read numbers, and cannot fail.
    unsafe { libc::gettid() == libc::getpid() }
}

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !in_harness() {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
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
/// Spans asked for before they are read.
const AHEAD: u64 = 5;

/// Allocations in the last ten of some rounds, in each of which a file is read piece by piece.
fn counted(store: &dyn Store, folder: &std::path::Path) -> usize {
    let file = store.open(&folder.join("shard")).unwrap();
    let span = |piece: u64| piece * PIECE..piece * PIECE + PIECE - piece;
    let mut buffer = ReadBuffer::new();
    let mut read = |rounds: usize, ahead: u64| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for piece in (0..rounds).flat_map(|_| 0..PIECES) {
            for asked in AHEAD..=ahead {
                file.prefetch(span((piece + asked) % PIECES));
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
    // Also where more is asked for at once than ever before.
    read(8, AHEAD) + read(2, 3 * AHEAD)
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
        let most = match kind {
            // As many buffers as were ever wanted at once, each with its count, the list of them, and the reader's.
            StoreKind::Direct => 2 * (3 * AHEAD as usize + 1) + 5 + 1,
            _ => 0,
        };
        let limited = Limited::new(kind.store(), 1 << 30, 1 << 30);
        let (plain, limited) =
            (counted(&*kind.store(), folder.path()), counted(&limited, folder.path()));
        assert!(plain <= most && limited <= most, "{kind}: {plain} and {limited}, at most {most}");
    }
}

fn loader(spec: StackSpec, crop: Crop, batch_size: usize) -> (tempfile::TempDir, Loader) {
    let folder = tempfile::tempdir().unwrap();
    let written = write_dataset(&folder.path().join("made"), &[spec], |_| json!({}));
    let mut options = LoaderOptions::new(batch_size);
    options.plan.crop = crop;
    options.slots = 3;
    let loader = Loader::new(&Dataset::open(&written.path).unwrap(), options).unwrap();
    (folder, loader)
}

#[test]
fn batches_allocate_nothing_in_any_thread() {
    let _alone = alone();
    let whole = StackSpec::new(12, 10, 7, 80).masks(&["a"]).tile(5, 10);
    let tiled = StackSpec::new(40, 40, 3, 20).masks(&["a"]).tile(16, 16);
    let crop = Crop::Random { rows: 9, columns: 9, per_sample: 4, min_labelled: 0.2 };
    for (spec, crop) in [(whole, Crop::Whole), (tiled, crop)] {
        let (_folder, mut loader) = loader(spec, crop, 2);
        // Every slot and every working buffer has grown, every shard and mask was opened.
        for _ in 0..3 {
            loader.epoch().for_each(|batch| drop(batch.unwrap()));
        }
        let mut epoch = loader.epoch();
        epoch.by_ref().take(8).for_each(|batch| drop(batch.unwrap()));
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        epoch.by_ref().take(20).for_each(|batch| drop(batch.unwrap()));
        let counted = ALLOCATIONS.load(Ordering::Relaxed) - before;
        assert_eq!(counted, 0, "{crop:?}");
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
        let mut given = 0;
        while given < count {
            given += usize::from(loader.next_batch().is_some_and(|batch| batch.is_ok()));
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
