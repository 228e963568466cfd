//! Merging packed datasets.

use std::path::{Path, PathBuf};

use hsipack_format::{ErrorKind, Result};
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
            for own in masks {
                let ids: Vec<u8> = (0..24).map(|pixel| (pixel + number) as u8 % 7).collect();
                write_mask(folder, &format!("{cube}_{own}"), 4, 6, &ids);
            }
            write_envi(folder, &cube, SHAPE, &values, "")
        })
        .collect();
    let out = folder.join(format!("{name}.hsipack"));
    pack(&inputs, &out, |options| {
        options.mask =
            masks.iter().map(|own| mask(own, &format!("{{dir}}/{{stem}}_{own}.npy"))).collect();
        // At most two cubes in a shard.
        options.layout.shard_size = 500;
        if high > 0 {
            options.classes = vec![format!("gt.1={}", 1 + high).parse().unwrap()];
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
    let mut place = 0;
    for part in [&a, &b, &c] {
        let dataset = Dataset::open(part).unwrap();
        for id in 0..dataset.samples().len() {
            let (own, sample) = (&dataset.stacks()[0], all.samples().get(place).unwrap());
            let before = dataset.samples().get(id).unwrap();
            assert_eq!((&sample.name, &sample.source), (&before.name, &before.source));
            assert_eq!(sample.columns["lab"], part.file_stem().unwrap().to_str().unwrap());
            assert_eq!(stored(stack, place), stored(own, id), "{}", sample.name);
            for name in ["gt", "more"] {
                match own.mask(name) {
                    Some(_) => assert_eq!(ids(stack, name, place), ids(own, name, id)),
                    None => assert_eq!(ids(stack, name, place), [9; 24]),
                }
            }
            place += 1;
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
