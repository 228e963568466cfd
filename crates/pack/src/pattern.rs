//! Patterns: texts with fields in braces, such as `{dir}/{stem}_mask.png`, that give a path, a name
//! or a key for each cube.
//!
//! Fields that follow from the path of a cube are always there ([`PATH_FIELDS`]). The others are
//! values of the cube's [`Fields`]: the name of its sample, its columns (of a list, a table or
//! `--path-columns`), and the texts that the wildcards of an input matched (`{1}`, `{2}`, …). They
//! are collected before any cube is opened (`convert/plan/columns.rs`), so every option that takes
//! a pattern can use them all.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::mirror;
use serde_json::Value;

pub use crate::input::Fields;
use crate::input::Input;

/// The fields that every cube has, and their meanings.
pub const PATH_FIELDS: [(&str, &str); 8] = [
    ("dir", "the cube's folder"),
    ("stem", "its file name without the ending"),
    ("name", "the sample's name"),
    ("path", "its whole path"),
    ("relative", "its path below the input folder"),
    ("parent", "the name of its folder"),
    ("variable", "the variable after '::'"),
    ("group", "the group of that variable"),
];

/// A pattern for each cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern<'a>(pub &'a str);

impl<'a> Pattern<'a> {
    /// The names of its fields, in order.
    pub fn fields(self) -> impl Iterator<Item = &'a str> {
        parts(self.0).filter_map(|part| match part {
            Part::Field(field) => Some(field),
            Part::Text(_) => None,
        })
    }

    /// Whether it has fields, so that it may differ from cube to cube.
    pub fn is_of_each_cube(self) -> bool {
        self.fields().next().is_some()
    }

    /// Whether it begins with the cube's own folder or path.
    pub fn begins_at_the_cube(self) -> bool {
        ["{dir}", "{path}"].iter().any(|field| self.0.starts_with(field))
    }

    /// The text for the cube in `input`; `None` if a field has no value for it.
    ///
    /// # Errors
    /// If the cube does not have one of the fields.
    pub fn of(self, input: &Input) -> Result<Option<String>> {
        let mut text = String::new();
        for part in parts(self.0) {
            match part {
                Part::Text(part) => text.push_str(part),
                Part::Field(field) => match value(field, input) {
                    Some(Some(value)) => text.push_str(&value),
                    Some(None) => return Ok(None),
                    None => return Err(unknown(self.0, field, input.fields.keys())),
                },
            }
        }
        Ok(Some(text))
    }

    /// Refuses fields that no cube has. `columns` are names of fields besides those of every cube.
    ///
    /// # Errors
    /// If there is such a field. The error lists the fields that exist.
    pub fn check(self, columns: &BTreeSet<String>) -> Result<()> {
        let is_known = |field: &str| is_of_path(field) || columns.contains(field);
        match self.fields().find(|field| !is_known(field)) {
            Some(field) => Err(unknown(self.0, field, columns.iter())),
            None => Ok(()),
        }
    }
}

/// Whether every cube has this field.
pub fn is_of_path(field: &str) -> bool {
    PATH_FIELDS.iter().any(|(name, _)| *name == field)
}

/// A value of a column as a field shows it; `None` for null.
pub fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

enum Part<'a> {
    Text(&'a str),
    Field(&'a str),
}

/// The texts and fields of a pattern. A brace without its partner is text.
fn parts(pattern: &str) -> impl Iterator<Item = Part<'_>> {
    let mut remaining = pattern;
    let mut field = None;
    std::iter::from_fn(move || {
        if let Some(field) = field.take() {
            return Some(Part::Field(field));
        }
        if remaining.is_empty() {
            return None;
        }
        let braces = remaining.find('{').and_then(|open| {
            let close = open + remaining[open..].find('}')?;
            Some((open, close))
        });
        let Some((open, close)) = braces else {
            return Some(Part::Text(std::mem::take(&mut remaining)));
        };
        let (text, name) = (&remaining[..open], &remaining[open + 1..close]);
        remaining = &remaining[close + 1..];
        if text.is_empty() {
            return Some(Part::Field(name));
        }
        field = Some(name);
        Some(Part::Text(text))
    })
}

/// The value of a field: `None` if the cube does not have it, `Some(None)` if it has no value.
fn value<'a>(field: &str, input: &'a Input) -> Option<Option<Cow<'a, str>>> {
    // If the cube is a whole archive, users know the path of the archive.
    let file = match mirror::archive_of(&input.file) {
        Some(whole) => Cow::Owned(whole),
        None => Cow::Borrowed(input.file.as_path()),
    };
    let text = |path: &Path| Some(Some(Cow::Owned(path.to_string_lossy().into_owned())));
    match field {
        "dir" => return text(folder(&file)),
        "stem" => return text(Path::new(file.file_stem().unwrap_or_default())),
        "path" => return text(&file),
        "parent" => {
            let folder =
                std::path::absolute(folder(&file)).unwrap_or_else(|_| folder(&file).to_owned());
            return text(Path::new(folder.file_name().unwrap_or_default()));
        }
        _ => {}
    }
    if let Some(value) = input.fields.get(field) {
        return Some(value.as_deref().map(Cow::Borrowed));
    }
    let variable = || input.variable.as_deref().unwrap_or_default().trim_start_matches('/');
    match field {
        "name" => Some(Some(Cow::Owned(input.default_name()))),
        "relative" => Some(Some(Cow::Owned(input.relative()))),
        "variable" => Some(Some(Cow::Borrowed(variable()))),
        "group" => {
            Some(Some(Cow::Borrowed(variable().rsplit_once('/').map_or("", |(group, _)| group))))
        }
        _ => None,
    }
}

/// The folder of a file; `.` for a file without one.
pub fn folder(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The most columns that an error lists.
const LISTED: usize = 20;

fn unknown<'a>(pattern: &str, field: &str, columns: impl Iterator<Item = &'a String>) -> Error {
    let mut fields: Vec<String> =
        PATH_FIELDS.iter().map(|(name, meaning)| format!("{{{name}}} ({meaning})")).collect();
    let columns: Vec<&String> = columns.filter(|column| !is_of_path(column)).collect();
    fields.extend(columns.iter().take(LISTED).map(|column| format!("{{{column}}}")));
    if columns.len() > LISTED {
        fields.push(format!("and {} more columns", columns.len() - LISTED));
    }
    let error =
        Error::conflict(format!("the pattern {pattern:?} has an unknown field {{{field}}}"));
    let fields = fields.join(", ");
    if columns.is_empty() {
        let more = "; the columns of ";
        return error.with_remedy(remedy![
            format!("use {fields}{more}"),
            Opt::Table,
            " and the named groups of ",
            Opt::PathColumns,
            " are fields, too"
        ]);
    }
    error.with_remedy(format!("use {fields}"))
}

#[cfg(test)]
mod tests {
    use hsipack_format::ErrorKind;

    use super::*;

    fn input() -> Input {
        let fields = [("scene", Some("PaviaU")), ("empty", None), ("1", Some("x"))];
        let fields = fields.map(|(field, value)| (field.to_owned(), value.map(str::to_owned)));
        Input {
            root: Some("data".into()),
            variable: Some("/a/b/image".to_owned()),
            fields: Fields::from(fields),
            ..Input::of(Path::new("data/p1/cube.v2.hdr"))
        }
    }

    #[test]
    fn fields_are_replaced_by_their_values() {
        for (pattern, text) in [
            ("{dir}/{stem}_{scene}.png", "data/p1/cube.v2_PaviaU.png"),
            ("{path}::{group}/labels", "data/p1/cube.v2.hdr::a/b/labels"),
            ("{relative}|{parent}|{variable}", "p1/cube.v2.hdr|p1|a/b/image"),
            ("{name}", "p1/cube.v2::a/b/image"),
            ("{1}{1}", "xx"),
            ("plain.png", "plain.png"),
            ("a{b", "a{b"),
            ("", ""),
        ] {
            assert_eq!(Pattern(pattern).of(&input()).unwrap().as_deref(), Some(text), "{pattern}");
        }
        assert_eq!(Pattern("{scene}{empty}").of(&input()).unwrap(), None);
    }

    #[test]
    fn values_are_not_patterns() {
        let fields = Fields::from([("a".to_owned(), Some("{dir}".to_owned()))]);
        let input = Input { fields, ..input() };
        assert_eq!(Pattern("{a}").of(&input).unwrap().as_deref(), Some("{dir}"));
    }

    #[test]
    fn columns_named_like_a_field_of_the_variable_come_first() {
        let fields = Fields::from([("group".to_owned(), Some("patient 1".to_owned()))]);
        let input = Input { fields, ..input() };
        assert_eq!(Pattern("{group}").of(&input).unwrap().as_deref(), Some("patient 1"));
    }

    #[test]
    fn unknown_fields_are_refused_and_the_known_ones_listed() {
        let columns = BTreeSet::from(["scene".to_owned()]);
        for pattern in ["{foo}.png", "{dir}/{Stem}.png", "{}.png", "{dir}/{stem.png}"] {
            let error = Pattern(pattern).check(&columns).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            let text = error.to_string();
            let fields = ["{dir}", "{stem}", "{name}", "{path}", "{scene}"];
            assert!(fields.iter().all(|field| text.contains(field)), "{text}");
            assert!(Pattern(pattern).of(&input()).is_err(), "{pattern}");
        }
        for pattern in ["{dir}/{stem}_{name}.png", "{path}::gt", "a{b.png", "{scene}"] {
            Pattern(pattern).check(&columns).unwrap();
        }
    }
}
