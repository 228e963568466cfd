//! Augmentations on a GPU, with kernels and with libtorch's operations alone.

use std::time::Instant;

use hsipack_augment::{Images, Library, Mask, Pipeline, SampleKey, TensorEngine, kernels};
use hsipack_testing::skipped;
use hsipack_torch::{Libtorch, Operations, cuda_is_available};
use tch::{Device, Kind, Tensor};

/// Augmentations for which kernels draw the host's numbers, and libtorch's operations its own.
const DRAWN: [&str; 2] = [r#"{"op": "gaussian_noise", "p": 1}"#, r#"{"op": "elastic", "p": 1}"#];

/// Every other augmentation.
const EACH: &[&str] = &[
    r#"{"op": "hflip"}"#,
    r#"{"op": "vflip"}"#,
    r#"{"op": "rot90", "turns": [2, 2]}"#,
    r#"{"op": "affine", "degrees": 45, "shear": 10, "scale": [0.8, 1.2], "padding": "reflection"}"#,
    r#"{"op": "affine", "degrees": 45, "translate": [0.3, 0.3], "fill": 0.5}"#,
    r#"{"op": "rotate", "degrees": 90, "padding": "border", "interpolation": "nearest"}"#,
    r#"{"op": "perspective"}"#,
    r#"{"op": "random_crop", "size": [20, 30], "pad": [3, 3, 3, 3], "padding": "reflection"}"#,
    r#"{"op": "center_crop", "size": [20, 30]}"#,
    r#"{"op": "resized_crop", "size": [31, 17]}"#,
    r#"{"op": "resize", "size": [50, 20], "align_corners": false}"#,
    r#"{"op": "pad_to", "size": [50, 70]}"#,
    r#"{"op": "erase", "value": "random_l1"}"#,
    r#"{"op": "transplant", "excluded_labels": [0]}"#,
    r#"{"op": "cutmix_rect"}"#,
    r#"{"op": "mixup"}"#,
    r#"{"op": "jigsaw", "grid": [2, 3]}"#,
    r#"{"op": "hide_and_seek", "patches": [[4, 5], [7, 7]]}"#,
    r#"{"op": "gain", "range": [0.5, 2]}"#,
    r#"{"op": "offset", "range": [-1, 1]}"#,
    r#"{"op": "band_dropout", "bands": [1, 5]}"#,
    r#"{"op": "band_jitter", "correlation": 2}"#,
    r#"{"op": "band_offset"}"#,
    r#"{"op": "spectral_shift", "max_bands": 3}"#,
    r#"{"op": "spectral_smooth"}"#,
    r#"{"op": "illumination_ramp"}"#,
    r#"{"op": "gaussian_blur", "kernel": [5, 3]}"#,
    r#"{"op": "l1_normalize"}"#,
    r#"{"op": "l2_normalize"}"#,
    r#"{"op": "snv"}"#,
    r#"{"op": "standardize", "mean": 0.5, "std": 0.3}"#,
];

/// Augments a batch on a device. Returns image and mask on the host.
fn on(
    device: Device,
    with_kernels: bool,
    op: &str,
    kind: Kind,
    (image, mask): (&Tensor, &Tensor),
) -> (Tensor, Tensor) {
    let pipeline = Pipeline::from_json(&format!("[{op}]")).unwrap();
    let keys: Vec<SampleKey> = (0..5).map(|sample| SampleKey { sample, repeat: 0 }).collect();
    let labels = mask.to_device(device).into();
    let image = image.to_kind(kind).to_device(device).permute([0, 3, 1, 2]);
    let frame = hsipack_augment::Frame {
        rows: image.size()[2] as usize,
        columns: image.size()[3] as usize,
        bands: image.size()[1] as usize,
    };
    let images = Images::new(image.into(), vec![Mask { name: "labels".into(), labels }]);
    let parameters = pipeline.draw(frame, 3, &keys).unwrap();
    let augmented = match with_kernels {
        true => Libtorch::default().apply(&pipeline, images, &parameters).unwrap(),
        false => {
            let operations = Operations::on(device).with_launcher(None);
            pipeline.apply(&TensorEngine(operations), &images, &parameters).unwrap()
        }
    };
    assert_eq!(augmented.image.device(), device);
    let image = augmented.image.to_device(Device::Cpu).to_kind(Kind::Double);
    (image, augmented.masks[0].labels.to_device(Device::Cpu))
}

#[test]
fn on_a_gpu_augmentations_give_what_they_give_on_the_cpu() {
    if !cuda_is_available() {
        skipped("there is no CUDA device");
        return;
    }
    // Otherwise operations would be compared with themselves.
    let before = Instant::now();
    if let Err(error) = kernels::of_device(0) {
        panic!("{error}");
    }
    println!("kernels were loaded in {:.0} ms", 1e3 * before.elapsed().as_secs_f64());
    tch::manual_seed(3);
    // Numbers of bands that are read one at a time, two at a time, and as many as possible at a time.
    for bands in [11, 10, 32] {
        let image = Tensor::rand([5, 36, 48, bands], (Kind::Double, Device::Cpu));
        let mask = Tensor::randint(4, [5, 36, 48], (Kind::Uint8, Device::Cpu));
        for op in EACH.iter().chain(&DRAWN) {
            let half_image = image.to_kind(Kind::Half);
            let (wanted, labels) = on(Device::Cpu, true, op, Kind::Double, (&half_image, &mask));
            let largest = wanted.abs().max().double_value(&[]).max(1.0);
            let ways = if DRAWN.contains(op) { &[true][..] } else { &[true, false] };
            for &with_kernels in ways {
                for (kind, tolerance) in
                    [(Kind::Float, 3e-5), (Kind::Half, 1.5e-3), (Kind::BFloat16, 1.2e-2)]
                {
                    let batch = (&half_image, &mask);
                    let (have, have_labels) = on(Device::Cuda(0), with_kernels, op, kind, batch);
                    let off = (&have - &wanted).abs().max().double_value(&[]);
                    let moved = have_labels.ne_tensor(&labels).sum(Kind::Int64).int64_value(&[]);
                    let by = if with_kernels { "kernels" } else { "operations" };
                    println!("{by}, {bands} bands, {kind:?}: {off:.1e}, {moved} labels: {op}");
                    assert!(off <= tolerance * largest, "{by} {kind:?} {op}: {off}");
                    // Positions are float32 on the GPU and float64 here, so a few labels may differ.
                    assert!(moved <= 4, "{by} {kind:?} {op}: {moved} labels");
                }
            }
        }
        for op in DRAWN {
            let again = || on(Device::Cuda(0), false, op, Kind::Float, (&image, &mask)).0;
            assert_eq!(again(), again(), "{op}");
        }
    }
}
