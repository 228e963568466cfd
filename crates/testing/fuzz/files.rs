//! Temporary files, for readers that take a path.

use std::path::PathBuf;
use std::sync::LazyLock;

/// In memory where `scripts/dev/fuzz` points TMPDIR there; one a process, since several may run.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("hsipack-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    folder
});

/// Writes a file beside those that are read.
pub fn write(name: &str, bytes: &[u8]) {
    std::fs::write(FOLDER.join(name), bytes).expect("room for a temporary file");
}

/// The path of such a file.
pub fn path(name: &str) -> PathBuf {
    FOLDER.join(name)
}
