//! Files that the command writes beside datasets.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};

/// Replaces a text file as a whole: a reader sees either the old or the new file.
///
/// # Errors
/// If it cannot be written.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    replace_with(path, |file| writeln!(file, "{text}"))
}

/// Like [`replace`], with the contents that `write` writes. A symbolic link keeps leading to the
/// file, and a device or pipe such as `/dev/stdout` stays one.
///
/// # Errors
/// If it cannot be written, or if there is a file of another kind, as when the name of an input is
/// taken for that of an output.
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&target) {
        Ok(found) if found.is_file() => refuse_foreign(&target, path)?,
        Ok(found) if !found.is_dir() => {
            let put = || -> io::Result<()> {
                let mut file = BufWriter::new(File::options().write(true).open(&target)?);
                write(&mut file)?;
                file.flush()
            };
            return put().map_err(|error| Error::io(path, "cannot write", error));
        }
        _ => {}
    }
    replace_file(&target, write)
}

/// How the files begin that are written here: pages and pictures, JSON, TOML.
const STARTS: [u8; 4] = *b"<{[#";

fn refuse_foreign(file: &Path, path: &Path) -> Result<()> {
    let mut start = [0];
    let read = File::open(file).and_then(|mut file| file.read(&mut start));
    let count = read.map_err(|error| Error::io(path, "cannot read", error))?;
    if count == 0 || STARTS.contains(&start[0]) {
        return Ok(());
    }
    Err(Error::conflict("the file exists, and hsipack did not write it")
        .at(path)
        .with_remedy("choose another name, or delete the file first"))
}

fn replace_file(
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
        replace(&path, "{1}").unwrap();
        replace(&path, "{2}").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{2}\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(&folder.path().join("no/state"), "").is_err());
    }

    #[test]
    fn other_files_links_and_devices_stay() {
        let folder = tempfile::tempdir().unwrap();
        let (cube, link) = (folder.path().join("cube.npy"), folder.path().join("link"));
        fs::write(&cube, b"\x93NUMPY").unwrap();
        assert!(replace(&cube, "{}").unwrap_err().to_string().contains("cube.npy"));
        assert_eq!(fs::read(&cube).unwrap(), b"\x93NUMPY");
        let state = folder.path().join("state");
        std::os::unix::fs::symlink(&state, &link).unwrap();
        fs::write(&state, "").unwrap();
        replace(&link, "{}").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&state).unwrap(), "{}\n");
        replace(Path::new("/dev/null"), "{}").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
