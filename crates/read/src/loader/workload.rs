//! Workload and cache of a loader, computed without its memory and its threads.

use super::blocks::groups_of;
use super::cache_choice::CacheChoice;
use crate::dataset::Dataset;
use crate::plan::{Plan, chunks_touched};

/// The data that a loader reads, and its cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Ids of the samples that are read, each once. With windows, only the samples that have some.
    pub samples: Vec<usize>,
    /// How many windows each sample has; 1 if cubes are read whole.
    pub counts: Vec<u32>,
    /// How many chunks a window lies in, on average.
    pub chunks: f64,
    /// How often a chunk of the images is decoded while all windows come once, on average, if
    /// nothing is kept.
    pub decoded: f64,
    /// The cache policy, as [`Loader::cache`](super::Loader::cache) reports it.
    pub cache: CacheChoice,
}

impl Workload {
    /// The workload for a plan of this dataset, of which these bands are read.
    pub(crate) fn new(
        dataset: &Dataset,
        plan: &Plan,
        bands: Option<&[usize]>,
        cache: CacheChoice,
    ) -> Self {
        let (mut touched, mut chunks) = (0.0, 0.0);
        let groups = groups_of(dataset, bands);
        for (sample, items) in plan.samples().iter().zip(plan.counts()) {
            let stack = dataset.stack_of(sample.sample).expect("planned among those that exist");
            let grid = dataset.image(stack).grid();
            let groups = groups[stack] as f64;
            let cube_chunks = (grid.down() * grid.across()) as f64 * groups;
            let (rows, columns) = plan.window_size(sample);
            let each = match rows >= sample.rows && columns >= sample.columns {
                true => cube_chunks,
                false => (chunks_touched(grid, (rows, columns)) * groups).min(cube_chunks),
            };
            touched += f64::from(*items) * each;
            chunks += cube_chunks;
        }
        let workload = Self {
            samples: plan.samples().iter().map(|sample| sample.sample).collect(),
            counts: plan.counts().to_vec(),
            chunks: 0.0,
            decoded: touched / f64::max(chunks, 1.0),
            cache,
        };
        Self { chunks: touched / workload.windows().max(1) as f64, ..workload }
    }

    /// Number of windows of all samples.
    pub fn windows(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }
}
