//! Where the pixels of a NetCDF variable lie: its grid mapping, and the coordinates of its rows and columns.

use hsipack_format::{CubeShape, Geo};

use super::meaning::Cube;
use super::tree::{Attributes, Tree, parent, plain};
use crate::Axis;
use crate::cf::{self, Coordinates, Said};

impl cf::Attributes for Attributes {
    fn text(&self, name: &str) -> Option<String> {
        self.long_text(name)
    }

    fn number(&self, name: &str) -> Option<f64> {
        Attributes::number(self, name)
    }
}

/// Where the pixels of the cube in the dataset at `path` lie, if the file follows CF. Adds notes about anything that
/// is not kept.
pub(super) fn geo(tree: &Tree, path: &str, cube: &Cube, notes: &mut Vec<String>) -> Option<Geo> {
    let names = tree.axis_names(path, cube.lengths.len());
    let list = |axis| {
        let place = cube.axes[cube.order.position(axis)];
        coordinates(tree, path, names.get(place)?.as_deref()?)
    };
    let attributes = tree.attributes(path);
    let mapping = mapping(tree, path, &attributes);
    let said = Said {
        mapping: mapping.as_ref().map(|mapping| mapping as &dyn cf::Attributes),
        x: list(Axis::Column),
        y: list(Axis::Row),
    };
    let found = cf::geo(&said, cube.shape(), notes);
    if found.is_none() {
        notes.extend(of_every_pixel(tree, path, &attributes, cube.shape()));
    }
    found
}

/// The full path of the dataset `name` that is nearest to the dataset at `path`: in its group, or in a group around
/// it.
fn nearest(tree: &Tree, path: &str, name: &str) -> Option<String> {
    if name.starts_with('/') {
        return tree.entry(name).map(|entry| entry.path.clone());
    }
    let mut group = path;
    while !group.is_empty() {
        group = parent(group);
        let candidate = format!("{group}/{name}");
        if tree.entry(&candidate).is_some() {
            return Some(candidate);
        }
    }
    None
}

/// The variable that `grid_mapping` names: `crs`, or, in CF's longer form, `crs: x y other: lat lon`.
fn mapping(tree: &Tree, path: &str, attributes: &Attributes) -> Option<Attributes> {
    let names = attributes.text("grid_mapping")?;
    let name = names.split_whitespace().next()?.trim_end_matches(':');
    Some(tree.attributes(&nearest(tree, path, name)?))
}

/// The coordinate variable of the axis `name`.
fn coordinates(tree: &Tree, path: &str, name: &str) -> Option<Coordinates> {
    let variable = nearest(tree, path, name)?;
    let attributes = tree.attributes(&variable);
    // NetCDF stores a dimension without a variable as a dataset of zeros.
    let is_none = attributes
        .text("NAME")
        .is_some_and(|name| name.starts_with("This is a netCDF dimension but not"));
    if is_none || tree.entry(&variable)?.shape.len() != 1 {
        return None;
    }
    Some(Coordinates {
        values: tree.list(&variable)?,
        standard_name: attributes.text("standard_name"),
        units: attributes.text("units"),
    })
}

/// A note if there are longitudes and latitudes of every pixel, listed in the variable's `coordinates` or beside it.
fn of_every_pixel(
    tree: &Tree,
    path: &str,
    attributes: &Attributes,
    shape: CubeShape,
) -> Option<String> {
    const NAMES: [&str; 4] = ["latitude", "longitude", "lat", "lon"];
    let listed = attributes.text("coordinates").unwrap_or_default();
    let beside = tree.datasets.iter().filter(|entry| entry.group() == parent(path));
    let beside =
        beside.map(|entry| entry.name()).filter(|name| NAMES.contains(&plain(name).as_str()));
    let mut found: Vec<&str> = Vec::new();
    for name in listed.split_whitespace().chain(beside) {
        let entry = nearest(tree, path, name).and_then(|path| tree.entry(&path));
        let is_map = entry.is_some_and(|entry| entry.shape == [shape.rows, shape.columns]);
        if is_map && !found.contains(&name) {
            found.push(name);
        }
    }
    let degrees = |name: &&str| {
        let path = nearest(tree, path, name).unwrap_or_default();
        let attributes = tree.attributes(&path);
        let units = attributes.text("units").unwrap_or_default().to_lowercase();
        units.starts_with("degree") || NAMES.contains(&plain(name).as_str())
    };
    found.retain(|name| degrees(name));
    (found.len() >= 2).then(|| {
        format!(
            "the positions of pixels are stored in '{}', which are not kept",
            found.join("' and '")
        )
    })
}
