//! Makes objects on servers, and members of archives, available as local files, for readers that
//! need files.
//!
//! Many formats of cubes have libraries that need a file, with other files beside it. So the
//! objects below a URL get files with the same names in a folder among the system's temporary
//! files. At first these are empty files of the right length. All of them are opened through
//! [`bounded_read`](crate::bounded_read), which fetches a file when it is opened: only its
//! beginning if that is enough, or all of it. If the fetched files take up more than half of the
//! free disk space, the files that were opened longest ago are emptied again. The files of an open
//! cube are pinned ([`pinning`]): they stay.
//!
//! Members of archives also get files there, in one folder per archive. If a member is not
//! compressed, readers that ask for a [`Window`] read it directly in the archive, and it is never
//! copied out for them.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the folder, and which file stands for which object |
//! | `archives.rs` | archives that have folders, and the names that users know |
//! | `members.rs` | members of archives: read in place, or copied out |
//! | `mirrored_archive.rs` | one of these archives and its folder |
//! | `fetched_files.rs`, `pins.rs` | which files were fetched, which are pinned, which to drop |
//!
//! The folder exists while there is a [`Session`]. If a killed process left a folder, the next
//! process removes it.

mod archives;
mod fetched_files;
mod members;
mod mirrored_archive;
mod pins;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hsipack_format::{Error, Result};

use crate::regular_file;
use crate::remote::{self, Version, is_url};
use crate::window::Window;
use fetched_files::{FetchedFiles, ROOM};
use mirrored_archive::{Archives, FOLDER};

pub use archives::{
    archive_of, beside_archive, folder_of_archive, inside_archive, is_archive, is_of_archive,
};

/// The start of the folders' names. A number follows.
const PREFIX: &str = "hsipack-inputs-";
/// The file in a folder that its process keeps locked.
const LOCK: &str = ".lock";
/// The mirror of this process.
#[derive(Debug)]
struct Present {
    sessions: usize,
    /// Created when the first object is needed.
    mirror: Option<Arc<Mirror>>,
}

static PRESENT: Mutex<Present> = Mutex::new(Present { sessions: 0, mirror: None });
/// Whether there is a mirror. If there is none, opening a file costs nothing extra.
static ANY: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Mirror {
    root: PathBuf,
    _lock: File,
    table: FetchedFiles,
    archives: Mutex<Archives>,
    /// Folders whose files were created. Locked while a server is asked, so that a thread that
    /// looks for a file beside others waits until all of them exist.
    listed: Mutex<HashSet<PathBuf>>,
}

/// While a session exists, objects have files. When the last session is dropped, the files are
/// removed.
#[derive(Debug)]
#[must_use]
pub struct Session(());

/// Starts a session. Files are created when objects are needed.
pub fn session() -> Session {
    locked(&PRESENT).sessions += 1;
    Session(())
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut present = locked(&PRESENT);
        present.sessions -= 1;
        if present.sessions == 0 {
            ANY.store(false, Ordering::Relaxed);
            present.mirror = None;
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // If this fails, the next process tries again.
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mirror, if there is one and `path` is in it.
fn holding(path: &Path) -> Option<Arc<Mirror>> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let present = locked(&PRESENT);
    present.mirror.as_ref().filter(|mirror| path.starts_with(&mirror.root)).cloned()
}

/// The mirror, for creating a file or folder for `target`, a URL or an archive.
fn mirror_for(target: &Path) -> Result<Arc<Mirror>> {
    let mut present = locked(&PRESENT);
    if let Some(mirror) = &present.mirror {
        return Ok(mirror.clone());
    }
    if present.sessions == 0 && !is_url(target) {
        return Err(Error::bug("an archive without a session").at(target));
    }
    if present.sessions == 0 {
        return Err(Error::unsupported(
            "cubes at URLs can only be converted, or compared with their dataset",
        )
        .at(target)
        .with_remedy("copy the cube to this machine first"));
    }
    let mirror = Arc::new(Mirror::make(&std::env::temp_dir())?);
    ANY.store(true, Ordering::Relaxed);
    present.mirror = Some(mirror.clone());
    Ok(mirror)
}

/// The file or folder that stands for the object or folder at `url`. If the server lists names, the
/// objects beside it get files, too. `None` if there is nothing at `url`.
///
/// # Errors
/// If the server does not answer, or temporary files cannot be written.
pub fn file(url: &Path) -> Result<Option<PathBuf>> {
    let mirror = mirror_for(url)?;
    let path = mirror.path_of(url)?;
    if path.is_file() {
        return Ok(Some(path));
    }
    if let Some(folder) = url.parent().filter(|folder| is_url(folder)) {
        mirror.list_beside(folder)?;
    }
    if path.is_file() {
        return Ok(Some(path));
    }
    if !path.is_dir() && mirror.look_for(&path, url)? {
        return Ok(Some(path));
    }
    Ok(mirror.list_below(url)?.then_some(path))
}

/// The folder that stands for all objects below `url`; `None` if there are none.
///
/// # Errors
/// If the server does not answer, or temporary files cannot be written.
pub fn folder(url: &Path) -> Result<Option<PathBuf>> {
    let mirror = mirror_for(url)?;
    let path = mirror.path_of(url)?;
    Ok(mirror.list_below(url)?.then_some(path))
}

/// Creates files for the objects beside the object that `path` stands for or would stand for. Call
/// this before checking whether `path` exists.
///
/// # Errors
/// Those of [`file()`].
pub fn look(path: &Path) -> Result<()> {
    let Some(mirror) = holding(path) else { return Ok(()) };
    if path.exists() {
        return Ok(());
    }
    let path = &without_parents(path);
    if mirror.is_of_archive(path) {
        return Ok(());
    }
    let Some(url) = mirror.url_of(path) else { return Ok(()) };
    if remote::is_plain(&url)? {
        return mirror.look_for(path, &url).map(drop);
    }
    match url.parent() {
        Some(folder) if is_url(folder) => mirror.list_beside(folder),
        _ => Ok(()),
    }
}

/// The URL, or the path into an archive, that a file stands for, if any.
pub fn url_of(path: &Path) -> Option<PathBuf> {
    holding(path)?.url_of(&without_parents(path))
}

/// Replaces, in a text, the paths of mirrored files with the URLs or the paths into archives that
/// they stand for.
pub fn with_urls(text: &str) -> String {
    let mirror = locked(&PRESENT).mirror.clone();
    let Some(mirror) = mirror else { return text.to_owned() };
    let root = format!("{}/", mirror.root.display());
    let mut parts = text.split(root.as_str());
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match locked(&mirror.archives).told(part) {
            Some(part) => shown.push_str(&part),
            None => shown.push_str(&part.replacen('/', "://", 1)),
        }
    }
    shown
}

/// Does the same in an error.
pub fn error_with_urls(error: Error) -> Error {
    if ANY.load(Ordering::Relaxed) { error.retold(&with_urls) } else { error }
}

/// Fetches the object or member that a file stands for, or all of them in a folder. Does nothing
/// for other files.
///
/// # Errors
/// If it cannot be fetched.
pub fn fetch(path: &Path) -> Result<()> {
    let Some(mirror) = holding(path) else { return Ok(()) };
    let path = &without_parents(path);
    if !path.is_dir() {
        return mirror.table.fetch(path);
    }
    let inside = |below: &PathBuf| below.starts_with(path);
    mirror.table.files().into_iter().filter(inside).try_for_each(|file| mirror.table.fetch(&file))
}

/// Like [`fetch`], for readers that open files by name. Does nothing for archives, whose members
/// are fetched when they are opened.
///
/// # Errors
/// If it cannot be fetched.
pub fn prepare(path: &Path) -> Result<()> {
    match holding(path) {
        Some(mirror) if mirror.is_of_archive(path) => Ok(()),
        Some(_) => fetch(path),
        None => Ok(()),
    }
}

/// The place of the member that a file stands for, if it is stored uncompressed in an archive.
///
/// # Errors
/// If the archive cannot be read, or is damaged at that place.
pub(crate) fn in_place(path: &Path) -> Result<Option<Window>> {
    match holding(path) {
        Some(mirror) => mirror.table.in_place(&without_parents(path)),
        None => Ok(None),
    }
}

/// Compares the checksum of the member that a file stands for, if it is read in place in an
/// archive. Does this only once, and does nothing for other files.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub(crate) fn verify(path: &Path) -> Result<()> {
    match holding(path) {
        Some(mirror) => mirror.table.verify(&without_parents(path)),
        None => Ok(()),
    }
}

/// Fetches the first `len` bytes of the object or member that a file stands for. Does nothing for
/// other files.
///
/// # Errors
/// If they cannot be fetched.
pub(crate) fn fetch_head(path: &Path, len: u64) -> Result<()> {
    match holding(path) {
        Some(mirror) => mirror.table.fetch_head(&without_parents(path), len),
        None => Ok(()),
    }
}

/// Files that stay while this value exists.
#[derive(Debug, Default)]
#[must_use]
pub struct Pin(Vec<PathBuf>);

impl Pin {
    /// Whether it pins no file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares the checksums of files that are read in place in archives. This reads them once.
    ///
    /// # Errors
    /// If one of them is damaged.
    pub fn verify(&self) -> Result<()> {
        self.0.iter().try_for_each(|path| verify(path))
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        for path in &self.0 {
            if let Some(mirror) = holding(path) {
                mirror.table.unpin(path);
            }
        }
    }
}

/// Opens a regular file, after it was fetched.
fn open_fetched(path: &Path) -> Result<(File, u64)> {
    fetch(path)?;
    regular_file::open(path, OpenOptions::new().read(true), 0)
}

/// Runs `work` on this thread, and pins all mirrored files that it opens.
pub fn pinning<T>(work: impl FnOnce() -> T) -> (T, Pin) {
    let (result, files) = pins::recorded(work);
    (result, Pin(files))
}

/// The same path without `..`, because names of objects contain none.
fn without_parents(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
        path
    })
}

impl Mirror {
    /// Creates a folder in `temporary` and locks it.
    fn make(temporary: &Path) -> Result<Self> {
        remove_remains(temporary);
        let number = std::process::id();
        let fail = |root: &Path, error| Error::io(root, "cannot create", error).with_remedy(ROOM);
        for attempt in 0.. {
            let root = temporary.join(format!("{PREFIX}{number}-{attempt}"));
            // The folder may contain cubes of patients, so no other user may read it.
            match fs::DirBuilder::new().mode(0o700).create(&root) {
                Ok(()) => {
                    let lock = File::create_new(root.join(LOCK));
                    let lock = lock.and_then(|lock| lock.lock().map(|()| lock));
                    if !root.join(LOCK).exists() {
                        // Another process removed it as a leftover before it was locked.
                        continue;
                    }
                    let lock = lock.map_err(|error| fail(&root, error))?;
                    let table = FetchedFiles::new(&root);
                    let (archives, listed) = (Mutex::default(), Mutex::default());
                    return Ok(Self { root, _lock: lock, table, archives, listed });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(fail(&root, error)),
            }
        }
        unreachable!("there are numbers without end")
    }

    fn path_of(&self, url: &Path) -> Result<PathBuf> {
        let text = url.to_string_lossy();
        let (scheme, location) = text.split_once("://").ok_or_else(|| Error::bug("no URL"))?;
        let below = Path::new(location.trim_end_matches('/'));
        if below.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(Error::unsupported("this cannot be the name of a file").at(url));
        }
        Ok(self.root.join(scheme).join(below))
    }

    /// Whether a file or folder stands for an archive or something in one.
    pub(super) fn is_of_archive(&self, path: &Path) -> bool {
        path.starts_with(self.root.join(FOLDER))
    }

    fn url_of(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).ok()?.to_str()?;
        if self.is_of_archive(path) {
            return locked(&self.archives).told(below).map(PathBuf::from);
        }
        let (scheme, location) = below.split_once('/')?;
        Some(format!("{scheme}://{location}").into())
    }

    /// Creates a file for an object, if the object exists.
    fn look_for(&self, path: &Path, url: &Path) -> Result<bool> {
        let _listed = locked(&self.listed);
        match remote::version(url) {
            Ok(version) => self.add(path, url, version).map(|()| true),
            Err(error) if crate::regular_file::is_missing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates files for the objects in a folder, and folders for its subfolders. Does nothing if
    /// the server does not list names.
    fn list_beside(&self, folder: &Path) -> Result<()> {
        let mut listed = locked(&self.listed);
        if remote::is_plain(folder)? || !listed.insert(folder.to_owned()) {
            return Ok(());
        }
        let Ok((objects, folders)) = remote::list_folder(folder) else { return Ok(()) };
        for (url, version) in objects {
            self.add(&self.path_of(&url)?, &url, version)?;
        }
        for url in folders {
            let path = self.path_of(&url)?;
            fs::create_dir_all(&path).map_err(|error| Error::io(&path, "cannot create", error))?;
        }
        Ok(())
    }

    /// Creates files for all objects below a URL. Returns whether there are any.
    fn list_below(&self, url: &Path) -> Result<bool> {
        let _listed = locked(&self.listed);
        let objects = remote::list_versions(url)?;
        let any = !objects.is_empty();
        for (url, version) in objects {
            self.add(&self.path_of(&url)?, &url, version)?;
        }
        Ok(any)
    }

    /// Creates a file for an object, unless it exists.
    fn add(&self, path: &Path, url: &Path, version: Version) -> Result<()> {
        // Some tools create objects whose names end in a slash, to represent folders.
        if path.is_dir() || path.exists() {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|error| Error::io(folder, "cannot create", error))?;
        }
        fetched_files::empty(path, version.len)?;
        self.table.add(path, url, version);
        Ok(())
    }
}

/// Removes folders of processes that ended without removing them.
fn remove_remains(temporary: &Path) {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let lock = File::open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

// Miri does not support sockets.
#[cfg(all(test, not(miri)))]
mod tests;
