//! The georeferencing that all samples of a stack share. It gives the stack's arrays coordinates
//! for rows and columns.
//!
//! If samples do not share one, each sample has its own in `samples.jsonl`. The stack then has no
//! coordinates, because they would be wrong for some samples.

use hsipack_format::geo::cf;
use hsipack_format::{Geo, Result};
use hsipack_store::{Dataset, Stack};

use super::plan::{Plan, PlannedStack};

/// The georeferencing of the samples of a planned stack, including existing ones of `base`; `None`
/// if they do not share one.
///
/// # Errors
/// If the line of a sample of `base` cannot be read.
pub fn of_planned(
    plan: &Plan,
    stack: &PlannedStack,
    base: Option<&Dataset>,
) -> Result<Option<Geo>> {
    // Masks of older versions may have a name that the arrays need.
    if stack.masks.iter().any(|mask| cf::NAMES.contains(&mask.name.as_str())) {
        return Ok(None);
    }
    let mut new = stack.samples.iter().map(|sample| plan.samples[*sample].facts.geo.as_ref());
    let old = base.and_then(|base| Some((base, base.stack(&stack.name)?)));
    let shared = match old {
        Some((base, old)) => recorded(base, old)?,
        None => new.clone().next().flatten().cloned(),
    };
    Ok(shared.filter(|shared| new.all(|geo| geo == Some(shared))))
}

/// The georeferencing that the arrays of a stack have, if any: that of its first sample.
///
/// # Errors
/// If its line in `samples.jsonl` cannot be read.
pub fn recorded(dataset: &Dataset, stack: &Stack) -> Result<Option<Geo>> {
    if !stack.geo_arrays.contains(&cf::GRID_MAPPING) {
        return Ok(None);
    }
    let stack_index = dataset.stacks().iter().position(|other| other.name == stack.name);
    let first = stack_index.and_then(|stack_index| dataset.samples().id_at(stack_index, 0));
    Ok(first.map(|id| dataset.samples().get(id)).transpose()?.and_then(|sample| sample.geo))
}
