//! Columns of packed samples: tables, lists, splits of whole samples, and datasets that are open
//! meanwhile.

use std::path::{Path, PathBuf};

use hsipack_pack::columns::{ColumnsOptions, Report, set_columns};
use hsipack_pack::progress::Progress;
use hsipack_pack::split::{By, SplitOptions, split_samples};
use hsipack_pack::table::TableOptions;
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_store::Dataset;

use crate::conversion::{cubes, options, pack};
use crate::packing::stored;

const CUBES: usize = 6;

fn packed(folder: &Path) -> PathBuf {
    cubes(folder, CUBES, 0);
    let out = folder.join("out");
    pack(&options(folder, &out));
    out
}

/// The names of the samples.
fn names(out: &Path) -> Vec<String> {
    Dataset::open(out).unwrap().samples().names().map(str::to_owned).collect()
}

fn set(out: &Path, table: &str) -> hsipack_format::Result<Report> {
    let options = ColumnsOptions { dataset: out.to_owned(), ..ColumnsOptions::default() };
    set_columns(&options, Some(table.as_bytes()), &Progress::default())
}

fn splits(dataset: &Dataset) -> Vec<Option<String>> {
    let samples = dataset.samples();
    (0..samples.len()).map(|id| samples.splits().get(id).cloned()).collect()
}

fn check_intact(out: &Path) {
    let report = validate(out, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn columns_change_and_an_open_dataset_keeps_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let names = names(&out);
    let before = Dataset::open_to_read(&out, None).unwrap();
    let old = before.fingerprint().to_owned();
    let table = serde_json::json!([
        { "name": names[0], "split": "train", "label": "oak", "age": 3, "id": 7 },
        { "name": names[2], "split": "train", "label": null },
        { "name": names[3], "split": "test" },
    ]);
    let report = set(&out, &table.to_string()).unwrap();
    assert_eq!((report.samples, report.splits["train"], report.splits["test"]), (3, 2, 1));
    assert_eq!(report.columns, ["age", "label", "split", "table.id"]);
    let after = Dataset::open(&out).unwrap();
    assert_eq!(after.fingerprint(), report.fingerprint);
    assert_ne!(after.fingerprint(), old);
    let sample = after.samples().get(0).unwrap();
    assert_eq!(sample.columns["age"], 3);
    assert_eq!(sample.columns["table.id"], 7);
    assert_eq!(sample.label, Some("oak".into()));
    assert_eq!(splits(&before), vec![None; CUBES]);
    // The open dataset reads the same cubes, in the new folder.
    for stack in 0..before.stacks().len() {
        let (ours, theirs) = (&before.stacks()[stack], &after.stacks()[stack]);
        assert_eq!(stored(ours, 0), stored(theirs, 0));
    }
    assert_eq!(after.samples_at(&old), None, "an earlier state had other splits");
    let error = Dataset::open_to_read(&out, Some(&old)).unwrap_err();
    assert!(error.what().contains("columns were changed") && error.remedy().is_some(), "{error}");
    let error = Dataset::open_to_read(&out, Some("0000")).unwrap_err();
    assert!(error.what().contains("never had it"), "{error}");
    check_intact(&out);
    // Null removes a split and its statistics.
    let table = format!("[{{\"name\": {:?}, \"split\": null}}]", names[3]);
    let report = set(&out, &table).unwrap();
    assert_eq!(report.splits.keys().collect::<Vec<_>>(), ["train"]);
    let image = &Dataset::open(&out).unwrap().stacks()[0].image.meta().clone();
    let recorded = image.split_statistics().unwrap();
    assert!(recorded.iter().all(|(split, _)| split == "train"));
    assert_eq!(set(&out, &table).unwrap().samples, 0, "nothing changes");
    check_intact(&out);
}

#[test]
fn tables_that_do_not_fit_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let before = Dataset::open(&out).unwrap().fingerprint().to_owned();
    for (table, problem) in [
        (r#"[{"name": "nothing", "label": 1}]"#, "belong to no sample"),
        (r#"[{"label": 1}]"#, "no column `name`"),
        (r#"{"name": [1"#, "not JSON"),
        ("[]", "no column `name`"),
    ] {
        let error = set(&out, table).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        assert_eq!(Dataset::open(&out).unwrap().fingerprint(), before);
    }
    assert!(!folder.path().join("out.partial").exists());
}

#[test]
fn files_and_lists_give_columns() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let names = names(&out);
    let table = folder.path().join("t.csv");
    std::fs::write(&table, format!("file,kind,code\n{}.npy,oak,3\nother.npy,elm,4\n", names[1]))
        .unwrap();
    let list = folder.path().join("train.txt");
    std::fs::write(&list, format!("{}\n{}.npy\n", names[0], names[1])).unwrap();
    let options = ColumnsOptions {
        dataset: out.clone(),
        table: vec![table],
        joins: TableOptions {
            table_key: vec!["file={stem}.npy".parse().unwrap()],
            split: vec![format!("train={}", list.display()).parse().unwrap()],
            label_column: Some("kind".to_owned()),
            ..TableOptions::default()
        },
        ..ColumnsOptions::default()
    };
    let report = set_columns(&options, None, &Progress::default()).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("other.npy")), "{:?}", report.notes);
    let dataset = Dataset::open(&out).unwrap();
    assert_eq!(report.splits["train"], 2);
    let sample = dataset.samples().get(1).unwrap();
    assert_eq!((sample.label, sample.split.as_deref()), (Some("oak".into()), Some("train")));
    assert_eq!(sample.columns["code"], 3);
}

#[test]
fn groups_are_not_divided_and_labels_are_balanced() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let rows: Vec<_> = (names(&out).iter().enumerate())
        .map(|(number, name)| {
            serde_json::json!({ "name": name, "group": format!("p{}", number / 2), "label": number % 2 })
        })
        .collect();
    set(&out, &serde_json::json!(rows).to_string()).unwrap();
    let options = SplitOptions {
        dataset: out.clone(),
        by: By::Groups,
        shares: "train=0.7,val=rest".parse().unwrap(),
        ..SplitOptions::default()
    };
    let dry =
        split_samples(&SplitOptions { dry_run: true, ..options.clone() }, &Progress::default());
    assert!(splits(&Dataset::open(&out).unwrap()).iter().all(Option::is_none));
    let report = split_samples(&options, &Progress::default()).unwrap();
    assert_eq!(report.units, 3);
    assert_eq!(dry.unwrap().splits[0].samples, report.splits[0].samples);
    for label in &report.labels {
        assert_eq!((label.samples, &label.splits[..]), (3, &[2, 1][..]));
    }
    let splits = splits(&Dataset::open(&out).unwrap());
    assert!(splits.chunks(2).all(|pair| pair[0] == pair[1] && pair[0].is_some()), "{splits:?}");
    let error = split_samples(&options, &Progress::default()).unwrap_err();
    assert!(error.to_string().contains("already have splits"), "{error}");
    let again = SplitOptions { force: true, by: By::Samples, ..options };
    split_samples(&again, &Progress::default()).unwrap();
    let wrong = SplitOptions { mask: "gt".to_owned(), ..again };
    assert!(split_samples(&wrong, &Progress::default()).unwrap_err().what().contains("mask"));
    check_intact(&out);
}

#[test]
fn empty_cells_of_the_label_column_remove_labels() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let names = names(&out);
    set(&out, &format!("{{\"name\": {names:?}, \"label\": [1, 2, 3, 4, 5, 6]}}")).unwrap();
    let table = folder.path().join("t.csv");
    std::fs::write(&table, format!("name,kind\n{},oak\n{},\n", names[0], names[1])).unwrap();
    let options = ColumnsOptions {
        dataset: out.clone(),
        table: vec![table.clone()],
        joins: TableOptions { label_column: Some("kind".to_owned()), ..TableOptions::default() },
        ..ColumnsOptions::default()
    };
    set_columns(&options, None, &Progress::default()).unwrap();
    let labels = || {
        let dataset = Dataset::open(&out).unwrap();
        [0, 1, 2].map(|id| dataset.samples().get(id).unwrap().label)
    };
    assert_eq!(labels(), [Some("oak".into()), None, Some(3.into())]);
    // A column without any value is no column any more.
    std::fs::write(&table, format!("name,kind\n{},\n{},\n", names[0], names[1])).unwrap();
    let options = ColumnsOptions { joins: TableOptions::default(), ..options };
    let report = set_columns(&options, None, &Progress::default()).unwrap();
    assert_eq!((report.samples, &report.columns[..]), (1, &["kind".to_owned()][..]));
    let dataset = Dataset::open(&out).unwrap();
    assert!(!dataset.samples().get(0).unwrap().columns.contains_key("kind"));
    check_intact(&out);
}

#[test]
fn a_change_records_statistics_of_splits_that_had_none() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let names = names(&out);
    set(&out, &format!("{{\"name\": {names:?}, \"split\": [1, 1, 1, 2, 2, 2]}}")).unwrap();
    let recorded = || {
        let dataset = Dataset::open(&out).unwrap();
        let splits = dataset.stacks()[0].image.meta().split_statistics().unwrap();
        splits.into_iter().map(|(split, _)| split).collect::<Vec<_>>()
    };
    assert_eq!(recorded(), ["1", "2"]);
    let file = Dataset::open(&out).unwrap().stacks()[0].image.folder().join("zarr.json");
    let mut metadata: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let attributes = metadata["attributes"]["hsipack"].as_object_mut().unwrap();
    attributes.remove("split_stats").unwrap();
    let below = file.strip_prefix(&out).unwrap().to_str().unwrap();
    crate::damage::put(&out, below, &serde_json::to_vec(&metadata).unwrap());
    assert!(recorded().is_empty());
    set(&out, &format!("[{{\"name\": {:?}, \"note\": 1}}]", names[0])).unwrap();
    assert_eq!(recorded(), ["1", "2"]);
    check_intact(&out);
}

#[test]
fn many_small_labels_keep_the_shares() {
    let folder = tempfile::tempdir().unwrap();
    cubes(folder.path(), 40, 0);
    let out = folder.path().join("out");
    pack(&options(folder.path(), &out));
    let names = names(&out);
    let labels: Vec<usize> = (0..40).map(|number| number / 2).collect();
    set(&out, &format!("{{\"name\": {names:?}, \"label\": {labels:?}}}")).unwrap();
    let options = SplitOptions {
        dataset: out,
        by: By::Samples,
        shares: "train=0.7,val=0.2,test=rest".parse().unwrap(),
        ..SplitOptions::default()
    };
    let report = split_samples(&options, &Progress::default()).unwrap();
    let samples: Vec<usize> = report.splits.iter().map(|split| split.samples).collect();
    assert_eq!(samples, [28, 8, 4]);
    for label in &report.labels {
        assert_eq!(label.samples, 2);
        assert_eq!(label.splits.iter().sum::<usize>(), 2);
    }
}
