//! Proof that a packed dataset is intact: structure, checksums, decoding, recorded counts, and, on
//! request, every value against its source.
//!
//! | file | part |
//! |---|---|
//! | `structure.rs` | metadata against `SHA256SUMS`, the index of the samples, shards and their indexes |
//! | `coordinates.rs` | lists of bands; where rows and columns lie, against `samples.jsonl` |
//! | `chunks.rs` | every chunk decoded, by all threads |
//! | `count.rs` | what the decoded values are, to be compared with what was recorded |
//! | `sources.rs` | every value against its source |
//! | `recipe.rs` | how the values were made, as the dataset records it |
//! | `share.rs` | which samples somebody checks |
//! | `parts.rs` | the same by several processes |

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

use hsipack_format::{Command, Error, ErrorKind, Opt, Result, remedy};
use hsipack_store::remote::is_url;
use hsipack_store::{Dataset, folder, memory, mirror, remote, small};
use serde::{Deserialize, Serialize};

use self::share::Share;
use crate::convert::staging::is_unfinished;
use crate::progress::Progress;

/// How much to check.
#[derive(Clone, Debug)]
pub struct ValidateOptions {
    /// Only metadata and shard indexes; no chunk is read.
    pub quick: bool,
    /// Compare every value with its source, too.
    pub source: bool,
    /// Where to look for sources whose recorded path is relative, beside the working directory and
    /// the dataset's folder.
    pub source_root: Option<PathBuf>,
    /// Threads.
    pub jobs: usize,
}

impl Default for ValidateOptions {
    fn default() -> Self {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        Self { quick: false, source: false, source_root: None, jobs }
    }
}

/// What sort of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemKind {
    /// A metadata file: `zarr.json`, `samples.jsonl`, `SHA256SUMS`.
    Metadata,
    /// The index of the samples, which readers then do without.
    Index,
    /// A coordinate array: wavelengths, fwhm; where rows and columns lie.
    Coordinate,
    /// A whole shard: missing, cut short, or its index.
    Shard,
    /// One chunk.
    Chunk,
    /// Values that differ from what was recorded of them.
    Record,
    /// Values that differ from their source.
    Source,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Problem {
    /// What sort of thing.
    pub kind: ProblemKind,
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// The stack, where one is concerned.
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

/// What a validation found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The dataset.
    pub dataset: PathBuf,
    /// Whether nothing is wrong, as far as was checked.
    pub ok: bool,
    /// What was checked: `quick`, `full` or `source`.
    pub checked: &'static str,
    /// Samples in the dataset.
    pub samples: usize,
    /// Chunks that were decoded.
    pub chunks: u64,
    /// Their bytes uncompressed.
    pub bytes: u64,
    /// Samples compared with their sources.
    pub sources: usize,
    /// Seconds it took.
    pub seconds: f64,
    /// Everything that is wrong, in the order of the files.
    pub problems: Vec<Problem>,
    /// Names of samples with a damaged chunk or shard, in order.
    pub damaged_samples: Vec<String>,
    /// What could not be checked, such as sources that are not there.
    pub unchecked: Vec<String>,
}

/// Checks the dataset at `path`, which may be a URL. Files that `SHA256SUMS` does not list are not looked for on a server.
///
/// # Errors
/// If it is no dataset, cannot be read at all, or the check was stopped. Damage is no error but in the
/// report.
pub fn validate(path: &Path, options: &ValidateOptions, progress: &Progress) -> Result<Report> {
    let _inputs = mirror::session();
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

/// A report of what is at `path`, where nothing was looked at yet.
fn new_report(path: &Path, options: &ValidateOptions) -> Result<Report> {
    let parts = ["zarr.json", "samples.jsonl", hsipack_format::checksums::SHA256SUMS];
    if is_url(path) {
        // The error of a server that refuses, or has nothing there.
        small::read(&path.join(parts[0]), small::METADATA)?;
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

/// Adds problems of metadata and shard indexes to the report; gives the dataset, if it can be opened.
fn look(path: &Path, report: &mut Report) -> Result<Option<Opened>> {
    // Again if others are appended meanwhile: what is found of two datasets is wrong of both.
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
        None => report.unchecked.push("the chunks, since the metadata cannot be read".into()),
    }
    Ok(opened)
}

/// Whether an error says nothing of the data: there is no memory, or a server does not serve.
fn is_no_damage(error: &Error) -> bool {
    memory::refused(error) || remote::is_away(error)
}

/// The error of a check that the user stopped.
fn stopped() -> Error {
    Error::new(ErrorKind::Interrupted, "stopped")
}

/// What was found of a share of the samples, beside what metadata and indexes show.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    /// By stack.
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

/// Looks into the chunks of a share of the samples, as thoroughly as the options say. `known` are problems that metadata and
/// indexes have.
fn inspect(
    dataset: &Dataset,
    share: &Share,
    known: &[Problem],
    broken: &structure::Broken,
    options: &ValidateOptions,
    progress: &Progress,
) -> Result<Found> {
    let mut found = Found::default();
    if options.quick {
        return Ok(found);
    }
    found.chunks = chunks::check(dataset, share, known, broken, options.jobs, progress)?;
    if options.source {
        let problems = found.chunks.iter().flat_map(chunks::StackFound::problems);
        let damaged = known.iter().chain(problems).filter_map(|problem| problem.sample.clone());
        found.sources = sources::check(dataset, share, &damaged.collect(), options, progress)?;
    }
    Ok(found)
}

/// Adds to the report what was found of all samples, and how it compares with what is recorded of them together.
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
    let mut seen = std::collections::HashSet::new();
    report.problems.retain(|problem| seen.insert(problem.clone()));
    let mut names = std::collections::HashSet::new();
    report.damaged_samples = report
        .problems
        .iter()
        .filter_map(|problem| problem.sample.clone())
        .filter(|name| names.insert(name.clone()))
        .collect();
    report.ok = report.problems.is_empty();
    report.seconds = start.elapsed().as_secs_f64();
}
