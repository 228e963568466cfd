//! Reading allocates nothing once buffers have grown. One test, alone in its process, since allocations
//! of all threads are counted.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use hsipack_read::store::{Limited, ReadBuffer, Store, StoreKind};

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
/// Spans asked for before they are read.
const AHEAD: u64 = 5;

fn epoch(store: &dyn Store, folder: &std::path::Path, rounds: usize) -> usize {
    let file = store.open(&folder.join("shard")).unwrap();
    let span = |piece: u64| piece * PIECE..piece * PIECE + PIECE - piece;
    let mut buffer = ReadBuffer::new();
    let mut counted = 0;
    for _ in 0..rounds {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for piece in 0..PIECES {
            file.prefetch(span((piece + AHEAD) % PIECES));
            file.with_bytes(span(piece), &mut buffer, &mut |bytes| {
                assert!(bytes.iter().all(|byte| *byte == 7));
                Ok(())
            })
            .unwrap();
        }
        counted = ALLOCATIONS.load(Ordering::Relaxed) - before;
    }
    counted
}

#[test]
fn a_later_epoch_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shard"), vec![7; (PIECE * PIECES) as usize]).unwrap();
    for kind in StoreKind::ALL {
        assert_eq!(epoch(&*kind.store(), folder.path(), 4), 0, "{kind}");
        let limited = Limited::new(kind.store(), 1 << 30, 1 << 30);
        assert_eq!(epoch(&limited, folder.path(), 4), 0, "{kind}, limited");
    }
}
