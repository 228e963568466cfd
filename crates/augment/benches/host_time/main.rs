//! How long does the host work for one augmented batch on a GPU?
//!
//! Batches are 9×9 patches of 103 bands, as for pixel classification. Draws parameters, merges
//! augmentations, and prepares everything that the device needs, as `Library::augment` does. The
//! tensors have shapes and addresses but no memory ([`inert`]), and kernels are only counted, so
//! the time is that of our own code: neither the device nor the calls of a library are in it. Needs
//! no GPU.
//!
//! usage: cargo bench -p hsipack-augment --bench host_time [-- NAME]
//!
//! Prints, for each augmentation and number of samples: the median time, the fastest time,
//! allocations, kernels, operations of the library, and uploaded bytes, all per batch.

mod allocations;
mod inert;

use std::time::{Duration, Instant};

use hsipack_augment::prepare::{ImageConversion, Normalized};
use hsipack_augment::{
    ElementType, Engine, Frame, Images, Mask, Pipeline, SampleKey, TensorEngine,
};
use serde_json::{Value, json};

use inert::{Inert, Work};

const FRAME: Frame = Frame { rows: 9, columns: 9, bands: 103 };
const SAMPLES: [usize; 2] = [64, 1024];
/// Augmentations that are always applied.
const WITHOUT_P: [&str; 6] =
    ["random_crop", "center_crop", "resized_crop", "resize", "pad_to", "valid_guard"];
/// How long each case is repeated.
const DURATION: Duration = Duration::from_millis(300);
const FEWEST_BATCHES: u64 = 10;

/// The measurements of one case, per batch.
struct Measured {
    times: Vec<Duration>,
    allocations: u64,
    work: Work,
}

fn main() {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!("9 x 9 x 103 patches, float32; per batch: median and fastest time in microseconds");
    println!(
        "case                   samples   median  fastest  allocations  kernels  ops  uploaded"
    );
    for (name, ops) in cases() {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        for samples in SAMPLES {
            report(&name, samples, measure(ops.as_ref(), samples));
        }
    }
}

fn report(name: &str, samples: usize, mut measured: Measured) {
    measured.times.sort_unstable();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{name:22} {samples:7} {:8.1} {:8.1} {:12} {:8} {:4} {:9}",
        micros(measured.times[measured.times.len() / 2]),
        micros(measured.times[0]),
        measured.allocations,
        measured.work.kernels,
        measured.work.operations,
        measured.work.uploaded,
    );
}

/// Prepares batches, and augments them if there are augmentations.
fn measure(ops: Option<&Value>, samples: usize) -> Measured {
    let pipeline = ops.map(|ops| Pipeline::from_json(&ops.to_string()).expect("augmentations"));
    let conversion = ImageConversion {
        physical: Vec::new(),
        normalized: Normalized::Not,
        nan: None,
        element: ElementType::F32,
    };
    let engine = TensorEngine(Inert::default());
    let Frame { rows, columns, bands } = FRAME;
    let stored = engine.0.tensor(&[samples, rows, columns, bands], ElementType::F16);
    let labels = engine.0.tensor(&[samples, rows, columns], ElementType::I16);
    let keys: Vec<SampleKey> = (0..samples).map(|sample| SampleKey { sample, repeat: 0 }).collect();
    let batch = |epoch| {
        let image = engine.image(&stored, &conversion).expect("an image");
        let Some(pipeline) = &pipeline else { return };
        let masks = vec![Mask { name: "labels".to_owned(), labels: labels.clone() }];
        // SAFETY: these tensors have no memory.
        let images = unsafe { Images::new(image, masks).overwriting() };
        pipeline.augment(&engine, &images, epoch, &keys).expect("an augmented batch");
    };
    batch(0);
    let (mut times, mut epoch) = (Vec::with_capacity(1 << 20), 0);
    engine.0.take_work();
    let before = allocations::count();
    let start = Instant::now();
    while epoch < FEWEST_BATCHES || start.elapsed() < DURATION && times.len() < times.capacity() {
        epoch += 1;
        let start = Instant::now();
        batch(epoch);
        times.push(start.elapsed());
    }
    let allocations = (allocations::count() - before) / epoch;
    let work = engine.0.take_work().divided(epoch);
    Measured { times, allocations, work }
}

/// No augmentation, chains of several, and every augmentation applied to all samples.
fn cases() -> Vec<(String, Option<Value>)> {
    let training = json!([
        {"op": "hflip"}, {"op": "vflip"},
        {"op": "affine", "degrees": 45, "scale": [0.9, 1.1], "padding": "reflection"},
        {"op": "gaussian_noise", "std": 0.01}, {"op": "gain", "range": [0.9, 1.1]},
    ]);
    let bands: Vec<f64> = (0..FRAME.bands).map(|band| 0.5 + band as f64 / 100.0).collect();
    let projection: Vec<Vec<f64>> = (0..FRAME.bands)
        .map(|row| (0..FRAME.bands).map(|band| f64::from(u8::from(row == band))).collect())
        .collect();
    let each = json!([
        {"op": "hflip"}, {"op": "vflip"}, {"op": "rot90"},
        {"op": "affine", "degrees": 45, "scale": [0.9, 1.1]}, {"op": "rotate", "degrees": 45},
        {"op": "perspective"}, {"op": "elastic", "kernel": [5, 5], "sigma": [2.0, 2.0]},
        {"op": "random_crop", "size": [7, 7]}, {"op": "center_crop", "size": [7, 7]},
        {"op": "resized_crop", "size": [9, 9]}, {"op": "resize", "size": [16, 16]},
        {"op": "pad_to", "size": [11, 11]},
        {"op": "erase"}, {"op": "transplant"}, {"op": "cutmix_rect"}, {"op": "mixup"},
        {"op": "jigsaw", "grid": [3, 3]}, {"op": "hide_and_seek", "patches": [[3, 3]]},
        {"op": "gain", "range": [0.9, 1.1]}, {"op": "offset", "range": [-0.1, 0.1]},
        {"op": "gaussian_noise", "std": 0.01}, {"op": "band_dropout", "bands": [1, 10]},
        {"op": "band_jitter", "correlation": 2.0}, {"op": "band_offset"},
        {"op": "spectral_shift"}, {"op": "spectral_smooth"},
        {"op": "projection", "matrix": projection},
        {"op": "illumination_ramp"}, {"op": "gaussian_blur"},
        {"op": "l1_normalize"}, {"op": "l2_normalize"}, {"op": "snv"},
        {"op": "standardize", "mean": bands, "std": bands},
        {"op": "valid_guard", "mask": "labels"},
    ]);
    let mut cases =
        vec![("plain".to_owned(), None), ("flips affine noise gain".to_owned(), Some(training))];
    for op in each.as_array().expect("a list") {
        let mut op = op.clone();
        let name = op["op"].as_str().expect("a name").to_owned();
        if !WITHOUT_P.contains(&name.as_str()) {
            op["p"] = json!(1.0);
        }
        cases.push((name, Some(json!([op]))));
    }
    cases
}
