//! Augments batches on request, for `scripts/bench/augment.py`, which compares with Kornia in one
//! run. On the CPU it uses our own loops or, with `tensors`, libtorch's operations. On a GPU it
//! uses kernels together with libtorch's operations or, with `tensors`, only the operations.
//!
//! Reads requests from standard input, one JSON object in each line: `ops`, `size` (samples, bands,
//! rows, columns), `kind` (`float16`, `float32`), `masks`, `threads`, `fuse`, `cuda`, `tensors`.
//! For each request, augments one batch with the parameters of the next epoch, and answers with the
//! seconds it took.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::time::Instant;

use hsipack_augment::{Frame, Images, Library, Mask, Op, Pipeline, SampleKey, TensorEngine};
use hsipack_torch::{Libtorch, Operations, cuda_is_available};
use serde::Deserialize;
use tch::{Device, Kind, Tensor};

#[derive(Deserialize)]
struct Request {
    ops: Vec<Op>,
    size: [i64; 4],
    kind: String,
    masks: usize,
    threads: i32,
    #[serde(default = "yes")]
    fuse: bool,
    #[serde(default)]
    cuda: bool,
    #[serde(default)]
    tensors: bool,
}

fn yes() -> bool {
    true
}

/// A batch that is kept from request to request.
struct Batch {
    image: Tensor,
    masks: Vec<Tensor>,
    libtorch: Libtorch,
}

fn main() {
    if !std::env::args().any(|arg| arg == "serve") {
        println!("this answers to scripts/bench/augment.py");
        return;
    }
    let mut batches: HashMap<String, Batch> = HashMap::new();
    let mut epoch = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let request: Request = serde_json::from_str(&line).expect("a request");
        tch::set_num_threads(request.threads);
        let device =
            if request.cuda && cuda_is_available() { Device::Cuda(0) } else { Device::Cpu };
        let key = format!(
            "{:?} {} {} {device:?} {}",
            request.size, request.kind, request.masks, request.threads
        );
        if !batches.contains_key(&key) {
            // Only one at a time, because they are large.
            batches.clear();
        }
        let batch = batches.entry(key).or_insert_with(|| batch(&request, device));
        epoch += 1;
        println!("{}", once(&request, batch, epoch, device));
        std::io::stdout().flush().expect("a pipe");
    }
}

fn batch(request: &Request, device: Device) -> Batch {
    let [samples, bands, rows, columns] = request.size;
    let kind = if request.kind == "float16" { Kind::Half } else { Kind::Float };
    let image = Tensor::rand([samples, rows, columns, bands], (Kind::Float, device)).to_kind(kind);
    let mask = || Tensor::randint(20, [samples, rows, columns], (Kind::Uint8, device));
    let masks = (0..request.masks).map(|_| mask()).collect();
    let libtorch = Libtorch::new(usize::try_from(request.threads).unwrap_or(1));
    Batch { image: image.permute([0, 3, 1, 2]), masks, libtorch }
}

/// Augments the batch once, and returns the seconds.
fn once(request: &Request, batch: &Batch, epoch: u64, device: Device) -> f64 {
    let pipeline = Pipeline { fuse: request.fuse, ..Pipeline::new(request.ops.clone()) };
    let samples: Vec<SampleKey> =
        (0..request.size[0] as usize).map(|sample| SampleKey { sample, repeat: 0 }).collect();
    let masks = batch.masks.iter().enumerate().map(|(number, mask)| Mask {
        name: format!("mask {number}"),
        labels: mask.shallow_clone().into(),
    });
    let images = Images::new(batch.image.shallow_clone().into(), masks.collect());
    let [_, bands, rows, columns] = request.size.map(|size| size as usize);
    wait(device);
    let start = Instant::now();
    let parameters =
        pipeline.draw(Frame { rows, columns, bands }, epoch, &samples).expect("sound options");
    let augmented = if request.tensors {
        pipeline.apply(
            &TensorEngine(Operations::on(device).with_launcher(None)),
            &images,
            &parameters,
        )
    } else {
        batch.libtorch.apply(&pipeline, images, &parameters)
    };
    let augmented = augmented.expect("sound augmentations");
    wait(device);
    let seconds = start.elapsed().as_secs_f64();
    drop(augmented);
    seconds
}

fn wait(device: Device) {
    if let Device::Cuda(number) = device {
        tch::Cuda::synchronize(number as i64);
    }
}
