//! A dataset that covers all conversions of stored values to images and masks, and functions to
//! inspect these.

use std::fs;
use std::path::Path;

use half::f16;
use hsipack_read::{Array, ElementType, LoaderOptions};
use serde_json::{Map, Value, json};

use crate::support::{StackSpec, Written, write_dataset_of, write_sums};

pub const SCALE: f64 = 0.125;
pub const OFFSET: f64 = -3.0;

/// Two stacks of different scale, with statistics, class ids of both widths and boolean layers of
/// both widths; some values are NaN, some spectra zero or constant.
pub fn made() -> (tempfile::TempDir, Written) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made");
    let mut specs = [StackSpec::new(9, 8, 5, 7), StackSpec::new(12, 10, 5, 5)];
    for spec in &mut specs {
        spec.masks = vec!["few".into(), "ids".into()];
        spec.wide_masks = vec!["many".into(), "wide".into()];
    }
    let written = write_dataset_of(
        &path,
        &specs,
        |id| json!({ "label": id % 3 }),
        &|_, sample, row, column, out| {
            for band in 0..5 {
                out.extend(f16::from_f64(value(sample, row, column, band)).to_le_bytes());
            }
        },
    );
    for (stack, factor) in [("9x8x5", 1.0), ("12x10x5", 2.0)] {
        let stats = json!({
            "min": [0, 0, 0, 0, 0], "max": [1, 1, 1, 1, 1], "nan": [0, 0, 0, 0, 0], "count": [9, 9, 9, 0, 9],
            "mean": [1.5, 2.0, 3.0, null, 5.0], "std": [2.0, 0.0, 0.5 * factor, null, 4.0],
        });
        edit(&path.join(stack).join("image"), |attributes| {
            attributes.insert("scale_factor".into(), json!(SCALE * factor));
            attributes.insert("add_offset".into(), json!(OFFSET));
            attributes.insert("hsipack".into(), json!({ "stats": stats }));
        });
        edit(&path.join(stack).join("few"), |attributes| {
            attributes.insert("hsipack".into(), json!({ "layers": ["x", "y", "z"] }));
        });
        let names: Vec<String> = (0..16).map(|bit| format!("layer {bit}")).collect();
        edit(&path.join(stack).join("many"), |attributes| {
            attributes.insert("hsipack".into(), json!({ "layers": names }));
        });
    }
    write_sums(&path);
    (folder, written)
}

/// A stored value of this dataset.
pub fn value(sample: usize, row: usize, column: usize, band: usize) -> f64 {
    match (row, column) {
        (1, 1) if band == 2 => f64::NAN,
        (2, _) => 0.0,
        (3, _) => 1.25,
        _ => ((sample * 31 + row * 7 + column * 3 + band * band * 11) % 50) as f64 * 0.5 - 4.0,
    }
}

pub fn edit(array: &Path, change: impl FnOnce(&mut Map<String, Value>)) {
    let file = array.join("zarr.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let object = json.as_object_mut().unwrap();
    let attributes = object.entry("attributes").or_insert_with(|| json!({}));
    change(attributes.as_object_mut().unwrap());
    fs::write(file, serde_json::to_string_pretty(&json).unwrap()).unwrap();
}

/// Options to load with two threads, in ordinary memory.
pub fn options(batch_size: usize) -> LoaderOptions {
    let mut options = LoaderOptions::new(batch_size);
    options.memory.locked = false;
    options.memory.no_huge_pages = true;
    options.slots = 3;
    options.threads = 2;
    options
}

/// The values of an array without gaps.
pub fn flat(array: &Array) -> Vec<f64> {
    fn of<T: bytemuck::AnyBitPattern>(array: &Array, wide: impl Fn(T) -> f64) -> Vec<f64> {
        array.elements::<T>().expect("no gaps").iter().copied().map(wide).collect()
    }
    match array.element() {
        ElementType::F16 => of::<f16>(array, f64::from),
        ElementType::BF16 => of::<half::bf16>(array, f64::from),
        ElementType::F32 => of::<f32>(array, f64::from),
        ElementType::F64 => of::<f64>(array, |value| value),
        ElementType::U8 | ElementType::Bool => of::<u8>(array, f64::from),
        ElementType::U16 => of::<u16>(array, f64::from),
        ElementType::I32 => of::<i32>(array, f64::from),
        ElementType::I64 => of::<i64>(array, |value| value as f64),
        other => panic!("{other}"),
    }
}
