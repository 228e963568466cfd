//! Archives whose members have files in the mirror, one folder per archive, and the names that
//! users know.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{Error, Result};

use super::mirrored_archive::{FOLDER, MirroredArchive};
use super::{Mirror, fetched_files, holding, locked, mirror_for, without_parents};
use crate::archive::{Archive, Kind};

/// Whether `path` is a file with the name of an archive.
pub fn is_archive(path: &Path) -> bool {
    Kind::of(path).is_some() && path.is_file()
}

/// The folder that stands for the archive at `path`, and holds files that stand for its members.
///
/// # Errors
/// If it is in another archive, cannot be read, is damaged or contains something that no archive of
/// cubes contains; if temporary files cannot be written.
pub fn folder_of_archive(path: &Path) -> Result<PathBuf> {
    let mirror = mirror_for(path)?;
    if mirror.is_of_archive(path) {
        return Err(Error::unsupported("an archive inside another archive is not opened")
            .at(path)
            .with_remedy("unpack the outer archive, and give the inner one"));
    }
    // For a file that stands for an object, users know the object's URL.
    let shown_path = mirror.url_of(path).unwrap_or_else(|| path.to_owned());
    mirror.place(path, &shown_path)
}

/// The file or folder that stands for the target of a path that leads into an archive, whether the
/// target exists or not. `None` if the path does not lead into an archive.
///
/// # Errors
/// Those of [`folder_of_archive`].
pub fn inside_archive(path: &Path) -> Result<Option<PathBuf>> {
    let mut location = PathBuf::new();
    let mut is_inside = false;
    for part in path.components() {
        location.push(part);
        if is_archive(&location) {
            location = folder_of_archive(&location)?;
            is_inside = true;
        }
    }
    Ok(is_inside.then(|| without_parents(&location)))
}

/// Whether a file or folder stands for an archive, or for a member or folder in one.
pub fn is_of_archive(path: &Path) -> bool {
    holding(path).is_some_and(|mirror| mirror.is_of_archive(path))
}

/// The archive that a folder stands for, by the name that users know; `None` if it does not stand
/// for a whole archive.
pub fn archive_of(folder: &Path) -> Option<PathBuf> {
    let mirror = holding(folder)?;
    let is_whole = folder.parent() == Some(&mirror.root.join(FOLDER));
    is_whole.then(|| mirror.url_of(folder)).flatten()
}

/// If `path` leaves an archive's folder with `..`, the corresponding path beside the archive. Other
/// paths are returned unchanged.
pub fn beside_archive(path: &Path) -> PathBuf {
    let Some(mirror) = holding(path) else { return path.to_owned() };
    mirror.leaving(path).unwrap_or_else(|| path.to_owned())
}

impl Mirror {
    fn leaving(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(self.root.join(FOLDER)).ok()?;
        let mut parts = below.components();
        let number = parts.next()?.as_os_str().to_str()?.parse::<usize>().ok()?;
        let shown_path = locked(&self.archives).0.get(number)?.archive.shown_path().to_owned();
        let mut depth = 0usize;
        while let Some(part) = parts.next() {
            match part {
                Component::ParentDir if depth == 0 => {
                    return Some(
                        shown_path.parent().unwrap_or(Path::new("")).join(parts.as_path()),
                    );
                }
                Component::ParentDir => depth -= 1,
                Component::Normal(_) => depth += 1,
                _ => {}
            }
        }
        None
    }

    /// The folder of an archive. Creates the files of its members if they do not exist yet.
    fn place(&self, path: &Path, shown_path: &Path) -> Result<PathBuf> {
        // Two threads may look for it at the same time.
        let _listed = locked(&self.listed);
        let number = {
            let archives = locked(&self.archives);
            if let Some(placed) =
                archives.0.iter().find(|placed| placed.archive.shown_path() == shown_path)
            {
                return Ok(placed.folder.clone());
            }
            archives.0.len()
        };
        let is_object = self.url_of(&without_parents(path)).is_some();
        let archive = Archive::open(path, shown_path, super::open_fetched, is_object)?;
        let folder = self.root.join(FOLDER).join(number.to_string());
        let placed = Arc::new(MirroredArchive { archive, folder: folder.clone() });
        self.make_files(&placed).inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })?;
        locked(&self.archives).0.push(placed);
        Ok(folder)
    }

    fn make_files(&self, placed: &Arc<MirroredArchive>) -> Result<()> {
        let make = |folder: &Path| {
            fs::create_dir_all(folder).map_err(|error| {
                Error::io(folder, "cannot create", error).with_remedy(fetched_files::ROOM)
            })
        };
        make(&placed.folder)?;
        for (number, member) in placed.archive.members().iter().enumerate() {
            let file = placed.file_of(number);
            make(file.parent().unwrap_or(&placed.folder))?;
            fetched_files::empty(&file, member.size)?;
            self.table.add_member(&file, placed, number);
        }
        Ok(())
    }
}

// Miri does not report the blocks of a file.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::{Cursor, Read, Write};
    use std::os::unix::fs::MetadataExt;

    use zip::write::SimpleFileOptions;
    use zip::{CompressionMethod, ZipWriter};

    use super::super::fetched_files::FetchedFiles;
    use super::*;
    use crate::bounded_read;
    use crate::mirror::{pinning, prepare, session, url_of, with_urls};

    const BYTES: usize = 100_000;

    fn content(seed: u8) -> Vec<u8> {
        (0..BYTES).map(|n| (n % 251) as u8 ^ seed).collect()
    }

    fn zipped(folder: &Path, method: CompressionMethod) -> PathBuf {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let options = SimpleFileOptions::default().compression_method(method);
        for (name, seed) in [("in/a", 1), ("in/b", 2), ("c", 3)] {
            zip.start_file(name, options).unwrap();
            zip.write_all(&content(seed)).unwrap();
        }
        let path = folder.join(format!("{method}.zip"));
        fs::write(&path, zip.finish().unwrap().into_inner()).unwrap();
        path
    }

    fn tarred(folder: &Path) -> PathBuf {
        let gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut tar = tar::Builder::new(gzip);
        for (name, seed) in [("in/a", 1), ("in/b", 2), ("c", 3)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(BYTES as u64);
            tar.append_data(&mut header, name, content(seed).as_slice()).unwrap();
        }
        let path = folder.join("t.tar.gz");
        fs::write(&path, tar.into_inner().unwrap().finish().unwrap()).unwrap();
        path
    }

    fn is_on_disk(path: &Path) -> bool {
        path.metadata().unwrap().blocks() * 512 >= BYTES as u64
    }

    #[test]
    fn members_are_files_under_names_that_users_know() {
        let folder = tempfile::tempdir().unwrap();
        let _session = session();
        let archive = zipped(folder.path(), CompressionMethod::Deflated);
        let inside = folder_of_archive(&archive).unwrap();
        assert_eq!(folder_of_archive(&archive).unwrap(), inside);
        let b = inside_archive(&archive.join("in/../in/b")).unwrap().unwrap();
        assert_eq!(b, inside.join("in/b"));
        assert_eq!(b.metadata().unwrap().len(), BYTES as u64);
        assert_eq!(url_of(&b).unwrap(), archive.join("in/b"));
        assert_eq!(url_of(&inside).unwrap(), archive);
        assert_eq!((archive_of(&inside), archive_of(&b)), (Some(archive.clone()), None));
        let text = format!("no {} in {}", b.display(), inside.display());
        assert_eq!(with_urls(&text), format!("no {0}/in/b in {0}", archive.display()));
        assert!(is_of_archive(&b) && is_of_archive(&inside) && !is_of_archive(&archive));
        assert_eq!(inside_archive(folder.path()).unwrap(), None);
        assert!(!inside_archive(&archive.join("no")).unwrap().unwrap().exists());
        let beside = |path: &str| beside_archive(&inside.join(path));
        assert_eq!(beside("in/../../x/y"), folder.path().join("x/y"));
        assert_eq!(beside("in/../x"), inside.join("in/../x"));
    }

    #[test]
    fn stored_members_are_read_in_the_archive_and_others_when_opened() {
        let folder = tempfile::tempdir().unwrap();
        let _session = session();
        for (archive, is_copied) in [
            (zipped(folder.path(), CompressionMethod::Stored), false),
            (zipped(folder.path(), CompressionMethod::Deflated), true),
            (tarred(folder.path()), true),
        ] {
            let inside = folder_of_archive(&archive).unwrap();
            let [a, b, c] = ["in/a", "in/b", "c"].map(|name| inside.join(name));
            assert_eq!(bounded_read::head(&c, 7).unwrap(), content(3)[..7]);
            prepare(&inside).unwrap();
            assert!(![&a, &b, &c].into_iter().any(|path| is_on_disk(path)));
            let (window, pin) = pinning(|| bounded_read::window(&b).unwrap());
            let mut read = Vec::new();
            { window }.read_to_end(&mut read).unwrap();
            assert!(read == content(2));
            pin.verify().unwrap();
            assert_eq!(is_on_disk(&b), is_copied, "{}", archive.display());
            // An earlier member of the stream is fetched too.
            assert_eq!(is_on_disk(&a), archive.ends_with("t.tar.gz"));
            assert!(!is_on_disk(&c));
            assert!(bounded_read::read(&c, 1 << 20).unwrap() == content(3));
            assert!(bounded_read::read(&a, 1 << 20).unwrap() == content(1));
            // A reader that needs a file gets one.
            let (file, len) = bounded_read::open(&c).unwrap();
            assert!(len == BYTES as u64 && file.metadata().unwrap().len() == len);
            assert!(is_on_disk(&c));
        }
    }

    #[test]
    fn a_member_that_is_read_in_its_place_is_held_against_its_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let _session = session();
        let archive = zipped(folder.path(), CompressionMethod::Stored);
        let mut bytes = fs::read(&archive).unwrap();
        bytes[BYTES / 2] ^= 1;
        fs::write(&archive, bytes).unwrap();
        let inside = folder_of_archive(&archive).unwrap();
        let (window, pin) = pinning(|| bounded_read::window(&inside.join("in/a")));
        window.unwrap();
        for error in [
            pin.verify().unwrap_err(),
            bounded_read::read(&inside.join("in/a"), 1 << 20).unwrap_err(),
            bounded_read::open(&inside.join("in/a")).unwrap_err(),
        ] {
            assert_eq!(error.path(), Some(archive.join("in/a").as_path()));
            assert!(error.what().contains("checksum"), "{error}");
        }
        let (_, pin) = pinning(|| bounded_read::head(&inside.join("in/b"), 5).unwrap());
        pin.verify().unwrap();
    }

    #[test]
    fn passed_members_are_kept_while_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let archive =
            Archive::open(&tarred(folder.path()), Path::new("told"), bounded_read::open, false)
                .unwrap();
        let placed = Arc::new(MirroredArchive { archive, folder: folder.path().join("0") });
        let table = FetchedFiles::with_limit(folder.path(), Some(BYTES as u64 * 2 + 10));
        let files: Vec<PathBuf> = (0..3).map(|number| placed.file_of(number)).collect();
        fs::create_dir_all(folder.path().join("0/in")).unwrap();
        for (number, file) in files.iter().enumerate() {
            fetched_files::empty(file, BYTES as u64).unwrap();
            table.add_member(file, &placed, number);
        }
        let on_disk = || files.iter().map(|file| is_on_disk(file)).collect::<Vec<_>>();
        // There is room for two files: fetching the last also fetches the first, but not the second.
        table.fetch(&files[2]).unwrap();
        assert_eq!(on_disk(), [true, false, true]);
        // Now go back. The file that was opened longest ago is dropped.
        table.fetch(&files[1]).unwrap();
        assert_eq!(on_disk().iter().filter(|present| **present).count(), 2);
        assert!(fs::read(&files[1]).unwrap() == content(2));
        table.fetch(&files[0]).unwrap();
        table.fetch(&files[2]).unwrap();
        assert!(fs::read(&files[2]).unwrap() == content(3));
        assert_eq!(on_disk().iter().filter(|present| **present).count(), 2);
    }

    #[test]
    fn many_threads_read_a_stream_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        let _session = session();
        let inside = folder_of_archive(&tarred(folder.path())).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                for (name, seed) in [("c", 3), ("in/b", 2), ("in/a", 1)] {
                    let path = inside.join(name);
                    scope.spawn(move || {
                        assert!(bounded_read::read(&path, 1 << 20).unwrap() == content(seed));
                    });
                }
            }
        });
    }
}
