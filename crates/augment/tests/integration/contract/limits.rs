//! Results that are too large for their type: finite values stay finite, and infinite ones stay
//! infinite.

use hsipack_augment::{Array, ElementType, Frame, Images};
use serde_json::{Value, json};

use super::{Apply, keys, numbers, pipeline};

const FLOATS: [ElementType; 4] =
    [ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64];
const FRAME: Frame = Frame { rows: 6, columns: 7, bands: 10 };

fn applied(apply: &Apply, op: &Value, values: &[f64], element: ElementType) -> Vec<f64> {
    let Frame { rows, columns, bands } = FRAME;
    let samples = values.len() / (rows * columns * bands);
    let image = Array::of_numbers(values, &[samples, bands, rows, columns], element).unwrap();
    let pipeline = pipeline(std::slice::from_ref(op), 8);
    let parameters = pipeline.draw(FRAME, 0, &keys(samples)).unwrap();
    let done = apply(&pipeline, &Images::new(image, Vec::new()), &parameters, 2);
    numbers(&done.unwrap_or_else(|error| panic!("{op}: {error}")).image)
}

/// Values up to the largest ones of a type, for two samples.
fn large(element: ElementType) -> Vec<f64> {
    let most = element.greatest();
    let values = [most, -most, most, most / 2.0, 0.0, 1.0, most, -most / 1024.0];
    let all = 2 * FRAME.rows * FRAME.columns * FRAME.bands;
    (0..all)
        .map(|index| match index / 40 % 3 {
            // Whole stretches of the largest value, and of both signs side by side.
            0 => most,
            _ => values[(index * 7919) % 13 % values.len()],
        })
        .collect()
}

pub fn finite_values_stay_finite(apply: &Apply) {
    let row = |number: f64| vec![number; FRAME.bands];
    let tens = vec![row(10.0); FRAME.bands];
    let huge: Vec<Vec<f64>> =
        (0..FRAME.bands).map(|band| row(if band % 2 == 0 { 1e300 } else { -1e300 })).collect();
    let ops = json!([
        {"op": "gain", "range": [1.5, 1.5]}, {"op": "gain", "range": [-1e30, -1e30]}, {"op": "gain", "range": [1e300, 1e300]},
        {"op": "offset", "range": [1e5, 1e5]}, {"op": "offset", "range": [-1e300, -1e300]},
        {"op": "band_jitter", "sigma": 5, "p": 1}, {"op": "band_offset", "sigma": 1e5, "p": 1}, {"op": "band_offset", "sigma": 1e300, "p": 1},
        {"op": "standardize", "mean": -1e5, "std": 1e-6}, {"op": "standardize", "mean": -1e300, "std": 1e-300},
        {"op": "gaussian_noise", "std": 1e5, "p": 1}, {"op": "gaussian_noise", "std": 1e300, "mean": 1e300, "p": 1},
        {"op": "illumination_ramp", "strength": [3, 3], "p": 1}, {"op": "illumination_ramp", "strength": [1e300, 1e300], "p": 1},
        {"op": "mixup", "lambda": [0.3, 0.7]},
        {"op": "gaussian_blur", "kernel": [5, 3], "p": 1},
        {"op": "affine", "degrees": 45, "scale": [0.8, 1.2], "p": 1}, {"op": "affine", "degrees": 45, "padding": "reflection", "p": 1},
        {"op": "affine", "degrees": 45, "fill": 1e300, "p": 1}, {"op": "affine", "degrees": 45, "fill": -1e300, "interpolation": "nearest", "p": 1},
        {"op": "rotate", "degrees": 45, "padding": "border", "p": 1}, {"op": "perspective", "p": 1},
        {"op": "elastic", "kernel": [3, 3], "sigma": [2, 2], "padding": "reflection", "p": 1},
        {"op": "resize", "size": [11, 13]}, {"op": "resize", "size": [4, 20], "align_corners": false},
        {"op": "resized_crop", "size": [9, 5]}, {"op": "pad_to", "size": [9, 9], "fill": 1e300},
        {"op": "erase", "value": 1e300, "p": 1}, {"op": "hide_and_seek", "patches": [[2, 3]], "fill": -1e300, "p": 1},
        {"op": "band_dropout", "bands": [3, 3], "fill": 1e300, "p": 1},
        {"op": "spectral_shift", "p": 1}, {"op": "spectral_smooth", "p": 1},
        {"op": "projection", "matrix": tens, "offset": 1e5, "p": 1}, {"op": "projection", "matrix": huge, "offset": 1e300, "p": 1},
        {"op": "l1_normalize"}, {"op": "l2_normalize"},
    ]);
    for op in ops.as_array().unwrap() {
        for element in FLOATS {
            let have = applied(apply, op, &large(element), element);
            let infinite = have.iter().filter(|value| !value.is_finite()).count();
            assert_eq!(infinite, 0, "{op} {element}: {infinite} of {} values", have.len());
        }
    }
}

pub fn what_is_too_large_becomes_the_largest_value(apply: &Apply) {
    for element in FLOATS {
        let (values, most) = (large(element), element.greatest());
        let want = |of: &dyn Fn(f64) -> f64| -> Vec<f64> {
            values
                .iter()
                .map(|value| element.bounded(of(*value).clamp(-f64::MAX, f64::MAX)))
                .collect()
        };
        let gain = json!({"op": "gain", "range": [-2, -2]});
        assert_eq!(
            applied(apply, &gain, &values, element),
            want(&|value| -2.0 * value),
            "{element}"
        );
        let offset = json!({"op": "offset", "range": [most, most]});
        let have = applied(apply, &offset, &values, element);
        for (have, want) in have.iter().zip(want(&|value| value + most)) {
            // The sum of the largest value and its negative thousandth is rounded.
            assert!((have - want).abs() <= 0.01 * most, "{element}: {have} {want}");
        }
        let erase = json!({"op": "erase", "value": -1e300, "p": 1});
        let have = applied(apply, &erase, &values, element);
        let least = element.bounded(-1e300);
        assert!(have.contains(&least), "{element}");
        // The sum of ten of the largest value.
        let matrix = vec![vec![1.0; FRAME.bands]; FRAME.bands];
        let sum = json!({"op": "projection", "matrix": matrix, "p": 1});
        let have = applied(apply, &sum, &vec![most; values.len()], element);
        assert!(have.iter().all(|value| *value == most), "{element}");
    }
}

pub fn infinite_values_stay_infinite(apply: &Apply) {
    let all = 2 * FRAME.rows * FRAME.columns * FRAME.bands;
    let gaps = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, 0.5];
    let values: Vec<f64> = (0..all).map(|index| gaps[index * 7919 % 13 % 5]).collect();
    let ops = json!([
        {"op": "gain", "range": [1e300, 1e300]}, {"op": "offset", "range": [1e300, 1e300]},
        {"op": "band_offset", "sigma": 1e300, "p": 1}, {"op": "gaussian_noise", "std": 1e5, "p": 1},
        {"op": "illumination_ramp", "strength": [0.5, 0.5], "p": 1}, {"op": "standardize", "mean": 1e5, "std": 1e-300},
        {"op": "gaussian_blur", "kernel": [1, 1], "p": 1}, {"op": "spectral_shift", "max_bands": 0, "p": 1},
    ]);
    for op in ops.as_array().unwrap() {
        for element in FLOATS {
            let have = applied(apply, op, &values, element);
            for (have, before) in have.iter().zip(&values) {
                let same = match before.is_finite() {
                    true => have.is_finite(),
                    false => have == before || have.is_nan() && before.is_nan(),
                };
                assert!(same, "{op} {element}: {have} from {before}");
            }
        }
    }
}
