//! Lists of names of samples: which split, or which part of a fold, they belong to.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hsipack_format::{Error, Result, text};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::json::{self, Json};
use crate::convert::words;
use crate::input::Input;

/// A list for one split, `NAME=FILE`, or a JSON file with lists for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitList {
    /// The split.
    pub name: Option<String>,
    /// The file, or a part of a JSON file (`FILE::KEY`).
    pub file: String,
}

impl FromStr for SplitList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let list = match text.split_once('=') {
            Some((name, file)) if !name.is_empty() && !name.contains(['/', '\\']) => {
                Self { name: Some(name.to_owned()), file: file.to_owned() }
            }
            _ => Self { name: None, file: text.to_owned() },
        };
        let is_json = is_json(&Input::parse(&list.file).file);
        if list.file.is_empty() || list.name.is_none() && !is_json {
            return Err("give NAME=FILE, or a .json file that names the splits".to_owned());
        }
        Ok(list)
    }
}

impl fmt::Display for SplitList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

impl Serialize for SplitList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SplitList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        words(from, "NAME=FILE, or a .json file that names the splits")
    }
}

/// The samples of one split, or of one part of a fold.
#[derive(Debug)]
pub struct NameList {
    /// The column that says that a sample is in the list: `split`, or the list's own, such as
    /// `fold0/train`.
    pub column: String,
    /// The split; `None` if the column is true for samples in the list, and false for others.
    pub split: Option<String>,
    /// Names, stems or paths of samples.
    pub names: Vec<String>,
    /// The file.
    pub file: PathBuf,
}

impl NameList {
    /// The list for messages: `split train`, or the name of its column.
    pub fn title(&self) -> String {
        match &self.split {
            Some(split) => format!("{} {split}", self.column),
            None => self.column.clone(),
        }
    }
}

/// Reads lists. A text file has a name on each line. A JSON file has a list of names if the split
/// has a name. Otherwise it has lists by the names of splits (`{"train": […], "val": […]}`), or
/// such objects for folds, in a list or by their names, or the split of each sample
/// (`{"a": "train", "b": "val"}`).
///
/// # Errors
/// If a file cannot be read, is not such a list, or has no names.
pub fn read(lists: &[SplitList]) -> Result<Vec<NameList>> {
    let mut all = Vec::new();
    for list in lists {
        let Input { file, variable: part, .. } = Input::parse(&list.file);
        let before = all.len();
        read_one(list, &file, part.as_deref(), &mut all).map_err(|error| error.at(&file))?;
        if all[before..].iter().all(|list: &NameList| list.names.is_empty()) {
            return Err(Error::conflict("the list has no names")
                .at(file)
                .with_remedy("write the name of a sample on each line"));
        }
    }
    Ok(all)
}

fn read_one(
    list: &SplitList,
    file: &Path,
    part: Option<&str>,
    all: &mut Vec<NameList>,
) -> Result<()> {
    let bytes = super::bytes(file)?;
    let new = |column: &str, split: Option<&str>, names| NameList {
        column: column.to_owned(),
        split: split.map(str::to_owned),
        names,
        file: file.to_owned(),
    };
    if !is_json(file) {
        let name = list.name.as_deref();
        all.push(new("split", name, lines(&text::decode(bytes)?)?));
        return Ok(());
    }
    let whole = json::parse(&bytes)?;
    let json = match part {
        None => &whole,
        Some(part) => whole.at(part).ok_or_else(|| {
            Error::not_found(format!("there is no key '{part}'; it has {}", whole.keys()))
                .with_remedy("give one of them after '::'")
        })?,
    };
    if let Some(name) = &list.name {
        let names = names(json).ok_or_else(|| {
            Error::malformed(format!("it is {}, not a list of names", json.kind()))
                .with_remedy("give a JSON list of texts, or a part of the file as FILE::KEY")
        })?;
        all.push(new("split", Some(name), names));
        return Ok(());
    }
    let mut found = Vec::new();
    collect(json, &mut Vec::new(), &mut found);
    if found.is_empty() {
        found = by_split(json);
    }
    if found.is_empty() {
        return Err(Error::malformed(format!(
            "there is no list of names in it; it has {}",
            json.keys()
        ))
        .with_remedy("give lists by the names of splits, such as {\"train\": [\"a\", \"b\"]}"));
    }
    for (path, names) in found {
        match &path[..] {
            [] => {
                return Err(Error::conflict("it is one list, without the name of a split")
                    .with_remedy(format!("write NAME={}", list.file)));
            }
            [split] => all.push(new("split", Some(split), names)),
            path => all.push(new(&path.join("/"), None, names)),
        }
    }
    Ok(())
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("json"))
}

/// The lines of a text, without empty ones.
fn lines(text: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for line in text.lines().map(str::trim) {
        if !line.is_empty() {
            names.push(line.to_owned());
        }
        if names.len() > json::MAX_VALUES {
            return Err(Error::unsupported(format!("more than {} lines", json::MAX_VALUES))
                .with_remedy("write the name of a sample on each line"));
        }
    }
    Ok(names)
}

/// A list of texts or numbers.
fn names(json: &Json) -> Option<Vec<String>> {
    let Json::List(list) = json else { return None };
    list.iter().map(|name| name.text().map(std::borrow::Cow::into_owned)).collect()
}

/// The names of each split in an object that has the split of each name,
/// `{"a": "train", "b": "val"}`.
fn by_split(json: &Json) -> Vec<(Vec<String>, Vec<String>)> {
    let Json::Object(entries) = json else { return Vec::new() };
    let mut splits: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, split) in entries {
        let Json::Text(split) = split else { return Vec::new() };
        splits.entry(split.to_string()).or_default().push(name.to_string());
    }
    splits.into_iter().map(|(split, names)| (vec![split], names)).collect()
}

/// Adds every list of names below `json`, with the keys that lead to it. The objects of a list are
/// folds.
fn collect(json: &Json, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, Vec<String>)>) {
    if let Some(names) = names(json) {
        found.push((path.clone(), names));
        return;
    }
    match json {
        Json::List(list) => {
            for (number, fold) in list.iter().enumerate() {
                path.push(format!("fold{number}"));
                collect(fold, path, found);
                path.pop();
            }
        }
        Json::Object(entries) => {
            let nested = || entries.iter().filter(|(_, value)| !value.is_single());
            // The names of a part of a fold may be below a key of their own: {"train": {"names": […]}}.
            if path.len() > 1
                && nested().count() == 1
                && let Some(names) = nested().next().and_then(|(_, value)| names(value))
            {
                found.push((path.clone(), names));
                return;
            }
            for (key, value) in entries {
                path.push(key.to_string());
                collect(value, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(json: &str) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        collect(&json::parse(json.as_bytes()).unwrap(), &mut Vec::new(), &mut found);
        found.into_iter().map(|(path, names)| (path.join("/"), names.len())).collect()
    }

    fn wanted(of: &[(&str, usize)]) -> Vec<(String, usize)> {
        of.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn lists_are_written_as_name_and_file() {
        let list = |text: &str| text.parse::<SplitList>();
        assert_eq!(list("train=a/b.txt").unwrap().name.as_deref(), Some("train"));
        assert_eq!(list("/a=b/folds.json").unwrap().name, None);
        for text in ["train=a/b.txt", "folds.json", "x=f.json::a.b", "f.json::a"] {
            assert_eq!(list(text).unwrap().to_string(), text);
        }
        for wrong in ["", "a.txt", "train=", "/a=b.txt"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn splits_and_folds_are_found_in_json() {
        let splits = columns(r#"{"train": ["a", "b"], "val": [3], "seed": 1}"#);
        assert_eq!(splits, wanted(&[("train", 2), ("val", 1)]));
        let folds = r#"[{"train": ["a"], "val": ["b"]}, {"train": ["b"], "val": []}]"#;
        let columns_of_folds =
            wanted(&[("fold0/train", 1), ("fold0/val", 1), ("fold1/train", 1), ("fold1/val", 0)]);
        assert_eq!(columns(folds), columns_of_folds);
        let named = r#"{"f1": {"train": {"image_names": ["a"], "from": "x"}, "val": ["b"]}}"#;
        assert_eq!(columns(named), wanted(&[("f1/train", 1), ("f1/val", 1)]));
        assert_eq!(columns(r#"["a"]"#), wanted(&[("", 1)]));
        assert_eq!(columns(r#"{"a": 3}"#), wanted(&[]));
        let splits = |text: &str| by_split(&json::parse(text.as_bytes()).unwrap());
        let of_names = splits(r#"{"a": "val", "b": "train", "c": "val"}"#);
        let path = |split: &str| vec![split.to_owned()];
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(of_names, [(path("train"), names(&["b"])), (path("val"), names(&["a", "c"]))]);
        assert!(splits(r#"{"a": "val", "b": 3}"#).is_empty());
    }

    #[test]
    fn lines_are_trimmed_and_empty_ones_left_out() {
        assert_eq!(lines("a b\r\n\n c \n").unwrap(), ["a b", "c"]);
    }
}
