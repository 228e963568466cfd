//! Checks that a packed dataset is intact: structure, checksums, decoding, recorded counts, and, if
//! requested, every value against its source.
//!
//! | file | part |
//! |---|---|
//! | `structure.rs` | metadata against `SHA256SUMS`, the index of the samples, shards and their indexes |
//! | `coordinates.rs` | lists of bands; coordinates of rows and columns, against `samples.jsonl` |
//! | `chunks.rs` | decodes every chunk, with several threads |
//! | `count.rs` | counts the decoded values, to compare them with what was recorded |
//! | `sources.rs` | compares every value with its source |
//! | `recipe.rs` | how the values were made, as the dataset records it |
//! | `share.rs` | which samples a process checks |
//! | `parts.rs` | the same with several processes |

mod chunks;
pub(crate) mod coordinates;
pub(crate) mod count;
pub mod parts;
pub(crate) mod recipe;
pub(crate) mod reproduction;
mod share;
mod sources;
pub(crate) mod structure;

use std::path::{Path, PathBuf};
use std::time::Instant;

#[cfg(feature = "clap")]
use hsipack_format::arguments::count;
use hsipack_format::{Command, Error, ErrorKind, Opt, Result, remedy};
use hsipack_store::remote::is_url;
use hsipack_store::threads::cores;
use hsipack_store::{Dataset, bounded_read, folder, memory, remote};
use serde::{Deserialize, Serialize};

use self::share::Share;
use crate::convert::staging::is_unfinished;
use crate::progress::Progress;
use crate::session::Session;

/// How much to check. The feature `clap` makes these options arguments of `hsipack validate`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct ValidateOptions {
    /// Check only metadata and shard indexes, without reading chunks
    #[cfg_attr(feature = "clap", arg(long, conflicts_with = "source"))]
    pub quick: bool,
    /// Compare every value with its source: they must agree within half an fp16 step after the
    /// recorded scaling
    #[cfg_attr(feature = "clap", arg(long))]
    pub source: bool,
    /// Also look for sources in this folder if their path is relative. The working directory is
    /// searched before it, and the folder that contains the dataset after it
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR", requires = "source"))]
    pub source_root: Option<PathBuf>,
    /// Number of threads [default: one per core]
    #[cfg_attr(feature = "clap", arg(short = 'j', long, alias = "jobs", value_parser = count(1..=1024), default_value_t = cores(), hide_default_value = true))]
    pub threads: usize,
}

impl Default for ValidateOptions {
    fn default() -> Self {
        Self { quick: false, source: false, source_root: None, threads: cores() }
    }
}

/// The kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemKind {
    /// A metadata file: `zarr.json`, `samples.jsonl`, `SHA256SUMS`.
    Metadata,
    /// The index of the samples. Readers do not use an index that has a problem.
    Index,
    /// A coordinate array: wavelengths, fwhm, or the coordinates of rows and columns.
    Coordinate,
    /// A whole shard that is missing or truncated, or its index.
    Shard,
    /// One chunk.
    Chunk,
    /// Values that differ from the recorded statistics.
    Record,
    /// Values that differ from their source.
    Source,
}

/// A problem that was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// Its kind.
    pub kind: ProblemKind,
    /// The file.
    pub path: PathBuf,
    /// The problem.
    pub what: String,
    /// The stack, if the problem concerns one.
    pub stack: Option<String>,
    /// The array in the stack.
    pub array: Option<String>,
    /// The shard of the array.
    pub shard: Option<usize>,
    /// The sample's index in the stack.
    pub index: Option<usize>,
    /// The sample's name.
    pub sample: Option<String>,
    /// The chunk of the sample.
    pub chunk: Option<usize>,
}

impl Problem {
    fn new(kind: ProblemKind, path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self {
            kind,
            path: path.into(),
            what: what.into(),
            stack: None,
            array: None,
            shard: None,
            index: None,
            sample: None,
            chunk: None,
        }
    }

    fn of(kind: ProblemKind, fallback: &Path, error: &Error) -> Self {
        Self::new(kind, error.path().unwrap_or(fallback), error.what())
    }
}

/// The result of a validation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: PathBuf,
    /// Whether no problem was found, as far as was checked.
    pub ok: bool,
    /// Depth of the check: `quick`, `full` or `source`.
    pub checked: &'static str,
    /// Number of samples in the dataset.
    pub samples: usize,
    /// Number of chunks that were decoded.
    pub chunks: u64,
    /// Their uncompressed bytes.
    pub bytes: u64,
    /// Number of samples that were compared with their sources.
    pub sources: usize,
    /// Seconds that it took.
    pub seconds: f64,
    /// All problems, in the order of the files.
    pub problems: Vec<Problem>,
    /// Names of samples with a damaged chunk or shard, in order.
    pub damaged_samples: Vec<String>,
    /// Checks that were not possible, such as of samples whose sources are missing.
    pub unchecked: Vec<String>,
}

/// Checks the dataset at `path`, which may be a URL. On a server, files that `SHA256SUMS` does not
/// list are not searched for.
///
/// # Errors
/// If it is not a dataset, cannot be read at all, or the check was stopped. Damage is not an error;
/// it is in the report.
pub fn validate(path: &Path, options: &ValidateOptions, progress: &Progress) -> Result<Report> {
    let _inputs = Session::begin();
    let start = Instant::now();
    let mut report = new_report(path, options)?;
    if let Some((dataset, broken)) = look(path, &mut report)? {
        let share = Share::whole(&dataset);
        let found = inspect(&dataset, &share, &report.problems, &broken, options, progress)?;
        conclude(&dataset, &broken, found, &mut report);
    }
    finish(&mut report, start);
    Ok(report)
}

/// An empty report on the dataset at `path`.
fn new_report(path: &Path, options: &ValidateOptions) -> Result<Report> {
    let parts = ["zarr.json", "samples.jsonl", hsipack_format::checksums::SHA256SUMS];
    if is_url(path) {
        // Gives the error of a server that refuses the request or has no object there.
        bounded_read::read(&path.join(parts[0]), bounded_read::METADATA)?;
    } else if !parts.iter().any(|part| path.join(part).is_file()) {
        let partial = is_unfinished(path);
        let error = Error::new(
            ErrorKind::Malformed,
            if partial { "an unfinished conversion" } else { "not a packed dataset" },
        );
        let remedy = if partial {
            remedy!["finish it with ", Command::Convert.with(Opt::Resume)]
        } else {
            remedy!["give the folder that ", Command::Convert, " wrote"]
        };
        return Err(if path.exists() {
            error.at(path).with_remedy(remedy)
        } else {
            Error::new(ErrorKind::Io, "no such folder").at(path).with_remedy("check the path")
        });
    }
    Ok(Report {
        dataset: path.to_owned(),
        ok: false,
        checked: match options {
            ValidateOptions { quick: true, .. } => "quick",
            ValidateOptions { source: true, .. } => "source",
            _ => "full",
        },
        samples: 0,
        chunks: 0,
        bytes: 0,
        sources: 0,
        seconds: 0.0,
        problems: Vec::new(),
        damaged_samples: Vec::new(),
        unchecked: Vec::new(),
    })
}

/// A dataset that can be opened, with its broken shards.
type Opened = (Dataset, structure::Broken);

/// Adds problems of metadata and shard indexes to the report. Returns the dataset, if it can be
/// opened.
fn look(path: &Path, report: &mut Report) -> Result<Option<Opened>> {
    let path = &*remote::pinned(path)?;
    // Repeated if cubes are appended meanwhile: results from two states of the dataset would be wrong for both.
    let (problems, opened) = folder::steadily(path, || {
        let mut problems = structure::check_sums(path)?;
        match Dataset::open_unverified(path) {
            Ok(dataset) => {
                problems.extend(structure::check_index(&dataset)?);
                let (found, broken) = structure::check_shards(&dataset, &Share::whole(&dataset))?;
                problems.extend(found);
                Ok((problems, Some((dataset, broken))))
            }
            Err(error) if is_no_damage(&error) => Err(error),
            Err(error) => {
                problems.push(Problem::of(ProblemKind::Metadata, path, &error));
                Ok((problems, None))
            }
        }
    })?;
    report.problems = problems;
    match &opened {
        Some((dataset, _)) => report.samples = dataset.samples().len(),
        None => report.unchecked.push("the chunks, because the metadata cannot be read".into()),
    }
    Ok(opened)
}

/// Whether an error does not concern the data: memory cannot be allocated, a file may not be read,
/// or a server does not answer.
fn is_no_damage(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    let is_denied = source
        .is_some_and(|error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied);
    memory::refused(error) || remote::is_away(error) || is_denied
}

/// The error for a check that the user stopped.
fn stopped() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped")
}

/// Results for a share of the samples, except for problems of metadata and indexes.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    /// One entry for each stack.
    chunks: Vec<chunks::StackFound>,
    sources: sources::Found,
}

impl Found {
    fn merged(mut self, other: Self) -> Self {
        chunks::merge_stacks(&mut self.chunks, other.chunks);
        self.sources.merge(other.sources);
        self
    }

    fn bytes(&self) -> u64 {
        self.chunks.iter().map(|stack| stack.bytes).sum()
    }
}

/// Checks the chunks of a share of the samples, as thoroughly as the options require.
/// `earlier_problems` are those of metadata and indexes.
fn inspect(
    dataset: &Dataset,
    share: &Share,
    earlier_problems: &[Problem],
    broken: &structure::Broken,
    options: &ValidateOptions,
    progress: &Progress,
) -> Result<Found> {
    let mut found = Found::default();
    if options.quick {
        return Ok(found);
    }
    found.chunks =
        chunks::check(dataset, share, earlier_problems, broken, options.threads, progress)?;
    if options.source {
        let problems = found.chunks.iter().flat_map(chunks::StackFound::problems);
        let damaged =
            earlier_problems.iter().chain(problems).filter_map(|problem| problem.sample.clone());
        found.sources = sources::check(dataset, share, &damaged.collect(), options, progress)?;
    }
    Ok(found)
}

/// Adds to the report what was found in all samples, and compares it with what is recorded about
/// all of them together.
fn conclude(dataset: &Dataset, broken: &structure::Broken, found: Found, report: &mut Report) {
    for (stack, found) in dataset.stacks().iter().zip(found.chunks) {
        report.chunks += found.chunks;
        report.bytes += found.bytes;
        let bands = found.compare_bands(stack, broken);
        report.problems.extend(found.into_problems(bands));
    }
    let sources::Found { problems, unchecked, samples } = found.sources.sorted();
    report.problems.extend(problems.into_iter().map(|(_, problem)| problem));
    report.unchecked.extend(unchecked.into_iter().map(|(_, what)| what));
    report.sources = samples;
}

fn finish(report: &mut Report, start: Instant) {
    let mut unique = std::collections::HashSet::new();
    report.problems.retain(|problem| unique.insert(problem.clone()));
    let mut names = std::collections::HashSet::new();
    report.damaged_samples = report
        .problems
        .iter()
        .filter(|problem| problem.kind != ProblemKind::Source)
        .filter_map(|problem| problem.sample.clone())
        .filter(|name| names.insert(name.clone()))
        .collect();
    report.ok = report.problems.is_empty();
    report.seconds = start.elapsed().as_secs_f64();
}
