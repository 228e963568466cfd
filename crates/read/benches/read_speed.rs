//! How close is the loader to the bare decompressor?
//!
//! In one run, alternating: C-Blosc only decodes the same chunks from memory into memory that was
//! touched before, with the same number of threads; then the warm loader reads whole epochs. For
//! whole cubes, and for random crops of tiled scenes, where the baseline decodes the tiles that the
//! crops touch. The baseline is measured in ordinary memory and on huge pages, which the ring
//! requests.
//!
//! Then cold: after the shards are removed from the page cache, an epoch, compared with a
//! sequential read of the same files.
//!
//! `cargo bench -p hsipack-read --bench read_speed [-- DIR [CUBES [REPEATS [whole|crops|cold]]]]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hsipack_format::{Codec, Compressor, Tile, codec};
use hsipack_read::plan::{Crop, Order, PlanOptions};
use hsipack_read::store::{PAGE, StoreKind};
use hsipack_read::{CacheKind, Dataset, Loader, LoaderOptions, OpenOptions};
use serde_json::json;
use support::{LZ4, StackSpec, median, reflectance, seconds, write_dataset_of};

const BATCH: usize = 6;
/// Epochs that are timed together, beginning with an empty ring.
const EPOCHS: u64 = 5;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let folder =
        args.next().map_or_else(std::env::temp_dir, PathBuf::from).join("hsipack-read-bench");
    let cubes: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(12);
    let repeats: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(9);
    let what = args.next();
    let wanted = |name: &str| what.as_deref().is_none_or(|what| what == name);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if wanted("whole") {
        let dataset = open(&folder.join("whole"), whole(cubes));
        for threads in [1, cores] {
            compare(&dataset, Crop::Whole, BATCH, repeats, threads);
        }
    }
    if wanted("cold") {
        drop(open(&folder.join("whole"), whole(cubes)));
        compare_cold(&folder.join("whole"), repeats, cores);
    }
    if wanted("crops") {
        let scenes = cubes.div_ceil(6);
        let dataset = open(
            &folder.join("crops"),
            StackSpec { per_shard: 1, ..StackSpec::new(1024, 1024, 224, scenes) }.tile(64, 64),
        );
        let crop = Crop::Random { rows: 64, columns: 64, per_sample: 200, min_labelled: 0.0 };
        for threads in [1, cores] {
            compare(&dataset, crop.clone(), 16, repeats, threads);
        }
    }
}

fn whole(cubes: usize) -> StackSpec {
    StackSpec { per_shard: 8, ..StackSpec::new(480, 640, 100, cubes) }.tile(16, 640)
}

/// Opens the dataset, and writes it unless it is there from an earlier run.
fn open(path: &Path, spec: StackSpec) -> Dataset {
    let spec =
        StackSpec { codec: Some(Codec { compressor: Compressor::Lz4Hc, level: 4, ..LZ4 }), ..spec };
    if !path.join("SHA256SUMS").exists() {
        std::fs::create_dir_all(path).expect("a writable folder");
        write_dataset_of(path, &[spec], |_| json!({}), &reflectance);
    }
    Dataset::open(path).expect("a dataset")
}

fn compare(dataset: &Dataset, crop: Crop, batch: usize, repeats: usize, threads: usize) {
    let mut options = LoaderOptions::new(batch);
    options.threads = threads;
    options.plan = PlanOptions { crop: crop.clone(), ..options.plan };
    // Without a cache, the loader decodes every chunk, like the baseline.
    options.cache = CacheKind::None;
    // So that nothing is read ahead while the bare decoder is measured.
    options.end_epoch = Some(EPOCHS);
    let mut loader = Loader::new(dataset, options).expect("sound options");
    let frames = Frames::of(dataset);
    // The chunks that an epoch decodes, in its order. This epoch also warms up.
    let mut wanted = Vec::new();
    let mut samples = 0;
    for batch in loader.epoch() {
        let batch = batch.expect("checked while it was written");
        samples += batch.len();
        batch.items().iter().for_each(|item| frames.touched(item, &mut wanted));
    }
    // Read the other epochs, so that the loader stops working.
    while loader.epoch().count() > 0 {}
    let bytes = batch * bytes_of(&loader);
    let mut memory = [false, true].map(|huge| Memory::new(bytes, threads, huge));
    let (mut bare, mut huge, mut load) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repeats {
        for (memory, times) in memory.iter_mut().zip([&mut bare, &mut huge]) {
            times.push(seconds(|| {
                (0..EPOCHS).for_each(|_| memory.decode(&frames, &wanted, threads));
            }));
        }
        load.push(seconds(|| {
            loader.set_epoch(0);
            for _ in 0..EPOCHS {
                loader.epoch().for_each(|batch| assert!(!batch.expect("sound").is_empty()));
            }
        }));
    }
    let samples = samples * EPOCHS as usize;
    let chunks = wanted.len() * EPOCHS as usize;
    println!("{threads} threads, {crop:?}, medians of {repeats}");
    for (what, times) in
        [("bare decode", &bare), ("bare decode, huge pages", &huge), ("loader", &load)]
    {
        println!(
            "    {what:24} {:7.1} samples/s  {:5.2} GB/s of chunks  {:5.1} % of bare decode",
            samples as f64 / median(times),
            (chunks * frames.chunk_bytes) as f64 / median(times) / 1e9,
            100.0 * median(&bare) / median(times)
        );
    }
    let stored: usize = wanted.iter().map(|chunk| frames.stored[*chunk].len()).sum();
    println!(
        "    {:.2} chunks a sample, stored {:.2} times smaller; ring: {:?}",
        chunks as f64 / samples as f64,
        (wanted.len() * frames.chunk_bytes) as f64 / stored as f64,
        loader.memory()
    );
    println!("    {}", serde_json::to_string(&loader.statistics().loader).expect("numbers"));
}

fn bytes_of(loader: &Loader) -> usize {
    let shape = loader.plan().shapes()[0];
    shape.values() * 2
}

/// All stored chunks in memory, without their checksums.
struct Frames {
    stored: Vec<Vec<u8>>,
    chunk_bytes: usize,
    across: usize,
    per_sample: usize,
    tile: Tile,
}

impl Frames {
    fn of(dataset: &Dataset) -> Self {
        let array = &dataset.stacks()[0].image;
        let grid = array.grid();
        let mut stored = Vec::new();
        for index in 0..array.len() {
            let (shard, first) = grid.locate(index);
            let shard = array.shard(shard).expect("a shard");
            for chunk in 0..grid.chunks_per_sample() {
                let frame = shard.with_stored(first + chunk, |bytes| {
                    Ok(bytes[..bytes.len() - codec::CHECKSUM_LEN].to_vec())
                });
                stored.push(frame.expect("sound").expect("written"));
            }
        }
        Self {
            stored,
            chunk_bytes: array.chunk_bytes(),
            across: grid.across(),
            per_sample: grid.chunks_per_sample(),
            tile: grid.tile(),
        }
    }

    fn touched(&self, item: &hsipack_read::plan::Item, out: &mut Vec<usize>) {
        let window = item.window;
        let (rows, columns) = (window.row_range(), window.column_range());
        let rows = rows.start / self.tile.rows..rows.end.div_ceil(self.tile.rows);
        let columns = columns.start / self.tile.columns..columns.end.div_ceil(self.tile.columns);
        for row in rows {
            out.extend(
                columns
                    .clone()
                    .map(|column| item.sample * self.per_sample + row * self.across + column),
            );
        }
    }
}

/// The memory of a batch, touched.
struct Memory {
    parts: Vec<Vec<u8>>,
}

impl Memory {
    fn new(bytes: usize, threads: usize, huge_pages: bool) -> Self {
        let part = |_| {
            let mut part: Vec<u8> = Vec::with_capacity(bytes / threads);
            if huge_pages {
                let pages = part.as_ptr() as usize & !4095;
                // SAFETY: advice about our own memory, before it is touched, changes no content.
                unsafe { libc::madvise(pages as *mut _, bytes / threads, libc::MADV_HUGEPAGE) };
            }
            part.resize(bytes / threads, 1);
            part
        };
        Self { parts: (0..threads).map(part).collect() }
    }

    fn decode(&mut self, frames: &Frames, wanted: &[usize], threads: usize) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for part in self.parts.iter_mut().take(threads) {
                scope.spawn(|| {
                    let slots = (part.len() / frames.chunk_bytes).max(1);
                    if part.len() < frames.chunk_bytes {
                        part.resize(frames.chunk_bytes, 1);
                    }
                    let mut slot = 0;
                    loop {
                        let item = next.fetch_add(1, Ordering::Relaxed);
                        let Some(chunk) = wanted.get(item) else { return };
                        let out = &mut part[slot * frames.chunk_bytes..][..frames.chunk_bytes];
                        hsipack_store::codec::decode_frame(&frames.stored[*chunk], out)
                            .expect("sound");
                        slot = (slot + 1) % slots;
                    }
                });
            }
        });
    }
}

/// Compares an epoch with an empty page cache with reading the same files from beginning to end.
fn compare_cold(path: &Path, repeats: usize, threads: usize) {
    let shards: Vec<PathBuf> = (0..)
        .map(|shard| Dataset::open(path).expect("a dataset").stacks()[0].image.shard_path(shard))
        .take_while(|shard| shard.exists())
        .collect();
    let bytes: u64 = shards.iter().map(|shard| shard.metadata().expect("a file").len()).sum();
    let stores = [StoreKind::Mapped, StoreKind::Pread, StoreKind::Direct];
    let (mut plain, mut beside, mut direct) = (Vec::new(), Vec::new(), Vec::new());
    let frames = Frames::of(&Dataset::open(path).expect("a dataset"));
    let mut epochs: Vec<(String, Vec<f64>)> = Vec::new();
    for (kind, order) in
        stores.iter().flat_map(|kind| [(kind, Order::Sequential), (kind, Order::Shuffled)])
    {
        epochs.push((format!("{kind}, {order:?}"), Vec::new()));
    }
    for _ in 0..repeats {
        shards.iter().for_each(|shard| drop_cache(shard));
        plain.push(seconds(|| shards.iter().for_each(|shard| read_through(shard))));
        shards.iter().for_each(|shard| drop_cache(shard));
        beside.push(while_decoding(&frames, threads, || {
            seconds(|| shards.iter().for_each(|shard| read_through(shard)))
        }));
        direct.push(seconds(|| shards.iter().for_each(|shard| read_through_direct(shard))));
        for (number, (_, times)) in epochs.iter_mut().enumerate() {
            shards.iter().for_each(|shard| drop_cache(shard));
            let order = [Order::Sequential, Order::Shuffled][number % 2];
            times.push(cold_epoch(path, stores[number / 2], order, threads));
        }
    }
    println!("cold, {threads} threads, {:.0} MB stored, medians of {repeats}", bytes as f64 / 1e6);
    println!("    {:32}  MB/s  of: plain  beside  O_DIRECT", "");
    let report = |what: &str, times: &[f64]| {
        let time = median(times);
        let of = |baseline: &[f64]| 100.0 * median(baseline) / time;
        let speed = bytes as f64 / time / 1e6;
        let (plain, beside, direct) = (of(&plain), of(&beside), of(&direct));
        println!("    {what:32} {speed:5.0}      {plain:5.1}   {beside:5.1}     {direct:5.1} %");
    };
    report("plain sequential read", &plain);
    report("the same beside decoding", &beside);
    report("plain sequential O_DIRECT read", &direct);
    epochs.iter().for_each(|(what, times)| report(what, times));
}

/// Does `work` while the loader's number of threads decode from memory. This measures a disk while
/// the processors are busy.
fn while_decoding(frames: &Frames, threads: usize, work: impl FnOnce() -> f64) -> f64 {
    let done = AtomicBool::new(false);
    let some: Vec<usize> = (0..frames.per_sample).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut memory = Memory::new(frames.per_sample * frames.chunk_bytes, 1, false);
                while !done.load(Ordering::Relaxed) {
                    memory.decode(frames, &some, 1);
                }
            });
        }
        let time = work();
        done.store(true, Ordering::Relaxed);
        time
    })
}

fn cold_epoch(path: &Path, store: StoreKind, order: Order, threads: usize) -> f64 {
    let open = OpenOptions { store: Some(store.store()), ..OpenOptions::default() };
    let dataset = Dataset::open_with(path, open).expect("a dataset");
    let mut options = LoaderOptions::new(BATCH);
    (options.threads, options.plan.order, options.end_epoch) = (threads, order, Some(1));
    let mut loader = Loader::new(&dataset, options).expect("sound options");
    loader.epoch().for_each(|batch| assert!(!batch.expect("sound").is_empty()));
    // The time since the threads started, when the ring was already allocated.
    loader.statistics().loader.elapsed_s
}

/// Removes the file's pages from the page cache. No process maps the file at this time.
fn drop_cache(file: &Path) {
    let file = std::fs::File::open(file).expect("a file");
    file.sync_all().expect("a disk");
    // SAFETY: advice about an open file.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
}

fn read_through(file: &Path) {
    let mut file = std::fs::File::open(file).expect("a file");
    let mut buffer = vec![0; 1 << 20];
    while file.read(&mut buffer).expect("a disk") > 0 {}
}

/// The same without the page cache, like `dd iflag=direct bs=1M`.
fn read_through_direct(file: &Path) {
    const BLOCK: usize = 1 << 20;
    let mut options = std::fs::File::options();
    let file = options.read(true).custom_flags(libc::O_DIRECT).open(file).expect("O_DIRECT");
    let mut buffer = vec![0; BLOCK + PAGE];
    let start = buffer.as_ptr().align_offset(PAGE);
    let mut at = 0;
    loop {
        let read = file.read_at(&mut buffer[start..start + BLOCK], at).expect("a disk");
        at += read as u64;
        if read < BLOCK {
            return;
        }
    }
}
