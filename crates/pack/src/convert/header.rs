//! `--header`: one ENVI header for many raw files.

use std::path::PathBuf;

use hsipack_format::{Error, ErrorKind, Opt, Result, remedy};

use super::named_files;
use crate::input::Input;

/// The header that `pattern` gives for the file of an input. `None` if the file needs none, because
/// it is a folder, of another format than raw data, or has a header.
///
/// # Errors
/// If there is no such header.
pub(crate) fn of(pattern: &str, input: &Input) -> Result<Option<PathBuf>> {
    if !hsipack_source::needs_header(&input.file) {
        return Ok(None);
    }
    if let Some(header) = named_files::find(pattern, input, "the header")? {
        return Ok(Some(header.file));
    }
    let why = named_files::absence(pattern, input);
    Err(Error::new(ErrorKind::Io, format!("its header is missing: {why}"))
        .at(&input.file)
        .with_remedy(remedy!["check the pattern of ", Opt::Header]))
}
