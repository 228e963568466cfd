//! Compares metadata with `SHA256SUMS`, and checks shards and their indexes.

use std::collections::HashSet;
use std::path::Path;

use hsipack_format::checksums::{self, SHA256SUMS};
use hsipack_format::metadata::SAMPLES;
use hsipack_format::samples::index::{Origin, SAMPLES_INDEX};
use hsipack_format::samples::index_of;
use hsipack_format::shard::ShardIndex;
use hsipack_format::{Error, Result};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::remote::{is_url, metadata_place};
use hsipack_store::{Dataset, bounded_read, folder};
use walkdir::WalkDir;

use super::share::Share;
use super::{Problem, ProblemKind, coordinates, is_no_damage};

/// Shards that cannot be read at all: stack, array, number.
pub type Broken = HashSet<(String, String, usize)>;

/// Compares every metadata file with its line in `SHA256SUMS`. Finds lines without a file, and
/// files without a line.
///
/// # Errors
/// If the folder cannot be listed, or a server does not answer.
pub fn check_sums(path: &Path) -> Result<Vec<Problem>> {
    if !is_url(path) {
        return check_sums_at(path, path);
    }
    folder::steadily(path, || check_sums_at(path, &metadata_place(path)?))
}

/// The same as [`check_sums`], for metadata below `metadata_folder`.
fn check_sums_at(path: &Path, metadata_folder: &Path) -> Result<Vec<Problem>> {
    let sums = path.join(SHA256SUMS);
    let problem = |file: &Path, what: &str| Problem::new(ProblemKind::Metadata, file, what);
    let text = match bounded_read::read(&metadata_folder.join(SHA256SUMS), bounded_read::SUMS) {
        Ok(text) => text,
        Err(error) if is_no_damage(&error) => return Err(error),
        Err(error) => return Ok(vec![problem(&sums, error.what())]),
    };
    let lines = match checksums::parse(&text) {
        Ok(lines) => lines,
        Err(error) => return Ok(vec![problem(&sums, error.what())]),
    };
    let mut problems = Vec::new();
    for (file, sum) in &lines {
        let most = if file == SAMPLES { bounded_read::SAMPLES } else { bounded_read::METADATA };
        let (metadata_file, file) = (metadata_folder.join(file), path.join(file));
        match bounded_read::read(&metadata_file, most) {
            Ok(content) if checksums::sha256(&content) == *sum => {}
            Ok(_) => problems.push(problem(&file, "the file does not match SHA256SUMS")),
            Err(error) if is_no_damage(&error) => return Err(error),
            Err(error) => problems.push(problem(&file, error.what())),
        }
    }
    if is_url(path) {
        return Ok(problems);
    }
    let listed: HashSet<&str> = lines.iter().map(|(file, _)| file.as_str()).collect();
    for file in metadata_files(path)? {
        if !listed.contains(file.as_str()) {
            problems.push(problem(&path.join(file), "the file is not listed in SHA256SUMS"));
        }
    }
    Ok(problems)
}

/// Checks that `samples.index`, if it exists, agrees with `samples.jsonl`.
///
/// # Errors
/// If memory cannot be allocated, or a server does not answer.
pub fn check_index(dataset: &Dataset) -> Result<Option<Problem>> {
    let path = dataset.path();
    let metadata_folder = if is_url(path) { metadata_place(path)? } else { path.to_owned() };
    let problem =
        |what: &str| Some(Problem::new(ProblemKind::Index, path.join(SAMPLES_INDEX), what));
    match bounded_read::read_if_there(&metadata_folder.join(SAMPLES_INDEX), bounded_read::SAMPLES) {
        Ok(None) => Ok(None),
        Ok(Some(index)) if index == made_index(dataset)? => Ok(None),
        Ok(Some(index)) => Ok(match Origin::of(&index) {
            Some(origin) if origin.sha256 != dataset.samples().sha256()? => {
                problem("the index belongs to another samples.jsonl, and is not used")
            }
            _ => problem("the index differs from samples.jsonl"),
        }),
        Err(error) if is_no_damage(&error) => Err(error),
        Err(error) => Ok(problem(error.what())),
    }
}

/// The bytes of `samples.index` that a dataset should have.
///
/// # Errors
/// If the text of the samples cannot be read.
pub fn made_index(dataset: &Dataset) -> Result<Vec<u8>> {
    Ok(index_of(dataset.samples(), dataset.samples().sha256()?))
}

/// Every `zarr.json` and `samples.jsonl` below `path`. Shard folders are skipped.
fn metadata_files(path: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let walk = WalkDir::new(path)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| entry.file_name() != "c");
    for entry in walk {
        let entry = entry.map_err(|error| {
            Error::io(
                path,
                "cannot list",
                error
                    .into_io_error()
                    .unwrap_or_else(|| std::io::Error::other("the links form a loop")),
            )
        })?;
        if ["zarr.json", "samples.jsonl"].iter().any(|name| entry.file_name() == *name) {
            let below = entry.path().strip_prefix(path).expect("walked from there");
            files.push(below.to_string_lossy().replace('\\', "/"));
        }
    }
    Ok(files)
}

/// Checks that every shard of a share of the samples exists and that its index is correct: every
/// chunk of every sample is written, there are no others, and the chunks are back to back up to the
/// index. Returns the problems, and the shards that cannot be read at all.
///
/// # Errors
/// If memory cannot be allocated, or a server does not answer. Damage is not an error.
pub fn check_shards(dataset: &Dataset, share: &Share) -> Result<(Vec<Problem>, Broken)> {
    let mut problems = Vec::new();
    let mut broken = Broken::new();
    for (stack_index, stack) in dataset.stacks().iter().enumerate() {
        problems.extend(coordinates::check(dataset, stack_index)?);
        let name = |index| {
            let samples = dataset.samples();
            samples.id_at(stack_index, index).map(|id| samples.name(id).to_owned())
        };
        for array in stack.arrays() {
            if array.meta().chunk_shape.is_none() {
                continue;
            }
            let grid = array.grid();
            let touched =
                (0..array.shards()).filter(|shard| share.touches(stack_index, grid, *shard));
            for shard in touched {
                let found = check_shard(array, shard, &name)?;
                if found
                    .iter()
                    .any(|problem| problem.kind == ProblemKind::Shard && problem.sample.is_some())
                {
                    broken.insert((stack.name.clone(), array.name().to_owned(), shard));
                }
                problems.extend(found.into_iter().map(|mut problem| {
                    problem.stack = Some(stack.name.clone());
                    problem.array = Some(array.name().to_owned());
                    problem.shard = Some(shard);
                    problem
                }));
            }
        }
    }
    Ok((problems, broken))
}

fn check_shard(
    array: &ChunkArray,
    shard: usize,
    name: &dyn Fn(usize) -> Option<String>,
) -> Result<Vec<Problem>> {
    let grid = array.grid();
    let path = array.shard_path(shard);
    let first = shard * grid.samples_per_shard();
    let samples = first..array.len().min(first + grid.samples_per_shard());
    let file = match array.open_shard(shard) {
        Ok(file) => file,
        Err(error) if is_no_damage(&error) => return Err(error),
        // Every sample in the shard is lost.
        Err(error) => {
            let lost = samples.map(|index| Problem {
                index: Some(index),
                sample: name(index),
                ..Problem::of(ProblemKind::Shard, &path, &error)
            });
            return Ok(lost.collect());
        }
    };
    let mut problems = Vec::new();
    let written = samples.len() * grid.chunks_per_sample();
    for (chunk, span) in file.index().0.iter().enumerate() {
        if span.is_none() && chunk < written {
            let index = first + chunk / grid.chunks_per_sample();
            problems.push(Problem {
                index: Some(index),
                sample: name(index),
                chunk: Some(chunk % grid.chunks_per_sample()),
                ..Problem::new(ProblemKind::Chunk, &path, "the chunk was never written")
            });
        }
    }
    if let Some(what) = loose_ends(file.index(), file.data_len()) {
        problems.push(Problem::new(ProblemKind::Shard, &path, what));
    }
    Ok(problems)
}

/// Describes what is wrong with the positions of chunks, if anything: hsipack writes them back to
/// back. There may be chunks of samples that do not exist: an append on a server writes them before
/// it is decided, and may be given up.
fn loose_ends(index: &ShardIndex, data_len: u64) -> Option<String> {
    let mut spans: Vec<_> = index.0.iter().flatten().collect();
    spans.sort_by_key(|span| span.offset);
    let mut end = 0;
    for span in spans {
        if span.offset != end {
            return Some(format!(
                "bytes {end} to {} of the shard belong to no chunk, or to two",
                span.offset
            ));
        }
        end = span.offset + span.len;
    }
    (end != data_len).then(|| format!("bytes {end} to {data_len} of the shard belong to no chunk"))
}
