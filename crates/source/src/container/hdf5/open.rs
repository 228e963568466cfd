//! Opens cubes in HDF5 files, several joined into one, and their quality layers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use hsipack_format::{DType, Error, ErrorKind, Result};
use hsipack_store::bounded_read;

use super::choose::choose;
use super::entry::{Entry, Values};
use super::meaning::Meaning;
use super::tree::Tree;
use super::{heaps, read};
use crate::container::Visitor;
use crate::derived::joined;
use crate::recent::Recent;
use crate::{CubeInfo, OpenOptions, Source, products};

/// Opens the cube in `path`.
///
/// # Errors
/// If the file cannot be read or is malformed, or holds no cube or several.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    check_heaps(path)?;
    let opened = match (open_cube(path, options), joined::names(options)) {
        // No dataset has this name, so it may name several cubes to join.
        (Err(error), Some(names)) if error.kind() == ErrorKind::NotFound => {
            open_joined(path, options, &names)
        }
        (opened, _) => opened,
    };
    opened.map_err(|error| error.at(path))
}

/// Shows the file at `path` as a container.
///
/// # Errors
/// If the file cannot be read or is malformed.
pub(crate) fn visit(path: &Path, visitor: Visitor<'_>) -> Result<()> {
    check_heaps(path)?;
    let mut tree = Tree::open(path)?;
    tree.is_matlab = bounded_read::head(path, 20)?.starts_with(b"MATLAB 7.3");
    visitor(&tree)
}

/// Refuses a file in which libhdf5 would loop forever, before libhdf5 sees it.
fn check_heaps(path: &Path) -> Result<()> {
    static RECENT: Recent<bool> = Recent::new();
    let is_endless = || {
        let (file, _) = bounded_read::open(path)?;
        heaps::endless(&file).map_err(|error| Error::io(path, "cannot read", error))
    };
    match *RECENT.get(path, |_| true, is_endless)? {
        true => Err(Error::malformed("a heap of texts in this HDF5 file is damaged")
            .at(path)
            .with_remedy("copy the file again")),
        false => Ok(()),
    }
}

/// Opens several cubes as one, with their bands in order of wavelength.
fn open_joined(path: &Path, options: &OpenOptions, names: &[&str]) -> Result<Box<dyn Source>> {
    let part = |name: &&str| {
        open_cube(path, &OpenOptions { variable: Some((*name).to_owned()), ..options.clone() })
    };
    let parts = names.iter().map(part).collect::<Result<Vec<_>>>()?;
    joined::join(names, parts)
}

/// The quality layers of the product to which the cube in `path` belongs; for joined cubes, the
/// layers of all of them.
///
/// # Errors
/// As [`open`].
pub(crate) fn quality_layers(path: &Path, variable: Option<&str>) -> Result<Vec<products::Layer>> {
    let options = OpenOptions { variable: variable.map(str::to_owned), ..OpenOptions::default() };
    let tree = Tree::open(path)?;
    let cubes = products::cubes(&tree);
    let of_one = |name: Option<&str>| -> Result<Vec<products::Layer>> {
        let options = OpenOptions { variable: name.map(str::to_owned), ..OpenOptions::default() };
        let entry = choose(path, &tree, &cubes, &options)?;
        let cube = cubes.iter().find(|cube| cube.path == entry.path);
        Ok(cube.map_or_else(Vec::new, |cube| cube.product.quality_datasets(cube, &tree, path)))
    };
    match (of_one(variable), joined::names(&options)) {
        (Err(error), Some(names)) if error.kind() == ErrorKind::NotFound => {
            let of_each =
                names.iter().map(|name| of_one(Some(name))).collect::<Result<Vec<_>>>()?;
            Ok(layers_of_joined(&names, of_each))
        }
        (found, _) => found,
    }
}

/// The layers of joined cubes: first the layers of each detector, with its name as prefix, then the
/// layers that all share.
fn layers_of_joined(names: &[&str], of_each: Vec<Vec<products::Layer>>) -> Vec<products::Layer> {
    let datasets = |layers: &[products::Layer]| -> HashSet<Option<String>> {
        layers.iter().map(|layer| layer.variable.clone()).collect()
    };
    let of_first = of_each.first().map(|layers| datasets(layers)).unwrap_or_default();
    let shared = of_each.iter().skip(1).fold(of_first, |all, layers| &all & &datasets(layers));
    let (mut of_files, mut of_pixels) = (Vec::new(), Vec::new());
    for (name, layers) in names.iter().zip(of_each) {
        // VNIR_Cube, rhot_blue
        let detector = name.trim_start_matches("rhot_").trim_end_matches("_Cube");
        let detector = detector.rsplit('/').next().unwrap_or_default().to_lowercase();
        let (same, different): (Vec<_>, Vec<_>) =
            layers.into_iter().partition(|layer| shared.contains(&layer.variable));
        of_files.extend(
            different.into_iter().map(|layer| products::Layer {
                name: format!("{detector}_{}", layer.name),
                ..layer
            }),
        );
        of_pixels = same;
    }
    of_files.append(&mut of_pixels);
    of_files
}

fn open_cube(path: &Path, options: &OpenOptions) -> Result<Box<dyn Source>> {
    let head = bounded_read::head(path, 20)?;
    let mut tree = Tree::open(path)?;
    let products = products::cubes(&tree);
    let mut entry = choose(path, &tree, &products, options)?;
    let product = products.iter().find(|cube| cube.path == entry.path);
    if let Some((what, remedy)) = product.and_then(|cube| cube.product.refusal(cube)) {
        return Err(Error::unsupported(what).with_remedy(remedy));
    }
    let dtype = element_type(&entry)?;
    let (dataset, sources) = tree.dataset(&entry.path)?;
    // A virtual dataset may have grown.
    entry.shape = read::shape(&dataset)?;
    let attributes = tree.attributes(&entry.path);
    let is_matlab = head.starts_with(b"MATLAB 7.3") || attributes.find(&["matlabclass"]).is_some();
    let dtype = match attributes.text("MATLAB_class").as_deref() {
        Some("logical") if dtype.size() == 1 => DType::Bool,
        Some("char" | "cell" | "struct" | "function_handle") => {
            return Err(Error::unsupported(format!("'{}' holds no numbers", entry.path)));
        }
        _ => dtype,
    };
    tree.is_matlab = is_matlab;
    let meaning = Meaning { tree: &tree, entry: &entry, product, options };
    let mut notes = Vec::new();
    let placed = meaning.place(&sources, &mut notes)?;
    let mut info = CubeInfo::new(meaning.format(), placed.shape(), dtype, path);
    info.notes = notes;
    let folder = path.parent().unwrap_or(Path::new(""));
    let beside = |source: &PathBuf| {
        let below = source.strip_prefix(tree.folder()).unwrap_or(source);
        folder.join(below)
    };
    info.files.extend(sources.iter().map(beside));
    let reading = meaning.describe(&placed, &mut info)?;
    if !tree.complete {
        info.notes.push("the file holds too many groups; not all of them were searched".into());
    }
    let on_disk = if is_matlab { placed.reversed() } else { placed };
    read::source(path, dataset, on_disk, info).map(|source| reading.apply(source))
}

fn element_type(entry: &Entry) -> Result<DType> {
    match &entry.values {
        Values::Numbers(dtype) => Ok(*dtype),
        Values::Other(what) => {
            Err(Error::unsupported(format!("'{}' holds {what}, not numbers", entry.path))
                .with_remedy("name a dataset of integers or floats of at most 8 bytes"))
        }
    }
}
