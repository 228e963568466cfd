//! Which dataset of a file is the cube: the one the user names, the product's, or the only one.

use std::path::Path;

use hsipack_format::{Error, ErrorKind, Result};

use super::axes::axes_of;
use super::products::ProductCube;
use super::tree::{Entry, Tree};
use crate::source::OpenOptions;

/// How a variable is named on the command line, with its shape.
fn offer(path: &Path, entry: &Entry) -> String {
    let file = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    format!("{file}::{} ({})", entry.path, entry.shape_text())
}

fn offers(path: &Path, entries: &[&Entry]) -> String {
    const MOST: usize = 20;
    let mut text: Vec<_> = entries.iter().take(MOST).map(|entry| offer(path, entry)).collect();
    if entries.len() > MOST {
        text.push(format!("and {} more", entries.len() - MOST));
    }
    text.join(", ")
}

fn ambiguous(path: &Path, what: &str, entries: &[&Entry]) -> Error {
    let file = path.display();
    Error::ambiguous(format!("{what}: {}", offers(path, entries)))
        .with_remedy(format!("name one: '{file}::{}'", entries[0].path))
}

/// The dataset to take: the one named, else the product's cube, else the only cube there is.
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
    let candidates = if main.is_empty() { cubes_below(tree, "", options.mask) } else { main };
    match &candidates[..] {
        [only] => Ok((*only).clone()),
        [first, ..] => {
            // The two halves of a refused product are no choice.
            let refused = products.iter().find(|cube| cube.path == first.path);
            match refused.and_then(ProductCube::refusal) {
                Some((what, remedy)) => Err(Error::unsupported(what).with_remedy(remedy)),
                None => Err(ambiguous(path, "the file holds several cubes", &candidates)),
            }
        }
        [] => Err(no_cube(path, tree, options.mask)),
    }
}

fn no_cube(path: &Path, tree: &Tree, mask: bool) -> Error {
    let numeric: Vec<_> = tree.datasets.iter().filter(|entry| entry.dtype().is_some()).collect();
    if numeric.is_empty() {
        return Error::unsupported("the file holds no dataset of numbers");
    }
    let (what, remedy) = if mask {
        ("no 2-D or 3-D dataset", "name a dataset of class ids")
    } else {
        ("no 3-D dataset", "a cube has three axes; a 2-D dataset can be a mask (--mask)")
    };
    Error::unsupported(format!("the file holds {what}, only {}", offers(path, &numeric)))
        .with_remedy(remedy)
}

/// The datasets below `group` that can be cubes; for a mask, images too. Those with the most axes
/// longer than 1 win: a list stored as 1x1xN is none as long as there is a real cube.
fn cubes_below<'a>(tree: &'a Tree, group: &str, mask: bool) -> Vec<&'a Entry> {
    let inside = format!("{group}/");
    let fits = |entry: &&Entry| {
        entry.path.starts_with(&inside)
            && entry.dtype().is_some()
            && !entry.shape.contains(&0)
            && (axes_of(&entry.shape).is_some() || (mask && entry.shape.len() == 2))
    };
    let all: Vec<_> = tree.datasets.iter().filter(fits).collect();
    let long = |entry: &Entry| entry.shape.iter().filter(|length| **length > 1).count();
    if mask {
        let whole = |entry: &&&Entry| {
            long(entry) >= 2 && entry.dtype().is_some_and(|dtype| !dtype.is_float())
        };
        let labels: Vec<_> = all.iter().filter(whole).copied().collect();
        return if labels.is_empty() { all } else { labels };
    }
    let most = all.iter().map(|entry| long(entry)).max().unwrap_or(0);
    all.into_iter().filter(|entry| long(entry) == most).collect()
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
        let cubes = cubes_below(tree, "", mask);
        let can: Vec<_> =
            found.iter().filter(|f| cubes.iter().any(|c| c.path == f.path)).copied().collect();
        match (&found[..], &can[..]) {
            ([only], _) | (_, [only]) => return Ok((*only).clone()),
            ([], _) => {}
            _ => return Err(ambiguous(path, &format!("'{name}' fits several datasets"), &found)),
        }
    }
    if tree.groups.contains(&wanted) {
        let below = cubes_below(tree, &wanted, mask);
        match &below[..] {
            [only] => return Ok((*only).clone()),
            [] => {}
            _ => return Err(ambiguous(path, &format!("'{wanted}' holds several cubes"), &below)),
        }
    }
    if let Some(entry) = tree.linked(&wanted) {
        return Ok(entry);
    }
    let there: Vec<_> = tree.datasets.iter().filter(|entry| entry.dtype().is_some()).collect();
    Err(Error::new(ErrorKind::Conflict, format!("there is no dataset '{name}'"))
        .with_remedy(format!("the file holds {}", offers(path, &there))))
}
