//! Turns what the user typed into a list of cubes to open.
//!
//! | file | job |
//! |---|---|
//! | `mod.rs` | one input after the other: a file, a folder, a glob, a list |
//! | `folder.rs` | the cubes below a folder |
//! | `globs.rs` | the files that a glob matches |
//! | `wildcards.rs` | the texts that the stars of a glob matched |
//! | `archives.rs`, `only_cube.rs` | archives, which are treated as folders |
//! | `containers.rs` | many cubes in one file |
//! | `exclusion.rs` | what `--exclude` leaves out |
//! | `passed_over.rs` | broken files and unread archives, for notes |

mod archives;
mod containers;
mod exclusion;
mod folder;
mod globs;
mod only_cube;
mod passed_over;
mod wildcards;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_source::SpectraTable;
use hsipack_store::remote::is_url;

pub(crate) use self::exclusion::Exclusion;
use self::folder::{Search, find_cubes};
use self::globs::{expand_glob, glob_of_files};
pub(crate) use self::only_cube::only_cube;
use self::passed_over::PassedOver;
use self::wildcards::first_wildcard;
use crate::convert::{ValueOptions, header};
use crate::input::Input;
use crate::table;

/// Turns files, folders, globs and CSV lists into inputs. They stay in the order given; the cubes
/// of a folder or a glob are sorted.
///
/// # Errors
/// If an input does not exist, or a folder, glob or list contains no cube.
pub fn expand(inputs: &[String], exclude: &[String], values: &ValueOptions) -> Result<Vec<Input>> {
    expand_skipping(inputs, exclude, values, &|_, error| Err(error)).map(|(inputs, _)| inputs)
}

/// [`expand`], where `skip` takes the errors of inputs that cannot be searched, and their paths.
/// Also returns notes about files in folders that may hold cubes, but are none of the inputs.
///
/// # Errors
/// Those of `skip`; if an option is invalid.
pub(crate) fn expand_skipping(
    inputs: &[String],
    exclude: &[String],
    values: &ValueOptions,
    skip: &dyn Fn(String, Error) -> Result<()>,
) -> Result<(Vec<Input>, Vec<String>)> {
    let exclusion = Exclusion::parse(exclude)?;
    let excluded = |path: &Path| exclusion.matches(path);
    let axes = values.axes()?;
    let passed_over = PassedOver::default();
    let search = Search { excluded: &excluded, values, skip, passed_over: &passed_over };
    let mut all = Vec::new();
    for text in inputs {
        let found = match expand_one(text, &search) {
            Ok(found) => found,
            Err(error) => {
                skip(text.clone(), error)?;
                continue;
            }
        };
        for input in found {
            let text = input.text();
            let cubes = match values.bands_from.is_some() && !input.is_folder_of_bands() {
                true => Err(not_a_folder(&input)),
                false => containers::expand(input, axes.as_ref()),
            };
            match cubes {
                Ok(cubes) => all.extend(cubes),
                Err(error) => skip(text, error)?,
            }
        }
    }
    if let Some(pattern) = &values.header {
        // The header of many files is not a cube by itself.
        let whole = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let headers = all.iter().filter_map(|input| header::of(pattern, input).ok().flatten());
        let headers: HashSet<PathBuf> = headers.map(whole).collect();
        all.retain(|input| !headers.contains(&whole(input.file.clone())));
    }
    Ok((all, passed_over.notes().collect()))
}

/// The error for a file that is given instead of a folder of bands.
fn not_a_folder(input: &Input) -> Error {
    Error::conflict("this is a file, not a folder with a file for each band")
        .at(&input.file)
        .with_remedy(remedy!["give the folder, in which ", Opt::BandsFrom, " finds the files"])
}

fn expand_one(text: &str, search: &Search<'_>) -> Result<Vec<Input>> {
    let input = Input::parse(text);
    let has_pattern_for_files = first_wildcard(&input.file.to_string_lossy()).is_some();
    if let Some(variable) = input
        .variable
        .clone()
        .filter(|_| has_pattern_for_files && (is_url(&input.file) || !input.file.exists()))
    {
        // The variable of every file that matches.
        let files = expand_one(&input.file.to_string_lossy(), search)?;
        let of_file = |file: Input| Input { variable: Some(variable.clone()), ..file };
        return Ok(files.into_iter().map(of_file).collect());
    }
    if is_url(&input.file) && has_pattern_for_files {
        return expand_glob(&glob_of_files(text)?, search);
    }
    let input = input.here()?;
    if !input.file.exists() {
        return match archives::glob_inside(text)? {
            Some(glob) => expand_glob(&glob, search),
            None => expand_glob(text, search),
        };
    }
    if input.variable.is_some() {
        return only_cube(input).map(|input| vec![input]);
    }
    let images = hsipack_source::images_of_metadata(&input.file);
    if !images.is_empty() {
        return Ok(images.iter().map(|image| Input::of(image)).collect());
    }
    if input.file.is_dir() && !hsipack_source::is_container_folder(&input.file) {
        return find_cubes(&input.file, search);
    }
    if let Some(table) = SpectraTable::open(&input.file)? {
        return table::spectra(&table, &input.file);
    }
    if input.file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("csv")) {
        let cube = |input: Input| only_cube(input.here()?);
        return table::read_list(&input.file)?.into_iter().map(cube).collect();
    }
    Ok(vec![input])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_inputs_are_named() {
        let error = expand(&["no/such.hdr".into()], &[], &ValueOptions::default()).unwrap_err();
        assert!(error.to_string().starts_with("no/such.hdr: no such file"), "{error}");
        let error = expand(&["no/such*.hdr".into()], &[], &ValueOptions::default()).unwrap_err();
        assert!(error.to_string().contains("no/such*.hdr"), "{error}");
    }

    #[test]
    fn a_url_with_a_query_is_refused_as_a_url() {
        let _session = hsipack_store::mirror::session();
        for url in ["https://h/a.hdr?download=true", "http://h/a.h5?download=1&x=2::/b"] {
            let error = expand(&[url.into()], &[], &ValueOptions::default()).unwrap_err();
            assert!(error.to_string().contains("leave out what follows ?"), "{error}");
        }
    }
}
