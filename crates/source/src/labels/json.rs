//! Parts that readers of labels in JSON share. Files are read entry by entry, within serde_json's
//! limit of nesting.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::marker::PhantomData;
use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_store::bounded_read;
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The kind of a file of labels in JSON, by the names of its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Features on a map, or something else.
    GeoJson,
    /// Annotations of several pictures.
    Coco,
    /// Shapes in one picture.
    Labelme,
}

/// Whether a file that starts with `head` is a JSON object.
pub(super) fn recognises(head: &[u8]) -> bool {
    let text = head.strip_prefix(MARK).unwrap_or(head);
    text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
}

const MARK: &[u8] = b"\xEF\xBB\xBF";

/// The kind of the JSON file at `path`. Reads it as far as it must.
///
/// # Errors
/// If the file cannot be read. What is not JSON counts as GeoJSON, whose reader says what is wrong.
pub(super) fn kind(path: &Path) -> Result<Kind> {
    let mut file = BufReader::new(bounded_read::window(path)?);
    skip_mark(&mut file)?;
    let mut kind = Kind::GeoJson;
    let mut json = serde_json::Deserializer::from_reader(file);
    // The search ends with an error where the kind is known.
    let _ = Members(&mut kind).deserialize(&mut json);
    Ok(kind)
}

/// Skips a byte-order mark.
///
/// # Errors
/// If the file cannot be read.
pub(super) fn skip_mark(file: &mut impl BufRead) -> Result<()> {
    let head = file.fill_buf().map_err(|error| {
        Error::new(hsipack_format::ErrorKind::Io, format!("cannot read: {error}"))
    })?;
    if head.starts_with(MARK) {
        file.consume(MARK.len());
    }
    Ok(())
}

/// Looks for a member that says the kind.
struct Members<'a>(&'a mut Kind);

impl<'de> DeserializeSeed<'de> for Members<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            *self.0 = match &*key {
                "annotations" | "images" | "categories" => Kind::Coco,
                "shapes" | "imagePath" | "imageHeight" => Kind::Labelme,
                // Some converters write the kind of annotations here.
                "type" if map.next_value::<String>()? == "instances" => continue,
                "type" | "features" | "geometry" | "crs" => Kind::GeoJson,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            return Err(de::Error::custom("the kind is known"));
        }
        Ok(())
    }
}

/// Reads a list, and hands each entry over. The name is that of an entry, for errors, which name
/// its number.
pub(super) struct Each<T, F>(&'static str, F, PhantomData<T>);

impl<T, F: FnMut(T) -> Result<(), String>> Each<T, F> {
    /// A list of entries of this name.
    pub fn new(name: &'static str, take: F) -> Self {
        Self(name, take, PhantomData)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> DeserializeSeed<'de>
    for Each<T, F>
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(T) -> Result<(), String>> Visitor<'de> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list with an object for each {}", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let mut number = 0u64;
        loop {
            let wrong = |error: &dyn fmt::Display| {
                de::Error::custom(format!("{} {number}: {error}", self.0))
            };
            match list.next_element::<T>().map_err(|error| wrong(&error))? {
                None => return Ok(()),
                Some(entry) => (self.1)(entry).map_err(|error| wrong(&error))?,
            }
            number += 1;
        }
    }
}

/// A list of numbers, up to a limit, so that damaged files cannot exhaust memory.
#[derive(Debug)]
pub(super) struct Numbers<T>(pub Vec<T>);

/// The most numbers in one list.
const MAX_NUMBERS: usize = 1 << 26;

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Numbers<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(OfNumbers(PhantomData))
    }
}

struct OfNumbers<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OfNumbers<T> {
    type Value = Numbers<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Numbers<T>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element()? {
            if numbers.len() == MAX_NUMBERS {
                return Err(de::Error::custom(format!(
                    "there are more than {MAX_NUMBERS} numbers"
                )));
            }
            numbers.push(number);
        }
        Ok(Numbers(numbers))
    }
}
