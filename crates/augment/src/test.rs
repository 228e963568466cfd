//! What holds for every augmentation, whatever was drawn.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use super::{Augmented, Frame, Images, Mask, Parameters, Pipeline, SampleKey};

const FRAME: Frame = Frame { rows: 12, columns: 12, bands: 6 };
/// Labels of the masks.
const LABELS: [i64; 4] = [0, 3, 7, 200];

/// Every augmentation, each with options that do something.
fn all_ops() -> Vec<Value> {
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

fn name(op: &Value) -> &str {
    op["op"].as_str().unwrap()
}

fn pipeline(ops: &[Value], seed: u64) -> Pipeline {
    Pipeline::from_json(&json!({"ops": ops, "seed": seed}).to_string()).unwrap()
}

/// Those of the indices that follow one another without an error of sizes.
fn fitting(choices: &[usize], seed: u64) -> Pipeline {
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

fn keys(samples: usize) -> Vec<SampleKey> {
    (0..samples)
        .map(|sample| SampleKey { sample: 5 * sample + 1, repeat: sample as u64 % 2 })
        .collect()
}

fn images(samples: i64, kind: Kind) -> (Tensor, Tensor) {
    let count = samples * 12 * 12;
    let values: Vec<f32> =
        (0..count * 6).map(|place| (place * 7919 % 1009) as f32 / 1009.0).collect();
    let image = Tensor::from_slice(&values).view([samples, 6, 12, 12]).to_kind(kind);
    let labels: Vec<i64> =
        (0..count).map(|place| LABELS[(place / 5 * 13 % 7 % 4) as usize]).collect();
    (image, Tensor::from_slice(&labels).view([samples, 12, 12]).to_kind(Kind::Uint8))
}

fn given(image: &Tensor, labels: &Tensor) -> Images {
    let masks = vec![Mask { name: "labels".to_owned(), labels: labels.shallow_clone() }];
    Images { image: image.shallow_clone(), masks, overwrite: false }
}

fn apply(pipeline: &Pipeline, images: Images, parameters: &Parameters, tensors: bool) -> Augmented {
    let done = if tensors {
        pipeline.apply_with_tensor_operations(images, parameters)
    } else {
        pipeline.apply(images, parameters)
    };
    done.unwrap_or_else(|error| panic!("{}: {error}", pipeline.to_json()))
}

/// The bits of values, so that NaN equals NaN and 0 does not equal -0.
fn bits(tensor: &Tensor) -> Tensor {
    let kind = if tensor.kind() == Kind::Half { Kind::Int16 } else { Kind::Int };
    let tensor = tensor.contiguous();
    if tensor.kind() == Kind::Uint8 { tensor } else { tensor.view_dtype(kind) }
}

#[test]
fn a_sample_comes_out_the_same_whatever_is_beside_it() {
    let mixing = ["transplant", "cutmix_rect", "mixup"];
    let threads = tch::get_num_threads();
    let ops: Vec<Value> = all_ops().into_iter().filter(|op| !mixing.contains(&name(op))).collect();
    let (all, order) = (keys(5), [3, 0, 4, 2, 1]);
    for op in ops {
        for (kind, tensors) in
            [(Kind::Float, false), (Kind::Half, false), (Kind::Float, true), (Kind::Half, true)]
        {
            let (image, labels) = images(5, kind);
            let pipeline = pipeline(std::slice::from_ref(&op), 3);
            let parameters = pipeline.draw(FRAME, 1, &all).unwrap();
            tch::set_num_threads(1);
            let whole = apply(&pipeline, given(&image, &labels), &parameters, tensors);
            let same = |place: i64, one: &Augmented, at: i64, what: &str| {
                assert!(
                    bits(&one.image.get(at)).equal(&bits(&whole.image.get(place))),
                    "{op} {kind:?} {tensors}: {what}"
                );
                assert!(
                    one.masks[0].labels.get(at).equal(&whole.masks[0].labels.get(place)),
                    "{op} {kind:?}: {what}"
                );
            };
            for count in [2, 3] {
                tch::set_num_threads(count);
                let again = apply(&pipeline, given(&image, &labels), &parameters, tensors);
                (0..5).for_each(|place| same(place, &again, place, "more threads"));
            }
            for place in 0..5 {
                let (image, labels) = (image.narrow(0, place, 1), labels.narrow(0, place, 1));
                let parameters =
                    pipeline.draw(FRAME, 1, &all[place as usize..=place as usize]).unwrap();
                same(
                    place,
                    &apply(&pipeline, given(&image, &labels), &parameters, tensors),
                    0,
                    "alone",
                );
            }
            let keys: Vec<SampleKey> = order.iter().map(|place| all[*place as usize]).collect();
            let index = Tensor::from_slice(&order);
            let parameters = pipeline.draw(FRAME, 1, &keys).unwrap();
            let moved = given(&image.index_select(0, &index), &labels.index_select(0, &index));
            let moved = apply(&pipeline, moved, &parameters, tensors);
            for (at, place) in order.iter().enumerate() {
                same(*place, &moved, at as i64, "elsewhere in the batch");
            }
        }
    }
    tch::set_num_threads(threads);
}

#[test]
fn flips_and_turns_undo_themselves() {
    for kind in [Kind::Half, Kind::Float, Kind::BFloat16, Kind::Double] {
        let (image, labels) = images(3, kind);
        for (op, times) in [
            (json!({"op": "hflip", "p": 1.0}), 2),
            (json!({"op": "vflip", "p": 1.0}), 2),
            (json!({"op": "rot90", "p": 1.0, "turns": [1, 1]}), 4),
            (json!({"op": "rot90", "p": 1.0, "turns": [2, 2]}), 2),
        ] {
            for (fuse, tensors) in [(false, false), (true, false), (false, true)] {
                let mut pipeline = pipeline(&vec![op.clone(); times], 0);
                pipeline.fuse = fuse;
                let parameters = pipeline.draw(FRAME, 0, &keys(3)).unwrap();
                let back = apply(&pipeline, given(&image, &labels), &parameters, tensors);
                assert!(back.image.equal(&image) && back.masks[0].labels.equal(&labels), "{op}");
                pipeline.ops.truncate(1);
                let parameters = pipeline.draw(FRAME, 0, &keys(3)).unwrap();
                let once = apply(&pipeline, given(&image, &labels), &parameters, tensors).image;
                let wanted = match name(&op) {
                    "hflip" => image.flip([3]),
                    "vflip" => image.flip([2]),
                    _ => image.rot90(4 / times as i64, [2, 3]),
                };
                assert!(once.equal(&wanted), "{op}");
            }
        }
    }
}

#[test]
fn spectra_with_gaps_are_normalised_by_the_rule_of_the_format() {
    use hsipack_format::{SpectralNorm, spectrum};
    let frame = Frame { rows: 2, columns: 3, bands: 4 };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let pixels = [
        [1.0, -2.0, 5.0, nan],
        [inf, 2.0, 4.0, -1.0],
        [0.0, nan, 0.0, 0.0],
        [nan, nan, nan, nan],
        [nan, 3.0, nan, nan],
        [-inf, 0.1, 0.1, 0.1],
    ];
    let image = Tensor::from_slice(&pixels.concat()).view([1, 2, 3, 4]).permute([0, 3, 1, 2]);
    let labels = Tensor::zeros([1, 2, 3], (Kind::Uint8, Device::Cpu));
    for (op, norm) in [
        ("l1_normalize", SpectralNorm::L1),
        ("l2_normalize", SpectralNorm::L2),
        ("snv", SpectralNorm::Snv),
    ] {
        let mut want = pixels;
        want.iter_mut().for_each(|pixel| spectrum::normalize(pixel, norm));
        for (kind, tensors) in
            [(Kind::Float, false), (Kind::Float, true), (Kind::Half, false), (Kind::Half, true)]
        {
            let pipeline = pipeline(&[json!({"op": op})], 0);
            let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
            let images = given(&image.to_kind(kind), &labels);
            let done = apply(&pipeline, images, &parameters, tensors).image;
            let done = done.permute([0, 2, 3, 1]).contiguous().view(-1).to_kind(Kind::Float);
            let done = Vec::<f32>::try_from(done).unwrap();
            for (have, want) in done.iter().zip(want.as_flattened()) {
                let near = (have - want).abs() <= 2e-3;
                assert!(
                    near || have.is_nan() && want.is_nan(),
                    "{op} {kind:?} {tensors}: {done:?}"
                );
            }
        }
    }
}

#[test]
fn resized_masks_lie_under_their_image_unless_corners_are_aligned() {
    // Values and labels are their own columns.
    for (from, to) in [(8i64, 3i64), (4, 10), (7, 20), (200, 33), (5, 5)] {
        let image = Tensor::arange(from, (Kind::Float, Device::Cpu)).view([1, 1, 1, from]);
        let image = image.expand([1, 1, 2, from], false).contiguous();
        let labels = image.select(1, 0).to_kind(Kind::Uint8);
        let frame = Frame { rows: 2, columns: from as usize, bands: 1 };
        let resized = |options: Value, tensors: bool| {
            let mut op = json!({"op": "resize", "size": [2, to]});
            op.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
            let pipeline = pipeline(&[op], 0);
            let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
            let done = apply(&pipeline, given(&image, &labels), &parameters, tensors);
            let row = |tensor: &Tensor| Vec::<f64>::try_from(tensor.to_kind(Kind::Double)).unwrap();
            (row(&done.image.get(0).get(0).get(0)), row(&done.masks[0].labels.get(0).get(0)))
        };
        let ratio = from as f64 / to as f64;
        for tensors in [false, true] {
            // As Kornia: the outermost centres stay, masks go by edges.
            let (values, labels) = resized(json!({}), tensors);
            let mut apart: f64 = 0.0;
            for (place, (value, label)) in values.iter().zip(&labels).enumerate() {
                let place = place as f64;
                let wanted = place * (from - 1) as f64 / (to - 1) as f64;
                assert!((value - wanted).abs() < 1e-3, "{from} to {to}: {value} for {wanted}");
                assert_eq!(*label, ((place + 0.5) * ratio).floor(), "{from} to {to}");
                apart = apart.max((value - ((place + 0.5) * ratio - 0.5)).abs());
            }
            assert!((apart - (ratio - 1.0).abs() / 2.0).abs() < 1e-3, "{from} to {to}: {apart}");
            // Alike: the label is that of the pixel nearest to where the value comes from.
            for options in [json!({"align_corners": false}), json!({"interpolation": "nearest"})] {
                let (values, labels) = resized(options.clone(), tensors);
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
}

/// The pixel that NumPy's `pad` takes along an axis of `size` pixels, counted from the first: `None` is the constant.
fn padded_place(place: i64, size: i64, padding: &str) -> Option<i64> {
    match padding {
        "zeros" => (0..size).contains(&place).then_some(place),
        "border" => Some(place.clamp(0, size - 1)),
        _ if size == 1 => Some(0),
        _ => {
            let place = place.rem_euclid(2 * size - 2);
            Some(if place < size { place } else { 2 * size - 2 - place })
        }
    }
}

/// `to` rows and columns of (rows, columns), the first of them at `first`, with NumPy's padding.
fn padded(from: &Tensor, first: [i64; 2], to: [i64; 2], padding: &str, constant: f64) -> Tensor {
    let size = from.size();
    let at = |row, column| {
        let row = padded_place(first[0] + row, size[0], padding)?;
        Some(from.double_value(&[row, padded_place(first[1] + column, size[1], padding)?]))
    };
    let values: Vec<f64> = (0..to[0])
        .flat_map(|row| (0..to[1]).map(move |column| (row, column)))
        .map(|(row, column)| at(row, column).unwrap_or(constant))
        .collect();
    Tensor::from_slice(&values).view(to).to_kind(from.kind())
}

#[test]
fn padding_is_numpys_on_frames_of_one_row_or_column_too() {
    let sides = [1, 2, 3, 5];
    for (rows, columns) in sides.into_iter().flat_map(|rows| sides.map(|columns| (rows, columns))) {
        let (r, c) = (rows as usize, columns as usize);
        for padding in ["zeros", "border", "reflection"] {
            for (op, kind, tensors) in [
                (json!({"op": "pad_to", "size": [r + 2, c + 1]}), Kind::Half, false),
                (json!({"op": "pad_to", "size": [r + 2, c + 1]}), Kind::Float, true),
                (
                    json!({"op": "random_crop", "size": [r + 1, c + 1], "pad": [1, 2, 1, 1]}),
                    Kind::Float,
                    false,
                ),
                (
                    json!({"op": "random_crop", "size": [r + 1, c + 1], "pad_if_needed": true}),
                    Kind::Half,
                    true,
                ),
            ] {
                let mut op = op;
                (op["padding"], op["fill"]) = (json!(padding), json!(7.5));
                let mut pipeline = pipeline(std::slice::from_ref(&op), 3);
                pipeline.mask_fill = super::MaskFill::All(99);
                let values: Vec<f32> = (0..rows * columns * 2).map(|n| n as f32 + 1.0).collect();
                let image = Tensor::from_slice(&values).view([1, 2, rows, columns]).to_kind(kind);
                let labels = image.select(1, 0).to_kind(Kind::Uint8);
                let frame = Frame { rows: r, columns: c, bands: 2 };
                let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
                let drawn = serde_json::to_value(&parameters.steps[0].drawn[0]).unwrap();
                let pad = match (op.get("pad"), name(&op)) {
                    (Some(_), _) => [2, 1],
                    (None, "random_crop") => [1, 1],
                    _ => [0, 0],
                };
                let first = [("y", pad[0]), ("x", pad[1])]
                    .map(|(axis, pad)| drawn[axis].as_i64().unwrap_or(0) - pad);
                let to = [0, 1].map(|axis: usize| op["size"][axis].as_i64().unwrap());
                let done = apply(&pipeline, given(&image, &labels), &parameters, tensors);
                for band in 0..2 {
                    let wanted = padded(&image.get(0).get(band), first, to, padding, 7.5);
                    let is = done.image.get(0).get(band);
                    assert!(is.equal(&wanted), "{op} of {rows} x {columns}: {is} for {wanted}");
                }
                let wanted = padded(&labels.get(0), first, to, padding, 99.0);
                let is = done.masks[0].labels.get(0);
                assert!(is.equal(&wanted), "{op} of {rows} x {columns}: {is} for {wanted}");
            }
        }
    }
}

#[test]
fn bands_without_statistics_are_not_standardised() {
    let frame = Frame { rows: 1, columns: 1, bands: 3 };
    let image = Tensor::from_slice(&[5.0f32, 6.0, 7.0]).view([1, 3, 1, 1]);
    let labels = Tensor::zeros([1, 1, 1], (Kind::Uint8, Device::Cpu));
    let standardize =
        json!({"op": "standardize", "mean": [1.0, null, 3.0], "std": [2.0, null, null]});
    // By itself, and after another that it is done together with.
    for (before, want) in [(None, [2.0, 6.0, 7.0]), (Some(2.0), [4.5, 12.0, 14.0])] {
        let gain = before.map(|gain| json!({"op": "gain", "range": [gain, gain]}));
        let ops: Vec<Value> = gain.into_iter().chain([standardize.clone()]).collect();
        let pipeline = pipeline(&ops, 0);
        assert!(pipeline.to_json().contains("null"));
        let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
        for tensors in [false, true] {
            let done = apply(&pipeline, given(&image, &labels), &parameters, tensors).image;
            assert_eq!(Vec::<f32>::try_from(done.view(-1)).unwrap(), want);
        }
    }
}

#[test]
fn a_row_of_pixels_is_padded_before_it_is_turned() {
    // Both pad with zeros and could be one warp, in which the row's own frame is no longer that of the turn.
    let ops = [
        json!({"op": "pad_to", "size": [3, 5]}),
        json!({"op": "rotate", "p": 1.0, "degrees": [90.0, 90.0]}),
    ];
    let image = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0]).view([1, 1, 1, 5]);
    let labels = image.select(1, 0).to_kind(Kind::Uint8);
    let frame = Frame { rows: 1, columns: 5, bands: 1 };
    for (fuse, tensors) in [(true, false), (true, true), (false, false), (false, true)] {
        let mut pipeline = pipeline(&ops, 0);
        pipeline.fuse = fuse;
        let parameters = pipeline.draw(frame, 0, &keys(1)).unwrap();
        let done = apply(&pipeline, given(&image, &labels), &parameters, tensors);
        // Counter-clockwise about the middle of 3 x 5: the first row becomes the column left of the middle.
        let column = Tensor::from_slice(&[4.0f32, 3.0, 2.0]);
        let is = done.image.get(0).get(0);
        assert!(
            f64::try_from((is.select(1, 1) - column).abs().max()).unwrap() < 1e-5,
            "{fuse} {tensors}: {is}"
        );
        assert!(f64::try_from(is.sum(Kind::Float)).unwrap() < 9.01, "{fuse} {tensors}: {is}");
    }
}

#[test]
fn labels_are_compared_as_the_numbers_they_are() {
    // 300 is 44 in eight bits.
    let labels = Tensor::from_slice(&[44i64, 44, 44, 44]).view([2, 1, 2]).to_kind(Kind::Uint8);
    let image = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0]).view([2, 1, 1, 2]);
    for (excluded, other) in [(300, true), (-212, true), (44, false)] {
        let pipeline =
            pipeline(&[json!({"op": "transplant", "p": 1.0, "excluded_labels": [excluded]})], 0);
        let frame = Frame { rows: 1, columns: 2, bands: 1 };
        let parameters = pipeline.draw(frame, 0, &keys(2)).unwrap();
        let done = apply(&pipeline, given(&image, &labels), &parameters, false);
        assert_eq!(!done.image.equal(&image), other, "without {excluded}");
        let projection =
            json!({"op": "projection", "p": 1.0, "matrix": [[2.0]], "labels": [excluded]});
        let pipeline = self::pipeline(&[projection], 0);
        let parameters = pipeline.draw(frame, 0, &keys(2)).unwrap();
        let done = apply(&pipeline, given(&image, &labels), &parameters, false);
        assert_eq!(done.image.equal(&image), other, "only {excluded}");
    }
}

#[test]
fn bad_options_are_told_by_name_with_a_remedy() {
    for (json, wanted) in [
        (json!([{"op": "hflip", "p": 2.0}]), "hflip"),
        (json!([{"op": "affine", "scale": [2.0, 1.0]}]), "scale"),
        (json!([{"op": "affine", "translate": [2.0, 0.0]}]), "translation"),
        (json!([{"op": "elastic", "kernel": [4, 3]}]), "elastic"),
        (json!([{"op": "random_crop", "size": [0, 3]}]), "random_crop"),
        (json!([{"op": "random_crop", "size": [99, 3]}]), "random_crop"),
        (json!([{"op": "random_crop", "size": [3, 3], "pad": [u64::MAX, u64::MAX, 0, 0]}]), ""),
        (json!([{"op": "pad_to", "size": [1, 1]}]), "pad_to"),
        (json!([{"op": "center_crop", "size": [1, 9]}, {"op": "perspective"}]), "perspective"),
        (json!([{"op": "rot90", "turns": [3, 1]}]), "rot90"),
        (json!([{"op": "rot90", "turns": [i32::MIN, i32::MAX]}]), ""),
        (json!([{"op": "jigsaw", "grid": [5, 5]}]), "jigsaw"),
        (json!([{"op": "jigsaw", "grid": [0, 1]}]), "jigsaw"),
        (json!([{"op": "gaussian_blur", "kernel": [2, 3]}]), "blur"),
        (json!([{"op": "band_dropout", "bands": [3, 9]}]), "band_dropout"),
        (json!([{"op": "standardize", "mean": 0.0, "std": 0.0}]), "standardize"),
        (json!([{"op": "standardize", "mean": [0.0], "std": 1.0}]), "mean"),
        (json!([{"op": "projection", "matrix": [[1.0]]}]), "projection"),
    ] {
        let drawn = Pipeline::from_json(&json.to_string())
            .and_then(|pipeline| pipeline.draw(FRAME, 0, &keys(2)));
        match drawn {
            Ok(_) => assert_eq!(wanted, "", "{json}"),
            Err(error) => {
                assert!(error.what().contains(wanted), "{json}: {error}");
                assert!(error.remedy().is_some(), "{json}: {error}");
            }
        }
    }
    for (text, wanted) in [
        ("[{\"op\": \"hflop\"}]", "hflop"),
        ("[{\"op\": \"hflip\", \"q\": 1}]", "q"),
        ("[{\"op\": \"center_crop\"}]", "size"),
        ("{\"ops\": [], \"fuze\": true}", "fuze"),
        ("[{\"op\": \"affine\", \"padding\": \"wrap\"}]", "wrap"),
        ("nonsense", ""),
    ] {
        let error = Pipeline::from_json(text).unwrap_err();
        assert!(error.to_string().contains(wanted) && error.remedy().is_some(), "{text}: {error}");
    }
}

/// The numbers of a JSON value, each replaced by something else now and then.
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn masks_have_no_labels_that_were_not_there(
        choices in prop::collection::vec(0..40usize, 1..6), seed in 0..1u64 << 40, fill in 0..255i64,
        fuse: bool, tensors: bool,
    ) {
        let mut pipeline = fitting(&choices, seed);
        (pipeline.fuse, pipeline.mask_fill) = (fuse, super::MaskFill::All(fill));
        let (image, labels) = images(3, Kind::Half);
        let parameters = pipeline.draw(FRAME, 2, &keys(3)).unwrap();
        let done = apply(&pipeline, given(&image, &labels), &parameters, tensors);
        let there: BTreeSet<i64> =
            Vec::<i64>::try_from(done.masks[0].labels.to_kind(Kind::Int64).flatten(0, -1)).unwrap().into_iter().collect();
        prop_assert!(there.iter().all(|label| LABELS.contains(label) || *label == fill), "{there:?}");
        prop_assert_eq!(done.image.size()[2..].to_vec(), done.masks[0].labels.size()[1..].to_vec());
        prop_assert!(!bool::try_from(done.image.isnan().any()).unwrap(), "{}", pipeline.to_json());
    }

    #[test]
    fn samples_that_drew_nothing_keep_their_bits(
        choices in prop::collection::vec(0..40usize, 1..5), seed in 0..1u64 << 40, tensors: bool, half: bool,
    ) {
        let pipeline = fitting(&choices, seed);
        let (image, labels) = images(4, if half { Kind::Half } else { Kind::Float });
        let parameters = pipeline.draw(FRAME, 0, &keys(4)).unwrap();
        let done = apply(&pipeline, given(&image, &labels), &parameters, tensors);
        for sample in 0..4 {
            if parameters.steps.iter().all(|step| step.drawn[sample as usize].is_none()) {
                prop_assert!(bits(&done.image.get(sample)).equal(&bits(&image.get(sample))));
                prop_assert!(done.masks[0].labels.get(sample).equal(&labels.get(sample)));
            }
        }
    }

    #[test]
    fn json_keeps_everything(choices in prop::collection::vec(0..40usize, 1..8), seed: u64) {
        let pipeline = fitting(&choices, seed);
        prop_assert_eq!(&Pipeline::from_json(&pipeline.to_json()).unwrap(), &pipeline);
        let parameters = pipeline.draw(FRAME, 7, &keys(3)).unwrap();
        prop_assert_eq!(&Parameters::from_json(&parameters.to_json()).unwrap(), &parameters);
    }

    #[test]
    fn foreign_parameters_give_an_error_or_an_image(
        first in 0..40usize, second in 0..40usize, seed: u64, tensors: bool,
        choices in prop::collection::vec(0..40usize, 60),
    ) {
        let (one, other) = (fitting(&[first], seed), fitting(&[second], seed));
        prop_assume!(!one.ops.is_empty() && !other.ops.is_empty());
        let (image, labels) = images(3, Kind::Float);
        let own = one.draw(FRAME, 0, &keys(3)).unwrap();
        let mut foreign = other.draw(FRAME, 0, &keys(3)).unwrap();
        foreign.steps[0].op.clone_from(&own.steps[0].op);
        for parameters in [own, foreign] {
            let mut drawn = serde_json::to_value(&parameters.steps).unwrap();
            let mut choices = choices.iter().copied();
            mutate(&mut drawn, &mut choices);
            for steps in [serde_json::to_value(&parameters.steps).unwrap(), drawn] {
                let json = json!({"frame": parameters.frame, "steps": steps}).to_string();
                let Ok(parameters) = Parameters::from_json(&json) else { continue };
                let _ = parameters.matrices(&one);
                let images = given(&image, &labels);
                let done = if tensors {
                    one.apply_with_tensor_operations(images, &parameters)
                } else {
                    one.apply(images, &parameters)
                };
                if let Ok(done) = done {
                    let frame = one.frame(FRAME).unwrap();
                    prop_assert_eq!(done.image.size(), [3, 6, frame.rows as i64, frame.columns as i64]);
                    prop_assert_eq!(done.image.device(), Device::Cpu);
                }
            }
        }
    }
}
