//! An index agrees with the lines read one by one, and detects any damage.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Bytes, CHECKED, Index, Origin, stacks_hint};
use crate::Geo;
use crate::checksums::digest;
use crate::samples::{Sample, Samples, SourceRecord, Written, encode};

const STACKS: [&str; 3] = ["2x3x4", "5x6x7", "8x9x10"];

/// The random properties of a sample: its stack, split, group, label and column, and whether it has
/// a location on Earth.
type Drawn = (usize, Option<u8>, Option<u16>, Option<Value>, Option<String>, bool);

fn drawn() -> impl Strategy<Value = Vec<Drawn>> {
    let label = prop_oneof![
        any::<i8>().prop_map(Value::from),
        "[a-c]{1,2}".prop_map(Value::from),
        Just(json!(1.5)),
        Just(json!([1, {"a": null}])),
    ];
    let sample = (
        0..STACKS.len(),
        prop::option::of(0u8..3),
        prop::option::of(0u16..400),
        prop::option::of(label),
        prop::option::of("[a-d]"),
        prop::bool::weighted(0.1),
    );
    prop::collection::vec(sample, 0..40)
}

fn samples(drawn: &[Drawn]) -> Vec<Sample> {
    let mut next = [0; STACKS.len()];
    let sample = |(id, (stack, split, group, label, column, geo)): (usize, &Drawn)| {
        next[*stack] += 1;
        Sample {
            id,
            name: format!("cübe \"{id}\""),
            stack: STACKS[*stack].into(),
            index: next[*stack] - 1,
            split: split.map(|split| format!("split {split}")),
            group: group.map(|group| group.to_string()),
            label: label.clone(),
            nan: 0,
            inf: 0,
            range: None,
            geo: geo.then(|| Geo::new(None, [0.0, 1.0, 0.0, 0.0, 0.0, -1.0])).flatten(),
            source: SourceRecord {
                path: "a.hdr".into(),
                bytes: 48,
                fingerprint: "x".into(),
                format: "ENVI BSQ".into(),
                scaling: None,
                unit: None,
                axes: None,
                ignore_value: None,
                fields: Default::default(),
            },
            columns: column.iter().map(|name| (name.clone(), Value::Null)).collect::<Map<_, _>>(),
        }
    };
    drawn.iter().enumerate().map(sample).collect()
}

fn written(base: Option<&Samples>, new: &[Sample]) -> (Vec<u8>, Vec<u8>) {
    let mut written = Written::after(base).unwrap();
    new.iter().for_each(|sample| written.add(sample).unwrap());
    let sum = digest(written.text());
    written.finish(sum)
}

fn opened(text: Vec<u8>, index: Vec<u8>) -> Samples {
    let index = Index::read(Arc::new(index)).unwrap();
    Samples::new(index, Arc::new(text), &STACKS).unwrap()
}

/// Compares everything that a list returns with the samples that it should have.
fn assert_says(list: &Samples, samples: &[Sample]) {
    assert_eq!(list.len(), samples.len());
    let mut columns: Vec<&String> = Vec::new();
    let (mut splits, mut groups, mut labels) = (Vec::new(), Vec::new(), Vec::new());
    for (id, sample) in samples.iter().enumerate() {
        assert_eq!(&list.get(id).unwrap(), sample);
        assert_eq!(list.name(id), sample.name);
        assert_eq!(list.by_name(&sample.name), Some(id));
        let stack = STACKS.iter().position(|stack| *stack == sample.stack).unwrap();
        assert_eq!((list.stack(id), list.index(id)), (stack, sample.index));
        assert_eq!(list.stack_name(id), sample.stack);
        assert_eq!(list.id_at(stack, sample.index), Some(id));
        assert_eq!(list.splits().get(id), sample.split.as_ref());
        assert_eq!(list.groups().get(id), sample.group.as_ref());
        assert_eq!(list.labels().get(id), sample.label.as_ref());
        let new = |listed: &[&String], key: &String| !listed.contains(&key);
        columns.extend(sample.columns.keys().filter(|key| new(&columns, key)).collect::<Vec<_>>());
        splits.extend(sample.split.iter().filter(|key| new(&splits, key)).collect::<Vec<_>>());
        groups.extend(sample.group.iter().filter(|key| new(&groups, key)).collect::<Vec<_>>());
        if let Some(label) = sample.label.as_ref().filter(|label| !labels.contains(label)) {
            labels.push(label);
        }
    }
    assert!(list.columns().iter().eq(columns), "{:?}", list.columns());
    assert!(list.splits().different().iter().eq(splits));
    assert!(list.groups().different().iter().eq(groups));
    assert!(list.labels().different().iter().eq(labels));
    assert_eq!(list.have_geo(), samples.iter().any(|sample| sample.geo.is_some()));
    for (number, stack) in STACKS.iter().enumerate() {
        let ids = samples.iter().filter(|sample| sample.stack == *stack).map(|sample| sample.id);
        assert!(list.ids_in(number).eq(ids));
        assert_eq!(list.id_at(number, list.ids_in(number).len()), None);
    }
    assert_eq!(list.ids_in(STACKS.len()).len(), 0);
}

#[test]
fn numbers_of_many_keys_are_wider() {
    for keys in [254, 255, 256, 65_535, 65_536] {
        let samples: Vec<Sample> = samples(&vec![(0, None, None, None, None, false); keys]);
        let grouped = samples.into_iter().map(|sample| Sample {
            group: (sample.id != 5).then(|| sample.id.to_string()),
            ..sample
        });
        let (text, index) = written(None, &grouped.collect::<Vec<_>>());
        let list = opened(text, index);
        assert_eq!(list.groups().different().len(), keys - 1);
        for id in [0, 5, keys - 1] {
            let group = (id != 5).then(|| id.to_string());
            assert_eq!(list.groups().get(id), group.as_ref());
        }
    }
}

#[test]
fn the_hint_counts_the_samples_of_each_stack() {
    let (first, other) = ((0, None, None, None, None, false), (2, None, None, None, None, false));
    let all = samples(&[first.clone(), other, first]);
    let (_, index) = written(None, &all);
    let hint = stacks_hint(&index).unwrap();
    assert_eq!(hint, [("2x3x4".to_owned(), 2), ("8x9x10".to_owned(), 1)]);
    for len in 0..index.len() {
        // Whatever is cut off, this does not panic.
        let _ = stacks_hint(&index[..len]);
    }
    let mut long = index;
    long[64..72].fill(0xff);
    assert!(stacks_hint(&long).is_none());
}

#[test]
fn lines_that_are_not_those_of_the_index_are_refused() {
    let all = samples(&[(0, None, None, None, None, false), (0, Some(1), None, None, None, false)]);
    let (text, index) = written(None, &all);
    let other = String::from_utf8(text.clone()).unwrap().replace("split 1", "split 2");
    let list = opened(other.into_bytes(), index.clone());
    assert_eq!(list.get(0).unwrap(), all[0]);
    assert!(list.get(1).unwrap_err().what().contains("differs from samples.index"));
    let broken = opened(vec![b'x'; text.len()], index.clone());
    assert!(broken.get(0).is_err() && broken.line(1).is_err());
    let short = opened(text[..9].to_vec(), index);
    assert!(short.line(0).unwrap_err().what().contains("beyond the end"));
}

#[test]
fn a_damaged_text_is_not_gone_on_with() {
    let all = samples(&[(0, None, None, None, None, false)]);
    let (text, index) = written(None, &all);
    let other = String::from_utf8(text).unwrap().replace("a.hdr", "b.hdr");
    let list = opened(other.into_bytes(), index);
    let error = Written::after(Some(&list)).err().unwrap();
    assert_eq!(error.what(), "the file does not match SHA256SUMS");
}

#[test]
fn samples_that_cannot_come_next_are_not_written() {
    let all = samples(&vec![(0, None, None, None, None, false); 2]);
    let mut written = Written::after(None).unwrap();
    let error = written.add(&all[1]).unwrap_err();
    assert_eq!(error.what(), "sample 1: sample 1 stands where 0 should be");
}

/// Bytes, some of which could not be read.
struct Unread(Vec<u8>);

impl Bytes for Unread {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn were_read(&self) -> bool {
        false
    }
}

#[test]
fn unreadable_index_is_refused() {
    let (_, index) = written(None, &samples(&[(0, None, None, None, None, false)]));
    assert!(Index::read(Arc::new(Unread(index))).unwrap_err().what().contains("cannot be read"));
}

/// The same index with a checksum that matches it.
fn sealed(mut index: Vec<u8>) -> Vec<u8> {
    if index.len() > CHECKED {
        let sum = crate::crc::crc32c(&index[CHECKED..]);
        index[12..CHECKED].copy_from_slice(&sum.to_le_bytes());
    }
    index
}

/// Calls all methods; none may panic.
fn ask_everything(index: Index, text: Vec<u8>) {
    let Ok(list) = Samples::new(index, Arc::new(text), &STACKS) else { return };
    for id in 0..list.len() {
        let _ = (list.get(id), list.line(id), list.name(id), list.stack(id), list.index(id));
        let _ = (list.splits().get(id), list.groups().get(id), list.labels().get(id));
    }
    for stack in 0..STACKS.len() {
        assert!(list.ids_in(stack).all(|id| list.stack(id) == stack));
    }
    let half = list.len() / 2;
    let _ = list.first(half, &STACKS).map(|first| first.names().count());
}

proptest! {
    #[test]
    fn the_index_says_what_the_lines_say(drawn in drawn(), cut in 0usize..40) {
        let all = samples(&drawn);
        let (text, index) = written(None, &all);
        prop_assert_eq!(&text, &encode(all.iter().cloned()));
        assert_says(&opened(text.clone(), index.clone()), &all);
        assert_says(&Samples::decode(text.clone(), &STACKS).unwrap(), &all);
        // An earlier state of a dataset, and the dataset that continues it.
        let cut = cut.min(all.len());
        let first = opened(text.clone(), index.clone()).first(cut, &STACKS).unwrap();
        assert_says(&first, &all[..cut]);
        prop_assert_eq!(written(Some(&first), &all[cut..]), (text, index));
    }

    #[test]
    fn damage_is_found(drawn in drawn(), chosen: prop::sample::Index, bit in 0u8..8) {
        let (_, index) = written(None, &samples(&drawn));
        let at = chosen.index(index.len());
        let mut damaged = index.clone();
        damaged[at] ^= 1 << bit;
        prop_assert!(Index::read(Arc::new(damaged)).is_err());
        prop_assert!(Index::read(Arc::new(index[..at].to_vec())).is_err());
    }

    /// A checksum does not protect against someone who can compute one.
    #[test]
    fn nothing_in_an_index_makes_it_panic(
        drawn in drawn(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (text, mut index) = written(None, &samples(&drawn));
        for (chosen, byte) in changes {
            let at = chosen.index(index.len());
            index[at] = byte;
        }
        if let Ok(index) = Index::read(Arc::new(sealed(index))) {
            ask_everything(index, text);
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_index(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Origin::of(&bytes);
        let mut index = b"HSIPIDX\n\x01\0\0\0".to_vec();
        index.extend(bytes);
        if let Ok(index) = Index::read(Arc::new(sealed(index))) {
            ask_everything(index, Vec::new());
        }
    }
}
