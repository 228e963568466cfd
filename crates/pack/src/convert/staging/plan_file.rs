//! The file that says what is being done at an output.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};
use hsipack_store::folder::partial;
use hsipack_store::remote::is_url;
use hsipack_store::{bounded_read, output};
use serde_json::{Value, json};

/// The shards that a conversion writes, as paths below the dataset.
#[derive(Clone, Debug, Default)]
pub struct Shards {
    /// All shards.
    pub all: Vec<PathBuf>,
    /// New shards of existing stacks, without those that replace an existing shard.
    pub added: Vec<PathBuf>,
    /// Stacks that did not exist before.
    pub new_stacks: Vec<String>,
}

/// Description of the running work, for other processes.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// Identifies the conversion.
    pub plan: &'a str,
    /// Whether it adds to a dataset.
    pub append: bool,
    /// The request of the command (`request.rs`).
    pub requested: &'a Value,
    /// The fingerprint of the dataset that it adds to.
    pub base: Option<&'a str>,
}

impl About<'_> {
    /// The text of the plan's file. On a server, `writer` is the process that may write.
    pub(super) fn text(&self, writer: Option<&str>) -> String {
        let Self { plan, append, requested, .. } = self;
        let mut text = json!({ "plan": plan, "append": append, "asked": requested });
        if let Some(writer) = writer {
            text["writer"] = writer.into();
        }
        text.to_string()
    }
}

/// A repair, which cannot be resumed.
pub(super) const A_REPAIR: About<'_> =
    About { plan: REPAIR, append: false, requested: &Value::Null, base: None };

/// The identity of a repair on a server. Other plans have a hash as their identity.
pub(super) const REPAIR: &str = "repair";
/// The file in the staging folder that says what is being done.
pub(super) const PLAN: &str = "plan.json";
/// The folder for working files in a staging folder.
pub(super) const SCRATCH: &str = "scratch";

/// Whether `folder` is the staging folder of an unfinished conversion.
pub(crate) fn is_unfinished(folder: &Path) -> bool {
    folder.join(PLAN).is_file()
}

/// Whether a conversion or a repair was begun at `output` and has not ended.
///
/// # Errors
/// If a request to the server fails.
pub(super) fn is_begun(output: &Path) -> Result<bool> {
    output::exists(&partial(output).join(PLAN))
}

/// The identity of the conversion or repair that was begun at `output` and has not ended.
///
/// # Errors
/// If its plan cannot be read.
pub fn begun_plan(output: &Path) -> Result<Option<String>> {
    let plan = read_plan(&partial(output))?;
    Ok(plan.and_then(|plan| plan["plan"].as_str().map(str::to_owned)))
}

/// The error that `folder` is of another conversion than the planned one.
pub fn other_begun(folder: &Path) -> Error {
    Error::conflict("another conversion than the planned one was begun here")
        .at(folder)
        .with_remedy("check what else writes there, and plan again when it has finished")
}

/// The running work, if it is known.
pub(super) fn read_plan(folder: &Path) -> Result<Option<Value>> {
    read_json(&folder.join(PLAN))
}

/// The content of a file or object; `None` if it is missing or not complete.
fn read_json(file: &Path) -> Result<Option<Value>> {
    let text = bounded_read::read_if_there(file, bounded_read::SAMPLES)?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Whether there is a dataset, or anything else, at the path of an output.
///
/// # Errors
/// If a request to the server fails.
pub fn is_there(output: &Path) -> Result<bool> {
    if is_url(output) { output::exists(&output.join("zarr.json")) } else { output::exists(output) }
}
