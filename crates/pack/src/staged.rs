//! Files that appear whole or not at all.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};

/// A file being written under a temporary name beside its own; removed again unless committed.
#[derive(Debug)]
pub struct Staged {
    temporary: PathBuf,
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Staged {
    /// Begins a file that will be `path`.
    ///
    /// # Errors
    /// If its folder is missing or cannot be written to.
    pub fn create(path: &Path) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file =
            File::create(&temporary).map_err(|error| Error::io(path, "cannot write", error))?;
        let file = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { temporary, path: path.to_owned(), file })
    }

    /// Where to write.
    pub fn writer(&mut self) -> &mut BufWriter<File> {
        self.file.as_mut().expect("a file is open until it is committed")
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer().write_all(bytes).map_err(|error| Error::io(&self.path, "cannot write", error))
    }

    /// Gives the file its name, once its bytes are on the disk.
    ///
    /// # Errors
    /// If it cannot be written or renamed.
    pub fn commit(mut self) -> Result<()> {
        let fail = |error| Error::io(&self.path, "cannot write", error);
        let file = self.file.take().expect("a file is open until it is committed");
        let file = file.into_inner().map_err(|error| fail(error.into_error()))?;
        file.sync_all().map_err(fail)?;
        std::fs::rename(&self.temporary, &self.path).map_err(fail)
    }
}

/// Refuses to write files that exist, unless they may be overwritten (`force`).
///
/// # Errors
/// If one of them exists; it is named.
pub fn check_absent(files: &[PathBuf], force: bool) -> Result<()> {
    match files.iter().find(|file| !force && file.symlink_metadata().is_ok()) {
        None => Ok(()),
        Some(file) => Err(Error::conflict("the file exists").at(file).with_remedy(remedy![
            "choose another ",
            Opt::Output,
            ", or pass ",
            Opt::Force,
            " to overwrite it"
        ])),
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a commit there is nothing under this name.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_of_a_file_that_is_not_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        let mut staged = Staged::create(&path).unwrap();
        staged.write(b"half").unwrap();
        drop(staged);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let mut staged = Staged::create(&path).unwrap();
        staged.write(b"whole").unwrap();
        staged.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
