//! The folder beside the output in which a dataset grows, and the commit.
//!
//! ```text
//! OUT.partial/plan.json            what is being done; a resume has to match it
//! OUT.partial/lock                 held by the process that writes
//! OUT.partial/state/STACK/K.json   one for every finished shard: its statistics
//! OUT.partial/dataset/             what will be OUT; without any zarr.json until all shards are there
//! ```
//!
//! The commit is one rename of `dataset` to `OUT`, or, where cubes are appended, one exchange of the two
//! names: a reader finds either the old dataset or the new one. The new one shares the unchanged shard
//! files with the old one as hard links. Whatever instant a process is killed at, `OUT` is whole, and
//! `--resume` goes on from the finished shards or finds that everything is done.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use hsipack_format::{Dataset, Error, Result};
use serde_json::{Value, json};
use walkdir::WalkDir;

use super::shards::{sync_folder, write_whole};
use crate::walk;

/// The staging folder of one output.
pub struct Staging {
    folder: PathBuf,
    output: PathBuf,
    _lock: File,
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

/// The staging folder of `output`.
pub fn folder_of(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    output.with_file_name(name)
}

/// Whether a conversion to `output` was begun and not finished.
///
/// # Errors
/// If its plan cannot be read.
pub fn begun(output: &Path) -> Result<Begun> {
    let folder = folder_of(output);
    if !folder.exists() {
        return Ok(Begun::No);
    }
    match read_plan(&folder)? {
        // Killed before the plan was written: nothing to go on from.
        None => Ok(Begun::No),
        Some(plan) if plan["append"] == true => Ok(Begun::Append),
        Some(_) => Ok(Begun::Create),
    }
}

fn read_plan(folder: &Path) -> Result<Option<Value>> {
    let file = folder.join("plan.json");
    match fs::read(&file) {
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(file, "cannot read", error)),
    }
}

impl Staging {
    /// Starts a staging folder for `output`, or with `resume` goes on with the one there is. `plan`
    /// identifies what is being done.
    ///
    /// # Errors
    /// If another process works on it, one is there already, its plan is another, or nothing can be
    /// written there.
    pub fn open(output: &Path, plan: &str, append: bool, resume: bool) -> Result<Self> {
        let folder = folder_of(output);
        let there = read_plan(&folder)?;
        match (&there, resume) {
            (Some(_), false) => {
                return Err(Error::conflict("an unfinished conversion is here")
                    .at(folder)
                    .with_remedy(
                        "pass --resume to go on with it, or delete the folder to start over",
                    ));
            }
            (Some(theirs), true) if theirs["plan"] != plan => {
                return Err(Error::conflict(
                    "the unfinished conversion here has other inputs or options",
                )
                .at(folder)
                .with_remedy(
                    "repeat its command with --resume, or delete the folder to start over",
                ));
            }
            _ => {}
        }
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, "cannot create", error))?;
        let lock = lock(&folder)?;
        if there.is_none() {
            // Without a plan nothing says whose these are: remains of a folder that was being removed.
            remove(&folder.join("state"))?;
            remove(&folder.join("dataset"))?;
            let text = json!({ "plan": plan, "append": append }).to_string();
            write_whole(&folder.join("plan.json"), text.as_bytes())?;
        }
        Ok(Self { folder, output: output.to_owned(), _lock: lock })
    }

    /// What will be the dataset.
    pub fn dataset(&self) -> PathBuf {
        self.folder.join("dataset")
    }

    fn state_file(&self, stack: &str, shard: usize) -> PathBuf {
        self.folder.join("state").join(stack).join(format!("{shard}.json"))
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

    /// Links every shard of `base` that was not written anew into the staged dataset.
    ///
    /// # Errors
    /// If a file cannot be linked or copied.
    pub fn link_unchanged(&self, base: &Path) -> Result<()> {
        for entry in WalkDir::new(base) {
            let entry = entry.map_err(|error| walk::failed(base, error))?;
            let below = entry.path().strip_prefix(base).expect("walked from there");
            let target = self.dataset().join(below);
            if entry.file_type().is_dir() {
                fs::create_dir_all(&target)
                    .map_err(|error| Error::io(&target, "cannot create", error))?;
            } else if below.components().any(|part| part.as_os_str() == "c") && !target.exists() {
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
        let fail = |error| Error::io(&self.output, "cannot rename to", error);
        if append {
            exchange(&self.dataset(), &self.output).map_err(fail)?;
        } else {
            fs::rename(self.dataset(), &self.output).map_err(fail)?;
        }
        sync_folder(parent(&self.output))?;
        self.discard()
    }

    /// Removes the staging folder.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(self) -> Result<()> {
        // The plan goes first: without it, a half-removed folder is nothing to resume from.
        let _ = fs::remove_file(self.folder.join("plan.json"));
        fs::remove_dir_all(&self.folder)
            .map_err(|error| Error::io(&self.folder, "cannot remove", error))
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
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

/// Puts a dataset back that stepped aside for a commit that was killed, on file systems that cannot
/// exchange two names at once.
///
/// # Errors
/// If it cannot be renamed.
pub fn recover(output: &Path) -> Result<()> {
    let aside = folder_of(output).join("replaced");
    if !output.exists() && aside.exists() {
        fs::rename(&aside, output).map_err(|error| Error::io(output, "cannot rename to", error))?;
    }
    Ok(())
}

/// Removes what a commit that was killed right after its rename left behind.
///
/// # Errors
/// If it cannot be removed, or another process is at it.
pub fn clean_up(output: &Path) -> Result<()> {
    let folder = folder_of(output);
    if !folder.exists() {
        return Ok(());
    }
    let lock = lock(&folder)?;
    Staging { folder, output: output.to_owned(), _lock: lock }.discard()
}

fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let file = File::create(&path).map_err(|error| Error::io(&path, "cannot create", error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            Err(Error::conflict("another hsipack is writing here")
                .at(folder)
                .with_remedy("wait for it to finish"))
        }
        // Some network file systems have no locks; then the user has to take care.
        Err(fs::TryLockError::Error(_)) => Ok(file),
    }
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
            let aside = new.with_file_name("replaced");
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
