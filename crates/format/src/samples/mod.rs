//! `samples.jsonl`: one JSON object a line, in sample order.
//!
//! There may be millions of samples: of most of them nobody asks more than the place of their cube. So the list keeps the
//! text of the file, beside it columns of what is asked for often, and reads a line when somebody wants all of it.
//!
//! | file | part |
//! |---|---|
//! | `mod.rs` | the list of all samples |
//! | `record.rs` | one sample, one line |
//! | `column.rs` | columns of texts and of keys that come often |
//! | `choice.rs` | choosing samples by their splits |
//! | `condition/` | choosing samples by conditions on their columns |

mod choice;
mod column;
mod condition;
mod record;

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use crate::{Error, Result};

use column::Names;
use record::{Line, Text};

pub use column::Keys;
pub use condition::Condition;
pub use record::{Sample, SourceRecord};

/// Keys of a sample that a table's column cannot take.
pub const RESERVED_KEYS: [&str; 9] =
    ["id", "name", "stack", "index", "nan", "inf", "range", "geo", "source"];

/// Most bytes of a name.
pub const MAX_NAME: usize = 4096;
/// Most bytes of a line.
const MAX_LINE: usize = 4 << 20;
/// Most samples: their numbers are kept in 32 bits.
const MAX_SAMPLES: usize = u32::MAX as usize;

/// Writes samples as `samples.jsonl`.
pub fn encode(samples: impl IntoIterator<Item = Sample>) -> Vec<u8> {
    let mut text = Vec::new();
    for sample in samples {
        serde_json::to_writer(&mut text, &sample)
            .expect("samples have string keys and finite numbers");
        text.push(b'\n');
    }
    text
}

/// The lines that are not empty: their numbers from 1, where they begin, and themselves.
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

/// All samples of a dataset, by their ids: the lines of `samples.jsonl` that they stand on, from 0.
#[derive(Clone)]
pub struct Samples {
    text: Vec<u8>,
    /// Where each line begins.
    starts: Vec<u64>,
    names: Names,
    stack_of: Vec<u32>,
    index_of: Vec<u32>,
    /// Ids of the samples in each stack, by their places in it.
    in_stack: Vec<Vec<u32>>,
    splits: Keys<String>,
    groups: Keys<String>,
    labels: Keys<Value>,
    have_geo: bool,
    columns: Vec<String>,
}

impl Samples {
    /// Reads `samples.jsonl` of a dataset with these stacks.
    ///
    /// # Errors
    /// If a line is not a sample, is too long, is out of order, names a stack that there is not, or a name comes twice; the
    /// line is named.
    pub fn decode(text: Vec<u8>, stacks: &[&str]) -> Result<Self> {
        let mut all = Self {
            text: Vec::new(),
            starts: Vec::new(),
            names: Names::default(),
            stack_of: Vec::new(),
            index_of: Vec::new(),
            in_stack: vec![Vec::new(); stacks.len()],
            splits: Keys::default(),
            groups: Keys::default(),
            labels: Keys::default(),
            have_geo: false,
            columns: Vec::new(),
        };
        for (number, start, line) in lines(&text) {
            all.starts.push(start);
            all.add(line, stacks).map_err(|error| error.within(format_args!("line {number}")))?;
        }
        let mut names = HashSet::with_capacity(all.len());
        if let Some(twice) = all.names.iter().find(|name| !names.insert(*name)) {
            return Err(Error::damaged(format!("the name {twice} comes twice")));
        }
        all.close();
        all.text = text;
        Ok(all)
    }

    /// Takes in the next line.
    fn add(&mut self, line: &[u8], stacks: &[&str]) -> Result<()> {
        if line.len() > MAX_LINE {
            let len = line.len();
            return Err(Error::damaged(format!("{len} bytes; a line has at most {MAX_LINE}")));
        }
        let line: Line<'_> =
            serde_json::from_slice(line).map_err(|error| Error::damaged(error.to_string()))?;
        let (id, name, stack) = (self.stack_of.len(), line.name.0, line.stack.0);
        if name.len() > MAX_NAME {
            let len = name.len();
            return Err(Error::damaged(format!(
                "a name of {len} bytes; a name has at most {MAX_NAME}"
            )));
        }
        if line.id != id {
            return Err(Error::damaged(format!("sample {} stands where {id} should be", line.id)));
        }
        let Some(place) = stacks.iter().position(|one| *one == stack) else {
            return Err(Error::damaged(format!(
                "sample {id} is in stack {stack}, which does not exist"
            )));
        };
        let next = self.in_stack[place].len();
        if line.index != next {
            return Err(Error::damaged(format!(
                "sample {id} has index {} in stack {stack} instead of {next}",
                line.index
            )));
        }
        if id >= MAX_SAMPLES {
            return Err(Error::unsupported(format!("more than {MAX_SAMPLES} samples")));
        }
        self.names.push(&name);
        self.stack_of.push(place as u32);
        self.index_of.push(next as u32);
        self.in_stack[place].push(id as u32);
        self.splits.push(line.split.as_ref().map(|split| split.0.as_ref()), str::to_owned);
        self.groups.push(line.group.as_ref().map(|group| group.0.as_ref()), str::to_owned);
        let label = line.label.filter(|label| !label.is_null());
        self.labels.push(label.as_ref().map(Value::to_string).as_deref(), |_| {
            label.clone().expect("there is one where its text is")
        });
        self.have_geo |= line.geo.is_some();
        // A table has few columns, and most lines name them in one order.
        for (place, Text(key)) in line.columns.0.iter().enumerate() {
            if self.columns.get(place).is_none_or(|column| column != key)
                && !self.columns.iter().any(|column| column == key)
            {
                self.columns.push(key.clone().into_owned());
            }
        }
        Ok(())
    }

    /// Gives back the memory that only adding lines needs.
    fn close(&mut self) {
        self.starts.shrink_to_fit();
        self.names.close();
        self.stack_of.shrink_to_fit();
        self.index_of.shrink_to_fit();
        self.in_stack.iter_mut().for_each(Vec::shrink_to_fit);
        self.splits.close();
        self.groups.close();
        self.labels.close();
    }

    /// The first `len` of them, of a dataset that had these stacks.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn first(mut self, len: usize, stacks: &[&str]) -> Result<Self> {
        if let Some(end) = self.starts.get(len) {
            self.text.truncate(*end as usize);
        }
        Self::decode(self.text, stacks)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that is known of a sample, read from its line.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn get(&self, id: usize) -> Sample {
        serde_json::from_slice(self.line(id)).expect("the line was checked when the list was read")
    }

    /// The line of a sample, JSON.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn line(&self, id: usize) -> &[u8] {
        let end = self.starts.get(id + 1).map_or(self.text.len(), |end| *end as usize);
        self.text[self.starts[id] as usize..end].trim_ascii()
    }

    /// All samples in order, one read after another.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Sample> + DoubleEndedIterator + '_ {
        (0..self.len()).map(|id| self.get(id))
    }

    /// The name of a sample.
    ///
    /// # Panics
    /// If there is no such sample, as all that follow.
    pub fn name(&self, id: usize) -> &str {
        self.names.get(id)
    }

    /// The sample that `text` means: its id, or else its name.
    pub fn find(&self, text: &str) -> Option<usize> {
        let by_id = text.parse().ok().filter(|id| *id < self.len());
        by_id.or_else(|| self.names().position(|name| name == text))
    }

    /// Names of all samples in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter()
    }

    /// The stack that holds the cube of a sample, as its place among the dataset's stacks.
    pub fn stack(&self, id: usize) -> usize {
        self.stack_of[id] as usize
    }

    /// The place of a sample in its stack's arrays.
    pub fn index(&self, id: usize) -> usize {
        self.index_of[id] as usize
    }

    /// Ids of the samples in a stack, in the order of its arrays; none if there is no such stack.
    pub fn ids_in(&self, stack: usize) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.in_stack.get(stack).map_or(&[][..], Vec::as_slice).iter().map(|id| *id as usize)
    }

    /// The sample at a place in a stack's arrays.
    pub fn id_at(&self, stack: usize, index: usize) -> Option<usize> {
        self.in_stack.get(stack)?.get(index).map(|id| *id as usize)
    }

    /// The part of the dataset that each sample belongs to.
    pub fn splits(&self) -> &Keys<String> {
        &self.splits
    }

    /// What must not be spread over splits, of each sample.
    pub fn groups(&self) -> &Keys<String> {
        &self.groups
    }

    /// Labels of the whole cubes.
    pub fn labels(&self) -> &Keys<Value> {
        &self.labels
    }

    /// Whether some may say where their pixels lie.
    pub fn have_geo(&self) -> bool {
        self.have_geo
    }

    /// Names of the other columns of the user's tables, in the order in which they first come.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(read.iter().collect::<Vec<_>>(), samples);
        assert_eq!(read.get(2), samples[2]);
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
            let place = &mut next[usize::from(sample.stack == STACKS[1])];
            sample.index = *place;
            *place += 1;
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
        assert_eq!(first.iter().collect::<Vec<_>>(), samples[..4]);
        assert_eq!(first.groups().different(), [] as [String; 0]);
    }

    #[test]
    fn what_is_no_place_on_earth_is_no_error() {
        let line = String::from_utf8(encode([sample(0)])).unwrap();
        let geo = serde_json::to_string(&sample(0).geo).unwrap();
        for other in
            ["null", "\"north\"", "{\"transform\":[0,0,0,0,0,0]}", "{\"crs\":\"EPSG:4326\"}"]
        {
            let line = line.replace(&geo, other);
            let read = Samples::decode(line.into_bytes(), &STACKS).unwrap();
            assert_eq!(read.get(0), Sample { geo: None, ..sample(0) });
            assert_eq!(read.columns(), ["age"]);
        }
    }

    #[test]
    fn disorder_and_repeated_names_are_refused() {
        let fault = |samples: &[Sample]| decode(samples).unwrap_err().what().to_owned();
        assert_eq!(fault(&[sample(1)]), "line 1: sample 1 stands where 0 should be");
        let mut twice = sample(1);
        twice.name = "cube 0".into();
        assert_eq!(fault(&[sample(0), twice]), "the name cube 0 comes twice");
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

    /// What may stand at any place of a line, right and wrong.
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

        /// A line that passes when all are read can be read as a whole later.
        #[test]
        fn what_is_looked_at_is_what_is_read(
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
