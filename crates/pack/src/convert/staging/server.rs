//! Writes to a server, which has no folders that can be renamed, and no locks.
//!
//! ```text
//! OUT.partial/plan.json            what is being done, and who does it
//! OUT.partial/state/STACK/K.json   one for every finished shard: its statistics
//! OUT.partial/metadata/            of an append: the metadata that OUT will have
//! OUT.partial/commit.json          of an append: that it is decided
//! OUT/STACK/ARRAY/c/…              shards, under their own names
//! OUT/zarr.json                    the last object of a new dataset, which makes it one
//! ```
//!
//! **Only one process writes.** `plan.json` is created only if it does not exist. A process that
//! resumes replaces it with its own. A process that has created it looks at the output again:
//! another one may have finished, and deleted its `plan.json`, after it was looked at first. The
//! earlier process checks for this before it records a shard as finished, before the commit, and
//! before it deletes anything.
//!
//! **The commit of a new dataset** first checks that all shards exist, and then creates
//! `zarr.json`, only if it does not exist. This object contains a random number. If the server's
//! answer is lost, the number shows whether another writer created it.
//!
//! **An append** overwrites the last shard of a stack. The new shard has the same chunks at the
//! same places, followed by more chunks, so it is still valid for the old dataset. But if metadata
//! were overwritten one by one, they would meanwhile be neither those of the old dataset nor those
//! of the new one. So all of them are first written beside the dataset, and then `commit.json` is
//! created, only if it does not exist. From then on the append is done, and readers take metadata
//! from there (`hsipack_store::folder::decided`). The metadata are then copied to their final
//! places, and `OUT.partial` is deleted. If the process ends before that, the next process that
//! writes there does it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::geo::cf;
use hsipack_format::metadata::SAMPLES;
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::folder::{DECIDED, DECIDED_METADATA};
use hsipack_store::{bounded_read, output};
use serde_json::{Value, json};

use super::plan_file::{About, PLAN, Shards, is_there, read_plan};
use crate::convert::conflicts::output_exists;

/// The right to write an output on a server.
#[derive(Debug)]
pub(super) struct Writer {
    /// A number that no other process has.
    id: String,
    folder: PathBuf,
    output: PathBuf,
}

impl Writer {
    pub(super) fn new(output: &Path, folder: &Path) -> Self {
        let random = || RandomState::new().build_hasher().finish();
        let id = format!("{:016x}{:016x}", random(), random());
        Self { id, folder: folder.to_owned(), output: output.to_owned() }
    }

    /// The writer of a process that writes parts of what `id` began, or that ends it.
    pub(super) fn named(id: &str, output: &Path, folder: &Path) -> Self {
        Self { id: id.to_owned(), folder: folder.to_owned(), output: output.to_owned() }
    }

    /// The number that no other process writes.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Begins the work if no other process has begun here. Returns whether it did.
    pub(super) fn begin(&self, about: About<'_>) -> Result<bool> {
        let text = about.text(Some(&self.id));
        output::create_object(&self.folder.join(PLAN), text.as_bytes())
    }

    /// Checks that the output is still as it was when the work was planned: nothing, or the dataset
    /// to add to.
    pub(super) fn check_output(&self, about: About<'_>) -> Result<()> {
        let Some(base) = about.base else {
            return if is_there(&self.output)? { Err(output_exists(&self.output)) } else { Ok(()) };
        };
        let sums = bounded_read::read(&self.output.join(SHA256SUMS), bounded_read::SUMS)?;
        if checksums::sha256(&sums) == base {
            return Ok(());
        }
        Err(Error::conflict("another process has changed the dataset in the meantime")
            .at(&self.output)
            .with_remedy("run the command again"))
    }

    /// Gives up the right to write, before anything was written.
    pub(super) fn withdraw(&self) -> Result<()> {
        self.check()?;
        output::remove(&self.folder.join(PLAN))
    }

    /// Deletes what a process without a plan left here.
    pub(super) fn clean(&self) -> Result<()> {
        output::remove_all(&self.folder.join("state"))?;
        output::remove_all(&self.folder.join(DECIDED_METADATA))
    }

    /// Takes over what another process began. That process then notices that it must stop.
    pub(super) fn take_over(&self, about: About<'_>) -> Result<()> {
        let text = about.text(Some(&self.id));
        output::write_whole(&self.folder.join(PLAN), text.as_bytes())
    }

    /// Checks that no other process has taken over.
    pub(super) fn check(&self) -> Result<()> {
        match read_plan(&self.folder)? {
            Some(plan) if plan["writer"] == self.id.as_str() => Ok(()),
            _ => Err(Error::conflict(
                "another process has taken over this conversion, or has discarded it",
            )
            .at(&self.folder)
            .with_remedy(
                "wait for it to finish; check whether another machine runs the same command",
            )),
        }
    }

    /// Writes files of a dataset to their final places.
    pub(super) fn put(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        files
            .iter()
            .try_for_each(|(file, content)| output::write_whole(&self.output.join(file), content))
    }

    /// Commits a new dataset: writes the metadata of the root, its last object.
    pub(super) fn commit(&self, root: &str, content: &[u8]) -> Result<()> {
        match output::create_object(&self.output.join(root), content)? {
            true => Ok(()),
            false => {
                Err(Error::conflict("another process has written a dataset here in the meantime")
                    .at(&self.output)
                    .with_remedy(remedy!["check that dataset, or choose another ", Opt::Output]))
            }
        }
    }

    /// Writes the metadata that a dataset will have after an append to a place beside it.
    pub(super) fn stage(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        let staged = self.folder.join(DECIDED_METADATA);
        files
            .iter()
            .try_for_each(|(file, content)| output::write_whole(&staged.join(file), content))
    }

    /// Commits an append whose metadata `files` are beside the dataset. Deletes the arrays
    /// `dropped`.
    pub(super) fn decide<'f>(
        &self,
        files: impl Iterator<Item = &'f str>,
        dropped: &[PathBuf],
    ) -> Result<()> {
        let files: Vec<&str> = files.collect();
        let decided = json!({ "writer": self.id, "files": files, "dropped": dropped }).to_string();
        if !output::create_object(&self.folder.join(DECIDED), decided.as_bytes())? {
            return Err(Error::conflict(
                "another process has finished an append here in the meantime",
            )
            .at(&self.output)
            .with_remedy("check the dataset, and append the missing cubes again"));
        }
        settle(&self.output, &self.folder)
    }

    /// Checks that all shards still exist, in case another process deleted some.
    pub(super) fn check_shards(&self, shards: &Shards) -> Result<()> {
        let existing: BTreeSet<PathBuf> = output::list(&self.output)?.into_iter().collect();
        match shards.all.iter().map(|shard| self.output.join(shard)).find(|shard| !existing.contains(shard)) {
            None => Ok(()),
            Some(shard) => Err(Error::conflict("an uploaded shard no longer exists").at(shard).with_remedy(
                "find out what deletes objects there, delete the rest of the .partial folder, and convert again",
            )),
        }
    }

    /// Deletes what was uploaded of a dataset or an append that is given up, and its records. Gives
    /// up the right to write. Nothing is deleted that another process goes on with, or that readers
    /// can find.
    pub(super) fn abandon(&self, shards: &Shards, append: bool) -> Result<()> {
        self.check()?;
        if is_decided(&self.folder)? || (!append && is_there(&self.output)?) {
            return Ok(());
        }
        // Records are deleted first, so that no resumed conversion treats a shard as finished that is deleted here.
        self.clean()?;
        self.check()?;
        for stack in &shards.new_stacks {
            output::remove_all(&self.output.join(stack))?;
        }
        for shard in &shards.added {
            output::remove(&self.output.join(shard))?;
        }
        if !append {
            for file in [SAMPLES, SAMPLES_INDEX, SHA256SUMS] {
                output::remove(&self.output.join(file))?;
            }
        }
        finish(&self.folder)
    }
}

/// Copies the metadata of a decided append to their final places. Deletes arrays that the append
/// drops, and everything beside the dataset. It can be repeated.
pub(super) fn settle(output: &Path, folder: &Path) -> Result<()> {
    let Some(decided) = decision(folder)? else { return Ok(()) };
    let names = |key: &str| decided[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    // SHA256SUMS is written last, because readers check it for changes.
    let (sums, others): (Vec<&str>, Vec<&str>) =
        names("files").partition(|name| *name == SHA256SUMS);
    for array in names("dropped").filter(|array| is_geo_array(array)) {
        output::remove_all(&output.join(array))?;
    }
    for name in others.into_iter().chain(sums) {
        let content =
            bounded_read::read(&folder.join(DECIDED_METADATA).join(name), bounded_read::SAMPLES)?;
        output::write_whole(&output.join(name), &content)?;
    }
    finish(folder)
}

/// Whether an append may delete this path, that of an array with coordinates. The check is needed
/// because anyone who can write there could name any path.
fn is_geo_array(path: &str) -> bool {
    path.split_once('/').is_some_and(|(stack, array)| {
        !["", ".", ".."].contains(&stack) && cf::NAMES.contains(&array)
    })
}

/// Whether an append was decided but not settled.
pub(super) fn is_decided(folder: &Path) -> Result<bool> {
    Ok(decision(folder)?.is_some())
}

fn decision(folder: &Path) -> Result<Option<Value>> {
    let file = folder.join(DECIDED);
    let Some(text) = bounded_read::read_if_there(&file, bounded_read::METADATA)? else {
        return Ok(None);
    };
    let broken = |_| Error::damaged("hsipack did not write this file").at(&file);
    serde_json::from_slice(&text).map(Some).map_err(broken)
}

/// Deletes everything beside a complete dataset.
pub(super) fn finish(folder: &Path) -> Result<()> {
    // Without the plan, nothing that remains is resumed. Without the decision, readers take metadata from their final
    // places.
    output::remove(&folder.join(PLAN))?;
    output::remove(&folder.join(DECIDED))?;
    output::remove_all(folder)
}
