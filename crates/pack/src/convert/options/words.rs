//! Values that users give as words or numbers, and datasets record with their kinds.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

/// A value as users give it, a word or a number, or as datasets record it: with its kind, as in
/// `{"factor": 2.0}`.
#[derive(Deserialize)]
#[serde(untagged)]
enum OptionValue {
    Word(String),
    Number(f64),
    OfKind(BTreeMap<String, OptionValue>),
}

impl OptionValue {
    fn text(self) -> String {
        match self {
            Self::Word(word) => word,
            Self::Number(number) => number.to_string(),
            Self::OfKind(kinds) => kinds.into_values().map(Self::text).collect(),
        }
    }
}

/// Something that is neither, in an error.
pub(super) const SOMETHING_ELSE: Unexpected<'_> = Unexpected::Other("value");

/// Reads a value from [`OptionValue`]. `takes` says what the option takes.
pub(crate) fn words<'de, T, D>(from: D, takes: &str) -> std::result::Result<T, D::Error>
where
    T: FromStr,
    D: Deserializer<'de>,
{
    let value = OptionValue::deserialize(from);
    let text = value.map_err(|_| D::Error::invalid_type(SOMETHING_ELSE, &takes))?.text();
    text.parse().map_err(|_| D::Error::invalid_value(Unexpected::Str(&text), &takes))
}

/// Options that are usually given once: one value stands for itself, and no value is null.
pub(crate) mod one_or_several {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes no value as null, one as itself, and several as a list.
    pub fn serialize<T: Serialize, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        match values {
            [] => to.serialize_none(),
            [value] => value.serialize(to),
            several => several.serialize(to),
        }
    }

    /// Reads what [`serialize`] writes.
    pub fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Values<T> {
            Several(Vec<T>),
            One(T),
        }

        Ok(match Option::deserialize(from)? {
            None => Vec::new(),
            Some(Values::One(value)) => vec![value],
            Some(Values::Several(values)) => values,
        })
    }
}

macro_rules! from_words {
    ($($type:ident: $takes:expr;)+) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
                words(from, $takes)
            }
        }
    )+};
}
