//! Errors while walking through folders.

use std::path::Path;

use hsipack_format::Error;

/// Converts the error of a walk into one for `path`.
pub(crate) fn failed(path: &Path, error: walkdir::Error) -> Error {
    let cause =
        error.into_io_error().unwrap_or_else(|| std::io::Error::other("the links form a loop"));
    Error::io(path, "cannot list", cause)
}
