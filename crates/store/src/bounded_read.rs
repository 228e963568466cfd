//! Opening files that may be of any kind, and reading small ones (metadata, headers, lists)
//! completely.
//!
//! The name may lead to anything: a pipe that nobody writes to, an endless device, a file of a
//! terabyte. Only regular files are read, and only after their size was compared with the maximum
//! for such a file.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::path::Path;

pub use crate::regular_file::{METADATA, SAMPLES, SUMS, failed, is_missing};
use crate::window::Window;
use crate::{memory, mirror, regular_file, remote};
use hsipack_format::{Error, Result};

/// The bytes of the regular file at `path`, or of the object if `path` is a URL. It may have at
/// most `most` bytes.
///
/// # Errors
/// If it cannot be read, is not a regular file, or is larger; if there is not enough memory.
pub fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    if remote::is_url(path) {
        return remote::read(path, most);
    }
    let cannot = |error| Error::io(path, "cannot read", error);
    let (file, len): (Box<dyn Read>, u64) = match mirror::in_place(path)? {
        Some(window) => {
            mirror::verify(path)?;
            let len = window.len();
            (Box::new(window), len)
        }
        None => {
            let (file, len) = open(path)?;
            (Box::new(file), len)
        }
    };
    if len > most {
        return Err(too_large(path, len, most));
    }
    memory::check(len, "reading this file").map_err(|error| error.at(path))?;
    let mut bytes = memory::reserved(len as usize, "this file").map_err(|error| error.at(path))?;
    // The file may grow meanwhile. Reading one byte more detects this.
    let read = file.take(most + 1).read_to_end(&mut bytes).map_err(cannot)? as u64;
    if read > most { Err(too_large(path, read, most)) } else { Ok(bytes) }
}

/// Up to `len` bytes at the start of the regular file at `path`.
///
/// # Errors
/// If it cannot be read, or is not a regular file.
pub fn head(path: &Path, len: u64) -> Result<Vec<u8>> {
    let window = match mirror::in_place(path)? {
        Some(window) => window,
        None => {
            mirror::fetch_head(path, len)?;
            let (file, size) = regular_file::open(path, OpenOptions::new().read(true), 0)?;
            Window::whole(file, size)
        }
    };
    let mut head = Vec::with_capacity(len.min(window.len()) as usize);
    let read = window.take(len).read_to_end(&mut head);
    read.map_err(|error| Error::io(path, "cannot read", error))?;
    Ok(head)
}

/// Opens the file at `path` for readers that do not need a separate file. Like [`open`], but a file
/// that is stored uncompressed in an archive is read directly from the archive.
///
/// # Errors
/// Those of [`open`].
pub fn window(path: &Path) -> Result<Window> {
    match mirror::in_place(path)? {
        Some(window) => Ok(window),
        None => open(path).map(|(file, len)| Window::whole(file, len)),
    }
}

/// Like [`read`]; `None` if there is no file with that name.
///
/// # Errors
/// Those of [`read`].
pub fn read_if_there(path: &Path, most: u64) -> Result<Option<Vec<u8>>> {
    match read(path, most) {
        Err(error) if is_missing(&error) => Ok(None),
        other => other.map(Some),
    }
}

/// Opens the regular file at `path` for reading and returns it with its length. Never waits for a
/// writer of a pipe.
///
/// # Errors
/// If it cannot be opened, or is a folder, a pipe, a socket or a device.
pub fn open(path: &Path) -> Result<(File, u64)> {
    open_with(path, OpenOptions::new().read(true), 0)
}

/// Like [`open`], with options for reading and additional `open` flags of the system.
///
/// # Errors
/// Those of [`open`].
pub fn open_with(path: &Path, options: &OpenOptions, flags: i32) -> Result<(File, u64)> {
    remote::refuse(path, "reading")?;
    mirror::fetch(path)?;
    regular_file::open(path, options, flags)
}

fn too_large(path: &Path, len: u64, most: u64) -> Error {
    Error::malformed(format!("the file has {len} bytes; such a file has at most {most}"))
        .at(path)
        .with_remedy("find out what wrote it, and restore the file from a copy")
}

#[cfg(test)]
mod tests {
    use super::*;
    use hsipack_format::ErrorKind;

    #[test]
    fn files_are_read_whole_up_to_their_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"12345").unwrap();
        assert_eq!(read(&path, 5).unwrap(), b"12345");
        let error = read(&path, 4).unwrap_err();
        assert_eq!((error.kind(), error.path()), (ErrorKind::Malformed, Some(path.as_path())));
        assert!(error.what().contains("5 bytes") && error.what().contains("at most 4"), "{error}");
        assert_eq!(head(&path, 3).unwrap(), b"123");
        assert_eq!(head(&path, 30).unwrap(), b"12345");
        assert_eq!(read_if_there(&folder.path().join("no"), 4).unwrap(), None);
        assert!(is_missing(&read(&folder.path().join("no"), 4).unwrap_err()));
    }

    #[test]
    fn a_huge_sparse_file_is_refused_before_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path, METADATA).unwrap_err().what().contains("1099511627776 bytes"));
    }

    // Miri does not support pipes and sockets.
    #[cfg(not(miri))]
    #[test]
    fn pipes_sockets_devices_and_folders_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a path that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        for (path, what) in [
            (pipe.as_path(), "a pipe"),
            (socket.as_path(), "a socket"),
            (link.as_path(), "a device"),
            (folder.path(), "a folder"),
        ] {
            let error = read(path, METADATA).unwrap_err();
            assert_eq!(error.path(), Some(path));
            assert!(error.what().starts_with(what), "{error}");
        }
    }
}
