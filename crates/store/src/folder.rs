//! The folder of a dataset, which an append exchanges for a newer one while others read.
//!
//! An append, or adding masks, makes a new folder and gives it the dataset's name in one step (`RENAME_EXCHANGE`); the old one is then
//! deleted. So a name leads to one folder at one instant and to another one at the next, and files opened by name
//! one after the other may be of both. Two things make that safe:
//!
//! - **Nothing is believed that was read while the name changed folders.** Whoever reads holds the folder open,
//!   reads by name, and looks whether the name still leads to that folder ([`steadily`]); if not, reads again. A
//!   folder that is held open keeps its number, so that no other folder can pass for it.
//! - **A dataset knows what it continues.** Every append notes the fingerprint of what it was added to
//!   ([`CONTINUES`](hsipack_format::metadata::CONTINUES)). Samples, their places and their stored chunks stay as they were.
//!   So does whoever adds masks, unless they replace others.
//!   So an open dataset goes on with its own samples in the new folder ([`Folder::read`]). Any other dataset at the same
//!   name is an error.
//!
//! A server has no folders, only objects with versions: there, that of `SHA256SUMS` stands for the folder.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::remote::{self, Version};
use crate::small;
use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::{Command, Error, ErrorKind, Opt, Result, remedy, zarr};

/// How often reading begins again. Appends take longer than reading metadata, so that it hardly ever does twice.
const TRIES: usize = 1000;
/// How long a name may be missing while a commit exchanges folders on a file system that takes two steps for it.
const GAP: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(5);

/// The folder beside `output` in which a conversion works.
pub fn partial(output: &Path) -> PathBuf {
    let mut name: OsString = output.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    output.with_file_name(name)
}

/// In the folder beside a dataset on a server, the object that says that an append is decided: its metadata lie in the
/// folder [`DECIDED_METADATA`] there until they are in their places.
pub const DECIDED: &str = "commit.json";
/// See [`DECIDED`].
pub const DECIDED_METADATA: &str = "metadata";

/// Where the old dataset waits while a commit gives its name to the new one, on file systems that cannot exchange
/// two names at once.
pub fn aside(output: &Path) -> PathBuf {
    partial(output).join("replaced")
}

/// A folder, held open, and what tells it from any other. On a server there are no folders: there, the object that stands
/// for all metadata is compared.
#[derive(Debug)]
struct Held {
    /// Keeps the folder's number from being given to another one.
    _folder: Option<File>,
    identity: Identity,
}

#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode of a folder; device, inode, length and time of change (s, ns) of the file that stands for all its
    /// metadata.
    Folder {
        folder: (u64, u64),
        metadata: (u64, u64, u64, i64, i64),
    },
    Server(Version),
}

impl Identity {
    fn of_folder(path: &Path, folder: &fs::Metadata) -> Self {
        let file = fs::metadata(path.join(SHA256SUMS))
            .or_else(|_| fs::metadata(path.join("zarr.json")))
            // Not a dataset; opening it says so better.
            .unwrap_or_else(|_| folder.clone());
        Self::Folder {
            folder: (folder.dev(), folder.ino()),
            metadata: (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()),
        }
    }

    fn on_server(url: &Path) -> Result<Self> {
        let version = match remote::version(&url.join(SHA256SUMS)) {
            Err(error) if small::is_missing(&error) => remote::version(&url.join("zarr.json")),
            other => other,
        };
        match version {
            Err(error) if small::is_missing(&error) => {
                Err(Error::malformed("not a packed dataset: there is no zarr.json in it")
                    .at(url)
                    .with_remedy(remedy![
                        "check the URL; give that of the folder that ",
                        Command::Convert,
                        " wrote"
                    ]))
            }
            other => other.map(Self::Server),
        }
    }
}

impl Held {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = libc::O_DIRECTORY | libc::O_NONBLOCK;
        let folder = File::options().read(true).custom_flags(flags).open(path)?;
        let identity = Identity::of_folder(path, &folder.metadata()?);
        Ok(Self { _folder: Some(folder), identity })
    }

    /// As [`open`](Self::open), also of a server; waits where a commit has just taken the old folder away and not yet put
    /// the new one there.
    fn open_soon(path: &Path) -> Result<Self> {
        if remote::is_url(path) {
            return Identity::on_server(path).map(|identity| Self { _folder: None, identity });
        }
        let mut waited = Duration::ZERO;
        loop {
            match Self::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && waited < GAP => {
                    // Looked for last: whoever finds neither comes between two steps of a rename.
                    if !aside(path).exists() && !path.exists() {
                        return Err(cannot_open(path, error));
                    }
                }
                opened => return opened.map_err(|error| cannot_open(path, error)),
            }
            std::thread::sleep(STEP);
            waited += STEP;
        }
    }

    /// Whether `path` leads to this very folder, its metadata unchanged.
    ///
    /// # Errors
    /// If a server does not say.
    fn is_at(&self, path: &Path) -> Result<bool> {
        if let Identity::Server(version) = &self.identity {
            return Ok(match Identity::on_server(path) {
                Ok(Identity::Server(now)) => version.is(&now),
                // Nothing lies there any more.
                Err(error) if error.kind() == ErrorKind::Malformed => false,
                Ok(_) => false,
                Err(error) => return Err(error),
            });
        }
        Ok(fs::metadata(path)
            .is_ok_and(|folder| Identity::of_folder(path, &folder) == self.identity))
    }
}

/// Runs `read`, which reads files below `path`, until all of them were read of one and the same folder.
///
/// # Errors
/// Those of `read`. If the folder is exchanged again and again, that.
pub fn steadily<T>(path: &Path, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    holding(path, |_| read())
}

fn holding<T>(path: &Path, mut read: impl FnMut(&Arc<Held>) -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        let held = Arc::new(Held::open_soon(path)?);
        let result = read(&held);
        if held.is_at(path)? {
            return result;
        }
    }
    Err(Error::conflict("the dataset is replaced again and again while it is being read")
        .at(path)
        .with_remedy("wait until whoever writes it is done"))
}

fn cannot_open(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound if aside(path).exists() => {
            Error::conflict("an append was cut short just before its end")
                .at(path)
                .with_remedy(remedy![
                    "resume the append with ",
                    Command::Convert.with(Opt::Resume),
                    ", or add the masks again; that puts the dataset back"
                ])
                .caused_by(error)
        }
        io::ErrorKind::NotADirectory => Error::malformed("not a packed dataset: it is no folder")
            .at(path)
            .with_remedy(remedy!["give the folder that ", Command::Convert, " wrote"])
            .caused_by(error),
        _ => Error::io(path, "cannot open", error),
    }
}

/// The folder of an open dataset, which goes on with its own samples when others are appended.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    fingerprint: String,
    /// Where files are opened now.
    now: Mutex<Arc<Held>>,
}

impl Folder {
    /// As [`open`](Self::open), but on a server every look costs the way there and back, and two are saved: one before
    /// anything is read, since `fingerprint` gives what it found there, too, and one after it. So whoever opens it has to
    /// [`read`](Self::read) or [`check`](Self::check) before anything is believed.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn open_unsettled<F, T>(
        path: &Path,
        mut fingerprint: impl FnMut() -> Result<(String, Option<Version>, F)>,
        mut read: impl FnMut(&Arc<Self>, F) -> Result<T>,
    ) -> Result<T> {
        if remote::is_url(path) {
            let opened = fingerprint().and_then(|(fingerprint, version, more)| {
                let Some(version) = version else { return Ok(None) };
                let now = Held { _folder: None, identity: Identity::Server(version) };
                let (path, now) = (path.to_owned(), Mutex::new(Arc::new(now)));
                read(&Arc::new(Self { path, fingerprint, now }), more).map(Some)
            });
            match opened {
                Ok(Some(opened)) => return Ok(opened),
                Err(error) if remote::is_away(&error) => return Err(error),
                // It may have been replaced meanwhile.
                Ok(None) | Err(_) => {}
            }
        }
        Self::open(path, fingerprint, read)
    }

    /// Opens the dataset at `path`. `fingerprint` gives the one that it has; `read` reads its metadata, all of one
    /// and the same folder.
    ///
    /// # Errors
    /// Those of `fingerprint` and `read`, and if the folder cannot be opened.
    pub(crate) fn open<F, T>(
        path: &Path,
        mut fingerprint: impl FnMut() -> Result<(String, Option<Version>, F)>,
        mut read: impl FnMut(&Arc<Self>, F) -> Result<T>,
    ) -> Result<T> {
        holding(path, |held| {
            let (fingerprint, _, more) = fingerprint()?;
            let now = Mutex::new(held.clone());
            read(&Arc::new(Self { path: path.to_owned(), fingerprint, now }), more)
        })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fingerprint of the dataset when it was opened.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The same folder, for what the dataset was when it had an earlier fingerprint.
    pub(crate) fn of_the_past(&self, fingerprint: &str) -> Self {
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (path, fingerprint) = (self.path.clone(), fingerprint.to_owned());
        Self { path, fingerprint, now: Mutex::new(now) }
    }

    /// Compares with what lies at the path now: the dataset, or one that goes on where it ended.
    ///
    /// # Errors
    /// If it is another dataset, or there is none.
    pub fn check(&self) -> Result<()> {
        self.follow().map(drop)
    }

    /// Runs `read`, which opens files of the dataset by their names, until they were of the dataset, or of one that
    /// goes on where it ended. The files that are open stay what they are.
    ///
    /// # Errors
    /// Those of `read`, and if another dataset lies at the path, or none.
    pub fn read<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            // Comparing with a server costs the way there and back. If it still has what it had when the dataset was
            // opened, it had it all the time.
            let held = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let on_server = matches!(held.identity, Identity::Server(_));
            let held = if on_server { held } else { self.follow()? };
            let result = read();
            if held.is_at(&self.path)? {
                return result;
            }
            if on_server {
                self.follow()?;
            }
        }
        Err(self.replaced())
    }

    /// The folder at the path, which is the dataset's, or becomes so if it goes on where the dataset ended.
    fn follow(&self) -> Result<Arc<Held>> {
        let held = self.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if held.is_at(&self.path)? {
            return Ok(held);
        }
        let next = holding(&self.path, |next| {
            // On a server, metadata of an append are put in their places after it was decided, and read.
            let is_same = || -> Result<bool> {
                let sums = small::read(&self.path.join(SHA256SUMS), small::SUMS)?;
                Ok(checksums::sha256(&sums) == self.fingerprint)
            };
            let continues = position(&self.path, &self.fingerprint)?.is_some()
                || (remote::is_url(&self.path) && is_same()?);
            Ok(continues.then(|| next.clone()))
        });
        match next {
            Ok(Some(next)) => {
                *self.now.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
                Ok(next)
            }
            Err(error) if small::is_missing(&error) => {
                Err(Error::conflict("the dataset was removed or renamed while it was open")
                    .at(&self.path)
                    .with_remedy("open it again"))
            }
            // A server that does not answer has replaced nothing.
            Err(error) if remote::is_url(&self.path) && error.kind() != ErrorKind::Malformed => {
                Err(error)
            }
            _ => Err(self.replaced()),
        }
    }

    fn replaced(&self) -> Error {
        Error::conflict("the dataset was replaced while it was open")
            .at(&self.path)
            .with_remedy("open it again")
    }
}

/// The number of samples that the dataset at `path` had when its fingerprint was `fingerprint`; `None` if it never was.
fn position(path: &Path, fingerprint: &str) -> Result<Option<u64>> {
    let root = zarr::parse_root(&small::read(&path.join("zarr.json"), small::METADATA)?)?;
    Ok(root.and_then(|root| root.samples_at(fingerprint)))
}

// Miri knows no memory maps, and these tests rename folders.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use hsipack_format::metadata::CONTINUES;
    use serde_json::{Map, json};

    /// A folder that passes for a dataset with a fingerprint, going on where another one ended.
    fn write(path: &Path, continues: Option<&str>, content: &str) {
        fs::create_dir_all(path).unwrap();
        let mut history = vec![json!({"samples": 3})];
        history.extend(continues.map(|before| json!({"samples": 5, CONTINUES: before})));
        let root = Map::from_iter([("hsipack".to_owned(), json!({ "history": history }))]);
        fs::write(path.join("zarr.json"), zarr::to_text(&zarr::group(root))).unwrap();
        fs::write(path.join(SHA256SUMS), content).unwrap();
    }

    fn exchange(new: &Path, path: &Path) {
        fs::rename(path, path.with_extension("old")).unwrap();
        fs::rename(new, path).unwrap();
        fs::remove_dir_all(path.with_extension("old")).unwrap();
    }

    fn open(path: &Path, fingerprint: &str) -> Arc<Folder> {
        let known = || Ok((fingerprint.to_owned(), None, ()));
        Folder::open(path, known, |folder, ()| Ok(folder.clone())).unwrap()
    }

    #[test]
    fn an_open_dataset_goes_on_in_the_folder_that_continues_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("d"), folder.path().join("new"));
        write(&path, None, "first");
        let open = open(&path, "f0");
        write(&new, Some("f0"), "second");
        exchange(&new, &path);
        open.check().unwrap();
        let content = open.read(|| Ok(fs::read_to_string(path.join(SHA256SUMS)).unwrap()));
        assert_eq!(content.unwrap(), "second");
        write(&new, Some("somebody else's"), "third");
        exchange(&new, &path);
        assert!(open.check().unwrap_err().what().contains("was replaced"));
        fs::remove_dir_all(&path).unwrap();
        assert!(open.check().unwrap_err().what().contains("was removed"));
    }

    #[test]
    fn what_was_read_while_the_folder_was_exchanged_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("d"), folder.path().join("new"));
        write(&path, None, "first");
        write(&new, None, "second");
        let mut times = 0;
        let read = steadily(&path, || {
            times += 1;
            let content = fs::read_to_string(path.join(SHA256SUMS)).unwrap();
            if times == 1 {
                exchange(&new, &path);
            }
            Ok(content)
        });
        assert_eq!((read.unwrap().as_str(), times), ("second", 2));
    }

    #[test]
    fn errors_of_a_folder_that_is_gone_are_not_told() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("d"), folder.path().join("new"));
        write(&path, None, "first");
        write(&new, None, "second");
        let mut first = true;
        let read = steadily(&path, || {
            if std::mem::take(&mut first) {
                exchange(&new, &path);
                return Err(Error::damaged("half of it is gone"));
            }
            Ok(())
        });
        read.unwrap();
    }

    #[test]
    fn a_name_that_is_missing_within_a_commit_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d");
        let old = aside(&path);
        write(&old, None, "first");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(STEP * 4);
                write(&folder.path().join("new"), None, "second");
                fs::rename(folder.path().join("new"), &path).unwrap();
            });
            open(&path, "f1");
        });
        let missing = steadily(&folder.path().join("other"), || Ok(())).unwrap_err();
        assert_eq!(missing.remedy(), Some(&"check the path".into()));
    }

    #[test]
    fn files_and_pipes_are_no_datasets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a path that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let error = steadily(&path, || Ok(())).unwrap_err();
        assert!(error.what().contains("not a packed dataset"), "{error}");
    }
}
