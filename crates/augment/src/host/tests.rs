//! Compares the loops with plain computations in float64, one value at a time.

use half::{bf16, f16};
use hsipack_format::{SpectralNorm, spectrum};
use serde_json::{Value, json};

use super::*;
use crate::prepare::{BandFigures, Normalized};
use crate::{Augmented, Images, Mask, Pipeline, SampleKey};

const SHAPE: [usize; 4] = [3, 7, 9, 5];
const FLOATS: [ElementType; 4] =
    [ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64];

/// A contiguous array of numbers with some element type.
fn array(values: &[f64], shape: &[usize], element: ElementType) -> Array {
    let bytes = values.iter().flat_map(|value| numbers::bytes_of(*value, *value as i64, element));
    let bytes: Vec<u8> = bytes.collect();
    crate::array::Buffer::of(&bytes).unwrap().array(shape, element).unwrap()
}

/// The numbers of an array, in the order of its axes.
fn numbers(array: &Array) -> Vec<f64> {
    let mut bytes = vec![0; array.len() * array.element().size()];
    gather(&Workers::new(1), array, &mut bytes);
    let mut labels = Vec::new();
    match array.element() {
        ElementType::F16 => each(&bytes, |bytes| f16::from_le_bytes(bytes).to_f64()),
        ElementType::BF16 => each(&bytes, |bytes| bf16::from_le_bytes(bytes).to_f64()),
        ElementType::F32 => each(&bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
        ElementType::F64 => each(&bytes, f64::from_le_bytes),
        element => {
            rectangles::labels(&bytes, element, &mut labels).unwrap();
            labels.into_iter().map(|label| label as f64).collect()
        }
    }
}

fn each<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    bytes.chunks_exact(N).map(|bytes| of(bytes.try_into().unwrap())).collect()
}

fn some(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|index| ((index * 7919 + seed * 104_729) % 509) as f64 / 256.0 - 0.5).collect()
}

/// The largest allowed difference from the float64 result for this type.
fn tolerance(element: ElementType) -> f64 {
    match element {
        ElementType::F16 => 2e-3,
        ElementType::BF16 => 2e-2,
        ElementType::F32 => 1e-5,
        _ => 1e-12,
    }
}

fn near(have: &[f64], want: &[f64], tolerance: f64, what: &str) {
    assert_eq!(have.len(), want.len(), "{what}");
    for (index, (have, want)) in have.iter().zip(want).enumerate() {
        let near = (have - want).abs() <= tolerance * want.abs().max(1.0);
        let alike = have.is_nan() && want.is_nan() || have == want;
        assert!(near || alike, "{what}: {have} for {want} at {index}");
    }
}

/// Images and a mask (labels 0, 1, 2, …, 6) as stored, in the outer order of axes.
fn batch(element: ElementType) -> Images<Array> {
    let [samples, rows, columns, _] = SHAPE;
    let image = array(&some(SHAPE.iter().product(), 1), &SHAPE, element).permuted(&[0, 3, 1, 2]);
    let labels: Vec<f64> =
        (0..samples * rows * columns).map(|index| (index / 4 * 5 % 7) as f64).collect();
    let labels = array(&labels, &[samples, rows, columns], ElementType::U8);
    Images::new(image, vec![Mask { name: "labels".to_owned(), labels }])
}

fn pipeline(ops: Value) -> Pipeline {
    Pipeline::from_json(&json!({"ops": ops, "seed": 5}).to_string()).unwrap()
}

fn keys() -> Vec<SampleKey> {
    (0..SHAPE[0]).map(|sample| SampleKey { sample: 3 * sample, repeat: 0 }).collect()
}

fn augmented(ops: Value, images: &Images<Array>) -> (Augmented<Array>, crate::Parameters) {
    pipeline(ops).augment(&Host::new(2), images, 0, &keys()).unwrap()
}

/// In the inner order: (samples, rows, columns, bands).
fn inner(image: &Array) -> Vec<f64> {
    numbers(&image.permuted(&[0, 2, 3, 1]))
}

#[test]
fn bands_and_spectra_are_computed_once_in_the_wider_type() {
    for element in FLOATS {
        let images = batch(element);
        let before = inner(&images.image);
        let ops = json!([
            {"op": "gain", "range": [1.5, 1.5]}, {"op": "offset", "range": [0.25, 0.25]},
            {"op": "standardize", "p": 1.0, "mean": [0.1, 0.2, 0.3, null, 0.5], "std": [1.0, 2.0, 0.5, 1.0, 4.0]},
        ]);
        let (done, _) = augmented(ops, &images);
        let want: Vec<f64> = before
            .iter()
            .enumerate()
            .map(|(index, value)| {
                let (mean, std) =
                    [(0.1, 1.0), (0.2, 2.0), (0.3, 0.5), (0.0, 1.0), (0.5, 4.0)][index % 5];
                (1.5 * value + 0.25 - mean) / std
            })
            .collect();
        near(&inner(&done.image), &want, 2.0 * tolerance(element), "by band");
        assert_eq!(done.image.element(), element);

        let matrix: Vec<Vec<f64>> = (0..5)
            .map(|row| (0..5).map(|band| f64::from((row * 3 + band) % 4) / 8.0).collect())
            .collect();
        let ops = json!([{"op": "projection", "matrix": matrix, "offset": 0.5, "labels": [2, 3], "p": 1.0}]);
        let (done, _) = augmented(ops, &images);
        let labels = numbers(&images.masks[0].labels);
        let mut want = before.clone();
        for (pixel, label) in
            labels.iter().enumerate().filter(|(_, label)| [2.0, 3.0].contains(label))
        {
            let _ = label;
            for band in 0..5 {
                let sum: f64 =
                    (0..5).map(|from| before[5 * pixel + from] * matrix[from][band]).sum();
                want[5 * pixel + band] = sum + 0.5;
            }
        }
        near(&inner(&done.image), &want, tolerance(element), "projection");

        for (op, norm) in [
            ("l1_normalize", SpectralNorm::L1),
            ("l2_normalize", SpectralNorm::L2),
            ("snv", SpectralNorm::Snv),
        ] {
            let (done, _) = augmented(json!([{"op": op, "p": 1.0}]), &images);
            let mut want = before.clone();
            want.chunks_exact_mut(5).for_each(|spectrum| spectrum::normalize(spectrum, norm));
            near(&inner(&done.image), &want, tolerance(element), op);
        }
    }
}

#[test]
fn blurs_ramps_and_mixes_are_what_their_formulas_say() {
    let [_, rows, columns, bands] = SHAPE;
    for element in FLOATS {
        let images = batch(element);
        let before = inner(&images.image);
        let at = |sample: usize, row: usize, column: usize, band: usize| {
            before[((sample * rows + row) * columns + column) * bands + band]
        };
        let each = |of: &dyn Fn(usize, usize, usize, usize) -> f64| -> Vec<f64> {
            (0..before.len())
                .map(|index| {
                    let (pixel, band) = (index / bands, index % bands);
                    of(pixel / columns / rows, pixel / columns % rows, pixel % columns, band)
                })
                .collect()
        };
        let (done, _) = augmented(
            json!([{"op": "gaussian_blur", "p": 1.0, "kernel": [3, 5], "sigma": [0.8, 0.8]}]),
            &images,
        );
        let (down, across) = (gaussian(0.8, 1), gaussian(0.8, 2));
        let mirrored = |position: i64, size: usize| {
            let last = size as i64 - 1;
            let position = position.abs();
            (if position > last { 2 * last - position } else { position }) as usize
        };
        let want = each(&|sample, row, column, band| {
            let mut sum = 0.0;
            for (y, down) in down.iter().enumerate() {
                for (x, across) in across.iter().enumerate() {
                    let row = mirrored(row as i64 + y as i64 - 1, rows);
                    let column = mirrored(column as i64 + x as i64 - 2, columns);
                    sum += down * across * at(sample, row, column, band);
                }
            }
            sum
        });
        near(&inner(&done.image), &want, tolerance(element), "blur");

        let (done, drawn) = augmented(json!([{"op": "mixup", "lambda": [0.2, 0.7]}]), &images);
        let mixed = &done.mixed[0];
        assert_eq!(drawn.steps.len(), 1);
        let want = each(&|sample, row, column, band| {
            let (partner, share) = (mixed.partners[sample], mixed.shares[sample]);
            (1.0 - share) * at(sample, row, column, band) + share * at(partner, row, column, band)
        });
        near(&inner(&done.image), &want, tolerance(element), "mixup");
        let mut labels: Vec<f32> = (0..6).map(|index| index as f32).collect();
        mixed.labels(&mut labels, 2).unwrap();
        let (partner, share) = (mixed.partners[0], mixed.shares[0] as f32);
        assert!((labels[0] - 2.0 * partner as f32 * share).abs() < 1e-6);
        assert!(mixed.labels(&mut labels, 3).is_err());

        let host = Host::new(2);
        let mut held = host.hold(&images.image, false).unwrap();
        host.ramp(&mut held, &[Some([0.25, -0.5]), None, Some([0.0, 0.125])]).unwrap();
        let want = each(&|sample, row, column, band| {
            let [across, down] = [[0.25, -0.5], [0.0, 0.0], [0.0, 0.125]][sample];
            let along = |index: usize, size: usize| 2.0 * index as f64 / (size as f64 - 1.0) - 1.0;
            let factor = 1.0 + across * along(column, columns) + down * along(row, rows);
            at(sample, row, column, band) * factor
        });
        near(&numbers(&held.array), &want, tolerance(element), "ramp");
    }
}

#[test]
fn pixels_of_labels_are_taken_from_the_batch_as_it_was() {
    let images = batch(ElementType::F32);
    let (before, labels) = (inner(&images.image), numbers(&images.masks[0].labels));
    let host = Host::new(2);
    let (image, mask) = (
        host.hold(&images.image, false).unwrap(),
        host.hold(&images.masks[0].labels, false).unwrap(),
    );
    let what = Transplanting {
        mask: None,
        valid: None,
        donors: vec![Some(1), Some(2), None],
        picks: vec![0.999_999_99, 0.0, 0.0],
        fixed: vec![None, Some(4), None],
        excluded: vec![6, 0],
    };
    let chosen = host.choose(&mask, None, &what).unwrap();
    let mut done = image.clone();
    host.transplant(&mut done, &chosen, &what.donors).unwrap();
    let pixels = SHAPE[1] * SHAPE[2];
    let mut want = before.clone();
    for (sample, donor, label) in [(0, 1, 5.0), (1, 2, 4.0)] {
        for pixel in (0..pixels).filter(|pixel| labels[donor * pixels + pixel] == label) {
            for band in 0..5 {
                want[(sample * pixels + pixel) * 5 + band] =
                    before[(donor * pixels + pixel) * 5 + band];
            }
        }
    }
    assert_eq!(numbers(&done.array), want);
    assert_eq!(numbers(&image.array), before, "what was given was written to");

    // If a sample's mask contains only 0, that sample is restored.
    let mut empty = mask.clone();
    host.blank(
        &mut empty,
        &[Blank {
            sample: 1,
            rectangle: crate::operation::Rectangle {
                x: 0,
                y: 0,
                width: SHAPE[2],
                height: SHAPE[1],
            },
            values: Vec::new(),
        }],
        Some(0),
    )
    .unwrap();
    let lost = host.lost(&empty).unwrap();
    assert_eq!(lost, [false, true, false]);
    host.restore(&mut done, &image, &lost).unwrap();
    want[5 * pixels..10 * pixels].copy_from_slice(&before[5 * pixels..10 * pixels]);
    assert_eq!(numbers(&done.array), want);
}

#[test]
fn noise_has_its_mean_and_deviation_and_leaves_others_alone() {
    let shape = [2, 40, 50, 100];
    let stored = array(&vec![2.0; 400_000], &shape, ElementType::F32);
    let host = Host::new(2);
    let mut held = host.hold(&stored.permuted(&[0, 3, 1, 2]), false).unwrap();
    host.noise(&mut held, &[None, Some(9)], 0.5, 0.25).unwrap();
    let values = numbers(&held.array);
    assert!(values[..200_000].iter().all(|value| *value == 2.0));
    let noisy = &values[200_000..];
    let mean = noisy.iter().sum::<f64>() / 200_000.0;
    let variance = noisy.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 200_000.0;
    assert!(
        (mean - 2.5).abs() < 0.003 && (variance.sqrt() - 0.25).abs() < 0.003,
        "{mean} {variance}"
    );
}

#[test]
fn threads_and_neighbours_change_nothing() {
    let ops = json!([
        {"op": "affine", "degrees": 45, "padding": "reflection"}, {"op": "elastic", "kernel": [3, 5], "sigma": [2.0, 1.0], "p": 1.0},
        {"op": "gaussian_noise", "p": 1.0}, {"op": "band_jitter"}, {"op": "spectral_smooth", "p": 1.0}, {"op": "gaussian_blur"},
        {"op": "illumination_ramp"}, {"op": "erase"}, {"op": "snv"},
    ]);
    for element in FLOATS {
        let images = batch(element);
        let pipeline = pipeline(ops.clone());
        let whole = pipeline.augment(&Host::new(1), &images, 2, &keys()).unwrap().0;
        for threads in [2, 3] {
            let again = pipeline.augment(&Host::new(threads), &images, 2, &keys()).unwrap().0;
            assert_eq!(inner(&again.image), inner(&whole.image));
        }
        for index in 0..SHAPE[0] {
            let single = Images::new(
                images.image.narrowed(0, index, 1),
                vec![Mask {
                    name: "labels".to_owned(),
                    labels: images.masks[0].labels.narrowed(0, index, 1),
                }],
            );
            let alone =
                pipeline.augment(&Host::new(2), &single, 2, &keys()[index..=index]).unwrap().0;
            let theirs = whole.image.narrowed(0, index, 1);
            assert_eq!(inner(&alone.image), inner(&theirs), "{element} {index}");
            let theirs = whole.masks[0].labels.narrowed(0, index, 1);
            assert_eq!(numbers(&alone.masks[0].labels), numbers(&theirs));
        }
    }
}

#[test]
fn memory_that_was_given_is_written_to_only_if_it_may_be() {
    let images = batch(ElementType::F32);
    let before = inner(&images.image);
    let ops = json!([{"op": "gain", "range": [2.0, 2.0]}, {"op": "erase", "p": 1.0}, {"op": "transplant", "p": 1.0}]);
    let (done, _) = augmented(ops.clone(), &images);
    assert_eq!(inner(&images.image), before);
    assert_ne!(done.image.address(), images.image.address());
    // SAFETY: only this test has access to the memory, which is that of a buffer.
    let ours = unsafe { images.clone().overwriting() };
    let (again, _) = augmented(ops, &ours);
    assert_eq!(inner(&again.image), inner(&done.image));
    assert_eq!(again.image.address(), images.image.address());
}

#[test]
fn images_in_any_order_in_memory_are_taken() {
    let images = batch(ElementType::F16);
    let planes = array(&numbers(&images.image), images.image.shape(), ElementType::F16);
    assert!(planes.is_contiguous() && !images.image.is_contiguous());
    let other = Images::new(planes, images.masks.clone());
    let ops = json!([{"op": "affine", "degrees": 30, "p": 1.0}, {"op": "l1_normalize"}]);
    let (first, second) = (augmented(ops.clone(), &images).0, augmented(ops, &other).0);
    assert_eq!(numbers(&first.image), numbers(&second.image));
}

#[test]
fn images_are_prepared_in_the_order_that_is_documented() {
    let values: Vec<f64> = some(2 * 3 * 4 * 5, 3);
    for (stored, wanted) in
        FLOATS.into_iter().flat_map(|stored| FLOATS.map(|wanted| (stored, wanted)))
    {
        let mut values = values.clone();
        values[7] = f64::NAN;
        let stored = array(&values, &[2, 3, 4, 5], stored);
        let values = numbers(&stored);
        let figures = |by: f32| BandFigures {
            mean: vec![0.5 * by, 0.0, 0.25, 1.0, by],
            std: vec![1.0, 0.0, 2.0, by, 0.5],
        };
        let both = [figures(1.0), figures(2.0)];
        for normalized in [
            Normalized::Not,
            Normalized::Bands(both.to_vec()),
            Normalized::Spectra(SpectralNorm::L2),
        ] {
            let physical = vec![[2.0, 0.5], [0.25, 0.0]];
            let recipe = ImageConversion { physical, normalized, nan: Some(-1.0), element: wanted };
            let done = Host::new(2).image(&stored, &recipe).unwrap();
            assert_eq!((done.shape(), done.element()), (&[2, 5, 3, 4][..], wanted));
            let mut want: Vec<f64> = values.clone();
            for (pixel, spectrum) in want.chunks_exact_mut(5).enumerate() {
                let sample = pixel / 12;
                let [scale, offset] = recipe.physical[sample];
                spectrum.iter_mut().for_each(|value| *value = *value * scale + offset);
                match &recipe.normalized {
                    Normalized::Bands(figures) => {
                        let BandFigures { mean, std } = &figures[sample];
                        for ((value, mean), std) in spectrum.iter_mut().zip(mean).zip(std) {
                            let std = if *std == 0.0 { 1.0 } else { f64::from(*std) };
                            *value = (*value - f64::from(*mean)) / std;
                        }
                    }
                    Normalized::Spectra(norm) => spectrum::normalize(spectrum, *norm),
                    Normalized::Not => {}
                }
                let fill = |value: &mut f64| *value = if value.is_nan() { -1.0 } else { *value };
                spectrum.iter_mut().for_each(fill);
            }
            let tolerance = tolerance(wanted).max(if stored.element() == ElementType::F64 {
                0.0
            } else {
                1e-5
            });
            near(&inner(&done), &want, tolerance, "prepared");
        }
        let nothing = ImageConversion {
            physical: Vec::new(),
            normalized: Normalized::Not,
            nan: None,
            element: stored.element(),
        };
        let done = Host::new(1).image(&stored, &nothing).unwrap();
        assert_eq!(done.address(), stored.address(), "copied though there is nothing to do");
    }
}

#[test]
fn masks_come_in_the_type_asked_for_and_layers_unpacked() {
    use ElementType as E;
    let host = Host::new(2);
    for stored in E::ALL.into_iter().filter(|element| !element.is_float()) {
        let most = stored.whole_numbers().map_or(i64::MAX, |(_, most)| most).min(1 << 24);
        let labels: Vec<f64> =
            [0, 1, most / 2, most, 1, 0].iter().map(|label| *label as f64).collect();
        let array = array(&labels, &[1, 2, 3, 1], stored);
        for element in E::ALL.into_iter().filter(|element| element.holds(most)) {
            let recipe = LabelConversion { stored, layers: 0, element };
            let done = host.labels(&array, &recipe).unwrap();
            assert_eq!((done.shape(), done.element()), (&[1, 2, 3][..], element));
            let want: Vec<f64> = match element {
                E::Bool => labels.iter().map(|label| f64::from(u8::from(*label != 0.0))).collect(),
                _ => labels.clone(),
            };
            assert_eq!(numbers(&done), want, "{stored} as {element}");
        }
    }
    let bits = [0b101u16, 0x8000, 0, 0xffff, 2, 4];
    let values: Vec<f64> = bits.iter().map(|bits| f64::from(*bits)).collect();
    let stored = array(&values, &[1, 2, 3, 1], E::U16);
    let recipe = LabelConversion { stored: E::U16, layers: 16, element: E::U16 };
    let layers = host.labels(&stored, &recipe).unwrap();
    assert_eq!((layers.shape(), layers.element()), (&[1, 16, 2, 3][..], E::Bool));
    let want: Vec<f64> =
        (0..16).flat_map(|layer| bits.map(|bits| f64::from(bits >> layer & 1))).collect();
    assert_eq!(numbers(&layers), want);
}

#[test]
fn pixels_are_valid_if_all_bands_that_count_are_finite() {
    use crate::prepare::Validity;
    let (nan, infinity) = (f64::NAN, f64::INFINITY);
    // Two samples of 2 x 2 pixels with 3 bands.
    let values = [
        [1.0, 2.0, 3.0, nan, 2.0, 3.0, 1.0, infinity, 3.0, 1.0, 2.0, nan],
        [nan, nan, nan, 0.0, 0.0, -infinity, 1.0, 2.0, 3.0, -1.0, 65504.0, 0.0],
    ]
    .concat();
    let lists = |bands: &[[bool; 3]]| Validity {
        bands: bands.iter().map(|b| b.to_vec()).collect(),
        inside: Vec::new(),
    };
    for element in [ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64] {
        let stored = array(&values, &[2, 2, 2, 3], element);
        for (recipe, want) in [
            (Validity::default(), [1, 0, 0, 0, 0, 0, 1, 1]),
            (lists(&[[true; 3]]), [1, 0, 0, 0, 0, 0, 1, 1]),
            (lists(&[[false, true, true]]), [1, 1, 0, 0, 0, 0, 1, 1]),
            (lists(&[[true, false, true], [true, true, false]]), [1, 0, 1, 0, 0, 1, 1, 1]),
            (lists(&[[false; 3]]), [1; 8]),
            (
                Validity { inside: vec![[0..2, 0..1], [1..1, 0..2]], ..lists(&[[false; 3]]) },
                [1, 0, 1, 0, 0, 0, 0, 0],
            ),
        ] {
            let valid = Host::new(2).valid(&stored, &recipe).unwrap();
            assert_eq!((valid.shape(), valid.element()), (&[2, 2, 2][..], ElementType::Bool));
            assert_eq!(valid.bytes().unwrap(), want, "{element} {recipe:?}");
        }
    }
}
