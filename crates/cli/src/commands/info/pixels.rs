//! How many pixels of each class the masks of a dataset have.

use std::collections::{BTreeMap, BTreeSet};

use hsipack_format::Result;
use hsipack_read::{ClassPixels, Dataset};
use serde::Serialize;

use crate::output;

/// Masks by their names.
pub type ByMask = BTreeMap<String, MaskPixels>;

/// The pixels of one mask.
#[derive(Serialize)]
pub struct MaskPixels {
    /// The number of all pixels.
    pixels: u64,
    /// The pixels of each class, or of each layer.
    classes: Vec<ClassPixels>,
}

/// Counts the pixels of every mask, in the samples that have it.
pub fn count(path: &str) -> Result<ByMask> {
    let dataset = Dataset::open(path)?;
    let stacks = dataset.stacks();
    let names: BTreeSet<&str> =
        stacks.iter().flat_map(|stack| &stack.masks).map(|mask| mask.name()).collect();
    let threads = hsipack_store::threads::cores();
    let of_mask = |name: &str| {
        let samples: Vec<usize> = (0..dataset.len())
            .filter(|sample| stacks[dataset.samples().stack(*sample)].mask(name).is_some())
            .collect();
        let pixels =
            |sample: &usize| stacks[dataset.samples().stack(*sample)].image.shape().pixels() as u64;
        let classes = dataset.class_pixels(&samples, name, None, threads)?;
        Ok((name.to_owned(), MaskPixels { pixels: samples.iter().map(pixels).sum(), classes }))
    };
    names.into_iter().map(of_mask).collect()
}

/// Prints a line for every class: its pixels, their share, and its pixels in each split.
pub fn print(masks: &ByMask) {
    if masks.is_empty() {
        say!("\n  no masks, so no classes");
    }
    for (mask, MaskPixels { pixels, classes }) in masks {
        say!("\n  pixels of {mask}, {}", output::count(classes.len(), "class"));
        for class in classes {
            let name = class.name.as_deref().unwrap_or_default();
            let share = class.pixels as f64 / (*pixels).max(1) as f64 * 100.0;
            let splits: Vec<String> =
                class.splits.iter().map(|(split, pixels)| format!("{split} {pixels}")).collect();
            let line = format!(
                "    {:>5} {name:<16} {:>12} {share:5.1} %  {}",
                class.id,
                class.pixels,
                splits.join(", ")
            );
            say!("{}", line.trim_end());
        }
    }
}
