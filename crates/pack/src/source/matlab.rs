//! TODO

use std::path::Path;

use hsipack_format::{Error, Result};

use super::{OpenOptions, Source};

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(super) fn recognises(_path: &Path, _head: &[u8]) -> bool {
    false
}

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, _options: &OpenOptions) -> Result<Box<dyn Source>> {
    Err(Error::unsupported("not written yet").at(path))
}
