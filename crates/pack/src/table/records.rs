//! The rows of a table in JSON.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use hsipack_format::{Error, Result};

use super::json::Json;
use super::rows::{Cell, Rows};

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
/// If it has another form, a column occurs twice, or columns have different lengths.
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
                rows.push(cells)?;
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
                rows.push(vec![(ids[0], Json::Text((&**key).into())), (ids[1], value.clone())])?;
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
        rows.push(cells.collect())?;
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
        _ => HashMap::new(),
    };
    let columns: Vec<_> = entries.iter().map(|(_, column)| by_key(column)).collect();
    for (key, _) in index {
        let cells = ids.iter().zip(&columns);
        let cells = cells.filter_map(|(id, column)| Some((*id, column.get(key)?.clone())));
        rows.push(cells.collect())?;
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
        rows.push(cells)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::json::parse;
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
}
