//! Per-band statistics of chosen samples, such as the training samples of one fold of a
//! cross-validation. A conversion records only those of all samples and of each split.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use half::f16;
use half::slice::HalfFloatSliceExt;
use hsipack_format::metadata::Scaling;
use hsipack_format::{DType, Error, Result};
use hsipack_store::{Dataset, threads};

use crate::convert::integers;
use crate::convert::stats::{BandStats, Gatherer, all_finite};
use crate::physical::image_type;
use crate::progress::Progress;

/// Selects the samples.
#[derive(Clone, Debug)]
pub struct StatisticsOptions {
    /// The dataset.
    pub dataset: PathBuf,
    /// Uses the samples that the dataset had when it had this fingerprint; `None` uses its present
    /// samples.
    pub as_of: Option<String>,
    /// Ids of the samples, in any order; all samples if `None`. Each sample counts once.
    pub samples: Option<Vec<usize>>,
    /// Number of threads.
    pub threads: usize,
}

impl StatisticsOptions {
    /// Statistics of all samples, with one thread for each core.
    pub fn new(dataset: impl Into<PathBuf>) -> Self {
        Self {
            dataset: dataset.into(),
            as_of: None,
            samples: None,
            threads: hsipack_store::threads::cores(),
        }
    }
}

/// Computes the statistics of the stored values of the chosen samples, for every stack that has
/// such samples: the stack's number and the statistics, which have no errors of packing. Reads the
/// chosen cubes once. Sets `total` to their size in bytes as soon as it is known.
///
/// The result does not depend on the number of threads. It equals the recorded statistics except
/// for rounding in double precision.
///
/// # Errors
/// If the dataset or a sample does not exist; a chunk cannot be read or is damaged; memory cannot
/// be allocated; or `progress.stop` was set.
pub fn statistics(
    options: &StatisticsOptions,
    progress: &Progress,
    total: &AtomicU64,
) -> Result<Vec<(usize, BandStats)>> {
    let dataset = Dataset::open_to_read(&options.dataset, options.as_of.as_deref())?;
    let ids = chosen(&dataset, options.samples.clone())?;
    let pieces = pieces(&dataset, &ids, total)?;
    let read = |values: &mut Values, piece: &Piece| read(&dataset, piece, values, progress);
    let parts =
        threads::in_turn(options.threads, "statistics", pieces.iter(), Values::default, read)?;
    let mut all: Vec<(usize, BandStats)> = Vec::new();
    for (piece, part) in pieces.iter().zip(parts) {
        match all.iter_mut().find(|(stack, _)| *stack == piece.stack) {
            Some((_, stats)) => stats.merge(&part),
            None => all.push((piece.stack, part)),
        }
    }
    all.sort_unstable_by_key(|(stack, _)| *stack);
    Ok(all)
}

/// The ids of chosen samples, all if `samples` is `None`: in ascending order, each once.
///
/// # Errors
/// If one of them does not exist.
pub(crate) fn chosen(dataset: &Dataset, samples: Option<Vec<usize>>) -> Result<Vec<usize>> {
    let count = dataset.samples().len();
    let mut ids = samples.unwrap_or_else(|| (0..count).collect());
    ids.sort_unstable();
    ids.dedup();
    match ids.iter().find(|id| **id >= count) {
        None => Ok(ids),
        Some(missing) => Err(Error::conflict(format!("there is no sample {missing}"))
            .at(dataset.path())
            .with_remedy(format!("samples are numbered from 0 to {}", count.saturating_sub(1)))),
    }
}

/// Rows of samples of one stack, which one thread reads at a time.
struct Piece {
    stack: usize,
    /// Places of samples in the stack, and rows of each.
    parts: Vec<(usize, Range<usize>)>,
    bytes: u64,
}

/// The least size of a piece in bytes.
const PIECE: u64 = 16 << 20;
/// Every piece has statistics of its own until all are merged. So large datasets have larger
/// pieces, not more.
const PIECES: u64 = 4096;

/// Divides the samples into pieces. A large cube is divided, too, so that all threads share it.
fn pieces(dataset: &Dataset, ids: &[usize], total: &AtomicU64) -> Result<Vec<Piece>> {
    let sizes = dataset.stacks().iter().map(|stack| {
        let image = &stack.image;
        Ok((image.shape().rows, (image.shape().row_values() * image_type(stack)?.size()) as u64))
    });
    let sizes: Vec<(usize, u64)> = sizes.collect::<Result<_>>()?;
    let samples = dataset.samples();
    let bytes = |id: &usize| {
        let (rows, row_bytes) = sizes[samples.stack(*id)];
        rows as u64 * row_bytes
    };
    let sum: u64 = ids.iter().map(bytes).sum();
    total.store(sum, Ordering::Relaxed);
    let enough = PIECE.max(sum / PIECES);
    // The piece of each stack that is not yet large enough.
    let mut open: Vec<Option<Piece>> = sizes.iter().map(|_| None).collect();
    let mut pieces = Vec::new();
    for id in ids {
        let stack = samples.stack(*id);
        let ((rows, row_bytes), grid) = (sizes[stack], dataset.stacks()[stack].image.grid());
        for start in (0..rows).step_by(grid.tile().rows) {
            let part = start..rows.min(start + grid.tile().rows);
            let piece =
                open[stack].get_or_insert_with(|| Piece { stack, parts: Vec::new(), bytes: 0 });
            piece.bytes += part.len() as u64 * row_bytes;
            match piece.parts.last_mut() {
                Some((index, before)) if *index == samples.index(*id) => before.end = part.end,
                _ => piece.parts.push((samples.index(*id), part)),
            }
            if piece.bytes >= enough {
                pieces.extend(open[stack].take());
            }
        }
    }
    pieces.extend(open.into_iter().flatten());
    Ok(pieces)
}

/// The statistics of a piece. `values` is memory that calls share.
fn read(
    dataset: &Dataset,
    piece: &Piece,
    values: &mut Values,
    progress: &Progress,
) -> Result<BandStats> {
    let image = &dataset.stacks()[piece.stack].image;
    let (bands, dtype) = (image.shape().bands, image.meta().dtype);
    let (mut gatherer, mut all) = (Gatherer::new(bands), BandStats::new(bands));
    for (index, rows) in &piece.parts {
        image.each_slab(*index, rows.clone(), &mut |_, bytes| {
            progress.check()?;
            let finite = values.decode(bytes, dtype, image.meta().missing());
            gatherer.add_packed(&values.singles, finite);
            all.merge(&gatherer.take());
            progress.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(())
        })?;
    }
    Ok(all)
}

/// Decoded values.
#[derive(Default)]
struct Values {
    halves: Vec<f16>,
    doubles: Vec<f64>,
    singles: Vec<f32>,
}

impl Values {
    /// Decodes stored values into `singles`, replacing its content. Integers equal to `missing`
    /// become NaN. Returns whether all are finite.
    fn decode(&mut self, bytes: &[u8], dtype: DType, missing: Option<i64>) -> bool {
        let Self { halves, doubles, singles } = self;
        if dtype == DType::F16 {
            halves.clear();
            halves.extend(bytes.as_chunks().0.iter().map(|half| f16::from_le_bytes(*half)));
            singles.resize(halves.len(), 0.0);
            halves.convert_to_f32_slice(singles);
            all_finite(halves)
        } else if !dtype.is_float() {
            integers::read(bytes, dtype, doubles);
            let scaling =
                Scaling { missing: missing.map(|missing| missing as f64), ..Scaling::NONE };
            singles.clear();
            singles.extend(doubles.iter().map(|number| scaling.physical(*number) as f32));
            singles.iter().all(|value| value.is_finite())
        } else {
            singles.clear();
            singles.extend(bytes.as_chunks().0.iter().map(|single| f32::from_le_bytes(*single)));
            singles.iter().all(|value| value.is_finite())
        }
    }
}
