//! Walks through folders that fail.

use std::path::Path;

use hsipack_format::Error;

/// The error for `path` in a walk that failed with `error`.
pub(crate) fn failed(path: &Path, error: walkdir::Error) -> Error {
    let cause = error.into_io_error().unwrap_or_else(|| std::io::Error::other("links in a circle"));
    Error::io(path, "cannot list", cause)
}
