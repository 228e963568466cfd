//! Files that the command writes beside datasets.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};

/// Replaces a text file as a whole: a reader sees either the old or the new file.
///
/// # Errors
/// If it cannot be written.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    replace_with(path, |file| writeln!(file, "{text}"))
}

/// Like [`replace`], with the contents that `write` writes.
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = PathBuf::from(name);
    let put = || -> io::Result<()> {
        let mut file = BufWriter::new(File::create(&temporary)?);
        write(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&temporary, path)
    };
    put().map_err(|error| {
        let _ = fs::remove_file(&temporary);
        Error::io(path, "cannot write", error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        replace(&path, "first").unwrap();
        replace(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(&folder.path().join("no/state"), "").is_err());
    }
}
