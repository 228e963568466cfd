//! Objects of servers, and members of archives, as files of this machine, for readers that know files only.
//!
//! Cubes come in formats whose libraries want a file, with others beside it. So what lies below a URL stands in a folder
//! among the system's temporary files, under the same names: empty files of the right length at first. [`small`](crate::small)
//! is the door through which all of them are opened, and fetches what is opened: its beginning only, where no more is
//! looked at, or all of it. Where all that was fetched does not fit into half of the disk, what was opened longest ago
//! is emptied again. A cube that is open is pinned ([`pinning`]): its files stay.
//!
//! Members of archives stand there likewise, in a folder an archive. Those that are not compressed are never fetched by
//! readers that ask for a [`Window`]: they read them in the archive.
//!
//! | file | what it knows |
//! |---|---|
//! | `mod.rs` | the folder, and which file stands for which object |
//! | `archives.rs` | archives that have folders, and what users know them by |
//! | `members.rs` | members of archives: read in their places, or brought out |
//! | `table.rs` | what was fetched, what is pinned, what gives way |
//!
//! The folder is there while somebody has a [`Session`]. One that a killed process left is removed by the next.

mod archives;
mod members;
mod table;

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hsipack_format::{Error, Result};

use crate::remote::{self, Version, is_url};
use crate::window::Window;
use archives::Archives;
use table::Table;

pub use archives::{
    archive_of, beside_archive, folder_of_archive, inside_archive, is_archive, is_of_archive,
};

/// How the folders are called, and what follows it is a number.
const PREFIX: &str = "hsipack-inputs-";
/// The file in a folder that its process has locked.
const LOCK: &str = ".lock";
/// What to do where the temporary files have no room.
const ROOM: &str = "files of servers and archives are put among the temporary files: let TMPDIR name a folder with room";

/// What this process has of it.
#[derive(Debug)]
struct Present {
    sessions: usize,
    /// Made with the first object that is asked for.
    mirror: Option<Arc<Mirror>>,
}

static PRESENT: Mutex<Present> = Mutex::new(Present { sessions: 0, mirror: None });
/// Whether there is a mirror, so that opening a file costs nothing where there is none.
static ANY: AtomicBool = AtomicBool::new(false);

#[derive(Debug)]
struct Mirror {
    root: PathBuf,
    _lock: File,
    table: Table,
    archives: Mutex<Archives>,
    /// Folders whose files were made. Held while a server is asked: whoever looks for a file beside others waits until all are
    /// there.
    listed: Mutex<HashSet<PathBuf>>,
}

/// While it lives, objects have files. Removes them at its end, if it is the last one.
#[derive(Debug)]
#[must_use]
pub struct Session(());

/// Begins to have files of objects, should any be asked for.
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
        // The next process tries again.
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mirror, if there is one, and `path` lies in it.
fn holding(path: &Path) -> Option<Arc<Mirror>> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let present = locked(&PRESENT);
    present.mirror.as_ref().filter(|mirror| path.starts_with(&mirror.root)).cloned()
}

/// The mirror, in which `place`, a URL or an archive, is to have a file or a folder.
fn mirror_for(place: &Path) -> Result<Arc<Mirror>> {
    let mut present = locked(&PRESENT);
    if let Some(mirror) = &present.mirror {
        return Ok(mirror.clone());
    }
    if present.sessions == 0 && !is_url(place) {
        return Err(Error::bug("an archive without a session").at(place));
    }
    if present.sessions == 0 {
        return Err(Error::unsupported(
            "cubes at URLs are only converted, and compared with their dataset",
        )
        .at(place)
        .with_remedy("copy the cube to this machine first"));
    }
    let made = Arc::new(Mirror::make(&std::env::temp_dir())?);
    ANY.store(true, Ordering::Relaxed);
    present.mirror = Some(made.clone());
    Ok(made)
}

/// The file, or the folder, that stands for what lies at `url`; beside a file stand those that lie beside the object, if
/// the server lists them. `None` if nothing lies there.
///
/// # Errors
/// If the server does not say, or nothing can be written among the temporary files.
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

/// The folder that stands for all that lies below `url`; `None` if that is nothing.
///
/// # Errors
/// If the server does not say, or nothing can be written among the temporary files.
pub fn folder(url: &Path) -> Result<Option<PathBuf>> {
    let mirror = mirror_for(url)?;
    let path = mirror.path_of(url)?;
    Ok(mirror.list_below(url)?.then_some(path))
}

/// Makes files of what lies beside the object that a file stands for or would stand for: before it is looked whether there is one.
///
/// # Errors
/// As [`file()`].
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

/// The URL, or the path into an archive, that a file stands for, if it stands for one.
pub fn url_of(path: &Path) -> Option<PathBuf> {
    holding(path)?.url_of(&without_parents(path))
}

/// A text with the URLs, and the paths into archives, in the place of the files that stand for them.
pub fn with_urls(text: &str) -> String {
    let mirror = locked(&PRESENT).mirror.clone();
    let Some(mirror) = mirror else { return text.to_owned() };
    let root = format!("{}/", mirror.root.display());
    let mut parts = text.split(root.as_str());
    let mut told = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match mirror.told_of_archive(part) {
            Some(part) => told.push_str(&part),
            None => told.push_str(&part.replacen('/', "://", 1)),
        }
    }
    told
}

/// An error with the URLs in the place of the files that stand for them.
pub fn error_with_urls(error: Error) -> Error {
    if ANY.load(Ordering::Relaxed) { error.retold(&with_urls) } else { error }
}

/// Fetches what a file stands for, or all that a folder does; of any other file nothing.
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

/// Fetches what a file stands for, or all that a folder does, for readers that open files by their names; nothing of an archive,
/// whose members are fetched as they are opened.
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

/// Where what a file stands for lies uncompressed in an archive, if it does.
///
/// # Errors
/// If the archive cannot be read, or is damaged there.
pub(crate) fn in_place(path: &Path) -> Result<Option<Window>> {
    match holding(path) {
        Some(mirror) => mirror.table.in_place(&without_parents(path)),
        None => Ok(None),
    }
}

/// Compares the checksum of what a file stands for and is read in its place in an archive; once, and of any other file
/// nothing.
///
/// # Errors
/// If it cannot be read, or is damaged.
pub(crate) fn verify(path: &Path) -> Result<()> {
    match holding(path) {
        Some(mirror) => mirror.table.verify(&without_parents(path)),
        None => Ok(()),
    }
}

/// Fetches the first `len` bytes of what a file stands for; of any other file nothing.
///
/// # Errors
/// If they cannot be fetched.
pub(crate) fn fetch_head(path: &Path, len: u64) -> Result<()> {
    match holding(path) {
        Some(mirror) => mirror.table.fetch_head(&without_parents(path), len),
        None => Ok(()),
    }
}

thread_local! {
    static PINNED: RefCell<Option<Vec<PathBuf>>> = const { RefCell::new(None) };
}

/// Files that stay while it lives.
#[derive(Debug, Default)]
#[must_use]
pub struct Pin(Vec<PathBuf>);

impl Pin {
    /// Whether it holds no file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares the checksums of files that are read in their places in archives, which takes reading them once.
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

/// Does `work` on this thread, and holds all files that are fetched, or were and are opened, meanwhile.
pub fn pinning<T>(work: impl FnOnce() -> T) -> (T, Pin) {
    let before = PINNED.replace(Some(Vec::new()));
    let result = work();
    let pin = Pin(PINNED.replace(before).unwrap_or_default());
    (result, pin)
}

/// Notes a file that is in use; whether it is to be pinned.
fn pins(path: &Path) -> bool {
    PINNED.with_borrow_mut(|pinned| {
        pinned.as_mut().map(|paths| paths.push(path.to_owned())).is_some()
    })
}

/// The same path without `..`: names of objects have none.
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
    /// A folder in `temporary`, locked.
    fn make(temporary: &Path) -> Result<Self> {
        remove_remains(temporary);
        let number = std::process::id();
        let fail = |root: &Path, error| Error::io(root, "cannot create", error).with_remedy(ROOM);
        for attempt in 0.. {
            let root = temporary.join(format!("{PREFIX}{number}-{attempt}"));
            // Cubes of patients may lie there: they are nobody else's business.
            match fs::DirBuilder::new().mode(0o700).create(&root) {
                Ok(()) => {
                    let lock = File::create_new(root.join(LOCK));
                    let lock = lock.and_then(|lock| lock.lock().map(|()| lock));
                    if !root.join(LOCK).exists() {
                        // Another process took it for remains before it was locked.
                        continue;
                    }
                    let lock = lock.map_err(|error| fail(&root, error))?;
                    let table = Table::new(&root);
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
        let (scheme, rest) = text.split_once("://").ok_or_else(|| Error::bug("no URL"))?;
        let below = Path::new(rest.trim_end_matches('/'));
        if below.components().any(|part| !matches!(part, Component::Normal(_))) {
            return Err(Error::unsupported("a name that no file can have").at(url));
        }
        Ok(self.root.join(scheme).join(below))
    }

    fn url_of(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).ok()?.to_str()?;
        if self.is_of_archive(path) {
            return self.told_of_archive(below).map(PathBuf::from);
        }
        let (scheme, rest) = below.split_once('/')?;
        Some(format!("{scheme}://{rest}").into())
    }

    /// A file for an object, if there is one.
    fn look_for(&self, path: &Path, url: &Path) -> Result<bool> {
        let _listed = locked(&self.listed);
        match remote::version(url) {
            Ok(version) => self.add(path, url, version).map(|()| true),
            Err(error) if crate::small::is_missing(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Files for the objects of a folder, and folders for those in it; nothing where the server lists no names.
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

    /// Files for all objects below a URL; whether there are any.
    fn list_below(&self, url: &Path) -> Result<bool> {
        let _listed = locked(&self.listed);
        let objects = remote::list_versions(url)?;
        let any = !objects.is_empty();
        for (url, version) in objects {
            self.add(&self.path_of(&url)?, &url, version)?;
        }
        Ok(any)
    }

    /// A file for an object, unless there is one.
    fn add(&self, path: &Path, url: &Path, version: Version) -> Result<()> {
        // Names that end in a slash stand for folders in some tools.
        if path.is_dir() || path.exists() {
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|error| Error::io(folder, "cannot create", error))?;
        }
        table::empty(path, version.len)?;
        self.table.add(path, url, version);
        Ok(())
    }
}

/// Removes folders of processes that ended before they could.
fn remove_remains(temporary: &Path) {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let lock = File::open(entry.path().join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

// Miri knows no sockets.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use hsipack_testing::bucket::{Bucket, BucketFault};

    use super::*;

    #[test]
    fn whoever_looks_for_a_file_waits_until_those_beside_it_are_there() {
        let bucket = Bucket::start("mirror-beside");
        remote::set_options(&bucket.url(""), bucket.options()).unwrap();
        for name in ["a/one", "a/two", "b/one", "b/c/two"] {
            bucket.put(name, name.as_bytes().to_vec());
        }
        bucket.set_faults(|request| {
            if request.key.is_empty() {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            BucketFault::None
        });
        let _session = session();
        let one = file(&bucket.url("a/one")).unwrap().unwrap();
        let there = one.with_file_name("../b/one");
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    look(&there).unwrap();
                    assert!(one.parent().unwrap().join("../b/one").is_file());
                    assert_eq!(crate::small::read(&there, 100).unwrap(), b"b/one");
                    assert_eq!(url_of(&there).unwrap(), bucket.url("b/one"));
                });
            }
        });
        let below = file(&bucket.url("b")).unwrap().unwrap();
        assert!(below.join("c/two").is_file());
        assert_eq!(file(&bucket.url("nothing")).unwrap(), None);
        let root = holding(&one).unwrap().root.clone();
        assert_eq!(fs::metadata(root).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(
            with_urls(&format!("in {}: wrong", one.display()))
                .contains("in s3://mirror-beside/a/one: wrong")
        );
    }
}
