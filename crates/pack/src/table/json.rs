//! JSON of any structure, in bounded memory, and the rows of a table in it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use hsipack_format::{Error, Result};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::rows::{Cell, Rows};

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
/// If it is not JSON, is nested more than 127 levels deep, or has more than [`MAX_VALUES`] values. The error names the line.
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

/// The rows in `json`. These forms are tables:
///
/// | form | rows |
/// |---|---|
/// | `[{…}, {…}]` | the objects |
/// | `{"a": {…}, "b": {…}}` | the objects; the column `identifier` has their keys, unless they have it themselves |
/// | `{"name": […], "label": […]}` | columns of equal length |
/// | `{"name": {"0": …}, "label": {"0": …}}` | columns, as pandas writes them, if `identifier` is a key |
/// | `{"a": 1, "b": 2}` | the columns `identifier` and `value` |
///
/// The keys of an object in a row become columns with a dot between their names: `files.header`.
///
/// # Errors
/// If it has another form, or columns have different lengths.
pub(crate) fn rows(json: &Json, identifier: &str) -> Result<Rows> {
    let mut rows = Rows::new("record", 0);
    match json {
        Json::List(list) => {
            for (number, entry) in list.iter().enumerate() {
                if !matches!(entry, Json::Object(_)) {
                    let kind = entry.kind();
                    return Err(wrong(format!("record {number} is {kind}, not an object")));
                }
                let mut cells = Vec::new();
                flatten(entry, "", &mut rows, &mut cells)?;
                rows.push(cells);
            }
        }
        Json::Object(entries)
            if entries.iter().all(|(_, value)| matches!(value, Json::List(_))) =>
        {
            columns(entries, &mut rows)?;
        }
        Json::Object(entries) if entries.iter().all(|(_, value)| value.is_single()) => {
            let ids = [rows.column(identifier)?, rows.column("value")?];
            for (key, value) in entries {
                rows.push(vec![(ids[0], Json::Text((&**key).into())), (ids[1], value.clone())]);
            }
        }
        Json::Object(entries)
            if entries.iter().all(|(_, value)| matches!(value, Json::Object(_))) =>
        {
            match json.get(identifier) {
                Some(Json::Object(index)) => indexed_columns(entries, index, &mut rows)?,
                _ => keyed(entries, identifier, &mut rows)?,
            }
        }
        other => return Err(wrong(format!("it is not a table: it has {}", other.keys()))),
    }
    Ok(rows)
}

fn wrong(what: String) -> Error {
    Error::malformed(what).with_remedy(
        "give a list of objects, an object of objects, or an object of columns of equal length; for a part of the file, write FILE::KEY",
    )
}

/// The only list of objects in an object, with its key; `None` if there are several or none.
pub(crate) fn only_records(json: &Json) -> Option<&Json> {
    let Json::Object(entries) = json else { return None };
    let mut found = entries.iter().map(|(_, value)| value).filter(|value| is_records(value));
    found.next().filter(|_| found.next().is_none())
}

/// The keys of an object whose values are lists of objects.
pub(crate) fn record_keys(json: &Json) -> Vec<&str> {
    let Json::Object(entries) = json else { return Vec::new() };
    entries.iter().filter(|(_, value)| is_records(value)).map(|(key, _)| &**key).collect()
}

fn is_records(value: &Json) -> bool {
    matches!(value, Json::List(list) if matches!(list.first(), Some(Json::Object(_))))
}

/// Adds the values in an object as cells, with dots between the keys of nested objects.
fn flatten(object: &Json, prefix: &str, rows: &mut Rows, cells: &mut Vec<Cell>) -> Result<()> {
    let Json::Object(entries) = object else { return Ok(()) };
    for (key, value) in entries {
        let name = match prefix {
            "" => Cow::Borrowed(&**key),
            prefix => Cow::Owned(format!("{prefix}.{key}")),
        };
        match value {
            Json::Object(_) => flatten(value, &name, rows, cells)?,
            value => cells.push((rows.column(&name)?, value.clone())),
        }
    }
    Ok(())
}

fn columns(entries: &[(Arc<str>, Json)], rows: &mut Rows) -> Result<()> {
    let lists = entries.iter().filter_map(|(key, value)| match value {
        Json::List(list) => Some((key, list)),
        _ => None,
    });
    let lists: Vec<_> = lists.collect();
    let len = lists.first().map_or(0, |(_, list)| list.len());
    if let Some((key, list)) = lists.iter().find(|(_, list)| list.len() != len) {
        let first = lists[0].0;
        return Err(wrong(format!("{key} has {} values, but {first} has {len}", list.len())));
    }
    let ids: Vec<u32> = lists.iter().map(|(key, _)| rows.column(key)).collect::<Result<_>>()?;
    for row in 0..len {
        let cells = ids.iter().zip(&lists).map(|(id, (_, list))| (*id, list[row].clone()));
        rows.push(cells.collect());
    }
    Ok(())
}

/// Columns whose values have the same keys in each.
fn indexed_columns(
    entries: &[(Arc<str>, Json)],
    index: &[(Arc<str>, Json)],
    rows: &mut Rows,
) -> Result<()> {
    let ids: Vec<u32> = entries.iter().map(|(key, _)| rows.column(key)).collect::<Result<_>>()?;
    let by_key = |column: &Json| match column {
        Json::Object(values) => {
            values.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
        }
        _ => std::collections::HashMap::new(),
    };
    let columns: Vec<_> = entries.iter().map(|(_, column)| by_key(column)).collect();
    for (key, _) in index {
        let cells = ids.iter().zip(&columns);
        let cells = cells.filter_map(|(id, column)| Some((*id, column.get(key)?.clone())));
        rows.push(cells.collect());
    }
    Ok(())
}

/// Rows that have names.
fn keyed(entries: &[(Arc<str>, Json)], identifier: &str, rows: &mut Rows) -> Result<()> {
    for (key, row) in entries {
        let id = rows.column(identifier)?;
        let mut cells = Vec::new();
        flatten(row, "", rows, &mut cells)?;
        if !cells.iter().any(|(column, _)| *column == id) {
            cells.push((id, Json::Text((&**key).into())));
        }
        rows.push(cells);
    }
    Ok(())
}

/// Reads values, as long as there are not too many of them.
#[derive(Default)]
struct Reader {
    values: usize,
    keys: HashSet<Arc<str>>,
}

impl Reader {
    fn parse(&mut self, text: &[u8]) -> serde_json::Result<Json> {
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let json = ValueSeed(self).deserialize(&mut deserializer)?;
        deserializer.end().map(|()| json)
    }

    fn key(&mut self, key: &str) -> Arc<str> {
        match self.keys.get(key) {
            Some(known) => known.clone(),
            None => {
                let key: Arc<str> = key.into();
                self.keys.insert(key.clone());
                key
            }
        }
    }
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
    use serde_json::json;

    use super::*;

    fn table(text: &str) -> Vec<Value> {
        let rows = rows(&parse(text.as_bytes()).unwrap(), "name").unwrap();
        (0..rows.len()).map(|row| Value::Object(rows.map(row))).collect()
    }

    #[test]
    fn every_form_gives_the_same_rows() {
        let wanted = [json!({"name": "a", "label": 1}), json!({"name": "b", "label": 2})];
        for text in [
            r#"[{"name": "a", "label": 1}, {"name": "b", "label": 2}]"#,
            r#"{"name": ["a", "b"], "label": [1, 2]}"#,
            r#"{"name": {"0": "a", "1": "b"}, "label": {"0": 1, "1": 2}}"#,
        ] {
            assert_eq!(table(text), wanted, "{text}");
        }
        let keyed = table(r#"{"a": {"label": 1}, "b": {"label": 2, "name": "c"}}"#);
        assert_eq!(keyed, [json!({"label": 1, "name": "a"}), json!({"label": 2, "name": "c"})]);
        let values = table(r#"{"a": 1, "b": null}"#);
        assert_eq!(values, [json!({"name": "a", "value": 1}), json!({"name": "b", "value": null})]);
    }

    #[test]
    fn nested_keys_become_columns_with_dots() {
        let rows = table(r#"[{"f": {"h": "x", "d": {"n": [1, 2]}}, "e": {}}]"#);
        assert_eq!(rows, [json!({"f.h": "x", "f.d.n": [1, 2]})]);
    }

    #[test]
    fn names_of_nested_keys_take_bounded_memory() {
        let key = "k".repeat(600);
        let text = format!(r#"[{{"{key}": {{"{key}": 1}}}}]"#);
        let error = rows(&parse(text.as_bytes()).unwrap(), "name").unwrap_err().to_string();
        assert!(error.contains("a name of 1201 bytes") && error.len() < 300, "{error}");
        let (outer, inner): (String, Vec<String>) =
            ("k".repeat(1000), (0..90_000).map(|number| format!(r#""{number}": 1"#)).collect());
        let text = format!(r#"[{{"{outer}": {{{}}}}}]"#, inner.join(","));
        let error = rows(&parse(text.as_bytes()).unwrap(), "name").unwrap_err().to_string();
        assert!(error.contains("the table has more than 6"), "{error}");
    }

    #[test]
    fn other_forms_are_refused() {
        for (text, what) in [
            ("[1]", "record 0 is a number"),
            (r#"{"a": [1], "b": [1, 2]}"#, "b has 2 values, but a has 1"),
            (r#"{"a": [1], "b": 3}"#, "the keys a, b"),
            ("3", "a number"),
        ] {
            let error = rows(&parse(text.as_bytes()).unwrap(), "name").unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
    }

    #[test]
    fn paths_follow_keys_with_and_without_dots() {
        let json = parse(br#"{"a": {"b": 1}, "a.c": {"d.e": 2}}"#).unwrap();
        assert_eq!(json.at("a.b"), Some(&Json::Number(1.into())));
        assert_eq!(json.at("a.c.d.e"), Some(&Json::Number(2.into())));
        assert_eq!(json.at("a.d"), None);
    }

    #[test]
    fn malformed_json_is_refused_with_its_line() {
        let deep = "[".repeat(1_000_000);
        for (text, place) in
            [("{\n \"a\": }", "line 2"), ("[1", "line 1"), (&deep, "line 1"), ("[1] 2", "line 1")]
        {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(place), "{error}");
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
