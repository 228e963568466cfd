use proptest::prelude::*;
use serde_json::{Value, json};

use super::{BUILT_IN_COLUMNS, Condition};
use crate::samples::Samples;

/// Three samples: a train/urban/cloud 3, b val/rural/cloud 12.5, c train without label or cloud.
fn samples() -> Samples {
    let records = [
        json!({"split": "train", "group": "7", "label": "urban", "cloud": 3, "sunny day": true}),
        json!({"split": "val", "label": "rural", "cloud": 12.5, "sunny day": false}),
        json!({"split": "train", "note": "it's \"dry\""}),
    ];
    let line = |(id, record): (usize, &Value)| {
        let mut line = json!({
            "id": id, "name": (&"abc"[id..=id]), "stack": "2x3x4", "index": id, "nan": id * 5, "inf": 0,
            "range": null, "source": { "path": "a", "bytes": 0, "fingerprint": "", "format": "" },
        });
        line.as_object_mut().unwrap().extend(record.as_object().unwrap().clone());
        format!("{line}\n")
    };
    let text: String = records.iter().enumerate().map(line).collect();
    Samples::decode(text.into_bytes(), &["2x3x4"]).unwrap()
}

fn chosen(text: &str) -> Vec<usize> {
    let condition = Condition::parse(text).unwrap_or_else(|error| panic!("{error}"));
    samples().matching(vec![0, 1, 2], &condition).unwrap_or_else(|error| {
        assert!(error.what().starts_with("no sample fulfils"), "{error}");
        Vec::new()
    })
}

#[test]
fn conditions_choose_samples() {
    for (text, want) in [
        ("label == 'urban'", vec![0]),
        ("label == \"urban\" and cloud < 10", vec![0]),
        ("label != 'urban'", vec![1, 2]),
        ("cloud < 10 or cloud >= 12.5", vec![0, 1]),
        ("not cloud < 10", vec![1, 2]),
        ("label == null", vec![2]),
        ("cloud != None and split == 'train'", vec![0]),
        ("cloud == 3.0", vec![0]),
        ("3 == cloud", vec![0]),
        ("cloud > -1e3", vec![0, 1]),
        ("split in ('val', 'test')", vec![1]),
        ("id in [2, 0]", vec![0, 2]),
        ("split not in ('val',)", vec![0, 2]),
        ("`sunny day`", vec![0]),
        ("`sunny day` == false", vec![1]),
        ("not `sunny day`", vec![1, 2]),
        (r#"note == 'it\'s "dry"'"#, vec![2]),
        ("split == 'train' and (label == 'rural' or nan == 10)", vec![2]),
        ("split == 'val' or split == 'train' and id == 2", vec![1, 2]),
        ("not not name >= 'b'", vec![1, 2]),
        ("group == 7", vec![]),
        ("stack == '2x3x4'", vec![0, 1, 2]),
        ("true == true", vec![0, 1, 2]),
    ] {
        assert_eq!(chosen(text), want, "{text}");
    }
    let condition = Condition::parse("nan >= 0").unwrap();
    assert_eq!(samples().matching(vec![2, 0], &condition).unwrap(), [2, 0]);
}

#[test]
fn errors_point_at_the_place() {
    for (text, what) in [
        ("", "at the end: a column or a value is missing"),
        ("label = 'urban'", "at character 7: '=' does not compare values; write '=='"),
        ("label == 'urban", "at character 10: ' is not closed"),
        ("label == 'urban' cloud", "at character 18: 'and' or 'or' is missing before this"),
        ("(cloud < 3", "at the end: ')' is missing"),
        ("cloud < 3)", "at character 10: 'and' or 'or' is missing before this"),
        ("cloud <", "at the end: a column or a value is missing"),
        ("cloud < < 3", "at character 9: a column or a value is missing"),
        ("µ == 1 && a", "at character 8: write 'and', 'or' or 'not' for '&'"),
        ("cloud < 3a", "at character 9: '3a' is not a number"),
        ("cloud in 3", "at character 10: 'in' needs a list, such as ('a', 'b')"),
        ("cloud in (3 4)", "at character 13: ')' is missing"),
        ("'urban'", "at the end: a comparison is missing"),
        ("a.b == 1", "at character 2: '.b' is not a number"),
        ("f(x)", "at character 2: 'and' or 'or' is missing before this"),
    ] {
        let error = Condition::parse(text).unwrap_err();
        assert_eq!(error.what(), format!("{text}: {what}"));
    }
    let deep = format!("{}a{}", "(".repeat(9000), ")".repeat(9000));
    assert!(Condition::parse(&deep).unwrap_err().what().contains("too many nested brackets"));
    assert!(Condition::parse(&"not ".repeat(9000)).unwrap_err().what().contains("too many"));
}

#[test]
fn missing_columns_are_named() {
    let fault = |text: &str| {
        samples().matching(vec![0, 1, 2], &Condition::parse(text).unwrap()).unwrap_err().to_string()
    };
    assert_eq!(
        fault("split == 'val' and clouds < 3"),
        format!(
            "split == 'val' and clouds < 3: at character 20: there is no column 'clouds' \
             (the columns are {}, cloud, sunny day, note; put text in quotes)",
            BUILT_IN_COLUMNS.join(", ")
        )
    );
    assert_eq!(
        fault("group == 7 and split == 'train'"),
        "no sample fulfils group == 7 and split == 'train' (sample 'a' has group \"7\", split \"train\")"
    );
    assert_eq!(
        fault("label < 3"),
        "label < 3: at character 1: sample 'a': \"urban\" and 3 cannot be compared (compare numbers with \
         numbers, and texts with texts in quotes)"
    );
}

/// The result of a condition for an id, computed with Rust's own operators.
type Says = fn(i64) -> bool;

/// A condition and its expected result.
fn conditions() -> impl Strategy<Value = (String, Says)> {
    prop::sample::select(vec![
        ("id == 1".to_owned(), (|id| id == 1) as Says),
        ("id != 1".to_owned(), |id| id != 1),
        ("id < 2".to_owned(), |id| id < 2),
        ("id <= 1".to_owned(), |id| id <= 1),
        ("id > 0".to_owned(), |id| id > 0),
        ("id >= 2".to_owned(), |id| id >= 2),
        ("id in (0, 2)".to_owned(), |id| id == 0 || id == 2),
    ])
}

proptest! {
    #[test]
    fn arbitrary_text_never_panics(text in "[a-z0-9 ()'\"`\\[\\]<>=!,.+µ-]{0,40}") {
        if let Ok(condition) = Condition::parse(&text) {
            let _ = samples().matching(vec![0, 1, 2], &condition);
        }
    }

    #[test]
    fn not_binds_before_and_before_or(
        all in prop::collection::vec((conditions(), any::<bool>(), any::<bool>()), 1..6)
    ) {
        let mut text = String::new();
        // In disjunctive form: `or` is the outermost operator.
        let mut groups: Vec<Vec<(Says, bool)>> = vec![Vec::new()];
        for (position, ((clause, says), negated, or)) in all.into_iter().enumerate() {
            if position > 0 {
                text += if or { " or " } else { " and " };
                if or {
                    groups.push(Vec::new());
                }
            }
            text += if negated { "not " } else { "" };
            text += &clause;
            groups.last_mut().unwrap().push((says, negated));
        }
        let want: Vec<usize> = (0..3)
            .filter(|id| groups.iter().any(|group| group.iter().all(|(says, negated)| says(*id) != *negated)))
            .map(|id| id as usize)
            .collect();
        prop_assert_eq!(chosen(&text), want, "{}", text);
    }
}
