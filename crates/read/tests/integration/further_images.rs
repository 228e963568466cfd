//! Further images in batches: windows cut the same ground from arrays of any resolution.

use hsipack_format::Ratio;
use hsipack_read::plan::{Crop, Item, Order, Pad, Patches};
use hsipack_read::{CacheKind, Dataset, Loader, LoaderOptions, ShuffleWindow};
use proptest::prelude::*;
use serde_json::json;

use crate::images;
use crate::support::{StackSpec, Written, target_value, write_dataset};

const FINE: [(&str, usize, [u32; 2]); 3] =
    [("double", 3, [2, 1]), ("same", 2, [1, 1]), ("triple", 1, [3, 1])];
const COARSE: [(&str, usize, [u32; 2]); 2] = [("half", 2, [1, 2]), ("third", 1, [1, 3])];

/// Two stacks with different chunks and shards, and a further image of each resolution.
fn written(images: &[(&str, usize, [u32; 2])]) -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let mut stacks = [
        StackSpec::new(24, 12, 7, 5).masks(&["m"]).target("depth", None).tile(5, 10),
        StackSpec::new(12, 24, 7, 4).masks(&["m"]).target("depth", None).tile(4, 6),
    ];
    for stack in &mut stacks {
        for (name, bands, ratio) in images {
            *stack = stack.clone().further(name, *bands, *ratio);
        }
    }
    let written = write_dataset(&folder.path().join("written"), &stacks, |_| json!({}));
    (folder, written)
}

/// The pixel of a mirrored axis of the image, and whether it is turned.
fn mirrored(pixel: i32, length: i32) -> (i32, bool) {
    let period = 2 * (length - 1);
    let pixel = pixel.rem_euclid(period);
    if pixel < length { (pixel, false) } else { (period - pixel, true) }
}

/// The pixels of an axis of a further image for `size` pixels of the image from `start`; `None` for
/// padding.
fn axis(
    start: i32,
    size: u32,
    length: usize,
    ratio: Ratio,
    pad: Option<Pad>,
) -> Vec<Option<usize>> {
    let (finer, coarser) = (ratio.finer() as i32, ratio.coarser() as i32);
    let pixels = length as i32 * finer / coarser;
    let first = start * finer / coarser;
    let pixel = |at: i32| match pad {
        _ if (0..pixels).contains(&at) => Some(at as usize),
        Some(Pad::Edge) => Some(at.clamp(0, pixels - 1) as usize),
        Some(Pad::Reflect) if coarser > 1 => {
            let turned = at.rem_euclid(2 * pixels);
            Some(turned.min(2 * pixels - 1 - turned) as usize)
        }
        Some(Pad::Reflect) => {
            let (pixel, is_turned) = mirrored(at.div_euclid(finer), length as i32);
            let within = at.rem_euclid(finer);
            let within = if is_turned { finer - 1 - within } else { within };
            Some((pixel * finer + within) as usize)
        }
        Some(Pad::Value(_)) | None => None,
    };
    (first..first + size as i32 * finer / coarser).map(pixel).collect()
}

/// The bits of a window's values, (row, column, band). All NaN are the same.
fn window(
    written: &Written,
    item: &Item,
    (bands, ratio): (usize, Ratio),
    pad: Option<Pad>,
) -> Vec<u32> {
    let (shape, window) = (written.shape(item.sample), item.window);
    let rows = axis(window.row, window.rows, shape.rows, ratio, pad);
    let columns = axis(window.column, window.columns, shape.columns, ratio, pad);
    let fill = if let Some(Pad::Value(value)) = pad { value as f32 } else { f32::NAN };
    let mut values = Vec::new();
    for row in &rows {
        for column in &columns {
            for band in 0..bands {
                values.push(match (row, column) {
                    (Some(row), Some(column)) => target_value(item.sample, *row, *column, band),
                    _ => fill,
                });
            }
        }
    }
    values.into_iter().map(bits).collect()
}

fn bits(value: f32) -> u32 {
    if value.is_nan() { f32::NAN.to_bits() } else { value.to_bits() }
}

/// Compares all batches of two epochs with the values that were written.
fn compare(
    written: &Written,
    options: LoaderOptions,
    images: &[(&str, usize, [u32; 2])],
    pad: Option<Pad>,
) {
    let dataset = Dataset::open(&written.path).unwrap();
    let mut loader = Loader::new(&dataset, options).unwrap();
    let names: Vec<&str> = images.iter().map(|(name, ..)| *name).collect();
    assert_eq!(loader.images(), names);
    for _ in 0..2 {
        let mut batches = 0;
        for batch in loader.epoch() {
            let batch = batch.unwrap();
            assert_eq!(batch.further_images().len(), images.len());
            for (name, bands, [finer, coarser]) in images {
                let ratio = Ratio::new(*finer, *coarser).unwrap();
                let view = batch.further_image(name).unwrap();
                let size = batch.image().shape;
                let length = |length: usize| ratio.length(length).unwrap();
                assert_eq!(view.shape, [size[0], length(size[1]), length(size[2]), *bands]);
                let items = batch.items().iter();
                let want = items.flat_map(|item| window(written, item, (*bands, ratio), pad));
                let stored = view.bytes.as_chunks::<4>().0.iter();
                let stored = stored.map(|value| bits(f32::from_le_bytes(*value)));
                assert!(stored.eq(want), "{name}");
            }
            assert_eq!((batch.targets().len(), batch.masks().len()), (1, 1));
            batches += 1;
        }
        assert!(batches > 0);
    }
}

fn kinds() -> impl Strategy<Value = CacheKind> {
    prop::sample::select(vec![CacheKind::None, CacheKind::Decoded, CacheKind::Compressed])
}

fn pads() -> impl Strategy<Value = Pad> {
    prop::sample::select(vec![Pad::Reflect, Pad::Edge, Pad::Value(-1.5), Pad::Value(f64::NAN)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn patches_cut_the_same_ground_from_finer_images(
        rows in 1_u32..30, columns in 1_u32..30, batch_size in 1_usize..5, kind in kinds(), pad in pads(),
    ) {
        let (_folder, written) = written(&FINE);
        let mut options = images::options(batch_size);
        options.cache = kind;
        options.plan.order = Order::Shuffled;
        options.patches = Some(("m".to_owned(), Patches { pad, ..Patches::new(rows, columns) }));
        options.masks = Some(vec!["m".to_owned()]);
        options.plan.epoch_length = Some(12);
        compare(&written, options, &FINE, Some(pad));
    }

    #[test]
    fn crops_and_grids_cut_the_same_ground_from_images_of_any_resolution(
        rows in 1_u32..5, columns in 1_u32..5, steps in (1_u32..5, 1_u32..5),
        batch_size in 1_usize..5, kind in kinds(), pad in pads(), which in 0_usize..4,
    ) {
        let all: Vec<_> = FINE.into_iter().chain(COARSE).collect();
        let mut all = all;
        all.sort_by_key(|(name, ..)| *name);
        let (_folder, written) = written(&all);
        // Sizes in whole pixels of all images.
        let (rows, columns) = (6 * rows, 6 * columns);
        let (row_step, column_step) = ((6 * steps.0).min(rows), (6 * steps.1).min(columns));
        let small = (rows.min(12), columns.min(12));
        let mut options = images::options(batch_size);
        options.cache = kind;
        options.plan.order = Order::Shuffled;
        options.plan.crop = match which {
            0 => Crop::Whole,
            1 => Crop::Centre { rows: small.0, columns: small.1 },
            2 => Crop::Random { rows: small.0, columns: small.1, per_sample: 3, min_labelled: 0.0 },
            _ => Crop::Grid { rows, columns, row_step, column_step, pad: Some(pad) },
        };
        let pad = (which == 3).then_some(pad);
        compare(&written, options, &all, pad);
    }
}

#[test]
fn shuffle_windows_hold_the_chunks_of_finer_images() {
    let (_folder, written) = written(&FINE);
    let mut options = images::options(3);
    options.plan.order = Order::Shuffled;
    options.patches = Some(("m".to_owned(), Patches { pad: Pad::Reflect, ..Patches::new(5, 5) }));
    options.masks = Some(vec!["m".to_owned()]);
    options.shuffle_window = ShuffleWindow::Bytes(200_000);
    compare(&written, options, &FINE, Some(Pad::Reflect));
}

#[test]
fn windows_across_pixels_of_coarser_images_are_refused() {
    let (_folder, written) = written(&COARSE);
    let dataset = Dataset::open(&written.path).unwrap();
    let refused = |options: LoaderOptions| Loader::new(&dataset, options).unwrap_err().to_string();
    let mut options = images::options(2);
    options.plan.crop = Crop::Random { rows: 6, columns: 8, per_sample: 1, min_labelled: 0.0 };
    let error = refused(options.clone());
    assert!(
        error.contains("windows of 6x8 pixels do not fit the further image \"third\""),
        "{error}"
    );
    options.images = Some(vec!["half".to_owned()]);
    Loader::new(&dataset, options.clone()).unwrap();
    options.plan.crop = Crop::Whole;
    options.patches = Some(("m".to_owned(), Patches::new(6, 6)));
    let error = refused(options.clone());
    assert!(error.contains("patches, regions and listed windows do not fit"), "{error}");
    options.images = Some(vec!["m".to_owned()]);
    let error = refused(options);
    assert!(error.contains("no further image \"m\" (it has half, third)"), "{error}");
}
