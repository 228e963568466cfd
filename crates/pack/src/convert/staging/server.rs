//! Writing on a server, which has neither folders that can be renamed nor locks.
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
//! **One writes.** `plan.json` is put on condition that there is none. A process that resumes puts its own in that place; the
//! one before finds that out before each shard is noted as finished, before the commit, and before anything is deleted.
//!
//! **The commit of a new dataset** is to put `zarr.json` on condition that there is none, after a look that all shards
//! are there. It holds a random number, so that a lost answer can be told from another writer's success.
//!
//! **An append** overwrites the last shard of a stack by one that has the same chunks at the same places and others behind
//! them, which is still the old dataset's shard. Metadata would be neither the old dataset's nor the new one's while they
//! are overwritten one by one. So all of them are put beside the dataset first, and then `commit.json`, on condition that
//! there is none: from then on the append is done, and readers take metadata from there
//! (`hsipack_store::folder::decided`). They are copied to their places, and `OUT.partial` is deleted. Should the process
//! end before that, whoever writes next does it.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};

use hsipack_format::checksums::SHA256SUMS;
use hsipack_format::geo::cf;
use hsipack_format::metadata::SAMPLES;
use hsipack_format::samples::index::SAMPLES_INDEX;
use hsipack_format::{Error, Opt, Result, remedy};
use hsipack_store::folder::{DECIDED, DECIDED_METADATA};
use hsipack_store::{output, small};
use serde_json::{Value, json};

use super::{PLAN, Shards, is_there, read_plan};

/// The right to write an output on a server.
#[derive(Debug)]
pub(super) struct Writer {
    /// Nobody else has the same.
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

    /// One of those who write parts of what `id` began, or who ends that.
    pub(super) fn named(id: &str, output: &Path, folder: &Path) -> Self {
        Self { id: id.to_owned(), folder: folder.to_owned(), output: output.to_owned() }
    }

    /// A number that nobody else writes.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    fn plan_of(&self, plan: &str, append: bool) -> String {
        json!({ "plan": plan, "append": append, "writer": self.id }).to_string()
    }

    /// Begins what nobody else has begun; whether nobody has.
    pub(super) fn begin(&self, plan: &str, append: bool) -> Result<bool> {
        output::create_object(&self.folder.join(PLAN), self.plan_of(plan, append).as_bytes())
    }

    /// Deletes what a process left here that has no plan any more.
    pub(super) fn clean(&self) -> Result<()> {
        output::remove_all(&self.folder.join("state"))?;
        output::remove_all(&self.folder.join(DECIDED_METADATA))
    }

    /// Goes on with what another process began, which then finds that it is not wanted any more.
    pub(super) fn take_over(&self, plan: &str, append: bool) -> Result<()> {
        output::write_whole(&self.folder.join(PLAN), self.plan_of(plan, append).as_bytes())
    }

    /// Makes sure that no other process has taken over.
    pub(super) fn check(&self) -> Result<()> {
        match read_plan(&self.folder)? {
            Some(plan) if plan["writer"] == self.id.as_str() => Ok(()),
            _ => Err(Error::conflict(
                "another process goes on with this conversion, or has discarded it",
            )
            .at(&self.folder)
            .with_remedy(
                "wait for it to finish; look for other machines that run the same command",
            )),
        }
    }

    /// Puts metadata of a new dataset in their places.
    pub(super) fn put(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        files
            .iter()
            .try_for_each(|(file, content)| output::write_whole(&self.output.join(file), content))
    }

    /// Makes a new dataset one: puts the root's metadata, the last object.
    pub(super) fn commit(&self, root: &str, content: &[u8]) -> Result<()> {
        match output::create_object(&self.output.join(root), content)? {
            true => Ok(()),
            false => Err(Error::conflict("another process made a dataset here meanwhile")
                .at(&self.output)
                .with_remedy(remedy!["look at it, or choose another ", Opt::Output])),
        }
    }

    /// Puts metadata that a dataset will have after an append beside it.
    pub(super) fn stage(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        let staged = self.folder.join(DECIDED_METADATA);
        files
            .iter()
            .try_for_each(|(file, content)| output::write_whole(&staged.join(file), content))
    }

    /// Makes an append the dataset, whose metadata `files` were put beside it. The arrays `dropped` go.
    pub(super) fn decide<'f>(
        &self,
        files: impl Iterator<Item = &'f str>,
        dropped: &[PathBuf],
    ) -> Result<()> {
        let files: Vec<&str> = files.collect();
        let decided = json!({ "writer": self.id, "files": files, "dropped": dropped }).to_string();
        if !output::create_object(&self.folder.join(DECIDED), decided.as_bytes())? {
            return Err(Error::conflict("another process has finished an append here meanwhile")
                .at(&self.output)
                .with_remedy("look at the dataset, and append again what is missing"));
        }
        settle(&self.output, &self.folder)
    }

    /// Makes sure that all shards are there: not that somebody deleted some meanwhile.
    pub(super) fn check_shards(&self, shards: &Shards) -> Result<()> {
        let there: BTreeSet<PathBuf> = output::list(&self.output)?.into_iter().collect();
        match shards.all.iter().map(|shard| self.output.join(shard)).find(|shard| !there.contains(shard)) {
            None => Ok(()),
            Some(shard) => Err(Error::conflict("a shard that was uploaded is not there any more").at(shard).with_remedy(
                "look who deletes objects there; delete what is left in the .partial folder, and convert again",
            )),
        }
    }

    /// Deletes what was uploaded of a dataset, or an append, that will not be, and what is known of it; the right to write
    /// is given up. Nothing is deleted that another process goes on with, or that readers find.
    pub(super) fn abandon(&self, shards: &Shards, append: bool) -> Result<()> {
        self.check()?;
        if is_decided(&self.folder)? || (!append && is_there(&self.output)?) {
            return Ok(());
        }
        // Records first: no resumed conversion may take a shard for finished that is deleted here.
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

/// Puts the metadata of a decided append in their places, and deletes arrays that it leaves away and what was beside the
/// dataset. Can be done again.
pub(super) fn settle(output: &Path, folder: &Path) -> Result<()> {
    let Some(decided) = decision(folder)? else { return Ok(()) };
    let names = |key: &str| decided[key].as_array().into_iter().flatten().filter_map(Value::as_str);
    // Whoever looks whether anything changed looks at SHA256SUMS.
    let (sums, others): (Vec<&str>, Vec<&str>) =
        names("files").partition(|name| *name == SHA256SUMS);
    for array in names("dropped").filter(|array| is_geo_array(array)) {
        output::remove_all(&output.join(array))?;
    }
    for name in others.into_iter().chain(sums) {
        let content = small::read(&folder.join(DECIDED_METADATA).join(name), small::SAMPLES)?;
        output::write_whole(&output.join(name), &content)?;
    }
    finish(folder)
}

/// Whether it is the path of an array that an append may leave away: whoever may write there could name anything.
fn is_geo_array(path: &str) -> bool {
    path.split_once('/').is_some_and(|(stack, array)| {
        !["", ".", ".."].contains(&stack) && cf::NAMES.contains(&array)
    })
}

/// Whether an append was decided and not settled.
pub(super) fn is_decided(folder: &Path) -> Result<bool> {
    Ok(decision(folder)?.is_some())
}

fn decision(folder: &Path) -> Result<Option<Value>> {
    let file = folder.join(DECIDED);
    let Some(text) = small::read_if_there(&file, small::METADATA)? else { return Ok(None) };
    let broken = |_| Error::damaged("not what hsipack writes").at(&file);
    serde_json::from_slice(&text).map(Some).map_err(broken)
}

/// Deletes what is beside a dataset that is whole.
pub(super) fn finish(folder: &Path) -> Result<()> {
    // Without the plan, nothing that is left is resumed; without the decision, metadata are where they belong.
    output::remove(&folder.join(PLAN))?;
    output::remove(&folder.join(DECIDED))?;
    output::remove_all(folder)
}
