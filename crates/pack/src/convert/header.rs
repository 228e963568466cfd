//! `--header`: one ENVI header for many raw files.

use std::path::PathBuf;

use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};

use super::masks::places;
use crate::input::Input;

/// The header that `pattern` gives for the file of an input. `None` if the input is a folder.
///
/// # Errors
/// If there is no such header.
pub(crate) fn of(pattern: &str, input: &Input) -> Result<Option<PathBuf>> {
    if input.file.is_dir() {
        return Ok(None);
    }
    let all = places(pattern, input)?;
    for place in &all {
        let place = place.clone().here()?;
        if place.file.is_file() {
            return Ok(Some(place.file));
        }
    }
    let names: Vec<String> = all.iter().map(Input::text).collect();
    Err(Error::new(
        ErrorKind::Io,
        format!("its header is missing: there is no {}", names.join(", and no ")),
    )
    .at(&input.file)
    .with_remedy(remedy!["check the pattern of ", Opt::Header]))
}
