//! Errors while walking through folders.

use std::path::Path;

use hsipack_format::Error;
use hsipack_store::bounded_read::failed as failed_at;

/// Converts the error of a walk into one for `path`.
pub(crate) fn failed(path: &Path, error: walkdir::Error) -> Error {
    let cause =
        error.into_io_error().unwrap_or_else(|| std::io::Error::other("the links form a loop"));
    failed_at(path, "cannot list", cause)
}
