//! The folder of a dataset, which an append exchanges for a newer one while others read.
//!
//! An append, or adding masks, makes a new folder and gives it the dataset's name in one step
//! (`RENAME_EXCHANGE`); the old one is then deleted. So a name may lead to one folder now and to
//! another one a moment later, and files that are opened by name one after another may come from
//! both folders. Two rules make this safe:
//!
//! - **What was read while the folder was exchanged is discarded.** A reader holds the folder open,
//!   reads by name, and then checks whether the name still leads to that folder ([`steadily`]). If
//!   not, it reads again. A folder that is held open keeps its inode number, so no other folder can
//!   be mistaken for it.
//! - **A dataset records which dataset it continues.** Every append records the fingerprint of the
//!   dataset that it extends ([`CONTINUES`](hsipack_format::metadata::CONTINUES)). So does adding
//!   masks, unless they replace others, and changing columns, of which an open dataset keeps those
//!   that it read. The existing samples, their positions and their stored chunks stay as they were.
//!   So an open dataset goes on with its own samples in the new folder ([`Folder::read`]). Any
//!   other dataset under the same name is an error.
//!
//! A server has no folders, only objects with versions. There, the version of `SHA256SUMS`
//! identifies the dataset. Comparing it costs a round trip. So the comparison after opening runs in
//! the background, and whoever reads first waits for its result ([`Folder::settle`]).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::bounded_read;
use crate::process::OfProcess;
use crate::remote::{self, Version};
use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::{Command, Error, ErrorKind, Opt, Result, metadata, remedy};

/// For this time after it was begun, a comparison with a server also says whether a dataset is
/// still there. Opening a dataset, creating a loader and beginning an epoch ask one after the
/// other, and each would wait for a round trip.
const RECENT: Duration = Duration::from_millis(250);
/// How often reading is repeated. An append takes longer than reading metadata, so reading is
/// hardly ever repeated twice.
const TRIES: usize = 1000;
/// How long a name may be missing while a commit exchanges folders, on a file system that needs two
/// steps for it.
const GAP: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(5);

/// Refuses an output inside a dataset on this machine, whose files are all listed in it.
///
/// # Errors
/// If `output` lies inside a dataset.
pub fn check_outside(output: &Path) -> Result<()> {
    let absolute = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let is_dataset =
        |folder: &&Path| folder.join(SHA256SUMS).is_file() && folder.join("zarr.json").is_file();
    match absolute.ancestors().skip(1).find(is_dataset) {
        None => Ok(()),
        Some(dataset) => Err(Error::conflict(format!(
            "the output lies inside the dataset {}",
            dataset.display()
        ))
        .at(output)
        .with_remedy(remedy!["choose another ", Opt::Output])),
    }
}

/// The dataset to which `output` leads, if it is a symbolic link to one; otherwise `output`.
pub fn link_target(output: &Path) -> PathBuf {
    let is_link = fs::symlink_metadata(output).is_ok_and(|found| found.is_symlink());
    let target = is_link.then(|| fs::canonicalize(output).ok()).flatten();
    target.unwrap_or_else(|| output.to_owned())
}

/// The folder in which a conversion works: beside `output`, or beside the dataset to which `output`
/// links.
pub fn partial(output: &Path) -> PathBuf {
    let output = link_target(output);
    let mut name: OsString = output.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    output.with_file_name(name)
}

/// An object in the folder beside a dataset on a server. It says that an append is decided: until
/// the new metadata are in their final places, they are in the folder [`DECIDED_METADATA`] beside
/// this object.
pub const DECIDED: &str = "commit.json";
/// See [`DECIDED`].
pub const DECIDED_METADATA: &str = "metadata";

/// Where a commit keeps the old dataset while it gives its name to the new one, on file systems
/// that cannot exchange two names in one step.
pub fn aside(output: &Path) -> PathBuf {
    partial(output).join("replaced")
}

/// A folder that is held open, and its identity. A server has no folders: there, the version of the
/// object that identifies the metadata is compared.
#[derive(Debug)]
struct PinnedFolder {
    /// Keeps the folder's inode number from being reused.
    _folder: Option<File>,
    identity: Identity,
}

#[derive(Debug, PartialEq, Eq)]
enum Identity {
    /// Device and inode of the folder; device, inode, length and time of change (s, ns) of the file
    /// that identifies its metadata.
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
            // This is not a dataset. Opening it gives a better error.
            .unwrap_or_else(|_| folder.clone());
        Self::Folder {
            folder: (folder.dev(), folder.ino()),
            metadata: (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()),
        }
    }

    fn on_server(url: &Path) -> Result<Self> {
        let version = match remote::version(&url.join(SHA256SUMS)) {
            Err(error) if bounded_read::is_missing(&error) => {
                remote::version(&url.join("zarr.json"))
            }
            other => other,
        };
        match version {
            Err(error) if bounded_read::is_missing(&error) => {
                Err(Error::malformed("not a packed dataset: there is no zarr.json in it")
                    .at(url)
                    .with_remedy(remedy![
                        "check the URL; give the URL of the folder that ",
                        Command::Convert,
                        " wrote"
                    ]))
            }
            other => other.map(Self::Server),
        }
    }
}

impl PinnedFolder {
    fn open(path: &Path) -> io::Result<Self> {
        let flags = libc::O_DIRECTORY | libc::O_NONBLOCK;
        let folder = File::options().read(true).custom_flags(flags).open(path)?;
        let identity = Identity::of_folder(path, &folder.metadata()?);
        Ok(Self { _folder: Some(folder), identity })
    }

    /// Like [`open`](Self::open), but also works on a server. Waits if a commit has moved the old
    /// folder away and not yet put the new one there.
    fn open_soon(path: &Path) -> Result<Self> {
        if remote::is_url(path) {
            return Identity::on_server(path).map(|identity| Self { _folder: None, identity });
        }
        let mut waited = Duration::ZERO;
        loop {
            match Self::open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && waited < GAP => {
                    // `path` is checked last, because a commit may finish between the two checks.
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

    fn is_on_server(&self) -> bool {
        matches!(self.identity, Identity::Server(_))
    }

    /// Whether `path` leads to this folder and its metadata are unchanged.
    ///
    /// # Errors
    /// If a server does not answer.
    fn is_at(&self, path: &Path) -> Result<bool> {
        if let Identity::Server(version) = &self.identity {
            return Ok(match Identity::on_server(path) {
                Ok(Identity::Server(now)) => version.is(&now),
                // Nothing is there any more.
                Err(error) if error.kind() == ErrorKind::Malformed => false,
                Ok(_) => false,
                Err(error) => return Err(error),
            });
        }
        Ok(fs::metadata(path)
            .is_ok_and(|folder| Identity::of_folder(path, &folder) == self.identity))
    }
}

/// Runs `read`, which reads files below `path`, and repeats it until all files came from the same
/// folder.
///
/// # Errors
/// The errors of `read`; if the folder is exchanged again and again.
pub fn steadily<T>(path: &Path, mut read: impl FnMut() -> Result<T>) -> Result<T> {
    holding(path, |_| read())
}

fn holding<T>(path: &Path, mut read: impl FnMut(&Arc<PinnedFolder>) -> Result<T>) -> Result<T> {
    for _ in 0..TRIES {
        let held = Arc::new(PinnedFolder::open_soon(path)?);
        let result = read(&held);
        if held.is_at(path)? {
            return result;
        }
    }
    Err(Error::conflict("the dataset was replaced several times while it was being read")
        .at(path)
        .with_remedy("wait until the other program has finished writing"))
}

fn cannot_open(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound if aside(path).exists() => {
            Error::conflict("an append was interrupted just before its end")
                .at(path)
                .with_remedy(remedy![
                    "resume the append with ",
                    Command::Convert.with(Opt::Resume),
                    ", or add the masks again; this restores the dataset"
                ])
                .caused_by(error)
        }
        io::ErrorKind::NotADirectory => {
            Error::malformed("not a packed dataset: it is not a folder")
                .at(path)
                .with_remedy(remedy!["give the folder that ", Command::Convert, " wrote"])
                .caused_by(error)
        }
        _ => Error::io(path, "cannot open", error),
    }
}

/// The folder of an open dataset, which goes on with its own samples when others are appended.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    fingerprint: String,
    /// The folder in which files are opened now.
    now: Mutex<Arc<PinnedFolder>>,
    /// Whether a comparison with the server is on its way.
    is_unsettled: AtomicBool,
    comparisons: Mutex<Comparisons>,
}

/// Comparisons of a dataset with the server.
#[derive(Debug, Default)]
struct Comparisons {
    /// The one that is on its way.
    pending: Option<Comparison>,
    /// When the last one was begun that found this dataset on the server.
    confirmed: Option<Instant>,
}

/// Whether a comparison that was begun then still counts.
fn is_recent(begun: Instant) -> bool {
    begun.elapsed() < RECENT
}

/// A request for the version that identifies a dataset on a server. It began after files of the
/// dataset were opened.
#[derive(Debug)]
struct Comparison {
    begun: Instant,
    answer: OfProcess<JoinHandle<Result<Version>>>,
}

impl Comparison {
    fn begin(path: &Path) -> Result<Self> {
        let answer = remote::ask_version(&path.join(SHA256SUMS))?;
        Ok(Self { begun: Instant::now(), answer: OfProcess::new(answer) })
    }

    /// The answer, if there is one. A forked child never gets it.
    fn wait(mut self) -> Option<Version> {
        let answer = self.answer.get_mut()?;
        remote::wait(async { answer.await.ok().transpose() }).ok()?
    }
}

impl Folder {
    /// Like [`open`](Self::open), but saves two requests to a server, each of which costs a round
    /// trip. The check before reading is not needed, because `fingerprint` also returns the version
    /// that it found. The check after reading is left to the caller, who has to call
    /// [`read`](Self::read) or [`check`](Self::check) before relying on the result.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub(crate) fn open_unsettled<F, T>(
        path: &Path,
        mut fingerprint: impl FnMut() -> Result<(String, Option<Version>, F)>,
        mut read: impl FnMut(&Arc<Self>, F) -> Result<T>,
    ) -> Result<T> {
        if remote::is_url(path) {
            let opened = fingerprint().and_then(|(fingerprint, version, more)| {
                let Some(version) = version else { return Ok(None) };
                let now = PinnedFolder { _folder: None, identity: Identity::Server(version) };
                read(&Arc::new(Self::new(path, fingerprint, Arc::new(now))), more).map(Some)
            });
            match opened {
                Ok(Some(opened)) => return Ok(opened),
                Err(error) if remote::is_away(&error) => return Err(error),
                // The dataset may have been replaced meanwhile.
                Ok(None) | Err(_) => {}
            }
        }
        Self::open(path, fingerprint, read)
    }

    /// Opens the dataset at `path`. `fingerprint` returns its fingerprint; `read` reads its
    /// metadata. All files come from the same folder.
    ///
    /// # Errors
    /// The errors of `fingerprint` and `read`, and if the folder cannot be opened.
    pub(crate) fn open<F, T>(
        path: &Path,
        mut fingerprint: impl FnMut() -> Result<(String, Option<Version>, F)>,
        mut read: impl FnMut(&Arc<Self>, F) -> Result<T>,
    ) -> Result<T> {
        holding(path, |held| {
            let (fingerprint, _, more) = fingerprint()?;
            read(&Arc::new(Self::new(path, fingerprint, held.clone())), more)
        })
    }

    fn new(path: &Path, fingerprint: String, now: Arc<PinnedFolder>) -> Self {
        Self {
            path: path.to_owned(),
            fingerprint,
            now: Mutex::new(now),
            is_unsettled: AtomicBool::new(false),
            comparisons: Mutex::default(),
        }
    }

    /// The path of the dataset.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fingerprint of the dataset when it was opened.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// The same folder, for the dataset as it was when it had an earlier fingerprint.
    pub(crate) fn of_the_past(&self, fingerprint: &str) -> Self {
        Self::new(&self.path, fingerprint.to_owned(), self.held())
    }

    /// Checks that the path still leads to this dataset, or to one that continues it.
    ///
    /// # Errors
    /// If another dataset is there, or none.
    pub fn check(&self) -> Result<()> {
        let mut comparisons = self.comparisons();
        let pending = comparisons.pending.take().filter(|pending| is_recent(pending.begun));
        self.check_with(pending, &mut comparisons)
    }

    /// The same, but a server is not asked again if a recent comparison found this dataset there.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_recently(&self) -> Result<()> {
        let is_confirmed = self.comparisons().confirmed.is_some_and(is_recent);
        if is_confirmed { Ok(()) } else { self.check() }
    }

    /// Checks it with the answer of a comparison, or asks the server.
    fn check_with(&self, pending: Option<Comparison>, comparisons: &mut Comparisons) -> Result<()> {
        comparisons.confirmed = None;
        let begun = pending.as_ref().map_or_else(Instant::now, |pending| pending.begun);
        let version = pending.and_then(Comparison::wait);
        let held = self.held();
        let is_same = match (&held.identity, version) {
            (Identity::Server(held), Some(version)) => held.is(&version),
            _ => false,
        };
        if !is_same {
            self.follow()?;
        }
        comparisons.confirmed = held.is_on_server().then_some(begun);
        self.is_unsettled.store(false, Ordering::Release);
        Ok(())
    }

    /// Makes sure that everything read so far came from this dataset. If the comparison after
    /// [`read_unsettled`](Self::read_unsettled) is still on its way, this waits for it.
    ///
    /// # Errors
    /// If another dataset is at the path, or none.
    pub fn settle(&self) -> Result<()> {
        if !self.is_unsettled.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut comparisons = self.comparisons();
        if !self.is_unsettled.load(Ordering::Acquire) {
            return Ok(());
        }
        let pending = comparisons.pending.take();
        self.check_with(pending, &mut comparisons)
    }

    fn held(&self) -> Arc<PinnedFolder> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Locked while an answer is waited for, so that others wait, too.
    fn comparisons(&self) -> MutexGuard<'_, Comparisons> {
        self.comparisons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`read`](Self::read), but on a server, the comparison after reading is only begun. The
    /// caller has to call [`settle`](Self::settle) before using what was read.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub fn read_unsettled<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        if self.held().is_on_server()
            && let Ok(done) = read()
        {
            self.comparisons().pending = Some(Comparison::begin(&self.path)?);
            self.is_unsettled.store(true, Ordering::Release);
            return Ok(done);
        }
        // An error may mean that the dataset was replaced.
        self.read(read)
    }

    /// Runs `read`, which opens files of the dataset by name, and repeats it until all files belong
    /// to this dataset or to one that continues it. Files that are already open stay unchanged.
    ///
    /// # Errors
    /// The errors of `read`, and if another dataset is at the path, or none.
    pub fn read<T>(&self, mut read: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            // Each comparison with a server costs a round trip. If the server has the same version afterwards as when the
            // dataset was opened, it had it all the time, so one comparison is enough.
            let held = self.held();
            let on_server = held.is_on_server();
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

    /// The folder at the path. If the dataset there continues this one, its folder becomes this
    /// dataset's folder.
    fn follow(&self) -> Result<Arc<PinnedFolder>> {
        let held = self.held();
        if held.is_at(&self.path)? {
            return Ok(held);
        }
        let next = holding(&self.path, |next| {
            // On a server, the metadata of an append may already be read before they are moved to their final places.
            let is_same = || -> Result<bool> {
                let sums = bounded_read::read(&self.path.join(SHA256SUMS), bounded_read::SUMS)?;
                Ok(checksums::sha256(&sums) == self.fingerprint)
            };
            let continues = continues(&self.path, &self.fingerprint)?
                || (remote::is_url(&self.path) && is_same()?);
            Ok(continues.then(|| next.clone()))
        });
        match next {
            Ok(Some(next)) => {
                *self.now.lock().unwrap_or_else(PoisonError::into_inner) = next.clone();
                Ok(next)
            }
            Err(error) if bounded_read::is_missing(&error) => {
                Err(Error::conflict("the dataset was removed or renamed while it was open")
                    .at(&self.path)
                    .with_remedy("open it again"))
            }
            // If a server does not answer, that does not mean the dataset was replaced.
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

/// Whether the dataset at `path` has the chunks that it had when its fingerprint was `fingerprint`.
fn continues(path: &Path, fingerprint: &str) -> Result<bool> {
    let root = metadata::parse_root(&bounded_read::read(
        &path.join("zarr.json"),
        bounded_read::METADATA,
    )?)?;
    Ok(root.is_some_and(|root| root.has_chunks_of(fingerprint)))
}

// Miri does not support memory maps, and these tests rename folders.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use hsipack_format::metadata::CONTINUES;
    use hsipack_format::zarr;
    use serde_json::{Map, json};

    /// A folder that looks like a dataset with a fingerprint; it may continue another one.
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
        let identify = || Ok((fingerprint.to_owned(), None, ()));
        Folder::open(path, identify, |folder, ()| Ok(folder.clone())).unwrap()
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
        open.check_recently().unwrap();
        let content = open.read(|| Ok(fs::read_to_string(path.join(SHA256SUMS)).unwrap()));
        assert_eq!(content.unwrap(), "second");
        write(&new, Some("somebody else's"), "third");
        exchange(&new, &path);
        assert!(open.check().unwrap_err().what().contains("was replaced"));
        fs::remove_dir_all(&path).unwrap();
        assert!(open.check().unwrap_err().what().contains("was removed"));
    }

    #[test]
    fn reads_during_an_exchange_are_repeated() {
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
