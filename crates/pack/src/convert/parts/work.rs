//! The second step: any number of processes write shards, with a receipt for each.

use std::path::{Path, PathBuf};
use std::time::Instant;

#[cfg(feature = "clap")]
use hsipack_format::arguments::bytes;
use hsipack_format::{Command, Error, ErrorKind, Opt, Result, remedy};
use hsipack_store::folder::partial;
use hsipack_store::threads::cores;
use hsipack_store::{Dataset, mirror};
use serde::Serialize;

use super::file::PlanFile;
use super::part::Part;
#[cfg(feature = "clap")]
use crate::convert::arguments;
use crate::convert::engine;
use crate::convert::options::{BUFFER, Resources};
use crate::convert::plan::Plan;
use crate::convert::request::CommandRecord;
use crate::convert::run;
use crate::convert::staging::{Claim, Staging, begun_plan, other_begun, recorded};
use crate::progress::Progress;
use crate::session::Session;

/// Options of one worker.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct WorkOptions {
    /// Pack part I of N, counted from 1 [default: all remaining shards]
    #[cfg_attr(feature = "clap", arg(long, value_name = "I/N", default_value_t = Part::WHOLE, hide_default_value = true))]
    pub part: Part,
    /// Number of threads [default: one per core]
    #[cfg_attr(feature = "clap", arg(short = 'j', long, alias = "jobs", value_parser = arguments::threads(), default_value_t = cores(), hide_default_value = true))]
    pub threads: usize,
    /// Memory for reading, for all threads together; more makes transposing large scenes faster
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", value_parser = bytes, default_value = "256MiB"))]
    pub buffer_size: usize,
    /// Whether this process may change its working directory to that of the plan, if paths are
    /// relative.
    #[cfg_attr(feature = "clap", arg(skip))]
    pub change_folder: bool,
}

impl WorkOptions {
    /// Default options for a part.
    pub fn new(part: Part) -> Self {
        Self { part, threads: cores(), buffer_size: BUFFER, change_folder: false }
    }
}

/// The result of a worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkReport {
    /// The dataset that is being written.
    pub output: String,
    /// The part, such as `1/16`.
    pub part: String,
    /// Number of shards of this part.
    pub shards: usize,
    /// Number of shards that this worker wrote. The others already had receipts.
    pub written: usize,
    /// Number of shards of all parts that have no receipt yet.
    pub left: usize,
    /// Bytes of the values of this part's cubes, as stored in their files.
    pub bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Whether the dataset already existed.
    pub already_complete: bool,
}

/// The progress of a planned conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// Number of planned shards.
    pub shards: usize,
    /// Number of shards that have receipts.
    pub done: usize,
    /// Whether the dataset has been committed.
    pub committed: bool,
}

/// A plan that was read and parsed.
pub(super) struct Opened {
    pub plan: Plan,
    pub output: PathBuf,
    pub record: CommandRecord,
    pub append: bool,
    pub identity: String,
    pub writer: Option<String>,
}

impl Opened {
    /// Reads the plan in `file`.
    pub fn read(file: &Path, change_folder: bool) -> Result<Self> {
        let read = PlanFile::read(file)?;
        if let Some(folder) = &read.folder {
            enter(folder, file, change_folder)?;
        }
        let (output, append) = (read.output.clone(), read.append);
        let (identity, writer) = (read.identity.clone(), read.writer.clone());
        let (plan, record) = read.into_plan().map_err(|error| error.at(file))?;
        Ok(Self { plan, output, record, append, identity, writer })
    }

    pub fn is_done(&self) -> bool {
        run::is_done(&self.output, &self.record.request)
    }

    /// The dataset to which cubes are appended. It must be the one that the plan was made for.
    pub fn base(&self) -> Result<Option<Dataset>> {
        let base = if self.append { Some(Dataset::open(&self.output)?) } else { None };
        if run::identity(&self.record.request, &self.plan, base.as_ref()) != self.identity {
            return Err(Error::conflict("the dataset has changed since the plan was made")
                .at(&self.output)
                .with_remedy("delete the .partial folder beside it, and plan again"));
        }
        Ok(base)
    }

    /// The error for an output at which nothing was begun.
    pub fn nothing_begun(&self) -> Error {
        Error::conflict(
            "no conversion was begun here: it was discarded, or another command completed it",
        )
        .at(&self.output)
        .with_remedy(remedy!["plan it again with ", Command::Convert.with(Opt::Plan)])
    }
}

/// Changes to the folder to which relative paths refer.
fn enter(folder: &Path, plan: &Path, change: bool) -> Result<()> {
    if std::env::current_dir().is_ok_and(|here| here == folder) {
        return Ok(());
    }
    if change {
        return std::env::set_current_dir(folder).map_err(|error| {
            Error::io(
                folder,
                "cannot change to the folder that the plan's relative paths start from",
                error,
            )
        });
    }
    Err(Error::conflict(format!(
        "the plan has relative paths, which start from {}",
        folder.display()
    ))
    .at(plan)
    .with_remedy("run the command in that folder, or plan with absolute paths"))
}

/// Writes the shards of a part of the conversion planned in `file`, except those that have
/// receipts. `planned` is called with the number of bytes to read.
///
/// # Errors
/// If the plan is damaged, or another conversion was begun at the output; if a cube has changed
/// since, or cannot be read; if a shard cannot be written. Finished shards are kept.
pub fn work(
    file: &Path,
    options: &WorkOptions,
    progress: &Progress,
    planned: &dyn Fn(u64),
) -> Result<WorkReport> {
    let _inputs = Session::begin();
    work_here(file, options, progress, planned).map_err(mirror::error_with_urls)
}

fn work_here(
    file: &Path,
    options: &WorkOptions,
    progress: &Progress,
    planned: &dyn Fn(u64),
) -> Result<WorkReport> {
    let start = Instant::now();
    let mut opened = Opened::read(file, options.change_folder)?;
    let resources = Resources { threads: options.threads, buffer_size: options.buffer_size };
    let shards = options.part.of(engine::shards_of(&opened.plan)).count();
    let mut report = WorkReport {
        output: opened.output.display().to_string(),
        part: options.part.to_string(),
        shards,
        written: 0,
        left: 0,
        bytes: 0,
        seconds: 0.0,
        already_complete: false,
    };
    let Some(claim) = Claim::join(&opened.output, opened.writer.as_deref())? else {
        report.already_complete = opened.is_done();
        return if report.already_complete { Ok(report) } else { Err(opened.nothing_begun()) };
    };
    let base = opened.base()?;
    let samples = engine::samples_of(&opened.plan, options.part);
    for sample in samples {
        let sample = &mut opened.plan.samples[sample];
        sample.input = sample.input.clone().here()?;
        report.bytes += sample.value_bytes();
    }
    planned(report.bytes);
    let Opened { plan, append, identity, .. } = &opened;
    let staging = Staging::of_parts(claim, identity, *append, engine::shards(plan))?;
    let base = base.as_ref();
    let done = engine::run_part(plan, resources, &staging, base, progress, options.part);
    report.written = done.map_err(|error| match error.kind() {
        ErrorKind::Interrupted => error.with_remedy(remedy![
            "shards that were finished are kept; run ",
            Command::Work,
            " again to go on"
        ]),
        _ => error,
    })?;
    let recorded = staging.recorded()?;
    let is_left =
        |(stack, shard): &(&str, usize)| !recorded.contains(&((*stack).to_owned(), *shard));
    report.left = engine::shards_of(plan).filter(is_left).count();
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Returns a function that reports the progress of the conversion planned in `file`. It can be
/// called repeatedly.
///
/// # Errors
/// If the plan cannot be read. The returned function fails if receipts cannot be listed, or the
/// conversion was discarded, or another one was begun in its place.
pub fn state(file: &Path, change_folder: bool) -> Result<impl Fn() -> Result<State>> {
    let opened = Opened::read(file, change_folder)?;
    let all: Vec<(String, usize)> =
        engine::shards_of(&opened.plan).map(|(stack, shard)| (stack.to_owned(), shard)).collect();
    let folder = partial(&opened.output);
    Ok(move || {
        let shards = all.len();
        let begun = begun_plan(&opened.output)?;
        if begun.as_ref() != Some(&opened.identity) {
            return match begun {
                _ if opened.is_done() => Ok(State { shards, done: shards, committed: true }),
                Some(_) => Err(other_begun(&folder)),
                None => Err(opened.nothing_begun()),
            };
        }
        let recorded = recorded(&folder)?;
        let done = all.iter().filter(|shard| recorded.contains(*shard)).count();
        Ok(State { shards, done, committed: false })
    })
}
