//! How a store handles servers that fail.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use hsipack_format::{Error, ErrorKind, Result};
use hsipack_testing::server::{Fault, Request, Server};

use super::super::{ReadBuffer, Store, StoredFile};
use super::{COALESCING, RemoteStore};
use crate::local_cache::{CachedDataset, CachedShard, Claim, LocalCache};
use crate::remote::set_options;
use crate::stopping;

/// More bytes than two requests fetch.
const LEN: usize = 2 * COALESCING.run as usize + 12_345;

fn content() -> Vec<u8> {
    (0..LEN).map(|at| (at as u32).wrapping_mul(2_654_435_761) as u8).collect()
}

/// Opens a served file. `faults` decides what happens to requests for its bytes.
fn open(
    faults: impl Fn(&Request) -> Fault + Send + Sync + 'static,
) -> (tempfile::TempDir, Server, Arc<dyn StoredFile>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shard"), content()).unwrap();
    // Opening is the first request.
    let faults = move |request: &Request| match request.number {
        0 => Fault::None,
        _ => faults(request),
    };
    let server = Server::with_faults(folder.path(), faults);
    let file = RemoteStore::new().open(&server.url("shard")).unwrap();
    (folder, server, file)
}

fn read(file: &dyn StoredFile, start: usize, end: usize) -> Result<Vec<u8>> {
    let mut got = Vec::new();
    file.with_bytes(start as u64..end as u64, &mut ReadBuffer::new(), &mut |bytes| {
        got.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(got)
}

/// Reads everything, without and with prefetching.
fn all_is_right(file: &dyn StoredFile) {
    let want = content();
    assert!(read(file, 0, LEN).unwrap() == want, "by itself");
    file.prefetch(0..LEN as u64);
    let run = COALESCING.run as usize;
    for start in (0..LEN).step_by(run / 4) {
        let end = LEN.min(start + run / 4);
        assert!(read(file, start, end).unwrap() == want[start..end], "{start} to {end}");
    }
}

/// The errors of reading without and with prefetching. They must come soon.
fn fails(file: &dyn StoredFile) -> [Error; 2] {
    let begun = Instant::now();
    let alone = read(file, 10, 20).unwrap_err();
    file.prefetch(0..100);
    let ahead = read(file, 10, 20).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    [alone, ahead]
}

#[test]
fn errors_and_breaks_of_a_server_are_tried_again() {
    let (_folder, _server, file) = open(|request| match request.number % 5 {
        1 => Fault::Status(503),
        2 => Fault::Reset,
        3 => Fault::CutAfter(1 << 20),
        _ => Fault::None,
    });
    all_is_right(&*file);
}

#[test]
fn bytes_before_a_break_are_not_fetched_again() {
    let broken = AtomicBool::new(false);
    let (_folder, server, file) = open(move |_| match broken.swap(true, Ordering::SeqCst) {
        false => Fault::CutAfter(1 << 20),
        true => Fault::None,
    });
    let len = COALESCING.run as usize;
    assert!(read(&*file, 0, len).unwrap() == content()[..len]);
    let ranges: Vec<_> = server.requests().iter().filter_map(|request| request.range).collect();
    assert_eq!(ranges.len(), 2, "{ranges:?}");
    assert!(ranges[1].0 > 0 && ranges[1].0 <= 1 << 20, "{ranges:?}");
}

#[test]
fn a_server_that_stalls_is_asked_again() {
    let stalled = AtomicBool::new(false);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shard"), content()).unwrap();
    let server = Server::with_faults(folder.path(), move |request| {
        match request.method == "GET" && !stalled.swap(true, Ordering::SeqCst) {
            true => Fault::Late(Duration::from_secs(600)),
            false => Fault::None,
        }
    });
    let quick = [("read_timeout".to_owned(), "500ms".to_owned())];
    set_options(&server.url("shard"), quick).unwrap();
    let file = RemoteStore::new().open(&server.url("shard")).unwrap();
    assert!(read(&*file, 10, 20).unwrap() == content()[10..20]);
}

#[test]
fn a_refusal_is_an_error_at_once_and_nobody_tries_for_minutes() {
    for (status, remedy) in [(403, "expired"), (401, "credentials")] {
        let (_folder, server, file) = open(move |_| Fault::Status(status));
        for error in fails(&*file) {
            assert_eq!(error.kind(), ErrorKind::Io);
            assert_eq!(error.path(), Some(server.url("shard").as_path()));
            assert!(error.to_string().contains(&format!("status {status}")), "{error}");
            assert!(error.to_string().contains(remedy), "{error}");
        }
    }
}

#[test]
fn a_server_without_ranges_is_refused() {
    let (_folder, _server, file) = open(|_| Fault::NoRange);
    for error in fails(&*file) {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("range requests"), "{error}");
    }
}

#[test]
fn an_object_that_is_replaced_is_never_mixed_with_the_one_that_was_opened() {
    let (folder, _server, file) = open(|_| Fault::None);
    assert!(read(&*file, 0, 100).unwrap() == content()[..100]);
    // The new file has the same length as the old one.
    let path = folder.path().join("shard");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(folder.path().join("new"), vec![0; LEN]).unwrap();
    std::fs::rename(folder.path().join("new"), &path).unwrap();
    for error in fails(&*file) {
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("open the dataset again"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    // The earlier failure is reported for one second.
    std::thread::sleep(Duration::from_millis(1100));
    for error in fails(&*file) {
        assert!(crate::bounded_read::is_missing(&error), "{error}");
    }
}

#[test]
fn a_failure_is_told_once_and_later_tried_again() {
    let down = Arc::new(AtomicBool::new(true));
    let still = down.clone();
    let (_folder, _server, file) = open(move |_| match still.load(Ordering::SeqCst) {
        true => Fault::Status(403),
        false => Fault::None,
    });
    file.prefetch(0..LEN as u64);
    assert!(read(&*file, 10, 20).is_err());
    down.store(false, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(1100));
    all_is_right(&*file);
}

#[test]
fn prefetched_spans_are_fetched_once_and_in_parallel() {
    // Long, so that a busy machine adds little to it.
    let late = Duration::from_millis(900);
    let (_folder, server, file) = open(move |_| Fault::Late(late));
    let begun = Instant::now();
    file.prefetch(0..LEN as u64);
    file.prefetch(100..200);
    for start in (0..LEN).step_by(1 << 20) {
        read(&*file, start, LEN.min(start + (1 << 20))).unwrap();
    }
    let elapsed = begun.elapsed();
    assert!(elapsed >= late);
    // There are three requests.
    assert!(elapsed < late * 5 / 2, "one after the other: {elapsed:?}");
    let fetched = server.requests().into_iter().filter_map(|request| request.range);
    let fetched: u64 = fetched.map(|(first, last)| last + 1 - first).sum();
    assert_eq!(fetched, LEN as u64);
}

/// Requests `count` short spans from the number `first` on.
fn prefetch_spans(file: &dyn StoredFile, first: u64, count: u64) {
    for number in first..first + count {
        file.prefetch(number * 1000..number * 1000 + 10);
    }
}

#[test]
fn the_first_batch_has_the_link_to_itself() {
    for (batch, at_first) in [(6, 6), (40, 24), (100, 24)] {
        let ((answer, answers), (end, ends)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let (answers, ends) = (Mutex::new(answers), Mutex::new(ends));
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shard"), content()).unwrap();
        let server = Server::with_faults(folder.path(), move |request| {
            // Spans of the first batch are answered one by one, others when the test ends.
            let _ = match request.range {
                Some((first, _)) if first < batch * 1000 => answers.lock().unwrap().recv(),
                Some(_) => ends.lock().unwrap().recv(),
                None => Ok(()),
            };
            Fault::None
        });
        let store = RemoteStore::new();
        let file = store.open(&server.url("shard")).unwrap();
        let requests = || server.requests().len() - 1;
        prefetch_spans(&*file, 0, batch);
        store.batch_requested();
        prefetch_spans(&*file, batch, 200);
        // Later batches do not change what the first one was.
        store.batch_requested();
        settles_at(at_first, requests);
        // At the end, another span gets a part of the link that the first batch no longer needs.
        let (len, at_end) = (batch as usize, (at_first as u64 / 4).max(2));
        (0..batch - at_end).for_each(|_| answer.send(()).unwrap());
        settles_at(len, requests);
        answer.send(()).unwrap();
        settles_at(len + 1, requests);
        // When the whole batch has arrived, the number doubles.
        (1..at_end).for_each(|_| answer.send(()).unwrap());
        settles_at(len + (2 * at_first).max(16), requests);
        drop((answer, end));
    }
}

/// Waits until `count` is `wanted`, and checks that it stays so.
#[track_caller]
fn settles_at(wanted: usize, count: impl Fn() -> usize) {
    let begun = Instant::now();
    while count() < wanted && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(count(), wanted);
}

#[test]
fn a_file_that_is_closed_ends_its_requests() {
    let (_folder, _server, file) = open(|_| Fault::Late(Duration::from_secs(600)));
    file.prefetch(0..LEN as u64);
    let begun = Instant::now();
    drop(file);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[test]
fn taken_spans_are_kept_until_room_is_needed() {
    let (_folder, server, file) = open(|_| Fault::None);
    let bytes = || {
        let fetched = server.requests().into_iter().filter_map(|request| request.range);
        fetched.map(|(first, last)| last + 1 - first).sum::<u64>()
    };
    for _ in 0..5 {
        file.prefetch(0..1000);
        assert!(read(&*file, 0, 1000).unwrap() == content()[..1000]);
    }
    assert_eq!(bytes(), 1000);
    // In a store with little memory, it is dropped when other spans arrive.
    let small = RemoteStore::with_bytes(2000).open(&server.url("shard")).unwrap();
    for start in [0, 1000, 2000, 0] {
        small.prefetch(start..start + 1000);
        read(&*small, start as usize, start as usize + 1000).unwrap();
    }
    assert_eq!(bytes(), 5000);
}

#[test]
fn spans_requested_again_are_kept_until_taken_again() {
    let (_folder, server, file) = open(|_| Fault::None);
    drop(file);
    let bytes = || {
        let fetched = server.requests().into_iter().filter_map(|request| request.range);
        fetched.map(|(first, last)| last + 1 - first).sum::<u64>()
    };
    let file = RemoteStore::with_bytes(3000).open(&server.url("shard")).unwrap();
    let read = |start: usize| {
        assert!(read(&*file, start, start + 1000).unwrap() == content()[start..start + 1000])
    };
    // Like two epochs of three spans in different orders: all spans of the second epoch are requested before
    // the first was taken.
    for start in [0, 1000, 2000, 2000, 0, 1000] {
        file.prefetch(start..start + 1000);
    }
    for start in [0, 1000, 2000] {
        read(start);
    }
    // All three spans are still wanted, so there is no room for a fourth.
    file.prefetch(3000..4000);
    for start in [2000, 0, 1000, 3000] {
        read(start);
    }
    assert_eq!(bytes(), 4000);
    // The span is taken, and wanted again while it is kept.
    for _ in 0..3 {
        file.prefetch(3000..4000);
        file.prefetch(3100..3200);
        read(3000);
    }
    assert_eq!(bytes(), 4000);
}

#[test]
fn locally_cached_bytes_leave_memory() {
    let (_folder, _server, store, _cache, file) = open_with_cache();
    read_chunks(&*file);
    assert_eq!(store.prefetch.wanted(), 0);
}

#[test]
fn bytes_in_memory_are_not_read_from_the_local_cache() {
    let (_folder, _server, _store, cache, file) = open_with_cache();
    for chunk in chunks() {
        file.prefetch(chunk);
    }
    // All blocks are on the disk before the first chunk is read.
    while cache.used().kept_bytes < chunks_len() {
        cache.flush();
        std::thread::sleep(Duration::from_millis(5));
    }
    take_chunks(&*file);
    assert_eq!(cache.used().read_bytes, 0);
}

#[test]
fn a_second_process_reads_the_local_cache_and_fetches_nothing() {
    let (folder, server, store, cache, file) = open_with_cache();
    read_chunks(&*file);
    assert_eq!(cache.used().read_bytes, 0);
    // The end of a process writes what still waits.
    drop((file, store, cache));
    let (store, cache, file) = open_cached(&folder, &server);
    let requests = server.requests().len();
    read_chunks(&*file);
    assert_eq!(server.requests().len(), requests);
    assert_eq!((cache.used().read_bytes, store.prefetch.wanted()), (chunks_len(), 0));
}

#[test]
fn memory_of_blocks_is_used_again_when_they_were_written() {
    let (_folder, _server, store, cache, file) = open_with_cache();
    read_chunks(&*file);
    cache.flush();
    store.prefetch.forget_all();
    assert!(store.prefetch.spare_bytes() >= chunks_len());
}

#[test]
fn bytes_awaiting_the_local_cache_are_not_fetched_again() {
    let (folder, server, store, cache, file) = open_with_cache();
    // Holding this lock prevents writing, like a slow disk.
    let total = std::fs::File::open(folder.path().join("cache/total")).unwrap();
    total.lock().unwrap();
    read_chunks(&*file);
    let requests = server.requests().len();
    store.prefetch.forget_all();
    read_chunks(&*file);
    assert_eq!(server.requests().len(), requests);
    assert_eq!(store.prefetch.wanted(), 0);
    drop(total);
    cache.flush();
    let used = cache.used();
    assert_eq!((used.kept_bytes, used.passed_bytes), (chunks_len(), 0), "once");
    assert!(used.read_bytes >= chunks_len());
    // Now they are read from the disk.
    store.prefetch.forget_all();
    read_chunks(&*file);
    assert_eq!(server.requests().len(), requests);
}

/// Opens a served file with a local cache that keeps fetched data.
fn open_with_cache()
-> (tempfile::TempDir, Server, RemoteStore, Arc<CachedDataset>, Arc<dyn StoredFile>) {
    let (folder, server, file) = open(|_| Fault::None);
    drop(file);
    let (store, cache, file) = open_cached(&folder, &server);
    (folder, server, store, cache, file)
}

/// Opens the served file with the local cache beside it.
fn open_cached(
    folder: &tempfile::TempDir,
    server: &Server,
) -> (RemoteStore, Arc<CachedDataset>, Arc<dyn StoredFile>) {
    let cache = LocalCache { folder: folder.path().join("cache"), bytes: Some(1 << 30) };
    let cache = Arc::new(cache.dataset("a fingerprint", &server.url("")).unwrap());
    let store = RemoteStore::new();
    store.keep_in(&cache);
    let file = store.open(&server.url("shard")).unwrap();
    let spans: Vec<_> = chunks().map(Some).collect();
    file.divide(&spans, spans.len());
    (store, cache, file)
}

/// Chunks of the served file, from its beginning.
fn chunks() -> impl Iterator<Item = Range<u64>> {
    let step = COALESCING.run / 8;
    (0..LEN as u64 / step).map(move |at| at * step..(at + 1) * step)
}

fn chunks_len() -> u64 {
    chunks().map(|chunk| chunk.end - chunk.start).sum()
}

/// Requests and reads the chunks like batches.
fn read_chunks(file: &dyn StoredFile) {
    for chunk in chunks() {
        file.prefetch(chunk);
    }
    take_chunks(file);
}

/// Reads the chunks.
fn take_chunks(file: &dyn StoredFile) {
    for chunk in chunks() {
        let (start, end) = (chunk.start as usize, chunk.end as usize);
        assert!(read(file, start, end).unwrap() == content()[start..end]);
    }
}

#[test]
fn whoever_is_wanted_no_more_waits_no_longer() {
    let (_folder, _server, file) = open(|_| Fault::Late(Duration::from_secs(600)));
    file.prefetch(0..100);
    let begun = Instant::now();
    let ends = Arc::new(move || begun.elapsed() > Duration::from_millis(300));
    for (start, end) in [(0, 100), (1000, 1100)] {
        let error = stopping::until(ends.clone(), || read(&*file, start, end)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn a_refusal_to_open_is_not_asked_for_twice() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("shard"), content()).unwrap();
    let server = Server::with_faults(folder.path(), |_| Fault::Status(403));
    RemoteStore::new().open(&server.url("shard")).unwrap_err();
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn a_thread_of_tokio_s_is_an_error_and_no_panic() {
    let (_folder, server, file) = open(|_| Fault::None);
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let url = server.url("shard");
    runtime.block_on(async {
        for error in [read(&*file, 0, 10).unwrap_err(), RemoteStore::new().open(&url).unwrap_err()]
        {
            assert_eq!(error.path(), Some(url.as_path()));
            assert!(error.to_string().contains("spawn_blocking"), "{error}");
        }
    });
}

/// A served file of 90 chunks, each of which is a block, and a folder for a local cache.
struct Shared {
    folder: tempfile::TempDir,
    server: Server,
}

/// One of several processes that share a local cache.
struct Sharer {
    cache: Arc<CachedDataset>,
    file: Arc<dyn StoredFile>,
}

/// Length of a block.
const BLOCK: u64 = 270_000;
const BLOCKS: u64 = 90;

fn block(number: u64) -> Range<u64> {
    number * BLOCK..(number + 1) * BLOCK
}

/// The content of all blocks.
fn in_blocks() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    let byte = |at: u64| (at as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3];
    CONTENT.get_or_init(|| (0..BLOCKS * BLOCK).map(byte).collect())
}

impl Shared {
    /// `faults` decides what happens to requests for blocks.
    fn new(faults: impl Fn(&Request) -> Fault + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("served")).unwrap();
        std::fs::write(folder.path().join("served/shard"), in_blocks()).unwrap();
        let faults = move |request: &Request| match request.range {
            Some(_) => faults(request),
            None => Fault::None,
        };
        let server = Server::with_faults(&folder.path().join("served"), faults);
        Self { folder, server }
    }

    /// Opens the file as another process would.
    fn open(&self, cache_bytes: u64) -> Sharer {
        let cache =
            LocalCache { folder: self.folder.path().join("cache"), bytes: Some(cache_bytes) };
        let cache = Arc::new(cache.dataset("a fingerprint", &self.server.url("")).unwrap());
        let store = RemoteStore::new();
        store.keep_in(&cache);
        let file = store.open(&self.server.url("shard")).unwrap();
        file.divide(&spans(), 1);
        Sharer { cache, file }
    }

    fn fetched(&self) -> u64 {
        let ranges = self.server.requests().into_iter().filter_map(|request| request.range);
        ranges.map(|(first, last)| last + 1 - first).sum()
    }
}

fn spans() -> Vec<Option<Range<u64>>> {
    (0..BLOCKS).map(|number| Some(block(number))).collect()
}

impl Sharer {
    /// Requests and reads blocks, in this order.
    fn read(&self, order: impl IntoIterator<Item = u64>) {
        let order: Vec<u64> = order.into_iter().collect();
        for number in &order {
            self.file.prefetch(block(*number));
        }
        for number in order {
            let (start, end) = (block(number).start as usize, block(number).end as usize);
            let got = read(&*self.file, start, end).unwrap();
            assert!(got == in_blocks()[start..end], "{number}");
        }
    }

    fn shard(&self) -> CachedShard {
        self.cache.shard(self.file.path(), &spans(), 1)
    }

    /// The numbers of the blocks in this state. Claims blocks that are free.
    fn claim(&self, state: Claim) -> Vec<u64> {
        let shard = self.shard();
        (0..BLOCKS).filter(|number| shard.claim(&block(*number)) == state).collect()
    }
}

/// How little is fetched twice depends on the time that processes leave each other, which beside
/// other work is too short.
mod alone {
    use super::*;

    /// Bytes that two processes fetch together if they read all blocks in these orders at the same
    /// time.
    fn fetched_by_two(orders: [Vec<u64>; 2]) -> f64 {
        let shared = Shared::new(|_| Fault::Late(Duration::from_millis(40)));
        std::thread::scope(|scope| {
            for order in orders {
                let process = shared.open(1 << 30);
                scope.spawn(move || process.read(order));
            }
        });
        shared.fetched() as f64 / (BLOCKS * BLOCK) as f64
    }

    #[test]
    fn processes_with_an_empty_cache_share_the_work() {
        let order: Vec<u64> = (0..BLOCKS).map(|at| at * 7 % BLOCKS).collect();
        let other: Vec<u64> = (0..BLOCKS).map(|at| at * 13 % BLOCKS).collect();
        let same = fetched_by_two([order.clone(), order.clone()]);
        assert!(same <= 1.1, "{same}");
        let different = fetched_by_two([order, other]);
        assert!(different <= 1.2, "{different}");
    }

    #[test]
    fn on_a_slow_link_processes_wait_for_each_other_from_the_start() {
        // The first requests of both take longer than a reader would wait if it knew nothing about the link.
        let shared = Shared::new(|_| Fault::Late(Duration::from_millis(1300)));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let process = shared.open(1 << 30);
                scope.spawn(move || process.read(0..40));
            }
        });
        let fetched = shared.fetched() as f64 / (40 * BLOCK) as f64;
        assert!(fetched <= 1.1, "{fetched}");
    }

    #[test]
    fn blocks_that_appear_in_the_cache_after_they_were_requested_are_not_fetched() {
        let late = Arc::new(AtomicBool::new(false));
        let is_late = late.clone();
        let shared = Shared::new(move |_| match is_late.load(Ordering::SeqCst) {
            // Longer than a busy machine needs to read all of them below.
            true => Fault::Late(Duration::from_millis(1500)),
            false => Fault::None,
        });
        let (first, other) = (shared.open(1 << 30), shared.open(1 << 30));
        late.store(true, Ordering::SeqCst);
        // Most of them have to wait for their turn.
        (0..BLOCKS).for_each(|number| first.file.prefetch(block(number)));
        late.store(false, Ordering::SeqCst);
        other.read((0..BLOCKS).rev());
        other.cache.flush();
        first.read(0..BLOCKS);
        let fetched = shared.fetched() as f64 / (BLOCKS * BLOCK) as f64;
        assert!(fetched <= 1.1, "{fetched}");
    }
}

#[test]
fn nobody_waits_long_for_a_process_that_has_stopped() {
    let shared = Shared::new(|_| Fault::None);
    let (stopped, reader) = (shared.open(1 << 30), shared.open(1 << 30));
    assert_eq!(stopped.claim(Claim::Free).len() as u64, BLOCKS);
    let begun = Instant::now();
    reader.read(0..BLOCKS);
    // One wait for all of the blocks.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(shared.fetched(), BLOCKS * BLOCK);
    reader.cache.flush();
    assert_eq!(reader.cache.used().kept_bytes, BLOCKS * BLOCK, "others need them, too");
}

#[test]
fn blocks_are_fetched_ahead_again_when_their_process_has_ended() {
    let shared = Shared::new(|_| Fault::None);
    let (killed, other) = (shared.open(1 << 30), shared.open(1 << 30));
    assert_eq!(killed.claim(Claim::Free).len() as u64, BLOCKS);
    (0..BLOCKS).for_each(|number| other.file.prefetch(block(number)));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(shared.fetched(), 0);
    drop(killed);
    let begun = Instant::now();
    while shared.fetched() < BLOCKS * BLOCK {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody reads, but they are fetched");
        std::thread::sleep(Duration::from_millis(5));
    }
    other.read(0..BLOCKS);
    assert_eq!(shared.fetched(), BLOCKS * BLOCK);
}

#[test]
fn blocks_stay_claimed_until_they_are_written() {
    let shared = Shared::new(|_| Fault::None);
    let (first, other) = (shared.open(1 << 30), shared.open(1 << 30));
    // Holding this lock prevents writing, like a slow disk.
    let total = std::fs::File::open(shared.folder.path().join("cache/total")).unwrap();
    total.lock().unwrap();
    first.read(0..BLOCKS);
    assert_eq!(other.claim(Claim::Other).len() as u64, BLOCKS);
    drop(total);
    first.cache.flush();
    assert_eq!(other.claim(Claim::Cached).len() as u64, BLOCKS);
}

#[test]
fn readers_do_not_wait_for_a_disk_that_takes_nothing() {
    let shared = Shared::new(|_| Fault::Late(Duration::from_millis(10)));
    let processes = [shared.open(1 << 30), shared.open(1 << 30)];
    let total = std::fs::File::open(shared.folder.path().join("cache/total")).unwrap();
    total.lock().unwrap();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for process in &processes {
            scope.spawn(|| process.read(0..BLOCKS));
        }
    });
    // A few waits, not one for each block.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(total);
}

#[test]
fn blocks_that_are_not_kept_or_not_fetched_are_claimed_no_longer() {
    // There is room for two blocks.
    let shared = Shared::new(|_| Fault::None);
    let (first, other) = (shared.open(2 * BLOCK + 100), shared.open(2 * BLOCK + 100));
    first.read(0..BLOCKS);
    first.cache.flush();
    assert_eq!(other.claim(Claim::Cached).len(), 2);
    let free = other.claim(Claim::Free);
    assert_eq!(free.len() as u64, BLOCKS - 2);
    drop(other);
    // The block that came last decides whether the process claims more. On a busy machine, it may be one that was kept.
    first.read([free[0]]);
    first.cache.flush();
    // What is not kept is not claimed at all.
    let other = shared.open(2 * BLOCK + 100);
    assert_eq!(first.claim(Claim::Free), other.claim(Claim::Free));

    let shared = Shared::new(|_| Fault::Status(403));
    let (first, other) = (shared.open(1 << 30), shared.open(1 << 30));
    assert!(read(&*first.file, 0, 100).is_err());
    assert_eq!(other.claim(Claim::Free).len() as u64, BLOCKS);

    let shared = Shared::new(|_| Fault::Late(Duration::from_secs(600)));
    let (first, other) = (shared.open(1 << 30), shared.open(1 << 30));
    (0..BLOCKS).for_each(|number| first.file.prefetch(block(number)));
    drop(first.file);
    assert_eq!(other.claim(Claim::Free).len() as u64, BLOCKS);
}

#[test]
fn processes_whose_cache_is_deleted_or_too_small_read_on() {
    let shared = Shared::new(|_| Fault::Late(Duration::from_millis(5)));
    for bytes in [1 << 30, 3 * BLOCK, 0] {
        let processes = [shared.open(bytes), shared.open(bytes)];
        std::thread::scope(|scope| {
            for process in &processes {
                scope.spawn(|| (0..3).for_each(|_| process.read(0..BLOCKS)));
            }
            std::thread::sleep(Duration::from_millis(30));
            // In one step: a folder of which a part is deleted is not a cache.
            let cache = shared.folder.path().join("cache");
            std::fs::rename(&cache, cache.with_extension(format!("deleted {bytes}"))).unwrap();
        });
    }
}
