//! Which array of a dataset is the cube: the one that the user names, or the only one that can be a
//! cube.

use std::path::{Path, PathBuf};

use hsipack_format::{Command, Error, Opt, Result, remedy};

use super::metadata::{ArrayMetadata, Node};
use super::tree::{self, ZarrTree, scales};
use crate::OpenOptions;
use crate::axes::lengths::lengths_text;
use crate::container::ArrayEntry;
use crate::container::variables::{self, Candidate};

/// Limits of the search for cubes: how deep groups may be nested, and how many nodes are visited.
const MAX_DEPTH: usize = 16;
const MAX_NODES: usize = 10_000;

/// Refuses datasets that hsipack wrote.
pub(super) fn refuse_packed(path: &Path, node: &Node) -> Result<()> {
    match node.attributes.contains_key("hsipack") {
        true => Err(Error::unsupported("this is already a packed dataset").at(path).with_remedy(
            remedy!["export cubes with ", Command::Export, ", or add to it with ", Opt::Append],
        )),
        false => Ok(()),
    }
}

/// The array that is the cube, and the dataset around it.
pub(super) struct Found {
    pub folder: PathBuf,
    pub node: Node,
    pub tree: ZarrTree,
    /// The array's path in the tree.
    path: String,
}

impl Found {
    pub fn array(&self) -> Option<&ArrayMetadata> {
        self.node.array.as_ref()
    }

    pub fn entry(&self) -> Option<ArrayEntry> {
        tree::entry(self.path.clone(), &self.node)
    }
}

/// An array that a search found.
#[derive(Debug)]
struct Listed {
    folder: PathBuf,
    /// Path within the dataset, for messages and `file::name`.
    name: String,
    node: Node,
    /// Whether it is not an image in full resolution: a smaller copy, or a map of labels.
    is_secondary: bool,
}

impl Listed {
    fn candidate(&self) -> Candidate {
        match &self.node.array {
            Some(ArrayMetadata { shape, dtype: Some(dtype), .. }) => {
                Candidate::numbers(&self.name, shape, *dtype)
            }
            Some(array) => {
                let what = format!("{} {}", lengths_text(&array.shape), array.type_name);
                Candidate::other(&self.name, what)
            }
            None => Candidate::other(&self.name, "a group"),
        }
    }
}

/// The dataset is a single array: a variable can only name itself.
pub(super) fn whole_path(path: &Path, root: Node, options: &OpenOptions) -> Result<Found> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if let Some(variable) = &options.variable
        && variable.trim_matches('/') != name
        && !variable.trim_matches('/').is_empty()
    {
        return Err(Error::unsupported(format!(
            "this is a single array; it does not contain '{variable}'"
        ))
        .at(path)
        .with_remedy("give the path without '::'"));
    }
    let (tree, inside) = ZarrTree::around(path);
    Ok(Found { folder: path.to_owned(), node: root, tree, path: inside })
}

/// The array that the user named, or the only one that can be a cube.
pub(super) fn choose(path: &Path, options: &OpenOptions) -> Result<Found> {
    let mut arrays = Vec::new();
    let (folder, wanted) = match &options.variable {
        Some(variable) => {
            let inside = path.join(variable.trim_matches('/'));
            match Node::read(&inside)? {
                // A group inside the dataset: look for the cube there.
                Some(node) if node.array.is_none() => {
                    refuse_packed(&inside, &node)?;
                    (inside, None)
                }
                _ => (path.to_owned(), Some(variable.trim_matches('/').to_owned())),
            }
        }
        None => (path.to_owned(), None),
    };
    let prefix = folder.strip_prefix(path).unwrap_or(Path::new(""));
    collect(&folder, &prefix.to_string_lossy(), 0, &mut 0, &mut arrays)?;
    let index = match wanted {
        None if arrays.iter().any(|array| !array.is_secondary) => {
            let first: Vec<usize> =
                (0..arrays.len()).filter(|index| !arrays[*index].is_secondary).collect();
            let candidates: Vec<Candidate> =
                first.iter().map(|index| arrays[*index].candidate()).collect();
            first[variables::choose_unnamed(path, options.mask, &candidates)?]
        }
        wanted => {
            let candidates: Vec<Candidate> = arrays.iter().map(Listed::candidate).collect();
            let options = OpenOptions { variable: wanted, ..options.clone() };
            variables::choose(path, &options, &candidates)?
        }
    };
    let entry = |listed: &Listed| tree::entry(format!("/{}", listed.name), &listed.node);
    let tree = ZarrTree::listed(path, arrays.iter().filter_map(entry).collect());
    let Listed { folder, name, node, .. } = arrays.swap_remove(index);
    Ok(Found { folder, node, tree, path: format!("/{name}") })
}

/// The dataset at `path` with all its arrays.
///
/// # Errors
/// If the metadata cannot be read or are malformed.
pub(super) fn whole(path: &Path) -> Result<ZarrTree> {
    let root = Node::read(path)?;
    if let Some(array) = root.as_ref().and_then(|root| tree::entry(String::new(), root)) {
        return Ok(ZarrTree::listed(path, vec![array]));
    }
    let mut arrays = Vec::new();
    collect(path, "", 0, &mut 0, &mut arrays)?;
    let entry = |listed: &Listed| tree::entry(format!("/{}", listed.name), &listed.node);
    Ok(ZarrTree::listed(path, arrays.iter().filter_map(entry).collect()))
}

/// All arrays below the group in `folder`.
fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    looked_at: &mut usize,
    into: &mut Vec<Listed>,
) -> Result<()> {
    let fail = |error| Error::io(folder, "cannot read", error);
    let mut children: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()
        .map_err(fail)?;
    children.sort();
    let attributes = Node::read(folder)?.map(|node| node.attributes).unwrap_or_default();
    let is_labels = attributes.contains_key("image-label")
        || attributes.get("ome").is_some_and(|ome| ome.get("image-label").is_some());
    let smaller: Vec<String> = scales(&attributes)
        .flat_map(|scale| scale.paths().skip(1).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for child in children.into_iter().filter(|child| child.is_dir()) {
        let Some(node) = Node::read(&child)? else { continue };
        let own_name = child.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name =
            if prefix.is_empty() { own_name.clone() } else { format!("{prefix}/{own_name}") };
        if node.array.is_some() {
            let is_secondary = is_labels || smaller.contains(&own_name);
            into.push(Listed { folder: child, name, node, is_secondary });
        } else if depth < MAX_DEPTH {
            collect(&child, &name, depth + 1, looked_at, into)?;
        }
        // Groups count as well, because links may form cycles.
        *looked_at += 1;
        if *looked_at > MAX_NODES {
            return Err(Error::unsupported(format!(
                "there are more than {MAX_NODES} arrays and groups"
            ))
            .at(folder)
            .with_remedy("name one as FOLDER::NAME, or give its folder"));
        }
    }
    Ok(())
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
