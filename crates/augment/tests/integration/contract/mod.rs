//! The contract of every engine, for all draws. Each function takes a function that applies a
//! pipeline; [`contract`] turns all of them into tests.

mod gaps;
mod limits;

use std::collections::BTreeSet;
use std::ops::Range;

use half::{bf16, f16};
use hsipack_augment::{
    Array, Augmented, ElementType, Frame, ImageBands, Images, Mask, MaskFill, Parameters, Pipeline,
    SampleKey,
};
use hsipack_format::Result;
use hsipack_format::spectral_response::{MIN_COVERAGE, SensorBands, SpectralResponse};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

pub use gaps::{
    bits_of_samples_that_drew_nothing_stay, padding_and_enlarging_keep_the_pixels_that_were_there,
    warps_spread_gaps_only_to_what_gives_them_weight, weights_of_0_are_not_used,
    whole_pixels_move_without_arithmetic,
};
pub use limits::{
    finite_values_stay_finite, infinite_values_stay_infinite,
    what_is_too_large_becomes_the_largest_value,
};

/// Applies a pipeline. The number is that of threads, if the engine has a choice.
pub type Apply = dyn Fn(&Pipeline, &Images<Array>, &Parameters, usize) -> Result<Augmented<Array>>;

/// Tests that an engine keeps the contract.
#[macro_export]
macro_rules! contract {
    ($apply:expr => $($test:ident)*) => {
        $(#[test]
        fn $test() {
            $crate::contract::$test(&$apply);
        })*
    };
    ($apply:expr) => {
        $crate::contract! { $apply =>
            a_sample_comes_out_the_same_whatever_is_beside_it
            flips_and_turns_undo_themselves
            spectra_with_gaps_are_normalised_by_the_rule_of_the_format
            gaps_stay_where_they_are
            resized_masks_lie_under_their_image_unless_corners_are_aligned
            padding_is_numpys_on_frames_of_one_row_or_column_too
            bands_without_statistics_are_not_standardised
            a_row_of_pixels_is_padded_before_it_is_turned
            labels_are_compared_as_the_numbers_they_are
            labels_of_any_size_are_transplanted
            masks_have_no_labels_that_were_not_there
            samples_that_drew_nothing_keep_their_bits
            foreign_parameters_give_an_error_or_an_image
            images_that_are_not_ours_are_left_alone
            whole_pixels_move_without_arithmetic
            padding_and_enlarging_keep_the_pixels_that_were_there
            warps_spread_gaps_only_to_what_gives_them_weight
            weights_of_0_are_not_used
            bits_of_samples_that_drew_nothing_stay
            finite_values_stay_finite
            what_is_too_large_becomes_the_largest_value
            infinite_values_stay_infinite
            drawn_bands_are_those_of_the_image
            spectra_are_resampled_by_the_rule_of_the_format
        }
    };
}

const FRAME: Frame = Frame { rows: 12, columns: 12, bands: 6 };
/// Labels of the masks.
const LABELS: [i64; 4] = [0, 3, 7, 200];
/// The number of random cases of a test.
const CASES: u32 = 96;

/// Every augmentation, each with options that have an effect.
pub fn all_ops() -> Vec<Value> {
    let unit: Vec<Vec<f64>> = (0..6)
        .map(|row| (0..6).map(|band| if row == band { 0.9 } else { 0.02 }).collect())
        .collect();
    let ops = json!([
        {"op": "hflip"}, {"op": "vflip"}, {"op": "rot90"},
        {"op": "affine", "degrees": 45, "translate": [0.2, 0.2], "scale": [0.8, 1.2], "shear": 10},
        {"op": "affine", "degrees": 45, "padding": "reflection", "align_corners": true},
        {"op": "rotate", "degrees": 90, "padding": "border", "interpolation": "nearest"},
        {"op": "perspective"}, {"op": "elastic", "kernel": [5, 7], "sigma": [2.0, 3.0], "padding": "reflection"},
        {"op": "random_crop", "size": [9, 10]},
        {"op": "random_crop", "size": [13, 9], "pad": [1, 2, 3, 0], "pad_if_needed": true, "padding": "reflection"},
        {"op": "center_crop", "size": [7, 8]}, {"op": "resized_crop", "size": [9, 14]},
        {"op": "resized_crop", "size": [9, 14], "align_corners": false, "interpolation": "nearest"},
        {"op": "resize", "size": [17, 5]}, {"op": "resize", "size": [17, 5], "align_corners": false},
        {"op": "pad_to", "size": [15, 13]},
        {"op": "erase"}, {"op": "erase", "value": "random_l1"},
        {"op": "transplant", "excluded_labels": [0]}, {"op": "transplant", "direction": "next", "count": "fixed"},
        {"op": "cutmix_rect"}, {"op": "mixup"}, {"op": "jigsaw", "grid": [3, 4]},
        {"op": "hide_and_seek", "patches": [[3, 3], [5, 4]]},
        {"op": "gain", "range": [0.5, 1.5]}, {"op": "offset", "range": [-0.5, 0.5]},
        {"op": "gaussian_noise", "std": 0.1}, {"op": "band_dropout", "bands": [1, 3]},
        {"op": "band_jitter", "correlation": 2.0}, {"op": "band_offset"},
        {"op": "spectral_shift"}, {"op": "spectral_smooth"},
        {"op": "projection", "matrix": unit, "offset": 0.1, "labels": [3]},
        {"op": "illumination_ramp"}, {"op": "gaussian_blur"},
        {"op": "l1_normalize", "p": 0.5}, {"op": "l2_normalize", "p": 0.5}, {"op": "snv", "p": 0.5},
        {"op": "standardize", "p": 0.5, "mean": 0.5, "std": [1.0, 2.0, 0.5, 1.0, 1.0, 3.0]},
        {"op": "valid_guard", "mask": "labels"},
    ]);
    ops.as_array().unwrap().clone()
}

pub fn name(op: &Value) -> &str {
    op["op"].as_str().unwrap()
}

pub fn pipeline(ops: &[Value], seed: u64) -> Pipeline {
    Pipeline::from_json(&json!({"ops": ops, "seed": seed}).to_string()).unwrap()
}

/// A pipeline of the chosen augmentations, without those that do not fit the size of their input.
pub fn fitting(choices: &[usize], seed: u64) -> Pipeline {
    let all = all_ops();
    let mut ops = Vec::new();
    for choice in choices {
        ops.push(all[choice % all.len()].clone());
        let fits = pipeline(&ops, seed).draw(FRAME, 0, &keys(3)).is_ok();
        let guards = ops.len() > 1 && name(&ops[ops.len() - 1]) == "valid_guard";
        if !fits || guards {
            ops.pop();
        }
    }
    pipeline(&ops, seed)
}

pub fn keys(samples: usize) -> Vec<SampleKey> {
    (0..samples)
        .map(|sample| SampleKey { sample: 5 * sample + 1, repeat: sample as u64 % 2 })
        .collect()
}

/// A batch as numbers: image (samples, bands, rows, columns) and labels (samples, rows, columns).
#[derive(Clone)]
pub struct Numbers {
    pub shape: [usize; 4],
    pub image: Vec<f64>,
    pub labels: Vec<i64>,
}

impl Numbers {
    fn of_frame(samples: usize) -> Self {
        let Frame { rows, columns, bands } = FRAME;
        let pixels = samples * rows * columns;
        let image = (0..pixels * bands).map(|index| (index * 7919 % 1009) as f64 / 1009.0);
        let labels = (0..pixels).map(|index| LABELS[index / 5 * 13 % 7 % 4]);
        Self {
            shape: [samples, bands, rows, columns],
            image: image.collect(),
            labels: labels.collect(),
        }
    }

    /// One band, whose values are also the labels.
    fn plane(rows: usize, columns: usize, values: &[f64]) -> Self {
        let labels = values.iter().map(|value| *value as i64).collect();
        Self { shape: [1, 1, rows, columns], image: values.to_vec(), labels }
    }

    fn samples(&self, places: &[usize]) -> Self {
        fn chosen<T: Copy>(all: &[T], samples: usize, places: &[usize]) -> Vec<T> {
            let len = all.len() / samples;
            places.iter().flat_map(|sample| &all[sample * len..][..len]).copied().collect()
        }
        let [samples, bands, rows, columns] = self.shape;
        Self {
            shape: [places.len(), bands, rows, columns],
            image: chosen(&self.image, samples, places),
            labels: chosen(&self.labels, samples, places),
        }
    }

    /// Converts to arrays, with the bands of the image in planes.
    pub fn arrays(&self, element: ElementType) -> Images<Array> {
        let [samples, _, rows, columns] = self.shape;
        let image = Array::of_numbers(&self.image, &self.shape, element).unwrap();
        let labels =
            Array::of_integers(&self.labels, &[samples, rows, columns], ElementType::U8).unwrap();
        Images::new(image, vec![Mask { name: "labels".to_owned(), labels }])
    }
}

/// The numbers of an array, in the order of its axes. The bands of an image may be in planes or
/// interleaved.
pub fn numbers(array: &Array) -> Vec<f64> {
    if array.is_contiguous() {
        return decoded(array.bytes().unwrap(), array.element());
    }
    let inner = array.permuted(&[0, 2, 3, 1]);
    let [samples, rows, columns, values] = inner.shape()[..] else { panic!("{array:?}") };
    let all = decoded(inner.bytes().expect("an image"), array.element());
    let pixels = rows * columns;
    (0..samples * values * pixels)
        .map(|index| {
            let (sample, value, pixel) =
                (index / pixels / values, index / pixels % values, index % pixels);
            all[(sample * pixels + pixel) * values + value]
        })
        .collect()
}

fn decoded(bytes: &[u8], element: ElementType) -> Vec<f64> {
    fn each<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.chunks_exact(N).map(|bytes| of(bytes.try_into().unwrap())).collect()
    }
    match element {
        ElementType::Bool | ElementType::U8 => each(bytes, |[byte]: [u8; 1]| f64::from(byte)),
        ElementType::I32 => each(bytes, |bytes| f64::from(i32::from_le_bytes(bytes))),
        ElementType::I64 => each(bytes, |bytes| i64::from_le_bytes(bytes) as f64),
        ElementType::F16 => each(bytes, |bytes| f16::from_le_bytes(bytes).to_f64()),
        ElementType::BF16 => each(bytes, |bytes| bf16::from_le_bytes(bytes).to_f64()),
        ElementType::F32 => each(bytes, |bytes| f64::from(f32::from_le_bytes(bytes))),
        ElementType::F64 => each(bytes, f64::from_le_bytes),
        other => panic!("{other}"),
    }
}

/// The bits of values, so that NaN equals NaN and 0 does not equal -0.
fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The result of a pipeline.
struct Done {
    samples: usize,
    image: Vec<f64>,
    labels: Vec<f64>,
}

impl Done {
    fn of(augmented: &Augmented<Array>) -> Self {
        Self {
            samples: augmented.image.shape()[0],
            image: numbers(&augmented.image),
            labels: numbers(&augmented.masks[0].labels),
        }
    }

    fn range(&self, all: usize, sample: usize) -> Range<usize> {
        let len = all / self.samples;
        sample * len..(sample + 1) * len
    }

    fn image_of(&self, sample: usize) -> Vec<u64> {
        bits(&self.image[self.range(self.image.len(), sample)])
    }

    fn labels_of(&self, sample: usize) -> &[f64] {
        &self.labels[self.range(self.labels.len(), sample)]
    }
}

fn done(
    apply: &Apply,
    pipeline: &Pipeline,
    images: &Images<Array>,
    parameters: &Parameters,
) -> Done {
    let done = apply(pipeline, images, parameters, 2);
    Done::of(&done.unwrap_or_else(|error| panic!("{}: {error}", pipeline.to_json())))
}

/// Runs random cases.
fn cases<S: Strategy>(strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases: CASES, ..ProptestConfig::default() };
    TestRunner::new(config).run(&strategy, test).unwrap_or_else(|error| panic!("{error}"));
}

pub fn a_sample_comes_out_the_same_whatever_is_beside_it(apply: &Apply) {
    let mixing = ["transplant", "cutmix_rect", "mixup"];
    let ops: Vec<Value> = all_ops().into_iter().filter(|op| !mixing.contains(&name(op))).collect();
    let (all, order, batch) = (keys(5), [3, 0, 4, 2, 1], Numbers::of_frame(5));
    for op in ops {
        for element in [ElementType::F32, ElementType::F16] {
            let images = batch.arrays(element);
            let pipeline = pipeline(std::slice::from_ref(&op), 3);
            let parameters = pipeline.draw(FRAME, 1, &all).unwrap();
            let with =
                |threads| Done::of(&apply(&pipeline, &images, &parameters, threads).unwrap());
            let whole = with(1);
            let same = |sample: usize, result: &Done, at: usize, what: &str| {
                assert_eq!(result.image_of(at), whole.image_of(sample), "{op} {element}: {what}");
                assert_eq!(result.labels_of(at), whole.labels_of(sample), "{op} {element}: {what}");
            };
            for threads in [2, 3] {
                let again = with(threads);
                (0..5).for_each(|sample| same(sample, &again, sample, "more threads"));
            }
            for sample in 0..5 {
                let alone = batch.samples(&[sample]).arrays(element);
                let parameters = pipeline.draw(FRAME, 1, &all[sample..=sample]).unwrap();
                same(sample, &done(apply, &pipeline, &alone, &parameters), 0, "alone");
            }
            let keys: Vec<SampleKey> = order.iter().map(|sample| all[*sample]).collect();
            let parameters = pipeline.draw(FRAME, 1, &keys).unwrap();
            let moved = batch.samples(&order).arrays(element);
            let moved = done(apply, &pipeline, &moved, &parameters);
            for (at, sample) in order.iter().enumerate() {
                same(*sample, &moved, at, "elsewhere in the batch");
            }
        }
    }
}

pub fn flips_and_turns_undo_themselves(apply: &Apply) {
    let batch = Numbers::of_frame(3);
    let side = FRAME.rows;
    for element in [ElementType::F16, ElementType::F32, ElementType::BF16, ElementType::F64] {
        let images = batch.arrays(element);
        let before = numbers(&images.image);
        // The source of the pixel (row, column) of the result.
        type From = fn(usize, usize, usize) -> [usize; 2];
        let turns: [(Value, usize, From); 4] = [
            (json!({"op": "hflip", "p": 1.0}), 2, |row, column, side| [row, side - 1 - column]),
            (json!({"op": "vflip", "p": 1.0}), 2, |row, column, side| [side - 1 - row, column]),
            (json!({"op": "rot90", "p": 1.0, "turns": [1, 1]}), 4, |row, column, side| {
                [column, side - 1 - row]
            }),
            (json!({"op": "rot90", "p": 1.0, "turns": [2, 2]}), 2, |row, column, side| {
                [side - 1 - row, side - 1 - column]
            }),
        ];
        for (op, times, from) in turns {
            for fuse in [false, true] {
                let mut pipeline = pipeline(&vec![op.clone(); times], 0);
                pipeline.fuse = fuse;
                let parameters = pipeline.draw(FRAME, 0, &keys(3)).unwrap();
                let back = done(apply, &pipeline, &images, &parameters);
                assert_eq!(back.image, before, "{op}");
                assert_eq!(back.labels, numbers(&images.masks[0].labels), "{op}");
                pipeline.ops.truncate(1);
                let parameters = pipeline.draw(FRAME, 0, &keys(3)).unwrap();
                let once = done(apply, &pipeline, &images, &parameters).image;
                let wanted: Vec<f64> = (0..before.len())
                    .map(|index| {
                        let (plane, pixel) = (index / side / side, index % (side * side));
                        let [row, column] = from(pixel / side, pixel % side, side);
                        before[(plane * side + row) * side + column]
                    })
                    .collect();
                assert_eq!(once, wanted, "{op}");
            }
        }
    }
}

pub fn spectra_with_gaps_are_normalised_by_the_rule_of_the_format(apply: &Apply) {
    use hsipack_format::{SpectralNorm, spectrum};
    let frame = Frame { rows: 2, columns: 3, bands: 4 };
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let pixels = [
        [1.0, -2.0, 5.0, nan],
        [inf, 2.0, 4.0, -1.0],
        [0.0, nan, 0.0, 0.0],
        [nan, nan, nan, nan],
        [nan, 3.0, nan, nan],
        [-inf, 0.1, 0.1, 0.1],
    ];
    for (op, norm) in [
        ("l1_normalize", SpectralNorm::L1),
        ("l2_normalize", SpectralNorm::L2),
        ("snv", SpectralNorm::Snv),
    ] {
        for element in [ElementType::F32, ElementType::F16, ElementType::F64] {
            let image = Array::of_numbers(pixels.as_flattened(), &[1, 2, 3, 4], element).unwrap();
            let pipeline = pipeline(&[json!({"op": op})], 0);
            let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
            let images = Images::new(image.permuted(&[0, 3, 1, 2]), Vec::new());
            let done = apply(&pipeline, &images, &parameters, 1).unwrap().image;
            let mut want = pixels;
            want.iter_mut().for_each(|pixel| spectrum::normalize(pixel, norm));
            for (index, have) in numbers(&done).iter().enumerate() {
                let want = want[index % 6][index / 6];
                let near = (have - want).abs() <= 2e-3;
                assert!(near || have.is_nan() && want.is_nan(), "{op} {element}: {have} {want}");
            }
        }
    }
}

/// NaN affects only the values that are computed from it.
pub fn gaps_stay_where_they_are(apply: &Apply) {
    let mut batch = Numbers::of_frame(1);
    let plane = FRAME.rows * FRAME.columns;
    // Band 2 at row 6, column 6.
    batch.image[2 * plane + 6 * FRAME.columns + 6] = f64::NAN;
    let spoilt = |ops: Value| -> Vec<[usize; 3]> {
        let pipeline = pipeline(&[ops], 0);
        let parameters = pipeline.draw(FRAME, 0, &keys(1)).unwrap();
        let done = done(apply, &pipeline, &batch.arrays(ElementType::F32), &parameters);
        let places = done.image.iter().enumerate().filter(|(_, value)| value.is_nan());
        let position =
            |index: usize| [index / plane, index % plane / FRAME.columns, index % FRAME.columns];
        places.map(|(number, _)| position(number)).collect()
    };
    let at = [[2, 6, 6]];
    assert_eq!(spoilt(json!({"op": "gain", "p": 1.0, "range": [2.0, 2.0]})), at);
    assert_eq!(spoilt(json!({"op": "illumination_ramp", "p": 1.0})), at);
    assert_eq!(spoilt(json!({"op": "mixup", "p": 1.0})), at);
    // Bands 2 to 3.
    let shifted = spoilt(json!({"op": "spectral_shift", "p": 1.0, "max_bands": 1.0}));
    assert!(!shifted.is_empty() && shifted.len() <= 2, "{shifted:?}");
    assert!(shifted.iter().all(|[_, row, column]| [*row, *column] == [6, 6]), "{shifted:?}");
    let blurred = spoilt(json!({"op": "gaussian_blur", "p": 1.0, "kernel": [3, 5]}));
    let around =
        (5..=7).flat_map(|row| (4..=8).map(move |column| [2, row, column])).collect::<Vec<_>>();
    assert_eq!(blurred, around);
    // Pixels that were moved out of the frame are replaced by the fill value.
    batch.image[..plane].fill(f64::NAN);
    let ops = json!({"op": "affine", "p": 1.0, "degrees": [0.0, 0.0], "translate": [1.0, 1.0], "fill": 0.5});
    let pipeline = pipeline(&[ops], 3);
    let parameters = pipeline.draw(FRAME, 0, &keys(1)).unwrap();
    let done = done(apply, &pipeline, &batch.arrays(ElementType::F32), &parameters);
    let (filled, kept): (Vec<f64>, Vec<f64>) =
        done.image[..plane].iter().partition(|value| !value.is_nan());
    assert!(!filled.is_empty() && !kept.is_empty(), "{parameters:?}");
    assert!(filled.iter().all(|value| *value == 0.5), "{filled:?}");
}

pub fn resized_masks_lie_under_their_image_unless_corners_are_aligned(apply: &Apply) {
    // Values and labels are their own columns.
    for (from, to) in [(8usize, 3usize), (4, 10), (7, 20), (200, 33), (5, 5)] {
        let columns: Vec<f64> = (0..2 * from).map(|column| (column % from) as f64).collect();
        let batch = Numbers::plane(2, from, &columns);
        let frame = Frame { rows: 2, columns: from, bands: 1 };
        let resized = |options: Value| {
            let mut op = json!({"op": "resize", "size": [2, to]});
            op.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
            let pipeline = pipeline(&[op], 0);
            let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
            let done = done(apply, &pipeline, &batch.arrays(ElementType::F32), &parameters);
            (done.image[..to].to_vec(), done.labels[..to].to_vec())
        };
        let ratio = from as f64 / to as f64;
        // Like Kornia: images keep their outermost centres, masks keep their edges.
        let (values, labels) = resized(json!({}));
        let mut apart: f64 = 0.0;
        for (column, (value, label)) in values.iter().zip(&labels).enumerate() {
            let column = column as f64;
            let wanted = column * (from - 1) as f64 / (to - 1) as f64;
            assert!((value - wanted).abs() < 1e-3, "{from} to {to}: {value} for {wanted}");
            assert_eq!(*label, ((column + 0.5) * ratio).floor(), "{from} to {to}");
            apart = apart.max((value - ((column + 0.5) * ratio - 0.5)).abs());
        }
        assert!((apart - (ratio - 1.0).abs() / 2.0).abs() < 1e-3, "{from} to {to}: {apart}");
        // Otherwise both agree: the label is that of the pixel nearest to the source of the value.
        for options in [json!({"align_corners": false}), json!({"interpolation": "nearest"})] {
            let (values, labels) = resized(options.clone());
            for (value, label) in values.iter().zip(&labels) {
                assert!(
                    (value - label).abs() < 0.501,
                    "{options} {from} to {to}: {value}, {label}"
                );
            }
            if options.get("interpolation").is_some() {
                assert_eq!(values, labels, "{from} to {to}");
            }
        }
    }
}

/// The pixel that NumPy's `pad` uses along an axis of `size` pixels, counted from the first. `None`
/// is the constant.
fn padded_index(index: i64, size: i64, padding: &str) -> Option<i64> {
    match padding {
        "zeros" => (0..size).contains(&index).then_some(index),
        "border" => Some(index.clamp(0, size - 1)),
        _ if size == 1 => Some(0),
        _ => {
            let index = index.rem_euclid(2 * size - 2);
            Some(if index < size { index } else { 2 * size - 2 - index })
        }
    }
}

/// `to` rows and columns of a plane of `size`, beginning at `first`, with NumPy's padding.
fn padded(
    from: &[f64],
    size: [usize; 2],
    first: [i64; 2],
    to: [usize; 2],
    padding: &str,
    constant: f64,
) -> Vec<f64> {
    let at = |row: usize, column: usize| {
        let source = |axis: usize, index: usize| {
            padded_index(first[axis] + index as i64, size[axis] as i64, padding)
        };
        Some(from[source(0, row)? as usize * size[1] + source(1, column)? as usize])
    };
    (0..to[0])
        .flat_map(|row| (0..to[1]).map(move |column| at(row, column).unwrap_or(constant)))
        .collect()
}

pub fn padding_is_numpys_on_frames_of_one_row_or_column_too(apply: &Apply) {
    let sides = [1, 2, 3, 5];
    for (rows, columns) in sides.into_iter().flat_map(|rows| sides.map(|columns| (rows, columns))) {
        for padding in ["zeros", "border", "reflection"] {
            for (op, element) in [
                (json!({"op": "pad_to", "size": [rows + 2, columns + 1]}), ElementType::F16),
                (json!({"op": "pad_to", "size": [rows + 2, columns + 1]}), ElementType::F32),
                (
                    json!({"op": "random_crop", "size": [rows + 1, columns + 1], "pad": [1, 2, 1, 1]}),
                    ElementType::F32,
                ),
                (
                    json!({"op": "random_crop", "size": [rows + 1, columns + 1], "pad_if_needed": true}),
                    ElementType::F16,
                ),
            ] {
                let mut op = op;
                (op["padding"], op["fill"]) = (json!(padding), json!(7.5));
                let mut pipeline = pipeline(std::slice::from_ref(&op), 3);
                pipeline.mask_fill = MaskFill::All(99);
                let values: Vec<f64> = (0..rows * columns * 2).map(|n| n as f64 + 1.0).collect();
                let labels: Vec<i64> = (0..rows * columns).map(|n| n as i64 + 1).collect();
                let shape = [1, 2, rows, columns];
                let batch = Numbers { shape, image: values.clone(), labels: labels.clone() };
                let frame = Frame { rows, columns, bands: 2 };
                let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
                let drawn = serde_json::to_value(&parameters.steps[0].drawn[0]).unwrap();
                let pad = match (op.get("pad"), name(&op)) {
                    (Some(_), _) => [2, 1],
                    (None, "random_crop") => [1, 1],
                    _ => [0, 0],
                };
                let first = [("y", pad[0]), ("x", pad[1])]
                    .map(|(axis, pad)| drawn[axis].as_i64().unwrap_or(0) - pad);
                let to = [0, 1].map(|axis: usize| op["size"][axis].as_u64().unwrap() as usize);
                let done = done(apply, &pipeline, &batch.arrays(element), &parameters);
                let pixels = rows * columns;
                for (band, is) in done.image.chunks(to[0] * to[1]).enumerate() {
                    let from = &values[band * pixels..][..pixels];
                    let wanted = padded(from, [rows, columns], first, to, padding, 7.5);
                    assert_eq!(is, wanted, "{op} of {rows} x {columns}");
                }
                let from: Vec<f64> = labels.iter().map(|label| *label as f64).collect();
                let wanted = padded(&from, [rows, columns], first, to, padding, 99.0);
                assert_eq!(done.labels, wanted, "{op} of {rows} x {columns}");
            }
        }
    }
}

pub fn bands_without_statistics_are_not_standardised(apply: &Apply) {
    let frame = Frame { rows: 1, columns: 1, bands: 3 };
    let batch = Numbers { shape: [1, 3, 1, 1], image: vec![5.0, 6.0, 7.0], labels: vec![0] };
    let standardize =
        json!({"op": "standardize", "mean": [1.0, null, 3.0], "std": [2.0, null, null]});
    // Alone, and after another augmentation with which it is fused.
    for (before, want) in [(None, [2.0, 6.0, 7.0]), (Some(2.0), [4.5, 12.0, 14.0])] {
        let gain = before.map(|gain| json!({"op": "gain", "range": [gain, gain]}));
        let ops: Vec<Value> = gain.into_iter().chain([standardize.clone()]).collect();
        let pipeline = pipeline(&ops, 0);
        assert!(pipeline.to_json().contains("null"));
        let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
        let done = done(apply, &pipeline, &batch.arrays(ElementType::F32), &parameters);
        assert_eq!(done.image, want);
    }
}

pub fn a_row_of_pixels_is_padded_before_it_is_turned(apply: &Apply) {
    // Both pad with zeros and could be one warp, but then the frame would no longer be the one of the rotation.
    let ops = [
        json!({"op": "pad_to", "size": [3, 5]}),
        json!({"op": "rotate", "p": 1.0, "degrees": [90.0, 90.0]}),
    ];
    let batch = Numbers::plane(1, 5, &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let frame = Frame { rows: 1, columns: 5, bands: 1 };
    for fuse in [true, false] {
        let mut pipeline = pipeline(&ops, 0);
        pipeline.fuse = fuse;
        let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
        let is = done(apply, &pipeline, &batch.arrays(ElementType::F32), &parameters).image;
        // Counter-clockwise about the centre of 3 x 5: the first row becomes the column left of the centre.
        for (row, wanted) in [4.0, 3.0, 2.0].into_iter().enumerate() {
            assert!((is[row * 5 + 1] - wanted).abs() < 1e-5, "{fuse}: {is:?}");
        }
        assert!(is.iter().sum::<f64>() < 9.01, "{fuse}: {is:?}");
    }
}

pub fn labels_are_compared_as_the_numbers_they_are(apply: &Apply) {
    // 300 is 44 in eight bits.
    let batch =
        Numbers { shape: [2, 1, 1, 2], image: vec![1.0, 2.0, 3.0, 4.0], labels: vec![44; 4] };
    let images = batch.arrays(ElementType::F32);
    let frame = Frame { rows: 1, columns: 2, bands: 1 };
    for (excluded, other) in [(300, true), (-212, true), (44, false)] {
        let changed = |op: Value| {
            let pipeline = pipeline(&[op], 0);
            let parameters = pipeline.draw(frame, 0, &keys(2)).unwrap();
            done(apply, &pipeline, &images, &parameters).image != batch.image
        };
        let op = json!({"op": "transplant", "p": 1.0, "excluded_labels": [excluded]});
        assert_eq!(changed(op), other, "without {excluded}");
        let op = json!({"op": "projection", "p": 1.0, "matrix": [[2.0]], "labels": [excluded]});
        assert_eq!(!changed(op), other, "only {excluded}");
    }
}

pub fn labels_of_any_size_are_transplanted(apply: &Apply) {
    let (rows, columns, samples) = (6, 7, 4);
    let pixels = rows * columns;
    let frame = Frame { rows, columns, bands: 1 };
    let small = [0, 3, 7, 100, 127];
    let signed = [-128, -1, 0, 7, 127];
    let middle = [i64::from(i16::MIN), -100, 0, 255, i64::from(i16::MAX)];
    let large = [i64::from(i32::MIN), -70_000, 65_535, 65_536, 70_000];
    let huge = [i64::MIN, -(1 << 53) - 1, 70_000, (1 << 53) + 1, i64::MAX];
    for (element, labels) in [
        (ElementType::U8, small),
        (ElementType::I8, signed),
        (ElementType::I16, middle),
        (ElementType::I32, small),
        (ElementType::I32, large),
        (ElementType::I64, large),
        (ElementType::I64, huge),
    ] {
        // The values of a sample say where its pixels came from.
        let values: Vec<f64> = (0..samples * pixels).map(|index| index as f64).collect();
        let all: Vec<i64> = (0..samples * pixels)
            .map(|index| labels[index * 31 % 11 % (2 + index / pixels)])
            .collect();
        let mut picked = BTreeSet::new();
        for seed in 0..20 {
            let excluded = if seed % 3 == 0 { vec![labels[1]] } else { Vec::new() };
            let op = json!({"op": "transplant", "p": 0.8, "excluded_labels": excluded});
            let pipeline = pipeline(&[op], seed);
            let parameters = pipeline.draw(frame, 0, &keys(samples)).unwrap();
            let image = Array::of_numbers(&values, &[samples, 1, rows, columns], ElementType::F32);
            let mask = Array::of_integers(&all, &[samples, rows, columns], element).unwrap();
            let mask = Mask { name: "labels".to_owned(), labels: mask };
            let images = Images::new(image.unwrap(), vec![mask]);
            let done = apply(&pipeline, &images, &parameters, 2).unwrap();
            let drawn = serde_json::to_value(&parameters.steps[0].drawn).unwrap();
            let (mut image, mut mask) = (values.clone(), all.clone());
            for sample in (0..samples).filter(|sample| !drawn[sample].is_null()) {
                let donor = drawn[sample]["donor"].as_u64().unwrap() as usize * pixels;
                let available: BTreeSet<i64> = all[donor..donor + pixels].iter().copied().collect();
                let available: Vec<i64> =
                    available.into_iter().filter(|label| !excluded.contains(label)).collect();
                let pick = drawn[sample]["pick"].as_f64().unwrap() as f32;
                let label = available[(pick * available.len() as f32) as usize];
                picked.insert(label);
                for pixel in (0..pixels).filter(|pixel| all[donor + pixel] == label) {
                    image[sample * pixels + pixel] = values[donor + pixel];
                    mask[sample * pixels + pixel] = label;
                }
            }
            assert_eq!(numbers(&done.image), image, "{element} {labels:?}");
            let wanted = Array::of_integers(&mask, &[samples, rows, columns], element).unwrap();
            let have = done.masks[0].labels.bytes().unwrap();
            assert!(have == wanted.bytes().unwrap(), "{element} {labels:?}");
        }
        assert_eq!(picked, labels.into_iter().collect(), "{element}");
    }
}

pub fn masks_have_no_labels_that_were_not_there(apply: &Apply) {
    let images = Numbers::of_frame(3).arrays(ElementType::F16);
    let all = (prop::collection::vec(0..40usize, 1..6), 0..1u64 << 40, 0..255i64, any::<bool>());
    cases(all, |(choices, seed, fill, fuse)| {
        let mut pipeline = fitting(&choices, seed);
        (pipeline.fuse, pipeline.mask_fill) = (fuse, MaskFill::All(fill));
        let parameters = pipeline.draw(FRAME, 2, &keys(3)).unwrap();
        let done = apply(&pipeline, &images, &parameters, 2).unwrap();
        let labels = numbers(&done.masks[0].labels);
        let present: BTreeSet<i64> = labels.iter().map(|label| *label as i64).collect();
        prop_assert!(
            present.iter().all(|label| LABELS.contains(label) || *label == fill),
            "{present:?}"
        );
        prop_assert_eq!(&done.image.shape()[2..], &done.masks[0].labels.shape()[1..]);
        let nan = numbers(&done.image).iter().any(|value| value.is_nan());
        prop_assert!(!nan, "{}", pipeline.to_json());
        Ok(())
    });
}

pub fn samples_that_drew_nothing_keep_their_bits(apply: &Apply) {
    let batch = Numbers::of_frame(4);
    let all = (prop::collection::vec(0..40usize, 1..5), 0..1u64 << 40, any::<bool>());
    cases(all, |(choices, seed, half)| {
        let pipeline = fitting(&choices, seed);
        let element = if half { ElementType::F16 } else { ElementType::F32 };
        let images = batch.arrays(element);
        let before = Done {
            samples: 4,
            image: numbers(&images.image),
            labels: numbers(&images.masks[0].labels),
        };
        let parameters = pipeline.draw(FRAME, 0, &keys(4)).unwrap();
        let done = done(apply, &pipeline, &images, &parameters);
        for sample in 0..4 {
            if parameters.steps.iter().all(|step| step.drawn[sample].is_none()) {
                prop_assert_eq!(done.image_of(sample), before.image_of(sample));
                prop_assert_eq!(done.labels_of(sample), before.labels_of(sample));
            }
        }
        Ok(())
    });
}

/// Results have their own memory.
pub fn images_that_are_not_ours_are_left_alone(apply: &Apply) {
    let batch = Numbers::of_frame(3);
    for op in all_ops() {
        for planes in [false, true] {
            let mut images = batch.arrays(ElementType::F32);
            if !planes {
                let shape = [3, FRAME.rows, FRAME.columns, FRAME.bands];
                let image = Array::of_numbers(&batch.image, &shape, ElementType::F32).unwrap();
                images.image = image.permuted(&[0, 3, 1, 2]);
            }
            let before = (numbers(&images.image), numbers(&images.masks[0].labels));
            let pipeline = pipeline(std::slice::from_ref(&op), 1);
            let parameters = pipeline.draw(FRAME, 0, &keys(3)).unwrap();
            apply(&pipeline, &images, &parameters, 2).unwrap();
            assert_eq!(numbers(&images.image), before.0, "{op}");
            assert_eq!(numbers(&images.masks[0].labels), before.1, "{op}");
        }
    }
}

/// Replaces numbers in a JSON value by something else now and then.
fn mutate(value: &mut Value, choices: &mut impl Iterator<Item = usize>) {
    let others = [
        json!(0),
        json!(-1),
        json!(1),
        json!(7),
        json!(1e300),
        json!(-1e300),
        json!(u64::MAX),
        json!(i64::MAX),
        json!(1u64 << 40),
        json!(0.5),
        json!(-3.7),
        json!(1e-300),
        Value::Null,
    ];
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| mutate(value, choices)),
        Value::Object(fields) => fields.values_mut().for_each(|value| mutate(value, choices)),
        Value::Number(_) => {
            if let Some(other) = choices.next().and_then(|choice| others.get(choice)) {
                *value = other.clone();
            }
        }
        _ => {}
    }
}

pub fn foreign_parameters_give_an_error_or_an_image(apply: &Apply) {
    let images = Numbers::of_frame(3).arrays(ElementType::F32);
    let all = (0..40usize, 0..40usize, any::<u64>(), prop::collection::vec(0..40usize, 60));
    cases(all, |(first, second, seed, choices)| {
        let (pipeline, other) = (fitting(&[first], seed), fitting(&[second], seed));
        prop_assume!(!pipeline.ops.is_empty() && !other.ops.is_empty());
        let native = pipeline.draw(FRAME, 0, &keys(3)).unwrap();
        let mut foreign = other.draw(FRAME, 0, &keys(3)).unwrap();
        foreign.steps[0].op.clone_from(&native.steps[0].op);
        for parameters in [native, foreign] {
            let mut drawn = serde_json::to_value(&parameters.steps).unwrap();
            let mut choices = choices.iter().copied();
            mutate(&mut drawn, &mut choices);
            for steps in [serde_json::to_value(&parameters.steps).unwrap(), drawn] {
                let json = json!({"frame": parameters.frame, "steps": steps}).to_string();
                let Ok(parameters) = Parameters::from_json(&json) else { continue };
                let _ = parameters.matrices(&pipeline);
                if let Ok(done) = apply(&pipeline, &images, &parameters, 2) {
                    let frame = pipeline.frame(FRAME).unwrap();
                    let shape = [3, 6, frame.rows, frame.columns];
                    prop_assert_eq!(done.image.shape(), &shape[..]);
                }
            }
        }
        Ok(())
    });
}

pub fn drawn_bands_are_those_of_the_image(apply: &Apply) {
    for (per, contiguous, sorted) in [
        ("batch", false, true),
        ("batch", true, false),
        ("item", false, false),
        ("item", true, true),
    ] {
        let pipeline = Pipeline::from_json(
            &json!([
                {"op": "hflip", "p": 0.5},
                {"op": "random_bands", "count": 5, "per": "item"},
                {"op": "random_bands", "count": 3, "per": per, "contiguous": contiguous, "sorted": sorted},
            ])
            .to_string(),
        )
        .unwrap();
        let keys: Vec<SampleKey> = (0..4).map(|sample| SampleKey { sample, repeat: 0 }).collect();
        for epoch in 0..4 {
            let parameters = pipeline.draw(FRAME, epoch, &keys).unwrap();
            let bands = parameters.bands(&pipeline).unwrap().unwrap();
            for bands in &bands {
                assert!(bands.iter().all(|band| *band < FRAME.bands), "{bands:?}");
                assert_eq!(bands.iter().collect::<BTreeSet<_>>().len(), 3, "{bands:?}");
                if sorted {
                    assert!(bands.is_sorted(), "{bands:?}");
                }
            }
            for element in [ElementType::F16, ElementType::F32] {
                // Every value says its band.
                let numbers: Vec<f64> = (0..4 * FRAME.rows * FRAME.columns * FRAME.bands)
                    .map(|index| (index % FRAME.bands) as f64)
                    .collect();
                let shape = [4, FRAME.rows, FRAME.columns, FRAME.bands];
                let image = Array::of_numbers(&numbers, &shape, element).unwrap();
                let images = Images::new(image.permuted(&[0, 3, 1, 2]), Vec::new());
                let image = apply(&pipeline, &images, &parameters, 2).unwrap().image;
                assert_eq!(image.shape(), [4, 3, FRAME.rows, FRAME.columns]);
                let pixels = FRAME.rows * FRAME.columns;
                let planes = self::numbers(&image);
                let chosen = bands.iter().flatten();
                for (plane, band) in planes.chunks_exact(pixels).zip(chosen) {
                    assert!(plane.iter().all(|number| *number == *band as f64), "band {band}");
                }
            }
        }
    }
}

pub fn spectra_are_resampled_by_the_rule_of_the_format(apply: &Apply) {
    let source = ImageBands {
        wavelengths: vec![400.0, 410.0, 420.0, 440.0, 450.0, 460.0],
        fwhm: Some(vec![8.0; 6]),
        valid: Some(vec![true, true, false, true, true, true]),
    };
    let (nm, fwhm) = (vec![452.0, 405.0, 410.0, 500.0, 430.0], vec![30.0, 20.0, 0.0, 10.0, 40.0]);
    let op = json!({"op": "resample", "wavelengths": nm, "fwhm": fwhm});
    let pipeline = pipeline(&[op, json!({"op": "vflip", "p": 1.0})], 0);
    let error = pipeline.check(FRAME, &[]).unwrap_err();
    assert!(error.what().contains("wavelengths of the images are unknown"), "{error}");
    let pipeline = pipeline.with_bands(&source).unwrap();
    let target = SensorBands { wavelengths: &nm, fwhm: Some(&fwhm), valid: None };
    let ImageBands { wavelengths, fwhm, valid } = &source;
    let bands = SensorBands { wavelengths, fwhm: fwhm.as_deref(), valid: valid.as_deref() };
    let response = SpectralResponse::new(bands, target, MIN_COVERAGE).unwrap();
    assert_eq!(response.valid(), [true, true, true, false, true]);
    assert_eq!(pipeline.used_bands().unwrap().unwrap(), [0, 1, 3, 4, 5]);
    for element in [ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64] {
        let Frame { rows, columns, bands } = FRAME;
        let value = |index: usize| match index % 311 {
            0 => f64::NAN,
            7 => f64::INFINITY,
            // Values of the band that is not valid mean nothing.
            _ if index % bands == 2 => f64::NAN,
            other => (other * 7919 % 311) as f64 / 311.0 - 0.25,
        };
        let numbers: Vec<f64> = (0..3 * rows * columns * bands).map(value).collect();
        let image = Array::of_numbers(&numbers, &[3, rows, columns, bands], element).unwrap();
        let images = Images::new(image.permuted(&[0, 3, 1, 2]), Vec::new());
        let parameters = pipeline.draw(FRAME, 0, &keys(3)).unwrap();
        let image = apply(&pipeline, &images, &parameters, 2).unwrap().image;
        assert_eq!(image.shape(), [3, 5, rows, columns]);
        let have = self::numbers(&image);
        // Numbers of the type, in the order of the result.
        let rounded = self::numbers(&images.image);
        let index = |at: [usize; 4], bands: usize| {
            ((at[0] * bands + at[1]) * rows + at[2]) * columns + at[3]
        };
        let tolerance = match element {
            ElementType::F16 => 1e-3,
            ElementType::BF16 => 8e-3,
            ElementType::F32 => 1e-6,
            _ => 1e-14,
        };
        for (sample, row, column) in (0..3 * rows * columns)
            .map(|pixel| (pixel / rows / columns, pixel / columns % rows, pixel % columns))
        {
            let spectrum = |band| rounded[index([sample, band, rows - 1 - row, column], bands)];
            let spectrum: Vec<f64> = (0..bands).map(spectrum).collect();
            let mut want = [0.0f64; 5];
            response.apply(&spectrum, &mut want);
            for (band, want) in want.into_iter().enumerate() {
                let have = have[index([sample, band, row, column], 5)];
                let same = have.is_nan() && want.is_nan() || (have - want).abs() <= tolerance;
                assert!(same, "{element}, {sample}, {band}, {row}, {column}: {have} {want}");
            }
        }
    }
}
