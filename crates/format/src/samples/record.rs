//! One line of `samples.jsonl`: a sample as it is written, and the fields that are read when all
//! lines are read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Geo;

/// The source of a sample.
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
    /// The scaling that the file specifies and that was applied: value * multiply / divide + add.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling: Option<[f64; 3]>,
    /// The number that marked missing data in the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore_value: Option<f64>,
    /// The unit of the packed values, if the sensor's product defines one and they were neither
    /// calibrated nor normalised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Values of the fields of patterns that do not follow from the path, such as `{scene}` of a
    /// column: they find the files of its masks and references again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Option<String>>,
    /// The order of the axes of its array, if other files than its own said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axes: Option<String>,
}

/// One line of `samples.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Number of the sample in the dataset, from 0: the number of its line.
    pub id: usize,
    /// Unique name.
    pub name: String,
    /// The stack that holds its cube, e.g. `480x640x100`.
    pub stack: String,
    /// Its position in the stack's arrays.
    pub index: usize,
    /// The part of the dataset it belongs to: train, validation, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// The group, whose samples stay in one split: patient, animal, flight, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Label of the whole cube.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<Value>,
    /// Number of NaN values in the packed cube.
    pub nan: u64,
    /// Number of infinite values in the packed cube.
    pub inf: u64,
    /// Smallest and largest finite value in the packed cube; `null` if none is finite.
    pub range: Option<[f64; 2]>,
    /// The location of its pixels on Earth, if its source has it.
    #[serde(default, deserialize_with = "Geo::if_sound", skip_serializing_if = "Option::is_none")]
    pub geo: Option<Geo>,
    /// Its source.
    pub source: SourceRecord,
    /// All other columns of the user's table.
    #[serde(flatten)]
    pub columns: Map<String, Value>,
}

/// A line as it is read when all lines are read: checked like a [`Sample`], but without copying.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    pub id: usize,
    #[serde(borrow)]
    pub name: Text<'a>,
    #[serde(borrow)]
    pub stack: Text<'a>,
    pub index: usize,
    #[serde(borrow, default)]
    pub split: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub group: Option<Text<'a>>,
    #[serde(default)]
    pub label: Option<Value>,
    #[serde(rename = "nan")]
    _nan: u64,
    #[serde(rename = "inf")]
    _inf: u64,
    #[serde(rename = "range")]
    _range: Option<[f64; 2]>,
    #[serde(default)]
    pub geo: Option<Anything>,
    #[serde(rename = "source", borrow)]
    _source: SourceLine<'a>,
    #[serde(flatten, borrow)]
    pub columns: Columns<'a>,
}

#[derive(Deserialize)]
struct SourceLine<'a> {
    #[serde(rename = "path", borrow)]
    _path: Text<'a>,
    #[serde(rename = "bytes")]
    _bytes: u64,
    #[serde(rename = "fingerprint", borrow)]
    _fingerprint: Text<'a>,
    #[serde(rename = "format", borrow)]
    _format: Text<'a>,
    #[serde(rename = "scaling", default)]
    _scaling: Option<[f64; 3]>,
    #[serde(rename = "ignore_value", default)]
    _ignore_value: Option<f64>,
    #[serde(rename = "unit", borrow, default)]
    _unit: Option<Text<'a>>,
}

/// Text that is borrowed from the line, unless something in it is escaped.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

/// The keys of all other columns; their values are checked and dropped.
pub(super) struct Columns<'a>(pub Vec<Text<'a>>);

impl<'a> Deserialize<'a> for Columns<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;

        impl<'a> Visitor<'a> for Keys {
            type Value = Columns<'a>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("columns of a table")
            }

            fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, Anything)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(Columns(keys))
            }
        }

        deserializer.deserialize_map(Keys)
    }
}

/// Any JSON, checked and dropped.
pub(super) struct Anything;

impl<'a> Deserialize<'a> for Anything {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'a> Visitor<'a> for Anything {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(Self)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut sequence: A) -> Result<Self, A::Error> {
        while sequence.next_element::<Self>()?.is_some() {}
        Ok(Self)
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(Self)
    }
}
