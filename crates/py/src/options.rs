//! Options of the libraries, from the keyword arguments of Python's functions.
//!
//! Values keep their types: a boolean is not a number, and a number is not a boolean. The crate
//! `pythonize` would convert them as Python does, and its errors do not say which option was wrong,
//! or what it takes.

use std::fmt::Display;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, Deserializer, Error, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

/// The options in a dictionary: its keys are the names of fields. Options that it lacks have their
/// defaults.
///
/// # Errors
/// If an option has a value of the wrong type, or a value that it does not take. The error names
/// the option.
pub fn read<T: DeserializeOwned>(dictionary: &Bound<'_, PyDict>) -> PyResult<T> {
    let mut options = Vec::new();
    for (name, value) in dictionary.iter() {
        options.push((name.extract::<String>()?, Value::of(&value)));
    }
    let read = |options: Vec<(String, Value)>| {
        T::deserialize(MapDeserializer::<_, Refusal>::new(options.into_iter()))
    };
    read(options.clone()).or_else(|mut refusal| {
        let mut wrong = dictionary.as_any().clone();
        let mut named = "options".to_owned();
        for (name, value) in options {
            if let Err(refused) = read(vec![(name.clone(), value)]) {
                (refusal, wrong) = (refused, dictionary.get_item(&name)?.unwrap_or(wrong));
                named = name;
                break;
            }
        }
        let kind = if refusal.is_type { "wrong_type" } else { "wrong" };
        let errors = dictionary.py().import("hsipack._options")?;
        Err(PyErr::from_value(errors.call_method1(kind, (named, wrong, refusal.remedy))?))
    })
}

/// A value from Python.
#[derive(Clone)]
enum Value {
    Flag(bool),
    Whole(i64),
    /// A whole number above those, such as a seed.
    Large(u64),
    Number(f64),
    Text(String),
    Map(Vec<(String, Value)>),
    List(Vec<Value>),
    /// An array of numbers.
    Bytes(Vec<u8>),
    None,
    /// A value of another type: no option takes it.
    Other,
}

impl Value {
    fn of(object: &Bound<'_, PyAny>) -> Self {
        if object.is_none() {
            return Self::None;
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Self::Bytes(bytes.as_bytes().to_vec());
        }
        let plain = object.extract().map(Self::Text);
        let plain = plain.or_else(|_| object.extract().map(Self::Flag));
        let plain = plain.or_else(|_| object.extract().map(Self::Whole));
        let plain = plain.or_else(|_| object.extract().map(Self::Large));
        if let Ok(plain) = plain.or_else(|_: PyErr| object.extract().map(Self::Number)) {
            return plain;
        }
        let Ok(map) = object.cast::<PyDict>() else {
            let list = object.extract::<Vec<Bound<'_, PyAny>>>();
            return list
                .map_or(Self::Other, |list| Self::List(list.iter().map(Self::of).collect()));
        };
        let entry = |(name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Some((name.extract().ok()?, Self::of(&value)))
        };
        map.iter().map(entry).collect::<Option<_>>().map_or(Self::Other, Self::Map)
    }
}

/// Why a value was refused.
#[derive(Debug)]
struct Refusal {
    is_type: bool,
    remedy: String,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.remedy)
    }
}

impl std::error::Error for Refusal {}

impl Error for Refusal {
    fn custom<T: Display>(remedy: T) -> Self {
        Self { is_type: false, remedy: remedy.to_string() }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self { is_type: true, remedy: format!("give {}", in_words(&expected.to_string())) }
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self { is_type: false, ..Self::invalid_type(Unexpected::Unit, expected) }
    }
}

/// A type as `serde` names it, in words for users.
fn in_words(expected: &str) -> &str {
    match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number from 0 on",
        "a nonzero usize" => "a whole number from 1 on",
        "f64" => "a number",
        "a boolean" => "True or False",
        "a string" => "a text",
        "path string" => "a path: text or a pathlib.Path",
        "a sequence" => "a list",
        other => other,
    }
}

impl<'de> IntoDeserializer<'de, Refusal> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self {
            Self::Flag(flag) => visitor.visit_bool(flag),
            Self::Whole(number) => visitor.visit_i64(number),
            Self::Large(number) => visitor.visit_u64(number),
            Self::Number(number) => visitor.visit_f64(number),
            Self::Text(text) => visitor.visit_string(text),
            Self::Map(map) => visitor.visit_map(MapDeserializer::new(map.into_iter())),
            Self::List(list) => visitor.visit_seq(SeqDeserializer::new(list.into_iter())),
            Self::Bytes(bytes) => visitor.visit_byte_buf(bytes),
            Self::None | Self::Other => visitor.visit_unit(),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self {
            Self::None => visitor.visit_none(),
            some => visitor.visit_some(some),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self {
            Self::Text(word) => visitor.visit_enum(word.into_deserializer()),
            Self::Map(map) => {
                let map = MapDeserializer::new(map.into_iter());
                visitor.visit_enum(MapAccessDeserializer::new(map))
            }
            other => other.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct newtype_struct map struct identifier ignored_any
    }
}
