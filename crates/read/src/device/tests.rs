//! Tests the transfer on a device that is late, reorders everything that events do not order, and
//! fails.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hsipack_augment::array::Stream;
use hsipack_augment::{Array, ElementType, Host};

use hsipack_format::{Codec, Compressor, DType, Shuffle};
use hsipack_store::codec::encode;

use super::decode::{CHUNK_BYTES, Chunk, Decode};
use super::fake::{Fake, Queue};
use super::monitor::Tally;
use super::source::Source;
use super::transfer::{Next, Transfer};
use crate::loader::{DecodePlace, Decoding};
use crate::{Error, Result};

const BYTES: usize = 64;
/// Bytes of a host buffer: enough for a batch that the device decodes.
const BUFFER: usize = 256;
/// Number of batches in an epoch.
const EPOCH: u64 = 5;

/// Delivers batches of known bytes from a few host buffers, which are filled with rubbish as soon
/// as they are dropped.
struct TestSource {
    pool: Arc<Pool>,
    epoch: u64,
    number: u64,
    /// Batches that fail.
    errors: HashSet<(u64, u64)>,
    /// Whether the device decodes batches.
    compressed: bool,
}

thread_local! {
    /// Whether the device decodes the batches of the calling test.
    static COMPRESSED: Cell<bool> = const { Cell::new(false) };
}

/// Number of host buffers. A lost device may keep one, or two if it decodes.
fn host_buffers() -> usize {
    if COMPRESSED.get() { 3 } else { 2 }
}

/// Batches whose frame is damaged: the first can be read on the host, the other cannot.
const BAD_ON_THE_DEVICE: (u64, u64) = (1000, 1);
const BAD: (u64, u64) = (1000, 3);

#[derive(Default)]
struct Pool {
    buffers: Mutex<Vec<&'static mut [u8]>>,
    changed: Condvar,
    stopped: Mutex<bool>,
    /// Number of batches that the device could not decode.
    decoded_here: AtomicU64,
}

struct HostBatch {
    bytes: Option<&'static mut [u8]>,
    pool: Arc<Pool>,
    name: (u64, u64),
    decoding: Option<Arc<Decoding>>,
}

impl Drop for HostBatch {
    fn drop(&mut self) {
        let bytes = self.bytes.take().expect("dropped once");
        bytes.fill(0xEE);
        self.pool.buffers.lock().unwrap().push(bytes);
        self.pool.changed.notify_all();
    }
}

/// Puts a batch into a buffer as the device needs it.
fn compress(name: (u64, u64), buffer: &mut [u8]) -> Decoding {
    let codec = Codec::new(Compressor::Lz4, 5, Shuffle::None, DType::U8);
    let mut frame = Vec::new();
    encode(&codec, &bytes_of(name), &mut frame).unwrap();
    let len = frame.len() - 4;
    if [BAD_ON_THE_DEVICE, BAD].contains(&name) {
        // As if it held another number of bytes.
        frame[4] ^= 1;
    }
    buffer[..len].copy_from_slice(&frame[..len]);
    let chunk = Chunk::of_values(BYTES as u32, 0..len as u64, 0);
    let table = len.next_multiple_of(16);
    let statuses = table + CHUNK_BYTES;
    let bytes = statuses + 4;
    buffer[table..statuses].copy_from_slice(&chunk.to_bytes());
    buffer[statuses..bytes].fill(0);
    let decode = Decode::new(&[chunk], bytes as u64, BYTES as u64, 1, BYTES as u64).unwrap();
    Decoding::one(decode, (table, statuses), 1, bytes, BYTES)
}

fn bytes_of((epoch, number): (u64, u64)) -> Vec<u8> {
    (0..BYTES as u64).map(|byte| (epoch * 89 + number * 31 + byte * 7) as u8).collect()
}

impl Source for TestSource {
    type Batch = HostBatch;
    type Info = (u64, u64);
    type Position = (u64, u64);

    fn next(&mut self) -> Option<Result<HostBatch>> {
        if self.errors.remove(&(self.epoch, self.number)) {
            self.number += 1;
            return Some(Err(Error::damaged("a sample")));
        }
        if self.number == EPOCH {
            (self.epoch, self.number) = (self.epoch + 1, 0);
            return None;
        }
        let mut buffers = self.pool.buffers.lock().unwrap();
        let bytes = loop {
            if *self.pool.stopped.lock().unwrap() {
                return Some(Err(Error::conflict("stopped")));
            }
            match buffers.pop() {
                Some(bytes) => break bytes,
                None => buffers = self.pool.changed.wait(buffers).unwrap(),
            }
        };
        let name = (self.epoch, self.number);
        let decoding = self.compressed.then(|| Arc::new(compress(name, bytes)));
        if decoding.is_none() {
            bytes[..BYTES].copy_from_slice(&bytes_of(name));
        }
        self.number += 1;
        Some(Ok(HostBatch { bytes: Some(bytes), pool: self.pool.clone(), name, decoding }))
    }

    fn next_if_ready(&mut self) -> Option<Option<Result<HostBatch>>> {
        let waits = self.pool.buffers.lock().unwrap().is_empty() && self.number < EPOCH;
        (!waits).then(|| self.next())
    }

    fn go_to(&mut self, epoch: u64) {
        (self.epoch, self.number) = (epoch, 0);
    }

    fn position(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }

    fn bytes(batch: &HostBatch) -> &[u8] {
        let end = batch.decoding.as_ref().map_or(BYTES, |decoding| decoding.bytes);
        &batch.bytes.as_ref().expect("until it is dropped")[..end]
    }

    fn decoding(batch: &HostBatch) -> Option<Arc<Decoding>> {
        batch.decoding.clone()
    }

    fn answers(batch: &mut HostBatch) -> &mut [u8] {
        let range = batch.decoding.as_ref().expect("the device decodes it").answers();
        &mut batch.bytes.as_mut().expect("until it is dropped")[range]
    }

    fn close_page_cache(&self, _: &str) {}

    fn decoded_here(&mut self, mut batch: HostBatch) -> Result<HostBatch> {
        self.pool.decoded_here.fetch_add(1, Ordering::Relaxed);
        if batch.name == BAD {
            return Err(Error::damaged("a sample"));
        }
        let bytes = batch.bytes.as_mut().expect("until it is dropped");
        bytes[..BYTES].copy_from_slice(&bytes_of(batch.name));
        batch.decoding = None;
        Ok(batch)
    }

    fn info(batch: &HostBatch) -> (u64, u64) {
        batch.name
    }
}

/// A batch as the tests hold it.
struct Batch {
    array: Array,
    name: (u64, u64),
}

struct Bench {
    fake: Fake,
    pool: Arc<Pool>,
    transfer: Transfer<Fake, TestSource>,
    tally: Arc<Tally>,
    /// The positions after batches that failed.
    failed: Vec<(u64, u64)>,
}

fn bench(seed: u64, errors: &[(u64, u64)]) -> Bench {
    bench_on(Fake::new(seed), errors).unwrap()
}

fn bench_on(fake: Fake, errors: &[(u64, u64)]) -> Result<Bench> {
    let pool = Arc::new(Pool::default());
    *pool.buffers.lock().unwrap() =
        (0..host_buffers()).map(|_| vec![0xEE; BUFFER].leak()).collect();
    let errors = errors.iter().copied().collect();
    let compressed = COMPRESSED.get();
    let source = TestSource { pool: pool.clone(), epoch: 0, number: 0, errors, compressed };
    let stopping = pool.clone();
    let interrupt = Box::new(move || {
        let buffers = stopping.buffers.lock().unwrap();
        *stopping.stopped.lock().unwrap() = true;
        drop(buffers);
        stopping.changed.notify_all();
    });
    let tally = Arc::new(Tally::new(compressed));
    let backend = Arc::new(fake.clone());
    let times = tally.clone();
    let transfer = Transfer::start(backend, source, BYTES, Vec::new(), times, interrupt)?;
    Ok(Bench { fake, pool, transfer, tally, failed: Vec::new() })
}

impl Bench {
    fn try_next(&mut self) -> Result<Option<Batch>> {
        self.try_next_on(&[Stream::LEGACY])
    }

    /// Reads the batches that are left of an epoch while the device refuses work. Returns the
    /// number of errors and of batches.
    fn rest_with_refusals(&mut self) -> (usize, u64) {
        let (mut errors, mut batches) = (0, 0);
        loop {
            match self.try_next() {
                Ok(Some(batch)) => {
                    self.read(&batch);
                    batches += 1;
                }
                Ok(None) => return (errors, batches),
                Err(error) => {
                    assert!(error.to_string().contains("refuses"), "{error}");
                    errors += 1;
                }
            }
        }
    }

    /// The next batch, for use on some streams.
    fn try_next_on(&mut self, streams: &[Stream]) -> Result<Option<Batch>> {
        let deadline = Some(Instant::now() + Duration::from_secs(20));
        let next = self.transfer.next(deadline, |memory, name| {
            streams.iter().try_for_each(|stream| memory.lend(*stream))?;
            Ok((Array::new(memory.clone(), 0, &[BYTES], ElementType::U8)?, *name))
        });
        Ok(match next? {
            Next::Batch((array, name), position) => {
                assert_eq!(position, (name.0, name.1 + 1));
                Some(Batch { array, name })
            }
            Next::End(_) => None,
            Next::Failed(error, position) => {
                self.failed.push(position);
                return Err(error);
            }
            Next::TimedOut | Next::Over => panic!("nothing comes"),
        })
    }

    fn next(&mut self) -> Option<Batch> {
        self.try_next().unwrap()
    }

    /// Queues work that reads the batch.
    fn read(&self, batch: &Batch) {
        self.fake.read(&batch.array, bytes_of(batch.name), format!("{:?}", batch.name));
    }

    /// Ends everything, and checks that nothing was wrong.
    fn end(self) {
        let Self { fake, pool, transfer, .. } = self;
        drop(transfer);
        assert_eq!(pool.buffers.lock().unwrap().len(), host_buffers(), "host buffers came back");
        fake.finish_all();
        fake.end();
    }
}

#[test]
fn every_batch_is_what_it_was_however_late_work_and_copies_are() {
    for seed in 0..20 {
        let mut bench = bench(seed, &[]);
        for epoch in 0..6 {
            for number in 0..EPOCH {
                let batch = bench.next().unwrap();
                assert_eq!(batch.name, (epoch, number));
                bench.read(&batch);
            }
            assert!(bench.next().is_none());
        }
        assert_eq!(
            (bench.transfer.copies().device_slots(), bench.transfer.copies().given_away()),
            (2, 0)
        );
        bench.end();
    }
}

#[test]
fn asking_with_the_batch_before_in_hand_takes_no_more_memory() {
    let mut bench = bench(7, &[]);
    let mut before = None;
    for _ in 0..50 {
        let batch = bench.next();
        if let Some(batch) = &batch {
            bench.read(batch);
        }
        before = batch.or(before);
    }
    assert_eq!(
        (bench.transfer.copies().device_slots(), bench.transfer.copies().given_away()),
        (2, 0)
    );
    drop(before);
    bench.end();
}

#[test]
fn every_stream_that_a_batch_is_lent_to_is_waited_for() {
    let other = Stream::of(7 as *mut std::ffi::c_void);
    for seed in 0..10 {
        let mut bench = bench(500 + seed, &[]);
        // Batches go to another thread, which drops them.
        let (send, receive) = std::sync::mpsc::channel::<Batch>();
        let dropper = std::thread::spawn(move || receive.into_iter().for_each(drop));
        for number in 0..40 {
            let streams = [other, Stream::LEGACY];
            let Some(batch) = bench.try_next_on(&streams[..1 + number % 2]).unwrap() else {
                continue;
            };
            // One stream is late.
            let late = if number % 3 == 0 { Queue::Consumer(other) } else { Queue::CONSUMER };
            bench.fake.hold(Some(late));
            let name = format!("{:?} elsewhere", batch.name);
            bench.fake.read_on(other, &batch.array, bytes_of(batch.name), name);
            if number % 2 == 1 {
                bench.read(&batch);
            }
            send.send(batch).unwrap();
            std::thread::sleep(Duration::from_micros(300));
            bench.fake.hold(None);
        }
        drop(send);
        dropper.join().unwrap();
        bench.end();
    }
}

#[test]
fn an_array_that_is_lent_later_is_waited_for_too() {
    let mut bench = bench(8, &[]);
    let other = Stream::of(9 as *mut std::ffi::c_void);
    for _ in 0..30 {
        let Some(batch) = bench.next() else { continue };
        bench.read(&batch);
        // Like a library that takes the array by DLPack.
        batch.array.memory().lend(other).unwrap();
        bench.fake.read_on(other, &batch.array, bytes_of(batch.name), "lent later");
    }
    bench.end();
}

#[test]
fn kept_batches_are_never_written_to() {
    for seed in 0..10 {
        let mut bench = bench(100 + seed, &[]);
        let mut kept = Vec::new();
        for number in 0..60 {
            let Some(batch) = bench.next() else { continue };
            match number % 4 {
                0 => {}
                // A view of a view, without the batch.
                1 => kept.push((batch.array.narrowed(0, 0, 16), batch.name)),
                _ => kept.push((batch.array.clone(), batch.name)),
            }
            for (array, name) in kept.iter().rev().take(5) {
                let bytes = bytes_of(*name)[..array.len()].to_vec();
                bench.fake.read(array, bytes, format!("kept {name:?}"));
            }
            if number % 7 == 6 {
                drop(kept.swap_remove(kept.len() / 2));
            }
        }
        assert!(bench.transfer.copies().given_away() > 0);
        for (array, name) in &kept {
            let bytes = bytes_of(*name)[..array.len()].to_vec();
            bench.fake.read(array, bytes, format!("kept {name:?}"));
        }
        // The arrays are given back while work on them is queued, and while the transfer goes on.
        drop(kept);
        for _ in 0..60 {
            if let Some(batch) = bench.next() {
                bench.read(&batch);
            }
        }
        assert!(
            bench.transfer.copies().device_slots() <= 4,
            "{} slots are left",
            bench.transfer.copies().device_slots()
        );
        bench.end();
    }
}

#[test]
fn the_next_batch_is_copied_while_this_one_is_used() {
    let mut bench = bench(3, &[]);
    let first = bench.next().unwrap();
    bench.fake.wait_until(|(copied, _)| copied == 2);
    // The consumer's work stands still from here on.
    bench.fake.hold(Some(Queue::CONSUMER));
    bench.read(&first);
    drop(first);
    let second = bench.next().unwrap();
    bench.read(&second);
    // The third batch goes into the memory where the first one is still to be read, so its copy waits, on the device.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(bench.fake.done(), (2, 0));
    bench.fake.hold(None);
    bench.fake.wait_until(|(copied, checked)| copied == 3 && checked == 2);
    drop(second);
    bench.end();
}

#[test]
fn the_consumer_does_not_wait_for_copies() {
    let fake = Fake::new(4);
    fake.hold(Some(Queue::Copies));
    let mut bench = bench_on(fake, &[]).unwrap();
    // The batch is given although not a byte of it was copied. Its reader waits, on the device.
    let batch = bench.next().unwrap();
    bench.read(&batch);
    assert_eq!(bench.fake.done().1, 0);
    assert_eq!(bench.pool.buffers.lock().unwrap().len(), 1, "the host slot is kept meanwhile");
    bench.fake.hold(None);
    bench.fake.wait_until(|(_, checked)| checked == 1);
    drop(batch);
    bench.end();
}

#[test]
fn a_restart_at_any_time_begins_the_epoch_asked_for() {
    for seed in 0..30 {
        let mut bench = bench(200 + seed, &[]);
        for round in 0..4u64 {
            for _ in 0..(seed + round) % 4 {
                if let Some(batch) = bench.next() {
                    bench.read(&batch);
                }
            }
            let epoch = 10 * (round + 1);
            bench.transfer.go_to(epoch);
            let batch = bench.next().unwrap();
            assert_eq!(batch.name, (epoch, 0));
            bench.read(&batch);
        }
        bench.end();
    }
}

#[test]
fn an_error_of_the_loader_takes_the_place_of_its_batch() {
    let mut bench = bench(5, &[(0, 0), (0, 3), (1, 4)]);
    let (mut names, mut ends) = (Vec::new(), Vec::new());
    for call in 0..12 {
        match bench.try_next() {
            Ok(Some(batch)) => {
                bench.read(&batch);
                names.push(batch.name);
            }
            Ok(None) => ends.push(call),
            Err(_) => {}
        }
    }
    assert_eq!(names, [(0, 1), (0, 2), (0, 4), (1, 0), (1, 1), (1, 2), (1, 3)]);
    assert_eq!((&bench.failed[..], &ends[..]), (&[(0, 1), (0, 4), (1, 5)][..], &[5, 11][..]));
    bench.end();
}

#[test]
fn no_memory_at_the_start_is_an_error() {
    for allocations in 0..2 {
        let fake = Fake::new(6);
        fake.no_memory_after(allocations);
        let error = bench_on(fake.clone(), &[]).err().expect("no memory");
        assert!(error.remedy().is_some() && error.to_string().contains("out of memory"), "{error}");
        fake.finish_all();
        fake.end();
    }
}

#[test]
fn no_memory_while_batches_are_kept_is_an_error_and_the_batch_comes_later() {
    let mut bench = bench(9, &[]);
    bench.fake.no_memory_after(1);
    let mut kept = Vec::new();
    let error = loop {
        match bench.try_next() {
            Ok(batch) => kept.extend(batch),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("out of memory"), "{error}");
    let next = kept.last().unwrap().name;
    let count = kept.len();
    kept.clear();
    let batch = bench.next().unwrap();
    bench.read(&batch);
    assert_eq!((count, batch.name), (3, (next.0, next.1 + 1)));
    drop(batch);
    bench.end();
}

#[test]
fn a_loop_that_skips_errors_ends_without_memory_for_kept_batches() {
    let mut bench = bench(9, &[]);
    let (mut kept, mut calls) = (Vec::new(), 0);
    loop {
        if kept.len() == 3 {
            // It stays like that.
            bench.fake.no_memory_after(0);
        }
        calls += 1;
        assert!(calls < 20, "{:?}", bench.failed);
        match bench.try_next() {
            Ok(Some(batch)) => kept.push(batch),
            Ok(None) => break,
            Err(_) => {}
        }
    }
    assert_eq!((kept.len(), &bench.failed[..]), (3, &[(0, 4), (0, 5)][..]));
    bench.fake.no_memory_after(usize::MAX);
    kept.clear();
    // The transfer thread may have found at the end of the epoch that there was no room for the next batch, either.
    let next = bench.try_next().or_else(|_| bench.try_next());
    let batch = next.unwrap().unwrap();
    assert_eq!(batch.name.0, 1);
    bench.read(&batch);
    drop(batch);
    bench.end();
}

#[test]
fn a_refusal_does_not_reach_into_another_epoch() {
    let mut bench = bench(13, &[]);
    bench.fake.no_memory_after(1);
    let mut kept: Vec<_> = (0..3).map(|_| bench.next().unwrap()).collect();
    let now = Some(Instant::now());
    let build = |_: &_, _: &_| Ok(());
    assert!(bench.transfer.next(now, build).is_err());
    // The transfer thread may or may not have seen that there is no room.
    drop(bench.transfer.next(now, build));
    bench.transfer.go_to(7);
    kept.clear();
    for number in 0..EPOCH {
        let batch = bench.next().unwrap();
        assert_eq!(batch.name, (7, number));
        bench.read(&batch);
    }
    bench.end();
}

#[test]
fn a_batch_that_cannot_be_made_comes_once_more_and_then_counts() {
    let mut bench = bench(10, &[]);
    let fails = |bench: &mut Bench| {
        bench.transfer.next(None, |_, _| Err::<(), _>(Error::conflict("no memory")))
    };
    for number in 1..=3 {
        assert!(fails(&mut bench).is_err());
        let Ok(Next::Failed(_, position)) = fails(&mut bench) else { panic!("it comes for ever") };
        assert_eq!(position, (0, number));
    }
    assert!(fails(&mut bench).is_err());
    let batch = bench.next().unwrap();
    assert_eq!(batch.name, (0, 3));
    bench.read(&batch);
    drop(batch);
    // That it came in the end counts for itself alone.
    assert!(fails(&mut bench).is_err());
    let batch = bench.next().unwrap();
    assert_eq!(batch.name, (0, 4));
    bench.read(&batch);
    drop(batch);
    bench.end();
}

#[test]
fn a_panic_while_a_batch_is_made_loses_nothing() {
    let mut bench = bench(10, &[]);
    for _ in 0..3 {
        let unwinding = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let panics = |_: &_, _: &_| std::panic::resume_unwind(Box::new("a panic"));
            drop(bench.transfer.next::<()>(None, panics));
        }));
        assert!(unwinding.is_err());
    }
    let batch = bench.next().unwrap();
    assert_eq!(batch.name, (0, 0));
    bench.read(&batch);
    drop(batch);
    bench.end();
}

#[test]
fn copies_that_are_refused_are_tried_once_more_and_lose_no_slot() {
    let mut bench = bench(11, &[]);
    let first = bench.next().unwrap();
    bench.read(&first);
    bench.fake.refuse_copies(6);
    drop(first);
    let (errors, batches) = bench.rest_with_refusals();
    assert_eq!((errors, bench.failed.len()), (6, 3));
    // Which batch was copied already when the refusals began depends on the threads.
    assert_eq!(1 + batches, EPOCH - 3);
    bench.end();
}

#[test]
fn memory_whose_use_cannot_be_waited_for_is_left_to_the_device() {
    for seed in 0..10 {
        let mut bench = bench(500 + seed, &[]);
        let batch = bench.next().unwrap();
        bench.fake.hold(Some(Queue::CONSUMER));
        bench.read(&batch);
        bench.fake.refuse_records(1);
        drop(batch);
        // Other batches are copied meanwhile: into other memory, because the read is still to come.
        let mut kept = Vec::new();
        while let Some(batch) = bench.next() {
            kept.push(batch);
        }
        assert!(kept.len() >= 3);
        kept.iter().for_each(|batch| bench.read(batch));
        drop(kept);
        bench.fake.hold(None);
        bench.end();
    }
}

#[test]
fn a_lost_device_is_an_error_every_time_and_its_host_memory_is_left_to_it() {
    for seed in 0..10 {
        let mut bench = bench(300 + seed, &[]);
        let batch = bench.next();
        bench.fake.lose();
        drop(batch);
        let mut errors = 0;
        for _ in 0..6 {
            errors += usize::from(bench.try_next().is_err());
        }
        assert!(errors >= 4, "{errors}");
        let Bench { fake, transfer, .. } = bench;
        drop(transfer);
        fake.end();
    }
}

#[test]
fn a_loop_that_skips_errors_ends_although_the_device_is_lost() {
    for seed in 0..10 {
        let mut bench = bench(700 + seed, &[]);
        let mut batch = bench.next();
        bench.fake.lose();
        for epoch in 0..2 {
            let (mut calls, mut errors) = (0, 0);
            loop {
                calls += 1;
                assert!(calls < 3 * EPOCH, "{:?}", bench.failed);
                match bench.try_next() {
                    Ok(Some(next)) => batch = Some(next),
                    Ok(None) => break,
                    Err(_) => errors += 1,
                }
            }
            assert!(errors > 0);
            assert_eq!(bench.failed.last(), Some(&(epoch, EPOCH)));
        }
        drop(batch);
        let Bench { fake, transfer, .. } = bench;
        drop(transfer);
        fake.end();
    }
}

#[test]
fn it_stops_at_any_time() {
    for seed in 0..60 {
        let mut bench = bench(400 + seed, &[(0, 2)]);
        let mut kept = None;
        for _ in 0..seed % 6 {
            if let Ok(Some(batch)) = bench.try_next() {
                bench.read(&batch);
                kept = Some(batch);
            }
        }
        let Bench { fake, pool, transfer, .. } = bench;
        if seed % 2 == 0 {
            drop(transfer);
        } else {
            // During a panic.
            let unwinding = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                let _transfer = transfer;
                std::panic::resume_unwind(Box::new("a panic of the consumer"));
            }));
            assert!(unwinding.is_err());
        }
        assert_eq!(pool.buffers.lock().unwrap().len(), host_buffers());
        if let Some(batch) = &kept {
            // It outlives the transfer.
            fake.read(&batch.array, bytes_of(batch.name), "kept");
        }
        fake.finish_all();
        drop(kept);
        fake.finish_all();
        fake.end();
    }
}

#[test]
fn batches_may_be_dropped_by_another_thread() {
    let mut bench = bench(11, &[]);
    let (send, receive) = std::sync::mpsc::channel::<Batch>();
    let dropper = std::thread::spawn(move || receive.into_iter().for_each(drop));
    for _ in 0..60 {
        if let Some(batch) = bench.next() {
            bench.read(&batch);
            send.send(batch).unwrap();
        }
    }
    drop(send);
    dropper.join().unwrap();
    bench.end();
}

/// Everything that does not depend on when batches are handed over.
#[test]
fn it_also_holds_if_the_device_decodes() {
    COMPRESSED.set(true);
    every_batch_is_what_it_was_however_late_work_and_copies_are();
    asking_with_the_batch_before_in_hand_takes_no_more_memory();
    every_stream_that_a_batch_is_lent_to_is_waited_for();
    kept_batches_are_never_written_to();
    a_restart_at_any_time_begins_the_epoch_asked_for();
    an_error_of_the_loader_takes_the_place_of_its_batch();
    no_memory_at_the_start_is_an_error();
    a_batch_that_cannot_be_made_comes_once_more_and_then_counts();
    a_panic_while_a_batch_is_made_loses_nothing();
    memory_whose_use_cannot_be_waited_for_is_left_to_the_device();
    a_lost_device_is_an_error_every_time_and_its_host_memory_is_left_to_it();
    a_loop_that_skips_errors_ends_although_the_device_is_lost();
    it_stops_at_any_time();
    batches_may_be_dropped_by_another_thread();
}

#[test]
fn the_next_batch_is_copied_while_one_is_decoded() {
    COMPRESSED.set(true);
    let fake = Fake::new(3);
    fake.hold(Some(Queue::Decodes));
    let mut bench = bench_on(fake, &[]).unwrap();
    // Both buffers are filled, and the first batch is not given before it is decoded.
    bench.fake.wait_until(|(copied, _)| copied == 2);
    let build = |_: &_, _: &_| Ok(());
    let soon = Some(Instant::now() + Duration::from_millis(20));
    assert!(matches!(bench.transfer.next(soon, build), Ok(Next::TimedOut)));
    assert_eq!(bench.pool.buffers.lock().unwrap().len(), 1, "both host batches are kept");
    bench.fake.hold(None);
    for number in 0..EPOCH {
        let batch = bench.next().unwrap();
        assert_eq!(batch.name, (0, number));
        bench.read(&batch);
    }
    // The next epoch may have begun, with as many batches as there are slots.
    let most = EPOCH + bench.transfer.copies().device_slots() as u64;
    assert!((EPOCH..=most).contains(&bench.transfer.copies().decoded()));
    assert_eq!(bench.pool.decoded_here.load(Ordering::Relaxed), 0);
    bench.end();
}

#[test]
fn times_of_the_device_have_no_waiting() {
    for compressed in [false, true] {
        COMPRESSED.set(compressed);
        let fake = Fake::new(5);
        // The first two batches wait for the queue that is held.
        fake.hold(Some(if compressed { Queue::Decodes } else { Queue::Copies }));
        let mut bench = bench_on(fake, &[]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        bench.fake.hold(None);
        for _ in 0..EPOCH {
            drop(bench.next().unwrap());
        }
        assert!(bench.next().is_none());
        let times = bench.tally.times.get();
        // As above.
        let most = EPOCH + bench.transfer.copies().device_slots() as u64;
        let counts = EPOCH..=most;
        assert!(counts.contains(&times.copy_s.count), "{times:?}");
        let decodes = if compressed { counts } else { 0..=0 };
        assert!(decodes.contains(&times.decode_s.count), "{times:?}");
        for times in [times.copy_s, times.decode_s] {
            assert!((0.0..0.04).contains(&times.quantile(1.0)), "{times:?}");
        }
        bench.end();
    }
}

#[test]
fn a_batch_is_decoded_only_after_the_slot_was_read() {
    COMPRESSED.set(true);
    let mut bench = bench(8, &[]);
    let first = bench.next().unwrap();
    bench.fake.hold(Some(Queue::CONSUMER));
    bench.read(&first);
    drop(first);
    let second = bench.next().unwrap();
    // The third batch goes where the first one is still to be read.
    std::thread::sleep(Duration::from_millis(20));
    let soon = Some(Instant::now() + Duration::from_millis(20));
    assert!(matches!(bench.transfer.next(soon, |_, _| Ok(())), Ok(Next::TimedOut)));
    bench.fake.hold(None);
    bench.read(&second);
    drop(second);
    let third = bench.next().unwrap();
    bench.read(&third);
    assert_eq!(third.name, (0, 2));
    drop(third);
    bench.end();
}

#[test]
fn chunks_that_the_device_cannot_decode_are_decoded_on_the_host_or_fail_their_batch() {
    COMPRESSED.set(true);
    let mut bench = bench(15, &[]);
    bench.transfer.go_to(1000);
    let mut names = Vec::new();
    loop {
        match bench.try_next() {
            Ok(Some(batch)) => {
                bench.read(&batch);
                names.push(batch.name.1);
            }
            Ok(None) => break,
            Err(error) => assert!(error.to_string().contains("a sample"), "{error}"),
        }
    }
    assert_eq!((&names[..], &bench.failed[..]), (&[0, 1, 2, 4][..], &[(1000, 4)][..]));
    bench.end();
}

#[test]
fn copies_and_decodings_that_are_refused_are_tried_once_more_and_lose_no_slot() {
    COMPRESSED.set(true);
    for (refuse, count) in [(Fake::refuse_copies as fn(&Fake, usize), 1), (Fake::refuse_decodes, 4)]
    {
        let mut bench = bench(11, &[]);
        let first = bench.next().unwrap();
        bench.read(&first);
        refuse(&bench.fake, count);
        drop(first);
        let (errors, batches) = bench.rest_with_refusals();
        assert!(errors <= count && bench.failed.len() <= count / 2, "{errors}");
        assert_eq!(1 + batches, EPOCH - bench.failed.len() as u64);
        // All slots are still there.
        bench.transfer.go_to(5);
        for number in 0..EPOCH {
            let batch = bench.next().unwrap();
            assert_eq!(batch.name, (5, number));
            bench.read(&batch);
        }
        bench.end();
    }
}

#[path = "../../tests/support/mod.rs"]
mod support;

/// A whole loader on the device has the same contents, epochs and states as the loader inside.
#[test]
fn a_device_loader_gives_what_its_loader_gives() {
    [DecodePlace::Host, DecodePlace::Device].into_iter().for_each(gives_what_its_loader_gives);
}

fn gives_what_its_loader_gives(decode: DecodePlace) {
    use super::{DeviceLoader, DeviceOptions, PreparedDeviceLoader};
    use crate::plan::State;
    use crate::{Dataset, Loader, LoaderOptions};
    use support::{StackSpec, write_dataset};

    let folder = tempfile::tempdir().unwrap();
    let spec = StackSpec::new(12, 10, 7, 11).masks(&["a", "b"]).tile(5, 10);
    let written = write_dataset(&folder.path().join("made"), &[spec], |_| serde_json::json!({}));
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = LoaderOptions::new(3);
    (options.memory.locked, options.memory.no_huge_pages) = (false, true);
    (options.threads, options.slots) = (2, 2);
    let mut plain = Loader::new(&dataset, options.clone()).unwrap();
    let fake = Fake::new(12);
    let cpu = DeviceOptions::new(hsipack_augment::Device::Cpu);
    options.decode = decode;
    let start = |state: Option<&State>| {
        let prepared = PreparedDeviceLoader::new(&dataset, options.clone(), cpu.clone()).unwrap();
        let prepared = match state {
            Some(state) => prepared.resumed(state).unwrap(),
            None => prepared,
        };
        DeviceLoader::begin_on(fake.clone(), prepared, Host::new(2)).unwrap()
    };
    let mut loader = start(None);
    let mut kept = Vec::new();
    let mut middle = None;
    for step in 0..60 {
        match step {
            23 => [loader.set_epoch(0), plain.set_epoch(0)].map(drop),
            // The loader inside is at the next epoch's start by now.
            40 => [loader.set_epoch(9), plain.set_epoch(9)].map(drop),
            _ => [(); 2],
        };
        let (have, want) = (loader.next_batch(), plain.next_batch());
        assert_eq!(loader.state(), plain.state(), "step {step}");
        let (Some(have), Some(want)) = (have.transpose().unwrap(), want.transpose().unwrap())
        else {
            assert!(loader.state().delivered.iter().all(|segment| segment.batches == 0));
            continue;
        };
        assert_eq!((have.epoch(), have.items()), (want.epoch(), want.items()));
        fake.read(&have.image, want.image().bytes.to_vec(), "image");
        for (number, mask) in want.masks().enumerate() {
            assert_eq!(have.masks[number].0, mask.name);
            fake.read(&have.masks[number].1, mask.bytes.to_vec(), mask.name);
        }
        if step == 30 {
            middle = Some((loader.state(), loader.next_batch().unwrap().unwrap().items().to_vec()));
            plain.next_batch();
        }
        if step % 5 == 0 {
            kept.push((have, want.image().bytes.to_vec()));
        }
    }
    let report = loader.report();
    assert!(report.copies == "staged" && report.device_slots > 3, "{report:?}");
    assert!(loader.statistics().given_away > 0 && !report.notes.is_empty(), "{report:?}");
    assert_eq!(report.decode, decode.name());
    assert_eq!(loader.statistics().device_decoded > 0, decode == DecodePlace::Device);
    drop(loader);
    for (batch, bytes) in kept {
        fake.read(&batch.image, bytes, "kept image");
    }
    let (state, items) = middle.unwrap();
    let mut resumed = start(Some(&state));
    assert_eq!(resumed.next_batch().unwrap().unwrap().items(), items);
    drop(resumed);
    fake.finish_all();
    fake.end();
}

/// Batches that fail, damaged batches that are replaced, and states are the same on a device as in
/// the loader inside.
#[test]
fn a_device_loader_fails_where_its_loader_fails() {
    [DecodePlace::Host, DecodePlace::Device].into_iter().for_each(fails_where_its_loader_fails);
}

fn fails_where_its_loader_fails(decode: DecodePlace) {
    use super::{DeviceLoader, DeviceOptions, PreparedDeviceLoader};
    use crate::plan::Order;
    use crate::{Dataset, Loader, LoaderOptions, OnDamage};
    use support::{StackSpec, write_dataset};

    let folder = tempfile::tempdir().unwrap();
    let spec = StackSpec { per_shard: 1, ..StackSpec::new(12, 10, 7, 7).masks(&["a"]) };
    let written = write_dataset(&folder.path().join("made"), &[spec], |_| serde_json::json!({}));
    for sample in [0, 1, 2, 6] {
        std::fs::write(written.path.join(format!("12x10x7/image/c/{sample}/0/0/0")), b"short")
            .unwrap();
    }
    let dataset = Dataset::open(&written.path).unwrap();
    for on_damage in [OnDamage::Error, OnDamage::Skip] {
        let mut options = LoaderOptions { on_damage, ..LoaderOptions::new(2) };
        (options.memory.locked, options.memory.no_huge_pages) = (false, true);
        (options.threads, options.slots, options.plan.order) = (2, 2, Order::Sequential);
        let mut plain = Loader::new(&dataset, options.clone()).unwrap();
        let (fake, cpu) = (Fake::new(14), DeviceOptions::new(hsipack_augment::Device::Cpu));
        options.decode = decode;
        let prepared = PreparedDeviceLoader::new(&dataset, options, cpu).unwrap();
        let mut loader = DeviceLoader::begin_on(fake.clone(), prepared, Host::new(2)).unwrap();
        let mut failed = 0;
        for epoch in 0..2 {
            let (mut have, mut want) = (loader.epoch(), plain.epoch());
            for _ in 0..4 {
                let (have, want) = (have.next().unwrap(), want.next().unwrap());
                assert_eq!(have.is_ok(), want.is_ok(), "epoch {epoch}");
                let (Ok(have), Ok(want)) = (have, want) else {
                    failed += 1;
                    continue;
                };
                assert_eq!(have.items(), want.items());
                fake.read(&have.image, want.image().bytes.to_vec(), "image");
                let mask = want.mask("a").unwrap().bytes.to_vec();
                fake.read(&have.masks[0].1, mask, "mask");
            }
            assert!(have.next().is_none() && want.next().is_none());
            assert_eq!(loader.state(), plain.state());
            assert_eq!(loader.state().epoch, epoch + 1);
        }
        assert_eq!(failed, if on_damage == OnDamage::Error { 6 } else { 0 });
        drop(loader);
        fake.finish_all();
        fake.end();
    }
}

#[test]
fn a_device_loader_can_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<super::DeviceLoader<Host>>();
    is_send::<super::DeviceBatch<Host>>();
}
