//! Rows of the inputs of a conversion, as they would be packed, spread over all of them within a budget.
//!
//! Which rows is a pure function of the plan and the budget: not of threads, memory or time.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use half::f16;
use hsipack_format::{CubeShape, DType, Error, ErrorKind, Result};

use super::{Counts, Information};
use crate::convert::ValueOptions;
use crate::convert::cast;
use crate::convert::plan::{Plan, PlannedSample, open_source};
use crate::convert::transform::Scratch;
use crate::source::RowBuffer;

/// Values that `--keep-bits auto` looks at, at most, but for one row a cube.
pub const PLAN_BUDGET: Budget = Budget { values: 32 << 20, cubes: 4096, blocks: 8 };

/// How much of the inputs is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Values in all; a cube gives whole rows, at least one.
    pub values: usize,
    /// Cubes at most, evenly spread over the inputs.
    pub cubes: usize,
    /// Runs of adjacent rows of a cube, evenly spread over its height.
    pub blocks: usize,
}

/// Adjacent rows of a cube.
#[derive(Debug)]
pub struct Block<'a> {
    /// The cube.
    pub sample: &'a PlannedSample,
    /// Which rows.
    pub rows: Range<usize>,
    /// Shape of the whole cube as packed.
    pub shape: CubeShape,
    /// Their values before the cast, (row, column, band).
    pub values: &'a [f32],
}

/// Hands rows of the planned cubes to `each`.
///
/// # Errors
/// If a cube cannot be read, `each` fails, or `stop` was set.
pub fn for_each_block(
    plan: &Plan,
    values: &ValueOptions,
    budget: Budget,
    stop: &AtomicBool,
    each: &mut dyn FnMut(Block) -> Result<()>,
) -> Result<()> {
    let cubes = plan.samples.len().min(budget.cubes.max(1));
    let mut buffer = RowBuffer::new();
    let mut scratch = Scratch::default();
    let mut block = Vec::new();
    for number in 0..cubes {
        let sample = &plan.samples[number * plan.samples.len() / cubes];
        let stack = &plan.stacks[sample.stack];
        let shape = stack.grid.shape();
        let source = open_source(&sample.input, values)?;
        let transform = sample.transform(values, stack.scale)?;
        let rows = (budget.values / cubes / shape.row_values()).clamp(1, shape.rows);
        for rows in spread(rows, shape.rows, budget.blocks) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "stopped"));
            }
            source.read_rows(rows.clone(), &mut buffer)?;
            block.clear();
            transform
                .apply(&buffer, rows.start, 0..rows.len(), &mut scratch, &mut |_, values| {
                    block.extend_from_slice(values);
                    Ok(())
                })
                .map_err(|error| error.at(&sample.input.file))?;
            each(Block { sample, rows, shape, values: &block })?;
        }
    }
    Ok(())
}

/// About `count` of `height` rows, all if `count` is `height`, in up to `blocks` runs, each in the middle of its
/// share of the height.
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

/// The real information in the bits of the planned cubes, over a sample of their rows.
///
/// # Errors
/// As [`for_each_block`].
pub fn measure(plan: &Plan, values: &ValueOptions, stop: &AtomicBool) -> Result<Information> {
    let mut counts = Counts::new(values.dtype.size() * 8);
    let mut packed = Vec::new();
    for_each_block(plan, values, PLAN_BUDGET, stop, &mut |block| {
        let (columns, bands) = (block.shape.columns, block.shape.bands);
        if values.dtype == DType::F32 {
            counts.add_f32(bytemuck::cast_slice(block.values), columns, bands);
        } else {
            packed.resize(block.values.len(), f16::ZERO);
            cast::from_f32(block.values, &mut packed);
            counts.add_f16(bytemuck::cast_slice(&packed), columns, bands);
        }
        Ok(())
    })?;
    Ok(counts.information())
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
