//! The cube that an archive stands for.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::mirror;

use super::folder::{Search, find_cubes, is_hidden};
use super::passed_over::PassedOver;
use crate::convert::ValueOptions;
use crate::input::Input;

/// How many names a message lists.
const NAMED: usize = 5;

/// The one cube in an archive, or in a folder of it. This is the product or Zarr store if the
/// archive contains nothing else, otherwise its only cube. Any other input is returned unchanged.
///
/// # Errors
/// If there are several cubes, or none.
pub(crate) fn only_cube(input: Input) -> Result<Input> {
    if !mirror::is_of_archive(&input.file) || !input.file.is_dir() {
        return Ok(input);
    }
    let mut folder = input.file.clone();
    while !hsipack_source::is_container_folder(&folder)
        && !hsipack_source::is_product_folder(&folder)
    {
        match only_folder(&folder)? {
            Some(inner) => folder = inner,
            None => break,
        }
    }
    if hsipack_source::is_container_folder(&folder) || hsipack_source::is_product_folder(&folder) {
        return Ok(Input { file: folder, ..input });
    }
    let values = ValueOptions::default();
    let passed_over = PassedOver::default();
    let (excluded, skip) = (&|_: &Path| false, &|_, error| Err(error));
    let search = Search { excluded, values: &values, skip, passed_over: &passed_over };
    let found = find_cubes(&folder, &search)?;
    if let [cube] = &found[..] {
        return Ok(Input { variable: input.variable, root: None, ..cube.clone() });
    }
    let mut choices: Vec<String> = found.iter().take(NAMED).map(Input::text).collect();
    choices.extend((found.len() > NAMED).then(|| "…".to_owned()));
    Err(Error::ambiguous("the archive has several cubes")
        .at(&input.file)
        .with_choices(choices)
        .with_remedy("give one of them"))
}

/// The folder inside `folder`, if `folder` contains nothing else except hidden files.
fn only_folder(folder: &Path) -> Result<Option<PathBuf>> {
    let fail = |error| Error::io(folder, "cannot list", error);
    let mut only = None;
    for entry in folder.read_dir().map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if is_hidden(&entry.file_name()) {
            continue;
        }
        if only.is_some() || !entry.path().is_dir() {
            return Ok(None);
        }
        only = Some(entry.path());
    }
    Ok(only)
}
