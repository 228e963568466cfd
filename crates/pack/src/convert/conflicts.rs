//! Errors about outputs that are in the way, or that are missing.

use std::path::Path;

use hsipack_format::{Error, Opt, remedy};

/// The error for an output that already exists.
pub fn output_exists(output: &Path) -> Error {
    Error::conflict("the output exists").at(output).with_remedy(remedy![
        "choose another ",
        Opt::Output,
        ", delete it, or pass ",
        Opt::Append
    ])
}

/// The error for an append without a dataset.
pub fn nothing_to_append_to(output: &Path) -> Error {
    Error::conflict("there is no dataset to append to")
        .at(output)
        .with_remedy(remedy!["leave out ", Opt::Append])
}
