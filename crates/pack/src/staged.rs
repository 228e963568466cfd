//! Output files that the user names. They appear complete or not at all, also at URLs.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use hsipack_format::{Error, Result};
use hsipack_store::folder::link_target;
use hsipack_store::output::{self, Output};
use hsipack_store::remote::{self, is_url};

/// A file that is written under a temporary name beside its final one, and deleted unless it is
/// committed. Writers may seek back in it, so a file for a URL is first written to the system's
/// folder of temporary files, and uploaded when it is complete.
#[derive(Debug)]
pub struct Staged {
    temporary: PathBuf,
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Staged {
    /// Creates the temporary file for `path`. If `path` is a link, the file that it leads to is
    /// replaced.
    ///
    /// # Errors
    /// If its folder is missing or cannot be written to, or `path` is a device, a pipe or a socket.
    pub fn create(path: &Path) -> Result<Self> {
        if is_url(path) {
            remote::check_folder(path)?;
        }
        output::check_kind(path)?;
        let path = &link_target(path);
        let temporary = temporary_for(path);
        // In the system's folder of temporary files, `create_new` does not follow a link that another user put there
        // under this name, and the mode keeps others from reading the file.
        let mode = if is_url(path) { 0o600 } else { 0o666 };
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).mode(mode).open(&temporary);
        let file = file.map_err(|error| match is_url(path) {
            true => Error::io(&temporary, "cannot write", error),
            false => Error::io(path, "cannot write", error),
        })?;
        let file = Some(BufWriter::with_capacity(1 << 20, file));
        Ok(Self { temporary, path: path.to_owned(), file })
    }

    /// The writer of the temporary file.
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

    /// Renames the file to its final name after its bytes are on the disk.
    ///
    /// # Errors
    /// If it cannot be written or renamed.
    pub fn commit(mut self) -> Result<()> {
        let fail = |error| Error::io(&self.path, "cannot write", error);
        let file = self.file.take().expect("a file is open until it is committed");
        let file = file.into_inner().map_err(|error| fail(error.into_error()))?;
        if is_url(&self.path) {
            return send(file, &self.temporary, &self.path);
        }
        file.sync_all().map_err(fail)?;
        fs::rename(&self.temporary, &self.path).map_err(fail)
    }
}

/// The temporary name of a file until it is complete.
fn temporary_for(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = format!(".{name}.{}.{count}.part", std::process::id());
    if is_url(path) { std::env::temp_dir().join(name) } else { path.with_file_name(name) }
}

/// Uploads a finished file to its URL.
fn send(mut file: File, temporary: &Path, url: &Path) -> Result<()> {
    let fail = |error| Error::io(temporary, "cannot read", error);
    let bytes = file.metadata().map_err(fail)?.len();
    file.rewind().map_err(fail)?;
    let mut output = Output::create(url.to_owned(), bytes)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(fail)? {
            0 => return output.finish()?.commit(),
            read => output.write(&piece[..read])?,
        }
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // After a commit, no file has this name any more.
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

    #[test]
    fn links_sockets_and_devices_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "old").unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        let mut staged = Staged::create(&path("link")).unwrap();
        staged.write(b"new").unwrap();
        staged.commit().unwrap();
        assert!(path("link").is_symlink());
        assert_eq!(fs::read(path("file")).unwrap(), b"new");
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        std::os::unix::fs::symlink("/dev/null", path("null")).unwrap();
        for (name, what) in [("socket", "this is a socket"), ("null", "this is a device")] {
            let error = Staged::create(&path(name)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(what), "{error}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 4);
    }
}
