//! Missing and infinite values: they reach only the values that are computed from them.

use hsipack_augment::array::Buffer;
use hsipack_augment::{Array, ElementType, Frame, Images, Parameters, Pipeline};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Apply, all_ops, cases, keys, numbers, padded, pipeline};

const FLOATS: [ElementType; 4] =
    [ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64];
const GAPS: [f64; 3] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

/// A plane of small whole numbers, in which some values are missing or infinite.
fn plane(rows: usize, columns: usize, seed: usize) -> Vec<f64> {
    let value = |index: usize| match (index * 7919 + seed * 104_729) % 23 {
        gap @ 0..3 => GAPS[gap],
        number => number as f64,
    };
    (0..rows * columns).map(value).collect()
}

/// Applies a pipeline to images (samples, bands, rows, columns), without masks.
fn applied(
    apply: &Apply,
    pipeline: &Pipeline,
    image: Array,
    parameters: Option<Parameters>,
) -> (Vec<f64>, [usize; 4]) {
    let [samples, bands, rows, columns] = image.shape()[..] else { panic!("{image:?}") };
    let frame = Frame { rows, columns, bands };
    let parameters = parameters.unwrap_or_else(|| pipeline.draw(frame, 0, &keys(samples)).unwrap());
    let images = Images::new(image, Vec::new());
    let done = apply(pipeline, &images, &parameters, 2);
    let done = done.unwrap_or_else(|error| panic!("{}: {error}", pipeline.to_json())).image;
    (numbers(&done), done.shape().try_into().unwrap())
}

fn alike(have: f64, want: f64) -> bool {
    have == want || have.is_nan() && want.is_nan()
}

fn same(have: &[f64], want: &[f64], what: &dyn std::fmt::Display) {
    assert_eq!(have.len(), want.len(), "{what}");
    for (index, (have, want)) in have.iter().zip(want).enumerate() {
        assert!(alike(*have, *want), "{what}: {have} for {want} at {index}");
    }
}

pub fn whole_pixels_move_without_arithmetic(apply: &Apply) {
    // The maps of these warps put every pixel exactly onto another one, whose place in the frame is given.
    type From = fn([i64; 2], [i64; 2]) -> [i64; 2];
    let still: From = |at, _| at;
    let turned: From = |[row, column], [rows, columns]| {
        // Counter-clockwise about the centre.
        let (twice_row, twice_column) = (2 * row - (rows - 1), 2 * column - (columns - 1));
        [(rows - 1 + twice_column) / 2, (columns - 1 - twice_row) / 2]
    };
    let half: From = |[row, column], [rows, columns]| [rows - 1 - row, columns - 1 - column];
    let back: From = |[row, column], [rows, columns]| {
        let (twice_row, twice_column) = (2 * row - (rows - 1), 2 * column - (columns - 1));
        [(rows - 1 - twice_column) / 2, (columns - 1 + twice_row) / 2]
    };
    let shifted: From = |[row, column], _| [row - 2, column + 3];
    let shift = json!({"drawn": "affine", "angle": 0.0, "scale": [1.0, 1.0], "translation": [-3.0, 2.0], "shear": [0.0, 0.0]});
    let all: [(Value, Option<Value>, From); 14] = [
        (json!({"op": "affine", "degrees": [0, 0], "p": 1}), None, still),
        (json!({"op": "affine", "degrees": [0, 0], "align_corners": true, "p": 1}), None, still),
        (json!({"op": "affine", "degrees": [360, 360], "p": 1}), None, still),
        (json!({"op": "affine", "p": 1}), Some(shift), shifted),
        (json!({"op": "affine", "degrees": [-90, -90], "p": 1}), None, turned),
        (json!({"op": "rotate", "degrees": [90, 90], "p": 1}), None, turned),
        (
            json!({"op": "rotate", "degrees": [-270, -270], "align_corners": false, "p": 1}),
            None,
            turned,
        ),
        (json!({"op": "rotate", "degrees": [180, 180], "p": 1}), None, half),
        (json!({"op": "rotate", "degrees": [270, 270], "p": 1}), None, back),
        (json!({"op": "rotate", "degrees": [450, 450], "p": 1}), None, turned),
        (json!({"op": "perspective", "distortion": 0, "p": 1}), None, still),
        (json!({"op": "elastic", "alpha": [0, 0], "kernel": [3, 3], "p": 1}), None, still),
        (json!({"op": "rot90", "turns": [2, 2], "p": 1}), None, half),
        (
            json!({"op": "resized_crop", "size": [0, 0], "scale": [1, 1], "ratio": [0.1, 10]}),
            None,
            still,
        ),
    ];
    // Quarter turns of these frames put pixels onto pixels.
    for (rows, columns) in [(12, 12), (9, 13), (40, 40), (33, 61)] {
        for (op, drawn, from) in &all {
            let mut op = op.clone();
            if op["op"] == "resized_crop" {
                op["size"] = json!([rows, columns]);
                let ratio = columns as f64 / rows as f64;
                op["ratio"] = json!([ratio, ratio]);
            }
            let pipeline = pipeline(std::slice::from_ref(&op), 1);
            let parameters = drawn.as_ref().map(|drawn| {
                let frame = Frame { rows, columns, bands: 1 };
                let step = json!({"op": op["op"], "drawn": [drawn]});
                Parameters::from_json(&json!({"frame": frame, "steps": [step]}).to_string())
                    .unwrap()
            });
            let values = plane(rows, columns, 5);
            let size = [rows as i64, columns as i64];
            let want: Vec<f64> = (0..rows * columns)
                .map(|index| {
                    let at = [(index / columns) as i64, (index % columns) as i64];
                    let [row, column] = from(at, size);
                    let inside = (0..size[0]).contains(&row) && (0..size[1]).contains(&column);
                    if inside { values[(row * size[1] + column) as usize] } else { 0.0 }
                })
                .collect();
            for element in FLOATS {
                let image = Array::of_numbers(&values, &[1, 1, rows, columns], element).unwrap();
                let (have, _) = applied(apply, &pipeline, image, parameters.clone());
                same(&have, &want, &format!("{op} of {rows} x {columns}, {element}"));
            }
        }
    }
}

pub fn padding_and_enlarging_keep_the_pixels_that_were_there(apply: &Apply) {
    for (rows, columns) in [(5, 7), (12, 4), (3, 30)] {
        let values = plane(rows, columns, 2);
        for element in FLOATS {
            let image = || Array::of_numbers(&values, &[1, 1, rows, columns], element).unwrap();
            for padding in ["zeros", "border", "reflection"] {
                let to = [rows + 4, columns + 3];
                let pad_to = json!({"op": "pad_to", "size": to, "padding": padding, "fill": 7.5});
                let crop = json!({"op": "random_crop", "size": to, "pad": [1, 2, 2, 2], "padding": padding, "fill": 7.5});
                for (op, first) in [(pad_to, [0, 0]), (crop, [-2, -1])] {
                    let pipeline = pipeline(std::slice::from_ref(&op), 0);
                    let (have, _) = applied(apply, &pipeline, image(), None);
                    let want = padded(&values, [rows, columns], first, to, padding, 7.5);
                    same(&have, &want, &format!("{op} of {rows} x {columns}, {element}"));
                }
            }
            // Some of these steps are not exact in binary.
            for step in [2, 3, 7, 49] {
                let to = [(rows - 1) * step + 1, (columns - 1) * step + 1];
                let resize = pipeline(&[json!({"op": "resize", "size": to})], 0);
                let (have, _) = applied(apply, &resize, image(), None);
                for (index, want) in values.iter().enumerate() {
                    let (row, column) = (index / columns * step, index % columns * step);
                    let have = have[row * to[1] + column];
                    assert!(
                        alike(have, *want),
                        "{element}, {step} times: {have} for {want} at {index}"
                    );
                }
            }
        }
    }
}

/// The pixels along an axis at a position, with their weights; `None` if a weight is so small that
/// it depends on rounding.
fn taps(p: f64, size: usize, padding: &str, align_corners: bool) -> Option<Vec<(usize, f64)>> {
    let last = size as f64 - 1.0;
    let p = match padding {
        "zeros" => p,
        "border" => p.clamp(0.0, last),
        _ if size == 1 => 0.0,
        _ => {
            let (low, span) = if align_corners { (0.0, last) } else { (-0.5, size as f64) };
            let p = (p - low).rem_euclid(2.0 * span);
            (if p > span { 2.0 * span - p + low } else { p + low }).clamp(0.0, last)
        }
    };
    let apart = (p - p.round()).abs();
    if apart > 1e-9 && apart < 1e-3 {
        return None;
    }
    let p = if apart <= 1e-9 { p.round() } else { p };
    let all = [(p.floor(), 1.0 - p.fract().rem_euclid(1.0)), (p.floor() + 1.0, p - p.floor())];
    let all = all.into_iter().map(|(pixel, _)| (pixel, 1.0 - (p - pixel).abs()));
    let inside = all.filter(|(pixel, weight)| *weight > 0.0 && (0.0..=last).contains(pixel));
    Some(inside.map(|(pixel, weight)| (pixel as usize, weight)).collect())
}

pub fn warps_spread_gaps_only_to_what_gives_them_weight(apply: &Apply) {
    let all = (
        1..15usize,
        1..15usize,
        0..1000usize,
        0..5usize,
        prop::sample::select(vec!["zeros", "border", "reflection"]),
        prop::sample::select(FLOATS.to_vec()),
        any::<bool>(),
        prop::sample::select(vec![0.0, 5.0]),
    );
    cases(all, |(rows, columns, seed, kind, padding, element, align_corners, fill)| {
        let mut op = match kind {
            0 => json!({"op": "rotate", "degrees": [45, 45]}),
            1 => json!({"op": "affine", "degrees": 180, "scale": [0.7, 1.4], "shear": 10}),
            2 => json!({"op": "affine", "scale": [2, 2]}),
            3 => json!({"op": "affine", "scale": [0.5, 0.5], "degrees": [90, 90]}),
            _ => json!({"op": "perspective"}),
        };
        let op = op.as_object_mut().unwrap();
        op.extend([
            ("p".to_owned(), json!(1.0)),
            ("padding".to_owned(), json!(padding)),
            ("align_corners".to_owned(), json!(align_corners)),
        ]);
        let filled = op["op"] == "affine" && padding == "zeros";
        let fill = if filled { fill } else { 0.0 };
        if filled {
            op.insert("fill".to_owned(), json!(fill));
        }
        // With aligned corners, a single row or column is no frame to warp.
        prop_assume!(rows > 1 && columns > 1);
        let pipeline = pipeline(&[Value::Object(op.clone())], seed as u64);
        let values = plane(rows, columns, seed);
        let frame = Frame { rows, columns, bands: 1 };
        let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
        let back = parameters.matrices(&pipeline).unwrap()[0].unwrap().inverse().unwrap();
        let image = Array::of_numbers(&values, &[1, 1, rows, columns], element).unwrap();
        let (have, _) = applied(apply, &pipeline, image, Some(parameters));
        for (pixel, have) in have.into_iter().enumerate() {
            let [x, y] = back.apply([(pixel % columns) as f64, (pixel / columns) as f64]);
            // Beyond the horizon of a perspective, or so far outside that float32 has no idea.
            if !(x.abs() < 1e3 && y.abs() < 1e3) {
                continue;
            }
            let (Some(across), Some(down)) =
                (taps(x, columns, padding, align_corners), taps(y, rows, padding, align_corners))
            else {
                continue;
            };
            let (mut want, mut all) = (0.0, 0.0);
            for (y, weight_y) in &down {
                for (x, weight_x) in &across {
                    want += weight_x * weight_y * values[y * columns + x];
                    all += weight_x * weight_y;
                }
            }
            want += (1.0 - all) * fill;
            let tolerance = if element == ElementType::BF16 { 0.3 } else { 0.05 };
            prop_assert!(
                alike(have, want) || (have - want).abs() <= tolerance,
                "{}, {element}, {rows} x {columns}: {have} for {want} at {pixel} from {x} {y}",
                pipeline.to_json()
            );
        }
        Ok(())
    });
}

pub fn weights_of_0_are_not_used(apply: &Apply) {
    let (samples, bands, rows, columns) = (3, 4, 5, 6);
    let values = plane(samples * bands * rows, columns, 9);
    let pixels = rows * columns;
    let sample = bands * pixels;
    for element in FLOATS {
        let applied = |op: &Value| {
            let image =
                Array::of_numbers(&values, &[samples, bands, rows, columns], element).unwrap();
            let pipeline = pipeline(std::slice::from_ref(op), 4);
            let frame = Frame { rows, columns, bands };
            let parameters = pipeline.draw(frame, 0, &keys(samples)).unwrap();
            let done = apply(&pipeline, &Images::new(image, Vec::new()), &parameters, 2).unwrap();
            (numbers(&done.image), done.mixed)
        };
        // A Gaussian so narrow that it is 0 beside the centre, in float64 too.
        let blur = json!({"op": "gaussian_blur", "kernel": [3, 5], "sigma": [0.01, 0.01], "p": 1});
        let shift = json!({"op": "spectral_shift", "max_bands": 0, "p": 1});
        let smooth = json!({"op": "spectral_smooth", "sigma": [0.01, 0.01], "p": 1});
        let gain = json!({"op": "gain", "range": [1, 1]});
        let unmixed = json!({"op": "mixup", "lambda": [0, 0]});
        for op in [blur, shift, smooth, gain, unmixed] {
            same(&applied(&op).0, &values, &format!("{op} {element}"));
        }
        // The partner alone.
        let (have, mixed) = applied(&json!({"op": "mixup", "lambda": [1, 1]}));
        let want: Vec<f64> = mixed[0]
            .partners
            .iter()
            .flat_map(|partner| &values[partner * sample..][..sample])
            .copied()
            .collect();
        assert_ne!(mixed[0].partners, [0, 1, 2]);
        same(&have, &want, &format!("partners {element}"));
        // Bands 0 and 3 change places, band 1 is taken twice, band 2 is turned around.
        let matrix = [[0., 0., 0., 1.], [0., 2., 0., 0.], [0., 0., -1., 0.], [1., 0., 0., 0.]];
        let op = json!({"op": "projection", "matrix": matrix, "p": 1});
        let want: Vec<f64> = (0..values.len())
            .map(|index| {
                let (which, band, pixel) = (index / sample, index / pixels % bands, index % pixels);
                let at = |band: usize| values[(which * bands + band) * pixels + pixel];
                [at(3), 2.0 * at(1), -at(2), at(0)][band]
            })
            .collect();
        same(&applied(&op).0, &want, &format!("{op} {element}"));
        // A band that is computed from infinity and the other infinity is not a number.
        let matrix = [[1., 1., 0., 0.], [1., -1., 0., 0.], [0., 0., 1., 0.], [0., 0., 0., 1.]];
        let op = json!({"op": "projection", "matrix": matrix, "p": 1});
        let want: Vec<f64> = (0..values.len())
            .map(|index| {
                let (which, band, pixel) = (index / sample, index / pixels % bands, index % pixels);
                let at = |band: usize| values[(which * bands + band) * pixels + pixel];
                [at(0) + at(1), at(0) - at(1), at(2), at(3)][band]
            })
            .collect();
        same(&applied(&op).0, &want, &format!("{op} {element}"));
    }
}

/// The bytes of an image (samples, bands, rows, columns) whose memory has the order (sample, row,
/// column, band).
fn raw(image: &Array) -> Vec<u8> {
    image.permuted(&[0, 2, 3, 1]).bytes().expect("the order of results").to_vec()
}

pub fn bits_of_samples_that_drew_nothing_stay(apply: &Apply) {
    let Frame { rows, columns, bands } = super::FRAME;
    let samples = 6;
    for element in FLOATS {
        // Every pattern of bits that a type has: both zeros, subnormal numbers, any NaN.
        let size = element.size();
        let bytes: Vec<u8> = (0..samples * rows * columns * bands * size)
            .map(|index| (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[5])
            .enumerate()
            .map(|(index, byte)| match index / size % 11 {
                0 => 0,
                1 if index % size == size - 1 => 0x80,
                1 => 0,
                2 if index % size == size - 1 => 0x7f,
                2 if index % size == size - 2 => byte | 0xf0,
                _ => byte,
            })
            .collect();
        let shape = [samples, rows, columns, bands];
        let image = Buffer::of(&bytes).unwrap().array(&shape, element).unwrap();
        let image = image.permuted(&[0, 3, 1, 2]);
        let mut labels = super::Numbers::of_frame(samples).arrays(element).masks;
        labels.truncate(1);
        let mut idle = 0;
        for op in all_ops() {
            let pipeline = pipeline(std::slice::from_ref(&op), 3);
            let parameters = pipeline.draw(super::FRAME, 0, &keys(samples)).unwrap();
            if pipeline.frame(super::FRAME).unwrap() != super::FRAME {
                continue;
            }
            let images = Images::new(image.clone(), labels.clone());
            let done = apply(&pipeline, &images, &parameters, 2).unwrap();
            let (before, after) = (raw(&image), raw(&done.image));
            let len = bytes.len() / samples;
            for (sample, drawn) in parameters.steps[0].drawn.iter().enumerate() {
                if drawn.is_none() {
                    idle += 1;
                    let range = sample * len..(sample + 1) * len;
                    assert!(before[range.clone()] == after[range], "{op} {element}: {sample}");
                }
            }
        }
        assert!(idle > 20, "{idle} samples drew nothing");
    }
}
