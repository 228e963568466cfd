//! Checking without images finds what applying finds.

use hsipack_augment::{
    Array, ElementType, Frame, Host, Images, KorniaCompat, Mask, MaskFill, Pipeline,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::contract::{all_ops, keys, pipeline};

/// Every augmentation, applied to all samples, and some that fit few images.
fn ops() -> Vec<Value> {
    let always = |op: Value| {
        let mut with = op.clone();
        with["p"] = json!(1.0);
        if Pipeline::from_json(&json!([with]).to_string()).is_ok() { with } else { op }
    };
    let six = [0.5, 1.0, 2.0, 0.1, 0.2, 0.3];
    let more = json!([
        {"op": "erase", "value": six}, {"op": "erase", "value": [1.0]}, {"op": "erase", "value": []},
        {"op": "band_dropout", "fill": six}, {"op": "band_dropout", "bands": [2, 2], "fill": [0.0]},
        {"op": "standardize", "mean": six, "std": 1.0}, {"op": "standardize", "mean": 0.0, "std": [1.0]},
        {"op": "projection", "matrix": [[2.0]]}, {"op": "projection", "matrix": [[2.0]], "offset": six},
        {"op": "projection", "matrix": [[2.0]], "labels": [1], "mask": "other"},
        {"op": "random_crop", "size": [64, 64]}, {"op": "random_crop", "size": [3, 20], "pad": [9, 0, 9, 1]},
        {"op": "random_crop", "size": [64, 64], "pad_if_needed": true}, {"op": "random_crop", "size": [0, 4]},
        {"op": "center_crop", "size": [2, 12]}, {"op": "pad_to", "size": [12, 12]}, {"op": "pad_to", "size": [30, 30]},
        {"op": "rot90", "turns": [1, 1]}, {"op": "rot90", "turns": [2, 2], "kornia_law": true},
        {"op": "rot90", "turns": [3, 3], "kornia_law": true}, {"op": "rot90", "turns": [1, 0]},
        {"op": "jigsaw", "grid": [1, 3]}, {"op": "gaussian_blur", "kernel": [3, 9]}, {"op": "elastic", "kernel": [2, 3]},
        {"op": "resize", "size": [0, 5]}, {"op": "resized_crop", "size": [5, 5], "scale": [0, 0]},
        {"op": "transplant", "mask": "other"}, {"op": "transplant", "valid": "labels"},
        {"op": "affine", "scale": [0, 1]}, {"op": "hflip"}, {"op": "valid_guard", "mask": "other"},
    ]);
    all_ops().into_iter().chain(more.as_array().unwrap().iter().cloned()).map(always).collect()
}

/// Results of checking and of applying.
fn both(
    pipeline: &Pipeline,
    frame: Frame,
    masks: &[(&str, ElementType)],
) -> [Result<[usize; 3], String>; 2] {
    let Frame { rows, columns, bands } = frame;
    let size = |frame: Frame| [frame.rows, frame.columns, frame.bands];
    let checked = pipeline.check(frame, masks);
    if let Err(error) = &checked {
        assert!(error.remedy().is_some(), "{error}");
    }
    let values: Vec<f64> = (0..2 * rows * columns * bands).map(|index| index as f64).collect();
    let image = Array::of_numbers(&values, &[2, bands, rows, columns], ElementType::F32).unwrap();
    let labels = vec![1; 2 * rows * columns];
    let masks = masks.iter().map(|(name, element)| {
        let labels = Array::of_integers(&labels, &[2, rows, columns], *element).unwrap();
        Mask { name: (*name).to_owned(), labels }
    });
    let images = Images::new(image, masks.collect());
    let applied = pipeline.draw(frame, 0, &keys(2)).and_then(|parameters| {
        let done = pipeline.apply(&Host::new(1), &images, &parameters)?.image;
        let [_, bands, rows, columns] = done.shape()[..] else { panic!("{done:?}") };
        Ok([rows, columns, bands])
    });
    [checked.map(size), applied].map(|result| result.map_err(|error| error.what().to_owned()))
}

#[test]
fn every_augmentation_is_refused_where_it_cannot_be_applied() {
    let (mut refused, mut taken) = (0, 0);
    for op in ops() {
        for (rows, columns) in [(1, 1), (1, 12), (2, 3), (12, 1), (12, 12), (16, 20), (70, 9)] {
            for (bands, masks) in [(1, true), (6, false), (6, true)] {
                for kornia in KorniaCompat::ALL {
                    let mut pipeline = pipeline(std::slice::from_ref(&op), 0);
                    pipeline.kornia = kornia;
                    let masks = [("labels", ElementType::U8)].into_iter().filter(|_| masks);
                    let frame = Frame { rows, columns, bands };
                    let [checked, applied] = both(&pipeline, frame, &masks.collect::<Vec<_>>());
                    *if checked.is_ok() { &mut taken } else { &mut refused } += 1;
                    // A perspective of few pixels may have no inverse, depending on what is drawn.
                    assert_eq!(checked, applied, "{op} {frame} {kornia}");
                }
            }
        }
    }
    assert!(refused > 300 && taken > 300, "{refused} {taken}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_refused_where_they_cannot_be_applied(
        choices in prop::collection::vec(0..100usize, 1..5),
        rows in 1..25usize, columns in 1..25usize, bands in prop::sample::select(vec![1, 6]), fuse: bool,
        fill in prop::sample::select(vec![0, 255, 300, -1]),
        element in prop::sample::select(vec![ElementType::U8, ElementType::I64, ElementType::Bool]),
    ) {
        let all = ops();
        let ops: Vec<Value> = choices.iter().map(|choice| all[choice % all.len()].clone()).collect();
        let mut pipeline = pipeline(&ops, 1);
        (pipeline.fuse, pipeline.mask_fill) = (fuse, MaskFill::All(fill));
        let [checked, applied] = both(&pipeline, Frame { rows, columns, bands }, &[("labels", element)]);
        match (&checked, &applied) {
            // Which of several faults is found first may differ.
            (Err(_), Err(_)) => {}
            _ => prop_assert_eq!(checked, applied, "{}", pipeline.to_json()),
        }
    }
}

#[test]
fn draws_that_may_not_fit_are_refused() {
    let frame = Frame { rows: 4, columns: 5, bands: 1 };
    let turns = |turns: [i32; 2], p: f64| {
        let op = json!({"op": "rot90", "turns": turns, "kornia_law": true, "p": p});
        pipeline(&[op], 0).check(frame, &[])
    };
    assert!(turns([0, 1], 0.1).unwrap_err().what().contains("rot90"));
    assert!(turns([0, 1], 0.0).is_ok() && turns([-2, -2], 1.0).is_ok());
    let none = Frame { rows: 0, ..frame };
    assert!(pipeline(&[json!({"op": "hflip"})], 0).check(none, &[]).is_err());
}

#[test]
fn targets_move_but_are_no_masks() {
    let frame = Frame { rows: 4, columns: 5, bands: 1 };
    let arrays = [("heat", ElementType::F32)];
    assert!(pipeline(&[json!({"op": "hflip"})], 0).check(frame, &arrays).is_ok());
    for (op, what) in [
        (json!({"op": "transplant"}), "transplant needs a mask, but the batch has none"),
        (
            json!({"op": "transplant", "mask": "heat"}),
            "transplant needs a mask, but heat is a target",
        ),
    ] {
        let error = pipeline(&[op], 0).check(frame, &arrays).unwrap_err();
        assert!(error.what().starts_with(what), "{error}");
    }
}
