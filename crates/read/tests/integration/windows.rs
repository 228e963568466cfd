//! Windows that reach beyond the edge, patches around labelled pixels, and the chunks that are kept
//! in memory for them.

use hsipack_read::plan::{Crop, Order, Pad, Patches, Regions, Windows};
use hsipack_read::{CacheKind, Dataset, Error, Loader, LoaderOptions};
use proptest::prelude::*;
use serde_json::json;

use crate::images;
use crate::support::{StackSpec, Written, mask_value, write_dataset};

/// Two stacks with different chunks and shards.
fn made() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let stacks = [
        StackSpec::new(14, 10, 7, 5).masks(&["a"]).tile(5, 10),
        StackSpec::new(9, 16, 7, 4).masks(&["a"]).tile(4, 6),
    ];
    let written = write_dataset(&folder.path().join("made"), &stacks, |_| json!({}));
    (folder, written)
}

fn options(batch_size: usize, crop: Crop) -> LoaderOptions {
    let mut options = images::options(batch_size);
    (options.plan.crop, options.plan.order) = (crop, Order::Sequential);
    options
}

/// Walks `steps` along an axis, and turns round at its ends.
fn walked(steps: i32, length: i32) -> i32 {
    let (mut at, mut step) = (0, 1);
    for _ in 0..steps.abs() {
        if length == 1 {
            return 0;
        }
        if !(0..length).contains(&(at + step)) {
            step = -step;
        }
        at += step;
    }
    at
}

/// The pixel of the cube that a window has at a coordinate; `None` if it is filled with a value.
fn pixel(coordinate: i32, length: usize, pad: Pad) -> Option<usize> {
    let length = length as i32;
    let at = match pad {
        _ if (0..length).contains(&coordinate) => coordinate,
        Pad::Edge if coordinate < 0 => 0,
        Pad::Edge => length - 1,
        Pad::Reflect => walked(coordinate, length),
        Pad::Value(_) => return None,
    };
    Some(at as usize)
}

fn pad_strategy() -> impl Strategy<Value = Pad> {
    prop::sample::select(vec![Pad::Reflect, Pad::Edge, Pad::Value(-1.5), Pad::Value(f64::NAN)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn windows_hold_what_the_padded_cube_holds(
        rows in 1u32..30, columns in 1u32..30, pad in pad_strategy(), cache in 0usize..4, chosen: bool,
        places in prop::collection::vec((0usize..9, any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..12)
    ) {
        let (_folder, written) = made();
        let dataset = Dataset::open(&written.path).unwrap();
        let shape = |sample: usize| dataset.sample(sample).unwrap().shape;
        let list: Vec<(usize, i32, i32)> = places
            .into_iter()
            .map(|(sample, row, column)| {
                // From the first place at which the window contains a pixel of the cube to the last one.
                let at = |index: prop::sample::Index, size: u32, length: usize| {
                    index.index(size as usize + length - 1) as i32 - size as i32 + 1
                };
                let shape = shape(sample);
                (sample, at(row, rows, shape.rows), at(column, columns, shape.columns))
            })
            .collect();
        let crop = Crop::Windows(Windows::listed((rows, columns), pad, &list).unwrap().into());
        let mut options = options(4, crop);
        (options.cache, options.cache_bytes) = (CacheKind::ALL[cache], 1 << 20);
        let bands = [6, 0, 3];
        options.bands = chosen.then(|| bands.to_vec());
        let bands = options.bands.as_deref().map_or(&[0, 1, 2, 3, 4, 5, 6][..], |_| &bands[..]);
        let mut loader = Loader::new(&dataset, options).unwrap();
        // In the second epoch, chunks come from the cache.
        for _ in 0..2 {
            let mut number = 0;
            for batch in loader.epoch() {
                let batch = batch.unwrap();
                let (image, mask) = (batch.image_f16().unwrap(), batch.mask("a").unwrap());
                let mask = mask.values::<u8>().unwrap();
                for (position, item) in batch.items().iter().enumerate() {
                    let (sample, first_row, first_column) = list[number];
                    number += 1;
                    prop_assert_eq!((item.sample, item.window.row, item.window.column), (sample, first_row, first_column));
                    let shape = shape(sample);
                    for row in 0..rows as usize {
                        for column in 0..columns as usize {
                            let y = pixel(first_row + row as i32, shape.rows, pad);
                            let x = pixel(first_column + column as i32, shape.columns, pad);
                            for (band, from) in bands.iter().enumerate() {
                                let have = image[[position, row, column, band]].to_le_bytes();
                                let want = match (y.zip(x), pad) {
                                    (Some((y, x)), _) => written.image(sample, y..y + 1, x..x + 1, Some(&[*from])),
                                    (None, Pad::Value(value)) => half::f16::from_f64(value).to_le_bytes().to_vec(),
                                    (None, _) => unreachable!(),
                                };
                                prop_assert_eq!(&have[..], &want[..]);
                            }
                            let want = y.zip(x).map_or(0, |(y, x)| mask_value(sample, y, x));
                            prop_assert_eq!(mask[[position, row, column, 0]], want);
                        }
                    }
                }
            }
            prop_assert_eq!(number, list.len());
        }
    }
}

#[test]
fn patches_come_with_the_class_of_their_centre_and_no_masks_unless_asked_for() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let patches = |masks: Option<Vec<String>>| {
        let mut options = options(32, Crop::Whole);
        options.patches = Some(("a".into(), Patches::new(3, 1)));
        options.masks = masks;
        Loader::new(&dataset, options).unwrap()
    };
    let labelled = |sample: usize| {
        let shape = dataset.sample(sample).unwrap().shape;
        let pixels = (0..shape.rows).flat_map(move |row| (0..shape.columns).map(move |x| (row, x)));
        pixels.filter(move |(row, column)| mask_value(sample, *row, *column) != 0)
    };
    let expected: Vec<_> =
        (0..9).flat_map(|sample| labelled(sample).map(move |at| (sample, at))).collect();
    assert!(!expected.is_empty());
    let mut found = Vec::new();
    for batch in patches(None).epoch() {
        let batch = batch.unwrap();
        assert_eq!(batch.masks().len(), 0);
        for (item, class) in batch.items().iter().zip(batch.classes()) {
            let (row, column) = (item.window.row as usize + 1, item.window.column as usize);
            assert_eq!(class, Some(u32::from(mask_value(item.sample, row, column))));
            found.push((item.sample, (row, column)));
        }
    }
    assert_eq!(found, expected);
    for batch in patches(Some(vec!["a".into()])).epoch() {
        let batch = batch.unwrap();
        let mask = batch.mask("a").unwrap().values::<u8>().unwrap();
        for (position, class) in batch.classes().enumerate() {
            assert_eq!(Some(u32::from(mask[[position, 1, 0, 0]])), class);
        }
    }
}

#[test]
fn an_epoch_of_patches_goes_on_where_it_was_left() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(7, Crop::Whole);
    options.plan.order = Order::ClassBalanced;
    options.patches = Some(("a".into(), Patches { per_class: Some(9), ..Patches::new(3, 3) }));
    let items = |loader: &mut Loader, batches: usize| -> Vec<_> {
        let epoch = loader.epoch().take(batches);
        epoch.flat_map(|batch| batch.unwrap().items().to_vec()).collect()
    };
    let whole = items(&mut Loader::new(&dataset, options.clone()).unwrap(), usize::MAX);
    let mut loader = Loader::new(&dataset, options.clone()).unwrap();
    let mut parts = items(&mut loader, 2);
    let state = loader.state();
    drop(loader);
    let mut loader = Loader::with_state(&dataset, options, &state).unwrap();
    parts.extend(items(&mut loader, usize::MAX));
    assert_eq!(parts, whole);
}

#[test]
fn regions_have_a_window_each_and_masks_end_with_the_cube() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    for (rows, columns, min_pixels) in [(5, 4, 1), (9, 14, 2), (1, 2, 1)] {
        let regions = Regions { min_pixels, ignore: vec![2], ..Regions::new(rows, columns) };
        let mut options = options(8, Crop::Whole);
        options.regions = Some(("a".into(), regions));
        let mut loader = Loader::new(&dataset, options).unwrap();
        let mut found = Vec::new();
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            let mask = batch.mask("a").unwrap();
            let mask = mask.values::<u8>().unwrap();
            for (position, item) in batch.items().iter().enumerate() {
                let shape = dataset.sample(item.sample).unwrap().shape;
                let id = item.region.unwrap();
                assert_eq!(item.label, Some(id));
                found.push((item.sample, id));
                // The region's pixels, and the box around them.
                let pixels: Vec<(usize, usize)> = (0..shape.rows)
                    .flat_map(|row| (0..shape.columns).map(move |column| (row, column)))
                    .filter(|(row, column)| u32::from(mask_value(item.sample, *row, *column)) == id)
                    .collect();
                assert!(pixels.len() >= min_pixels);
                let middle = |along: fn(&(usize, usize)) -> usize| {
                    let ends = || pixels.iter().map(along);
                    (ends().min().unwrap() + ends().max().unwrap()).div_ceil(2) as i32
                };
                let window = item.window;
                assert_eq!(window.row + rows as i32 / 2, middle(|pixel| pixel.0));
                assert_eq!(window.column + columns as i32 / 2, middle(|pixel| pixel.1));
                for row in 0..rows as usize {
                    for column in 0..columns as usize {
                        let y = pixel(window.row + row as i32, shape.rows, Pad::Value(0.0));
                        let x =
                            pixel(window.column + column as i32, shape.columns, Pad::Value(0.0));
                        let want = y.zip(x).map_or(0, |(y, x)| mask_value(item.sample, y, x));
                        assert_eq!(mask[[position, row, column, 0]], want);
                    }
                }
            }
        }
        let of_sample = |sample: usize| {
            let shape = dataset.sample(sample).unwrap().shape;
            let mut counts = std::collections::BTreeMap::new();
            for (row, column) in
                (0..shape.rows).flat_map(|row| (0..shape.columns).map(move |x| (row, x)))
            {
                *counts.entry(mask_value(sample, row, column)).or_insert(0) += 1;
            }
            let kept = move |(id, count): (u8, usize)| {
                (id != 0 && id != 2 && count >= min_pixels).then_some((sample, u32::from(id)))
            };
            counts.into_iter().filter_map(kept)
        };
        let want: Vec<(usize, u32)> = (0..9).flat_map(of_sample).collect();
        assert!(!want.is_empty());
        assert_eq!(found, want, "sample by sample, ascending by id");
    }
}

fn refused(change: impl Fn(&mut LoaderOptions)) -> Error {
    let (_folder, written) = images::made();
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = options(4, Crop::Whole);
    change(&mut options);
    let error = Loader::new(&dataset, options).unwrap_err();
    assert!(error.remedy().is_some(), "{error}");
    error
}

#[test]
fn patches_that_mean_nothing_are_refused() {
    let of = |mask: &str| Some((mask.to_owned(), Patches::new(3, 3)));
    let error = refused(|options| options.patches = of("few")).to_string();
    assert!(error.contains("mask few holds boolean layers (x, y, z)"), "{error}");
    let error = refused(|options| options.patches = of("no")).to_string();
    assert!(error.contains("has no mask \"no\""), "{error}");
    let error = refused(|options| {
        options.patches = of("ids");
        options.plan.crop = Crop::Centre { rows: 3, columns: 3 };
    });
    assert!(error.to_string().contains("crops and patches"), "{error}");
    let error = refused(|options| {
        options.patches = of("ids");
        options.regions = Some(("ids".into(), Regions::new(3, 3)));
    });
    assert!(error.to_string().contains("patches around labelled pixels and regions"));
    let error = refused(|options| {
        let regions = Regions { min_pixels: 1 << 30, ..Regions::new(3, 3) };
        options.regions = Some(("ids".into(), regions));
    });
    assert!(error.to_string().contains("none of the requested regions"), "{error}");
    let error = refused(|options| options.regions = Some(("few".into(), Regions::new(3, 3))));
    assert!(error.to_string().contains("patches and regions need class ids"), "{error}");
    let error = refused(|options| {
        let patches = Patches { classes: Some(vec![4_000_000]), ..Patches::new(3, 3) };
        options.patches = Some(("ids".into(), patches));
    });
    assert!(error.to_string().contains("no pixel has one of the requested labels"), "{error}");
}

#[test]
fn the_cache_is_chosen_by_what_fits() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let loader = |bytes: u64| {
        let mut options = options(4, Crop::Whole);
        options.plan.order = Order::Shuffled;
        options.cache_bytes = bytes;
        assert_eq!(options.cache, CacheKind::Auto, "the default");
        Loader::new(&dataset, options).unwrap()
    };
    // Chunks of 5 rows of 10 pixels, and of 4 rows of 6 pixels including parts beyond the edges; and masks.
    let image = 5 * 3 * (5 * 10 * 7 * 2) + 4 * 9 * (4 * 6 * 7 * 2);
    let masks = 5 * 3 * (5 * 10) + 4 * 9 * (4 * 6);
    let needed = (image + masks) as u64;
    let all = loader(0);
    assert_eq!(all.cache().kind, CacheKind::Decoded);
    assert_eq!((all.cache().needed_bytes, all.cache().limit_bytes), (needed, needed));
    assert!(all.cache().why.contains("fit into"), "{:?}", all.cache());
    assert_eq!(loader(needed).cache().kind, CacheKind::Decoded);
    let less = loader(needed - 1);
    assert_eq!(less.cache().kind, CacheKind::Compressed, "{:?}", less.cache());
    assert_eq!(loader(1000).cache().kind, CacheKind::None);

    let mut loader = loader(0);
    for _ in 0..2 {
        loader.epoch().for_each(|batch| crate::loading::check(&batch.unwrap(), &written, None));
    }
    assert_eq!(loader.cached_bytes(), needed);
    let read = loader.statistics().loader.stored_bytes;
    loader.epoch().for_each(|batch| drop(batch.unwrap()));
    assert_eq!(loader.statistics().loader.stored_bytes, read, "nothing is read again");

    let times = loader.cache_times();
    assert!(times.keeping_s > 0.0 && times.saved_s >= 0.0, "{times:?}");

    let mut requested = options(4, Crop::Whole);
    (requested.cache, requested.cache_bytes) = (CacheKind::Compressed, 77);
    let requested = Loader::new(&dataset, requested).unwrap();
    assert_eq!(
        (requested.cache().kind, requested.cache().limit_bytes),
        (CacheKind::Compressed, 77)
    );
    assert!(!requested.cache().chosen);
}

#[test]
fn chunks_that_take_long_to_keep_are_kept_when_there_is_time() {
    let folder = tempfile::tempdir().unwrap();
    // 24 MB of decoded chunks.
    let spec = StackSpec::new(64, 64, 25, 120).tile(32, 64);
    let written = write_dataset(&folder.path().join("made"), &[spec], |_| json!({}));
    let mut options = options(6, Crop::Whole);
    options.plan.order = Order::Shuffled;
    let mut loader = Loader::new(&Dataset::open(&written.path).unwrap(), options).unwrap();
    assert!(loader.cache().chosen && loader.cache().kind == CacheKind::Decoded);
    let needed = loader.cache().needed_bytes;
    for _ in 0..1000 {
        loader.epoch().for_each(|batch| {
            crate::loading::check(&batch.unwrap(), &written, None);
            // Meanwhile, the decoding threads wait.
            std::thread::sleep(std::time::Duration::from_millis(1));
        });
        if loader.cached_bytes() == needed {
            break;
        }
    }
    assert_eq!(loader.cached_bytes(), needed);
    let read = loader.statistics().loader.stored_bytes;
    loader.epoch().for_each(|batch| crate::loading::check(&batch.unwrap(), &written, None));
    assert_eq!(loader.statistics().loader.stored_bytes, read, "nothing is read again");
}
