//! Opening regular files of this machine, and nothing else.

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use hsipack_format::{Error, Result};

/// Maximum size of a `zarr.json` in bytes. With statistics of thousands of bands, or after
/// thousands of appends, the file has a few megabytes.
pub const METADATA: u64 = 64 << 20;
/// Maximum size of a `SHA256SUMS` in bytes. It has a line of about a hundred bytes for each array.
pub const SUMS: u64 = 256 << 20;
/// Maximum size of a `samples.jsonl` in bytes. The available memory may limit it further.
pub const SAMPLES: u64 = 16 << 30;

/// Opens the regular file at `path` with these options and additional `open` flags of the system,
/// and returns it with its length. Never waits for a writer of a pipe.
///
/// # Errors
/// If it cannot be opened, or is a folder, a pipe, a socket or a device.
pub(crate) fn open(path: &Path, options: &OpenOptions, flags: i32) -> Result<(File, u64)> {
    let cannot = |error| failed(path, "cannot read", error);
    // Checked before opening, because opening a device may already have an effect.
    if let Some(what) = other_kind(path.metadata().map_err(cannot)?.file_type()) {
        return Err(not_a_file(path, what));
    }
    // If the file was replaced by a pipe meanwhile, opening it does not wait for a writer.
    let file = options.clone().custom_flags(flags | libc::O_NONBLOCK).open(path).map_err(cannot)?;
    let meta = file.metadata().map_err(cannot)?;
    if meta.is_file() { Ok((file, meta.len())) } else { Err(not_a_file(path, "something else")) }
}

/// The kind of something that is no regular file, for messages.
pub(crate) fn other_kind(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_fifo() => Some("a pipe"),
        kind if kind.is_socket() => Some("a socket"),
        kind if kind.is_file() => None,
        _ => Some("a device"),
    }
}

fn not_a_file(path: &Path, what: &str) -> Error {
    Error::malformed(format!("{what}, not a file"))
        .at(path)
        .with_remedy("put the file itself there")
}

/// The error of the system about a path. It says so if the path is a broken link.
pub fn failed(path: &Path, doing: &str, error: io::Error) -> Error {
    match path.read_link() {
        Ok(target) if error.kind() == io::ErrorKind::NotFound => {
            let doing = format!("{doing}: a broken link to {}", target.display());
            Error::io(path, &doing, error)
        }
        _ => Error::io(path, doing, error),
    }
}

/// Whether an error says that a file does not exist.
pub fn is_missing(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    source.is_some_and(|error: &io::Error| error.kind() == io::ErrorKind::NotFound)
}
