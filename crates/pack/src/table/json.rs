//! JSON of any structure, in bounded memory.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use hsipack_format::{Error, Result};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A value of JSON. It takes 24 bytes, and names of keys that occur often are stored once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    List(Box<[Json]>),
    Object(Box<[(Arc<str>, Json)]>),
}

/// The most values in a table or list. Each takes up to 56 bytes besides its text.
pub(crate) const MAX_VALUES: usize = 16_000_000;

/// Reads JSON.
///
/// # Errors
/// If it is not JSON, is nested more than 127 levels deep, or has more than [`MAX_VALUES`] values.
/// The error names the line.
pub(crate) fn parse(text: &[u8]) -> Result<Json> {
    let mut reader = Reader::default();
    reader.parse(text).map_err(|error| malformed(&error))
}

/// Reads one JSON value from each line.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_lines(text: &[u8]) -> Result<Json> {
    let mut reader = Reader::default();
    let mut all = Vec::new();
    for (number, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let value = reader.parse(line).map_err(|error| {
            // The error's own line is always 1.
            malformed(&error).within(format_args!("line {}", number + 1))
        })?;
        all.push(value);
    }
    Ok(Json::List(all.into()))
}

fn malformed(error: &serde_json::Error) -> Error {
    Error::malformed(format!("not JSON: {error}"))
        .with_remedy("save it as JSON; NaN and comments are not part of it")
}

impl Json {
    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Json> {
        let Self::Object(entries) = self else { return None };
        entries.iter().find(|(name, _)| **name == *key).map(|(_, value)| value)
    }

    /// The value at a path of keys with dots between them. A key may have dots itself.
    pub fn at(&self, path: &str) -> Option<&Json> {
        if let Some(value) = self.get(path) {
            return Some(value);
        }
        let dots = path.match_indices('.').map(|(dot, _)| dot);
        dots.into_iter().find_map(|dot| self.get(&path[..dot])?.at(&path[dot + 1..]))
    }

    /// The names of the keys of an object, for messages.
    pub fn keys(&self) -> String {
        const LISTED: usize = 5;
        const CHARACTERS: usize = 60;
        let Self::Object(entries) = self else { return format!("no keys, it is {}", self.kind()) };
        let short =
            |(name, _): &(Arc<str>, Json)| name.chars().take(CHARACTERS).collect::<String>();
        let mut names: Vec<String> = entries.iter().take(LISTED).map(short).collect();
        if entries.len() > LISTED {
            names.push("…".to_owned());
        }
        match names.is_empty() {
            true => "no keys".to_owned(),
            false => format!("the keys {}", names.join(", ")),
        }
    }

    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Whether it is a single value: a text, a number, true, false or null.
    pub fn is_single(&self) -> bool {
        !matches!(self, Self::List(_) | Self::Object(_))
    }

    /// A single value as text; `None` for null, lists and objects. Whole numbers have no fraction.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
            Self::Number(number) => Some(match number.as_f64() {
                Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() < 1e15 => {
                    Cow::Owned(format!("{whole:.0}"))
                }
                _ => Cow::Owned(number.to_string()),
            }),
            Self::Null | Self::List(_) | Self::Object(_) => None,
        }
    }
}

impl From<&Json> for Value {
    fn from(json: &Json) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => Value::Number(number.clone()),
            Json::Text(text) => Value::String(text.to_string()),
            Json::List(list) => list.iter().map(Value::from).collect(),
            Json::Object(entries) => Value::Object(
                entries
                    .iter()
                    .map(|(key, value)| (key.to_string(), value.into()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

/// Reads values, as long as there are not too many of them.
#[derive(Default)]
struct Reader {
    values: usize,
    keys: HashSet<Arc<str>>,
}

impl Reader {
    fn parse(&mut self, text: &[u8]) -> serde_json::Result<Json> {
        let text = with_long_integers_as_text(text);
        let mut deserializer = serde_json::Deserializer::from_slice(&text);
        let json = ValueSeed(self).deserialize(&mut deserializer)?;
        deserializer.end().map(|()| json)
    }

    fn key(&mut self, key: &str) -> Arc<str> {
        match self.keys.get(key) {
            Some(existing) => existing.clone(),
            None => {
                let key: Arc<str> = key.into();
                self.keys.insert(key.clone());
                key
            }
        }
    }
}

/// JSON whose whole numbers beyond 64 bits are texts. As numbers, such ids would lose digits, and
/// some become equal.
fn with_long_integers_as_text(json: &[u8]) -> Cow<'_, [u8]> {
    // The digits of 2^63, the least that may be too many.
    const DIGITS: usize = 19;
    let (mut quoted, mut copied, mut at) = (Vec::new(), 0, 0);
    while let Some(byte) = json.get(at) {
        let start = at;
        match byte {
            b'"' => {
                at += 1;
                while json.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if json[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let is_of_number = |byte: &u8| b"+-.eE0123456789".contains(byte);
                at += json[at..].iter().take_while(|byte| is_of_number(byte)).count();
                let number = &json[start..at];
                let digits = number.strip_prefix(b"-").unwrap_or(number);
                if digits.len() < DIGITS
                    || !digits.iter().all(u8::is_ascii_digit)
                    || digits[0] == b'0'
                {
                    continue;
                }
                let text = std::str::from_utf8(number).unwrap_or_default();
                if text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                    quoted.extend_from_slice(&json[copied..start]);
                    quoted.push(b'"');
                    quoted.extend_from_slice(number);
                    quoted.push(b'"');
                    copied = at;
                }
            }
            _ => at += 1,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    quoted.extend_from_slice(&json[copied..]);
    Cow::Owned(quoted)
}

struct ValueSeed<'a>(&'a mut Reader);

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Json, D::Error> {
        self.0.values += 1;
        if self.0.values > MAX_VALUES {
            return Err(D::Error::custom(format!("more than {MAX_VALUES} values")));
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = from.next_element_seed(ValueSeed(self.0))? {
            list.push(value);
        }
        Ok(Json::List(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Json, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = from.next_key::<Cow<'de, str>>()? {
            let key = self.0.key(&key);
            entries.push((key, from.next_value_seed(ValueSeed(self.0))?));
        }
        Ok(Json::Object(entries.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_keys_with_and_without_dots() {
        let json = parse(br#"{"a": {"b": 1}, "a.c": {"d.e": 2}}"#).unwrap();
        assert_eq!(json.at("a.b"), Some(&Json::Number(1.into())));
        assert_eq!(json.at("a.c.d.e"), Some(&Json::Number(2.into())));
        assert_eq!(json.at("a.d"), None);
    }

    #[test]
    fn long_integers_keep_their_digits() {
        let texts = |text: &str| match parse(text.as_bytes()).unwrap() {
            Json::List(list) => list.iter().map(|json| json.text().unwrap().into_owned()).collect(),
            _ => Vec::new(),
        };
        let long = ["12345678901234567890123", "-9223372036854775809", "18446744073709551615"];
        assert_eq!(texts(&format!("[{}]", long.join(", "))), long);
        let unchanged =
            parse(br#"["a\\", "12345678901234567890123\"", 1e30, 0.1234567890123456789012]"#);
        let Json::List(list) = unchanged.unwrap() else { panic!("a list") };
        assert_eq!(list[1], Json::Text("12345678901234567890123\"".into()));
        assert!(matches!(&list[2..], [Json::Number(_), Json::Number(_)]));
        assert!(parse(b"[\"open").is_err() && parse(b"[012345678901234567890123]").is_err());
    }

    #[test]
    fn malformed_json_is_refused_with_its_line() {
        let deep = "[".repeat(1_000_000);
        for (text, line) in
            [("{\n \"a\": }", "line 2"), ("[1", "line 1"), (&deep, "line 1"), ("[1] 2", "line 1")]
        {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
        let error = parse_lines(b"{}\n\n{").unwrap_err().to_string();
        assert!(error.contains("line 3"), "{error}");
    }

    #[test]
    fn whole_numbers_are_shown_without_a_fraction() {
        let texts = |text: &str| parse(text.as_bytes()).unwrap().text().map(Cow::into_owned);
        assert_eq!(texts("7.0").as_deref(), Some("7"));
        assert_eq!(texts("7.5").as_deref(), Some("7.5"));
        assert_eq!(texts("-3").as_deref(), Some("-3"));
        assert_eq!(texts("null"), None);
    }
}
