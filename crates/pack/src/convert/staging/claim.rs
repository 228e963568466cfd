//! The right to write an output: which processes hold it, alone or together, and what an earlier
//! process left behind.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hsipack_format::{Command, Error, Opt, Result, remedy};
use hsipack_store::folder::{aside, link_target, partial};
use hsipack_store::output;
use hsipack_store::remote::is_url;

use super::plan_file::{A_REPAIR, PLAN, REPAIR, SCRATCH, begun_plan, is_begun, read_plan};
use super::server::{self, Writer};

/// The right to write an output, and the staging folder beside it. Only one process holds it at a
/// time, or those that write parts of one conversion, until it is dropped. Without it, one of two
/// appends would undo the other, and a repair would put an old shard into a new dataset.
#[derive(Debug)]
pub struct Claim {
    pub(super) folder: PathBuf,
    pub(super) output: PathBuf,
    pub(super) right: Right,
}

/// The lock that prevents others from writing.
#[derive(Debug)]
pub(super) enum Right {
    /// A locked file in the folder.
    Lock(File, Hold),
    /// On a server, an object beside the dataset, after it was created.
    Object(Writer),
}

/// How a staging folder is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// By one process, which is the only one that writes.
    Alone,
    /// By all processes that write parts.
    Together,
}

/// Work that an earlier process began at the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// Nothing.
    No,
    /// A new dataset.
    Create,
    /// An append.
    Append,
}

/// The file in a staging folder that the writing process locks.
const LOCK: &str = "lock";

/// Folders that a process without a plan leaves in a staging folder, apart from a dataset that
/// stepped aside.
const REMAINS: [&str; 3] = ["state", "dataset", SCRATCH];

impl Claim {
    /// Claims `output`. Its parent folder must exist.
    ///
    /// # Errors
    /// If another process holds it, or nothing can be written there. On a server, this is noticed
    /// only when the conversion begins.
    pub fn of(output: &Path) -> Result<Self> {
        let output = &link_target(output);
        let folder = partial(output);
        if is_url(output) {
            let right = Right::Object(Writer::new(output, &folder));
            return Ok(Self { folder, output: output.to_owned(), right });
        }
        refuse_foreign(&folder, &aside(output))?;
        loop {
            fs::create_dir_all(&folder)
                .map_err(|error| Error::io(&folder, "cannot create", error))?;
            // Another process may remove its folder meanwhile, when it ends.
            if let Some(lock) = lock(&folder, Hold::Alone)? {
                let right = Right::Lock(lock, Hold::Alone);
                return Ok(Self { folder, output: output.to_owned(), right });
            }
        }
    }

    /// Joins the processes that write parts of a conversion to `output`. On a server, `writer` is
    /// the id of the process that began it. Returns `None` if nothing was begun there, or it has
    /// ended.
    ///
    /// # Errors
    /// If a process that writes alone holds the output.
    pub fn join(output: &Path, writer: Option<&str>) -> Result<Option<Self>> {
        if !is_begun(output)? {
            return Ok(None);
        }
        let (folder, output) = (partial(output), link_target(output));
        let right = match writer {
            Some(writer) => Right::Object(Writer::named(writer, &output, &folder)),
            None => match lock(&folder, Hold::Together)? {
                Some(lock) => Right::Lock(lock, Hold::Together),
                None => return Ok(None),
            },
        };
        Ok(Some(Self { folder, output, right }))
    }

    /// Claims an output at which `writer` began a conversion whose parts other processes may still
    /// write: see [`of`](Self::of).
    ///
    /// # Errors
    /// The same as those of [`of`](Self::of).
    pub fn of_parts(output: &Path, writer: Option<&str>) -> Result<Self> {
        let mut claim = Self::of(output)?;
        if let (Some(writer), Right::Object(_)) = (writer, &claim.right) {
            claim.right = Right::Object(Writer::named(writer, output, &claim.folder));
        }
        Ok(claim)
    }

    /// Claims `output` if `plan` was begun there and has not ended. On a server, `writer` is the id
    /// of the process that began it.
    ///
    /// # Errors
    /// If another process has claimed the output.
    pub fn left(output: &Path, plan: &str, writer: Option<&str>) -> Result<Option<Self>> {
        if !is_begun(output)? {
            return Ok(None);
        }
        let claim = Self::of_parts(output, writer)?;
        claim.recover()?;
        let has_plan = claim.plan()?.as_deref() == Some(plan);
        Ok(has_plan.then_some(claim))
    }

    /// Removes what a commit of `plan` left beside `output` if it was killed after the dataset
    /// appeared.
    ///
    /// # Errors
    /// If another process has claimed the output, or something cannot be removed.
    pub fn tidy(output: &Path, plan: &str) -> Result<()> {
        let folder = partial(output);
        if let Some(claim) = Self::left(output, plan, None)? {
            return claim.discard();
        }
        // A commit removes its plan first, so a plan that exists here belongs to another process.
        if read_plan(&folder)?.is_some() || output::is_empty(&folder)? {
            return Ok(());
        }
        let claim = Self::of(output)?;
        match &claim.right {
            // Remove nothing that a process needs which begins to append meanwhile.
            Right::Object(writer) => writer.clean(),
            Right::Lock(..) => claim.discard(),
        }
    }

    /// The identity of the conversion that was begun and has not ended.
    ///
    /// # Errors
    /// If its plan cannot be read.
    pub fn plan(&self) -> Result<Option<String>> {
        begun_plan(&self.output)
    }

    /// Whether a conversion was begun but not finished.
    ///
    /// # Errors
    /// If its plan cannot be read, or a repair was begun instead (see [`hold`](Self::hold)).
    pub fn begun(&self) -> Result<Begun> {
        match read_plan(&self.folder)? {
            // A process that was killed before it wrote the plan left nothing to resume.
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

    /// Ends a commit that was killed. If the file system cannot exchange two names at once, the old
    /// dataset was renamed first, and gets its name back. On a server, metadata are copied to their
    /// final places.
    ///
    /// # Errors
    /// If the dataset cannot be renamed, or a request to the server fails.
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

    /// Holds the output for a repair, which can be repeated from its beginning. On a file system,
    /// the lock already holds it.
    ///
    /// # Errors
    /// If something else was begun there, or a request to the server fails.
    pub fn hold(&self) -> Result<HoldGuard<'_>> {
        if let Right::Object(writer) = &self.right
            && !writer.begin(A_REPAIR)?
        {
            match read_plan(&self.folder)? {
                // An earlier repair was killed.
                Some(theirs) if theirs["plan"] == REPAIR => writer.take_over(A_REPAIR)?,
                _ => return Err(self.unfinished()),
            }
        }
        Ok(HoldGuard(self))
    }

    /// Removes what a process without a plan left here. It cannot be resumed.
    pub(super) fn clean(&self) -> Result<()> {
        for remains in REMAINS {
            output::remove_all(&self.folder.join(remains))?;
        }
        output::remove_temporaries(&self.folder)?;
        // The old dataset that was renamed has its name back (`recover`), or a newer dataset has that name.
        if self.output.exists() { output::remove_all(&aside(&self.output)) } else { Ok(()) }
    }

    /// Removes the contents of the folder. Then nothing is left to resume.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn discard(self) -> Result<()> {
        if is_url(&self.output) {
            return server::finish(&self.folder);
        }
        let fail = |error| Error::io(&self.folder, "cannot remove", error);
        // The plan is removed first: without it, no process resumes from a half-removed folder.
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

    /// The error that a conversion can be resumed here.
    pub fn unfinished(&self) -> Error {
        // On a server, finished shards are already in their final places.
        let shards = match self.right {
            Right::Object(_) => format!("{} and the content of ", self.output.display()),
            Right::Lock(..) => String::new(),
        };
        Error::conflict("there is an unfinished conversion here").at(&self.folder).with_remedy(
            remedy![
                "pass ",
                Opt::Resume,
                format!(" to go on with it, or delete {shards}the folder to start over")
            ],
        )
    }
}

/// Holds an output until it is dropped.
#[must_use]
pub struct HoldGuard<'a>(&'a Claim);

impl Drop for HoldGuard<'_> {
    fn drop(&mut self) {
        if let Right::Object(_) = self.0.right {
            // If this fails, the next repair takes over what remains.
            let _ = output::remove(&self.0.folder.join(PLAN));
        }
    }
}

impl Drop for Claim {
    /// Removes the folder, unless there is something to resume.
    fn drop(&mut self) {
        let Right::Lock(held, Hold::Alone) = &self.right else { return };
        let lock = self.folder.join(LOCK);
        // As long as the lock file is this one, no other process can have claimed the folder.
        if !self.folder.join(PLAN).exists() && is_same(held, &lock) {
            let _ = fs::remove_file(lock);
            // Fails if the folder contains anything else. This process must not remove that.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// Refuses a folder of someone else that has the name of a staging folder: its contents would be
/// removed. A process makes the lock of its folder first, and removes it last.
fn refuse_foreign(folder: &Path, aside: &Path) -> Result<()> {
    let is_ours = || [LOCK, PLAN].iter().any(|name| folder.join(name).exists());
    // A process that is killed while it writes the plan leaves an unfinished one.
    let is_remains = |path: &Path| {
        REMAINS.iter().any(|name| path == folder.join(name)) || output::is_temporary_of(PLAN, path)
    };
    let holds_foreign = || {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| path != aside && !is_remains(&path))
    };
    // Another process may make its lock between two looks.
    if is_ours() || !holds_foreign() || is_ours() {
        return Ok(());
    }
    Err(Error::conflict(
        "this folder holds files of others, and hsipack needs its name for what it is writing",
    )
    .at(folder)
    .with_remedy(remedy!["rename it, or choose another ", Opt::Output]))
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
        // Some network file systems have no locks. There, users must make sure that only one process writes.
        Ok(()) | Err(fs::TryLockError::Error(_)) => Ok(is_same(&file, &path).then_some(file)),
    }
}

/// Whether `path` refers to the open file.
fn is_same(file: &File, path: &Path) -> bool {
    let numbers = |meta: fs::Metadata| (meta.dev(), meta.ino());
    let current = fs::metadata(path).map(numbers);
    file.metadata().map(numbers).is_ok_and(|ours| current.is_ok_and(|current| ours == current))
}
