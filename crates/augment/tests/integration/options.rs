//! Options: which values are refused, and how options are written.

use hsipack_augment::{Frame, Parameters, Pipeline};
use proptest::prelude::*;
use serde_json::json;

use crate::contract::{fitting, keys};

const FRAME: Frame = Frame { rows: 12, columns: 12, bands: 6 };

#[test]
fn bad_options_are_told_by_name_with_a_remedy() {
    for (json, wanted) in [
        (json!([{"op": "hflip", "p": 2.0}]), "hflip"),
        (json!([{"op": "affine", "scale": [2.0, 1.0]}]), "scale"),
        (json!([{"op": "affine", "translate": [2.0, 0.0]}]), "translate"),
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

#[test]
fn no_seed_and_a_seed_of_null_are_0() {
    for seed in ["", ", \"seed\": null", ", \"seed\": 0"] {
        let pipeline = Pipeline::from_json(&format!("{{\"ops\": []{seed}}}")).unwrap();
        assert_eq!(pipeline.seed, 0, "{seed}");
    }
    let error = Pipeline::from_json("{\"ops\": [], \"seed\": -1}").unwrap_err();
    assert!(error.to_string().contains("-1"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn json_keeps_everything(choices in prop::collection::vec(0..40usize, 1..8), seed: u64) {
        let pipeline = fitting(&choices, seed);
        prop_assert_eq!(&Pipeline::from_json(&pipeline.to_json()).unwrap(), &pipeline);
        let parameters = pipeline.draw(FRAME, 7, &keys(3)).unwrap();
        prop_assert_eq!(&Parameters::from_json(&parameters.to_json()).unwrap(), &parameters);
    }
}
