//! Draws have the same distributions as those of Kornia.

use std::collections::BTreeMap;

use hsipack_augment::{Frame, Pipeline, SampleKey};
use serde_json::{Value, json};
use tch::Tensor;

use super::kornia::{kornia_is_there, run_script};

/// How many numbers of every parameter are drawn.
const NUMBERS: u64 = 20_000;
/// Samples in a batch.
const BATCH: u64 = 100;
const FRAME: Frame = Frame { rows: 33, columns: 41, bands: 7 };

/// Names as in `tests/kornia/draws.py`, with the same options.
fn pipelines() -> Vec<(&'static str, Value)> {
    vec![
        (
            "affine",
            json!({"op": "affine", "degrees": 45, "translate": [0.0625, 0.1], "scale": [0.9, 1.1], "shear": 10,
                   "shear_y": [-5.0, 5.0], "p": 1.0}),
        ),
        ("affine_gate", json!({"op": "affine", "degrees": 45, "p": 0.3})),
        (
            "affine_axes",
            json!({"op": "affine", "scale": [0.7, 1.4], "scale_y": [0.8, 1.2], "p": 1.0}),
        ),
        ("rotate", json!({"op": "rotate", "degrees": 60, "p": 1.0})),
        ("rot90", json!({"op": "rot90", "turns": [-1, 2], "kornia_law": true, "p": 1.0})),
        ("perspective", json!({"op": "perspective", "distortion": 0.4, "p": 1.0})),
        (
            "perspective_area",
            json!({"op": "perspective", "distortion": 0.4, "area_preserving": true, "p": 1.0}),
        ),
        ("random_crop", json!({"op": "random_crop", "size": [20, 24]})),
        ("resized_crop", json!({"op": "resized_crop", "size": [24, 30], "scale": [0.3, 0.9]})),
        (
            "resized_crop_narrow",
            json!({"op": "resized_crop", "size": [24, 30], "scale": [0.9, 1.0], "ratio": [0.3, 0.4]}),
        ),
        ("erase", json!({"op": "erase", "p": 1.0})),
        ("cutmix_rect", json!({"op": "cutmix_rect"})),
        ("cutmix_rect_beta", json!({"op": "cutmix_rect", "beta": 0.4})),
        ("mixup", json!({"op": "mixup"})),
        (
            "gaussian_blur",
            json!({"op": "gaussian_blur", "kernel": [5, 5], "sigma": [0.5, 2.0], "p": 1.0}),
        ),
        ("gain", json!({"op": "gain", "range": [0.7, 1.3]})),
        ("band_dropout", json!({"op": "band_dropout", "bands": [3, 3], "p": 1.0})),
        ("jigsaw", json!({"op": "jigsaw", "grid": [3, 1], "p": 1.0})),
        ("transplant", json!({"op": "transplant", "p": 0.8})),
    ]
}

type Columns = BTreeMap<String, Vec<f64>>;

/// All draws for a list with one augmentation, by number.
fn ours(options: &Value) -> Columns {
    let pipeline = Pipeline::from_json(&json!({"ops": [options], "seed": 5}).to_string()).unwrap();
    // Quarter turns need a square, cells need whole parts.
    let frame = match options["op"].as_str() {
        Some("rot90") => Frame { columns: FRAME.rows, ..FRAME },
        Some("jigsaw") => Frame { rows: 36, columns: 36, ..FRAME },
        _ => FRAME,
    };
    let mut columns = Columns::new();
    for batch in 0..NUMBERS / BATCH {
        let keys: Vec<SampleKey> = (0..BATCH)
            .map(|index| SampleKey { sample: (batch * BATCH + index) as usize, repeat: 0 })
            .collect();
        let parameters = pipeline.draw(frame, 3, &keys).unwrap();
        for drawn in &parameters.steps[0].drawn {
            let drawn = serde_json::to_value(drawn).unwrap();
            columns
                .entry("gate".to_owned())
                .or_default()
                .push(f64::from(u8::from(!drawn.is_null())));
            for (name, value) in drawn.as_object().into_iter().flatten() {
                let mut values = Vec::new();
                flatten(value, &mut values);
                let several = value.is_array();
                for (number, value) in values.into_iter().enumerate() {
                    let name = if several { format!("{name}{number}") } else { name.clone() };
                    columns.entry(name).or_default().push(value);
                }
            }
        }
    }
    columns
}

fn flatten(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flatten(value, into)),
        value => into.extend(value.as_f64()),
    }
}

/// The Kolmogorov-Smirnov distance between the distributions of two samples.
fn distance(ours: &[f64], other: &[f64]) -> f64 {
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values
    };
    let (ours, other) = (sorted(ours), sorted(other));
    // Kornia draws in float32: values that float32 cannot tell apart are the same.
    let above = |value: f64| value + value.abs() * f64::from(f32::EPSILON);
    let mut greatest = 0.0f64;
    for values in [&ours, &other] {
        // How many values of each are not greater. Values increase, so these counts do, too.
        let (mut a, mut b) = (0, 0);
        for at in values.iter().map(|value| above(*value)) {
            a += ours[a..].iter().take_while(|value| **value <= at).count();
            b += other[b..].iter().take_while(|value| **value <= at).count();
            let parts = (a as f64 / ours.len() as f64, b as f64 / other.len() as f64);
            greatest = greatest.max((parts.0 - parts.1).abs());
        }
    }
    greatest
}

/// The limit that the distance exceeds once in 10,000 times if the distributions are equal.
fn limit(first: usize, other: usize) -> f64 {
    let (first, other) = (first as f64, other as f64);
    (-(1e-4f64 / 2.0).ln() / 2.0).sqrt() * ((first + other) / (first * other)).sqrt()
}

fn correlation(ours: &[f64], other: &[f64]) -> f64 {
    let count = ours.len() as f64;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / count;
    let (a, b) = (mean(ours), mean(other));
    let product = |x: &[f64], mx: f64, y: &[f64], my: f64| {
        x.iter().zip(y).map(|(x, y)| (x - mx) * (y - my)).sum::<f64>()
    };
    product(ours, a, other, b) / (product(ours, a, ours, a) * product(other, b, other, b)).sqrt()
}

#[test]
fn kornia_draws_the_same_distributions() {
    if !kornia_is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("draws.safetensors");
    let numbers =
        [NUMBERS as usize, FRAME.rows, FRAME.columns, FRAME.bands].map(|number| number.to_string());
    let arguments: Vec<&std::path::Path> =
        numbers.iter().map(std::path::Path::new).chain([file.as_path()]).collect();
    run_script("draws.py", &arguments);
    let mut theirs: BTreeMap<String, Columns> = BTreeMap::new();
    for (key, tensor) in Tensor::read_safetensors(&file).unwrap() {
        let (name, parameter) = key.split_once('.').unwrap();
        let values = Vec::<f64>::try_from(&tensor).unwrap();
        theirs.entry(name.to_owned()).or_default().insert(parameter.to_owned(), values);
    }
    let mut differ = Vec::new();
    let mut compared = 0;
    for (name, options) in pipelines() {
        let ours = ours(&options);
        for (parameter, theirs) in &theirs[name] {
            // The case for the gate has numbers for only some samples.
            if name == "affine_gate" && parameter != "gate" {
                continue;
            }
            let ours = &ours[parameter];
            let (distance, limit) = (distance(ours, theirs), limit(ours.len(), theirs.len()));
            println!("{name:20} {parameter:14} {distance:.4} of {limit:.4}");
            compared += 1;
            if distance > limit {
                differ.push(format!("{name}.{parameter}: {distance:.4} > {limit:.4}"));
            }
        }
    }
    assert!(compared > 60, "{compared}");
    assert!(differ.is_empty(), "{differ:?}");
}

#[test]
fn draws_of_an_augmentation_are_independent_of_others() {
    for (name, options) in pipelines() {
        let columns = ours(&options);
        let gate = &columns["gate"];
        let share = gate.iter().sum::<f64>() / gate.len() as f64;
        let p = options["p"].as_f64().unwrap_or(1.0);
        // Six standard deviations.
        assert!(
            (share - p).abs() <= 6.0 * (p * (1.0 - p) / gate.len() as f64).sqrt(),
            "{name}: {share} for {p}"
        );
        // Skips parameters that depend on each other by definition: places on sizes, sorted bands, and orders.
        if !["affine", "affine_axes", "perspective", "perspective_area", "random_crop"]
            .contains(&name)
        {
            continue;
        }
        let names: Vec<&String> = columns
            .iter()
            .filter(|(_, values)| values.iter().any(|value| *value != values[0]))
            .map(|(name, _)| name)
            .collect();
        for (index, first_name) in names.iter().enumerate() {
            for other in &names[index + 1..] {
                let (a, b) = (&columns[*first_name], &columns[*other]);
                if name == "affine" && first_name.starts_with("scale") && other.starts_with("scale")
                {
                    assert_eq!(a, b, "one factor for both axes");
                } else {
                    let correlation = correlation(a, b);
                    assert!(
                        correlation.abs() < 0.02,
                        "{name}: {first_name} and {other}: {correlation}"
                    );
                }
            }
        }
    }
}

#[test]
fn orders_are_all_equally_likely() {
    let columns = ours(&json!({"op": "jigsaw", "grid": [2, 2], "p": 1.0}));
    let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let cells: Vec<&Vec<f64>> = (0..4).map(|cell| &columns[&format!("order{cell}")]).collect();
    for number in 0..NUMBERS as usize {
        let order = cells.iter().map(|cell| cell[number] as u8).collect();
        *counts.entry(order).or_default() += 1;
    }
    assert_eq!(counts.len(), 24);
    let wanted = NUMBERS as f64 / 24.0;
    let squares: f64 = counts.values().map(|count| (*count as f64 - wanted).powi(2) / wanted).sum();
    // Chi-squared with 23 degrees of freedom is above 58.6 once in 15,000 times.
    assert!(squares < 58.6, "{squares}");
}
