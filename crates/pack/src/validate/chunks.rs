//! Decodes every chunk, with several threads, and compares the values with the recorded statistics.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering;

use hsipack_format::{Result, Sample, Samples};
use hsipack_store::dataset::ChunkArray;
use hsipack_store::threads::{self, Pool};
use hsipack_store::{Dataset, Stack, memory};
use rayon::iter::{ParallelBridge, ParallelIterator};
use serde::{Deserialize, Serialize};

use super::count::{self, Counts};
use super::share::Share;
use super::structure::Broken;
use super::{Problem, ProblemKind, is_no_damage, stopped};
use crate::convert::stats::{BandStats, StackStats};
use crate::progress::Progress;

/// The values of the chunks of one stack's image.
#[derive(Default)]
struct Found {
    /// Counts of each band.
    bands: Vec<Counts>,
    /// Counts of each band, over the samples of each split.
    splits: BTreeMap<String, Vec<Counts>>,
    samples: HashMap<usize, Counts>,
    problems: Vec<Problem>,
    chunks: u64,
    bytes: u64,
}

/// Results for the chunks of a share of one stack's samples.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StackFound {
    /// Damaged chunks, by array: the image, then masks and companions.
    damaged: Vec<Vec<Problem>>,
    /// Samples whose values differ from what was recorded.
    records: Vec<Problem>,
    /// Counts of each band of the image.
    bands: Vec<Counts>,
    /// Counts of each band, over the samples of each split.
    splits: BTreeMap<String, Vec<Counts>>,
    /// Number of chunks that were decoded.
    pub chunks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl StackFound {
    /// All problems, except those of statistics over all samples.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.damaged.iter().flatten().chain(&self.records)
    }

    /// The problem of the statistics over all samples, if there is one and no chunk of the image is
    /// damaged.
    pub fn compare_bands(&self, stack: &Stack, broken: &Broken) -> Option<Problem> {
        let image = stack.image.name();
        let lost = broken.iter().any(|(name, of, _)| *name == stack.name && of == image);
        let whole = !lost && self.damaged.first().is_none_or(Vec::is_empty);
        whole.then(|| compare_bands(stack, &self.bands, &self.splits)).flatten()
    }

    /// All problems in the order of the files. `bands` is the problem of the statistics.
    pub fn into_problems(mut self, bands: Option<Problem>) -> impl Iterator<Item = Problem> {
        let position = |problem: &Problem| (problem.index, problem.chunk);
        self.damaged.iter_mut().for_each(|damaged| damaged.sort_by_key(position));
        self.records.sort_by_key(position);
        let mut arrays = self.damaged.into_iter();
        let image = arrays.next().into_iter().flatten();
        image.chain(self.records).chain(bands).chain(arrays.flatten())
    }
}

/// Adds what was found in other samples of each stack.
pub fn merge_stacks(all: &mut Vec<StackFound>, part: Vec<StackFound>) {
    all.resize_with(part.len(), StackFound::default);
    for (all, part) in all.iter_mut().zip(part) {
        all.damaged.resize(part.damaged.len(), Vec::new());
        for (all, part) in all.damaged.iter_mut().zip(part.damaged) {
            all.extend(part);
        }
        all.records.extend(part.records);
        merge_bands(&mut all.bands, &part.bands);
        for (split, bands) in part.splits {
            merge_bands(all.splits.entry(split).or_default(), &bands);
        }
        all.chunks += part.chunks;
        all.bytes += part.bytes;
    }
}

/// Decodes every chunk of a share of the samples, except those of broken shards. `earlier_problems`
/// are problems that were found before.
///
/// # Errors
/// If a thread cannot be started, memory cannot be allocated, a server does not answer, or
/// `progress.stop` was set.
pub fn check(
    dataset: &Dataset,
    share: &Share,
    earlier_problems: &[Problem],
    broken: &Broken,
    threads: usize,
    progress: &Progress,
) -> Result<Vec<StackFound>> {
    let pool = threads::pool(threads, "validate")?;
    let samples = dataset.samples();
    let check = |(stack_index, stack): (usize, &Stack)| {
        let of = StackSamples { stack, stack_index, samples, share };
        let mut all = StackFound::default();
        for array in stack.arrays() {
            let found = check_array(of, array, broken, &pool, progress)?;
            all.chunks += found.chunks;
            all.bytes += found.bytes;
            if array.name() == stack.image.name() {
                let damaged = earlier_problems.iter().chain(&found.problems);
                all.records = compare_samples(dataset, stack_index, &found.samples, damaged)?;
                (all.bands, all.splits) = (found.bands, found.splits);
            }
            all.damaged.push(found.problems);
        }
        Ok(all)
    };
    dataset.stacks().iter().enumerate().map(check).collect()
}

/// The samples whose chunks are checked.
#[derive(Clone, Copy)]
struct StackSamples<'a> {
    stack: &'a Stack,
    /// Its index among the dataset's stacks.
    stack_index: usize,
    samples: &'a Samples,
    share: &'a Share,
}

impl<'a> StackSamples<'a> {
    fn name(self, index: usize) -> Option<&'a str> {
        self.samples.id_at(self.stack_index, index).map(|id| self.samples.name(id))
    }

    fn split(self, index: usize) -> Option<&'a str> {
        let id = self.samples.id_at(self.stack_index, index)?;
        self.samples.splits().get(id).map(String::as_str)
    }
}

fn check_array<'a>(
    of: StackSamples<'a>,
    array: &'a ChunkArray,
    broken: &Broken,
    pool: &Pool,
    progress: &Progress,
) -> Result<Found> {
    let is_broken =
        |shard: usize| broken.contains(&(of.stack.name.clone(), array.name().to_owned(), shard));
    let per_sample = array.grid().chunks_per_sample();
    let check = |worker: Option<Worker<'a>>,
                 (index, chunk): (usize, usize)|
     -> Result<Option<Worker<'a>>> {
        if progress.stop.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        let mut worker = worker.map_or_else(|| Worker::new(of, array), Ok)?;
        if !is_broken(array.grid().locate(index).0) {
            if chunk == 0 {
                // The next sample is also requested, so that there is always a request on the way to the server.
                for index in index..array.len().min(index + 2) {
                    array
                        .ask_ahead(index)
                        .or_else(|error| if is_no_damage(&error) { Err(error) } else { Ok(()) })?;
                }
            }
            worker.check(index, chunk)?;
            progress.bytes_in.fetch_add(array.chunk_bytes() as u64, Ordering::Relaxed);
        }
        Ok(Some(worker))
    };
    let both = |first: Option<Worker<'a>>, second: Option<Worker<'a>>| {
        Ok(match (first, second) {
            (Some(mut first), Some(second)) => {
                merge(&mut first.found, second.found);
                Some(first)
            }
            (first, second) => first.or(second),
        })
    };
    // Chunks are checked in the order in which they are in the files. Each goes to the next free thread.
    let samples = of.share.places(of.stack_index).take_while(|index| *index < array.len());
    let chunks = samples.flat_map(|index| (0..per_sample).map(move |chunk| (index, chunk)));
    let chunks = chunks.par_bridge();
    let worker = pool.install(|| chunks.try_fold(|| None, check).try_reduce(|| None, both))?;
    if progress.stop.load(Ordering::Relaxed) {
        return Err(stopped());
    }
    let mut found = worker.map_or_else(|| Found::new(array), |worker| worker.found);
    found.problems.sort_by_key(|problem| (problem.index, problem.chunk));
    Ok(found)
}

impl Found {
    fn new(array: &ChunkArray) -> Self {
        Self { bands: vec![Counts::EMPTY; array.shape().bands], ..Self::default() }
    }
}

fn merge(all: &mut Found, part: Found) {
    for (all, part) in all.bands.iter_mut().zip(&part.bands) {
        all.merge(part);
    }
    for (split, bands) in part.splits {
        merge_bands(all.splits.entry(split).or_default(), &bands);
    }
    for (index, counts) in part.samples {
        all.samples.entry(index).or_insert(Counts::EMPTY).merge(&counts);
    }
    all.problems.extend(part.problems);
    all.chunks += part.chunks;
    all.bytes += part.bytes;
}

fn merge_bands(all: &mut Vec<Counts>, part: &[Counts]) {
    all.resize(part.len(), Counts::EMPTY);
    all.iter_mut().zip(part).for_each(|(all, part)| all.merge(part));
}

/// The state of one thread.
struct Worker<'a> {
    of: StackSamples<'a>,
    array: &'a ChunkArray,
    found: Found,
    stored: Vec<u8>,
    /// Decoded bytes, aligned for their element type.
    decoded: Vec<u64>,
    bands: Vec<Counts>,
}

impl<'a> Worker<'a> {
    fn new(of: StackSamples<'a>, array: &'a ChunkArray) -> Result<Self> {
        Ok(Self {
            of,
            array,
            found: Found::new(array),
            stored: Vec::new(),
            decoded: memory::zeroed(array.chunk_bytes().div_ceil(8), "a chunk")?,
            bands: vec![Counts::EMPTY; array.grid().band_group()],
        })
    }

    /// Memory that cannot be allocated, or a server that does not answer, is an error, not damage.
    fn check(&mut self, index: usize, chunk: usize) -> Result<()> {
        let decoded = &mut bytemuck::cast_slice_mut(&mut self.decoded)[..self.array.chunk_bytes()];
        if let Err(error) = self.array.read_chunk(index, chunk, &mut self.stored, decoded) {
            if is_no_damage(&error) {
                return Err(error);
            }
            self.found.problems.push(Problem {
                stack: Some(self.of.stack.name.clone()),
                array: Some(self.array.name().to_owned()),
                shard: Some(self.array.grid().locate(index).0),
                index: Some(index),
                sample: self.of.name(index).map(str::to_owned),
                chunk: Some(chunk),
                ..Problem::of(ProblemKind::Chunk, self.array.folder(), &error)
            });
            return Ok(());
        }
        self.found.chunks += 1;
        self.found.bytes += decoded.len() as u64;
        // Statistics are recorded for images only: any bits of a mask are valid class ids, and any float is one of a companion.
        if self.array.name() == self.of.stack.image.name() {
            self.count(index, chunk);
        }
        Ok(())
    }

    fn count(&mut self, index: usize, chunk: usize) {
        let grid = self.array.grid();
        let (dtype, missing) = (self.array.meta().dtype, self.array.meta().missing());
        let region = grid.region(chunk);
        let pixel = grid.band_group() * dtype.size();
        let decoded: &[u8] = bytemuck::cast_slice(&self.decoded);
        self.bands.fill(Counts::EMPTY);
        if region.columns.len() == grid.tile().columns {
            // The rows of the chunk are whole rows of the cube, so they can be counted at once.
            let values = region.rows.len() * region.columns.len() * pixel;
            count::add(&decoded[..values], dtype, missing, &mut self.bands);
        } else {
            for row in decoded.chunks_exact(grid.tile().columns * pixel).take(region.rows.len()) {
                count::add(&row[..region.columns.len() * pixel], dtype, missing, &mut self.bands);
            }
        }
        let sample = self.found.samples.entry(index).or_insert(Counts::EMPTY);
        // Bands beyond the last one of the cube are not counted.
        let (bands, all) = (&self.bands[..region.bands.len()], grid.shape().bands);
        bands.iter().for_each(|band| sample.merge(band));
        let merge_group = |counts: &mut Vec<Counts>| {
            counts.resize(all, Counts::EMPTY);
            let of_chunk = &mut counts[region.bands.clone()];
            of_chunk.iter_mut().zip(bands).for_each(|(all, part)| all.merge(part));
        };
        merge_group(&mut self.found.bands);
        if let Some(split) = self.of.split(index) {
            match self.found.splits.get_mut(split) {
                Some(counts) => merge_group(counts),
                None => merge_group(self.found.splits.entry(split.to_owned()).or_default()),
            }
        }
    }
}

/// Samples whose chunks are intact, but whose values differ from what was recorded.
fn compare_samples<'a>(
    dataset: &Dataset,
    stack: usize,
    found: &HashMap<usize, Counts>,
    damaged: impl Iterator<Item = &'a Problem>,
) -> Result<Vec<Problem>> {
    let file = dataset.path().join(hsipack_format::metadata::SAMPLES);
    let damaged: HashSet<&str> = damaged.filter_map(|problem| problem.sample.as_deref()).collect();
    let differs = |sample: &Sample, counts: &Counts| {
        let range = (counts.finite > 0).then_some([counts.min, counts.max]);
        (sample.nan, sample.inf, sample.range) != (counts.nan, counts.inf, range)
    };
    let samples = dataset.samples();
    let looked_at = samples.ids_in(stack).filter_map(|id| {
        // The sample's line is read only if its chunks were read.
        found.get(&samples.index(id)).map(|counts| Ok((samples.get(id)?, counts)))
    });
    let wrong = |(sample, counts): (Sample, &Counts)| differs(&sample, counts).then_some(sample);
    let wrong = looked_at.filter_map(|looked_at| looked_at.map(wrong).transpose());
    let wrong = wrong.collect::<Result<Vec<_>>>()?;
    let problems =
        wrong.into_iter().filter(|sample| !damaged.contains(sample.name.as_str())).map(|sample| {
            Problem {
                stack: Some(sample.stack),
                index: Some(sample.index),
                sample: Some(sample.name),
                ..Problem::new(
                    ProblemKind::Record,
                    &file,
                    "the cube's range or its number of NaN differs from what is recorded",
                )
            }
        });
    Ok(problems.collect())
}

/// The bands whose values differ from the statistics of the stack, or of one of its splits.
fn compare_bands(
    stack: &Stack,
    bands: &[Counts],
    splits: &BTreeMap<String, Vec<Counts>>,
) -> Option<Problem> {
    stack.image.meta().own()?;
    let what = match StackStats::of(stack.image.meta()) {
        Ok(stats) => differing_band(&stats.all, bands)
            .map(|band| format!("the recorded statistics of band {band} do not match its values"))
            .or_else(|| differing_split(&stats, splits)),
        Err(error) => Some(error.what().to_owned()),
    };
    let path = stack.image.folder().join("zarr.json");
    what.map(|what| Problem {
        stack: Some(stack.name.clone()),
        ..Problem::new(ProblemKind::Record, path, what)
    })
}

/// The problem of the statistics of splits, if there is one. A split need not have statistics.
fn differing_split(stats: &StackStats, found: &BTreeMap<String, Vec<Counts>>) -> Option<String> {
    stats.splits.iter().find_map(|(split, stats)| match found.get(split) {
        None => Some(format!("statistics are recorded for split {split:?}, which has no samples")),
        Some(counts) => differing_band(stats, counts).map(|band| {
            format!(
                "the recorded statistics of split {split:?}, band {band}, do not match its values"
            )
        }),
    })
}

fn differing_band(stats: &BandStats, found: &[Counts]) -> Option<usize> {
    stats.0.iter().zip(found).position(|(stats, counts)| {
        let recorded = (stats.count, stats.nan, stats.inf, stats.min, stats.max);
        recorded != (counts.finite, counts.nan, counts.inf, counts.min, counts.max)
    })
}
