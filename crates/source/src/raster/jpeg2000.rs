//! JPEG 2000 is not supported. It is recognised so that the error can name it; `docs/decisions.md`
//! says why.

use std::path::Path;

use hsipack_format::{Error, Result};

use crate::{OpenOptions, Source};

/// The box that every JP2 file begins with, and the first two markers of a bare codestream.
const SIGNATURES: [&[u8]; 2] = [b"\0\0\0\x0CjP  \r\n\x87\n", b"\xFF\x4F\xFF\x51"];

/// Whether a file that starts with `head` (up to 4 KiB) is of this format.
pub(crate) fn recognises(_path: &Path, head: &[u8]) -> bool {
    SIGNATURES.iter().any(|signature| head.starts_with(signature))
}

/// Whether the file is named like a JPEG 2000 file.
pub(crate) fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("jp2"))
}

/// Refuses the file.
///
/// # Errors
/// Always: JPEG 2000 is not supported.
pub(crate) fn open(path: &Path, _options: &OpenOptions) -> Result<Box<dyn Source>> {
    Err(refusal(path))
}

/// The error for a JPEG 2000 file.
pub(crate) fn refusal(path: &Path) -> Error {
    Error::unsupported("JPEG 2000 is not supported").at(path).with_remedy(
        "convert it to a TIFF with the same name: gdal_translate -co INTERLEAVE=BAND NAME.JP2 NAME.TIF",
    )
}
