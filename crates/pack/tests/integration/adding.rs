//! Masks that are added to a packed dataset, beside readers, and how open datasets see them.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use hsipack_format::{MaskValue, Result};
use hsipack_pack::add_mask::{Adding, MaskIds, NewMask, Replace};
use hsipack_pack::progress::Progress;
use hsipack_pack::split::{By, SplitOptions, split};
use hsipack_pack::validate::{ValidateOptions, validate};
use hsipack_store::Dataset;
use serde_json::json;

use crate::conversion::{cubes, options, pack};

/// Cubes of the dataset.
const CUBES: usize = 5;

fn packed(folder: &Path) -> PathBuf {
    cubes(folder, CUBES, 0);
    let out = folder.join("out");
    pack(&options(folder, &out));
    out
}

/// Ids that encode their place, and an error at one sample.
struct Places {
    columns: usize,
    add: u16,
    fails_at: Option<usize>,
    reads: Vec<(usize, usize, Range<usize>)>,
}

impl Places {
    fn id(&self, mask: usize, sample: usize, pixel: usize) -> u16 {
        (mask * 100 + sample * 10 + pixel) as u16 % 200 + self.add
    }
}

impl MaskIds for Places {
    fn greatest(&mut self, _: usize) -> Result<MaskValue> {
        Ok((199 + self.add).into())
    }

    fn read(
        &mut self,
        mask: usize,
        sample: usize,
        rows: Range<usize>,
        ids: &mut Vec<MaskValue>,
    ) -> Result<()> {
        if self.fails_at == Some(sample) {
            return Err(hsipack_format::Error::conflict("no ids"));
        }
        self.reads.push((mask, sample, rows.clone()));
        ids.clear();
        let pixels = rows.start * self.columns..rows.end * self.columns;
        ids.extend(pixels.map(|pixel| MaskValue::from(self.id(mask, sample, pixel))));
        Ok(())
    }
}

fn add(out: &Path, names: &[&str], force: bool, ids: &mut Places) -> Result<()> {
    let all = names.iter().map(|name| (*name).to_owned()).collect();
    let replace = if force { Replace::Added } else { Replace::Never };
    let adding = Adding::begin(out, all, replace)?;
    let mask = |name: &&str| NewMask {
        name: (*name).to_owned(),
        class_names: vec![Some(vec!["none".to_owned(), "a".to_owned()])],
        class_colors: Vec::new(),
        recipe: json!({ "test": true }),
    };
    let masks: Vec<NewMask> = names.iter().map(mask).collect();
    adding.write(&masks, "a command", ids, &Progress::default())?;
    adding.commit()
}

fn places(add: u16) -> Places {
    Places { columns: 5, add, fails_at: None, reads: Vec::new() }
}

fn check_mask(dataset: &Dataset, name: &str, number: usize, ids: &Places) {
    let mask = dataset.stacks()[0].mask(name).unwrap();
    for sample in 0..CUBES {
        let mut bytes = vec![0; mask.sample_bytes()];
        mask.read_sample(sample, &mut bytes).unwrap_or_else(|error| panic!("{error}"));
        let wide = mask.meta().dtype.size() == 2;
        let got: Vec<u16> = match wide {
            false => bytes.iter().copied().map(u16::from).collect(),
            true => bytes.as_chunks::<2>().0.iter().map(|id| u16::from_le_bytes(*id)).collect(),
        };
        assert!(got.iter().enumerate().all(|(pixel, id)| *id == ids.id(number, sample, pixel)));
    }
}

fn check_valid(out: &Path) {
    let options = ValidateOptions { source: true, ..ValidateOptions::default() };
    let report = validate(out, &options, &Progress::default()).unwrap();
    assert!(report.ok && report.unchecked.is_empty(), "{report:?}");
    assert_eq!(report.sources, CUBES);
}

#[test]
fn several_masks_are_added_at_once_and_asked_for_once_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    for (names, shift) in [(["a", "b"], 0), (["d", "e"], 300)] {
        let mut ids = places(shift);
        add(&out, &names, false, &mut ids).unwrap();
        let dataset = Dataset::open(&out).unwrap();
        for (number, name) in names.into_iter().enumerate() {
            check_mask(&dataset, name, number, &ids);
            let meaning = dataset.stacks()[0].mask(name).unwrap().meta().mask_meaning();
            assert_eq!(meaning.class_names, Some(vec!["none".into(), "a".into()]));
            let origin = meaning.origin.unwrap();
            assert_eq!(
                (origin.command.as_str(), origin.recipe),
                ("a command", json!({ "test": true }))
            );
        }
        // The rows of one chunk at a time.
        let of = |sample| [0, 1].map(|mask| [(mask, sample, 0..4), (mask, sample, 4..6)]);
        let want: Vec<_> = (0..CUBES).flat_map(of).flatten().collect();
        assert_eq!(ids.reads, want);
    }
    check_valid(&out);
}

#[test]
fn an_error_at_the_last_sample_leaves_everything_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let before = Dataset::open(&out).unwrap();
    let mut ids = Places { fails_at: Some(CUBES - 1), ..places(0) };
    let error = add(&out, &["a"], false, &mut ids).unwrap_err();
    assert_eq!(error.what(), "no ids");
    assert!(!hsipack_store::folder::partial(&out).exists());
    assert!(!out.join("6x5x4/a").exists());
    assert_eq!(Dataset::open(&out).unwrap().fingerprint(), before.fingerprint());
    check_valid(&out);
}

#[test]
fn an_open_dataset_goes_on_when_masks_are_added_and_ends_when_they_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let before = Dataset::open(&out).unwrap();
    let mut ids = places(0);
    add(&out, &["a"], false, &mut ids).unwrap();
    let with_a = Dataset::open(&out).unwrap();
    add(&out, &["b"], false, &mut places(0)).unwrap();
    // Opened for the first time now.
    check_mask(&with_a, "a", 0, &ids);
    let image = &before.stacks()[0].image;
    image.read_sample(0, &mut vec![0; image.sample_bytes()]).unwrap();
    // The open dataset is unchanged: it lacks the masks that were added since.
    let names = |dataset: &Dataset| -> Vec<String> {
        dataset.stacks()[0].masks.iter().map(|mask| mask.name().to_owned()).collect()
    };
    let as_of = |fingerprint: &str| Dataset::open(&out).unwrap().as_it_was(fingerprint).unwrap();
    assert_eq!(names(&as_of(before.fingerprint()).unwrap()), names(&before));
    assert_eq!(names(&as_of(with_a.fingerprint()).unwrap()), names(&with_a));
    let open = Dataset::open(&out).unwrap();
    add(&out, &["a"], true, &mut places(1)).unwrap();
    // The mask would be a different one.
    let mask = open.stacks()[0].mask("a").unwrap();
    let error = mask.read_sample(0, &mut vec![0; mask.sample_bytes()]).unwrap_err();
    assert!(error.what().contains("was replaced"), "{error}");
    assert!(as_of(open.fingerprint()).is_none() && as_of(before.fingerprint()).is_none());
    check_mask(&Dataset::open(&out).unwrap(), "a", 0, &places(1));
    check_valid(&out);
}

#[test]
fn names_that_are_taken_or_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    add(&out, &["a"], false, &mut places(0)).unwrap();
    for (names, force, what) in [
        (vec!["a"], false, "already has a mask a"),
        (vec!["mask"], true, "was packed with the cubes"),
        (vec!["b", "b"], true, "two masks have the name b"),
        (vec!["image"], true, "cannot be the name"),
        (vec!["../b"], true, "cannot be the name"),
        (vec![""], true, "cannot be the name"),
    ] {
        let error = add(&out, &names, force, &mut places(0)).unwrap_err();
        assert!(error.what().contains(what), "{error}");
        assert!(error.remedy().is_some());
        assert!(!hsipack_store::folder::partial(&out).exists());
    }
}

#[test]
fn whoever_opens_and_reads_while_masks_are_added_never_sees_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let out = packed(folder.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            struct End<'a>(&'a AtomicBool);
            impl Drop for End<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _end = End(&done);
            for number in 0..8 {
                let options = SplitOptions {
                    dataset: out.clone(),
                    mask: "mask".into(),
                    by: By::Pixels,
                    shares: "a=0.5,b=rest".parse().unwrap(),
                    seed: number,
                    name: Some(format!("n{number}")),
                    command: "hsipack split".into(),
                    ..SplitOptions::default()
                };
                split(&options, &Progress::default()).unwrap();
            }
        });
        scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let dataset = Dataset::open(&out).unwrap_or_else(|error| panic!("{error}"));
                let stack = &dataset.stacks()[0];
                assert!(stack.masks.len() >= last && stack.masks.len() % 2 == 1);
                last = stack.masks.len();
                for array in std::iter::once(&stack.image).chain(&stack.masks) {
                    array.read_sample(CUBES - 1, &mut vec![0; array.sample_bytes()]).unwrap();
                }
            }
        });
    });
    assert_eq!(Dataset::open(&out).unwrap().stacks()[0].masks.len(), 17);
    check_valid(&out);
}
