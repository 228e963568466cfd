//! The georeferencing that all samples of a stack share, so that its arrays can have coordinates of rows and columns.
//!
//! Samples that do not share one each have their own in `samples.jsonl`, and the stack has no coordinates: none that are
//! wrong for some.

use hsipack_format::geo::cf;
use hsipack_format::{Geo, Result};
use hsipack_store::{Dataset, Stack};

use super::plan::{Plan, PlannedStack};

/// Where the samples of a planned stack lie, those of `base` that it goes on with included; `None` if not all lie there.
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
    let mut new = stack.samples.iter().map(|sample| plan.samples[*sample].info.geo.as_ref());
    let old = base.and_then(|base| Some((base, base.stack(&stack.name)?)));
    let shared = match old {
        Some((base, old)) => recorded(base, old)?,
        None => new.clone().next().flatten().cloned(),
    };
    Ok(shared.filter(|shared| new.all(|geo| geo == Some(shared))))
}

/// Where the samples of a stack lie, if its arrays say so: as the first of them does.
///
/// # Errors
/// If its line in `samples.jsonl` cannot be read.
pub fn recorded(dataset: &Dataset, stack: &Stack) -> Result<Option<Geo>> {
    if !stack.geo_arrays.contains(&cf::GRID_MAPPING) {
        return Ok(None);
    }
    let place = dataset.stacks().iter().position(|one| one.name == stack.name);
    let first = place.and_then(|place| dataset.samples().id_at(place, 0));
    Ok(first.map(|id| dataset.samples().get(id)).transpose()?.and_then(|sample| sample.geo))
}
