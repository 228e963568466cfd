//! Files with the labels of several pictures: which of their entries are cubes of this plan.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::labels::Entries;
use hsipack_source::labels::boxes::{self, Pictures};
use hsipack_store::mirror;

use crate::convert::masks::names_of;
use crate::convert::named_files;
use crate::input::Input;

/// The most names that a note lists.
const LISTED: usize = 3;
/// The most columns that an error lists.
const MAX_COLUMNS: usize = 20;

/// Notes about entries of files of labels that are no cubes of this plan. `patterns` give the files
/// of each cube.
///
/// # Errors
/// If an entry may mean several cubes, or none of the entries of a file means one, unless the cubes
/// are appended to others; if a table that names no pictures is that of several cubes.
pub(super) fn check<'a>(
    patterns: impl Iterator<Item = &'a str>,
    inputs: &[Input],
    is_append: bool,
) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    for (file, cubes) in files(patterns, inputs) {
        // Whoever opens the labels of a cube says what is wrong with the file.
        let pictures = match boxes::pictures(&file) {
            Ok(Pictures::Named(pictures)) => pictures,
            Ok(Pictures::NotNamed { columns }) if cubes.len() > 1 => {
                return Err(Error::ambiguous(format!(
                    "none of its columns names the picture of a box, but it is the table of {} cubes; its columns: {}",
                    cubes.len(),
                    columns[..columns.len().min(MAX_COLUMNS)].join(", ")
                ))
                .at(&file)
                .with_remedy(
                    "call the column with the pictures `image`, or give a table for each cube: {dir}/{stem}.csv",
                ));
            }
            Ok(Pictures::NotNamed { .. } | Pictures::One) | Err(_) => continue,
        };
        let entries = Entries::new(pictures);
        let mut found: BTreeMap<usize, &Input> = BTreeMap::new();
        for cube in &cubes {
            let entry = entries.find(&names_of(cube)?).map_err(|error| error.at(&file))?;
            let Some(entry) = entry else { continue };
            let other = found.insert(entry, cube);
            if let Some(other) = other.filter(|other| other.file != cube.file) {
                let name = &entries.names()[entry];
                return Err(Error::ambiguous(format!("the entry {name:?} may mean several cubes"))
                    .at(&file)
                    .with_choices(vec![other.text(), cube.text()])
                    .with_remedy("write more of its path in the file"));
            }
        }
        if let (true, Some(cube)) = (found.is_empty() && !is_append, cubes.first()) {
            return Err(entries.missing(&names_of(cube)?).at(&file).with_remedy(remedy![
                "name the pictures like the samples, or give the samples the names of the pictures with ",
                Opt::Name
            ]));
        }
        let names = entries.names().iter().enumerate();
        let unused = names.filter(|(entry, _)| !found.contains_key(entry));
        let unused: Vec<&str> = unused.map(|(_, name)| name.as_str()).collect();
        let shown = unused[..unused.len().min(LISTED)].join(", ");
        let file = mirror::with_urls(&file.display().to_string());
        match unused.len() {
            0 => {}
            1 => notes.push(format!("{file}: one picture matches no input: {shown}")),
            count => {
                let more = if count > LISTED { ", …" } else { "" };
                notes.push(format!("{file}: {count} pictures match no input: {shown}{more}"));
            }
        }
    }
    Ok(notes)
}

/// The JSON files and tables that the patterns give, and the cubes of each.
fn files<'a, 'b>(
    patterns: impl Iterator<Item = &'a str>,
    inputs: &'b [Input],
) -> BTreeMap<PathBuf, Vec<&'b Input>> {
    let mut files: BTreeMap<PathBuf, Vec<&Input>> = BTreeMap::new();
    for pattern in patterns.filter(|pattern| may_be_of_several(pattern)) {
        for input in inputs {
            let Ok(Some(found)) = named_files::find(pattern, input, "the labels") else { continue };
            let cubes = files.entry(found.file).or_default();
            if cubes.last().is_none_or(|last| !std::ptr::eq(*last, input)) {
                cubes.push(input);
            }
        }
    }
    files
}

/// Whether the files that a pattern gives may hold the labels of several cubes. Their entries are
/// compared with paths below the input folder, which samples then record.
pub(super) fn may_be_of_several(pattern: &str) -> bool {
    let file = Input::parse(pattern).file;
    let is = |ending: &str| {
        file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(ending))
    };
    ["json", "csv", "tsv"].iter().any(|ending| is(ending))
}
