//! Targets in batches: cut with the window of the image, and missing beyond the edge of the cube.

use hsipack_read::augment::Host;
use hsipack_read::plan::{Crop, Item, Order, Pad, Patches};
use hsipack_read::{
    CacheKind, Dataset, Device, DeviceLoader, DeviceOptions, Loader, LoaderOptions,
};
use proptest::prelude::*;
use serde_json::json;

use crate::images;
use crate::support::{StackSpec, Written, target_value, write_dataset};

/// Two stacks with different chunks and shards.
fn made() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let stacks = [
        StackSpec::new(14, 10, 7, 5)
            .masks(&["m"])
            .target("b", Some(3))
            .target("a", None)
            .tile(5, 10),
        StackSpec::new(9, 16, 7, 4).masks(&["m"]).target("a", None).target("b", Some(3)).tile(4, 6),
    ];
    let written = write_dataset(&folder.path().join("made"), &stacks, |_| json!({}));
    (folder, written)
}

/// The bits of a window's values, (row, column, channel). All NaN are the same.
fn window(written: &Written, item: &Item, channels: usize) -> Vec<u32> {
    let (shape, window) = (written.shape(item.sample), item.window);
    let mut values = Vec::new();
    for row in window.row..window.row + window.rows as i32 {
        for column in window.column..window.column + window.columns as i32 {
            let inside = (0..shape.rows as i32).contains(&row)
                && (0..shape.columns as i32).contains(&column);
            for channel in 0..channels {
                values.push(match inside {
                    true => target_value(item.sample, row as usize, column as usize, channel),
                    false => f32::NAN,
                });
            }
        }
    }
    values.into_iter().map(bits).collect()
}

fn bits(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

fn stored(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|value| bits(f32::from_le_bytes(*value))).collect()
}

/// Compares all batches of two epochs with the values that were written.
fn compare(written: &Written, options: LoaderOptions) {
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options).unwrap();
    assert_eq!(loader.targets(), ["a", "b"]);
    for _ in 0..2 {
        let mut batches = 0;
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            for (name, channels) in [("a", 1), ("b", 3)] {
                let view = batch.target(name).unwrap();
                let [_, rows, columns, bands] = view.shape;
                assert_eq!(
                    (bands, batch.image().shape[1..3].to_vec()),
                    (channels, vec![rows, columns])
                );
                let want = batch.items().iter().flat_map(|item| window(written, item, channels));
                assert_eq!(stored(view.bytes), want.collect::<Vec<_>>());
            }
            assert_eq!(batch.masks().len(), 1);
            batches += 1;
        }
        assert!(batches > 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn targets_are_those_of_the_window(
        rows in 1_u32..18,
        columns in 1_u32..18,
        batch_size in 1_usize..5,
        kind in prop::sample::select(vec![CacheKind::None, CacheKind::Decoded, CacheKind::Compressed]),
        missing in prop::sample::select(vec![-1.5, f64::NAN]),
    ) {
        let (_folder, written) = made();
        let mut options = images::options(batch_size);
        options.cache = kind;
        options.plan.order = Order::Shuffled;
        let patches = Patches { pad: Pad::Value(missing), ..Patches::new(rows, columns) };
        options.patches = Some(("m".to_owned(), patches));
        options.masks = Some(vec!["m".to_owned()]);
        options.plan.epoch_length = Some(12);
        compare(&written, options);
        let mut whole = images::options(batch_size);
        whole.cache = kind;
        compare(&written, whole);
    }
}

#[test]
fn tensors_of_targets_have_their_channels_before_the_rows() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let device = DeviceOptions::new(Device::Cpu);
    let mut loader =
        DeviceLoader::new(&dataset, images::options(2), device, Host::default()).unwrap();
    assert_eq!(loader.targets(), ["a", "b"]);
    for batch in loader.epoch() {
        let batch = batch.unwrap();
        let [size, _, rows, columns] = batch.image.shape() else { panic!("an image") };
        let (a, b) = (batch.mask("a").unwrap(), batch.mask("b").unwrap());
        assert_eq!(a.shape(), [*size, *rows, *columns]);
        assert_eq!(b.shape(), [*size, 3, *rows, *columns]);
        for (target, channels) in [(a.clone(), 1), (b.permuted(&[0, 2, 3, 1]), 3)] {
            let want = batch.items().iter().flat_map(|item| window(&written, item, channels));
            assert_eq!(stored(target.bytes().unwrap()), want.collect::<Vec<_>>());
        }
    }
}

#[test]
fn targets_are_chosen_by_name() {
    let (_folder, written) = made();
    let dataset = Dataset::open(&written.path).unwrap();
    let of = |targets: &[&str]| {
        let targets = targets.iter().map(|name| (*name).to_owned()).collect();
        Loader::new(&dataset, LoaderOptions { targets: Some(targets), ..images::options(2) })
    };
    assert_eq!(of(&["b"]).unwrap().targets(), ["b"]);
    assert!(of(&[]).unwrap().targets().is_empty());
    let error = of(&["m"]).unwrap_err();
    assert!(error.to_string().contains("no target \"m\" (it has a, b)"), "{error}");
}

#[test]
fn windows_of_stacks_with_other_channels_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let stacks = [
        StackSpec::new(14, 10, 7, 2).target("a", None),
        StackSpec::new(9, 16, 7, 2).target("a", Some(2)),
    ];
    let written = write_dataset(&folder.path().join("made"), &stacks, |_| json!({}));
    let dataset = Dataset::open(&written.path).unwrap();
    let mut options = images::options(2);
    options.plan.crop = Crop::Centre { rows: 4, columns: 4 };
    let error = Loader::new(&dataset, options).unwrap_err();
    assert!(error.to_string().contains("float32 with 2 channels in stack"), "{error}");
}
