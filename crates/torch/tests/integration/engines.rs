//! Both engines do the same, except for the numbers that libtorch draws.

use hsipack_augment::prepare::{
    BandFigures, ImageConversion, LabelConversion, Normalized, Validity,
};
use hsipack_augment::{
    Array, Device, ElementType, Engine, Frame, Host, Images, Library, Mask, MaskFill, SampleKey,
    TensorEngine,
};
use hsipack_format::SpectralNorm;
use hsipack_torch::{Libtorch, Operations};
use proptest::prelude::*;
use serde_json::Value;

use crate::contract::{all_ops, name, numbers, pipeline};

const ROWS: usize = 12;
const COLUMNS: usize = 12;
const BANDS: usize = 6;
/// Augmentations for which libtorch's operations draw other numbers than the host. Kernels draw the
/// host's.
const RANDOM: [&str; 2] = ["gaussian_noise", "elastic"];

/// Random numbers in [-1, 2) with whole sixteenths, some of them NaN, times `scale`.
fn scaled(samples: usize, seed: u64, gaps: bool, element: ElementType, scale: f64) -> Array {
    let numbers: Vec<f64> = (0..samples * ROWS * COLUMNS * BANDS)
        .map(|index| {
            let number =
                (index as u64).wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            if gaps && number.is_multiple_of(97) {
                f64::NAN
            } else {
                ((number % 48) as f64 / 16.0 - 1.0) * scale
            }
        })
        .collect();
    Array::of_numbers(&numbers, &[samples, ROWS, COLUMNS, BANDS], element).unwrap()
}

fn image(samples: usize, seed: u64, gaps: bool, element: ElementType) -> Array {
    scaled(samples, seed, gaps, element, 1.0)
}

fn labels(samples: usize, seed: u64, element: ElementType) -> Array {
    let labels: Vec<i64> = (0..samples * ROWS * COLUMNS)
        .map(|index| ((index / 5) as u64 * 13 + seed) as i64 % 7 % 4)
        .collect();
    Array::of_integers(&labels, &[samples, ROWS, COLUMNS], element).unwrap()
}

/// How far values may be apart after `steps` augmentations, each of which may round.
fn tolerance(element: ElementType, steps: usize) -> f64 {
    let rounding = match element {
        ElementType::F16 => 2e-3,
        ElementType::BF16 => 2e-2,
        _ => 2e-5,
    };
    rounding * steps as f64
}

/// The number of values that are too far apart. Values next to gaps are compared only if nothing is
/// interpolated.
fn apart(have: &[f64], want: &[f64], tolerance: f64) -> usize {
    let greatest = want.iter().filter(|want| want.is_finite()).fold(1.0f64, |a, b| a.max(b.abs()));
    let differ = |(have, want): &(&f64, &f64)| {
        !((*have - *want).abs() <= tolerance * greatest
            || have.is_nan() && want.is_nan()
            || have == want)
    };
    have.iter().zip(want).filter(differ).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn random_pipelines_give_the_same_images_and_masks(
        choices in prop::collection::vec(0..64usize, 1..5), seed in 0..1u64 << 40, samples in 1..5usize,
        element in prop::sample::select(vec![ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64]),
        mask in prop::sample::select(vec![ElementType::U8, ElementType::I32, ElementType::I64, ElementType::Bool]),
        fill in 0..100i64, fuse: bool, kernels: bool,
        // Small values, and values so large that results exceed float16.
        scale in prop::sample::select(vec![1.0, 32_000.0]),
    ) {
        let frame = Frame { rows: ROWS, columns: COLUMNS, bands: BANDS };
        let keys: Vec<SampleKey> = (0..samples).map(|sample| SampleKey { sample, repeat: seed }).collect();
        // Kernels do not add noise to float64.
        let alike = |op: &Value| !RANDOM.contains(&name(op)) || kernels && element != ElementType::F64;
        let all: Vec<Value> = all_ops().into_iter().filter(alike).collect();
        let mut ops: Vec<Value> = Vec::new();
        for choice in choices {
            ops.push(all[choice % all.len()].clone());
            let last = ops.len() - 1;
            let guards = last > 0 && name(&ops[last]) == "valid_guard";
            if guards || pipeline(&ops, seed).draw(frame, 0, &keys).is_err() {
                ops.pop();
            }
        }
        let mut pipeline = pipeline(&ops, seed);
        (pipeline.fuse, pipeline.mask_fill) = (fuse, MaskFill::All(fill));
        let parameters = pipeline.draw(frame, 0, &keys).unwrap();
        let image = scaled(samples, seed, false, element, scale).permuted(&[0, 3, 1, 2]);
        let mask = Mask { name: "labels".to_owned(), labels: labels(samples, seed, mask) };
        let images = Images::new(image, vec![mask]);
        let want = pipeline.apply(&Host::new(2), &images, &parameters).unwrap();
        let apply = if kernels { crate::kernels::apply } else { crate::libtorch::apply };
        let have = apply(&pipeline, &images, &parameters, 2).unwrap();
        prop_assert_eq!(have.mixed, want.mixed);
        prop_assert_eq!(have.image.shape(), want.image.shape());
        prop_assert_eq!(have.masks[0].labels.element(), want.masks[0].labels.element());
        // Dividing by the small spread or sum of a spectrum enlarges earlier rounding errors.
        let norms = ops.iter().filter(|op| ["snv", "l1_normalize", "l2_normalize"].contains(&name(op))).count();
        let tolerance = tolerance(element, ops.len()) * 20f64.powi(norms as i32);
        let (have_image, want_image) = (numbers(&have.image), numbers(&want.image));
        // Positions are float32 in one engine and float64 in the other, so the nearest pixel may differ.
        let nearest = pipeline.to_json().contains("\"nearest\"");
        let most = if nearest { want_image.len() / 50 } else { 0 };
        let count = apart(&have_image, &want_image, tolerance);
        prop_assert!(count <= most, "{} of {} values differ: {}", count, want_image.len(), pipeline.to_json());
        let (have, want) = (numbers(&have.masks[0].labels), numbers(&want.masks[0].labels));
        let others = have.iter().zip(&want).filter(|(have, want)| have != want).count();
        prop_assert!(others * 50 <= want.len(), "{} of {} labels differ: {}", others, want.len(), pipeline.to_json());
    }

    #[test]
    fn stored_values_become_equal_images(
        seed: u64, samples in 1..4usize, gaps: bool, per_sample: bool, norm in 0..5usize, physical: bool, nan: bool,
        stored in prop::sample::select(vec![ElementType::F16, ElementType::F32, ElementType::F64]),
        element in prop::sample::select(vec![ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64]),
    ) {
        let figures = |sample: usize| BandFigures {
            mean: (0..BANDS).map(|band| (band + sample) as f32 / 4.0).collect(),
            std: (0..BANDS).map(|band| if band == 2 { 0.0 } else { 0.5 + band as f32 }).collect(),
        };
        let count = if per_sample { samples } else { 1 };
        let recipe = ImageConversion {
            physical: if physical { (0..count).map(|sample| [1.5 + sample as f64, 0.25]).collect() } else { Vec::new() },
            normalized: match norm {
                0 => Normalized::Not,
                1 => Normalized::Bands((0..count).map(figures).collect()),
                2 => Normalized::Spectra(SpectralNorm::L1),
                3 => Normalized::Spectra(SpectralNorm::L2),
                _ => Normalized::Spectra(SpectralNorm::Snv),
            },
            nan: nan.then_some(-7.0),
            element,
        };
        let array = image(samples, seed, gaps, stored);
        let want = Host::new(2).image(&array, &recipe).unwrap();
        let libtorch = Libtorch::new(2);
        let engine = TensorEngine(Operations::on(tch::Device::Cpu));
        let have = engine.image(&libtorch.tensor(array.clone()).unwrap(), &recipe).unwrap();
        let have = libtorch.array(&have).unwrap();
        prop_assert_eq!((have.shape(), have.element()), (want.shape(), element));
        let count = apart(&numbers(&have), &numbers(&want), tolerance(element, 1));
        prop_assert!(count == 0, "{} values differ: {:?}", count, recipe);
        prop_assert_eq!(numbers(&array).len(), numbers(&have).len());
    }
}

/// Bits as they are stored, whatever type they have in libtorch.
#[test]
fn stored_values_become_equal_masks() {
    let libtorch = Libtorch::new(1);
    let engine = TensorEngine(Operations::on(tch::Device::Cpu));
    let all = [
        (ElementType::Bool, 1),
        (ElementType::U8, 8),
        (ElementType::I8, 7),
        (ElementType::U16, 16),
        (ElementType::I16, 15),
        (ElementType::U32, 31),
        (ElementType::I32, 31),
        (ElementType::I64, 40),
    ];
    for (stored, bits) in all {
        let most = (1i64 << bits) - 1;
        let ids = [0, 1, most / 3, most, most / 2 + 1, 1];
        let array = Array::of_integers(&ids, &[1, 2, 3, 1], stored).unwrap();
        let tensor = libtorch.tensor(array.reinterpreted(stored.signed())).unwrap();
        let same = |recipe: &LabelConversion| {
            let want = Host::new(1).labels(&array, recipe).unwrap();
            let have = libtorch.array(&engine.labels(&tensor, recipe).unwrap()).unwrap();
            assert_eq!((have.shape(), have.element()), (want.shape(), want.element()));
            assert_eq!(numbers(&have), numbers(&want), "{recipe:?}");
        };
        for element in [ElementType::I32, ElementType::I64, ElementType::F32] {
            if element.holds(most) {
                same(&LabelConversion { stored, layers: 0, element });
            }
        }
        same(&LabelConversion { stored, layers: bits, element: stored });
    }
}

#[test]
fn the_same_pixels_are_valid() {
    let libtorch = Libtorch::new(1);
    let engine = TensorEngine(Operations::on(tch::Device::Cpu));
    let values: Vec<f64> = (0..3 * 4 * 5 * 6)
        .map(|index| match index % 17 {
            3 => f64::NAN,
            11 => f64::INFINITY,
            _ => f64::from(index),
        })
        .collect();
    let bands =
        |first: usize| (0..6).map(|band| !(band + first).is_multiple_of(3)).collect::<Vec<bool>>();
    for element in [ElementType::F16, ElementType::F32] {
        let stored = Array::of_numbers(&values, &[3, 4, 5, 6], element).unwrap();
        let tensor = libtorch.tensor(stored.clone()).unwrap();
        for lists in [vec![], vec![bands(0)], vec![bands(0), bands(1), bands(2)]] {
            let inside = if lists.len() > 1 {
                vec![[0..4, 1..3], [2..2, 0..5], [0..4, 0..5]]
            } else {
                vec![]
            };
            let recipe = Validity { bands: lists, inside };
            let want = Host::new(1).valid(&stored, &recipe).unwrap();
            let have = libtorch.array(&engine.valid(&tensor, &recipe).unwrap()).unwrap();
            assert_eq!((have.shape(), have.element()), (want.shape(), want.element()));
            assert_eq!(numbers(&have), numbers(&want), "{recipe:?}");
        }
    }
}

#[test]
fn batches_of_the_host_are_made_and_augmented_without_a_copy() {
    let libtorch = Libtorch::new(1);
    let stored = image(2, 1, false, ElementType::F16);
    let recipe = ImageConversion {
        physical: Vec::new(),
        normalized: Normalized::Not,
        nan: None,
        element: ElementType::F16,
    };
    let tensor = libtorch.image_of(stored.clone(), &recipe).unwrap();
    assert_eq!(tensor.data_ptr().cast::<u8>(), stored.address());
    assert_eq!(libtorch.device(&tensor).unwrap(), Device::Cpu);
    assert_eq!(tensor.size(), [2, BANDS as i64, ROWS as i64, COLUMNS as i64]);
    let mask = labels(2, 1, ElementType::U16).reshaped(&[2, ROWS, COLUMNS, 1]).unwrap();
    let recipe = LabelConversion { stored: ElementType::U16, layers: 0, element: ElementType::I32 };
    assert_eq!(libtorch.labels_of(mask, &recipe).unwrap().kind(), tch::Kind::Int);
}
