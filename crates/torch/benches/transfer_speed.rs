//! How fast do batches get to a GPU, and does anything wait for them?
//!
//! In one run: plain asynchronous copies of page-locked memory; a device loader that copies one
//! batch again and again, which only the copy limits; a loader whose chunks are decoded in memory,
//! and are gathered into the ring while the batch before is copied, so that both share the memory's
//! bandwidth; augmentations alone; and augmentations together with copies. If copying and computing
//! overlap, both together take no longer than the slower one. Then 1,000 batches are compared with
//! their samples on the device. Without a GPU, it prints a note and does the same with fewer
//! batches on the CPU, where nothing is copied.
//!
//! `cargo bench -p hsipack-torch --bench transfer_speed [-- DIR [CUBES [BATCHES]]]`

#[path = "../../read/tests/support/mod.rs"]
mod support;

use std::path::PathBuf;

use hsipack_read::augment::{Affine, Flip, Images, Op, Padding, Pipeline, Range};
use hsipack_read::{CacheKind, Dataset, DeviceOptions, Library, LoaderOptions};
use hsipack_torch::tch::{self, Device, Kind, Tensor};
use hsipack_torch::{Libtorch, best_device};
use serde_json::json;
use support::{LZ4, StackSpec, median, reflectance, seconds, write_dataset_of};

type DeviceLoader = hsipack_read::DeviceLoader<Libtorch>;
type DeviceBatch = hsipack_read::DeviceBatch<Libtorch>;

const BATCH: usize = 6;
const REPEATS: usize = 9;

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let folder = args.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let cubes: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(12);
    let device = match best_device() {
        hsipack_read::Device::Cpu => Device::Cpu,
        hsipack_read::Device::Cuda(number) => Device::Cuda(number),
    };
    let on_gpu = device.is_cuda();
    let default = if on_gpu { 1000 } else { 24 };
    let batches: usize = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(default);
    if !on_gpu {
        println!("there is no CUDA device: everything is done on the CPU");
    }
    let path = folder.join("hsipack-transfer-bench").join(format!("{cubes}"));
    if !path.join("SHA256SUMS").exists() {
        std::fs::create_dir_all(&path).expect("a writable folder");
        let spec =
            StackSpec { per_shard: 8, codec: Some(LZ4), ..StackSpec::new(480, 640, 100, cubes) };
        write_dataset_of(&path, &[spec.tile(16, 640)], |_| json!({}), &reflectance);
    }
    let dataset = Dataset::open(&path).expect("a dataset");
    let bytes = BATCH * 480 * 640 * 100 * 2;
    let plain = on_gpu.then(|| plain_copies(bytes, device));
    if let Some(plain) = plain {
        println!("plain pinned copies: {:.2} GB/s", bytes as f64 / plain / 1e9);
    }

    let mut again = loader(&dataset, device, true);
    run(&mut again, 4, device, |_| ());
    let alone = median(&of(|| run(&mut again, 20, device, |_| ()) / 20.0));
    told("one batch again and again", alone, bytes, plain);
    drop(again);
    let mut loader = loader(&dataset, device, false);
    let library = loader.library().clone();
    println!("{:?}", loader.report());
    println!("{:?}", loader.memory());
    // Everything is decoded once, and stays in memory.
    run(&mut loader, 2 * cubes.div_ceil(BATCH), device, |_| ());
    let copied = median(&of(|| run(&mut loader, 20, device, |_| ()) / 20.0));
    told(&format!("batches of {BATCH}, gathered"), copied, bytes, plain);
    let pipeline = chain();
    let mut batch = loader.next_batch().map_or_else(|| loader.next_batch(), Some);
    let batch = batch.take().expect("an epoch").expect("sound");
    let augmented = median(&of(|| {
        let all = seconds(|| {
            for _ in 0..20 {
                augment(&library, &pipeline, &batch);
            }
            wait(device);
        });
        all / 20.0
    }));
    drop(batch);
    println!("augmenting one batch again and again: {:.2} ms", 1e3 * augmented);
    let both = median(&of(|| {
        run(&mut loader, 20, device, |batch| augment(&library, &pipeline, batch)) / 20.0
    }));
    println!(
        "batches, augmented: {:.2} ms; {:.1} % of the slower one, {:.1} % of their sum",
        1e3 * both,
        100.0 * both / copied.max(augmented),
        100.0 * both / (copied + augmented)
    );
    check(&mut loader, &dataset, batches, device);
    let statistics = loader.statistics();
    let times = &statistics.times;
    println!(
        "to load a batch: {:.2} ms; the consumer waited {:.2} ms for one; {} slots given away",
        1e3 * times.load_s.mean,
        1e3 * times.wait_s.mean,
        statistics.given_away
    );
}

/// Prints the time of a batch, compared with plain copies if there are any.
fn told(what: &str, seconds: f64, bytes: usize, plain: Option<f64>) {
    println!("{what}: {:.2} ms, {:.2} GB/s", 1e3 * seconds, bytes as f64 / seconds / 1e9);
    if let Some(plain) = plain {
        println!("    {:.1} % of plain pinned copies", 100.0 * plain / seconds);
    }
}

fn loader(dataset: &Dataset, device: Device, repeat: bool) -> DeviceLoader {
    let mut options = LoaderOptions::new(BATCH);
    (options.cache, options.cache_bytes) = (CacheKind::Decoded, 64 << 30);
    let device = match device {
        Device::Cuda(number) => hsipack_read::Device::Cuda(number),
        _ => hsipack_read::Device::Cpu,
    };
    let device = DeviceOptions { repeat, ..DeviceOptions::new(device) };
    DeviceLoader::new(dataset, options, device, Libtorch::default()).expect("sound options")
}

/// The published benchmark's chain, for all samples.
fn chain() -> Pipeline {
    let affine = Affine {
        p: 1.0,
        degrees: Range::around_zero(45.0),
        translate: [0.0625, 0.0625],
        scale: Range::new(0.9, 1.1),
        padding: Padding::Reflection,
        ..Affine::default()
    };
    Pipeline::new(vec![Op::Affine(affine), Op::Hflip(Flip { p: 1.0 }), Op::Vflip(Flip { p: 1.0 })])
}

fn augment(library: &Libtorch, pipeline: &Pipeline, batch: &DeviceBatch) {
    let samples: Vec<_> = batch.items().iter().map(Into::into).collect();
    let images = Images::new(batch.image.clone(), Vec::new());
    library.augment(pipeline, images, batch.epoch(), &samples).expect("sound augmentations");
}

/// Seconds for some batches, over as many epochs as needed.
fn run(
    loader: &mut DeviceLoader,
    batches: usize,
    device: Device,
    mut work: impl FnMut(&DeviceBatch),
) -> f64 {
    seconds(|| {
        let mut taken = 0;
        while taken < batches {
            if let Some(batch) = loader.next_batch() {
                work(&batch.expect("sound"));
                taken += 1;
            }
        }
        wait(device);
    })
}

fn of(mut measure: impl FnMut() -> f64) -> Vec<f64> {
    (0..REPEATS).map(|_| measure()).collect()
}

fn wait(device: Device) {
    if let Device::Cuda(number) = device {
        tch::Cuda::synchronize(number as i64);
    }
}

/// Seconds of one of many asynchronous copies of page-locked memory.
fn plain_copies(bytes: usize, device: Device) -> f64 {
    let host =
        Tensor::zeros([bytes as i64], (Kind::Uint8, Device::Cpu)).internal_pin_memory(device);
    median(&of(|| {
        let all = seconds(|| {
            for _ in 0..20 {
                let _ = host.to_device_(device, Kind::Uint8, true, true);
            }
            wait(device);
        });
        all / 20.0
    }))
}

/// Compares batches with their samples, on the device.
fn check(loader: &mut DeviceLoader, dataset: &Dataset, batches: usize, device: Device) {
    let wanted: Vec<Tensor> = (0..dataset.samples().len())
        .map(|sample| {
            let cube = dataset.sample(sample).expect("a sample");
            let shape = [cube.shape.rows, cube.shape.columns, cube.shape.bands];
            let shape = shape.map(|size| size as i64);
            Tensor::from_data_size(cube.bytes(), &shape, Kind::Half).to_device(device)
        })
        .collect();
    let mut compared = 0;
    let mut sum = Tensor::zeros([1], (Kind::Int64, device));
    run(loader, batches, device, |batch| {
        for (index, id) in batch.ids().enumerate() {
            let image = batch.image.get(index as i64).permute([1, 2, 0]);
            sum = &sum + image.ne_tensor(&wanted[id]).sum(Kind::Int64);
            compared += 1;
        }
    });
    let different = sum.int64_value(&[0]);
    println!("{batches} batches, {compared} samples compared: {different} values differ");
    assert_eq!(different, 0);
}
