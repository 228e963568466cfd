//! Which dataset of a file is the cube: the one the user names, the product's, or the only one.

use std::path::Path;

use hsipack_format::{Error, Result};

use super::entry::{Entry, Values};
use super::tree::Tree;
use crate::OpenOptions;
use crate::container::variables::{self, Candidate};
use crate::products::ProductCube;

fn candidate(entry: &Entry) -> Candidate {
    match &entry.values {
        Values::Numbers(dtype) => Candidate::numbers(&entry.path, &entry.shape, *dtype),
        Values::Other(what) => {
            Candidate::other(&entry.path, format!("{} {what}", entry.shape_text()))
        }
    }
}

fn candidates(entries: &[&Entry]) -> Vec<Candidate> {
    entries.iter().map(|entry| candidate(entry)).collect()
}

/// The error that asks which of these datasets is meant.
fn ambiguous(path: &Path, what: &str, entries: &[&Entry]) -> Error {
    let places: Vec<usize> = (0..entries.len()).collect();
    variables::ambiguous(path, what, &candidates(entries), &places)
}

/// How to read all of these as one cube.
fn joining(entries: &[&Entry]) -> String {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name()).collect();
    format!("join them in order of wavelength: '::{}'", names.join("+"))
}

/// The datasets below `group` that may be the cube, or the mask, if the user names none.
fn compete<'a>(tree: &'a Tree, group: &str, mask: bool) -> Vec<&'a Entry> {
    let inside = format!("{group}/");
    let all: Vec<&Entry> =
        tree.datasets.iter().filter(|entry| entry.path.starts_with(&inside)).collect();
    let candidates = candidates(&all);
    let found = if mask { variables::masks(&candidates) } else { variables::cubes(&candidates).1 };
    found.into_iter().map(|index| all[index]).collect()
}

/// The dataset to use: the one that the user names, otherwise the product's cube, otherwise the
/// only cube in the file.
pub(super) fn choose(
    path: &Path,
    tree: &Tree,
    products: &[ProductCube],
    options: &OpenOptions,
) -> Result<Entry> {
    if let Some(name) = &options.variable {
        return named(path, tree, products, name, options.mask);
    }
    let main: Vec<_> = products
        .iter()
        .filter(|cube| cube.main && !options.mask)
        .filter_map(|cube| tree.entry(&cube.path))
        .collect();
    match &main[..] {
        [] => {
            let all: Vec<&Entry> = tree.datasets.iter().collect();
            let index = variables::choose_unnamed(path, options.mask, &candidates(&all))?;
            Ok(all[index].clone())
        }
        [only] => Ok((*only).clone()),
        [first, ..] => {
            // If the product is refused, the user cannot choose one of its two halves.
            let refused = products.iter().find(|cube| cube.path == first.path);
            match refused.and_then(|cube| cube.product.refusal(cube)) {
                Some((what, remedy)) => Err(Error::unsupported(what).with_remedy(remedy)),
                None => {
                    let error = ambiguous(path, "the file holds several cubes", &main);
                    Err(match products.iter().any(|cube| cube.product.is_joinable(cube)) {
                        true => error.or_remedy(joining(&main)),
                        false => error,
                    })
                }
            }
        }
    }
}

/// The dataset that the user names: by full path, by its last components, or by the group whose
/// only cube it is.
fn named(
    path: &Path,
    tree: &Tree,
    products: &[ProductCube],
    name: &str,
    mask: bool,
) -> Result<Entry> {
    let wanted = format!("/{}", name.trim_matches('/'));
    if let Some(entry) = tree.entry(&wanted) {
        return Ok(entry.clone());
    }
    let same = |a: &str, b: &str| a == b;
    let alike = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    for equal in [same as fn(&str, &str) -> bool, alike] {
        let ends = |full: &str| {
            let cut = full.len().checked_sub(wanted.len());
            cut.and_then(|cut| full.get(cut..)).is_some_and(|end| equal(end, &wanted))
        };
        let mut of_product = products.iter().filter(|cube| cube.main && ends(&cube.path));
        if let (Some(cube), None) = (of_product.next(), of_product.next())
            && let Some(entry) = tree.entry(&cube.path)
        {
            return Ok(entry.clone());
        }
        let found: Vec<_> = tree.datasets.iter().filter(|entry| ends(&entry.path)).collect();
        let cubes = compete(tree, "", mask);
        let can: Vec<_> =
            found.iter().filter(|f| cubes.iter().any(|c| c.path == f.path)).copied().collect();
        match (&found[..], &can[..]) {
            ([only], _) | (_, [only]) => return Ok((*only).clone()),
            ([], _) => {}
            _ => {
                return Err(ambiguous(path, &format!("'{name}' matches several datasets"), &found));
            }
        }
    }
    if tree.groups.contains(&wanted) {
        let below = compete(tree, &wanted, mask);
        match &below[..] {
            [only] => return Ok((*only).clone()),
            [] => {}
            _ => return Err(ambiguous(path, &format!("'{wanted}' holds several cubes"), &below)),
        }
    }
    if let Some(entry) = tree.linked(&wanted)? {
        return Ok(entry);
    }
    let available: Vec<&Entry> = tree.datasets.iter().filter(|e| e.dtype().is_some()).collect();
    Err(Error::not_found(format!("there is no dataset '{name}'")).with_remedy(format!(
        "the file holds {}",
        variables::listing(path, &candidates(&available))
    )))
}
