//! Batches as tensors of libtorch: their values are those of the arrays of `Host`, on the CPU with
//! the same bits.

use hsipack_read::augment::Pipeline;
use hsipack_read::{
    Array, Dataset, Device, DeviceLoader, DeviceOptions, ElementType, Host, Library, Normalization,
};
use hsipack_testing::skipped;
use hsipack_torch::{Libtorch, Tensor, cuda_is_available, tch};

use crate::images::{flat, made, options};

const PIPELINE: &str = r#"{"seed": 3, "ops": [
    {"op": "affine", "degrees": 30, "p": 0.7}, {"op": "hflip"}, {"op": "band_jitter", "sigma": 0.1}, {"op": "snv"}
]}"#;

/// Images as they are stored, and images with all conversions.
fn all(device: Device) -> [DeviceOptions; 3] {
    let stored = DeviceOptions::new(device);
    let normalization = Normalization::Standardize;
    [
        stored.clone(),
        DeviceOptions { layers: false, masks: Some(ElementType::I64), ..stored.clone() },
        DeviceOptions {
            image: ElementType::F32,
            physical: true,
            nan: Some(0.5),
            normalization,
            ..stored
        },
    ]
}

fn values(array: &Array) -> Vec<f64> {
    match array.shape().len() {
        4 => flat(&array.permuted(&[0, 2, 3, 1])),
        _ => flat(array),
    }
}

/// The values of a tensor, in the order of memory.
fn held(tensor: &Tensor) -> Vec<f64> {
    let on_cpu = tensor.to_device(tch::Device::Cpu).to_kind(tch::Kind::Double);
    let on_cpu = if on_cpu.dim() == 4 { on_cpu.permute([0, 2, 3, 1]) } else { on_cpu };
    Vec::try_from(on_cpu.contiguous().view([-1])).unwrap()
}

/// The greatest difference, as a share of the greatest number, or of 1 if all are smaller. It is
/// infinite if only one of two values is a number.
fn off(have: &[f64], want: &[f64]) -> f64 {
    let finite = want.iter().filter(|want| want.is_finite());
    let greatest = finite.fold(1.0f64, |greatest, want| greatest.max(want.abs()));
    let differ = have.iter().zip(want).filter(|(have, want)| have.to_bits() != want.to_bits());
    let differ = differ.filter(|(have, want)| !(have.is_nan() && want.is_nan()));
    differ.fold(0.0, |most, (have, want)| {
        let off = (have - want).abs() / greatest;
        if off.is_nan() { f64::INFINITY } else { off.max(most) }
    })
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// How far tensors may be off, as measured by [`off`].
#[derive(Clone, Copy)]
struct Bounds {
    loaded: f64,
    augmented: f64,
}

/// Runs a loader of tensors beside a loader of arrays, and compares their values. Returns how far
/// they were off.
fn side_by_side(device: &DeviceOptions, batches: usize, bounds: Bounds) -> Bounds {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let pipeline = Pipeline::from_json(PIPELINE).unwrap();
    let on_cpu = DeviceOptions { device: Device::Cpu, ..device.clone() };
    let mut arrays = DeviceLoader::new(&dataset, options(3), on_cpu, Host::new(2)).unwrap();
    let mut tensors =
        DeviceLoader::new(&dataset, options(3), device.clone(), Libtorch::new(2)).unwrap();
    let mut kept: Vec<(Tensor, Vec<f64>)> = Vec::new();
    let mut worst = Bounds { loaded: 0.0, augmented: 0.0 };
    for step in 0..batches {
        let (have, want) = (tensors.next_batch(), arrays.next_batch());
        let (Some(have), Some(want)) = (have, want) else { continue };
        let (mut have, mut want) = (have.unwrap(), want.unwrap());
        if step % 5 == 0 {
            kept.push((have.image.clone(), values(&want.image)));
        }
        for augmented in [false, true] {
            let (mut bound, mut most) = (bounds.loaded, &mut worst.loaded);
            if augmented {
                let (_, drawn) = have.augment(&pipeline).unwrap();
                assert_eq!(want.augment(&pipeline).unwrap().1, drawn);
                (bound, most) = (bounds.augmented, &mut worst.augmented);
            }
            assert_eq!(Libtorch::default().device(&have.image).unwrap(), device.device);
            *most = most.max(off(&held(&have.image), &values(&want.image)));
            assert!(*most <= bound, "off by {most:.1e} in batch {step}: {device:?}");
            for ((name, have), (_, want)) in have.masks.iter().zip(&want.masks) {
                assert_eq!(held(have), values(want), "{name} {device:?}");
            }
        }
    }
    drop(tensors);
    for (image, want) in kept {
        assert!(off(&held(&image), &want) <= bounds.loaded, "kept");
    }
    worst
}

#[test]
fn tensors_on_the_cpu_hold_what_arrays_hold_bit_for_bit() {
    for device in all(Device::Cpu) {
        side_by_side(&device, 12, Bounds { loaded: 0.0, augmented: 0.0 });
    }
}

#[test]
fn tensors_may_be_changed_in_place() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let device = DeviceOptions::new(Device::Cpu);
    let mut loader = DeviceLoader::new(&dataset, options(3), device, Libtorch::new(1)).unwrap();
    let mut firsts = Vec::new();
    for _ in 0..3 {
        loader.set_epoch(0);
        for batch in loader.epoch() {
            let mut batch = batch.unwrap();
            firsts.push((batch.number().batch, bits(&held(&batch.image))));
            let _ = batch.image.0.fill_(77.0);
        }
    }
    for (number, image) in &firsts {
        let first = firsts.iter().find(|(other, _)| other == number).unwrap();
        assert_eq!(image, &first.1, "batch {number}");
    }
}

#[test]
fn on_a_gpu_tensors_hold_what_arrays_hold_and_kept_ones_stay() {
    if !cuda_is_available() {
        skipped("there is no CUDA device");
        return;
    }
    for device in all(Device::Cuda(0)) {
        // Stored values are exact. On the GPU, sums are in another order, float16 is rounded after each operation, and
        // dividing by the small spread of a spectrum enlarges earlier rounding errors.
        let bounds = match device.image {
            ElementType::F16 => Bounds { loaded: 0.0, augmented: 0.1 },
            _ => Bounds { loaded: 1e-5, augmented: 1e-3 },
        };
        let worst = side_by_side(&device, 300, bounds);
        println!("{}: {:.1e}, {:.1e} augmented", device.image, worst.loaded, worst.augmented);
    }
}
