//! Batches that a device decodes have the values of the CPU's: over the stand-in for the CUDA
//! driver, which runs the kernel compiled as C++.

use std::fs;
use std::path::Path;

use hsipack_read::augment::array::Stream;
use hsipack_read::plan::{Crop, Order, Pad};
use hsipack_read::{
    Array, CacheKind, Dataset, DecodePlace, Device, DeviceCache, DeviceLoader, DeviceOptions, Host,
    Loader, LoaderOptions, OnDamage, OpenOptions, Verify,
};
use hsipack_testing::{FakeCuda, FakeDriver, skipped};
use serde_json::json;

use crate::images::options;
use crate::support::{StackSpec, Written, write_dataset};

/// Runs an ignored test over the stand-in; it must have no faults.
pub fn runs_clean(test: &str, seeds: u64) {
    if !FakeCuda::has_kernels() {
        skipped("the stand-in was built without a C++ compiler");
        return;
    }
    let cuda = FakeCuda::new();
    for seed in 1..=seeds {
        let mut command = cuda.test(test);
        cuda.assert_clean(command.env("FAKE_CUDA_SEED", seed.to_string()));
    }
}

/// Cubes of several chunks, with masks; the last chunks reach beyond the edge.
fn made(per_shard: usize) -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let spec = StackSpec::new(50, 40, 12, 7).masks(&["a", "b"]).tile(16, 24);
    let spec = StackSpec { per_shard, ..spec };
    let written = write_dataset(&folder.path().join("made"), &[spec], |_| json!({}));
    (folder, written)
}

fn decoding(mut options: LoaderOptions) -> LoaderOptions {
    options.decode = DecodePlace::Device;
    options
}

fn gpu() -> DeviceOptions {
    // The device cache is tested in `device_table.rs`.
    let device_cache = DeviceCache::None;
    DeviceOptions { layers: false, device_cache, ..DeviceOptions::new(Device::Cuda(0)) }
}

fn start(dataset: &Dataset, options: &LoaderOptions) -> DeviceLoader<Host> {
    DeviceLoader::new(dataset, decoding(options.clone()), gpu(), Host::new(1)).unwrap()
}

fn read(driver: &FakeDriver, array: &Array, want: &[u8]) {
    driver.read(Stream::LEGACY.handle() as usize, array.address() as u64, want);
}

/// Compares an epoch and a half. Returns how many batches the device decoded, and how many failed.
fn same(dataset: &Dataset, options: &LoaderOptions) -> (u64, usize) {
    let driver = FakeDriver::new();
    let mut loader = start(dataset, options);
    let mut plain = Loader::new(dataset, options.clone()).unwrap();
    let mut failed = 0;
    for _ in 0..3 * plain.batches_per_epoch().unwrap() / 2 {
        let (have, want) = (loader.next_batch(), plain.next_batch());
        assert_eq!(loader.state(), plain.state());
        match (have, want) {
            (None, None) => {}
            (Some(Ok(have)), Some(Ok(want))) => {
                assert_eq!(have.items(), want.items());
                read(&driver, &have.image, want.image().bytes);
                for ((name, have), want) in have.masks.iter().zip(want.masks()) {
                    assert_eq!(name, want.name);
                    read(&driver, have, want.bytes);
                }
            }
            (Some(Err(have)), Some(Err(want))) => {
                assert_eq!(have.to_string(), want.to_string());
                failed += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    (loader.statistics().device_decoded, failed)
}

#[test]
fn cubes_and_windows_are_the_same() {
    runs_clean("device_loading::all_sorts", 2);
}

#[test]
#[ignore = "run by the test above"]
fn all_sorts() {
    let (_folder, written) = made(3);
    let dataset = Dataset::open(&written.path).unwrap();
    let whole = options(3);
    assert!(same(&dataset, &whole).0 > 0);
    for cache in [CacheKind::None, CacheKind::Compressed] {
        let kept = LoaderOptions { cache, ..whole.clone() };
        assert!(same(&dataset, &kept).0 > 0, "{cache}");
    }
    let mut shuffled = whole.clone();
    shuffled.plan.order = Order::Shuffled;
    assert!(same(&dataset, &shuffled).0 > 0);
    // Windows of some chunks; a window beyond the edge comes as values.
    let mut crops = whole.clone();
    crops.cache = CacheKind::None;
    crops.plan.crop = Crop::Random { rows: 45, columns: 37, per_sample: 2, min_labelled: 0.0 };
    same(&dataset, &crops);
    let mut beyond = crops.clone();
    beyond.plan.crop =
        Crop::Grid { rows: 32, columns: 32, row_step: 32, column_step: 32, pad: Some(Pad::Edge) };
    same(&dataset, &beyond);
    // Some bands come as values, beside the masks' chunks; alone, nothing is gained.
    let mut bands = LoaderOptions { bands: Some(vec![1, 7]), ..whole.clone() };
    assert!(same(&dataset, &bands).0 > 0);
    bands.masks = Some(Vec::new());
    assert_eq!(same(&dataset, &bands).0, 0);
    let masks = LoaderOptions { masks: Some(vec!["b".into()]), ..whole };
    assert!(same(&dataset, &masks).0 > 0);
}

/// Changes a byte in the middle of the first chunk of the only sample of a shard.
pub fn damage(path: &Path, stack: &str, shard: usize) {
    let shard = path.join(format!("{stack}/image/c/{shard}/0/0/0"));
    let mut bytes = fs::read(&shard).unwrap();
    bytes[40] ^= 0x10;
    fs::write(shard, bytes).unwrap();
}

#[test]
fn damage_is_the_error_of_its_batch() {
    runs_clean("device_loading::damaged", 2);
}

#[test]
#[ignore = "run by the test above"]
fn damaged() {
    let (_folder, written) = made(1);
    // A whole batch, and one of two.
    [0, 1, 4].into_iter().for_each(|sample| damage(&written.path, "50x40x12", sample));
    for verify in [Verify::Always, Verify::Never] {
        let open = OpenOptions { verify, ..OpenOptions::default() };
        let dataset = Dataset::open_with(&written.path, open).unwrap();
        for on_damage in [OnDamage::Error, OnDamage::Skip] {
            let mut options = LoaderOptions { on_damage, ..options(2) };
            options.plan.order = Order::Sequential;
            let (decoded, failed) = same(&dataset, &options);
            assert!(decoded > 0);
            let fails = verify == Verify::Always && on_damage == OnDamage::Error;
            assert!(!fails || failed > 0, "{on_damage}");
        }
    }
}

#[test]
fn contradicting_options_are_refused() {
    let (_folder, written) = made(3);
    let dataset = Dataset::open(&written.path).unwrap();
    let cpu = DeviceOptions::new(Device::Cpu);
    let errors = [
        DeviceLoader::new(&dataset, decoding(options(2)), cpu, Host::new(1)).err(),
        Loader::new(&dataset, decoding(options(2))).err(),
    ];
    for error in errors {
        assert!(error.unwrap().to_string().contains("no device decodes"));
    }
    let kept = LoaderOptions { cache: CacheKind::Decoded, ..decoding(options(2)) };
    let error = DeviceLoader::new(&dataset, kept, gpu(), Host::new(1)).err().unwrap();
    assert!(error.to_string().contains("decoded chunks are kept"), "{error}");
}
