//! Which array of a dataset is the cube: the one the user names, or the only one that can be.

use std::path::{Path, PathBuf};

use hsipack_format::{Error, Result};

use super::metadata::{ArrayMetadata, Node};
use crate::source::OpenOptions;

/// How deep groups may be nested, and how many nodes are looked at, in the search for cubes.
const MAX_DEPTH: usize = 16;
const MAX_NODES: usize = 10_000;

/// What hsipack wrote is no input.
pub(super) fn refuse_packed(path: &Path, node: &Node) -> Result<()> {
    match node.attributes.contains_key("hsipack") {
        true => Err(Error::unsupported("an hsipack dataset, packed already")
            .at(path)
            .with_remedy("take cubes out with `hsipack export`, or add to it with --append")),
        false => Ok(()),
    }
}

/// An array in a dataset.
#[derive(Debug)]
pub(super) struct Found {
    pub folder: PathBuf,
    /// Path within the dataset, for messages and `file::name`.
    pub name: String,
    pub node: Node,
}

impl Found {
    pub fn array(&self) -> Option<&ArrayMetadata> {
        self.node.array.as_ref()
    }

    fn describe(&self, root: &Path) -> String {
        let Some(array) = self.array() else { return self.name.clone() };
        format!("{}::{} {:?} {}", root.display(), self.name, array.shape, array.type_name)
    }
}

/// The dataset is a single array: a variable can only name itself.
pub(super) fn whole_path(path: &Path, root: Node, options: &OpenOptions) -> Result<Found> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(variable) = &options.variable
        && variable.trim_matches('/') != name
        && !variable.trim_matches('/').is_empty()
    {
        return Err(Error::unsupported(format!("a single array, without '{variable}' in it"))
            .at(path)
            .with_remedy("give the path without '::'"));
    }
    Ok(Found { folder: path.to_owned(), name, node: root })
}

/// The array that the user named, or the only one that can be a cube.
pub(super) fn choose(path: &Path, options: &OpenOptions) -> Result<Found> {
    let mut arrays = Vec::new();
    let (folder, wanted) = match &options.variable {
        Some(variable) => {
            let inside = path.join(variable.trim_matches('/'));
            match Node::read(&inside)? {
                // A group inside the dataset: the cube is looked for there.
                Some(node) if node.array.is_none() => {
                    refuse_packed(&inside, &node)?;
                    (inside, None)
                }
                _ => (path.to_owned(), Some(variable.trim_matches('/'))),
            }
        }
        None => (path.to_owned(), None),
    };
    let prefix = folder.strip_prefix(path).unwrap_or(Path::new(""));
    collect(&folder, &prefix.to_string_lossy(), 0, &mut 0, &mut arrays)?;
    let there = list(path, &arrays);
    let matching: Vec<Found> = match wanted {
        Some(wanted) => named(arrays, wanted),
        None => arrays.into_iter().filter(|found| may_be_cube(found, options)).collect(),
    };
    match matching.len() {
        1 => Ok(matching.into_iter().next().expect("there is one")),
        0 => Err(Error::malformed(match wanted {
            Some(wanted) => format!("no array '{wanted}'; there are {there}"),
            None => format!("no 3-D array of numbers; there are {there}"),
        })
        .at(path)
        .with_remedy("name an array as FOLDER::NAME")),
        _ => Err(Error::ambiguous(format!("several arrays: {}", list(path, &matching)))
            .at(path)
            .with_remedy("name one as FOLDER::NAME")),
    }
}

/// All arrays below the group in `folder`.
fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    looked_at: &mut usize,
    into: &mut Vec<Found>,
) -> Result<()> {
    let fail = |error| Error::io(folder, "cannot read", error);
    let mut children: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(fail)?;
    children.sort();
    for child in children.into_iter().filter(|child| child.is_dir()) {
        let Some(node) = Node::read(&child)? else { continue };
        let own = child.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = if prefix.is_empty() { own } else { format!("{prefix}/{own}") };
        if node.array.is_some() {
            into.push(Found { folder: child, name, node });
        } else if depth < MAX_DEPTH {
            collect(&child, &name, depth + 1, looked_at, into)?;
        }
        // Groups count as well: links may lead round in circles.
        *looked_at += 1;
        if *looked_at > MAX_NODES {
            return Err(Error::unsupported(format!("more than {MAX_NODES} arrays and groups"))
                .at(folder)
                .with_remedy("name one as FOLDER::NAME, or give its folder"));
        }
    }
    Ok(())
}

/// The arrays called `wanted`: by their whole path, else by its end, else whatever the case.
fn named(arrays: Vec<Found>, wanted: &str) -> Vec<Found> {
    let last = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    let is: [&dyn Fn(&str) -> bool; 4] = [
        &|name| name == wanted,
        &|name| last(name) == wanted,
        &|name| name.eq_ignore_ascii_case(wanted),
        &|name| last(name).eq_ignore_ascii_case(wanted),
    ];
    let best = is.iter().find(|is| arrays.iter().any(|found| is(&found.name)));
    let Some(is) = best else { return Vec::new() };
    arrays.into_iter().filter(|found| is(&found.name)).collect()
}

fn may_be_cube(found: &Found, options: &OpenOptions) -> bool {
    found.array().is_some_and(|array| {
        let axes = array.shape.len();
        array.dtype.is_some() && (axes == 3 || axes == 2 && options.mask)
    })
}

fn list(root: &Path, arrays: &[Found]) -> String {
    if arrays.is_empty() {
        return "no arrays".to_owned();
    }
    let more = if arrays.len() > 12 { ", …" } else { "" };
    let named: Vec<_> = arrays.iter().take(12).map(|found| found.describe(root)).collect();
    named.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_go_round_in_circles_end() {
        let folder = tempfile::tempdir().unwrap();
        let group = r#"{"zarr_format": 3, "node_type": "group"}"#;
        std::fs::write(folder.path().join("zarr.json"), group).unwrap();
        for name in ["a", "b", "c"] {
            std::os::unix::fs::symlink(folder.path(), folder.path().join(name)).unwrap();
        }
        let error = collect(folder.path(), "", 0, &mut 0, &mut Vec::new()).unwrap_err();
        assert!(error.what().contains("more than"), "{error}");
    }
}
