//! Finds the inputs that lists of names mean.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::mirror;
use serde_json::Value;

use crate::input::Input;
use crate::table::NameList;

/// Entries of lists about inputs.
pub(crate) struct Listed {
    /// Whether each input is in a list.
    pub is_listed: Vec<bool>,
    /// Notes about names that match no input.
    pub notes: Vec<String>,
}

/// Gives the inputs the columns that the lists have for them.
///
/// A name is, in this order: the name of a sample; its path below the input folder, with or without
/// its ending; the end of its path, or a path that ends in its path below the input folder; its
/// file name with or without its ending; the same with another ending; a folder of samples. If no
/// line of a list is a name, one of the columns of the lines may have them.
///
/// # Errors
/// If an input is in two lists of one column, a name may mean several files, or no name of a list
/// matches an input.
pub(crate) fn assign(lists: &[NameList], inputs: &mut [Input]) -> Result<Listed> {
    let mut listed = Listed { is_listed: vec![false; inputs.len()], notes: Vec::new() };
    if lists.is_empty() {
        return Ok(listed);
    }
    let places = Places::of(inputs);
    for list in lists.iter().filter(|list| list.split.is_none()) {
        for input in inputs.iter_mut() {
            input.columns.insert(list.column.clone(), Value::Bool(false));
        }
    }
    let mut files: HashMap<(usize, &str), &NameList> = HashMap::new();
    // Inputs of which a table says something else.
    let mut contradicted = BTreeSet::new();
    for list in lists {
        let mut unmatched = Vec::new();
        let (names, note) = places.names_of(list, inputs);
        listed.notes.extend(note);
        for name in &*names {
            let name = name.as_str();
            let found = places.find(name, inputs).map_err(|error| error.at(&list.file))?;
            if found.is_empty() {
                unmatched.push(name);
            }
            for input in found {
                listed.is_listed[input] = true;
                let other = files.insert((input, &list.column), list);
                if let Some(other) = other.filter(|other| other.split != list.split) {
                    return Err(two_lists(&inputs[input], other, list));
                }
                let value = list.split.as_deref().map_or(Value::Bool(true), Value::from);
                let is_of_table =
                    |before: &Value| list.split.is_some() && !before.is_null() && *before != value;
                if inputs[input].columns.get(&list.column).is_some_and(is_of_table) {
                    contradicted.insert(input);
                }
                inputs[input].columns.insert(list.column.clone(), value);
            }
        }
        if !names.is_empty() && unmatched.len() == names.len() {
            return Err(no_name_matches(list, inputs));
        }
        let shown = unmatched[..unmatched.len().min(3)].join(", ");
        let (title, file) = (list.title(), list.file.display());
        match unmatched.len() {
            0 => {}
            1 => {
                listed.notes.push(format!("{file}: one name for {title} matches no input: {shown}"))
            }
            count => {
                let more = if count > 3 { ", …" } else { "" };
                let note =
                    format!("{file}: {count} names for {title} match no input: {shown}{more}");
                listed.notes.push(note);
            }
        }
    }
    if let Some(first) = contradicted.first() {
        let (name, count) = (name_of(&inputs[*first]), contradicted.len());
        let cubes = if count == 1 { "one cube has" } else { "cubes have" };
        let count = if count == 1 { String::new() } else { format!("{count} ") };
        listed.notes.push(format!(
            "{count}{cubes} another split in a table than in the lists, which count: {name}"
        ));
    }
    Ok(listed)
}

fn two_lists(input: &Input, first: &NameList, second: &NameList) -> Error {
    let location = |list: &NameList| format!("{} ({})", list.title(), list.file.display());
    Error::conflict(format!(
        "the cube is in two lists: {} and {}",
        location(first),
        location(second)
    ))
    .at(&input.file)
    .with_remedy("leave it out of one of them")
}

fn no_name_matches(list: &NameList, inputs: &[Input]) -> Error {
    let first = list.names.first().map(String::as_str).unwrap_or_default();
    let name = inputs.first().map(name_of).unwrap_or_default();
    let what = format!(
        "none of the {} names for {} matches an input; the first is {first:?}, and the first input is named {name:?}",
        list.names.len(),
        list.title()
    );
    Error::conflict(what).at(&list.file).with_remedy(remedy![
        "write names of samples, or their paths below the input folder; or give the inputs the names of the list with ",
        Opt::Name
    ])
}

fn name_of(input: &Input) -> &str {
    input.columns.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Separators of the columns of lines, and quotes around cells.
const SEPARATORS: [char; 4] = [',', ';', '\t', ' '];
const QUOTES: [char; 4] = ['"', '\'', ' ', '\t'];
/// Names are in one of the first columns.
const MAX_COLUMNS: usize = 16;

/// The inputs by what lists may call them.
struct Places {
    /// By their names, their paths as given, and their paths below the input folder with and
    /// without the ending.
    whole: HashMap<String, Vec<usize>>,
    /// By their file names, with and without the ending.
    last: HashMap<String, Vec<usize>>,
    /// By the folders below the input folder.
    folders: HashMap<String, Vec<usize>>,
    /// The folders on the path of each input, from the root on.
    around: Vec<Vec<String>>,
    /// How many of these folders are below the input folder.
    below: Vec<usize>,
}

impl Places {
    fn of(inputs: &[Input]) -> Self {
        let (mut whole, mut last, mut folders) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (mut around, mut below) = (Vec::new(), Vec::new());
        for (index, input) in inputs.iter().enumerate() {
            let put = |places: &mut HashMap<String, Vec<usize>>, key: String| {
                let inputs = places.entry(key).or_default();
                if inputs.last() != Some(&index) {
                    inputs.push(index);
                }
            };
            let relative = input.relative();
            let stem = Path::new(&relative).with_extension("").to_string_lossy().into_owned();
            for key in [name_of(input).to_owned(), input.default_name(), input.text(), stem] {
                put(&mut whole, key);
            }
            let parts: Vec<&str> = relative.split('/').collect();
            for end in 1..parts.len() {
                put(&mut folders, parts[..end].join("/"));
            }
            below.push(parts.len() - 1);
            put(&mut whole, relative);
            let file = mirror::url_of(&input.file).unwrap_or_else(|| input.file.clone());
            for name in [file.file_name(), file.file_stem()].into_iter().flatten() {
                put(&mut last, name.to_string_lossy().into_owned());
            }
            around.push(folders_of(&file));
        }
        Self { whole, last, folders, around, below }
    }

    /// The names of a list: its lines, or the column of its lines that has most names of inputs. A
    /// note says which.
    fn names_of<'a>(
        &self,
        list: &'a NameList,
        inputs: &[Input],
    ) -> (Cow<'a, [String]>, Option<String>) {
        let is_name = |name: &str| self.find(name, inputs).is_ok_and(|found| !found.is_empty());
        let lines = Cow::Borrowed(&list.names[..]);
        if list.names.iter().any(|line| is_name(line)) {
            return (lines, None);
        }
        let mut best: Option<(usize, usize, Vec<String>)> = None;
        for separator in SEPARATORS {
            let cells = |line: &'a String| {
                let cells = line.split(separator).map(|cell| cell.trim_matches(QUOTES));
                cells.filter(move |cell| separator != ' ' || !cell.is_empty())
            };
            let columns = list.names.first().map_or(0, |line| cells(line).count());
            for column in (0..columns.min(MAX_COLUMNS)).filter(|_| columns > 1) {
                let names = list.names.iter().filter_map(|line| cells(line).nth(column));
                let mut names: Vec<String> = names.map(str::to_owned).collect();
                let count = names.iter().filter(|name| is_name(name)).count();
                let is_better = best.as_ref().is_none_or(|best| count > best.0);
                if count > 0 && is_better && !are_line_numbers(&names) {
                    if !is_name(&names[0]) {
                        // The header.
                        names.remove(0);
                    }
                    best = Some((count, column + 1, names));
                }
            }
        }
        match best {
            None => (lines, None),
            Some((_, column, names)) => {
                let file = list.file.display();
                let note = format!("{file}: the names for {} are in column {column}", list.title());
                (Cow::Owned(names), Some(note))
            }
        }
    }

    /// The inputs that a name in a list means.
    ///
    /// # Errors
    /// If these are several files.
    fn find(&self, name: &str, inputs: &[Input]) -> Result<Vec<usize>> {
        let name = name.replace('\\', "/");
        let name = name.trim_start_matches("./").trim_end_matches('/');
        if let Some(found) = self.whole.get(name) {
            return one_file(name, found, inputs);
        }
        let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
        let folders: Vec<&str> =
            folder.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        for last in [last, without_ending(last)] {
            let candidates = self.last.get(last).into_iter().flatten();
            let fits = candidates.filter(|input| self.fits(**input, &folders));
            let found: Vec<usize> = fits.copied().collect();
            if !found.is_empty() {
                return one_file(name, &found, inputs);
            }
        }
        Ok(self.folders.get(name).cloned().unwrap_or_default())
    }

    /// Whether the folders in a list are the end of those of an input, or end in those below the
    /// input folder.
    fn fits(&self, input: usize, folders: &[&str]) -> bool {
        let around = self.around[input].iter().rev();
        let equal = around
            .zip(folders.iter().rev())
            .take_while(|(folder, listed)| folder == *listed)
            .count();
        equal == folders.len() || equal >= self.below[input].max(1)
    }
}

/// Whether these are the numbers of lines, perhaps below a header. Inputs may have numbers as
/// names, too, as `0001`.
fn are_line_numbers(names: &[String]) -> bool {
    let count = |from: usize, names: &[String]| {
        names.iter().enumerate().all(|(line, name)| *name == (line + from).to_string())
    };
    let has_head = names.first().is_some_and(|name| name.parse::<usize>().is_err());
    let numbers = &names[usize::from(has_head)..];
    !numbers.is_empty() && (0..2).any(|from| count(from, numbers))
}

/// A file name without its ending. What is after the dot of `plot1.5` is no ending.
fn without_ending(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, ending)) if ending.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            stem
        }
        _ => name,
    }
}

/// The names of the folders on the way to a file.
fn folders_of(file: &Path) -> Vec<String> {
    let whole: PathBuf = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = whole.parent().unwrap_or(Path::new(""));
    let names = folder.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    });
    names.collect()
}

/// The inputs, if all of them are in one file.
fn one_file(name: &str, found: &[usize], inputs: &[Input]) -> Result<Vec<usize>> {
    let files: BTreeSet<&Path> = found.iter().map(|input| inputs[*input].file.as_path()).collect();
    if files.len() == 1 {
        return Ok(found.to_vec());
    }
    let shown = files.iter().take(5).map(|file| file.display().to_string()).collect();
    Err(Error::ambiguous(format!("{name:?} in the list may mean several cubes"))
        .with_choices(shown)
        .with_remedy("write more of its path in the list"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(root: &str, file: &str) -> Input {
        let root = Some(PathBuf::from(root)).filter(|root| root != Path::new(""));
        let mut input = Input { root, ..Input::of(Path::new(file)) };
        input.columns.insert("name".to_owned(), Value::from(input.default_name()));
        input
    }

    fn list(split: &str, names: &[&str]) -> NameList {
        NameList {
            column: "split".to_owned(),
            split: Some(split.to_owned()),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            file: PathBuf::from("list.txt"),
        }
    }

    /// Which of the inputs a list with this name means.
    fn found(name: &str, inputs: &[(&str, &str)]) -> Result<Vec<usize>> {
        let inputs: Vec<Input> = inputs.iter().map(|(root, file)| input(root, file)).collect();
        Places::of(&inputs).find(name, &inputs)
    }

    const INPUTS: [(&str, &str); 4] = [
        ("/data", "/data/a/x.npy"),
        ("/data", "/data/b/x.npy"),
        ("/data", "/data/b/y.v2.hdr"),
        ("/data", "/data/z.npy"),
    ];

    #[test]
    fn names_stems_and_paths_find_their_cubes() {
        for (name, wanted) in [
            ("a/x", &[0][..]),
            ("a/x.npy", &[0]),
            ("./b/x.npy", &[1]),
            ("data/b/x.npy", &[1]),
            ("/data/b/x.npy", &[1]),
            ("/home/someone/b/x.npy", &[1]),
            ("b\\x.npy", &[1]),
            ("y.v2", &[2]),
            ("y.v2.raw", &[2]),
            ("b/y.v2.raw", &[2]),
            ("z", &[3]),
            ("z.mat", &[3]),
            ("b", &[1, 2]),
            ("b/", &[1, 2]),
            ("/elsewhere/c/z.npy", &[]),
            ("c/x.npy", &[]),
            ("y", &[]),
            ("nothing", &[]),
        ] {
            assert_eq!(found(name, &INPUTS).unwrap(), wanted, "{name}");
        }
        let error = found("x", &INPUTS).unwrap_err().to_string();
        assert!(error.contains("/data/a/x.npy") && error.contains("/data/b/x.npy"), "{error}");
    }

    #[test]
    fn names_of_samples_come_before_stems() {
        let inputs = [("/data", "/data/x.npy"), ("/data", "/data/b/x.npy")];
        assert_eq!(found("x", &inputs).unwrap(), [0]);
    }

    #[test]
    fn decimals_are_not_endings() {
        let inputs = [("/data", "/data/a1.npy"), ("/data", "/data/a2.7.npy")];
        let find = |name: &str| found(name, &inputs).unwrap();
        assert_eq!((find("a1.5"), find("a1.hdr"), find("a2.7")), (vec![], vec![0], vec![1]));
    }

    #[test]
    fn a_cube_is_in_one_list_of_a_column() {
        let mut inputs = [input("", "a.npy"), input("", "b.npy")];
        let lists = [list("train", &["a", "c"]), list("val", &["b", "b.npy"])];
        let listed = assign(&lists, &mut inputs).unwrap();
        assert_eq!(inputs[0].columns["split"], "train");
        assert_eq!(inputs[1].columns["split"], "val");
        assert_eq!(listed.is_listed, [true, true]);
        assert!(listed.notes[0].contains("one name for split train matches no input: c"));
        let twice = [list("train", &["a"]), list("val", &["a"])];
        let error = assign(&twice, &mut inputs).err().unwrap().to_string();
        assert!(error.contains("split train (list.txt) and split val"), "{error}");
        let none = [list("train", &["x", "y"])];
        let error = assign(&none, &mut inputs).err().unwrap().to_string();
        assert!(error.contains("none of the 2 names") && error.contains("\"a\""), "{error}");
    }

    #[test]
    fn names_may_be_in_a_column_of_the_lines() {
        for lines in [
            &[",path,label", "0,b.npy,1", "1,7.npy,2"][..],
            &["b.npy b.png", "7.npy  7.png"],
            &["\"b\";\"1\"", "\"7\";\"2\""],
            &["0\tb", "1\t7"],
        ] {
            let mut inputs = ["0.npy", "1.npy", "b.npy", "7.npy"].map(|file| input("", file));
            let listed = assign(&[list("train", lines)], &mut inputs).unwrap();
            assert_eq!(listed.is_listed, [false, false, true, true], "{lines:?}");
            assert!(listed.notes[0].contains("are in column"), "{:?}", listed.notes);
            assert_eq!(listed.notes.len(), 1, "{:?}", listed.notes);
        }
        let mut inputs = ["0.npy", "1.npy"].map(|file| input("", file));
        let listed = assign(&[list("train", &["1,a", "0,b"])], &mut inputs).unwrap();
        assert_eq!(listed.is_listed, [true, true]);
        // Names with leading zeros do not count lines.
        let mut padded = ["0001.npy", "0002.npy", "0003.npy"].map(|file| input("", file));
        let listed = assign(&[list("train", &["0001,5", "0002,7"])], &mut padded).unwrap();
        assert_eq!(listed.is_listed, [true, true, false]);
        // The lines are only counted.
        for lines in [["0,a", "1,c"], ["id,name", "0,a"]] {
            assert!(assign(&[list("train", &lines)], &mut inputs).is_err(), "{lines:?}");
        }
    }

    #[test]
    fn folds_are_true_or_false() {
        let mut inputs = [input("", "a.npy"), input("", "b.npy")];
        let folds = ["fold0/train", "fold1/train"].map(|column| NameList {
            column: column.to_owned(),
            split: None,
            ..list("", &["a"])
        });
        assign(&folds, &mut inputs).unwrap();
        assert_eq!(inputs[0].columns["fold1/train"], true);
        assert_eq!(inputs[1].columns["fold0/train"], false);
    }
}
