//! Paths that stay valid when the program changes its working directory.

use std::path::{Path, PathBuf};

use crate::remote::is_url;
use hsipack_format::{Error, Result};

/// The path from the root of the file system, for paths that are kept for later: a program may
/// change its working directory in between, as Hydra does. Symbolic links and `..` stay as they
/// are. URLs, absolute paths and the empty path are returned unchanged.
///
/// # Errors
/// If the path is relative and the working directory no longer exists.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    if path.is_absolute() || path.as_os_str().is_empty() || is_url(path) {
        return Ok(path.to_owned());
    }
    std::path::absolute(path).map_err(|error| {
        Error::io(
            path,
            "the current directory, where this relative path starts, cannot be found",
            error,
        )
        .with_remedy("change to a directory that exists, or give an absolute path")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_paths_are_changed() {
        let here = std::env::current_dir().unwrap();
        for same in ["/a/../b", "s3://bucket/a", ""] {
            assert_eq!(absolute(Path::new(same)).unwrap(), Path::new(same));
        }
        assert_eq!(absolute(Path::new("a/../b")).unwrap(), here.join("a/../b"));
        assert_eq!(absolute(Path::new("./a")).unwrap(), here.join("a"));
    }
}
