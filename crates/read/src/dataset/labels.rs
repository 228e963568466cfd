//! Splits, groups and labels of the samples.

use std::borrow::Cow;
use std::collections::BTreeMap;

use hsipack_format::Sample;
use serde_json::Value;

/// Splits, groups and labels, numbered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labels {
    splits: Vec<String>,
    groups: Vec<String>,
    classes: Vec<ClassCount>,
    class_of: Vec<Option<u32>>,
    group_of: Vec<Option<u32>>,
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
    pub(super) fn of(samples: &[Sample]) -> Self {
        let (splits, _) = number(samples, |sample| sample.split.as_deref());
        let splits = splits.into_iter().map(str::to_owned).collect();
        let (groups, group_of) = number(samples, |sample| sample.group.as_deref());
        let groups = groups.into_iter().map(str::to_owned).collect();
        let (labels, class_of) = number(samples, |sample| {
            sample.label.as_ref().filter(|label| !label.is_null()).map(Key::of)
        });
        let mut classes: Vec<ClassCount> = labels
            .into_iter()
            .map(|key| ClassCount { label: key.label.clone(), count: 0 })
            .collect();
        for class in class_of.iter().flatten() {
            classes[*class as usize].count += 1;
        }
        Self { splits, groups, classes, class_of, group_of }
    }

    /// Names of the splits, sorted.
    pub fn splits(&self) -> &[String] {
        &self.splits
    }

    /// Names of the groups, sorted; a group's number is its place.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The different labels, numbers before texts, both ascending, and their counts; a class's number is its
    /// place.
    pub fn classes(&self) -> &[ClassCount] {
        &self.classes
    }

    /// The class of a sample, if it has a label.
    pub fn class_of(&self, sample: usize) -> Option<u32> {
        self.class_of.get(sample).copied().flatten()
    }

    /// The group of a sample, if it has one.
    pub fn group_of(&self, sample: usize) -> Option<u32> {
        self.group_of.get(sample).copied().flatten()
    }
}

/// The different keys of samples, sorted, and each sample's place among them. There may be millions of samples and few
/// different keys: what is kept meanwhile are those.
fn number<'a, K: Ord>(
    samples: &'a [Sample],
    key: impl Fn(&'a Sample) -> Option<K>,
) -> (Vec<K>, Vec<Option<u32>>) {
    // Keys are numbered as they come, and then by their order.
    let mut numbers: BTreeMap<K, u32> = BTreeMap::new();
    let mut number = |key: K| {
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    };
    let mut of: Vec<Option<u32>> = samples.iter().map(|one| key(one).map(&mut number)).collect();
    let mut places = vec![0; numbers.len()];
    for (place, first) in numbers.values().enumerate() {
        places[*first as usize] = place as u32;
    }
    of.iter_mut().flatten().for_each(|number| *number = places[*number as usize]);
    (numbers.into_keys().collect(), of)
}

/// A label with an order: numbers by value, then texts.
#[derive(Clone, Debug)]
struct Key<'a> {
    number: Option<f64>,
    /// Of what is no number.
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

    fn sample(label: Value) -> Sample {
        let line = serde_json::json!({
            "id": 0, "name": "a", "stack": "s", "index": 0, "label": label, "nan": 0, "inf": 0, "range": null,
            "source": { "path": "a", "bytes": 0, "fingerprint": "", "format": "" },
        });
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn classes_are_numbers_by_value_then_texts() {
        let labels = [10, 9, 10].map(Value::from).into_iter();
        let labels = labels.chain(["b", "a"].map(Value::from)).chain([Value::Null]);
        let labels = Labels::of(&labels.map(sample).collect::<Vec<_>>());
        let names: Vec<String> = labels.classes().iter().map(|c| c.label.to_string()).collect();
        assert_eq!(names, ["9", "10", "\"a\"", "\"b\""]);
        assert_eq!(labels.classes()[1].count, 2);
        assert_eq!(
            (0..6).map(|s| labels.class_of(s)).collect::<Vec<_>>(),
            [Some(1), Some(0), Some(1), Some(3), Some(2), None]
        );
    }
}
