//! Batches of a loader, augmented: by sample whatever the batch, and without touching what was kept.

use std::collections::HashMap;

use hsipack_read::augment::{Images, Mask, Mixed, Pipeline, SampleKey};
use hsipack_read::plan::Share;
use hsipack_read::{Dataset, DeviceLoader, DeviceOptions, LoaderOptions, cuda_is_available};
use hsipack_testing::skipped;
use serde_json::json;
use tch::{Device, Kind, Tensor};

use crate::support::{StackSpec, Written, write_dataset};

const OPS: &str = r#"[
    {"op": "affine", "degrees": 45, "scale": [0.8, 1.2], "padding": "reflection"},
    {"op": "hflip"},
    {"op": "elastic", "sigma": [3, 3], "kernel": [5, 5], "p": 0.3},
    {"op": "random_crop", "size": [7, 5]},
    {"op": "erase"},
    {"op": "gain", "range": [0.5, 2]},
    {"op": "gaussian_noise", "std": 0.1},
    {"op": "snv", "p": 0.5}
]"#;

fn made() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let spec = StackSpec { masks: vec!["organs".into()], ..StackSpec::new(9, 8, 5, 11) };
    let written = write_dataset(&folder.path().join("made"), &[spec], |_| json!({}));
    (folder, written)
}

fn loader(dataset: &Dataset, batch_size: usize, threads: usize, share: Share) -> DeviceLoader {
    let mut options = LoaderOptions::new(batch_size);
    (options.threads, options.share, options.end_epoch) = (threads, share, Some(2));
    DeviceLoader::new(dataset, options, DeviceOptions::new(Device::Cpu)).unwrap()
}

/// What every sample of two epochs becomes: image and mask.
fn augmented(mut loader: DeviceLoader) -> HashMap<(u64, usize), (Vec<f32>, Vec<i64>)> {
    let pipeline = Pipeline { seed: 5, ..Pipeline::from_json(OPS).unwrap() };
    let mut all = HashMap::new();
    for _ in 0..2 {
        for batch in loader.epoch() {
            let mut batch = batch.unwrap();
            let kept = (batch.image.shallow_clone(), batch.image.copy());
            pipeline.augment_batch(&mut batch).unwrap();
            assert_eq!(kept.0, kept.1);
            assert_eq!(batch.image.size()[1..], [5, 7, 5]);
            assert_eq!(batch.masks[0].1.kind(), Kind::Uint8);
            for (place, id) in batch.ids().enumerate() {
                let values = |tensor: &Tensor| tensor.get(place as i64).contiguous().view([-1]);
                let image = Vec::try_from(values(&batch.image).to_kind(Kind::Float)).unwrap();
                let mask = Vec::try_from(values(&batch.masks[0].1).to_kind(Kind::Int64)).unwrap();
                all.insert((batch.epoch(), id), (image, mask));
            }
        }
    }
    all
}

#[test]
fn augmented_samples_depend_on_seed_and_epoch_but_not_on_batch_thread_or_rank() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let all = augmented(loader(&dataset, 4, 2, Share::ALL));
    assert_eq!(all.len(), 22);
    for (batch_size, threads) in [(1, 1), (11, 3), (3, 2)] {
        assert_eq!(augmented(loader(&dataset, batch_size, threads, Share::ALL)), all);
    }
    let mut ranks = HashMap::new();
    for rank in 0..3 {
        ranks.extend(augmented(loader(&dataset, 2, 1, Share { rank, world_size: 3 })));
    }
    assert_eq!(ranks, all);
    let same = |id| all[&(0, id)] == all[&(1, id)];
    assert!((0..11).filter(|id| same(*id)).count() < 3, "epochs are augmented alike");
}

#[test]
fn mixing_says_who_was_mixed_with_whom() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let pipeline = Pipeline::from_json(r#"[{"op": "mixup"}]"#).unwrap();
    let mut batch = loader(&dataset, 6, 1, Share::ALL).next_batch().unwrap().unwrap();
    let before = batch.image.to_kind(Kind::Double);
    let (mixed, _) = pipeline.augment_batch(&mut batch).unwrap();
    let [Mixed { partners, shares }] = &mixed[..] else { panic!("{mixed:?}") };
    for (sample, (partner, share)) in partners.iter().zip(shares).enumerate() {
        let own = before.get(sample as i64) * (1.0 - share);
        let wanted = own + before.get(*partner as i64) * *share;
        let off = (batch.image.get(sample as i64).to_kind(Kind::Double) - &wanted).abs().max();
        assert!(off.double_value(&[]) <= 1e-3 * wanted.abs().max().double_value(&[]));
    }
    let one_hot = Tensor::eye(6, (Kind::Float, Device::Cpu));
    let labels = mixed[0].labels(&one_hot).unwrap();
    for (sample, (partner, share)) in partners.iter().zip(shares).enumerate() {
        let share_of = |class: usize| labels.double_value(&[sample as i64, class as i64]);
        if *partner != sample {
            assert!((share_of(*partner) - share).abs() < 1e-6);
        }
        assert!((labels.get(sample as i64).sum(Kind::Float).double_value(&[]) - 1.0).abs() < 1e-6);
    }
    // Also where nobody drew it, so that the list can be counted on.
    let pipeline = Pipeline::from_json(
        r#"[{"op": "mixup", "p": 0}, {"op": "cutmix_rect", "p": 0}, {"op": "mixup"}]"#,
    );
    let (all, _) = pipeline.unwrap().augment_batch(&mut batch).unwrap();
    assert_eq!(all.len(), 3);
    for nobody in &all[..2] {
        assert_eq!(nobody.partners, [0, 1, 2, 3, 4, 5]);
        assert_eq!(nobody.labels(&one_hot).unwrap(), one_hot);
    }
    assert!(mixed[0].labels(&Tensor::zeros([5, 3], (Kind::Float, Device::Cpu))).is_err());
}

/// Every augmentation whose result depends on nothing that a device draws.
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

/// What an augmentation makes of a batch on a device: image and mask, brought to the host.
fn on(device: Device, op: &str, kind: Kind, image: &Tensor, mask: &Tensor) -> (Tensor, Tensor) {
    let pipeline = Pipeline::from_json(&format!("[{op}]")).unwrap();
    let keys: Vec<SampleKey> = (0..5).map(|sample| SampleKey { sample, repeat: 0 }).collect();
    let labels = mask.to_device(device);
    let images = Images {
        image: image.to_kind(kind).to_device(device).permute([0, 3, 1, 2]),
        masks: vec![Mask { name: "labels".into(), labels }],
        overwrite: false,
    };
    let (augmented, _) = pipeline.augment(images, 3, &keys).unwrap();
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
    tch::manual_seed(3);
    let image = Tensor::rand([5, 36, 48, 11], (Kind::Double, Device::Cpu));
    let mask = Tensor::randint(4, [5, 36, 48], (Kind::Uint8, Device::Cpu));
    for op in EACH {
        let (wanted, labels) = on(Device::Cpu, op, Kind::Double, &image.to_kind(Kind::Half), &mask);
        for (kind, tolerance) in [(Kind::Float, 3e-5), (Kind::Half, 1.5e-3)] {
            let given = image.to_kind(Kind::Half);
            let (have, have_labels) = on(Device::Cuda(0), op, kind, &given, &mask);
            let off = (&have - &wanted).abs().max().double_value(&[]);
            let largest = wanted.abs().max().double_value(&[]).max(1.0);
            let moved = have_labels.ne_tensor(&labels).sum(Kind::Int64).int64_value(&[]);
            println!("{kind:?}: {off:.1e}, {moved} labels differ: {op}");
            assert!(off <= tolerance * largest, "{kind:?} {op}: {off}");
            // Positions are float32 there and float64 here, so that a few may fall on the other side.
            assert!(moved <= 4, "{kind:?} {op}: {moved} labels");
        }
    }
    for op in [r#"{"op": "gaussian_noise", "p": 1}"#, r#"{"op": "elastic", "p": 1}"#] {
        let again = || on(Device::Cuda(0), op, Kind::Float, &image, &mask).0;
        assert_eq!(again(), again(), "{op}");
    }
}
