//! `samples.jsonl`: one JSON object a line, in sample order.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{Error, Result};

/// Where a sample came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// The input as the user gave it, `file` or `file::variable`.
    pub path: String,
    /// Size of all files of the cube together.
    pub bytes: u64,
    /// A hash that changes when the files do; see `docs/format.md`.
    pub fingerprint: String,
    /// The format's name.
    pub format: String,
    /// Scaling that the file asks for and that was applied: value * multiply / divide + add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<[f64; 3]>,
    /// The number that marked missing data in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_value: Option<f64>,
}

/// One line of `samples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the sample in the dataset, from 0: the line it stands on.
    pub id: u64,
    /// Unique name.
    pub name: String,
    /// The stack that holds its cube, e.g. `480x640x100`.
    pub stack: String,
    /// Its place in the stack's arrays.
    pub index: usize,
    /// The part of the dataset it belongs to: train, validation, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// What must not be spread over splits: patient, animal, flight, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Label of the whole cube.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Value>,
    /// NaN values in the packed cube.
    pub nan: u64,
    /// Infinite values in the packed cube.
    pub inf: u64,
    /// Least and greatest finite value in the packed cube; `null` if none is finite.
    pub range: Option<[f64; 2]>,
    /// Where it came from.
    pub source: SourceRecord,
    /// Every other column of the user's table.
    #[serde(flatten)]
    pub columns: Map<String, Value>,
}

/// Keys of a sample that a table's column cannot take.
pub const RESERVED_KEYS: [&str; 8] =
    ["id", "name", "stack", "index", "nan", "inf", "range", "source"];

/// Most bytes of a name.
pub const MAX_NAME: usize = 4096;
/// Most bytes of a line.
const MAX_LINE: usize = 4 << 20;

/// Writes samples as `samples.jsonl`.
pub fn encode(samples: &[Sample]) -> Vec<u8> {
    let mut text = Vec::new();
    for sample in samples {
        serde_json::to_writer(&mut text, sample)
            .expect("samples have string keys and finite numbers");
        text.push(b'\n');
    }
    text
}

/// Reads `samples.jsonl`.
///
/// # Errors
/// If a line is not a sample, is too long, is out of order, or a name comes twice; the line is named.
pub fn decode(text: &[u8]) -> Result<Vec<Sample>> {
    let mut samples: Vec<Sample> = Vec::new();
    let lines = text.split(|byte| *byte == b'\n');
    for (number, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let bad = |what: String| Error::damaged(format!("line {}: {what}", number + 1));
        if line.len() > MAX_LINE {
            return Err(bad(format!("{} bytes; a line has at most {MAX_LINE}", line.len())));
        }
        let sample: Sample =
            serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
        if sample.name.len() > MAX_NAME {
            let len = sample.name.len();
            return Err(bad(format!("a name of {len} bytes; a name has at most {MAX_NAME}")));
        }
        if sample.id != samples.len() as u64 {
            return Err(bad(format!(
                "sample {} stands where {} should be",
                sample.id,
                samples.len()
            )));
        }
        samples.push(sample);
    }
    let mut names = HashSet::with_capacity(samples.len());
    match samples.iter().find(|sample| !names.insert(sample.name.as_str())) {
        Some(twice) => Err(Error::damaged(format!("the name {} comes twice", twice.name))),
        None => Ok(samples),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(id: u64) -> Sample {
        Sample {
            id,
            name: format!("cube {id}"),
            stack: "2x3x4".into(),
            index: id as usize,
            split: id.is_multiple_of(2).then(|| "train".into()),
            group: None,
            label: Some(Value::from(3)),
            nan: 0,
            inf: 0,
            range: Some([0.1, 0.30000000000000004]),
            source: SourceRecord {
                path: "a.hdr".into(),
                bytes: 48,
                fingerprint: "x".into(),
                format: "ENVI BSQ".into(),
                scaling: None,
                ignore_value: Some(-9999.0),
            },
            columns: Map::from_iter([("age".into(), Value::from(41))]),
        }
    }

    #[test]
    fn lines_come_back_as_they_were() {
        let samples: Vec<Sample> = (0..3).map(sample).collect();
        assert_eq!(decode(&encode(&samples)).unwrap(), samples);
    }

    #[test]
    fn disorder_and_repeated_names_are_refused() {
        assert!(decode(&encode(&[sample(1)])).is_err());
        let mut twice = sample(1);
        twice.name = "cube 0".into();
        let error = decode(&encode(&[sample(0), twice])).unwrap_err();
        assert!(error.to_string().contains("cube 0"), "{error}");
    }

    #[test]
    fn names_and_lines_without_measure_are_refused() {
        let mut long = sample(0);
        long.name = "x".repeat(MAX_NAME + 1);
        let error = decode(&encode(&[long.clone()])).unwrap_err();
        assert!(
            error.what().contains("a name of 4097 bytes") && error.what().len() < 100,
            "{error}"
        );
        long.name = "x".repeat(10 << 20);
        assert!(decode(&encode(&[long])).unwrap_err().what().contains("a line has at most"));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&text);
        }
    }
}
