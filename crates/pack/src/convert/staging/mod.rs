//! The folder beside the output in which a dataset is built, and the commit. Servers have no
//! folders, so they need other methods: `server.rs`.
//!
//! ```text
//! OUT.partial/plan.json            what is being done; a resume has to match it
//! OUT.partial/lock                 held by the process that writes, or by several that write parts
//! OUT.partial/state/STACK/K.json   one for every finished shard, its receipt: sizes and hashes of its files, statistics
//! OUT.partial/scratch/             working files of masks that are being added
//! OUT.partial/dataset/             what will be OUT; without any zarr.json until all shards are there
//! ```
//!
//! The commit is a single step: it renames `dataset` to `OUT` or, if cubes are appended, exchanges
//! the two names. A reader finds either the old dataset or the new one. After an append, the new
//! dataset shares the unchanged shard files with the old one as hard links. It records which
//! dataset it continues, so that processes that have the old one open can go on
//! (`hsipack_store::folder`). Whenever a process is killed, `OUT` is complete, and `--resume` goes
//! on from the finished shards or finds that everything is done.

mod claim;
mod plan_file;
mod receipt;
mod server;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use hsipack_format::checksums::SHA256SUMS;
use hsipack_format::metadata::SAMPLES;
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_format::{Command, Error, Result, remedy};
use hsipack_store::folder::aside;
use hsipack_store::output::{self, sync_folder, write_whole};
use hsipack_store::remote::is_url;
use hsipack_store::{Dataset, bounded_read};
use serde_json::Value;
use walkdir::{DirEntry, WalkDir};

pub use self::claim::{Begun, Claim};
use self::claim::{Hold, Right};
pub(crate) use self::plan_file::is_unfinished;
pub use self::plan_file::{About, Shards, begun_plan, is_there, other_begun};
use self::plan_file::{PLAN, SCRATCH, read_plan};
use self::receipt::Found;
use super::request;
use crate::walk;

/// The staging folder of one output.
pub struct Staging {
    claim: Claim,
    /// Identifies the conversion.
    plan: String,
    /// Records of shards, by stack and number. On a server, reading a record again would cost a
    /// round trip.
    records: Mutex<Records>,
    /// Whether there may be records that another process wrote.
    resumed: bool,
    append: bool,
    shards: Shards,
    /// The metadata that the commit on a server still needs.
    metadata: OnceLock<Vec<(String, Vec<u8>)>>,
    /// Arrays that an append on a server removes.
    dropped: OnceLock<Vec<PathBuf>>,
}

/// Records of shards, as text. Even for a million samples this is small.
type Records = HashMap<(String, usize), Option<Box<str>>>;

/// The shards, by stack and number, that have a receipt in a staging folder.
pub fn recorded(folder: &Path) -> Result<HashSet<(String, usize)>> {
    let state = folder.join("state");
    let files: Vec<PathBuf> = if is_url(folder) {
        output::list(&state)?
    } else {
        let entries = WalkDir::new(&state).into_iter().filter_map(std::result::Result::ok);
        entries.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path).collect()
    };
    let shard = |file: &PathBuf| {
        let number = file.file_name()?.to_str()?.strip_suffix(".json")?.parse().ok()?;
        let stack = file.parent()?.file_name()?.to_str()?.to_owned();
        Some((stack, number))
    };
    Ok(files.iter().filter_map(shard).collect())
}

impl Staging {
    /// Begins a conversion in a claimed folder, or resumes the existing one. `shards` are the
    /// shards that it writes.
    ///
    /// # Errors
    /// If the existing conversion has another plan, another process has just begun, or nothing can
    /// be written there.
    pub fn open(claim: Claim, about: About<'_>, shards: Shards) -> Result<Self> {
        let folder = &claim.folder;
        let theirs = read_plan(folder)?;
        let resumed = theirs.is_some();
        if let Some(theirs) = theirs.filter(|theirs| theirs["plan"] != about.plan) {
            return Err(request::differs(&theirs["asked"], about.requested, folder));
        }
        match &claim.right {
            Right::Object(writer) if resumed => writer.take_over(about)?,
            Right::Object(writer) => {
                if !writer.begin(about)? {
                    return Err(claim.unfinished());
                }
                // Another process may have finished after this one looked at the output. Its shards must not be
                // overwritten.
                if let Err(error) = writer.check_output(about) {
                    let _ = writer.withdraw();
                    return Err(error);
                }
                writer.clean()?;
            }
            Right::Lock(..) if resumed => output::remove_temporaries(folder)?,
            Right::Lock(..) => {
                claim.clean()?;
                write_whole(&folder.join(PLAN), about.text(None).as_bytes())?;
            }
        }
        Ok(Self::new(claim, about.plan, resumed, about.append, shards))
    }

    fn new(claim: Claim, plan: &str, resumed: bool, append: bool, shards: Shards) -> Self {
        Self {
            claim,
            plan: plan.to_owned(),
            records: Mutex::default(),
            resumed,
            append,
            shards,
            metadata: OnceLock::new(),
            dropped: OnceLock::new(),
        }
    }

    /// Opens the folder of a conversion that was begun, for a process that writes a part of it
    /// ([`Claim::join`]) or ends it.
    ///
    /// # Errors
    /// If another conversion was begun there.
    pub fn of_parts(claim: Claim, plan: &str, append: bool, shards: Shards) -> Result<Self> {
        if claim.plan()?.as_deref() != Some(plan) {
            return Err(other_begun(&claim.folder));
        }
        if let Right::Lock(_, Hold::Alone) = claim.right {
            output::remove_temporaries(&claim.folder)?;
        }
        Ok(Self::new(claim, plan, true, append, shards))
    }

    /// Begins work that is faster to repeat than to resume, in a claimed folder. There is no plan,
    /// so the next process that claims the folder removes what remains.
    ///
    /// # Errors
    /// If there is a conversion to be resumed, or its remains cannot be removed.
    pub fn scratch(claim: Claim) -> Result<Self> {
        Self::unplanned(claim, true)
    }

    /// As [`scratch`](Self::scratch), for an output that does not exist yet.
    ///
    /// # Errors
    /// As [`scratch`](Self::scratch).
    pub fn fresh(claim: Claim) -> Result<Self> {
        Self::unplanned(claim, false)
    }

    fn unplanned(claim: Claim, append: bool) -> Result<Self> {
        if claim.begun()? != Begun::No {
            return Err(claim.unfinished());
        }
        claim.clean()?;
        Ok(Self::new(claim, "", false, append, Shards::default()))
    }

    /// Where shards are written: in the staged dataset, or on a server in their final places.
    pub fn dataset(&self) -> PathBuf {
        match self.claim.right {
            Right::Lock(..) => self.folder().join("dataset"),
            Right::Object(_) => self.claim.output.clone(),
        }
    }

    /// On a server, a number that no other conversion has. The dataset records it, so that the
    /// process that commits can distinguish its dataset from another's.
    pub fn write_id(&self) -> Option<&str> {
        match &self.claim.right {
            Right::Lock(..) => None,
            Right::Object(writer) => Some(writer.id()),
        }
    }

    /// A folder for working files. It is created if necessary.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn scratch_folder(&self) -> Result<PathBuf> {
        let folder = self.folder().join(SCRATCH);
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, "cannot create", error))?;
        Ok(folder)
    }

    fn state_file(&self, stack: &str, shard: usize) -> PathBuf {
        self.folder().join("state").join(stack).join(format!("{shard}.json"))
    }

    /// The record of a shard, if it is finished.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn finished(&self, stack: &str, shard: usize) -> Result<Option<Value>> {
        let key = (stack.to_owned(), shard);
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(record) = records.get(&key) {
            let parsed = record.as_deref().map(serde_json::from_str).transpose();
            return parsed.map_err(|error| Error::bug(format!("a record of a shard: {error}")));
        }
        let record = match self.resumed {
            // If the receipt is damaged or belongs to another plan, the shard is written again.
            true => {
                match receipt::read(&self.state_file(stack, shard), &self.plan, stack, shard)? {
                    Some(Found::Receipt(record)) => Some(record),
                    Some(Found::Foreign | Found::Misplaced | Found::Damaged) | None => None,
                }
            }
            false => None,
        };
        records.insert(key, record.as_ref().map(|record| record.to_string().into()));
        Ok(record)
    }

    /// Records a shard as finished. Its files must already have their final names.
    ///
    /// # Errors
    /// If it cannot be written, or another process has taken over.
    pub fn record(&self, stack: &str, shard: usize, record: &Value) -> Result<()> {
        if let Right::Object(writer) = &self.claim.right {
            writer.check()?;
        }
        let receipt = receipt::write(record, &self.plan, stack, shard);
        write_whole(&self.state_file(stack, shard), &receipt)?;
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.insert((stack.to_owned(), shard), Some(record.to_string().into()));
        Ok(())
    }

    /// The shards, by stack and number, that have a receipt, whatever its content.
    ///
    /// # Errors
    /// If the folder cannot be read, or the server cannot list names.
    pub fn recorded(&self) -> Result<HashSet<(String, usize)>> {
        recorded(self.folder())
    }

    /// Checks that a shard has a complete receipt of this conversion, and that the shard's files
    /// exist and have the recorded lengths. On servers, the commit checks the files.
    ///
    /// # Errors
    /// If a check fails. The error says which shard is affected and what is wrong.
    pub fn check_receipt(&self, stack: &str, shard: usize) -> Result<()> {
        let file = self.state_file(stack, shard);
        let again = || {
            remedy!["write the shard with ", Command::Work, ", which finds the unfinished shards"]
        };
        let name = format!("shard {shard} of {stack}");
        let wrong = match receipt::read(&file, &self.plan, stack, shard)? {
            Some(Found::Receipt(record)) => Ok(record),
            None => Err(Error::conflict(format!("{name} has no receipt: it was not written yet"))),
            Some(Found::Foreign) => {
                Err(Error::conflict(format!("the receipt of {name} belongs to another plan")))
            }
            Some(Found::Misplaced) => {
                Err(Error::conflict(format!("the receipt of {name} belongs to another shard")))
            }
            Some(Found::Damaged) => {
                Err(Error::damaged(format!("the receipt of {name} is damaged")))
            }
        };
        let record = wrong.map_err(|error| error.at(&file).with_remedy(again()))?;
        if matches!(self.claim.right, Right::Object(_)) {
            return Ok(());
        }
        for (path, bytes) in receipt::files(&record) {
            let path = self.dataset().join(path);
            let stored_len = fs::metadata(&path).ok().map(|meta| meta.len());
            if stored_len != Some(bytes) {
                let has =
                    stored_len.map_or("is missing".to_owned(), |len| format!("has {len} bytes"));
                return Err(Error::damaged(format!(
                    "{name} {has}, but its receipt says {bytes} bytes"
                ))
                .at(&path)
                .with_remedy(remedy![
                    format!("delete {}, then ", file.display()),
                    "write the shard again with ",
                    Command::Work
                ]));
            }
        }
        Ok(())
    }

    /// Links every shard of `base` that was not rewritten into the staged dataset, except for the
    /// arrays `replaced`, which are folders below `base`.
    ///
    /// # Errors
    /// If a file cannot be linked or copied.
    pub fn link_unchanged(&self, base: &Path, replaced: &[PathBuf]) -> Result<()> {
        if is_url(base) {
            // They are already in their final places.
            return Ok(());
        }
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
                // Refuses pipes and devices, because copying them would never end.
                bounded_read::open(entry.path())?;
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

    /// Writes the metadata, after all shards. `files` are paths below the dataset with their
    /// contents, that of the root last. `dropped` are folders of arrays that the dataset had before
    /// and will not have. They must also be among the `replaced` of
    /// [`link_unchanged`](Self::link_unchanged).
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_metadata(
        &self,
        mut files: Vec<(String, Vec<u8>)>,
        dropped: &[PathBuf],
    ) -> Result<()> {
        match &self.claim.right {
            Right::Lock(..) => {
                let folder = self.dataset();
                return files
                    .iter()
                    .try_for_each(|(file, content)| write_whole(&folder.join(file), content));
            }
            Right::Object(writer) if self.append => {
                // Chunks of coordinates are equal to the existing ones, or belong to stacks that no reader sees yet.
                let chunks: Vec<_> = files.extract_if(.., |(file, _)| !is_metadata(file)).collect();
                writer.put(&chunks)?;
                writer.stage(&files)?;
                files.iter_mut().for_each(|(_, content)| content.clear());
                let _ = self.metadata.set(files);
                let _ = self.dropped.set(dropped.to_vec());
            }
            Right::Object(writer) => {
                let root = files.pop().into_iter().collect();
                writer.put(&files)?;
                let _ = self.metadata.set(root);
            }
        }
        Ok(())
    }

    /// Turns the staged dataset into the output, in one step.
    ///
    /// # Errors
    /// If the file system or the server fails, or another process on a server committed first.
    pub fn commit(self) -> Result<()> {
        let output = &self.claim.output;
        match &self.claim.right {
            Right::Object(writer) => {
                writer.check_shards(&self.shards)?;
                writer.check()?;
                let metadata = self.metadata.get().map_or(&[][..], Vec::as_slice);
                match metadata {
                    [] => return Err(Error::bug("a dataset without metadata")),
                    [(root, content)] if !self.append => writer.commit(root, content)?,
                    files => {
                        let dropped = self.dropped.get().map_or(&[][..], Vec::as_slice);
                        writer.decide(files.iter().map(|(file, _)| file.as_str()), dropped)?;
                    }
                }
            }
            Right::Lock(..) => {
                sync_tree(&self.dataset())?;
                let fail = |error| Error::io(output, "cannot rename to", error);
                if self.append {
                    exchange(&self.dataset(), output).map_err(fail)?;
                } else {
                    fs::rename(self.dataset(), output).map_err(fail)?;
                }
                sync_folder(parent(output))?;
            }
        }
        self.claim.discard()
    }

    /// Removes what was written, and the staging folder.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(self) -> Result<()> {
        match &self.claim.right {
            Right::Object(writer) => writer.abandon(&self.shards, self.append),
            Right::Lock(..) => self.claim.discard(),
        }
    }

    /// The path of the staging folder.
    pub fn folder(&self) -> &Path {
        &self.claim.folder
    }
}

/// Whether a file below a dataset is metadata, not a chunk.
fn is_metadata(file: &str) -> bool {
    file.ends_with("zarr.json") || [SAMPLES, SAMPLES_INDEX, SHA256SUMS].contains(&file)
}

/// The parent folder of a path.
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

/// Exchanges the names of two folders at once. If the file system cannot do this, the old folder is
/// renamed first, and for a moment there is no dataset.
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

/// The dataset at `output`, if it is complete.
pub fn existing(output: &Path) -> Option<Dataset> {
    Dataset::open(output).ok()
}
