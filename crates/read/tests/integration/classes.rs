//! Class ids of masks: counting, and new ids in delivered masks.

use hsipack_read::plan::{Crop, Order, Pad, Patches, Windows};
use hsipack_read::{Class, Dataset, Loader, LoaderOptions, NewIds};
use proptest::prelude::*;
use serde_json::json;

use crate::images::{self, edit};
use crate::support::{StackSpec, Written, mask_value, wide_value, write_dataset, write_sums};

/// Two stacks with a mask `a` of uint8, whose class names are in different orders, and `w` of
/// uint16.
fn made() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let mut stacks = [
        StackSpec::new(14, 10, 7, 5).masks(&["a"]).tile(5, 10),
        StackSpec::new(9, 16, 7, 4).masks(&["a"]).tile(4, 6),
    ];
    stacks.iter_mut().for_each(|stack| stack.wide_masks = vec!["w".into()]);
    let written = write_dataset(
        &folder.path().join("made"),
        &stacks,
        |sample| json!({ "split": (if sample % 2 == 0 { "train" } else { "val" }) }),
    );
    for (stack, names) in [
        ("14x10x7", ["none", "fat", "skin", "bone"].as_slice()),
        ("9x16x7", ["none", "skin", "fat"].as_slice()),
    ] {
        edit(&written.path.join(stack).join("a"), |attributes| {
            attributes.insert("hsipack".into(), json!({ "class_names": names }));
        });
    }
    write_sums(&written.path);
    (folder, written)
}

fn options(set: impl FnOnce(&mut LoaderOptions)) -> LoaderOptions {
    let mut options = images::options(4);
    options.plan.order = Order::Sequential;
    set(&mut options);
    options
}

fn fault(dataset: &Dataset, new: NewIds, set: impl FnOnce(&mut LoaderOptions)) -> String {
    let mut options = options(set);
    options.new_ids = vec![new];
    Loader::new(dataset, options).unwrap_err().to_string()
}

/// The new id of a class of mask `a`, according to the definition.
fn expected(new: &NewIds, names: &[&str], id: u32) -> u32 {
    let named = |class: &Class| match class {
        Class::Id(of) => *of == id,
        Class::Name(name) => names.get(id as usize).is_some_and(|existing| existing == name),
    };
    let assigned = new.classes.iter().find(|(class, _)| named(class)).map(|(_, to)| *to);
    assigned.or(new.other).unwrap_or(id)
}

/// The names of classes in the stack of a sample.
fn names_of(written: &Written, sample: usize) -> &'static [&'static str] {
    match written.shape(sample).rows {
        14 => &["none", "fat", "skin", "bone"],
        _ => &["none", "skin", "fat"],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn masks_and_labels_have_the_new_ids(
        ids in prop::collection::btree_map(3u32..6, 0u32..256, 0..3), skin in prop::option::of(0u32..256),
        ignore in prop::option::of(0u32..256), patches: bool, size in 1u32..6,
    ) {
        let (_folder, written) = made();
        let dataset = Dataset::open(&written.path).unwrap();
        let classes = ids.into_iter().map(|(id, to)| (Class::Id(id), to));
        let named = skin.map(|to| (Class::Name("skin".into()), to));
        let new = NewIds { mask: "a".into(), classes: classes.chain(named).collect(), other: ignore };
        let options = options(|options| {
            options.new_ids = vec![new.clone()];
            options.masks = Some(vec!["w".into(), "a".into()]);
            if patches {
                options.patches = Some(("a".into(), Patches::new(size, size)));
            } else {
                let list = [(0, 1 - size as i32, 2), (5, 3, 4), (8, 7, 8)];
                let windows = Windows::listed((size, size), Pad::Value(1.0), &list).unwrap();
                options.plan.crop = Crop::Windows(windows.into());
            }
        });
        let mut loader = Loader::new(&dataset, options).unwrap();
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            let masks = (batch.mask("a").unwrap(), batch.mask("w").unwrap());
            let (mask, wide) = (masks.0.values::<u8>().unwrap(), masks.1.values::<u16>().unwrap());
            for (position, item) in batch.items().iter().enumerate() {
                let shape = written.shape(item.sample);
                let names = names_of(&written, item.sample);
                let pixel = |row: u32, column: u32| {
                    let row = item.window.row + row as i32;
                    let column = item.window.column + column as i32;
                    let inside = row >= 0 && column >= 0 && row < shape.rows as i32 && column < shape.columns as i32;
                    inside.then_some((row as usize, column as usize))
                };
                for row in 0..size {
                    for column in 0..size {
                        let at = pixel(row, column);
                        if at.is_none() && patches {
                            continue; // mirrored: the other case looks beyond the edge
                        }
                        let old = at.map_or(0, |(row, column)| mask_value(item.sample, row, column));
                        let have = mask[[position, row as usize, column as usize, 0]];
                        prop_assert_eq!(u32::from(have), expected(&new, names, old.into()));
                        let old = at.map_or(0, |(row, column)| wide_value(item.sample, row, column));
                        prop_assert_eq!(wide[[position, row as usize, column as usize, 0]], old);
                    }
                }
                if patches {
                    let centre = pixel(size / 2, size / 2).unwrap();
                    let old = mask_value(item.sample, centre.0, centre.1);
                    prop_assert!(old != 0, "windows are chosen by the dataset's ids");
                    let label = batch.classes().nth(position).unwrap();
                    prop_assert_eq!(label, Some(expected(&new, names, old.into())));
                }
            }
        }
    }
}

#[test]
fn wide_masks_have_new_ids_up_to_65535() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let kept = u32::from(wide_value(0, 1, 1));
    let new = NewIds { mask: "w".into(), classes: vec![(Class::Id(kept), 7)], other: Some(65535) };
    let options = options(|options| {
        options.new_ids = vec![new];
        options.samples = Some(vec![0]);
    });
    let batch = Loader::new(&dataset, options).unwrap().next_batch().unwrap().unwrap();
    let mask = batch.mask("w").unwrap();
    let mask = mask.values::<u16>().unwrap();
    for row in 0..14 {
        for column in 0..10 {
            let is_kept = u32::from(wide_value(0, row, column)) == kept;
            assert_eq!(mask[[0, row, column, 0]], if is_kept { 7 } else { 65535 });
        }
    }
}

#[test]
fn new_ids_that_mean_nothing_are_refused() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let new = |mask: &str, classes: &[(Class, u32)], ignore| NewIds {
        mask: mask.into(),
        classes: classes.to_vec(),
        other: ignore,
    };
    let id = |id, to| (Class::Id(id), to);
    let name = |name: &str, to| (Class::Name(name.into()), to);
    for (ids, what) in [
        (new("a", &[name("liver", 1)], None), "its classes: bone, fat, none, skin"),
        (new("w", &[name("liver", 1)], None), "it does not name its classes; give their ids"),
        (new("a", &[id(1, 256)], None), "class id 256 is too large: mask a is uint8"),
        (new("a", &[id(256, 1)], None), "class id 256 is too large: mask a is uint8"),
        (new("a", &[id(1, 2)], Some(300)), "class id 300 is too large: mask a is uint8"),
        (new("a", &[id(1, 2), name("fat", 3)], None), "class 1 of mask a has two new ids"),
        (new("b", &[id(1, 2)], None), "new class ids are given for mask b, which is not read"),
    ] {
        let error = fault(&dataset, ids, |_| {});
        assert!(error.contains(what), "{error}");
    }
    let unread = new("a", &[id(1, 2)], None);
    let error = fault(&dataset, unread, |options| options.masks = Some(Vec::new()));
    assert!(error.contains("which is not read"), "{error}");
    edit(&written.path.join("14x10x7/a"), |attributes| {
        attributes.insert("hsipack".into(), json!({ "layers": ["x", "y"] }));
    });
    write_sums(&written.path);
    let dataset = Dataset::open(&written.path).unwrap();
    let error = fault(&dataset, new("a", &[id(1, 2)], None), |_| {});
    assert!(error.contains("boolean layers"), "{error}");
}

#[test]
fn pixels_of_classes_are_counted() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let new =
        NewIds { mask: "a".into(), classes: vec![(Class::Name("skin".into()), 9)], other: None };
    for samples in [(0..9).collect::<Vec<usize>>(), vec![7, 2]] {
        for new in [None, Some(&new)] {
            let mut counts = std::collections::BTreeMap::<u32, [u64; 2]>::new();
            for sample in &samples {
                let shape = written.shape(*sample);
                for pixel in 0..shape.pixels() {
                    let old = mask_value(*sample, pixel / shape.columns, pixel % shape.columns);
                    let id = new.map_or(old.into(), |new| {
                        expected(new, names_of(&written, *sample), old.into())
                    });
                    counts.entry(id).or_default()[sample % 2] += 1;
                }
            }
            let counted = dataset.class_pixels(&samples, "a", new, 3).unwrap();
            let found: Vec<(u32, u64)> =
                counted.iter().map(|class| (class.id, class.pixels)).collect();
            let want: Vec<_> = counts.iter().map(|(id, n)| (*id, n[0] + n[1])).collect();
            assert_eq!(found, want);
            for class in &counted {
                for (index, split) in ["train", "val"].into_iter().enumerate() {
                    let pixels = class.splits.get(split).copied().unwrap_or(0);
                    assert_eq!(pixels, counts[&class.id][index]);
                }
            }
            assert_eq!(counted[0].name.as_deref(), if new.is_none() { Some("none") } else { None });
        }
    }
    assert!(dataset.class_pixels(&[0], "b", None, 1).unwrap_err().to_string().contains("no mask"));
    edit(&written.path.join("14x10x7/a"), |attributes| {
        attributes.insert("hsipack".into(), json!({ "layers": ["x", "y", "z", "never"] }));
    });
    write_sums(&written.path);
    let dataset = Dataset::open(&written.path).unwrap();
    let error = dataset.class_pixels(&(0..9).collect::<Vec<_>>(), "a", None, 1).unwrap_err();
    assert!(error.to_string().contains("different layers"), "{error}");
    let of_stack: Vec<usize> = (0..9).filter(|sample| written.shape(*sample).rows == 14).collect();
    let counted = dataset.class_pixels(&of_stack, "a", None, 1).unwrap();
    for (layer, class) in counted.iter().enumerate() {
        let set = |sample: usize| {
            (0..140).filter(|at| mask_value(sample, at / 10, at % 10) >> layer & 1 == 1).count()
        };
        let pixels: usize = of_stack.iter().map(|sample| set(*sample)).sum();
        assert_eq!((class.id, class.pixels), (layer as u32, pixels as u64));
        assert_eq!(class.name.as_deref(), Some(["x", "y", "z", "never"][layer]));
    }
    assert_eq!(counted.len(), 4);
}
