//! Merging packed datasets.

use std::path::{Path, PathBuf};

use hsipack_format::{ErrorKind, Result};
use hsipack_pack::columns::{ColumnsOptions, set_columns};
use hsipack_pack::merge::{MergeOptions, Report, merge};
use hsipack_pack::progress::Progress;
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_store::{Dataset, Stack};

use crate::packing::{mask, pack, stored, varied, write_envi, write_mask};

const SHAPE: [usize; 3] = [4, 6, 5];

/// Packs cubes called `NAME0`, `NAME1`, … with these masks; `high` adds to the ids of the masks.
fn packed(folder: &Path, name: &str, count: usize, masks: &[&str], high: u16) -> PathBuf {
    let inputs: Vec<PathBuf> = (0..count)
        .map(|number| {
            let cube = format!("{name}{number}");
            let mut values = varied(SHAPE.iter().product());
            values[0] = number as f32 + 0.5;
            for mask_name in masks {
                let ids: Vec<u8> = (0..24).map(|pixel| (pixel + number) as u8 % 7).collect();
                write_mask(folder, &format!("{cube}_{mask_name}"), 4, 6, &ids);
            }
            write_envi(folder, &cube, SHAPE, &values, "")
        })
        .collect();
    let out = folder.join(format!("{name}.hsipack"));
    pack(&inputs, &out, |options| {
        options.mask = masks
            .iter()
            .map(|mask_name| mask(mask_name, &format!("{{dir}}/{{stem}}_{mask_name}.npy")))
            .collect();
        // At most two cubes in a shard.
        options.layout.shard_size = 500;
        if high > 0 {
            options.remap_classes = vec![format!("gt.1={}", 1 + high).parse().unwrap()];
        }
    });
    out
}

fn merged(parts: &[&Path], output: &Path, set: impl Fn(&mut MergeOptions)) -> Result<Report> {
    let mut options = MergeOptions {
        datasets: parts.iter().map(|part| part.to_path_buf()).collect(),
        output: output.to_owned(),
        ..MergeOptions::default()
    };
    set(&mut options);
    merge(&options, &Progress::default())
}

/// The ids of a mask of a sample.
fn ids(stack: &Stack, name: &str, index: usize) -> Vec<u16> {
    let mask = stack.mask(name).unwrap();
    let mut bytes = vec![0; mask.sample_bytes()];
    mask.read_sample(index, &mut bytes).unwrap();
    match mask.meta().dtype.size() {
        2 => bytes.as_chunks::<2>().0.iter().map(|id| u16::from_le_bytes(*id)).collect(),
        _ => bytes.iter().map(|id| u16::from(*id)).collect(),
    }
}

#[test]
fn samples_of_all_datasets_keep_their_values() {
    let folder = tempfile::tempdir().unwrap();
    let a = packed(folder.path(), "a", 3, &["gt"], 0);
    let b = packed(folder.path(), "b", 3, &["gt", "more"], 300);
    let c = packed(folder.path(), "c", 2, &[], 0);
    let out = folder.path().join("all");
    let report = merged(&[&a, &b, &c], &out, |options| {
        options.column = Some("lab".to_owned());
        options.mask_fill = 9;
    })
    .unwrap();
    assert_eq!((report.samples, &report.parts[..]), (8, &[3, 3, 2][..]));
    assert_eq!(report.masks, ["gt", "more"]);
    assert!(report.linked_shards > 0 && report.written_shards > 0, "{report:?}");
    let all = Dataset::open(&out).unwrap();
    let stack = &all.stacks()[0];
    let mut merged_id = 0;
    for part in [&a, &b, &c] {
        let dataset = Dataset::open(part).unwrap();
        for id in 0..dataset.samples().len() {
            let (part_stack, sample) =
                (&dataset.stacks()[0], all.samples().get(merged_id).unwrap());
            let before = dataset.samples().get(id).unwrap();
            assert_eq!((&sample.name, &sample.source), (&before.name, &before.source));
            assert_eq!(sample.columns["lab"], part.file_stem().unwrap().to_str().unwrap());
            assert_eq!(stored(stack, merged_id), stored(part_stack, id), "{}", sample.name);
            for name in ["gt", "more"] {
                match part_stack.mask(name) {
                    Some(_) => assert_eq!(ids(stack, name, merged_id), ids(part_stack, name, id)),
                    None => assert_eq!(ids(stack, name, merged_id), [9; 24]),
                }
            }
            merged_id += 1;
        }
    }
    assert!(all.stacks()[0].image.meta().statistics().is_ok());
    let options = ValidateOptions { source: true, ..ValidateOptions::default() };
    let report = validate(&out, &options, &Progress::default()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    assert_eq!(report.samples, 8);
}

#[test]
fn datasets_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let a = packed(folder.path(), "a", 2, &["gt"], 0);
    let out = folder.path().join("all");
    let error = merged(&[&a, &a], &out, |_| {}).unwrap_err();
    assert!(error.to_string().contains("two datasets have a sample a0"), "{error}");
    merged(&[&a, &a], &out, |options| options.prefix = true).unwrap_err();
    assert!(!out.exists() && !folder.path().join("all.partial").exists());
    let other = folder.path().join("other.hsipack");
    let inputs = [folder.path().join("a0.hdr")];
    pack(&inputs, &other, |options| options.values.scale = "4".parse().unwrap());
    let error = merged(&[&a, &other], &out, |options| options.prefix = true).unwrap_err();
    assert!(error.what().contains("the scale factor") && error.remedy().is_some(), "{error}");
    let error = merged(&[&a], &out, |_| {}).unwrap_err();
    assert!(error.what().contains("at least two"), "{error}");
    let b = packed(folder.path(), "b", 1, &[], 0);
    merged(&[&a, &b], &out, |options| options.prefix = true).unwrap();
    let names: Vec<String> =
        Dataset::open(&out).unwrap().samples().names().map(str::to_owned).collect();
    assert_eq!(names, ["a/a0", "a/a1", "b/b0"]);
    let error = merged(&[&a, &b], &out, |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.what().contains("output exists"), "{error}");
}

/// The splits of a dataset that have statistics.
fn splits_with_statistics(dataset: &Path) -> Vec<String> {
    let dataset = Dataset::open(dataset).unwrap();
    let splits = dataset.stacks()[0].image.meta().split_statistics().unwrap();
    splits.into_iter().map(|(split, _)| split).collect()
}

fn check_intact(dataset: &Path) {
    let report = validate(dataset, &ValidateOptions::default(), &Progress::default()).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

#[test]
fn datasets_become_splits_with_statistics_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let a = packed(folder.path(), "a", 3, &[], 0);
    let b = packed(folder.path(), "b", 2, &[], 0);
    let out = folder.path().join("all");
    merged(&[&a, &b], &out, |options| options.column = Some("split".to_owned())).unwrap();
    assert_eq!(splits_with_statistics(&out), ["a", "b"]);
    check_intact(&out);
    let (all, part) = (Dataset::open(&out).unwrap(), Dataset::open(&b).unwrap());
    let (_, stats) = all.stacks()[0].image.meta().split_statistics().unwrap().remove(1);
    assert_eq!(stats, part.stacks()[0].image.meta().statistics().unwrap());
}

#[test]
fn a_column_with_values_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let a = packed(folder.path(), "a", 2, &[], 0);
    let b = packed(folder.path(), "b", 2, &[], 0);
    let table = br#"[{"name": "b1", "split": "train", "lab": "x"}, {"name": "b0", "note": null}]"#;
    let options = ColumnsOptions { dataset: b.clone(), ..ColumnsOptions::default() };
    set_columns(&options, Some(table), &Progress::default()).unwrap();
    let out = folder.path().join("all");
    for (column, text) in [("split", "b1"), ("lab", "b1"), ("", "no name"), ("id", "itself")] {
        let set = |options: &mut MergeOptions| options.column = Some(column.to_owned());
        let error = merged(&[&a, &b], &out, set).unwrap_err();
        assert!(error.what().contains(text) && error.remedy().is_some(), "{error}");
    }
    merged(&[&a, &b], &out, |options| options.column = Some("note".to_owned())).unwrap();
    let sample = Dataset::open(&out).unwrap().samples().get(3).unwrap();
    assert_eq!((sample.split.as_deref(), &sample.columns["note"]), (Some("train"), &"b".into()));
}

#[test]
fn shards_behind_symbolic_links_are_linked_and_cut_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let a = packed(folder.path(), "a", 2, &[], 0);
    let b = packed(folder.path(), "b", 2, &[], 0);
    let stack = Dataset::open(&a).unwrap().stacks()[0].image.folder().to_owned();
    let shard = Dataset::open(&a).unwrap().stacks()[0].image.shard_path(0);
    // As datasets in git-annex have them.
    std::fs::rename(&shard, stack.join("../annexed")).unwrap();
    let up = shard.strip_prefix(&stack).unwrap().components().count();
    std::os::unix::fs::symlink(format!("{}annexed", "../".repeat(up)), &shard).unwrap();
    let out = folder.path().join("deeper/all");
    std::fs::create_dir(folder.path().join("deeper")).unwrap();
    let report = merged(&[&a, &b], &out, |_| {}).unwrap();
    assert_eq!(report.linked_shards, 2);
    check_intact(&out);
    let file = std::fs::OpenOptions::new().write(true).open(&shard).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5).unwrap();
    let again = folder.path().join("again");
    let error = merged(&[&a, &b], &again, |_| {}).unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Damaged, Some(&*shard)));
    assert!(!again.exists());
}

#[test]
fn chunks_with_blocks_of_other_sizes_are_merged() {
    let folder = tempfile::tempdir().unwrap();
    let a = packed(folder.path(), "a", 2, &[], 0);
    let b = folder.path().join("b.hsipack");
    let inputs = [folder.path().join("a0.hdr")];
    pack(&inputs, &b, |options| options.layout.block_size = 4096);
    let out = folder.path().join("all");
    merged(&[&a, &b], &out, |options| options.prefix = true).unwrap();
    check_intact(&out);
    let zstd = folder.path().join("zstd.hsipack");
    pack(&inputs, &zstd, |options| options.layout.codec = "zstd".parse().unwrap());
    let error = merged(&[&a, &zstd], &folder.path().join("no"), |options| options.prefix = true);
    let error = error.unwrap_err();
    assert!(
        error.what().contains("is zstd (shuffle byte, 2-byte elements), but lz4hc ("),
        "{error}"
    );
}
