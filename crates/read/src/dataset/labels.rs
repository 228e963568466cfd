//! Splits, groups and labels of the samples.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use hsipack_format::Samples;
use hsipack_format::samples::Keys;
use serde_json::Value;

/// Splits, groups and labels, numbered. Nothing is kept per sample: the numbers of a sample are
/// looked up in the list of samples.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    splits: Vec<String>,
    groups: Vec<String>,
    classes: Vec<ClassCount>,
    samples: usize,
    labels_of: Keys<Value>,
    groups_of: Keys<String>,
    /// The class of each of the different labels.
    class_places: Vec<u32>,
    /// The place of each of the different groups.
    group_places: Vec<u32>,
}

/// A label and how many samples have it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassCount {
    /// The label, a number or text.
    pub label: Value,
    /// Samples that have it.
    pub count: usize,
}

impl Labels {
    pub(super) fn of(samples: &Samples) -> Self {
        let (splits, _) = number(samples.splits(), String::as_str);
        let (groups, group_places) = number(samples.groups(), String::as_str);
        let (labels, class_places) = number(samples.labels(), Key::of);
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let (splits, groups) = (owned(splits), owned(groups));
        let mut classes: Vec<ClassCount> = labels
            .into_iter()
            .map(|key| ClassCount { label: key.label.clone(), count: 0 })
            .collect();
        for label in samples.labels().numbers().flatten() {
            classes[class_places[label as usize] as usize].count += 1;
        }
        let (labels_of, groups_of) = (samples.labels().clone(), samples.groups().clone());
        let samples = samples.len();
        Self { splits, groups, classes, samples, labels_of, groups_of, class_places, group_places }
    }

    /// Names of the splits, sorted.
    pub fn splits(&self) -> &[String] {
        &self.splits
    }

    /// Names of the groups, sorted. The number of a group is its place here.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The different labels and their counts: numbers before texts, both ascending. The number of a
    /// class is its place here.
    pub fn classes(&self) -> &[ClassCount] {
        &self.classes
    }

    /// A class whose number was another one when there were only the first `samples` samples: its
    /// number now, and the one then.
    pub(crate) fn renumbered(&self, samples: usize) -> Option<(u32, u32)> {
        let then: BTreeSet<u32> = (0..samples).filter_map(|sample| self.class_of(sample)).collect();
        // Both numberings are in the same order.
        then.into_iter().zip(0..).find(|(now, before)| now != before)
    }

    /// The class of a sample, if it has a label.
    pub fn class_of(&self, sample: usize) -> Option<u32> {
        let label = (sample < self.samples).then(|| self.labels_of.number(sample)).flatten();
        label.map(|label| self.class_places[label as usize])
    }

    /// The group of a sample, if it has one.
    pub fn group_of(&self, sample: usize) -> Option<u32> {
        let group = (sample < self.samples).then(|| self.groups_of.number(sample)).flatten();
        group.map(|group| self.group_places[group as usize])
    }
}

/// The different keys of samples, sorted by what `look` returns for them, and the place of each
/// among the sorted ones.
fn number<'a, K, L: Ord>(keys: &'a Keys<K>, look: impl Fn(&'a K) -> L) -> (Vec<L>, Vec<u32>) {
    let mut sorted: BTreeMap<L, Vec<usize>> = BTreeMap::new();
    for (number, key) in keys.different().iter().enumerate() {
        // The labels 1 and 1.0 are one class.
        sorted.entry(look(key)).or_default().push(number);
    }
    let mut places = vec![0; keys.different().len()];
    for (class, numbers) in sorted.values().enumerate() {
        numbers.iter().for_each(|number| places[*number] = class as u32);
    }
    (sorted.into_keys().collect(), places)
}

/// A label with an order: numbers by value, then texts.
#[derive(Clone, Debug)]
struct Key<'a> {
    number: Option<f64>,
    /// The text, if the label is not a number.
    text: Cow<'a, str>,
    label: &'a Value,
}

impl<'a> Key<'a> {
    fn of(label: &'a Value) -> Self {
        let number = label.as_f64();
        let text = match label {
            Value::String(text) => text.as_str().into(),
            _ if number.is_some() => "".into(),
            _ => label.to_string().into(),
        };
        Self { number, text, label }
    }
}

impl Ord for Key<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        match (self.number, other.number) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => self.text.cmp(&other.text),
        }
    }
}

impl PartialOrd for Key<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[Value]) -> Labels {
        let line = |(id, label): (usize, &Value)| {
            let line = serde_json::json!({
                "id": id, "name": id.to_string(), "stack": "s", "index": id, "label": label, "nan": 0, "inf": 0,
                "range": null, "source": { "path": "a", "bytes": 0, "fingerprint": "", "format": "" },
            });
            format!("{line}\n")
        };
        let text: String = labels.iter().enumerate().map(line).collect();
        Labels::of(&Samples::decode(text.into_bytes(), &["s"]).unwrap())
    }

    #[test]
    fn classes_are_numbers_by_value_then_texts() {
        let all = [10.into(), 9.into(), 10.0.into(), "b".into(), "a".into(), Value::Null];
        let labels = labels(&all);
        let names: Vec<String> = labels.classes().iter().map(|c| c.label.to_string()).collect();
        assert_eq!(names, ["9", "10", "\"a\"", "\"b\""]);
        assert_eq!(labels.classes()[1].count, 2);
        assert_eq!(
            (0..6).map(|s| labels.class_of(s)).collect::<Vec<_>>(),
            [Some(1), Some(0), Some(1), Some(3), Some(2), None]
        );
    }
}
