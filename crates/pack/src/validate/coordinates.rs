//! Coordinate arrays: for lists of bands, reports problems that were found when they were read;
//! compares rows, columns and the grid mapping with `samples.jsonl`.

use hsipack_format::geo::cf::{self, GeoArray};
use hsipack_format::zarr::ArrayMeta;
use hsipack_format::{Geo, Result};
use hsipack_store::{Dataset, Stack, bounded_read};

use super::{Problem, ProblemKind, is_no_damage};
use crate::convert::shared_geo;

/// Finds the problems of the coordinate arrays of a stack. `stack_index` is the index of the stack.
///
/// # Errors
/// If a server does not answer.
pub fn check(dataset: &Dataset, stack_index: usize) -> Result<Vec<Problem>> {
    let stack = &dataset.stacks()[stack_index];
    let bands = stack.problems.iter().map(|error| {
        let mut problem = Problem::of(ProblemKind::Coordinate, dataset.path(), error);
        problem.stack = Some(stack.name.clone());
        problem
    });
    let mut problems: Vec<Problem> = bands.collect();
    // Other libraries write these arrays in other ways, and need not list the georeferencing of samples.
    if !stack.geo_arrays.is_empty() && dataset.root().is_ours() {
        problems.extend(check_grid(dataset, stack_index)?);
    }
    Ok(problems)
}

/// The georeferencing arrays that a stack should have; none if the stack has none.
///
/// # Errors
/// If a line of `samples.jsonl` cannot be read.
pub fn made(dataset: &Dataset, stack: &Stack) -> Result<Vec<GeoArray>> {
    let shape = stack.image.shape();
    let geo = shared_geo::recorded(dataset, stack)?;
    Ok(geo.map_or_else(Vec::new, |geo| cf::arrays(&geo, shape.rows, shape.columns)))
}

fn check_grid(dataset: &Dataset, stack_index: usize) -> Result<Vec<Problem>> {
    let stack = &dataset.stacks()[stack_index];
    let problem = |kind, array: &str, file: &str, what: &str| {
        let path = dataset.path().join(&stack.name).join(array).join(file);
        Problem {
            stack: Some(stack.name.clone()),
            array: Some(array.to_owned()),
            ..Problem::new(kind, path, what)
        }
    };
    let wrong = |array: &str, what: &str| problem(ProblemKind::Metadata, array, "zarr.json", what);
    let arrays = match made(dataset, stack) {
        Ok(arrays) => arrays,
        Err(error) if is_no_damage(&error) => return Err(error),
        Err(error) => return Ok(vec![wrong(cf::GRID_MAPPING, error.what())]),
    };
    let mut problems = Vec::new();
    if stack.geo_arrays.iter().any(|name| !arrays.iter().any(|array| array.name == *name))
        || arrays.len() != stack.geo_arrays.len()
    {
        let what = "the arrays of the georeferencing do not match the samples";
        return Ok(vec![wrong(stack.geo_arrays[0], what)]);
    }
    match strays(dataset, stack_index) {
        Ok(None) => {}
        Ok(Some(name)) => {
            let what = format!("sample {name} is at another position than samples.jsonl says");
            problems.push(wrong(cf::GRID_MAPPING, &what));
        }
        Err(error) if is_no_damage(&error) => return Err(error),
        // Lines that cannot be read are reported as a problem of that file.
        Err(_) => {}
    }
    for array in arrays {
        let folder = dataset.path().join(&stack.name).join(array.name);
        let meta = bounded_read::read(&folder.join("zarr.json"), bounded_read::METADATA)
            .and_then(|text| ArrayMeta::parse(&text));
        match meta {
            Ok(meta) if is_of_kind(&meta, &array.meta) => {}
            Ok(_) => problems
                .push(wrong(array.name, "the positions of samples differ from samples.jsonl")),
            Err(error) if is_no_damage(&error) => return Err(error),
            Err(error) => problems.push(wrong(array.name, error.what())),
        }
        let file = array.chunk_file();
        let damage = |what: &str| problem(ProblemKind::Coordinate, array.name, &file, what);
        match bounded_read::read(&folder.join(&file), bounded_read::METADATA) {
            Ok(chunk) if chunk == array.chunk => {}
            Ok(_) => problems.push(damage("the positions of samples differ from samples.jsonl")),
            Err(error) if is_no_damage(&error) => return Err(error),
            Err(error) => problems.push(damage(error.what())),
        }
    }
    Ok(problems)
}

/// Whether an array has the expected layout and transform. Other versions may describe the
/// reference system in another way.
fn is_of_kind(meta: &ArrayMeta, wanted: &ArrayMeta) -> bool {
    let transform = |meta: &ArrayMeta| meta.attributes.get("GeoTransform").cloned();
    meta.shape == wanted.shape && meta.dtype == wanted.dtype && transform(meta) == transform(wanted)
}

/// The name of a sample of a stack whose georeferencing differs from that of the first one.
fn strays(dataset: &Dataset, stack_index: usize) -> Result<Option<String>> {
    let samples = dataset.samples();
    let mut shared: Option<Option<Geo>> = None;
    for id in samples.ids_in(stack_index) {
        let sample = samples.get(id)?;
        if *shared.get_or_insert_with(|| sample.geo.clone()) != sample.geo {
            return Ok(Some(sample.name));
        }
    }
    Ok(None)
}
