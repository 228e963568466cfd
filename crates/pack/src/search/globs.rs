//! The files that a glob matches.

use std::path::Path;

use hsipack_format::{Error, Result};
use hsipack_source::SpectraTable;
use hsipack_store::mirror;
use hsipack_store::remote::is_url;

use super::folder::{Search, find_cubes, hidden_parts};
use super::wildcards::{Wildcards, first_wildcard};
use crate::input::{Fields, Input, missing};
use crate::table;

/// The glob `url`, rewritten for the local files that mirror objects.
pub(super) fn glob_of_files(url: &str) -> Result<String> {
    let wild = first_wildcard(url).unwrap_or(url.len());
    let (folder, pattern) = url.split_at(url[..wild].rfind('/').map_or(wild, |slash| slash + 1));
    if !is_url(Path::new(folder)) {
        return Err(missing(Path::new(url)));
    }
    let path = match mirror::folder(Path::new(folder))? {
        Some(path) => path,
        None => Input::of(Path::new(folder)).here().map_err(|error| error.at(url))?.file,
    };
    Ok(format!("{}/{pattern}", glob::Pattern::escape(&path.to_string_lossy())))
}

/// The inputs that a glob matches.
///
/// # Errors
/// If nothing matches, or a folder cannot be searched.
pub(super) fn expand_glob(text: &str, search: &Search<'_>) -> Result<Vec<Input>> {
    let missing = || mirror::error_with_urls(missing(&Input::parse(text).file));
    if first_wildcard(text).is_none() {
        return Err(missing());
    }
    let found = glob::glob(text)
        .map_err(|error| Error::conflict(format!("{text:?} is not a glob pattern: {error}")))?;
    let wildcards = Wildcards::of(text);
    let mut inputs = Vec::new();
    for path in found {
        let path = match path {
            Ok(path) => path,
            Err(error) => {
                let path = error.path().to_owned();
                let name = path.display().to_string();
                (search.skip)(name, Error::io(path, "cannot list", error.into()))?;
                continue;
            }
        };
        // As in a shell, a wildcard does not match hidden files or folders.
        if (search.excluded)(&path) || hidden_parts(&path) > hidden_parts(Path::new(text)) {
            continue;
        }
        // A path that cannot be read is kept: opening it later gives an error with its name.
        let mut fields = Fields::new();
        wildcards.add(&path.to_string_lossy(), &mut fields);
        let path = Input::of(&path).here().map_or(path, |input| input.file);
        if path.is_dir() && !hsipack_source::is_container_folder(&path) {
            let found = find_cubes(&path, search)?.into_iter();
            inputs.extend(found.map(|input| Input { fields: fields.clone(), ..input }));
        } else if let Some(table) = SpectraTable::open(&path)? {
            let found = table::spectra(&table, &path)?.into_iter();
            inputs.extend(found.map(|input| Input { fields: fields.clone(), ..input }));
        } else {
            inputs.push(Input { fields, ..Input::of(&path) });
        }
    }
    if !names_pictures(text) && inputs.iter().any(|input| !hsipack_source::is_picture(&input.file))
    {
        // Pictures beside cubes are not cubes, unless the pattern asks for them.
        inputs.retain(|input| !hsipack_source::is_picture(&input.file));
    }
    if inputs.is_empty() { Err(missing()) } else { Ok(inputs) }
}

/// Whether a pattern ends like the names of pictures.
fn names_pictures(pattern: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    [".png", ".jpg", ".jpeg"].iter().any(|ending| pattern.ends_with(ending))
}
