//! The right to write an output: who has it, alone or with others, and what somebody left who had it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hsipack_format::{Command, Error, Opt, Result, remedy};
use hsipack_store::folder::{aside, partial};
use hsipack_store::output;
use hsipack_store::remote::is_url;

use super::server::{self, Writer};
use super::{PLAN, SCRATCH, is_begun, read_plan};

/// The right to write an output, and the folder beside it to work in: one process at a time has it, until it is
/// dropped. Without it, of two appends one would undo the other, and a repair would put an old shard into a new
/// dataset.
#[derive(Debug)]
pub struct Claim {
    pub(super) folder: PathBuf,
    pub(super) output: PathBuf,
    pub(super) right: Right,
}

/// What keeps others from writing.
#[derive(Debug)]
pub(super) enum Right {
    /// A locked file in the folder.
    Lock(File, Hold),
    /// An object beside the dataset, once it was put there.
    Object(Writer),
}

/// How a staging folder is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// By one process, which alone writes.
    Alone,
    /// By all that write parts.
    Together,
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

/// The plan of a repair on a server; others are hashes.
const REPAIR: &str = "repair";
/// The file in a staging folder that the process which writes has locked.
const LOCK: &str = "lock";

impl Claim {
    /// Claims `output`. The folder that it is in has to exist.
    ///
    /// # Errors
    /// If another process has it, or nothing can be written there. Of a server, that shows when the conversion begins.
    pub fn of(output: &Path) -> Result<Self> {
        let folder = partial(output);
        if is_url(output) {
            let right = Right::Object(Writer::new(output, &folder));
            return Ok(Self { folder, output: output.to_owned(), right });
        }
        loop {
            fs::create_dir_all(&folder)
                .map_err(|error| Error::io(&folder, "cannot create", error))?;
            // Another process may remove its folder in between, as it ends.
            if let Some(lock) = lock(&folder, Hold::Alone)? {
                let right = Right::Lock(lock, Hold::Alone);
                return Ok(Self { folder, output: output.to_owned(), right });
            }
        }
    }

    /// Joins those who write parts of a conversion into `output`, which `writer` began on a server. `None` if nothing was
    /// begun there, or it has ended.
    ///
    /// # Errors
    /// If a process that writes alone is at it.
    pub fn join(output: &Path, writer: Option<&str>) -> Result<Option<Self>> {
        if !is_begun(output)? {
            return Ok(None);
        }
        let (folder, output) = (partial(output), output.to_owned());
        let right = match writer {
            Some(writer) => Right::Object(Writer::named(writer, &output, &folder)),
            None => match lock(&folder, Hold::Together)? {
                Some(lock) => Right::Lock(lock, Hold::Together),
                None => return Ok(None),
            },
        };
        Ok(Some(Self { folder, output, right }))
    }

    /// Claims an output on which `writer` began a conversion whose parts others may still write: see [`of`](Self::of).
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_parts(output: &Path, writer: Option<&str>) -> Result<Self> {
        let mut claim = Self::of(output)?;
        if let (Some(writer), Right::Object(_)) = (writer, &claim.right) {
            claim.right = Right::Object(Writer::named(writer, output, &claim.folder));
        }
        Ok(claim)
    }

    /// Claims `output` if `plan` was begun there, by `writer` on a server, and has not ended.
    ///
    /// # Errors
    /// If another process has claimed the output.
    pub fn left(output: &Path, plan: &str, writer: Option<&str>) -> Result<Option<Self>> {
        if !is_begun(output)? {
            return Ok(None);
        }
        let claim = Self::of_parts(output, writer)?;
        claim.recover()?;
        let left = claim.plan()?.as_deref() == Some(plan);
        Ok(left.then_some(claim))
    }

    /// Removes what a commit of `plan` left beside `output` when it was killed after the dataset was there.
    ///
    /// # Errors
    /// If another process has claimed the output; if something cannot be removed.
    pub fn tidy(output: &Path, plan: &str) -> Result<()> {
        let folder = partial(output);
        if let Some(claim) = Self::left(output, plan, None)? {
            return claim.discard();
        }
        // The plan goes first.
        if read_plan(&folder)?.is_some() || output::is_empty(&folder)? {
            return Ok(());
        }
        let claim = Self::of(output)?;
        match &claim.right {
            // Nothing that somebody needs who begins to append meanwhile.
            Right::Object(writer) => writer.clean(),
            Right::Lock(..) => claim.discard(),
        }
    }

    /// What identifies the conversion that was begun and has not ended.
    ///
    /// # Errors
    /// If its plan cannot be read.
    pub fn plan(&self) -> Result<Option<String>> {
        let plan = read_plan(&self.folder)?;
        Ok(plan.and_then(|plan| plan["plan"].as_str().map(str::to_owned)))
    }

    /// Whether a conversion was begun and not finished.
    ///
    /// # Errors
    /// If its plan cannot be read; if it is not a conversion that was begun (see [`hold`](Self::hold)).
    pub fn begun(&self) -> Result<Begun> {
        match read_plan(&self.folder)? {
            // Killed before the plan was written: nothing to go on from.
            None => Ok(Begun::No),
            Some(plan) if plan["plan"] == REPAIR => {
                Err(Error::conflict("a repair was begun here and has not ended")
                    .at(&self.folder)
                    .with_remedy(remedy![
                        "wait for it to end; if it was killed, run ",
                        Command::Repair,
                        " again"
                    ]))
            }
            Some(plan) if plan["append"] == true => Ok(Begun::Append),
            Some(_) => Ok(Begun::Create),
        }
    }

    /// Ends a commit that was killed: puts a dataset back that stepped aside on a file system that cannot exchange two
    /// names at once; on a server, puts metadata in their places.
    ///
    /// # Errors
    /// If it cannot be renamed, or the server refuses.
    pub fn recover(&self) -> Result<()> {
        if is_url(&self.output) {
            return server::settle(&self.output, &self.folder);
        }
        let aside = aside(&self.output);
        if !self.output.exists() && aside.exists() {
            fs::rename(&aside, &self.output)
                .map_err(|error| Error::io(&self.output, "cannot rename to", error))?;
        }
        Ok(())
    }

    /// Holds the output for a repair, which can be done again from its beginning. The lock of a file does so anyway.
    ///
    /// # Errors
    /// If something else was begun there; if a server does not take it.
    pub fn hold(&self) -> Result<Held<'_>> {
        if let Right::Object(writer) = &self.right
            && !writer.begin(REPAIR, false)?
        {
            match read_plan(&self.folder)? {
                // Somebody did the same and was killed.
                Some(theirs) if theirs["plan"] == REPAIR => writer.take_over(REPAIR, false)?,
                _ => return Err(self.unfinished()),
            }
        }
        Ok(Held(self))
    }

    /// Removes what a process without a plan left here, which nothing goes on with.
    pub(super) fn clean(&self) -> Result<()> {
        for remains in ["state", "dataset", SCRATCH] {
            output::remove_all(&self.folder.join(remains))?;
        }
        // The dataset that stepped aside has its name again (`recover`), or a newer one has.
        if self.output.exists() { output::remove_all(&aside(&self.output)) } else { Ok(()) }
    }

    /// Removes what lies in the folder: nothing is left to resume.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(self) -> Result<()> {
        if is_url(&self.output) {
            return server::finish(&self.folder);
        }
        let fail = |error| Error::io(&self.folder, "cannot remove", error);
        // The plan goes first: without it, a half-removed folder is nothing to resume from.
        let _ = fs::remove_file(self.folder.join(PLAN));
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let path = entry.path();
            if entry.file_type().map_err(fail)?.is_dir() {
                output::remove_all(&path)?;
            } else if entry.file_name() != LOCK {
                fs::remove_file(&path).map_err(fail)?;
            }
        }
        Ok(())
    }

    /// An error that says that a conversion can be resumed here.
    pub fn unfinished(&self) -> Error {
        // On a server, finished shards lie in their places.
        let shards = match self.right {
            Right::Object(_) => format!("{} and what lies in ", self.output.display()),
            Right::Lock(..) => String::new(),
        };
        Error::conflict("an unfinished conversion is here").at(&self.folder).with_remedy(remedy![
            "pass ",
            Opt::Resume,
            format!(" to go on with it, or delete {shards}the folder to start over")
        ])
    }
}

/// Holds an output until it is dropped.
#[must_use]
pub struct Held<'a>(&'a Claim);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Right::Object(_) = self.0.right {
            // What stays is taken over by whoever does the same again.
            let _ = output::remove(&self.0.folder.join(PLAN));
        }
    }
}

impl Drop for Claim {
    /// Leaves the folder only where there is something to resume.
    fn drop(&mut self) {
        let Right::Lock(held, Hold::Alone) = &self.right else { return };
        let lock = self.folder.join(LOCK);
        // As long as the lock is this one, nobody else can have claimed the folder.
        if !self.folder.join(PLAN).exists() && is_same(held, &lock) {
            let _ = fs::remove_file(lock);
            // Fails if there is anything else in it, which is then not ours to remove.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Locks a staging folder; `None` if it was removed meanwhile.
fn lock(folder: &Path, hold: Hold) -> Result<Option<File>> {
    let path = folder.join(LOCK);
    let file = match File::options().write(true).create(true).truncate(false).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(&path, "cannot create", error)),
    };
    let locked = match hold {
        Hold::Alone => file.try_lock(),
        Hold::Together => file.try_lock_shared(),
    };
    match locked {
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
