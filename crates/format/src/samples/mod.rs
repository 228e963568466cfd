//! `samples.jsonl`: one JSON object per line, in sample order.
//!
//! There may be millions of samples, and for most of them only the place of their cube is needed.
//! So the list uses an [`Index`] of the text, which holds the values that are needed often. A line
//! is read only if the whole sample is needed.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | the list of all samples |
//! | `index/` | values that are needed often, as columns: `samples.index` |
//! | `lines.rs` | the source of the lines |
//! | `keys.rs` | a key for each sample: split, group, label |
//! | `record.rs` | one sample: one line |
//! | `written.rs` | writing the text and the index |
//! | `boxes.rs` | the columns of boxes around objects |
//! | `choice.rs` | choosing samples by their splits |
//! | `condition/` | choosing samples by conditions on their columns |

pub mod boxes;
mod choice;
mod condition;
pub mod index;
mod keys;
mod limits;
mod lines;
mod record;
mod written;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::{Error, Result, checksums};

use index::{Builder, Index, Origin, UNKNOWN};
use record::Text;

pub use condition::Condition;
pub use keys::Keys;
pub use limits::MAX_NAME;
pub use lines::Lines;
pub use record::{Sample, SourceRecord};
pub use written::{Written, index_of};

/// Keys of a sample that cannot be names of table columns.
pub const RESERVED_KEYS: [&str; 9] =
    ["id", "name", "stack", "index", "nan", "inf", "range", "geo", "source"];

/// Encodes samples as the text of `samples.jsonl`.
pub fn encode(samples: impl IntoIterator<Item = Sample>) -> Vec<u8> {
    let mut text = Vec::new();
    samples.into_iter().for_each(|sample| encode_one(&sample, &mut text));
    text
}

fn encode_one(sample: &Sample, text: &mut Vec<u8>) {
    serde_json::to_writer(&mut *text, sample).expect("samples have string keys and finite numbers");
    text.push(b'\n');
}

/// The lines that are not empty: for each, its number (from 1), where it begins, and its bytes.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (usize, u64, &[u8])> {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', text).chain([text.len()]).enumerate();
    let lines = ends.map(move |(number, end)| {
        let line = (number + 1, start as u64, &text[start..end]);
        start = end + 1;
        line
    });
    lines.filter(|(_, _, line)| !line.is_empty())
}

/// All samples of a dataset, by id. The id of a sample is the number of its line in
/// `samples.jsonl`, from 0. Cloning is cheap.
#[derive(Clone)]
pub struct Samples {
    index: Index,
    lines: Arc<dyn Lines>,
    len: usize,
    /// For each stack of the index, its position among the dataset's stacks.
    place_of: Arc<[u32]>,
    /// For each of the dataset's stacks, where its ids begin in the index, and how many there are.
    in_stack: Arc<[(usize, usize)]>,
    splits: Keys<String>,
    groups: Keys<String>,
    labels: Keys<Value>,
    have_geo: bool,
    columns: Vec<String>,
}

impl Samples {
    /// Reads the `samples.jsonl` of a dataset with these stacks.
    ///
    /// # Errors
    /// If a line is not a sample, is too long or out of order, or names a stack that does not exist
    /// (the error names the line); if two samples have the same name.
    pub fn decode(text: Vec<u8>, stacks: &[&str]) -> Result<Self> {
        let mut all = Builder::of_stacks(stacks);
        for (number, start, line) in lines(&text) {
            all.add(start, line).map_err(|error| error.within(format_args!("line {number}")))?;
        }
        let mut names = HashSet::with_capacity(all.len());
        if let Some(twice) = all.names().find(|name| !names.insert(*name)) {
            return Err(Error::damaged(format!("the name {twice} occurs twice")));
        }
        drop(names);
        // The sum is never compared with another text.
        let origin = Origin { len: text.len() as u64, sha256: UNKNOWN };
        let index = Index::read(Arc::new(all.finish(&origin)))?;
        Self::new(index, Arc::new(text), stacks)
    }

    /// The samples of a dataset with these stacks, from an index of the lines.
    ///
    /// # Errors
    /// If samples are in a stack that does not exist.
    pub fn new(index: Index, lines: Arc<dyn Lines>, stacks: &[&str]) -> Result<Self> {
        let len = index.len();
        Self::of_first(index, lines, len, stacks)
    }

    /// The first `len` samples of an index.
    fn of_first(index: Index, lines: Arc<dyn Lines>, len: usize, stacks: &[&str]) -> Result<Self> {
        let head = index.head();
        let mut place_of = Vec::with_capacity(head.stacks.len());
        let mut in_stack = vec![(0, 0); stacks.len()];
        let mut first = 0;
        for (name, count) in &head.stacks {
            let total = *count as usize;
            // The ids of a stack are in ascending order.
            let count = count_while(first..first + total, |position| index.id(position) < len);
            match stacks.iter().position(|stack| stack == name) {
                Some(number) => {
                    place_of.push(number as u32);
                    in_stack[number] = (first, count);
                }
                None if count == 0 => place_of.push(u32::MAX),
                None => {
                    let id = index.id(first);
                    return Err(Error::damaged(format!(
                        "sample {id} is in stack {name}, which does not exist"
                    )));
                }
            }
            first += total;
        }
        let is_there = |first: &u64| *first < len as u64;
        let columns = head.columns.iter().filter(|(_, first)| is_there(first));
        Ok(Self {
            splits: Keys::new(head.splits.clone(), index.splits(), len, index.len()),
            groups: Keys::new(head.groups.clone(), index.groups(), len, index.len()),
            labels: Keys::new(head.labels.clone(), index.labels(), len, index.len()),
            have_geo: head.geo_from.as_ref().is_some_and(is_there),
            columns: columns.map(|(name, _)| name.clone()).collect(),
            lines,
            len,
            place_of: place_of.into(),
            in_stack: in_stack.into(),
            index,
        })
    }

    /// The first `len` samples, for a dataset that had these stacks.
    ///
    /// # Errors
    /// If one of them is in a stack that does not exist.
    pub fn first(self, len: usize, stacks: &[&str]) -> Result<Self> {
        let len = len.min(self.len);
        Self::of_first(self.index, self.lines, len, stacks)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no samples.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The index that the list uses.
    pub fn index_of_lines(&self) -> &Index {
        &self.index
    }

    /// All data of a sample, read from its line.
    ///
    /// # Errors
    /// If the line cannot be read, or differs from the line that was indexed.
    ///
    /// # Panics
    /// If the sample does not exist.
    pub fn get(&self, id: usize) -> Result<Sample> {
        self.with_line(id, |line| {
            let sample: Sample = serde_json::from_slice(line)
                .map_err(|error| Error::damaged(format!("sample {id}: {error}")))?;
            let is_it = sample.id == id
                && sample.name == self.name(id)
                && sample.split.as_ref() == self.splits.get(id);
            if is_it { Ok(sample) } else { Err(other_line(id)) }
        })
    }

    /// The line of a sample (JSON).
    ///
    /// # Errors
    /// If it cannot be read, or differs from the line that was indexed.
    ///
    /// # Panics
    /// If the sample does not exist.
    pub fn line(&self, id: usize) -> Result<Vec<u8>> {
        self.with_line(id, |line| {
            let record: Known<'_> = serde_json::from_slice(line)
                .map_err(|error| Error::damaged(format!("sample {id}: {error}")))?;
            let is_it = record.id == id && record.name.0 == self.name(id);
            if is_it { Ok(line.to_vec()) } else { Err(other_line(id)) }
        })
    }

    fn with_line<T>(&self, id: usize, take: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        assert!(id < self.len, "there is no sample {id}");
        let (mut take, mut taken) = (Some(take), None);
        self.lines.with(self.index.line(id), &mut |line| {
            taken = take.take().map(|take| take(line.trim_ascii()));
        })?;
        let taken = taken.unwrap_or_else(|| Err(Error::bug("a line was not handed over")));
        taken.map_err(|error| self.locate(error))
    }

    /// Adds the name of the file of the lines to an error about its content.
    fn locate(&self, error: Error) -> Error {
        self.lines.locate(error)
    }

    /// All lines, as in the file.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn text(&self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        self.lines.with(0..self.index.end_of(self.len), &mut |all| text.extend(all))?;
        Ok(text)
    }

    /// The SHA-256 of all lines.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn sha256(&self) -> Result<[u8; 32]> {
        let mut sum = [0; 32];
        self.lines.with(0..self.index.end_of(self.len), &mut |all| sum = checksums::digest(all))?;
        Ok(sum)
    }

    /// All samples in order, read one by one.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<Sample>> + DoubleEndedIterator + '_ {
        (0..self.len()).map(|id| self.get(id))
    }

    /// The name of a sample.
    ///
    /// # Panics
    /// If the sample does not exist. If the list uses a mapped file, also if the file was changed
    /// in place or can no longer be read. The same holds for the methods below.
    pub fn name(&self, id: usize) -> &str {
        assert!(id < self.len, "there is no sample {id}");
        self.index.name(id)
    }

    /// The sample whose id is `text`. Ids have no leading zeros: `0001` is a name.
    pub fn by_id(&self, text: &str) -> Option<usize> {
        text.parse().ok().filter(|id: &usize| *id < self.len() && id.to_string() == text)
    }

    /// The sample with this name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.names().position(|other| other == name)
    }

    /// The names of all samples, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.len).map(|id| self.index.name(id))
    }

    /// The stack that holds the cube of a sample, as its position among the dataset's stacks.
    pub fn stack(&self, id: usize) -> usize {
        assert!(id < self.len, "there is no sample {id}");
        self.place_of[self.index.stack(id)] as usize
    }

    /// The name of the stack that holds the cube of a sample.
    pub fn stack_name(&self, id: usize) -> &str {
        assert!(id < self.len, "there is no sample {id}");
        &self.index.head().stacks[self.index.stack(id)].0
    }

    /// The position of a sample in its stack's arrays.
    pub fn index(&self, id: usize) -> usize {
        assert!(id < self.len, "there is no sample {id}");
        self.index.place(id)
    }

    /// Ids of the samples in a stack, in the order of its arrays; empty if the stack does not
    /// exist.
    pub fn ids_in(&self, stack: usize) -> impl ExactSizeIterator<Item = usize> + '_ {
        let (first, count) = self.in_stack.get(stack).copied().unwrap_or_default();
        (first..first + count).map(|position| self.index.id(position))
    }

    /// The sample at a position in a stack's arrays.
    pub fn id_at(&self, stack: usize, index: usize) -> Option<usize> {
        let (first, count) = *self.in_stack.get(stack)?;
        (index < count).then(|| self.index.id(first + index))
    }

    /// The split of each sample.
    pub fn splits(&self) -> &Keys<String> {
        &self.splits
    }

    /// The group of each sample, which must not be divided among splits.
    pub fn groups(&self) -> &Keys<String> {
        &self.groups
    }

    /// The label of each whole cube.
    pub fn labels(&self) -> &Keys<Value> {
        &self.labels
    }

    /// Whether some samples may have the location of their pixels on Earth.
    pub fn have_geo(&self) -> bool {
        self.have_geo
    }

    /// Names of the other columns of the user's tables, in the order in which they first occur.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

/// The fields that distinguish a line from any other.
#[derive(serde::Deserialize)]
struct Known<'a> {
    id: usize,
    #[serde(borrow)]
    name: Text<'a>,
}

fn other_line(id: usize) -> Error {
    Error::damaged(format!("sample {id} differs from samples.index: the file was changed"))
}

/// How many numbers of `range` fulfil a condition that is true up to some number and false from
/// there on.
fn count_while(range: std::ops::Range<usize>, holds: impl Fn(usize) -> bool) -> usize {
    let (first, mut low, mut high) = (range.start, range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { low = middle + 1 } else { high = middle }
    }
    low - first
}

impl fmt::Debug for Samples {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::record::Line;
    use super::*;
    use crate::Geo;
    use proptest::prelude::*;
    use serde_json::Map;

    const STACKS: [&str; 2] = ["2x3x4", "5x6x7"];

    fn sample(id: usize) -> Sample {
        Sample {
            id,
            name: format!("cube {id}"),
            stack: "2x3x4".into(),
            index: id,
            split: id.is_multiple_of(2).then(|| "train".into()),
            group: None,
            label: Some(Value::from(3)),
            nan: 0,
            inf: 0,
            range: Some([0.1, 0.30000000000000004]),
            geo: Geo::new(Some("EPSG:32632".into()), [634200.5, 30.0, 0.0, 5297190.0, 0.0, -30.0]),
            source: SourceRecord {
                path: "a.hdr".into(),
                bytes: 48,
                fingerprint: "x".into(),
                format: "ENVI BSQ".into(),
                scaling: None,
                ignore_value: Some(-9999.0),
                unit: Some("W/(m2 sr nm)".into()),
                fields: [("scene".to_owned(), Some("a".to_owned()))].into(),
                axes: None,
            },
            columns: Map::from_iter([("age".into(), Value::from(41))]),
        }
    }

    fn decode(samples: &[Sample]) -> Result<Samples> {
        Samples::decode(encode(samples.iter().cloned()), &STACKS)
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let samples: Vec<Sample> = (0..3).map(sample).collect();
        let read = decode(&samples).unwrap();
        assert_eq!(read.iter().collect::<Result<Vec<_>>>().unwrap(), samples);
        assert_eq!(read.get(2).unwrap(), samples[2]);
        assert!(read.have_geo());
        let nowhere = samples.into_iter().map(|sample| Sample { geo: None, ..sample });
        assert!(!decode(&nowhere.collect::<Vec<_>>()).unwrap().have_geo());
    }

    #[test]
    fn columns_are_what_the_samples_say() {
        let mut samples: Vec<Sample> = (0..9).map(sample).collect();
        for (id, sample) in samples.iter_mut().enumerate() {
            sample.name = format!("Würfel \"{id}\"\n");
            sample.stack = STACKS[usize::from(id % 3 == 1)].into();
            sample.label =
                [None, Some(Value::Null), Some("a".into()), Some(Value::from(1))][id % 4].clone();
            if id == 5 {
                sample.columns = Map::from_iter(
                    [("day", 1), ("age", 2)].map(|(key, value)| (key.into(), value.into())),
                );
            }
            sample.group = (id > 4).then(|| format!("\u{e9}{}", id / 2));
        }
        let mut next = [0; 2];
        for sample in &mut samples {
            let index = &mut next[usize::from(sample.stack == STACKS[1])];
            sample.index = *index;
            *index += 1;
        }
        let read = decode(&samples).unwrap();
        for (id, sample) in samples.iter().enumerate() {
            assert_eq!(read.name(id), sample.name);
            assert_eq!(STACKS[read.stack(id)], sample.stack);
            assert_eq!(read.index(id), sample.index);
            assert_eq!(read.id_at(read.stack(id), sample.index), Some(id));
            assert_eq!(read.splits().get(id), sample.split.as_ref());
            assert_eq!(read.groups().get(id), sample.group.as_ref());
            let label = sample.label.as_ref().filter(|label| !label.is_null());
            assert_eq!(read.labels().get(id), label);
        }
        assert_eq!(read.ids_in(1).collect::<Vec<_>>(), [1, 4, 7]);
        assert_eq!((read.id_at(1, 3), read.ids_in(2).len()), (None, 0));
        assert_eq!(read.labels().different(), [Value::from("a"), Value::from(1)]);
        assert_eq!(read.columns(), ["age", "day"]);
        let first = read.first(4, &STACKS).unwrap();
        samples[1].label = None;
        assert_eq!(first.iter().collect::<Result<Vec<_>>>().unwrap(), samples[..4]);
        assert_eq!(first.groups().different(), [] as [String; 0]);
    }

    #[test]
    fn invalid_geo_is_ignored() {
        let line = String::from_utf8(encode([sample(0)])).unwrap();
        let geo = serde_json::to_string(&sample(0).geo).unwrap();
        for other in
            ["null", "\"north\"", "{\"transform\":[0,0,0,0,0,0]}", "{\"crs\":\"EPSG:4326\"}"]
        {
            let line = line.replace(&geo, other);
            let read = Samples::decode(line.into_bytes(), &STACKS).unwrap();
            assert_eq!(read.get(0).unwrap(), Sample { geo: None, ..sample(0) });
            assert_eq!(read.columns(), ["age"]);
        }
    }

    #[test]
    fn disorder_and_repeated_names_are_refused() {
        let fault = |samples: &[Sample]| decode(samples).unwrap_err().what().to_owned();
        assert_eq!(fault(&[sample(1)]), "line 1: sample 1 stands where 0 should be");
        let mut twice = sample(1);
        twice.name = "cube 0".into();
        assert_eq!(fault(&[sample(0), twice]), "the name cube 0 occurs twice");
        let mut elsewhere = sample(1);
        elsewhere.stack = "1x1x1".into();
        let what = "line 2: sample 1 is in stack 1x1x1, which does not exist";
        assert_eq!(fault(&[sample(0), elsewhere]), what);
        let mut ahead = sample(1);
        ahead.index = 2;
        let what = "line 2: sample 1 has index 2 in stack 2x3x4 instead of 1";
        assert_eq!(fault(&[sample(0), ahead]), what);
    }

    #[test]
    fn names_and_lines_without_measure_are_refused() {
        let mut long = sample(0);
        long.name = "x".repeat(MAX_NAME + 1);
        let error = decode(&[long.clone()]).unwrap_err();
        assert!(
            error.what().contains("a name of 4097 bytes") && error.what().len() < 100,
            "{error}"
        );
        long.name = "x".repeat(10 << 20);
        assert!(decode(&[long]).unwrap_err().what().contains("a line has at most"));
    }

    /// Valid and invalid values for any field of a line.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            Just("1e999".to_owned()),
            Just("-0".to_owned()),
            Just(r#""\ud800""#.to_owned()),
            Just(r#""a\u00e9\"""#.to_owned()),
            Just(format!("{}1{}", "[".repeat(130), "]".repeat(130))),
            any::<u64>().prop_map(|number| number.to_string()),
            any::<i64>().prop_map(|number| number.to_string()),
            any::<f64>().prop_map(|number| number.to_string()),
            "[ -~]{0,5}".prop_map(|text| Value::from(text).to_string()),
        ];
        leaf.prop_recursive(2, 8, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3)
                    .prop_map(|all| format!("[{}]", all.join(","))),
                prop::collection::vec(("[a-c]", inner), 0..3).prop_map(|all| {
                    let all: Vec<String> =
                        all.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                    format!("{{{}}}", all.join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Samples::decode(text, &STACKS);
        }

        /// A line that passes when all lines are read can also be read as a whole later.
        #[test]
        fn inspected_lines_equal_parsed_lines(
            key in prop::sample::select(vec!["name", "index", "split", "group", "label", "nan", "range", "geo", "source", "age", "id"]),
            inside in prop::sample::select(vec![None, Some("path"), Some("scaling"), Some("ignore_value"), Some("unit"), Some("more")]),
            value in json(),
            twice in any::<bool>(),
        ) {
            let mut fields: Vec<(String, String)> = serde_json::to_value(sample(0)).unwrap().as_object().unwrap()
                .iter().map(|(key, value)| (key.clone(), value.to_string())).collect();
            let value = match inside {
                Some(inside) if key == "source" => {
                    let source = serde_json::to_string(&sample(0).source).unwrap();
                    format!("{{\"{inside}\":{value},{}", &source[1..])
                }
                _ => value,
            };
            if !twice {
                fields.retain(|(name, _)| name != key);
            }
            fields.push((key.to_owned(), value));
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
            let line = format!("{{{}}}", fields.join(","));
            let whole = serde_json::from_str::<Sample>(&line);
            let looked_at = serde_json::from_str::<Line<'_>>(&line);
            prop_assert_eq!(whole.is_ok(), looked_at.is_ok(), "{} {:?}", line, whole.err());
        }
    }
}
