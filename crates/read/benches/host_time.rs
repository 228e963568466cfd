//! How long does the host work for a batch that a GPU decodes, or gathers from its memory?
//!
//! Runs loaders over the stand-in for the CUDA driver (`crates/testing/fake-cuda`), and adds up the
//! processor time of their threads, without the time in calls of the driver, and without the thread
//! that does the device's work. So this is the time of our own code. Batches are patches of 9×9
//! pixels with 103 bands, as for pixel classification, and whole cubes. Nothing is augmented here:
//! what that costs is measured by `cargo bench -p hsipack-augment --bench host_time`. Needs no GPU.
//!
//! usage: cargo bench -p hsipack-read --bench host_time [-- NAME]
//!
//! Prints, for each case and number of samples, microseconds per batch: of the planning thread, the
//! decoding threads, the transfer thread, the registering thread and the consumer; how much of them
//! was spent in calls of the driver; and the sum without these calls.

#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use hsipack_format::{Codec, Compressor};
use hsipack_read::plan::{Crop, Order};
use hsipack_read::store::StoreKind;
use hsipack_read::{
    CacheKind, Dataset, DecodePlace, Device, DeviceCache, DeviceLoader, DeviceOptions, Host,
    LoaderOptions, OpenOptions,
};
use hsipack_testing::{FakeCuda, FakeDriver};
use serde_json::json;
use support::{LZ4, StackSpec, reflectance, write_dataset_of};

/// The variable that the process over the stand-in gets: the dataset's folder.
const FOLDER: &str = "HSIPACK_HOST_TIME";
const PATCHES: Crop = Crop::Random { rows: 9, columns: 9, per_sample: 256, min_labelled: 0.0 };
/// Groups of threads, by the beginning of their names.
const GROUPS: [&str; 5] = ["plan", "decode", "transfer", "register", "main"];
/// Batches that are measured, at least.
const BATCHES: usize = 48;

struct Case {
    name: &'static str,
    crop: Crop,
    batch_sizes: &'static [usize],
    decode: DecodePlace,
    device_cache: DeviceCache,
    cache: CacheKind,
    store: StoreKind,
}

fn cases() -> [Case; 6] {
    let case = |name, crop: Crop, decode, device_cache| Case {
        name,
        batch_sizes: if crop == Crop::Whole { &[6] } else { &[64, 1024] },
        crop,
        decode,
        device_cache,
        cache: CacheKind::None,
        store: StoreKind::Mapped,
    };
    let (device, host) = (DecodePlace::Device, DecodePlace::Host);
    [
        Case {
            cache: CacheKind::Auto,
            ..case("patches, copied", PATCHES, host, DeviceCache::None)
        },
        case("patches, resident decoded", PATCHES, device, DeviceCache::Decoded),
        case("cubes, page cache", Crop::Whole, device, DeviceCache::None),
        Case {
            store: StoreKind::Pread,
            ..case("cubes, gathered", Crop::Whole, device, DeviceCache::None)
        },
        case("cubes, resident compressed", Crop::Whole, device, DeviceCache::Compressed),
        case("cubes, resident decoded", Crop::Whole, device, DeviceCache::Decoded),
    ]
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    match std::env::var_os(FOLDER) {
        Some(folder) => measure_all(Path::new(&folder), only.as_deref()),
        None => run_over_stand_in(only.as_deref()),
    }
}

fn run_over_stand_in(only: Option<&str>) {
    assert!(FakeCuda::has_kernels(), "the stand-in was built without a C++ compiler");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let spec = StackSpec { per_shard: 4, ..StackSpec::new(120, 120, 103, 12) }.tile(24, 120);
    let codec = Some(Codec { compressor: Compressor::Lz4, level: 5, ..LZ4 });
    let path = folder.path().join("cubes");
    write_dataset_of(&path, &[StackSpec { codec, ..spec }], |_| json!({}), &reflectance);
    let cuda = FakeCuda::new();
    let mut command = cuda.command(std::env::current_exe().expect("the path of this program"));
    command.env(FOLDER, path).env("FAKE_CUDA_PROMPT", "1").args(only);
    let status = command.status().expect("a process");
    assert!(status.success(), "{status}; {:?}", cuda.faults());
}

fn measure_all(path: &Path, only: Option<&str>) {
    let driver = FakeDriver::new();
    println!("microseconds of processor time per batch; 9 x 9 x 103 and 120 x 120 x 103, float16");
    println!(
        "case                        samples     plan   decode transfer register consumer   calls  without"
    );
    for case in cases() {
        if only.is_some_and(|only| !case.name.contains(only)) {
            continue;
        }
        for samples in case.batch_sizes {
            measure(&driver, path, &case, *samples);
        }
    }
}

fn measure(driver: &FakeDriver, path: &Path, case: &Case, samples: usize) {
    let open = OpenOptions { store: Some(case.store.store()), ..OpenOptions::default() };
    let dataset = Dataset::open_with(path, open).expect("a dataset");
    let mut options = LoaderOptions::new(samples);
    options.plan.crop = case.crop.clone();
    options.plan.order = Order::Shuffled;
    (options.decode, options.cache, options.threads) = (case.decode, case.cache, 2);
    let device =
        DeviceOptions { device_cache: case.device_cache, ..DeviceOptions::new(Device::Cuda(0)) };
    let mut loader = DeviceLoader::new(&dataset, options, device, Host::new(1)).expect("a loader");
    // Caches are filled, and files registered.
    for _ in 0..2 {
        loader.epoch().for_each(|batch| drop(batch.expect("a batch")));
    }
    let (before, calls, mut batches) = (times(), driver.time_in_calls(), 0);
    while batches < BATCHES {
        batches += loader.epoch().map(|batch| drop(batch.expect("a batch"))).count();
    }
    let (after, calls) = (times(), driver.time_in_calls() - calls);
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / batches as f64;
    let groups = GROUPS.map(|group| {
        micros(
            after
                .get(group)
                .copied()
                .unwrap_or_default()
                .saturating_sub(before.get(group).copied().unwrap_or_default()),
        )
    });
    let sum = groups.iter().sum::<f64>();
    print!("{:<27} {samples:>7}", case.name);
    groups.iter().for_each(|time| print!(" {time:>8.1}"));
    println!(" {:>7.1} {:>8.1}", micros(calls), sum - micros(calls));
}

/// Processor time of the threads of this process, by group.
fn times() -> HashMap<&'static str, Duration> {
    let mut times: HashMap<&str, Duration> = HashMap::new();
    for task in fs::read_dir("/proc/self/task").expect("the threads of this process").flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).ok();
        let (Some(name), Some(time)) = (read("comm"), read("schedstat")) else { continue };
        let is_main = task.file_name().to_str() == Some(&std::process::id().to_string());
        let group = match is_main {
            true => Some("main"),
            false => GROUPS.into_iter().find(|group| name.starts_with(group)),
        };
        let nanoseconds = time.split(' ').next().and_then(|time| time.parse().ok());
        if let (Some(group), Some(nanoseconds)) = (group, nanoseconds) {
            *times.entry(group).or_default() += Duration::from_nanos(nanoseconds);
        }
    }
    times
}
