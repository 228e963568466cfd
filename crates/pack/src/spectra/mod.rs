//! Spectra of regions: the mean or median spectrum of the pixels of each class of a mask, for every
//! cube.
//!
//! | file | job |
//! |---|---|
//! | `options.rs` | which spectra to compute |
//! | `regions.rs` | the regions in a cube's mask, and the pixels of each |
//! | `sums.rs` | mean and standard deviation; previews use them too |
//! | `median.rs` | exact medians |
//! | `cube.rs` | reads the pixels of one cube, chunk after chunk, and computes the statistics of its regions |
//! | `parts.rs` | the same with several processes |
//! | `table.rs` | the rows of all cubes, with columns that describe the samples |
//! | `columns.rs` | columns that describe samples, each of one type |
//! | `output.rs`, `csv.rs`, `parquet.rs` | write the table to a file |
//!
//! Values are physical, in double precision, and only finite ones count. Several threads read
//! cubes, but each cube is read by one thread from its first row to its last, so the result does
//! not depend on the number of threads.

mod columns;
mod csv;
mod cube;
mod median;
mod options;
mod output;
#[cfg(feature = "parquet")]
mod parquet;
pub mod parts;
mod regions;
mod sums;
mod table;

use hsipack_format::{Error, Result};
use hsipack_store::{Dataset, threads};

use crate::export::find_mask;
use crate::progress::Progress;
use crate::statistics::chosen;

pub use columns::{Column, Values};
pub use options::{SpectraOptions, Statistic};
pub use output::Output;
pub use sums::{Curve, Spectrum};
pub use table::{Row, Table};

use cube::CubeReader;

/// Computes the spectra of all regions of the selected samples.
///
/// # Errors
/// If the dataset, a split, a sample or the mask does not exist; a chunk cannot be read or is
/// damaged; memory cannot be allocated; or `progress.stop` was set.
pub fn spectra(options: &SpectraOptions, progress: &Progress) -> Result<Table> {
    let dataset = Dataset::open_to_read(&options.dataset, options.as_of.as_deref())?;
    let samples = choose(&dataset, options)?;
    look(&dataset, options, &samples)?;
    let rows = rows_of(&dataset, options, &samples, progress)?;
    Table::new(&dataset, options, samples.len(), rows)
}

/// Checks that all samples have the mask.
fn look(dataset: &Dataset, options: &SpectraOptions, samples: &[usize]) -> Result<()> {
    let mut stacks: Vec<usize> = samples.iter().map(|id| dataset.samples().stack(*id)).collect();
    stacks.sort_unstable();
    stacks.dedup();
    stacks
        .into_iter()
        .try_for_each(|stack| find_mask(dataset, &dataset.stacks()[stack], &options.mask).map(drop))
}

/// The spectra of these samples, in their order.
fn rows_of(
    dataset: &Dataset,
    options: &SpectraOptions,
    samples: &[usize],
    progress: &Progress,
) -> Result<Vec<Row>> {
    let reader = CubeReader { dataset, options, progress };
    let read = |(): &mut (), id: &usize| reader.regions(*id);
    let cubes = threads::in_turn(options.threads, "spectra", samples.iter(), || (), read)?;
    Ok(cubes.into_iter().flatten().collect())
}

/// Ids of the selected samples, in ascending order.
fn choose(dataset: &Dataset, options: &SpectraOptions) -> Result<Vec<usize>> {
    let mut ids = chosen(dataset, options.samples.clone())?;
    let samples = dataset.samples();
    let at = |error: Error| error.at(dataset.path());
    if !options.splits.is_empty() {
        ids = samples.in_splits(ids, &options.splits).map_err(at)?;
    }
    match &options.condition {
        Some(condition) => samples.matching(ids, condition).map_err(at),
        None => Ok(ids),
    }
}
