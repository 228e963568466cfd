//! A hash that detects whether the files of a cube have changed, without reading all of their
//! bytes.

use std::collections::HashMap;
use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use hsipack_format::{Error, Result};
use hsipack_source::Recent;
use hsipack_store::{bounded_read, mirror};
use sha2::{Digest, Sha256};
use walkdir::WalkDir;

use crate::walk;

/// Files up to this size are hashed completely.
const WHOLE: u64 = 512 << 10;
/// Of larger files, this many bytes at the start and at the end are hashed.
const END: u64 = 64 << 10;
/// The number of evenly spaced blocks in between, and the size of each.
const BLOCKS: u64 = 62;
const BLOCK: u64 = 4 << 10;

/// Size in bytes and fingerprint of the files of one cube. The fingerprint is a SHA-256 over the
/// length and content of each file. Of a file above 512 KiB, the content is the first and last 64
/// KiB and 62 blocks of 4 KiB evenly spaced between them. Names and times are not included.
///
/// # Errors
/// If a file cannot be read.
pub fn fingerprint(files: &[PathBuf]) -> Result<(u64, String)> {
    /// Thousands of cubes may be in one file.
    static RECENT: Recent<(u64, String)> = Recent::new();
    let state = state(files)?;
    let (bytes, fingerprint) = match files {
        [file] if file.is_file() => {
            RECENT.get(file, |_| true, || read(files)).map(|found| (*found).clone())?
        }
        _ => read(files)?,
    };
    seen().insert(hash_of(files), hash_of((state, &fingerprint)));
    Ok((bytes, fingerprint))
}

/// Whether the files of a cube still have this fingerprint. They are not read again if this process
/// found it before, and sizes, times and identities are the same as then.
///
/// # Errors
/// If a file cannot be read.
pub fn is_still(files: &[PathBuf], planned: &str) -> Result<bool> {
    let state = hash_of((state(files)?, planned));
    if seen().get(&hash_of(files)) == Some(&state) {
        return Ok(true);
    }
    Ok(fingerprint(files)?.1 == planned)
}

/// Forgets which files were seen.
pub(crate) fn forget() {
    std::mem::take(&mut *seen());
}

/// For the files of each cube, their state and fingerprint when they were read last, all as hashes:
/// there may be very many.
fn seen() -> MutexGuard<'static, HashMap<u64, u64>> {
    static SEEN: LazyLock<Mutex<HashMap<u64, u64>>> = LazyLock::new(Mutex::default);
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sizes, times and identities of files. Objects on servers and archives have identities of their
/// own, which are compared whenever they are read.
fn state(files: &[PathBuf]) -> Result<u64> {
    let mut hash = DefaultHasher::new();
    for file in files {
        for file in below(file)?.iter().filter(|file| mirror::url_of(file).is_none()) {
            // If it does not exist, the error is that of reading it.
            let about = file.metadata().ok();
            let times = |about: Metadata| {
                let modified = (about.mtime(), about.mtime_nsec());
                (about.dev(), about.ino(), about.len(), modified, about.ctime(), about.ctime_nsec())
            };
            about.map(times).hash(&mut hash);
        }
    }
    Ok(hash.finish())
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hash = DefaultHasher::new();
    value.hash(&mut hash);
    hash.finish()
}

fn read(files: &[PathBuf]) -> Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    for file in files {
        for file in below(file)? {
            bytes += add_file(&file, &mut hash)?;
        }
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, format!("sha256-sampled:{hex}")))
}

/// The file itself, or every file of a folder, sorted.
fn below(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in WalkDir::new(path).follow_links(true).sort_by_file_name() {
        let entry = entry.map_err(|error| walk::failed(path, error))?;
        if entry.file_type().is_file() {
            files.push(entry.into_path());
        }
    }
    Ok(files)
}

fn add_file(path: &Path, hash: &mut Sha256) -> Result<u64> {
    let fail = |error| Error::io(path, "cannot read", error);
    let file = bounded_read::window(path)?;
    let len = file.len();
    hash.update(len.to_le_bytes());
    let mut add = |start: u64, count: u64| -> Result<()> {
        let mut buffer = vec![0; count as usize];
        file.read_exact_at(&mut buffer, start).map_err(fail)?;
        hash.update(&buffer);
        Ok(())
    };
    if len <= WHOLE {
        add(0, len)?;
    } else {
        add(0, END)?;
        let step = (len - 2 * END) / BLOCKS;
        for block in 0..BLOCKS {
            add(END + block * step, BLOCK)?;
        }
        add(len - END, END)?;
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_and_length_count_names_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let of_file = |path: PathBuf| fingerprint(&[path]).unwrap();
        assert_eq!(of_file(write("a", b"xyz")), of_file(write("b", b"xyz")));
        assert_ne!(of_file(write("a", b"xyz")), of_file(write("b", b"xyZ")));
        let mut large = vec![7; 700 << 10];
        let before = of_file(write("large", &large));
        assert_eq!(before.0, 700 << 10);
        *large.last_mut().unwrap() = 8;
        assert_ne!(before, of_file(write("large", &large)));
    }

    #[test]
    fn changed_content_is_found_and_other_changes_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        let write = |content: &str| std::fs::write(&files[1], content).unwrap();
        write("one");
        std::fs::write(&files[0], "").unwrap();
        let planned = fingerprint(&files).unwrap().1;
        assert!(is_still(&files, &planned).unwrap());
        write("two");
        assert!(!is_still(&files, &planned).unwrap());
        // What was found meanwhile is not what was planned.
        assert!(!is_still(&files, &planned).unwrap());
        write("one");
        assert!(is_still(&files, &planned).unwrap());
        forget();
        assert!(is_still(&files, &planned).unwrap());
    }
}
