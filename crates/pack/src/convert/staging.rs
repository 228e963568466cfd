//! The folder beside the output in which a dataset grows, and the commit.
//!
//! ```text
//! OUT.partial/plan.json            what is being done; a resume has to match it
//! OUT.partial/lock                 held by the process that writes
//! OUT.partial/state/STACK/K.json   one for every finished shard: its statistics
//! OUT.partial/scratch/             working files of masks that are being added
//! OUT.partial/dataset/             what will be OUT; without any zarr.json until all shards are there
//! ```
//!
//! The commit is one rename of `dataset` to `OUT`, or, where cubes are appended, one exchange of the two
//! names: a reader finds either the old dataset or the new one. The new one shares the unchanged shard
//! files with the old one as hard links, and notes whose samples it goes on with, so that whoever has the old one open
//! goes on, too (`hsipack_store::folder`). Whatever instant a process is killed at, `OUT` is whole, and
//! `--resume` goes on from the finished shards or finds that everything is done.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::folder::{aside, partial};
use hsipack_store::{Dataset, small};
use serde_json::{Value, json};
use walkdir::{DirEntry, WalkDir};

use super::shards::{sync_folder, write_whole};
use crate::walk;

/// The right to write an output, and the folder beside it to work in: one process at a time has it, until it is
/// dropped. Without it, of two appends one would undo the other, and a repair would put an old shard into a new
/// dataset.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    output: PathBuf,
    lock: File,
}

/// The staging folder of one output.
pub struct Staging {
    claim: Claim,
}

/// What is at the output before a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// No staging folder.
    No,
    /// One of a new dataset.
    Create,
    /// One of an append.
    Append,
}

impl Claim {
    /// Claims `output`. The folder that it is in has to exist.
    ///
    /// # Errors
    /// If another process has it, or nothing can be written there.
    pub fn of(output: &Path) -> Result<Self> {
        let folder = partial(output);
        loop {
            fs::create_dir_all(&folder)
                .map_err(|error| Error::io(&folder, "cannot create", error))?;
            // Another process may remove its folder in between, as it ends.
            if let Some(lock) = lock(&folder)? {
                return Ok(Self { folder, output: output.to_owned(), lock });
            }
        }
    }

    /// Whether a conversion was begun and not finished.
    ///
    /// # Errors
    /// If its plan cannot be read.
    pub fn begun(&self) -> Result<Begun> {
        match read_plan(&self.folder)? {
            // Killed before the plan was written: nothing to go on from.
            None => Ok(Begun::No),
            Some(plan) if plan["append"] == true => Ok(Begun::Append),
            Some(_) => Ok(Begun::Create),
        }
    }

    /// Puts a dataset back that stepped aside for a commit that was killed, on file systems that cannot
    /// exchange two names at once.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn recover(&self) -> Result<()> {
        let aside = aside(&self.output);
        if !self.output.exists() && aside.exists() {
            fs::rename(&aside, &self.output)
                .map_err(|error| Error::io(&self.output, "cannot rename to", error))?;
        }
        Ok(())
    }

    /// Removes what a process without a plan left here, which nothing goes on with.
    fn clean(&self) -> Result<()> {
        for remains in ["state", "dataset", SCRATCH] {
            remove(&self.folder.join(remains))?;
        }
        // The dataset that stepped aside has its name again (`recover`), or a newer one has.
        if self.output.exists() { remove(&aside(&self.output)) } else { Ok(()) }
    }

    /// Removes what lies in the folder: nothing is left to resume.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(self) -> Result<()> {
        let fail = |error| Error::io(&self.folder, "cannot remove", error);
        // The plan goes first: without it, a half-removed folder is nothing to resume from.
        let _ = fs::remove_file(self.folder.join(PLAN));
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            if entry.file_type().map_err(fail)?.is_dir() {
                remove(&path)?;
            } else if entry.file_name() != LOCK {
                fs::remove_file(&path).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// An error that says that a conversion can be resumed here.
    pub fn unfinished(&self) -> Error {
        Error::conflict("an unfinished conversion is here").at(&self.folder).with_remedy(remedy![
            "pass ",
            Opt::Resume,
            " to go on with it, or delete the folder to start over"
        ])
    }
}

impl Drop for Claim {
    /// Leaves the folder only where there is something to resume.
    fn drop(&mut self) {
        let lock = self.folder.join(LOCK);
        // As long as the lock is this one, nobody else can have claimed the folder.
        if !self.folder.join(PLAN).exists() && is_same(&self.lock, &lock) {
            let _ = fs::remove_file(lock);
            // Fails if there is anything else in it, which is then not ours to remove.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// What is being done, in the folder beside the output.
const PLAN: &str = "plan.json";
/// Working files in a staging folder.
const SCRATCH: &str = "scratch";
/// The file in a staging folder that the process which writes has locked.
const LOCK: &str = "lock";

/// Whether `folder` is one in which a conversion worked and was not finished.
pub(crate) fn is_unfinished(folder: &Path) -> bool {
    folder.join(PLAN).is_file()
}

fn read_plan(folder: &Path) -> Result<Option<Value>> {
    let file = folder.join(PLAN);
    match fs::read(&file) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(file, "cannot read", error)),
    }
}

impl Staging {
    /// Begins a conversion in a claimed folder, or goes on with the one there is. `plan` identifies what is being done.
    ///
    /// # Errors
    /// If what is there has another plan, or nothing can be written there.
    pub fn open(claim: Claim, plan: &str, append: bool) -> Result<Self> {
        let folder = &claim.folder;
        match read_plan(folder)? {
            Some(theirs) if theirs["plan"] != plan => {
                return Err(Error::conflict(
                    "the unfinished conversion here has other inputs or options",
                )
                .at(folder)
                .with_remedy(remedy![
                    "repeat the conversion that began it with ",
                    Opt::Resume,
                    ", or delete the folder to start over"
                ]));
            }
            Some(_) => {}
            None => {
                claim.clean()?;
                let text = json!({ "plan": plan, "append": append }).to_string();
                write_whole(&folder.join(PLAN), text.as_bytes())?;
            }
        }
        Ok(Self { claim })
    }

    /// Begins in a claimed folder what is quicker done anew than resumed: there is no plan, so that whoever claims the
    /// folder next removes what is left of it.
    ///
    /// # Errors
    /// If a conversion is to be resumed there, or its remains cannot be removed.
    pub fn scratch(claim: Claim) -> Result<Self> {
        if claim.begun()? != Begun::No {
            return Err(claim.unfinished());
        }
        claim.clean()?;
        Ok(Self { claim })
    }

    /// What will be the dataset.
    pub fn dataset(&self) -> PathBuf {
        self.folder().join("dataset")
    }

    /// A folder for working files, made if need be.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn scratch_folder(&self) -> Result<PathBuf> {
        let folder = self.folder().join(SCRATCH);
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, "cannot create", error))?;
        Ok(folder)
    }

    fn state_file(&self, stack: &str, shard: usize) -> PathBuf {
        self.folder().join("state").join(stack).join(format!("{shard}.json"))
    }

    /// What was recorded of a finished shard, if it is finished.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn finished(&self, stack: &str, shard: usize) -> Result<Option<Value>> {
        let file = self.state_file(stack, shard);
        match fs::read(&file) {
            Ok(text) => Ok(serde_json::from_slice(&text).ok()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(file, "cannot read", error)),
        }
    }

    /// Records a shard as finished; its files have been renamed before.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn record(&self, stack: &str, shard: usize, record: &Value) -> Result<()> {
        write_whole(&self.state_file(stack, shard), record.to_string().as_bytes())
    }

    /// Links every shard of `base` that was not written anew into the staged dataset, but for those of the arrays
    /// `replaced`, folders below it.
    ///
    /// # Errors
    /// If a file cannot be linked or copied.
    pub fn link_unchanged(&self, base: &Path, replaced: &[PathBuf]) -> Result<()> {
        let is_kept = |entry: &DirEntry| {
            entry
                .path()
                .strip_prefix(base)
                .is_ok_and(|below| replaced.iter().all(|old| old != below))
        };
        for entry in WalkDir::new(base).into_iter().filter_entry(is_kept) {
            let entry = entry.map_err(|error| walk::failed(base, error))?;
            let below = entry.path().strip_prefix(base).expect("walked from there");
            let target = self.dataset().join(below);
            if entry.file_type().is_dir() {
                fs::create_dir_all(&target)
                    .map_err(|error| Error::io(&target, "cannot create", error))?;
            } else if below.components().any(|part| part.as_os_str() == "c") && !target.exists() {
                // Pipes and devices would be copied without end.
                small::open(entry.path())?;
                fs::hard_link(entry.path(), &target)
                    .or_else(|_| {
                        fs::copy(entry.path(), &target)
                            .and_then(|_| File::open(&target)?.sync_all())
                    })
                    .map_err(|error| Error::io(&target, "cannot write", error))?;
            }
        }
        Ok(())
    }

    /// Makes the staged dataset the output, in one step.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn commit(self, append: bool) -> Result<()> {
        sync_tree(&self.dataset())?;
        let output = &self.claim.output;
        let fail = |error| Error::io(output, "cannot rename to", error);
        if append {
            exchange(&self.dataset(), output).map_err(fail)?;
        } else {
            fs::rename(self.dataset(), output).map_err(fail)?;
        }
        sync_folder(parent(output))?;
        self.discard()
    }

    /// Removes the staging folder.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(self) -> Result<()> {
        self.claim.discard()
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.claim.folder
    }
}

/// Removes a folder that may not exist.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io(folder, "cannot remove", error))
        }
        _ => Ok(()),
    }
}

/// Locks a staging folder; `None` if it was removed meanwhile.
fn lock(folder: &Path) -> Result<Option<File>> {
    let path = folder.join(LOCK);
    let file = match File::options().write(true).create(true).truncate(false).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&path, "cannot create", error)),
    };
    match file.try_lock() {
        Err(fs::TryLockError::WouldBlock) => {
            Err(Error::conflict("another hsipack is writing here")
                .at(folder)
                .with_remedy("wait for it to finish"))
        }
        // Some network file systems have no locks; then the user has to take care.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(is_same(&file, &path).then_some(file)),
    }
}

/// Whether `path` leads to the file that is open.
fn is_same(file: &File, path: &Path) -> bool {
    let numbers = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let there = fs::metadata(path).map(numbers);
    file.metadata().map(numbers).is_ok_and(|ours| there.is_ok_and(|there| ours == there))
}

/// The folder that a path is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_tree(folder: &Path) -> Result<()> {
    let folders = WalkDir::new(folder)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_dir());
    folders.into_iter().try_for_each(|entry| sync_folder(entry.path()))
}

/// Exchanges two folders' names at once; where the file system cannot, the old one steps aside first,
/// and for an instant there is none.
fn exchange(new: &Path, old: &Path) -> std::io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
            let aside = aside(old);
            fs::rename(old, &aside)?;
            fs::rename(new, old).inspect_err(|_| {
                let _ = fs::rename(&aside, old);
            })
        }
        Err(error) => Err(error.into()),
    }
}

/// The dataset at `output`, if there is a whole one.
pub fn existing(output: &Path) -> Option<Dataset> {
    Dataset::open(output).ok()
}
