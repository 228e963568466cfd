//! The archives whose members have files in the mirror.

use std::path::PathBuf;
use std::sync::Arc;

use crate::archive::Archive;

/// The folder of all archives in the mirror's folder. No URL scheme has this name.
pub(super) const FOLDER: &str = "archive";

/// An archive and its folder.
#[derive(Debug)]
pub(super) struct MirroredArchive {
    pub archive: Archive,
    pub folder: PathBuf,
}

impl MirroredArchive {
    /// The file of member `number`.
    pub fn file_of(&self, number: usize) -> PathBuf {
        self.folder.join(&self.archive.members()[number].name)
    }
}

/// The archives of a mirror. An archive's position in this list is the name of its folder.
#[derive(Debug, Default)]
pub(super) struct Archives(pub Vec<Arc<MirroredArchive>>);

impl Archives {
    /// Replaces a path below the mirror's folder, at the start of a text, with the name that users
    /// know. `None` if it does not belong to an archive.
    pub(super) fn told(&self, below: &str) -> Option<String> {
        let numbered = below.strip_prefix(FOLDER)?.strip_prefix('/')?;
        let digits =
            numbered.find(|character: char| !character.is_ascii_digit()).unwrap_or(numbered.len());
        let (number, inner) = numbered.split_at(digits);
        let placed = self.0.get(number.parse::<usize>().ok()?)?;
        Some(format!("{}{inner}", placed.archive.shown_path().display()))
    }
}
