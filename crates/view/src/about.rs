//! Information about all that the viewer shows.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hsipack_format::samples::Keys;
use hsipack_store::Stack;
use hsipack_store::dataset::ChunkArray;
use serde::Serialize;
use serde_json::{Value, json};

use crate::subject::Subject;

/// Maximum number of different splits, groups and labels in an answer.
const KEYS: usize = 1000;

/// The information about `subject`.
pub fn of(subject: &Subject) -> Value {
    let mut about = json!({
        "kind": if subject.dataset().is_some() { "dataset" } else { "cubes" },
        "title": subject.title(),
        "path": subject.path(),
        "version": env!("CARGO_PKG_VERSION"),
        "samples": subject.len(),
        // Whether the viewer was started to show a loader.
        "training": subject.is_for_training(),
        "stacks": [], "splits": [], "groups": [], "labels": [], "columns": [],
    });
    if let Some(dataset) = subject.dataset() {
        let samples = dataset.samples();
        about["stacks"] = dataset.stacks().iter().map(stack).collect();
        about["splits"] = counts(samples.splits());
        about["groups"] = counts(samples.groups());
        about["labels"] = counts(samples.labels());
        about["columns"] = json!(samples.columns());
    }
    about
}

fn stack(stack: &Stack) -> Value {
    let shape = stack.image.shape();
    let masks: Vec<&str> = stack.masks.iter().map(ChunkArray::name).collect();
    json!({
        "name": stack.name, "samples": stack.image.len(), "masks": masks,
        "shape": [shape.rows, shape.columns, shape.bands],
    })
}

/// The different keys and how many samples have each, the most frequent first. Samples without a
/// key are counted, too.
fn counts<K: Serialize>(keys: &Keys<K>) -> Value {
    let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    keys.numbers().for_each(|number| *counts.entry(number).or_default() += 1);
    if counts.keys().all(Option::is_none) {
        return json!([]);
    }
    let mut all: Vec<(Option<u32>, usize)> = counts.into_iter().collect();
    all.sort_by_key(|(_, count)| Reverse(*count));
    all.truncate(KEYS);
    let different = keys.different();
    let value = |number: Option<u32>| number.map(|number| &different[number as usize]);
    let entry =
        |(number, count): (Option<u32>, usize)| json!({ "value": value(number), "count": count });
    all.into_iter().map(entry).collect()
}
