//! Archives whose members have files, each in a folder of its own, and what users know them by.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use hsipack_format::{Error, Result};

use super::{Mirror, holding, locked, mirror_for, table, without_parents};
use crate::archive::{Archive, Kind};

/// The folder of all archives below the mirror's. No URL begins so.
const FOLDER: &str = "archive";

/// An archive and its folder.
#[derive(Debug)]
pub(super) struct Placed {
    pub archive: Archive,
    folder: PathBuf,
}

impl Placed {
    /// The file of member `number`.
    pub fn file_of(&self, number: usize) -> PathBuf {
        self.folder.join(&self.archive.members()[number].name)
    }
}

/// The archives of a mirror; a folder is called by its number here.
#[derive(Debug, Default)]
pub(super) struct Archives(Vec<Arc<Placed>>);

/// Whether `path` is a file that is called as archives are.
pub fn is_archive(path: &Path) -> bool {
    Kind::of(path).is_some() && path.is_file()
}

/// The folder that stands for the archive at `path`, and holds files that stand for its members.
///
/// # Errors
/// If it lies in another archive, cannot be read, is damaged or holds what no archive of cubes holds; if nothing can be
/// written among the temporary files.
pub fn folder_of_archive(path: &Path) -> Result<PathBuf> {
    let mirror = mirror_for(path)?;
    if mirror.is_of_archive(path) {
        return Err(Error::unsupported("an archive in an archive, which is not opened")
            .at(path)
            .with_remedy("unpack the outer one, and give what is in it"));
    }
    // A file that stands for an object is known by its URL.
    let told = mirror.url_of(path).unwrap_or_else(|| path.to_owned());
    mirror.place(path, &told)
}

/// The file or folder that stands for what a path leads to that goes into an archive, whether there is anything or not;
/// `None` if it goes into none.
///
/// # Errors
/// As [`folder_of_archive`].
pub fn inside_archive(path: &Path) -> Result<Option<PathBuf>> {
    let mut archive = PathBuf::new();
    let mut parts = path.components();
    while let Some(part) = parts.next() {
        archive.push(part);
        if is_archive(&archive) {
            let folder = folder_of_archive(&archive)?;
            let inside = without_parents(&folder.join(parts.as_path()));
            return Ok(Some(if parts.as_path() == Path::new("") { folder } else { inside }));
        }
    }
    Ok(None)
}

/// Whether a file or folder stands for a member or a folder of an archive, or for an archive.
pub fn is_of_archive(path: &Path) -> bool {
    holding(path).is_some_and(|mirror| mirror.is_of_archive(path))
}

/// The path beside an archive that one leads to which leaves the archive's folder by `..`; any other as it is.
pub fn beside_archive(path: &Path) -> PathBuf {
    let Some(mirror) = holding(path) else { return path.to_owned() };
    mirror.leaving(path).unwrap_or_else(|| path.to_owned())
}

impl Mirror {
    /// Whether a file or folder stands for something in an archive.
    pub(super) fn is_of_archive(&self, path: &Path) -> bool {
        path.starts_with(self.root.join(FOLDER))
    }

    /// What a path below the mirror's folder, or a text that begins with one, is known by, if it is of an archive.
    pub(super) fn told_of_archive(&self, below: &str) -> Option<String> {
        let rest = below.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let (number, rest) = rest.split_at(digits);
        let archives = locked(&self.archives);
        let placed = archives.0.get(number.parse::<usize>().ok()?)?;
        Some(format!("{}{rest}", placed.archive.told().display()))
    }

    fn leaving(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(self.root.join(FOLDER)).ok()?;
        let mut parts = below.components();
        let number = parts.next()?.as_os_str().to_str()?.parse::<usize>().ok()?;
        let told = locked(&self.archives).0.get(number)?.archive.told().to_owned();
        let mut depth = 0usize;
        while let Some(part) = parts.next() {
            match part {
                Component::ParentDir if depth == 0 => {
                    return Some(told.parent().unwrap_or(Path::new("")).join(parts.as_path()));
                }
                Component::ParentDir => depth -= 1,
                Component::Normal(_) => depth += 1,
                _ => {}
            }
        }
        None
    }

    /// The folder of an archive, whose members get files if they have none yet.
    fn place(&self, path: &Path, told: &Path) -> Result<PathBuf> {
        // Two may look for it at the same time.
        let _listed = locked(&self.listed);
        let number = {
            let archives = locked(&self.archives);
            if let Some(placed) = archives.0.iter().find(|placed| placed.archive.told() == told) {
                return Ok(placed.folder.clone());
            }
            archives.0.len()
        };
        let archive = Archive::open(path, told)?;
        let folder = self.root.join(FOLDER).join(number.to_string());
        let placed = Arc::new(Placed { archive, folder: folder.clone() });
        self.make_files(&placed).inspect_err(|_| {
            let _ = fs::remove_dir_all(&folder);
        })?;
        locked(&self.archives).0.push(placed);
        Ok(folder)
    }

    fn make_files(&self, placed: &Arc<Placed>) -> Result<()> {
        let make = |folder: &Path| {
            fs::create_dir_all(folder)
                .map_err(|error| Error::io(folder, "cannot create", error).with_remedy(super::ROOM))
        };
        make(&placed.folder)?;
        for (number, member) in placed.archive.members().iter().enumerate() {
            let file = placed.file_of(number);
            make(file.parent().unwrap_or(&placed.folder))?;
            table::empty(&file, member.size)?;
            self.table.add_member(&file, placed, number);
        }
        Ok(())
    }
}
