//! Reads rows of a conversion's inputs as they would be packed. They are spread over all inputs,
//! within a budget.
//!
//! Which rows are read depends only on the plan and the budget, not on threads, memory or time.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use half::f16;
use hsipack_format::{CubeShape, DType, Error, ErrorKind, Result};
use hsipack_store::threads;

use super::{Counts, Information};
use crate::convert::ValueOptions;
use crate::convert::cast;
use crate::convert::plan::pieces::{Opened, Piece, Room};
use crate::convert::plan::{Plan, PlannedSample};

/// The most values that `--keep-bits auto` reads. It reads at least one row of each cube, even if
/// that is more.
pub const PLAN_BUDGET: Budget = Budget { values: 32 << 20, cubes: 4096, blocks: 8 };

/// How much of the inputs to read.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The most values in total. Of each cube, whole rows are read, at least one.
    pub values: usize,
    /// The most cubes, evenly spread over the inputs.
    pub cubes: usize,
    /// The most runs of adjacent rows of a cube, evenly spread over its height.
    pub blocks: usize,
}

/// Adjacent rows of a cube.
#[derive(Debug)]
pub struct Block<'a> {
    /// The cube.
    pub sample: &'a PlannedSample,
    /// The rows.
    pub rows: Range<usize>,
    /// Shape of the whole cube as packed.
    pub shape: CubeShape,
    /// Their values before the cast, in (row, column, band) order.
    pub values: &'a [f32],
}

/// Calls `each` for blocks of rows of the planned cubes, with `threads` threads. The results are in
/// the order of the blocks.
///
/// # Errors
/// If a cube cannot be read, a thread cannot be started, `each` fails, or `stop` was set.
pub fn map_blocks<T: Send>(
    plan: &Plan,
    values: &ValueOptions,
    budget: Budget,
    threads: usize,
    stop: &AtomicBool,
    each: impl Fn(Block) -> Result<T> + Send + Sync,
) -> Result<Vec<T>> {
    let cubes = plan.samples.len().min(budget.cubes.max(1));
    let shape = |sample: &PlannedSample| plan.stacks[sample.stack].grid.shape();
    let cut = |number: usize| {
        let sample = &plan.samples[number * plan.samples.len() / cubes];
        let cube = Opened::new(sample, values, plan.stacks[sample.stack].scale)?;
        let shape = shape(sample);
        let rows = (budget.values / cubes / shape.row_values()).clamp(1, shape.rows);
        Ok(cube.pieces(spread(rows, shape.rows, budget.blocks).collect()))
    };
    let pieces = (0..cubes).flat_map(|number| match cut(number) {
        Ok(pieces) => pieces.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error)],
    });
    let state = || (Room::default(), Vec::new());
    let work = |(room, block): &mut (Room, Vec<f32>), piece: Result<Piece<'_>>| {
        let Piece { cube, reads } = piece?;
        let read_block = |rows: Range<usize>| {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped"));
            }
            block.clear();
            cube.read(rows.clone(), room, &mut |values| block.extend_from_slice(values))?;
            each(Block { sample: cube.sample, rows, shape: shape(cube.sample), values: block })
        };
        reads.into_iter().map(read_block).collect::<Result<Vec<T>>>()
    };
    let found = threads::pool(threads, "sample")?.in_turn(pieces, state, work)?;
    Ok(found.into_iter().flatten().collect())
}

/// About `count` of `height` rows (all if `count` is `height`) in up to `blocks` runs, each in the
/// middle of its part of the height.
fn spread(count: usize, height: usize, blocks: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = blocks.clamp(1, count.max(1));
    (0..blocks).map(move |block| {
        let part = |rows: usize| block * rows / blocks..(block + 1) * rows / blocks;
        let share = part(height);
        let len = part(count).len().min(share.len());
        let start = share.start + (share.len() - len) / 2;
        start..start + len
    })
}

/// The real information in the bits of the planned cubes, measured in a sample of their rows.
///
/// # Errors
/// The same as those of [`map_blocks`].
pub fn measure(
    plan: &Plan,
    values: &ValueOptions,
    threads: usize,
    stop: &AtomicBool,
) -> Result<Information> {
    let width = values.dtype().size() * 8;
    let count = |block: Block| {
        let (columns, bands) = (block.shape.columns, block.shape.bands);
        let mut counts = Counts::new(width);
        if values.dtype() == DType::F32 {
            counts.add_f32(bytemuck::cast_slice(block.values), columns, bands);
        } else {
            let mut packed = vec![f16::ZERO; block.values.len()];
            cast::from_f32(block.values, &mut packed);
            counts.add_f16(bytemuck::cast_slice(&packed), columns, bands);
        }
        Ok(counts)
    };
    let mut all = Counts::new(width);
    let found = map_blocks(plan, values, PLAN_BUDGET, threads, stop, count)?;
    found.iter().for_each(|counts| all.merge(counts));
    Ok(all.information())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_lie_in_the_cube_and_do_not_overlap(height in 1usize..500, part in 0.0f64..1.0, blocks in 1usize..20) {
            let count = ((height as f64 * part) as usize).clamp(1, height);
            let runs: Vec<_> = spread(count, height, blocks).collect();
            let rows: usize = runs.iter().map(Range::len).sum();
            prop_assert!(rows <= count && rows > count - blocks.min(count));
            prop_assert!(rows == count || count < height);
            prop_assert!(runs.iter().all(|run| !run.is_empty() && run.end <= height));
            prop_assert!(runs.windows(2).all(|two| two[0].end <= two[1].start));
        }
    }
}
